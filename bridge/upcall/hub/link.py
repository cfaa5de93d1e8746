"""One session that the hub is attached to, or wants to be: frames in, in order.

A link has no task of its own. Only an attachment, whose bytes go to a file first, is worked
on in one; what the session says meanwhile waits behind it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from upcall.clock import Clock
from upcall.core.link import CLIENT_CAPABILITIES, SECRET_ASKS
from upcall.hub.files import FILE_ID_BYTES, FileRefused, SessionFiles
from upcall.hub.pace import Pace
from upcall.model.events import Event, FrameIn, Moment
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    FileAttachment,
    Frame,
    Hello,
    ImageAttachment,
    Ping,
    Pong,
    SessionClosed,
    SessionFrame,
    Unknown,
)
from upcall.model.ids import SessionId
from upcall.model.limits import PROTOCOL_VERSION
from upcall.model.platform import SeamLog
from upcall.model.text import one_line
from upcall.session.client import Connection
from upcall_discovery.scan import Found

if TYPE_CHECKING:
    from upcall_discovery.liveness import ProcessIdentity

FRESH_BYTES: Final = 64
PING_PONG: Final = "client_ping_pong"
CAPABILITIES: Final = (*CLIENT_CAPABILITIES, PING_PONG, SECRET_ASKS)
# What a session may say while one attachment is written, before it is cut off.
_MAX_BEHIND: Final = 4096
# More than this version knows; a stranger's words are not kept for all.
_SHARED_CHARS: Final = 1024
# What is written down for good, and what is only passed on.
_ASK_COST: Final = 1.0
_OTHER_COST: Final = 0.1

_SAID_BY_SESSIONS: Final = get_args(SessionFrame)

LinkState: TypeAlias = Literal["queued", "connecting", "up", "waiting", "missing"]
_Attachment: TypeAlias = ImageAttachment | FileAttachment


def _shared(capabilities: tuple[str, ...]) -> frozenset[str]:
    """Return a set that all sessions with the same capabilities have in common."""
    if sum(map(len, capabilities)) > _SHARED_CHARS:
        return frozenset(capabilities)
    return _known(capabilities)


@lru_cache(maxsize=32)
def _known(capabilities: tuple[str, ...]) -> frozenset[str]:
    return frozenset(capabilities)


class LinkPort(Protocol):
    """What links need of the hub."""

    def submit(self, event: Event) -> None:
        """Queue an event for the kernel."""
        ...

    def moment(self) -> Moment:
        """Return now."""
        ...

    def random(self, size: int) -> bytes:
        """Return *size* random bytes."""
        ...


class LinkOwner(Protocol):
    """Who keeps the links."""

    port: LinkPort
    log: SeamLog
    files: SessionFiles
    clock: Clock

    def greeted(self, link: "Link") -> None:
        """The session said hello."""
        ...

    def synced(self, link: "Link") -> None:
        """The session answered the first ping."""
        ...

    def lost(self, link: "Link") -> None:
        """The connection ended."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* in a task that is waited for."""
        ...


