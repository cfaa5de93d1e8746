"""The hub's links and the records that lead to them: used, refused, followed, swept."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.hub_shells import short_folder
from fakes.links_bench import TOKEN, ask, bench, frames
from upcall.hub.links import MISSING_S
from upcall.model.events import LinkDown, LinkSynced, LinkUp
from upcall.model.frames import SessionClosed
from upcall.model.ids import SessionId
from upcall.session.publish import make_record
from upcall_discovery.publish import Publication

# --- processes ------------------------------------------------------------------------------

SERVE = """
import asyncio, os, sys
from upcall.session.publish import make_record
from upcall.session.server import Endpoint
from upcall.session.transport import Wire
from upcall_discovery.publish import Publication
async def warmed_up():
    # What is imported late could not be read any more as another user.
    await Endpoint("x", "t" * 32, Asks()).start()
class Asks:
    def open_asks(self): return []
    def recent_resolutions(self): return []
async def main():
    endpoint = Endpoint(sys.argv[2], "t" * 32, Asks())
    port = await endpoint.start()
    record = make_record(sys.argv[2], port, "t" * 32, now_ms=1_800_000_000_000)
    if sys.argv[1] != "-":
        Publication(sys.argv[1], record, sync=False).write()
    print(port, flush=True)
    await asyncio.Event().wait()
if len(sys.argv) > 3:
    asyncio.run(warmed_up())
    os.setgid(65534); os.setuid(65534)
asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def serving(
    folder: str, session_id: str, *more: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVE,
        folder,
        session_id,
        *more,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    try:
        yield process, int(await process.stdout.readline())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.asyncio
async def test_a_killed_program_is_gone_and_its_record_swept() -> None:
    async with bench() as hub, serving(hub.folder, "s-9") as (process, _):
        up = await hub.port.next(LinkUp)
        assert up.pid == process.pid
        await hub.port.next(LinkSynced)
        process.kill()
        # Nobody moves the clock: the end of the connection and of the process tell.
        await hub.port.until(lambda: any(down.gone for down in hub.port.of(LinkDown)))
        assert [down.gone for down in hub.port.of(LinkDown)][-1] is True
        await process.wait()
        await hub.until(lambda: os.listdir(hub.folder) == [])


@pytest.mark.asyncio
async def test_a_program_that_died_while_the_hub_was_away_is_told_as_gone() -> None:
    async with bench() as hub:
        hub.links.expect(SessionId("s-1"), os.getpid(), "00000000:1")
        down = await hub.port.next(LinkDown)
        assert (down.session_id, down.gone) == ("s-1", True)


@pytest.mark.asyncio
async def test_a_program_that_lives_has_ten_seconds_to_show_its_record() -> None:
    async with bench() as hub:
        session = await hub.session("s-1")
        start = session.record.pid_start
        assert start is not None
        hub.links.expect(SessionId("s-1"), os.getpid(), start)
        hub.links.expect(SessionId("s-2"), os.getpid(), start)
        session.publish(hub.folder)
        await hub.port.next(LinkSynced)
        await hub.clock.until_waited_for(MISSING_S)
        hub.clock.advance(MISSING_S)
        down = await hub.port.next(LinkDown)
        assert (down.session_id, down.gone) == ("s-2", True)
        assert hub.links.attached == 1


@pytest.mark.foreign_uid
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a child as another user")
@pytest.mark.asyncio
async def test_another_users_listener_never_gets_the_token() -> None:
    async with bench() as hub, serving("-", "s-9", "foreign") as (_, port):
        record = make_record("s-9", port, TOKEN, now_ms=1_800_000_000_000)
        Publication(hub.folder, record, sync=False).write()
        await hub.until(lambda: bool(hub.links.refused()))
        (refused,) = hub.links.refused()
        assert refused.code == "record_foreign_listener"
        assert hub.port.of(LinkUp) == []


# --- records that are not used --------------------------------------------------------------


@pytest.mark.asyncio
async def test_says_why_a_record_is_not_used_until_it_is_mended() -> None:
    async with bench() as hub:
        session = await hub.session()
        path = session.publish(hub.folder)
        await hub.port.next(LinkSynced)
        bad = Path(hub.folder, "bad.json")
        (Path(hub.folder) / "bad.tmp").write_text("{}")
        (Path(hub.folder) / "bad.tmp").rename(bad)
        bad.chmod(0o644)
        await hub.until(lambda: bool(hub.links.refused()))
        (refused,) = hub.links.refused()
        assert refused.path == str(bad)
        assert refused.code.startswith("record_")
        bad.unlink()
        await hub.until(lambda: hub.links.refused() == [])
        assert path


@pytest.mark.asyncio
async def test_a_second_record_with_a_known_id_is_refused_until_the_first_is_gone() -> None:
    with short_folder() as root:
        async with bench() as hub:
            first = await hub.attached("one")
            second = await hub.session("s-1", "two")
            beside = os.path.join(root, ".upcall", "state", "sdk")
            path = second.publish(beside)
            hub.links.set_roots([root])
            await hub.until(lambda: bool(hub.links.refused()))
            (refused,) = hub.links.refused()
            assert (refused.path, refused.code) == (path, "duplicate_session")
            assert first.publications[0].path in refused.reason
            assert second.endpoint.connections == 0
            assert ask("two") not in frames(hub.port)
            first.endpoint.broadcast(SessionClosed(session_id="s-1"))
            first.publications[0].withdraw()
            await first.endpoint.close()
            await hub.port.next(LinkSynced, 2)
            assert ask("two") in frames(hub.port)
            await hub.until(lambda: hub.links.refused() == [])


@pytest.mark.asyncio
async def test_a_record_with_the_id_of_a_hosted_session_is_refused() -> None:
    async with bench(is_hosted=lambda session_id: session_id == "s-1") as hub:
        session = await hub.session()
        session.publish(hub.folder)
        await hub.until(lambda: bool(hub.links.refused()))
        assert hub.links.refused()[0].code == "duplicate_session"
        assert session.endpoint.connections == 0


@pytest.mark.asyncio
async def test_one_endpoint_published_in_two_places_is_one_session() -> None:
    with short_folder() as root:
        async with bench(roots=[root]) as hub:
            session = await hub.attached()
            session.publish(os.path.join(root, ".gjc", "state", "sdk"))
            await hub.until(lambda: hub.links.roots()[0].records == 1)
            assert hub.links.refused() == []
            assert len(hub.port.of(LinkUp)) == 1
            assert session.endpoint.connections == 1


@pytest.mark.asyncio
async def test_registered_projects_are_read_and_told() -> None:
    with short_folder() as root:
        async with bench() as hub:
            session = await hub.session()
            session.publish(os.path.join(root, ".gjc", "state", "sdk"))
            hub.links.set_roots([root, "/no/such/root"])
            await hub.port.next(LinkSynced)
            await hub.until(lambda: hub.links.settled)
            here, nowhere = hub.links.roots()
            assert (here.path, here.records, here.problem) == (root, 1, None)
            assert nowhere.problem is not None


@pytest.mark.asyncio
async def test_follows_another_runtime_folder() -> None:
    with short_folder() as other:
        async with bench() as hub:
            hub.links.set_runtime(other)
            session = await hub.session()
            session.publish(os.path.join(other, "sessions"))
            await hub.port.next(LinkSynced)
