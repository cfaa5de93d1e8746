"""The hub's view of each ask: open, claimed, closed. Nothing leaves `closed`.

Every change is a row, a line of the story, a redraw of all cards, and word to whoever waits.
"""

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from upcall.core import trail
from upcall.core.asks import frame_of, wire_answer
from upcall.core.merging import Merging, merged_with
from upcall.core.outbox import Outbox
from upcall.core.policy import refused_words
from upcall.core.presses import retire
from upcall.core.quotas import Quotas
from upcall.core.redacting import mask_of, shown_ask, shown_receipt
from upcall.core.reminders import Courses
from upcall.core.render import (
    LOST_WORDS,
    claimed_by,
    gone_unknown_words,
    gone_words,
    late_code,
    late_words,
    refused_note,
)
from upcall.core.state import CLOSED_KEPT, INBOUND_KEPT, HubState, Process, Step, is_overdue
from upcall.model.ask import AnsweredBy, AskResult, AskState, Outcome, Selection
from upcall.model.effects import (
    Acknowledge,
    DropTokens,
    EndClaim,
    ToClients,
    ToWaiter,
    Unhost,
)
from upcall.model.frames import ActionNeeded, ActionResolved, By
from upcall.model.ids import AskId, SessionId
from upcall.model.limits import CONVERSATION_IDLE_S
from upcall.model.platform import Receipt
from upcall.model.rows import RESTORED_AGAIN, RESTORED_ASKING, AskRow, ClaimRow, SessionRow
from upcall.model.struct import replaced
from upcall.model.text import one_line

# What is missing here isn't allowed. To allow it, add a row; never an `if`.
NEXT: Final[Mapping[AskState, Mapping[str, AskState]]] = {
    "open": {"claim": "claimed", "close": "closed"},
    "claimed": {"reopen": "open", "close": "closed"},
    "closed": {},
}


ASKERS_KEPT: Final = 64
_OUTCOMES: Final[Mapping[str, Outcome]] = {outcome: outcome for outcome in get_args(Outcome)}


def result_of(row: AskRow, at_ms: int) -> AskResult:
    """Return how *row* stands, as it is told to programs."""
    end_ms = row.closed_ms if row.closed_ms is not None else at_ms
    return AskResult(
        id=row.ask_id,
        outcome=row.outcome or "open",
        answer=row.answer,
        answered_by=row.answered_by,
        waited_s=max(0, end_ms - row.raised_ms) / 1000,
        reason=row.note or None,
    )


def plain(value: Any) -> Any:
    """Return a struct as plain dictionaries and lists."""
    return msgspec.to_builtins(value)


