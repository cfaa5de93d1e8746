"""How many connections may be open, whose they are, and which one has to give way.

A connection costs a descriptor and a little memory as long as it is open, and any program
of this computer can open many. So there is a bound; at the bound the one that has shown the
least is cut, so that who comes with a request always gets in. Connections of other users
are told apart in one look at the kernel's tables for all that arrived together; they take
none of the room.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from upcall_adapters.web.peers import read_tables, uid_of_peer

MAX_CONNECTIONS: Final = 128
MAX_FOREIGN: Final = 8


class Guest(Protocol):
    """One connection, as the gate sees it."""

    @property
    def ends(self) -> tuple[tuple[str, int], tuple[str, int]] | None:
        """The addresses of the other end and of ours, or None once it is gone."""
        ...

    @property
    def rank(self) -> int:
        """What it has shown: 0 nothing, 1 requests before, 2 a request now."""
        ...

    def cut(self) -> None:
        """Close it now."""
        ...


class Gate:
    """The open connections of one inbox.

    Args:
        own_uid: the only user whose connections are served, or None for any.
        read: returns the lines of the kernel's tables, or None; blocks.
        max_connections: how many connections of ours may be open.
        max_foreign: how many of other users may wait for their refusal.
    """

    def __init__(
        self,
        own_uid: int | None,
        *,
        read: Callable[[], Sequence[str] | None] = read_tables,
        max_connections: int = MAX_CONNECTIONS,
        max_foreign: int = MAX_FOREIGN,
    ) -> None:
        self._own_uid = own_uid
        self._read = read
        self._max_connections = max_connections
        self._max_foreign = max_foreign
        # In the order of arrival: the oldest comes first where all else is equal.
        self._guests: dict[Guest, asyncio.Future[bool]] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._guests)

    def entered(self, guest: Guest) -> None:
        """Take a new connection in; another one may have to go."""
        owner: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._own_uid is None:
            owner.set_result(True)
        self._guests[guest] = owner
        self._arrived.set()
        ours = [one for one in self._guests if not self._is_foreign(one)]
        if len(ours) > self._max_connections:
            least = min(ours, key=lambda one: one.rank)
            (guest if least.rank >= 2 else least).cut()

    def left(self, guest: Guest) -> None:
        """Forget a connection."""
        owner = self._guests.pop(guest, None)
        if owner is not None and not owner.done():
            owner.set_result(False)

    async def is_own(self, guest: Guest) -> bool:
        """Tell whether our user holds the other end; waits for the look at the tables."""
        owner = self._guests.get(guest)
        return owner is not None and await asyncio.shield(owner)

    async def watch(self) -> None:
        """Find out whose the connections are, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            unknown = [(one, owner) for one, owner in self._guests.items() if not owner.done()]
            if not unknown:
                continue
            lines = await asyncio.to_thread(self._read) or ()
            rows = _Rows(lines)
            for guest, owner in unknown:
                ends = guest.ends
                if not owner.done():
                    owner.set_result(
                        ends is not None and rows.uid_between(*ends) == self._own_uid
                    )
            foreign = [one for one in self._guests if self._is_foreign(one)]
            for guest in foreign[self._max_foreign :]:
                guest.cut()

    def _is_foreign(self, guest: Guest) -> bool:
        owner = self._guests[guest]
        return owner.done() and not owner.result()


class _Rows:
    """The kernel's tables, found by the port of the other end."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._by_port: dict[str, list[str]] = {}
        for line in lines:
            cells = line.split(maxsplit=2)
            if len(cells) == 3:
                self._by_port.setdefault(cells[1].rpartition(":")[2], []).append(line)

    def uid_between(self, peer: tuple[str, int], local: tuple[str, int]) -> int | None:
        return uid_of_peer(self._by_port.get(f"{peer[1]:04X}", ()), peer, local)


def ends_of(transport: Any) -> tuple[tuple[str, int], tuple[str, int]] | None:
    """Return both addresses of a connection, or None once it is gone."""
    peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    return None if not peer or not local else (peer[:2], local[:2])


def can_tell_users() -> bool:
    """Tell whether the system says whose the other end of a connection is. Blocks."""
    return sys.platform.startswith("linux") and read_tables() is not None
