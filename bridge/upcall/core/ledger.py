"""The hub's view of each ask: open, claimed, closed. Nothing leaves `closed`.

Every change is a row, a line of the story, a redraw of all cards, and word to whoever waits.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from upcall.core.asks import frame_of, wire_answer
from upcall.core.outbox import Outbox
from upcall.core.render import late_words
from upcall.core.state import CLOSED_KEPT, HubState, Step
from upcall.model.ask import AnsweredBy, AskResult, AskState, Outcome, Selection
from upcall.model.effects import (
    Acknowledge,
    DropTokens,
    EndClaim,
    ToClients,
    ToWaiter,
    Unhost,
    WatchProcess,
)
from upcall.model.frames import ActionNeeded, ActionResolved, By
from upcall.model.ids import AskId, SessionId
from upcall.model.platform import Receipt
from upcall.model.rows import AskRow, ClaimRow, SessionRow
from upcall.model.struct import replaced

# What is missing here isn't allowed. To allow it, add a row; never an `if`.
NEXT: Final[Mapping[AskState, Mapping[str, AskState]]] = {
    "open": {"claim": "claimed", "close": "closed"},
    "claimed": {"reopen": "open", "close": "closed"},
    "closed": {},
}


LOCAL: Final = "local:"


def result_of(row: AskRow, at_ms: int) -> AskResult:
    """Return how *row* stands, as it is told to programs."""
    by = row.answered_by
    end_ms = row.closed_ms if row.closed_ms is not None else at_ms
    return AskResult(
        id=row.ask_id,
        outcome=row.outcome or "open",
        answer=row.answer,
        answered_by=None if by is None else AnsweredBy(by.name, by.channel),
        waited_s=max(0, end_ms - row.raised_ms) / 1000,
        reason=row.note or None,
    )


def plain(value: Any) -> Any:
    """Return a struct as plain dictionaries and lists."""
    return msgspec.to_builtins(value)


def claimed_by(claim: ClaimRow) -> AnsweredBy:
    """Return who made *claim*, with what the kernel said of a local program."""
    origin = claim.origin or ""
    detail = origin.removeprefix(LOCAL) if origin.startswith(LOCAL) else ""
    return AnsweredBy(claim.operator, claim.channel, detail)


class Ledger:
    """Moves asks along their life."""

    def __init__(self, state: HubState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def open(self, step: Step, row: AskRow) -> None:
        """Track a new ask and show it everywhere."""
        self._keep(step, row)
        self._state.by_action[row.session_id, row.action_id] = row.ask_id
        self._state.by_session[row.session_id][row.ask_id] = None
        if row.key is not None:
            self._state.keys[row.key] = row.ask_id
        if row.deadline_boot_s is not None:
            step.timer(row.deadline_boot_s, "deadline", row.ask_id)
        step.audit("raised", row, ask_class=row.spec.ask_class, revision=row.revision)
        self._outbox.show(step, row)
        if self._is_hosted(row):
            step.release(ToClients(row.session_id, action_of(row)))
        step.change()

    def claim(self, step: Step, row: AskRow, claim: ClaimRow) -> AskRow:
        """Take the first answer; whether it counts is the program's word."""
        self._state.claims[row.ask_id] = claim
        row = replaced(row, state=NEXT[row.state]["claim"], note="")
        self._keep(step, row)
        step.write(claim)
        step.audit(
            "claimed",
            row,
            operator=claim.operator,
            channel=claim.channel,
            declined=claim.declined,
        )
        self._outbox.redraw(step, row)
        step.change()
        return row

    def reopen(self, step: Step, row: AskRow, note: str) -> AskRow:
        """The program did not take the answer and still waits for one."""
        row = replaced(row, state=NEXT[row.state]["reopen"], note=note)
        self._state.claims.pop(row.ask_id, None)
        self._keep(step, row)
        step.write(EndClaim(row.ask_id))
        step.audit("reopened", row, reason=note)
        self._outbox.drop_for(step, row.ask_id, ("reply",))
        self._outbox.redraw(step, row)
        self._settle(step, row, Receipt(ok=False, code="invalid_answer", msg=note))
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
        claim = self._state.claims.pop(row.ask_id, None)
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
        self._state.asks.pop(row.ask_id, None)
        self._remember(row)
        step.write(row)
        if claim is not None:
            step.write(EndClaim(row.ask_id))
        self._outbox.drop_for(step, row.ask_id, ("reply", "hold"))
        self._outbox.redraw(step, row)
        self._drop_tokens(step, row.ask_id)
        step.audit(
            "closed",
            row,
            outcome=outcome,
            resolved_by=resolved_by,
            operator=by.name if by else None,
            channel=by.channel if by else None,
        )
        if self._is_hosted(row):
            step.release(ToClients(row.session_id, resolved_of(row)))
        self._tell_waiters(step, row)
        self._settle(step, row, self._late_receipt(step, row, claim))
        self._forget(row)
        self.end_session_if_done(step, row.session_id)
        step.change()
        return row

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
            step.timer(due_s, "deadline", row.ask_id)
        else:
            return row
        self._keep(step, row)
        step.audit("held" if hold else "resumed", row)
        self._outbox.redraw(step, row)
        step.release(ToClients(row.session_id, action_of(row)))
        fields = {"held": row.held_s is not None, "deadline_ms": row.deadline_ms}
        for waiter in self._state.waiters.get(row.ask_id, ()):
            step.release(ToWaiter(waiter, "held", fields))
        step.change()
        return row

    def note_held(self, step: Step, row: AskRow, frame: ActionNeeded) -> None:
        """A session of its own says that its ask's clock was stopped or started."""
        deadline_ms = None if frame.held else frame.deadline_at
        row = replaced(row, held_s=0.0 if frame.held else None, deadline_ms=deadline_ms)
        self._keep(step, row)
        self._outbox.redraw(step, row)
        step.change()

    def await_end(self, step: Step, waiter: int, row: AskRow, *, attached: bool) -> None:
        """Tell *waiter* when *row* ends; an attached one is the asker itself."""
        self._state.waiters[row.ask_id][waiter] = attached
        self._state.waiting_for[waiter] = row.ask_id
        claim = self._state.claims.get(row.ask_id)
        if attached and row.state == "claimed" and claim is not None:
            self.offer(step, row, claim, waiter)

    def offer(self, step: Step, row: AskRow, claim: ClaimRow, waiter: int) -> None:
        """Hand the claimed answer to the attached asker; its `took` closes the ask."""
        result = AskResult(
            id=row.ask_id,
            outcome="declined" if claim.declined else "answered",
            answer=claim.selection,
            answered_by=AnsweredBy(claim.operator, claim.channel),
            waited_s=max(0, step.at.wall_ms - row.raised_ms) / 1000,
        )
        step.release(ToWaiter(waiter, "ended", {"result": plain(result)}))

    def attached(self, ask_id: AskId) -> list[int]:
        """Return the waiters that are the asker itself."""
        waiters = self._state.waiters.get(ask_id)
        return [waiter for waiter, own in waiters.items() if own] if waiters else []

    def end_session_if_done(self, step: Step, session_id: SessionId) -> None:
        """A hosted session ends with its last ask."""
        session = self._state.sessions.get(session_id)
        if (
            session is None
            or session.kind != "hosted"
            or self._state.by_session.get(session_id)
        ):
            return
        self.end_session(step, session)
        step.release(Unhost(session_id))

    def end_session(self, step: Step, session: SessionRow) -> None:
        """The session is no more; its conversation may go on with another."""
        session = replaced(session, ended_ms=step.at.wall_ms)
        self._state.sessions.pop(session.session_id, None)
        self._state.live.pop(session.session_id, None)
        asker = (session.asker_pid, session.asker_start, session.conversation)
        if self._state.hosted.get(asker) == session.session_id:
            del self._state.hosted[asker]
        self._state.ended[session.session_id] = session
        while len(self._state.ended) > CLOSED_KEPT * 2:
            self._state.ended.popitem(last=False)
        step.write(session)
        step.change()

    def watch_asker(self, step: Step, session: SessionRow) -> None:
        """Hear of the death of the process that asked."""
        if session.asker_pid:
            step.release(WatchProcess(session.asker_pid, session.asker_start))

    def _is_hosted(self, row: AskRow) -> bool:
        session = self._state.session(row.session_id)
        return session is not None and session.kind == "hosted"

    def _keep(self, step: Step, row: AskRow) -> None:
        self._state.asks[row.ask_id] = row
        step.write(row)

    def _remember(self, row: AskRow) -> None:
        closed = self._state.closed
        closed[row.ask_id] = row
        while len(closed) > CLOSED_KEPT:
            _, old = closed.popitem(last=False)
            self._state.by_action.pop((old.session_id, old.action_id), None)

    def _forget(self, row: AskRow) -> None:
        asks = self._state.by_session.get(row.session_id)
        if asks is not None:
            asks.pop(row.ask_id, None)
            if not asks:
                del self._state.by_session[row.session_id]
        for info in self._state.settings.channels:
            self._state.cards.pop((row.ask_id, info.name), None)

    def _drop_tokens(self, step: Step, ask_id: AskId) -> None:
        tokens = self._state.tokens_of.pop(ask_id, None)
        if tokens:
            for token in tokens:
                self._state.tokens.pop(token.token, None)
            step.write(DropTokens(ask_id))

    def _tell_waiters(self, step: Step, row: AskRow) -> None:
        fields = {"result": plain(result_of(row, step.at.wall_ms))}
        for waiter in self._state.waiters.pop(row.ask_id, {}):
            self._state.waiting_for.pop(waiter, None)
            step.release(ToWaiter(waiter, "ended", fields))

    def _settle(self, step: Step, row: AskRow, receipt: Receipt) -> None:
        for receipt_id in self._state.receipts_waiting.pop(row.ask_id, ()):
            step.release(Acknowledge(receipt_id, receipt))

    def _late_receipt(self, step: Step, row: AskRow, claim: ClaimRow | None) -> Receipt:
        result = result_of(row, step.at.wall_ms)
        won = claim is not None and (
            (row.outcome == "answered" and row.answer == claim.selection)
            or (row.outcome == "declined" and claim.declined)
        )
        if won:
            return Receipt(ok=True, result=result)
        code = "unreachable" if row.outcome == "unreachable" else "already_answered"
        return Receipt(
            ok=False, code=code, msg=row.note or late_words(row, step.at.wall_ms), result=result
        )


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
        outcome=row.outcome,  # type: ignore[arg-type]  # a row holds only outcomes
        by=None if by is None else By(channel=by.channel, name=by.name),
    )
