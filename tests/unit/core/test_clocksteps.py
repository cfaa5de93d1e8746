"""The wall clock is set while asks, gates and messages wait: nothing comes sooner or later."""

import pytest

from fakes.kernel_rig import Rig, ask_id, channel
from upcall.model.ask import AskSpec

HOUR_MS = 3_600_000
STEPS = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
RESTARTS = pytest.mark.parametrize("restarts", [True, False])


def step(rig: Rig, step_ms: int, *, restarts: bool) -> None:
    rig.wall_ms += step_ms
    if restarts:
        rig.restart(down_s=0)
    rig.hears("chat")


def chat() -> Rig:
    rig = Rig(channel("chat", repeat="none", buttons=5))
    rig.hears("chat")
    return rig


def place_of(rig: Rig) -> str:
    (card,) = rig.store.cards.values()
    return card.place


def until_sent_s(rig: Rig) -> int:
    """Return after how many seconds something is on its way to the chat."""
    for second in range(8000):
        if rig.sending("chat"):
            return second
        rig.wait(1)
    raise AssertionError("nothing was sent")


@STEPS
@RESTARTS
def test_a_gate_stays_closed_for_as_long_as_the_platform_asked(
    step_ms: int, restarts: bool
) -> None:
    rig = chat()
    rig.ask(1)
    rig.fail(rig.sending("chat")[0], "throttled", retry_after_s=20.0)
    rig.wait(5)
    step(rig, step_ms, restarts=restarts)
    assert until_sent_s(rig) == 15


@STEPS
@RESTARTS
def test_what_waits_does_not_grow_old_by_it(step_ms: int, restarts: bool) -> None:
    rig = chat()
    rig.ask(1)
    rig.fail(rig.sending("chat")[0], "throttled", retry_after_s=20.0)
    ages = {row.id: rig.wall_ms - row.created_ms for row in rig.store.deliveries.values()}
    step(rig, step_ms, restarts=restarts)
    for row in rig.store.deliveries.values():
        if row.id in ages and row.state in {"queued", "retry", "uncertain"}:
            assert rig.wall_ms - row.created_ms == ages[row.id]


@STEPS
@RESTARTS
def test_a_deadline_moves_with_the_clock_that_people_see(step_ms: int, restarts: bool) -> None:
    rig = chat()
    rig.ask(1, timeout_s=600.0, wait=False)
    rig.arrive_all()
    rig.wait(60)
    step(rig, step_ms, restarts=restarts)
    (view,) = rig.kernel.open_asks()
    assert view.deadline_ms == rig.wall_ms + 540_000
    rig.wait(539)
    assert rig.only().state == "open"
    rig.wait(2)
    assert rig.only().outcome == "timed_out"


@STEPS
def test_words_are_compared_with_the_card_in_the_clock_of_now(step_ms: int) -> None:
    rig = chat()
    # The clock is wrong when the card is posted, and set right afterwards.
    rig.wall_ms += step_ms
    rig.hears("chat")
    rig.ask(1, AskSpec(question="Why?"))
    rig.arrive_all()
    step(rig, -step_ms, restarts=False)
    rig.wait(60)
    told = rig.write("because", at=place_of(rig), sent_ms=rig.wall_ms - 30_000)
    assert told is not None
    assert told.code == "claimed"


@STEPS
def test_words_from_before_the_card_are_still_none(step_ms: int) -> None:
    rig = chat()
    rig.wait(60)
    rig.wall_ms += step_ms
    rig.hears("chat")
    rig.ask(1, AskSpec(question="Why?"))
    rig.arrive_all()
    step(rig, -step_ms, restarts=False)
    told = rig.write("because", at=place_of(rig), sent_ms=rig.wall_ms - 30_000)
    assert told is not None
    assert told.code == "asked"
    assert rig.row(1) is not None
    assert rig.only().state == "open"


def test_small_corrections_of_the_clock_write_nothing() -> None:
    rig = chat()
    rig.ask(1, timeout_s=600.0)
    before = rig.kernel.open_asks()[0].deadline_ms
    for _ in range(5):
        rig.wall_ms += 900
        rig.hears("chat")
    assert rig.kernel.open_asks()[0].deadline_ms == before


def test_a_clock_of_another_boot_is_taken_as_it_is() -> None:
    rig = chat()
    rig.ask(1, timeout_s=600.0)
    due_ms = rig.kernel.open_asks()[0].deadline_ms
    rig.wall_ms += HOUR_MS // 60
    rig.boot_s = 5.0
    rig.restart(boot_id="boot-2")
    assert rig.row(1) is not None
    assert rig.kernel.find(ask_id(1)) is not None
    assert rig.kernel.open_asks()[0].deadline_ms == due_ms
