"""How an ask ended: stdout, stderr, the document and the exit code."""

from __future__ import annotations

import sys
import time

from upcall.cli import exits, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHANNEL_WORDS = {
    "endpoint": "another program",
    "control": "another program on this computer",
    "local": "another program on this computer",
}


def of_ask(ask: dict[str, Any]) -> dict[str, Any]:
    """Return the result that an ask's state amounts to."""
    end_ms = ask.get("closed_ms") or int(time.time() * 1000)
    return {
        "id": ask.get("id"),
        "outcome": ask.get("outcome") or "open",
        "answer": ask.get("answer"),
        "answered_by": ask.get("answered_by"),
        "waited_s": max(0.0, (end_ms - (ask.get("raised_ms") or end_ms)) / 1000),
    }


def exit_code(result: dict[str, Any]) -> int:
    """Return what `ask` and `wait` end with."""
    outcome = result.get("outcome")
    if outcome == "answered" or (outcome == "timed_out" and result.get("answer")):
        return exits.OK
    if outcome == "timed_out":
        return exits.TIMED_OUT
    return exits.FAILURE if outcome == "open" else exits.NO_ANSWER


def lines(answer: dict[str, Any] | None) -> list[str]:
    """Return an answer as its labels and words, in order."""
    if not answer:
        return []
    text = answer.get("text")
    return [*(answer.get("labels") or []), *([text] if text is not None else [])]


def quote(result: dict[str, Any]) -> str:
    """Return the answer on one line, escaped, such as `yes` or `red, blue`."""
    return ", ".join(screen.one_line(str(line), 60) for line in lines(result.get("answer")))


def by(result: dict[str, Any]) -> str:
    """Return who answered and where, such as `Sam on inbox`."""
    who = result.get("answered_by") or {}
    channel = str(who.get("channel") or "")
    person = who.get("name")
    if person is None and channel in _CHANNEL_WORDS:
        return _CHANNEL_WORDS[channel]
    called = screen.one_line(str(person), 60) if person is not None else "somebody"
    place = "inbox" if channel == "web" else screen.one_line(channel, 40)
    return f"{called} on {place}" if channel else called


def told(result: dict[str, Any], *, here: bool, printed: bool = False) -> str | None:
    """Return what stderr says of the end, or None if stdout says it all.

    Args:
        result: how the ask ended.
        here: it was answered on this terminal, which has told it.
        printed: the answer stands right above these words.
    """
    outcome = result.get("outcome")
    waited = screen.duration(float(result.get("waited_s") or 0))
    if outcome == "answered":
        what = "" if printed else f"{quote(result)} - "
        return None if here else f"{what}{by(result)}, after {waited}"
    if outcome == "timed_out" and result.get("answer"):
        default = quote(result)
        return (
            f'no answer within {waited}; the program\'s own default "{default}" was used. '
            "Nobody chose it."
        )
    if outcome == "timed_out":
        return f"no answer within {waited} (timed out; nobody said no)"
    reason = screen.one_line(str(result.get("reason") or ""), 200)
    why = f" ({reason})" if reason else ""
    if outcome == "unreachable":
        return f"The program stopped before it took the answer{why}: exit 3"
    return f"{screen.one_line(str(outcome), 40)}, not answered{why}: exit 3"


def show(result: dict[str, Any], *, as_json: bool, quiet: bool, here: bool = False) -> int:
    """Write the answer to stdout and the rest to stderr; return the exit code.

    Raises:
        OSError: stdout did not take the answer.
    """
    if as_json:
        screen.document(document(result))
    else:
        for line in lines(result.get("answer")):
            screen.out(screen.answer_text(str(line)))
    printed = not as_json and sys.stdout.isatty() and sys.stderr is not None
    printed = printed and sys.stderr.isatty()
    words = told(result, here=here, printed=printed)
    if words is not None and not quiet:
        screen.err(words)
    return exit_code(result)


def document(result: dict[str, Any]) -> dict[str, Any]:
    """Return the document of `--json`: the promised fields, then what else there is."""
    names = ("id", "outcome", "answer", "answered_by", "waited_s")
    reason = {"reason": result["reason"]} if result.get("reason") else {}
    return {name: result.get(name) for name in names} | reason
