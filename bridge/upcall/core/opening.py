"""The second step of a yes: what a card does not show of what will run is shown first.

A press of such a control posts all of it; when that stands there, the card offers the yes
itself. Without that nothing of the kind counts, whatever token a press brings.
"""

from typing import Final

from upcall.core.outbox import Outbox
from upcall.core.redacting import shown_spec
from upcall.core.state import HubState, Step
from upcall.model.ask import Selection
from upcall.model.document import Block, Code, Message, Paragraph, Span, hidden_words
from upcall.model.platform import Receipt
from upcall.model.rows import CONFIRM, OPEN, AskRow, TokenRow
from upcall.model.text import visible

THERE: Final = "What will run is posted already; the question's card takes the answer."
COMING: Final = "What will run is being posted; the question's card then takes the answer."
_MASKED: Final = "masked as credentials; they run as they are, and are shown nowhere."


def index_of(choice: str) -> int | None:
    """Return which option the token's *choice* is for; None: it is for none."""
    digits = choice.removeprefix(f"{OPEN}:").removeprefix(f"{CONFIRM}:")
    return int(digits) if digits.isascii() and digits.isdigit() else None


def opens_first(state: HubState, token: TokenRow) -> bool:
    """Tell whether a press of *token* shows the rest, and does no more."""
    if token.choice.startswith(f"{OPEN}:"):
        return True
    opened = token.channel in state.opened.get(token.ask_id, ())
    return token.choice.startswith(f"{CONFIRM}:") and not opened


class SecondStep:
    """Shows what will run, whole, and lets cards know when it stands there."""

    def __init__(self, state: HubState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def comes_first(self, row: AskRow, channel: str, selection: Selection | None) -> bool:
        """Tell whether a yes by button or in words has to wait for the rest to be shown.

        So it is where something of what will run is masked, or where the card itself offers
        the rest since the platform does not show all of it.
        """
        info = self._state.infos.get(channel)
        if info is None or selection is None or row.spec.ask_class != "permission":
            return False
        if channel in self._state.opened.get(row.ask_id, ()):
            return False
        yes = {f"{OPEN}:{index}" for index in selection.indices}
        tokens = [
            token.token
            for token in self._state.tokens_of.get(row.ask_id, ())
            if token.channel == channel and token.choice in yes
        ]
        if not tokens:
            return False  # a no, or a place that asks again by itself
        if shown_spec(self._state, row)[1] > 0:
            return True
        card = b"".join(body.data for body in self._outbox.card(row, info))
        return any(token.encode() in card for token in tokens)

    def open(self, step: Step, row: AskRow, channel: str) -> Receipt:
        """Post what will run in the conversation of *row*, unless that is under way."""
        state = self._state
        info = state.infos[channel]
        if channel in state.opened.get(row.ask_id, ()):
            self._outbox.redraw(step, row, only=channel)
            return Receipt(ok=True, code="opened", msg=THERE)
        if (row.ask_id, channel) in state.opening.values():
            return Receipt(ok=True, code="opening", msg=COMING)
        session = state.session(row.session_id)
        key = session.conversation if session is not None else row.session_id
        spec, hidden = shown_spec(state, row)
        whole = visible(spec.detail or spec.question, newlines=True)
        before = state.last_delivery
        self._outbox.say(
            step,
            info,
            key,
            _rest(whole, hidden),
            lane="ask",
            effect=f"rest:{row.ask_id}:{before + 1}",
        )
        for number in range(before + 1, state.last_delivery + 1):
            row_of = state.deliveries.get(number)
            if row_of is not None and row_of.effect.startswith("rest:"):
                state.opening[number] = row.ask_id, channel
        step.audit("opened", row, channel=channel, hidden=hidden)
        return Receipt(ok=True, code="opening", msg=COMING)

    def arrived(self, step: Step, number: int) -> None:
        """Let the card take the answer once all of it stands there."""
        opened = self._state.opening.pop(number, None)
        if opened is None or opened in self._state.opening.values():
            return
        ask_id, channel = opened
        row = self._state.asks.get(ask_id)
        if row is None:
            return
        self._state.opened.setdefault(ask_id, set()).add(channel)
        self._outbox.redraw(step, row, only=channel)

    def failed(self, number: int) -> None:
        """A part was given up: the next press begins anew."""
        if number in self._state.deliveries:
            return
        opened = self._state.opening.pop(number, None)
        if opened is not None:
            for at in [at for at, one in self._state.opening.items() if one == opened]:
                del self._state.opening[at]


def _rest(whole: str, hidden: int) -> Message:
    head = "All of what will run:"
    blocks: list[Block] = [Paragraph((Span(head, "bold"),)), Code(whole)]
    lines = [head, whole]
    if hidden:
        words = f"{hidden_words(hidden)}: {_MASKED}"
        blocks.append(Paragraph((Span(words, "quiet"),)))
        lines.append(words)
    return Message(tuple(blocks), "\n".join(lines))
