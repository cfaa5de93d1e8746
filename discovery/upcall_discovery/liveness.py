"""Who a process is, and whether it is still the same one.

A pid alone says little, since pids are given out again. On Linux everything is read from
`/proc`; elsewhere psutil is asked, and imported only then.
"""

import functools
import os
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

_MAX_ANCESTORS: Final = 128


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, distinct from every other that had or will have its pid.

    Attributes:
        pid: its number.
        start: when it started, as the kernel counts: on Linux 8 hexadecimal digits of the
            boot id, a colon and the clock ticks since that boot; elsewhere the kernel's
            start time.
    """

    pid: int
    start: str


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening TCP socket on this machine.

    Attributes:
        uid: whose it is.
        inode: by which a process' descriptors name it.
    """

    uid: int
    inode: int


@dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    group: int
    tty: int
    foreground: int
    ticks: int


# ---------------------------------------------------------------------------------------
# Linux


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def _stat(pid: int) -> _Stat | None:
    data = _read(f"/proc/{pid}/stat") if pid > 0 else None
    if not data:
        return None
    # The name in parentheses may itself hold parentheses and blanks.
    fields = data[data.rfind(b")") + 2 :].split()
    threads = int(fields[17])
    # A process that ended but was not waited for serves nobody. Its first thread may be a
    # zombie while others go on, though.
    if fields[0] in {b"Z", b"X", b"x"} and threads <= 1:
        return None
    return _Stat(
        parent=int(fields[1]),
        group=int(fields[2]),
        tty=int(fields[4]),
        foreground=int(fields[5]),
        ticks=int(fields[19]),
    )


@functools.cache
def _boot() -> str:
    data = _read("/proc/sys/kernel/random/boot_id")
    return data[:8].decode("ascii", "replace") if data else "unknown0"


def _boot_wall_ms() -> int | None:
    found = re.search(rb"^btime (\d+)$", _read("/proc/stat") or b"", re.MULTILINE)
    return int(found[1]) * 1000 if found else None


# ---------------------------------------------------------------------------------------
# Elsewhere


def _psutil(pid: int) -> Any:  # Any: psutil has no types and is absent on Linux
    psutil = import_module("psutil")
    try:
        process = psutil.Process(pid)
        gone = process.status() == psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError):
        return None
    return None if gone else process


def _asked(pid: int, question: str) -> Any:
    process = _psutil(pid)
    if process is None:
        return None
    try:
        return getattr(process, question)()
    except import_module("psutil").Error:
        return None


def _is_linux() -> bool:
    # A function, so that type checkers look at both halves.
    return sys.platform == "linux"


# ---------------------------------------------------------------------------------------
# Identity


def identify(pid: int) -> ProcessIdentity | None:
    """Return who has *pid* now, or None when no process runs under it."""
    if _is_linux():
        found = _stat(pid)
        return ProcessIdentity(pid, f"{_boot()}:{found.ticks}") if found else None
    created = _asked(pid, "create_time")
    return ProcessIdentity(pid, f"{created:.6f}") if created is not None else None


def is_alive(identity: ProcessIdentity) -> bool:
    """Tell whether exactly this process still runs; steps of the clock do not matter."""
    return identify(identity.pid) == identity


def started_before(pid: int, wall_ms: int, slack_ms: int = 2000) -> bool | None:
    """Tell whether the process started by a moment of the wall clock, None if there is none.

    Weaker than `is_alive`, since the wall clock can be stepped: only for records that do
    not say when their process started.
    """
    if _is_linux():
        found, boot_ms = _stat(pid), _boot_wall_ms()
        if found is None:
            return None
        if boot_ms is None:
            return True
        started_ms = boot_ms + found.ticks * 1000 // os.sysconf("SC_CLK_TCK")
    else:
        created = _asked(pid, "create_time")
        if created is None:
            return None
        started_ms = int(created * 1000)
    return started_ms <= wall_ms + slack_ms


# ---------------------------------------------------------------------------------------
# What the system knows about a process


