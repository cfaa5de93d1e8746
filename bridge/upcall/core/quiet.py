"""When nobody is rung: quiet hours on a zone's own clock, over midnight and summer time.

A night is one span from an instant to an instant. Where the clock shows its first or last
minute twice, the night begins at the first and ends at the last; where it shows it never,
at the step. So nobody is rung while the clock shows a time within the span.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

from upcall.model.policy import QuietHours

_DAY_S: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def quiet_until(hours: QuietHours | None, wall_ms: int, zone: tzinfo | None) -> int | None:
    """Return the wall clock time at which the night ends, or None if it is none.

    Args:
        hours: the configured span, or None.
        wall_ms: now.
        zone: the zone of a span that names none; without both, the span counts in UTC.
    """
    if hours is None or hours.never:
        return None
    clock = hours.zone or zone or UTC
    ends = [
        end_ms for start_ms, end_ms in _nights(hours, wall_ms, clock) if start_ms <= wall_ms
    ]
    found = max(ends, default=wall_ms)
    return found if found > wall_ms else None


def first_loud(hours: QuietHours | None, wall_ms: int, zone: tzinfo | None) -> int:
    """Return *wall_ms*, or the end of the quiet hours that it falls into."""
    return quiet_until(hours, wall_ms, zone) or wall_ms


def _nights(hours: QuietHours, wall_ms: int, clock: tzinfo) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of the nights around *wall_ms*."""
    today = _shown(wall_ms // 1000, clock).date()
    for days in (-2, -1, 0):
        begun = today + timedelta(days=days)
        ended = begun if hours.to_min > hours.from_min else begun + timedelta(days=1)
        start_s = _instant(begun, hours.from_min, clock, last=False)
        yield start_s * 1000, _instant(ended, hours.to_min, clock, last=True) * 1000


def _instant(day: date, minute: int, clock: tzinfo, *, last: bool) -> int:
    """Return when the clock shows this minute of this day: the first or the last time."""
    wanted = datetime(day.year, day.month, day.day, minute // 60, minute % 60)  # noqa: DTZ001
    bare_s = int((wanted - _EPOCH.replace(tzinfo=None)).total_seconds())
    before, after = (_ahead_s(bare_s + off, clock) for off in (-_DAY_S, _DAY_S))
    shown = [
        bare_s - ahead for ahead in (before, after) if _shows(bare_s - ahead, bare_s, clock)
    ]
    if shown:
        return max(shown) if last else min(shown)
    # The clock steps over it: find the second of the step.
    low, high = sorted((bare_s - before, bare_s - after))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _ahead_s(middle, clock) == before else (low, middle)
    return high


def _shows(at_s: int, bare_s: int, clock: tzinfo) -> bool:
    return at_s + _ahead_s(at_s, clock) == bare_s


def _ahead_s(at_s: int, clock: tzinfo) -> int:
    """Return how far the clock is ahead of UTC at an instant."""
    shown = _shown(at_s, clock).replace(tzinfo=UTC)
    return int((shown - _EPOCH).total_seconds()) - at_s


def _shown(at_s: int, clock: tzinfo) -> datetime:
    return (_EPOCH + timedelta(seconds=at_s)).astimezone(clock)
