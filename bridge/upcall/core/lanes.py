"""Every delivery's life: queued, sending, done, or tried again, uncertain, dead.

A delivery is a row before it is attempted. `core.queues` says whose turn it is, and
`core.verdicts` what becomes of one that failed.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from upcall.core import backoff, gates, trail
from upcall.core.copies import note_lost
from upcall.core.shelf import Shelf
from upcall.core.state import HubState, Step, is_overdue
from upcall.core.threads import Threads
from upcall.core.verdicts import TO_SESSIONS, is_stale, on_failure, repeat_of
from upcall.model.effects import Find, Send
from upcall.model.events import Delivered, DeliveryFailed
from upcall.model.ids import AskId, SessionId
from upcall.model.platform import THREAD_GONE
from upcall.model.rows import CardRow, DeliveryKind, DeliveryRow, Lane
from upcall.model.struct import replaced

Remake: TypeAlias = Callable[[DeliveryRow], bytes | None]
Moved: TypeAlias = Callable[[Step, str, str], None]
WAITING: Final = frozenset({"queued", "retry", "uncertain"})
DEAD_KEPT: Final = 1000
OVERDUE_LOOK_S: Final = 1.0
_NOT_NEEDED: Final = "not needed any more"
_SESSION_OVER: Final = "the session has ended"
_TOO_OLD: Final = "too old to be told"
_HUB_ENDED: Final = "the hub ended while it was sent"


class Lanes(Shelf):
    """What is on its way, or waits for its turn.

    Attributes:
        remake: returns the body of a card that may be there already, marked as a possible
            repeat; None leaves it as it is.
        moved: called when a thread is gone, with its conversation's key and channel.
    """

    def __init__(self, state: HubState) -> None:
        self.remake: Remake = lambda _: None
        self.moved: Moved = lambda *_: None
        super().__init__(state)
        self._threads = Threads(state)
        self._lost: list[AskId] = []

    def add(
        self,
        step: Step,
        *,
        effect: str,
        kind: DeliveryKind,
        lane: Lane,
        target: str,
        place: str,
        body: bytes,
        ask_id: AskId | None,
        ref: str | None = None,
        secret: bool = False,
        conversation: str = "",
    ) -> None:
        """Put a delivery at the end of its queue; it goes at once if it may."""
        if lane == "live":
            self._coalesce(step, target, conversation)
        row = DeliveryRow(
            id=self.number(),
            effect=effect,
            kind=kind,
            lane=lane,
            target=target,
            place=place,
            state="queued",
            body=body,
            ask_id=ask_id,
            ref=ref,
            created_ms=step.at.wall_ms,
            secret=secret,
            conversation=conversation,
        )
        self.enlist(row)
        self._pump(step, target)
        if self._state.deliveries.get(row.id) is row:
            step.write(row)

    def wake(self, step: Step, row: DeliveryRow) -> None:
        """Let what waits for the same channel or session go on."""
        self._pump(step, row.target)

    def may_be_found(self, row: DeliveryRow) -> bool:
        """Tell whether *row* may be there already, and its channel can look it up."""
        info = self._state.infos.get(row.target)
        looks_up = info is not None and info.capabilities.repeat == "by_lookup"
        return looks_up and row.kind in {"open", "post", "remind"} and row.attempt > 0

    def end_session(self, step: Step, session_id: SessionId) -> None:
        """A session is no more: nothing can be delivered to it."""
        for row in self.rows(self._queues.of_target(session_id)):
            if row.kind in TO_SESSIONS and row.state in WAITING:
                self._give_up(step, row, _SESSION_OVER)

    def delivered(self, step: Step, event: Delivered) -> AskId | None:
        """Take note that a delivery arrived; return the ask whose card is newly shown."""
        row = self._state.deliveries.get(event.delivery)
        if row is None or row.state != "sending":
            return None
        newly_shown = None
        if row.kind == "open":
            self._threads.opened(step, row, event.ref)
        elif row.ask_id is not None and event.ref is not None:
            newly_shown = self._note_ref(step, row, row.ask_id, event.ref)
        trail.arrived(step, self._state, row)
        self.finish(step, replaced(row, state="done", ref=event.ref or row.ref))
        self._pump(step, row.target)
        return newly_shown

    def failed(self, step: Step, event: DeliveryFailed) -> list[AskId]:
        """Decide whether and when a delivery is tried again.

        Returns:
            The asks whose cards will not be shown, if it was given up.
        """
        row = self._state.deliveries.get(event.delivery)
        if row is None or row.state != "sending":
            return []
        self._lost = []
        tries = self._state.tries.get(row.id, 0) + 1
        self._state.tries[row.id] = tries
        step.log(
            "delivery_failed",
            delivery=row.id,
            target=row.target,
            kind=event.kind,
            error=event.msg,
            tries=tries,
        )
        certain = event.kind in {"not_sent", "throttled", "absent"}
        if event.kind == "absent":
            row = replaced(row, attempt=0)
        elif certain:
            row = replaced(row, attempt=row.attempt - 1)
        if event.kind == "throttled":
            scope = gates.scope_of(row.target, row.place if event.place_only else "")
            gates.close(step, self._state, scope, event.retry_after_s)
        if self._is_over(row):
            self.finish(step, replaced(row, state="done", error=_NOT_NEEDED))
        elif row.kind in TO_SESSIONS and SessionId(row.target) not in self._state.sessions:
            self._give_up(step, row, _SESSION_OVER)
        elif event.kind == "refused":
            self._refused(step, row, event)
        elif self._verdict(row, tries, certain=certain) == "dead":
            self._give_up(step, row, event.msg)
        else:
            self._again(step, row, tries, event)
        self._pump(step, row.target)
        return self._lost

    def wake_target(self, step: Step, target: str) -> None:
        """Try again now what waits for *target*: it is back."""
        for row in self.rows(self._queues.firsts(target)):
            if row.state in {"retry", "uncertain"}:
                self.ready(row)
        self.sweep(step, target)
        self._pump(step, target)

    def due(self, step: Step, delivery: int) -> None:
        """The wait of a delivery is over."""
        row = self.ready(self._state.deliveries[delivery])
        self._pump(step, row.target)

    def gate_due(self, step: Step, scope: str) -> None:
        """A channel takes calls again."""
        self._pump(step, gates.channel_of(scope))

    def hold_back(self, channel: str) -> None:
        """Post nothing on a channel until `let_go`: it has first to be heard."""
        self._state.held_back[channel] = None

    def let_go(self, step: Step, channel: str) -> None:
        """Post what waited while the channel was only listened to."""
        self._state.held_back.pop(channel, None)
        self.sweep(step, channel)
        self._pump(step, channel)

    def sweep(self, step: Step, channel: str) -> int:
        """Drop what has become too old on a channel, and return how much that was."""
        old = [
            row
            for row in self.rows(self._queues.of_target(channel))
            if row.state in WAITING and is_stale(row, step.at.wall_ms)
        ]
        for row in old:
            self.finish(step, replaced(row, state="done", error=_TOO_OLD))
        live = self._state.channels.get(channel)
        if live is not None:
            live.too_old += len(old)
        return len(old)

    def again_by_hand(self, step: Step, row: DeliveryRow) -> None:
        """Try once more what was given up."""
        self._state.dead.pop(row.id, None)
        row = replaced(row, state="queued", not_before_ms=0, attempt=min(row.attempt, 1))
        self.enlist(row)
        step.write(row)
        self._pump(step, row.target)

    def resume(self, step: Step) -> None:
        """At start: what was on its way when the hub ended goes again, or is uncertain."""
        gates.resume(step, self._state)
        rows = list(self._state.deliveries.values())
        # A thread is opened before all that is to go there, whenever that was decided.
        for row in sorted(rows, key=lambda row: row.kind != "open"):
            self.enlist(row)
        for row in list(self._state.deliveries.values()):
            if row.kind == "reply" and not row.body:
                # A secret's bytes are not kept; its session asks again if it still waits.
                self.drop(step, row)
            elif row.state == "sending":
                self._resume_sending(step, row)
            elif row.state != "queued":
                self._set_timer(step, row, (row.not_before_ms - step.at.wall_ms) / 1000)
        for channel in self._state.infos:
            self.sweep(step, channel)
        for target in list(self._state.lanes):
            self._pump(step, target)

    def _resume_sending(self, step: Step, row: DeliveryRow) -> None:
        if self._is_over(row):
            self.finish(step, replaced(row, state="done", error=_NOT_NEEDED))
        elif self._verdict(row, 0, certain=False) == "dead":
            self._give_up(step, row, _HUB_ENDED)
        else:
            trail.uncertain(step, self._state, row, _HUB_ENDED)
            note_lost(step, self._state, row)
            row = self._marked(replaced(row, state="uncertain", error=_HUB_ENDED))
            self.save(step, row)
            self._queues.waits(row)
            self.ready(row)

    def _again(self, step: Step, row: DeliveryRow, tries: int, event: DeliveryFailed) -> None:
        wait_s = backoff.delay_s(tries, jitter=event.jitter, hint_s=event.retry_after_s)
        certain = event.kind in {"not_sent", "throttled", "absent"}
        if row.attempt and row.kind in {"open", "post", "remind"}:
            note_lost(step, self._state, row)
            words = event.msg if certain else f"may have arrived: {event.msg}"
            self.wait(step, self._marked(row), "uncertain", wait_s, words)
        else:
            self.wait(step, row, "retry", wait_s, event.msg)
        if not certain:
            trail.uncertain(step, self._state, row, event.msg)
        elif tries == 1:
            trail.delayed(step, self._state, row, event.msg, wait_s)

    def _verdict(self, row: DeliveryRow, tries: int, *, certain: bool) -> str:
        info = self._state.infos.get(row.target)
        live = self._state.live.get(SessionId(row.target))
        return on_failure(
            row,
            tries,
            certain=certain,
            repeat=repeat_of(None if info is None else info.capabilities),
            known=info is not None,
            attached=live is not None and live.attached,
        )

    def _refused(self, step: Step, row: DeliveryRow, event: DeliveryFailed) -> None:
        gone = event.code == THREAD_GONE and row.kind != "open"
        if not gone or not self._threads.may_reopen(step, row):
            self._give_up(step, row, event.msg)
            return
        self._threads.gone(step, row)
        if row.kind in {"post", "remind"} and row.ask_id is None:
            # It is posted in the thread that is opened next.
            self.ready(replaced(row, attempt=0))
            step.write(self._state.deliveries[row.id])
        else:
            self.finish(step, replaced(row, state="done", error=event.msg[:500]))
        self.moved(step, row.conversation, row.target)

    def _note_ref(self, step: Step, row: DeliveryRow, ask_id: AskId, ref: str) -> AskId | None:
        """A card is known as long as anything about it is on its way."""
        shown = self._state.cards.get(ask_id, {}).get(row.target)
        if shown is None:
            return None
        former = shown.reminder
        if row.kind == "post":
            shown = replaced(shown, ref=ref, posted_ms=step.at.wall_ms)
        elif row.kind == "remind":
            shown = replaced(shown, reminder=ref)
        else:
            return None
        self._state.cards[ask_id][row.target] = shown
        step.write(shown)
        if row.kind == "post":
            return ask_id
        if former is not None or ask_id not in self._state.asks:
            self.delete(step, shown, row.conversation, former or ref)
        return None

    def delete(self, step: Step, beside: CardRow, conversation: str, ref: str) -> None:
        """Take a message of a card's thread away again, if the channel can."""
        info = self._state.infos.get(beside.channel)
        if info is None or not info.capabilities.deletes:
            return
        self.add(
            step,
            effect=f"delete:{beside.channel}:{self._state.last_delivery + 1}",
            kind="delete",
            lane="outcome",
            target=beside.channel,
            place=beside.place,
            body=b"",
            ask_id=beside.ask_id,
            ref=ref,
            conversation=conversation,
        )

    def _is_over(self, row: DeliveryRow) -> bool:
        """Tell whether nobody wants it any more: a card, a reply or a hold of a closed ask."""
        if row.ask_id is None or self.may_be_found(row):
            return False
        if row.kind == "reply":
            # Its answer may have been taken back while it was on its way.
            claim = self._state.claims.get(row.ask_id)
            if claim is None or not row.effect.startswith(f"reply:{claim.key}:"):
                return True
        return (
            row.kind in {"post", "remind", "reply", "hold"}
            and row.ask_id not in self._state.asks
        )

    def _give_up(self, step: Step, row: DeliveryRow, error: str) -> None:
        row = replaced(row, state="dead", error=error[:500])
        self.finish(step, row)
        trail.dead(step, self._state, row, error)
        if row.kind == "post" and row.ask_id is not None:
            self._lost.append(row.ask_id)
        if row.kind == "message":
            words = f"A message was not delivered: {error[:500]}."
            step.notice(SessionId(row.target), "warning", words)
        elif row.kind == "open":
            for waiting in self.rows(self._queues.of_queue(row)):
                self._give_up(step, waiting, f"no thread could be opened for it: {error}")
        if row.kind not in TO_SESSIONS:
            self._state.dead[row.id] = row
            while len(self._state.dead) > DEAD_KEPT:
                self._state.dead.popitem(last=False)

    def _marked(self, row: DeliveryRow) -> DeliveryRow:
        """Return *row* with a body that says that it may be a repeat, where that is needed."""
        info = self._state.infos.get(row.target)
        if info is None or info.capabilities.repeat != "none" or row.kind != "post":
            return row
        body = self.remake(row)
        return row if body is None else replaced(row, body=body)

    def _coalesce(self, step: Step, target: str, conversation: str) -> None:
        """A newer state of what is being said takes the place of one that waits."""
        for row in self.rows(self._queues.of_target(target)):
            same = row.lane == "live" and row.conversation == conversation
            if same and row.kind == "post" and row.state in WAITING and not row.attempt:
                self.drop(step, row)

    def _pump(self, step: Step, target: str) -> None:
        """Let go to a channel or session what may."""
        state = self._state
        if target in state.held_back or gates.is_closed(step, state, target):
            return
        while (row := self._queues.next(target)) is not None:
            if is_stale(row, step.at.wall_ms):
                self.finish(step, replaced(row, state="done", error=_TOO_OLD))
                continue
            if self._threads.needs_opening(row):
                opening = self._threads.opening(step, row, self.number())
                self._state.deliveries[opening.id] = opening
                self._queues.put_first(opening)
                step.write(opening)
                continue
            self._go(step, self._threads.addressed(row))

    def _go(self, step: Step, row: DeliveryRow) -> None:
        ask = self._state.asks.get(row.ask_id) if row.ask_id is not None else None
        if row.kind in {"post", "remind"} and ask is not None and is_overdue(step, ask):
            # It ends as soon as nobody's earlier answer can come any more.
            self.wait(step, row, "retry", OVERDUE_LOOK_S, "its time is over")
            return
        closed_s = gates.left_s(step, self._state, gates.scope_of(row.target, row.place))
        if row.place and closed_s > 0:
            self.wait(step, row, "retry", closed_s, "gate closed")
            return
        if row.kind == "edit" and row.ask_id is not None:
            shown = self._state.cards.get(row.ask_id, {}).get(row.target)
            copies = self._state.copies.get(row.ask_id, {}).get(row.target, ())
            ref = row.ref if shown is None or row.ref in copies else shown.ref
            if ref is None:
                # The post of this card was given up: there is nothing to edit.
                self.finish(step, replaced(row, state="done", error="no card to edit"))
                return
            row = replaced(row, ref=ref)
        if row.kind == "post" and row.ask_id is not None:
            # Before it is sent: a tap on it may come before we hear that it is there.
            shown = self._state.cards.get(row.ask_id, {}).get(row.target)
            if shown is not None and shown.place != row.place:
                shown = self._threads.placed(step, shown, row.place)
                self._state.cards[row.ask_id][row.target] = shown
                step.write(shown)
        find: Find = "no"
        if self.may_be_found(row):
            find = "first" if row.ask_id is None or row.ask_id in self._state.asks else "only"
        sending = replaced(row, state="sending", attempt=row.attempt + 1)
        self._state.retry_due.pop(row.id, None)
        self.save(step, sending)
        self._queues.went(sending)
        step.release(Send(sending, find))
