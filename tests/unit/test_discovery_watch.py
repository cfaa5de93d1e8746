import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace

import pytest

from upcall_discovery import watch
from upcall_discovery.publish import Publication
from upcall_discovery.record import Record
from upcall_discovery.watch import POLL_S, Watch

linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux")


class Sleeper:
    """Sleeps until the test says that the time has passed."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._over.wait()
        self._over.clear()

    def pass_time(self) -> None:
        self._over.set()


@pytest.fixture
def private() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ud-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def publication(folder: Path, name: str = "one") -> Publication:
    record = Record(name, 1, "127.0.0.1", 1, "ws://127.0.0.1:1", "tok", 1, 1)
    return Publication(str(folder), record, sync=False)


async def quiet(changes: Watch) -> None:
    """Prove that nothing is due, and let everything that is under way happen."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(changes)


async def drained(changes: Watch) -> None:
    """Take the first reports of all folders."""
    for _ in changes.folders:
        await anext(changes)


@linux
@pytest.mark.asyncio
async def test_every_folder_is_reported_at_first(private: Path) -> None:
    a, b = private / "a", private / "b"
    a.mkdir()
    async with Watch([str(a), str(b), str(a)], sleep=Sleeper()) as changes:
        assert [await anext(changes), await anext(changes)] == [str(a), str(b)]
        await quiet(changes)


@linux
@pytest.mark.asyncio
async def test_a_record_that_comes_and_goes_is_reported(private: Path) -> None:
    async with Watch([str(private)], sleep=Sleeper()) as changes:
        await drained(changes)
        session = publication(private)
        session.write()
        assert await anext(changes) == str(private)
        session.withdraw()
        assert await anext(changes) == str(private)


@linux
@pytest.mark.asyncio
async def test_a_file_that_is_no_record_wakes_nobody(private: Path) -> None:
    async with Watch([str(private)], sleep=Sleeper()) as changes:
        await drained(changes)
        (private / "a.tmp").write_bytes(b"")
        (private / "a.tmp").rename(private / "b.tmp")
        (private / "b.tmp").unlink()
        await quiet(changes)


@linux
@pytest.mark.asyncio
async def test_reports_of_one_folder_are_gathered(private: Path) -> None:
    async with Watch([str(private)], sleep=Sleeper()) as changes:
        await drained(changes)
        for name in "abcdefgh":
            publication(private, name).write()
        assert await anext(changes) == str(private)
        publication(private, "i").write()
        assert await anext(changes) == str(private)


@linux
@pytest.mark.asyncio
async def test_a_missing_folder_is_reported_when_it_is_made(private: Path) -> None:
    folder = private / ".gjc" / "state" / "sdk"
    async with Watch([str(folder)], sleep=Sleeper()) as changes:
        await drained(changes)
        (private / "unrelated").mkdir()
        await quiet(changes)
        (private / ".gjc").mkdir()
        await quiet(changes)
        publication(folder).write()
        assert await anext(changes) == str(folder)
        publication(folder, "two").write()
        assert await anext(changes) == str(folder)


@linux
@pytest.mark.asyncio
async def test_a_folder_made_all_at_once_is_reported(private: Path) -> None:
    folder = private / "a" / "b" / "c" / "d"
    async with Watch([str(folder)], sleep=Sleeper()) as changes:
        await drained(changes)
        publication(folder).write()
        assert await anext(changes) == str(folder)


@linux
@pytest.mark.asyncio
async def test_a_folder_that_is_removed_and_made_anew_is_followed(private: Path) -> None:
    folder = private / "sessions"
    folder.mkdir()
    async with Watch([str(folder)], sleep=Sleeper()) as changes:
        await drained(changes)
        shutil.rmtree(folder)
        assert await anext(changes) == str(folder)
        folder.mkdir(mode=0o700)
        assert await anext(changes) == str(folder)
        publication(folder).write()
        assert await anext(changes) == str(folder)


@linux
@pytest.mark.asyncio
async def test_a_folder_that_was_moved_away_is_not_followed(private: Path) -> None:
    folder, away = private / "sessions", private / "away"
    folder.mkdir(mode=0o700)
    async with Watch([str(folder)], sleep=Sleeper()) as changes:
        await drained(changes)
        folder.rename(away)
        assert await anext(changes) == str(folder)
        publication(away).write()
        await quiet(changes)
        folder.mkdir(mode=0o700)
        assert await anext(changes) == str(folder)
        publication(folder).write()
        assert await anext(changes) == str(folder)


@linux
@pytest.mark.asyncio
async def test_all_folders_are_reported_at_intervals(private: Path) -> None:
    a, b = private / "a", private / "b"
    a.mkdir()
    sleeper = Sleeper()
    async with Watch([str(a), str(b)], rescan_s=30.0, sleep=sleeper) as changes:
        await drained(changes)
        await quiet(changes)
        sleeper.pass_time()
        assert [await anext(changes), await anext(changes)] == [str(a), str(b)]
        await quiet(changes)
        assert sleeper.asked == [30.0, 30.0]


@linux
@pytest.mark.asyncio
async def test_a_rescan_notices_that_a_parent_was_replaced(private: Path) -> None:
    root = private / "root"
    folder = root / "sdk"
    folder.mkdir(parents=True, mode=0o700)
    sleeper = Sleeper()
    async with Watch([str(folder)], sleep=sleeper) as changes:
        await drained(changes)
        root.rename(private / "old")
        folder.mkdir(parents=True, mode=0o700)
        sleeper.pass_time()
        assert await anext(changes) == str(folder)
        publication(folder).write()
        assert await anext(changes) == str(folder)


