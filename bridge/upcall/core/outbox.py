"""What is told to channels and sessions: cards posted, edited and closed, frames sent.

A newer edit of a card replaces one that still waits; `core.lanes` sees to all the rest of a
delivery's life.
"""

from collections.abc import Sequence

from upcall.core.copies import is_lost
from upcall.core.lanes import WAITING, Lanes
from upcall.core.operators import needs_votes, rules_of
from upcall.core.quotas import Quotas
from upcall.core.redacting import (
    mask_in,
    mask_of,
    redaction_header,
    shown_ask,
    shown_claim,
    shown_message,
    shown_session,
    shown_spec,
)
from upcall.core.render import card, reminder
from upcall.core.router import Router
from upcall.core.standing import standing_words
from upcall.core.state import ChannelInfo, HubState, Step
from upcall.model.document import Message
from upcall.model.effects import DropCard
from upcall.model.ids import AskId, SessionId, new_press_token
from upcall.model.platform import Body, Place
from upcall.model.refusals import is_refusal
from upcall.model.rows import (
    CONFIRM,
    OPEN,
    RESTORED_ASKING,
    AskRow,
    CardRow,
    ConversationRow,
    DeliveryKind,
    DeliveryRow,
    Lane,
    TokenRow,
)
from upcall.model.struct import replaced


