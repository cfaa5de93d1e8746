"""Sessions that the hub hosts: real endpoints, records and clients."""

import asyncio
import contextlib
import json
import os
import shutil
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.hub_shells import FakeLog, FakePort, ManualClock, running, short_folder
from upcall.hub.hosting import CHECK_S, Hosting
from upcall.model.errors import TransportError
from upcall.model.events import HostedReply
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    AskHold,
    ConfigCommand,
    Frame,
    Hello,
    IdentityHeader,
    Ping,
    Pong,
    Reply,
    ReplyRejected,
    SessionClosed,
    Unknown,
    UserMessage,
    WireFrame,
)
from upcall.model.ids import ActionId, SessionId
from upcall.model.rows import SessionRow
from upcall.session.client import Connection, open_connection
from upcall_discovery import liveness
from upcall_discovery.record import Record, parse

SESSION = SessionId("s0123456789ab")


class HostPort(FakePort):
    """The hub's loop, with asks of hosted sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.asks: list[ActionNeeded] = []
        self.resolved: list[ActionResolved] = []

    def asks_of(self, session_id: SessionId) -> list[ActionNeeded]:
        return [ask for ask in self.asks if ask.session_id == session_id]

    def resolved_of(self, session_id: SessionId) -> list[ActionResolved]:
        return self.resolved

    def random(self, size: int) -> bytes:
        return os.urandom(size)


class Client:
    """A client of an endpoint."""

    def __init__(self) -> None:
        self.frames: list[Frame | Unknown] = []
        self.over = asyncio.Event()
        self.connection: Connection | None = None
        self._arrived = asyncio.Event()

    @classmethod
    async def connect(cls, record: Record, *capabilities: str) -> "Client":
        client = cls()
        client.connection = await open_connection(
            record.url,
            record.token,
            on_frame=client._take,
            on_close=lambda _: client.over.set(),
        )
        client.connection.send(Hello(protocol_version=3, capabilities=capabilities))
        await client.synced()
        return client

    def _take(self, frame: Frame | Unknown) -> None:
        self.frames.append(frame)
        self._arrived.set()

    def send(self, frame: WireFrame) -> None:
        assert self.connection is not None
        self.connection.send(frame)

    async def synced(self) -> None:
        self.send(Ping(nonce="n"))
        await self.until(lambda: Pong(nonce="n") in self.frames)
        self.frames.remove(Pong(nonce="n"))

    async def until(self, condition: "object") -> None:
        assert callable(condition)
        async with asyncio.timeout(20):
            while not condition():
                self._arrived.clear()
                await self._arrived.wait()

    def of(self, kind: type) -> list[Frame | Unknown]:
        return [frame for frame in self.frames if isinstance(frame, kind)]


class Bench:
    def __init__(self, runtime: str) -> None:
        self.runtime = runtime
        self.port = HostPort()
        self.log = FakeLog()
        self.clock = ManualClock()
        self.hosting = Hosting(self.port, runtime, clock=self.clock, log=self.log)
        self.clients: list[Client] = []

    @property
    def folder(self) -> Path:
        return Path(self.runtime, "sessions")

    def record(self, session_id: str = SESSION) -> Record:
        name = f"{session_id}.json"
        return parse((self.folder / name).read_bytes(), name)

    async def client(self, *capabilities: str) -> Client:
        client = await Client.connect(self.record(), *capabilities)
        self.clients.append(client)
        return client


@contextlib.asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    with short_folder() as runtime:
        made = Bench(runtime)
        async with running(made.hosting.run()):
            try:
                yield made
            finally:
                for client in made.clients:
                    if client.connection is not None:
                        await client.connection.close()


def row(session_id: str = SESSION) -> SessionRow:
    return SessionRow(
        session_id=SessionId(session_id),
        kind="hosted",
        conversation="c",
        title="Nightly",
        repo="shop",
        branch="main",
        machine="box",
    )


def ask(name: str, session_id: str = SESSION) -> ActionNeeded:
    return ActionNeeded(
        id=ActionId(name), kind="ask", session_id=session_id, question=f"{name}?"
    )


@pytest.mark.asyncio
async def test_a_hosted_session_has_a_private_record_and_an_endpoint_that_answers() -> None:
    async with bench() as hub:
        hub.port.asks = [ask("one"), ask("two"), ask("other", "s2")]
        hub.port.resolved = [ActionResolved(id=ActionId("zero"), resolved_by="client")]
        hub.hosting.host(row())
        await hub.hosting.settled()
        path = hub.folder / f"{SESSION}.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(hub.folder.stat().st_mode) == 0o700
        record = hub.record()
        own = liveness.identify(os.getpid())
        assert own is not None
        assert (record.pid, record.pid_start) == (own.pid, own.start)
        assert len(record.token) == 32
        client = await hub.client("parallel_asks_v1")
        assert client.of(ActionNeeded) == [ask("one"), ask("two")]
        assert client.of(ActionResolved) == hub.port.resolved
        assert client.of(IdentityHeader) == [
            IdentityHeader(
                session_id=SESSION, repo="shop", branch="main", machine="box", title="Nightly"
            )
        ]
        assert hub.hosting.connections == 1
        assert SESSION in hub.hosting


@pytest.mark.asyncio
async def test_frames_go_to_one_client_or_to_all() -> None:
    async with bench() as hub:
        hub.hosting.host(row())
        await hub.hosting.settled()
        first = await hub.client("parallel_asks_v1")
        second = await hub.client("parallel_asks_v1")
        hub.port.asks = [ask("one")]
        hub.hosting.to_clients(SESSION, ask("one"))
        await first.until(lambda: first.of(ActionNeeded))
        await second.until(lambda: second.of(ActionNeeded))
        first.send(Reply(id=ActionId("one"), token=hub.record().token, answer="x"))
        event = await hub.port.next(HostedReply)
        rejected = ReplyRejected(id=ActionId("one"), reason="resolver_unavailable")
        hub.hosting.to_clients(SESSION, rejected, event.connection)
        await first.until(lambda: first.of(ReplyRejected))
        hub.port.asks = []
        resolved = ActionResolved(id=ActionId("one"), resolved_by="local")
        hub.hosting.to_clients(SESSION, resolved)
        await second.until(lambda: second.of(ActionResolved))
        assert second.of(ReplyRejected) == []


@pytest.mark.asyncio
async def test_what_clients_say_becomes_events_if_they_have_the_token() -> None:
    async with bench() as hub:
        hub.hosting.host(row())
        await hub.hosting.settled()
        token = hub.record().token
        client = await hub.client()
        said = [
            Reply(id=ActionId("one"), token=token, answer="x"),
            AskHold(id=ActionId("one"), token=token, hold=True),
            UserMessage(session_id=SESSION, text="go on", token=token),
            ConfigCommand(session_id=SESSION, token=token, redact=True),
        ]
        client.send(Reply(id=ActionId("one"), token="wrong", answer="x"))
        for frame in said:
            client.send(frame)
        await hub.port.next(HostedReply, 4)
        events = hub.port.of(HostedReply)
        assert [event.frame for event in events] == said
        assert {event.session_id for event in events} == {SESSION}
        assert len({event.connection for event in events}) == 1


@pytest.mark.asyncio
async def test_an_ended_session_says_so_and_leaves_no_record() -> None:
    async with bench() as hub:
        hub.hosting.host(row())
        await hub.hosting.settled()
        record = hub.record()
        client = await hub.client()
        hub.hosting.unhost(SESSION)
        async with asyncio.timeout(20):
            await client.over.wait()
        assert client.of(SessionClosed) == [SessionClosed(session_id=SESSION)]
        await hub.hosting.settled()
        assert list(hub.folder.iterdir()) == []
        with pytest.raises(TransportError):
            await Client.connect(record)
        assert len(hub.hosting) == 0


@pytest.mark.asyncio
async def test_a_session_that_is_over_at_once_never_gets_an_endpoint() -> None:
    async with bench() as hub:
        hub.hosting.host(row())
        hub.hosting.unhost(SESSION)
        hub.hosting.to_clients(SESSION, ask("one"))
        await hub.hosting.settled()
        assert not hub.folder.exists() or list(hub.folder.iterdir()) == []


@pytest.mark.asyncio
async def test_hosting_twice_is_hosting_once() -> None:
    async with bench() as hub:
        hub.hosting.host(row())
        await hub.hosting.settled()
        former = hub.record()
        hub.hosting.host(row())
        await hub.hosting.settled()
        assert hub.record() == former


@pytest.mark.asyncio
async def test_hosted_again_after_the_end_with_another_token() -> None:
    async with bench() as hub:
        hub.hosting.host(row())
        await hub.hosting.settled()
        former = hub.record()
        hub.hosting.unhost(SESSION)
        hub.hosting.host(row())
        await hub.hosting.settled()
        assert hub.record().token != former.token
        client = await hub.client()
        assert client.of(IdentityHeader)


@pytest.mark.parametrize("lost", ["record", "folder"])
@pytest.mark.asyncio
async def test_a_record_that_vanished_comes_back(lost: str) -> None:
    async with bench() as hub:
        hub.hosting.host(row())
        await hub.hosting.settled()
        former = hub.record()
        if lost == "record":
            (hub.folder / f"{SESSION}.json").unlink()
        else:
            shutil.rmtree(hub.folder)
        await hub.clock.until_waited_for(CHECK_S)
        hub.clock.advance(CHECK_S)
        # The next look is asked for only when this one is done.
        await hub.clock.until_waited_for(CHECK_S)
        assert (hub.record().token, hub.record().port) == (former.token, former.port)


@pytest.mark.asyncio
async def test_records_move_with_the_runtime_folder() -> None:
    with short_folder() as other:
        async with bench() as hub:
            hub.hosting.host(row())
            await hub.hosting.settled()
            await hub.hosting.move(other)
            hub.hosting.host(row("s1"))
            await hub.hosting.settled()
            assert list(hub.folder.iterdir()) == []
            names = sorted(path.name for path in Path(other, "sessions").iterdir())
            assert names == sorted([f"{SESSION}.json", "s1.json"])


@pytest.mark.asyncio
async def test_a_folder_that_cannot_be_used_costs_the_record_only() -> None:
    async with bench() as hub:
        hub.folder.mkdir()
        hub.folder.chmod(0o755)
        hub.hosting.host(row())
        await hub.hosting.settled()
        assert hub.log.events() == ["record_not_kept"]
        hub.hosting.unhost(SESSION)
        await hub.hosting.settled()


@pytest.mark.asyncio
async def test_the_hubs_end_takes_records_away_without_saying_that_sessions_end() -> None:
    with short_folder() as runtime:
        hub = Bench(runtime)
        async with running(hub.hosting.run()):
            hub.hosting.host(row())
            await hub.hosting.settled()
            client = await hub.client()
        async with asyncio.timeout(20):
            await client.over.wait()
        assert client.of(SessionClosed) == []
        assert list(hub.folder.iterdir()) == []


@pytest.mark.asyncio
async def test_the_record_has_the_shape_that_peers_read() -> None:
    async with bench() as hub:
        hub.hosting.host(row())
        await hub.hosting.settled()
        found = json.loads((hub.folder / f"{SESSION}.json").read_text())
        assert found["version"] == 1
        assert found["sessionId"] == SESSION
        assert found["url"] == f"ws://127.0.0.1:{found['port']}"
        assert found["stale"] is False


@pytest.mark.asyncio
async def test_a_client_of_the_old_kind_is_shown_one_ask_at_a_time() -> None:
    async with bench() as hub:
        hub.port.asks = [ask("one")]
        hub.hosting.host(row())
        await hub.hosting.settled()
        client = await hub.client()
        hub.port.asks = [ask("one"), ask("two")]
        hub.hosting.to_clients(SESSION, ask("two"))
        await client.synced()
        assert client.of(ActionNeeded) == [ask("one")]
        hub.port.asks = [ask("two")]
        hub.hosting.to_clients(SESSION, ActionResolved(id=ActionId("one"), resolved_by="local"))
        await client.synced()
        assert client.of(ActionNeeded) == [ask("one"), ask("two")]
