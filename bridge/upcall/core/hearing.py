"""Whether a person could have answered, which decides if a default may.

The time-out of an ask with a default runs only while at least one place that shows the ask
hears: what nobody could see in time is no silence. A place shows it once its card is there;
an inbox or a screen that draws asks itself shows it from the beginning, also before
somebody looks.
"""

from typing import Final, Literal, TypeAlias

from upcall.core.ledger import Ledger
from upcall.core.state import Heard, HubState, Step
from upcall.core.views import is_shown
from upcall.model.ids import AskId
from upcall.model.rows import AskRow

# A card takes a moment to arrive, and a channel may be away for one.
TOLERATED_S: Final = 5.0
# How long a hub that has just started waits for what its channels say.
RESUMED_LOOK_S: Final = 0.25

Verdict: TypeAlias = Literal["default", "nothing", "later"]


class Hearing:
    """Keeps count of the time in which asks with a default could not be answered."""

    def __init__(self, state: HubState, ledger: Ledger) -> None:
        self._state = state
        self._ledger = ledger

    def look(self, step: Step, ask_id: AskId | None = None) -> None:
        """See which asks are shown now: one, or all."""
        for row in self._rows(ask_id):
            if row.spec.default is not None:
                self._see(step, row)

    def verdict(self, step: Step, row: AskRow) -> Verdict:
        """Return what a time-out of *row* means now; `later`: its time was prolonged."""
        if row.spec.default is None:
            return "nothing"
        seen = self._see(step, row)
        missed_s = seen.total_s - seen.extended_s
        if seen.since_s is not None:
            missed_s += step.at.boot_s - seen.since_s
        if not seen.ever:
            if step.at.boot_s < self._state.resumed_boot_s + TOLERATED_S:
                step.timer(step.at.boot_s + RESUMED_LOOK_S, "overdue", row.ask_id)
                return "later"
            return "nothing"
        if missed_s <= TOLERATED_S:
            return "default"
        asked_s = self._asked_s(row, seen)
        if seen.extended_s + missed_s > asked_s:
            # Twice the time was enough for whoever waits for it.
            return "nothing"
        seen.extended_s += missed_s
        self._ledger.prolong(step, row, missed_s)
        return "later"

    def _asked_s(self, row: AskRow, seen: Heard) -> float:
        deadline_ms = row.deadline_ms if row.deadline_ms is not None else row.raised_ms
        return (deadline_ms - row.raised_ms) / 1000 - seen.extended_s

    def _rows(self, ask_id: AskId | None) -> list[AskRow]:
        if ask_id is None:
            return list(self._state.asks.values())
        # What a card stands for is shown where the card is.
        ids = (ask_id, *self._state.merged.get(ask_id, ()))
        rows = [self._state.asks.get(one) for one in ids]
        return [row for row in rows if row is not None]

    def _see(self, step: Step, row: AskRow) -> Heard:
        seen = self._state.heard.get(row.ask_id)
        if seen is None:
            seen = self._state.heard[row.ask_id] = Heard(step.at.boot_s)
        if is_shown(self._state, row.ask_id):
            if seen.since_s is not None:
                seen.total_s += step.at.boot_s - seen.since_s
                seen.since_s = None
            seen.ever = True
        elif seen.since_s is None:
            seen.since_s = step.at.boot_s
        return seen