class Ledger:
    """Moves asks along their life."""

    def __init__(
        self, state: HubState, outbox: Outbox, courses: Courses, merging: Merging
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._courses = courses
        self._merging = merging
        self._quotas = Quotas(state)

    def open(self, step: Step, row: AskRow) -> None:
        """Track a new ask and show it where its rules say."""
        row = self._merging.join(self._quotas.counted(step, row))
        row = self._courses.begin(step, row)
        self._keep(step, row)
        self._state.by_action[row.session_id, row.action_id] = row.ask_id
        self._state.by_session.setdefault(row.session_id, {})[row.ask_id] = None
        if row.key is not None:
            self._state.remember_key(row.key, row.ask_id)
        self._set_timer(step, row)
        session = self._state.session(row.session_id)
        step.audit(
            "raised",
            row,
            ask_class=row.spec.ask_class,
            revision=row.revision,
            pid=(session.asker_pid or session.pid or None) if session is not None else None,
        )
        self._courses.look(step, row.ask_id)
        self._merging.joined(step, row)
        if self._state.is_hosted(row.session_id):
            step.release(ToClients(row.session_id, action_of(row)))
        step.change()

    def claim(self, step: Step, row: AskRow, claim: ClaimRow) -> AskRow:
        """Take the first answer; whether it counts is the program's word."""
        row = replaced(row, state=NEXT[row.state]["claim"], note="")
        self._state.claims[row.ask_id] = claim
        self._state.won[row.ask_id] = claim
        while len(self._state.won) > INBOUND_KEPT:
            self._state.won.popitem(last=False)
        self._keep(step, row)
        step.write(claim)
        step.audit(
            "claimed",
            row,
            operator=claim.operator,
            channel=claim.channel,
            declined=claim.declined,
            detail=claimed_by(claim).detail or None,
            inbound=claim.inbound,
            **trail.answer_facts(row, claim.selection),
        )
        if not row.handed_over:
            # Of a handed-over ask the end is decided in this same step.
            self._outbox.redraw(step, row)
        step.change()
        return row

    def refuse(self, step: Step, row: AskRow, detail: str, code: str) -> None:
        """Tell everybody of an answer that was not believed, and of the next ones ever less.

        Told are the first, the tenth, the hundredth and so on, so that a program that tries
        for ever fills neither a chat nor the store.
        """
        count = self._state.refusals.get(row.ask_id, 0) + 1
        self._state.refusals[row.ask_id] = count
        if not _is_told(count):
            return
        if row.note != RESTORED_ASKING:
            row = replaced(row, note=refused_note(row.note, detail, count))
            self._keep(step, row)
        step.audit("refused", row, code=code, detail=one_line(detail, 200), count=count)
        step.notice(row.session_id, "security", refused_words(row, detail, code, count))
        self._outbox.redraw(step, row)

    def reopen(
        self, step: Step, row: AskRow, code: str, note: str, *, keeps_votes: bool = False
    ) -> AskRow:
        """The program did not take the answer and still waits for one.

        The votes that led to it have been used up, unless the answer was taken back.
        """
        for vote in () if keeps_votes else self._state.votes.pop(row.ask_id, {}).values():
            step.write(replaced(vote, live=False))
        row = replaced(row, state=NEXT[row.state]["reopen"], note=note)
        self._state.claims.pop(row.ask_id, None)
        self._state.won.pop(row.ask_id, None)
        self._state.secrets.pop(row.ask_id, None)
        self._keep(step, row)
        step.write(EndClaim(row.ask_id))
        step.audit("reopened", row, reason=code)
        self._set_timer(step, row)
        self._outbox.drop_reply(step, row.ask_id)
        self._outbox.redraw(step, row)
        result = result_of(row, step.at.wall_ms)
        self._settle(step, row, Receipt(ok=False, code=code, msg=note, result=result))
        row = self._merging.reopened(step, row)
        self._courses.look(step, row.ask_id)
        step.change()
        return row

    def close(
        self,
        step: Step,
        row: AskRow,
        outcome: Outcome,
        *,
        resolved_by: str,
        answer: Selection | None = None,
        by: AnsweredBy | None = None,
        note: str = "",
    ) -> AskRow:
        """Record the one outcome, tell everybody, and take the buttons away."""
        claim = self._state.claims.get(row.ask_id)
        row = replaced(
            row,
            state=NEXT[row.state]["close"],
            outcome=outcome,
            answer=answer,
            answered_by=by,
            resolved_by=resolved_by,
            closed_ms=step.at.wall_ms,
            note=note,
        )
        self._state.claims.pop(row.ask_id, None)
        self._state.refusals.pop(row.ask_id, None)
        self._state.heard.pop(row.ask_id, None)
        self._courses.forget(row.ask_id)
        self._state.secrets.pop(row.ask_id, None)
        self._state.asks.pop(row.ask_id, None)
        self._state.forget_shown(row.ask_id)
        self._remember(row)
        step.write(row)
        if claim is not None:
            step.write(EndClaim(row.ask_id))
        if self._state.tokens_of.get(row.ask_id):
            step.write(DropTokens(row.ask_id, step.at.wall_ms))
        retire(step, self._state, row.ask_id)
        self._outbox.close(step, row)
        self._quotas.left(row)
        for vote in self._state.votes.pop(row.ask_id, {}).values():
            step.write(replaced(vote, live=False))
        self._state.taken_back.pop(row.ask_id, None)
        step.audit(
            "closed",
            row,
            outcome=outcome,
            resolved_by=resolved_by,
            operator=by.name if by else None,
            channel=by.channel if by else None,
            detail=by.detail if by else None,
            **trail.answer_facts(row, answer),
        )
        if by is not None:
            self._state.answers[by.channel] = self._state.answers.get(by.channel, 0) + 1
        if self._state.is_hosted(row.session_id):
            step.release(ToClients(row.session_id, resolved_of(row)))
        self._tell_waiters(step, row)
        won = claim is not None and _has_won(row, claim)
        if not won:
            self._state.won.pop(row.ask_id, None)
        self._settle(step, row, self._late_receipt(step, row, won=won))
        self._forget(row)
        self._merging.closed(step, row)
        self.end_session_if_done(step, row.session_id)
        step.change()
        return row

    def taken(self, step: Step, row: AskRow) -> AskRow:
        """The program has the claimed answer: record it as what the ask ended with."""
        claim = self._state.claims[row.ask_id]
        return self.close(
            step,
            row,
            "declined" if claim.declined else "answered",
            resolved_by="client",
            answer=claim.selection,
            by=claimed_by(claim),
        )

    def ask_again(self, step: Step, row: AskRow) -> AskRow:
        """A restored ask is still wanted by its program: show it, under its new revision."""
        row = replaced(row, note=RESTORED_AGAIN)
        self._keep(step, row)
        step.audit("asked_again", row, revision=row.revision)
        self._courses.look(step, row.ask_id)
        if self._state.is_hosted(row.session_id):
            step.release(ToClients(row.session_id, action_of(row)))
        step.change()
        return row

    def reroute(self, step: Step, session_id: SessionId) -> None:
        """A session says something else of itself: its asks may belong elsewhere too."""
        for row in self._state.asks_of(session_id):
            self._courses.look(step, row.ask_id)

    def unreachable(self, step: Step, row: AskRow) -> None:
        """The program is gone without an answer."""
        if is_overdue(step, row):
            # That came first, and is what the program itself was told.
            self.close(step, row, "timed_out", resolved_by="timeout")
            return
        at_ms, zone = step.at.wall_ms, self._state.settings.zone
        note = gone_words(row, at_ms, zone)
        if row.state == "claimed" and self._outbox.may_have_replied(row):
            note = gone_unknown_words(at_ms, zone)
        self.close(step, row, "unreachable", resolved_by="local", note=note)

    def hold(self, step: Step, row: AskRow, hold: bool) -> AskRow:
        """Stop, or start again, the clock of an open hosted ask with a deadline."""
        if hold and row.held_s is None and row.deadline_boot_s is not None:
            left_s = max(0.0, row.deadline_boot_s - step.at.boot_s)
            row = replaced(row, held_s=left_s, deadline_ms=None, deadline_boot_s=None)
        elif not hold and row.held_s is not None:
            due_s = step.at.boot_s + row.held_s
            row = replaced(
                row,
                held_s=None,
                deadline_boot_s=due_s,
                deadline_ms=step.at.wall_ms + int(row.held_s * 1000),
                boot_id=self._state.settings.boot_id,
            )
            self._set_timer(step, row)
        else:
            return row
        row = self._courses.held(step, row, hold=hold)
        self._keep(step, row)
        self._courses.look(step, row.ask_id)
        step.audit("held" if hold else "resumed", row)
        self._outbox.redraw(step, row)
        step.release(ToClients(row.session_id, action_of(row)))
        fields = {"held": row.held_s is not None, "deadline_ms": row.deadline_ms}
        for waiter in self._state.waiters.get(row.ask_id, ()):
            step.release(ToWaiter(waiter, "held", fields))
        for other in merged_with(self._state, row.ask_id):
            self.hold(step, other, hold)
        step.change()
        return row

    def guard(self, step: Step, row: AskRow, chain: tuple[str, ...]) -> AskRow:
        """Let *chain* count as the program that asked as well, if *row* is a permission ask."""
        askers = tuple(dict.fromkeys((*chain, *row.askers)))[:ASKERS_KEPT]
        if row.spec.ask_class == "permission" and set(askers) != set(row.askers):
            row = replaced(row, askers=askers)
            self._keep(step, row)
        return row

    def prolong(self, step: Step, row: AskRow, seconds: float) -> AskRow:
        """Let the clock of an open hosted ask run *seconds* from now."""
        row = replaced(
            row,
            deadline_boot_s=step.at.boot_s + seconds,
            deadline_ms=step.at.wall_ms + int(seconds * 1000),
            boot_id=self._state.settings.boot_id,
        )
        self._set_timer(step, row)
        self._keep(step, row)
        step.audit("prolonged", row, seconds=round(seconds, 3))
        self._outbox.redraw(step, row)
        step.release(ToClients(row.session_id, action_of(row)))
        step.change()
        return row

    def note_held(self, step: Step, row: AskRow, frame: ActionNeeded) -> None:
        """A session of its own says that its ask's clock was stopped or started."""
        deadline_ms = None if frame.held else frame.deadline_at
        if (row.held_s is not None) != frame.held:
            row = self._courses.held(step, row, hold=frame.held)
        row = replaced(row, held_s=0.0 if frame.held else None, deadline_ms=deadline_ms)
        self._keep(step, row)
        self._courses.look(step, row.ask_id)
        self._outbox.redraw(step, row)
        step.change()

    def await_end(
        self,
        step: Step,
        waiter: int,
        row: AskRow,
        *,
        attached: bool,
        process: Process | None = None,
    ) -> None:
        """Tell *waiter* when *row* ends; an attached one is the asker itself."""
        self._state.add_waiter(waiter, row.ask_id, attached=attached, process=process)
        claim = self._state.claims.get(row.ask_id)
        if attached and claim is not None:
            if row.spec.secret and not claim.declined and row.ask_id not in self._state.secrets:
                self.lost_secret(step, row)
            else:
                self.offer(step, row, claim, waiter)

    def lost_secret(self, step: Step, row: AskRow) -> AskRow:
        """The words were in the memory of a hub that is gone; only a person has them."""
        return self.reopen(step, row, "secret_lost", LOST_WORDS)

    def offer(self, step: Step, row: AskRow, claim: ClaimRow, waiter: int) -> None:
        """Hand the claimed answer to the attached asker; its `took` closes the ask.

        A secret is handed to one of them, once.
        """
        answer = claim.selection
        if row.spec.secret and not claim.declined:
            if self._state.offered.intersection(self.attached(row.ask_id)):
                return
            answer = Selection(text=self._state.secrets[row.ask_id])
        result = AskResult(
            id=row.ask_id,
            outcome="declined" if claim.declined else "answered",
            answer=answer,
            answered_by=claimed_by(claim),
            waited_s=max(0, step.at.wall_ms - row.raised_ms) / 1000,
        )
        if not self._state.offered.intersection(self.attached(row.ask_id)):
            step.audit("sent", row)
        self._state.offered.add(waiter)
        step.release(ToWaiter(waiter, "ended", {"result": plain(result)}))

    def attached(self, ask_id: AskId) -> list[int]:
        """Return the waiters that are the asker itself."""
        waiters = self._state.waiters.get(ask_id)
        return [waiter for waiter, own in waiters.items() if own] if waiters else []

    def end_session_if_done(self, step: Step, session_id: SessionId) -> None:
        """A hosted session ends with its last ask."""
        session = self._state.sessions.get(session_id)
        if session is None or session.kind != "hosted" or session_id in self._state.by_session:
            return
        self.end_session(step, session)
        step.release(Unhost(session_id))

    def end_session(self, step: Step, session: SessionRow) -> None:
        """The session is no more; its conversation may go on with another."""
        session = replaced(session, ended_ms=step.at.wall_ms)
        self._outbox.lanes.end_session(step, session.session_id)
        if self._state.leave(session) and session.conversation in self._state.conversations:
            self.idle(step, session.conversation)
        step.write(session)
        step.change()

    def idle(self, step: Step, conversation: str) -> None:
        """A conversation has no session now; if none comes it is closed after a while."""
        due_s = step.at.boot_s + CONVERSATION_IDLE_S
        self._state.idle_due[conversation] = due_s
        step.timer(due_s, "conversation", conversation)

    def close_conversation(self, step: Step, conversation: str) -> None:
        """Nobody has spoken there for long."""
        del self._state.idle_due[conversation]
        for row in self._state.conversations.pop(conversation, {}).values():
            step.write(replaced(row, state="closed"))
            self._state.keep_former(row.key, row.channel, row.place)

    def _set_timer(self, step: Step, row: AskRow) -> None:
        if row.deadline_boot_s is not None:
            step.timer(row.deadline_boot_s, "deadline", row.ask_id)

    def _keep(self, step: Step, row: AskRow) -> None:
        self._state.asks[row.ask_id] = row
        step.write(row)

    def _remember(self, row: AskRow) -> None:
        closed = self._state.closed
        closed[row.ask_id] = row
        while len(closed) > CLOSED_KEPT:
            _, old = closed.popitem(last=False)
            action = (old.session_id, old.action_id)
            # A session may ask again under the action id of an ask that is over.
            if self._state.by_action.get(action) == old.ask_id:
                del self._state.by_action[action]
            for token in self._state.tokens_of.pop(old.ask_id, ()):
                self._state.tokens.pop(token.token, None)

    def _forget(self, row: AskRow) -> None:
        asks = self._state.by_session[row.session_id]
        asks.pop(row.ask_id)
        if not asks:
            del self._state.by_session[row.session_id]

    def _tell_waiters(self, step: Step, row: AskRow) -> None:
        fields = {"result": plain(result_of(row, step.at.wall_ms))}
        for waiter in list(self._state.waiters.get(row.ask_id, ())):
            # Who was told the claimed answer has it; it is told the end only once.
            told = waiter in self._state.offered
            self._state.drop_waiter(waiter)
            if not told:
                step.release(ToWaiter(waiter, "ended", fields))

    def _settle(self, step: Step, row: AskRow, receipt: Receipt) -> None:
        shown = shown_receipt(receipt, mask_of(self._state, row))
        for receipt_id in self._state.receipts_waiting.pop(row.ask_id, ()):
            step.release(Acknowledge(receipt_id, shown))

    def _late_receipt(self, step: Step, row: AskRow, *, won: bool) -> Receipt:
        result = result_of(row, step.at.wall_ms)
        if won:
            return Receipt(ok=True, result=result)
        msg = late_words(shown_ask(self._state, row), step.at.wall_ms)
        return Receipt(ok=False, code=late_code(row), msg=msg, result=result)


def _is_told(count: int) -> bool:
    return str(count).strip("0") == "1"


def _has_won(row: AskRow, claim: ClaimRow) -> bool:
    if claim.declined:
        return row.outcome == "declined"
    return row.outcome == "answered" and row.answer == claim.selection


def action_of(row: AskRow) -> ActionNeeded:
    """Return the frame that presents a hosted ask to clients of its endpoint."""
    spec = replaced(row.spec, deadline_at_ms=row.deadline_ms)
    return frame_of(spec, row.action_id, row.session_id, held=row.held_s is not None)


def resolved_of(row: AskRow) -> ActionResolved:
    """Return the frame that tells clients of a hosted session how an ask ended."""
    by = row.answered_by
    return ActionResolved(
        id=row.action_id,
        resolved_by=row.resolved_by or "local",
        answer=None if row.answer is None else wire_answer(row.spec, row.answer),
        outcome=_OUTCOMES.get(row.outcome or ""),
        by=None if by is None else By(channel=by.channel, name=by.name),
    )
