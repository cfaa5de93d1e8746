"""What did not arrive: shown to people, tried once more or dropped at their word."""

from collections.abc import Sequence
from typing import Final

from upcall.core.lanes import WAITING, Lanes
from upcall.core.resend import Resend
from upcall.core.state import HubState, Step
from upcall.core.verdicts import TO_SESSIONS
from upcall.model.events import LettersSorted
from upcall.model.rows import DeliveryRow
from upcall.model.text import one_line
from upcall.model.views import LetterView

SHOWN: Final = 1000
DROPPED: Final = "dropped by hand"
_RANK: Final = {"dead": 0, "uncertain": 1, "retry": 2, "sending": 3, "queued": 4}


class Letters:
    """The outbox as people see it."""

    def __init__(self, state: HubState, lanes: Lanes, resend: Resend) -> None:
        self._state = state
        self._lanes = lanes
        self._resend = resend

    def views(self) -> list[LetterView]:
        """Return what has not arrived on a channel; what was given up comes first."""
        rows = [*self._state.dead.values(), *self._state.deliveries.values()]
        rows = [row for row in rows if row.kind not in TO_SESSIONS]
        rows.sort(key=lambda row: (_RANK.get(row.state, 5), row.id))
        return [letter_view(row) for row in rows[:SHOWN]]

    def sorted(self, step: Step, event: LettersSorted) -> None:
        """Do what a person wants with some of them, and keep what became of each."""
        done: dict[int, str] = {}
        for number in event.letters:
            row = self._state.dead.get(number) or self._state.deliveries.get(number)
            if row is None or row.kind in TO_SESSIONS:
                done[number] = "it is not in the outbox"
                continue
            if row.state == "sending":
                done[number] = "it is on its way right now"
            elif event.action == "drop":
                done[number] = self._drop(step, row)
            else:
                done[number] = self._retry(step, row, event)
            if not done[number]:
                step.audit(
                    f"delivery_{event.action}",
                    self._state.find(row.ask_id) if row.ask_id is not None else None,
                    delivery=row.id,
                    target=row.target,
                )
        self._state.letters_sorted[event.number] = done
        step.change()

    def _drop(self, step: Step, row: DeliveryRow) -> str:
        if row.state == "dead":
            self._lanes.bury(step, row, DROPPED)
        else:
            self._lanes.drop(step, row)
            self._lanes.wake(step, row)
        return ""

    def _retry(self, step: Step, row: DeliveryRow, event: LettersSorted) -> str:
        if row.state in WAITING:
            if row.state != "queued":
                self._lanes.due(step, row.id)
            return ""
        ask = None
        if row.ask_id is not None:
            ask = self._state.find(row.ask_id) or event.found.get(row.ask_id)
        return self._resend.by_hand(step, row, ask)


def letter_view(row: DeliveryRow) -> LetterView:
    """Return a delivery as it is listed."""
    return LetterView(
        id=row.id,
        kind=row.kind,
        lane=row.lane,
        channel=row.target,
        state=row.state,
        attempts=row.attempt,
        created_ms=row.created_ms,
        ask=row.ask_id,
        next_ms=row.not_before_ms or None,
        reason=one_line(row.error, 300) if row.error else None,
    )


def dead_asks(letters: Sequence[LetterView]) -> list[str]:
    """Return the asks that given-up deliveries are about."""
    return list(dict.fromkeys(one.ask for one in letters if one.state == "dead" and one.ask))
