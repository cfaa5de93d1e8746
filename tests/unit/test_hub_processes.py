import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from fakes.hub_shells import ManualClock, running
from upcall.hub.processes import POLL_S, Processes
from upcall_discovery import liveness
from upcall_discovery.liveness import ProcessIdentity


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


def identity(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = liveness.identify(process.pid)
    assert found is not None
    return found


def no_descriptor(pid: int) -> int | None:
    return None


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors of processes are Linux'")
@pytest.mark.asyncio
async def test_tells_the_end_of_a_killed_process_before_it_is_waited_for(
    child: subprocess.Popen[bytes],
) -> None:
    processes = Processes(ManualClock())
    ended: asyncio.Queue[ProcessIdentity] = asyncio.Queue()
    processes.watch(identity(child), ended.put_nowait)
    watched = identity(child)
    child.kill()
    async with asyncio.timeout(10):
        assert await ended.get() == watched
    assert len(processes) == 0


@pytest.mark.parametrize("opener", [None, no_descriptor])
@pytest.mark.asyncio
async def test_tells_of_a_process_that_has_ended_already(
    child: subprocess.Popen[bytes], opener: Callable[[int], int | None] | None
) -> None:
    processes = (
        Processes(ManualClock())
        if opener is None
        else Processes(ManualClock(), open_process=opener)
    )
    watched = identity(child)
    child.kill()
    child.wait()
    ended: asyncio.Queue[ProcessIdentity] = asyncio.Queue()
    processes.watch(watched, ended.put_nowait)
    # Never from within the call: the caller has not finished what it was doing.
    assert ended.empty()
    async with asyncio.timeout(10):
        assert await ended.get() == watched


@pytest.mark.asyncio
async def test_a_zombie_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE) as process:
        watched = identity(process)
        assert process.stdout is not None
        process.stdout.read()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        processes = Processes(ManualClock())
        ended: asyncio.Queue[ProcessIdentity] = asyncio.Queue()
        processes.watch(watched, ended.put_nowait)
        async with asyncio.timeout(10):
            assert await ended.get() == watched


@pytest.mark.asyncio
async def test_another_process_with_the_same_pid_is_not_the_one(
    child: subprocess.Popen[bytes],
) -> None:
    processes = Processes(ManualClock())
    ended: asyncio.Queue[ProcessIdentity] = asyncio.Queue()
    former = ProcessIdentity(child.pid, "00000000:1")
    processes.watch(former, ended.put_nowait)
    async with asyncio.timeout(10):
        assert await ended.get() == former


@pytest.mark.asyncio
async def test_looks_at_intervals_where_there_is_no_descriptor(
    child: subprocess.Popen[bytes],
) -> None:
    clock = ManualClock()
    processes = Processes(clock, open_process=no_descriptor)
    ended: asyncio.Queue[ProcessIdentity] = asyncio.Queue()
    watched = identity(child)
    async with running(processes.run()):
        processes.watch(watched, ended.put_nowait)
        await clock.until_waited_for(POLL_S)
        clock.advance(POLL_S)
        await clock.until_waited_for(POLL_S)
        assert ended.empty()
        child.kill()
        child.wait()
        clock.advance(POLL_S)
        async with asyncio.timeout(10):
            assert await ended.get() == watched


@pytest.mark.asyncio
async def test_tells_everybody_once_and_no_one_who_was_forgotten(
    child: subprocess.Popen[bytes],
) -> None:
    processes = Processes(ManualClock())
    first: asyncio.Queue[ProcessIdentity] = asyncio.Queue()
    second: asyncio.Queue[ProcessIdentity] = asyncio.Queue()
    take = first.put_nowait
    processes.watch(identity(child), take)
    processes.watch(identity(child), take)
    processes.watch(identity(child), second.put_nowait)
    assert len(processes) == 1
    child.kill()
    async with asyncio.timeout(10):
        await first.get()
        await second.get()
    assert first.empty()
    processes.close()


@pytest.mark.asyncio
async def test_forgets(child: subprocess.Popen[bytes]) -> None:
    processes = Processes(ManualClock())
    ended: list[ProcessIdentity] = []
    processes.watch(identity(child), ended.append)
    processes.close()
    assert len(processes) == 0
    processes.forget(ProcessIdentity(1, "x"))
    child.kill()
    child.wait()
    await asyncio.to_thread(lambda: None)
    assert ended == []
