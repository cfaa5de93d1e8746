"""The runtime folder, which others may delete: kept, or replaced by the next place."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final

from upcall.clock import Clock
from upcall.hub.lock import HubLock
from upcall.model.errors import UpcallError
from upcall.model.platform import SeamLog
from upcall.model.text import one_line
from upcall_discovery import paths

KEEP_S: Final = 2.0


class RuntimeFolder:
    """Where sessions publish, as long as one hub lives.

    Args:
        path: the folder in use; its lock is held.
        lock: the hub's lock.
        clock: time.
        log: where failures go.
        find: returns the first place that can be used, made if it is missing.
    """

    def __init__(
        self,
        path: str,
        lock: HubLock,
        *,
        clock: Clock,
        log: SeamLog,
        find: Callable[[], str] = paths.runtime_dir,
    ) -> None:
        self.path = path
        self._lock = lock
        self._clock = clock
        self._log = log
        self._find = find
        self._mark = _mark(path)

    async def keep(self, on_made: Callable[[str], Awaitable[None]]) -> None:
        """Look for ever; after the folder was deleted tell *on_made* where it is now."""
        while True:
            await self._clock.sleep(KEEP_S)
            if await self.heal():
                await on_made(self.path)

    async def heal(self) -> bool:
        """Make the folder anew if it is gone, and lock it; return whether that was so."""
        mark = _mark(self.path)
        if mark is not None and mark == self._mark:
            return False
        try:
            path = await asyncio.to_thread(self._make)
        except (UpcallError, paths.PathProblem, OSError) as error:
            self._log.error("runtime_folder_lost", error=one_line(str(error)))
            return False
        self._log.warning("runtime_folder_made_anew", path=one_line(path))
        self.path, self._mark = path, _mark(path)
        return True

    def _make(self) -> str:
        path = self._find()
        paths.ensure_private_dir(paths.sessions_dir(path))
        self._lock.move(path)
        return path


def _mark(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
