"""The hub's links, to real endpoints in this process and in others."""

import asyncio
import contextlib
import functools
import os
from base64 import b64encode
from collections.abc import Awaitable
from pathlib import Path

import pytest

from fakes.hub_shells import ManualClock, running
from fakes.links_bench import (
    TOKEN,
    ask,
    bench,
    frames,
    kinds,
)
from upcall.hub.link import Link
from upcall.hub.links import MISSING_S, PEER_SYNC_S, SYNC_S
from upcall.model.errors import NotSent, Uncertain
from upcall.model.events import FrameIn, LinkDown, LinkSynced, LinkUp
from upcall.model.frames import (
    ActionNeeded,
    Activity,
    FileAttachment,
    ImageAttachment,
    Reply,
    SessionClosed,
    WireFrame,
    encode,
)
from upcall.model.ids import ActionId, ConnectionId, SessionId
from upcall.session.publish import make_record
from upcall_discovery.publish import Publication
from upcall_discovery.record import Record

# --- finding and attaching ------------------------------------------------------------------


@pytest.mark.asyncio
async def test_attaches_to_what_is_there_and_hears_all_that_is_open_before_the_pong() -> None:
    async with bench() as hub:
        session = await hub.session("s-1", "one", "two", "three")
        path = session.publish(hub.folder)
        await hub.port.next(LinkSynced)
        up = hub.port.of(LinkUp)[0]
        assert (up.session_id, up.pid, up.record_path) == ("s-1", os.getpid(), path)
        assert up.pid_start == session.record.pid_start
        assert "outcomes_v1" in up.capabilities
        assert up.cwd == str(Path.cwd())
        asked = [frame.id for frame in frames(hub.port) if isinstance(frame, ActionNeeded)]
        assert asked == ["one", "two", "three"]
        assert kinds(hub.port)[0] is LinkUp
        assert kinds(hub.port)[-1] is LinkSynced
        assert hub.links.attached == 1
        assert hub.links.settled


@pytest.mark.asyncio
async def test_attaches_to_what_comes_later_and_to_what_was_there_before() -> None:
    async with bench() as hub:
        await hub.attached(session_id="s-1")
        await hub.attached(session_id="s-2")
        assert [up.session_id for up in hub.port.of(LinkUp)] == ["s-1", "s-2"]


@pytest.mark.asyncio
async def test_skips_the_records_of_its_own_process() -> None:
    async with bench(own=None) as hub:
        session = await hub.session()
        session.publish(hub.folder)
        await hub.until(lambda: hub.links.settled)
        hub.links.set_roots(["/nonexistent"])
        await hub.until(lambda: hub.links.settled)
        assert hub.links.attached == 0
        assert session.endpoint.connections == 0
        assert hub.links.refused() == []


@pytest.mark.asyncio
async def test_an_ask_raised_later_is_heard_at_once() -> None:
    async with bench() as hub:
        session = await hub.attached()
        session.endpoint.present(ask("late"))
        await hub.port.until(lambda: ask("late") in frames(hub.port))
        event = hub.port.of(FrameIn)[-1]
        assert len(event.fresh) >= 16


@pytest.mark.asyncio
async def test_a_session_speaks_for_itself_only() -> None:
    async with bench() as hub:
        session = await hub.attached()
        session.endpoint.broadcast(Activity(session_id="other", state="busy"))
        session.endpoint.broadcast(SessionClosed(session_id="other"))
        session.endpoint.broadcast(Activity(session_id="s-1", state="idle"))
        mine = Activity(session_id="s-1", state="idle")
        await hub.port.until(lambda: mine in frames(hub.port))
        assert all(frame.session_id == "s-1" for frame in frames(hub.port))


@pytest.mark.asyncio
async def test_a_peer_without_pings_is_synced_after_two_seconds() -> None:
    async with bench() as hub:
        session = await hub.session(capabilities=())
        session.publish(hub.folder)
        await hub.port.next(LinkUp)
        await hub.until(lambda: hub.links.attached == 1)
        await hub.clock.until_waited_for(PEER_SYNC_S)
        assert hub.port.of(LinkSynced) == []
        hub.clock.advance(PEER_SYNC_S)
        await hub.port.next(LinkSynced)


