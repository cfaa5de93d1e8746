"""`upcall status`: how the hub is, what it hears, and what waits."""

from __future__ import annotations

from upcall.cli import args
from upcall.cli.control import require_control

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ABOUT = """How the hub is: what every channel last heard, what waits to be told, and what
was given up. Starts no hub."""
EPILOG = """examples:
  upcall status
  upcall status --json

exit codes:
  0 a hub is running   1 none is, or it does not answer   2 usage"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `status` to *parser*."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall status`."""
    made = args.make_parser("status", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall status`, which is `upcall hub status`."""
    given = parser().read(argv)
    require_control()
    from upcall.cli.hub import print_status

    return print_status(as_json=given.json)
