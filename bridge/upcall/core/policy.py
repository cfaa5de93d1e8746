"""Who counts as whom, and which local answers are believed."""

from typing import Final, NamedTuple

from upcall.core.state import HubState, KernelSettings
from upcall.model.frames import sendable
from upcall.model.platform import Who
from upcall.model.rows import AskRow, SessionRow
from upcall.model.text import one_line

SELF_ANSWER_WORDS: Final = (
    "This answer comes from inside the program that asked. "
    "Answer from another terminal, the inbox or your phone."
)
NO_TERMINAL_WORDS: Final = (
    "A permission question is answered from a terminal that a person sits at. "
    "This program has none of its own."
)
NO_TERMINAL_RECOVER: Final = (
    "Answer from a terminal, from the inbox (upcall inbox) or from your phone."
)
NOT_OPERATOR: Final = "You can read this conversation but not answer in it."
TURNED_OFF: Final = "Local answers to permission asks are turned off by policy."


class Refusal(NamedTuple):
    """Why a local answer is not believed."""

    code: str
    msg: str
    recover: str | None = None


_INSIDE: Final = Refusal("self_answer", SELF_ANSWER_WORDS)
_NO_TERMINAL: Final = Refusal("self_answer", NO_TERMINAL_WORDS, NO_TERMINAL_RECOVER)
_TURNED_OFF: Final = Refusal("not_permitted", TURNED_OFF)


def local_name(who: Who) -> str:
    """Return whose program a local answer came from: a user of this computer.

    Never an operator's name: a program of that user can answer as well as the person.
    """
    return sendable(who.name or f"uid {who.identity}")


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
) -> Refusal | None:
    """Return why a local answer to *row* is not believed, or None if it is.

    Only permission asks are guarded: their answer makes something run. A process that is one
    of the askers, or descends from one, or has no terminal a person could sit at, is not a
    person.
    """
    if not who.local or row.spec.ask_class != "permission" or settings.local_answers == "any":
        return None
    if settings.local_answers == "off":
        return _TURNED_OFF
    askers = set(row.askers)
    if session is not None:
        askers |= {
            f"{session.asker_pid}:{session.asker_start}",
            f"{session.pid}:{session.pid_start}",
        }
    if askers.intersection(who.ancestors):
        return _INSIDE
    return None if who.tty is not None else _NO_TERMINAL


NOT_THE_ASKER: Final = (
    "Only the program that asked, run by this user, may answer at its own prompt."
)


NOT_HERE: Final = "A secret is answered in the inbox or at a terminal, and nowhere else."


def takes_secrets(state: HubState, channel: str) -> bool:
    """Tell whether a secret may be typed on this channel: never where a company keeps it."""
    info = state.infos.get(channel)
    return channel == "terminal" if info is None else info.capabilities.secrets


def refused_words(row: AskRow, detail: str, code: str, count: int) -> str:
    """Return what operators are told of answers to *row* that were not believed."""
    by = one_line(detail, 200) or "an unknown program"
    if count == 1:
        return f"An answer to {row.ask_id} from {by} was refused ({code})."
    return f"{count} answers to {row.ask_id} were refused, the last from {by} ({code})."


def refuse_own(
    settings: KernelSettings, row: AskRow, session: SessionRow | None, who: Who
) -> Refusal | None:
    """Return why an answer at the asker's own prompt is not believed, or None if it is.

    Only the process that asked has such a prompt, and only the hub's own user (or root) is
    a person here: the socket for asking gives nobody else the power to answer. For what
    makes something run, that process must have a terminal, where a person can sit.
    """
    asker = (session.asker_pid, session.asker_start) if session is not None else None
    if (who.pid or 0, who.pid_start or "") != asker or not asker[0]:
        return Refusal("not_permitted", NOT_THE_ASKER)
    if settings.uid and who.identity not in {settings.uid, "0"}:
        return Refusal("not_permitted", NOT_THE_ASKER)
    if row.spec.ask_class != "permission" or settings.local_answers == "any":
        return None
    if settings.local_answers == "off":
        return _TURNED_OFF
    return None if who.tty is not None else _NO_TERMINAL
