"""That the database is this computer's newest: a mark inside it, and one in a file beside it.

A restore starts a new epoch. Between restores the file beside the database notes how far the
audit has come. A database that is behind that note is an old copy that somebody put back:
what was answered since would be asked, and answered, a second time.
"""

import hashlib
import os
import sqlite3
import sys
from typing import Final

import msgspec

from upcall.clock import SystemClock
from upcall.hub.store.errors import StoreError
from upcall.hub.store.rows import CHAIN_START, RowWriter
from upcall.model.rows import AuditRow
from upcall.model.text import visible
from upcall_discovery.paths import PathProblem, read_private_file, write_private_file

SUFFIX: Final = ".epoch"
_MAX_BYTES: Final = 4096
_MACHINE_FILES: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_REMEDIES: Final = (
    "to go on with this very file: upcall hub adopt; to go back to a backup: upcall hub "
    "restore FILE (both ask again what is open in it)"
)


class Mark(msgspec.Struct, frozen=True):
    """What is known beside the database.

    Attributes:
        epoch: how often it was restored, and one.
        lines: number of the newest audit line that is known to be in it.
        head: hash (hex) of that line; empty if there is none.
    """

    epoch: int = 1
    lines: int = 0
    head: str = ""


_mark: Final = msgspec.json.Decoder(Mark)


def machine_id() -> str:
    """Return a hash that tells this computer from others, or an empty text if nothing does."""
    if sys.platform == "darwin":  # pragma: no cover - not the platform of the tests
        return _hashed(_host_uuid())
    for path in _MACHINE_FILES:
        try:
            with open(path, "rb") as file:
                found = file.read(256).strip()
        except OSError:
            continue
        if found:
            return _hashed(found)
    return ""


def _hashed(found: bytes) -> str:
    # The raw id is not to be told to anybody, so it is not kept as it is.
    return hashlib.sha256(b"upcall store\0" + found).hexdigest() if found else ""


def _host_uuid() -> bytes:  # pragma: no cover - not the platform of the tests
    import ctypes

    found = ctypes.create_string_buffer(16)
    wait = (ctypes.c_long * 2)(1, 0)
    try:
        failed = ctypes.CDLL(None).gethostuuid(found, wait)
    except (OSError, AttributeError):
        return b""
    return b"" if failed else found.raw


def read(db_path: str) -> Mark | None:
    """Return the mark beside the database, or None if there is none that can be read."""
    try:
        return _mark.decode(read_private_file(db_path + SUFFIX, _MAX_BYTES))
    except (OSError, PathProblem, msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def write(db_path: str, mark: Mark) -> None:
    """Write the mark (0600), so that it outlives a power cut.

    Raises:
        PathProblem: the folder is not ours alone.
        OSError: it cannot be written.
    """
    write_private_file(db_path + SUFFIX, msgspec.json.encode(mark) + b"\n", sync=True)


def meta(connection: sqlite3.Connection, name: str) -> str | None:
    """Return one value of the database's own table of facts."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_meta(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Keep one value there."""
    connection.execute(
        "INSERT INTO meta (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def epoch_of(connection: sqlite3.Connection) -> int | None:
    """Return the epoch that the database says it is in; None before it has one."""
    value = meta(connection, "epoch")
    return int(value) if value is not None and value.isdecimal() else None


def newest_line(connection: sqlite3.Connection) -> tuple[int, str]:
    """Return number and hash (hex) of the newest audit line; 0 and nothing without one."""
    row = connection.execute("SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
    return (0, "") if row is None else (row[0], bytes(row[1]).hex())


def current(connection: sqlite3.Connection) -> Mark:
    """Return the mark that fits the database as it is now."""
    return Mark(epoch_of(connection) or 1, *newest_line(connection))


def check(connection: sqlite3.Connection, path: str, machine: str) -> None:
    """Refuse a database that is not the newest of this computer; mark one that has no mark.

    Args:
        connection: the writer's, outside of a transaction.
        path: the database.
        machine: this computer, as `machine_id` tells it; empty: it is not looked at.

    Raises:
        StoreError: `store_moved`, `store_behind`.
        OSError, PathProblem: the mark cannot be written.
    """
    beside = read(path)
    epoch = epoch_of(connection)
    if epoch is None:
        if beside is not None and not _is_new(connection):
            raise _behind(path)
        # A database that was made anew, on purpose, begins an epoch of its own, and says so.
        epoch = 1 if beside is None else beside.epoch + 1
        if beside is not None and beside.head:
            _say_begun(connection, epoch, beside)
        set_meta(connection, "epoch", str(epoch))
        set_meta(connection, "machine", machine)
    else:
        whose = meta(connection, "machine") or ""
        if machine and whose and whose != machine:
            raise StoreError(
                f"{visible(path)} is the database of another computer",
                code="store_moved",
                recover=f"two computers must not go on with one database; {_REMEDIES}",
            )
        if beside is not None and _is_behind(connection, epoch, beside):
            raise _behind(path)
        if machine and not whose:
            set_meta(connection, "machine", machine)
    write(path, current(connection))


def _say_begun(connection: sqlite3.Connection, epoch: int, beside: Mark) -> None:
    RowWriter(connection, str, CHAIN_START).write(
        AuditRow(
            at_ms=SystemClock().wall_ms(),
            event="begun_anew",
            ask_id=None,
            session_id=None,
            facts={
                "epoch": epoch,
                "from_lines": 0,
                "lines": beside.lines,
                "head": beside.head,
            },
        )
    )


def _is_new(connection: sqlite3.Connection) -> bool:
    (rows,) = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM audit) + EXISTS (SELECT 1 FROM session)"
        " + EXISTS (SELECT 1 FROM ask)"
    ).fetchone()
    return not rows


def _is_behind(connection: sqlite3.Connection, epoch: int, beside: Mark) -> bool:
    if epoch != beside.epoch:
        return epoch < beside.epoch
    row = connection.execute("SELECT hash FROM audit WHERE id = ?", (beside.lines,)).fetchone()
    if row is not None:
        return bytes(row[0]).hex() != beside.head
    # Old lines are cut off, never the newest; a line that is not there yet is a gap.
    return beside.lines > newest_line(connection)[0]


def _behind(path: str) -> StoreError:
    return StoreError(
        f"{visible(path)} is older than what this computer used last, as when a copy of the "
        "file was put back: what was answered since would be asked again",
        code="store_behind",
        recover=f"put the newer file back if you have it; {_REMEDIES}",
    )


def sync_folder(path: str) -> None:
    """Make what was renamed into the folder of *path* outlive a power cut."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