class Link:
    """One session's link.

    Attributes:
        found: its record.
        process: who listens, as of the last attempt.
        announced: the kernel knows the session.
        told: the kernel was told that the hub is attached now.
        ended: the session said that it ends.
        tried: it was attached, or that failed, once at least.
        generation: counts connections, so that what is late can be told.
    """

    __slots__ = (
        "_behind",
        "_busy",
        "_connection",
        "_is_held",
        "_nonces",
        "_owner",
        "_pace",
        "_pongs",
        "announced",
        "attempts",
        "capabilities",
        "ended",
        "found",
        "generation",
        "process",
        "session_id",
        "state",
        "synced",
        "told",
        "tried",
    )

    def __init__(self, owner: LinkOwner, session_id: SessionId, found: Found | None) -> None:
        self.session_id = session_id
        self.found = found
        self.state: LinkState = "queued"
        self.process: ProcessIdentity | None = None
        self.announced = False
        self.told = False
        self.ended = False
        self.synced = False
        self.attempts = 0
        self.tried = False
        self.generation = 0
        self.capabilities: frozenset[str] = frozenset()
        self._owner = owner
        self._connection: Connection | None = None
        self._behind: deque[Frame] | None = None
        self._busy = False
        self._is_held = False
        self._nonces = 0
        self._pace = Pace()
        self._pongs: dict[str, asyncio.Future[None]] | None = None

    @property
    def connection(self) -> Connection | None:
        """The connection, once the session's hello is here."""
        return self._connection

    def connected(self, connection: Connection) -> None:
        """Take the connection; say hello and ask for all that is open."""
        self._connection = connection
        connection.hello = None  # what it says is known, and hundreds of them are not small
        connection.send(Hello(protocol_version=PROTOCOL_VERSION, capabilities=CAPABILITIES))
        if PING_PONG in self.capabilities:
            connection.send(Ping(nonce=self._next_nonce("sync")))

    def pong(self) -> "asyncio.Future[None]":
        """Ping the session; the future is done when all sent before was read there.

        Raises:
            ConnectionEnded: the connection is over.
        """
        connection = self._connection
        assert connection is not None  # noqa: S101 - asked of attached links only
        nonce = self._next_nonce("sent")
        connection.send(Ping(nonce=nonce))
        if self._pongs is None:
            self._pongs = {}
        answered = self._pongs[nonce] = asyncio.get_running_loop().create_future()
        return answered

    def on_frame(self, frame: Frame | Unknown) -> None:
        """Take a frame of the session."""
        if isinstance(frame, Unknown):
            return
        if isinstance(frame, Hello):
            if not self.told and self.state == "connecting":
                self.told = True
                self.capabilities = _shared(tuple(frame.capabilities))
                self._owner.greeted(self)
            return
        if not isinstance(frame, _SAID_BY_SESSIONS):
            return
        self._keep_pace(frame)
        if self._busy:
            self._fall_behind(frame)
        else:
            self._take(frame)

    def on_close(self, error: Exception | None) -> None:
        """Take the end of the connection."""
        del error
        self.forget_connection()
        self._owner.lost(self)

    def forget_connection(self) -> None:
        """Be without a connection; whoever waits for a pong learns it."""
        self.generation += 1
        self._connection = None
        self._behind = None
        self._busy = False
        self._is_held = False
        self.synced = False
        self.capabilities = frozenset()
        pongs, self._pongs = self._pongs, None
        for answered in (pongs or {}).values():
            answered.cancel()

    def abort(self) -> None:
        """Cut the connection; `on_close` follows."""
        if self._connection is not None:
            self._connection.abort()

    def _next_nonce(self, kind: str) -> str:
        self._nonces += 1
        return f"{kind}:{self.generation}:{self._nonces}"

    def _keep_pace(self, frame: Frame) -> None:
        is_ask = isinstance(frame, ActionNeeded | ActionResolved)
        now_s = self._owner.port.moment().boot_s
        pause_s = self._pace.take(_ASK_COST if is_ask else _OTHER_COST, now_s)
        if pause_s and not self._is_held and self._connection is not None:
            self._is_held = True
            self._connection.hold()
            self._owner.log.info("session_slowed", session=self.session_id)
            self._owner.spawn(self._go_on_after(pause_s, self.generation))

    async def _go_on_after(self, pause_s: float, generation: int) -> None:
        await self._owner.clock.sleep(pause_s)
        if generation == self.generation and self._connection is not None:
            self._is_held = False
            self._connection.go_on()

    def _take(self, frame: Frame) -> None:
        match frame:
            case Pong(nonce=nonce):
                self._ponged(nonce)
                return
            case ImageAttachment() | FileAttachment():
                if self._is_foreign(frame):
                    return
                self._busy = True
                self._owner.spawn(self._keep(frame, self.generation))
                return
            case SessionClosed():
                if not self._is_foreign(frame):
                    self.ended = True
            case _:
                pass
        if not self._is_foreign(frame):
            self._submit(frame, None)

    def _is_foreign(self, frame: Frame) -> bool:
        # A session speaks for itself only, whatever its frames say.
        named = getattr(frame, "session_id", self.session_id)
        return bool(named != self.session_id)

    def _ponged(self, nonce: str) -> None:
        if nonce.startswith("sync:"):
            if not self.synced:
                self.synced = True
                self._owner.synced(self)
            return
        answered = self._pongs.pop(nonce, None) if self._pongs else None
        if answered is not None and not answered.done():
            answered.set_result(None)

    def _submit(self, frame: Frame, file_id: str | None) -> None:
        port = self._owner.port
        port.submit(
            FrameIn(
                at=port.moment(),
                session_id=self.session_id,
                frame=frame,
                fresh=port.random(FRESH_BYTES),
                file_id=file_id,
            )
        )

    # --- attachments -----------------------------------------------------------------------

    async def _keep(self, frame: _Attachment, generation: int) -> None:
        kept = await self._write(frame)
        if generation != self.generation:
            return
        self._submit(msgspec.structs.replace(frame, data="", path=None), kept)
        self._busy = False
        while self._behind and not self._busy:
            self._take(self._behind.popleft())

    async def _write(self, frame: _Attachment) -> str | None:
        files = self._owner.files
        file_id = self._owner.port.random(FILE_ID_BYTES).hex()
        write: Callable[[str, str, str], None] = files.keep_encoded
        source = frame.data
        if frame.path is not None:
            write, source = files.keep_copy, frame.path
        try:
            await asyncio.to_thread(write, self.session_id, file_id, source)
        except (FileRefused, OSError) as error:
            self._owner.log.warning(
                "attachment_not_kept", session=self.session_id, error=one_line(str(error))
            )
            return None
        return file_id

    def _fall_behind(self, frame: Frame) -> None:
        if self._behind is None:
            self._behind = deque()
        self._behind.append(frame)
        if len(self._behind) > _MAX_BEHIND:
            self._owner.log.warning("session_too_fast", session=self.session_id)
            self.abort()
