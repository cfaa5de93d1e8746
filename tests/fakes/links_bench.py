"""The hub's links with sessions of this process, on real sockets and in real folders."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from fakes.hub_shells import FakeLog, FakePort, ManualClock, running, short_folder
from upcall.core.link import SERVER_CAPABILITIES
from upcall.hub.files import SessionFiles
from upcall.hub.links import Links
from upcall.hub.processes import Processes
from upcall.model.events import Event, FrameIn, LinkSynced
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    AskHold,
    ConfigCommand,
    IdentityHeader,
    Reply,
    UserMessage,
)
from upcall.model.ids import ActionId, ConnectionId
from upcall.session.publish import make_record
from upcall.session.server import Endpoint
from upcall.session.transport import Wire
from upcall_discovery.liveness import ProcessIdentity
from upcall_discovery.publish import Publication
from upcall_discovery.record import Record

TOKEN = "t" * 32
ELSEWHERE = ProcessIdentity(1, "not-this-process")


class DeafEndpoint(Endpoint):
    """An endpoint that can be made to read without ever answering."""

    deaf = False

    def received(self, wire: Wire, data: bytes | bytearray | memoryview) -> None:
        if not self.deaf:
            super().received(wire, data)


class Session:
    """A session in this process, as a program's SDK would make one."""

    def __init__(self, session_id: str, capabilities: Sequence[str]) -> None:
        self.id = session_id
        self.asks: list[ActionNeeded] = []
        self.said: list[Any] = []
        self.on_reply: Callable[[ConnectionId, Reply], None] = lambda *_: None
        self.arrived = asyncio.Event()
        self.endpoint = DeafEndpoint(
            session_id,
            TOKEN,
            self,
            capabilities=capabilities,
            identity=IdentityHeader(session_id=session_id, repo="r", branch="b", machine="m"),
        )
        self.publications: list[Publication] = []

    @property
    def record(self) -> Record:
        return make_record(self.id, self.endpoint.port, TOKEN, now_ms=1_800_000_000_000)

    def publish(self, folder: str, record: Record | None = None) -> str:
        publication = Publication(folder, record or self.record, sync=False)
        publication.write()
        self.publications.append(publication)
        return publication.path

    def open_asks(self) -> Sequence[ActionNeeded]:
        return self.asks

    def recent_resolutions(self) -> Sequence[ActionResolved]:
        return []

    def reply(self, connection: ConnectionId, reply: Reply) -> None:
        self._heard(reply)
        self.on_reply(connection, reply)

    def hold(self, connection: ConnectionId, hold: AskHold) -> None:
        self._heard(hold)

    def user_message(self, connection: ConnectionId, message: UserMessage) -> None:
        self._heard(message)

    def config(self, connection: ConnectionId, command: ConfigCommand) -> None:
        self._heard(command)

    def other(self, connection: ConnectionId, frame: Any) -> None:
        self._heard(frame)

    def _heard(self, frame: Any) -> None:
        self.said.append(frame)
        self.arrived.set()


class Bench:
    def __init__(self, folder: str, **options: Any) -> None:
        self.state = os.path.join(folder, "state")
        self.runtime = os.path.join(folder, "run")
        os.mkdir(self.state, 0o700)
        os.makedirs(os.path.join(self.runtime, "sessions"), 0o700)
        os.chmod(self.runtime, 0o700)
        self.folder = os.path.join(self.runtime, "sessions")
        self.port = FakePort()
        self.log = FakeLog()
        self.clock = ManualClock()
        self.processes = Processes(self.clock)
        self.files = SessionFiles(self.state)
        self.links = Links(
            self.port,
            self.runtime,
            clock=self.clock,
            log=self.log,
            files=self.files,
            processes=self.processes,
            **{"own": ELSEWHERE, **options},
        )
        self.sessions: list[Session] = []
        self._again = asyncio.Event()

    async def session(
        self,
        session_id: str = "s-1",
        *asks: str,
        capabilities: Sequence[str] = SERVER_CAPABILITIES,
    ) -> Session:
        made = Session(session_id, capabilities)
        made.asks = [ask(name, session_id) for name in asks]
        await made.endpoint.start()
        self.sessions.append(made)
        return made

    async def attached(self, *asks: str, session_id: str = "s-1") -> Session:
        made = await self.session(session_id, *asks)
        made.publish(self.folder)
        count = len(self.port.of(LinkSynced))
        await self.port.next(LinkSynced, count + 1)
        return made

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that no event tells."""
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.to_thread(lambda: None)


@contextlib.asynccontextmanager
async def bench(**options: Any) -> AsyncIterator[Bench]:
    with short_folder() as folder:
        made = Bench(folder, **options)
        try:
            async with running(made.links.run(), made.processes.run()):
                yield made
        finally:
            made.processes.close()
            for session in made.sessions:
                await session.endpoint.close()


def ask(name: str, session_id: str = "s-1") -> ActionNeeded:
    return ActionNeeded(
        id=ActionId(name), kind="ask", session_id=session_id, question=f"{name}?"
    )


def frames(port: FakePort) -> list[Any]:
    return [event.frame for event in port.of(FrameIn)]


def kinds(port: FakePort, session_id: str = "s-1") -> list[type[Event]]:
    return [type(one) for one in port.events if getattr(one, "session_id", "") == session_id]
