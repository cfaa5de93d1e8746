"""The lock that makes the hub single: a kernel lock, which dies with its process.

There is one file in the state folder and one in the runtime folder, since either alone could
be shared by two hubs: the state folder by two environments with different runtime folders,
the runtime folder by two with different state folders. The files stay when the hub ends;
only the kernel's lock on them means something.
"""

import errno
import fcntl
import os
import stat
import threading
from dataclasses import dataclass
from typing import Final

from upcall.hub.room import how_to_make_room
from upcall.model.errors import HubError
from upcall.model.text import visible
from upcall_discovery import liveness, paths

_LOCK_NAME: Final = "hub.lock"
_OWNER_LOOKS: Final = 25
_OWNER_PAUSE_S: Final = 0.02
_MAX_OWNER_BYTES: Final = 8192
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class LockOwner:
    """Who holds a lock, as its file says.

    Attributes:
        pid: the process, or None if the file does not say (yet).
        state: its state folder; text from a file.
    """

    pid: int | None
    state: str | None


class SameHubRuns(HubError):
    """A hub of this very state folder runs, or is about to."""

    code = "hub_running"


class HubLock:
    """Held by the one hub of a state folder and of a runtime folder."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._held: dict[str, int] = {}

    @classmethod
    def acquire(cls, state: str, runtime: str) -> "HubLock":
        """Take both locks, or neither.

        Both folders must exist and be ours alone.

        Raises:
            SameHubRuns: the state folder has a hub.
            HubError: `hub_running`, naming the other hub's pid and state folder;
                `lock_unsafe` if a lock file is a link, someone else's or not a file.
            PathProblem: a folder is not ours alone.
            OSError: a lock file cannot be made.
        """
        lock = cls(state)
        try:
            try:
                lock._take(state)
            except HubError as error:
                if error.code != "hub_running":
                    raise
                raise SameHubRuns(error.msg, recover=error.recover) from error
            lock._take(runtime)
        except BaseException:
            lock.release()
            raise
        return lock

    def move(self, runtime: str) -> None:
        """Take the lock of another runtime folder as well, or of one that was made anew.

        Locks that are held stay held. Raises as `acquire` does.
        """
        self._take(runtime)

    def release(self) -> None:
        """Let go of everything; repeating it does nothing."""
        while self._held:
            _, fd = self._held.popitem()
            os.close(fd)

    def _take(self, folder: str) -> None:
        path = os.path.join(folder, _LOCK_NAME)
        held = self._held.get(path)
        if held is not None:
            if _same_file(held, path):
                return
            # The folder was made anew; the lock on the deleted file guards nothing.
            os.close(self._held.pop(path))
        fd = _locked(folder, path)
        try:
            os.ftruncate(fd, 0)
            os.pwrite(
                fd, f"{os.getpid()}\n{self._state}\n".encode("utf-8", "surrogateescape"), 0
            )
        except OSError as error:
            os.close(fd)
            raise HubError(
                f"the lock file {visible(path)} cannot be written: {error.strerror}",
                code="lock_unwritable",
                recover=how_to_make_room(error),
            ) from error
        self._held[path] = fd


def owner_of(folder: str) -> LockOwner:
    """Return who wrote the lock file of *folder*; it says nothing about who holds it now."""
    try:
        data = paths.read_private_file(os.path.join(folder, _LOCK_NAME), _MAX_OWNER_BYTES)
    except (OSError, paths.PathProblem):
        return LockOwner(None, None)
    lines = os.fsdecode(data).split("\n")
    pid = lines[0] if lines else ""
    known = pid.isascii() and pid.isdecimal() and len(pid) < 12
    return LockOwner(int(pid) if known else None, lines[1] if len(lines) > 2 else None)


def _locked(folder: str, path: str) -> int:
    while True:
        fd = _opened(folder, path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(fd, path):
                return fd
        except BlockingIOError as error:
            os.close(fd)
            raise _taken(folder) from error
        except BaseException:
            os.close(fd)
            raise
        # Somebody removed the file between opening and locking it.
        os.close(fd)


def _opened(folder: str, path: str) -> int:
    directory = paths.open_private_dir(folder)
    try:
        fd = os.open(_LOCK_NAME, _FLAGS, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            raise _unsafe(path, "is not a regular file") from error
        raise
    finally:
        os.close(directory)
    found = os.fstat(fd)
    problem = None
    if not stat.S_ISREG(found.st_mode):
        problem = "is not a regular file"
    elif found.st_uid != os.geteuid():
        problem = f"belongs to user {found.st_uid}"
    elif found.st_nlink > 1:
        problem = "has more than one name"
    elif found.st_mode & 0o077:
        problem = f"is open to other users (mode {found.st_mode & 0o777:04o})"
    if problem is not None:
        os.close(fd)
        raise _unsafe(path, problem)
    return fd


def _same_file(fd: int, path: str) -> bool:
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _living_owner(folder: str) -> LockOwner:
    """Return who holds the lock, giving a hub that just took it time to write its name."""
    pause = threading.Event()
    for _ in range(_OWNER_LOOKS):
        owner = owner_of(folder)
        if owner.pid is not None and liveness.identify(owner.pid) is not None:
            return owner
        pause.wait(_OWNER_PAUSE_S)
    return owner_of(folder)


def _taken(folder: str) -> HubError:
    owner = _living_owner(folder)
    who = "another process" if owner.pid is None else f"process {owner.pid}"
    whose = "" if owner.state is None else f" for the state folder {visible(owner.state)}"
    return HubError(
        f"a hub is running already: {who}{whose}",
        code="hub_running",
        recover="Use that one, or end it with `upcall hub stop`.",
    )


def _unsafe(path: str, problem: str) -> HubError:
    return HubError(
        f"the lock {visible(path)} {problem}",
        code="lock_unsafe",
        recover=f"Find out who made {visible(path)}, and remove it.",
    )
