"""Private keys in PEM: the lines between their two marks, each masked for itself."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from upcall.core.redaction.spans import Span

_BEGIN: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}?PRIVATE KEY(?: BLOCK)?-----")
_END: Final = re.compile("-----END ")
# What stands between two lines, also where a program wrote the break as `\n`, joined
# strings, quoted them or put marks of a comment or of a difference before them.
_BETWEEN: Final = re.compile(
    r"(?:\s|\\+[nrt]|[\"',>|#]|\+(?=\s|\"|'))*(?:^[+-](?=[A-Za-z0-9/]))?", re.MULTILINE
)
_LINE: Final = re.compile(r"=?[A-Za-z0-9/][A-Za-z0-9+/]*={0,2}")
_HEADER: Final = re.compile(r"[A-Za-z][A-Za-z-]{1,30}: [^\n\\]{0,200}")
_WHOLE_LINE_CHARS: Final = 24


def find_keys(text: str) -> Iterator[Span]:
    """Yield the lines of every private key in *text*."""
    if "PRIVATE KEY" not in text:
        return
    ends = [found.start() for found in _END.finditer(text)]
    done = 0
    for begin in _BEGIN.finditer(text):
        if begin.start() < done:
            continue
        at = begin.end()
        place = bisect_left(ends, at)
        has_end = place < len(ends)
        until = ends[place] if has_end else len(text)
        lines = 0
        while at < until:
            between = _BETWEEN.match(text, at, until)
            at = at if between is None else between.end()
            header = _HEADER.match(text, at, until)
            if header is not None:
                at = header.end()
                continue
            line = _LINE.match(text, at, until)
            if line is None or not _is_line(line[0], lines, has_end=has_end):
                break
            lines += 1
            yield Span(*line.span(), "private key", known=True)
            at = line.end()
        done = at


def _is_line(line: str, lines: int, *, has_end: bool) -> bool:
    # Without an end the words after the mark may be just words.
    return has_end or len(line) >= _WHOLE_LINE_CHARS or (lines > 0 and len(line) >= 8)
