"""The hub's two sockets: one that can only ask, one that can do everything."""

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from upcall.clock import Clock
from upcall.hub.desk import Desk, HubPort
from upcall.hub.lines import LineConnection, ReadBuffer
from upcall.hub.requests import SocketKind
from upcall.model.errors import HubError, UpcallError
from upcall.model.limits import MAX_QUEUED_BYTES
from upcall.model.platform import SeamLog
from upcall.model.text import visible
from upcall_discovery import paths

__all__ = ["HubPort", "HubSockets"]

KEEP_S: Final = 2.0
MAX_CLIENTS: Final = 8192
MAX_FOREIGN_CLIENTS: Final = 256
_BACKLOG: Final = 1024
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


@dataclass(slots=True, eq=False)
class _Porter:
    """Lets clients of one socket in."""

    kind: SocketKind
    desk: Desk
    foreign: set[LineConnection] = field(default_factory=set)
    unwelcome: set[LineConnection] = field(default_factory=set)

    def opened(self, line: LineConnection) -> None:
        uid = line.peer.uid
        ours = uid in {0, os.geteuid()}
        if not ours:
            self.foreign.add(line)
        if self.desk.clients >= MAX_CLIENTS or len(self.foreign) > MAX_FOREIGN_CLIENTS:
            self._refuse(line, "too many clients are connected", "limit_reached")
        elif self.kind == "control" and not ours:
            # Told when it says hello: before that it would only see its own write fail.
            self.unwelcome.add(line)
        else:
            self.desk.opened(line, self.kind)

    def received(self, line: LineConnection, data: bytes) -> None:
        if line in self.unwelcome:
            self._refuse(line, "only the hub's own user may use this socket", "not_permitted")
        else:
            self.desk.received(line, data)

    def too_long(self, line: LineConnection) -> None:
        self.desk.too_long(line)

    def closed(self, line: LineConnection) -> None:
        self.foreign.discard(line)
        self.unwelcome.discard(line)
        self.desk.closed(line)

    def _refuse(self, line: LineConnection, msg: str, code: str) -> None:
        error: UpcallError = HubError(msg, code=code)
        self.desk.refuse(line, error)


class HubSockets:
    """Both sockets of one hub. The hub's lock must be held from `start` to `close`.

    Args:
        port: the hub.
        state: its state folder.
        clock: time.
        log: where failures go.
        version: of the program.
        max_queued_bytes: what a client may leave unread before it is disconnected.
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
    ) -> None:
        self._state = state
        self._clock = clock
        self._log = log
        self._max_queued_bytes = max_queued_bytes
        self._desk = Desk(port, clock=clock, log=log, version=version, pid=os.getpid())
        self._buffer = ReadBuffer()
        self._porters = {kind: _Porter(kind, self._desk) for kind in _kinds()}
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
                backlog=_BACKLOG,
            )
        except BaseException:
            sock.close()
            raise
        return _Door(kind, path, server, mark)


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
