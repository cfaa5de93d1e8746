"""The value that an ask returns: hard to misuse, light to import."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from upcall.answer import Answer, AnsweredBy

YES = Answer(["Yes"], [0], answered_by=AnsweredBy("kim", "web"), waited_s=1.5)


def test_compares_as_what_it_says() -> None:
    assert YES == "Yes"
    assert YES != "No"
    assert YES != "yes"
    assert str(YES) == "Yes"
    assert YES in ("Yes", "Maybe")
    assert {"Yes": 1}[YES] == 1  # type: ignore[index]
    assert Answer(text="because") == "because"
    assert YES != 0


def test_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError, match="answer == 'Yes'"):
        bool(YES)


def test_several_choices_are_no_single_text() -> None:
    several = Answer(["A", "B"], [0, 1], "and C")
    assert str(several) == "A, B, and C"
    assert several != "A, B, and C"
    assert several != "A"


def test_does_not_change() -> None:
    for name in Answer.__slots__:
        with pytest.raises(AttributeError):
            setattr(YES, name, "No")
    with pytest.raises(AttributeError):
        YES.labels = ("No",)
    with pytest.raises(AttributeError):
        del YES.labels
    assert YES.answered_by is not None
    with pytest.raises(AttributeError):
        YES.answered_by.name = "eve"
    with pytest.raises(AttributeError):
        del YES.answered_by.name


def test_a_default_is_not_the_same_as_an_answer() -> None:
    assert Answer(["Yes"], [0]) == Answer(["Yes"], [0], waited_s=9)
    assert Answer(["Yes"], [0]) != Answer(["Yes"], [0], outcome="timed_out")


def test_copies_and_pickles() -> None:
    assert copy.copy(YES) is YES
    assert copy.deepcopy([YES])[0] is YES
    again = pickle.loads(pickle.dumps(YES))
    assert again == YES
    assert (again.answered_by, again.waited_s) == (YES.answered_by, 1.5)
    assert hash(again.answered_by) == hash(YES.answered_by)


def test_shows_itself() -> None:
    assert "answered_by=AnsweredBy(name='kim', channel='web')" in repr(YES)
    assert str(AnsweredBy("kim", "web")) == "kim on web"
    assert str(AnsweredBy(None, "endpoint")) == "somebody on endpoint"
    assert AnsweredBy("kim", "web") != "kim on web"


def test_is_made_from_a_result() -> None:
    result = {
        "id": "a000000000000",
        "outcome": "timed_out",
        "answer": {"indices": [1], "labels": ["No"], "text": None},
        "answered_by": None,
        "waited_s": 2.0,
    }
    answer = Answer.from_result(result)
    assert (answer.labels, answer.indices, answer.outcome) == (("No",), (1,), "timed_out")
    by = Answer.from_result({**result, "answered_by": {"name": None, "channel": "web"}})
    assert by.answered_by == AnsweredBy(None, "web")
    with pytest.raises(ValueError, match="declined"):
        Answer.from_result({"outcome": "declined", "answer": None})


def test_imports_nothing_heavy() -> None:
    script = (
        "import sys; before = set(sys.modules); import upcall.answer;"
        "print(sorted(set(sys.modules) - before))"
    )
    root = Path(__file__).parents[2] / "bridge"
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-E",
            "-c",
            f"import sys; sys.path.insert(0, {str(root)!r}); {script}",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "['upcall', 'upcall.answer']"
