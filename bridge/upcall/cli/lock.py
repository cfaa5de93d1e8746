"""`upcall lock`: take nothing from anywhere but this command line."""

from __future__ import annotations

from upcall.cli import args, control, exits, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ABOUT = """Refuse every answer, message and command from everywhere but this
command line, at once and over restarts. Every open question says so. For the
case that a telephone or an account is in the wrong hands."""
EPILOG = """examples:
  upcall lock --reason "phone lost"
  upcall unlock

exit codes:
  0 locked   1 failure   2 usage"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lock` to *parser*."""
    add = parser.add_argument
    add("--reason", metavar="TEXT", default="", help="why; it is shown on every question")
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall lock`."""
    made = args.make_parser("lock", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall lock`."""
    given = parser().read(argv)
    reason = args.usable(given.reason, "--reason") if given.reason else ""
    with control.connect() as line:
        told = line.request("lock", reason=reason[:500])
    lock = told.get("locked") or {}
    if given.json:
        screen.document({"locked": lock or None, "changed": bool(told.get("changed"))})
        return exits.OK
    if not told.get("changed"):
        by = screen.one_line(str(lock.get("name") or "?"), 80)
        screen.err(f"it was locked already, by {by}")
    screen.out("locked: nothing is taken until: upcall unlock")
    return exits.OK
