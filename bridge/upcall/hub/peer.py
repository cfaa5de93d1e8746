"""Who is on the other end of a Unix socket, as the kernel tells it.

Nothing is read from the process before it is needed: a program that only looks at lists
costs one system call.
"""

import os
import pwd
import socket
import struct
import sys
from typing import Final

from upcall.hub.chain import is_cut_off
from upcall.model.events import Asker
from upcall.model.platform import Who
from upcall.model.text import one_line
from upcall_discovery import liveness
from upcall_discovery.liveness import ProcessIdentity

_UCRED: Final = struct.Struct("3i")
# From <sys/un.h> and <sys/ucred.h> of macOS; Python does not name them.
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1
_LOCAL_PEERPID: Final = 2
_XUCRED: Final = struct.Struct("2Ih2x16I")
_INT: Final = struct.Struct("i")

_MAX_PATH_CHARS: Final = 4096
_PROGRAMS_KEPT: Final = 16
_MAX_ARGUMENTS_BYTES: Final = 4096


class Peer:
    """The process on the other end.

    Attributes:
        pid: its number, 0 when the kernel cannot tell (another pid namespace).
        uid: whose it is.
    """

    __slots__ = ("_identity", "_parent", "_programs", "pid", "uid")

    def __init__(self, pid: int, uid: int) -> None:
        self.pid = pid
        self.uid = uid
        self._identity: ProcessIdentity | None = None
        self._parent: ProcessIdentity | None = None
        self._programs: dict[str | None, str | None] = {}

    @classmethod
    def of(cls, sock: socket.socket) -> "Peer":
        """Return who connected *sock*.

        Raises:
            OSError: the kernel does not say.
        """
        return cls(*_credentials(sock))

    @property
    def identity(self) -> ProcessIdentity:
        """The process; its start is empty if it cannot be told or has ended."""
        if self._identity is None:
            found = liveness.identify(self.pid) if self.pid else None
            self._identity = found or ProcessIdentity(self.pid, "")
        return self._identity

    @property
    def parent(self) -> ProcessIdentity | None:
        """The process that started it, as long as that runs."""
        if self._parent is None and self.pid:
            number = liveness.parent_of(self.pid)
            self._parent = liveness.identify(number) if number else None
        return self._parent

    def asker(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        cwd: str | None = None,
        program: str | None = None,
        chain: tuple[ProcessIdentity, ...] = (),
        tags: tuple[str, ...] = (),
    ) -> Asker:
        """Return the peer as one that asks.

        Args:
            name: the session's name that it gave.
            title: the title that it gave.
            cwd: the folder that it says it is in; the kernel's word goes first.
            program: what it says it is; taken if the kernel's facts agree.
            chain: the processes that count as the one that asks.
            tags: what it calls itself by.
        """
        parent = self.parent
        return Asker(
            pid=self.pid,
            start=self.identity.start,
            parent=_joined(parent) if parent else "",
            uid=self.uid,
            name=name,
            title=title,
            cwd=self._working_dir() or _cut(cwd, _MAX_PATH_CHARS),
            program=self._program(program),
            chain=tuple(map(_joined, chain)),
            tags=tags,
        )

    def who(self, *, at_own_prompt: bool = False) -> Who:
        """Return the peer as one that answers.

        Args:
            at_own_prompt: it says that a person typed the answer to what it asked itself.
        """
        if not self.pid:
            return Who(
                identity=str(self.uid),
                name=login_name(self.uid),
                detail=f"user {self.uid}, a process that cannot be told",
                local=True,
            )
        line = [self.identity, *liveness.ancestors(self.pid)]
        tty = liveness.controlling_tty(self.pid)
        program = one_line(liveness.program_of(self.pid), 64)
        terminal = tty.removeprefix("/dev/") if tty else "no terminal"
        if tty is not None and is_cut_off(self.pid, line):
            # It kept a terminal that it was not started from, so nobody typed it there.
            tty, terminal = None, f"cut off from {terminal}"
        elif tty is not None and at_own_prompt:
            if liveness.is_foreground(self.pid):
                terminal = f"its own prompt on {terminal}"
            else:
                # What is typed there goes to another program.
                tty, terminal = None, f"in the background of {terminal}"
        facts = (f"pid {self.pid}", program, terminal)
        return Who(
            identity=str(self.uid),
            name=login_name(self.uid),
            detail=", ".join(fact for fact in facts if fact),
            pid=self.pid,
            pid_start=self.identity.start,
            ancestors=tuple(_joined(process) for process in line),
            tty=tty,
            local=True,
        )

    def _working_dir(self) -> str | None:
        found = liveness.working_dir_of(self.pid) if self.pid else None
        return found if found and os.path.isabs(found) else None

    def _program(self, claimed: str | None) -> str | None:
        claim = _cut(claimed, 200)
        if claim not in self._programs:
            if len(self._programs) > _PROGRAMS_KEPT:
                self._programs.clear()
            self._programs[claim] = self._check_program(claim)
        return self._programs[claim]

    def _check_program(self, claim: str | None) -> str | None:
        if not self.pid:
            return claim
        own = liveness.program_of(self.pid)
        if claim is None or claim == own:
            return own or None
        # `upcall` asks for the program that started it; a script's own name is only among
        # its arguments. Anything else would be the program's word about itself.
        parent = self.parent
        above = liveness.program_of(parent.pid) if parent else ""
        if claim == above or claim in _arguments(self.pid):
            return claim
        if parent and claim in _arguments(parent.pid):
            return claim
        return own or None


def login_name(uid: int) -> str | None:
    """Return the login name of *uid*, or None if the system does not know it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _joined(process: ProcessIdentity) -> str:
    return f"{process.pid}:{process.start}"


def _cut(text: str | None, limit_chars: int) -> str | None:
    return text[:limit_chars] if text else None


def _arguments(pid: int) -> tuple[str, ...]:
    """Return the last path component of a process' first arguments; Linux only."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            data = file.read(_MAX_ARGUMENTS_BYTES)
    except OSError:
        return ()
    return tuple(os.path.basename(os.fsdecode(part)) for part in data.split(b"\0")[:4] if part)


def _credentials(sock: socket.socket) -> tuple[int, int]:
    if sys.platform == "linux":
        data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, _ = _UCRED.unpack(data)
        return pid, uid
    data = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
    uid = _XUCRED.unpack(data)[1]
    try:
        (pid,) = _INT.unpack(sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, _INT.size))
    except OSError:
        pid = 0
    return pid, uid
