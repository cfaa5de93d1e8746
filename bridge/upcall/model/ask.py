"""What is asked, what was chosen, and how it ended: plain data that every room shares."""

from typing import Final, Literal, TypeAlias

import msgspec

from upcall.model.ids import AskId

AskClass: TypeAlias = Literal["question", "permission"]
AskState: TypeAlias = Literal["open", "claimed", "closed"]
Outcome: TypeAlias = Literal[
    "answered", "declined", "timed_out", "cancelled", "unreachable", "superseded"
]


class AskSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ask as its program raised it.

    Attributes:
        question: 1 to 8,192 characters.
        options: labels in order; empty when only words are wanted.
        detail: longer text below the question, or None.
        multi: several options may be chosen.
        min_selected: at least so many options, for `multi`.
        max_selected: at most so many options, for `multi`.
        free_text: words are taken besides (or instead of) the options.
        recommended: index of the option that the program suggests.
        deadline_at_ms: wall clock time at which the ask ends by itself.
        default: the label or the words that a time-out answers with.
        ask_class: `permission` asks have no default and take no casual answers.
        option_details: one longer text for each option, or None.
        secret: words that are shown to nobody, kept nowhere, and given to the asker once.
        merge: its card may stand for equal asks of the same session too.
    """

    question: str
    options: tuple[str, ...] = ()
    detail: str | None = None
    multi: bool = False
    min_selected: int | None = None
    max_selected: int | None = None
    free_text: bool = True
    recommended: int | None = None
    deadline_at_ms: int | None = None
    default: str | None = None
    ask_class: AskClass = "question"
    option_details: tuple[str, ...] | None = None
    secret: bool = False
    merge: bool = False


class Selection(msgspec.Struct, frozen=True, omit_defaults=False):
    """What was chosen: options by index and label, and words, if any.

    Attributes:
        secret: it stands for words that are not told; absent otherwise.
    """

    indices: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    text: str | None = None
    secret: bool | msgspec.UnsetType = msgspec.UNSET


SECRET: Final = Selection(secret=True)
"""What stands everywhere in the place of a secret's words."""
WITHHELD: Final = "(secret)"


class AnsweredBy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who answered and where; the name is None when nobody knows the person.

    Attributes:
        detail: what the kernel says of a local answer (pid, program, terminal).
    """

    name: str | None
    channel: str
    detail: str = ""


class AskResult(msgspec.Struct, frozen=True):
    """How an ask stands or ended; also the document that `--json` prints."""

    id: AskId
    outcome: str
    answer: Selection | None
    answered_by: AnsweredBy | None
    waited_s: float
    reason: str | None = None
