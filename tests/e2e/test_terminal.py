"""`upcall ask` on a terminal asks right there, and the first answer wins wherever it is."""

import signal
from collections.abc import Iterator

import pytest

from fakes.home import UPCALL, Home, Running, eventually

QUESTION = ("Deploy?", "-o", "Yes", "-o", "No")
ENTER = "\r"
CTRL_C = "\x03"


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


def asked_here(home: Home, *words: str) -> tuple[Running, str]:
    """Start an ask on a terminal and return it with its id, once it waits for a key."""
    asking = home.start("ask", *words, on_terminal=True)
    ask_id = asking.asked()
    asking.line(r"answer here[^\0]*\n> $")  # what is typed before is not taken
    return asking, ask_id


@pytest.mark.parametrize(("typed", "answer"), [("2", "No"), ("yes", "Yes")])
def test_an_answer_typed_here_is_the_answer(home: Home, typed: str, answer: str) -> None:
    asking, ask_id = asked_here(home, *QUESTION)
    asking.type(typed + ENTER)
    done = asking.end()
    # Standard output is the answer alone, though the terminal saw the question.
    assert (done.code, done.out) == (0, f"{answer}\n")
    found = home.until_ask(ask_id, state="closed")
    assert found["answer"]["labels"] == [answer]
    assert found["answered_by"]["channel"] == "terminal"


def test_what_is_no_answer_is_asked_again(home: Home) -> None:
    asking, ask_id = asked_here(home, *QUESTION)
    asking.type("perhaps" + ENTER)
    asking.line(r"> perhaps\r\n[^\0]+> $")
    assert home.ask_state(ask_id)["state"] == "open"
    asking.type("1" + ENTER)
    assert asking.end().out == "Yes\n"


def test_the_losing_prompt_says_who_answered_and_that_its_input_was_not_used(
    home: Home,
) -> None:
    asking, ask_id = asked_here(home, *QUESTION)
    asking.type("1")  # and no Enter
    assert home.run("answer", ask_id, "No").code == 0
    done = asking.end()
    assert (done.code, done.out) == (0, "No\n")
    operator = home.ask_state(ask_id)["answered_by"]["name"]
    assert 'answered "No"' in done.err
    assert operator in done.err
    assert "Your input was not used" in done.err


def test_ctrl_c_on_the_terminal_cancels(home: Home) -> None:
    asking, ask_id = asked_here(home, *QUESTION)
    asking.type(CTRL_C)
    done = asking.end()
    assert (done.code, done.out) == (130, "")
    assert home.until_ask(ask_id, state="closed")["outcome"] == "cancelled"


def test_a_terminal_that_hangs_up_cancels(home: Home) -> None:
    asking, ask_id = asked_here(home, *QUESTION)
    asking.signal(signal.SIGHUP)
    assert asking.end().code == 129
    assert home.until_ask(ask_id, state="closed")["outcome"] == "cancelled"


def test_a_prompt_outlives_the_hub(home: Home) -> None:
    asking, ask_id = asked_here(home, *QUESTION)
    former = home.kill_hub()
    home.next_hub(former)
    eventually(lambda: home.ask_state(ask_id)["session"]["state"] == "attached")
    asking.type("2" + ENTER)
    done = asking.end()
    assert (done.code, done.out) == (0, "No\n"), done
    assert home.until_ask(ask_id, state="closed")["outcome"] == "answered"


def test_without_a_terminal_nothing_is_asked_here(home: Home) -> None:
    asking = home.start("ask", *QUESTION, "--no-terminal", on_terminal=True)
    ask_id = asking.asked()
    assert home.run("answer", ask_id, "Yes").code == 0
    done = asking.end()
    assert done.out == "Yes\n"
    assert "answer here" not in done.err


def test_control_characters_of_a_question_do_not_reach_the_terminal(home: Home) -> None:
    asking, ask_id = asked_here(home, "\x1b]0;owned\x07Go\u202e?", "-o", "a\x1b[31m", "-o", "b")
    assert home.run("answer", ask_id, "#2").code == 0
    done = asking.end()
    for bad in ("\x1b]0", "\x07", "\u202e", "\x1b[31m"):
        assert bad not in done.err


def test_who_reads_the_answer_no_more_has_no_question_open(home: Home) -> None:
    shell = home.start_program(["/bin/sh", "-c", '"$0" "$@" | true', *UPCALL, "ask", *QUESTION])
    ask_id = shell.asked()
    found = home.until_ask(ask_id, state="closed")
    assert found["outcome"] == "cancelled"
    shell.end()
