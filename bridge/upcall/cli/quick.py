"""Reading the common forms of `upcall ask` without argparse, which costs a third of a run.

Whatever is not plain here (an option with `=`, a value that begins with a dash, anything
wrong) is left to the real parser; a test holds the two against each other.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_VALUES = {
    "--recommend": "recommend", "--default": "default", "--detail": "detail",
    "--timeout": "timeout", "--title": "title", "--session": "session", "--key": "key",
    "--unseen": "unseen",
}  # fmt: skip
_LISTS = {"-o": "options", "--option": "options", "--tag": "tags"}
_FLAGS = {
    "--multi": ("multi", True), "--free-text": ("free_text", True),
    "--no-free-text": ("free_text", False), "--permission": ("permission", True),
    "--secret": ("secret", True), "--no-terminal": ("no_terminal", True),
    "--no-wait": ("no_wait", True), "--merge": ("merge", True),
    "-q": ("quiet", True), "--quiet": ("quiet", True), "--json": ("json", True),
}  # fmt: skip


class Given:
    """What was given to `ask`, as argparse would tell it."""

    def __init__(self) -> None:
        self.question = ""
        self.options: list[str] = []
        self.free_text: bool | None = None
        self.multi = self.permission = self.no_terminal = False
        self.no_wait = self.quiet = self.json = self.secret = self.merge = False
        self.tags: list[str] = []
        self.recommend: str | None = None
        self.default: str | None = None
        self.detail: str | None = None
        self.timeout: str | None = None
        self.title: str | None = None
        self.session: str | None = None
        self.key: str | None = None
        self.unseen = "wait"


def read(argv: Sequence[str]) -> Any:
    """Return what *argv* gives (a `Given`), or None if the real parser has to look at it."""
    given = Given()
    questions = []
    words = iter(argv)
    for word in words:
        if word in _FLAGS:
            name, value = _FLAGS[word]
            setattr(given, name, value)
        elif word in _VALUES or word in _LISTS:
            text = next(words, "-")
            if text.startswith("-"):
                return None
            if word in _VALUES:
                setattr(given, _VALUES[word], text)
            else:
                getattr(given, _LISTS[word]).append(text)
        elif word.startswith("-"):
            return None
        else:
            questions.append(word)
    if len(questions) != 1 or given.unseen not in {"wait", "fail"}:
        return None
    given.question = questions[0]
    return given
