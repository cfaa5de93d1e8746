"""What was given on the command line: durations, numbers, text that can be used as it is."""

from __future__ import annotations

from upcall.cli.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from upcall.cli.parsing import Parser as Parser

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# The same bound as the hub's, which would cost its imports; a test compares them.
MAX_NAME_CHARS = 200
_DURATION_FORM = "write a number with ms, s, m, h or d, also joined, such as 90s, 10m or 1h30m"


def short(text: str, limit_chars: int = 80) -> str:
    """Return what was given, as it is told in a message: cut where it is long."""
    return text if len(text) <= limit_chars else text[: limit_chars - 1] + "…"


def make_parser(command: str, about: str, epilog: str) -> Parser:
    """Return an argument parser for *command*; argparse is loaded only now."""
    from upcall.cli.parsing import Parser

    return Parser(command, about, epilog=epilog)


def seconds(text: str, what: str) -> float:
    """Return the duration *text* in seconds; a bare number is seconds.

    Raises:
        Usage: it is no duration; the message names *what* and the accepted form.
    """
    rest, total = text, 0.0
    seen: set[str] = set()
    while rest:
        digits = _number(rest)
        unit = _unit(rest[len(digits) :])
        if not digits or unit in seen or (not unit and (seen or len(digits) < len(rest))):
            break
        seen.add(unit)
        total += float(digits) * _UNITS[unit or "s"]
        rest = rest[len(digits) + len(unit) :]
    if rest or not text or total > 1e12:
        raise Usage(f"{what}: {short(text)!r} is no duration", _DURATION_FORM)
    return total


def _number(text: str) -> str:
    end = 0
    while end < len(text) and (text[end] in "0123456789" or (text[end] == "." and end)):
        end += 1
    digits = text[:end]
    return digits if digits.count(".") <= 1 and not digits.endswith(".") else ""


def _unit(text: str) -> str:
    letters = text[: next((i for i, char in enumerate(text) if not char.isalpha()), len(text))]
    return letters if letters in _UNITS else ""


def usable(text: str, what: str) -> str:
    """Return *text* if it can be sent.

    Raises:
        Usage: it holds a NUL, or bytes that aren't UTF-8.
    """
    for index, char in enumerate(text):
        if char == "\0" or "\ud800" <= char <= "\udfff":
            found = "a NUL character" if char == "\0" else "bytes that are not UTF-8"
            raise Usage(f"{what}: {found} at character {index + 1}", "nothing was asked")
    return text


def name(text: str, what: str, limit_chars: int = MAX_NAME_CHARS) -> str:
    """Return *text* if it can be a name that the hub keeps: 1 to *limit_chars* characters.

    Raises:
        Usage: it cannot; the message names *what*, the limit and the length.
    """
    usable(text, what)
    if not text:
        raise Usage(f"{what} is empty", code="invalid_ask")
    if len(text) > limit_chars:
        raise Usage(
            f"{what} has {len(text)} characters; the limit is {limit_chars}",
            code="invalid_ask",
        )
    return text


def stdin_text(what: str, limit_bytes: int) -> str:
    """Return all of stdin as text.

    Raises:
        Usage: it is too long or not UTF-8.
    """
    import sys

    if sys.stdin is None:
        raise Usage(f"{what}: stdin is closed")
    data = sys.stdin.buffer.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise Usage(f"{what}: stdin has more than {limit_bytes} bytes, which is the limit")
    try:
        return usable(data.decode("utf-8"), what)
    except UnicodeDecodeError as err:
        raise Usage(f"{what}: stdin is not UTF-8 at byte {err.start + 1}") from None


def count(text: str, what: str, limit: int) -> int:
    """Return *text* as a whole number from 1 to *limit*.

    Raises:
        Usage: it is none.
    """
    if text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= limit:
        return int(text)
    raise Usage(f"{what}: {short(text)!r} is not a number from 1 to {limit}")
