"""Endpoints and records of the sessions that the hub hosts for programs without one.

Starting and ending is asked for by the kernel's releases and done a moment later, in order,
so that no ask waits for a socket or a file. A session that is over before its endpoint was
opened never gets one.
"""

import asyncio
import os
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from upcall.clock import Clock
from upcall.core.link import Delivered
from upcall.model.errors import UpcallError
from upcall.model.events import Event, HostedReply, Moment
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    AskHold,
    ConfigCommand,
    IdentityHeader,
    Reply,
    SessionClosed,
    UserMessage,
    sendable,
)
from upcall.model.ids import TOKEN_BYTES, ConnectionId, SessionId
from upcall.model.platform import SeamLog
from upcall.model.rows import SessionRow
from upcall.model.text import one_line
from upcall.scrub import Scrubber
from upcall.session.publish import make_record
from upcall.session.server import Endpoint
from upcall_discovery import paths
from upcall_discovery.publish import Publication

CHECK_S: Final = 4.0
"""How often it is looked whether the records are still there."""


class HostingPort(Protocol):
    """What hosted sessions need of the hub."""

    def submit(self, event: Event) -> None:
        """Queue an event for the kernel."""
        ...

    def moment(self) -> Moment:
        """Return now."""
        ...

    def random(self, size: int) -> bytes:
        """Return *size* random bytes."""
        ...

    def asks_of(self, session_id: SessionId) -> Sequence[ActionNeeded]:
        """Return the session's open asks, oldest first."""
        ...

    def resolved_of(self, session_id: SessionId) -> Sequence[ActionResolved]:
        """Return how the session's last asks ended, oldest first."""
        ...


class _Hosted:
    """One session: the handler of its endpoint."""

    __slots__ = ("_port", "endpoint", "over", "publication", "row", "token")

    def __init__(self, row: SessionRow, port: HostingPort) -> None:
        self.row = row
        self.endpoint: Endpoint | None = None
        self.token = ""
        self.publication: Publication | None = None
        self.over = False
        self._port = port

    def open_asks(self) -> Sequence[ActionNeeded]:
        return self._port.asks_of(self.row.session_id)

    def recent_resolutions(self) -> Sequence[ActionResolved]:
        return self._port.resolved_of(self.row.session_id)

    def reply(self, connection: ConnectionId, reply: Reply) -> None:
        self._submit(connection, reply)

    def hold(self, connection: ConnectionId, hold: AskHold) -> None:
        self._submit(connection, hold)

    def user_message(self, connection: ConnectionId, message: UserMessage) -> None:
        self._submit(connection, message)

    def config(self, connection: ConnectionId, command: ConfigCommand) -> None:
        self._submit(connection, command)

    def other(self, connection: ConnectionId, frame: Delivered) -> None:
        self._submit(connection, frame)

    def _submit(self, connection: ConnectionId, frame: Any) -> None:
        if not self.over:
            self._port.submit(
                HostedReply(
                    at=self._port.moment(),
                    session_id=self.row.session_id,
                    connection=connection,
                    frame=frame,
                )
            )


