"""What is wrong with a value of the configuration, in a person's words. Pure."""

import re
import typing
from collections.abc import Collection
from typing import Any, Final, Literal

import msgspec

from upcall.model.text import one_line, visible

_AT: Final = re.compile(r" - at `\$\.?([^`]*)`")
_EXPECTED: Final = re.compile(r"Expected `([^`]+)`(.*?)(?:, got `([^`]+)`)?$")
_ENUM: Final = re.compile(r"Invalid enum value (.+)$")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`$")
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_NOTHING: Final = "null"
_BOUNDS: Final = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}


def wrong_value(exc: Exception, kind: type[Any]) -> tuple[str, str]:
    """Return which key of a table is wrong, and why, with what is allowed.

    Args:
        exc: what reading the table as *kind* raised.
        kind: the table's type.

    Returns:
        The key, with what is below it; empty if it is about the whole table.
    """
    words = one_line(str(exc))
    at = _AT.search(words)
    words = _AT.sub("", words)
    if at is not None:
        key = at.group(1)
        return key, _plain(words, kind, re.split(r"[.\[]", key)[0])
    # A check of ours: its words begin with the key.
    first, _, rest = words.partition(" ")
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    if first in names:
        return first, rest
    return "", _plain(words, kind, "")


def kept_elsewhere(key: str) -> str:
    """Return what to write for a secret instead of the secret itself."""
    name = visible(key)
    return (
        f"{name} is a secret, which is not written into this file but where it is kept: "
        f'{name} = {{ file = "~/.config/upcall/{name.replace("_", "-")}" }}'
    )


def _plain(words: str, kind: type[Any], key: str) -> str:
    if found := _ENUM.match(words):
        allowed = _allowed(kind, key)
        return f"{found[1]} is none of {', '.join(allowed)}" if allowed else words
    if found := _MISSING.match(words):
        return f"{visible(found[1])} is missing"
    found = _EXPECTED.match(words)
    if found is None:
        return words
    wanted = " or ".join(dict.fromkeys(_named(found[1]))) + _bound(found[2].strip())
    got = "".join(_named(found[3] or ""))
    return f"{wanted} is wanted here" + (f", not {got}" if got else "")


def _named(types: str) -> list[str]:
    names = [name.strip() for name in types.split("|")]
    return [_KINDS.get(name, name) for name in names if name and name != _NOTHING]


def _bound(words: str) -> str:
    for sign, said in _BOUNDS.items():
        if words.startswith(f"{sign} "):
            number = words.removeprefix(sign).strip()
            return f" of {said} {number.removesuffix('.0')}"
    return f" {words}" if words else ""


def _allowed(kind: type[Any], key: str) -> Collection[str]:
    """Return the values that a key of *kind* takes, if they are a list."""
    try:
        hint = typing.get_type_hints(kind).get(key)
    except NameError:
        return ()
    return [repr(value) for value in _literals(hint)]


def _literals(hint: Any) -> list[Any]:
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return list(inner)
    return [value for one in inner for value in _literals(one)]
