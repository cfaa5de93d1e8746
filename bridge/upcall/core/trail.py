"""The lines of an ask's story that deliveries write: shown, sent, late, uncertain, closed.

Each goes into the transaction that the delivery's own row is in, so that none costs a commit.
"""

from upcall.core.state import HubState, Step
from upcall.model.ask import Selection
from upcall.model.ids import AskId, SessionId
from upcall.model.rows import AskRow, AuditRow, DeliveryRow
from upcall.model.text import one_line

Fact = str | int | float | bool | None


def arrived(step: Step, state: HubState, row: DeliveryRow) -> None:
    """A delivery arrived: a card is shown, or closed, or an answer is with its program."""
    if row.ask_id is None:
        return
    match row.kind:
        case "post" if not _has_more(state, row, row.ask_id):
            unseen = _is_unseen(state, row.target)
            _write(
                step,
                state,
                row.ask_id,
                "shown",
                channel=row.target,
                attempt=row.attempt,
                unseen=True if unseen else None,
            )
        case "edit" if row.ask_id not in state.asks:
            if _is_unseen(state, row.target) or _has_more(state, row, row.ask_id):
                return
            _write(step, state, row.ask_id, "card_closed", channel=row.target)
        case "reply":
            _write(step, state, row.ask_id, "sent", attempt=row.attempt)
        case _:
            return


def uncertain(step: Step, state: HubState, row: DeliveryRow, error: str) -> None:
    """Nobody knows whether a card, or an answer, arrived."""
    if row.ask_id is not None and row.kind in {"post", "reply"}:
        _write(
            step,
            state,
            row.ask_id,
            "uncertain",
            kind=row.kind,
            target=row.target,
            attempt=row.attempt,
            error=one_line(error, 200),
        )


def delayed(
    step: Step, state: HubState, row: DeliveryRow, error: str, wait_s: float | None
) -> None:
    """A card, or an answer, did not go out, and is tried again; told once for each."""
    if row.ask_id is not None and row.kind in {"post", "reply"}:
        _write(
            step,
            state,
            row.ask_id,
            "delivery_delayed",
            kind=row.kind,
            target=row.target,
            error=one_line(error, 200),
            wait_s=None if wait_s is None else round(wait_s, 3),
        )


def dead(step: Step, state: HubState, row: DeliveryRow, error: str) -> None:
    """A delivery was given up."""
    facts: dict[str, Fact] = {"target": row.target, "kind": row.kind, "error": error[:500]}
    _write(step, state, row.ask_id, "delivery_dead", **facts)


def _has_more(state: HubState, row: DeliveryRow, ask_id: AskId) -> bool:
    """Tell whether something else of the same kind has still to reach the same card."""
    return any(
        number != row.id
        and state.deliveries[number].kind == row.kind
        and state.deliveries[number].target == row.target
        for number in state.deliveries_of.get(ask_id, ())
    )


def _is_unseen(state: HubState, channel: str) -> bool:
    """Tell whether nobody looks at a place that sends nothing anywhere by itself."""
    live, info = state.channels.get(channel), state.infos.get(channel)
    if live is None or info is None:
        return False
    return info.capabilities.repeat == "harmless" and not live.audience


def chosen(selection: Selection | None) -> dict[str, Fact]:
    """Return what a line says of an answer: never its words, which can be forgotten.

    Options are told by their number, from 1, and words by how many characters they have.
    """
    if selection is None:
        return {}
    if selection.secret is True:
        return {"secret": True}
    facts: dict[str, Fact] = {}
    if selection.indices:
        facts["choice"] = ",".join(str(index + 1) for index in selection.indices)
    if selection.text is not None:
        facts["words"] = len(selection.text)
    return facts


def answer_facts(row: AskRow, selection: Selection | None) -> dict[str, Fact]:
    """Return `chosen`, and what else a line says of an end.

    That a permission was answered, that nobody took it yet, that a default was used.
    """
    facts = chosen(selection)
    if row.spec.ask_class == "permission":
        facts["permission"] = True
    if row.state == "closed" and row.handed_over:
        facts["kept"] = True
    if row.outcome == "timed_out" and selection is not None:
        facts["default"] = True
    return facts


def _write(
    step: Step, state: HubState, ask_id: AskId | None, event: str, **facts: Fact
) -> None:
    row = None if ask_id is None else state.find(ask_id)
    session_id: SessionId | None = None if row is None else row.session_id
    step.write(
        AuditRow(
            at_ms=step.at.wall_ms,
            event=event,
            ask_id=ask_id,
            session_id=session_id,
            facts=facts,
        )
    )
