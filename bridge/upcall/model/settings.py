"""What of the configuration is in force at once when its file changes."""

from typing import Literal

import msgspec

from upcall.model.policy import Operator, Policy


class LiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that a running hub takes up; everything else waits for a restart.

    Attributes:
        people: those whom the file names.
        local_answers: `tty`, `any` or `off`; see `[policy]`.
        redact: recognised credentials are masked.
        confirm_changes: what widens a right waits until a former operator agrees.
        adapters: channel to the adapter that serves it, for those of other people.
    """

    people: dict[str, Operator] = {}
    policy: Policy = Policy()
    local_answers: Literal["tty", "any", "off"] = "tty"
    allow_direct_clients: bool = False
    allow_defaults: bool = True
    redact: bool = True
    confirm_changes: bool = False
    adapters: dict[str, str] = {}


class Change(msgspec.Struct, frozen=True):
    """One difference between two settings, in words.

    Attributes:
        widens: somebody may do, or see, more than before.
    """

    words: str
    widens: bool