@pytest.mark.asyncio
async def test_attaches_only_so_many_at_a_time() -> None:
    async with bench(max_attaching=2) as hub:
        here: list[asyncio.StreamWriter] = []
        seen: list[int] = []
        arrived = asyncio.Queue[None]()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            here.append(writer)
            seen.append(len(here))
            arrived.put_nowait(None)
            # The request, and then the end when the hub gives up.
            await reader.read()

        servers = [await asyncio.start_server(silent, "127.0.0.1", 0) for _ in range(6)]
        for number, server in enumerate(servers):
            port = server.sockets[0].getsockname()[1]
            record = make_record(f"s-{number}", port, TOKEN, now_ms=1_800_000_000_000)
            Publication(hub.folder, record, sync=False).write()
        async with asyncio.timeout(20):
            for number in range(6):
                await arrived.get()
                if number:
                    assert not hub.links.settled
                    here.pop(0).close()
        assert max(seen) == 2
        assert len(seen) == 6
        for writer in here:
            writer.close()
        for server in servers:
            server.close()


@pytest.mark.asyncio
async def test_the_token_is_in_the_request_line_only_where_peers_need_it() -> None:
    async with bench() as hub:
        heads: dict[str, str] = {}
        served = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            heads["peer" if "token=" in head.split("\r\n")[0] else "ours"] = head
            served.set()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for name in ("ours", "peer"):
            served.clear()
            record = make_record(name, port, TOKEN, now_ms=1_900_000_000_000)
            if name == "peer":
                record = without_start(record)
            publication = Publication(hub.folder, record, sync=False)
            publication.write()
            async with asyncio.timeout(20):
                await served.wait()
            publication.withdraw()
        assert f"Authorization: Bearer {TOKEN}" in heads["ours"]
        assert TOKEN not in heads["ours"].split("\r\n")[0]
        assert TOKEN in heads["peer"].split("\r\n")[0]
        server.close()


def without_start(record: Record) -> Record:
    from dataclasses import replace

    return replace(record, pid_start=None)


