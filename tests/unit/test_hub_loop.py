"""The hub's loop: commit first, then release; batches, lazy results, timers, and the end."""

import asyncio
from collections.abc import Iterator

import pytest

from fakes.clock import FakeClock
from fakes.hub_rig import ADA, Heart, ask_id
from fakes.hub_shells import short_folder
from upcall.core.router import GRACE_S
from upcall.hub.loop import BATCH, LAZY_S, LONGEST_WAIT_S
from upcall.hub.store import StoreError
from upcall.model.effects import Log, Respond, Send, ToWaiter
from upcall.model.events import Delivered, PersonActed, WaitAsked
from upcall.model.platform import Answered

pytestmark = pytest.mark.asyncio


@pytest.fixture
def path() -> Iterator[str]:
    with short_folder() as folder:
        yield f"{folder}/hub.db"


@pytest.fixture
def heart(path: str) -> Heart:
    return Heart(path, FakeClock())


def hold(heart: Heart) -> None:
    """A person stops the clock of the ask: its card is to be edited."""
    act = Answered(key="k", ask=ask_id(1), revision=None, who=ADA, hold=True)
    heart.loop.submit(PersonActed(at=heart.loop.moment(), channel="web", inbound=act))


async def edit_under_way(heart: Heart) -> Delivered:
    """Bring an ask to where an edit of its card is sent, and return the edit's arrival."""
    heart.raise_ask(timeout_s=3600.0)
    await heart.loop.settled()
    heart.deliver()
    await heart.loop.settled()
    hold(heart)
    await heart.loop.settled()
    [edit] = [send.delivery for send in heart.of(Send) if send.delivery.kind == "edit"]
    return Delivered(at=heart.loop.moment(), delivery=edit.id)


async def test_nothing_is_released_before_its_commit(heart: Heart) -> None:
    async with heart.running():
        heart.hold_commits()
        heart.raise_ask()
        begun = heart.commits_begun
        await heart.until(lambda: heart.commits_begun > begun)
        assert heart.of(Send) == []
        assert heart.of(Respond) == []
        assert await heart.store.ask(ask_id(1)) is None
        heart.let_commit()
        await heart.until(lambda: bool(heart.of(Send)))
        assert await heart.store.ask(ask_id(1)) is not None
        assert [release.waiter for release in heart.of(Respond)] == [1]


async def test_events_that_arrive_together_are_one_commit(heart: Heart) -> None:
    async with heart.running():
        before = heart.store.commits
        for number in range(3):
            heart.raise_ask(number)
        await heart.loop.settled()
        assert heart.store.commits == before + 1
        assert len(heart.of(Respond)) == 3


async def test_events_that_arrive_during_a_commit_share_the_next_one(heart: Heart) -> None:
    async with heart.running():
        before = heart.store.commits
        heart.hold_commits()
        heart.raise_ask(1)
        begun = heart.commits_begun
        await heart.until(lambda: heart.commits_begun > begun)
        for number in (2, 3, 4):
            heart.raise_ask(number)
        heart.let_commit()
        await heart.loop.settled()
        assert heart.store.commits == before + 2


async def test_a_very_large_crowd_is_committed_in_batches(heart: Heart) -> None:
    async with heart.running():
        before = heart.store.commits
        for number in range(BATCH + 1):
            heart.raise_ask(number)
        await heart.loop.settled()
        assert heart.store.commits == before + 2
        assert len(heart.of(Respond)) == BATCH + 1


async def test_two_events_of_one_batch_draw_different_ids(heart: Heart) -> None:
    async with heart.running():
        for number in (1, 2):
            heart.raise_ask(number)
        await heart.loop.settled()
        assert heart.row(1).session_id != heart.row(2).session_id


async def test_an_event_without_rows_needs_no_commit(heart: Heart) -> None:
    async with heart.running():
        before = heart.store.commits
        heart.loop.submit(WaitAsked(at=heart.loop.moment(), waiter=9, ask_id=ask_id(9)))
        await heart.loop.settled()
        assert [release.error for release in heart.of(Respond)] != [None]
        assert heart.store.commits == before


async def test_a_delivered_edit_waits_for_company(heart: Heart) -> None:
    async with heart.running():
        arrived = await edit_under_way(heart)
        before = heart.store.commits
        heart.loop.submit(arrived)
        await heart.clock.advance(LAZY_S / 2)
        assert heart.store.commits == before
        assert heart.kernel.waiting_deliveries() == 1
        heart.raise_ask(2)
        await heart.until(lambda: heart.store.commits > before)
        await heart.loop.settled()
        assert heart.store.commits == before + 1
        assert [send.delivery.ask_id for send in heart.of(Send)][-1] == ask_id(2)
        assert heart.kernel.waiting_deliveries() == 1


async def test_a_delivered_edit_without_company_is_committed_by_itself(heart: Heart) -> None:
    async with heart.running():
        arrived = await edit_under_way(heart)
        before = heart.store.commits
        heart.loop.submit(arrived)
        await heart.clock.until_waited(LAZY_S)
        await heart.clock.advance(LAZY_S - 0.01)
        assert heart.store.commits == before
        await heart.clock.advance(0.01)
        await heart.until(lambda: heart.store.commits > before)
        assert heart.kernel.waiting_deliveries() == 0


