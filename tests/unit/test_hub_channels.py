"""Channels: an adapter that fails is started again; the hub and the others live on."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.clock import FakeClock
from fakes.hub_rig import Log, ScriptedAdapter, loaded
from upcall.hub.channels import STEADY_S, Channels
from upcall.hub.controls import Screens
from upcall.hub.inbox import Receipts
from upcall.hub.plugins import Loaded
from upcall.hub.workers import Workers
from upcall.model.events import ChannelChanged, Event, Moment
from upcall.model.platform import Place
from upcall.secrets import Secret

pytestmark = pytest.mark.asyncio


class Forgotten:
    """A past of which nothing is known."""

    async def ask(self, ask_id: str) -> None:
        return None

    async def retired(self, token: str) -> None:
        return None

    async def ask_of_card(self, place: Place, ref: str) -> None:
        return None


class Rig:
    """Channels whose events are kept."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = Log()
        self.events: list[Event] = []

    def moment(self) -> Moment:
        return Moment(self.clock.wall_ms(), self.clock.boot_s())

    @asynccontextmanager
    async def running(self, *channels: Loaded) -> AsyncIterator[Channels]:
        log: Any = self.log
        nothing: Any = None
        view: Any = SimpleNamespace(keep_login=lambda _login: None)

        async def to_session(_session: str, _frame: bytes) -> None:
            raise AssertionError

        tasks = asyncio.TaskGroup()
        async with tasks:
            workers = Workers(
                tasks,
                self.events.append,
                self.moment,
                to_session,
                self.clock,
                lambda: 0.0,
                log,
            )
            made = Channels(
                workers=workers,
                receipts=Receipts(nothing, self.events.append, self.moment, Forgotten()),
                screens=Screens(lambda *_: None),
                submit=self.events.append,
                moment=self.moment,
                random=lambda count: b"r" * count,
                clock=self.clock,
                jitter=lambda: 1.0,
                log=log,
                state_dir="/state",
                machine="box",
                operator="grace",
                version="0.1.0",
            )
            for one in channels:
                made.open(one, view)
            runs = [tasks.create_task(made.run(one.name)) for one in channels]
            try:
                await self.clock.settle()
                yield made
            finally:
                for run in runs:
                    run.cancel()

    def told(self, channel: str) -> Sequence[ChannelChanged]:
        return [
            event
            for event in self.events
            if isinstance(event, ChannelChanged) and event.channel == channel
        ]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (ZeroDivisionError("bug\x1b[31m"), "ZeroDivisionError: bug"),
        (None, "it returned"),
        (asyncio.CancelledError(), "it gave up"),
        (ExceptionGroup("several", [ValueError("one")]), "ExceptionGroup"),
    ],
)
async def test_an_adapter_that_ends_is_told_and_started_again(
    failure: BaseException | None, words: str
) -> None:
    rig, adapter = Rig(), ScriptedAdapter()
    adapter.runs = [failure]
    async with rig.running(loaded("web", adapter)):
        [event] = rig.told("web")
        assert (event.hearing, event.audience) == (False, 0)
        assert event.reason is not None
        assert words in event.reason
        assert "\x1b" not in event.reason
        assert adapter.started == 1
        await rig.clock.advance(1.0)
        assert adapter.started == 2
        assert rig.told("web")[-1].hearing
    assert [line["channel"] for line in rig.log.of("adapter_ended")] == ["web"]


async def test_the_waits_between_failures_grow() -> None:
    rig, adapter = Rig(), ScriptedAdapter()
    adapter.runs = [ValueError("bad")] * 4
    async with rig.running(loaded("web", adapter)):
        for wait_s, started in ((1.0, 2), (2.0, 3), (4.0, 4), (8.0, 5)):
            await rig.clock.advance(wait_s - 0.1)
            assert adapter.started == started - 1
            await rig.clock.advance(0.1)
            assert adapter.started == started


class Steady(ScriptedAdapter):
    """Fails after a while, again and again."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    async def run(self, inbox: Any) -> None:
        self.started += 1
        await self.clock.sleep(STEADY_S + 1)
        raise ValueError("late")


async def test_one_that_ran_for_long_is_started_again_soon() -> None:
    rig = Rig()
    adapter = Steady(rig.clock)
    async with rig.running(loaded("web", adapter)):
        for started in (2, 3, 4):
            await rig.clock.advance(STEADY_S + 1)
            await rig.clock.advance(1.0)
            assert adapter.started == started
    assert [line["failures"] for line in rig.log.of("adapter_ended")] == [1, 1, 1]


async def test_one_channels_failure_is_not_another_channels() -> None:
    rig, bad, good = Rig(), ScriptedAdapter(), ScriptedAdapter()
    bad.runs = [ValueError("bad")] * 3
    async with rig.running(loaded("bad", bad), loaded("good", good)):
        await rig.clock.advance(100)
        assert good.started == 1
        assert [event.hearing for event in rig.told("good")] == [True]
        assert bad.started == 4


async def test_an_adapter_that_cannot_be_built_is_built_again() -> None:
    rig, adapter = Rig(), ScriptedAdapter()
    channel = loaded("web", adapter)
    tries = 0

    def open_it(config: Any, seams: Any) -> ScriptedAdapter:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise RuntimeError("no library")
        return adapter

    broken = replace(channel, spec=replace(channel.spec, open=open_it))
    async with rig.running(broken) as channels:
        assert channels.adapters == {}
        assert "no library" in (rig.told("web")[-1].reason or "")
        await rig.clock.advance(1.0)
        assert channels.adapters == {"web": adapter}
        assert adapter.started == 1
    assert len(rig.log.of("adapter_not_built")) == 1


async def test_the_adapter_gets_its_secrets_and_they_do_not_print() -> None:
    rig, adapter = Rig(), ScriptedAdapter()
    channel = replace(loaded("web", adapter), secrets={"token": Secret("hunter2hunter2")})
    async with rig.running(channel):
        assert adapter.seams is not None
        assert adapter.seams.secrets == {"token": "hunter2hunter2"}
        assert adapter.seams.channel == "web"
        assert "hunter2" not in repr(adapter.seams)
        assert "hunter2" not in repr(channel)


class Inbox(ScriptedAdapter):
    """Has logins of its own."""

    async def sign_in(self, action: str, browser: str | None) -> dict[str, Any]:
        return {"did": action}

    def url(self) -> str | None:
        return "http://127.0.0.1:1"


async def test_the_adapter_with_logins_is_found_among_the_others() -> None:
    rig, inbox = Rig(), Inbox()
    async with rig.running(loaded("chat", ScriptedAdapter())) as channels:
        assert channels.signs_in() is None
    rig = Rig()
    async with rig.running(loaded("chat", ScriptedAdapter()), loaded("web", inbox)) as channels:
        assert channels.signs_in() is inbox
