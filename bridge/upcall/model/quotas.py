"""How much one session, and all of them together, may ask, say and keep.

Each limit has the name of its setting in the table `[limits]`.
"""

from typing import Final

import msgspec

from upcall.model.errors import HubError
from upcall.model.limits import (
    MAX_OPEN_ASKS,
    MAX_OPEN_ASKS_OF_FOREIGN_USER,
    MAX_OPEN_ASKS_OF_SESSION,
    MAX_SESSIONS,
)

CODE: Final = "limit_reached"


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`.

    Attributes:
        shown_asks: open asks of one session that channels show at once; the others wait.
        shown_asks_per_minute: how many of one session are newly shown within a minute.
        session_asks: open asks of one session, those that wait included.
        all_asks: open asks of all sessions together.
        foreign_asks: open asks of another user of this computer.
        sessions: sessions that the hub serves at once.
        live_text_bytes_per_minute: live and finalized text that one session may say.
        file_bytes: one file that a session attaches.
        files_bytes_per_hour: all files of a session within an hour.
        stored_bytes: text that is kept of one session.
        approvals_at_ease: permission asks of one session within five minutes; from this many
            on, the card says how many there were, and offers to hold them all.
    """

    shown_asks: int = 32
    shown_asks_per_minute: int = 20
    session_asks: int = MAX_OPEN_ASKS_OF_SESSION
    all_asks: int = MAX_OPEN_ASKS
    foreign_asks: int = MAX_OPEN_ASKS_OF_FOREIGN_USER
    sessions: int = MAX_SESSIONS
    live_text_bytes_per_minute: int = 1024 * 1024
    file_bytes: int = 10 * 1024 * 1024
    files_bytes_per_hour: int = 50 * 1024 * 1024
    stored_bytes: int = 256 * 1024 * 1024
    approvals_at_ease: int = 10

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not 1 <= value <= MOST:
                raise ValueError(f"{name} is between 1 and {MOST}")


MOST: Final = 1 << 40


def limit_words(limits: Limits, name: str, what: str) -> str:
    """Return why something is not taken: *what* is over the limit called *name*."""
    return f"{what}; the limit is {getattr(limits, name)} (limits.{name})"


def over(limits: Limits, name: str, what: str, recover: str) -> HubError:
    """Return the error for what is over the limit called *name*."""
    return HubError(limit_words(limits, name, what), code=CODE, recover=recover)
