"""What a press is worth: a live button of ours, in its place; an old one; or none of ours.

Anybody who holds a bot's token can post cards in its name, and anybody in a chat can repeat
or forge what a tap sends. A press counts by its token alone, and only where the card stands.
"""

from typing import Final, TypeAlias

from upcall.core.announce import Announcer
from upcall.core.buttons import remember_retired
from upcall.core.lanes import WAITING
from upcall.core.operators import person_of
from upcall.core.outbox import Outbox
from upcall.core.state import HubState, Step
from upcall.model.events import PersonActed
from upcall.model.ids import AskId
from upcall.model.platform import Answered, Place, Pressed, Receipt
from upcall.model.rows import AskRow, CopyRow, HubButton, RetiredToken, TokenRow
from upcall.model.struct import replaced
from upcall.model.text import one_line

NOT_OURS: Final = (
    "This card was not sent by your hub, or its buttons are older than 90 days. "
    "Nothing was sent."
)
ELSEWHERE: Final = "This button belongs to another conversation. Nothing was sent."
FORMER: Final = (
    "This card is from before the hub's database was restored; there is a newer one. "
    "Nothing was sent."
)
OVER: Final = "This question is over. Nothing was sent."


Read: TypeAlias = TokenRow | Answered | HubButton | Receipt
"""A live button in its place, a question about an old one, or why the press counts not."""


class Presses:
    """Tells presses apart."""

    def __init__(self, state: HubState, outbox: Outbox, announcer: Announcer) -> None:
        self._state = state
        self._outbox = outbox
        self._announcer = announcer

    def read(self, step: Step, event: PersonActed, press: Pressed) -> Read:
        """Return what *press* means, or why it counts for nothing."""
        state = self._state
        button = state.buttons.get(press.token)
        if button is not None:
            if not _is_at(press.place, event.channel, button.channel, button.place):
                return self._elsewhere(step, event, press, button.channel)
            return button
        token = state.tokens.get(press.token)
        if token is not None:
            return self._token(step, event, press, token)
        retired = state.retired.get(press.token) or event.retired
        if retired is not None:
            return self._retired(step, event, press, retired)
        return self._unknown(step, event)

    def _token(self, step: Step, event: PersonActed, press: Pressed, token: TokenRow) -> Read:
        row = self._state.asks.get(token.ask_id)
        shown = self._state.cards.get(token.ask_id, {}).get(token.channel)
        if row is None or shown is None:
            return Receipt(ok=False, code="unknown_button", msg=OVER)
        if not _is_at(press.place, event.channel, token.channel, shown.place):
            return self._elsewhere(step, event, press, token.channel)
        known = person_of(self._state, event.channel, press.who) is not None
        if press.ref is not None and known:
            self._adopt(step, row, event.channel, press.ref)
        return token

    def _retired(
        self, step: Step, event: PersonActed, press: Pressed, retired: RetiredToken
    ) -> Read:
        place = retired.place or press.place.address
        if not _is_at(press.place, event.channel, retired.channel, place):
            return self._elsewhere(step, event, press, retired.channel)
        row = self._state.find(AskId(retired.ask_id)) or event.found
        if row is None:
            return Receipt(ok=False, code="unknown_button", msg=OVER)
        if row.state != "closed":
            return Receipt(ok=False, code="stale_card", msg=FORMER)
        # What became of it is told like to anybody who comes too late, and may know it.
        return Answered(key=press.key, ask=row.ask_id, revision=None, who=press.who)

    def _elsewhere(
        self, step: Step, event: PersonActed, press: Pressed, channel: str
    ) -> Receipt:
        who = one_line(press.who.name or press.who.identity, 60)
        self._tell(
            step,
            event,
            f"A button of {one_line(channel, 40)} was pressed in another conversation, "
            f"on {one_line(event.channel, 40)}, by {who}. It was refused.",
        )
        return Receipt(ok=False, code="wrong_place", msg=ELSEWHERE)

    def _unknown(self, step: Step, event: PersonActed) -> Receipt:
        self._tell(
            step,
            event,
            f"Somebody pressed a button on {one_line(event.channel, 40)} that this hub never "
            "made. Somebody else may hold the token of that bot: revoke it if you did not "
            "post the card yourself.",
        )
        return Receipt(ok=False, code="unknown_button", msg=NOT_OURS)

    def _tell(self, step: Step, event: PersonActed, words: str) -> None:
        """Tell people elsewhere: the first such press, the tenth, the hundredth and so on."""
        self._state.foreign_presses += 1
        count = self._state.foreign_presses
        if str(count).strip("0") != "1":
            return
        times = "" if count == 1 else f" ({count} such presses so far)"
        step.audit("foreign_press", None, channel=event.channel, count=count)
        # Whoever posts in the bot's name reads along where they post.
        self._announcer.tell(step, "security", words + times, besides=event.channel)

    def _adopt(self, step: Step, row: AskRow, channel: str, ref: str) -> None:
        """A message of ours that nobody knew to be there is: it is edited with the others."""
        state = self._state
        shown = state.cards[row.ask_id][channel]
        known = state.copies.get(row.ask_id, {}).get(channel, ())
        if shown.ref == ref or ref in known:
            return
        posts = [
            one
            for one in self._outbox.lanes.of_ask(row.ask_id)
            if one.kind == "post" and one.target == channel
        ]
        if shown.ref is None and all(one.state in WAITING for one in posts):
            shown = replaced(shown, ref=ref, posted_ms=step.at.wall_ms)
            state.cards[row.ask_id][channel] = shown
            step.write(shown)
            for one in posts:
                # It stands there: a repeat would be a second card.
                self._outbox.lanes.drop(step, one)
            for one in posts:
                self._outbox.lanes.wake(step, one)
        else:
            state.copies.setdefault(row.ask_id, {})[channel] = (*known, ref)
            step.write(CopyRow(ask_id=row.ask_id, channel=channel, place=shown.place, ref=ref))
        step.audit("card_found", row, channel=channel)


def _is_at(place: Place, heard_on: str, channel: str, address: str) -> bool:
    """Tell whether a press comes from where its card stands."""
    return heard_on == channel == place.channel and place.address == address


def retire(step: Step, state: HubState, ask_id: AskId) -> None:
    """The ask is over: its buttons are known for what they were, and do nothing."""
    tokens = state.tokens_of.pop(ask_id, [])
    for token in tokens:
        state.tokens.pop(token.token, None)
        shown = state.cards.get(ask_id, {}).get(token.channel)
        remember_retired(
            state,
            token.token,
            RetiredToken(
                ask_id=ask_id,
                channel=token.channel,
                place=shown.place if shown is not None else "",
                retired_ms=step.at.wall_ms,
            ),
        )
