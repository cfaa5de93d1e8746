"""From the neutral message to what the inbox is told: pure, one body for one message.

Pages draw asks from the hub's own view, so the body carries only what a notification
needs; it exists so that the web inbox is a channel like every other, with deliveries
that can be counted.
"""

from collections.abc import Sequence

import msgspec

from upcall.model.document import Heading, Message
from upcall.model.platform import Body, Place
from upcall.model.text import visible


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of one delivery to the inbox.

    Attributes:
        plain: the message in plain text, with visible escapes.
        title: its first heading, if it has one.
        state_line: the hub's words on the state.
        choices: how many options it offers.
        hidden_chars: how many characters of what will run are masked.
    """

    plain: str
    title: str | None = None
    state_line: str = ""
    choices: int = 0
    hidden_chars: int = 0


def lower(message: Message, place: Place) -> Sequence[Body]:
    """Return the one body of *message*; the place makes no difference."""
    del place
    title = next((block.text for block in message.blocks if isinstance(block, Heading)), None)
    note = Note(
        plain=visible(message.plain, newlines=True),
        title=None if title is None else visible(title),
        state_line=visible(message.state_line),
        choices=0 if message.choices is None else len(message.choices.buttons),
        hidden_chars=0 if message.choices is None else message.choices.hidden_chars,
    )
    return (Body(msgspec.json.encode(note)),)