def parent_of(pid: int) -> int | None:
    """Return the pid of the parent, or None if there is none or no such process."""
    if _is_linux():
        found = _stat(pid)
        parent = found.parent if found else 0
    else:
        parent = _asked(pid, "ppid") or 0
    return parent or None


def ancestors(pid: int) -> list[ProcessIdentity]:
    """Return the parent, its parent and so on, nearest first and without *pid* itself."""
    line: list[ProcessIdentity] = []
    seen = {pid}
    parent = parent_of(pid)
    while parent is not None and parent not in seen and len(line) < _MAX_ANCESTORS:
        seen.add(parent)
        identity = identify(parent)
        if identity is None:
            break
        line.append(identity)
        parent = parent_of(parent)
    return line


def program_of(pid: int) -> str:
    """Return the short name of the program, possibly empty; it is text from outside."""
    if _is_linux():
        return (_read(f"/proc/{pid}/comm") or b"").decode("utf-8", "replace").rstrip("\n")
    return str(_asked(pid, "name") or "")


def program_file_of(pid: int) -> str:
    """Return the file that the process runs, empty if it is not told."""
    if not _is_linux():
        return str(_asked(pid, "exe") or "")
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        return ""


def arguments_of(pid: int) -> list[str]:
    """Return the process' argument vector, empty if it cannot be had; text from outside."""
    if not _is_linux():
        return [str(part) for part in _asked(pid, "cmdline") or ()]
    data = _read(f"/proc/{pid}/cmdline") or b""
    return [os.fsdecode(part) for part in data.removesuffix(b"\0").split(b"\0")] if data else []


def environment_of(pid: int) -> dict[str, str] | None:
    """Return the environment with which the process was started; None if it is not told."""
    if not _is_linux():
        found = _asked(pid, "environ")
        return {str(k): str(v) for k, v in found.items()} if found is not None else None
    data = _read(f"/proc/{pid}/environ")
    if data is None:
        return None
    pairs = (part.partition(b"=") for part in data.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, sep, value in pairs if sep}


def session_leader_of(pid: int) -> int | None:
    """Return the pid of the leader of the process' session; None if it is not told."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def is_foreground(pid: int) -> bool:
    """Tell whether what is typed at its terminal reaches the process' group.

    Where that is unknowable: whether it has a terminal.
    """
    if not _is_linux():
        return controlling_tty(pid) is not None
    found = _stat(pid)
    return found is not None and found.tty != 0 and found.group == found.foreground


def reads_terminal(pid: int) -> bool:
    """Tell whether its standard input is a terminal; where unknowable, whether it has one."""
    if not _is_linux():
        return controlling_tty(pid) is not None
    try:
        target = os.readlink(f"/proc/{pid}/fd/0")
    except OSError:
        return False
    return target.startswith(("/dev/pts/", "/dev/tty", "/dev/console"))


def working_dir_of(pid: int) -> str | None:
    """Return the folder in which the process works, None if the system does not say."""
    if not _is_linux():
        folder = _asked(pid, "cwd")
        return str(folder) if folder else None
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def uid_of(pid: int) -> int | None:
    """Return the effective user id of the process, None if there is no such process."""
    if not _is_linux():
        uids = _asked(pid, "uids")
        return int(uids.effective) if uids is not None else None
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def controlling_tty(pid: int) -> str | None:
    """Return the path of the controlling terminal, None if the process has none."""
    if not _is_linux():
        terminal = _asked(pid, "terminal")
        return str(terminal) if terminal else None
    found = _stat(pid)
    return _tty_path(found.tty) if found else None


def _tty_path(device: int) -> str | None:
    # Twelve bits of major number between two parts of the minor one.
    if device == 0:
        return None
    major, minor = (device >> 8) & 0xFFF, (device & 0xFF) | ((device >> 12) & 0xFFF00)
    if 136 <= major <= 143:
        return f"/dev/pts/{(major - 136) * 256 + minor}"
    try:
        return "/dev/" + os.path.basename(os.readlink(f"/sys/dev/char/{major}:{minor}"))
    except OSError:
        return f"tty {major}:{minor}"


# ---------------------------------------------------------------------------------------
# Listening sockets


def hex_address(packed: bytes) -> str:
    """Return an address as the kernel's tables of sockets write it."""
    # The kernel prints each 32-bit word as its own number.
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


