"""What a person's act on a surface that shows the ask selects."""

from upcall.core.asks import InvalidAnswer, read_answer
from upcall.model.ask import AskSpec, Selection
from upcall.model.frames import Choice
from upcall.model.platform import Answered
from upcall.model.text import fold_label, one_line


def read_act(spec: AskSpec, act: Answered) -> Selection:
    """Return what a person's act selects.

    Typed values are labels first (exactly, then without regard to case and outer blanks),
    then `#N` counted from 1, then words where words are taken.

    Raises:
        InvalidAnswer: the ask does not take it.
    """
    if act.typed is not None:
        return _read_typed(spec, act.typed)
    if act.indices is None:
        return read_answer(spec, act.text or "")
    if len(act.indices) == 1 and act.text is None and not spec.multi:
        return read_answer(spec, act.indices[0])
    return read_answer(spec, Choice(selected=act.indices, custom=act.text))


def _read_typed(spec: AskSpec, typed: tuple[str, ...]) -> Selection:
    if not spec.multi and len(typed) != 1:
        raise InvalidAnswer(f"exactly one answer is wanted, {len(typed)} were given")
    folded = {fold_label(label) for label in spec.options}
    chosen: list[int | str] = []
    words: list[str] = []
    for value in typed:
        number = value.strip().removeprefix("#")
        if fold_label(value) in folded:
            chosen.append(value)
        elif value.strip() != number and number.isascii() and number.isdigit():
            index = int(number[:6]) - 1
            if not 0 <= index < len(spec.options):
                raise InvalidAnswer(
                    f"{one_line(value)} is no option; there are {len(spec.options)}"
                )
            chosen.append(index)
        else:
            words.append(value)
    if not spec.multi:
        return read_answer(spec, (chosen or words)[0])
    if len(words) > 1:
        raise InvalidAnswer(
            f"{one_line(words[0])!r} is no option, nor is {one_line(words[1])!r}"
        )
    custom = words[0] if words else None
    return read_answer(spec, Choice(selected=tuple(chosen), custom=custom))
