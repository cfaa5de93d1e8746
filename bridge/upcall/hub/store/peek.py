"""A look into the store while no hub runs; nothing is changed, nothing is kept open."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from urllib.parse import quote

from upcall.hub.store import files, migrate
from upcall.hub.store.errors import StoreError, explained
from upcall.model.text import visible


def open_asks(path: str) -> int:
    """Return how many questions are open; 0 if there is no database, or it is not ours."""
    try:
        # Opened to be read, a database with a log would get two more files beside it.
        how = "mode=ro" if os.path.exists(f"{path}-wal") else "immutable=1"
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(path)}?{how}", uri=True, timeout=1.0)
        ) as connection:
            (count,) = connection.execute(
                "SELECT count(*) FROM ask WHERE state <> 'closed'"
            ).fetchone()
    except sqlite3.Error:
        return 0
    return int(count)


@contextlib.contextmanager
def reading(path: str) -> Iterator[sqlite3.Connection]:
    """Yield a connection that can only read, with or without a running hub.

    Raises:
        StoreError: `store_missing`, `store_foreign`, `store_not_private`, `store_newer`, or it
            cannot be read.
    """
    try:
        files.check(os.lstat(path), path)
    except FileNotFoundError as error:
        raise StoreError(
            f"there is no {visible(path)}: nothing was ever asked here",
            code="store_missing",
            recover="the next question makes it",
        ) from error
    how = "mode=ro" if os.path.exists(f"{path}-wal") else "immutable=1"
    connection = None
    try:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?{how}",
            uri=True,
            isolation_level=None,
            timeout=5.0,
        )
        connection.execute("PRAGMA query_only = ON")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if application != migrate.APPLICATION_ID:
            raise StoreError(
                f"{visible(path)} is the database of another program", code="store_foreign"
            )
        if schema > max(migrate.steps()):
            raise migrate.newer(connection, path, schema)
        yield connection
    except sqlite3.Error as error:
        raise explained(error, path) from error
    finally:
        if connection is not None:
            connection.close()
