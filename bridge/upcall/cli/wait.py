"""`upcall wait`: collect the answer of a question that was handed over."""

from __future__ import annotations

import sys
import time

from upcall.cli import args, control, exits, results, screen, waiting
from upcall.cli.errors import Usage
from upcall.cli.signals import EndingSignals, Interrupted
from upcall.line import LineError, ensure_hub, full_ask_id
from upcall.line.errors import LOST_CODES
from upcall.line.start import Again

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Any

    from upcall.line import HubLine

ABOUT = """Wait until a question has ended and print its answer, any number of times.

Ending the wait (Ctrl-C) leaves the question open: it belongs to the hub."""
EPILOG = """example:
  id=$(upcall ask "Ship it tonight?" -o yes -o no --no-wait)
  upcall wait "$id"

exit codes:
  0 answered, or timed out with a default   1 failure
  2 usage, or no such question   3 ended without an answer   4 timed out
  130 Ctrl-C, 143 terminated"""
_RETRY_EVERY_S = 1.0


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `wait` to *parser*."""
    add = parser.add_argument
    add("ask", metavar="ID", help="the question's id, or the beginning of it (4 characters)")
    add("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    add("--json", action="store_true", help="print one JSON document instead of the answer")


def parser() -> args.Parser:
    """Return the parser of `upcall wait`."""
    made = args.make_parser("wait", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall wait`."""
    given = parser().read(argv)
    with EndingSignals() as signals:
        try:
            ask_id = full_ask_id(given.ask) or _resolve(args.usable(given.ask, "ID"))
            result = _wait(ask_id, quiet=given.quiet)
            signals.settle()
            if result is None:
                return exits.FAILURE  # nobody reads our answer any more
            return results.show(result, as_json=given.json, quiet=given.quiet)
        except Interrupted as signal:
            if not given.quiet:
                screen.err("not waiting any more; the question stays open")
            return exits.SIGNAL_BASE + signal.number


def _resolve(text: str) -> str:
    """Return the id that begins with *text*, or belongs to that action."""
    with control.connect() as line:
        known = line.request("asks", state="all", limit=1000).get("asks") or []
    prefix = text.removeprefix("ask:")
    found = [ask["id"] for ask in known if str(ask.get("id", "")).startswith(prefix)]
    if len(prefix) < 4 or not found:
        raise Usage(
            f"there is no question {text!r}",
            "an id, or at least its first 4 characters; see: upcall asks --all",
            "unknown_ask",
        )
    if len(found) > 1:
        raise Usage(
            f"{text!r} fits several questions: {', '.join(found[:5])}", code="ambiguous_ask"
        )
    return str(found[0])


def _wait(ask_id: str, *, quiet: bool) -> dict[str, Any] | None:
    output = waiting.watched_output()
    said, mentioned = False, ""
    again = Again()
    ensure: Callable[..., HubLine] = ensure_hub
    while True:
        try:
            with ensure(note=screen.err) as line:
                ensure = again.ensure
                ask = line.request("wait", ask=ask_id).get("ask") or {}
                mentioned = ""
                if not said and not quiet and ask.get("state") != "closed":
                    said = True
                    _say_what(ask)
                while True:
                    event = line.next_event(1.0 if ask.get("state") == "closed" else 0)
                    if event is None and ask.get("state") == "closed":
                        return results.of_ask(ask)
                    if event is None:
                        if waiting.wait_for([line.fileno()], output, None)[1]:
                            return None
                    elif event.get("event") == "ended":
                        result: dict[str, Any] = event["result"]
                        return result
        except LineError as err:
            if err.code not in LOST_CODES and err.code != "hub_start":
                raise
            is_news = not mentioned or err.code == "hub_stopped" != mentioned
            if is_news and not quiet:
                mentioned = err.code
                goes_on = err.recover if err.code == "hub_stopped" else "trying again"
                screen.err(
                    f"{screen.visible(err.msg)}; {screen.visible(goes_on or '')}. "
                    "Ctrl-C ends the wait"
                )
            time.sleep(_RETRY_EVERY_S)


def _say_what(ask: dict[str, Any]) -> None:
    if sys.stderr is None or not sys.stderr.isatty():
        return
    question = screen.in_quotes(str(ask.get("question", "")), 200)
    ask_id = screen.one_line(str(ask.get("id", "?")), 40)
    screen.err(f"waiting for {question} ({ask_id}); Ctrl-C leaves it open")
