"""`upcall watch`: its state and drawing, and the real thing on a terminal."""

import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.hub_line import FakeHub, Refuse
from fakes.pty_screen import PtyScreen
from upcall.cli.cells import width_of
from upcall.cli.screen import visible
from upcall.cli.watching import Watching

if TYPE_CHECKING:
    from conftest import Home


def ask_of(ask_id: str = "a1", **more: Any) -> dict[str, Any]:
    return {
        "id": ask_id,
        "state": "open",
        "class": "question",
        "question": f"Question {ask_id}?",
        "options": ["yes", "no"],
        "revision": "r1",
        "raised_ms": int(time.time() * 1000),
        "session": {"title": "build", "repo": "shop", "branch": "main"},
        "can_decline": True,
        "can_hold": True,
        **more,
    }


def watching(*asks: dict[str, Any]) -> Watching:
    state = Watching()
    state.take_screen({"asks": list(asks), "sessions": [], "channels": []})
    return state


def typed(state: Watching, keys: str) -> Any:
    wish = None
    for key in keys:
        wish = state.key("enter" if key == "\n" else key)
    return wish


# --- keys ------------------------------------------------------------------------------------


def test_an_answer_carries_the_revision_that_was_shown() -> None:
    wish = typed(watching(ask_of()), "\nno\n")
    assert wish.fields == {
        "ask": "a1", "revision": "r1", "values": ["#2"], "decline": False, "hold": None,
    }  # fmt: skip


def test_words_are_sent_as_words() -> None:
    state = watching(ask_of(options=[], free_text=True))
    assert typed(state, "aFirst Light\n").fields["values"] == ["First Light"]


def test_no_single_key_answers_or_declines() -> None:
    for key in ["enter", "y", "n", "1", "d", "a", " ", "up", "down", "escape", "backspace"]:
        assert watching(ask_of()).key(key) is None


def test_declining_takes_enter_and_can_be_left() -> None:
    state = watching(ask_of())
    assert typed(state, "d\n").fields["decline"] is True
    state = watching(ask_of())
    typed(state, "d")
    state.key("escape")
    assert not state.typing


def test_after_a_decline_is_begun_nothing_else_can_be_typed() -> None:
    state = watching(ask_of(options=[], free_text=True))
    assert typed(state, "d?x") is None
    assert "Enter declines" in "\n".join(state.draw(80, 24))
    assert typed(state, "\n").fields["decline"] is True
    state = watching(ask_of(options=[], free_text=True))
    assert typed(state, "a#decline?\n") is None
    assert state.says == "to decline, type #decline alone"
    typed(state, "d")
    state.take_screen({"asks": []})
    assert not state.declining


def test_hold_turns_over() -> None:
    assert "h: release" in "\n".join(watching(ask_of(held=True)).draw(80, 24))
    assert typed(watching(ask_of()), "h").fields["hold"] is True
    assert typed(watching(ask_of(held=True)), "h").fields["hold"] is False


def test_what_the_program_cannot_do_is_said() -> None:
    state = watching(ask_of(can_hold=False, can_decline=False))
    assert state.key("h") is None
    assert "cannot hold" in state.says
    assert state.key("d") is None
    assert "decline" in state.says


def test_numbers_and_arrows_pick() -> None:
    state = watching(ask_of("a1"), ask_of("a2"), ask_of("a3"))
    state.key("2")
    assert state.chosen == "a2"
    state.key("down")
    state.key("down")
    assert state.chosen == "a3"
    state.key("up")
    assert state.chosen == "a2"
    state.key("9")
    assert state.chosen == "a2"


def test_a_new_ask_does_not_move_what_is_looked_at() -> None:
    state = watching(ask_of("a2"))
    typed(state, "\nye")
    state.take_screen({"asks": [ask_of("a1"), ask_of("a2")]})
    assert (state.chosen, state.typed, state.typing) == ("a2", "ye", True)


