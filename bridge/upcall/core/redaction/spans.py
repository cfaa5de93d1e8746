"""Where a credential stands in a text, and what is put over it."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_SYNTAX: Final = r"\s\"'`\\$(){};|&<>"
RUN: Final = re.compile(f"[^{_SYNTAX}]+")
"""All that one mask may cover: no white space, no line break, no shell syntax."""
MASKED: Final = re.compile(
    r"\[(?:token|key|secret|password|code|cookie|private key), \d{1,7} characters\]"
)
"""A mask; what it says is left alone."""


class Span(NamedTuple):
    """Characters *start* to *end* of a text are a credential of this kind.

    Attributes:
        known: its own form tells what it is, not the words beside it.
    """

    start: int
    end: int
    kind: str
    known: bool = False


def cover(text: str, spans: Iterable[Span]) -> tuple[str, int]:
    """Return *text* with a mask over each run in *spans*, and how many characters they hide."""
    parts: list[str] = []
    hidden = done = 0
    for span in _free(text, _merged(spans)):
        for run in RUN.finditer(text, span.start, span.end):
            size = run.end() - run.start()
            parts += (text[done : run.start()], f"[{span.kind}, {size} characters]")
            hidden += size
            done = run.end()
    if not done:
        return text, 0
    parts.append(text[done:])
    return "".join(parts), hidden


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans):
        last = merged[-1] if merged else None
        if last is None or span.start >= last.end:
            merged.append(span)
            continue
        named = span if span.known and not last.known else last
        merged[-1] = Span(
            last.start, max(last.end, span.end), named.kind, last.known or span.known
        )
    return merged


def _free(text: str, spans: list[Span]) -> Iterable[Span]:
    """Yield the parts of *spans* that no mask covers yet."""
    if not spans:
        return
    masks = [found.span() for found in MASKED.finditer(text)]
    at = 0
    for span in spans:
        start = span.start
        while at < len(masks) and masks[at][1] <= start:
            at += 1
        look = at
        while look < len(masks) and masks[look][0] < span.end:
            if masks[look][0] > start:
                yield span._replace(start=start, end=masks[look][0])
            start = masks[look][1]
            look += 1
        if start < span.end:
            yield span._replace(start=start)
