"""What lies between `Session.ask` and the action book: ids, hints, and the result."""

import asyncio
import os
from dataclasses import dataclass
from typing import Final

from upcall.answer import Answer, AnsweredBy
from upcall.core.actions import Ending
from upcall.model.errors import (
    Cancelled,
    Declined,
    InvalidAsk,
    NoAnswer,
    TimedOut,
    UpcallError,
)
from upcall.model.ids import ASK_ID_BYTES, ActionId, AskId, action_id_of, is_ask_id, new_ask_id
from upcall.model.text import fold_label, one_line

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))


@dataclass(slots=True)
class Waiting:
    """One ask that somebody in the program waits for."""

    future: asyncio.Future[Ending]
    timeout_s: float | None
    since_s: float


def ensure_hub() -> None:
    """Start a hub if none runs. Blocks for up to 10 s; belongs off the loop.

    Raises:
        UpcallError: there is none, and the code says why.
    """
    from upcall import line

    try:
        line.ensure_hub().close()
    except line.LineError as exc:
        raise UpcallError(exc.msg, code=exc.code, recover=exc.recover) from exc
    except OSError as exc:
        raise UpcallError(f"no hub: {exc.strerror}", code="hub_unavailable") from exc


def action_id_for(ask_id: str | None) -> ActionId:
    """Return the action id of a public id, or of a new one.

    Raises:
        InvalidAsk: it has not the form of a public id.
    """
    if ask_id is None:
        return action_id_of(new_ask_id(os.urandom(ASK_ID_BYTES)))
    if not is_ask_id(ask_id):
        raise InvalidAsk(f"ask_id: {one_line(ask_id, 40)!r} has not the form of an ask's id")
    return action_id_of(AskId(ask_id))


def recommended_index(options: tuple[str, ...], wanted: str | int | None) -> int | None:
    """Return the place of the option that a program recommends by label or place.

    Raises:
        InvalidAsk: no option has this label.
    """
    if wanted is None or isinstance(wanted, int):
        return wanted
    if wanted in options:
        return options.index(wanted)
    folded = [fold_label(label) for label in options]
    if fold_label(wanted) in folded:
        return folded.index(fold_label(wanted))
    raise InvalidAsk(f"recommended: {one_line(wanted, 80)!r} is no option")


def answer_of(ending: Ending, waiting: Waiting, waited_s: float) -> Answer:
    """Return the answer of an ask that ended.

    Raises:
        Declined: a person declined.
        TimedOut: its time was over, and it had no default.
        Cancelled: it was withdrawn.
    """
    if ending.selection is not None:
        by = ending.by
        return Answer(
            ending.selection.labels,
            ending.selection.indices,
            ending.selection.text,
            answered_by=None if by is None else AnsweredBy(by.name, by.channel),
            outcome=ending.outcome,
            waited_s=waited_s,
        )
    error: NoAnswer
    match ending.outcome:
        case "declined":
            error = Declined("declined, not answered")
        case "timed_out":
            within = "" if waiting.timeout_s is None else f" within {_words(waiting.timeout_s)}"
            error = TimedOut(f"no answer{within} (timed out; nobody said no)")
        case _:
            error = Cancelled("the question was withdrawn")
    raise error


def _words(seconds: float) -> str:
    for unit_s, name in _UNITS:
        if seconds >= unit_s and seconds % unit_s == 0:
            return f"{seconds / unit_s:g} {name}"
    return f"{seconds:g} s"
