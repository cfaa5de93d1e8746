"""What a person's words in a conversation mean: an answer, a message, or nobody can tell.

Pure: who may answer, and what is done with the verdict, is decided elsewhere. In doubt words
are no answer, since an answer makes things happen and a message can still be one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from upcall.core.asks import InvalidAnswer, read_answer
from upcall.model.ask import AskSpec
from upcall.model.platform import Texted
from upcall.model.rows import AskRow
from upcall.model.text import fold_label

SETTLE_MS: Final = 2000
"""Words that come sooner after a card were written before anybody could have read it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An open ask of the thread, as it is shown there.

    Attributes:
        refs: what the platform calls the messages that show it.
        posted_ms: when it was known to stand there, or None while that is not known.
        lost: another message that nobody knows of may show it too.
    """

    row: AskRow
    refs: frozenset[str]
    posted_ms: int | None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Answers:
    """The words answer *row*: with an option, or as they are."""

    row: AskRow
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Unfit:
    """The words were meant for *row*, which does not take them; *why* names what it takes."""

    row: AskRow
    why: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """The words may be an answer to one of these, or none."""

    rows: tuple[AskRow, ...]


@dataclass(frozen=True, slots=True)
class Late:
    """The words would have answered *row*, which is settled."""

    row: AskRow


@dataclass(frozen=True, slots=True)
class Message:
    """The words are for the session."""


Verdict: TypeAlias = Answers | Unfit | Unclear | Late | Message


def judge(
    text: Texted, shown: Sequence[Shown], replied: AskRow | None, *, numbers: bool
) -> Verdict:
    """Return what *text* means.

    Args:
        text: what a person wrote in a thread.
        shown: the open asks that are shown in that thread, oldest first.
        replied: the ask whose card the text replies to, if it is not among them.
        numbers: the surface shows the options with their numbers.
    """
    if text.reply_to is not None:
        return _reply(text, shown, replied, numbers=numbers)
    if text.origin != "typed":
        return Message()
    meant = [one for one in shown if is_meant(one.row.spec, text.text, numbers=numbers)]
    if not meant:
        return Message()
    if len(meant) > 1 or not _in_time(text, meant[0]):
        return Unclear(tuple(one.row for one in meant))
    row = meant[0].row
    if row.state == "claimed":
        return Late(row)
    if row.spec.ask_class == "permission":
        # Only its own controls, or a direct reply to its card.
        return Unclear((row,))
    return _read(row, text.text, numbers=numbers)


def _reply(
    text: Texted, shown: Sequence[Shown], replied: AskRow | None, *, numbers: bool
) -> Verdict:
    """Words that name the card need no guess; they may still not be the person's own."""
    one = next((each for each in shown if text.reply_to in each.refs), None)
    row = one.row if one is not None else replied
    if text.origin != "typed":
        return Message()
    if row is None:
        return _reply_to_unknown(text, [each.row for each in shown if each.lost])
    if one is None or row.state == "claimed":
        return Late(row)
    too_early = (
        text.sent_ms is not None
        and one.posted_ms is not None
        and text.sent_ms // 1000 < one.posted_ms // 1000
    )
    if too_early:
        # Nobody replies to what is not there: a clock is wrong, or somebody lies.
        return Unclear((row,))
    return _read(row, text.text, numbers=numbers)


def _reply_to_unknown(text: Texted, lost: Sequence[AskRow]) -> Verdict:
    """Words that name a message nobody knows of, where a copy of a card may stand.

    They may be meant for that copy: they are never passed on without being asked about.
    """
    rows = [row for row in lost if row.state == "open" and not row.spec.secret]
    if not rows:
        return Message()
    first = rows[0].spec
    if len(rows) == 1 and first.ask_class != "permission" and is_label(first, text.text):
        return Answers(rows[0])
    return Unclear(tuple(rows))


def _read(row: AskRow, words: str, *, numbers: bool) -> Verdict:
    spec = row.spec
    index = number_of(spec, words) if numbers else None
    if index is not None:
        return Answers(row, index)
    if spec.ask_class == "permission" and not is_label(spec, words):
        return Unfit(row, "this is answered by one of its options, in the same words")
    try:
        read_answer(spec, words)
    except InvalidAnswer as exc:
        return Unfit(row, exc.msg)
    return Answers(row)


def is_meant(spec: AskSpec, words: str, *, numbers: bool) -> bool:
    """Tell whether *words* could answer an ask: it takes words, or they are a label of it."""
    if spec.secret:
        return False
    if numbers and number_of(spec, words) is not None:
        return True
    return spec.free_text or is_label(spec, words)


def _in_time(text: Texted, one: Shown) -> bool:
    if text.sent_ms is None or one.posted_ms is None:
        return False
    return text.sent_ms >= one.posted_ms + SETTLE_MS


def is_label(spec: AskSpec, words: str) -> bool:
    """Tell whether *words* are one of the labels, without regard to case and outer blanks."""
    wanted = fold_label(words)
    return any(fold_label(label) == wanted for label in spec.options)


def number_of(spec: AskSpec, words: str) -> int | None:
    """Return the index of the option whose number is typed, from 1; labels come first.

    Where a label is itself a number nobody can tell which of both a number means, so it
    selects nothing by its place.
    """
    digits = words.strip().removeprefix("#")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 4:
        return None
    if any(_is_numeric(label) for label in spec.options):
        return None
    number = int(digits)
    return number - 1 if 1 <= number <= len(spec.options) else None


def _is_numeric(label: str) -> bool:
    return label.strip().lstrip("#").strip().isnumeric()
