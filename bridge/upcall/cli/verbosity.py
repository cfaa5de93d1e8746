"""`upcall verbosity`: how much of a session's work is shown in its threads."""

from __future__ import annotations

from upcall.cli import args, control, exits, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ABOUT = """Choose how much of one conversation's work is shown in channels with
threads: what is said at the end of a turn (lean), live text and tools too
(verbose), questions only (quiet), or what the configuration says (default)."""
EPILOG = """examples:
  upcall verbosity nightly quiet
  upcall verbosity nightly default

exit codes:
  0 done   1 failure   2 usage, or no such session"""

_LEVELS = ("lean", "verbose", "quiet", "default")


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `verbosity` to *parser*."""
    add = parser.add_argument
    add("session", metavar="SESSION", help="a session's name or id")
    add("level", metavar="LEVEL", choices=_LEVELS, help="lean, verbose, quiet or default")
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall verbosity`."""
    made = args.make_parser("verbosity", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall verbosity`."""
    given = parser().read(argv)
    session = args.usable(given.session, "SESSION")
    level = None if given.level == "default" else given.level
    with control.connect() as line:
        told = line.request("verbosity", session=session, level=level)
    if given.json:
        screen.document({"conversation": told.get("conversation"), "level": told.get("level")})
    else:
        screen.out(f"{screen.one_line(session, 80)}: {given.level}")
    return exits.OK
