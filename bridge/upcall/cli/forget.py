"""`upcall forget`: erase texts that the hub keeps; that something was asked stays known."""

from __future__ import annotations

import sys

from upcall.cli import args, control, exits, screen, when
from upcall.cli.errors import Failure, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

ABOUT = """Erase texts that the hub keeps: questions, details, answers, notices, and the
files of sessions. The audit keeps its lines, which hold no text, and says that
the text was forgotten. Open questions are not forgotten: end them first.

Backups that were made earlier, and what a chat platform keeps, are out of
reach of this command."""
EPILOG = """examples:
  upcall forget a7q2
  upcall forget --session nightly --dry-run
  upcall forget --before 30d --yes
  upcall forget --before 2026-05-01

exit codes:
  0 done, or nothing to forget   1 failure   2 usage, no such question, or
  it is still open"""
# A name has fewer; an id of another program's session may have so many.
_MAX_SESSION_CHARS = 1024


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `forget` to *parser*."""
    add = parser.add_argument
    add("asks", metavar="ASK", nargs="*",
        help="a question's id, or the beginning of it (4 characters)")  # fmt: skip
    add("--session", metavar="NAME", help="all of a session: its --session name, or its id")
    add("--before", metavar="WHEN",
        help="all that ended before a date (2026-05-01) or age (30d)")  # fmt: skip
    add("--dry-run", action="store_true", help="say what would go, and erase nothing")
    add("--yes", action="store_true", help="do not ask on this terminal")
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall forget`."""
    made = args.make_parser("forget", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall forget`."""
    given = parser().read(argv)
    if sum([bool(given.asks), given.session is not None, given.before is not None]) != 1:
        raise Usage("give either ASK, or --session NAME, or --before WHEN", "upcall forget -h")
    wanted: dict[str, Any] = {}
    if given.asks:
        wanted["asks"] = [args.usable(one, "ASK") for one in given.asks]
    elif given.session is not None:
        wanted["session"] = args.name(given.session, "--session", _MAX_SESSION_CHARS)
    else:
        wanted["before_ms"] = when.past_ms(given.before, "--before")
    with control.connect() as line:
        found = line.request("forget", dry_run=True, **wanted)["forgotten"]
        if given.dry_run or not _anything(found):
            return _tell(found, as_json=given.json, done=False)
        _confirm(found, given)
        found = line.request("forget", dry_run=False, **wanted)["forgotten"]
    return _tell(found, as_json=given.json, done=True)


def _anything(found: dict[str, Any]) -> bool:
    return bool(found["asks"] or found["notices"] or found["sessions"])


def _confirm(found: dict[str, Any], given: argparse.Namespace) -> None:
    if given.yes:
        return
    asked = sys.stdin is not None and sys.stdin.isatty()
    asked = asked and sys.stderr is not None and sys.stderr.isatty()
    if given.json or not asked:
        raise Usage(f"this erases {_words(found)}", "to do it without a question: --yes")
    sys.stderr.write(f"Erase {_words(found)}, for good? Type yes: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise Failure("nothing was erased", code="not_confirmed")


def _tell(found: dict[str, Any], *, as_json: bool, done: bool) -> int:
    if as_json:
        screen.document({"done": done, **found})
        return exits.OK
    still_open = len(found["open"])
    if not _anything(found):
        screen.out("nothing to forget")
    else:
        screen.out(f"{'erased' if done else 'would erase'}: {_words(found)}")
    if still_open:
        screen.err(f"{_count(still_open, 'open question')} kept: answer or cancel, then forget")
    for copy in found.get("copies") or []:
        screen.err(f"an older copy still holds its texts: {screen.visible(str(copy))}")
    if done:
        screen.err("backups made before, and what chat platforms keep, are not reached")
    return exits.OK


def _words(found: dict[str, Any]) -> str:
    parts = [f"the text of {_count(len(found['asks']), 'question')}"]
    if found["notices"]:
        parts.append(_count(found["notices"], "notice"))
    if found["sessions"]:
        parts.append(f"names and files of {_count(len(found['sessions']), 'session')}")
    return ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
