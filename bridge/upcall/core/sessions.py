"""Sessions of their own (SDK and peer): what they raise, say and resolve over their link.

The session is the authority on its asks: the hub shows, claims and passes on, and only the
session's word closes. A session without `parallel_asks_v1` presents one ask at a time.
"""

from typing import Final

import msgspec

from upcall.core.adopting import adopted
from upcall.core.asks import InvalidAnswer, read_answer, revision_of, spec_of, wire_answer
from upcall.core.content import Content
from upcall.core.ledger import Ledger
from upcall.core.outbox import Outbox
from upcall.core.quotas import Quotas
from upcall.core.redacting import stream_text
from upcall.core.render import CHANGED, claimed_by
from upcall.core.state import HubState, SessionLive, Step
from upcall.model import frames
from upcall.model.ask import SECRET, AnsweredBy, Selection
from upcall.model.events import FrameIn, LinkDown, LinkSynced, LinkUp
from upcall.model.ids import AskId, SessionId, ask_id_in, new_ask_id
from upcall.model.rows import RESTORED_ASKING, AskRow, ClaimRow, SessionRow, bare_revision
from upcall.model.struct import replaced
from upcall.model.tags import sendable_tags
from upcall.model.text import one_line

PARALLEL: Final = "parallel_asks_v1"
OUTCOMES: Final = "outcomes_v1"
PEER_SYNC_S: Final = 2.0
SAID_CHARS: Final = 512
FACT_CHARS: Final = 1000
ENDED_AWAY: Final = "ended while the hub was away"
_ENDPOINT: Final = AnsweredBy(None, "endpoint")
_REJECTED: Final = {
    "invalid_answer": "The program did not accept this answer.",
    "resolver_unavailable": "The program takes no answer to this right now.",
    "unauthorized": "The program refused the hub's credentials.",
}


