"""People on channels: they answer, decline, hold the clock, and write to sessions."""

import hashlib
from typing import Final, TypeAlias

import msgspec

from upcall.core import dedupe
from upcall.core.acts import read_act
from upcall.core.announce import Announcer
from upcall.core.askers import Askers
from upcall.core.asks import InvalidAnswer, read_answer
from upcall.core.authority import Authority
from upcall.core.ballots import ANOTHER_HERE, VETO_S, Ballots
from upcall.core.door import Door
from upcall.core.ledger import Ledger, action_of, resolved_of, result_of
from upcall.core.merging import merged_with, stands_for
from upcall.core.opening import SecondStep, index_of, opens_first
from upcall.core.operators import endpoints_may_answer, needs_votes, rules_of
from upcall.core.outbox import Outbox, can_decline
from upcall.core.policy import NOT_HERE, local_name, refuse_local, takes_secrets
from upcall.core.redacting import mask_in, mask_of, shown_ask, shown_claim, shown_receipt
from upcall.core.redaction_choice import MAX_OFF_S, RedactionChoices, read_span
from upcall.core.render import CHANGED, LOCAL, claimed_words, late_code, late_words
from upcall.core.sessions import Sessions
from upcall.core.standing import ONLY_UNLOCK
from upcall.core.state import HubState, Step
from upcall.core.talk import Talk
from upcall.core.votes import says_no
from upcall.model import frames
from upcall.model.ask import SECRET, Selection
from upcall.model.effects import Acknowledge, SaveLogin, SaveSetting, ToClients
from upcall.model.events import HostedReply, PersonActed
from upcall.model.ids import AskId, ReplyKey, SessionId
from upcall.model.limits import MAX_TEXT_CHARS
from upcall.model.platform import (
    Answered,
    Commanded,
    LoginKept,
    Pressed,
    Receipt,
    SessionRuled,
    SettingKept,
    Texted,
    Who,
)
from upcall.model.policy import Operator, Right
from upcall.model.rows import (
    RESTORED_ASKING,
    AskRow,
    ClaimRow,
    InboundRow,
    TokenRow,
    VoteRow,
)
from upcall.model.text import one_line, unpaired_surrogate_or_nul

CONTROLLING: Final = frozenset(
    {
        *("redact", "verbosity", "verbose", "lean", "quiet", "config", "reload", "stop"),
        *("session_create", "session_close", "session_end", "session_resume", "operators"),
    }
)
"""Commands that change what the hub does; all of them need the right `control`."""
Act: TypeAlias = Answered | Pressed | Texted | SessionRuled | Commanded
_DIRECT: Final = "another program on this computer, connected to the session itself"


