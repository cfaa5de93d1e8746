"""Who counts as whom, and which local answers are believed."""

from typing import Final

from upcall.core.state import KernelSettings
from upcall.model.frames import sendable
from upcall.model.platform import Who
from upcall.model.rows import AskRow, SessionRow
from upcall.model.text import one_line

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


NOT_THE_ASKER: Final = (
    "Only the program that asked, run by this user, may answer at its own prompt."
)


def refused_words(row: AskRow, who: Who, code: str) -> str:
    """Return what operators are told of a local answer that was not believed."""
    detail = one_line(who.detail) or "an unknown program"
    return f"An answer to {row.ask_id} from {detail} was refused ({code})."


def refuse_own(
    settings: KernelSettings, row: AskRow, session: SessionRow | None, who: Who
) -> tuple[str, str] | None:
    """Return code and words if an answer at the asker's own prompt is not believed, else None.

    Only the process that asked has such a prompt, and only the hub's own user (or root) is
    a person here: the socket for asking gives nobody else the power to answer. For what
    makes something run, that process must have a terminal, where a person can sit.
    """
    asker = (session.asker_pid, session.asker_start) if session is not None else None
    if (who.pid or 0, who.pid_start or "") != asker or not asker[0]:
        return "not_permitted", NOT_THE_ASKER
    if settings.uid and who.identity not in {settings.uid, "0"}:
        return "not_permitted", NOT_THE_ASKER
    if row.spec.ask_class != "permission" or settings.local_answers == "any":
        return None
    if settings.local_answers == "off":
        return "not_permitted", TURNED_OFF
    return None if who.tty is not None else ("self_answer", SELF_ANSWER_WORDS)
