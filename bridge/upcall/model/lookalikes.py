"""Telling apart labels that a person could not, and naming what differs between them.

Two texts look alike if they have a look in common: the skeleton of Unicode's confusables
after removing what shows nothing, of the text as it is, of its compatible form, and of both
without regard to case. The table of confusables is loaded only for text beyond ASCII.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from upcall.model.text import bare_label, fold_label, is_blank, is_ignorable, shown_code_point

# The part of the table that is about ASCII alone; a test compares them.
_ASCII: Final = str.maketrans(
    {'"': "''", "%": "º/₀", "0": "O", "1": "l", "I": "l", "`": "'", "m": "rn", "|": "l"}
)
_NAMED_AT_MOST: Final = 4

# Unicode's list also names composed characters, which normalising takes apart before the
# table is asked.
_COMPOSED: Final = str.maketrans(
    {
        "\u0150": "\u00d6", "\u01a0": "O'", "\u01a1": "o'", "\u0163": "\u01ab",
        "\u021b": "\u01ab", "\u01f5": "\u0123", "\u0226": "\u00c5", "\u0227": "\u00e5",
        "\u0146": "\u0272", "\u040d": "\u0419", "\u045d": "\u0439", "\u048b": "\u0439\u0326",
        "\u0623": "l\u0674", "\u0624": "\u0648\u0674", "\u0626": "\u0649\u0674",
        "\u00f6": "\u0629", "\u1ff4": "\u1f7d", "\u1ff6": "\u13ef", "\u1e43": "\uab51",
        "\ufb2f": "\ufb2e", "\ufb30": "\ufb2e", "\ufb39": "\ufb1d", "\ufb49": "\ufb2a",
    }
)  # fmt: skip


def looks(text: str) -> frozenset[str]:
    """Return what *text* looks like; two texts with one in common can be mixed up.

    Text in which nothing is to be seen has the empty look, among others.
    """
    if text.isascii():
        kept = text.replace(" ", "")
        as_it_is = {kept.translate(_ASCII)}
        folded = {kept.casefold().translate(_ASCII).casefold()}
    else:
        as_it_is = {_skeleton(_kept(text)), _skeleton(_kept(_compatible(text)))}
        folded = {_skeleton(_kept(text.casefold())), _skeleton(bare_label(text))}
        folded = {look.casefold() for look in folded}
    # Marked, because `I` looks like `l` and `L` folds to it, and yet `I` and `L` differ.
    return frozenset(
        {f"={look}" for look in as_it_is} | {f"~{look}" for look in folded}
        | {f"~{fold_label(text)}"}
    )  # fmt: skip


def alike(labels: Sequence[str]) -> dict[int, list[int]]:
    """Return, for each index whose label could be mixed up, the indices of the others."""
    owners: dict[str, list[int]] = {}
    for index, label in enumerate(labels):
        for look in looks(label):
            owners.setdefault(look, []).append(index)
    found: dict[int, set[int]] = {}
    for indices in owners.values():
        if len(indices) > 1:
            for index in indices:
                found.setdefault(index, set()).update(indices)
    return {index: sorted(found[index] - {index}) for index in sorted(found)}


def difference(text: str, other: str) -> str:
    """Return in words which code points *text* has where *other* has others.

    For example `character 2 is U+0435 CYRILLIC SMALL LETTER IE`.
    """
    start = 0
    while start < min(len(text), len(other)) and text[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(text), len(other)) - start and text[-1 - end] == other[-1 - end]:
        end += 1
    mine = text[start : len(text) - end]
    if mine:
        return _at(start, mine)
    missing = other[start : len(other) - end]
    if not missing:
        return "it has the same characters"
    return f"it has no {_named(missing)} after character {start}"


def _at(start: int, part: str) -> str:
    if len(part) == 1:
        return f"character {start + 1} is {_named(part)}"
    return f"characters {start + 1}-{start + len(part)} are {_named(part)}"


def _named(part: str) -> str:
    more = ", …" if len(part) > _NAMED_AT_MOST else ""
    return ", ".join(shown_code_point(char) for char in part[:_NAMED_AT_MOST]) + more


def skeleton_of(char: str) -> str:
    """Return what one character looks like: itself, if it looks like nothing else."""
    return _skeleton(char)


def _compatible(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _kept(text: str) -> str:
    return "".join(char for char in text if not is_ignorable(char) and not is_blank(char))


def _skeleton(text: str) -> str:
    table = _confusables()
    apart = unicodedata.normalize("NFD", text.translate(_COMPOSED))
    parts = (table.get(char, char) for char in apart)
    return unicodedata.normalize("NFD", "".join(parts))


@cache
def _confusables() -> Mapping[str, str]:
    from upcall.model.confusables import TABLE

    table: dict[str, str] = {}
    for row in TABLE.split("; "):
        looks_like, *points = row.split(" ")
        target = "".join(chr(int(point, 16)) for point in looks_like.split("+"))
        table.update((chr(int(point, 16)), target) for point in points)
    return table
