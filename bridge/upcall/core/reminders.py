"""What time brings to an open ask: it is shown elsewhere too, reminded of, and escalated.

One timer an ask. Whatever it finds due is done once: what is over is counted in the ask's
row, so that a start of the hub repeats and skips nothing, and reminders that nobody could
hear do not pile up.
"""

from typing import Final

from upcall.core import schedule
from upcall.core.operators import rules_of
from upcall.core.outbox import Outbox
from upcall.core.places import Plan
from upcall.core.router import GRACE_S
from upcall.core.state import ChannelInfo, HubState, Step
from upcall.model.events import AtMachine, DeliveryFailed
from upcall.model.ids import AskId
from upcall.model.policy import Rules
from upcall.model.rows import RESTORED_ASKING, AskRow
from upcall.model.struct import replaced

# A wait for a time of day looks at the wall clock again: it may have been set meanwhile.
LOOK_S: Final = 300.0


class Courses:
    """Leads open asks through time."""

    def __init__(self, state: HubState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._router = outbox.router
        # Asks whose reminder no channel could bring, and those that wait for a person here.
        self._unheard: dict[AskId, None] = {}
        self._held_back: dict[AskId, None] = {}

    def begin(self, step: Step, row: AskRow) -> AskRow:
        """Return a new ask with its clock at zero."""
        course = schedule.begun(row.course, step.at, self._state.settings.boot_id)
        if row.held_s is not None:
            course = replaced(course, held_s=0.0)
        return replaced(row, course=course)

    def held(self, step: Step, row: AskRow, *, hold: bool) -> AskRow:
        """Return *row* with the clock of its reminders and escalation stopped, or running."""
        turn = schedule.held if hold else schedule.released
        return replaced(row, course=turn(row.course, step.at, self._state.settings.boot_id))

    def forget(self, ask_id: AskId) -> None:
        """An ask is over."""
        self._state.course_due.pop(ask_id, None)
        self._state.plans.pop(ask_id, None)
        self._unheard.pop(ask_id, None)
        self._held_back.pop(ask_id, None)

    def look(self, step: Step, ask_id: AskId) -> None:
        """Do what is due for an ask, and set its timer."""
        row = self._state.asks.get(ask_id)
        if row is None or row.note == RESTORED_ASKING or row.course.merged_into is not None:
            return
        rules = rules_of(self._state, row)
        silent_ms, _ = self._router.silent_until(step.at, row, rules)
        if row.state == "open" and silent_ms is None:
            row = self._escalate(step, row, rules)
        row = self._outbox.show(step, row)
        plan = self._state.plans.get(row.ask_id) or self._router.plan(step.at, row)
        row = self._note_ring(step, row)
        if row.state == "open" and silent_ms is None:
            row = self._remind(step, row, rules)
        self._note_held_back(step, row, plan)
        self._set_timer(step, row, rules, plan, silent_ms)

    def resume(self, step: Step) -> None:
        """At start: go on where the former hub was."""
        for row in list(self._state.asks.values()):
            course = schedule.in_boot(row.course, step.at, self._state.settings.boot_id)
            if not course.boot_id or not course.from_ms:
                # Raised by a hub that kept no such clock.
                began = replaced(step.at, wall_ms=row.raised_ms)
                course = schedule.begun(course, began, self._state.settings.boot_id)
                waited_s = max(0.0, (step.at.wall_ms - row.raised_ms) / 1000)
                raised_s = step.at.boot_s - waited_s
                course = replaced(course, from_boot_s=raised_s, raised_boot_s=raised_s)
            if course != row.course:
                self._keep(step, replaced(row, course=course))
            self.look(step, row.ask_id)
        for info in self._state.infos.values():
            if not info.capabilities.draws_asks:
                step.timer(step.at.boot_s + GRACE_S, "route", info.name)

    def channel_changed(self, step: Step, channel: str) -> None:
        """A channel hears again, or does not hear any more."""
        live = self._state.channels[channel]
        if live.hearing:
            live.away_since_s = None
            for ask_id in list(self._unheard):
                self.look(step, ask_id)
        elif live.away_since_s is None:
            live.away_since_s = step.at.boot_s
            step.timer(step.at.boot_s + GRACE_S, "route", channel)

    def failed(self, step: Step, event: DeliveryFailed) -> None:
        """A card did not get through this time; its ask may have gone elsewhere meanwhile."""
        if event.kind == "throttled" and event.retry_after_s > GRACE_S:
            # Banned for so long it is as good as deaf.
            self.reroute(step)
        row = self._state.deliveries.get(event.delivery)
        if row is None or row.kind != "post" or row.ask_id is None:
            return
        plan = self._state.plans.get(row.ask_id)
        if plan is not None and row.target not in plan.show:
            self.look(step, row.ask_id)

    def reroute(self, step: Step) -> None:
        """A channel has been away for long: asks with a stand-in for it go there."""
        policy = self._state.settings.policy
        if not any(
            terms.fallback for terms in (policy.defaults, *(r.terms for r in policy.routes))
        ):
            return
        for row in list(self._state.asks.values()):
            if rules_of(self._state, row).fallback:
                self.look(step, row.ask_id)

    def look_at_all(self, step: Step) -> None:
        """Other rules hold from now on."""
        for ask_id in list(self._state.asks):
            self.look(step, ask_id)

    def seen(self, step: Step, event: AtMachine) -> None:
        """There are other signs of a person at this computer than before."""
        self._state.seen_here = dict(event.seen)
        for ask_id in list(self._held_back):
            self.look(step, ask_id)

    def _escalate(self, step: Step, row: AskRow, rules: Rules) -> AskRow:
        since_s = self._since_s(step, row, rules)
        course = row.course
        taken = False
        while (
            since_s is not None
            and course.held_s is None
            and course.stage < len(rules.escalate)
            and rules.escalate[course.stage].after_s <= since_s
        ):
            more = rules.escalate[course.stage]
            people = tuple(dict.fromkeys((*course.people, *more.people)))
            channels = tuple(dict.fromkeys((*course.channels, *more.channels)))
            course = replaced(course, stage=course.stage + 1, people=people, channels=channels)
            taken = True
            step.audit(
                "escalated",
                row,
                stage=course.stage,
                people=", ".join(more.people) or None,
                channels=", ".join(more.channels) or None,
            )
        if taken:
            row = self._keep(step, replaced(row, course=course))
            self._outbox.redraw(step, row)
            step.change()
        return row

    def _remind(self, step: Step, row: AskRow, rules: Rules) -> AskRow:
        course = row.course
        since_s = self._since_s(step, row, rules)
        due = 0 if since_s is None else schedule.reminders_due(rules.reminders_s, since_s)
        if course.held_s is not None or course.rang_s is None or due <= course.reminded:
            self._unheard.pop(row.ask_id, None)
            return row
        hear = [info for info in self._state.infos.values() if self._can_remind(row, info)]
        if not hear:
            self._unheard[row.ask_id] = None
            return row
        self._unheard.pop(row.ask_id, None)
        row = self._keep(step, replaced(row, course=replaced(course, reminded=due)))
        for info in hear:
            self._outbox.remind(step, row, info, due)
        step.audit("reminded", row, number=due, channels=", ".join(one.name for one in hear))
        return row

    def _can_remind(self, row: AskRow, info: ChannelInfo) -> bool:
        shown = self._state.cards.get(row.ask_id, {}).get(info.name)
        return (
            not info.capabilities.draws_asks
            and shown is not None
            and shown.ref is not None
            and self._state.channels[info.name].hearing
        )

    def _since_s(self, step: Step, row: AskRow, rules: Rules) -> float | None:
        """Return for how long people have been asked; None: nobody was rung yet."""
        base_s = row.course.rang_s
        if base_s is None:
            named = rules.channels
            ringing = [
                info
                for info in self._state.infos.values()
                if not info.capabilities.draws_asks and (named is None or info.name in named)
            ]
            if ringing:
                return None
            base_s = 0.0
        shown_s = schedule.clock_s(row.course, step.at, self._state.settings.boot_id)
        return shown_s - base_s

    def _note_ring(self, step: Step, row: AskRow) -> AskRow:
        """Keep when the ask was first shown where that rings somebody."""
        infos = self._state.infos
        cards = self._state.cards.get(row.ask_id, ())
        rings = any(name in infos and not infos[name].capabilities.draws_asks for name in cards)
        if row.course.rang_s is not None or not rings:
            return row
        shown_s = schedule.clock_s(row.course, step.at, self._state.settings.boot_id)
        return self._keep(step, replaced(row, course=replaced(row.course, rang_s=shown_s)))

    def _note_held_back(self, step: Step, row: AskRow, plan: Plan) -> None:
        if plan.why == "presence":
            if row.ask_id not in self._held_back:
                step.audit("held_back", row, why=plan.why, until_ms=plan.until_ms)
            self._held_back[row.ask_id] = None
        else:
            self._held_back.pop(row.ask_id, None)

    def _set_timer(
        self, step: Step, row: AskRow, rules: Rules, plan: Plan, silent_ms: int | None
    ) -> None:
        now_s = step.at.boot_s
        waits_s: list[float] = []
        until_ms = plan.until_ms
        since_s = self._since_s(step, row, rules)
        if since_s is not None and row.state == "open" and row.course.held_s is None:
            after_s = [schedule.reminder_s(rules.reminders_s, row.course.reminded)]
            if row.course.rang_s is None or row.ask_id in self._unheard:
                after_s = []
            if row.course.stage < len(rules.escalate):
                after_s.append(rules.escalate[row.course.stage].after_s)
            waits_s += [one - since_s for one in after_s if one is not None]
        if silent_ms is not None and any(wait_s <= 0 for wait_s in waits_s):
            until_ms = silent_ms
        if until_ms is not None:
            # Of what is due already in the night, its end decides.
            waits_s = [wait_s for wait_s in waits_s if wait_s > 0]
            waits_s.append(min(LOOK_S, (until_ms - step.at.wall_ms) / 1000))
        if not waits_s:
            self._state.course_due.pop(row.ask_id, None)
            return
        due_s = now_s + max(0.001, min(waits_s))
        if self._state.course_due.get(row.ask_id) != due_s:
            self._state.course_due[row.ask_id] = due_s
            step.timer(due_s, "course", row.ask_id)

    def _keep(self, step: Step, row: AskRow) -> AskRow:
        self._state.asks[row.ask_id] = row
        step.write(row)
        return row
