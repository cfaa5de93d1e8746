"""Stand-ins for what surrounds the hub's shells: its loop, its log, and time."""

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

from upcall.model.events import Asker, Event, Moment
from upcall.model.ids import AskId
from upcall.model.platform import Who
from upcall.model.rows import AskRow

EventT = TypeVar("EventT")


class FakeLog:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, event: str, **facts: Any) -> None:
        self.lines.append(("info", event, facts))

    def warning(self, event: str, **facts: Any) -> None:
        self.lines.append(("warning", event, facts))

    def error(self, event: str, **facts: Any) -> None:
        self.lines.append(("error", event, facts))

    def events(self) -> list[str]:
        return [event for _, event, _ in self.lines]


class ManualClock:
    """Time that moves only by `advance`."""

    def __init__(self) -> None:
        self._now_s = 1000.0
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []
        self._limits: list[tuple[float, asyncio.Timeout]] = []
        self._changed = asyncio.Event()

    def wall_ms(self) -> int:
        return 1_800_000_000_000 + int(self._now_s * 1000)

    def boot_s(self) -> float:
        return self._now_s

    async def sleep(self, duration_s: float) -> None:
        if duration_s <= 0:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append((self._now_s + duration_s, waiting))
        self._changed.set()
        await waiting

    def timeout(self, duration_s: float | None) -> asyncio.Timeout:
        limit = asyncio.timeout(None)
        if duration_s is not None:
            self._limits.append((self._now_s + duration_s, limit))
            self._changed.set()
        return limit

    def advance(self, duration_s: float) -> None:
        self._now_s += duration_s
        for due_s, waiting in self._sleeping:
            if due_s <= self._now_s and not waiting.done():
                waiting.set_result(None)
        self._sleeping = [one for one in self._sleeping if not one[1].done()]
        for due_s, limit in list(self._limits):
            if due_s <= self._now_s:
                self._limits.remove((due_s, limit))
                # Over already, or not entered: then it is nobody's.
                with contextlib.suppress(RuntimeError):
                    limit.reschedule(asyncio.get_running_loop().time())

    async def until_waited_for(self, duration_s: float) -> None:
        """Wait until somebody waits for at most *duration_s* seconds."""
        while not any(
            self._now_s < due_s <= self._now_s + duration_s
            for due_s, _ in [*self._sleeping, *self._limits]
        ):
            self._changed.clear()
            await self._changed.wait()


class FakePort:
    """Stands in for the hub's loop: keeps events, answers what it was told to."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.memory: set[str] = set()
        self.keys: dict[str, str] = {}
        self.closed: dict[str, AskRow] = {}
        self.looked_up: list[str] = []
        self.look_up: asyncio.Event | None = None
        self.controls: list[tuple[str, dict[str, Any], Who, Asker]] = []
        self.do: Callable[[str, dict[str, Any]], Any] = lambda _op, _request: {}
        self.watching: set[int] = set()
        self._arrived = asyncio.Event()
        self._random = 0

    def submit(self, event: Event) -> None:
        self.events.append(event)
        self._arrived.set()

    def moment(self) -> Moment:
        return Moment(1_800_000_000_000, 1000.0)

    def random(self, size: int) -> bytes:
        self._random += 1
        return self._random.to_bytes(size, "big")

    def is_open(self, ask_id: str) -> bool:
        return ask_id not in self.closed

    def warning(self) -> str | None:
        return None

    def in_memory(self, ask_id: str) -> bool:
        return ask_id in self.memory

    def keyed(self, key: str, asker: Asker) -> AskId | None:
        known = self.keys.get(key)
        return None if known is None else AskId(known)

    async def find_closed(self, ask_id: str) -> AskRow | None:
        self.looked_up.append(ask_id)
        self._arrived.set()
        if self.look_up is not None:
            await self.look_up.wait()
        return self.closed.get(ask_id)

    async def control(
        self, waiter: int, op: str, request: dict[str, Any], who: Who, asker: Asker
    ) -> dict[str, Any]:
        self.controls.append((op, request, who, asker))
        self._arrived.set()
        result = self.do(op, request)
        if asyncio.iscoroutine(result):
            result = await result
        return dict(result)

    def watch(self, waiter: int) -> None:
        self.watching.add(waiter)
        self._arrived.set()

    def unwatch(self, waiter: int) -> None:
        self.watching.discard(waiter)
        self._arrived.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._arrived.clear()
                await self._arrived.wait()

    async def next(self, kind: type[EventT], count: int = 1) -> EventT:
        """Return the *count*-th event of a kind, when it is there."""
        await self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]


class LineClient:
    """A client of the hub's sockets that knows nothing of the server's code."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, path: str, *, hello: bool = True) -> "LineClient":
        client = cls(*await asyncio.open_unix_connection(path, limit=2**22))
        if hello:
            client.send({"op": "hello", "protocol": 1, "version": "0.1.0"})
            answer = await client.receive()
            assert answer["ok"] is True
        return client

    @property
    def socket(self) -> socket.socket:
        found: socket.socket = self.writer.get_extra_info("socket")
        return found

    def send(self, message: Any) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(20):
            line = await self.reader.readline()
        assert line, "the hub has closed the connection"
        found: dict[str, Any] = json.loads(line)
        return found

    async def ask(self, message: Any) -> dict[str, Any]:
        self.send(message)
        return await self.receive()

    async def is_over(self) -> bool:
        async with asyncio.timeout(20):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            await self.writer.wait_closed()


@contextlib.contextmanager
def short_folder() -> Iterator[str]:
    """A private folder whose path leaves room for the names of sockets."""
    path = tempfile.mkdtemp(prefix="uc-", dir="/tmp")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.asynccontextmanager
async def running(*works: Any) -> AsyncIterator[None]:
    """Run coroutines while the block lasts."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