class People:
    """What channels, local programs and endpoint clients bring in."""

    def __init__(
        self,
        state: HubState,
        ledger: Ledger,
        outbox: Outbox,
        askers: Askers,
        sessions: Sessions,
        authority: Authority,
        ballots: Ballots,
        announcer: Announcer,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._outbox = outbox
        self._askers = askers
        self._sessions = sessions
        self._authority = authority
        self._ballots = ballots
        self._door = Door(state)
        self.second = SecondStep(state, outbox)
        self.redactions = RedactionChoices(state, outbox)
        self.talk = Talk(state, outbox, announcer, self._answered, self._pressed, self._texted)

    def acted(self, step: Step, event: PersonActed) -> None:
        """Take one act; the same key again has no second effect."""
        inbound = event.inbound
        match inbound:
            case SettingKept(name, value):
                if value is None:
                    self._state.settings_kept.pop((event.channel, name), None)
                else:
                    self._state.settings_kept[event.channel, name] = value
                step.write(SaveSetting(event.channel, name, value))
                self._acknowledge(step, event, Receipt(ok=True))
            case LoginKept():
                step.write(SaveLogin(event.channel, inbound))
                self._acknowledge(step, event, Receipt(ok=True))
            case Answered() | Pressed() | Texted() | SessionRuled() | Commanded():
                self._once(step, event, inbound)

    def replied(self, step: Step, event: HostedReply) -> None:
        """A client of a hosted session's endpoint replies; the rules are the wire's."""
        match event.frame:
            case frames.AskHold(id=action_id, hold=hold):
                row = self._state.at_action(event.session_id, action_id)
                if row is not None and row.state == "open" and self._state.lock is None:
                    self._held_by_client(step, event, row, hold)
            case frames.Reply() as reply:
                self._replied(step, event, reply)
            case other:
                step.log("frame_ignored", session=event.session_id, frame=type(other).__name__)

    def _replied(self, step: Step, event: HostedReply, reply: frames.Reply) -> None:
        row = self._state.at_action(event.session_id, reply.id)
        key = reply.idempotency_key
        origin = f"endpoint:{key}" if key is not None else f"{event.connection}:"
        if row is None:
            self._reject(step, event, reply, "unknown_action")
            return
        if row.state == "closed":
            self._replied_late(step, event, reply, row, origin)
            return
        if row.spec.secret or row.note == RESTORED_ASKING:
            self._reject(step, event, reply, "resolver_unavailable")
            return
        direct = self._state.settings.allow_direct_clients
        if (
            (row.spec.ask_class == "permission" and not direct)
            or not endpoints_may_answer(rules_of(self._state, row))
            or self._state.lock is not None
        ):
            if row.state == "open":
                self._ledger.refuse(step, row, _DIRECT, "resolver_unavailable")
            self._reject(step, event, reply, "resolver_unavailable")
            return
        selection = None
        if reply.answer is not None:
            try:
                selection = read_answer(row.spec, reply.answer)
            except InvalidAnswer:
                self._reject(step, event, reply, "invalid_answer")
                return
        claim = self._state.claims.get(row.ask_id)
        if claim is None:
            self._claim(
                step,
                row,
                operator=None,
                channel="endpoint",
                event_key=f"{event.session_id}:{row.ask_id}:{origin}",
                selection=selection,
                origin=origin,
            )
        elif claim.origin != origin:
            self._reject(step, event, reply, "already_answered")
        elif claim.selection != selection:
            reason = "already_answered" if key is None else "idempotency_conflict"
            self._reject(step, event, reply, reason)
        # The same again: its sender hears how it ends, like everybody.

    def _replied_late(
        self, step: Step, event: HostedReply, reply: frames.Reply, row: AskRow, origin: str
    ) -> None:
        winner = self._state.won.get(row.ask_id)
        if winner is None or reply.idempotency_key is None or winner.origin != origin:
            self._reject(step, event, reply, "already_answered")
            return
        try:
            selection = None if reply.answer is None else read_answer(row.spec, reply.answer)
            same = selection == winner.selection
        except InvalidAnswer:
            same = False
        if same:
            step.release(ToClients(event.session_id, resolved_of(row), event.connection))
        else:
            self._reject(step, event, reply, "idempotency_conflict")

    def _reject(self, step: Step, event: HostedReply, reply: frames.Reply, reason: str) -> None:
        frame = frames.ReplyRejected(id=reply.id, reason=reason)
        step.release(ToClients(event.session_id, frame, event.connection))

    def _held_by_client(self, step: Step, event: HostedReply, row: AskRow, hold: bool) -> None:
        if self._ledger.hold(step, row, hold) is row:
            # Nothing changed; who asked for it is told how things are.
            step.release(ToClients(event.session_id, action_of(row), event.connection))

    def _once(self, step: Step, event: PersonActed, inbound: Act) -> None:
        again = dedupe.seen_before(self._state, event.channel, inbound)
        seen = (event.channel, inbound.key if again is None else again)
        if seen in self._state.inbound:
            before = self._state.inbound[seen]
            if isinstance(inbound, Answered) and (before is None or before.code == "claimed"):
                before = self._as_it_stands(step, event, inbound) or before
            self._acknowledge(
                step, event, before or Receipt(ok=True, msg="this was taken before")
            )
            return
        receipt: Receipt | None
        match inbound:
            case Answered():
                receipt = self._answered(step, event, inbound)
            case Pressed():
                receipt = self.talk.pressed(step, event, inbound)
            case Texted():
                receipt = self.talk.texted(step, event, inbound)
            case SessionRuled():
                receipt = self.talk.ruled(step, event, inbound)
            case Commanded():  # pragma: no branch - there is no other
                receipt = self._commanded(step, event, inbound)
        if receipt is not None:
            if receipt.ok:
                self._remember(event.channel, inbound.key, receipt)
            self._acknowledge(step, event, receipt)
        dedupe.note(step, self._state, event.channel, inbound.key, inbound)

    def _as_it_stands(self, step: Step, event: PersonActed, act: Answered) -> Receipt | None:
        """Return what has become of an answer that was claimed when it came first."""
        row = self._state.find(AskId(act.ask)) or event.found
        if row is None or act.hold is not None:
            return None
        now_ms = step.at.wall_ms
        result = result_of(row, now_ms)
        if row.state == "claimed":
            return Receipt(ok=True, code="claimed", result=result)
        if row.state == "open":
            msg = row.note or "The program did not take this answer. Nothing was sent."
            return Receipt(ok=False, code="not_taken", msg=msg, result=result)
        if _is_end_by(row, event.channel, act):
            return Receipt(ok=True, result=result)
        return Receipt(
            ok=False,
            code=late_code(row),
            msg=late_words(shown_ask(self._state, row), now_ms),
            result=result,
        )

    def _pressed(
        self, step: Step, event: PersonActed, press: Pressed, token: TokenRow
    ) -> Receipt | None:
        """Take a press of a live button, in the place where its card stands."""
        row = self._state.asks.get(token.ask_id)
        index = index_of(token.choice)
        answered = Answered(
            key=press.key,
            ask=token.ask_id,
            revision=row.revision if row else None,
            who=press.who,
            indices=None if index is None else (index,),
            decline=token.choice == "decline",
            withdraw=token.choice == "withdraw",
            hold=_toggled(row) if token.choice == "hold" else None,
        )
        return self._answered(step, event, answered, opens=opens_first(self._state, token))

    def _answered(
        self, step: Step, event: PersonActed, act: Answered, *, opens: bool = False
    ) -> Receipt | None:
        row = self._state.find(stands_for(self._state, AskId(act.ask))) or event.found
        if row is None:
            somebody = self._door.admit(step, event.channel, act.who, None)
            if isinstance(somebody, Receipt):
                return somebody
            return Receipt(ok=False, code="unknown_ask", msg=f"No ask {one_line(act.ask)}.")
        person = self._door.admit_to(step, event.channel, act.who, row)
        if isinstance(person, Receipt):
            return person
        now_ms = step.at.wall_ms
        result = result_of(row, now_ms)
        if row.state == "closed":
            msg = late_words(shown_ask(self._state, row), now_ms)
            return Receipt(ok=False, code=late_code(row), msg=msg, result=result)
        if row.note == RESTORED_ASKING:
            return Receipt(ok=False, code="restoring", msg=f"{RESTORED_ASKING}.", result=result)
        if act.revision is not None and act.revision != row.revision:
            return Receipt(ok=False, code="stale_card", msg=CHANGED, result=result)
        if row.spec.secret and not takes_secrets(self._state, event.channel):
            return Receipt(ok=False, code="not_permitted", msg=NOT_HERE, result=result)
        session = self._state.session(row.session_id)
        refused = refuse_local(self._state.settings, row, session, act.who)
        if refused is not None:
            self._ledger.refuse(step, row, act.who.detail, refused.code)
            return Receipt(
                ok=False,
                code=refused.code,
                msg=refused.msg,
                recover=refused.recover,
                result=result,
            )
        claim = self._state.claims.get(row.ask_id)
        if claim is not None:
            msg = claimed_words(shown_claim(claim, mask_of(self._state, row)), now_ms)
            return Receipt(ok=False, code="already_answered", msg=msg, result=result)
        if act.hold is not None:
            return self._held(step, event, row, act)
        if act.withdraw:
            return self._withdrawn(step, event, row, act, person)
        votes = needs_votes(rules_of(self._state, row)) and not row.spec.secret
        if act.decline and not votes and not can_decline(self._state, row):
            msg = "This program does not understand a decline; answer it, or leave it open."
            return Receipt(ok=False, code="invalid_answer", msg=msg, result=result)
        selection: Selection | None = None
        if not act.decline:
            try:
                selection = read_act(row.spec, act)
            except InvalidAnswer as exc:
                return Receipt(ok=False, code="invalid_answer", msg=exc.msg, result=result)
        if opens or self.second.comes_first(row, event.channel, selection):
            return self.second.open(step, row, event.channel)
        if votes:
            return self._voted(step, event, row, act, person, selection)
        if row.spec.secret and selection is not None:
            # From here on the words are in memory only, until the program has them.
            self._state.secrets[row.ask_id] = selection.text or ""
            selection = SECRET
        row = self._claim(
            step,
            row,
            operator=local_name(act.who) if act.who.local else person.name,
            channel=event.channel,
            event_key=act.key,
            selection=selection,
            who=act.who,
            person=person.name,
        )
        return self._receipt_of(step, event, row, act)

    def _receipt_of(
        self, step: Step, event: PersonActed, row: AskRow, act: Answered
    ) -> Receipt | None:
        """Return what is said of an answer that was claimed; None: it is said later."""
        result = result_of(row, step.at.wall_ms)
        if row.state == "closed":
            return Receipt(ok=True, result=result)
        receipt = Receipt(ok=True, code="claimed", result=result)
        self._remember(event.channel, act.key, receipt)
        if event.receipt_id and act.who.local:
            # A program on this computer wants to know what really happened.
            waiting = self._state.receipts_waiting.setdefault(row.ask_id, [])
            waiting.append(event.receipt_id)
            return None
        return receipt

    def _held(self, step: Step, event: PersonActed, row: AskRow, act: Answered) -> Receipt:
        hold = bool(act.hold)
        hosted = self._state.is_hosted(row.session_id)
        no_clock = hosted and row.deadline_ms is None and row.held_s is None
        if no_clock or not can_decline(self._state, row):
            msg = "This ask has no clock that can be stopped."
            result = result_of(row, step.at.wall_ms)
            return Receipt(ok=False, code="invalid_answer", msg=msg, result=result)
        number = self._inbound(step, event.channel, act.key, f"{row.ask_id}:hold:{hold}")
        if hosted:
            row = self._ledger.hold(step, row, hold)
        else:
            for one in (row, *merged_with(self._state, row.ask_id)):
                self._sessions.hold(step, one, hold, number)
        return Receipt(ok=True, code="held", result=result_of(row, step.at.wall_ms))

    def _texted(self, step: Step, event: PersonActed, text: Texted) -> Receipt:
        person = self._door.admit(step, event.channel, text.who, "steer")
        if isinstance(person, Receipt):
            return person
        session = self._state.sessions.get(SessionId(text.session_id or ""))
        live = self._state.live.get(session.session_id) if session is not None else None
        if session is None or live is None or not live.attached or session.kind == "hosted":
            msg = "This session does not take messages now; nothing was sent."
            return Receipt(ok=False, code="session_gone", msg=msg)
        if unpaired_surrogate_or_nul(text.text) is not None:
            msg = "The message has a character that cannot be sent; nothing was sent."
            return Receipt(ok=False, code="invalid_text", msg=msg)
        if not text.text.strip() or len(text.text) > MAX_TEXT_CHARS:
            msg = f"A message has 1 to {MAX_TEXT_CHARS} characters; nothing was sent."
            return Receipt(ok=False, code="invalid_text", msg=msg)
        number = self._inbound(step, event.channel, text.key, text.text)
        frame = frames.UserMessage(
            session_id=session.session_id,
            text=text.text,
            token="",  # the link knows it; no token is stored
            update_id=number,
            by=frames.By(channel=event.channel, name=person.name),
        )
        self._outbox.to_session(
            step,
            session.session_id,
            "message",
            f"message:{number}:{self._state.last_delivery + 1}",
            msgspec.json.encode(frame),
        )
        step.audit("message", None, session=session.session_id, operator=person.name)
        return Receipt(ok=True, code="queued")

    def _claim(
        self,
        step: Step,
        row: AskRow,
        *,
        operator: str | None,
        channel: str,
        event_key: str,
        selection: Selection | None,
        who: Who | None = None,
        origin: str | None = None,
        person: str | None = None,
    ) -> AskRow:
        content = f"{row.ask_id}:{'declined' if selection is None else selection}"
        number = self._inbound(step, channel, event_key, content)
        if who is not None and who.local:
            origin = LOCAL + who.detail
        return self._claim_by(
            step,
            row,
            operator=operator,
            channel=channel,
            inbound=number,
            selection=selection,
            origin=origin,
            person=person,
        )

    def _claim_by(
        self,
        step: Step,
        row: AskRow,
        *,
        operator: str | None,
        channel: str,
        inbound: int,
        selection: Selection | None,
        origin: str | None,
        person: str | None,
    ) -> AskRow:
        # One answer is for all asks that this card stands for. They go first, so that none of
        # them gets a card of its own when this one ends.
        for other in merged_with(self._state, row.ask_id):
            key = f"merged:{other.ask_id}:{inbound}"
            number = self._inbound(step, channel, key, f"{other.ask_id}:{selection}")
            self._claim_by(
                step,
                other,
                operator=operator,
                channel=channel,
                inbound=number,
                selection=selection,
                origin=origin,
                person=person,
            )
        claim = ClaimRow(
            ask_id=row.ask_id,
            operator=operator,
            channel=channel,
            inbound=inbound,
            key=ReplyKey(f"upcall:{row.ask_id}:{inbound}"),
            selection=selection,
            declined=selection is None,
            origin=origin,
            at_ms=step.at.wall_ms,
            person=person,
        )
        row = self._ledger.claim(step, row, claim)
        if self._state.is_hosted(row.session_id):
            return self._askers.claimed(step, row)
        self._sessions.claimed(step, row)
        return row

    def _voted(
        self,
        step: Step,
        event: PersonActed,
        row: AskRow,
        act: Answered,
        person: Operator,
        selection: Selection | None,
    ) -> Receipt | None:
        """Take one vote; the one that makes it enough claims the ask."""
        vetoes = says_no(row.spec, selection) and self._ballots.rules(row).veto
        if not vetoes and self._ballots.another_here(row, person, event.channel, act.who):
            result = result_of(row, step.at.wall_ms)
            return Receipt(ok=False, code="not_permitted", msg=ANOTHER_HERE, result=result)
        content = f"{row.ask_id}:vote:{'declined' if selection is None else selection}"
        number = self._inbound(step, event.channel, act.key, content)
        found = self._ballots.cast(step, row, person, event.channel, act.who, selection, number)
        winner = found.winner
        if winner is None or not self._ballots.may_end(row, winner):
            return self._ballots.receipt(step, row, found, selection)
        if self._ballots.rules(row).veto and not says_no(row.spec, winner.selection):
            # A veto of the same moment wins, whichever of the two is heard first.
            step.timer(step.at.boot_s + VETO_S, "votes", row.ask_id)
            return self._ballots.receipt(step, row, found, selection)
        row = self._claim_voted(step, row, winner)
        return self._receipt_of(step, event, row, act)

    def count_votes(self, step: Step, ask_id: AskId) -> None:
        """Claim an ask whose votes are enough by now."""
        row = self._state.asks.get(ask_id)
        if row is None or row.state != "open" or self._state.lock is not None:
            return
        winner = self._ballots.standing(row).winner
        if winner is not None and self._ballots.may_end(row, winner):
            self._claim_voted(step, row, winner)

    def _claim_voted(self, step: Step, row: AskRow, winner: VoteRow) -> AskRow:
        is_local = winner.here and bool(winner.detail)
        return self._claim_by(
            step,
            row,
            operator=winner.name,
            channel=winner.channel,
            inbound=winner.inbound,
            selection=winner.selection,
            origin=LOCAL + winner.detail if is_local else None,
            person=winner.person,
        )

    def _withdrawn(
        self, step: Step, event: PersonActed, row: AskRow, act: Answered, person: Operator
    ) -> Receipt:
        result = result_of(row, step.at.wall_ms)
        if not self._ballots.withdraw(step, row, person):
            msg = "You have no vote on this question."
            return Receipt(ok=False, code="no_vote", msg=msg, result=result)
        self._inbound(step, event.channel, act.key, f"{row.ask_id}:withdrawn")
        msg = "Your vote was taken back."
        return Receipt(ok=True, code="withdrawn", msg=msg, result=result)

    def _commanded(self, step: Step, event: PersonActed, command: Commanded) -> Receipt:
        name = command.name.casefold().removeprefix("/")
        if name == "lock":
            return self._lock(step, event, command)
        if name == "redact":
            return self._redact(step, event, command)
        right: Right | None = "control" if name in CONTROLLING else None
        person = self._door.admit(step, event.channel, command.who, right)
        if isinstance(person, Receipt):
            return person
        if name == "unlock":
            return Receipt(ok=False, code="not_permitted", msg=ONLY_UNLOCK)
        known = f"There is no command {one_line(name, 40)!r} here. /lock stops everything."
        return Receipt(ok=False, code="unknown_command", msg=known)

    def _lock(self, step: Step, event: PersonActed, command: Commanded) -> Receipt:
        """Any operator may lock; that it is locked already is no fault."""
        person = self._door.admit(step, event.channel, command.who, None)
        if isinstance(person, Receipt):
            locked = person.code == "locked"
            return Receipt(ok=True, code="locked", msg=person.msg) if locked else person
        self._inbound(step, event.channel, command.key, f"lock:{command.text}")
        self._authority.lock(step, person.name, event.channel, command.text.strip())
        return Receipt(ok=True, code="locked", msg=f"Locked. {ONLY_UNLOCK}")

    def _redact(self, step: Step, event: PersonActed, command: Commanded) -> Receipt:
        """Stricter is anybody's to choose, laxer that of whoever has `control`."""
        word, _, rest = command.text.strip().casefold().partition(" ")
        right: Right | None = None if word == "on" else "control"
        person = self._door.admit(step, event.channel, command.who, right)
        if isinstance(person, Receipt):
            return person
        for_s = read_span(rest.removeprefix("for ")) if rest else None
        conversation = self._conversation_at(event.channel, command)
        is_span = not rest or (word == "off" and for_s is not None and 0 < for_s <= MAX_OFF_S)
        if word not in {"on", "off"} or not is_span or conversation is None:
            msg = "Say /redact on, or /redact off 2h (24h at most), in a session's thread."
            return Receipt(ok=False, code="invalid_command", msg=msg)
        self._inbound(step, event.channel, command.key, f"redact:{command.text}")
        by = f"{person.name} on {event.channel}"
        chosen = self.redactions.choose(
            step, conversation, redact=word == "on", by=by, for_s=for_s
        )
        off = chosen is not None and not chosen.redact
        words = "Credentials are shown here" if off else "Credentials are masked here"
        return Receipt(ok=True, code="redaction", msg=f"{words}.")

    def _conversation_at(self, channel: str, command: Commanded) -> str | None:
        """Return the conversation in which a command was given."""
        session = self._state.session(SessionId(command.session_id or ""))
        if session is not None:
            return session.conversation
        if command.place is None:
            return None
        address = command.place.address
        for key, rows in self._state.conversations.items():
            row = rows.get(channel)
            if address and row is not None and row.place == address:
                return key
        return None

    def _inbound(self, step: Step, channel: str, key: str, content: str) -> int:
        self._state.last_inbound += 1
        step.write(
            InboundRow(
                id=self._state.last_inbound,
                channel=channel,
                event_key=key,
                content_key=hashlib.sha256(
                    content.encode("utf-8", "surrogatepass")
                ).hexdigest(),
                at_ms=step.at.wall_ms,
            )
        )
        self._remember(channel, key, None)
        return self._state.last_inbound

    def _remember(self, channel: str, key: str, receipt: Receipt | None) -> None:
        self._state.inbound[channel, key] = receipt

    def _acknowledge(self, step: Step, event: PersonActed, receipt: Receipt) -> None:
        if event.receipt_id:
            ask_id = receipt.result.id if receipt.result is not None else ""
            row = self._state.find(AskId(ask_id)) or event.found
            shown = mask_in(self._state, "") if row is None else mask_of(self._state, row)
            step.release(Acknowledge(event.receipt_id, shown_receipt(receipt, shown)))


def _is_end_by(row: AskRow, channel: str, act: Answered) -> bool:
    """Tell whether *row* ended with what *act* said on *channel*."""
    if row.answered_by is None or row.answered_by.channel != channel:
        return False
    if act.decline:
        return row.outcome == "declined"
    if row.spec.secret:
        # What the words were is not known any more.
        return row.outcome == "answered"
    try:
        return row.outcome == "answered" and row.answer == read_act(row.spec, act)
    except InvalidAnswer:
        return False


def _toggled(row: AskRow | None) -> bool:
    return row is None or row.held_s is None
