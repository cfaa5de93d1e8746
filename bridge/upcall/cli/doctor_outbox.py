"""What `upcall doctor` says of messages that did not arrive."""

from __future__ import annotations

from upcall.cli import screen
from upcall.cli.finding import Finding
from upcall.line import LineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from upcall.line import HubLine

_NAMED = 5


def outbox(line: HubLine) -> Iterator[Finding]:
    """Yield what was given up, and what may or may not have arrived, with the remedy."""
    try:
        letters = line.request("outbox", timeout_s=5.0).get("letters") or []
    except LineError:
        return  # a hub of before
    dead = [one for one in letters if one.get("state") == "dead"]
    for one in dead[:_NAMED]:
        number = one.get("id")
        matters = one.get("ask") and one.get("kind") in {"post", "edit"}
        yield Finding(
            # Without a notice or a reminder nobody waits for ever.
            "error" if matters else "warning",
            "dead_letter",
            f"{_what(one)} was given up: {one.get('reason') or 'no reason is known'}",
            f"upcall outbox retry {number}, or: upcall outbox drop {number}",
        )
    if len(dead) > _NAMED:
        yield Finding(
            "warning",
            "dead_letters",
            f"{len(dead) - _NAMED} more messages were given up",
            "upcall outbox lists them; upcall outbox retry --all tries them once more",
        )
    unknown = [one for one in letters if one.get("state") == "uncertain"]
    if unknown:
        are = "1 message" if len(unknown) == 1 else f"{len(unknown)} messages"
        yield Finding(
            "warning",
            "uncertain",
            f"{are} may or may not have arrived, such as {_what(unknown[0])}",
            "each is looked up, or sent again and marked; see: upcall outbox",
        )


def _what(letter: dict[str, Any]) -> str:
    about = f" for {letter['ask']}" if letter.get("ask") else ""
    channel = screen.one_line(str(letter.get("channel")), 40)
    return f"message {letter.get('id')}{about} on {channel}"
