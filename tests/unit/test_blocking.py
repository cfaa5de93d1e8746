"""The blocking `ask`, in this process and as a script."""

import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import upcall
from fakes.hub_line import FakeHub, Refuse
from fakes.pty_screen import PtyScreen

if TYPE_CHECKING:
    from conftest import Home


@pytest.fixture
def hub(home: "Home", monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    with FakeHub(str(home.state)) as running:
        yield running


def test_returns_the_answer(hub: FakeHub) -> None:
    hub.after_ask = lambda ask: hub.answer(ask["id"], 0)
    answer = upcall.ask("Deploy?", ["Yes", "No"], timeout_s=5, title="release", key="k")
    assert answer == "Yes"
    assert str(answer) == "Yes"
    assert answer.indices == (0,)
    assert answer.answered_by is not None
    assert answer.answered_by.name == "Sam"
    with pytest.raises(TypeError):
        bool(answer)
    (request,) = hub.requests("ask")
    assert request["ask"]["free_text"] is False
    assert (request["ask"]["timeout_s"], request["ask"]["key"]) == (5, "k")
    assert request["session"]["title"] == "release"
    hub.wait_until(lambda: hub.requests("took"))


def test_tags_and_merge_go_to_the_hub(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.after_ask = lambda ask: hub.answer(ask["id"], 0)
    monkeypatch.setenv("UPCALL_TAGS", "nightly,big")
    upcall.ask("Deploy?", ["Yes", "No"], merge=True)
    upcall.ask("Deploy?", ["Yes", "No"], tags=["prod"])
    upcall.ask("Deploy?", ["Yes", "No"], tags=[])
    first, second, third = hub.requests("ask")
    assert (first["session"]["tags"], first["ask"]["merge"]) == (["nightly", "big"], True)
    assert second["session"]["tags"] == ["prod"]
    assert "merge" not in second["ask"]
    assert "tags" not in third["session"]
    with pytest.raises(upcall.InvalidAsk, match="tags: is text"):
        upcall.ask("Deploy?", ["Yes", "No"], tags="prod")
    with pytest.raises(upcall.InvalidAsk, match="merge"):
        upcall.ask("Deploy?", ["Yes", "No"], merge=1)  # type: ignore[arg-type]  # a mistake


def test_takes_words_without_options(hub: FakeHub) -> None:
    hub.after_ask = lambda ask: hub.answer(ask["id"], text="First Light")
    assert upcall.ask("Name?") == "First Light"


def test_a_default_is_returned_with_its_outcome(hub: FakeHub) -> None:
    default = {"indices": [1], "labels": ["No"], "text": None}
    hub.after_ask = lambda ask: hub.end(ask["id"], "timed_out", answer=default)
    answer = upcall.ask("Deploy?", ["Yes", "No"], timeout_s=1, default="No")
    assert (str(answer), answer.outcome, answer.answered_by) == ("No", "timed_out", None)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ("declined", upcall.Declined),
        ("timed_out", upcall.TimedOut),
        ("cancelled", upcall.Cancelled),
        ("unreachable", upcall.Unreachable),
        ("superseded", upcall.Superseded),
    ],
)
def test_no_answer_is_raised(hub: FakeHub, outcome: str, error: type[Exception]) -> None:
    hub.after_ask = lambda ask: hub.end(ask["id"], outcome)
    with pytest.raises(error) as caught:
        upcall.ask("Deploy?", ["Yes", "No"])
    assert isinstance(caught.value, upcall.NoAnswer)
    assert not hub.requests("cancel")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("invalid_ask", upcall.InvalidAsk),
        ("ambiguous_labels", upcall.AmbiguousLabels),
        ("limit_reached", upcall.HubError),
    ],
)
def test_a_refusal_is_raised_with_its_code(
    hub: FakeHub, code: str, error: type[upcall.UpcallError]
) -> None:
    def refuse(client: Any, request: Any) -> None:
        raise Refuse(code, "because", "do this")

    hub.handlers["ask"] = refuse
    with pytest.raises(error, match="because") as caught:
        upcall.ask("Deploy?", ["Yes", "No"])
    assert (caught.value.code, caught.value.recover) == (code, "do this")


def test_options_that_are_one_text_are_refused_before_anything_is_asked(hub: FakeHub) -> None:
    with pytest.raises(upcall.InvalidAsk, match="list of labels"):
        upcall.ask("Deploy?", "Yes")
    assert not hub.seen


def test_a_lost_hub_is_found_again(hub: FakeHub) -> None:
    ask_id = ""

    def drop_once(ask: dict[str, Any]) -> None:
        nonlocal ask_id
        if not ask_id:
            ask_id = ask["id"]
            hub.drop_clients()
        else:
            hub.answer(ask["id"], 1)

    hub.after_ask = drop_once
    assert upcall.ask("Deploy?", ["Yes", "No"]) == "No"
    assert [one["ask"]["id"] for one in hub.requests("ask")] == [ask_id, ask_id]


def test_it_may_run_in_any_thread(hub: FakeHub) -> None:
    hub.after_ask = lambda ask: hub.answer(ask["id"], 0)
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(str(upcall.ask("Q?", ["a"]))))
    thread.start()
    thread.join(20)
    assert answers == ["a"]


def test_ctrl_c_cancels_and_goes_on(home: "Home", hub: FakeHub) -> None:
    program = (
        "import upcall\ntry:\n    upcall.ask('Q?')\nexcept KeyboardInterrupt:\n    print('!')"
    )
    process = home.start_program([sys.executable, "-P", "-c", program])
    hub.first_ask()
    hub.wait_until(lambda: hub.requests("ask"))
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[0] == "!\n"
    assert hub.wait_until(lambda: hub.requests("cancel"))


def test_on_a_terminal_it_says_how_to_answer(home: "Home", hub: FakeHub) -> None:
    program = "import upcall; print(upcall.ask('Q?', ['a']))"
    with PtyScreen([sys.executable, "-P", "-c", program], home.env) as screen:
        screen.wait_for(lambda text: "in inbox (1 tab) - or: upcall answer a" in text)
        hub.answer(hub.first_ask()["id"], 0)
        assert screen.finish() == 0
        assert screen.text().rstrip().endswith("\na")


def test_public_names_are_resolved_when_they_are_used() -> None:
    for name in upcall.__all__:
        assert getattr(upcall, name) is not None
    assert set(upcall.__all__) <= set(dir(upcall))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        upcall.nothing  # noqa: B018
