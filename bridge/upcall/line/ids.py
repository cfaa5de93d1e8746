"""The public id of an ask, minted by whoever raises it."""

from __future__ import annotations

import os

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_ACTION_PREFIX = "ask:"


def mint_ask_id() -> str:
    """Return a new public ask id: `a` and 12 characters, 60 random bits."""
    number = int.from_bytes(os.urandom(8), "big") >> 4
    return "a" + "".join(_CROCKFORD[number >> shift & 31] for shift in range(55, -1, -5))


def full_ask_id(text: str) -> str | None:
    """Return the public id if *text* is one, or is the action id made of one; else None."""
    candidate = text.removeprefix(_ACTION_PREFIX)
    if (
        len(candidate) == 13
        and candidate[0] == "a"
        and not set(candidate[1:]) - set(_CROCKFORD)
    ):
        return candidate
    return None