# --- losing ---------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_dropped_handshake_is_tried_again() -> None:
    async with bench() as hub:
        session = await hub.session()
        dropped = 0

        async def drop_first(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            nonlocal dropped
            if dropped < 2:
                dropped += 1
                writer.close()
                return
            onward = await asyncio.open_connection("127.0.0.1", session.endpoint.port)
            async with asyncio.TaskGroup() as group:
                group.create_task(pumped(reader, onward[1]))
                group.create_task(pumped(onward[0], writer))

        server = await asyncio.start_server(drop_first, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        record = make_record("s-1", port, TOKEN, now_ms=1_800_000_000_000)
        session.publish(hub.folder, record)

        def waits_after(count: int) -> bool:
            return dropped == count and hub.links.unattached() == ["s-1"]

        for count in (1, 2):
            # Each time it has been tried again, and waits again.
            await hub.until(functools.partial(waits_after, count))
            await hub.clock.until_waited_for(1)
            hub.clock.advance(1)
        await hub.port.next(LinkSynced)
        assert dropped == 2
        # Never attached, so never lost.
        assert hub.port.of(LinkDown) == []
        server.close()


async def pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.mark.asyncio
async def test_a_session_that_says_that_it_ends_is_gone() -> None:
    async with bench() as hub:
        session = await hub.attached()
        session.endpoint.broadcast(SessionClosed(session_id="s-1"))
        await session.endpoint.close()
        down = await hub.port.next(LinkDown)
        assert (down.session_id, down.gone) == ("s-1", True)
        assert len(hub.port.of(LinkDown)) == 1


@pytest.mark.asyncio
async def test_a_cut_connection_is_away_and_comes_back() -> None:
    async with bench() as hub:
        session = await hub.attached("one")
        for wire in list(session.endpoint._wires.values()):
            wire.abort()
        down = await hub.port.next(LinkDown)
        assert not down.gone
        await hub.clock.until_waited_for(1)
        hub.clock.advance(1)
        await hub.port.next(LinkSynced, 2)
        assert len(hub.port.of(LinkUp)) == 2
        assert frames(hub.port).count(ask("one")) == 2


@pytest.mark.asyncio
async def test_a_new_endpoint_of_the_same_session_is_attached_to_at_once() -> None:
    async with bench() as hub:
        session = await hub.attached()
        await session.endpoint.close()
        assert not (await hub.port.next(LinkDown)).gone
        again = await hub.session("s-1")
        again.publish(hub.folder)
        # Nobody moves the clock: it is the record that tells.
        await hub.port.next(LinkSynced, 2)
        assert again.endpoint.connections == 1


@pytest.mark.asyncio
async def test_a_session_whose_record_is_withdrawn_after_the_end_is_gone() -> None:
    async with bench() as hub:
        session = await hub.attached()
        await session.endpoint.close()
        assert not (await hub.port.next(LinkDown)).gone
        session.publications[0].withdraw()
        await hub.until(lambda: not hub.links.unattached())
        await hub.clock.until_waited_for(MISSING_S)
        hub.clock.advance(MISSING_S)
        assert (await hub.port.next(LinkDown, 2)).gone


@pytest.mark.asyncio
async def test_a_deleted_record_does_not_end_a_connection() -> None:
    async with bench() as hub:
        session = await hub.attached()
        session.publications[0].withdraw()
        await hub.attached(session_id="s-2")
        assert hub.links.attached == 2
        assert hub.port.of(LinkDown) == []


@pytest.mark.asyncio
async def test_a_session_that_answers_no_ping_is_not_believed() -> None:
    async with bench() as hub:
        session = await hub.session()
        # It reads, and never answers.
        session.endpoint.deaf = True
        session.publish(hub.folder)
        await hub.port.next(LinkUp)
        await hub.until(lambda: hub.links.attached == 1)
        await hub.clock.until_waited_for(SYNC_S)
        hub.clock.advance(SYNC_S)
        assert not (await hub.port.next(LinkDown)).gone
        assert "session_silent" in hub.log.events()


# --- attachments ----------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_attachments_are_in_a_file_before_they_are_told_and_in_order() -> None:
    async with bench() as hub:
        session = await hub.attached()
        before = Activity(session_id="s-1", state="busy")
        after = Activity(session_id="s-1", state="idle")
        data = b64encode(b"picture").decode()
        for frame in (
            before,
            ImageAttachment(session_id="s-1", source="tool", mime="image/png", data=data),
            FileAttachment(session_id="s-1", name="../a.txt", data=b64encode(b"t").decode()),
            after,
        ):
            session.endpoint.broadcast(frame)
        await hub.port.until(lambda: after in frames(hub.port))
        told = hub.port.of(FrameIn)[-4:]
        assert [type(event.frame) for event in told] == [
            Activity,
            ImageAttachment,
            FileAttachment,
            Activity,
        ]
        image, file = told[1], told[2]
        assert image.file_id is not None
        assert file.file_id is not None
        assert hub.files.read("s-1", image.file_id) == b"picture"
        assert hub.files.read("s-1", file.file_id) == b"t"
        # The bytes are nowhere else.
        assert image.frame.data == file.frame.data == ""
        assert file.frame.name == "../a.txt"


@pytest.mark.asyncio
async def test_an_attachment_that_is_refused_is_told_without_a_file() -> None:
    async with bench() as hub:
        session = await hub.attached()
        session.endpoint.broadcast(FileAttachment(session_id="s-1", name="a", data="%%%"))
        session.endpoint.broadcast(FileAttachment(session_id="s-1", name="b", path="/etc"))
        await hub.port.until(lambda: len(frames(hub.port)) >= 3)
        told = [event for event in hub.port.of(FrameIn) if hasattr(event.frame, "name")]
        assert [event.file_id for event in told] == [None, None]
        assert told[1].frame.path is None
        assert hub.log.events().count("attachment_not_kept") == 2


@pytest.mark.asyncio
async def test_a_large_file_on_this_computer_is_copied_by_its_path() -> None:
    async with bench() as hub:
        session = await hub.attached()
        source = Path(hub.state, "big.bin")
        source.write_bytes(b"x" * 2_000_000)
        session.endpoint.broadcast(
            FileAttachment(session_id="s-1", name="big.bin", path=str(source))
        )
        await hub.port.until(lambda: any(event.file_id for event in hub.port.of(FrameIn)))
        (file_id,) = [event.file_id for event in hub.port.of(FrameIn) if event.file_id]
        kept = hub.files.read("s-1", file_id)
        assert kept is not None
        assert len(kept) == 2_000_000


# --- sending --------------------------------------------------------------------------------


def stored(frame: WireFrame) -> bytes:
    return encode(frame)


REPLY = Reply(id=ActionId("one"), token="", answer="Yes")


@pytest.mark.asyncio
async def test_a_reply_is_sent_with_the_sessions_token_and_was_read_when_send_returns() -> None:
    async with bench() as hub:
        session = await hub.attached("one")
        await hub.links.send("s-1", stored(REPLY))
        (reply,) = session.said
        assert (reply.id, reply.answer, reply.token) == ("one", "Yes", TOKEN)


@pytest.mark.asyncio
async def test_without_a_link_nothing_is_sent_for_certain() -> None:
    async with bench() as hub:
        with pytest.raises(NotSent):
            await hub.links.send("s-1", stored(REPLY))
        session = await hub.attached("one")
        with pytest.raises(NotSent):
            await hub.links.send("s-1", b"damaged")
        with pytest.raises(NotSent):
            await hub.links.send("s-1", b'{"type":"from_the_future"}')
        await session.endpoint.close()
        await hub.port.next(LinkDown)
        with pytest.raises(NotSent):
            await hub.links.send("s-1", stored(REPLY))
        assert session.said == []


@pytest.mark.asyncio
async def test_a_connection_that_breaks_after_the_send_leaves_it_uncertain() -> None:
    async with bench() as hub:
        session = await hub.attached("one")

        def cut(connection: ConnectionId, reply: Reply) -> None:
            session.endpoint._wires[connection].abort()

        session.on_reply = cut
        with pytest.raises(Uncertain):
            await hub.links.send("s-1", stored(REPLY))
        assert len(session.said) == 1


@pytest.mark.asyncio
async def test_a_session_that_does_not_read_leaves_it_uncertain() -> None:
    async with bench() as hub:
        session = await hub.attached("one")
        session.endpoint.deaf = True
        sending = asyncio.create_task(refused_by(hub.links.send("s-1", stored(REPLY))))
        async with running(moving(hub.clock)):
            assert await sending is Uncertain


@pytest.mark.asyncio
async def test_a_peer_without_pings_is_sent_to_all_the_same() -> None:
    async with bench() as hub:
        session = await hub.session("s-1", "one", capabilities=())
        session.publish(hub.folder)
        await hub.until(lambda: hub.links.attached == 1)
        await hub.links.send("s-1", stored(REPLY))
        async with asyncio.timeout(20):
            await session.arrived.wait()
        assert session.said[0].token == TOKEN


async def refused_by(work: Awaitable[None]) -> type[Exception] | None:
    try:
        await work
    except (NotSent, Uncertain) as error:
        return type(error)
    return None


# --- many -----------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_hundred_sessions_that_appear_at_once_are_all_attached() -> None:
    async with bench() as hub:
        made = [await hub.session(f"s-{number}", "one") for number in range(100)]
        for session in made:
            session.publish(hub.folder)
        # Only time between two readings of the folder may be asked for.
        async with running(moving(hub.clock)):
            await hub.port.next(LinkSynced, 100)
        assert hub.links.attached == 100
        assert hub.links.refused() == []


async def moving(clock: ManualClock) -> None:
    """Let time go by, half a second for each breath of the others."""
    while True:
        await asyncio.to_thread(lambda: None)
        clock.advance(0.5)


@pytest.mark.asyncio
async def test_a_session_that_is_tried_again_does_not_make_the_hub_unready() -> None:
    async with bench() as hub:
        await hub.until(lambda: hub.links.settled)
        silent = Link(hub.links, SessionId("s-9"), None)
        silent.state = "connecting"
        hub.links._links[silent.session_id] = silent
        assert not hub.links.settled
        silent.tried = True
        assert hub.links.settled
        del hub.links._links[silent.session_id]


@pytest.mark.asyncio
async def test_a_session_was_tried_once_its_first_attempt_is_over() -> None:
    async with bench() as hub:
        session = await hub.session("s-1")
        await session.endpoint.close()
        session.publish(hub.folder)
        await hub.until(lambda: any(link.tried for link in hub.links._links.values()))
        await hub.until(lambda: hub.links.settled)
