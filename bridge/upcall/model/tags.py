"""What a session calls itself by, so that routes can tell it from others."""

from collections.abc import Iterable
from typing import Final

from upcall.model.limits import MAX_TAG_CHARS, MAX_TAGS

TAG_RULE: Final = (
    f"at most {MAX_TAGS} of 1 to {MAX_TAG_CHARS} visible characters each, without blanks and"
    " commas"
)


def sendable_tags(given: Iterable[str]) -> tuple[str, ...]:
    """Return those of *given* that can be tags, each once, in order."""
    found = dict.fromkeys(tag for tag in given if is_tag(tag))
    return tuple(found)[:MAX_TAGS]


def is_tag(text: str) -> bool:
    """Tell whether *text* can be a tag. Blanks and commas part tags in a variable."""
    return (
        0 < len(text) <= MAX_TAG_CHARS
        and text.isprintable()
        and not any(char.isspace() or char == "," for char in text)
    )
