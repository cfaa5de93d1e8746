"""One line of the audit as people and programs see it: `upcall log`."""

from typing import Any

import msgspec


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line, with what is still known about it.

    Attributes:
        row: its number; each is one more than the one before.
        at_ms: wall clock time.
        event: its stable name.
        words: what it says, for a person; escaped, on one line.
        hash: of this line and all before it, in hex.
        ask, session: what it is about, if it is about one.
        facts: what the line itself holds.
        question, answer, program, place: from the tables, masked, while they are kept.
    """

    row: int
    at_ms: int
    event: str
    words: str
    hash: str
    ask: str | None = None
    session: str | None = None
    facts: dict[str, Any] = {}
    question: str | None = None
    answer: str | None = None
    program: str | None = None
    place: str | None = None
