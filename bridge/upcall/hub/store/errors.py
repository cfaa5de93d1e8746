"""What can go wrong with the store, in words for the person who runs the hub."""

import sqlite3

from upcall.hub.room import how_to_make_room, is_full, is_limited
from upcall.model.errors import HubError
from upcall.model.text import visible


class StoreError(HubError):
    """The store cannot be used, or could not keep what it was given.

    Codes: `store_full`, `store_corrupt`, `store_newer`, `store_foreign`, `store_not_private`,
    `store_conflict`, `store_busy`, `store_closed`, `store_failed`, `sqlite_too_old`,
    `state_not_local`, and those of the state folder (`folder_...`).
    """

    code = "store_failed"

    def again(self) -> "StoreError":
        """Return an equal error, for the next caller who meets the same failure."""
        return StoreError(self.msg, code=self.code, recover=self.recover)


def corrupt(path: str, detail: str) -> StoreError:
    """Return the error for a file that SQLite cannot make sense of."""
    shown = visible(path)
    return StoreError(
        f"{shown} is damaged ({visible(detail)})",
        code="store_corrupt",
        recover=(
            f"stop the hub, keep the file for rescue with mv {shown} {shown}.damaged "
            f"(and the same for {shown}-wal), and start again with an empty store; "
            "'sqlite3 FILE .recover' reads what is left"
        ),
    )


def explained(error: BaseException, path: str) -> StoreError:
    """Return what *error*, raised while *path* was used, means for a person."""
    shown = visible(path)
    code = getattr(error, "sqlite_errorcode", 0) or 0
    if is_full(error):
        code = sqlite3.SQLITE_FULL
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return StoreError(
                f"no room is left for {shown}; what was kept before is intact",
                code="store_full",
                recover=how_to_make_room(error),
            )
        case sqlite3.SQLITE_IOERR if is_limited():
            # SQLite does not tell a file that may not grow from a broken disk.
            return StoreError(
                f"{shown} could not be written: {visible(str(error))}",
                code="store_full",
                recover=how_to_make_room(),
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return corrupt(path, str(error))
        case sqlite3.SQLITE_CONSTRAINT:
            return StoreError(
                f"{shown} refused a row: {visible(str(error))}",
                code="store_conflict",
                recover="start the hub again; if it recurs, report it with this message",
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(
                f"another program holds {shown}",
                code="store_busy",
                recover=f"end the program that has {shown} open, then start the hub again",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            return StoreError(
                f"{shown} cannot be written: {visible(str(error))}",
                recover="make its folder and file writable for you, on a writable disk",
            )
        case _:
            return StoreError(
                f"{shown} failed: {visible(str(error)) or type(error).__name__}",
                recover="check the disk and its free space, then start the hub again",
            )
