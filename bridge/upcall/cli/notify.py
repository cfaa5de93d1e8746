"""`upcall notify`: tell something that nobody has to answer."""

from __future__ import annotations

from upcall.cli import args, ask, exits, screen, where
from upcall.cli.errors import Usage
from upcall.line import LineError, ensure_hub
from upcall.line.errors import LOST_CODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

ABOUT = """Tell something wherever people are. Nobody has to answer, and nothing waits."""
EPILOG = """example:
  upcall notify "Backup finished: 12 GiB in 4 min"
  make 2>&1 | tail -5 | upcall notify - --level error

exit codes:
  0 told   1 failure   2 usage"""
MAX_TEXT_CHARS = 65536


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `notify` to *parser*."""
    add = parser.add_argument
    add("text", metavar="TEXT", help="what to tell; - reads stdin")
    add("--level", choices=("info", "warning", "error"), default="info", help="how grave")
    add("--title", metavar="TEXT", help="what the telling program is called")
    add("--session", metavar="NAME", help="the conversation it belongs to")
    add("--tag", metavar="TAG", action="append", default=[], dest="tags",
        help="what routes can tell it by; repeat it for more (or $UPCALL_TAGS)")  # fmt: skip
    add("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    add("--json", action="store_true", help="print where it went as one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall notify`."""
    made = args.make_parser("notify", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall notify`."""
    given = parser().read(argv)
    text = args.usable(given.text, "TEXT")
    if text == "-":
        text = args.stdin_text("TEXT", 4 * MAX_TEXT_CHARS).rstrip("\n")
    if not text.strip():
        raise Usage("TEXT is empty")
    if len(text) > MAX_TEXT_CHARS:
        raise Usage(f"TEXT has {len(text)} characters; the limit is {MAX_TEXT_CHARS}")
    answer = _tell({"text": text, "level": given.level, "session": ask.asker(given)})
    channels = answer.get("channels") or []
    if given.json:
        screen.document({"ok": True, "channels": channels})
    if not given.quiet:
        screen.err(where.told(channels))
    return exits.OK


def _tell(fields: dict[str, Any]) -> dict[str, Any]:
    try:
        with ensure_hub(note=screen.err) as line:
            return line.request("notify", **fields)
    except LineError as err:
        # A hub that was just ending: once more, with a new one. Before it answered, that is;
        # a notice that comes twice is better than none.
        if err.code not in LOST_CODES:
            raise
    with ensure_hub(note=screen.err) as line:
        return line.request("notify", **fields)
