"""What reaches a person's terminal: escaped text, times and durations in words."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO


GLUE = "\x1f"
"""A blank at which no line is broken. Escaped text never holds it."""
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: whoever changed a file may have put any number into it."""


def out(text: str) -> None:
    """Write one line to stdout, which must succeed.

    Raises:
        OSError: stdout is closed or full.
    """
    _write(sys.stdout, text)


def abandon_stdout() -> None:
    """Let what is still to be written to stdout go nowhere.

    Python would complain again while it flushes at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def err(text: str) -> None:
    """Write one line to stderr, wrapped if that is a terminal.

    When nobody can read it, it is dropped.
    """
    try:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        lines = folded(text, width()) if is_terminal else [text]
        _write(sys.stderr, "\n".join(lines).replace(GLUE, " "))
    except (OSError, ValueError):
        return


def words(text: str) -> None:
    """Write words for a person to stdout, wrapped if that is a terminal.

    Raises:
        OSError: stdout is closed or full.
    """
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    lines = folded(text, width()) if is_terminal else [text]
    out("\n".join(lines).replace(GLUE, " "))


def draw(text: str) -> None:
    """Write *text* to the terminal that stderr is, as it is; it is dropped if it is none."""
    try:
        if os.isatty(2):
            os.write(2, text.encode())
    except OSError:
        return


def folded(text: str, columns: int) -> list[str]:
    """Return escaped *text* as lines of *columns* cells, cut at blanks; an indent is kept."""
    if len(text) <= columns and text.isascii() and "\n" not in text:
        return [text]
    from upcall.cli.cells import wrap

    lines = []
    for part in text.split("\n"):
        indent = part[: len(part) - len(part.lstrip(" "))]
        room = max(20, columns - len(indent))
        lines += [indent + line for line in wrap(part[len(indent) :], room)]
    return lines


def document(data: dict[str, Any]) -> None:
    """Write the one JSON document of `--json`."""
    import json

    out(json.dumps(data, ensure_ascii=False, separators=(", ", ": ")))


def _write(stream: TextIO, text: str) -> None:
    # UTF-8 whatever the locale says; a lone surrogate comes out as the escape that JSON has.
    data = (text + "\n").encode("utf-8", "backslashreplace")
    if stream is None:  # the descriptor was closed before we started
        raise OSError(9, "the output is closed")
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(data.decode())
        stream.flush()
        return
    stream.flush()
    buffer.write(data)
    buffer.flush()


def visible(text: str, *, newlines: bool = False) -> str:
    """Return *text* with everything that a terminal could act on as a visible escape."""
    if text.isascii() and text.isprintable():
        return text
    # Imported here: plain text, nearly all there is, must not pay for Unicode's tables.
    from upcall.model.text import visible as escaped

    return escaped(text, newlines=newlines)


def one_line(text: str, limit_chars: int) -> str:
    """Return *text* escaped, on one line, cut to *limit_chars* characters."""
    text = " ".join(text[: limit_chars * 4].split())
    shown = visible(text)
    return shown if len(shown) <= limit_chars else shown[: max(0, limit_chars - 1)] + "…"


def in_quotes(text: str, limit_chars: int) -> str:
    """Return words of a program on one line in quotes that it cannot close itself."""
    inner = one_line(text, limit_chars).replace("“", '"').replace("”", '"')
    return f"“{inner}”"


def answer_text(text: str) -> str:
    """Return an answer as stdout gets it: no control characters but tab and newline."""
    if text.isascii() and text.isprintable():
        return text
    from upcall.model.text import printable_answer

    return printable_answer(text)


def duration(seconds: float) -> str:
    """Return *seconds* in words, such as `2 min 10 s`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def age(then_ms: int) -> str:
    """Return how long ago *then_ms* was, in one unit."""
    # From a second on, so that columns of ages do not jump.
    return " ".join(duration(max(1.0, time.time() - then_ms / 1000)).split(" ")[:2])


def ago(then_ms: int) -> str:
    """Return `3 s ago`, or `just now`."""
    passed_s = time.time() - then_ms / 1000
    return "just now" if passed_s < 1 else f"{duration(passed_s)} ago"


def local_time(at_ms: int) -> time.struct_time:
    """Return a wall clock time as this place counts it, at most the last one of calendars."""
    return time.localtime(min(max(at_ms, 0), LAST_MS) / 1000)


def clock(at_ms: int) -> str:
    """Return the local time of day, with the date if it isn't today."""
    then = local_time(at_ms)
    today = time.localtime()[:3] == then[:3]
    return time.strftime("%H:%M" if today else "%Y-%m-%d %H:%M", then)


def height() -> int:
    """Return the lines of the terminal, 24 if there is none."""
    for fd in (1, 2):
        try:
            return os.get_terminal_size(fd).lines or 24
        except OSError:
            continue
    return 24


def width() -> int:
    """Return the columns of the terminal, 80 if there is none."""
    # As shutil does it, which would cost its imports.
    named = os.environ.get("COLUMNS", "")
    if named.isascii() and named.isdecimal() and 0 < int(named) < 10_000:
        return int(named)
    for fd in (1, 2):
        try:
            return os.get_terminal_size(fd).columns or 80
        except OSError:
            continue
    return 80


def table(rows: list[tuple[str, ...]], indent: str = "") -> list[str]:
    """Return *rows* (already escaped) as lines in columns; the last column is cut to fit."""
    if not rows:
        return []
    from upcall.cli.cells import cut, pad, width_of

    widths = [max(width_of(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    room = width() if sys.stdout is not None and sys.stdout.isatty() else 10_000
    lines = []
    for row in rows:
        start = indent + "".join(
            pad(cell, wide) + "  " for cell, wide in zip(row[:-1], widths, strict=True)
        )
        lines.append((start + cut(row[-1], max(10, room - width_of(start)))).rstrip())
    return lines
