"""The hub's two sockets: one that can only ask, one that can do everything."""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from upcall.clock import Clock
from upcall.hub.desk import Desk, HubPort
from upcall.hub.gate import Gate, Places
from upcall.hub.lines import LineConnection, ReadBuffer
from upcall.hub.requests import SocketKind
from upcall.model.errors import HubError, UpcallError
from upcall.model.limits import HELLO_S, MAX_PARTIAL_BYTES, MAX_QUEUED_BYTES
from upcall.model.platform import SeamLog
from upcall.model.quotas import Limits
from upcall.model.text import visible
from upcall_discovery import paths

__all__ = ["HubPort", "HubSockets"]

KEEP_S: Final = 2.0
_BACKLOG: Final = 1024
# asyncio accepts as many at a time as it was told the backlog is, and each holds a descriptor
# before anybody can refuse it.
_AT_ONCE: Final = 32
# File systems that hold no sockets say one of these.
_NO_SOCKETS: Final = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL, errno.ENAMETOOLONG, errno.EROFS, errno.ENOSYS}
)


@dataclass(slots=True, eq=False)
class _Door:
    """One listening socket and its file."""

    kind: SocketKind
    path: str
    server: asyncio.Server
    mark: tuple[int, int]


class _Porter:
    """Lets clients of one socket in."""

    def __init__(self, kind: SocketKind, desk: Desk, gate: Gate, clock: Clock) -> None:
        self._kind: SocketKind = kind
        self._desk = desk
        self._gate = gate
        self._clock = clock
        self.unwelcome: set[LineConnection] = set()

    def opened(self, line: LineConnection) -> None:
        refusal = self._gate.enter(line, self._clock.boot_s())
        if refusal is not None:
            self._desk.refuse(line, refusal)
            return
        if self._kind == "control" and line.peer.uid not in {0, os.geteuid()}:
            # Told when it says hello: before that it would only see its own write fail.
            self.unwelcome.add(line)
        else:
            self._desk.opened(line, self._kind)
        silent = self._gate.too_silent()
        if silent is not None:
            self._gate.leave(silent)
            cast("LineConnection", silent).abort()

    def received(self, line: LineConnection, data: bytes) -> None:
        if line in self.unwelcome:
            error = HubError(
                "only the hub's own user may use this socket", code="not_permitted"
            )
            self._desk.refuse(line, error)
            return
        self._desk.received(line, data)
        if line.greeted:
            self._gate.greeted(line)

    def too_long(self, line: LineConnection) -> None:
        self._desk.too_long(line)

    def crowded(self, line: LineConnection) -> None:
        error = HubError(
            f"clients have begun lines of {MAX_PARTIAL_BYTES} bytes together, and that is the "
            "limit",
            code="limit_reached",
            recover="try again in a moment",
        )
        self._desk.refuse(line, error)

    def closed(self, line: LineConnection) -> None:
        self._gate.leave(line)
        self.unwelcome.discard(line)
        self._desk.closed(line)


