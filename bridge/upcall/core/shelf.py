"""The deliveries that are not over: tracked, kept as rows, waiting, and let go of."""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from upcall.core.queues import Queues
from upcall.core.state import HubState, Step
from upcall.core.verdicts import TO_SESSIONS
from upcall.model.ids import AskId
from upcall.model.rows import DeliveryRow
from upcall.model.struct import replaced

Wait: TypeAlias = Literal["retry", "uncertain"]
_NOT_NEEDED: Final = "not needed any more"


class Shelf:
    """Where deliveries lie until they are over."""

    def __init__(self, state: HubState) -> None:
        self._state = state
        self._queues = Queues(state)

    def save(self, step: Step, row: DeliveryRow) -> None:
        """Keep *row*, which waits, with other bytes."""
        self._state.deliveries[row.id] = row
        step.write(row)

    def drop(self, step: Step, row: DeliveryRow) -> None:
        """Give up what nobody needs any more; nothing goes for it, no card is forgotten."""
        self._remove(step, replaced(row, state="done", error=_NOT_NEEDED))

    def of_ask(self, ask_id: AskId) -> list[DeliveryRow]:
        """Return what has still to be delivered about an ask."""
        return [
            self._state.deliveries[number]
            for number in self._state.deliveries_of.get(ask_id, ())
        ]

    def forget_cards(self, ask_id: AskId) -> None:
        """Forget where a closed ask is shown, once nothing about it is on its way."""
        if ask_id not in self._state.asks and ask_id not in self._state.deliveries_of:
            self._state.cards.pop(ask_id, None)
            self._state.copies.pop(ask_id, None)

    def bury(self, step: Step, row: DeliveryRow, why: str) -> None:
        """Nobody needs to look after what was given up any more."""
        self._state.dead.pop(row.id, None)
        step.write(replaced(row, state="done", body=b"", error=why))

    def wait(
        self, step: Step, row: DeliveryRow, state: Wait, wait_s: float, error: str
    ) -> None:
        """Let *row* wait for a while, in the state that says why."""
        not_before_ms = step.at.wall_ms + int(wait_s * 1000)
        row = replaced(row, state=state, not_before_ms=not_before_ms, error=error[:500])
        self.save(step, row)
        self._queues.waits(row)
        self._set_timer(step, row, wait_s)

    def ready(self, row: DeliveryRow) -> DeliveryRow:
        """Let *row* stand in its queue again as one that may go."""
        row = replaced(row, state="queued", not_before_ms=0)
        self._state.deliveries[row.id] = row
        self._state.retry_due.pop(row.id, None)
        self._queues.waits(row)
        return row

    def _set_timer(self, step: Step, row: DeliveryRow, wait_s: float) -> None:
        # Within this life the boot clock decides, whatever becomes of the wall clock.
        due_s = step.at.boot_s + max(0.0, wait_s)
        self._state.retry_due[row.id] = due_s
        step.timer(due_s, "delivery", str(row.id))

    def finish(self, step: Step, row: DeliveryRow) -> None:
        """*row* is over; forget what hung on it."""
        self._remove(step, row)
        if row.ask_id is not None:
            self.forget_cards(row.ask_id)

    def _remove(self, step: Step, row: DeliveryRow) -> None:
        state = self._state
        self._queues.remove(row)
        del state.deliveries[row.id]
        state.tries.pop(row.id, None)
        state.retry_due.pop(row.id, None)
        if row.ask_id is not None:
            of_ask = state.deliveries_of[row.ask_id]
            del of_ask[row.id]
            if not of_ask:
                del state.deliveries_of[row.ask_id]
        if row.state != "dead" or row.ask_id is not None or row.kind in TO_SESSIONS:
            # The bytes have served; keeping them would keep the text.
            row = replaced(row, body=b"")
        step.write(row)

    def number(self) -> int:
        """Return the next delivery's number."""
        self._state.last_delivery += 1
        return self._state.last_delivery

    def enlist(self, row: DeliveryRow) -> None:
        """Track *row*, at the end of its queue."""
        self._state.deliveries[row.id] = row
        if row.ask_id is not None:
            self._state.deliveries_of.setdefault(row.ask_id, {})[row.id] = None
        self._queues.add(row)

    def rows(self, numbers: Iterable[int]) -> list[DeliveryRow]:
        """Return the deliveries with these numbers."""
        return [self._state.deliveries[number] for number in numbers]
