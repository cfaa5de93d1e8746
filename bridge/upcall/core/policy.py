"""Who counts as whom, and which local answers are believed."""

from typing import Final

from upcall.core.state import KernelSettings
from upcall.model.platform import Who
from upcall.model.rows import AskRow, SessionRow

SELF_ANSWER_WORDS: Final = (
    "This answer comes from inside the program that asked. "
    "Answer from another terminal, the inbox or your phone."
)


def operator_name(settings: KernelSettings, channel: str, who: Who) -> str | None:
    """Return the operator that *who* is, or None for a stranger.

    Without configured operators there is one: the hub's own user, known by a web login or by
    the uid of the socket's peer.
    """
    if not settings.operators:
        return who.name or settings.operator
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
        return "not_permitted", "Local answers to permission asks are turned off by policy."
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
