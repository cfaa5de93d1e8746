"""Programs on the hub's socket: they ask, wait, take the answer, withdraw, or die."""

from typing import Any, Final

from upcall.core.asks import InvalidAnswer, read_answer, revision_of
from upcall.core.door import Door
from upcall.core.ledger import Ledger, plain, result_of
from upcall.core.operators import needs_votes, rules_for_session, rules_of
from upcall.core.policy import local_name, refuse_own
from upcall.core.quotas import Quotas
from upcall.core.redacting import mask_of, shown_ask, shown_claim
from upcall.core.render import claimed_words, late_words
from upcall.core.state import HubState, Process, Step
from upcall.core.views import ask_view, channel_views
from upcall.model.ask import SECRET, AnsweredBy, Selection
from upcall.model.effects import Host, Respond, ToWaiter, WatchProcess
from upcall.model.events import (
    Asker,
    AskerDied,
    AskRaised,
    CancelAsked,
    NoticeRaised,
    Took,
    WaitAsked,
    WaiterGone,
)
from upcall.model.frames import Answer, Choice, sendable
from upcall.model.ids import SessionId, action_id_of, new_hosted_session_id
from upcall.model.limits import ASKER_GONE_S, RESTORED_WAIT_S
from upcall.model.platform import Receipt
from upcall.model.rows import (
    RESTORED_ASKING,
    AskRow,
    ClaimRow,
    Course,
    SessionRow,
    bare_revision,
)
from upcall.model.struct import replaced

PROMPT: Final = "prompt"
SEVERAL: Final = (
    "Several people decide this question, so the program's own prompt does not answer it. "
    "Answer with `upcall answer`, in the inbox or from your phone."
)
_NOT_OURS: Final = "this ask belongs to a session with an endpoint of its own"


