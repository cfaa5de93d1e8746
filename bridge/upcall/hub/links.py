"""The hub's links to sessions of other programs: found by their records, attached, kept.

Records of the runtime folder and of registered projects are followed. Every live one that is
not the hub's own is attached to, some at a time; what is lost is tried again. A session's
death is the end of its connection, so that idle ones cost nothing.
"""

import asyncio
import heapq
import itertools
import os
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from upcall.clock import Clock
from upcall.hub.files import SessionFiles
from upcall.hub.link import PING_PONG, Link, LinkPort
from upcall.hub.listeners import ListenerChecks
from upcall.hub.processes import Processes
from upcall.hub.records import Folders, Reading
from upcall.model.errors import MalformedFrame, NotSent, TransportError, Uncertain, UpcallError
from upcall.model.events import LinkDown, LinkSynced, LinkUp
from upcall.model.frames import Unknown, decode
from upcall.model.ids import SessionId
from upcall.model.limits import MAX_ATTACHING, MAX_SESSIONS
from upcall.model.platform import SeamLog
from upcall.model.text import one_line
from upcall.model.views import RefusedRecord, RootView
from upcall.scrub import Scrubber
from upcall.session.client import open_connection
from upcall_discovery import liveness
from upcall_discovery.liveness import ProcessIdentity
from upcall_discovery.scan import Found

CONNECT_S: Final = 10.0
SYNC_S: Final = 10.0
PEER_SYNC_S: Final = 2.0
MISSING_S: Final = 10.0
CONFIRM_S: Final = 10.0
_FIRST_RETRY_S: Final = 0.1
_LAST_RETRY_S: Final = 30.0

_Kind: TypeAlias = Literal["retry", "peer_sync", "sync", "missing"]


