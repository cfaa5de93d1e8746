"""Who may begin an opening handshake, so that nobody else's silence can lock us out.

A connection that has not proven itself holds one of a few places. Half of them are for our
own user: when the others are taken, the kernel is asked whose a newcomer is, once for all
that came in the meantime, and for no more than a fifth of the loop's time.
"""

import asyncio
import os
from collections.abc import Callable, Collection
from typing import Final, Protocol

from upcall.model.limits import MAX_PREAUTH_HANDSHAKES
from upcall.session.peers import PeerAddress, peer_uids

_MAX_UNKNOWN: Final = 1024
_MAX_LEAVING: Final = 16
_PAUSE_RATIO: Final = 4.0

AskUids = Callable[[int, Collection[PeerAddress]], dict[PeerAddress, int] | None]


class Guest(Protocol):
    """A connection that wants in."""

    def abort(self) -> None:
        """Cut it."""
        ...


class Entrance:
    """The places before authentication of one endpoint.

    Args:
        places: how many there are.
        ask_uids: asks the kernel whose connections are.
    """

    __slots__ = (
        "_ask_uids",
        "_asking",
        "_inside",
        "_leaving",
        "_places",
        "_rested_s",
        "_unknown",
        "port",
    )

    def __init__(
        self, places: int = MAX_PREAUTH_HANDSHAKES, ask_uids: AskUids = peer_uids
    ) -> None:
        self.port = 0
        self._places = places
        self._ask_uids = ask_uids
        self._inside: set[Guest] = set()
        self._unknown: dict[Guest, PeerAddress] = {}
        self._leaving: set[Guest] = set()
        self._asking: asyncio.TimerHandle | None = None
        self._rested_s = 0.0

    @property
    def guests(self) -> list[Guest]:
        """Everybody who is not through yet."""
        return [*self._inside, *self._unknown, *self._leaving]

    def admits(self, guest: Guest, peer: PeerAddress | None) -> bool:
        """Take a new connection in, or not.

        Args:
            guest: the connection. It may be cut later, when it is known whose it is.
            peer: where it came from.
        """
        if len(self._inside) < self._places // 2:
            self._inside.add(guest)
            return True
        if peer is None or len(self._unknown) >= _MAX_UNKNOWN:
            return False
        self._unknown[guest] = peer
        if self._asking is None:
            loop = asyncio.get_running_loop()
            self._asking = loop.call_at(max(loop.time(), self._rested_s), self._decide)
        return True

    def refused(self, guest: Guest) -> None:
        """Give a place back: its holder was refused and has only to read that."""
        self.left(guest)
        if len(self._leaving) >= _MAX_LEAVING:
            self._leaving.pop().abort()
        self._leaving.add(guest)

    def left(self, guest: Guest) -> None:
        """Forget a connection that is through, or over."""
        self._inside.discard(guest)
        self._unknown.pop(guest, None)
        self._leaving.discard(guest)

    def close(self) -> None:
        """Decide nothing any more."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _decide(self) -> None:
        self._asking = None
        waiting, self._unknown = self._unknown, {}
        if not waiting:
            return
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        uids = self._ask_uids(self.port, waiting.values())
        took_s = loop.time() - began_s
        self._rested_s = loop.time() + took_s * _PAUSE_RATIO
        for guest, peer in waiting.items():
            ours = uids is None or uids.get(peer) == os.geteuid()
            if ours and len(self._inside) < self._places:
                self._inside.add(guest)
            else:
                guest.abort()
