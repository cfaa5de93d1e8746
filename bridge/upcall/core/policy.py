"""Who counts as whom, and which local answers are believed."""

from typing import Final

from upcall.core.state import KernelSettings
from upcall.model.frames import sendable
from upcall.model.platform import Who
from upcall.model.rows import AskRow, SessionRow

SELF_ANSWER_WORDS: Final = (
    "This answer comes from inside the program that asked. "
    "Answer from another terminal, the inbox or your phone."
)
NOT_OPERATOR: Final = "You can read this conversation but not answer in it."
TURNED_OFF: Final = "Local answers to permission asks are turned off by policy."


def operator_name(settings: KernelSettings, channel: str, who: Who) -> str | None:
    """Return the operator that *who* is, or None for a stranger.

    Without configured operators there is one: the hub's own user, known by a web login or by
    the uid of the socket's peer.
    """
    if not settings.operators:
        return sendable(who.name or settings.operator)
    return settings.operators.get(("local" if who.local else channel, who.identity))


def refuse_local(
    settings: KernelSettings, row: AskRow, session: SessionRow | None, who: Who
) -> tuple[str, str] | None:
    """Return code and words if a local answer to *row* is not believed, else None.

    Only permission asks are guarded: their answer makes something run. A process that is the
    asker, or descends from it, or has no terminal a person could sit at, is not a person.
    """
    if not who.local or row.spec.ask_class != "permission" or settings.local_answers == "any":
        return None
    if settings.local_answers == "off":
        return "not_permitted", TURNED_OFF
    askers = set()
    if session is not None:
        askers = {
            f"{session.asker_pid}:{session.asker_start}",
            f"{session.pid}:{session.pid_start}",
        }
    if askers.intersection(who.ancestors):
        return "self_answer", SELF_ANSWER_WORDS
    if who.tty is None:
        return "self_answer", SELF_ANSWER_WORDS
    return None


def refuse_own(settings: KernelSettings, row: AskRow, who: Who) -> tuple[str, str] | None:
    """Return code and words if an answer at the asker's own prompt is not believed, else None.

    The process is the asker here. Only a person sits at a terminal, so without one, it would
    have answered itself.
    """
    if row.spec.ask_class != "permission" or settings.local_answers == "any":
        return None
    if settings.local_answers == "off":
        return "not_permitted", TURNED_OFF
    return None if who.tty is not None else ("self_answer", SELF_ANSWER_WORDS)
