"""Heads of the audit that are noted outside of the database, and how they are read back.

A chain of hashes is only as good as a head that somebody noted elsewhere. The system journal
keeps what an ordinary user cannot take back; a file beside the database shows what was done
to the database alone, and nothing more: who may write one may write the other.
"""

import hashlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Final, TypeAlias

import msgspec

from upcall.hub.store.verify import Anchor
from upcall.model.text import one_line
from upcall_discovery import paths
from upcall_discovery.paths import PathProblem

FILE: Final = "audit.anchors"
JOURNAL_SOCKET: Final = "/run/systemd/journal/socket"
JOURNALCTL: Final = ("/usr/bin/journalctl", "/bin/journalctl")
MESSAGE_ID: Final = "5b1e0d8f3c9b4f0a8d6c4f7be2a91c37"
MAX_FILE_BYTES: Final = 8 * 1024 * 1024
KEPT_BYTES: Final = 2 * 1024 * 1024
MAX_FROM_JOURNAL: Final = 5000
_JOURNAL_WITHIN_S: Final = 15.0
_MAX_JOURNAL_BYTES: Final = 32 * 1024 * 1024


# Times up to the year 9999, in milliseconds; whoever changed the file may have put anything in.
_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the anchors' file.

    Attributes:
        why: what it was noted for, `daily` or `permission`.
        row_ms: when the line itself was written, if that is known.
    """

    at_ms: _Whole
    rows: _Whole
    head: str
    epoch: _Whole
    why: str = ""
    row_ms: _Whole | None = None


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What `journalctl -o json` says of one of our lines."""

    rows: str = msgspec.field(name="UPCALL_AUDIT_ROWS")
    head: str = msgspec.field(name="UPCALL_AUDIT_HEAD")
    epoch: str = msgspec.field(name="UPCALL_AUDIT_EPOCH")
    at_us: str = msgspec.field(name="__REALTIME_TIMESTAMP")
    row_ms: str = msgspec.field(name="UPCALL_AUDIT_ROW_MS", default="")


_noted: Final = msgspec.json.Decoder(Noted)
_entry: Final = msgspec.json.Decoder(_Entry)


def store_name(state: str) -> str:
    """Return what tells this state folder's lines in the journal from another's."""
    return hashlib.sha256(b"upcall audit\0" + os.fsencode(os.path.realpath(state))).hexdigest()[
        :32
    ]


def words(noted: Noted) -> str:
    """Return the line that is put into a channel, which `log --verify --anchor` takes."""
    return f"audit {noted.rows}:{noted.head}"


# --- the file ------------------------------------------------------------------------------


def append(state: str, noted: Noted) -> None:
    """Add a line to the anchors' file (0600), so that it outlives a power cut.

    Raises:
        PathProblem: the folder or the file is not ours alone.
        OSError: it cannot be written.
    """
    path = os.path.join(state, FILE)
    folder = paths.open_private_dir(state)
    try:
        fd = paths.open_own_file(FILE, dir_fd=folder, path=path, append=True)
    finally:
        os.close(folder)
    try:
        data = msgspec.json.encode(noted) + b"\n"
        # A line that was cut off by a full disk must not swallow the next one.
        if os.fstat(fd).st_size and not _ends_whole(path):
            data = b"\n" + data
        while data:
            data = data[os.write(fd, data) :]
        os.fdatasync(fd)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    if size > MAX_FILE_BYTES:
        _shorten(path)


def _ends_whole(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _shorten(path: str) -> None:
    """Keep the newest lines of a file that has grown for years."""
    data = paths.read_private_file(path, 2 * MAX_FILE_BYTES)[-KEPT_BYTES:]
    paths.write_private_file(path, data[data.index(b"\n") + 1 :], sync=True)


def from_file(state: str) -> tuple[list[Anchor], list[str]]:
    """Return the anchors of the file, and what of it cannot be read, in words."""
    path = os.path.join(state, FILE)
    try:
        data = paths.read_private_file(path, 2 * MAX_FILE_BYTES)
    except FileNotFoundError:
        return [], [f"{FILE}: there is none"]
    except (OSError, PathProblem) as error:
        return [], [f"{FILE}: not read: {one_line(_why(error), 200)}"]
    found, trouble = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            noted = _noted.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            trouble.append(f"{FILE}: line {number} is none of ours")
            continue
        found.append(
            Anchor(
                source=FILE,
                at_ms=noted.at_ms,
                rows=noted.rows,
                head=noted.head,
                epoch=noted.epoch,
                row_ms=noted.row_ms,
            )
        )
    return found, trouble


def newest(state: str) -> Anchor | None:
    """Return the newest anchor of the file, or None."""
    found, _ = from_file(state)
    return found[-1] if found else None


# --- the journal ---------------------------------------------------------------------------


def to_journal(state: str, noted: Noted, *, socket_path: str = JOURNAL_SOCKET) -> bool:
    """Write an anchor into the system journal; return whether there is one that took it."""
    fields = {
        "MESSAGE": f"upcall {words(noted)}",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "upcall",
        "MESSAGE_ID": MESSAGE_ID,
        "UPCALL_STORE": store_name(state),
        "UPCALL_AUDIT_ROWS": str(noted.rows),
        "UPCALL_AUDIT_HEAD": noted.head,
        "UPCALL_AUDIT_EPOCH": str(noted.epoch),
        "UPCALL_AUDIT_ROW_MS": "" if noted.row_ms is None else str(noted.row_ms),
    }
    # No value has a line feed, so that the simple form of the protocol will do.
    data = "".join(f"{name}={value}\n" for name, value in fields.items()).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.setblocking(False)
        try:
            to.sendto(data, socket_path)
        except OSError:
            return False
    return True


def from_journal(
    state: str,
    *,
    programs: Iterable[str] = JOURNALCTL,
    run: Callable[..., "subprocess.CompletedProcess[bytes]"] = subprocess.run,
) -> tuple[list[Anchor], list[str]]:
    """Return the anchors that the system journal has, and in words why there are none.

    Only lines that the kernel says were written by this user count.
    """
    program = next((one for one in programs if os.access(one, os.X_OK)), None)
    if program is None:
        return [], ["system journal: not looked at, there is no journalctl"]
    argv = [
        program,
        "--output=json",
        "--no-pager",
        "--quiet",
        f"--lines={MAX_FROM_JOURNAL}",
        f"_UID={os.geteuid()}",
        f"MESSAGE_ID={MESSAGE_ID}",
        f"UPCALL_STORE={store_name(state)}",
    ]
    try:
        done = run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
            timeout=_JOURNAL_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return [], [f"system journal: not read: {one_line(_why(error), 200)}"]
    found = []
    for line in done.stdout[:_MAX_JOURNAL_BYTES].split(b"\n"):
        with suppress(msgspec.MsgspecError, ValueError, RecursionError):
            entry = _entry.decode(line)
            found.append(
                Anchor(
                    source="system journal",
                    at_ms=int(entry.at_us) // 1000,
                    rows=int(entry.rows),
                    head=entry.head,
                    epoch=int(entry.epoch),
                    row_ms=int(entry.row_ms) if entry.row_ms else None,
                )
            )
    if found:
        return found, []
    why = "it has no line of ours" if not done.returncode else "journalctl could not read it"
    return [], [f"system journal: {why}"]


def _why(error: Exception) -> str:
    if isinstance(error, PathProblem):
        return error.msg
    return getattr(error, "strerror", None) or type(error).__name__
