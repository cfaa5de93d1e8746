"""What is given to `ask` in Python with a wrong type is refused by its name."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import upcall
from fakes.hub_line import FakeHub

if TYPE_CHECKING:
    from conftest import Home

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"question": 5}, "question: is of type int; text is wanted"),
    ({"question": None}, "question: is None; text is wanted"),
    ({"question": b"Deploy?"}, "question: is of type bytes"),
    ({"options": 5}, "options: is of type int; a list of labels is wanted"),
    ({"options": b"ab"}, "options: is of type bytes"),
    ({"options": {"a", "b"}}, "options: is of type set"),
    ({"options": {"a": 1}}, "options: is of type dict"),
    ({"options": "Yes"}, "options: is one text; give a list of labels"),
    ({"options": ["a", 3]}, "option 2: is of type int; text is wanted"),
    ({"options": [None]}, "option 1: is None"),
    ({"detail": 5}, "detail: is of type int"),
    ({"multi": "yes"}, "multi: is of type str; True or False is wanted"),
    ({"multi": None}, "multi: is None"),
    ({"free_text": 1}, "free_text: is of type int"),
    ({"permission": "no"}, "permission: is of type str"),
    ({"secret": 0}, "secret: is of type int"),
    ({"min_selected": "1", "multi": True}, "min_selected: is of type str; a whole number"),
    ({"max_selected": True, "multi": True}, "max_selected: is of type bool"),
    ({"timeout_s": "10"}, "timeout_s: is of type str; a number of seconds"),
    ({"timeout_s": True}, "timeout_s: is of type bool"),
    ({"default": ["Yes"], "timeout_s": 5}, "default: is of type list"),
]
ARGUMENTS: dict[str, Any] = {"question": "Deploy?", "options": ["Yes", "No"]}


@pytest.fixture
def hub(home: "Home", monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    with FakeHub(str(home.state)) as running:
        yield running


@pytest.mark.parametrize(("given", "named"), WRONG)
def test_a_script_is_told_which_field(hub: FakeHub, given: dict[str, Any], named: str) -> None:
    with pytest.raises(upcall.InvalidAsk) as refused:
        upcall.ask(**{**ARGUMENTS, **given})
    assert named in refused.value.msg
    assert not hub.seen


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"key": "k" * 201}, "key: has 201 characters; the limit is 200"),
        ({"key": ""}, "key: is empty"),
        ({"key": 7}, "key: is of type int; text is wanted"),
        ({"session": "s" * 201}, "session: has 201 characters; the limit is 200"),
        ({"title": 7}, "title: is of type int"),
    ],
)
def test_a_name_is_refused_by_its_field(
    hub: FakeHub, given: dict[str, Any], named: str
) -> None:
    with pytest.raises(upcall.InvalidAsk) as refused:
        upcall.ask(**{**ARGUMENTS, **given})
    assert named in refused.value.msg
    assert not hub.seen


@pytest.mark.asyncio
async def test_a_session_is_told_which_field(
    home: "Home", monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    own: list[tuple[dict[str, Any], str]] = [
        ({"option_details": ["a", 1]}, "option_details 2: is of type int; text is wanted"),
        ({"option_details": "ab"}, "option_details: is one text"),
        ({"recommended": [1]}, "recommended: is of type list; a label or its place"),
        ({"recommended": True}, "recommended: is of type bool"),
        ({"ask_id": 5}, "ask_id: is of type int"),
    ]
    async with upcall.Session(hub=False) as session:
        for given, named in [*WRONG, *own]:
            with pytest.raises(upcall.InvalidAsk) as refused:
                await session.ask(**{**ARGUMENTS, **given})
            assert named in refused.value.msg
