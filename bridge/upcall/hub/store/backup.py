"""A whole copy of the database in one file, made while the hub runs, and proven after."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from upcall.hub.room import how_to_make_room
from upcall.hub.store import epoch, files, migrate, read
from upcall.hub.store.errors import StoreError, corrupt, explained
from upcall.model.text import visible

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAGIC: Final = b"SQLite format 3\0"
_WAL_AT: Final = 18
_WAL: Final = 2
_PATIENCE_S: Final = 10.0
_STEPS_A_TURN: Final = 100_000


@dataclass(frozen=True, slots=True)
class Found:
    """What a database file holds.

    Attributes:
        schema: number of its tables' shape.
        version: the upcall that wrote it last, or None if it does not say.
        last_ms: time of its newest audit line, or None.
        lines, head: number and hash (hex) of that line.
        broken_at: the audit line that does not follow from the one before it, or None.
    """

    path: str
    size_bytes: int
    schema: int
    version: str | None
    epoch: int
    last_ms: int | None
    asks: int
    open_asks: int
    lines: int
    head: str
    broken_at: int | None


def make(
    db_path: str,
    target: str,
    *,
    force: bool = False,
    progress: Callable[[], None] | None = None,
) -> Found:
    """Copy the database to *target* (0600), whole or not at all, and read the copy through.

    A hub may run meanwhile: the copy is of one moment. Blocks.

    Args:
        db_path: the database.
        target: absolute path of the copy.
        force: replace a file of ours that is there.
        progress: called now and then while it works.

    Raises:
        StoreError: `backup_exists`, `backup_folder_unsafe`, `store_missing`, and those of
            the files and of the database.
        OSError: the copy cannot be written.
    """
    folder, name = os.path.split(target)
    check_folder(folder)
    fd = os.open(folder, _FOLDER_FLAGS)
    try:
        _check_target(name, fd, target, force=force)
        temporary = os.path.join(folder, f".{name}.{os.getpid()}.part")
        with suppress(FileNotFoundError):
            os.unlink(os.path.basename(temporary), dir_fd=fd)
        created = os.open(os.path.basename(temporary), _CREATE, 0o600, dir_fd=fd)
        try:
            os.fchmod(created, 0o600)
            found = os.fstat(created)
        finally:
            os.close(created)
        try:
            copy(db_path, temporary, progress=progress, called=target)
            files.still(temporary, (found.st_dev, found.st_ino))
            facts = look(temporary)
            if facts.broken_at is not None:
                raise _broken(db_path, facts.broken_at)
            _sync(os.path.basename(temporary), fd)
            _put(os.path.basename(temporary), name, fd, target, force=force)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(os.path.basename(temporary), dir_fd=fd)
            raise
        os.fsync(fd)
    finally:
        os.close(fd)
    return replace(facts, path=target)


def copy(
    db_path: str,
    target: str,
    *,
    progress: Callable[[], None] | None = None,
    called: str | None = None,
) -> None:
    """Copy what the database at *db_path* holds into the empty file *target*.

    Args:
        db_path: the database.
        target: the file.
        progress: called now and then while it works.
        called: how to call *target* in words, if its name is only for now.

    Raises:
        StoreError: there is none, it cannot be read, or there is no room for the copy
            (`store_full`).
    """
    connection = open_source(db_path)
    try:
        if progress is not None:
            connection.set_progress_handler(_turning(progress), _STEPS_A_TURN)
        connection.execute("VACUUM INTO ?", (target,))
    except sqlite3.Error as error:
        problem = explained(error, db_path)
        if problem.code == "store_full":
            # Nothing is written but the copy.
            raise _no_room(called or target) from error
        raise problem from error
    finally:
        connection.close()


def _no_room(path: str) -> StoreError:
    return StoreError(
        f"no room is left for {visible(path)}; nothing was written",
        code="store_full",
        recover=how_to_make_room(then="try again"),
    )


def open_source(path: str) -> sqlite3.Connection:
    """Open a database for reading; nothing is written beside it if that can be helped.

    Raises:
        StoreError: `store_missing`, `store_foreign`, `backup_unsafe`, or it cannot be read.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError as error:
        raise StoreError(
            f"there is no {visible(path)}", code="store_missing", recover="check the path"
        ) from error
    shown = visible(path)
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{shown} is no regular file", code="store_foreign")
    if found.st_uid not in {os.geteuid(), 0} or found.st_mode & 0o022:
        raise StoreError(
            f"{shown} is not yours, or others can write it",
            code="backup_unsafe",
            recover=f"make sure that it is what you think, then: chmod 600 {shown}",
        )
    head = _head(path)
    if head[: len(_MAGIC)] != _MAGIC:
        raise StoreError(
            f"{shown} is no database of upcall",
            code="store_foreign",
            recover="give a file that `upcall hub backup` made",
        )
    # Opened like this SQLite makes no files beside a backup, which may lie on a read-only disk.
    mode = "mode=ro" if head[_WAL_AT] == _WAL else "mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?{mode}",
            uri=True,
            isolation_level=None,
            timeout=_PATIENCE_S,
        )
        connection.execute("PRAGMA temp_store = MEMORY")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.Error as error:
        raise explained(error, path) from error
    if application != migrate.APPLICATION_ID:
        connection.close()
        raise StoreError(
            f"{shown} is the database of another program",
            code="store_foreign",
            recover="give a file that `upcall hub backup` made",
        )
    return connection


