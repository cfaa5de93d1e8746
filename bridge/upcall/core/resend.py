"""Cards that are sent once more: perhaps a repeat, in another thread, or by hand."""

from typing import Final

from upcall.core.lanes import WAITING
from upcall.core.outbox import Outbox
from upcall.core.state import HubState, Step
from upcall.model.document import Paragraph, Span
from upcall.model.effects import DropCard
from upcall.model.platform import Place
from upcall.model.rows import AskRow, DeliveryRow
from upcall.model.struct import replaced

REPEATED: Final = "This may be a repeat: it is not known whether the first one arrived."


class Resend:
    """Draws anew what is sent once more."""

    def __init__(self, state: HubState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        outbox.lanes.remake = self._repeated
        outbox.lanes.moved = self._show_anew

    def by_hand(self, step: Step, letter: DeliveryRow, row: AskRow | None) -> str:
        """Try once more what was given up.

        Args:
            step: what is being decided.
            letter: the delivery.
            row: the ask that it is about, if it is about one.

        Returns:
            Why that cannot be, or nothing.
        """
        info = self._state.infos.get(letter.target)
        if info is None:
            return f"the channel {letter.target} is not configured any more"
        if letter.ask_id is None:
            if not letter.body and letter.kind not in {"delete", "open"}:
                return "its text is not kept any more"
        elif row is None:
            return "its ask is not known any more"
        elif letter.kind == "edit":
            if letter.ref is None:
                return "its card was never shown"
            place = Place(letter.target, letter.place)
            body = info.lower(self._outbox.drawn(row, letter.target), place)[-1]
            letter = replaced(letter, body=body.data)
        elif row.state == "closed":
            return "its ask has ended"
        else:
            place = Place(letter.target, letter.place)
            bodies = info.lower(self._outbox.drawn(row, letter.target), place)
            letter = replaced(letter, body=bodies[min(_part(letter), len(bodies) - 1)].data)
        self._outbox.lanes.again_by_hand(step, letter)
        return ""

    def _repeated(self, letter: DeliveryRow) -> bytes | None:
        """Return a card's body that says that it may stand there already."""
        row = self._state.asks.get(letter.ask_id) if letter.ask_id is not None else None
        info = self._state.infos.get(letter.target)
        if row is None or info is None:
            return None
        part = _part(letter)
        message = self._outbox.drawn(row, letter.target)
        if part == 0:
            message = replaced(
                message,
                blocks=(Paragraph((Span(REPEATED),)), *message.blocks),
                plain=f"{REPEATED}\n{message.plain}",
            )
        else:
            line = f"{REPEATED} {message.state_line}".strip()
            message = replaced(message, state_line=line)
        bodies = info.lower(message, Place(letter.target, letter.place))
        return bodies[part].data if part < len(bodies) else None

    def _show_anew(self, step: Step, key: str, channel: str) -> None:
        """The thread of a conversation is gone, with all its cards: show what is open."""
        lanes = self._outbox.lanes
        for ask_id in list(self._state.cards):
            shown = self._state.cards[ask_id].get(channel)
            row = self._state.find(ask_id)
            if shown is None or row is None or self._outbox.key_of(row) != key:
                continue
            for waiting in lanes.of_ask(ask_id):
                if waiting.target == channel and waiting.state in WAITING:
                    lanes.drop(step, waiting)
            self._state.cards[ask_id].pop(channel)
            step.write(DropCard(ask_id, channel, shown=True))
            if row.state == "closed":
                lanes.forget_cards(ask_id)
                continue
            row = replaced(row, course=replaced(row.course, moves=row.course.moves + 1))
            self._state.asks[ask_id] = row
            step.write(row)
            self._outbox.show(step, row)


def _part(letter: DeliveryRow) -> int:
    """Return which body of its message a post of a card is."""
    return int(letter.effect.split(":")[3])
