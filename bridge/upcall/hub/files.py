"""Files that sessions attach, kept under names of ours.

`<state>/files/<session>/<file id>`, folders 0700, files 0600, never executable. Names and
types that a session claims stay data in the ledger. Everything here does disk work and
belongs off the event loop.
"""

import binascii
import contextlib
import os
import re
import shutil
from base64 import b64decode
from collections.abc import Callable
from typing import Final

from upcall.clock import SystemClock
from upcall.model.errors import UpcallError
from upcall.model.ids import is_session_id
from upcall.model.limits import MAX_ATTACHMENT_BYTES
from upcall.model.quotas import CODE as LIMIT_REACHED
from upcall.model.quotas import Limits, limit_words
from upcall.model.text import one_line, visible
from upcall_discovery import paths

FILE_ID_BYTES: Final = 16
HOUR_S: Final = 3600.0
_FILE_ID: Final = re.compile(r"[0-9a-f]{32}")
_CHUNK_BYTES: Final = 1024 * 1024


class FileRefused(UpcallError):
    """An attachment is not kept; the message says why."""

    code = "attachment_refused"


class SessionFiles:
    """The files of all sessions.

    Args:
        state: the hub's state folder.
        limits: how large a file, and all of one session within an hour, may be.
        wall_s: the clock that the file system writes times by, in seconds.
    """

    def __init__(
        self,
        state: str,
        limits: Limits | None = None,
        wall_s: Callable[[], float] | None = None,
    ) -> None:
        self._folder = os.path.join(state, "files")
        self._limits = limits or Limits()
        self._wall_s = wall_s or (lambda: SystemClock().wall_ms() / 1000)

    def keep_encoded(self, session_id: str, file_id: str, data: str) -> None:
        """Keep a file that came as base64.

        Raises:
            FileRefused: no base64, or too large; code `attachment_too_large`.
            OSError: it cannot be written.
        """
        if len(data) > MAX_ATTACHMENT_BYTES * 4 // 3 + 4:
            raise _too_large(len(data) * 3 // 4, MAX_ATTACHMENT_BYTES)
        try:
            content = b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise FileRefused("the attachment is not base64") from error
        self.keep(session_id, file_id, content)

    def keep(self, session_id: str, file_id: str, content: bytes) -> None:
        """Keep a file. Raises as `keep_encoded` does."""
        if len(content) > self._limits.file_bytes:
            raise self._over("file_bytes", f"the attachment has {len(content)} bytes")
        folder = self._room_for(session_id, len(content))
        paths.write_private_file(os.path.join(folder, _named(file_id)), content, sync=False)

    def keep_copy(self, session_id: str, file_id: str, path: str) -> None:
        """Keep a copy of a file that a session on this computer named.

        The file must be regular, ours, no symlink and under one name only, and nobody else
        may be able to put another file in its place.

        Raises:
            FileRefused: it is not, or it is too large.
            OSError: the copy cannot be written.
        """
        self.keep(session_id, file_id, self._content_of(path))

    def read(self, session_id: str, file_id: str) -> bytes | None:
        """Return a file's bytes, or None if there is none."""
        if not is_session_id(session_id) or not _FILE_ID.fullmatch(file_id):
            return None
        try:
            return paths.read_private_file(
                os.path.join(self._folder, session_id, file_id), self._limits.file_bytes
            )
        except (OSError, paths.PathProblem):
            return None

    def remove(self, session_id: str) -> None:
        """Remove all files of a session."""
        if not is_session_id(session_id):
            return
        with contextlib.suppress(OSError, paths.PathProblem):
            folder = paths.open_private_dir(self._folder)
            try:
                shutil.rmtree(session_id, ignore_errors=True, dir_fd=folder)
            finally:
                os.close(folder)

    def sweep(self, before_ms: int) -> int:
        """Remove files that were written before *before_ms*, and return how many."""
        removed = 0
        for name in _names(self._folder):
            path = os.path.join(self._folder, name)
            # Only in folders that are ours alone: a link in their place leads elsewhere.
            with contextlib.suppress(OSError, paths.PathProblem):
                folder = paths.open_private_dir(path)
                try:
                    removed += _sweep(folder, before_ms * 1_000_000)
                finally:
                    os.close(folder)
                os.rmdir(path)
        return removed

    def _room_for(self, session_id: str, size_bytes: int) -> str:
        if not is_session_id(session_id):
            raise FileRefused("the session's id cannot name a folder")
        paths.ensure_private_dir(self._folder)
        folder = os.path.join(self._folder, session_id)
        paths.ensure_private_dir(folder)
        kept = [_size_and_age(os.path.join(folder, name)) for name in _names(folder)]
        since_s = self._wall_s() - HOUR_S
        lately = sum(size for size, at_s in kept if at_s > since_s) + size_bytes
        if lately > self._limits.files_bytes_per_hour:
            what = f"the session's files of an hour would have {lately} bytes together"
            raise self._over("files_bytes_per_hour", what)
        all_bytes = sum(size for size, _ in kept) + size_bytes
        if all_bytes > self._limits.stored_bytes:
            what = f"the session's files would have {all_bytes} bytes together"
            raise self._over("stored_bytes", what)
        return folder

    def _content_of(self, path: str) -> bytes:
        shown = visible(one_line(path))
        if not os.path.isabs(path) or "\0" in path:
            raise FileRefused(f"{shown} is not an absolute path")
        try:
            fd = paths.open_settled_file(path, forbidden=0)
        except paths.PathProblem as problem:
            raise FileRefused(problem.msg, recover=problem.recover) from problem
        except OSError as error:
            raise FileRefused(f"{shown} cannot be read: {error.strerror}") from error
        try:
            found = os.fstat(fd)
            limit = self._limits.file_bytes
            if found.st_size > limit:
                raise self._over("file_bytes", f"{shown} has {found.st_size} bytes")
            content = bytearray()
            # It may grow meanwhile.
            while len(content) <= limit and (chunk := os.read(fd, _CHUNK_BYTES)):
                content += chunk
        finally:
            os.close(fd)
        return bytes(content)

    def _over(self, name: str, what: str) -> FileRefused:
        words = limit_words(self._limits, name, what)
        return FileRefused(words, code=LIMIT_REACHED)


def _named(file_id: str) -> str:
    if not _FILE_ID.fullmatch(file_id):
        raise FileRefused("not an id of a file")
    return file_id


def _too_large(size_bytes: int, limit_bytes: int) -> FileRefused:
    return FileRefused(
        f"the attachment has {size_bytes} bytes; the limit is {limit_bytes}",
        code="attachment_too_large",
    )


def _names(folder: str) -> list[str]:
    """Return what is in a folder of ours; nothing if it is not one."""
    try:
        fd = paths.open_private_dir(folder)
    except (OSError, paths.PathProblem):
        return []
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _size_and_age(path: str) -> tuple[int, float]:
    """Return a file's size in bytes, and when it was written, in seconds of the wall clock."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0, 0.0
    return found.st_size, found.st_mtime


def _sweep(folder: int, before_ns: int) -> int:
    removed = 0
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns < before_ns:
                os.unlink(name, dir_fd=folder)
                removed += 1
    return removed
