"""Every delivery's life: order per place, attempts, waits, uncertainty.

A delivery is a row before it is attempted. One lane is one place (or one session): at most
one of its deliveries is on its way, in order.

`attempt` counts the sends that may have arrived: one that failed for certain is taken back,
so that a repeat is marked as a possible repeat only if it may be one, and a channel that was
out of reach for a day loses nothing.
"""

from typing import Final

from upcall.core import backoff
from upcall.core.state import HubState, Step
from upcall.model.effects import SaveGate, Send
from upcall.model.events import Delivered, DeliveryFailed
from upcall.model.ids import AskId, SessionId
from upcall.model.rows import DeliveryKind, DeliveryRow, Lane
from upcall.model.struct import replaced

MAX_TRIES: Final = 12
MAX_UNCERTAIN: Final = 3
TO_SESSIONS: Final = frozenset({"reply", "message", "hold"})
WAITING: Final = frozenset({"queued", "retry"})
_NOT_NEEDED: Final = "not needed any more"
_SESSION_OVER: Final = "the session has ended"


class Lanes:
    """What is on its way, or waits for its turn."""

    def __init__(self, state: HubState) -> None:
        self._state = state

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
    ) -> None:
        """Put a delivery at the end of its lane; it goes at once if the lane is free."""
        self._state.last_delivery += 1
        row = DeliveryRow(
            id=self._state.last_delivery,
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
        )
        self._state.deliveries[row.id] = row
        self._enlist(row)
        self.wake(step, row)
        if self._state.deliveries.get(row.id) is row:
            step.write(row)

    def save(self, step: Step, row: DeliveryRow) -> None:
        """Keep *row* as it stands now."""
        self._state.deliveries[row.id] = row
        step.write(row)

    def drop(self, step: Step, row: DeliveryRow) -> None:
        """Give up what nobody needs any more; no lane is woken, no card forgotten."""
        self._remove(step, replaced(row, state="done", error=_NOT_NEEDED))

    def wake(self, step: Step, row: DeliveryRow) -> None:
        """Let the row's lane go on."""
        self._advance(step, row.target, self._lane_key(row))

    def of_ask(self, ask_id: AskId) -> list[DeliveryRow]:
        """Return what has still to be delivered about an ask."""
        return [
            self._state.deliveries[number]
            for number in self._state.deliveries_of.get(ask_id, ())
        ]

    def end_session(self, step: Step, session_id: SessionId) -> None:
        """A session is no more: nothing can be delivered to it."""
        for lane in list(self._state.lanes.get(session_id, {}).values()):
            for row in [self._state.deliveries[number] for number in lane]:
                if row.kind in TO_SESSIONS and row.state in WAITING:
                    self._give_up(step, row, _SESSION_OVER)

    def forget_cards(self, ask_id: AskId) -> None:
        """Forget where a closed ask is shown, once nothing about it is on its way."""
        if ask_id not in self._state.asks and ask_id not in self._state.deliveries_of:
            self._state.cards.pop(ask_id, None)

    def delivered(self, step: Step, event: Delivered) -> AskId | None:
        """Take note that a delivery arrived; return the ask whose card is newly shown."""
        row = self._state.deliveries.get(event.delivery)
        if row is None or row.state != "sending":
            return None
        newly_shown = None
        if row.kind == "post" and row.ask_id is not None and event.ref is not None:
            # A card is known as long as anything about it is on its way.
            cards = self._state.cards[row.ask_id]
            cards[row.target] = replaced(cards[row.target], ref=event.ref)
            step.write(cards[row.target])
            newly_shown = row.ask_id
        self._finish(step, replaced(row, state="done", ref=event.ref or row.ref))
        self.wake(step, row)
        return newly_shown

    def failed(self, step: Step, event: DeliveryFailed) -> AskId | None:
        """Decide whether and when a delivery is tried again.

        Returns:
            The ask whose card will not be shown, if it was given up.
        """
        row = self._state.deliveries.get(event.delivery)
        if row is None or row.state != "sending":
            return None
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
        certain = event.kind in {"not_sent", "throttled"}
        if certain:
            row = replaced(row, attempt=row.attempt - 1)
        if event.kind == "throttled":
            self._close_gate(step, row.target, event.retry_after_s)
        if self._is_over(row):
            self._finish(step, replaced(row, state="done", error=_NOT_NEEDED))
        elif row.kind in TO_SESSIONS and SessionId(row.target) not in self._state.sessions:
            self._give_up(step, row, _SESSION_OVER)
        elif event.kind == "refused" or self._is_hopeless(row, tries, certain=certain):
            self._give_up(step, row, event.msg)
        else:
            wait_s = backoff.delay_s(tries, jitter=event.jitter, hint_s=event.retry_after_s)
            words = event.msg if certain else f"may have arrived: {event.msg}"
            self._retry(step, row, wait_s, words)
        self.wake(step, row)
        lost = row.kind == "post" and row.id not in self._state.deliveries
        return row.ask_id if lost else None

    def wake_target(self, step: Step, target: str) -> None:
        """Try again now what waits for *target*: it is back."""
        for key, lane in list(self._state.lanes.get(target, {}).items()):
            first = self._state.deliveries[next(iter(lane))]
            if first.state == "retry":
                self._state.deliveries[first.id] = replaced(
                    first, state="queued", not_before_ms=0
                )
            self._advance(step, target, key)

    def due(self, step: Step, delivery: int) -> None:
        """The wait of a delivery is over."""
        row = self._state.deliveries[delivery]
        self._state.deliveries[delivery] = replaced(row, state="queued", not_before_ms=0)
        self.wake(step, row)

    def resume(self, step: Step) -> None:
        """At start: what was on its way when the hub ended goes again, or is uncertain."""
        for target, until_ms in self._state.gates.items():
            left_s = max(0.0, (until_ms - step.at.wall_ms) / 1000)
            self._state.gate_due[target] = step.at.boot_s + left_s
        for row in list(self._state.deliveries.values()):
            self._enlist(row)
            if row.kind == "reply" and not row.body:
                # A secret's bytes are not kept; its session asks again if it still waits.
                self.drop(step, row)
        for row in list(self._state.deliveries.values()):
            if row.state == "sending":
                self._resume_sending(step, row)
            elif row.state != "queued":
                self._set_timer(step, row, (row.not_before_ms - step.at.wall_ms) / 1000)
        for target, lanes in list(self._state.lanes.items()):
            for key in list(lanes):
                self._advance(step, target, key)

    def _resume_sending(self, step: Step, row: DeliveryRow) -> None:
        if self._is_over(row):
            self._finish(step, replaced(row, state="done", error=_NOT_NEEDED))
        elif self._is_hopeless(row, 0, certain=False):
            self._give_up(step, row, "the hub ended while it was sent")
        else:
            self._state.deliveries[row.id] = replaced(row, state="queued")

    def _is_over(self, row: DeliveryRow) -> bool:
        """Tell whether nobody wants it any more: a card, a reply or a hold of a closed ask."""
        return row.kind in {"post", "reply", "hold"} and row.ask_id not in self._state.asks

    def _is_hopeless(self, row: DeliveryRow, tries: int, *, certain: bool) -> bool:
        match row.kind:
            case "post" if not certain and not self._harmless(row.target):
                # Each of them may stand there already; more would be a nuisance.
                return row.attempt >= MAX_UNCERTAIN
            case "post" | "edit":
                if certain and row.target in self._state.infos:
                    return False
                return tries >= MAX_TRIES
            case "reply":
                # With its key a repeat is safe, and without it nobody is answered.
                return False
            case _:
                live = self._state.live.get(SessionId(row.target))
                return tries >= MAX_TRIES and live is not None and live.attached

    def _give_up(self, step: Step, row: DeliveryRow, error: str) -> None:
        self._finish(step, replaced(row, state="dead", error=error[:500]))
        step.audit("delivery_dead", None, target=row.target, kind=row.kind, error=error[:500])
        if row.kind == "message":
            words = f"A message was not delivered: {error[:500]}."
            step.notice(SessionId(row.target), "warning", words)

    def _close_gate(self, step: Step, target: str, wait_s: float) -> None:
        until_ms = step.at.wall_ms + int(wait_s * 1000)
        self._state.gates[target] = until_ms
        self._state.gate_due[target] = step.at.boot_s + wait_s
        step.write(SaveGate(target, until_ms))

    def _retry(self, step: Step, row: DeliveryRow, wait_s: float, error: str) -> None:
        not_before_ms = step.at.wall_ms + int(wait_s * 1000)
        self.save(
            step, replaced(row, state="retry", not_before_ms=not_before_ms, error=error[:500])
        )
        self._set_timer(step, row, wait_s)

    def _set_timer(self, step: Step, row: DeliveryRow, wait_s: float) -> None:
        # Within this life the boot clock decides, whatever becomes of the wall clock.
        due_s = step.at.boot_s + max(0.0, wait_s)
        self._state.retry_due[row.id] = due_s
        step.timer(due_s, "delivery", str(row.id))

    def _finish(self, step: Step, row: DeliveryRow) -> None:
        self._remove(step, row)
        if row.ask_id is not None:
            self.forget_cards(row.ask_id)

    def _remove(self, step: Step, row: DeliveryRow) -> None:
        state = self._state
        del state.deliveries[row.id]
        state.tries.pop(row.id, None)
        state.retry_due.pop(row.id, None)
        lanes = state.lanes[row.target]
        key = self._lane_key(row)
        del lanes[key][row.id]
        if not lanes[key]:
            del lanes[key]
            if not lanes:
                del state.lanes[row.target]
        if row.ask_id is not None:
            of_ask = state.deliveries_of[row.ask_id]
            del of_ask[row.id]
            if not of_ask:
                del state.deliveries_of[row.ask_id]
        # The bytes have served; keeping them would keep the text.
        step.write(replaced(row, body=b""))

    def _enlist(self, row: DeliveryRow) -> None:
        lanes = self._state.lanes.setdefault(row.target, {})
        lanes.setdefault(self._lane_key(row), {})[row.id] = None
        if row.ask_id is not None:
            self._state.deliveries_of.setdefault(row.ask_id, {})[row.id] = None

    def _advance(self, step: Step, target: str, key: str) -> None:
        """Mark the lane's first delivery as on its way, unless one is, or it has to wait."""
        while lane := self._state.lanes.get(target, {}).get(key):
            first = self._state.deliveries[next(iter(lane))]
            if first.state != "queued":
                return
            closed_s = self._state.gate_due.get(target, 0.0) - step.at.boot_s
            if closed_s > 0:
                self._retry(step, first, closed_s, "gate closed")
                return
            if first.kind == "edit" and first.ask_id is not None:
                shown = self._state.cards.get(first.ask_id, {}).get(target)
                if shown is None or shown.ref is None:
                    # The post of this card was given up: there is nothing to edit.
                    self._finish(step, replaced(first, state="done", error="no card to edit"))
                    continue
                first = replaced(first, ref=shown.ref)
            sending = replaced(first, state="sending", attempt=first.attempt + 1)
            self._state.retry_due.pop(first.id, None)
            self.save(step, sending)
            step.release(Send(sending))
            return

    def _lane_key(self, row: DeliveryRow) -> str:
        # Where cards stand side by side (a page), order matters within one card only, and a
        # slow one must not hold up the others. In a chat the conversation is the lane.
        beside = row.ask_id if row.place and self._harmless(row.target) else ""
        return f"{row.target}\0{row.place}\0{beside}"

    def _harmless(self, target: str) -> bool:
        info = self._state.infos.get(target)
        return info is None or info.capabilities.repeat == "harmless"
