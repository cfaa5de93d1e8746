"""Every delivery's life: order per place, attempts, waits, uncertainty.

A delivery is a row before it is attempted. One lane is one place (or one session): at most
one of its deliveries is on its way, in order; a newer edit of a card replaces one that still
waits.
"""

from typing import Final

from upcall.core import backoff
from upcall.core.render import card
from upcall.core.state import HubState, Step
from upcall.model.document import Message
from upcall.model.effects import Log, SaveGate, Send
from upcall.model.events import Delivered, DeliveryFailed
from upcall.model.ids import AskId, SessionId, new_press_token
from upcall.model.platform import Place
from upcall.model.rows import (
    AskRow,
    CardRow,
    ConversationRow,
    DeliveryKind,
    DeliveryRow,
    Lane,
    TokenRow,
)
from upcall.model.struct import replaced

MAX_ATTEMPTS: Final = 12
MAX_UNCERTAIN: Final = 3


class Outbox:
    """What is to be told to channels and sessions."""

    def __init__(self, state: HubState) -> None:
        self._state = state

    def show(self, step: Step, row: AskRow) -> None:
        """Post the card of *row* on every channel that does not show it yet."""
        for info in self._state.settings.channels:
            if (row.ask_id, info.name) in self._state.cards:
                continue
            conversation = self._conversation(step, row, info.name)
            tokens = self._mint(step, row, info.name)
            message = self._message(row, tokens)
            place = Place(info.name, conversation.place)
            shown = CardRow(ask_id=row.ask_id, channel=info.name, place=conversation.place)
            self._state.cards[row.ask_id, info.name] = shown
            step.write(shown)
            for part, body in enumerate(info.lower(message, place)):
                self._add(
                    step,
                    effect=f"post:{row.ask_id}:{info.name}:{part}",
                    kind="post",
                    lane="ask",
                    target=info.name,
                    place=conversation.place,
                    body=body.data,
                    ask_id=row.ask_id,
                )

    def redraw(self, step: Step, row: AskRow) -> None:
        """Edit every card of *row* to how it stands now."""
        for info in self._state.settings.channels:
            shown = self._state.cards.get((row.ask_id, info.name))
            if shown is None:
                continue
            tokens = tuple(
                token
                for token in self._state.tokens_of.get(row.ask_id, ())
                if token.channel == info.name
            )
            body = info.lower(self._message(row, tokens), Place(info.name, shown.place))[-1]
            waiting = self._waiting_edit(row.ask_id, info.name)
            if waiting is not None:
                self._save(step, replaced(waiting, body=body.data))
                continue
            self._add(
                step,
                effect=f"edit:{row.ask_id}:{info.name}:{self._state.last_delivery + 1}",
                kind="edit",
                lane="outcome",
                target=info.name,
                place=shown.place,
                body=body.data,
                ask_id=row.ask_id,
                ref=shown.ref,
            )

    def to_session(
        self,
        step: Step,
        session_id: SessionId,
        kind: DeliveryKind,
        effect: str,
        body: bytes,
        ask_id: AskId | None = None,
    ) -> None:
        """Send a frame to a session, in order, until it is written to its connection."""
        self._add(
            step,
            effect=effect,
            kind=kind,
            lane="ask",
            target=session_id,
            place="",
            body=body,
            ask_id=ask_id,
        )

    def drop_for(self, step: Step, ask_id: AskId, kinds: tuple[DeliveryKind, ...]) -> None:
        """Give up what still waits for *ask_id*; what is on its way stays."""
        for row in self._of_ask(ask_id):
            if row.kind in kinds and row.state in {"queued", "retry"}:
                self._finish(step, replaced(row, state="done", error="not needed any more"))

    def delivered(self, step: Step, event: Delivered) -> AskId | None:
        """Take note that a delivery arrived; return the ask whose card is newly shown."""
        row = self._state.deliveries.get(event.delivery)
        if row is None:
            return None
        newly_shown = None
        if row.kind == "post" and row.ask_id is not None and event.ref is not None:
            shown = self._state.cards.get((row.ask_id, row.target))
            if shown is not None:
                shown = replaced(shown, ref=event.ref)
                self._state.cards[row.ask_id, row.target] = shown
                step.write(shown)
                newly_shown = row.ask_id
        self._finish(step, replaced(row, state="done", ref=event.ref or row.ref))
        self.wake_lane(step, row)
        return newly_shown

    def failed(self, step: Step, event: DeliveryFailed) -> None:
        """Decide whether and when a delivery is tried again."""
        row = self._state.deliveries.get(event.delivery)
        if row is None:
            return
        attempts = row.attempt
        step.release(
            Log(
                "delivery_failed",
                {
                    "delivery": row.id,
                    "target": row.target,
                    "kind": event.kind,
                    "error": event.msg,
                    "attempt": attempts,
                },
            )
        )
        if event.kind == "uncertain" and row.kind == "post" and not self._harmless(row.target):
            self._uncertain(step, row, event)
        elif event.kind == "refused" or (
            attempts >= MAX_ATTEMPTS and row.kind in {"post", "edit"}
        ):
            self._finish(step, replaced(row, state="dead", error=event.msg))
        else:
            wait_s = backoff.delay_s(attempts, jitter=event.jitter, hint_s=event.retry_after_s)
            if event.kind == "throttled":
                until_ms = step.at.wall_ms + int(event.retry_after_s * 1000)
                self._state.gates[row.target] = until_ms
                step.write(SaveGate(row.target, until_ms))
            self._retry(step, row, wait_s, event.msg)
        self.wake_lane(step, row)

    def wake_target(self, step: Step, target: str) -> None:
        """Try again now what waits for *target*: it is back."""
        for row in list(self._state.deliveries.values()):
            if row.target == target and row.state == "retry":
                self._save(step, replaced(row, state="queued", not_before_ms=0))
        for key in [key for key in self._state.lanes if key.split("\0", 1)[0] == target]:
            self._advance(step, key)

    def due(self, step: Step, delivery_id: str) -> None:
        """The wait of a delivery is over."""
        row = self._state.deliveries.get(int(delivery_id))
        if (
            row is not None
            and row.state == "retry"
            and row.not_before_ms <= step.at.wall_ms + 50
        ):
            self._save(step, replaced(row, state="queued"))
            self.wake_lane(step, row)

    def resume(self, step: Step) -> None:
        """At start: what was on its way when the hub ended goes again, or is uncertain."""
        for row in list(self._state.deliveries.values()):
            self._enlist(row)
            if row.state == "sending":
                self._save(step, replaced(row, state="queued"))
            elif row.state == "retry":
                wait_s = max(0.0, (row.not_before_ms - step.at.wall_ms) / 1000)
                step.timer(step.at.boot_s + wait_s, "delivery", str(row.id))
        for key in list(self._state.lanes):
            self._advance(step, key)

    def wake_lane(self, step: Step, row: DeliveryRow) -> None:
        """Send the next delivery of this row's lane, if none is on its way."""
        self._advance(step, self._lane_key(row))

    def _uncertain(self, step: Step, row: DeliveryRow, event: DeliveryFailed) -> None:
        if row.attempt >= MAX_UNCERTAIN:
            self._finish(step, replaced(row, state="dead", error=event.msg))
            return
        wait_s = backoff.delay_s(row.attempt, jitter=event.jitter)
        self._retry(step, row, wait_s, f"may have arrived: {event.msg}")

    def _retry(self, step: Step, row: DeliveryRow, wait_s: float, error: str) -> None:
        not_before_ms = step.at.wall_ms + int(wait_s * 1000)
        self._save(
            step, replaced(row, state="retry", not_before_ms=not_before_ms, error=error[:500])
        )
        step.timer(step.at.boot_s + wait_s, "delivery", str(row.id))

    def _lane_key(self, row: DeliveryRow) -> str:
        # Where cards stand side by side (a page), order matters within one card only, and a
        # slow one must not hold up the others. In a chat the conversation is the lane.
        beside = row.ask_id if row.place and self._harmless(row.target) else ""
        return f"{row.target}\0{row.place}\0{beside}"

    def _harmless(self, target: str) -> bool:
        for info in self._state.settings.channels:
            if info.name == target:
                return info.capabilities.repeat == "harmless"
        return True

    def _conversation(self, step: Step, row: AskRow, channel: str) -> ConversationRow:
        session = self._state.session(row.session_id)
        key = session.conversation if session is not None else row.session_id
        known = self._state.conversations.get((key, channel))
        if known is not None:
            return known
        made = ConversationRow(key=key, channel=channel, place=key)
        self._state.conversations[key, channel] = made
        step.write(made)
        return made

    def _mint(self, step: Step, row: AskRow, channel: str) -> tuple[TokenRow, ...]:
        info = next(c for c in self._state.settings.channels if c.name == channel)
        if info.capabilities.buttons_per_card == 0:
            return ()
        choices = [*map(str, range(len(row.spec.options))), "decline", "hold", "done"]
        tokens = []
        for choice in choices:
            token = TokenRow(
                token=new_press_token(step.random(12)),
                ask_id=row.ask_id,
                channel=channel,
                choice=choice,
            )
            self._state.tokens[token.token] = token
            self._state.tokens_of.setdefault(row.ask_id, []).append(token)
            step.write(token)
            tokens.append(token)
        return tuple(tokens)

    def _message(self, row: AskRow, tokens: tuple[TokenRow, ...]) -> Message:
        session = self._state.session(row.session_id)
        return card(
            row,
            session,
            self._state.claims.get(row.ask_id),
            tokens,
            can_decline=can_decline(self._state, row),
        )

    def _waiting_edit(self, ask_id: AskId, channel: str) -> DeliveryRow | None:
        for row in self._of_ask(ask_id):
            if (
                row.target == channel
                and row.kind == "edit"
                and row.state in {"queued", "retry"}
            ):
                return row
        return None

    def _of_ask(self, ask_id: AskId) -> list[DeliveryRow]:
        ids = self._state.deliveries_of.get(ask_id, ())
        return [self._state.deliveries[number] for number in ids]

    def _add(
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
    ) -> None:
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
        )
        self._state.deliveries[row.id] = row
        self._enlist(row)
        self._advance(step, self._lane_key(row))
        if self._state.deliveries.get(row.id) is row:
            step.write(row)

    def _enlist(self, row: DeliveryRow) -> None:
        self._state.lanes.setdefault(self._lane_key(row), {})[row.id] = None
        if row.ask_id is not None:
            self._state.deliveries_of.setdefault(row.ask_id, {})[row.id] = None

    def _advance(self, step: Step, key: str) -> bool:
        """Mark the lane's first delivery as on its way, unless one is, or it has to wait."""
        lane = self._state.lanes.get(key)
        if not lane:
            self._state.lanes.pop(key, None)
            return False
        first = self._state.deliveries[next(iter(lane))]
        if first.state != "queued":
            return False
        closed_until_ms = self._state.gates.get(first.target, 0)
        if closed_until_ms > step.at.wall_ms:
            self._retry(step, first, (closed_until_ms - step.at.wall_ms) / 1000, "gate closed")
            return False
        ref = first.ref
        if first.kind == "edit" and first.ask_id is not None:
            shown = self._state.cards.get((first.ask_id, first.target))
            ref = shown.ref if shown is not None else None
            if ref is None:
                # The post of this card was refused: there is nothing to edit.
                self._finish(step, replaced(first, state="dead", error="no card to edit"))
                return self._advance(step, key)
        sending = replaced(first, state="sending", attempt=first.attempt + 1, ref=ref)
        self._save(step, sending)
        step.release(Send(sending))
        return True

    def _save(self, step: Step, row: DeliveryRow) -> None:
        self._state.deliveries[row.id] = row
        step.write(row)

    def _finish(self, step: Step, row: DeliveryRow) -> None:
        self._state.deliveries.pop(row.id, None)
        lane = self._state.lanes.get(self._lane_key(row))
        if lane is not None:
            lane.pop(row.id, None)
            if not lane:
                del self._state.lanes[self._lane_key(row)]
        if row.ask_id is not None:
            of_ask = self._state.deliveries_of.get(row.ask_id)
            if of_ask is not None:
                of_ask.pop(row.id, None)
                if not of_ask:
                    del self._state.deliveries_of[row.ask_id]
        # The bytes have served; keeping them would keep the text.
        step.write(replaced(row, body=b""))
        if row.state == "dead":
            step.audit("delivery_dead", None, target=row.target, error=row.error)


def can_decline(state: HubState, row: AskRow) -> bool:
    """Tell whether the session of *row* understands a decline and a hold."""
    session = state.session(row.session_id)
    if session is not None and session.kind == "hosted":
        return True
    live = state.live.get(row.session_id)
    return live is not None and "outcomes_v1" in live.capabilities
