"""What is told to channels and sessions: cards posted, edited and closed, frames sent.

A newer edit of a card replaces one that still waits; `core.lanes` sees to all the rest of a
delivery's life.
"""

from upcall.core.lanes import WAITING, Lanes
from upcall.core.render import card
from upcall.core.state import ChannelInfo, HubState, Step
from upcall.model.document import Message
from upcall.model.ids import AskId, SessionId, new_press_token
from upcall.model.platform import Place
from upcall.model.rows import (
    RESTORED_ASKING,
    AskRow,
    CardRow,
    ConversationRow,
    DeliveryKind,
    DeliveryRow,
    TokenRow,
)
from upcall.model.struct import replaced


class Outbox:
    """What is to be told to channels and sessions."""

    def __init__(self, state: HubState, lanes: Lanes) -> None:
        self._state = state
        self.lanes = lanes

    def show(self, step: Step, row: AskRow) -> None:
        """Post the card of *row* on every channel that may, and does not, show it yet."""
        if row.note == RESTORED_ASKING:
            return
        for info in self._state.infos.values():
            if info.name in self._state.cards.get(row.ask_id, ()):
                continue
            if row.spec.secret and not info.capabilities.secrets:
                continue
            if info.capabilities.draws_asks and not self._state.channels[info.name].audience:
                continue
            conversation = self._conversation(step, row, info.name)
            tokens = self._mint(step, row, info)
            message = self._message(row, tokens)
            place = Place(info.name, conversation.place)
            shown = CardRow(ask_id=row.ask_id, channel=info.name, place=conversation.place)
            self._state.cards.setdefault(row.ask_id, {})[info.name] = shown
            step.write(shown)
            for part, body in enumerate(info.lower(message, place)):
                self.lanes.add(
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
        for channel, shown in list(self._state.cards.get(row.ask_id, {}).items()):
            info = self._state.infos.get(channel)
            if info is None or not self._has_card(row.ask_id, channel):
                # Not configured any more, or never posted: there is nothing to edit.
                continue
            tokens = tuple(
                token
                for token in self._state.tokens_of.get(row.ask_id, ())
                if token.channel == channel
            )
            body = info.lower(self._message(row, tokens), Place(channel, shown.place))[-1]
            waiting = self._waiting_edit(row.ask_id, channel)
            if waiting is not None:
                self.lanes.save(step, replaced(waiting, body=body.data))
                continue
            self.lanes.add(
                step,
                effect=f"edit:{row.ask_id}:{channel}:{self._state.last_delivery + 1}",
                kind="edit",
                lane="outcome",
                target=channel,
                place=shown.place,
                body=body.data,
                ask_id=row.ask_id,
                ref=shown.ref,
            )

    def close(self, step: Step, row: AskRow) -> None:
        """The ask is over: give up what has not gone out, and say so on its cards."""
        dropped = [
            waiting
            for waiting in self.lanes.of_ask(row.ask_id)
            if waiting.state in WAITING and waiting.kind != "edit"
        ]
        for waiting in dropped:
            self.lanes.drop(step, waiting)
        for waiting in self.lanes.of_ask(row.ask_id):
            if waiting.state in WAITING and not self._has_card(row.ask_id, waiting.target):
                self.lanes.drop(step, waiting)
                dropped.append(waiting)
        self.redraw(step, row)
        self.lanes.forget_cards(row.ask_id)
        for waiting in dropped:
            self.lanes.wake(step, waiting)

    def drop_reply(self, step: Step, ask_id: AskId) -> None:
        """Give up a reply that has not gone out."""
        for row in self.lanes.of_ask(ask_id):
            if row.kind == "reply" and row.state in WAITING:
                self.lanes.drop(step, row)
                self.lanes.wake(step, row)

    def is_replying(self, ask_id: AskId) -> bool:
        """Tell whether a reply to the ask's session is on its way or waits."""
        return any(row.kind == "reply" for row in self.lanes.of_ask(ask_id))

    def to_session(
        self,
        step: Step,
        session_id: SessionId,
        kind: DeliveryKind,
        effect: str,
        body: bytes,
        ask_id: AskId | None = None,
        *,
        secret: bool = False,
    ) -> None:
        """Send a frame to a session, in order, until it is written to its connection.

        The bytes of a secret one are not kept.
        """
        self.lanes.add(
            step,
            effect=effect,
            kind=kind,
            lane="ask",
            target=session_id,
            place="",
            body=body,
            ask_id=ask_id,
            secret=secret,
        )

    def _conversation(self, step: Step, row: AskRow, channel: str) -> ConversationRow:
        session = self._state.session(row.session_id)
        key = session.conversation if session is not None else row.session_id
        of_key = self._state.conversations.setdefault(key, {})
        if channel not in of_key:
            of_key[channel] = ConversationRow(key=key, channel=channel, place=key)
            step.write(of_key[channel])
        return of_key[channel]

    def _mint(self, step: Step, row: AskRow, info: ChannelInfo) -> tuple[TokenRow, ...]:
        if info.capabilities.draws_asks or info.capabilities.buttons_per_card == 0:
            return ()
        choices = [*map(str, range(len(row.spec.options))), "decline", "hold", "done"]
        tokens = []
        for choice in choices:
            token = TokenRow(
                token=new_press_token(step.random(12)),
                ask_id=row.ask_id,
                channel=info.name,
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
        for row in self.lanes.of_ask(ask_id):
            if row.target == channel and row.kind == "edit" and row.state in WAITING:
                return row
        return None

    def _has_card(self, ask_id: AskId, channel: str) -> bool:
        shown = self._state.cards.get(ask_id, {}).get(channel)
        posted = shown is not None and shown.ref is not None
        return posted or self._state.is_posting(ask_id, channel)


def can_decline(state: HubState, row: AskRow) -> bool:
    """Tell whether the session of *row* understands a decline and a hold."""
    if state.is_hosted(row.session_id):
        return True
    live = state.live.get(row.session_id)
    return live is not None and "outcomes_v1" in live.capabilities
