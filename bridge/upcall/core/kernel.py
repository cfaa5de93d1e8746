"""The kernel: one event in, all machines asked, one decision out.

It reads no clock, draws no randomness and sends nothing. Its caller writes the decision's
rows in one transaction and carries out its releases only after the commit.
"""

import heapq
from collections.abc import Sequence
from typing import Final

from upcall.core import dedupe
from upcall.core.anchored import say_anchor
from upcall.core.announce import HUB_CONVERSATION, Announcer
from upcall.core.askers import Askers
from upcall.core.asks import read_answer
from upcall.core.authority import Authority, read_untold
from upcall.core.ballots import Ballots
from upcall.core.clocksteps import ClockSteps
from upcall.core.content import Content
from upcall.core.deafness import HEARD_KEY, Deafness
from upcall.core.explain import Ground
from upcall.core.hearing import Hearing
from upcall.core.lanes import WAITING, Lanes
from upcall.core.ledger import Ledger, action_of, plain, resolved_of
from upcall.core.letters import Letters
from upcall.core.merging import Merging
from upcall.core.numbers import numbers
from upcall.core.operators import everybody, is_shown_on, operator_views, uids_of
from upcall.core.outbox import Outbox
from upcall.core.own_asks import OwnAsks
from upcall.core.people import People
from upcall.core.quotas import Quotas
from upcall.core.recovery import Recovery
from upcall.core.redacting import is_redacted, mask_for, shown_ask
from upcall.core.reminders import Courses
from upcall.core.resend import Resend
from upcall.core.sessions import Sessions
from upcall.core.settings_change import SettingsChange
from upcall.core.state import (
    ChannelLive,
    Flood,
    HubState,
    KernelSettings,
    Step,
    WaitingSettings,
)
from upcall.core.views import (
    ask_view,
    channel_views,
    notice_view,
    session_view,
    shows_there,
)
from upcall.model.effects import Decision, Respond, SaveRoot, ToWaiter
from upcall.model.events import (
    AskerDied,
    AskRaised,
    AtMachine,
    AuditAnchored,
    CancelAsked,
    ChannelChanged,
    Delivered,
    DeliveryFailed,
    Due,
    Event,
    FrameIn,
    HostedReply,
    LettersSorted,
    LinkDown,
    LinkSynced,
    LinkUp,
    LockAsked,
    Moment,
    NoticeRaised,
    OperatorChanged,
    PersonActed,
    RedactionChosen,
    Resumed,
    RootChanged,
    SettingsChanged,
    SettingsRefused,
    SleepComing,
    Slept,
    StoreMeasured,
    TextsForgotten,
    Took,
    VerbositySet,
    WaitAsked,
    WaiterGone,
)
from upcall.model.frames import ActionNeeded, ActionResolved
from upcall.model.ids import AskId, SessionId
from upcall.model.policy import Presence
from upcall.model.rows import AskRow, LockRow, NoticeRow, SessionRow, Snapshot
from upcall.model.struct import replaced
from upcall.model.text import one_line
from upcall.model.views import (
    AskView,
    ChannelView,
    LetterView,
    NoticeView,
    Numbers,
    OperatorView,
    SessionView,
)

TIMERS_KEPT: Final = 1024


