"""`upcall log`: the story of each question, as the audit keeps it."""

from __future__ import annotations

import os
import sys
import time

from upcall.cli import args, control, exits, screen, when
from upcall.cli.errors import Usage
from upcall.cli.signals import EndingSignals, Interrupted
from upcall.line import HubLine, LineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from typing import Any

ABOUT = """Show what happened: who asked, where it was shown, who answered what, when
the program took it. Oldest first. The audit is append-only; each line carries
the hash of the one before it, and --verify checks that nothing was changed.

Answers are shown while their text is kept (retention.text_days, `upcall
forget`); the line itself never holds them."""
EPILOG = """examples:
  upcall log --since 2h
  upcall log --ask a7q2
  upcall log --follow --json | jq .words
  upcall log --verify

With --json there is one document; with --follow too, one for each line.

exit codes:
  0 shown, also if there is nothing; or the audit is whole   1 failure, or
  --verify found something wrong   2 usage, no such question or session
  130 Ctrl-C, 143 terminated"""
_MAX_LIMIT = 100_000
_PAGE = 1000
_TOGETHER_MS = 2000
_MERGED = frozenset({"card_closed", "shown"})
_LOUD = frozenset({"refused", "delivery_dead", "uncertain", "reply_rejected", "reopened"})


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `log` to *parser*."""
    add = parser.add_argument
    add("--ask", metavar="ID", help="of one question: its id, or the beginning of it")
    add("--session", metavar="NAME", help="of one session: its --session name, or its id")
    add("--since", metavar="WHEN", help="since a date (2026-05-01) or an age (2h)")
    add("--limit", metavar="N", help="at most so many, the newest (default 200)")
    add("--follow", action="store_true", help="go on with what happens from now on")
    add("--verify", action="store_true",
        help="check the audit and say what is wrong, if anything is")  # fmt: skip
    add("--anchor", metavar="ROW:HASH", action="append", default=[],
        help="with --verify: a head that you noted, as from a chat")  # fmt: skip
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall log`."""
    made = args.make_parser("log", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall log`."""
    given = parser().read(argv)
    if given.verify:
        if given.follow or any((given.ask, given.session, given.since, given.limit)):
            raise Usage(
                "--verify looks at the whole audit", "give it alone, or with --json, --anchor"
            )
        from upcall.cli.log_verify import verify

        return verify(given)
    if given.anchor:
        raise Usage("--anchor goes with --verify", "upcall log --verify --anchor ROW:HASH")
    wanted = _wanted(given)
    limit = 200 if given.limit is None else args.count(given.limit, "--limit", _MAX_LIMIT)
    if not given.follow:
        return _show(wanted, limit, as_json=given.json)
    with EndingSignals():
        try:
            return _follow(wanted, limit, as_json=given.json)
        except Interrupted as signal:
            return exits.SIGNAL_BASE + signal.number


def _wanted(given: argparse.Namespace) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    if given.ask is not None:
        wanted["ask"] = args.name(given.ask, "--ask", 300)
    if given.session is not None:
        wanted["session"] = args.name(given.session, "--session", 1024)
    if given.since is not None:
        wanted["since_ms"] = when.past_ms(given.since, "--since")
    return wanted


def _show(wanted: dict[str, Any], limit: int, *, as_json: bool) -> int:
    try:
        line = HubLine.connect("control")
    except LineError as err:
        if err.code != "hub_not_running":
            raise
        control.require_control()
        from upcall.cli.log_stored import stored

        found, head = stored(wanted, limit)
    else:
        with line:
            found, head = _of_hub(line, wanted, limit)
    if as_json:
        screen.document({"lines": [_document(one) for one in found], "head": head})
    elif found:
        _Told(one_ask="ask" in wanted).tell(found)
    else:
        screen.err("nothing is in the log" if not wanted else "nothing in the log fits")
    return exits.OK


def _of_hub(
    line: HubLine, wanted: dict[str, Any], limit: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the newest *limit* lines, oldest first, in as many requests as it takes."""
    found: list[dict[str, Any]] = []
    head: dict[str, Any] = {}
    while len(found) < limit:
        fields = {**wanted, "limit": min(_PAGE, limit - len(found))}
        if found:
            fields["before"] = found[0]["row"]
        answer = line.request("log", **fields)
        head = head or answer.get("head") or {}
        page = answer.get("lines") or []
        found = [*page, *found]
        if not page or (len(page) < fields["limit"] and not answer.get("cut")):
            break
    return found, head


def _follow(wanted: dict[str, Any], limit: int, *, as_json: bool) -> int:
    told = _Told(one_ask="ask" in wanted)
    with control.connect() as line:
        answer = line.request("log", **wanted, limit=min(limit, _PAGE), follow=True)
        found = answer.get("lines") or []
        while True:
            if as_json:
                for one in found:
                    screen.document(_document(one))
            else:
                told.tell(found, merges=False)
            event = line.next_event()
            found = [event["line"]] if event and event.get("event") == "log" else []


def _document(line: dict[str, Any]) -> dict[str, Any]:
    at_ms = int(line.get("at_ms") or 0)
    there_is_ms = min(max(at_ms, 0), screen.LAST_MS)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(there_is_ms / 1000))
    return {"at": f"{stamp}.{at_ms % 1000:03d}Z", **line}


class _Told:
    """Lines as a person reads them; a pipe gets the same words, whole and plain.

    Args:
        one_ask: all lines are of one question, so that its id need not stand in each.
    """

    def __init__(self, *, one_ask: bool) -> None:
        self._one_ask = one_ask
        self._day = ""
        self._on_terminal = sys.stdout is not None and sys.stdout.isatty()
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
        self._coloured = self._on_terminal and not plain

    def tell(self, lines: Iterable[dict[str, Any]], *, merges: bool = True) -> None:
        """Print *lines*, oldest first."""
        for one in _merged(lines) if merges else lines:
            self._one(one)

    def _one(self, line: dict[str, Any]) -> None:
        at = screen.local_time(int(line.get("at_ms") or 0))
        day, clock = time.strftime("%Y-%m-%d", at), time.strftime("%H:%M:%S", at)
        words = screen.visible(str(line.get("words") or line.get("event")))
        ask = screen.one_line(str(line.get("ask") or "-"), 20)
        if not self._on_terminal:
            parts = [f"{day} {clock}", *([] if self._one_ask else [ask.ljust(13)]), words]
            screen.out("  ".join(parts))
            return
        if day != self._day:
            self._day = day
            screen.out(self._dim(day))
        start = clock + "  " + ("" if self._one_ask else ask.ljust(13) + "  ")
        room = max(20, screen.width() - len(start))
        for number, text in enumerate(screen.folded(words, room)):
            shown = self._bold(text) if self._is_loud(line) else text
            screen.out((self._dim(start) if not number else " " * len(start)) + shown)

    def _is_loud(self, line: dict[str, Any]) -> bool:
        return line.get("event") in _LOUD

    def _dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[22m" if self._coloured else text

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[22m" if self._coloured else text


def _merged(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *lines* with what happened to one question in several places at once as one."""
    kept: list[dict[str, Any]] = []
    for line in lines:
        last = kept[-1] if kept else {}
        event = line.get("event")
        together = (
            event in _MERGED
            and (last.get("event"), last.get("ask")) == (event, line.get("ask"))
            and int(line.get("at_ms") or 0) - int(last.get("at_ms") or 0) < _TOGETHER_MS
            and _is_plain(line)
            and _is_plain(last)
        )
        if not together:
            kept.append(line)
            continue
        places = [_place(last), _place(line)]
        kept[-1] = {**last, "words": f"{_joint(str(event))} {', '.join(places)}"}
    return kept


def _is_plain(line: dict[str, Any]) -> bool:
    return _place(line) != ""


def _place(line: dict[str, Any]) -> str:
    """Return what follows the first words, if nothing more is said there."""
    words = str(line.get("words") or "")
    for start in ("shown in ", "card closed: ", "cards closed: "):
        if words.startswith(start) and "(" not in words:
            return words[len(start) :]
    return ""


def _joint(event: str) -> str:
    return "cards closed:" if event == "card_closed" else "shown in"
