"""Which repository and branch a folder belongs to, without starting a program.

A few small files are read, and everything that is not as expected means "unknown". A folder
can lie on a file system that does not answer, so the reading is done in a thread of its own
and waited for only briefly.
"""

import asyncio
import os
import re
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from upcall.clock import Clock

_MAX_LEVELS: Final = 64
_MAX_BYTES: Final = 4096
_KEPT_S: Final = 5.0
_KEPT_FOLDERS: Final = 256
_PATIENCE_S: Final = 0.5
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_COMMIT: Final = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True)
class Workspace:
    """Repository and branch of a folder, as far as they could be told.

    Attributes:
        repo: name of the repository's folder.
        branch: branch, or the first eight digits of the commit when there is none.
    """

    repo: str | None = None
    branch: str | None = None


UNKNOWN: Final = Workspace()


def describe(folder: str) -> Workspace:
    """Return repository and branch of *folder*; reads files, never raises for them."""
    here = folder if os.path.isabs(folder) else ""
    for _ in range(_MAX_LEVELS):
        if not here:
            break
        found = _git_folder(here)
        if found is not None:
            return Workspace(_repository(here, found), _branch(found))
        above = os.path.dirname(here)
        if above == here:
            break
        here = above
    return UNKNOWN


def _git_folder(top: str) -> str | None:
    path = os.path.join(top, ".git")
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(kind):
        return path if os.path.lexists(os.path.join(path, "HEAD")) else None
    # A worktree or submodule: a file that says where the real folder is.
    text = _first_line(path)
    if text is None or not text.startswith("gitdir:"):
        return None
    return os.path.normpath(os.path.join(top, text.removeprefix("gitdir:").strip()))


def _repository(top: str, git_folder: str) -> str | None:
    # A worktree's folder has any name; its repository is the one that it belongs to.
    parent, kind = os.path.split(os.path.dirname(git_folder))
    if kind == "worktrees" and os.path.basename(parent) == ".git":
        top = os.path.dirname(parent)
    return os.path.basename(top) or None


def _branch(git_folder: str) -> str | None:
    head = _first_line(os.path.join(git_folder, "HEAD"))
    if head is None:
        return None
    if head.startswith("ref:"):
        return head.removeprefix("ref:").strip().removeprefix("refs/heads/") or None
    return head[:8] if _COMMIT.fullmatch(head) else None


def _first_line(path: str) -> str | None:
    try:
        fd = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = os.read(fd, _MAX_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)
    return data.decode("utf-8", "replace").partition("\n")[0].strip()


class Workspaces:
    """Describes folders and remembers the answers for a few seconds.

    Args:
        clock: time.
        look: what describes one folder; runs in a thread.
    """

    def __init__(self, clock: Clock, look: Callable[[str], Workspace] = describe) -> None:
        self._clock = clock
        self._look = look
        self._known: dict[str, tuple[float, Workspace]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="workspace")
        self._stuck: asyncio.Future[Workspace] | None = None

    def known(self, folder: str) -> Workspace | None:
        """Return what was found a moment ago, or None if it has to be looked up."""
        found = self._known.get(folder)
        if found is not None and self._clock.boot_s() - found[0] < _KEPT_S:
            return found[1]
        return None

    async def describe(self, folder: str) -> Workspace:
        """Return repository and branch, or unknown if the disk takes over half a second."""
        found = self.known(folder)
        if found is not None:
            return found
        if self._stuck is not None and not self._stuck.done():
            return UNKNOWN
        looking = asyncio.get_running_loop().run_in_executor(self._thread, self._look, folder)
        try:
            async with self._clock.timeout(_PATIENCE_S):
                workspace = await asyncio.shield(looking)
        except TimeoutError:
            # The thread hangs in a system call; until it returns nobody else waits for it.
            self._stuck = looking
            workspace = UNKNOWN
        if len(self._known) >= _KEPT_FOLDERS:
            self._known.clear()
        self._known[folder] = (self._clock.boot_s(), workspace)
        return workspace

    def close(self) -> None:
        """Let go of the thread; one that hangs is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
