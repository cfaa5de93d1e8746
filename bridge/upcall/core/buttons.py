"""Questions of the hub's own, with buttons: what a text was, what becomes of too many asks.

A *subject* is what such a question is about. Its messages are edited when it is settled, so
that no dead button stays, and its tokens are retired like those of an ask.
"""

from collections.abc import Sequence
from typing import Final

from upcall.core.lanes import WAITING
from upcall.core.outbox import Outbox
from upcall.core.redacting import mask_in, shown_message
from upcall.core.state import ChannelInfo, HubState, Step
from upcall.model.document import Button, Choices, Message, Paragraph, Span
from upcall.model.effects import DropButtons
from upcall.model.ids import SessionId, new_press_token
from upcall.model.platform import Place
from upcall.model.rows import ButtonKind, DeliveryRow, HubButton, RetiredToken
from upcall.model.struct import replaced
from upcall.model.text import visible

TEXT: Final = "text:"
ASKS: Final = "asks:"
RETIRED_KEPT: Final = 20_000
_MARK: Final = "@"


class HubButtons:
    """Posts the hub's questions and remembers their buttons."""

    def __init__(self, state: HubState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def ask(
        self,
        step: Step,
        info: ChannelInfo,
        conversation: str,
        subject: str,
        words: str,
        buttons: Sequence[tuple[str, ButtonKind, str]],
        *,
        rings: bool,
    ) -> None:
        """Post a question of the hub's own.

        Args:
            step: what is being decided.
            info: the channel.
            conversation: key of the conversation that it stands in.
            subject: what it is about; see above.
            words: the hub's own.
            buttons: label, kind and, where it is about one, the ask of each; one without
                a label is made for later, and not drawn yet.
            rings: a person's device may make a sound for it.
        """
        place = self._outbox.place_of(step, conversation, info.name)
        drawn = []
        for label, kind, ask_id in buttons:
            row = HubButton(
                token=new_press_token(step.random(12)),
                channel=info.name,
                place=place,
                kind=kind,
                subject=subject,
                ask_id=ask_id,
                at_ms=step.at.wall_ms,
            )
            self._keep(step, row)
            if label:
                drawn.append(Button(row.token, label))
        self._outbox.say(
            step,
            info,
            conversation,
            said(words, tuple(drawn), rings=rings),
            lane="outcome",
            # What was asked before about the same subject was another message.
            effect=f"{subject}{_MARK}{self._state.last_delivery + 1}",
        )

    def of(self, subject: str, channel: str) -> list[HubButton]:
        """Return the buttons of a question as it stands on one channel."""
        tokens = self._state.buttons_of.get(subject, ())
        rows = [self._state.buttons[token] for token in tokens]
        return [row for row in rows if row.channel == channel]

    def posted(self, step: Step, post: DeliveryRow, ref: str) -> str:
        """Note where a question stands, and what it is called there; return its subject."""
        subject = subject_of(post.effect)
        for row in self.of(subject, post.target):
            # Its thread may have been opened for it.
            self._keep(step, replaced(row, ref=ref, place=post.place))
        return subject

    def edit(
        self,
        step: Step,
        subject: str,
        channel: str,
        words: str,
        labels: dict[ButtonKind, str],
        *,
        ref: str | None = None,
    ) -> bool:
        """Let a question that stands on a channel say something else.

        Args:
            step: what is being decided.
            subject: what it is about.
            channel: where.
            words: the hub's own.
            labels: the buttons that it has from now on.
            ref: what the platform calls the message, if a press told it.

        Returns:
            False if it does not stand there yet.
        """
        rows = self.of(subject, channel)
        conversation = self._conversation(channel, rows[0].place) if rows else ""
        refs = {row.ref for row in rows if row.ref is not None} | ({ref} if ref else set())
        info = self._state.infos.get(channel)
        if not refs or info is None or not rows:
            return False
        drawn = tuple(Button(row.token, labels[row.kind]) for row in rows if row.kind in labels)
        place = Place(channel, rows[0].place)
        message = shown_message(said(words, drawn, rings=False), mask_in(self._state, ""))
        body = info.lower(message, place)[-1]
        for one in sorted(refs):
            waiting = next(
                (
                    row
                    for row in self._state.deliveries.values()
                    if row.kind == "edit"
                    and row.ask_id is None
                    and (row.target, row.ref) == (channel, one)
                    and row.state in WAITING
                ),
                None,
            )
            if waiting is not None:
                self._outbox.lanes.save(step, replaced(waiting, body=body.data))
                continue
            self._outbox.lanes.add(
                step,
                effect=f"edit:{subject}{_MARK}{self._state.last_delivery + 1}",
                kind="edit",
                lane="outcome",
                target=channel,
                place=place.address,
                body=body.data,
                ask_id=None,
                ref=one,
                conversation=conversation,
            )
        return True

    def settle(self, step: Step, subject: str, words: str, *, ref: str | None = None) -> None:
        """The question is over: its messages say so, and its buttons are retired."""
        tokens = list(self._state.buttons_of.get(subject, ()))
        channels = dict.fromkeys(self._state.buttons[token].channel for token in tokens)
        for channel in channels:
            self.edit(step, subject, channel, words, {}, ref=ref)
        self.drop(step, subject)

    def drop(self, step: Step, subject: str) -> None:
        """Retire the question's buttons."""
        tokens = self._state.buttons_of.pop(subject, None)
        if not tokens:
            return
        for token in tokens:
            row = self._state.buttons.pop(token)
            remember_retired(
                self._state,
                token,
                RetiredToken(
                    ask_id=row.ask_id,
                    channel=row.channel,
                    place=row.place,
                    retired_ms=step.at.wall_ms,
                ),
            )
        step.write(DropButtons(subject, step.at.wall_ms))

    def _conversation(self, channel: str, address: str) -> str:
        """Return the key of the conversation that is at a place."""
        for key, of_key in self._state.conversations.items():
            row = of_key.get(channel)
            if row is not None and row.place == address:
                return key
        return ""

    def _keep(self, step: Step, row: HubButton) -> None:
        self._state.buttons[row.token] = row
        self._state.buttons_of.setdefault(row.subject, {})[row.token] = None
        step.write(row)


def said(words: str, buttons: tuple[Button, ...], *, rings: bool) -> Message:
    """Return the hub's own words with buttons below them."""
    shown = visible(words, newlines=True)
    choices = Choices(buttons=buttons) if buttons else None
    return Message((Paragraph((Span(shown),)),), shown, choices, rings=rings)


def subject_of(effect: str) -> str:
    """Return what the post of a hub's question is about, or nothing for other effects."""
    subject, mark, _ = effect.partition(_MARK)
    return subject if mark and subject.startswith((TEXT, ASKS)) else ""


def session_of(subject: str) -> SessionId | None:
    """Return the session whose waiting asks a question is about."""
    session_id = subject.removeprefix(ASKS)
    return SessionId(session_id) if session_id != subject else None


def remember_retired(state: HubState, token: str, retired: RetiredToken) -> None:
    """Keep what a button that is over was, without a look into the store."""
    state.retired[token] = retired
    while len(state.retired) > RETIRED_KEPT:
        state.retired.popitem(last=False)
