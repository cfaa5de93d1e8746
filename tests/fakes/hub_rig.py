"""The hub's heart with a real kernel and a real store, scripted adapters, and whole hubs."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from fakes.clock import FakeClock
from fakes.hub_shells import LineClient
from upcall.config import ChannelConfig, Config
from upcall.core.kernel import Kernel
from upcall.core.state import ChannelInfo, KernelSettings
from upcall.hub.daemon import kernel_settings
from upcall.hub.hub import Hub
from upcall.hub.inbox import Receipts
from upcall.hub.lock import HubLock
from upcall.hub.loop import HubLoop
from upcall.hub.plugins import Loaded
from upcall.hub.store.db import Store
from upcall.model.ask import AskSpec
from upcall.model.document import Message
from upcall.model.effects import Acknowledge, Release, Send, Write
from upcall.model.events import Asker, AskRaised, Delivered, Event, Resumed
from upcall.model.ids import AskId
from upcall.model.platform import (
    Body,
    Capabilities,
    ChannelState,
    DeliveryKey,
    Finding,
    Inbox,
    Place,
    Ref,
    Seams,
    Spec,
    Who,
)
from upcall.model.rows import AskRow
from upcall_discovery import paths

T = TypeVar("T")
PATIENCE_S = 20.0
ADA = Who(identity="ada", name="Ada")
YES_NO = AskSpec(question="Deploy?", options=("yes", "no"), free_text=False)


def ask_id(number: int) -> AskId:
    return AskId(f"a{number:012d}")


def asker(pid: int = 0, **fields: Any) -> Asker:
    return Asker(pid=pid, start=f"s{pid}" if pid else "", parent="1:p", uid=1000, **fields)


def lower(message: Message, place: Place) -> Sequence[Body]:
    del place
    return (Body(msgspec.json.encode(message)),)


class Log:
    """Keeps what was logged, and lets a test wait for it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self._logged = asyncio.Event()

    def bind(self, **facts: Any) -> "Log":
        return self

    def info(self, event: str, **facts: Any) -> None:
        self.lines.append((event, facts))
        self._logged.set()

    debug = warning = error = info

    def of(self, event: str) -> list[dict[str, Any]]:
        return [facts for name, facts in self.lines if name == event]

    async def until(self, event: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not self.of(event):
                self._logged.clear()
                await self._logged.wait()


class Heart:
    """Loop, kernel, store and receipts; releases are kept instead of carried out."""

    def __init__(self, path: str, clock: FakeClock, *channels: str, **settings: Any) -> None:
        capabilities = Capabilities(text_limit=4096, repeat="harmless", own_user=True)
        infos = tuple(ChannelInfo(name, capabilities, lower) for name in channels or ("web",))
        self.settings = KernelSettings(
            operator="grace", machine="box", boot_id="boot-1", channels=infos, **settings
        )
        self.clock = clock
        self.store = Store.open(path)
        self.kernel = Kernel.load(self.settings, self.store.snapshot(clock.wall_ms()))
        self.loop = HubLoop(self.kernel, self.store, clock, os.urandom)
        self.receipts = Receipts(self.kernel, self.loop.submit, self.loop.moment, self.store)
        self.released: list[Release] = []
        self.commits_begun = 0
        self.on_commit: Callable[[], None] = lambda: None
        self._open = asyncio.Event()
        self._open.set()
        self._happened = asyncio.Event()
        self._real_commit = self.store.commit
        self.store.commit = self._commit  # type: ignore[method-assign]  # to hold it up
        self._waiters = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work while the block lasts."""
        task = asyncio.create_task(self.loop.run(self))
        self.loop.submit(Resumed(at=self.loop.moment()))
        try:
            await self.loop.settled()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.store.close()

    def release(self, release: Release) -> None:
        self.released.append(release)
        if isinstance(release, Acknowledge):
            self.receipts.acknowledge(release)
        self._happened.set()

    def hold_commits(self) -> None:
        self._open.clear()

    def let_commit(self) -> None:
        self._open.set()

    def of(self, kind: type[T]) -> list[T]:
        return [one for one in self.released if isinstance(one, kind)]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for releases or commits until *condition* holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._happened.clear()
                await self._happened.wait()

    def raise_ask(self, number: int = 1, spec: AskSpec = YES_NO, **fields: Any) -> int:
        """Submit an ask and return its waiter."""
        self._waiters += 1
        self.loop.submit(
            AskRaised(
                at=self.loop.moment(),
                waiter=self._waiters,
                ask_id=ask_id(number),
                spec=spec,
                **{"asker": asker(), "wait": False, **fields},
            )
        )
        return self._waiters

    def deliver(self, *, refs: bool = True) -> None:
        """Tell the kernel that everything that was sent has arrived."""
        for send in self.of(Send):
            row = send.delivery
            ref = f"ref-{row.id}" if row.kind == "post" and refs else None
            self.loop.submit(Delivered(at=self.loop.moment(), delivery=row.id, ref=ref))

    def row(self, number: int = 1) -> AskRow:
        found = self.kernel.find(ask_id(number))
        assert found is not None
        return found

    async def _commit(self, writes: Sequence[Write]) -> None:
        self.commits_begun += 1
        self._happened.set()
        await self._open.wait()
        self.on_commit()
        await self._real_commit(writes)
        self._happened.set()


# --- adapters ---


class NoConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An adapter's table without settings."""


class ScriptedAdapter:
    """Answers each call with the next line of a script, then with success.

    A line is an error to raise, an `asyncio.Event` to wait for, or None for success.

    Attributes:
        posts: place, body, key and number of the store's commits of each post.
    """

    def __init__(self, seams: Seams | None = None) -> None:
        self.seams = seams
        self.script: list[BaseException | asyncio.Event | None] = []
        self.runs: list[BaseException | None] = []
        self.started = 0
        self.posts: list[tuple[Place, Body, DeliveryKey]] = []
        self.edits: list[tuple[Ref, Body]] = []
        self.at_post: Callable[[], None] = lambda: None
        self.inbox: Inbox | None = None
        self._happened = asyncio.Event()

    async def run(self, inbox: Inbox) -> None:
        self.started += 1
        self.inbox = inbox
        self._happened.set()
        if self.runs:
            line = self.runs.pop(0)
            if line is None:
                return
            raise line
        inbox.state(ChannelState(hearing=True))
        await asyncio.Event().wait()

    async def post(self, place: Place, body: Body, key: DeliveryKey) -> Ref:
        self.posts.append((place, body, key))
        self.at_post()
        self._happened.set()
        await self._act()
        return Ref(f"ref:{key.key}")

    async def edit(self, ref: Ref, body: Body) -> None:
        self.edits.append((ref, body))
        self._happened.set()
        await self._act()

    async def check(self) -> Sequence[Finding]:
        return []

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._happened.clear()
                await self._happened.wait()

    def card(self, number: int = -1) -> Message:
        """Return what an edit showed."""
        return msgspec.json.decode(self.edits[number][1].data, type=Message)

    async def _act(self) -> None:
        line = self.script.pop(0) if self.script else None
        if isinstance(line, asyncio.Event):
            await line.wait()
        elif line is not None:
            raise line


def loaded(name: str, adapter: ScriptedAdapter, *, repeat: Any = "harmless") -> Loaded:
    """Return a channel that *adapter* serves."""

    def open_it(config: Any, seams: Seams) -> ScriptedAdapter:
        adapter.seams = seams
        return adapter

    spec: Spec[Any] = Spec(
        name="fake",
        config=NoConfig,
        capabilities=Capabilities(text_limit=4096, repeat=repeat, own_user=True),
        lower=lower,
        open=open_it,
    )
    return Loaded(name, spec, NoConfig(), {})


# --- whole hubs ---


class WholeHub:
    """One life of a hub in a folder, with channels of the test's own.

    Attributes:
        task: its life; awaiting it tells how it ended.
    """

    def __init__(
        self,
        root: str,
        channels: Sequence[Loaded],
        *,
        clock: FakeClock | None = None,
        config: Config | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.log = Log()
        self.state = f"{root}/s"
        self.runtime = f"{root}/r"
        for folder in (self.state, self.runtime):
            paths.ensure_private_dir(folder)
        self._lock = HubLock.acquire(self.state, self.runtime)
        self.store = Store.open(paths.db_path(self.state))
        log: Any = self.log
        config = config or Config(
            channels={one.name: ChannelConfig("fake") for one in channels}
        )
        settings = kernel_settings(config, channels, log)
        self.hub = Hub(
            kernel=Kernel.load(settings, self.store.snapshot(self.clock.wall_ms())),
            store=self.store,
            clock=self.clock,
            random=os.urandom,
            state_dir=self.state,
            runtime_dir=self.runtime,
            config=config,
            problems=[],
            loaded=channels,
            lock=self._lock,
            log=log,
        )
        self.task: asyncio.Task[None] = asyncio.create_task(self.hub.run())
        self._clients: list[LineClient] = []

    async def __aenter__(self) -> "WholeHub":
        started = asyncio.create_task(self.log.until("hub_started"))
        await asyncio.wait([started, self.task], return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            started.cancel()
            await self.close()
            self.task.result()
        await self.hub.loop.settled()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def client(self, kind: str = "control") -> LineClient:
        """Return a client of one of the two sockets."""
        ask, control = paths.socket_paths(self.state)
        client = await LineClient.connect(ask if kind == "ask" else control)
        self._clients.append(client)
        return client

    async def ended(self) -> None:
        """Wait for the end that was asked for, and see that it was a good one."""
        async with asyncio.timeout(PATIENCE_S):
            await self.task

    async def crash(self) -> None:
        """End at once, as far as a task can."""
        # A process that dies closes its sockets; a task that is cancelled amid opening one
        # would leave it to the garbage collector.
        await self.hub._hosting.settled()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.close()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        if not self.task.done():
            self.hub.ask_to_stop("the test is over")
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(self.task, return_exceptions=True)
        self.store.close_now()
        self._lock.release()


def asking(number: int, **fields: Any) -> dict[str, Any]:
    """Return an `ask` request."""
    wait = fields.pop("wait", True)
    words = {"id": ask_id(number), "question": "Deploy?", "options": ["yes", "no"], **fields}
    return {
        "id": number,
        "op": "ask",
        "ask": words,
        "session": {"name": "deploy"},
        "wait": wait,
    }


def only(events: Sequence[Event], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]
