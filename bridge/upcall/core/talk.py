"""What chats bring in beside plain answers: presses, words, and what to do with floods."""

from collections.abc import Callable
from typing import TypeAlias

from upcall.core.announce import Announcer
from upcall.core.buttons import ASKS, HubButtons, session_of, subject_of
from upcall.core.door import Door
from upcall.core.floods import Floods
from upcall.core.outbox import Outbox
from upcall.core.presses import Presses
from upcall.core.state import HubState, Step
from upcall.core.words import Words
from upcall.model.events import Delivered, PersonActed
from upcall.model.ids import AskId, SessionId
from upcall.model.platform import Answered, Pressed, Receipt, SessionRuled, Texted
from upcall.model.rows import HubButton, TokenRow

Answer: TypeAlias = Callable[[Step, PersonActed, Answered], Receipt | None]
Press: TypeAlias = Callable[[Step, PersonActed, Pressed, TokenRow], Receipt | None]
Pass: TypeAlias = Callable[[Step, PersonActed, Texted], Receipt]


class Talk:
    """Turns what is heard on chats into answers, messages and rulings.

    Args:
        state: the hub's.
        outbox: where questions of the hub's own go.
        announcer: tells people elsewhere of presses that were never ours.
        answer: takes an answer, with all that is asked of who gives it.
        press: takes a press of an ask's live button, in its place.
        pass_on: passes a text on to a session.
    """

    def __init__(
        self,
        state: HubState,
        outbox: Outbox,
        announcer: Announcer,
        answer: Answer,
        press: Press,
        pass_on: Pass,
    ) -> None:
        self._state = state
        self._answer = answer
        self._press = press
        self._pass_on = pass_on
        self._door = Door(state)
        self._buttons = HubButtons(state, outbox)
        self._presses = Presses(state, outbox, announcer)
        self.words = Words(state, self._buttons, self._takes_text)
        self.floods = Floods(state, outbox, self._buttons, answer)

    def pressed(self, step: Step, event: PersonActed, press: Pressed) -> Receipt | None:
        """Take a press."""
        read = self._presses.read(step, event, press)
        if isinstance(read, Answered):
            return self._answer(step, event, read)
        if isinstance(read, TokenRow):
            if read.choice != "hold_all":
                return self._press(step, event, press, read)
            session_id = self._state.asks[read.ask_id].session_id
            return self._rule(step, event, session_id, "hold", press)
        admitted = self._door.admit(step, event.channel, press.who, None)
        if isinstance(admitted, Receipt):
            return admitted
        match read:
            case Receipt():
                return read
            case HubButton(kind=kind, subject=subject) if subject.startswith(ASKS):
                session_id = session_of(subject) or SessionId("")
                return self._rule(step, event, session_id, kind, press)
            case HubButton():  # pragma: no branch - there is no other
                return self._held(step, event, read, press)

    def texted(self, step: Step, event: PersonActed, text: Texted) -> Receipt | None:
        """Take a text: from a conversation, or from a surface that names the session."""
        if text.place is None:
            return self._pass_on(step, event, text)
        admitted = self._door.admit(step, event.channel, text.who, None)
        if isinstance(admitted, Receipt):
            return admitted
        act = self.words.heard(step, event, text)
        match act:
            case Answered():
                return self._answer(step, event, act)
            case Texted():
                return self._pass_on(step, event, act)
            case Receipt():  # pragma: no branch - there is no other
                return act

    def ruled(self, step: Step, event: PersonActed, act: SessionRuled) -> Receipt:
        """Take a ruling on a session that asks too much, from a page or a terminal."""
        return self._rule(step, event, SessionId(act.session_id), act.rule, act)

    def delivered(self, step: Step, event: Delivered) -> None:
        """A post arrived; if it is a question of the hub's own, its buttons are there."""
        row = self._state.deliveries.get(event.delivery)
        if row is None or row.kind != "post" or row.ask_id is not None or event.ref is None:
            return
        if subject_of(row.effect):
            subject = self._buttons.posted(step, row, event.ref)
            session_id = session_of(subject)
            if session_id is not None:
                self.floods.due(session_id)

    def settle(self, step: Step) -> list[AskId]:
        """After a step: show what may be shown now; return the asks that newly are."""
        return self.floods.settle(step) if self._state.flooding else []

    def resume(self, step: Step) -> None:
        """At start."""
        self.words.resume(step)
        self.floods.resume()

    def _rule(
        self,
        step: Step,
        event: PersonActed,
        session_id: SessionId,
        rule: str,
        act: Pressed | SessionRuled,
    ) -> Receipt:
        admitted = self._door.admit(step, event.channel, act.who, "answer")
        if isinstance(admitted, Receipt):
            return admitted
        return self.floods.rule(step, event, session_id, rule, act.who, act.key)

    def _held(
        self, step: Step, event: PersonActed, button: HubButton, press: Pressed
    ) -> Receipt | None:
        act = self.words.pressed(button, press)
        receipt: Receipt | None
        match act:
            case Answered():
                receipt = self._answer(step, event, act)
            case Texted():
                receipt = self._pass_on(step, event, act)
            case Receipt():  # pragma: no branch - there is no other
                receipt = act
        self.words.done(step, button, receipt, press.ref)
        return receipt

    def _takes_text(self, session_id: SessionId) -> bool:
        session = self._state.sessions.get(session_id)
        live = self._state.live.get(session_id)
        return (
            session is not None
            and session.kind != "hosted"
            and live is not None
            and live.attached
        )
