"""Workers: every way in which a call can end is told to the kernel, and none is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fakes.clock import FakeClock
from fakes.hub_rig import Log, ScriptedAdapter, ask_id
from upcall.hub.workers import CALL_LIMIT_S, Workers
from upcall.model.effects import Send
from upcall.model.errors import DeliveryError, NotSent, Refused, Throttled, Uncertain
from upcall.model.events import Delivered, DeliveryFailed, Event, Moment
from upcall.model.rows import DeliveryKind, DeliveryRow

pytestmark = pytest.mark.asyncio


class Rig:
    """Workers with one channel, `web`, and one session, `s1`."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = Log()
        self.adapter = ScriptedAdapter()
        self.events: list[Event] = []
        self.frames: list[tuple[str, bytes]] = []
        self.to_session: list[BaseException] = []
        self._happened = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Workers]:
        async with asyncio.TaskGroup() as tasks:
            log: Any = self.log
            workers = Workers(
                tasks,
                self._submit,
                lambda: Moment(self.clock.wall_ms(), self.clock.boot_s()),
                self._to_session,
                self.clock,
                lambda: 0.25,
                log,
            )
            workers.know("web", self.adapter)
            yield workers

    async def event(self) -> Event:
        """Return the one event that came back."""
        async with asyncio.timeout(20):
            while not self.events:
                self._happened.clear()
                await self._happened.wait()
        [event] = self.events
        return event

    async def failure(self) -> DeliveryFailed:
        event = await self.event()
        assert isinstance(event, DeliveryFailed)
        return event

    def _submit(self, event: Event) -> None:
        self.events.append(event)
        self._happened.set()

    async def _to_session(self, session_id: str, frame: bytes) -> None:
        self.frames.append((session_id, frame))
        if self.to_session:
            raise self.to_session.pop(0)


def send(
    kind: DeliveryKind = "post", target: str = "web", *, body: bytes = b"{}", attempt: int = 1
) -> Send:
    return Send(
        DeliveryRow(
            id=7,
            effect="post:a:web:0",
            kind=kind,
            lane="ask",
            target=target,
            place="c",
            state="sending",
            body=body,
            ask_id=ask_id(1),
            ref="ref-1" if kind == "edit" else None,
            attempt=attempt,
        )
    )


async def test_a_post_that_arrives_comes_back_with_its_ref() -> None:
    rig = Rig()
    async with rig.running() as workers:
        workers.send(send(attempt=2))
        assert await rig.event() == Delivered(
            at=Moment(rig.clock.wall_ms(), rig.clock.boot_s()),
            delivery=7,
            ref="ref:post:a:web:0",
        )
    [(place, body, key)] = rig.adapter.posts
    assert (place.channel, place.address) == ("web", "c")
    assert body.data == b"{}"
    assert (key.key, key.attempt) == ("post:a:web:0", 2)


async def test_an_edit_goes_to_the_card_that_was_posted() -> None:
    rig = Rig()
    async with rig.running() as workers:
        workers.send(send("edit"))
        event = await rig.event()
    assert isinstance(event, Delivered)
    assert event.ref is None
    assert [ref for ref, _ in rig.adapter.edits] == ["ref-1"]


@pytest.mark.parametrize("kind", ["reply", "message", "hold"])
async def test_what_is_for_a_session_goes_to_its_link(kind: DeliveryKind) -> None:
    rig = Rig()
    async with rig.running() as workers:
        workers.send(send(kind, "s1", body=b"frame"))
        assert isinstance(await rig.event(), Delivered)
    assert rig.frames == [("s1", b"frame")]
    assert rig.adapter.posts == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotSent("no route"), "not_sent"),
        (Refused("no such chat"), "refused"),
        (Uncertain("read timed out"), "uncertain"),
        (DeliveryError("vague"), "uncertain"),
    ],
)
@pytest.mark.parametrize("delivery", ["post", "edit"])
async def test_each_error_becomes_its_own_kind_of_failure(
    error: DeliveryError, kind: str, delivery: DeliveryKind
) -> None:
    rig = Rig()
    rig.adapter.script = [error]
    async with rig.running() as workers:
        workers.send(send(delivery))
        failed = await rig.failure()
    assert (failed.delivery, failed.kind, failed.msg) == (7, kind, error.msg)
    assert failed.jitter == 0.25