class Kernel:
    """Everything the hub decides."""

    def __init__(self, settings: KernelSettings) -> None:
        state = HubState(settings)
        state.shown_text = lambda of, text: mask_for(state, state.session(of))(text)
        self._state = state
        self._lanes = Lanes(state)
        self._outbox = Outbox(state, self._lanes)
        self._resend = Resend(state, self._outbox)
        self._letters = Letters(state, self._lanes, self._resend)
        self._policy = settings.policy
        self._courses = Courses(state, self._outbox)
        self._merging = Merging(state, self._outbox, self._courses)
        self._ledger = Ledger(state, self._outbox, self._courses, self._merging)
        self._recovery = Recovery(state, self._lanes, self._resend, self._expire)
        self._announcer = Announcer(state, self._outbox)
        self._deafness = Deafness(state, self._outbox, self._announcer)
        self._hearing = Hearing(state, self._ledger)
        self._askers = Askers(state, self._ledger)
        self._content = Content(state, self._outbox, self._lanes)
        self._sessions = Sessions(state, self._ledger, self._outbox, self._content)
        ballots = Ballots(state, self._ledger, self._outbox)
        self._clock_steps = ClockSteps(state)
        own_asks = OwnAsks(state, self._ledger, self._announcer)
        self._authority = Authority(
            state, self._ledger, self._outbox, self._announcer, ballots, own_asks
        )
        self._settings_change = SettingsChange(
            state, self._ledger, self._outbox, self._announcer, self._authority, own_asks
        )
        self._people = People(
            state,
            self._ledger,
            self._outbox,
            self._askers,
            self._sessions,
            self._authority,
            ballots,
            self._announcer,
        )
        self._prune_at = TIMERS_KEPT

    @classmethod
    def load(cls, settings: KernelSettings, snapshot: Snapshot) -> "Kernel":
        """Return a kernel that goes on with the rows of *snapshot*."""
        kernel = cls(settings)
        state = kernel._state
        for session in snapshot.sessions:
            if session.ended_ms is not None:
                state.ended[session.session_id] = session
                continue
            state.enter(session)
            if session.kind == "hosted":
                state.live_of(session.session_id).attached = True
        for ask in snapshot.asks:
            if ask.state == "closed":
                state.closed[ask.ask_id] = ask
                continue
            state.asks[ask.ask_id] = ask
            state.by_action[ask.session_id, ask.action_id] = ask.ask_id
            state.by_session.setdefault(ask.session_id, {})[ask.ask_id] = None
        for claim in snapshot.claims:
            state.claims[claim.ask_id] = claim
            state.won[claim.ask_id] = claim
        for vote in [one for one in snapshot.votes if one.ask_id in state.asks]:
            state.votes.setdefault(vote.ask_id, {})[vote.person, vote.channel] = vote
        state.pairings.update({(one.channel, one.identity): one for one in snapshot.pairings})
        state.revoked.update(snapshot.revoked)
        state.lock = snapshot.lock
        for inbound in snapshot.inbound:
            dedupe.load(state, inbound)
        for conversation in snapshot.conversations:
            of_key = state.conversations.setdefault(conversation.key, {})
            of_key[conversation.channel] = conversation
        for shown in snapshot.cards:
            state.cards.setdefault(shown.ask_id, {})[shown.channel] = shown
        for copy in snapshot.copies:
            of_ask = state.copies.setdefault(copy.ask_id, {})
            of_ask[copy.channel] = (*of_ask.get(copy.channel, ()), copy.ref)
        for button in snapshot.buttons:
            state.buttons[button.token] = button
            state.buttons_of.setdefault(button.subject, {})[button.token] = None
        for text in snapshot.texts:
            state.texts[text.id] = text
            state.last_text = max(state.last_text, text.id)
        for session_id, size in snapshot.stored.items():
            state.floods[session_id] = Flood(stored=size)
        for token in snapshot.tokens:
            state.tokens[token.token] = token
            state.tokens_of.setdefault(token.ask_id, []).append(token)
        for delivery in sorted(snapshot.deliveries, key=lambda row: row.id):
            state.deliveries[delivery.id] = delivery
        for given_up in snapshot.dead:
            state.dead[given_up.id] = given_up
        state.former_places.update(snapshot.former_places)
        state.gates.update(snapshot.gates)
        state.settings_kept.update(snapshot.settings)
        read_untold(state)
        state.roots.update(dict.fromkeys(snapshot.roots))
        state.keys.update(snapshot.keys)
        state.verbosities.update(snapshot.verbosities)
        state.last_inbound = snapshot.last_inbound
        state.last_delivery = snapshot.last_delivery
        state.last_notice = snapshot.last_notice
        return kernel

    def handle(self, event: Event, seed: bytes = b"") -> Decision:
        """Return what *event* leads to.

        Args:
            event: what happened, with its time.
            seed: at least 16 random bytes, from which new ids are made.
        """
        step = Step(self._state, event.at, seed)
        if not isinstance(event, Resumed):
            self._clock_steps.look(step)
        match event:
            case AskRaised():
                self._askers.raised(step, event)
                self._hearing.look(step, event.ask_id)
            case WaitAsked():
                self._askers.waits(step, event)
            case Took():
                self._askers.took(step, event)
            case CancelAsked():
                self._askers.cancelled(step, event)
            case NoticeRaised():
                self._askers.noticed(step, event)
            case WaiterGone():
                self._askers.gone(step, event)
            case AskerDied():
                self._askers.died(step, event)
            case LinkUp():
                self._sessions.up(step, event)
            case LinkSynced():
                self._sessions.synced(step, event)
            case LinkDown():
                self._sessions.down(step, event)
            case FrameIn():
                self._sessions.frame(step, event)
            case HostedReply():
                self._people.replied(step, event)
            case PersonActed():
                self._deafness.heard(event)
                for row in self._recovery.too_late(step, event):
                    self._expire(step, row)
                self._people.acted(step, event)
            case Delivered():
                self._people.talk.delivered(step, event)
                self._arrived(step, self._lanes.delivered(step, event))
                self._content.arrived(step, event.delivery, event.ref)
                self._people.second.arrived(step, event.delivery)
            case DeliveryFailed():
                for lost in self._lanes.failed(step, event):
                    self._arrived(step, lost)
                self._courses.failed(step, event)
                self._content.failed(step, event.delivery)
                self._people.second.failed(event.delivery)
            case ChannelChanged():
                self._channel_says(step, event)
            case AtMachine():
                self._courses.seen(step, event)
            case VerbositySet():
                self._content.set_level(step, event)
            case RedactionChosen():
                self._people.redactions.choose(
                    step,
                    event.conversation,
                    redact=event.redact,
                    by=event.by,
                    for_s=event.for_s,
                )
            case LettersSorted():
                self._letters.sorted(step, event)
            case RootChanged():
                self._root_changed(step, event)
            case LockAsked():
                self._authority.lock_asked(step, event)
            case OperatorChanged():
                self._authority.operator_changed(step, event)
            case SettingsChanged():
                self._settings_change.changed(step, event)
            case SettingsRefused():
                self._settings_change.refused(step, event)
            case TextsForgotten():
                self._forget(step, event)
            case AuditAnchored():
                say_anchor(step, self._state, self._outbox, event)
            case StoreMeasured():
                Quotas(self._state).measured(event.sizes)
            case SleepComing():
                self._deafness.sleep_coming(step, coming=event.coming)
            case Slept():
                self._deafness.sleep_coming(step, coming=False)
                self._deafness.slept(event.since_ms)
                self._recovery.slept(step)
            case Due():
                self._due(step, event.at)
            case Resumed():  # pragma: no branch - there is no other
                self._resume(step, event.at)
        self._settings_change.after(step)
        self._authority.after(step)
        for ask_id in self._people.talk.settle(step):
            self._hearing.look(step, ask_id)
        if self._state.settings.policy is not self._policy:
            # Whoever changed it: asks that are open go by the rules in force.
            self._policy = self._state.settings.policy
            self._courses.look_at_all(step)
        self._announcer.spread(step)
        self._prune_timers()
        dedupe.prune(step, self._state)
        return step.decision

    @property
    def machine(self) -> str:
        """What this machine is called."""
        return self._state.settings.machine

    def ground(self, wall_ms: int) -> Ground:
        """Return what the policy in force says about asks that are raised now."""
        state = self._state
        people = {
            name: person
            for name, person in everybody(state).items()
            if name not in state.revoked
        }
        uid = state.settings.uid
        own = [name for name, one in people.items() if uid in uids_of(state, one)]
        return Ground(
            policy=state.settings.policy,
            people=people,
            channels={name: info.capabilities.draws_asks for name, info in state.infos.items()},
            away={
                name: live.reason or "not hearing"
                for name, live in state.channels.items()
                if not live.hearing
            },
            zone=state.settings.zone,
            wall_ms=wall_ms,
            owner=own[0] if own else "",
        )

    @property
    def presence(self) -> Presence:
        """What tells that a person is at this computer."""
        return self._state.settings.policy.presence

    @property
    def operator(self) -> str:
        """The only operator's name, where none is configured."""
        return self._state.settings.operator

    @property
    def lock(self) -> LockRow | None:
        """Who locked the hub, if it is locked."""
        return self._state.lock

    @property
    def waiting_settings(self) -> WaitingSettings | None:
        """Settings that are not in force, since nobody has agreed to them yet."""
        return self._state.waiting_settings

    def is_seen_on(self, channel: str) -> bool:
        """Tell whether anybody who is known there has the right to see."""
        return is_shown_on(self._state, channel)

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The configured channels."""
        return tuple(self._state.infos)

    @property
    def redacts(self) -> bool:
        """Whether recognised credentials are masked in what is kept: somewhere they are."""
        settings = self._state.settings
        terms = (settings.policy.defaults, *(one.terms for one in settings.policy.routes))
        return settings.redact or any(one.redact is True for one in terms)

    def operators_list(self) -> list[OperatorView]:
        """Return all people who may act, or whose rights were taken."""
        return operator_views(self._state)

    def pairing_waits_for(self, channel: str, identity: str) -> str | None:
        """Return the ask that has to be agreed to before an added identity counts."""
        row = self._state.pairings.get((channel, identity))
        return None if row is None else row.ask_id

    def next_due_s(self) -> float | None:
        """Return the boot clock time of the next timer, or None."""
        return self._state.timers[0][0] if self._state.timers else None

    def find(self, ask_id: str) -> AskRow | None:
        """Return an ask that is open, or was closed in this hub's life."""
        return self._state.find(AskId(ask_id))

    def knows_button(self, token: str) -> bool:
        """Tell whether a button is live, or was over in this hub's life."""
        state = self._state
        return token in state.tokens or token in state.buttons or token in state.retired

    def find_by_key(self, key: str) -> AskId | None:
        """Return the newest ask that was raised with *key*."""
        return self._state.keys.get(key)

    def match(self, text: str) -> list[AskRow]:
        """Return the asks that *text* names: a public id, a prefix of it, or an action id."""
        exact = self._state.find(AskId(text))
        if exact is not None:
            return [exact]
        rows = [*self._state.asks.values(), *self._state.closed.values()]
        by_action = [row for row in rows if row.action_id == text]
        if by_action:
            return by_action
        return [row for row in rows if len(text) >= 4 and row.ask_id.startswith(text)]

    def open_rows(self) -> list[AskRow]:
        """Return open and claimed asks, oldest first."""
        rows = self._state.asks.values()
        return sorted(rows, key=lambda row: (row.raised_ms, row.ask_id))

    def open_asks(self) -> list[AskView]:
        """Return open and claimed asks as they are shown, oldest first.

        Equal ones that were merged are shown as one.
        """
        rows = self.open_rows()
        return [ask_view(self._state, one) for one in rows if one.course.merged_into is None]

    def drawn(self, channel: str) -> list[AskView]:
        """Return the open and claimed asks that a channel draws by itself, oldest first."""
        return [
            ask_view(self._state, row)
            for row in self.open_rows()
            if shows_there(self._state, channel, row)
        ]

    def view(self, row: AskRow, session: SessionRow | None = None) -> AskView:
        """Return *row* as it is shown."""
        return ask_view(self._state, row, session)

    def sessions(self) -> list[SessionView]:
        """Return sessions that live or have open asks."""
        return [session_view(self._state, row) for row in self._state.sessions.values()]

    def session_rows(self) -> list[SessionRow]:
        """Return the sessions that have not ended."""
        return list(self._state.sessions.values())

    def session(self, session_id: str) -> SessionRow | None:
        """Return a session that lives, or ended in this hub's life."""
        return self._state.session(SessionId(session_id))

    def notice_view(self, row: NoticeRow, session: SessionRow | None) -> NoticeView:
        """Return a notice as it is shown."""
        return notice_view(self._state, row, session)

    def shown(self, row: AskRow) -> AskRow:
        """Return *row* with its texts as they may be shown."""
        return shown_ask(self._state, row)

    def redaction(self, conversation: str) -> tuple[bool, int | None, str | None]:
        """Return whether credentials are masked there, until when that holds, and by whom."""
        chosen = self._state.redactions.get(conversation)
        if chosen is not None:
            return chosen.redact, chosen.until_ms, chosen.by
        living = self._state.living.get(conversation, ())
        session = next((self._state.session(one) for one in living), None)
        return is_redacted(self._state, session), None, None

    def session_view(self, session_id: str) -> SessionView | None:
        """Return a session that lives, or ended in this hub's life, as it is shown."""
        row = self.session(session_id)
        return None if row is None else session_view(self._state, row)

    def channels(self, ask_id: str | None = None) -> list[ChannelView]:
        """Return where an ask, or anything, can be seen."""
        return channel_views(self._state, AskId(ask_id) if ask_id else None)

    def roots(self) -> list[str]:
        """Return the registered project folders."""
        return list(self._state.roots)

    def kept(self, channel: str) -> dict[str, str]:
        """Return what an adapter kept."""
        kept = self._state.settings_kept
        return {
            name: value
            for (of, name), value in kept.items()
            if of == channel and name != HEARD_KEY
        }

    def hosted_asks(self, session_id: str) -> Sequence[ActionNeeded]:
        """Return the frames of a hosted session's open asks, oldest first."""
        return [action_of(row) for row in self._state.asks_of(SessionId(session_id))]

    def hosted_resolutions(self, session_id: str) -> Sequence[ActionResolved]:
        """Return the frames of a hosted session's asks that ended lately."""
        return [
            resolved_of(row)
            for row in self._state.closed.values()
            if row.session_id == session_id
        ]

    def numbers(self, at: Moment) -> Numbers:
        """Return how lanes, gates and answers stand."""
        return numbers(self._state, at)

    def letters(self) -> list[LetterView]:
        """Return what has not arrived on a channel."""
        return self._letters.views()

    def letters_sorted(self, number: int) -> dict[int, str]:
        """Return, once, why letters of a request stayed as they were; empty: it was done."""
        return self._state.letters_sorted.pop(number, {})

    def dead_letters(self) -> int:
        """Return how many deliveries to channels were given up."""
        return len(self._state.dead)

    def waiting_deliveries(self) -> int:
        """Return how many deliveries have not arrived yet."""
        return len(self._state.deliveries)

    def _channel_says(self, step: Step, event: ChannelChanged) -> None:
        self._recovery.before_change(step, event)
        self._channel_changed(step, event)
        self._recovery.after_change(step, event)

    def _channel_changed(self, step: Step, event: ChannelChanged) -> None:
        live = self._state.channels.setdefault(event.channel, ChannelLive())
        was_hearing = live.hearing
        if event.hearing:
            self._deafness.completed_round(step, event.channel, live)
        if (live.hearing, live.audience, live.reason, live.signed_in) == (
            event.hearing,
            event.audience,
            event.reason,
            event.signed_in,
        ):
            live.heard_ms = step.at.wall_ms if event.hearing else live.heard_ms
            self._deafness.changed(step, event.channel, was_hearing=was_hearing)
            return
        live.hearing, live.audience, live.reason = event.hearing, event.audience, event.reason
        live.signed_in = event.signed_in
        # Of a channel that says each round, only a round tells until when it heard.
        if event.hearing or (was_hearing and live.silent_due_s is None):
            live.heard_ms = step.at.wall_ms
        self._deafness.changed(step, event.channel, was_hearing=was_hearing)
        if event.hearing and not was_hearing:
            self._lanes.wake_target(step, event.channel)
        if event.hearing != was_hearing:
            self._courses.channel_changed(step, event.channel)
            self._hearing.look(step)
        for ask_id in list(self._state.waiters):
            self._tell_channels(step, ask_id)
        step.change()

    def _arrived(self, step: Step, ask_id: AskId | None) -> None:
        if ask_id is not None:
            self._courses.look(step, ask_id)
            self._hearing.look(step, ask_id)
        self._tell_channels(step, ask_id)

    def _tell_channels(self, step: Step, ask_id: AskId | None) -> None:
        waiters = self._state.waiters.get(ask_id) if ask_id is not None else None
        if not waiters:
            return
        fields = {"channels": [plain(view) for view in channel_views(self._state, ask_id)]}
        for waiter in waiters:
            step.release(ToWaiter(waiter, "channels", fields))

    def _root_changed(self, step: Step, event: RootChanged) -> None:
        if event.gone:
            self._state.roots.pop(event.path, None)
        else:
            self._state.roots[event.path] = None
        step.write(SaveRoot(event.path, event.gone))
        step.audit("root_removed" if event.gone else "root_added", None, path=event.path)
        if not event.gone:
            words = f"Project folder added: {one_line(event.path, 300)}. Its sessions are read."
            self._announcer.tell(step, "security", words)
        if event.waiter:
            step.release(Respond(event.waiter, fields={}))

    def _forget(self, step: Step, event: TextsForgotten) -> None:
        state, asks = self._state, frozenset(event.asks)
        for ask_id in event.asks:
            for waiting in self._lanes.of_ask(ask_id):
                if waiting.state in WAITING:
                    self._lanes.drop(step, waiting)
            row = state.closed.pop(ask_id, None)
            state.won.pop(ask_id, None)
            if (
                row is not None
                and state.by_action.get((row.session_id, row.action_id)) == ask_id
            ):
                del state.by_action[row.session_id, row.action_id]
        for key in [key for key, ask_id in state.keys.items() if ask_id in asks]:
            del state.keys[key]
        for seen, receipt in state.inbound.items():
            if receipt is not None and receipt.result is not None and receipt.result.id in asks:
                state.inbound[seen] = None
        for session_id in event.sessions:
            state.ended.pop(session_id, None)
        if event.conversation is not None and event.conversation not in state.living:
            state.conversations.pop(event.conversation, None)
            state.verbosities.pop(event.conversation, None)
            state.idle_due.pop(event.conversation, None)
        step.change()

    def _due(self, step: Step, at: Moment) -> None:
        timers = self._state.timers
        while timers and timers[0][0] <= at.boot_s:
            due_s, kind, key = heapq.heappop(timers)
            if not self._is_wanted(due_s, kind, key):
                continue
            match kind:
                case "deadline" | "overdue":
                    if not self._recovery.is_waiting():
                        self._expire(step, self._state.asks[AskId(key)])
                case "catch_up":
                    self._recovery.due(step, key)
                case "delivery":
                    self._lanes.due(step, int(key))
                case "gate":
                    self._lanes.gate_due(step, key)
                case "peer_sync":
                    self._sessions.peer_sync(step, SessionId(key))
                case "conversation":
                    self._ledger.close_conversation(step, key)
                case "course":
                    self._courses.look(step, AskId(key))
                case "route":
                    self._courses.reroute(step)
                case "stream":
                    self._content.due(step, key)
                case "redaction":
                    self._people.redactions.due(step, key)
                case "deaf":
                    self._deafness.due(step, key)
                case "silent":
                    self._channel_says(step, self._deafness.silent(step, key))
                case "flood":
                    self._people.talk.floods.due(SessionId(key))
                case "text":
                    self._people.talk.words.due(step, int(key))
                case "votes":
                    self._people.count_votes(step, AskId(key))
                case _:
                    self._askers.unseen(step, SessionId(key))

    def _is_wanted(self, due_s: float, kind: str, key: str) -> bool:
        """Tell whether a timer still stands; what it was set for may have changed since."""
        state = self._state
        match kind:
            case "deadline":
                row = state.asks.get(AskId(key))
                return row is not None and row.state == "open" and row.deadline_boot_s == due_s
            case "overdue":
                row = state.asks.get(AskId(key))
                due = row.deadline_boot_s if row is not None and row.state == "open" else None
                return due is not None and due <= due_s
            case "delivery":
                waiting = state.deliveries.get(int(key))
                return (
                    waiting is not None
                    and waiting.state not in {"queued", "sending"}
                    and state.retry_due.get(waiting.id) == due_s
                )
            case "catch_up":
                catching = state.channels.get(key)
                return catching is not None and catching.catch_up_by_s == due_s
            case "gate":
                return state.gate_due.get(key) == due_s
            case "peer_sync":
                live = state.live.get(SessionId(key))
                return live is not None and live.sync_due_s == due_s
            case "conversation":
                return state.idle_due.get(key) == due_s
            case "redaction":
                return state.redaction_due.get(key) == due_s
            case "stream":
                return True
            case "course":
                return state.course_due.get(AskId(key)) == due_s
            case "route":
                channel = state.channels.get(key)
                return channel is not None and not channel.hearing
            case "flood":
                return SessionId(key) in state.floods
            case "text":
                return int(key) in state.texts
            case "votes":
                return AskId(key) in state.votes
            case "silent":
                heard = state.channels.get(key)
                return heard is not None and heard.hearing and heard.silent_due_s == due_s
            case "deaf":
                live_channel = state.channels.get(key)
                return live_channel is not None and not live_channel.hearing
            case _:
                return SessionId(key) in state.by_session

    def _prune_timers(self) -> None:
        # A timer that is void would otherwise stay until its time, which may be a year off.
        timers = self._state.timers
        if len(timers) > self._prune_at:
            timers[:] = [timer for timer in timers if self._is_wanted(*timer)]
            heapq.heapify(timers)
            self._prune_at = max(TIMERS_KEPT, 2 * len(timers))

    def _expire(self, step: Step, row: AskRow) -> None:
        verdict = self._hearing.verdict(step, row)
        if verdict == "later":
            return
        answer = None
        if verdict == "default" and row.spec.default is not None:
            answer = read_answer(row.spec, row.spec.default)
        self._ledger.close(step, row, "timed_out", resolved_by="timeout", answer=answer)

    def _resume(self, step: Step, at: Moment) -> None:
        boot_id = self._state.settings.boot_id
        self._state.resumed_boot_s = at.boot_s
        self._clock_steps.resume(step)
        for row in list(self._state.asks.values()):
            if row.deadline_boot_s is None or row.deadline_ms is None:
                continue
            due_s = row.deadline_boot_s
            if row.boot_id != boot_id:
                # Boot seconds of another boot mean nothing; the wall clock decides.
                due_s = at.boot_s + (row.deadline_ms - at.wall_ms) / 1000
                moved = replaced(row, deadline_boot_s=due_s, boot_id=boot_id)
                self._state.asks[row.ask_id] = moved
                step.write(moved)
            step.timer(due_s, "deadline", row.ask_id)
        self._deafness.resume(step)
        self._recovery.resume(step)
        for ask_id in self._state.votes:
            # Enough of them may have been there when the hub ended.
            step.timer(at.boot_s, "votes", ask_id)
        self._people.redactions.resume(step)
        self._lanes.resume(step)
        self._people.talk.resume(step)
        self._merging.resume()
        self._courses.resume(step)
        self._askers.resume(step)
        self._hearing.look(step)
        for conversation in self._state.conversations:
            if conversation not in self._state.living and conversation != HUB_CONVERSATION:
                self._ledger.idle(step, conversation)
