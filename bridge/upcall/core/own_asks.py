"""Permission questions of the hub's own: whether a change of who may do what is taken up."""

from typing import Final

from upcall.core.announce import HUB_SESSION, Announcer
from upcall.core.asks import revision_of
from upcall.core.ledger import Ledger
from upcall.core.state import HubState, Step
from upcall.model.ask import AskSpec
from upcall.model.ids import AskId, action_id_of, new_ask_id
from upcall.model.rows import AskRow

TAKE_UP: Final = "Take up the change of who may do what?"
PAIR: Final = "Let somebody new in?"
AGREE: Final = ("Agree", "Leave it as it was")


class OwnAsks:
    """Raises them; they are answered like any other, under the rules in force."""

    def __init__(self, state: HubState, ledger: Ledger, announcer: Announcer) -> None:
        self._state = state
        self._ledger = ledger
        self._announcer = announcer

    def ask(self, step: Step, question: str, detail: str) -> AskId:
        """Return the hub's own open permission ask that says this, raised if need be."""
        state = self._state
        spec = AskSpec(
            question=question,
            options=AGREE,
            detail=detail,
            free_text=False,
            ask_class="permission",
        )
        for row in state.asks_of(HUB_SESSION):
            if row.spec == spec:
                return row.ask_id
        for row in state.asks_of(HUB_SESSION):
            if row.spec.question == question == TAKE_UP:
                self._ledger.close(step, row, "superseded", resolved_by="local")
        self._announcer.ensure_session(step)
        ask_id = new_ask_id(step.random(8))
        self._ledger.open(
            step,
            AskRow(
                ask_id=ask_id,
                session_id=HUB_SESSION,
                action_id=action_id_of(ask_id),
                state="open",
                spec=spec,
                revision=revision_of(spec),
                raised_ms=step.at.wall_ms,
                boot_id=state.settings.boot_id,
                handed_over=True,
            ),
        )
        return ask_id


def is_agreed(row: AskRow | None) -> bool:
    """Tell whether such a question ended with a yes."""
    return (
        row is not None
        and row.outcome == "answered"
        and row.answer is not None
        and row.answer.indices == (0,)
    )
