"""Which characters of a text deceive: letters of a foreign script, and what cannot be seen.

Text of one writing system has none, also where that system has several scripts (Japanese:
Han, Hiragana and Katakana) and where ASCII words stand beside it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from upcall.model.lookalikes import skeleton_of
from upcall.model.text import is_blank, is_escaped, is_ignorable, shown_code_point

_FIRST: Final = 3

# UTS #39: writing systems that use several scripts together.
_SYSTEMS: Final = {
    "Han": frozenset({"Han", "Japanese", "Korean", "Han with Bopomofo"}),
    "Hiragana": frozenset({"Hiragana", "Japanese"}),
    "Katakana": frozenset({"Katakana", "Japanese"}),
    "Hangul": frozenset({"Hangul", "Korean"}),
    "Bopomofo": frozenset({"Bopomofo", "Han with Bopomofo"}),
}
# Scripts that are written right beside ASCII letters, and no letter of which passes for one.
_DISTINCT: Final = frozenset(_SYSTEMS)
# Scripts that are written right beside ASCII letters too, but some letters pass for one.
_BESIDE: Final = frozenset(
    {
        "Arabic", "Bengali", "Devanagari", "Ethiopic", "Georgian", "Gujarati", "Gurmukhi",
        "Hebrew", "Kannada", "Khmer", "Lao", "Malayalam", "Myanmar", "Oriya", "Sinhala",
        "Tamil", "Telugu", "Thai", "Tibetan",
    }
)  # fmt: skip
_WORD: Final = re.compile(r"\w+")


class Findings(msgspec.Struct, frozen=True):
    """What deceives in a text.

    Attributes:
        first: index and words of the first ones, in order.
        count: how many characters there are in all.
    """

    first: tuple[tuple[int, str], ...] = ()
    count: int = 0

    def __bool__(self) -> bool:
        return self.count > 0


def findings(text: str) -> Findings:
    """Return the characters of *text* that deceive."""
    used = {char for char in set(text) if char > "\x7f"}
    hidden = {char for char in used if is_ignorable(char) or is_blank(char)}
    scripts = {char: script for char in used if (script := script_of(char))}
    found = dict(_hidden(text)) if hidden else {}
    if scripts:
        found |= _foreign(text, scripts)
        found |= _within_words(text, scripts)
    return Findings(
        tuple(
            (at, f"{shown_code_point(text[at])}{found[at]}") for at in sorted(found)[:_FIRST]
        ),
        len(found),
    )


def script_of(char: str) -> str | None:
    """Return the script of a letter; None for letters of every script and all else."""
    starts, ends, names = _scripts()
    at = bisect_right(starts, ord(char)) - 1
    return names[at] if at >= 0 and ord(char) <= ends[at] else None


def _hidden(text: str) -> Iterator[tuple[int, str]]:
    for at, char in enumerate(text):
        if char <= "\x7f":
            continue
        if is_blank(char):
            yield at, ", which is blank"
        elif is_ignorable(char) and is_escaped(text, at):
            yield at, ", which shows nothing"


def _foreign(text: str, scripts: dict[str, str]) -> dict[int, str]:
    """Return the letters that are not of the writing system in which *text* begins."""
    if frozenset.intersection(*map(_systems, scripts.values())):
        return {}
    found = {}
    systems: frozenset[str] = frozenset()
    begun = ""
    for at, char in enumerate(text):
        script = scripts.get(char)
        if script is None:
            continue
        shared = systems & _systems(script) if begun else _systems(script)
        if shared:
            systems, begun = shared, begun or script
        else:
            found[at] = f", among {_words(begun)} letters"
    return found


def _within_words(text: str, scripts: dict[str, str]) -> dict[int, str]:
    """Return the letters that stand in one word with ASCII letters and may pass for one."""
    risky = {char for char, script in scripts.items() if _passes_for_ascii(char, script)}
    if not risky:
        return {}
    return {
        at: ", in a word with Latin letters"
        for word in _WORD.finditer(text)
        if not word[0].isascii() and any("A" <= char <= "z" for char in word[0])
        for at in range(*word.span())
        if text[at] in risky
    }


def _passes_for_ascii(char: str, script: str) -> bool:
    if script == "Latin" or script in _DISTINCT:
        return False
    if script not in _BESIDE:
        return True
    looks_like = skeleton_of(char)
    return looks_like.isascii() and looks_like.isalpha()


def _systems(script: str) -> frozenset[str]:
    return _SYSTEMS.get(script) or frozenset({script})


def _words(script: str) -> str:
    return script.replace("_", " ")


@cache
def _scripts() -> tuple[list[int], list[int], list[str]]:
    from upcall.model.scripts import TABLE

    ranges = []
    for row in TABLE.split("; "):
        name, *parts = row.split(" ")
        for part in parts:
            start, _, more = part.partition("+")
            ranges.append((int(start, 16), int(start, 16) + int(more or "0", 16), name))
    ranges.sort()
    return (
        [low for low, _, _ in ranges],
        [high for _, high, _ in ranges],
        [n for *_, n in ranges],
    )