class Sessions:
    """What links bring in."""

    def __init__(
        self, state: HubState, ledger: Ledger, outbox: Outbox, content: Content
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._outbox = outbox
        self._content = content
        self._quotas = Quotas(state)

    def up(self, step: Step, event: LinkUp) -> None:
        """The hub is attached; what the session still waits for comes next."""
        known = self._state.session(event.session_id)
        if known is not None and known.kind == "hosted":
            step.log("hosted_session_attached", session=event.session_id)
            return
        capabilities = frozenset(event.capabilities)
        kind = "sdk" if PARALLEL in capabilities or OUTCOMES in capabilities else "peer"
        row = SessionRow(
            session_id=event.session_id,
            kind=kind,  # type: ignore[arg-type]  # one of the two above
            conversation=known.conversation if known is not None else event.session_id,
            pid=event.pid,
            pid_start=event.pid_start,
            title=known.title if known else None,
            repo=known.repo if known else None,
            branch=known.branch if known else None,
            machine=(known.machine if known else None) or self._state.settings.machine,
            cwd=_clean(event.cwd) or (known.cwd if known else None),
            program=_clean(event.program) or (known.program if known else None),
            record_path=event.record_path,
            started_ms=known.started_ms if known else step.at.wall_ms,
        )
        self._state.enter(row)
        live = SessionLive(
            attached=True, capabilities=capabilities, syncing=True, ttys=event.ttys
        )
        self._state.live[event.session_id] = live
        step.write(row)
        step.change()
        if PARALLEL not in capabilities:
            live.sync_due_s = step.at.boot_s + PEER_SYNC_S
            step.timer(live.sync_due_s, "peer_sync", event.session_id)

    def synced(self, step: Step, event: LinkSynced) -> None:
        """What was not presented by now, in a session that presents all, is over."""
        live = self._state.live.get(event.session_id)
        if live is None:
            return
        if PARALLEL in live.capabilities and live.syncing:
            self._end_unpresented(step, event.session_id, live)
        self._outbox.lanes.wake_target(step, event.session_id)

    def peer_sync(self, step: Step, session_id: SessionId) -> None:
        """A peer had its time to present again what it waits for."""
        live = self._state.live[session_id]
        if live.attached and live.syncing:
            self._end_unpresented(step, session_id, live)

    def down(self, step: Step, event: LinkDown) -> None:
        """The link ended; if the program is gone, so are its asks."""
        live = self._state.live.get(event.session_id)
        if live is not None:
            live.attached = False
            step.change()
        session = self._state.sessions.get(event.session_id)
        if session is None or not event.gone:
            return
        for row in self._state.asks_of(event.session_id):
            self._ledger.unreachable(step, row)
        self._ledger.end_session(step, session)

    def frame(self, step: Step, event: FrameIn) -> None:
        """A session said something."""
        session_id = event.session_id
        live = self._state.live.get(session_id)
        if live is None or self._state.is_hosted(session_id):
            # It has said goodbye already, or never said hello.
            step.log("frame_ignored", session=session_id, frame=type(event.frame).__name__)
            return
        match event.frame:
            case frames.ActionNeeded(kind="idle", summary=summary):
                live.activity = "idle"
                notice = step.notice(session_id, "idle", summary or "waiting for you")
                self._content.waits(step, self._state.sessions[session_id], notice)
            case frames.ActionNeeded(kind=kind, question=question) as ask if (
                kind == "ask" or question is not None
            ):
                self._asked(step, event, ask, live)
            case frames.ActionResolved() as resolved:
                self._resolved(step, session_id, resolved)
            case frames.ReplyRejected() as rejected:
                self._rejected(step, session_id, rejected)
            case frames.IdentityHeader() as identity:
                self._identify(
                    step,
                    session_id,
                    repo=identity.repo,
                    branch=identity.branch,
                    # The machine is not its word to give: it came over loopback.
                    title=identity.title,
                    tags=sendable_tags(identity.said_tags),
                )
            case frames.SessionReady() as ready:
                self._identify(
                    step, session_id, repo=ready.repo, branch=ready.branch, title=ready.title
                )
            case frames.ContextUpdate() as context:
                live.task = context.task or context.goal or live.task
                live.model = context.model or live.model
                live.usage = context.token_usage or live.usage
                # Where the process works is known better where the system tells it.
                if context.cwd and not self._state.sessions[session_id].cwd:
                    self._identify(step, session_id, cwd=context.cwd)
                step.change()
            case frames.TurnStream() as turn:
                kept = turn.phase == "finalized"
                if not self._quotas.may_say(step, session_id, len(turn.text), kept=kept):
                    return
                said = self._said(live, session_id, turn)
                live.last_text = said[-4000:]
                session = self._state.sessions[session_id]
                if turn.phase == "live":
                    self._content.goes_on(step, session, text=said)
                elif turn.text.strip(" .…\n"):
                    notice = step.notice(session_id, "text", said)
                    self._content.said(step, session, notice, said)
                step.change()
            case frames.Activity(state=state):
                live.activity = one_line(state, 20)
                step.change()
            case frames.ToolActivity(tool_name=name, phase=phase):
                words = self._state.shown_text(session_id, f"{name} {phase}")
                live.activity = one_line(words, 60)
                session = self._state.sessions[session_id]
                self._content.goes_on(step, session, activity=live.activity)
                step.change()
            case frames.ReasoningSummary(text=text):
                live.activity = one_line(self._state.shown_text(session_id, text), 120)
                step.change()
            case frames.ImageAttachment() as image:
                step.notice(
                    session_id,
                    "image",
                    image.caption or f"image from {image.source}",
                    file_id=event.file_id,
                    file_name="image",
                    mime=image.mime,
                )
            case frames.FileAttachment() as file:
                step.notice(
                    session_id,
                    "file",
                    file.caption or file.name,
                    file_id=event.file_id,
                    file_name=file.name,
                    mime=file.mime,
                )
            case frames.ConfigUpdate() as config:
                live.verbosity = config.verbosity or live.verbosity
            case frames.InboundAck(update_id=update_id, state=state):
                step.audit("message_" + one_line(state, 20), None, update=update_id)
            case frames.ActionUnavailable(id=action_id):
                step.notice(
                    session_id,
                    "warning",
                    f"asks something that the hub cannot show: {action_id}",
                )
            case frames.SessionClosed():
                self.down(step, LinkDown(at=event.at, session_id=session_id, gone=True))
            case _:
                step.log("frame_ignored", session=session_id, frame=type(event.frame).__name__)

    def _said(self, live: SessionLive, session_id: SessionId, turn: frames.TurnStream) -> str:
        """Return what the session says as it may be shown, seen with what it said before."""
        again = turn.message_ref is not None and turn.message_ref == live.said_ref
        before = "" if again else live.said
        live.said, live.said_ref = (before + turn.text)[-SAID_CHARS:], turn.message_ref
        return stream_text(
            self._state,
            self._state.sessions[session_id],
            before,
            turn.text,
            goes_on=turn.phase == "live",
        )

    def claimed(self, step: Step, row: AskRow) -> None:
        """An answer was claimed: pass it on, by exact label wherever that is unique."""
        claim = self._state.claims[row.ask_id]
        answer: frames.Answer | None = None
        if row.spec.secret and not claim.declined:
            answer = self._state.secrets.get(row.ask_id)
            if answer is None:
                self._ledger.lost_secret(step, row)
                return
        elif not claim.declined and claim.selection is not None:
            answer = wire_answer(row.spec, claim.selection)
        reply = frames.Reply(
            id=row.action_id,
            token="",  # the link knows it; no token is stored
            answer=answer,
            idempotency_key=claim.key,
            decline=claim.declined,
            by=frames.By(channel=claim.channel, name=claim.operator),
        )
        self._outbox.to_session(
            step,
            row.session_id,
            "reply",
            f"reply:{claim.key}:{self._state.last_delivery + 1}",
            msgspec.json.encode(reply),
            row.ask_id,
            secret=row.spec.secret,
        )

    def hold(self, step: Step, row: AskRow, hold: bool, inbound: int) -> None:
        """Ask a session to stop or start an ask's clock."""
        frame = frames.AskHold(id=row.action_id, token="", hold=hold)
        self._outbox.to_session(
            step,
            row.session_id,
            "hold",
            f"hold:{inbound}:{self._state.last_delivery + 1}",
            msgspec.json.encode(frame),
            row.ask_id,
        )

    def _asked(
        self, step: Step, event: FrameIn, frame: frames.ActionNeeded, live: SessionLive
    ) -> None:
        session_id = event.session_id
        spec = spec_of(frame)
        revision = revision_of(spec)
        known = self._state.at_action(session_id, frame.id)
        if known is not None and known.state != "closed":
            if bare_revision(known.revision) == revision:
                self._asked_again(step, known, frame, live)
                return
            self._ledger.close(step, known, "superseded", resolved_by="local", note=CHANGED)
        if PARALLEL not in live.capabilities:
            self._supersede_others(step, session_id)
        moved = adopted(
            step, self._state, self._ledger, self._outbox, session_id, frame, revision
        )
        if moved is not None:
            if live.syncing:
                live.presented.add(moved.ask_id)
            if moved.state == "claimed":
                # Nobody took it from the hub's socket.
                self.claimed(step, moved)
            return
        full = self._quotas.full(session_id)
        if full is not None:
            # It cannot be told over the wire; people can.
            words = f"A question was left out: {full}"
            self._quotas.tell_words(step, session_id, "asks", words)
            return
        ask_id = self._free_id(step, event, frame)
        at = step.at
        deadline_ms = None if frame.held else frame.deadline_at
        row = AskRow(
            ask_id=ask_id,
            session_id=session_id,
            # A changed question is a new ask, and so is one that was over for us and is
            # presented again: the session waits. The wire knows it by the same action id.
            action_id=frame.id,
            state="open",
            spec=spec,
            revision=revision,
            raised_ms=at.wall_ms,
            deadline_ms=deadline_ms,
            boot_id=self._state.settings.boot_id,
            held_s=0.0 if frame.held else None,
        )
        self._ledger.open(step, row)
        if live.syncing:
            live.presented.add(ask_id)

    def _asked_again(
        self, step: Step, row: AskRow, frame: frames.ActionNeeded, live: SessionLive
    ) -> None:
        if row.note == RESTORED_ASKING:
            row = self._ledger.ask_again(step, row)
        if live.syncing:
            live.presented.add(row.ask_id)
            if row.state == "claimed" and not self._outbox.is_replying(row.ask_id):
                # It still waits: our reply did not reach it. The same key makes this safe.
                self.claimed(step, row)
        if (row.held_s is not None) != frame.held or (
            not frame.held and row.deadline_ms != frame.deadline_at
        ):
            self._ledger.note_held(step, row, frame)

    def _free_id(self, step: Step, event: FrameIn, frame: frames.ActionNeeded) -> AskId:
        own = ask_id_in(frame.id)
        if own is not None and not event.id_taken and self._state.find(own) is None:
            return own
        return new_ask_id(step.random(8))

    def _supersede_others(self, step: Step, session_id: SessionId) -> None:
        for row in self._state.asks_of(session_id):
            self._ledger.close(
                step,
                row,
                "superseded",
                resolved_by="local",
                note="The program asked something else; nothing was sent.",
            )

    def _end_unpresented(self, step: Step, session_id: SessionId, live: SessionLive) -> None:
        live.syncing = False
        for row in self._state.asks_of(session_id):
            if row.ask_id not in live.presented:
                self._ledger.close(
                    step, row, "superseded", resolved_by="local", note=ENDED_AWAY
                )
        live.presented.clear()

    def _resolved(
        self, step: Step, session_id: SessionId, frame: frames.ActionResolved
    ) -> None:
        row = self._state.at_action(session_id, frame.id)
        if row is None or row.state == "closed":
            return
        selection = _selection(row, frame)
        claim = self._state.claims.get(row.ask_id)
        back = self._state.taken_back.get(row.ask_id)
        ours = _is_of(claim, frame, selection)
        if not ours and _is_of(back, frame, selection):
            # It had the answer before it was taken back; what happened is told as it was.
            claim, ours = back, True
        by: AnsweredBy | None = None
        if frame.how in {"answered", "declined"}:
            # Whom the session names is its word alone; the hub knows of no person.
            by = claimed_by(claim) if claim is not None and ours else _ENDPOINT
        if frame.how == "timed_out" and row.spec.ask_class == "permission":
            # No silence is a yes, whatever the session makes of it.
            selection = None
        note = ""
        if frame.how == "timed_out" and claim is not None:
            note = "The answer came too late: the ask had timed out."
        self._ledger.close(
            step,
            row,
            frame.how,
            resolved_by=frame.resolved_by,
            answer=selection,
            by=by,
            note=note,
        )

    def _rejected(self, step: Step, session_id: SessionId, frame: frames.ReplyRejected) -> None:
        row = self._state.at_action(session_id, frame.id)
        if row is None or row.state != "claimed":
            return
        match frame.reason:
            case "already_answered" | "idempotency_conflict":
                # The resolution that says who won is on its way, or comes by replay.
                step.audit("reply_rejected", row, reason=frame.reason)
            case "unknown_action":
                self._ledger.close(
                    step,
                    row,
                    "superseded",
                    resolved_by="local",
                    note="The program does not wait for this any more; nothing was sent.",
                )
            case reason:
                words = _REJECTED.get(reason, "The program refused this answer.")
                self._ledger.reopen(step, row, one_line(reason, 40), words)

    def _identify(
        self, step: Step, session_id: SessionId, **facts: str | tuple[str, ...] | None
    ) -> None:
        row = self._state.sessions[session_id]
        # What is too long is cut after it was masked, or half a credential could stay.
        said = {
            name: self._state.shown_text(session_id, value)[:FACT_CHARS]
            if isinstance(value, str) and len(value) > FACT_CHARS
            else value
            for name, value in facts.items()
        }
        changed = {
            name: value for name, value in said.items() if value and getattr(row, name) != value
        }
        if changed:
            row = replaced(row, **changed)
            self._state.sessions[session_id] = row
            step.write(row)
            # Other routes may fit now.
            self._ledger.reroute(step, session_id)
            step.change()


def _is_of(
    claim: ClaimRow | None, frame: frames.ActionResolved, selection: Selection | None
) -> bool:
    """Tell whether a session says that *claim* is what its ask ended with."""
    if claim is None or frame.resolved_by != "client":
        return False
    if frame.how == "declined":
        return claim.declined
    return frame.how == "answered" and selection == claim.selection


def _selection(row: AskRow, frame: frames.ActionResolved) -> Selection | None:
    """Return what a session says was answered; peers may say what fits no option."""
    if row.spec.secret:
        return SECRET if frame.how == "answered" else None
    if frame.answer is None:
        return None
    try:
        return read_answer(replaced(row.spec, free_text=True), frame.answer)
    except InvalidAnswer:
        return Selection(text=_said(frame.answer)[:1000])


def _said(answer: frames.Answer) -> str:
    if not isinstance(answer, frames.Choice):
        return str(answer)
    parts = [str(part) for part in answer.selected or ()]
    parts += [part for part in (answer.control_id, answer.custom) if part]
    return ", ".join(parts)


def _clean(text: str | None) -> str | None:
    # Names of files and programs need not be text; what is kept of them is.
    return None if text is None else frames.sendable(text)
