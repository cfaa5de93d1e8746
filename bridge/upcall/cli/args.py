"""Parsing arguments: errors in our words, durations, text that can be used as it is."""

from __future__ import annotations

import argparse

from upcall.cli import screen
from upcall.cli.errors import Usage, nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_FORM = "write a number with ms, s, m, h or d, also joined, such as 90s, 10m or 1h30m"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Text as it was written; given a width, the base class imports no more modules."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(100, screen.width()) - 2)


class Parser(argparse.ArgumentParser):
    """An argument parser that names what is wrong and the nearest option."""

    def __init__(self, command: str = "", about: str = "", **more: Any) -> None:
        # Subparsers are made by argparse, with a `prog` and `description` of their own.
        more.setdefault("prog", f"upcall {command}")
        more.setdefault("description", about)
        super().__init__(
            formatter_class=_Formatter,
            allow_abbrev=False,
            **more,
        )

    def error(self, message: str) -> NoReturn:
        """Raise `Usage` instead of printing and leaving."""
        raise Usage(message, f"see: {self.prog} --help")

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse *argv*.

        Raises:
            Usage: it cannot be used.
        """
        given, unknown = self.parse_known_args(list(argv))
        if unknown:
            word = unknown[0]
            if word.startswith("-"):
                name = word.split("=")[0]
                hint = nearest(name, self._option_string_actions)
                raise Usage(f"there is no option {name!r}{hint}", f"see: {self.prog} --help")
            raise Usage(f"{word!r} is one argument too many", f"see: {self.prog} --help")
        return given


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
        raise Usage(f"{what}: {text!r} is no duration", _DURATION_FORM)
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
    raise Usage(f"{what}: {text!r} is not a number from 1 to {limit}")
