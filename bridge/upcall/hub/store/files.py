"""The database file as a file: made private, and refused when it is not ours alone."""

import os
import stat
from typing import Final

from upcall.hub.store.errors import StoreError
from upcall.model.text import visible
from upcall_discovery.paths import PathProblem, is_network_filesystem, open_private_dir

_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
COMPANIONS: Final = ("-wal", "-shm", "-journal")

Identity = tuple[int, int]
"""Device and inode."""


def secure(path: str) -> Identity:
    """Make the file (0600) if there is none; refuse one that is not ours alone.

    SQLite gives its companion files the mode of the database, and they are checked too.

    No descriptor of an existing database is opened and closed here: that would drop the
    POSIX locks of a connection that this process may have.

    Raises:
        StoreError: `store_foreign`, `store_not_private`, `state_not_local`, `folder_...`.
        OSError: the file cannot be made.
    """
    folder, name = os.path.split(path)
    kind = is_network_filesystem(folder)
    if kind is not None:
        raise StoreError(
            f"{visible(folder)} is on a network file system ({visible(kind)})",
            code="state_not_local",
            recover="set XDG_STATE_HOME to a folder on a local disk",
        )
    try:
        folder_fd = open_private_dir(folder)
    except PathProblem as error:
        raise StoreError(error.msg, code=error.code, recover=error.recover) from error
    try:
        try:
            fd = os.open(name, _CREATE, 0o600, dir_fd=folder_fd)
        except FileExistsError:
            found = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            check(found, path)
        else:
            try:
                os.fchmod(fd, 0o600)
                os.fsync(fd)
                found = os.fstat(fd)
            finally:
                os.close(fd)
            os.fsync(folder_fd)
        for suffix in COMPANIONS:
            try:
                beside = os.stat(name + suffix, dir_fd=folder_fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            check(beside, path + suffix)
        return found.st_dev, found.st_ino
    finally:
        os.close(folder_fd)


def still(path: str, identity: Identity) -> None:
    """Check that *path* is the file that was secured, after SQLite has opened it.

    Raises:
        StoreError: `store_foreign`; it was swapped in between.
    """
    found = os.lstat(path)
    if (found.st_dev, found.st_ino) != identity:
        raise _foreign(path, "was replaced while it was opened")


def copies(path: str) -> list[str]:
    """Return the copies of the database that lie beside it: of migrations and restores."""
    folder, name = os.path.split(path)
    return sorted(
        os.path.join(folder, entry)
        for entry in os.listdir(folder)
        if entry.startswith((f"{name}.before-", f"{name}.replaced-"))
    )


def sweep_copies(path: str, before_s: float) -> list[str]:
    """Remove the copies that were made before *before_s* (epoch seconds); return them."""
    removed = []
    for copy in copies(path):
        found = os.lstat(copy)
        if stat.S_ISREG(found.st_mode) and found.st_mtime < before_s:
            os.unlink(copy)
            removed.append(copy)
    return removed


def check(found: os.stat_result, path: str) -> None:
    """Raise `StoreError` unless the status is that of a regular, private file of ours."""
    if stat.S_ISLNK(found.st_mode):
        raise _foreign(path, "is a symlink")
    if not stat.S_ISREG(found.st_mode):
        raise _foreign(path, "is no regular file")
    if found.st_uid != os.geteuid():
        raise _foreign(path, f"belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_nlink != 1:
        raise _foreign(path, f"has {found.st_nlink} hard links")
    if found.st_mode & 0o077:
        raise StoreError(
            f"{visible(path)} is open to other users (mode {found.st_mode & 0o777:04o})",
            code="store_not_private",
            recover=f"chmod 600 {visible(path)}",
        )


def _foreign(path: str, why: str) -> StoreError:
    return StoreError(
        f"{visible(path)} {why}, so it is not used",
        code="store_foreign",
        recover=f"find out who put it there, and move {visible(path)} away",
    )
