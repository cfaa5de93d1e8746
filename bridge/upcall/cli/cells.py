"""Text in terminal cells: wide and combining characters counted as a terminal shows them."""

import unicodedata


def width_of(text: str) -> int:
    """Return how many cells *text* (already escaped) takes."""
    if text.isascii():
        return len(text)
    cells = 0
    for char in text:
        if unicodedata.combining(char) or char in "\u200d\ufe0f":
            continue
        cells += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return cells


def pad(text: str, cells: int) -> str:
    """Return *text* filled up with blanks to *cells*."""
    return text + " " * max(0, cells - width_of(text))


def cut(text: str, cells: int) -> str:
    """Return *text* in at most *cells*, with an ellipsis if something is missing."""
    if width_of(text) <= cells:
        return text
    kept = ""
    for char in text:
        if width_of(kept + char) > cells - 1:
            break
        kept += char
    return kept + "…"


def wrap(text: str, cells: int) -> list[str]:
    """Return escaped *text* as lines of at most *cells*, cut at blanks if possible."""
    return [line for part in text.expandtabs(4).split("\n") for line in _wrap_one(part, cells)]


def _wrap_one(text: str, cells: int) -> list[str]:
    lines: list[str] = []
    line = ""
    for word in _words(text):
        if line and width_of(line + word) > cells:
            lines.append(line.rstrip())
            line = word.lstrip()
        else:
            line += word
        while width_of(line) > cells:
            head = _head(line, cells)
            lines.append(head)
            line = line[len(head) :]
    return [*lines, line.rstrip()]


def _words(text: str) -> list[str]:
    """Return *text* cut before each run of blanks that follows a word."""
    words: list[str] = []
    for char in text:
        if not words or (char == " " and not words[-1].endswith(" ") and words[-1].strip()):
            words.append(char)
        else:
            words[-1] += char
    return words


def _head(text: str, cells: int) -> str:
    count = 0
    for index, char in enumerate(text):
        count += width_of(char)
        if count > cells:
            return text[: max(1, index)]
    return text
