import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes.hub_shells import FakeLog, ManualClock, running, short_folder
from upcall.hub.lock import HubLock, owner_of
from upcall.hub.runtime import KEEP_S, RuntimeFolder
from upcall.model.errors import HubError

HOLDER = """
import sys
from upcall.hub.lock import HubLock
lock = HubLock.acquire(sys.argv[1], sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield Path(path)


def made(folder: Path, name: str) -> str:
    path = folder / name
    path.mkdir(mode=0o700)
    return str(path)


def test_names_pid_and_state_folder_of_the_hub_that_runs(folder: Path) -> None:
    state, runtime = made(folder, "state"), made(folder, "run")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, state, runtime],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HubError) as caught:
            HubLock.acquire(state, runtime)
        assert caught.value.code == "hub_running"
        assert str(holder.pid) in caught.value.msg
        assert state in caught.value.msg
        holder.kill()
        holder.wait()
    # The killed hub left its files, and no lock.
    HubLock.acquire(state, runtime).release()


@pytest.mark.parametrize("shared", ["state", "runtime"])
def test_one_shared_folder_is_enough_to_be_refused(folder: Path, shared: str) -> None:
    first = HubLock.acquire(made(folder, "s1"), made(folder, "r1"))
    other_state = str(folder / "s1") if shared == "state" else made(folder, "s2")
    other_runtime = str(folder / "r1") if shared == "runtime" else made(folder, "r2")
    with pytest.raises(HubError) as caught:
        HubLock.acquire(other_state, other_runtime)
    assert caught.value.code == "hub_running"
    assert str(folder / "s1") in caught.value.msg
    first.release()
    # What was taken before the refusal was let go of.
    HubLock.acquire(other_state, other_runtime).release()


def test_lock_files_are_private_whatever_the_umask(folder: Path) -> None:
    state, runtime = made(folder, "state"), made(folder, "run")
    former = os.umask(0)
    try:
        lock = HubLock.acquire(state, runtime)
    finally:
        os.umask(former)
    for place in (state, runtime):
        assert stat.S_IMODE(os.stat(Path(place) / "hub.lock").st_mode) == 0o600
        assert owner_of(place).pid == os.getpid()
        assert owner_of(place).state == state
    lock.release()


def make_symlink(path: Path, target: Path) -> None:
    path.symlink_to(target)


def make_hard_link(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def make_fifo(path: Path, target: Path) -> None:
    os.mkfifo(path, 0o600)


def make_folder(path: Path, target: Path) -> None:
    path.mkdir()


def make_open(path: Path, target: Path) -> None:
    path.touch()
    path.chmod(0o644)


@pytest.mark.parametrize(
    "make", [make_symlink, make_hard_link, make_fifo, make_folder, make_open]
)
def test_refuses_a_lock_file_that_is_not_plainly_ours(
    folder: Path, make: Callable[[Path, Path], None]
) -> None:
    state, runtime = made(folder, "state"), made(folder, "run")
    target = folder / "target"
    target.write_bytes(b"precious")
    target.chmod(0o600)
    make(Path(state) / "hub.lock", target)
    with pytest.raises(HubError) as caught:
        HubLock.acquire(state, runtime)
    assert caught.value.code == "lock_unsafe"
    assert target.read_bytes() == b"precious"


def test_locks_a_runtime_folder_that_was_made_anew(folder: Path) -> None:
    state, runtime = made(folder, "state"), made(folder, "run")
    lock = HubLock.acquire(state, runtime)
    (Path(runtime) / "hub.lock").unlink()
    Path(runtime).rmdir()
    made(folder, "run")
    lock.move(runtime)
    with pytest.raises(HubError):
        HubLock.acquire(made(folder, "s2"), runtime)
    lock.release()


@pytest.mark.asyncio
async def test_moves_to_the_next_place_when_the_runtime_folder_is_deleted(
    folder: Path,
) -> None:
    state, runtime, other = made(folder, "state"), made(folder, "run"), made(folder, "next")
    lock = HubLock.acquire(state, runtime)
    log = FakeLog()
    kept = RuntimeFolder(runtime, lock, clock=ManualClock(), log=log, find=lambda: other)
    assert not await kept.heal()
    (Path(runtime) / "hub.lock").unlink()
    Path(runtime).rmdir()
    assert await kept.heal()
    assert kept.path == other
    assert (Path(other) / "sessions").is_dir()
    assert owner_of(other).pid == os.getpid()
    assert not await kept.heal()
    lock.release()


@pytest.mark.asyncio
async def test_goes_on_without_a_runtime_folder_if_there_is_no_place(folder: Path) -> None:
    def find() -> str:
        raise OSError("no place")

    lock = HubLock.acquire(made(folder, "state"), made(folder, "run"))
    log = FakeLog()
    gone = str(folder / "gone")
    kept = RuntimeFolder(gone, lock, clock=ManualClock(), log=log, find=find)
    assert not await kept.heal()
    assert log.events() == ["runtime_folder_lost"]
    lock.release()


@pytest.mark.asyncio
async def test_looks_after_the_runtime_folder_every_two_seconds(folder: Path) -> None:
    state, runtime, other = made(folder, "state"), made(folder, "run"), made(folder, "next")
    lock = HubLock.acquire(state, runtime)
    clock = ManualClock()
    kept = RuntimeFolder(runtime, lock, clock=clock, log=FakeLog(), find=lambda: other)
    told: asyncio.Queue[str] = asyncio.Queue()
    async with running(kept.keep(told.put)):
        await clock.until_waited_for(KEEP_S)
        (Path(runtime) / "hub.lock").unlink()
        Path(runtime).rmdir()
        clock.advance(KEEP_S)
        async with asyncio.timeout(20):
            assert await told.get() == other
    lock.release()
