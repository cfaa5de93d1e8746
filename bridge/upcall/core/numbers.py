"""What the hub can say of itself in numbers: lanes, gates, ages, answers by channel."""

from typing import get_args

from upcall.core.state import HubState
from upcall.model.events import Moment
from upcall.model.rows import Lane
from upcall.model.views import GateView, LaneView, Numbers


def numbers(state: HubState, at: Moment) -> Numbers:
    """Return how things stand at *at*."""
    oldest_ms = min((row.raised_ms for row in state.asks.values()), default=None)
    return Numbers(
        lanes=lane_views(state, at.wall_ms),
        gates=gate_views(state, at.boot_s),
        uncertain=sum(row.state == "uncertain" for row in state.deliveries.values()),
        claimed=len(state.claims),
        oldest_ask_s=None if oldest_ms is None else _age_s(oldest_ms, at.wall_ms),
        answers=dict(state.answers),
    )


def lane_views(state: HubState, now_ms: int) -> tuple[LaneView, ...]:
    """Return for each lane how much waits there, and since when."""
    waiting: dict[Lane, list[int]] = {lane: [] for lane in get_args(Lane)}
    for row in state.deliveries.values():
        waiting[row.lane].append(row.created_ms)
    return tuple(
        LaneView(lane, len(since), _age_s(min(since), now_ms) if since else None)
        for lane, since in waiting.items()
    )


def gate_views(state: HubState, now_s: float) -> tuple[GateView, ...]:
    """Return which channels, and places of them, take nothing now, and for how long."""
    views = []
    for scope, due_s in sorted(state.gate_due.items()):
        if due_s > now_s:
            channel, _, place = scope.partition("\0")
            views.append(GateView(channel, bool(place), round(due_s - now_s, 3)))
    return tuple(views)


def _age_s(since_ms: int, now_ms: int) -> float:
    return max(0, now_ms - since_ms) / 1000
