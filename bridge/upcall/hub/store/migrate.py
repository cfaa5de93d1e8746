"""Bringing a database to this program's schema: numbered steps, forward only."""

import os
import re
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from upcall.hub.store import files
from upcall.hub.store.errors import StoreError, corrupt
from upcall.model.text import visible

APPLICATION_ID: Final = 0x75706361
"""`upca` in ASCII, in the database's header."""

# Beside this file, also in a wheel; importlib.resources would load four times its weight.
_SCHEMA: Final = Path(__file__).parent / "schema"

MIN_SQLITE: Final = (3, 37, 0)
"""STRICT tables."""

_STEP: Final = re.compile(r"(\d{4})\.sql")


def steps() -> dict[int, str]:
    """Return the numbered scripts, oldest first."""
    found = {}
    for entry in _SCHEMA.iterdir():
        match = _STEP.fullmatch(entry.name)
        if match is not None:
            found[int(match[1])] = entry.read_text(encoding="utf-8")
    return dict(sorted(found.items()))


def latest() -> str:
    """Return the script that makes today's schema at once."""
    return (_SCHEMA / "latest.sql").read_text(encoding="utf-8")


def migrate(connection: sqlite3.Connection, path: str, scripts: dict[int, str]) -> None:
    """Bring the database to the newest of *scripts*, with a backup of an older one before.

    Nothing is changed before it is known to be ours and not newer.

    Raises:
        StoreError: `store_foreign`, `store_newer`, `store_corrupt`, `sqlite_too_old`.
        sqlite3.Error, OSError: a step or the backup failed; the database is as before.
    """
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} is too old",
            code="sqlite_too_old",
            recover="use a Python that comes with SQLite 3.37 or newer",
        )
    target = max(scripts)
    application, version, objects = _header(connection)
    if application == 0 and version == 0 and objects == 0:
        _run(connection, latest(), target, initial=True)
        return
    if application != APPLICATION_ID:
        raise StoreError(
            f"{visible(path)} is the database of another program",
            code="store_foreign",
            recover=f"move {visible(path)} away, then start the hub again",
        )
    if version > target:
        raise StoreError(
            f"{visible(path)} has schema {version}, and this upcall knows schema {target}",
            code="store_newer",
            recover=(
                "a newer upcall wrote it: upgrade with 'pip install --upgrade upcall', or "
                f"go back to {visible(path)}.before-{target} if that file exists"
            ),
        )
    if version not in scripts:
        raise corrupt(path, f"its schema number is {version}")
    if version < target:
        backup(connection, f"{path}.before-{version}")
        for number, script in scripts.items():
            if number > version:
                _run(connection, script, number, initial=False)


def backup(connection: sqlite3.Connection, path: str) -> None:
    """Copy the database to *path* (0600), whole or not at all, and synced.

    Raises:
        StoreError: what is at *path* is not a file of ours.
        sqlite3.Error, OSError: the copy failed.
    """
    temporary = f"{path}.part"
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    with suppress(FileNotFoundError):
        files.check(os.lstat(path), path)
    try:
        files.secure(temporary)
        connection.execute("VACUUM INTO ?", (temporary,))
        _sync(temporary, os.O_RDWR)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _header(connection: sqlite3.Connection) -> tuple[int, int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return application, version, objects


def _run(connection: sqlite3.Connection, script: str, version: int, *, initial: bool) -> None:
    mark = f"PRAGMA application_id = {APPLICATION_ID};" if initial else ""
    try:
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{script}\n{mark}PRAGMA user_version = {version};\nCOMMIT;"
        )
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
