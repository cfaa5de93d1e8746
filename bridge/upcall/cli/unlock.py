"""`upcall unlock`: take answers again."""

from __future__ import annotations

from upcall.cli import args, control, exits, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ABOUT = """End `upcall lock`, or a /lock from a chat. Only this command does."""
EPILOG = """example:
  upcall unlock

exit codes:
  0 not locked any more   1 failure   2 usage"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `unlock` to *parser*."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall unlock`."""
    made = args.make_parser("unlock", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall unlock`."""
    given = parser().read(argv)
    with control.connect() as line:
        told = line.request("unlock")
    if given.json:
        screen.document({"locked": None, "changed": bool(told.get("changed"))})
        return exits.OK
    screen.out("unlocked" if told.get("changed") else "it was not locked")
    return exits.OK
