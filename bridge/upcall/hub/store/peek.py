"""A look into the store while no hub runs; nothing is changed, nothing is kept open."""

import contextlib
import os
import sqlite3
from urllib.parse import quote


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