def test_what_was_typed_for_an_ask_that_ended_is_not_used_for_the_next() -> None:
    state = watching(ask_of("a1"), ask_of("a2"))
    typed(state, "\nyes")
    state.take_screen({"asks": [ask_of("a2")]})
    assert (state.chosen, state.typed, state.typing) == ("a2", "", False)
    assert "not used" in state.says


def test_nonsense_is_kept_and_explained() -> None:
    state = watching(ask_of())
    assert typed(state, "\nmaybe\n") is None
    assert state.typing
    assert "type a number (1-2)" in state.says


def test_with_one_question_a_number_begins_its_answer() -> None:
    state = watching(ask_of())
    state.key("2")
    assert (state.typing, state.typed) == (True, "2")
    assert typed(state, "\n").fields["values"] == ["#2"]


def test_only_keys_that_work_are_offered() -> None:
    shown = "\n".join(watching(ask_of(can_hold=False)).draw(80, 24))
    assert "h: hold" not in shown
    assert "h: hold" in "\n".join(watching(ask_of()).draw(80, 24))
    shown = "\n".join(watching(ask_of(multi=True, options=["a", "b", "c"])).draw(80, 24))
    assert "several: e.g. 1,3" in shown


def test_the_newest_three_notices_stand_below_the_questions() -> None:
    state = watching(ask_of())
    for number in range(5):
        event = {"session": {"title": "build"}, "text": f"step {number}", "kind": "info"}
        state.take_notice(event | {"at_ms": int(time.time() * 1000)})
    lines = state.draw(40, 24)
    (at,) = [i for i, line in enumerate(lines) if line.startswith("- notices -")]
    assert [line[5:] for line in lines[at + 1 : at + 4]] == [
        f" build: step {number}" for number in (2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("info", " build: full"),
        ("error", " ERROR build: full"),
        ("warning", " WARNING build: full"),
    ],
)
def test_a_notice_says_how_bad_it_is(kind: str, said: str) -> None:
    state = watching(ask_of())
    at_ms = int(time.time() * 1000)
    state.take_notice(
        {"session": {"title": "build"}, "text": "full", "kind": kind, "at_ms": at_ms}
    )
    assert any(line[5:] == said for line in state.draw(80, 24))


@pytest.mark.parametrize(("columns", "rows"), [(40, 10), (20, 8), (40, 12)])
def test_on_a_small_screen_notices_leave_the_question_alone(columns: int, rows: int) -> None:
    state = watching(ask_of())
    state.take_notice({"session": {"title": "build"}, "text": "step", "kind": "info"})
    assert "Question a1?" in "\n".join(state.draw(columns, rows)[3:])


def test_what_became_of_an_answer_is_said_with_who_and_when() -> None:
    by = {"name": "Sam", "channel": "web"}
    state = watching(ask_of())
    state.told({"outcome": "answered", "answer": {"labels": ["no"]}, "answered_by": by})
    assert state.says == 'Sam on inbox answered "no" just now'
    state.told({"outcome": "declined", "answered_by": by})
    assert state.says == "declined by Sam on inbox"


# --- drawing ---------------------------------------------------------------------------------


@given(
    text=st.text(max_size=300), columns=st.integers(20, 120), rows=st.integers(8, 60),
    count=st.integers(0, 12), typing=st.booleans(),
)  # fmt: skip
def test_every_drawing_fits_and_is_safe(
    text: str, columns: int, rows: int, count: int, typing: bool
) -> None:
    asks = [
        ask_of(f"a{i}", question=text, detail=text, options=[text, "b"], note=text,
               option_details=[text, text], session={"title": text, "repo": text})
        for i in range(count)
    ]  # fmt: skip
    state = watching(*asks)
    state.take_notice({"session": {"title": text}, "text": text})
    state.typing, state.typed = typing and count > 0, text
    lines = state.draw(columns, rows)
    assert len(lines) == rows
    for line in lines:
        assert width_of(line) <= columns
        assert visible(line) == line