class Hosting:
    """All hosted sessions of one hub. `run` has to be running for anything to happen.

    Args:
        port: the hub.
        runtime: the runtime folder, below which the records go.
        clock: time.
        log: where failures go.
        scrubber: is told the tokens of the sessions, so that they are in no log.
    """

    def __init__(
        self,
        port: HostingPort,
        runtime: str,
        *,
        clock: Clock,
        log: SeamLog,
        scrubber: Scrubber | None = None,
    ) -> None:
        self._scrubber = scrubber or Scrubber()
        self._port = port
        self._folder = paths.sessions_dir(runtime)
        self._clock = clock
        self._log = log
        self._sessions: dict[SessionId, _Hosted] = {}
        self._starting: deque[_Hosted] = deque()
        self._ending: deque[_Hosted] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        # Publications are not to be used from two threads at once.
        self._disk = asyncio.Lock()

    @property
    def connections(self) -> int:
        """How many clients of endpoints are connected."""
        return sum(one.endpoint.connections for one in self._sessions.values() if one.endpoint)

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._sessions

    # --- what the loop releases ------------------------------------------------------------

    def host(self, session: SessionRow) -> None:
        """Open an endpoint and a record for *session*, soon. A repeat does nothing."""
        if session.session_id in self._sessions:
            return
        hosted = _Hosted(session, self._port)
        self._sessions[session.session_id] = hosted
        self._starting.append(hosted)
        self._stir()

    def unhost(self, session_id: SessionId) -> None:
        """Close a session's endpoint and take its record away, soon."""
        hosted = self._sessions.pop(session_id, None)
        if hosted is not None:
            hosted.over = True
            self._ending.append(hosted)
            self._stir()

    def to_clients(
        self, session_id: SessionId, frame: Any, connection: str | None = None
    ) -> None:
        """Say a frame to one client of a session's endpoint, or to all.

        Without an endpoint there is nobody to be told; who comes later is shown what is open.
        """
        hosted = self._sessions.get(session_id)
        endpoint = hosted.endpoint if hosted is not None else None
        if endpoint is None:
            return
        try:
            if connection is not None:
                endpoint.send(ConnectionId(connection), frame)
            elif isinstance(frame, ActionNeeded):
                endpoint.present(frame)
            elif isinstance(frame, ActionResolved):
                endpoint.resolve(frame)
            else:
                endpoint.broadcast(frame)
        except UpcallError as error:
            self._log.error("frame_not_sent", session=session_id, code=error.code)

    # --- life ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open, keep and close, until cancelled; then everything is closed."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(), name="hosting-work")
                group.create_task(self._keep(), name="hosting-keep")
        finally:
            await self._close_all()

    async def settled(self) -> None:
        """Wait until everything that was asked for is done."""
        await self._idle.wait()

    async def move(self, runtime: str) -> None:
        """Publish below another runtime folder from now on."""
        self._folder = paths.sessions_dir(runtime)
        async with self._disk:
            published = [one for one in self._sessions.values() if one.publication]
            await asyncio.to_thread(self._move_all, published)

    def _stir(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._starting or self._ending:
                starting = [one for one in _drained(self._starting) if not one.over]
                ending = _drained(self._ending)
                for hosted in starting:
                    await self._open(hosted)
                async with self._disk:
                    await asyncio.to_thread(self._publish, starting, ending)
                await asyncio.gather(*(self._end(hosted) for hosted in ending))
            self._idle.set()

    async def _open(self, hosted: _Hosted) -> None:
        row = hosted.row
        token = urlsafe_b64encode(self._port.random(TOKEN_BYTES)).decode("ascii")
        self._scrubber.hold(token)
        endpoint = Endpoint(row.session_id, token, hosted, identity=_identity(row))
        try:
            port = await endpoint.start()
        except UpcallError as error:
            # The ask itself goes on; only other programs cannot connect to it.
            self._log.error("endpoint_not_opened", session=row.session_id, code=error.code)
            self._scrubber.release(token)
            return
        hosted.endpoint, hosted.token = endpoint, token
        record = make_record(row.session_id, port, token, now_ms=self._clock.wall_ms())
        hosted.publication = Publication(self._folder, record, sync=False)

    async def _end(self, hosted: _Hosted) -> None:
        if hosted.endpoint is not None:
            hosted.endpoint.broadcast(SessionClosed(session_id=hosted.row.session_id))
            await hosted.endpoint.close()
            hosted.endpoint = None
            self._scrubber.release(hosted.token)

    def _publish(self, starting: Iterable[_Hosted], ending: Iterable[_Hosted]) -> None:
        for hosted in starting:
            if hosted.publication is not None and not hosted.over:
                self._try(hosted.publication.write, hosted.publication)
        for hosted in ending:
            if hosted.publication is not None:
                self._try(hosted.publication.withdraw, hosted.publication)
                hosted.publication = None

    def _try(self, act: Callable[..., object], publication: Publication, *args: int) -> None:
        try:
            act(*args)
        except (OSError, paths.PathProblem) as error:
            name = publication.record.session_id
            self._log.error("record_not_kept", session=name, error=one_line(str(error)))

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(CHECK_S)
            published = [one for one in self._sessions.values() if one.publication]
            if published:
                async with self._disk:
                    await asyncio.to_thread(self._restore, published)

    def _restore(self, published: Iterable[_Hosted]) -> None:
        # One listing, where a look at each file would cost more the more there are.
        try:
            there = set(os.listdir(self._folder))
        except OSError:
            there = set()
        now_ms = self._clock.wall_ms()
        for hosted in published:
            kept = hosted.publication
            if kept is not None and not hosted.over and kept.record.file_name not in there:
                self._try(kept.refresh, kept, now_ms)

    def _move_all(self, published: Iterable[_Hosted]) -> None:
        for hosted in published:
            former = hosted.publication
            if former is None or hosted.over:
                continue
            self._try(former.withdraw, former)
            moved = Publication(self._folder, former.record, sync=False)
            self._try(moved.write, moved)
            hosted.publication = moved

    async def _close_all(self) -> None:
        """Let go of every endpoint; the sessions themselves live on in the ledger."""
        hosted = [*self._sessions.values(), *self._ending, *self._starting]
        self._sessions.clear()
        self._starting.clear()
        self._ending.clear()
        for one in hosted:
            one.over = True
        # Quick, and the last thing: the process is about to end.
        self._publish((), hosted)
        endpoints = [one.endpoint for one in hosted if one.endpoint is not None]
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))


def _drained(queue: deque[_Hosted]) -> list[_Hosted]:
    taken = list(queue)
    queue.clear()
    return taken


def _identity(row: SessionRow) -> IdentityHeader:
    return IdentityHeader(
        session_id=row.session_id,
        repo=sendable(row.repo or ""),
        branch=sendable(row.branch or ""),
        machine=sendable(row.machine or ""),
        title=None if row.title is None else sendable(row.title),
        tags=row.tags,
    )
