"""The folders in which sessions publish records, followed and read when they change.

A folder whose files are the same as at the last reading is not read again: with a thousand
idle sessions the slow rescan costs one listing. While files keep changing, reading takes at
most a third of the time.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from upcall.clock import Clock
from upcall.model.text import one_line, visible
from upcall.model.views import RefusedRecord, RootView
from upcall_discovery import paths
from upcall_discovery.liveness import ProcessIdentity
from upcall_discovery.scan import Found, Scan, scan, sweep
from upcall_discovery.watch import Watch

_PROJECT_FOLDERS: Final = (
    os.path.join(".upcall", "state", "sdk"),
    os.path.join(".gjc", "state", "sdk"),
)
# Every so often a folder is read although nothing in it changed: liveness may have.
_READ_ANYWAY: Final = 20
_PAUSE_RATIO: Final = 2.0
_MAX_PAUSE_S: Final = 2.0

_Files: TypeAlias = frozenset[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a folder holds.

    Attributes:
        folder: its path.
        live: records of sessions that can be attached to.
        refused: files that are not used.
    """

    folder: str
    live: list[Found]
    refused: list[RefusedRecord]


@dataclass(slots=True)
class _Known:
    files: _Files
    unread: int
    live: int
    refused: list[RefusedRecord]


class Folders:
    """Every folder of records that the hub reads.

    Args:
        runtime: the runtime folder.
        roots: registered project folders.
        clock: time.
        rescan_s: how often folders are looked at without a sign of change.
        on_reading: called on the loop with each new reading.
        known: returns the processes of sessions that were found before.
    """

    def __init__(
        self,
        runtime: str,
        roots: Sequence[str],
        *,
        clock: Clock,
        rescan_s: float,
        on_reading: Callable[[Reading], None],
        known: Callable[[], Mapping[str, ProcessIdentity]] = dict,
    ) -> None:
        self._runtime = runtime
        self._roots = tuple(dict.fromkeys(roots))
        self._clock = clock
        self._rescan_s = rescan_s
        self._on_reading = on_reading
        self._processes = known
        self._known: dict[str, _Known] = {}
        self._due: dict[str, bool] = {}
        self._wake = asyncio.Event()
        self._watch: Watch | None = None

    @property
    def folders(self) -> list[str]:
        """All folders, the runtime folder's first."""
        beside = (os.path.join(root, sub) for root in self._roots for sub in _PROJECT_FOLDERS)
        return [paths.sessions_dir(self._runtime), *beside]

    @property
    def all_read(self) -> bool:
        """Whether every folder was read at least once."""
        return all(folder in self._known for folder in self.folders)

    def refused(self) -> list[RefusedRecord]:
        """Return what is not used, of all folders."""
        return [one for folder in self.folders for one in self._refused_in(folder)]

    def roots(self) -> list[RootView]:
        """Return the registered project folders."""
        views = []
        for root in self._roots:
            folders = [os.path.join(root, sub) for sub in _PROJECT_FOLDERS]
            refused = [one for folder in folders for one in self._refused_in(folder)]
            problem = refused[0].reason if refused else None
            if not os.path.isdir(root):
                problem = "there is no such folder"
            known = [self._known[folder] for folder in folders if folder in self._known]
            views.append(RootView(root, sum(one.live for one in known), problem))
        return views

    def set_roots(self, roots: Sequence[str]) -> None:
        """Read exactly these project folders from now on."""
        self._roots = tuple(dict.fromkeys(roots))
        self._changed()

    def set_runtime(self, runtime: str) -> None:
        """Read another runtime folder from now on."""
        self._runtime = runtime
        self._changed()

    def again(self, folder: str) -> None:
        """Read a folder soon, whether its files changed or not."""
        if folder in self._known:
            self._due[folder] = True
            self._wake.set()

    async def run(self) -> None:
        """Follow all folders until cancelled."""
        async with (
            Watch(self.folders, rescan_s=self._rescan_s, sleep=self._clock.sleep) as watch,
            asyncio.TaskGroup() as group,
        ):
            self._watch = watch
            group.create_task(self._read_due(), name="records-read")
            async for folder in watch:
                self._due.setdefault(folder, False)
                self._wake.set()

    def _refused_in(self, folder: str) -> list[RefusedRecord]:
        known = self._known.get(folder)
        return known.refused if known is not None else []

    def _project_of(self, folder: str) -> str | None:
        for root in self._roots:
            if folder in {os.path.join(root, sub) for sub in _PROJECT_FOLDERS}:
                return root
        return None

    def _changed(self) -> None:
        folders = self.folders
        for folder in [one for one in self._known if one not in folders]:
            del self._known[folder]
            self._due.pop(folder, None)
            # Sessions that were found only there are not looked for any more.
            self._on_reading(Reading(folder, [], []))
        if self._watch is not None:
            self._watch.set_folders(folders)

    async def _read_due(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                folder = next(iter(self._due))
                anyway = self._due.pop(folder)
                began_s = self._clock.boot_s()
                await self._look(folder, anyway=anyway)
                took_s = self._clock.boot_s() - began_s
                if self._due:
                    await self._clock.sleep(min(_MAX_PAUSE_S, took_s * _PAUSE_RATIO))

    async def _look(self, folder: str, *, anyway: bool) -> None:
        known = self._known.get(folder)
        former = known.files if known is not None else None
        if anyway or (known is not None and known.unread >= _READ_ANYWAY):
            former = None
        files, found = await asyncio.to_thread(
            _read,
            folder,
            former,
            self._clock.wall_ms(),
            self._project_of(folder),
            self._processes(),
        )
        if folder not in self.folders:
            return
        if found is None:
            if known is not None:
                known.unread += 1
            return
        refused = [
            # A file's name need not be UTF-8, and this goes into JSON.
            RefusedRecord(visible(one.path), one.code, one_line(one.reason))
            for one in found.refused
        ]
        self._known[folder] = _Known(files, 0, len(found.live), refused)
        self._on_reading(Reading(folder, found.live, refused))
        if found.dead or found.stale or found.leftovers:
            await asyncio.to_thread(sweep, found)


def _read(
    folder: str,
    former: _Files | None,
    now_ms: int,
    project: str | None,
    known: Mapping[str, ProcessIdentity],
) -> tuple[_Files, Scan | None]:
    """Return what is in *folder*, unless its files are those of *former*."""
    # Before the reading: what changes meanwhile makes the next look find a difference.
    files = _files(folder)
    if former is not None and files == former:
        return files, None
    return files, scan(folder, now_ms=now_ms, project=project, known=known)


def _files(folder: str) -> _Files:
    try:
        own = os.lstat(folder)
        with os.scandir(folder) as entries:
            stats = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return frozenset()
    files = {(name, found.st_ino, found.st_ctime_ns) for name, found in stats}
    # Whether the folder may be used at all is a matter of its owner and mode.
    return frozenset({*files, ("", own.st_ino, own.st_mode), ("", own.st_dev, own.st_uid)})