def test_the_choices_stay_on_the_screen_below_a_long_text() -> None:
    state = watching(ask_of(detail="\n".join(f"line {i}" for i in range(500))))
    shown = "\n".join(state.draw(80, 24))
    assert "1 yes" in shown
    assert "2 no" in shown
    assert "more lines: page down" in shown
    for _ in range(200):
        state.key("page down")
        state.draw(80, 24)
    assert "line 499" in "\n".join(state.draw(80, 24))


# --- on a terminal ---------------------------------------------------------------------------


@pytest.fixture
def hub(home: "Home") -> Iterator[FakeHub]:
    with FakeHub(str(home.state)) as running:
        yield running


def on_terminal(home: "Home") -> PtyScreen:
    return PtyScreen(home.argv("watch"), home.env, cwd=str(home.root))


def test_watching_and_answering(home: "Home", hub: FakeHub) -> None:
    hub.asks["a000000000001"] = ask_of("a000000000001")
    with on_terminal(home) as screen:
        screen.wait_for("Question a000000000001?")
        hub.asks["a000000000002"] = ask_of("a000000000002", question="Second?")
        hub.screen()
        screen.wait_for("2 open questions")
        screen.type("\x1b[B")
        screen.wait_for(lambda text: "\n| Second?" in text)
        screen.type("\rno\r")
        hub.wait_until(lambda: hub.requests("answer"))
        screen.wait_for('Sam on inbox answered "no"')
        (request,) = hub.requests("answer")
        assert (request["ask"], request["values"]) == ("a000000000002", ["#2"])
        screen.type("q")
        assert screen.finish() == 0
        assert screen.modes() == screen.before
        assert screen.raw.endswith(b"\x1b[?25h\x1b[?1049l")


def test_a_refused_answer_is_explained(home: "Home", hub: FakeHub) -> None:
    def refuse(client: Any, request: Any) -> dict[str, Any]:
        raise Refuse("stale_card", "The program changed its question.")

    hub.asks["a000000000001"] = ask_of("a000000000001")
    hub.handlers["answer"] = refuse
    with on_terminal(home) as screen:
        screen.wait_for("Question")
        screen.type("\ryes\r")
        screen.wait_for("The program changed its question.")


def test_a_lost_hub_is_said_and_found_again(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home) as screen:
        screen.wait_for("nothing is asked right now")
        hub.drop_clients()
        hub.wait_until(lambda: len(hub.requests("watch")) == 2)
        hub.asks["a000000000001"] = ask_of("a000000000001")
        hub.screen()
        shown = screen.wait_for("Question a000000000001?")
        assert "NOT CONNECTED" not in shown


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_killed_watch_gives_the_terminal_back(
    home: "Home", hub: FakeHub, number: signal.Signals, code: int
) -> None:
    with on_terminal(home) as screen:
        screen.wait_for("nothing is asked right now")
        assert screen.modes() != screen.before
        screen.process.send_signal(number)
        assert screen.finish() == code
        assert screen.modes() == screen.before
        assert screen.raw.endswith(b"\x1b[?25h\x1b[?1049l")


def test_type_ahead_is_thrown_away(home: "Home", hub: FakeHub) -> None:
    hub.asks["a000000000001"] = ask_of("a000000000001")
    screen = PtyScreen(home.argv("watch"), home.env, cwd=str(home.root), type_ahead=b"\nyes\nq")
    with screen:
        screen.wait_for("Question")
        screen.wait_for("Enter: answer")
        screen.type("q")
        assert screen.finish() == 0
    assert not hub.requests("answer")


def test_hostile_text_is_escaped(home: "Home", hub: FakeHub) -> None:
    evil = "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e"
    hub.asks["a000000000001"] = ask_of(
        "a000000000001", question=evil, detail=evil, options=[evil, "b"],
        session={"title": evil, "repo": evil, "branch": evil}, note=evil,
    )  # fmt: skip
    with on_terminal(home) as screen:
        screen.wait_for("\\x1b]0;pwned")
        hub.notice(evil, title=evil)
        screen.type("q")
        assert screen.finish() == 0
        assert screen.title == ""
        assert b"\x1b]0" not in screen.raw
        assert b"\x9b" not in screen.raw.replace("›".encode(), b"")