async def test_the_first_of_several_lazy_results_sets_the_time(heart: Heart) -> None:
    async with heart.running():
        arrived = await edit_under_way(heart)
        before = heart.store.commits
        heart.loop.submit(arrived)
        await heart.clock.advance(LAZY_S - 0.1)
        heart.loop.submit(Delivered(at=heart.loop.moment(), delivery=999))
        await heart.clock.advance(0.1)
        await heart.until(lambda: heart.store.commits > before)
        assert heart.store.commits == before + 1


async def test_settled_takes_lazy_results_along(heart: Heart) -> None:
    async with heart.running():
        arrived = await edit_under_way(heart)
        before = heart.store.commits
        heart.loop.submit(arrived)
        await heart.loop.settled()
        assert heart.store.commits == before + 1
        assert heart.kernel.waiting_deliveries() == 0


async def test_settled_waits_for_a_commit_under_way(heart: Heart) -> None:
    async with heart.running():
        heart.hold_commits()
        heart.raise_ask()
        begun = heart.commits_begun
        await heart.until(lambda: heart.commits_begun > begun)
        settled = asyncio.create_task(heart.loop.settled())
        await heart.clock.settle()
        assert not settled.done()
        heart.let_commit()
        await settled
        assert heart.of(Send)


async def test_settled_does_not_wait_for_what_came_later(heart: Heart) -> None:
    """Under steady traffic there is no lull to wait for."""
    async with heart.running():
        left = 50

        def another() -> None:
            nonlocal left
            left -= 1
            if left:
                heart.raise_ask(1000 + left)

        heart.on_commit = another
        heart.raise_ask(1)
        await heart.loop.settled()
        assert left > 40


async def test_what_was_submitted_before_the_start_is_not_forgotten(path: str) -> None:
    heart = Heart(path, FakeClock())
    heart.loop.submit(Delivered(at=heart.loop.moment(), delivery=5))
    settled = asyncio.create_task(heart.loop.settled())
    await heart.clock.settle()
    async with heart.running():
        async with asyncio.timeout(10):
            await settled


async def test_a_failed_commit_ends_the_loop_and_releases_nothing(path: str) -> None:
    heart = Heart(path, FakeClock())
    life = asyncio.create_task(heart.loop.run(heart))
    await heart.store.close()
    heart.raise_ask()
    with pytest.raises(StoreError) as caught:
        await life
    assert caught.value.code == "store_closed"
    assert heart.released == []


async def test_a_timer_wakes_the_loop(heart: Heart) -> None:
    async with heart.running():
        heart.raise_ask(timeout_s=30.0)
        await heart.loop.settled()
        await heart.clock.until_waited(30.0)
        await heart.clock.advance(29.9)
        await heart.loop.settled()
        assert heart.row().state == "open"
        await heart.clock.advance(0.1)
        await heart.until(lambda: heart.row().state == "closed")
        assert heart.row().outcome == "timed_out"


async def test_timers_go_by_the_boot_clock(heart: Heart) -> None:
    async with heart.running():
        heart.raise_ask(timeout_s=30.0)
        await heart.loop.settled()
        heart.clock.step_wall(10 * 3_600_000)
        await heart.clock.advance(10)
        await heart.loop.settled()
        assert heart.row().state == "open"


async def test_a_far_timer_is_looked_at_every_minute(heart: Heart) -> None:
    """The machine may sleep meanwhile, and timers of the event loop do not notice."""
    async with heart.running():
        heart.raise_ask(timeout_s=36_000.0)
        await heart.loop.settled()
        # The channels have said nothing: that is looked at sooner.
        await heart.clock.until_waited(GRACE_S)
        await heart.clock.advance(GRACE_S)
        await heart.clock.until_waited(LONGEST_WAIT_S)
        waited = len(heart.clock.asked)
        await heart.clock.advance(300.0)
        assert heart.clock.asked[waited:] == [LONGEST_WAIT_S] * 5
        assert max(heart.clock.asked) == LONGEST_WAIT_S


async def test_a_timer_is_not_late_while_there_is_always_more_to_do(heart: Heart) -> None:
    async with heart.running():
        heart.raise_ask(1, timeout_s=30.0, wait=True)
        await heart.loop.settled()
        left = 100

        def another() -> None:
            nonlocal left
            left -= 1
            if left:
                heart.raise_ask(1000 + left)
            if left == 90:
                # Time passes unseen by sleepers: only the loop's own look can tell.
                heart.clock._now_s += 31.0

        heart.on_commit = another
        heart.raise_ask(2)
        await heart.until(lambda: bool(heart.of(ToWaiter)))
        assert 80 < left < 91


async def test_sleep_and_a_clock_that_is_set_are_noticed_by_the_loop(path: str) -> None:
    clock = FakeClock()
    heart = Heart(path, clock)
    async with heart.running():
        await heart.loop.settled()
        assert not [one for one in heart.of(Log) if one.event in {"slept", "clock_stepped"}]
        clock._now_s += 7_200  # asleep: nobody was woken meanwhile
        heart.raise_ask(1)
        await heart.loop.settled()
        clock.step_wall(-3_600_000)
        heart.raise_ask(2)
        await heart.loop.settled()
    told = [one for one in heart.of(Log) if one.event in {"slept", "clock_stepped"}]
    assert [(one.event, one.facts) for one in told] == [
        ("slept", {"seconds": 7200}),
        ("clock_stepped", {"ms": -3_600_000}),
    ]
    assert (heart.loop.times.sleeps, heart.loop.times.clock_steps) == (1, 1)
    took_s = heart.loop.times.commit_s(0.5)
    assert took_s is not None
    assert took_s >= 0
