"""The neutral message: what to say, without how any platform says it."""

from typing import Literal, TypeAlias

import msgspec

Tone: TypeAlias = Literal["plain", "bold", "code", "quiet"]


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of text in one style; nothing in it is markup."""

    text: str
    tone: Tone = "plain"
    href: str | None = None


class Heading(msgspec.Struct, frozen=True, tag="heading"):
    """A line that names what follows."""

    text: str


class Paragraph(msgspec.Struct, frozen=True, tag="paragraph"):
    """Running text."""

    spans: tuple[Span, ...]


class Code(msgspec.Struct, frozen=True, tag="code", omit_defaults=True):
    """Text to show as it is, in a fixed-width face."""

    text: str
    language: str = ""


class Quote(msgspec.Struct, frozen=True, tag="quote"):
    """Words of the session, set apart from the hub's own."""

    text: str


class Fields(msgspec.Struct, frozen=True, tag="fields"):
    """Short facts, name and value."""

    rows: tuple[tuple[str, str], ...]


class File(msgspec.Struct, frozen=True, tag="file", omit_defaults=True):
    """A file that belongs to the message, by its path on this machine."""

    name: str
    path: str
    mime: str = "application/octet-stream"
    size_bytes: int = 0


Block: TypeAlias = Heading | Paragraph | Code | Quote | Fields | File


class Button(msgspec.Struct, frozen=True, omit_defaults=True):
    """One choice. The token is minted by the hub and means nothing to a platform.

    Attributes:
        opens: of a choice that lets something run, the token that shows the rest of it first;
            what is drawn is found by `Choices.control`.
    """

    token: str
    label: str
    detail: str = ""
    suggested: bool = False
    opens: str | None = None


class Control(msgspec.Struct, frozen=True):
    """What is drawn for a button: its words, and the token that a press of it brings."""

    token: str
    label: str


class Choices(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person can do with a card, beside reading it.

    Attributes:
        hidden_chars: how many characters of what will run are masked in the blocks.
        withdraw: takes back whatever vote the presser has given.
        hold_all: stops the clocks of all asks of the session, and holds new ones back.
    """

    buttons: tuple[Button, ...] = ()
    multi: bool = False
    min_selected: int = 0
    max_selected: int = 0
    free_text: bool = False
    decline: str | None = None
    hold: str | None = None
    hold_all: str | None = None
    withdraw: str | None = None
    hidden_chars: int = 0

    def control(self, button: Button, cut_chars: int = 0) -> Control:
        """Return what is drawn for *button* on a card.

        Where a character of what will run cannot be seen there, a choice that lets it run
        says so, and a press of it only shows the rest; the choice itself comes after that.

        Args:
            button: one of these choices.
            cut_chars: how many characters of the card's code the platform does not show in
                the card: cut off, attached or folded away.
        """
        hidden_chars = self.hidden_chars + cut_chars
        if button.opens is None or not hidden_chars:
            return Control(button.token, button.label)
        return Control(button.opens, f"{button.label} … {hidden_words(hidden_chars)}")


def hidden_words(count: int) -> str:
    """Return how much of what will run is not shown."""
    return f"{count:,} character{'' if count == 1 else 's'} not shown"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """Blocks in reading order, then the choices, then the hub's own words on the state.

    Attributes:
        plain: the same in plain text, for notifications, logs and places without markup.
        rings: a person's device may make a sound for it; everything else comes silently.
    """

    blocks: tuple[Block, ...]
    plain: str
    choices: Choices | None = None
    state_line: str = ""
    rings: bool = False