class Links:
    """All links of one hub. `run` has to be running for anything to happen.

    Attributes:
        port: the hub.
        log: where failures go.
        files: where attachments go.

    Args:
        port: the hub.
        runtime: the runtime folder.
        clock: time.
        log: where failures go.
        files: where attachments go.
        processes: tells when a process ends; it must be running as well.
        roots: registered project folders.
        is_hosted: tells whether a session id is one that this hub hosts.
        own: the hub's process, whose records are skipped; this one by default.
        max_attaching: how many connections are opened at a time.
        max_sessions: how many sessions the hub is attached to at most.
        rescan_s: how often folders are read without a sign of change.
        scrubber: is told the tokens of the sessions, so that they are in no log.
    """

    def __init__(
        self,
        port: LinkPort,
        runtime: str,
        *,
        clock: Clock,
        log: SeamLog,
        files: SessionFiles,
        processes: Processes,
        roots: Sequence[str] = (),
        is_hosted: Callable[[SessionId], bool] = lambda _: False,
        own: ProcessIdentity | None = None,
        max_attaching: int = MAX_ATTACHING,
        max_sessions: int = MAX_SESSIONS,
        rescan_s: float = 30.0,
        scrubber: Scrubber | None = None,
    ) -> None:
        self.port = port
        self.log = log
        self.files = files
        self.clock = clock
        self._processes = processes
        self._is_hosted = is_hosted
        self._own = own or liveness.identify(os.getpid())
        self._folders = Folders(
            runtime,
            roots,
            clock=clock,
            rescan_s=rescan_s,
            on_reading=self._read,
            known=self._processes_of_peers,
        )
        self._links: dict[SessionId, Link] = {}
        self._scrubber = scrubber or Scrubber()
        self._hidden: dict[SessionId, str] = {}
        self._listeners = ListenerChecks()
        self._queue: deque[Link] = deque()
        self._attaching = 0
        self._max_attaching = max_attaching
        self._max_sessions = max_sessions
        self._duplicates: dict[str, RefusedRecord] = {}
        self._timers: list[tuple[float, int, _Kind, Link, int]] = []
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._closing = False

    # --- what the hub asks -----------------------------------------------------------------

    @property
    def discovered(self) -> int:
        """How many sessions live, as their records say."""
        return len(self._links)

    @property
    def attached(self) -> int:
        """How many sessions the hub is attached to."""
        return sum(link.state == "up" for link in self._links.values())

    @property
    def settled(self) -> bool:
        """Whether every folder was read and every session found there was tried."""
        trying = any(
            link.state in {"queued", "connecting"} and not link.tried
            for link in self._links.values()
        )
        return self._folders.all_read and not trying

    def unattached(self) -> list[str]:
        """Return the sessions that live, as their records say, without being attached."""
        return [one.session_id for one in self._links.values() if one.state == "waiting"]

    def refused(self) -> list[RefusedRecord]:
        """Return the records that are not used, with the reasons."""
        return [*self._folders.refused(), *self._duplicates.values()]

    def roots(self) -> list[RootView]:
        """Return the registered project folders and what is in them."""
        return self._folders.roots()

    def set_roots(self, roots: Sequence[str]) -> None:
        """Follow exactly these project folders from now on, besides the runtime folder."""
        self._folders.set_roots(roots)

    def set_runtime(self, runtime: str) -> None:
        """Follow another runtime folder from now on."""
        self._folders.set_runtime(runtime)

    def expect(self, session_id: SessionId, pid: int, pid_start: str) -> None:
        """Look for a session that a former hub was attached to.

        If its process has ended, or its record does not come back within ten seconds, it is
        told as gone.
        """
        if session_id in self._links:
            return
        link = self._links[session_id] = Link(self, session_id, None)
        link.state = "missing"
        link.announced = True
        link.process = ProcessIdentity(pid, pid_start)
        self._processes.watch(link.process, self._process_ended)
        self._after(MISSING_S, "missing", link)

    async def send(self, session_id: str, body: bytes) -> None:
        """Send an encoded frame to a session, with the session's token put in.

        Returns when the session has read it, or, if it cannot tell, when it was sent.

        Raises:
            NotSent: the hub is not attached, or the frame cannot be sent.
            Uncertain: the connection ended, or ten seconds passed, before the session said
                that it had read the frame.
        """
        link = self._links.get(SessionId(session_id))
        connection = link.connection if link is not None and link.state == "up" else None
        if link is None or connection is None or link.found is None:
            raise NotSent("the hub is not attached to the session")
        try:
            frame = decode(body)
            if isinstance(frame, Unknown):
                raise NotSent(f"not a frame that sessions take: {frame.type}")
            if hasattr(frame, "token"):
                frame = msgspec.structs.replace(frame, token=link.found.record.token)
            connection.send(frame)
        except MalformedFrame as error:
            raise NotSent(f"the stored frame is damaged: {error.msg}") from error
        except (TransportError, UpcallError) as error:
            raise NotSent(error.msg) from error
        await self._confirmed(link)

    async def _confirmed(self, link: Link) -> None:
        if PING_PONG not in link.capabilities:
            return
        try:
            answered = link.pong()
            async with self.clock.timeout(CONFIRM_S):
                await asyncio.wait([answered])
        except TransportError as error:
            raise Uncertain("the connection ended while the frame was sent") from error
        except TimeoutError as error:
            raise Uncertain("the session did not say that it read the frame") from error
        if answered.cancelled():
            raise Uncertain("the connection ended before the session said that it read")

    # --- life ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Find, attach and keep, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._folders.run(), name="links-records")
                group.create_task(self._run_timers(), name="links-timers")
                try:
                    await asyncio.Event().wait()
                finally:
                    # Before the tasks are cancelled: none may start another one then.
                    self._closing = True
        finally:
            self._group = None
            for link in list(self._links.values()):
                link.abort()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """See `LinkOwner`."""
        if self._group is None or self._closing:
            work.close()
        else:
            self._group.create_task(work)

    # --- records ---------------------------------------------------------------------------

    def _processes_of_peers(self) -> dict[str, ProcessIdentity]:
        return {
            link.session_id: link.process
            for link in self._links.values()
            if link.process is not None
        }

    def _read(self, reading: Reading) -> None:
        """A folder was read."""
        here = {found.path for found in reading.live}
        for path in [path for path in self._duplicates if path not in here]:
            if os.path.dirname(path) == reading.folder:
                del self._duplicates[path]
        for found in reading.live:
            self._found(found)
        for link in list(self._links.values()):
            if link.found is None or link.found.path in here:
                continue
            if os.path.dirname(link.found.path) == reading.folder:
                self._record_gone(link)
        self._attach_some()

    def _found(self, found: Found) -> None:
        record = found.record
        if self._is_own(found):
            return
        session_id = SessionId(record.session_id)
        link = self._links.get(session_id)
        if self._is_hosted(session_id):
            self._duplicate(found, "a session that the hub hosts")
        elif link is None and len(self._links) >= self._max_sessions:
            self._duplicates[found.path] = RefusedRecord(
                found.path,
                "limit_reached",
                f"the hub is attached to {len(self._links)} sessions, and that is the limit "
                "(limits.sessions)",
            )
        elif link is None:
            self._duplicates.pop(found.path, None)
            link = self._links[session_id] = Link(self, session_id, found)
            self._hide_token(session_id, record.token)
            self._enqueue(link)
        elif _same_endpoint(link.found, found) or self._may_replace(link, found):
            self._retarget(link, found)
        else:
            self._duplicate(found, _shown_path(link))

    def _may_replace(self, link: Link, found: Found) -> bool:
        if link.found is None:
            return True
        over = link.found.path == found.path or not self._lives(link)
        return over and link.state in {"waiting", "missing"}

    def _is_own(self, found: Found) -> bool:
        record, own = found.record, self._own
        if own is None or record.pid != own.pid:
            return False
        return record.pid_start in {None, own.start}

    def _duplicate(self, found: Found, other: str) -> None:
        self._duplicates[found.path] = RefusedRecord(
            found.path, "duplicate_session", f"the session id is in use by {other}"
        )

    def _retarget(self, link: Link, found: Found) -> None:
        self._duplicates.pop(found.path, None)
        if _same_endpoint(link.found, found):
            # Published in two places, or written again: the same endpoint.
            if link.state == "missing":
                link.found = found
                self._enqueue(link)
            return
        link.found = found
        self._hide_token(link.session_id, found.record.token)
        link.attempts = 0
        self._enqueue(link)

    def _hide_token(self, session_id: SessionId, token: str | None) -> None:
        """Keep a session's token out of the log for as long as it opens something."""
        former = self._hidden.pop(session_id, None)
        if token is not None:
            self._scrubber.hold(token)
            self._hidden[session_id] = token
        if former is not None and former != token:
            self._scrubber.release(former)

    def _record_gone(self, link: Link) -> None:
        # As long as the connection stands, the session is there, whatever its record.
        if link.state == "up" or link.state == "connecting":
            return
        if link.state == "queued":
            self._queue.remove(link)
        if link.announced and self._lives(link):
            link.state = "missing"
            self._after(MISSING_S, "missing", link)
        else:
            self._finish(link)

    # --- attaching -------------------------------------------------------------------------

    def _enqueue(self, link: Link) -> None:
        link.state = "queued"
        self._queue.append(link)

    def _attach_some(self) -> None:
        while self._queue and self._attaching < self._max_attaching and not self._closing:
            link = self._queue.popleft()
            link.state = "connecting"
            self._attaching += 1
            self.spawn(self._attach(link))

    async def _attach(self, link: Link) -> None:
        try:
            await self._connect(link)
        except TransportError as error:
            if link.connection is None:
                link.forget_connection()
                self._failed(link, error)
        finally:
            link.tried = True
            self._attaching -= 1
            self._attach_some()

    async def _connect(self, link: Link) -> None:
        found = link.found
        assert found is not None  # noqa: S101 - only what has a record is queued
        record = found.record
        identity = liveness.identify(record.pid)
        if identity is None or record.pid_start not in {None, identity.start}:
            raise TransportError("its process has ended", code="process_ended")
        link.process = identity
        connection = await open_connection(
            record.url,
            record.token,
            on_frame=link.on_frame,
            on_close=link.on_close,
            timeout_s=CONNECT_S,
            # Ours know the header; a token in a request line could end up in a log.
            token_in_url=record.pid_start is None,
            check=lambda: self._listeners.check(record),
        )
        if not connection.is_open:
            return
        link.connected(connection)
        link.attempts = 0
        link.state = "up"
        if PING_PONG in link.capabilities:
            self._after(SYNC_S, "sync", link)
        else:
            self._after(PEER_SYNC_S, "peer_sync", link)

    def greeted(self, link: Link) -> None:
        """See `LinkOwner`."""
        process, found = link.process, link.found
        assert process is not None and found is not None  # noqa: S101, PT018 - set before
        link.announced = True
        link.ended = False
        program = liveness.program_of(process.pid)
        self.port.submit(
            LinkUp(
                at=self.port.moment(),
                session_id=link.session_id,
                pid=process.pid,
                pid_start=process.start,
                record_path=found.path,
                program=program or None,
                cwd=liveness.working_dir_of(process.pid),
                capabilities=link.capabilities,
            )
        )

    def synced(self, link: Link) -> None:
        """See `LinkOwner`."""
        self.port.submit(LinkSynced(at=self.port.moment(), session_id=link.session_id))

    # --- losing ----------------------------------------------------------------------------

    def lost(self, link: Link) -> None:
        """See `LinkOwner`."""
        if self._closing or self._links.get(link.session_id) is not link:
            return
        if link.ended or not self._lives(link):
            self._finish(link)
        else:
            self._away(link)

    def _failed(self, link: Link, error: TransportError) -> None:
        if self._closing or self._links.get(link.session_id) is not link:
            return
        self.log.info("session_not_attached", session=link.session_id, code=error.code)
        if self._lives(link):
            self._away(link)
        else:
            self._finish(link)

    def _away(self, link: Link) -> None:
        link.state = "waiting"
        if link.told:
            link.told = False
            self.port.submit(
                LinkDown(at=self.port.moment(), session_id=link.session_id, gone=False)
            )
        if link.process is not None and link.attempts == 0:
            # A killed process closes its sockets a moment before it is gone.
            self._processes.watch(link.process, self._process_ended)
        chance = int.from_bytes(self.port.random(2), "big") / 65536
        undisturbed_s = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(link.attempts, 16))
        link.attempts += 1
        self._after(undisturbed_s * (0.5 + chance / 2), "retry", link)
        self._reread(link)

    def _finish(self, link: Link) -> None:
        if self._links.get(link.session_id) is not link:
            return
        del self._links[link.session_id]
        self._hide_token(link.session_id, None)
        if link.announced:
            self.port.submit(
                LinkDown(at=self.port.moment(), session_id=link.session_id, gone=True)
            )
        # Its record is swept, and another one with its id may be used now.
        self._reread(link)

    def _reread(self, link: Link) -> None:
        if link.found is not None:
            self._folders.again(os.path.dirname(link.found.path))
        for path in self._duplicates:
            self._folders.again(os.path.dirname(path))

    def _lives(self, link: Link) -> bool:
        return link.process is None or liveness.is_alive(link.process)

    def _process_ended(self, process: ProcessIdentity) -> None:
        for link in [one for one in self._links.values() if one.process == process]:
            if link.state == "queued":
                self._queue.remove(link)
            if link.state in {"up", "connecting"}:
                # What it sent last may still be on its way; the end follows.
                continue
            self._finish(link)

    # --- timers ----------------------------------------------------------------------------

    def _after(self, delay_s: float, kind: _Kind, link: Link) -> None:
        due_s = self.clock.boot_s() + delay_s
        entry = (due_s, next(self._order), kind, link, link.generation)
        heapq.heappush(self._timers, entry)
        self._wake.set()

    async def _run_timers(self) -> None:
        while True:
            self._wake.clear()
            now_s = self.clock.boot_s()
            while self._timers and self._timers[0][0] <= now_s:
                _, _, kind, link, generation = heapq.heappop(self._timers)
                if generation == link.generation:
                    self._due(kind, link)
            delay_s = self._timers[0][0] - now_s if self._timers else None
            try:
                async with self.clock.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _due(self, kind: _Kind, link: Link) -> None:
        if self._links.get(link.session_id) is not link:
            return
        match kind:
            case "retry" if link.state == "waiting":
                self._enqueue(link)
                self._attach_some()
            case "peer_sync" if link.state == "up" and not link.synced:
                link.synced = True
                self.synced(link)
            case "sync" if link.state == "up" and not link.synced:
                self.log.warning("session_silent", session=link.session_id)
                link.abort()
            case "missing" if link.state == "missing":
                self._finish(link)


def _same_endpoint(one: Found | None, other: Found) -> bool:
    if one is None:
        return False
    first, second = one.record, other.record
    return (first.pid, first.port, first.token) == (second.pid, second.port, second.token)


def _shown_path(link: Link) -> str:
    return one_line(link.found.path) if link.found is not None else "an earlier session"
