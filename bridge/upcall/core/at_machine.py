"""Whether the person is at this computer, and how long that keeps other channels silent.

A sign of life only delays, never for long, and never what something waits for: security.md
S15. Whoever keeps touching a file gains two minutes at most.
"""

from typing import Final

from upcall.core.state import HubState
from upcall.model.events import Moment
from upcall.model.rows import AskRow

FRESH_S: Final = 60.0


def rings_from_s(state: HubState, row: AskRow, at: Moment) -> float | None:
    """Return from when (boot clock) *row* rings elsewhere; None: nothing keeps it from that.

    The bound counts from when the ask was raised, so that a new sign of life, or a start of
    the hub, does not begin it anew.
    """
    presence = state.settings.policy.presence
    if presence.signal == "off":
        return None
    seen_s = _seen_s(state, row)
    if seen_s is None or at.boot_s - seen_s >= FRESH_S:
        return None
    raised_s = at.boot_s - max(0.0, (at.wall_ms - row.raised_ms) / 1000)
    if row.course.boot_id == state.settings.boot_id and row.course.raised_boot_s is not None:
        raised_s = row.course.raised_boot_s
    return min(raised_s + bound_s(row, presence.delay_s), seen_s + FRESH_S)


def bound_s(row: AskRow, delay_s: float) -> float:
    """Return for how long at most a person at the machine delays *row*: 0 for not at all."""
    deadline_ms = row.spec.deadline_at_ms
    if deadline_ms is None:
        return delay_s
    if row.spec.ask_class == "permission":
        return 0.0
    return min(delay_s, max(0.0, (deadline_ms - row.raised_ms) / 1000 / 2))


def _seen_s(state: HubState, row: AskRow) -> float | None:
    """Return the newest sign of life that is not of the program that asked."""
    session = state.session(row.session_id)
    live = state.live.get(row.session_id)
    own = {*row.course.ttys, *(live.ttys if live is not None else ())}
    # In a project of its own a program writes as it likes; a home folder is nobody's project.
    folder = session.cwd if session is not None and session.repo else None
    found = [
        seen_s
        for place, seen_s in state.seen_here.items()
        if place not in own and not _is_within(place, folder)
    ]
    return max(found, default=None)


def _is_within(place: str, folder: str | None) -> bool:
    """Tell whether a file lies where the program works, which it may write as it likes."""
    return folder is not None and place.startswith(folder.rstrip("/") + "/")
