"""Which clients the hub's two sockets let in, so that nobody's crowd keeps the others out.

Who is in and has not said hello is silent, and the silent are few: for a newcomer, one of the
program with the most of them has to go. The last places are for programs that have hardly
any yet. Another user has a small number of places of its own.
"""

import os
from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

from upcall.hub.peer import Peer
from upcall.model import limits
from upcall.model.errors import HubError

_FEW: Final = 4
_RESERVED_SHARE: Final = 16

Program: TypeAlias = tuple[int, int]
"""uid and pid; 0 for a pid that the kernel cannot tell."""

_Key = TypeVar("_Key", int, Program)


class Caller(Protocol):
    """A client's connection."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Places:
    """How many clients there may be.

    Attributes:
        total: of both sockets together.
        silent: of those, without a hello.
        foreign: of other users than the hub's own.
        of_foreign_user: of each of those.
    """

    total: int = limits.MAX_CLIENTS
    silent: int = limits.MAX_SILENT_CLIENTS
    foreign: int = limits.MAX_FOREIGN_CLIENTS
    of_foreign_user: int = limits.MAX_CLIENTS_OF_FOREIGN_USER

    @classmethod
    def within(cls, descriptors: int) -> "Places":
        """Return the places that leave a process with so many descriptors enough for the rest.

        A quarter, besides what the hub itself has open, is left to sessions and the inbox.
        """
        total = max(32, min(limits.MAX_CLIENTS, (descriptors - 192) * 3 // 4))
        return cls(
            total=total,
            silent=min(limits.MAX_SILENT_CLIENTS, total // 2),
            foreign=min(limits.MAX_FOREIGN_CLIENTS, total // 4),
            of_foreign_user=min(limits.MAX_CLIENTS_OF_FOREIGN_USER, total // 8),
        )


class Gate:
    """Counts who is in.

    Args:
        places: how many there may be.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self._since: dict[Caller, float] = {}
        self._inside: set[Caller] = set()
        self._of: Counter[Program] = Counter()
        self._silent_of: Counter[Program] = Counter()
        self._foreign: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._inside)

    def enter(self, caller: Caller, now_s: float) -> HubError | None:
        """Let a client in, or return why not."""
        refusal = self._refusal(caller.peer)
        if refusal is None:
            self._inside.add(caller)
            self._since[caller] = now_s
            self._of[_program(caller)] += 1
            self._silent_of[_program(caller)] += 1
            if _is_foreign(caller.peer.uid):
                self._foreign[caller.peer.uid] += 1
        return refusal

    def greeted(self, caller: Caller) -> None:
        """Note that a client has said hello."""
        if self._since.pop(caller, None) is not None:
            _less(self._silent_of, _program(caller))

    def leave(self, caller: Caller) -> None:
        """Forget a client; repeating it does nothing."""
        if caller not in self._inside:
            return
        self.greeted(caller)
        self._inside.discard(caller)
        _less(self._of, _program(caller))
        if _is_foreign(caller.peer.uid):
            _less(self._foreign, caller.peer.uid)

    def too_silent(self) -> Caller | None:
        """Return who has to go since too many are silent: the first of whose are the most."""
        if len(self._since) <= self.places.silent:
            return None
        most = max(self._silent_of.values())
        return next(one for one in self._since if self._silent_of[_program(one)] == most)

    def late(self, now_s: float) -> list[Caller]:
        """Return those who have had their time to say hello."""
        late = []
        for caller, since_s in self._since.items():
            if now_s - since_s < limits.HELLO_S:
                break
            late.append(caller)
        return late

    def _refusal(self, peer: Peer) -> HubError | None:
        places, uid = self.places, peer.uid
        if _is_foreign(uid):
            if self._foreign[uid] >= places.of_foreign_user:
                return _full(f"user {uid} has", places.of_foreign_user)
            if self._foreign.total() >= places.foreign:
                return _full("other users have", places.foreign)
        inside = len(self._inside)
        if inside >= places.total:
            return _full("there are", places.total)
        reserved = max(1, places.total // _RESERVED_SHARE)
        if inside >= places.total - reserved and self._of[uid, peer.pid] >= _FEW:
            # The last places are for somebody else than who has taken the others.
            return _full(f"process {peer.pid} has many of", places.total)
        return None


def _full(who: str, limit: int) -> HubError:
    return HubError(
        f"{who} {limit} connections to the hub, and that is the limit",
        code="limit_reached",
        recover="end some of these programs, or try again when they have their answers",
    )


def _program(caller: Caller) -> Program:
    return caller.peer.uid, caller.peer.pid


def _is_foreign(uid: int) -> bool:
    return uid not in {0, os.geteuid()}


def _less(counter: Counter[_Key], key: _Key) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
