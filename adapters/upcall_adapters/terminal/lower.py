"""From the neutral message to what open screens are handed: pure.

Everything from outside is escaped here, so that a screen can write it as it is. A message
too long for one line of the hub's socket becomes several bodies; the choices are on the last.
"""

from collections.abc import Iterator, Sequence
from typing import Final, assert_never

import msgspec

from upcall.model.document import (
    Block,
    Button,
    Choices,
    Code,
    Control,
    Fields,
    File,
    Heading,
    Message,
    Paragraph,
    Quote,
    Span,
)
from upcall.model.platform import Body, Place
from upcall.model.text import visible

MAX_TEXT_CHARS: Final = 100_000


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """One block: `heading`, `text`, `code`, `quote`, `field` or `file`."""

    kind: str
    text: str


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """One choice, with the number by which it is picked.

    Attributes:
        shows_rest: it lets run what is not all shown; the yes comes only after that.
    """

    number: int
    label: str
    detail: str = ""
    suggested: bool = False
    shows_rest: bool = False


class Card(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one call hands to every screen.

    Attributes:
        parts: the blocks in reading order.
        options: the choices, on the last body of a message.
        takes_words: words are an answer too.
        others: what else can be done, in words: decline, hold.
        state_line: the hub's words on the state.
        continues: the message goes on in the next body.
    """

    parts: tuple[Part, ...]
    options: tuple[Option, ...] = ()
    takes_words: bool = False
    others: tuple[str, ...] = ()
    state_line: str = ""
    continues: bool = False


def lower(message: Message, place: Place) -> Sequence[Body]:
    """Return the bodies that show *message*; the place makes no difference."""
    del place
    pages = list(_pages(part for block in message.blocks for part in _parts(block)))
    cards = [Card(parts=page, continues=True) for page in pages[:-1]]
    cards.append(_last(pages[-1], message.choices, visible(message.state_line)))
    return tuple(Body(msgspec.json.encode(card)) for card in cards)


def _last(parts: tuple[Part, ...], choices: Choices | None, state_line: str) -> Card:
    if choices is None:
        return Card(parts=parts, state_line=state_line)
    others = (choices.decline, choices.hold)
    return Card(
        parts=parts,
        options=tuple(
            _option(i, button, choices.control(button))
            for i, button in enumerate(choices.buttons, 1)
        ),
        takes_words=choices.free_text,
        others=tuple(visible(words) for words in others if words is not None),
        state_line=state_line,
    )


def _option(number: int, button: Button, control: Control) -> Option:
    # The body holds all of what will run; hidden is only what the hub masked.
    return Option(
        number=number,
        label=visible(control.label),
        shows_rest=control.token != button.token,
        detail=visible(button.detail, newlines=True),
        suggested=button.suggested,
    )


def _parts(block: Block) -> Iterator[Part]:
    match block:
        case Heading(text):
            yield Part("heading", visible(text))
        case Paragraph(spans):
            yield Part("text", visible("".join(_words(spans)), newlines=True))
        case Code(text):
            yield Part("code", visible(text, newlines=True))
        case Quote(text):
            yield Part("quote", visible(text, newlines=True))
        case Fields(rows):
            for name, value in rows:
                yield Part("field", f"{visible(name)}: {visible(value)}")
        case File(name, path):
            yield Part("file", f"{visible(name)} ({visible(path)})")
        case _:
            assert_never(block)


def _words(spans: Sequence[Span]) -> Iterator[str]:
    for span in spans:
        text, href = span.text, span.href
        # A link's target is words here: what cannot be seen cannot be judged.
        yield text if href is None or href == text else f"{text} ({href})"


def _pages(parts: Iterator[Part]) -> Iterator[tuple[Part, ...]]:
    """Yield the parts in pages of at most `MAX_TEXT_CHARS` characters; at least one page."""
    page: list[Part] = []
    used = 0
    for part in parts:
        text = part.text
        while used + len(text) > MAX_TEXT_CHARS:
            room = MAX_TEXT_CHARS - used
            if room:
                page.append(Part(part.kind, text[:room]))
            yield tuple(page)
            page, used, text = [], 0, text[room:]
        page.append(Part(part.kind, text))
        used += len(text)
    yield tuple(page)
