"""What a surface shows of an ask beside its words: labels, notes on them, and warnings.

The words of a program and the words of the hub must not be mixed up, and neither must two
labels. Every surface takes its labels from here.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Final

import msgspec

from upcall.model.lookalikes import alike, difference, looks
from upcall.model.refusals import is_refusal
from upcall.model.scripted import findings
from upcall.model.text import bare_label, shown_code_point, visible
from upcall.model.views import AskView

# What pages, terminals and notices of ours say on their controls and state lines. A label
# that could be taken for one of these is marked.
HUB_WORDS: Final = (
    # controls
    "Answer", "Answer here", "Answer in words", "Answer at the terminal", "Back", "Decline",
    "Deny", "Hold", "Let the clock run", "Put away", "Send", "Send now", "Send words", "Undo",
    "Your answer", "#decline", "Hold all", "Mute", "Unmute", "Stop asking", "Drop",
    "Send as answer", "Send as message",
    # states
    "Answered", "being answered", "cancelled", "declined", "ended", "held", "not connected",
    "not sent", "not sent, no connection", "nothing was sent", "on hold", "sending…", "sent",
    "suggested by the program", "superseded", "taken", "taken back", "the clock is stopped",
    "the program took it", "time is up", "timed out", "unreachable",
    "The program changed its question", "kept for the program", "asks for permission",
)  # fmt: skip
# Beginnings of state lines that go on with a name or a time.
_BEGINNINGS: Final = tuple(
    bare_label(words)
    for words in (
        "answered by", "declined by", "no answer within", "timed out after", "too late:",
        "option:", "the program withdrew", "the program stopped", "the program that asked",
        "taken:", "sent;", "nobody can see", "the session has confirmed",
    )
)  # fmt: skip
_MARK: Final = "option: "
# Words that the hub puts behind a label; a label has no such words of its own.
_BEHIND: Final = bare_label("suggested by the program")
_DECORATION: Final = re.compile(r"^[\W_]+|[\W_]+$")


def label_shown(label: str) -> str:
    """Return *label* escaped; one that could be taken for words of the hub is marked."""
    shown = visible(label)
    return f"{_MARK}{shown}" if poses_as_hub(label) else shown


# The same few labels are drawn again and again, each time on every surface.
@lru_cache(maxsize=1024)
def poses_as_hub(label: str) -> bool:
    """Tell whether *label* could be taken for a control or a state line of the hub."""
    bare = bare_label(label)
    if bare.startswith(_BEGINNINGS) or _DECORATION.sub("", bare).startswith(_BEGINNINGS):
        return True
    if _BEHIND in bare:
        return True
    return not _hub_looks().isdisjoint(looks(label) | looks(_DECORATION.sub("", label)))


@cache
def _hub_looks() -> frozenset[str]:
    return frozenset(look for words in HUB_WORDS for look in looks(words))


def label_notes(labels: Sequence[str]) -> tuple[str, ...]:
    """Return, for each label, what tells it from the one that it looks like, else ""."""
    return _notes(tuple(labels))


@lru_cache(maxsize=256)
def _notes(labels: tuple[str, ...]) -> tuple[str, ...]:
    others = alike(labels)
    return tuple(
        _note(labels, index, others[index]) if index in others else _empty_note(label)
        for index, label in enumerate(labels)
    )


def _note(labels: Sequence[str], index: int, others: Sequence[int]) -> str:
    nothing = _empty_note(labels[index])
    if nothing:
        return nothing
    first = others[0]
    if labels[index] == labels[first]:
        return f"the same label as option {first + 1}"
    words = difference(labels[index], labels[first])
    return f"looks like option {first + 1}, but {words}"


def _empty_note(label: str) -> str:
    if bare_label(label):
        return ""
    if not label:
        return "its label is empty"
    points = ", ".join(shown_code_point(char) for char in label[:3])
    return f"its label shows nothing: {points}{', …' if len(label) > 3 else ''}"


def must_be_numbered(labels: Sequence[str]) -> frozenset[int]:
    """Return the indices of labels that do not name one option for a person."""
    return frozenset(index for index, note in enumerate(label_notes(labels)) if note)


# --- Warnings --------------------------------------------------------------------------------


def ask_warnings(ask: AskView) -> tuple[str, ...]:
    """Return what a person should know about characters that deceive: a line for each text.

    Looked at are the labels and where the program runs; of a permission also all that it
    says, since that is where the command stands.
    """
    return tuple(
        f"{place}: {words}" for place, text in _places(ask) if (words := _warning(text))
    )


def _places(ask: AskView) -> Iterator[tuple[str, str | None]]:
    if ask.ask_class == "permission":
        yield "question", ask.question
        yield "detail", ask.detail
    for number, label in enumerate(ask.options, 1):
        yield f"option {number}", label
    if ask.ask_class == "permission":
        for number, text in enumerate(ask.option_details or (), 1):
            yield f"detail of option {number}", text
    session = ask.session
    yield "working folder", session.cwd
    yield "repository", session.repo
    yield "branch", session.branch
    yield "machine", session.machine
    yield "program", session.program


def _warning(text: str | None) -> str:
    if not text or text.isascii():
        return ""
    found = findings(text)
    if not found:
        return ""
    more = f", and {found.count - len(found.first)} more" * (found.count > len(found.first))
    return "; ".join(f"character {at + 1} is {words}" for at, words in found.first) + more


# --- All of it -------------------------------------------------------------------------------


def with_shown(ask: AskView) -> AskView:
    """Return *ask* with what is shown of its labels, and with the warnings."""
    return msgspec.structs.replace(
        ask,
        labels_shown=tuple(map(label_shown, ask.options)),
        label_notes=label_notes(ask.options),
        warnings=ask_warnings(ask),
        allows=tuple(
            index
            for index, label in enumerate(ask.options)
            if ask.ask_class == "permission" and not is_refusal(label)
        ),
    )
