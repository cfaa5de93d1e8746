"""Changes of folders of records, as an async iterator.

On Linux the kernel reports them (`asyncinotify`), elsewhere `watchfiles` does. Since a
watch can be missing or lose events, every folder is also reported at intervals: whoever
reads a folder each time it is reported misses nothing for longer than that.
"""

import asyncio
import errno
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Protocol, Self

from upcall_discovery.record import SUFFIX

Sleep = Callable[[float], Awaitable[None]]

POLL_S: Final = 2.0
"""How often what cannot be watched is looked at instead."""

_NO_WATCH_LEFT: Final = frozenset({errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class _Source(Protocol):
    """Where changes come from; `run` goes on until it is cancelled."""

    def follow(self, folders: Iterable[str]) -> None: ...

    def again(self) -> None: ...

    def is_blind(self) -> bool: ...

    def unwatched(self) -> tuple[str, ...]: ...

    async def run(self) -> None: ...

    def close(self) -> None: ...


class Watch:
    """Reports folders that changed; the folders can be changed at any time.

    Use it as an async context manager and iterate it, in one task. A folder is reported
    once when it is added, after its watch is in place, so that nothing falls between a
    first reading and the watching. Reports of one folder that nobody has taken yet are one.

    Args:
        folders: what to watch; a folder need not exist.
        rescan_s: how often every folder is reported without any change.
        sleep: waits that many seconds.
    """

    def __init__(
        self, folders: Sequence[str] = (), *, rescan_s: float = 30.0, sleep: Sleep
    ) -> None:
        self._folders = tuple(dict.fromkeys(folders))
        self._rescan_s = rescan_s
        self._sleep = sleep
        self._due: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._source: _Source | None = None
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._source = _open_source(self._report)
        self._source.follow(self._folders)
        self._report_all(self._folders)
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._tasks = [
            self._group.create_task(self._source.run(), name="discovery-watch"),
            self._group.create_task(self._rescan(), name="discovery-rescan"),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        # The group would wrap what the body raised, and ending a generator is no error of
        # ours; only a cancellation is the group's to judge.
        cancelled = isinstance(error, asyncio.CancelledError)
        try:
            if self._group is not None:
                await self._group.__aexit__(
                    kind if cancelled else None,
                    error if cancelled else None,
                    trace if cancelled else None,
                )
        finally:
            if self._source is not None:
                self._source.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while not self._due:
            self._wake.clear()
            await self._wake.wait()
        folder = next(iter(self._due))
        del self._due[folder]
        return folder

    @property
    def folders(self) -> tuple[str, ...]:
        """What is watched now."""
        return self._folders

    def set_folders(self, folders: Sequence[str]) -> None:
        """Watch exactly these folders from now on; new ones are reported once."""
        former = set(self._folders)
        self._folders = tuple(dict.fromkeys(folders))
        for gone in former.difference(self._folders):
            self._due.pop(gone, None)
        if self._source is not None:
            self._source.follow(self._folders)
            self._report_all(folder for folder in self._folders if folder not in former)

    def _report(self, folder: str) -> None:
        if folder in self._folders:
            self._due[folder] = None
            self._wake.set()

    def _report_all(self, folders: Iterable[str]) -> None:
        for folder in folders:
            self._report(folder)

    async def _rescan(self) -> None:
        source = self._source
        waited_s = 0.0
        while source is not None:
            rest_s = self._rescan_s - waited_s
            step_s = min(POLL_S, rest_s) if source.is_blind() else rest_s
            await self._sleep(step_s)
            waited_s += step_s
            source.again()
            if waited_s >= self._rescan_s:
                waited_s = 0.0
                self._report_all(self._folders)
            else:
                self._report_all(source.unwatched())


async def watch(
    folders: Sequence[str], *, rescan_s: float = 30.0, sleep: Sleep
) -> AsyncGenerator[str, None]:
    """Yield each folder at first, when it changed, and every *rescan_s* seconds.

    Close the generator (`contextlib.aclosing`) in the task that iterates it. Use `Watch`
    where folders come and go.
    """
    async with Watch(folders, rescan_s=rescan_s, sleep=sleep) as changes:
        async for folder in changes:
            yield folder


def _open_source(report: Callable[[str], None]) -> _Source:
    if sys.platform == "linux":
        try:
            return InotifySource(report)
        except OSError:
            return _NoSource()
    return WatchfilesSource(report)


class _NoSource:
    """Stands in where the system has no watch to give: reading at intervals remains."""

    def __init__(self) -> None:
        self._folders: tuple[str, ...] = ()

    def follow(self, folders: Iterable[str]) -> None:
        self._folders = tuple(folders)

    def again(self) -> None:
        pass

    def is_blind(self) -> bool:
        return True

    def unwatched(self) -> tuple[str, ...]:
        return self._folders

    async def run(self) -> None:
        pass

    def close(self) -> None:
        pass


class InotifySource:
    """Follows folders by inotify; of a missing one, the nearest parent that exists."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._kit: Any = import_module("asyncinotify")  # Any: exists on Linux only
        mask = self._kit.Mask
        # Records are renamed into place, so that what is still being written wakes nobody.
        self._own_mask = (
            mask.MOVED_TO
            | mask.MOVED_FROM
            | mask.DELETE
            | mask.DELETE_SELF
            | mask.MOVE_SELF
            | mask.ONLYDIR
            | mask.DONT_FOLLOW
            | mask.MASK_ADD
        )
        self._parent_mask = (
            mask.CREATE
            | mask.MOVED_TO
            | mask.DELETE_SELF
            | mask.MOVE_SELF
            | mask.ONLYDIR
            | mask.MASK_ADD
        )
        self._inotify = self._kit.Inotify()
        self._report = report
        self._folders: tuple[str, ...] = ()
        self._own: dict[str, Any] = {}
        self._above: dict[str, tuple[Any, str]] = {}
        self._lacking = False

    def follow(self, folders: Iterable[str]) -> None:
        """Follow exactly these folders."""
        self._folders = tuple(folders)
        for folder in [*self._own]:
            if folder not in self._folders:
                del self._own[folder]
        for folder in [*self._above]:
            if folder not in self._folders:
                del self._above[folder]
        self.again()

    def again(self) -> None:
        """Put every watch in place again; a folder may be another one by now."""
        self._lacking = False
        for folder in self._folders:
            self._arm(folder)
        self._drop_unused()

    def is_blind(self) -> bool:
        """Tell whether the system had no watch left."""
        return self._lacking

    def unwatched(self) -> tuple[str, ...]:
        """Return the folders that have no watch of their own."""
        return tuple(folder for folder in self._folders if folder not in self._own)

    async def run(self) -> None:
        """Report changes for ever."""
        while True:
            event = await self._inotify.get()
            self._take(event)

    def close(self) -> None:
        """Give all watches back."""
        self._inotify.close()

    def _take(self, event: Any) -> None:
        mask = self._kit.Mask
        if event.mask & mask.Q_OVERFLOW:
            self.again()
            for folder in self._folders:
                self._report(folder)
            return
        watch = event.watch
        if watch is None:
            return
        moved = bool(event.mask & (mask.DELETE_SELF | mask.MOVE_SELF | mask.IGNORED))
        for folder in self._folders:
            if self._own.get(folder) is watch:
                if moved:
                    # The kernel goes on with the folder that was; we want what has its name.
                    self._arm(folder)
                if moved or str(event.name).endswith(SUFFIX):
                    self._report(folder)
            elif self._is_above(folder, watch, moved, str(event.name)) and self._arm(folder):
                self._report(folder)

    def _is_above(self, folder: str, watch: Any, moved: bool, name: str) -> bool:
        parent, missing = self._above.get(folder, (None, ""))
        return parent is watch and (moved or name == missing)

    def _arm(self, folder: str) -> bool:
        """Watch the folder, else the nearest parent; tell whether it is the folder."""
        for _ in range(folder.count(os.sep) + 2):
            own = self._add(folder, self._own_mask)
            if own is not None:
                self._own[folder] = own
                self._above.pop(folder, None)
                return True
            self._own.pop(folder, None)
            parent, child = _nearest_parent(folder)
            self._above.pop(folder, None)
            above = self._add(parent, self._parent_mask)
            if above is not None:
                self._above[folder] = (above, os.path.basename(child))
            # What was made before the watch stood would never be reported.
            if above is None or not os.path.isdir(child) or os.path.islink(folder):
                return False
        return False

    def _add(self, path: str, mask: Any) -> Any:
        try:
            return self._inotify.add_watch(path, mask)
        except OSError as error:
            if error.errno in _NO_WATCH_LEFT:
                self._lacking = True
            return None

    def _drop_unused(self) -> None:
        used = {id(watch) for watch in self._own.values()}
        used |= {id(watch) for watch, _ in self._above.values()}
        for watch in self._inotify.watches:
            if id(watch) not in used:
                self._remove(watch)

    def _remove(self, watch: Any) -> None:
        try:
            self._inotify.rm_watch(watch)
        except OSError:
            # Its folder is gone, and the watch with it.
            return


def _nearest_parent(folder: str) -> tuple[str, str]:
    """Return the nearest parent that exists, and what is missing just below it."""
    child, parent = folder, os.path.dirname(folder)
    while not os.path.isdir(parent) and parent != child:
        child, parent = parent, os.path.dirname(parent)
    return parent, child


class WatchfilesSource:
    """Follows folders by watchfiles, which can't be given another folder while it runs."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._kit: Any = import_module("watchfiles")  # Any: absent on Linux
        self._report = report
        self._folders: tuple[str, ...] = ()
        self._watched: tuple[str, ...] = ()
        self._restart = asyncio.Event()
        self._closed = False

    def follow(self, folders: Iterable[str]) -> None:
        """Follow exactly these folders."""
        self._folders = tuple(folders)
        self.again()

    def again(self) -> None:
        """Start anew if other folders exist now than are watched."""
        if self._existing() != self._watched:
            self._restart.set()

    def is_blind(self) -> bool:
        """Tell whether a folder is missing, whose appearance nothing reports."""
        return len(self._watched) < len(self._folders)

    def unwatched(self) -> tuple[str, ...]:
        """Return the folders that exist and are not watched."""
        return tuple(folder for folder in self._existing() if folder not in self._watched)

    async def run(self) -> None:
        """Report changes for ever."""
        while not self._closed:
            self._restart.clear()
            self._watched = self._existing()
            if not self._watched:
                await self._restart.wait()
                continue
            changes = self._kit.awatch(
                *self._watched,
                stop_event=self._restart,
                recursive=False,
                debounce=50,
                step=10,
                watch_filter=None,
            )
            try:
                async for batch in changes:
                    self._take(batch)
                    self.again()
            except (OSError, RuntimeError):
                # A folder went away between the look and the watch, or there is no watch
                # left: the next rescan tries again.
                self._watched = ()
                await self._restart.wait()

    def close(self) -> None:
        """End watching."""
        self._closed = True
        self._restart.set()

    def _existing(self) -> tuple[str, ...]:
        return tuple(folder for folder in self._folders if os.path.isdir(folder))

    def _take(self, batch: Iterable[tuple[Any, str]]) -> None:
        real = {os.path.realpath(folder): folder for folder in self._watched}
        for _, path in batch:
            for candidate in (path, os.path.dirname(path)):
                folder = real.get(os.path.realpath(candidate))
                if folder is not None:
                    self._report(folder)
