"""Quiet hours: over midnight, with summer time both ways, on any zone's clock."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upcall.clock import LocalZone
from upcall.core.quiet import first_loud, quiet_until
from upcall.model.policy import QuietHours

VIENNA = ZoneInfo("Europe/Vienna")
ZONES = ("Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC")


def ms(text: str, zone: ZoneInfo = VIENNA, *, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp() * 1000)


def hours(span: str, zone: ZoneInfo | None = VIENNA) -> QuietHours:
    start, end = (int(part[:2]) * 60 + int(part[3:]) for part in span.split("-"))
    return QuietHours(from_min=start, to_min=end, zone=zone)


@pytest.mark.parametrize(
    ("now", "end"),
    [
        ("2026-06-10T21:59:59", None),
        ("2026-06-10T22:00:00", "2026-06-11T07:00:00"),
        ("2026-06-10T23:30:00", "2026-06-11T07:00:00"),
        ("2026-06-11T00:00:00", "2026-06-11T07:00:00"),
        ("2026-06-11T06:59:59", "2026-06-11T07:00:00"),
        ("2026-06-11T07:00:00", None),
        ("2026-06-11T12:00:00", None),
        # The nights in which the clocks change are an hour shorter, and an hour longer.
        ("2026-03-28T23:00:00", "2026-03-29T07:00:00"),
        ("2026-10-24T23:00:00", "2026-10-25T07:00:00"),
    ],
)
def test_a_night_goes_over_midnight(now: str, end: str | None) -> None:
    found = quiet_until(hours("22:00-07:00"), ms(now), VIENNA)
    assert found == (None if end is None else ms(end))


def test_the_night_in_spring_is_an_hour_shorter_and_that_in_autumn_longer() -> None:
    def length_h(day: str) -> float:
        start = ms(f"{day}T22:00:00")
        return ((quiet_until(hours("22:00-07:00"), start, None) or 0) - start) / 3_600_000

    assert [length_h(day) for day in ("2026-03-27", "2026-03-28", "2026-10-24")] == [9, 8, 10]


def test_a_span_within_the_day() -> None:
    lunch = hours("12:00-13:30")
    assert quiet_until(lunch, ms("2026-06-10T11:59:00"), None) is None
    assert quiet_until(lunch, ms("2026-06-10T13:00:00"), None) == ms("2026-06-10T13:30:00")
    assert quiet_until(lunch, ms("2026-06-10T13:30:00"), None) is None


def test_a_span_that_ends_where_it_begins_is_the_whole_day_long() -> None:
    now = ms("2026-06-10T12:00:00")
    assert quiet_until(hours("08:00-08:00"), now, None) == ms("2026-06-11T08:00:00")


def test_an_end_that_the_clock_steps_over_is_the_step() -> None:
    # On 29 March 02:00 is followed by 03:00.
    end = quiet_until(hours("23:00-02:30"), ms("2026-03-29T01:00:00"), None)
    assert end == ms("2026-03-29T03:00:00")


def test_an_end_that_the_clock_shows_twice_is_the_second() -> None:
    end = quiet_until(hours("23:00-02:30"), ms("2026-10-25T01:00:00"), None)
    assert end == ms("2026-10-25T02:30:00", fold=1)


def test_a_beginning_that_the_clock_steps_over_is_the_step() -> None:
    span = hours("02:30-04:00")
    assert quiet_until(span, ms("2026-03-29T01:59:59"), None) is None
    assert quiet_until(span, ms("2026-03-29T03:00:00"), None) == ms("2026-03-29T04:00:00")


def test_without_a_zone_the_computers_own_counts() -> None:
    night = hours("22:00-07:00", None)
    tokyo = ZoneInfo("Asia/Tokyo")
    assert quiet_until(night, ms("2026-06-10T23:00:00", tokyo), tokyo) is not None
    assert quiet_until(night, ms("2026-06-10T21:00:00", tokyo), tokyo) is None


def test_the_zone_of_the_machine_itself_works() -> None:
    now = int(datetime(2026, 6, 10, 23, 0).timestamp() * 1000)  # noqa: DTZ001 - the machine's
    end = int(datetime(2026, 6, 11, 7, 0).timestamp() * 1000)  # noqa: DTZ001
    assert quiet_until(hours("22:00-07:00", None), now, LocalZone()) == end


def test_nothing_configured_is_never_quiet() -> None:
    assert quiet_until(None, ms("2026-06-10T23:00:00"), VIENNA) is None
    assert first_loud(None, 5, VIENNA) == 5


@given(
    zone=st.sampled_from(ZONES),
    start=st.integers(0, 1439),
    length=st.integers(1, 1440),
    at=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),  # noqa: DTZ001 - made UTC
)
def test_it_is_quiet_whenever_the_clock_shows_a_time_of_the_span(
    zone: str, start: int, length: int, at: datetime
) -> None:
    """The oracle only looks at the clock: minute by minute, and it knows no spans."""
    clock = ZoneInfo(zone)
    span = QuietHours(from_min=start, to_min=(start + length) % 1440, zone=clock)

    def within(moment: datetime) -> bool:
        shown = moment.astimezone(clock)
        return (shown.hour * 60 + shown.minute - start) % 1440 < length

    now = at.replace(tzinfo=UTC, second=0, microsecond=0)
    end = quiet_until(span, int(now.timestamp() * 1000), None)
    if within(now):
        assert end is not None
    if end is not None and length < 1300:
        last = datetime.fromtimestamp(end / 1000, UTC)
        assert not within(last)
        # And it does not go on for longer than it must: a step of the clock at most.
        assert last - now <= timedelta(minutes=length + 61)