# Slot, local and remote address, state "listen", queues, timer, retransmits, uid,
# timeout, inode.
_LISTEN: Final = re.compile(
    rb"^ *\d+: ([0-9A-F]+:[0-9A-F]{4}) [0-9A-F]+:0000 0A \S+ \S+ \S+ +(\d+) +\d+ (\d+)",
    re.MULTILINE,
)
_V4: Final = bytes((127, 0, 0, 1))
_MAPPED: Final = bytes(10) + b"\xff\xff" + _V4
_V6: Final = bytes(15) + b"\x01"
# Most special first: that one gets the connection.
_BOUND_V4: Final = (("tcp", _V4), ("tcp6", _MAPPED), ("tcp", bytes(4)), ("tcp6", bytes(16)))
_BOUND_V6: Final = (("tcp6", _V6), ("tcp6", bytes(16)))


def _listening(table: bytes) -> dict[str, Listener]:
    """Return the listening sockets of a kernel table by their address and port."""
    out: dict[str, Listener] = {}
    for row in _LISTEN.finditer(table):
        out.setdefault(row[1].decode("ascii"), Listener(uid=int(row[2]), inode=int(row[3])))
    return out


class Sockets:
    """The machine's listening sockets and who holds them, each looked up at most once.

    A snapshot for one round of questions; only Linux answers them.
    """

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Listener]] = {}
        self._held: dict[int, frozenset[int] | None] = {}

    def listener(self, port: int, host: str = "127.0.0.1") -> Listener | None:
        """Return the socket that takes connections to a loopback port.

        None when nothing listens there, or the system does not tell.
        """
        if not _is_linux():
            return None
        for table, packed in _BOUND_V6 if host == "::1" else _BOUND_V4:
            found = self._table(table).get(f"{hex_address(packed)}:{port:04X}")
            if found is not None:
                return found
        return None

    def tells(self) -> bool:
        """Whether the system says who listens: where it does, nobody is left out."""
        return _is_linux() and any(self._table(name) for name in ("tcp", "tcp6"))

    def _table(self, name: str) -> dict[str, Listener]:
        if name not in self._tables:
            self._tables[name] = _listening(_read(f"/proc/net/{name}") or b"")
        return self._tables[name]

    def holds(self, pid: int, inode: int) -> bool | None:
        """Tell whether the process or a descendant holds a socket; None if unknowable."""
        waiting, seen = [pid], set[int]()
        certain = True
        while waiting:
            here = waiting.pop()
            if here in seen:
                continue
            seen.add(here)
            held = self._sockets_of(here)
            if held is None:
                # A descendant that ended meanwhile holds nothing.
                certain = certain and identify(here) is None
            elif inode in held:
                return True
            children = _children(here)
            if children is None:
                certain = False
            else:
                waiting += children
        return False if certain else None

    def _sockets_of(self, pid: int) -> frozenset[int] | None:
        if pid not in self._held:
            self._held[pid] = _sockets_of(pid)
        return self._held[pid]


def listener_uid(port: int) -> int | None:
    """Return the uid that listens on 127.0.0.1:*port*, None if unknown or nobody does."""
    found = Sockets().listener(port)
    return found.uid if found else None


def _sockets_of(pid: int) -> frozenset[int] | None:
    folder = f"/proc/{pid}/fd"
    inodes: set[int] = set()
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(int(target[8:-1]))
    return frozenset(inodes)


def _children(pid: int) -> list[int] | None:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    children: list[int] = []
    for task in tasks:
        data = _read(f"/proc/{pid}/task/{task}/children")
        if data is None:
            # Not every kernel is built with this file.
            if os.path.exists(f"/proc/{pid}/task/{task}"):
                return None
            continue
        children += map(int, data.split())
    return children
