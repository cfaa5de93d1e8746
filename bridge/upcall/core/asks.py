"""What an ask is, whether it may be raised, and what a given answer means for it.

One reading of answers for everybody: the session's endpoint, the hub and the command line
call `read_answer`, so an answer that one of them takes is not refused by another.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from upcall.model import limits
from upcall.model.ask import AskSpec, Selection
from upcall.model.errors import AmbiguousLabels, InvalidAsk, UpcallError
from upcall.model.frames import ActionNeeded, Answer, Choice
from upcall.model.ids import ActionId, Revision
from upcall.model.lookalikes import alike, difference
from upcall.model.text import (
    bare_label,
    code_points,
    fold_label,
    one_line,
    unpaired_surrogate_or_nul,
)

# JSON makes a control character six times as long. A frame also holds the question and the
# labels, up to 166 KiB of them in JSON, and the same must fit into a line of the hub's socket.
_MAX_SHOWN_BYTES: Final = limits.MAX_DETAIL_JSON_BYTES


class InvalidAnswer(UpcallError):
    """An answer that the ask does not take. The message says why, and what it takes."""

    code = "invalid_answer"


# --- Checking an ask -----------------------------------------------------------------------


def check_ask(spec: AskSpec, *, now_ms: int | None = None) -> AskSpec:
    """Return *spec* if it may be raised.

    Args:
        spec: the ask as the asker wrote it.
        now_ms: wall time; without it the deadline is not looked at.

    Raises:
        InvalidAsk: something is out of bounds; the message names field, limit and length.
        AmbiguousLabels: two labels that a person could not tell apart.
    """
    _check_text("question", spec.question, limits.MAX_QUESTION_CHARS)
    if not spec.question.strip():
        raise InvalidAsk("question: is empty; it needs 1 to 8192 characters")
    _check_options(spec)
    _check_details(spec)
    _check_bounds(spec)
    if spec.recommended is not None and not 0 <= spec.recommended < len(spec.options):
        raise InvalidAsk(
            f"recommended: {spec.recommended} is no option; there are {len(spec.options)}"
        )
    _check_default(spec)
    _check_permission(spec)
    _check_secret(spec)
    if now_ms is not None and spec.deadline_at_ms is not None:
        check_deadline((spec.deadline_at_ms - now_ms) / 1000)
    return spec


def check_deadline(seconds: float) -> float:
    """Return *seconds* if an ask may wait that long.

    Raises:
        InvalidAsk: less than 100 ms or more than 365 days.
    """
    # Written so that NaN fails too.
    if not limits.MIN_DEADLINE_S <= seconds <= limits.MAX_DEADLINE_S:
        raise InvalidAsk(
            f"timeout: {seconds:g} s is not between {limits.MIN_DEADLINE_S:g} s and 365 days"
        )
    return seconds


def _check_text(field: str, text: str, limit_chars: int) -> None:
    if len(text) > limit_chars:
        raise InvalidAsk(f"{field}: has {len(text)} characters; the limit is {limit_chars}")
    bad = unpaired_surrogate_or_nul(text)
    if bad is not None:
        raise InvalidAsk(
            f"{field}: character {bad + 1} is U+{ord(text[bad]):04X}, which cannot be sent"
        )


def _check_options(spec: AskSpec) -> None:
    if len(spec.options) > limits.MAX_OPTIONS:
        raise InvalidAsk(
            f"options: there are {len(spec.options)}; the limit is {limits.MAX_OPTIONS}"
        )
    if not spec.options and not spec.free_text:
        raise InvalidAsk("options: there are none and words are not taken: no answer would fit")
    for place, label in enumerate(spec.options, 1):
        field = f"option {place}"
        _check_text(field, label, limits.MAX_LABEL_CHARS)
        # Not only \n: whatever ends a line somewhere would end the label there.
        if len(label.splitlines()) > 1 or label != label.rstrip("\r\n\v\f\x85\u2028\u2029"):
            raise InvalidAsk(f"{field}: is more than one line: {one_line(label)!r}")
        if not bare_label(label):
            raise InvalidAsk(
                f"{field}: shows nothing; a label needs a visible character"
                + (f" ({code_points(label)})" if label else "")
            )
    for index, others in alike(spec.options).items():
        one, other = spec.options[index], spec.options[others[0]]
        if one.strip().lower() == other.strip().lower():
            raise AmbiguousLabels(
                f"options: {one_line(one)!r} and {one_line(other)!r} are the same label",
                recover="Labels are compared without regard to case and outer blanks.",
            )
        raise AmbiguousLabels(
            "options: a person could not tell these two apart:"
            f" {_spelled(one, other)} and {_spelled(other, one)}",
            recover="Give each option a label that looks different.",
        )


def _spelled(label: str, other: str) -> str:
    return f"{one_line(label)!r} ({difference(label, other)})"


def _check_details(spec: AskSpec) -> None:
    details = spec.option_details
    if details is not None and len(details) != len(spec.options):
        raise InvalidAsk(
            f"option_details: there are {len(details)} for {len(spec.options)} options"
        )
    size = shown = 0
    field = "detail"
    for text in (*(() if spec.detail is None else (spec.detail,)), *(details or ())):
        _check_text("detail", text, limits.MAX_DETAIL_BYTES)
        size += len(text.encode())
        shown += len(msgspec.json.encode(text)) - 2
    if size > limits.MAX_DETAIL_BYTES:
        raise InvalidAsk(f"detail: has {size} bytes; the limit is {limits.MAX_DETAIL_BYTES}")
    if spec.default is not None and not spec.options:
        shown += len(msgspec.json.encode(spec.default)) - 2
        field = "detail, default"
    if shown > _MAX_SHOWN_BYTES:
        raise InvalidAsk(
            f"{field}: takes {shown} bytes on the wire because of its control characters;"
            f" the limit is {_MAX_SHOWN_BYTES}"
        )


def _check_bounds(spec: AskSpec) -> None:
    low, high = spec.min_selected, spec.max_selected
    if not spec.multi:
        if low is not None or high is not None:
            raise InvalidAsk("min_selected, max_selected: only an ask with multi has them")
        return
    count = len(spec.options)
    if not count:
        raise InvalidAsk("multi: needs options")
    for field, value, least in (("min_selected", low, 0), ("max_selected", high, 1)):
        if value is not None and not least <= value <= count:
            raise InvalidAsk(f"{field}: {value} is not between {least} and {count}")
    if low is not None and high is not None and low > high:
        raise InvalidAsk(f"min_selected: {low} is more than max_selected, {high}")


def _check_permission(spec: AskSpec) -> None:
    if spec.ask_class != "permission":
        return
    if not spec.options:
        raise InvalidAsk("options: a permission is given by choosing one; there are none")
    if spec.free_text:
        raise InvalidAsk("free_text: a permission is given by an option, never by words")


def _check_secret(spec: AskSpec) -> None:
    if not spec.secret:
        return
    if spec.options or not spec.free_text:
        raise InvalidAsk("secret: is answered in words; it takes no options")
    if spec.default is not None:
        raise InvalidAsk("secret: comes from a person; it takes no default")


def _check_default(spec: AskSpec) -> None:
    if spec.default is None:
        return
    if spec.ask_class == "permission":
        raise InvalidAsk("default: a permission is given by a person; it cannot have one")
    if len(spec.default) > limits.MAX_TEXT_CHARS:
        raise InvalidAsk(
            f"default: has {len(spec.default)} characters; the limit is {limits.MAX_TEXT_CHARS}"
        )
    try:
        read_answer(spec, spec.default)
    except InvalidAnswer as exc:
        raise InvalidAsk(
            f"default: {one_line(spec.default, 80)!r} is not an answer to this ask: {exc.msg}"
        ) from exc


# --- What was asked ------------------------------------------------------------------------


def revision_of(spec: AskSpec) -> Revision:
    """Return the fingerprint of what a person is shown and may choose.

    Deadline, default and recommendation may change without it: they change neither what is
    asked nor what an answer means.
    """
    digest = hashlib.sha256()

    def feed(text: str | None) -> None:
        # With its length in front, no two lists of texts run together into the same bytes.
        data = b"" if text is None else text.encode("utf-8", "surrogatepass")
        digest.update(b"-" if text is None else b"%d:" % len(data))
        digest.update(data)

    def feed_all(texts: Iterable[str]) -> None:
        collected = tuple(texts)
        digest.update(b"[%d]" % len(collected))
        for text in collected:
            feed(text)

    feed(spec.ask_class)
    feed(spec.question)
    feed(spec.detail)
    feed_all(spec.options)
    feed_all(spec.option_details or ())
    bounds = (spec.multi, spec.min_selected, spec.max_selected, spec.free_text)
    feed_all(str(bound) for bound in bounds)
    if spec.secret:
        feed("secret")
    return Revision(digest.hexdigest())


def frame_of(
    spec: AskSpec, action: ActionId, session_id: str, *, held: bool = False
) -> ActionNeeded:
    """Return the frame that presents *spec*; a held ask shows no deadline."""
    return ActionNeeded(
        id=action,
        kind="ask",
        session_id=session_id,
        question=spec.question,
        options=spec.options,
        recommended_index=spec.recommended,
        detail=spec.detail,
        multi=spec.multi,
        min_selected=spec.min_selected,
        max_selected=spec.max_selected,
        free_text=spec.free_text,
        deadline_at=None if held else spec.deadline_at_ms,
        option_details=spec.option_details,
        ask_class=spec.ask_class,
        default=spec.default,
        held=held,
        secret=spec.secret,
        merge=spec.merge,
    )


def spec_of(frame: ActionNeeded) -> AskSpec:
    """Return what a session asks with *frame*; nothing is checked, peers may ask anything.

    What does not fit together (details for other options, a default for a permission) is
    left out, so that the ask can still be shown and answered.
    """
    details = frame.option_details
    permission = frame.ask_class == "permission"
    return AskSpec(
        question=frame.question or "",
        options=frame.options,
        detail=frame.detail,
        multi=frame.multi,
        min_selected=frame.min_selected if frame.multi else None,
        max_selected=frame.max_selected if frame.multi else None,
        free_text=frame.takes_text,
        recommended=frame.recommended,
        deadline_at_ms=frame.deadline_at,
        default=None if permission else frame.default,
        ask_class=frame.ask_class,
        option_details=details if details and len(details) == len(frame.options) else None,
        secret=frame.secret,
        merge=frame.merge,
    )


# --- What an answer means ------------------------------------------------------------------


def read_answer(spec: AskSpec, answer: Answer) -> Selection:
    """Return what *answer* means for *spec*.

    A label is compared exactly first, then without regard to case and outer blanks; what is
    no label is the person's own words, if the ask takes words.

    Raises:
        InvalidAnswer: the ask does not take it; nothing is consumed.
    """
    if isinstance(answer, Choice):
        return _read_choice(spec, answer)
    if isinstance(answer, int):
        return _chosen(spec, (_index_in_range(spec, answer),), None)
    index = _find_label(spec, answer)
    if index is not None:
        return _chosen(spec, (index,), None)
    if not spec.free_text:
        raise InvalidAnswer(_no_such_option(spec, answer))
    return _chosen(spec, (), _words(answer))


def wire_answer(spec: AskSpec, selection: Selection) -> Answer:
    """Return how *selection* goes to the session: by exact label wherever that is unique."""
    parts: tuple[int | str, ...] = tuple(
        spec.options[index] if _is_unique(spec, index) else index for index in selection.indices
    )
    if not parts and selection.text is not None and not spec.multi:
        return selection.text
    if len(parts) == 1 and not spec.multi:
        return parts[0]
    return Choice(selected=parts, custom=selection.text)


def _is_unique(spec: AskSpec, index: int) -> bool:
    return spec.options.count(spec.options[index]) == 1


def _read_choice(spec: AskSpec, answer: Choice) -> Selection:
    if answer.control_id is not None:
        raise InvalidAnswer("this ask has no such control")
    selected = answer.selected or ()
    custom = answer.custom or None
    if spec.options and not spec.multi:
        if len(selected) != 1:
            raise InvalidAnswer(f"exactly one option is wanted, {len(selected)} were given")
        if custom is not None:
            raise InvalidAnswer("one option or words are wanted, not both")
    if custom is not None and not spec.free_text:
        raise InvalidAnswer(_no_such_option(spec, custom))
    indices: set[int] = set()
    for part in selected:
        index = _find_label(spec, part) if isinstance(part, str) else part
        if index is None:
            raise InvalidAnswer(_no_such_option(spec, str(part)))
        indices.add(_index_in_range(spec, index))
    return _chosen(spec, tuple(sorted(indices)), None if custom is None else _words(custom))


def _chosen(spec: AskSpec, indices: tuple[int, ...], text: str | None) -> Selection:
    count = len(indices) + (text is not None)
    if spec.multi:
        low = 1 if spec.min_selected is None else spec.min_selected
        high = len(spec.options) if spec.max_selected is None else spec.max_selected
        if count < low:
            raise InvalidAnswer(f"at least {low} of the options are wanted, {count} given")
        if len(indices) > high:
            raise InvalidAnswer(f"at most {high} of the options are wanted, {count} given")
    elif not count:
        raise InvalidAnswer("the answer is empty")
    return Selection(indices, tuple(spec.options[index] for index in indices), text)


def _index_in_range(spec: AskSpec, index: int) -> int:
    if not 0 <= index < len(spec.options):
        raise InvalidAnswer(f"there is no option {index}; there are {len(spec.options)}")
    return index


def _find_label(spec: AskSpec, text: str) -> int | None:
    """Return the index of the label that *text* names, exactly or else folded."""
    wanted = fold_label(text)
    for matches in (
        [index for index, label in enumerate(spec.options) if label == text],
        [index for index, label in enumerate(spec.options) if fold_label(label) == wanted],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            labels = " and ".join(
                f"{one_line(spec.options[index], 80)!r} (#{index + 1})" for index in matches[:2]
            )
            raise InvalidAnswer(f"{one_line(text, 80)!r} fits two options: {labels}")
    return None


def _words(text: str) -> str:
    if not text.strip():
        raise InvalidAnswer("the answer is empty")
    if len(text) > limits.MAX_TEXT_CHARS:
        raise InvalidAnswer(
            f"the answer has {len(text)} characters; the limit is {limits.MAX_TEXT_CHARS}"
        )
    if unpaired_surrogate_or_nul(text) is not None:
        raise InvalidAnswer("the answer has a character that cannot be sent")
    return text


def _no_such_option(spec: AskSpec, text: str) -> str:
    shown = ", ".join(repr(one_line(label, 40)) for label in spec.options[:8])
    more = ", …" if len(spec.options) > 8 else ""
    wanted = f"; one of {shown}{more} is wanted" if shown else ""
    return f"there is no option {one_line(text, 80)!r}{wanted}"
