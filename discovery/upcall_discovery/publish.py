"""Writing a record so that no reader ever sees half of one, and taking it away again."""

import contextlib
import errno
import os
from dataclasses import replace
from typing import Final

from upcall_discovery.paths import (
    DIRECTORY_FLAGS,
    PathProblem,
    check_private_dir,
    ensure_private_dir,
    is_network_filesystem,
    open_private_dir,
    read_at,
    shown,
    write_at,
)
from upcall_discovery.record import MAX_RECORD_BYTES, Record, encode

_IGNORE_ALL: Final = b"*\n"
_PROJECT_FOLDERS: Final = (".upcall", "state", "sdk")
_ROOT_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Publication:
    """One record in one folder, from its first writing to its withdrawal.

    Every method does disk work and belongs off the event loop. Not safe for use from two
    threads at once.

    Args:
        folder: where the record goes; made (0700) if it is missing.
        record: what to publish.
        sync: make it outlive a power cut; for records beside a project.
        parents: as in `paths.open_private_dir`; without for records beside a project.
    """

    def __init__(
        self, folder: str, record: Record, *, sync: bool, parents: bool = True
    ) -> None:
        self._folder = folder
        self._record = record
        self._sync = sync
        self._parents = parents
        self._data = b""
        self._mark: tuple[int, int, int] | None = None
        self._withdrawn = False

    @property
    def path(self) -> str:
        """The file's path."""
        return os.path.join(self._folder, self._record.file_name)

    @property
    def record(self) -> Record:
        """The record as it was last written or given."""
        return self._record

    def write(self) -> None:
        """Put the record there, whatever is there now.

        Raises:
            PathProblem: the folder is not ours alone.
            OSError: it could not be written; a former record stays.
        """
        ensure_private_dir(self._folder, parents=self._parents)
        data = encode(self._record)
        folder = open_private_dir(self._folder, parents=self._parents)
        try:
            found = write_at(self._record.file_name, data, dir_fd=folder, sync=self._sync)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error
        finally:
            os.close(folder)
        self._data, self._mark = data, _mark(found)

    def refresh(self, now_ms: int, *, touch: bool = False) -> bool:
        """Write the record again if it vanished or was changed by someone else.

        Args:
            now_ms: the wall clock, which becomes `updatedAt` if the record is written.
            touch: write in any case, for readers that look at `updatedAt`.

        Returns:
            Whether it was written. Never after `withdraw`.

        Raises:
            PathProblem: the folder is not ours alone any more.
            OSError: it could not be written.
        """
        if self._withdrawn or (not touch and self._is_untouched()):
            return False
        self._record = replace(self._record, updated_at_ms=now_ms)
        self.write()
        return True

    def withdraw(self, now_ms: int | None = None) -> None:
        """Take the record away, if it is still the one that was written.

        Where it can't be removed it is marked as stale, without its token. Repeating it
        does nothing.

        Args:
            now_ms: the wall clock for `stoppedAt`; without, the last `updatedAt`.

        Raises:
            OSError: it could neither be removed nor marked.
        """
        if self._withdrawn:
            return
        self._withdrawn = True
        try:
            folder = open_private_dir(self._folder, parents=self._parents)
        except (FileNotFoundError, PathProblem):
            # Gone, or not our folder any more: nothing in it is ours to take away.
            return
        try:
            self._remove(folder, now_ms)
        finally:
            os.close(folder)

    def _is_untouched(self) -> bool:
        try:
            return _mark(os.lstat(self.path)) == self._mark
        except OSError:
            return False

    def _remove(self, folder: int, now_ms: int | None) -> None:
        name = self._record.file_name
        try:
            data, _ = read_at(name, MAX_RECORD_BYTES, dir_fd=folder, path=self.path)
        except (FileNotFoundError, PathProblem):
            return
        if data != self._data:
            return
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY}:
                raise
            self._mark_stale(folder, now_ms)

    def _mark_stale(self, folder: int, now_ms: int | None) -> None:
        # In a folder that takes no change a file can still be written in place.
        stopped = self._record.updated_at_ms if now_ms is None else now_ms
        ended = replace(
            self._record, stale=True, token="", stopped_at_ms=stopped, updated_at_ms=stopped
        )
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(self._record.file_name, flags, dir_fd=folder)
        try:
            found = os.fstat(fd)
            if self._mark is None or (found.st_dev, found.st_ino) != self._mark[:2]:
                return
            data = encode(ended)
            os.ftruncate(fd, 0)
            os.pwrite(fd, data, 0)
        finally:
            os.close(fd)


def _mark(found: os.stat_result) -> tuple[int, int, int]:
    # The change time also moves when mode or links change.
    return found.st_dev, found.st_ino, found.st_ctime_ns


def prepare_project_folder(root: str) -> str:
    """Make and return the folder for records beside a project, `<root>/.upcall/state/sdk`.

    Before any record can be there, `<root>/.upcall/.gitignore` keeps all of it out of
    version control.

    Raises:
        PathProblem: the root or a folder below it belongs to someone else, can be written
            by others, is a symlink, or lies on a network file system.
        OSError: it cannot be made.
    """
    kind = is_network_filesystem(root)
    if kind is not None:
        raise PathProblem(
            "folder_network",
            f"{shown(root)} is on a network file system ({shown(kind)})",
            "publish into the runtime folder only",
        )
    path = os.path.abspath(root)
    fd = os.open(path, _ROOT_FLAGS)
    try:
        _check_not_writable_by_others(fd, path)
        for name in _PROJECT_FOLDERS:
            path = os.path.join(path, name)
            fd, parent = _made(fd, name, path), fd
            os.close(parent)
            _check_not_writable_by_others(fd, path)
            if name == _PROJECT_FOLDERS[0]:
                _keep_out_of_version_control(fd, path)
        check_private_dir(fd, path)
    finally:
        os.close(fd)
    return path


def _made(parent: int, name: str, path: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
            raise
        raise PathProblem(
            "folder_symlink",
            f"{shown(path)} is a symlink or no folder",
            f"remove {shown(path)}; it has to be a real folder",
        ) from error


def _check_not_writable_by_others(fd: int, path: str) -> None:
    found = os.fstat(fd)
    if found.st_uid != os.geteuid():
        raise PathProblem(
            "folder_foreign",
            f"{shown(path)} belongs to user {found.st_uid}, not to {os.geteuid()}",
            "publish into the runtime folder only",
        )
    if found.st_mode & 0o022:
        raise PathProblem(
            "folder_not_private",
            f"{shown(path)} can be written by others (mode {found.st_mode & 0o777:04o})",
            f"chmod go-w {shown(path)}",
        )


def _keep_out_of_version_control(fd: int, path: str) -> None:
    # A repository can bring a file of its own that ignores nothing.
    ignore = os.path.join(path, ".gitignore")
    try:
        ignore_fd = os.open(
            ".gitignore", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=fd
        )
    except FileNotFoundError:
        ignore_fd = -1
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO}:
            raise
        raise PathProblem(
            "file_symlink", f"{shown(ignore)} is no regular file", f"remove {shown(ignore)}"
        ) from error
    if ignore_fd >= 0:
        try:
            content = os.read(ignore_fd, 4096)
        finally:
            os.close(ignore_fd)
        if content.split() == _IGNORE_ALL.split():
            return
    write_at(".gitignore", _IGNORE_ALL, dir_fd=fd, sync=False)
