"""Sleep, a clock that is set, and how long commits take."""

import pytest

from upcall.hub.timewatch import TimeWatch
from upcall.model.events import Moment

HOUR_MS = 3_600_000
START = Moment(1_000 * HOUR_MS, 5_000.0)


def later(seconds: float, *, set_by_ms: int = 0) -> Moment:
    return Moment(START.wall_ms + round(seconds * 1000) + set_by_ms, START.boot_s + seconds)


@pytest.mark.parametrize("seconds", [0.0, 0.001, 60.0, 61.0])
def test_waiting_is_no_sleep(seconds: float) -> None:
    watch = TimeWatch(START)
    assert watch.look(later(seconds)) == (None, 0)
    assert (watch.sleeps, watch.clock_steps) == (0, 0)


def test_sleep_is_told_with_its_beginning() -> None:
    watch = TimeWatch(START)
    assert watch.look(later(7_200)) == (START.wall_ms, 0)
    assert watch.look(later(7_230)) == (None, 0)
    assert (watch.sleeps, watch.clock_steps) == (1, 0)


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, 2_001, -2_001])
def test_a_clock_that_is_set_is_told_with_its_step(by_ms: int) -> None:
    watch = TimeWatch(START)
    assert watch.look(later(30, set_by_ms=by_ms)) == (None, by_ms)
    assert watch.look(later(60, set_by_ms=by_ms)) == (None, 0)
    assert (watch.sleeps, watch.clock_steps) == (0, 1)


@pytest.mark.parametrize("by_ms", [2_000, -2_000, 0])
def test_a_correction_is_no_step(by_ms: int) -> None:
    assert TimeWatch(START).look(later(30, set_by_ms=by_ms)) == (None, 0)


def test_a_clock_set_during_sleep_is_both() -> None:
    watch = TimeWatch(START)
    since_ms, step_ms = watch.look(later(7_200, set_by_ms=HOUR_MS))
    assert (since_ms, step_ms) == (START.wall_ms + HOUR_MS, HOUR_MS)


def test_how_long_commits_took() -> None:
    watch = TimeWatch(START)
    assert watch.commit_s(0.5) is None
    for took_ms in range(100):
        watch.committed(took_ms / 1000)
    assert watch.commit_s(0.5) == 0.05
    assert watch.commit_s(0.99) == 0.099
    assert watch.commit_s(1.0) == 0.099
