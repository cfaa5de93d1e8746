"""Which folders are read again, and when."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.hub_shells import ManualClock, running, short_folder
from upcall.hub.records import Folders, Reading
from upcall.session.publish import make_record
from upcall_discovery.publish import Publication

RESCAN_S = 30.0


class Bench:
    def __init__(self, runtime: str) -> None:
        self.folder = Path(runtime, "sessions")
        self.folder.mkdir(mode=0o700)
        self.clock = ManualClock()
        self.readings: list[Reading] = []
        self.folders = Folders(
            runtime, (), clock=self.clock, rescan_s=RESCAN_S, on_reading=self._take
        )
        self._changed = asyncio.Event()

    def _take(self, reading: Reading) -> None:
        self.readings.append(reading)
        self._changed.set()

    def publish(self, session_id: str, port: int = 9) -> Publication:
        record = make_record(session_id, port, "t" * 32, now_ms=1_800_000_000_000)
        publication = Publication(str(self.folder), record, sync=False)
        publication.write()
        return publication

    async def read(self, count: int) -> Reading:
        async with asyncio.timeout(20):
            while len(self.readings) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.readings[count - 1]

    async def rescan(self) -> None:
        await self.clock.until_waited_for(RESCAN_S)
        self.clock.advance(RESCAN_S)
        await self.clock.until_waited_for(RESCAN_S)
        # What was reported is looked at before anything that comes after it.
        for _ in range(5):
            await asyncio.to_thread(lambda: None)


@contextlib.asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    with short_folder() as runtime:
        made = Bench(runtime)
        async with running(made.folders.run()):
            yield made


@pytest.mark.asyncio
async def test_a_folder_that_did_not_change_is_not_read_again() -> None:
    async with bench() as hub:
        await hub.read(1)
        assert hub.folders.all_read
        for _ in range(3):
            await hub.rescan()
        assert len(hub.readings) == 1
        hub.publish("s-1")
        assert [found.record.session_id for found in (await hub.read(2)).live] == ["s-1"]


@pytest.mark.asyncio
async def test_a_folder_is_read_anyway_when_asked_for_and_once_in_a_while() -> None:
    async with bench() as hub:
        await hub.read(1)
        hub.folders.again(str(hub.folder))
        await hub.read(2)
        hub.folders.again("/not/followed")
        for _ in range(25):
            await hub.rescan()
        await hub.read(3)
        assert len(hub.readings) == 3


@pytest.mark.asyncio
async def test_a_folder_whose_mode_was_mended_is_read_by_the_next_rescan() -> None:
    async with bench() as hub:
        hub.folder.chmod(0o750)
        await hub.read(1)
        hub.folders.again(str(hub.folder))
        await hub.read(2)
        (refused,) = hub.folders.refused()
        assert refused.code == "folder_not_private"
        hub.folder.chmod(0o700)
        await hub.rescan()
        assert (await hub.read(3)).refused == []
        assert hub.folders.refused() == []


@pytest.mark.asyncio
async def test_a_folder_that_is_not_followed_any_more_is_told_as_empty() -> None:
    with short_folder() as root:
        async with bench() as hub:
            await hub.read(1)
            hub.folders.set_roots([root])
            await hub.read(3)
            assert hub.folders.all_read
            assert [view.path for view in hub.folders.roots()] == [root]
            hub.folders.set_roots([])
            last = (await hub.read(5)).folder
            assert last.startswith(root)
            assert hub.folders.folders == [str(hub.folder)]
            assert os.path.isdir(root)