async def test_a_throttled_call_brings_the_pause_that_the_platform_wants() -> None:
    rig = Rig()
    rig.adapter.script = [Throttled(12.5)]
    async with rig.running() as workers:
        workers.send(send())
        failed = await rig.failure()
    assert (failed.kind, failed.retry_after_s) == ("throttled", 12.5)


async def test_a_session_that_is_not_attached_is_not_sent_to() -> None:
    rig = Rig()
    rig.to_session = [NotSent("the hub is not attached to the session")]
    async with rig.running() as workers:
        workers.send(send("reply", "s1"))
        assert (await rig.failure()).kind == "not_sent"


async def test_a_channel_that_is_not_open_is_not_sent_to() -> None:
    rig = Rig()
    async with rig.running() as workers:
        workers.forget("web")
        workers.send(send())
        failed = await rig.failure()
    assert failed.kind == "not_sent"
    assert "web" in failed.msg


async def test_a_call_that_hangs_becomes_uncertain_after_the_limit() -> None:
    rig = Rig()
    rig.adapter.script = [asyncio.Event()]
    async with rig.running() as workers:
        workers.send(send())
        await rig.clock.until_waited(CALL_LIMIT_S)
        await rig.clock.advance(CALL_LIMIT_S - 0.1)
        assert rig.events == []
        await rig.clock.advance(0.1)
        failed = await rig.failure()
    assert failed.kind == "uncertain"
    assert "60 s" in failed.msg


async def test_a_hanging_call_holds_up_no_other() -> None:
    rig = Rig()
    stuck = asyncio.Event()
    rig.adapter.script = [stuck, None]
    async with rig.running() as workers:
        workers.send(send())
        await rig.adapter.until(lambda: len(rig.adapter.posts) == 1)
        workers.send(send())
        assert isinstance(await rig.event(), Delivered)
        stuck.set()


async def test_a_defect_of_an_adapter_is_uncertain_logged_and_survived() -> None:
    rig = Rig()
    rig.adapter.script = [ZeroDivisionError("bug"), None]
    async with rig.running() as workers:
        workers.send(send())
        failed = await rig.failure()
        rig.events.clear()
        workers.send(send())
        assert isinstance(await rig.event(), Delivered)
    assert (failed.kind, failed.msg) == ("uncertain", "the adapter failed: ZeroDivisionError")
    assert rig.log.of("adapter_defect") == [
        {"channel": "web", "error": "ZeroDivisionError('bug')"}
    ]


async def test_a_timeout_of_the_adapters_own_is_not_called_ours() -> None:
    rig = Rig()
    rig.adapter.script = [TimeoutError()]
    async with rig.running() as workers:
        workers.send(send())
        failed = await rig.failure()
    assert (failed.kind, failed.msg) == ("uncertain", "the adapter failed: TimeoutError")


async def test_a_call_that_was_cancelled_within_the_adapter_does_not_stay_under_way() -> None:
    rig = Rig()
    rig.adapter.script = [asyncio.CancelledError()]
    async with rig.running() as workers:
        workers.send(send())
        assert (await rig.failure()).kind == "uncertain"


async def test_a_card_that_could_not_be_drawn_is_refused_without_a_call() -> None:
    rig = Rig()
    async with rig.running() as workers:
        workers.send(send(body=b""))
        assert (await rig.failure()).kind == "refused"
    assert rig.adapter.posts == []


async def test_while_stopping_nothing_new_is_sent() -> None:
    """The next life must not take it for one that may have arrived."""
    rig = Rig()
    async with rig.running() as workers:
        workers.stop()
        workers.send(send())
        assert (await rig.failure()).kind == "not_sent"
    assert rig.adapter.posts == []


async def test_finish_waits_for_what_is_under_way() -> None:
    rig = Rig()
    stuck = asyncio.Event()
    rig.adapter.script = [stuck]
    async with rig.running() as workers:
        workers.send(send())
        await rig.adapter.until(lambda: bool(rig.adapter.posts))
        workers.stop()
        finished = asyncio.create_task(workers.finish())
        await rig.clock.settle()
        assert not finished.done()
        stuck.set()
        await finished
        assert isinstance(await rig.event(), Delivered)


async def test_the_end_of_the_hub_tells_no_results() -> None:
    rig = Rig()
    rig.adapter.script = [asyncio.Event()]

    class EndOfHub(Exception):
        pass

    async def life() -> None:
        async with rig.running() as workers:
            workers.send(send())
            await rig.adapter.until(lambda: bool(rig.adapter.posts))
            raise EndOfHub

    with pytest.raises(ExceptionGroup):
        await life()
    assert rig.events == []
