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
    """One choice. The token is minted by the hub and means nothing to a platform."""

    token: str
    label: str
    detail: str = ""
    suggested: bool = False


class Choices(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person can do with a card, beside reading it."""

    buttons: tuple[Button, ...] = ()
    multi: bool = False
    min_selected: int = 0
    max_selected: int = 0
    free_text: bool = False
    decline: str | None = None
    hold: str | None = None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """Blocks in reading order, then the choices, then the hub's own words on the state.

    Attributes:
        plain: the same in plain text, for notifications, logs and places without markup.
    """

    blocks: tuple[Block, ...]
    plain: str
    choices: Choices | None = None
    state_line: str = ""