class Askers:
    """Hosted sessions and those who wait for their asks."""

    def __init__(self, state: HubState, ledger: Ledger) -> None:
        self._state = state
        self._ledger = ledger
        self._door = Door(state)
        self._quotas = Quotas(state)

    def raised(self, step: Step, event: AskRaised) -> None:
        """Open the ask, or attach to it if it is the same one again."""
        known = self._known(event)
        if known is not None and not self._may_ask_again(known, event):
            self._attach(step, event, known)
            return
        if self._state.find(event.ask_id) is not None or (
            event.found is not None and event.found.ask_id == event.ask_id
        ):
            self._refuse(step, event.waiter, "id_conflict", "this id was used for another ask")
            return
        if event.spec.default is not None and not self._state.settings.allow_defaults:
            self._refuse(
                step,
                event.waiter,
                "defaults_forbidden",
                "default: this computer's policy allows none (policy.allow_defaults)",
                recover="ask without a default",
            )
            return
        full = self._over_limit(event.asker)
        if full is not None:
            fix = "answer or cancel some of them, or raise the limit in the table [limits]"
            self._refuse(step, event.waiter, "limit_reached", full, recover=fix)
            return
        session = self._session_for(step, event.asker)
        at = step.at
        timeout_s = event.timeout_s
        spec = event.spec
        if timeout_s is None:
            timeout_s = rules_for_session(self._state, session, spec.ask_class).deadline_s
        if timeout_s is not None:
            spec = replaced(spec, deadline_at_ms=at.wall_ms + int(timeout_s * 1000))
        row = AskRow(
            ask_id=event.ask_id,
            session_id=session.session_id,
            action_id=action_id_of(event.ask_id),
            state="open",
            spec=spec,
            revision=revision_of(spec),
            raised_ms=at.wall_ms,
            deadline_ms=spec.deadline_at_ms,
            deadline_boot_s=None if timeout_s is None else at.boot_s + timeout_s,
            boot_id=self._state.settings.boot_id,
            handed_over=not event.wait,
            key=event.key,
            askers=event.asker.chain,
            course=Course(ttys=event.asker.ttys, uid=event.asker.uid),
        )
        self._ledger.open(step, row)
        self._respond_ask(step, event.waiter, row)
        if event.wait:
            self._attach_waiter(step, event, row)

    def waits(self, step: Step, event: WaitAsked) -> None:
        """Tell a program how an ask ends, now or later; any number of times."""
        row = self._state.find(event.ask_id) or event.found
        if row is None:
            self._refuse(step, event.waiter, "unknown_ask", f"no ask {event.ask_id} is known")
            return
        self._respond_ask(step, event.waiter, row)
        if row.state == "closed":
            self._tell_ended(step, event.waiter, row)
        else:
            # A script that waits for its own handed-over ask is not the only one who may.
            self._ledger.await_end(step, event.waiter, row, attached=False)

    def took(self, step: Step, event: Took) -> None:
        """The asker has the answer; or it was answered at the asker's own terminal."""
        row = self._state.find(event.ask_id) or event.found
        if row is None:
            self._refuse(step, event.waiter, "unknown_ask", f"no ask {event.ask_id} is known")
        elif event.local:
            self._took_local(step, event, row)
        else:
            if row.state == "claimed" and self._state.is_hosted(row.session_id):
                row = self._ledger.taken(step, row)
            self._respond(step, event.waiter, result=plain(result_of(row, step.at.wall_ms)))

    def cancelled(self, step: Step, event: CancelAsked) -> None:
        """The asker does not want to know any more."""
        row = self._state.find(event.ask_id) or event.found
        if row is None:
            self._refuse(step, event.waiter, "unknown_ask", f"no ask {event.ask_id} is known")
            return
        if row.state != "closed":
            if not self._state.is_hosted(row.session_id):
                self._refuse(step, event.waiter, "not_permitted", _NOT_OURS)
                return
            claim = self._state.claims.get(row.ask_id)
            if claim is not None and self._ledger.attached(row.ask_id):
                # The answer may be in the asker's hands already; it cannot be withdrawn as
                # well. An asker that ends instead of taking it closes the ask by that.
                self._refuse(
                    step,
                    event.waiter,
                    "already_answered",
                    self._claimed_words(row, claim, step.at.wall_ms),
                    result=plain(result_of(row, step.at.wall_ms)),
                )
                return
            row = self._ledger.close(
                step, row, "cancelled", resolved_by="local", note=event.reason
            )
        self._respond(step, event.waiter, result=plain(result_of(row, step.at.wall_ms)))

    def noticed(self, step: Step, event: NoticeRaised) -> None:
        """A program has something to say that needs no answer."""
        found = self._hosted_of(event.asker)
        size = len(event.text)
        if found is None:
            # How many such programs may say something is limited at the socket.
            found = self._new_session(step, event.asker)
            self._ledger.end_session(step, found)
        elif not self._quotas.may_say(step, found.session_id, size, kept=True):
            words = "this program says more than is taken (limits.live_text_bytes_per_minute)"
            fix = "wait a minute, or raise the limit in the table [limits]"
            self._refuse(step, event.waiter, "limit_reached", words, recover=fix)
            return
        step.notice(found.session_id, event.level, event.text)
        channels = [plain(view) for view in channel_views(self._state, None)]
        self._respond(step, event.waiter, channels=channels)

    def gone(self, step: Step, event: WaiterGone) -> None:
        """Connections ended. An asker whose connection ended has ended, or gave up."""
        for waiter in event.waiters:
            left = self._state.drop_waiter(waiter)
            if left is not None and left[1]:
                self._asker_left(step, self._state.asks[left[0]])

    def died(self, step: Step, event: AskerDied) -> None:
        """A process that asked has ended; so have those of its asks that nobody else wants.

        Its connection may live on in a child that inherited it, which is told the end.
        """
        process = (event.pid, event.start)
        for ask_id in self._state.detach(process):
            row = self._state.asks.get(ask_id)
            if row is not None:
                self._asker_left(step, row)
        for session_id in list(self._state.hosted.get(process, {}).values()):
            for row in self._state.asks_of(session_id):
                self._asker_left(step, row)

    def resume(self, step: Step) -> None:
        """At start: open the endpoints again and see which askers still live."""
        for session in list(self._state.sessions.values()):
            if session.kind != "hosted":
                continue
            if session.session_id not in self._state.by_session:
                self._ledger.end_session(step, session)
                continue
            step.release(Host(session))
            self._resume_restored(step, session.session_id)
            if session.asker_pid:
                step.release(WatchProcess(session.asker_pid, session.asker_start))
            else:
                step.timer(step.at.boot_s + ASKER_GONE_S, "unseen", session.session_id)

    def _resume_restored(self, step: Step, session_id: SessionId) -> None:
        """What a backup had as open may be over for its program, which comes if it is not."""
        restored = [
            row for row in self._state.asks_of(session_id) if row.note == RESTORED_ASKING
        ]
        for row in restored:
            if row.handed_over:
                # Nobody can be asked; a person decides.
                self._ledger.ask_again(step, row)
        if any(not row.handed_over for row in restored):
            step.timer(step.at.boot_s + RESTORED_WAIT_S, "unseen", session_id)

    def unseen(self, step: Step, session_id: SessionId) -> None:
        """An asker whose process the kernel cannot name did not come back after a restart."""
        for row in self._state.asks_of(session_id):
            self._asker_left(step, row)

    def claimed(self, step: Step, row: AskRow) -> AskRow:
        """An answer to a hosted ask was claimed: hand it to the asker, or close at once."""
        if row.handed_over:
            return self._ledger.taken(step, row)
        claim = self._state.claims[row.ask_id]
        for waiter in self._ledger.attached(row.ask_id):
            self._ledger.offer(step, row, claim, waiter)
        return row

    def _took_local(self, step: Step, event: Took, row: AskRow) -> None:
        now_ms = step.at.wall_ms
        if row.state != "open":
            claim = self._state.claims.get(row.ask_id)
            self._refuse(
                step,
                event.waiter,
                "already_answered",
                late_words(shown_ask(self._state, row), now_ms)
                if claim is None
                else self._claimed_words(row, claim, now_ms),
                result=plain(result_of(row, now_ms)),
            )
            return
        if not self._state.is_hosted(row.session_id):
            self._refuse(step, event.waiter, "not_permitted", _NOT_OURS)
            return
        # Not the control socket: a lock shuts the asker's own prompt too.
        admitted = self._door.admit_to(step, PROMPT, event.who, row)
        if isinstance(admitted, Receipt):
            self._refuse(step, event.waiter, admitted.code, admitted.msg)
            return
        if needs_votes(rules_of(self._state, row)) and not row.spec.secret:
            self._refuse(step, event.waiter, "not_permitted", SEVERAL)
            return
        session = self._state.session(row.session_id)
        refused = refuse_own(self._state.settings, row, session, event.who)
        if refused is not None:
            self._ledger.refuse(step, row, event.who.detail, refused.code)
            self._refuse(step, event.waiter, refused.code, refused.msg, recover=refused.recover)
            return
        selection: Selection | None = None
        if row.spec.secret != event.secret and not event.declined:
            words = "a secret's words stay with the program that asked"
            self._refuse(step, event.waiter, "invalid_answer", words)
            return
        if row.spec.secret and not event.declined:
            selection = SECRET
        elif not event.declined:
            try:
                selection = read_answer(row.spec, _wire(event))
            except InvalidAnswer as exc:
                self._refuse(step, event.waiter, "invalid_answer", exc.msg)
                return
        row = self._ledger.close(
            step,
            row,
            "declined" if event.declined else "answered",
            resolved_by="local",
            answer=selection,
            by=AnsweredBy(local_name(event.who), "terminal", event.who.detail),
        )
        self._respond(step, event.waiter, result=plain(result_of(row, now_ms)))

    def _known(self, event: AskRaised) -> AskRow | None:
        row = self._state.find(event.ask_id)
        if row is None and event.key is not None:
            keyed = self._state.keys.get(event.key)
            row = self._state.find(keyed) if keyed is not None else None
        row = row or event.found
        if row is None or row.ask_id == event.ask_id or event.spec.ask_class != "permission":
            return row
        # A permission is for one run: it is not shared with another program that waits for
        # it, nor given again. A run that was cut short finds it while it is open.
        is_left = row.state == "open" and not self._ledger.attached(row.ask_id)
        return row if is_left else None

    def _may_ask_again(self, known: AskRow, event: AskRaised) -> bool:
        """Tell whether a keyed ask that ended without an answer is asked anew."""
        same = bare_revision(known.revision) == revision_of(event.spec)
        if known.ask_id == event.ask_id:
            return not same
        return known.state == "closed" and (known.answer is None or not same)

    def _attach(self, step: Step, event: AskRaised, row: AskRow) -> None:
        if revision_of(event.spec) != bare_revision(row.revision):
            self._refuse(
                step,
                event.waiter,
                "key_conflict",
                f"the key is in use for another question, {row.ask_id}, which is still open",
                recover=f"answer it (upcall answer {row.ask_id} ...), or use another --key",
            )
            return
        hosted = self._state.is_hosted(row.session_id)
        if row.state != "closed" and hosted and not event.wait and not row.handed_over:
            row = self._hand_over(step, row)
        if row.note == RESTORED_ASKING and row.state == "open" and hosted:
            row = self._ledger.ask_again(step, row)
        if row.state != "closed":
            row = self._ledger.guard(step, row, event.asker.chain)
        self._respond_ask(step, event.waiter, row, existing=True)
        if not event.wait:
            return
        if row.state == "closed":
            self._tell_ended(step, event.waiter, row)
        elif hosted and not row.handed_over:
            self._adopt(step, event.asker, row)
            self._attach_waiter(step, event, row)
        else:
            self._ledger.await_end(step, event.waiter, row, attached=False)

    def _attach_waiter(self, step: Step, event: AskRaised, row: AskRow) -> None:
        process: Process = (event.asker.pid, event.asker.start)
        self._ledger.await_end(step, event.waiter, row, attached=True, process=process)

    def _adopt(self, step: Step, asker: Asker, row: AskRow) -> None:
        """Hear of the death of another process that asks the same; only one is the asker."""
        session = self._state.sessions[row.session_id]
        process: Process = (asker.pid, asker.start)
        if not asker.pid or process == (session.asker_pid, session.asker_start):
            return
        step.release(WatchProcess(asker.pid, asker.start))
        alone = len(self._state.by_session[row.session_id]) == 1
        known = session.conversation in self._state.hosted.get(process, ())
        if alone and not known and not self._ledger.attached(row.ask_id):
            self._state.leave_process(session)
            session = replaced(session, asker_pid=asker.pid, asker_start=asker.start)
            self._state.enter(session)
            step.write(session)

    def _session_for(self, step: Step, asker: Asker) -> SessionRow:
        found = self._hosted_of(asker)
        if found is not None:
            return found
        session = self._new_session(step, asker)
        step.release(Host(session))
        if asker.pid:
            step.release(WatchProcess(asker.pid, asker.start))
        return session

    def _over_limit(self, asker: Asker) -> str | None:
        """Return which limit one more ask would break."""
        session = self._hosted_of(asker)
        return self._quotas.full(None if session is None else session.session_id)

    def _hosted_of(self, asker: Asker) -> SessionRow | None:
        process: Process = (asker.pid, asker.start)
        session_id = self._state.hosted.get(process, {}).get(self._conversation(asker))
        return None if session_id is None else self._state.sessions[session_id]

    def _new_session(self, step: Step, asker: Asker) -> SessionRow:
        session_id = new_hosted_session_id(step.random(8))
        session = SessionRow(
            session_id=session_id,
            kind="hosted",
            conversation=self._conversation(asker) or session_id,
            asker_pid=asker.pid,
            asker_start=asker.start,
            title=_clean(asker.title),
            repo=_clean(asker.repo),
            branch=_clean(asker.branch),
            machine=self._state.settings.machine,
            cwd=_clean(asker.cwd),
            program=_clean(asker.program),
            started_ms=step.at.wall_ms,
            tags=asker.tags,
        )
        self._state.enter(session)
        self._state.live_of(session_id).attached = True
        step.write(session)
        step.change()
        return session

    def _conversation(self, asker: Asker) -> str:
        if asker.name is not None:
            return f"n:{asker.name}"
        if asker.parent:
            return f"p:{self._state.settings.machine}:{asker.parent}"
        return ""

    def _asker_left(self, step: Step, row: AskRow) -> None:
        if row.handed_over or self._ledger.attached(row.ask_id):
            return
        if row.key is not None:
            # A run again with the same key finds this ask and its answer.
            self._hand_over(step, row)
        else:
            self._ledger.unreachable(step, row)

    def _hand_over(self, step: Step, row: AskRow) -> AskRow:
        row = replaced(row, handed_over=True)
        self._state.asks[row.ask_id] = row
        step.write(row)
        step.audit("handed_over", row)
        if row.note == RESTORED_ASKING:
            row = self._ledger.ask_again(step, row)
        return self.claimed(step, row) if row.state == "claimed" else row

    def _tell_ended(self, step: Step, waiter: int, row: AskRow) -> None:
        result = plain(result_of(row, step.at.wall_ms))
        step.release(ToWaiter(waiter, "ended", {"result": result}))

    def _respond_ask(
        self, step: Step, waiter: int, row: AskRow, *, existing: bool = False
    ) -> None:
        channels = [plain(view) for view in channel_views(self._state, row.ask_id)]
        # What it asked is drawn at its own terminal; the answer is the program's, as it is.
        ask = plain(replaced(ask_view(self._state, row), answer=row.answer))
        self._respond(step, waiter, ask=ask, channels=channels, existing=existing)

    def _claimed_words(self, row: AskRow, claim: ClaimRow, at_ms: int) -> str:
        shown = shown_claim(claim, mask_of(self._state, row))
        return claimed_words(shown, at_ms)

    def _respond(self, step: Step, waiter: int, **fields: Any) -> None:
        step.release(Respond(waiter, fields=fields))

    def _refuse(
        self,
        step: Step,
        waiter: int,
        code: str,
        msg: str,
        *,
        recover: str | None = None,
        **extra: Any,
    ) -> None:
        error: dict[str, Any] = {"class": "runtime", "code": code, "msg": msg}
        if recover is not None:
            error["recover"] = recover
        step.release(Respond(waiter, fields=extra or None, error=error))


def _wire(event: Took) -> Answer:
    if event.indices is not None:
        if len(event.indices) == 1 and event.text is None:
            return event.indices[0]
        return Choice(selected=event.indices, custom=event.text)
    return event.text or ""


def _clean(text: str | None) -> str | None:
    # Names of files and programs need not be text; what is kept of them is.
    return None if text is None else sendable(text)