@linux
@pytest.mark.asyncio
async def test_folders_can_be_changed_at_run_time(private: Path) -> None:
    a, b = private / "a", private / "b"
    a.mkdir(mode=0o700)
    b.mkdir(mode=0o700)
    async with Watch([str(a)], sleep=Sleeper()) as changes:
        await drained(changes)
        publication(a).write()
        changes.set_folders([str(b)])
        assert await anext(changes) == str(b)
        publication(a, "two").write()
        await quiet(changes)
        publication(b).write()
        assert await anext(changes) == str(b)
        assert changes.folders == (str(b),)


@linux
@pytest.mark.asyncio
async def test_a_lost_event_makes_every_folder_due(private: Path) -> None:
    import asyncinotify

    reported: list[str] = []
    source = watch.InotifySource(reported.append)
    source.follow([str(private / "a"), str(private / "b")])
    overflow = asyncinotify.Event(None, asyncinotify.Mask.Q_OVERFLOW, 0, None)
    source._take(overflow)
    source.close()
    assert reported == [str(private / "a"), str(private / "b")]


@linux
@pytest.mark.asyncio
async def test_without_watches_folders_are_reported_more_often(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncinotify

    def none_left(self: object, path: str, mask: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(asyncinotify.Inotify, "add_watch", none_left)
    sleeper = Sleeper()
    async with Watch([str(private)], sleep=sleeper) as changes:
        await drained(changes)
        await quiet(changes)
        sleeper.pass_time()
        assert await anext(changes) == str(private)
        assert sleeper.asked[0] == POLL_S
        monkeypatch.undo()
        sleeper.pass_time()
        await quiet(changes)
        publication(private).write()
        assert await anext(changes) == str(private)
        assert sleeper.asked[2] == pytest.approx(30.0 - 2 * POLL_S)


@linux
@pytest.mark.asyncio
async def test_without_inotify_the_intervals_remain(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncinotify

    def none_left(*args: object) -> object:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncinotify, "Inotify", none_left)
    sleeper = Sleeper()
    async with Watch([str(private)], sleep=sleeper) as changes:
        await drained(changes)
        await quiet(changes)
        sleeper.pass_time()
        assert await anext(changes) == str(private)
        assert sleeper.asked[0] == POLL_S


@linux
@pytest.mark.asyncio
async def test_no_descriptor_and_no_task_is_left(private: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))

    async def fail() -> None:
        async with Watch([str(private)], sleep=Sleeper()) as changes:
            await drained(changes)
            raise RuntimeError("the body's own")

    with pytest.raises(RuntimeError, match="the body's own"):
        await fail()
    assert len(os.listdir("/proc/self/fd")) == before
    assert asyncio.all_tasks() == {asyncio.current_task()}


@linux
@pytest.mark.asyncio
async def test_the_generator_form_yields_the_same(private: Path) -> None:
    async with aclosing(watch.watch([str(private)], sleep=Sleeper())) as changes:
        assert await anext(changes) == str(private)
        publication(private).write()
        assert await anext(changes) == str(private)


class FarWatchfiles:
    """Behaves like watchfiles: refuses a missing folder, ends with its stop event."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[set[tuple[int, str]]] = asyncio.Queue()
        self.watched: list[tuple[str, ...]] = []
        self.broken = False

    async def awatch(
        self, *folders: str, stop_event: asyncio.Event, **options: object
    ) -> AsyncIterator[set[tuple[int, str]]]:
        self.watched.append(folders)
        if self.broken:
            raise RuntimeError("no watch left")
        while not stop_event.is_set():
            getting = asyncio.ensure_future(self.batches.get())
            stopping = asyncio.ensure_future(stop_event.wait())
            try:
                await asyncio.wait({getting, stopping}, return_when="FIRST_COMPLETED")
                if getting.done():
                    yield getting.result()
            finally:
                getting.cancel()
                stopping.cancel()


@pytest.mark.asyncio
async def test_other_platforms_are_watched_through_watchfiles(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = private / "a", private / "b"
    a.mkdir()
    far = FarWatchfiles()
    monkeypatch.setitem(sys.modules, "watchfiles", SimpleNamespace(awatch=far.awatch))
    monkeypatch.setattr(sys, "platform", "darwin")
    sleeper = Sleeper()
    async with Watch([str(a), str(b)], sleep=sleeper) as changes:
        await drained(changes)
        await quiet(changes)
        assert sleeper.asked == [POLL_S], "nothing reports that a missing folder is made"
        far.batches.put_nowait({(1, str(a / "one.json"))})
        assert await anext(changes) == str(a)
        b.mkdir()
        sleeper.pass_time()
        assert await anext(changes) == str(b)
        await quiet(changes)
        far.batches.put_nowait({(1, str(b / "one.json"))})
        assert await anext(changes) == str(b)
        changes.set_folders([str(b)])
        await quiet(changes)
        assert far.watched == [(str(a),), (str(a), str(b)), (str(b),)]


@pytest.mark.asyncio
async def test_a_broken_watch_is_tried_again_at_the_next_rescan_only(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = FarWatchfiles()
    far.broken = True
    monkeypatch.setitem(sys.modules, "watchfiles", SimpleNamespace(awatch=far.awatch))
    monkeypatch.setattr(sys, "platform", "darwin")
    sleeper = Sleeper()
    async with Watch([str(private)], sleep=sleeper) as changes:
        await drained(changes)
        await quiet(changes)
        assert len(far.watched) == 1
        far.broken = False
        sleeper.pass_time()
        assert await anext(changes) == str(private)
        await quiet(changes)
        assert len(far.watched) == 2
        far.batches.put_nowait({(1, str(private / "one.json"))})
        assert await anext(changes) == str(private)
