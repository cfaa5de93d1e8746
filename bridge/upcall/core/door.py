"""Who is let in to do what: strangers hear nothing, and nobody acts while the hub is locked."""

from typing import Final

from upcall.core.operators import (
    LOCAL,
    REFUSED,
    STRANGER,
    TERMINAL,
    has,
    is_asked,
    is_asker,
    is_own_user,
    lock_words,
    person_of,
    right_for,
    rules_of,
)
from upcall.core.standing import ONLY_UNLOCK, clock_words
from upcall.core.state import HubState, Step
from upcall.model.platform import Receipt, Who
from upcall.model.policy import Operator, Right
from upcall.model.rows import AskRow
from upcall.model.text import one_line

DENIED_KEPT: Final = 1024
NOT_YET: Final = (
    "Your rights begin when the other operators were told of them. Nothing was sent."
)
NO_VOTE: Final = "Whoever runs the program that asks has no vote on this. Nothing was sent."


class Door:
    """Lets people in, or says why not."""

    def __init__(self, state: HubState) -> None:
        self._state = state

    def admit(
        self, step: Step, channel: str, who: Who, right: Right | None
    ) -> Operator | Receipt:
        """Return who it is, if the person may do that there now, or else what is said.

        Args:
            step: what is being decided.
            channel: where the act was done.
            who: who did it.
            right: what the act needs; None: to be an operator.
        """
        found = self._person(step, channel, who, right)
        if isinstance(found, Operator):
            locked = self.locked(channel, who)
            if locked is not None:
                self.note(step, channel, who, locked.code, found.name)
                return locked
        return found

    def admit_to(self, step: Step, channel: str, who: Who, row: AskRow) -> Operator | Receipt:
        """Return who it is, if the person may answer *row* from there now."""
        found = self.admit(step, channel, who, right_for(row))
        if isinstance(found, Receipt):
            return found
        state = self._state
        rules = rules_of(state, row)
        # Nobody answers what they may not see.
        if not has(state, found, "see", channel, who) or not is_asked(state, row, found, rules):
            self.note(step, channel, who, REFUSED.code, found.name)
            return REFUSED
        here = is_own_user(state, channel, who)
        uid = uid_of(state, who) if here else ""
        if rules.exclude_asker and is_asker(state, row, found, here=here, uid=uid):
            self.note(step, channel, who, REFUSED.code, found.name)
            return Receipt(ok=False, code="not_permitted", msg=NO_VOTE)
        return found

    def locked(self, channel: str, who: Who) -> Receipt | None:
        """Return what is said while the hub is locked; the control socket is left open."""
        lock = self._state.lock
        if lock is None or is_control(channel, who):
            return None
        words = lock_words(lock, clock_words(self._state, lock.at_ms))
        return Receipt(ok=False, code="locked", msg=f"{words}. Nothing was sent. {ONLY_UNLOCK}")

    def note(
        self, step: Step, channel: str, who: Who, code: str, name: str | None = None
    ) -> None:
        """Write down that an act was refused: the first, the tenth, the hundredth and so on."""
        denied, key = self._state.denied, (channel, who.identity)
        count = denied.pop(key, 0) + 1
        denied[key] = count
        while len(denied) > DENIED_KEPT:
            denied.popitem(last=False)
        if str(count).strip("0") == "1":
            step.audit(
                "denied",
                None,
                channel=channel,
                identity=one_line(who.identity, 100),
                operator=name,
                code=code,
                count=count,
            )

    def _person(
        self, step: Step, channel: str, who: Who, right: Right | None
    ) -> Operator | Receipt:
        state = self._state
        person = person_of(state, channel, who)
        if person is None:
            refusal = REFUSED if is_own_user(state, channel, who) else STRANGER
            self.note(step, channel, who, refusal.code)
            return refusal
        allowed = person.name not in state.revoked and (
            right is None or has(state, person, right, channel, who)
        )
        if not allowed:
            self.note(step, channel, who, REFUSED.code, person.name)
            return REFUSED
        if self._is_untold((LOCAL if who.local else channel, who.identity)):
            self.note(step, channel, who, "not_yet", person.name)
            return Receipt(ok=False, code="not_permitted", msg=NOT_YET)
        return person

    def _is_untold(self, key: tuple[str, str]) -> bool:
        """Tell whether the others have still to be told of this one, where they can be."""
        state = self._state
        waiting = state.untold.get(key)
        if waiting is None:
            return False
        for number in waiting:
            row = state.deliveries.get(number)
            live = state.channels.get(row.target) if row is not None else None
            if live is not None and live.hearing:
                return True
        if not any(number in state.deliveries for number in waiting):
            del state.untold[key]
        return False


def is_control(channel: str, who: Who) -> bool:
    """Tell whether the act came over the control socket."""
    return who.local and channel == TERMINAL


def uid_of(state: HubState, who: Who) -> str:
    """Return the user of this computer that an act from here is of."""
    return who.identity if who.local else state.settings.uid
