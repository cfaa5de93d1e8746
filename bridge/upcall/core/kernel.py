"""The kernel: one event in, all machines asked, one decision out.

It reads no clock, draws no randomness and sends nothing. Its caller writes the decision's
rows in one transaction and carries out its releases only after the commit.
"""

import heapq
from collections.abc import Sequence
from typing import Final

from upcall.core.askers import Askers
from upcall.core.asks import read_answer
from upcall.core.hearing import Hearing
from upcall.core.lanes import WAITING, Lanes
from upcall.core.ledger import Ledger, action_of, plain, resolved_of
from upcall.core.outbox import Outbox
from upcall.core.people import People
from upcall.core.sessions import Sessions
from upcall.core.state import ChannelLive, HubState, KernelSettings, Step
from upcall.core.views import ask_view, channel_views, session_view
from upcall.model.effects import Decision, Respond, SaveRoot, ToWaiter
from upcall.model.events import (
    AskerDied,
    AskRaised,
    CancelAsked,
    ChannelChanged,
    Delivered,
    DeliveryFailed,
    Due,
    Event,
    FrameIn,
    HostedReply,
    LinkDown,
    LinkSynced,
    LinkUp,
    Moment,
    NoticeRaised,
    PersonActed,
    Resumed,
    RootChanged,
    TextsForgotten,
    Took,
    WaitAsked,
    WaiterGone,
)
from upcall.model.frames import ActionNeeded, ActionResolved
from upcall.model.ids import AskId, SessionId
from upcall.model.rows import AskRow, SessionRow, Snapshot
from upcall.model.struct import replaced
from upcall.model.views import AskView, ChannelView, SessionView

TIMERS_KEPT: Final = 1024


class Kernel:
    """Everything the hub decides."""

    def __init__(self, settings: KernelSettings) -> None:
        state = HubState(settings)
        self._state = state
        self._lanes = Lanes(state)
        self._outbox = Outbox(state, self._lanes)
        self._ledger = Ledger(state, self._outbox)
        self._hearing = Hearing(state, self._ledger)
        self._askers = Askers(state, self._ledger)
        self._sessions = Sessions(state, self._ledger, self._outbox)
        self._people = People(state, self._ledger, self._outbox, self._askers, self._sessions)
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
        for inbound in snapshot.inbound:
            state.inbound[inbound.channel, inbound.event_key] = None
        for conversation in snapshot.conversations:
            of_key = state.conversations.setdefault(conversation.key, {})
            of_key[conversation.channel] = conversation
        for shown in snapshot.cards:
            state.cards.setdefault(shown.ask_id, {})[shown.channel] = shown
        for token in snapshot.tokens:
            state.tokens[token.token] = token
            state.tokens_of.setdefault(token.ask_id, []).append(token)
        for delivery in sorted(snapshot.deliveries, key=lambda row: row.id):
            state.deliveries[delivery.id] = delivery
        state.gates.update(snapshot.gates)
        state.settings_kept.update(snapshot.settings)
        state.roots.update(dict.fromkeys(snapshot.roots))
        state.keys.update(snapshot.keys)
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
                self._people.acted(step, event)
            case Delivered():
                self._arrived(step, self._lanes.delivered(step, event))
            case DeliveryFailed():
                self._arrived(step, self._lanes.failed(step, event))
            case ChannelChanged():
                self._channel_changed(step, event)
            case RootChanged():
                self._root_changed(step, event)
            case TextsForgotten():
                self._forget(step, event)
            case Due():
                self._due(step, event.at)
            case Resumed():  # pragma: no branch - there is no other
                self._resume(step, event.at)
        self._prune_timers()
        return step.decision

    @property
    def machine(self) -> str:
        """What this machine is called."""
        return self._state.settings.machine

    @property
    def operator(self) -> str:
        """The only operator's name, where none is configured."""
        return self._state.settings.operator

    def next_due_s(self) -> float | None:
        """Return the boot clock time of the next timer, or None."""
        return self._state.timers[0][0] if self._state.timers else None

    def find(self, ask_id: str) -> AskRow | None:
        """Return an ask that is open, or was closed in this hub's life."""
        return self._state.find(AskId(ask_id))

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
        """Return open and claimed asks as they are shown, oldest first."""
        return [ask_view(self._state, row) for row in self.open_rows()]

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
        return {name: value for (of, name), value in kept.items() if of == channel}

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

    def waiting_deliveries(self) -> int:
        """Return how many deliveries have not arrived yet."""
        return len(self._state.deliveries)

    def _channel_changed(self, step: Step, event: ChannelChanged) -> None:
        live = self._state.channels.setdefault(event.channel, ChannelLive())
        was_hearing = live.hearing
        if (live.hearing, live.audience, live.reason) == (
            event.hearing,
            event.audience,
            event.reason,
        ):
            live.heard_ms = step.at.wall_ms if event.hearing else live.heard_ms
            return
        live.hearing, live.audience, live.reason = event.hearing, event.audience, event.reason
        if event.hearing or was_hearing:
            live.heard_ms = step.at.wall_ms
        if event.hearing and not was_hearing:
            self._lanes.wake_target(step, event.channel)
        if event.hearing != was_hearing:
            self._hearing.look(step)
        for ask_id in list(self._state.waiters):
            self._tell_channels(step, ask_id)
        step.change()

    def _arrived(self, step: Step, ask_id: AskId | None) -> None:
        if ask_id is not None:
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
                    self._expire(step, self._state.asks[AskId(key)])
                case "delivery":
                    self._lanes.due(step, int(key))
                case "peer_sync":
                    self._sessions.peer_sync(step, SessionId(key))
                case "conversation":
                    self._ledger.close_conversation(step, key)
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
            case "peer_sync":
                live = state.live.get(SessionId(key))
                return live is not None and live.sync_due_s == due_s
            case "conversation":
                return state.idle_due.get(key) == due_s
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
        self._lanes.resume(step)
        for row in self._state.asks.values():
            self._outbox.show(step, row)
        self._askers.resume(step)
        self._hearing.look(step)
        for conversation in self._state.conversations:
            if conversation not in self._state.living:
                self._ledger.idle(step, conversation)
