"""Steps of the wall clock: what was written down in its terms is put into its new terms.

The boot clock does not step. So a change of the difference of both, from one event to the
next or between two hubs of one boot, is a step, and every time that is kept in wall clock
milliseconds and still matters is moved with it: none comes sooner or later for it. After a
boot nothing is known but the wall clock.
"""

from typing import Final

from upcall.core.in_force import OWN
from upcall.core.lanes import WAITING
from upcall.core.state import HubState, Step
from upcall.model.effects import SaveGate, SaveSetting
from upcall.model.struct import replaced

# Clocks are corrected by fractions of a second all the time.
STEP_MS: Final = 2_000
_KEY: Final = "clock"


class ClockSteps:
    """Notices steps, and makes up for them."""

    def __init__(self, state: HubState) -> None:
        self._state = state

    def resume(self, step: Step) -> None:
        """At start: compare with what the former hub of this boot left."""
        boot, _, kept = self._state.settings_kept.get((OWN, _KEY), "").rpartition(":")
        if boot == self._state.settings.boot_id and kept.removeprefix("-").isdigit():
            self._state.clock_offset_ms = int(kept)
        self.look(step)
        self._keep(step)

    def look(self, step: Step) -> None:
        """Compare both clocks with how they were at the last event."""
        offset_ms = step.at.wall_ms - round(step.at.boot_s * 1000)
        before_ms, self._state.clock_offset_ms = self._state.clock_offset_ms, offset_ms
        if before_ms is not None and abs(offset_ms - before_ms) > STEP_MS:
            self._move(step, offset_ms - before_ms)
            self._keep(step)

    def _keep(self, step: Step) -> None:
        value = f"{self._state.settings.boot_id}:{self._state.clock_offset_ms}"
        if self._state.settings_kept.get((OWN, _KEY)) != value:
            self._state.settings_kept[OWN, _KEY] = value
            step.write(SaveSetting(OWN, _KEY, value))

    def _move(self, step: Step, by_ms: int) -> None:
        self._move_gates(step, by_ms)
        self._move_deliveries(step, by_ms)
        self._move_cards(step, by_ms)
        self._move_asks(step, by_ms)
        for live in self._state.channels.values():
            live.heard_ms = _moved(live.heard_ms, by_ms)
            live.event_ms = _moved(live.event_ms, by_ms)
            live.deaf_since_ms = _moved(live.deaf_since_ms, by_ms)
        step.change()

    def _move_gates(self, step: Step, by_ms: int) -> None:
        for scope, until_ms in list(self._state.gates.items()):
            self._state.gates[scope] = until_ms + by_ms
            step.write(SaveGate(scope, until_ms + by_ms))

    def _move_deliveries(self, step: Step, by_ms: int) -> None:
        for row in list(self._state.deliveries.values()):
            moved = replaced(
                row,
                created_ms=row.created_ms + by_ms,
                not_before_ms=row.not_before_ms + by_ms if row.not_before_ms else 0,
            )
            self._state.deliveries[row.id] = moved
            if row.state in WAITING:
                step.write(moved)

    def _move_cards(self, step: Step, by_ms: int) -> None:
        for of_ask in self._state.cards.values():
            for channel, card in list(of_ask.items()):
                if card.posted_ms is not None:
                    of_ask[channel] = replaced(card, posted_ms=card.posted_ms + by_ms)
                    step.write(of_ask[channel])

    def _move_asks(self, step: Step, by_ms: int) -> None:
        boot_id = self._state.settings.boot_id
        for ask_id, row in list(self._state.asks.items()):
            if row.boot_id != boot_id:
                continue
            deadline_ms = row.deadline_ms
            if row.deadline_boot_s is not None:
                deadline_ms = _moved(deadline_ms, by_ms)
            course = row.course
            if course.boot_id == boot_id and course.from_ms:
                course = replaced(course, from_ms=course.from_ms + by_ms)
            moved = replaced(row, deadline_ms=deadline_ms, course=course)
            if moved != row:
                self._state.asks[ask_id] = moved
                step.write(moved)


def _moved(at_ms: int | None, by_ms: int) -> int | None:
    return None if at_ms is None else at_ms + by_ms