class HubSockets:
    """Both sockets of one hub. The hub's lock must be held from `start` to `close`.

    Args:
        port: the hub.
        state: its state folder.
        clock: time.
        log: where failures go.
        version: of the program.
        max_queued_bytes: what a client may leave unread before it is disconnected.
        places: how many clients there may be; as many as the descriptors allow by default.
        limits: how much programs may ask.
    """

    def __init__(
        self,
        port: HubPort,
        state: str,
        *,
        clock: Clock,
        log: SeamLog,
        version: str,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        places: Places | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._state = state
        self._clock = clock
        self._log = log
        self._max_queued_bytes = max_queued_bytes
        self._desk = Desk(
            port,
            clock=clock,
            log=log,
            version=version,
            pid=os.getpid(),
            state=state,
            limits=limits,
        )
        self._buffer = ReadBuffer()
        self._gate = Gate(places or Places.within(_descriptors()))
        self._porters = {
            kind: _Porter(kind, self._desk, self._gate, clock) for kind in _kinds()
        }
        self._doors: list[_Door] = []
        self._places = paths.socket_paths(state)

    @property
    def paths(self) -> tuple[str, str]:
        """The paths of the asking and of the controlling socket, present or last."""
        return self._places

    @property
    def clients(self) -> int:
        """How many clients are connected."""
        return self._desk.clients

    def respond(
        self,
        waiter: int,
        fields: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        """Answer a request; see `Desk.respond`."""
        self._desk.respond(waiter, fields, error)

    def event(self, waiter: int, name: str, fields: dict[str, Any]) -> None:
        """Say something to who waits; see `Desk.event`."""
        self._desk.event(waiter, name, fields)

    def has(self, waiter: int) -> bool:
        """Tell whether this waiter is still there."""
        return self._desk.has(waiter)

    async def start(self) -> tuple[str, str]:
        """Listen, and return the paths of the asking and the controlling socket.

        What a former hub left there is removed.

        Raises:
            HubError: `socket_path_taken` if something that is no socket of ours is there;
                `no_socket` if there is no place for one.
            PathProblem: a folder is not ours alone.
        """
        await self._open_both()
        return self.paths

    async def heal(self) -> bool:
        """Make sockets anew whose file is gone; return whether that was so.

        Connections stay. Raises as `start` does.
        """
        if all(_mark(door.path) == door.mark for door in self._doors):
            return False
        former, self._doors = self._doors, []
        for door in former:
            door.server.close()
            _remove(door)
        await self._open_both()
        return True

    async def keep(self, on_moved: Callable[[], None]) -> None:
        """Make the sockets anew for ever, when they vanish; tell by *on_moved*."""
        while True:
            await self._clock.sleep(KEEP_S)
            self._send_silent_away()
            try:
                moved = await self.heal()
            except (UpcallError, paths.PathProblem, OSError) as error:
                self._log.error("sockets_lost", error=visible(str(error)))
            else:
                if moved:
                    self._log.warning("sockets_made_anew")
                    on_moved()

    def stop_listening(self) -> None:
        """Let nobody in any more; connections stay."""
        doors, self._doors = self._doors, []
        for door in doors:
            # First the name, so that nobody finds a socket that no one listens to.
            _remove(door)
            door.server.close()

    async def close(self) -> None:
        """End everything."""
        self.stop_listening()
        for porter in self._porters.values():
            for line in list(porter.unwelcome):
                line.abort()
        await self._desk.close()

    def _send_silent_away(self) -> None:
        for caller in self._gate.late(self._clock.boot_s()):
            error = HubError(f"no hello came within {HELLO_S:g} s", code="hello_late")
            self._desk.refuse(cast("LineConnection", caller), error)

    async def _open_both(self) -> None:
        try:
            await self._open_at(paths.socket_paths(self._state))
        except OSError as error:
            short = paths.short_socket_paths(self._state)
            if error.errno not in _NO_SOCKETS or short == paths.socket_paths(self._state):
                raise HubError(
                    f"no socket can be made for {visible(self._state)}: {error.strerror}",
                    code="no_socket",
                ) from error
            await self._open_at(short)

    async def _open_at(self, places: tuple[str, str]) -> None:
        self._places = places
        try:
            for kind, path in zip(_kinds(), places, strict=True):
                paths.ensure_private_dir(os.path.dirname(path))
                self._doors.append(await self._open(kind, path))
        except BaseException:
            self.stop_listening()
            raise

    async def _open(self, kind: SocketKind, path: str) -> _Door:
        sock, mark = _bound(path)
        porter = self._porters[kind]
        try:
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: LineConnection(
                    porter, self._buffer, max_queued_bytes=self._max_queued_bytes
                ),
                sock=sock,
                backlog=_AT_ONCE,
            )
            sock.listen(_BACKLOG)
        except BaseException:
            sock.close()
            raise
        return _Door(kind, path, server, mark)


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1_000_000 if soft == resource.RLIM_INFINITY else soft


def _kinds() -> tuple[SocketKind, SocketKind]:
    return "ask", "control"


def _bound(path: str) -> tuple[socket.socket, tuple[int, int]]:
    """Return a listening socket at *path* (0600), in place of what a former hub left."""
    _clear(path)
    # It gets its name only when it is private and listens. The folder is ours alone, so
    # that nobody can be quicker.
    making = path + "~"
    _clear(making)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind(making)
        os.chmod(making, 0o600)
        sock.listen(_BACKLOG)
        os.rename(making, path)
    except BaseException:
        sock.close()
        with contextlib.suppress(OSError):
            os.unlink(making)
        raise
    mark = _mark(path)
    if mark is None:
        sock.close()
        raise HubError(f"the socket {visible(path)} vanished", code="no_socket")
    return sock, mark


def _clear(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise HubError(
            f"{visible(path)} is not a socket of ours",
            code="socket_path_taken",
            recover=f"Find out who made {visible(path)}, and remove it.",
        )
    os.unlink(path)


def _mark(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _remove(door: _Door) -> None:
    if _mark(door.path) == door.mark:
        with contextlib.suppress(OSError):
            os.unlink(door.path)
