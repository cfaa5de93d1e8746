"""Whose turn it is: order within a conversation, priority and fairness across them.

A *queue* is what waits for one conversation of one channel (where cards stand side by side,
for one card) or for one session; at most one of it is on its way, in order. Of the queues of
a channel the one goes first that holds the most urgent delivery, and among equals they take
turns. An ask lends its urgency to what stands before it, and overtakes what has to wait, what
is dropped first anyway, and a long row of other posts; so does an edit, which moves nothing.
"""

from itertools import islice
from typing import Final

from upcall.core.state import HubState
from upcall.model.ids import SessionId
from upcall.model.rows import DeliveryRow, Lane

URGENCY: Final[dict[Lane, int]] = {"ask": 0, "outcome": 1, "text": 2, "live": 3, "idle": 4}
OVERTAKEN_FROM: Final = 5
"""So many posts before an ask make it overtake them: it would come too late."""
HARMLESS_UNDER_WAY: Final = 256
"""Pages and screens of this computer take as much as comes."""
_DROPPED_FIRST: Final = frozenset({"live", "idle"})


class Queues:
    """What waits, for whom, and in which order it goes."""

    def __init__(self, state: HubState) -> None:
        self._state = state
        self._asks: dict[str, dict[int, None]] = {}
        self._edits: dict[str, dict[int, None]] = {}
        self._sending: dict[str, int] = {}
        self._under_way: dict[str, int] = {}
        self._ready: dict[str, tuple[dict[str, None], ...]] = {}
        self._rank: dict[str, int] = {}

    def key(self, row: DeliveryRow) -> str:
        """Return the queue that *row* belongs to."""
        where = row.conversation or row.place
        # Where cards stand side by side (a page), order matters within one card only, and a
        # slow one must not hold up the others.
        beside = row.ask_id if where and self.is_harmless(row.target) else ""
        return f"{row.target}\0{where}\0{beside}"

    def add(self, row: DeliveryRow) -> None:
        """Put *row* at the end of its queue."""
        key = self.key(row)
        self._state.lanes.setdefault(row.target, {}).setdefault(key, {})[row.id] = None
        urgent = self._urgent(row)
        if urgent is not None:
            urgent.setdefault(key, {})[row.id] = None
        self._line_up(row.target, key)

    def put_first(self, row: DeliveryRow) -> None:
        """Put the opening of a thread before all that is to go there."""
        queues = self._state.lanes.setdefault(row.target, {})
        key = self.key(row)
        queues[key] = {row.id: None, **queues.get(key, {})}
        self._line_up(row.target, key)

    def remove(self, row: DeliveryRow) -> None:
        """Take *row* out, whatever became of it."""
        key = self.key(row)
        queues = self._state.lanes[row.target]
        del queues[key][row.id]
        urgent = self._urgent(row)
        if urgent is not None and key in urgent:
            urgent[key].pop(row.id, None)
            if not urgent[key]:
                del urgent[key]
        self._came_back(row, key)
        if not queues[key]:
            del queues[key]
            if not queues:
                del self._state.lanes[row.target]
        self._line_up(row.target, key)

    def went(self, row: DeliveryRow) -> None:
        """*row* is on its way now."""
        key = self.key(row)
        self._sending[key] = row.id
        self._under_way[row.target] = self._under_way.get(row.target, 0) + 1
        self._line_up(row.target, key)

    def waits(self, row: DeliveryRow) -> None:
        """*row* is not on its way any more, or its wait is over."""
        key = self.key(row)
        self._came_back(row, key)
        self._line_up(row.target, key)

    def of_target(self, target: str) -> list[int]:
        """Return the deliveries to one channel or session, each queue in order."""
        queues = self._state.lanes.get(target, {})
        return [number for queue in queues.values() for number in queue]

    def firsts(self, target: str) -> list[int]:
        """Return the first delivery of each queue of a channel or session."""
        return [next(iter(queue)) for queue in self._state.lanes.get(target, {}).values()]

    def of_queue(self, row: DeliveryRow) -> list[int]:
        """Return all that is in the queue of *row*, in order."""
        return list(self._state.lanes.get(row.target, {}).get(self.key(row), ()))

    def next(self, target: str) -> DeliveryRow | None:
        """Return what goes next to a channel or session, if anything may go."""
        free = self._limit(target) - self._under_way.get(target, 0)
        if free <= 0:
            return None
        for rank, ready in enumerate(self._ready.get(target, ())):
            if not ready:
                continue
            if rank > 0 and free == 1 and self._limit(target) > 1:
                # The last place is kept for asks.
                return None
            key = next(iter(ready))
            return self._first(key, self._state.lanes[target][key])
        return None

    def is_harmless(self, target: str) -> bool:
        """Tell whether the same twice is no harm there."""
        info = self._state.infos.get(target)
        return info is None or info.capabilities.repeat == "harmless"

    def _limit(self, target: str) -> int:
        info = self._state.infos.get(target)
        if info is None:
            # A session takes one frame after the other; an unknown channel hardly anything.
            is_session = SessionId(target) in self._state.sessions
            return HARMLESS_UNDER_WAY if is_session else 1
        if self.is_harmless(target):
            return HARMLESS_UNDER_WAY
        return max(1, info.capabilities.under_way)

    def _came_back(self, row: DeliveryRow, key: str) -> None:
        if self._sending.get(key) != row.id:
            return
        del self._sending[key]
        left = self._under_way[row.target] - 1
        if left:
            self._under_way[row.target] = left
        else:
            del self._under_way[row.target]

    def _urgent(self, row: DeliveryRow) -> dict[str, dict[int, None]] | None:
        if row.kind in {"edit", "delete"}:
            return self._edits
        return self._asks if row.lane == "ask" and row.kind != "open" else None

    def _line_up(self, target: str, key: str) -> None:
        """Let the queue stand among those that may go, by its most urgent delivery."""
        queue = self._state.lanes.get(target, {}).get(key)
        row = None
        if queue and key not in self._sending:
            row = self._first(key, queue)
        rank = None if row is None else self._rank_of(key, row)
        before = self._rank.get(key)
        if rank == before:
            return
        if before is not None:
            levels = self._ready[target]
            del levels[before][key]
            del self._rank[key]
            if not any(levels):
                del self._ready[target]
        if rank is not None:
            levels = self._ready.setdefault(target, tuple({} for _ in URGENCY))
            levels[rank][key] = None
            self._rank[key] = rank

    def _rank_of(self, key: str, row: DeliveryRow) -> int:
        rank = URGENCY[row.lane]
        for first in (self._first_of(self._asks, key), self._first_of(self._edits, key)):
            if first is not None and first.state == "queued":
                rank = min(rank, URGENCY[first.lane])
        return rank

    def _first(self, key: str, queue: dict[int, None]) -> DeliveryRow | None:
        head = self._state.deliveries[next(iter(queue))]
        goes = head if head.state == "queued" else None
        if head.kind == "open":
            return goes
        for urgent in (self._asks, self._edits):
            first = self._first_of(urgent, key)
            if first is None or first is head or first.state != "queued":
                continue
            if urgent is self._edits and self._has_post(first):
                # What is edited has to be there.
                continue
            is_far = first.id not in islice(queue, OVERTAKEN_FROM)
            if goes is None or head.lane in _DROPPED_FIRST or is_far:
                return first
        return goes

    def _first_of(self, urgent: dict[str, dict[int, None]], key: str) -> DeliveryRow | None:
        numbers = urgent.get(key)
        return self._state.deliveries[next(iter(numbers))] if numbers else None

    def _has_post(self, edit: DeliveryRow) -> bool:
        return edit.ask_id is not None and self._state.is_posting(edit.ask_id, edit.target)
