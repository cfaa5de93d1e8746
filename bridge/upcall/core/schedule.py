"""When an ask's reminders are due, by a clock that counts from when it was raised.

The clock stands while a person holds the ask. Within one boot it follows the boot clock, so
that no step of the wall clock brings or skips a reminder; over a reboot it follows the wall
clock.
"""

from collections.abc import Sequence
from typing import Final

from upcall.model.events import Moment
from upcall.model.rows import Course
from upcall.model.struct import replaced

# So many reminders are years of them.
_MOST: Final = 100_000


def begun(course: Course, at: Moment, boot_id: str) -> Course:
    """Return *course* with its clock at zero now."""
    return replaced(
        course,
        from_ms=at.wall_ms,
        from_boot_s=at.boot_s,
        raised_boot_s=at.boot_s,
        boot_id=boot_id,
    )


def clock_s(course: Course, at: Moment, boot_id: str) -> float:
    """Return what the ask's clock shows, in seconds."""
    if course.held_s is not None:
        return course.held_s
    if course.boot_id == boot_id:
        return max(0.0, at.boot_s - course.from_boot_s)
    return max(0.0, (at.wall_ms - course.from_ms) / 1000)


def in_boot(course: Course, at: Moment, boot_id: str) -> Course:
    """Return *course* counting by the boot clock of this boot."""
    if course.boot_id == boot_id:
        return course
    shown_s = clock_s(course, at, boot_id)
    return replaced(
        course, boot_id=boot_id, from_boot_s=at.boot_s - shown_s, raised_boot_s=None
    )


def held(course: Course, at: Moment, boot_id: str) -> Course:
    """Return *course* with its clock stopped."""
    return replaced(course, held_s=clock_s(course, at, boot_id))


def released(course: Course, at: Moment, boot_id: str) -> Course:
    """Return *course* with its clock running on from where it was stopped."""
    if course.held_s is None:
        return course
    return replaced(
        course,
        held_s=None,
        boot_id=boot_id,
        from_boot_s=at.boot_s - course.held_s,
        from_ms=at.wall_ms - int(course.held_s * 1000),
    )


def reminder_s(reminders_s: Sequence[float], number: int) -> float | None:
    """Return after how long reminder *number* (from 0) is due; the last one repeats.

    None: there are no reminders.
    """
    if not reminders_s:
        return None
    beyond = max(0, number - len(reminders_s) + 1)
    return reminders_s[min(number, len(reminders_s) - 1)] + beyond * reminders_s[-1]


def reminders_due(reminders_s: Sequence[float], since_s: float) -> int:
    """Return how many reminders are due after *since_s* seconds."""
    if not reminders_s or since_s < reminders_s[0]:
        return 0
    listed = sum(after_s <= since_s for after_s in reminders_s)
    if listed < len(reminders_s):
        return listed
    last_s = reminders_s[-1]
    return min(_MOST, listed + int((since_s - last_s) / last_s))
