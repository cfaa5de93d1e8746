"""An endpoint over a real action book, and the stock `websockets` client to talk to it."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from upcall.core.actions import ActionBook, Ending, Rejected, Repeated, Taken
from upcall.core.link import Delivered
from upcall.model.ask import AskSpec
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    AskHold,
    ConfigCommand,
    Reply,
    UserMessage,
)
from upcall.model.ids import ActionId, ConnectionId
from upcall.session.client import SessionClient
from upcall.session.server import Endpoint

TOKEN = "T0ken-q7_W.x~0123456789abcdefghij"
SESSION = "s-1"


class Host:
    """Owns the asks, as an SDK session does, with time in the test's hand."""

    def __init__(self, **options: Any) -> None:
        self.book = ActionBook(SESSION)
        self.now_ms = 1_000_000
        self.endpoint = Endpoint(SESSION, TOKEN, self, **options)
        self.messages: list[UserMessage] = []
        self.configs: list[ConfigCommand] = []
        self.others: list[Delivered] = []
        self.ended: list[Ending] = []
        self._ids = itertools.count(1)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.endpoint.port}/"

    def ask(self, *options: str, **fields: Any) -> ActionId:
        action = ActionId(f"ask:{next(self._ids)}")
        repliable = fields.pop("repliable", True)
        fields.setdefault("question", f"Question {action}?")
        fields.setdefault("free_text", not options)
        spec = AskSpec(options=options, **fields)
        frame = self.book.raise_(action, spec, now_ms=self.now_ms, repliable=repliable)
        self.endpoint.present(frame)
        return action

    def conclude(self, ending: Ending | None) -> None:
        if ending is not None:
            self.ended.append(ending)
            self.endpoint.resolve(ending.resolved)

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        for ending in self.book.expire(self.now_ms):
            self.conclude(ending)

    def client(self) -> SessionClient:
        return SessionClient.connect(self.url, TOKEN)

    def open_asks(self) -> Sequence[ActionNeeded]:
        return self.book.open_asks()

    def recent_resolutions(self) -> Sequence[ActionResolved]:
        return self.book.recent_resolutions()

    def reply(self, connection: ConnectionId, reply: Reply) -> None:
        verdict = self.book.reply(connection, reply)
        match verdict:
            case Taken():
                self.conclude(verdict.ending)
            case Repeated():
                self.endpoint.send(connection, verdict.ending.resolved)
            case Rejected():
                self.endpoint.send(connection, verdict.frame)

    def hold(self, connection: ConnectionId, hold: AskHold) -> None:
        frame = self.book.hold(hold.id, hold.hold, now_ms=self.now_ms)
        if frame is not None:
            self.endpoint.present(frame)

    def user_message(self, connection: ConnectionId, message: UserMessage) -> None:
        self.messages.append(message)

    def config(self, connection: ConnectionId, command: ConfigCommand) -> None:
        self.configs.append(command)

    def other(self, connection: ConnectionId, frame: Delivered) -> None:
        self.others.append(frame)


@asynccontextmanager
async def host(**options: Any) -> AsyncIterator[Host]:
    made = Host(**options)
    await made.endpoint.start()
    try:
        yield made
    finally:
        await made.endpoint.close()


class Stock:
    """The stock client, speaking JSON."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, **frame: Any) -> None:
        await self.socket.send(json.dumps(frame))

    async def receive(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self.socket.recv())
        return frame

    async def until_pong(self, nonce: str = "n") -> list[dict[str, Any]]:
        """Ping, and return everything that comes before the pong."""
        await self.send(type="ping", nonce=nonce)
        before: list[dict[str, Any]] = []
        while (frame := await self.receive()) != {"type": "pong", "nonce": nonce}:
            before.append(frame)
        return before

    async def hello(self, *capabilities: str) -> None:
        await self.send(type="hello", protocolVersion=3, capabilities=list(capabilities))

    async def close_code(self) -> int:
        """Read until the connection is closed and return the code."""
        with pytest.raises(ConnectionClosed) as closed:
            await self._read_to_end()
        received = closed.value.rcvd
        return 1006 if received is None else received.code

    async def _read_to_end(self) -> None:
        while True:
            await self.socket.recv()


@asynccontextmanager
async def stock(made: Host, token: str = TOKEN, **options: Any) -> AsyncIterator[Stock]:
    url = f"{made.url}?token={token}"
    async with connect(url, proxy=None, compression=None, **options) as socket:
        yield Stock(socket)


async def eventually(condition: Callable[[], bool]) -> None:
    """Give the loop turns until *condition* holds; the test's time limit is the end."""
    while not condition():
        await asyncio.sleep(0)


def types(frames: Sequence[dict[str, Any]]) -> list[str]:
    return [str(frame["type"]) for frame in frames]
