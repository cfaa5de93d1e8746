"""Equal open asks of one session as one card, where their program and the policy allow it.

The oldest one stands for the others: it has the card, and an answer to it is an answer to
all. Each of them keeps its own deadline, and its asker hears of its own end. Permissions and
secrets are never merged; nor is what is but one blank different (security.md S5).
"""

from typing import TypeAlias

from upcall.core.operators import rules_of
from upcall.core.outbox import Outbox
from upcall.core.reminders import Courses
from upcall.core.state import HubState, Step
from upcall.model.ids import AskId
from upcall.model.rows import RESTORED_ASKING, AskRow
from upcall.model.struct import replaced

_Key: TypeAlias = tuple[str, int | None, str]


class Merging:
    """Knows which open asks are equal."""

    def __init__(self, state: HubState, outbox: Outbox, courses: Courses) -> None:
        self._state = state
        self._outbox = outbox
        self._courses = courses
        self._leaders: dict[_Key, AskId] = {}

    def resume(self) -> None:
        """At start: know again which cards stand for which asks."""
        for row in self._state.asks.values():
            leader = row.course.merged_into
            if leader is not None and leader in self._state.asks:
                self._state.merged.setdefault(leader, {})[row.ask_id] = None
            elif leader is None and self._may_merge(row):
                self._leaders.setdefault(self._key(row), row.ask_id)

    def join(self, row: AskRow) -> AskRow:
        """Return a new ask, which an equal one may stand for."""
        if not self._may_merge(row):
            return row
        key = self._key(row)
        leader = self._state.asks.get(self._leaders.get(key, row.ask_id))
        if leader is None or not self._can_lead(leader):
            self._leaders[key] = row.ask_id
            return row
        self._state.merged.setdefault(leader.ask_id, {})[row.ask_id] = None
        return replaced(row, course=replaced(row.course, merged_into=leader.ask_id))

    def joined(self, step: Step, row: AskRow) -> None:
        """An ask was opened: if another one stands for it, say so there."""
        if row.course.merged_into is not None:
            step.audit("merged", row, into=row.course.merged_into)
            self._redraw(step, row.course.merged_into)

    def closed(self, step: Step, row: AskRow) -> None:
        """An ask is over: what it stood for needs a card of its own."""
        if row.course.merged_into is not None:
            self._leave(step, row)
            return
        key = self._key(row)
        if self._leaders.get(key) == row.ask_id:
            del self._leaders[key]
        others = [
            self._state.asks[other]
            for other in self._state.merged.pop(row.ask_id, ())
            if other in self._state.asks
        ]
        waiting = [other for other in others if other.state == "open"]
        for other in waiting:
            into = None if other is waiting[0] else waiting[0].ask_id
            if into is not None:
                self._state.merged.setdefault(into, {})[other.ask_id] = None
            self._point(step, other, into)
        if waiting:
            self._leaders.setdefault(key, waiting[0].ask_id)
            self._courses.look(step, waiting[0].ask_id)

    def reopened(self, step: Step, row: AskRow) -> AskRow:
        """An ask waits for an answer again: on its own card, if its leader does not."""
        leader = self._state.asks.get(row.course.merged_into or row.ask_id)
        if row.course.merged_into is None or (leader is not None and leader.state == "open"):
            return row
        self._leave(step, row)
        return self._point(step, row, None)

    def _leave(self, step: Step, row: AskRow) -> None:
        leader = row.course.merged_into or row.ask_id
        others = self._state.merged.get(leader, {})
        others.pop(row.ask_id, None)
        if not others:
            self._state.merged.pop(leader, None)
        self._redraw(step, leader)

    def _redraw(self, step: Step, leader: AskId) -> None:
        row = self._state.asks.get(leader)
        if row is not None and row.state == "open":
            self._outbox.redraw(step, row)

    def _point(self, step: Step, row: AskRow, into: AskId | None) -> AskRow:
        row = replaced(row, course=replaced(row.course, merged_into=into))
        self._state.asks[row.ask_id] = row
        step.write(row)
        return row

    def _may_merge(self, row: AskRow) -> bool:
        spec = row.spec
        return (
            spec.merge
            and spec.ask_class == "question"
            and not spec.secret
            and row.note != RESTORED_ASKING
            and rules_of(self._state, row).merge
        )

    def _can_lead(self, leader: AskRow) -> bool:
        # Who has voted has voted on what the card said then.
        return (
            leader.state == "open"
            and self._may_merge(leader)
            and not self._state.votes.get(leader.ask_id)
        )

    def _key(self, row: AskRow) -> _Key:
        session = self._state.session(row.session_id)
        conversation = row.session_id if session is None else session.conversation
        return conversation, row.course.uid, row.revision


def stands_for(state: HubState, ask_id: AskId) -> AskId:
    """Return the ask on whose card this one is: mostly itself."""
    row = state.asks.get(ask_id)
    leader = None if row is None else row.course.merged_into
    return leader if leader is not None and leader in state.asks else ask_id


def merged_with(state: HubState, ask_id: AskId) -> list[AskRow]:
    """Return the open asks that this one stands for."""
    others = [state.asks.get(other) for other in state.merged.get(ask_id, ())]
    return [other for other in others if other is not None and other.state == "open"]