def look(path: str) -> Found:
    """Read a database through and return what it holds.

    Raises:
        StoreError: `store_newer`, `store_corrupt`, and those of `open_source`.
    """
    connection = open_source(path)
    try:
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise corrupt(path, str(verdict))
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if schema > max(migrate.steps()):
            raise migrate.newer(connection, path, schema)
        (asks, open_asks) = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE state <> 'closed') FROM ask"
        ).fetchone()
        (last_ms,) = connection.execute("SELECT max(at_ms) FROM audit").fetchone()
        lines, head = epoch.newest_line(connection)
        return Found(
            path=path,
            size_bytes=os.stat(path).st_size,
            schema=schema,
            version=epoch.meta(connection, "version"),
            epoch=epoch.epoch_of(connection) or 0,
            last_ms=last_ms,
            asks=asks,
            open_asks=open_asks,
            lines=lines,
            head=head,
            broken_at=read.audit_break(connection),
        )
    except sqlite3.Error as error:
        raise explained(error, path) from error
    finally:
        connection.close()


def check_folder(folder: str) -> None:
    """Refuse a folder in which somebody else could put another file in the copy's place.

    Raises:
        StoreError: `backup_folder_unsafe`.
        OSError: it is not there.
    """
    path = os.path.realpath(folder)
    while True:
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(20, os.strerror(20), path)
        loose = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in {os.geteuid(), 0} or loose:
            raise StoreError(
                f"{visible(path)} belongs to somebody else, or others can write there",
                code="backup_folder_unsafe",
                recover="choose a folder that only you can change, such as your home",
            )
        parent = os.path.dirname(path)
        if parent == path:
            return
        path = parent


def _check_target(name: str, folder: int, target: str, *, force: bool) -> None:
    shown = visible(target)
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise StoreError(
            f"{shown} is a link or no regular file; nothing was written",
            code="backup_exists",
            recover="choose another name",
        )
    if not force:
        raise StoreError(
            f"{shown} is there already; nothing was written",
            code="backup_exists",
            recover="choose another name, or replace it with --force",
        )
    if found.st_uid != os.geteuid():
        raise StoreError(
            f"{shown} belongs to user {found.st_uid}; nothing was written",
            code="backup_exists",
            recover="choose another name",
        )


def _put(temporary: str, name: str, folder: int, target: str, *, force: bool) -> None:
    if not force:
        # Reserved first: a rename would replace what somebody has put there meanwhile.
        try:
            os.close(os.open(name, _CREATE, 0o600, dir_fd=folder))
        except FileExistsError as error:
            raise StoreError(
                f"{visible(target)} is there already; nothing was written",
                code="backup_exists",
                recover="choose another name, or replace it with --force",
            ) from error
    else:
        _check_target(name, folder, target, force=True)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _sync(name: str, folder: int) -> None:
    fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _head(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(fd, 100).ljust(100, b"\0")
    finally:
        os.close(fd)


def _turning(progress: Callable[[], None]) -> Callable[[], int]:
    def turn() -> int:
        progress()
        return 0

    return turn


def _broken(path: str, line: int) -> StoreError:
    return StoreError(
        f"the audit of {visible(path)} was changed: line {line} does not follow from the "
        "one before it",
        code="audit_broken",
        recover="find out who wrote into the database; an older backup may be whole",
    )
