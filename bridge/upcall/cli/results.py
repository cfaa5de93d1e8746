"""How an ask ended: stdout, stderr, the document and the exit code."""

from __future__ import annotations

import sys
import time

from upcall.cli import exits, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOT_KEPT = "the text is not kept any more"
_CHANNEL_WORDS = {
    "endpoint": "another program on this computer, person unknown",
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
    if is_withheld(result) or is_erased(result):
        return exits.NO_ANSWER
    if outcome == "answered" or (outcome == "timed_out" and result.get("answer")):
        return exits.OK
    if outcome == "timed_out":
        return exits.TIMED_OUT
    return exits.FAILURE if outcome == "open" else exits.NO_ANSWER


def is_withheld(result: dict[str, Any]) -> bool:
    """Tell whether it is a secret that was given to the program that asked, and not to us."""
    return bool((result.get("answer") or {}).get("secret"))


def is_erased(result: dict[str, Any]) -> bool:
    """Tell whether it was answered, and what with was forgotten or is too old to be kept."""
    return result.get("outcome") == "answered" and not result.get("answer")


def lines(answer: dict[str, Any] | None) -> list[str]:
    """Return an answer as its labels and words, in order."""
    if not answer:
        return []
    text = answer.get("text")
    return [*(answer.get("labels") or []), *([text] if text is not None else [])]


def quote(result: dict[str, Any]) -> str:
    """Return the answer on one line, escaped, such as `yes` or `red, blue`."""
    if result.get("secret") or is_withheld(result):
        return "(secret)"
    if is_erased(result):
        return f"({NOT_KEPT})"
    return ", ".join(screen.one_line(str(line), 60) for line in lines(result.get("answer")))


def in_quotes(result: dict[str, Any]) -> str:
    """Return the answer in quotes, or what is to be said in its place."""
    if is_erased(result):
        return quote(result)
    escaped = quote(result).replace('"', '\\"')
    return f'"{escaped}"'


def by(result: dict[str, Any]) -> str:
    """Return who answered and where, such as `Sam on inbox`."""
    who, place = _who_and_where(result)
    return f"{who} on {place}" if place else who


def won(result: dict[str, Any], ago: str = "") -> str:
    """Return what won, such as `Sam answered "no" on inbox 3 s ago`, as a sentence."""
    who, place = _who_and_where(result)
    return f"{who} answered {in_quotes(result)}{f' on {place}' if place else ''}{ago}."


def _who_and_where(result: dict[str, Any]) -> tuple[str, str]:
    who = result.get("answered_by") or {}
    channel = str(who.get("channel") or "")
    person = who.get("name")
    if person is None and channel in _CHANNEL_WORDS:
        return _CHANNEL_WORDS[channel], ""
    if person is not None and who.get("detail"):
        # A program of that user answered; whether the person did, nobody can tell.
        detail = screen.one_line(str(who["detail"]), 120)
        return f"user {screen.one_line(str(person), 60)} on this computer ({detail})", ""
    called = screen.one_line(str(person), 60) if person is not None else "somebody"
    return called, "inbox" if channel == "web" else screen.one_line(channel, 40)


def told(result: dict[str, Any], *, here: bool, printed: bool = False) -> str | None:
    """Return what stderr says of the end, or None if stdout says it all.

    Args:
        result: how the ask ended.
        here: it was answered on this terminal, which has told it.
        printed: the answer stands right above these words.
    """
    outcome = result.get("outcome")
    waited = screen.duration(float(result.get("waited_s") or 0))
    if is_withheld(result):
        return (
            f"answered (secret) - {by(result)}, after {waited}; its words were given once, to "
            "the program that asked: exit 3"
        )
    if is_erased(result):
        return f"answered - {by(result)}, after {waited}; {NOT_KEPT}: exit 3"
    if outcome == "answered":
        what = "" if printed else f"{quote(result)} - "
        return None if here else f"{what}{by(result)}, after {waited}"
    if outcome == "timed_out" and result.get("answer"):
        default = quote(result)
        return (
            f'no answer within {waited}; the program\'s own default "{default}" was used. '
            "Nobody chose it."
        )
    reason = screen.one_line(str(result.get("reason") or ""), 200)
    if outcome == "timed_out":
        why = f"; {reason}" if reason else ""
        return f"no answer within {waited} (timed out; nobody said no{why})"
    who = f"by {by(result)}" if outcome == "declined" and result.get("answered_by") else ""
    more = ", ".join(part for part in (who, reason) if part)
    why = f" ({more})" if more else ""
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
