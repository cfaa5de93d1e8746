"""The read-only port through which adapters and sockets see the hub."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from upcall.core.kernel import Kernel
from upcall.hub.files import SessionFiles
from upcall.hub.store.db import Store
from upcall.model.ids import SessionId
from upcall.model.platform import LoginKept
from upcall.model.rows import AskRow, SessionRow
from upcall.model.views import AskView, HealthView, NoticeView, SessionView

NOTICES_SEARCHED: Final = 2000


class Changes:
    """Tells any number of followers that something changed; bursts come as one."""

    def __init__(self) -> None:
        self.number = 0
        self._waiting: set[asyncio.Event] = set()

    def bump(self) -> None:
        """Something changed."""
        self.number += 1
        for event in self._waiting:
            event.set()

    async def follow(self) -> AsyncIterator[int]:
        """Yield the number at once, and whenever it has grown since."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            while True:
                event.clear()
                yield self.number
                await event.wait()
        finally:
            self._waiting.discard(event)


class HubView:
    """One channel's view of the hub."""

    def __init__(
        self,
        channel: str,
        kernel: Kernel,
        store: Store,
        changes: Changes,
        health: Callable[[], HealthView],
        files: SessionFiles,
        now_ms: Callable[[], int],
    ) -> None:
        self._channel = channel
        self._kernel = kernel
        self._store = store
        self._changes = changes
        self._health = health
        self._files = files
        self._now_ms = now_ms
        self._logins: dict[str, LoginKept] = {}

    async def load(self) -> None:
        """Read the logins that were kept; before the adapter runs."""
        for login in await self._store.logins(self._channel, self._now_ms()):
            self._logins[login.digest] = login

    def keep_login(self, login: LoginKept) -> None:
        """Take note of a login row that was committed."""
        if login.gone:
            self._logins.pop(login.digest, None)
        else:
            self._logins[login.digest] = login

    def open_asks(self) -> Sequence[AskView]:
        """Return open and claimed asks, oldest first."""
        return self._kernel.drawn(self._channel) if self._is_seen() else []

    def ask(self, ask_id: str) -> AskView | None:
        """Return an ask that is open, or was closed in this hub's life."""
        row = self._kernel.find(ask_id) if self._is_seen() else None
        return None if row is None else self._kernel.view(row)

    async def history(self, before_ms: int | None, limit: int) -> Sequence[AskView]:
        """Return closed asks, newest first."""
        if not self._is_seen():
            return []
        rows = await self._store.closed_asks(before_ms, limit)
        return await with_sessions(self._kernel, self._store, rows)

    def sessions(self) -> Sequence[SessionView]:
        """Return sessions that live or have open asks."""
        return self._kernel.sessions() if self._is_seen() else []

    async def notices(self, limit: int) -> Sequence[NoticeView]:
        """Return the newest notices, newest first."""
        if not self._is_seen():
            return []
        rows = await self._store.notices(limit)
        sessions = await sessions_of(
            self._kernel, self._store, [row.session_id for row in rows]
        )
        kernel = self._kernel
        return [kernel.notice_view(row, sessions.get(row.session_id)) for row in rows]

    async def file(self, file_id: str) -> tuple[str, str, bytes] | None:
        """Return name, mime and bytes of a session's attachment."""
        for row in await self._store.notices(NOTICES_SEARCHED) if self._is_seen() else ():
            if row.file_id == file_id:
                data = await asyncio.to_thread(self._files.read, row.session_id, file_id)
                if data is None:
                    return None
                session = self._kernel.session(row.session_id)
                shown = self._kernel.notice_view(row, session)
                return shown.file_name or "file", row.mime or "application/octet-stream", data
        return None

    def health(self) -> HealthView:
        """Return what is true right now."""
        return self._health()

    def _is_seen(self) -> bool:
        """Tell whether somebody there may see; who may not learns neither names nor counts."""
        return self._kernel.is_seen_on(self._channel)

    def settings(self) -> Mapping[str, str]:
        """Return what the adapter kept."""
        return self._kernel.kept(self._channel)

    def logins(self) -> Sequence[LoginKept]:
        """Return the logins that have not expired."""
        now_ms = self._now_ms()
        return [login for login in self._logins.values() if login.expires_ms > now_ms]

    def changes(self) -> AsyncIterator[int]:
        """Yield a growing number at once and after each change."""
        return self._changes.follow()


async def with_sessions(kernel: Kernel, store: Store, rows: Sequence[AskRow]) -> list[AskView]:
    """Return *rows* as they are shown, with sessions that may have ended long ago."""
    found = await sessions_of(kernel, store, [row.session_id for row in rows])
    return [kernel.view(row, found.get(row.session_id)) for row in rows]


async def sessions_of(
    kernel: Kernel, store: Store, ids: Sequence[SessionId]
) -> dict[str, SessionRow]:
    """Return the sessions with these ids, from memory where they are, else from the file."""
    known = {one: kernel.session(one) for one in ids}
    missing = [one for one, row in known.items() if row is None]
    found = dict(await store.sessions_by_id(missing)) if missing else {}
    found.update({one: row for one, row in known.items() if row is not None})
    return found
