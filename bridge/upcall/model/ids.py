"""A distinct type for each kind of id, and how new ones are made from given random bytes.

Nothing here draws randomness: who needs an id passes the bytes in.
"""

import re
from typing import Final, NewType

SessionId = NewType("SessionId", str)
"""A session, as in its record: `[A-Za-z0-9._-]{1,128}`."""
ActionId = NewType("ActionId", str)
"""An action on the wire; opaque, unique within one session."""
AskId = NewType("AskId", str)
"""The public id of an ask: `a` and 12 characters of lower-case Crockford base32."""
ConnectionId = NewType("ConnectionId", str)
"""One client's connection to one endpoint."""
Revision = NewType("Revision", str)
"""SHA-256 (hex) over what was asked; an answer is bound to it."""
ReplyKey = NewType("ReplyKey", str)
"""The idempotency key of a reply."""
PressToken = NewType("PressToken", str)
"""The opaque token of one button."""
DeliveryId = NewType("DeliveryId", int)
"""One delivery row."""
ChannelName = NewType("ChannelName", str)
"""A configured channel, for instance `web`."""

ASK_ID_BYTES: Final = 8
TOKEN_BYTES: Final = 24
PRESS_TOKEN_BYTES: Final = 12

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_ASK_ID: Final = re.compile(r"a[0-9a-hjkmnp-tv-z]{12}")
_SESSION_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_ASK_ACTION_PREFIX: Final = "ask:"


def crockford(data: bytes, characters: int) -> str:
    """Return the first *characters* x 5 bits of *data* in lower-case Crockford base32.

    Raises:
        ValueError: *data* is too short.
    """
    if len(data) * 8 < characters * 5:
        raise ValueError(f"{characters} characters need {(characters * 5 + 7) // 8} bytes")
    number = int.from_bytes(data, "big") >> (len(data) * 8 - characters * 5)
    return "".join(
        _CROCKFORD[(number >> (5 * place)) & 31] for place in reversed(range(characters))
    )


def new_ask_id(random: bytes) -> AskId:
    """Return a public ask id from at least 8 random bytes (60 bits are used)."""
    return AskId("a" + crockford(random, 12))


def new_hosted_session_id(random: bytes) -> SessionId:
    """Return the id of a session that the hub hosts, from at least 8 random bytes."""
    return SessionId("s" + crockford(random, 12))


def short_id(ask_id: AskId) -> str:
    """Return the beginning of a public id, as people are told it; commands take it too."""
    return ask_id[:5]


def new_press_token(random: bytes) -> PressToken:
    """Return a button's token from 12 random bytes."""
    return PressToken(crockford(random, 19))


def action_id_of(ask_id: AskId) -> ActionId:
    """Return the action id under which an ask of ours goes over the wire."""
    return ActionId(_ASK_ACTION_PREFIX + ask_id)


def ask_id_in(action_id: str) -> AskId | None:
    """Return the public id that an action id of ours carries, or None for anyone else's."""
    candidate = action_id.removeprefix(_ASK_ACTION_PREFIX)
    if candidate != action_id and _ASK_ID.fullmatch(candidate):
        return AskId(candidate)
    return None


def is_ask_id(text: str) -> bool:
    """Tell whether *text* has the form of a public ask id."""
    return _ASK_ID.fullmatch(text) is not None


def is_session_id(text: str) -> bool:
    """Tell whether *text* has the form of a session id; it is also safe as a file name."""
    return _SESSION_ID.fullmatch(text) is not None and text not in {".", ".."}
