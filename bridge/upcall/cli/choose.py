"""What a person typed, read as an answer. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

DECLINE = "#decline"
_INITIALS = {"y": 0, "n": 1}


class NotAnAnswer(Exception):
    """What was typed answers nothing; the message says what would. Nothing was sent."""


def fold(label: str) -> str:
    """Return *label* as it is compared: case folded, outer blanks removed."""
    return label.strip().casefold()


def is_numeric(options: Sequence[str]) -> bool:
    """Tell whether some label could be mistaken for an option's number."""
    return any(label.strip().lstrip("#").isdigit() for label in options)


def number_of(index: int, options: Sequence[str]) -> str:
    """Return how option *index* is named by number: `2`, or `#2` where labels are numeric."""
    return f"#{index + 1}" if is_numeric(options) else str(index + 1)


def read(
    ask: dict[str, Any], typed: str, *, own: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the answer that *typed* is for *ask*, as the hub's `took` takes it.

    Labels come first: exact, then without regard to case and outer blanks; then numbers;
    then, where the ask takes words, words. *own* are the labels as their program wrote them,
    where what is shown of them may be masked.

    Raises:
        NotAnAnswer: it is none, or could be two.
    """
    options: list[str] = ask.get("options") or []
    text = typed.strip()
    if ask.get("secret") and typed and fold(text) != DECLINE:
        return {"text": typed}  # blanks may belong to it
    if not text:
        raise NotAnAnswer(_wanted(ask))
    if fold(text) == DECLINE and ask.get("can_decline", True):
        return {"declined": True}
    if _is_nearly_decline(text):
        raise NotAnAnswer(f"to decline, type {DECLINE} alone")
    if takes_initials(ask) and fold(text) in _INITIALS:
        return _checked(ask, [_INITIALS[fold(text)]])
    index = _option(options, text)
    if index is None and own is not None and len(own) == len(options):
        index = next((i for i, label in enumerate(own) if fold(label) == fold(text)), None)
    if index is not None:
        return _checked(ask, [index])
    if ask.get("multi"):
        indices = _several(options, text)
        if indices is not None:
            return _checked(ask, indices)
    if ask.get("free_text"):
        return {"text": text}
    raise NotAnAnswer(_wanted(ask))


def _is_nearly_decline(text: str) -> bool:
    """Tell whether *text* is the decline with a slip of the finger behind it: no answer."""
    folded = fold(text)
    rest = folded.removeprefix(DECLINE)
    return folded != rest and rest != "" and not any(map(str.isspace, rest))


def takes_initials(ask: dict[str, Any]) -> bool:
    """Tell whether `y` and `n` answer *ask*: a permission whose labels are just Yes and No."""
    return ask.get("class") == "permission" and ask.get("options") == ["Yes", "No"]


def _option(options: list[str], text: str) -> int | None:
    exact = [i for i, label in enumerate(options) if label == text]
    found = exact or [i for i, label in enumerate(options) if fold(label) == fold(text)]
    if len(found) > 1:
        both = " and ".join(f'"{options[i]}" (#{i + 1})' for i in found[:2])
        raise NotAnAnswer(f"that fits two: {both}")
    if found:
        return found[0]
    digits = text.removeprefix("#")
    # Isn't `isdigit`: that takes digits of every script, and superscripts.
    if not digits.isascii() or not digits.isdecimal():
        return None
    if digits == text and is_numeric(options):
        return None
    return int(digits) - 1 if len(digits) < 5 and 1 <= int(digits) <= len(options) else None


def _several(options: list[str], text: str) -> list[int] | None:
    for parts in (text.split(","), text.replace(",", " ").split()):
        indices = [_option(options, part.strip()) for part in parts if part.strip()]
        if indices and None not in indices:
            return [index for index in indices if index is not None]
    return None


def _checked(ask: dict[str, Any], indices: list[int]) -> dict[str, Any]:
    chosen = sorted(set(indices))
    low, high = ask.get("min_selected"), ask.get("max_selected")
    if low is not None and len(chosen) < low:
        raise NotAnAnswer(f"choose at least {low}")
    if high is not None and len(chosen) > high:
        raise NotAnAnswer(f"choose at most {high}")
    return {"indices": chosen}


def _wanted(ask: dict[str, Any]) -> str:
    options = ask.get("options") or []
    if takes_initials(ask):
        return "type y or n, then Enter"
    if not options:
        return "type your answer, then Enter"
    low, high = number_of(0, options), number_of(len(options) - 1, options)
    numbers = low if len(options) == 1 else f"{low}-{high}"
    if ask.get("multi"):
        return f"type numbers ({numbers}) or labels, with commas between, then Enter"
    more = ", or words" if ask.get("free_text") else ""
    return f"type a number ({numbers}) or a label{more}, then Enter"
