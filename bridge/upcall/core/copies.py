"""Copies of a card that may stand there although nobody ever heard what they are called.

A message that was sent again because nobody knew whether it had arrived, on a platform that
cannot tell, may be there twice; a person may reply to either.
"""

from typing import Final

from upcall.core.state import HubState, Step
from upcall.model.ids import AskId
from upcall.model.rows import CopyRow, DeliveryRow

# No platform calls a message so.
_LOST: Final = " lost:"


def is_lost(ref: str) -> bool:
    """Tell whether *ref* only says that there may be a copy."""
    return ref.startswith(_LOST)


def may_be_lost(state: HubState, ask_id: AskId, channel: str) -> bool:
    """Tell whether a message that nobody knows of may show the ask."""
    return any(map(is_lost, state.copies.get(ask_id, {}).get(channel, ())))


def note_lost(step: Step, state: HubState, row: DeliveryRow) -> None:
    """Keep that the card of *row* may stand there once more than is known."""
    info = state.infos.get(row.target)
    if row.kind != "post" or row.ask_id is None or info is None:
        return
    if info.capabilities.repeat != "none" or may_be_lost(state, row.ask_id, row.target):
        return
    of_ask = state.copies.setdefault(row.ask_id, {})
    ref = f"{_LOST}{row.ask_id}"
    of_ask[row.target] = (*of_ask.get(row.target, ()), ref)
    step.write(CopyRow(ask_id=row.ask_id, channel=row.target, place=row.place, ref=ref))
