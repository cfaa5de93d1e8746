"""`log` on the control socket: the audit's lines, and those that follow as they are written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from upcall.core.ledger import plain
from upcall.hub.controls import ControlRefused
from upcall.hub.store.audit import Wanted
from upcall.hub.store.db import Head, Store
from upcall.hub.view import Changes
from upcall.model.log import LogLine
from upcall.model.rows import AuditRow
from upcall.model.text import one_line

MAX_ANSWER_BYTES: Final = 700_000
_AT_ONCE: Final = 200


@dataclass(slots=True)
class _Follower:
    wanted: Wanted
    session: str | None


class LogFeed:
    """Answers `log`, and sends what is written later to those who follow.

    Args:
        store: the hub's.
        send: says an event to a waiter.
        has: tells whether a waiter is still there.
    """

    def __init__(
        self,
        store: Store,
        send: Callable[[int, str, dict[str, Any]], object],
        has: Callable[[int], bool],
    ) -> None:
        self._store = store
        self._send = send
        self._has = has
        self._followers: dict[int, _Follower] = {}
        self._changes = Changes()

    def look(self, lines: Sequence[AuditRow]) -> None:
        """Lines were committed."""
        del lines
        self._changes.bump()

    def remove(self, waiter: int) -> None:
        """Somebody follows no longer."""
        self._followers.pop(waiter, None)

    async def answer(self, waiter: int, request: dict[str, Any]) -> dict[str, Any]:
        """Return the newest lines that are asked for, oldest first.

        Raises:
            ControlRefused: `unknown_ask`, `ambiguous_ask`, `unknown_session`.
        """
        name, session = request.get("ask"), request.get("session")
        wanted = Wanted(
            asks=None if name is None else await self._asks(name),
            sessions=None if session is None else await self._sessions(session),
            since_ms=request.get("since_ms"),
            before=request.get("before"),
            limit=int(request.get("limit") or 200),
        )
        head = self._store.head
        lines = await self._store.audit_lines(wanted)
        fitting = _fitting(lines)
        if request.get("follow") and self._has(waiter):
            after = max([head.rows, *(line.row for line in lines[-1:])])
            live = replace(wanted, after=after, before=None, since_ms=None, limit=_AT_ONCE)
            self._followers[waiter] = _Follower(live, session)
            self._changes.bump()
        return {
            "lines": fitting,
            "cut": len(fitting) < len(lines),
            "head": head_view(self._store.head),
        }

    async def run(self) -> None:
        """Send what is new to those who follow, until cancelled."""
        async for _ in self._changes.follow():
            for waiter, follower in list(self._followers.items()):
                await self._push(waiter, follower)

    async def _push(self, waiter: int, follower: _Follower) -> None:
        while self._followers.get(waiter) is follower:
            if not self._has(waiter):
                self.remove(waiter)
                return
            if follower.session is not None:
                # A session of that name may have begun since.
                found = await self._store.audit_sessions(follower.session)
                follower.wanted = replace(follower.wanted, sessions=found)
            rows = self._store.head.rows
            lines = await self._store.audit_lines(follower.wanted)
            for line in lines:
                self._send(waiter, "log", {"line": plain(line)})
            full = len(lines) >= _AT_ONCE
            after = lines[-1].row if full else max(rows, *(line.row for line in lines[-1:]), 0)
            follower.wanted = replace(follower.wanted, after=after)
            if not full:
                return

    async def _asks(self, name: str) -> tuple[str, ...]:
        found = await self._store.audit_asks(name)
        if not found:
            raise ControlRefused(
                "unknown_ask",
                f"no ask {one_line(name)!r} is known",
                recover="upcall asks --all lists them",
            )
        if len(found) > 1 and any(one.startswith(name) for one in found):
            raise ControlRefused(
                "ambiguous_ask",
                f"{one_line(name)!r} names {len(found)} asks",
                recover="give the whole id of the one you mean",
                candidates=list(found[:20]),
            )
        return found

    async def _sessions(self, name: str) -> tuple[str, ...]:
        found = await self._store.audit_sessions(name)
        if not found:
            raise ControlRefused(
                "unknown_session",
                f"no session {one_line(name)!r} is known",
                recover="upcall sessions lists those that live",
            )
        return found


def head_view(head: Head) -> dict[str, Any]:
    """Return the audit's head as programs are told of it."""
    return {"rows": head.rows, "hash": head.hash, "at_ms": head.at_ms}


def _fitting(lines: Sequence[LogLine]) -> list[dict[str, Any]]:
    """Return the newest lines that fit into one line of the socket."""
    size = 0
    kept: list[dict[str, Any]] = []
    for line in reversed(lines):
        size += len(msgspec.json.encode(line)) + 2
        if kept and size > MAX_ANSWER_BYTES:
            break
        kept.append(plain(line))
    return kept[::-1]
