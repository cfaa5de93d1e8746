"""The machine's clock, and the fake that tests use in its place."""

import asyncio
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from fakes.clock import FakeClock
from upcall.clock import Clock, LocalZone, SystemClock, boot_id


def test_the_wall_clock_is_in_milliseconds_since_the_epoch() -> None:
    before_ms = time.time_ns() // 1_000_000
    now_ms = SystemClock().wall_ms()
    assert before_ms <= now_ms <= time.time_ns() // 1_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_boot_clock_counts_from_the_boot() -> None:
    with open("/proc/uptime", encoding="ascii") as file:
        uptime_s = float(file.read().split()[0])
    # The kernel rounds down to hundredths.
    assert uptime_s - 0.02 <= SystemClock().boot_s() < uptime_s + 20


def test_the_boot_clock_never_goes_back() -> None:
    clock = SystemClock()
    times = [clock.boot_s() for _ in range(1000)]
    assert times == sorted(times)


@pytest.mark.asyncio
async def test_a_limit_ends_what_takes_longer() -> None:
    with pytest.raises(TimeoutError):
        async with SystemClock().timeout(0.001):
            await asyncio.Event().wait()


@pytest.mark.asyncio
async def test_no_limit_is_no_limit() -> None:
    async with SystemClock().timeout(None) as limit:
        await SystemClock().sleep(0)
    assert limit.when() is None


def test_the_id_of_a_boot_does_not_change_within_it() -> None:
    assert boot_id() == boot_id() != ""


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("utc", "shown"),
    [
        ("2026-01-15 12:00", "13:00"),
        ("2026-07-15 12:00", "14:00"),
        ("2026-07-15 23:30", "01:30"),
    ],
)
def test_the_local_zone_follows_summer_time(utc: str, shown: str) -> None:
    at = datetime.fromisoformat(utc).replace(tzinfo=UTC)
    assert f"{datetime.fromtimestamp(at.timestamp(), LocalZone()):%H:%M}" == shown
    assert at.astimezone(LocalZone()) == at


def _is_a_clock(clock: Clock) -> Clock:
    return clock


@pytest.mark.asyncio
async def test_the_fake_clock_wakes_sleepers_in_order_and_not_early() -> None:
    fake = FakeClock()
    clock = _is_a_clock(fake)
    start_s = clock.boot_s()
    woken: list[float] = []

    async def sleeper(duration_s: float) -> None:
        await clock.sleep(duration_s)
        woken.append(clock.boot_s() - start_s)

    async with asyncio.TaskGroup() as tasks:
        for duration_s in (3.0, 1.0, 2.0):
            tasks.create_task(sleeper(duration_s))
        await fake.advance(0.9)
        assert woken == []
        await fake.advance(1.1)
        assert woken == [1.0, 2.0]
        await fake.advance(1.0)
    assert woken == [1.0, 2.0, 3.0]
    assert clock.wall_ms() == 1_800_000_003_000


@pytest.mark.asyncio
async def test_the_fake_clock_ends_what_takes_longer_and_nothing_else() -> None:
    fake = FakeClock()

    async def limited(duration_s: float) -> str:
        try:
            async with fake.timeout(duration_s):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return "done"

    async with fake.timeout(5.0):
        pass
    task = asyncio.create_task(limited(10.0))
    await fake.advance(9.9)
    assert not task.done()
    await fake.advance(0.1)
    assert await task == "late"