class Outbox:
    """What is to be told to channels and sessions."""

    def __init__(self, state: HubState, lanes: Lanes) -> None:
        self._state = state
        self.lanes = lanes
        self.router = Router(state)
        self._quotas = Quotas(state)

    def show(self, step: Step, row: AskRow) -> AskRow:
        """Post the card of *row* on every channel that is to, and does not, show it yet.

        Returns:
            The ask, with what is kept of where it went.
        """
        if row.note == RESTORED_ASKING or row.course.merged_into is not None:
            return row
        if not self._quotas.lets(step, row):
            # It waits until fewer of its session's asks are shown; see `core.floods`.
            return row
        plan = self.router.plan(step.at, row)
        self._state.plans[row.ask_id] = plan
        for name in plan.withdraw:
            row = self._withdraw(step, row, name)
        for info in [self._state.infos[name] for name in plan.show]:
            if info.name in self._state.cards.get(row.ask_id, ()):
                continue
            if info.capabilities.draws_asks and not self._state.channels[info.name].audience:
                continue
            conversation = self._conversation(step, row, info.name)
            tokens = self._mint(step, row, info)
            message = self._message(row, tokens, info.name)
            place = Place(info.name, conversation.place)
            again = f":{row.course.moves}" if row.course.moves else ""
            shown = CardRow(ask_id=row.ask_id, channel=info.name, place=conversation.place)
            self._state.cards.setdefault(row.ask_id, {})[info.name] = shown
            step.write(shown)
            for part, body in enumerate(info.lower(message, place)):
                self.lanes.add(
                    step,
                    effect=f"post:{row.ask_id}:{info.name}:{part}{again}",
                    kind="post",
                    lane="ask",
                    target=info.name,
                    place=conversation.place,
                    body=body.data,
                    ask_id=row.ask_id,
                    conversation=conversation.key,
                )
        return row

    def _withdraw(self, step: Step, row: AskRow, channel: str) -> AskRow:
        """Take a card back that has not gone out: the ask went elsewhere."""
        posts = [
            one
            for one in self.lanes.of_ask(row.ask_id)
            if one.kind == "post" and one.target == channel
        ]
        if not posts or any(one.state not in WAITING or one.attempt for one in posts):
            # What may stand there already stays: it is edited like any other card.
            return row
        for one in posts:
            self.lanes.drop(step, one)
        self._state.cards[row.ask_id].pop(channel, None)
        step.write(DropCard(row.ask_id, channel))
        row = replaced(row, course=replaced(row.course, moves=row.course.moves + 1))
        self._state.asks[row.ask_id] = row
        step.write(row)
        step.audit("moved", row, channel=channel)
        for one in posts:
            self.lanes.wake(step, one)
        return row

    def remind(self, step: Step, row: AskRow, info: ChannelInfo, number: int) -> None:
        """Remind of an ask where its card stands; a later reminder takes the former's place."""
        for waiting in self.lanes.of_ask(row.ask_id):
            same = waiting.kind == "remind" and waiting.target == info.name
            if same and waiting.state in WAITING:
                self.lanes.drop(step, waiting)
        conversation = self._conversation(step, row, info.name)
        shown = mask_of(self._state, row)
        session = self._state.session(row.session_id)
        session = None if session is None else shown_session(session, shown)
        machine = self._state.settings.machine
        question = shown(row.spec.question)
        message = reminder(row, session, machine, step.at.wall_ms, question)
        for part, body in enumerate(info.lower(message, Place(info.name, conversation.place))):
            self.lanes.add(
                step,
                effect=f"remind:{row.ask_id}:{info.name}:{number}:{part}",
                kind="remind",
                lane="ask",
                target=info.name,
                place=conversation.place,
                body=body.data,
                ask_id=row.ask_id,
                conversation=conversation.key,
            )

    def redraw(self, step: Step, row: AskRow, *, only: str = "") -> None:
        """Edit every card of *row*, or that on one channel, to how it stands now."""
        for channel, shown in list(self._state.cards.get(row.ask_id, {}).items()):
            if only and channel != only:
                continue
            info = self._state.infos.get(channel)
            if info is None or not self._has_card(row.ask_id, channel):
                # Not configured any more, or never posted: there is nothing to edit.
                continue
            body = info.lower(self.drawn(row, channel), Place(channel, shown.place))[-1]
            copies = self._state.copies.get(row.ask_id, {}).get(channel, ())
            for ref in (shown.ref, *(one for one in copies if not is_lost(one))):
                waiting = self._waiting_edit(
                    row.ask_id, channel, ref if ref in copies else None
                )
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
                    ref=ref,
                    conversation=self.key_of(row),
                )

    def close(self, step: Step, row: AskRow) -> None:
        """The ask is over: give up what has not gone out, and say so on its cards."""
        dropped = [
            waiting
            for waiting in self.lanes.of_ask(row.ask_id)
            if waiting.state in WAITING
            and waiting.kind not in {"edit", "delete"}
            and not self.lanes.may_be_found(waiting)
        ]
        for waiting in dropped:
            self.lanes.drop(step, waiting)
            self._note_settled(waiting)
        for waiting in self.lanes.of_ask(row.ask_id):
            if waiting.state in WAITING and not self._has_card(row.ask_id, waiting.target):
                self.lanes.drop(step, waiting)
                dropped.append(waiting)
        self.redraw(step, row)
        for shown in self._state.cards.get(row.ask_id, {}).values():
            if shown.reminder is not None:
                self.lanes.delete(step, shown, self.key_of(row), shown.reminder)
        for letter in [one for one in self._state.dead.values() if one.ask_id == row.ask_id]:
            if letter.kind != "edit":
                # A card that was never shown needs nobody's care any more.
                self.lanes.bury(step, letter, "not needed any more")
        self.lanes.forget_cards(row.ask_id)
        for waiting in dropped:
            self.lanes.wake(step, waiting)

    def say(
        self,
        step: Step,
        info: ChannelInfo,
        key: str,
        message: Message,
        *,
        lane: Lane,
        effect: str,
    ) -> None:
        """Post a message that asks nothing, in the conversation *key* of one channel.

        *effect* is unique: what is said twice under the same one is posted once.
        """
        conversation = self._conversation_of(step, key, info.name)
        message = shown_message(message, mask_in(self._state, key))
        for part, body in enumerate(info.lower(message, Place(info.name, conversation.place))):
            self.lanes.add(
                step,
                effect=f"{effect}:{info.name}:{part}",
                kind="post",
                lane=lane,
                target=info.name,
                place=conversation.place,
                body=body.data,
                ask_id=None,
                conversation=conversation.key,
            )

    def say_now(
        self, step: Step, info: ChannelInfo, key: str, message: Message, ref: str | None
    ) -> int:
        """Post the message that shows what goes on in a conversation, or change it.

        Args:
            step: what is being decided.
            info: the channel.
            key: the conversation.
            message: what goes on.
            ref: the message that shows it, if it is there.

        Returns:
            The delivery.
        """
        conversation = self._conversation_of(step, key, info.name)
        message = shown_message(message, mask_in(self._state, key))
        number = self._state.last_delivery + 1
        self.lanes.add(
            step,
            effect=f"live:{info.name}:{number}",
            kind="post" if ref is None else "edit",
            lane="live",
            target=info.name,
            place=conversation.place,
            body=info.lower(message, Place(info.name, conversation.place))[-1].data,
            ask_id=None,
            ref=ref,
            conversation=conversation.key,
        )
        return number

    def take_away(self, step: Step, info: ChannelInfo, key: str, ref: str) -> None:
        """Delete a message of a conversation that asks nothing."""
        conversation = self._conversation_of(step, key, info.name)
        self.lanes.add(
            step,
            effect=f"delete:{info.name}:{self._state.last_delivery + 1}",
            kind="delete",
            lane="live",
            target=info.name,
            place=conversation.place,
            body=b"",
            ask_id=None,
            ref=ref,
            conversation=conversation.key,
        )

    def drop_reply(self, step: Step, ask_id: AskId) -> None:
        """Give up a reply that has not gone out."""
        for row in self.lanes.of_ask(ask_id):
            if row.kind == "reply" and row.state in WAITING:
                self.lanes.drop(step, row)
                self.lanes.wake(step, row)

    def is_replying(self, ask_id: AskId) -> bool:
        """Tell whether a reply to the ask's session is on its way or waits."""
        return any(row.kind == "reply" for row in self.lanes.of_ask(ask_id))

    def may_have_replied(self, row: AskRow) -> bool:
        """Tell whether the answer was written to the session that asked, as far as we know."""
        if self._state.is_hosted(row.session_id):
            # It confirms what it took.
            return False
        replies = [one for one in self.lanes.of_ask(row.ask_id) if one.kind == "reply"]
        return all(one.attempt > 1 for one in replies)

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

    def place_of(self, step: Step, key: str, channel: str) -> str:
        """Return where the conversation *key* is on a channel."""
        return self._conversation_of(step, key, channel).place

    def drawn(self, row: AskRow, channel: str) -> Message:
        """Return the card of *row* for a channel, as it stands now."""
        return self._message(row, self.tokens_on(row.ask_id, channel), channel)

    def _note_settled(self, dropped: DeliveryRow) -> None:
        live = self._state.channels.get(dropped.target)
        if live is not None and dropped.kind == "post" and not live.hearing:
            live.settled += 1

    def key_of(self, row: AskRow) -> str:
        """Return the conversation of an ask."""
        session = self._state.session(row.session_id)
        return session.conversation if session is not None else row.session_id

    def _conversation(self, step: Step, row: AskRow, channel: str) -> ConversationRow:
        return self._conversation_of(step, self.key_of(row), channel)

    def _conversation_of(self, step: Step, key: str, channel: str) -> ConversationRow:
        of_key = self._state.conversations.setdefault(key, {})
        if channel not in of_key:
            # It goes on in the thread that it had, or gets one when something is posted.
            info = self._state.infos.get(channel)
            place = key
            if info is not None and info.capabilities.threads:
                place = self._state.former_places.pop((key, channel), "")
            of_key[channel] = ConversationRow(key=key, channel=channel, place=place)
            step.write(of_key[channel])
        return of_key[channel]

    def tokens_on(self, ask_id: AskId, channel: str) -> tuple[TokenRow, ...]:
        """Return the buttons of an ask on a channel."""
        of_ask = self._state.tokens_of.get(ask_id, ())
        return tuple(token for token in of_ask if token.channel == channel)

    def _mint(self, step: Step, row: AskRow, info: ChannelInfo) -> tuple[TokenRow, ...]:
        if info.capabilities.draws_asks or info.capabilities.buttons_per_card == 0:
            return ()
        known = self.tokens_on(row.ask_id, info.name)
        if known:
            # It was shown there before, in a place that is gone.
            return known
        choices = [*map(str, range(len(row.spec.options))), "decline", "hold", "done"]
        if row.course.burst:
            choices.append("hold_all")
        if needs_votes(rules_of(self._state, row)):
            choices.append("withdraw")
        if row.spec.ask_class == "permission":
            yes = [n for n, label in enumerate(row.spec.options) if not is_refusal(label)]
            choices += [f"{step_of}:{index}" for index in yes for step_of in (OPEN, CONFIRM)]
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

    def _message(self, row: AskRow, tokens: tuple[TokenRow, ...], channel: str) -> Message:
        session = self._state.session(row.session_id)
        shown = mask_of(self._state, row)
        message = card(
            shown_ask(self._state, row),
            None if session is None else shown_session(session, shown),
            shown_claim(self._state.claims.get(row.ask_id), shown),
            tokens,
            hidden_chars=shown_spec(self._state, row)[1],
            opened=channel in self._state.opened.get(row.ask_id, ()),
            header=redaction_header(self._state, session),
            can_decline=can_decline(self._state, row),
            has_votes=row.ask_id in self._state.votes,
            state_line=standing_words(self._state, row),
        )
        return shown_message(message, shown)

    def card(self, row: AskRow, info: ChannelInfo) -> Sequence[Body]:
        """Return the card of *row* as it would be posted on a channel now."""
        tokens = tuple(
            token
            for token in self._state.tokens_of.get(row.ask_id, ())
            if token.channel == info.name
        )
        shown = self._state.cards.get(row.ask_id, {}).get(info.name)
        place = Place(info.name, shown.place if shown is not None else "")
        return info.lower(self._message(row, tokens, info.name), place)

    def _waiting_edit(
        self, ask_id: AskId, channel: str, copy: str | None = None
    ) -> DeliveryRow | None:
        """Return the edit that waits of the card, or of that *copy* of it."""
        copies = self._state.copies.get(ask_id, {}).get(channel, ())
        for row in self.lanes.of_ask(ask_id):
            if row.target != channel or row.kind != "edit" or row.state not in WAITING:
                continue
            if (row.ref if row.ref in copies else None) == copy:
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
