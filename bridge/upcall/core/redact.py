"""Masks recognised credentials in text. A mask has a kind and a length, never content.

Masking never changes what runs: only what is kept, logged or shown of it. A mask covers only
a run without white space or shell syntax, so that the shape of a command stays readable. The
time is linear in the text, and masking twice is masking once.
"""

import re
from collections.abc import Iterator
from typing import Final

from upcall.core.redaction.assigned import find_assigned
from upcall.core.redaction.blocks import find_keys
from upcall.core.redaction.headers import find_sent
from upcall.core.redaction.shapes import find_shapes
from upcall.core.redaction.spans import Span, cover

_LEAST_CHARS: Final = 8
# What a mask leaves beside itself may only then be seen as one more; rarely even once.
_ROUNDS: Final = 4
_SHORT_CHARS: Final = 512
_KNOWN: Final = 4096
_TAIL_CHARS: Final = 512
_LAST_WORD: Final = re.compile(r"[^\s\"'`\\$(){};|&<>]+\Z")
# How an unfinished word may go on, so that whatever it is would be known.
_GOES_ON: Final = (
    "…",
    "k3Jx9QmT7vBz2LpR8sWd4NfY6hCg1XaE5uZoViMb" * 3,
    "Q3EGRTYW2LPZXV7MQ3EGRTYW2LPZXV7MQ3EGRTYW" * 3,
    "9f3b7c1e5a0d8246f1c3e7b9a5d20468bb31c0f7" * 3,
)
_LOWER: Final = {ord(char): char.lower() for char in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def mask(text: str) -> str:
    """Return *text* with recognised credentials replaced by their kind and length."""
    return masked(text)[0]


def masked(text: str) -> tuple[str, int]:
    """Return *text* with credentials masked, and how many of its characters that hides."""
    hidden = 0
    if len(text) < _LEAST_CHARS:
        return text, 0
    for _ in range(_ROUNDS):
        text, more = cover(text, _found(text))
        if not more:
            break
        hidden += more
    return text, hidden


class Masks:
    """Masks texts that come again and again, such as titles, folders and labels."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, text: str) -> str:
        """Return *text* masked; a short one is looked at once."""
        if len(text) > _SHORT_CHARS:
            return mask(text)
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            found = self._known[text] = mask(text)
        return found


def mask_after(before: str, text: str) -> str:
    """Return *text* masked as what follows on *before*: a credential may be in two pieces."""
    joined, start = before + text, len(before)
    late = (
        span._replace(start=max(span.start, start))
        for span in _found(joined)
        if span.end > start
    )
    return mask(cover(joined, late)[0][start:])


def whole_words(text: str) -> str:
    """Return *text*, which goes on, without its last word if that may become a credential."""
    last = _LAST_WORD.search(text, max(0, len(text) - _TAIL_CHARS))
    if last is None:
        return text
    tail, word = text[-_TAIL_CHARS:], len(last[0])
    for more in _GOES_ON:
        grown = tail + more
        start = len(tail) - word
        if any(span.start < len(tail) and span.end > start for span in _found(grown)):
            return text[: last.start()] + "…"
    return text


def _found(text: str) -> Iterator[Span]:
    lower = text.lower()
    if len(lower) != len(text):
        # Few letters become two; only those of ASCII matter here.
        lower = text.translate(_LOWER)
    yield from find_shapes(text)
    yield from find_keys(text)
    yield from find_sent(text, lower)
    yield from find_assigned(text, lower)
