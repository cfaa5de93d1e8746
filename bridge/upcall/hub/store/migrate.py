"""Bringing a database to this program's schema: numbered steps, forward only."""

import os
import re
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import upcall
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
_VERSION: Final = re.compile(r"[0-9A-Za-z.+-]{1,40}")


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


def migrate(
    connection: sqlite3.Connection,
    path: str,
    scripts: dict[int, str],
    *,
    version: str = upcall.__version__,
    keeps_backup: bool = True,
) -> str | None:
    """Bring the database to the newest of *scripts*, with a backup of an older one before.

    Nothing is changed before it is known to be ours and not newer.

    Args:
        connection: the writer's.
        path: the database.
        scripts: the numbered steps.
        version: of this program, after which the backup is named.
        keeps_backup: False for a copy, whose original stays.

    Returns:
        Path of the backup, if there was anything to migrate.

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
    application, schema, objects = _header(connection)
    if application == 0 and schema == 0 and objects == 0:
        _run(connection, latest(), target, version, initial=True)
        return None
    if application != APPLICATION_ID:
        raise StoreError(
            f"{visible(path)} is the database of another program",
            code="store_foreign",
            recover=f"move {visible(path)} away, then start the hub again",
        )
    if schema > target:
        raise newer(connection, path, schema, target)
    if schema not in scripts:
        raise corrupt(path, f"its schema number is {schema}")
    if schema == target:
        return None
    kept = f"{path}.before-{version}" if keeps_backup else None
    if kept is not None:
        backup(connection, kept)
    for number, script in scripts.items():
        if number > schema:
            _run(connection, script, number, version, initial=False)
    return kept


def newer(
    connection: sqlite3.Connection, path: str, schema: int, target: int | None = None
) -> StoreError:
    """Return the error for a database that a newer program has written."""
    known = max(steps()) if target is None else target
    written = _written_by(connection)
    by = f"upcall {visible(written)}" if written else "a newer upcall"
    remedy = "upgrade with 'pipx upgrade upcall' or 'pip install --upgrade upcall'"
    before = f"{path}.before-{written}"
    if written and _VERSION.fullmatch(written) and os.path.isfile(before):
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(before).st_mtime))
        remedy += f", or: upcall hub restore {visible(before)} (loses asks since {since})"
    return StoreError(
        f"{visible(path)} is from {by}: it has schema {schema}, and this upcall "
        f"({upcall.__version__}) knows schema {known}",
        code="store_newer",
        recover=remedy,
    )


def _written_by(connection: sqlite3.Connection) -> str | None:
    # Nothing is certain of tables that we do not know yet.
    try:
        row = connection.execute("SELECT value FROM meta WHERE name = 'schema_by'").fetchone()
    except sqlite3.Error:
        return None
    return str(row[0]) if row is not None else None


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


def _run(
    connection: sqlite3.Connection, script: str, schema: int, version: str, *, initial: bool
) -> None:
    mark = f"PRAGMA application_id = {APPLICATION_ID};" if initial else ""
    # Which program made the tables as they are: an older one names it, and its backup.
    by = version if _VERSION.fullmatch(version) else ""
    noted = (
        f"INSERT INTO meta (name, value) VALUES ('schema_by', '{by}')"  # noqa: S608 - checked
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value;"
    )
    try:
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{script}\n{noted}{mark}PRAGMA user_version = {schema};\nCOMMIT;"
        )
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
