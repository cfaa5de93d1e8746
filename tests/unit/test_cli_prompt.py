"""The prompt of `upcall ask` on a real terminal."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fakes.hub_line import INBOX_UNSEEN, FakeHub, Refuse
from fakes.pty_screen import PtyScreen

if TYPE_CHECKING:
    from conftest import Home

OPTIONS = ("-o", "yes", "-o", "no")
PROMPT = "\n>"


@pytest.fixture
def hub(home: "Home") -> Iterator[FakeHub]:
    with FakeHub(str(home.state)) as running:
        yield running


def on_terminal(home: "Home", *words: str, **options: Any) -> PtyScreen:
    return PtyScreen(home.argv(*words), home.env, cwd=str(home.root), **options)


def _times(words: str, count: int) -> Callable[[str], bool]:
    return lambda text: text.count(words) >= count


def took(hub: FakeHub) -> dict[str, Any]:
    request: dict[str, Any] = hub.wait_until(
        lambda: [one for one in hub.requests("took") if "answer" in one]
    )[0]
    return request


@pytest.mark.parametrize(
    ("typed", "answer", "out"),
    [
        ("2\n", {"indices": [1]}, "no"),
        ("yes\n", {"indices": [0]}, "yes"),
        ("  YES \n", {"indices": [0]}, "yes"),
        ("#2\n", {"indices": [1]}, "no"),
    ],
)
def test_an_answer_is_typed_by_number_or_label(
    home: "Home", hub: FakeHub, typed: str, answer: dict[str, Any], out: str
) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        shown = screen.wait_for(PROMPT)
        assert "in inbox (1 tab) - answer here: " in " ".join(shown.split())
        assert "Ship it?" in shown
        screen.type(typed)
        assert screen.finish() == 0
        assert screen.text().rstrip().endswith(f"\n{out}")
    request = took(hub)
    assert request["answer"] == answer
    assert request["terminal"].startswith("/dev/")


def test_stdout_gets_the_answer_though_it_is_a_pipe(home: "Home", hub: FakeHub) -> None:
    read_end, write_end = os.pipe()
    with on_terminal(home, "ask", "Ship it?", *OPTIONS, stdout=write_end) as screen:
        os.close(write_end)
        screen.wait_for(PROMPT)
        screen.type("1\n")
        assert screen.finish() == 0
    assert os.read(read_end, 100) == b"yes\n"
    os.close(read_end)


def test_enter_alone_and_nonsense_choose_nothing(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS, "--recommend", "yes") as screen:
        assert "yes  (suggested by the program)" in screen.wait_for(PROMPT)
        for said, typed in enumerate(("\n", "3\n", "ye\n"), 1):
            screen.type(typed)
            screen.wait_for(_times("type a number (1-2) or a label, then Enter", said))
        assert not hub.requests("took")
        screen.type("2\n")
        assert screen.finish() == 0
    assert took(hub)["answer"] == {"indices": [1]}


@pytest.mark.parametrize(("typed", "code"), [("Y", 0), ("n", 3)])
def test_initials_are_yes_and_no_for_confirm(
    home: "Home", hub: FakeHub, typed: str, code: int
) -> None:
    with on_terminal(home, "confirm", "Deploy?") as screen:
        assert "y or n, then Enter" in screen.wait_for(PROMPT)
        screen.type(f"{typed}\n")
        assert screen.finish() == code


def test_ctrl_d_says_how_to_leave_on_a_line_of_its_own_once(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        screen.wait_for(PROMPT)
        screen.type("\x04")
        screen.wait_for("\nto leave: Ctrl-C, which cancels the question\n>")
        screen.type("\x04")
        screen.wait_for(_times("\n>", 3))
        assert screen.text().count("to leave") == 1
        screen.type("yes\n")
        assert screen.finish() == 0


def test_a_losing_prompt_where_nothing_was_typed_speaks_of_no_input(
    home: "Home", hub: FakeHub
) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        screen.wait_for(PROMPT)
        hub.answer(hub.first_ask()["id"], 1)
        assert screen.finish() == 0
        assert 'Sam answered "no" on inbox' in screen.text()
        assert "not used" not in screen.text()
        assert screen.modes() == screen.before


def test_a_wait_on_a_terminal_says_what_for_and_prints_the_answer_once(
    home: "Home", hub: FakeHub
) -> None:
    ask_id = home.run("ask", "Ship it?", *OPTIONS, "--no-wait", "-q").stdout.strip()
    with on_terminal(home, "wait", ask_id) as screen:
        screen.wait_for(f"waiting for “Ship it?” ({ask_id}); Ctrl-C leaves it open")
        hub.answer(ask_id, 1)
        assert screen.finish() == 0
        assert "\nno\nSam on inbox, after " in screen.text()


def test_what_was_typed_before_the_prompt_is_thrown_away(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS, type_ahead=b"yes\nyes\n") as screen:
        screen.wait_for(PROMPT)
        screen.type("no\n")
        assert screen.finish() == 0
    assert took(hub)["answer"] == {"indices": [1]}
    assert len([one for one in hub.requests("took") if "answer" in one]) == 1


def test_words_where_words_are_taken(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home, "ask", "Name?") as screen:
        screen.wait_for(PROMPT)
        screen.type("First Light é\n")
        assert screen.finish() == 0
    assert took(hub)["answer"] == {"text": "First Light é"}


def test_several_by_commas(home: "Home", hub: FakeHub) -> None:
    words = ("ask", "Which?", "-o", "a", "-o", "b c", "-o", "d", "--multi")
    with on_terminal(home, *words) as screen:
        screen.wait_for(PROMPT)
        screen.type("3, b C\n")
        assert screen.finish() == 0
    assert took(hub)["answer"] == {"indices": [1, 2]}


def test_declining_is_a_word(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        screen.wait_for(PROMPT)
        screen.type("#decline\n")
        assert screen.finish() == 3
        assert "declined, not answered: exit 3" in screen.text()


def test_a_losing_prompt_says_who_won_and_uses_nothing_typed(
    home: "Home", hub: FakeHub
) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        screen.wait_for(PROMPT)
        screen.type("yes")
        screen.wait_for("> yes")
        hub.answer(hub.first_ask()["id"], 1)
        assert screen.finish() == 0
        shown = screen.text()
    assert 'Sam answered "no" on inbox' in shown
    assert "Your input was not used." in shown
    assert "> yes" not in shown
    assert shown.rstrip().endswith("\nno")
    assert not [one for one in hub.requests("took") if "answer" in one]


def test_an_answer_that_came_too_late_loses_too(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        screen.wait_for(PROMPT)
        hub._waiters.clear()  # the event is on its way, and slow
        hub.answer(hub.first_ask()["id"], 1)
        screen.type("yes\n")
        assert screen.finish() == 0
        shown = screen.text()
    assert "Your input was not used." in shown
    assert shown.rstrip().endswith("\nno")


def test_a_refused_local_answer_is_explained_and_the_question_goes_on(
    home: "Home", hub: FakeHub
) -> None:
    words = "This answer comes from inside the program that asked."

    def refuse(client: Any, request: Any) -> dict[str, Any]:
        if "answer" in request:
            raise Refuse("self_answer", words)
        return {}

    hub.handlers["took"] = refuse
    with on_terminal(home, "confirm", "Deploy?") as screen:
        screen.wait_for(PROMPT)
        screen.type("1\n")
        screen.wait_for(words)
        hub.answer(hub.first_ask()["id"], 0)
        assert screen.finish() == 0


def test_a_claimed_answer_waits_for_its_end(home: "Home", hub: FakeHub) -> None:
    def claim(client: Any, request: Any) -> dict[str, Any]:
        return {"result": {"id": request["ask"], "outcome": "open"}}

    hub.handlers["took"] = claim
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        screen.wait_for(PROMPT)
        screen.type("yes\n")
        hub.wait_until(lambda: hub.requests("took"))
        hub.answer(hub.first_ask()["id"], 0, name="op", channel="terminal")
        assert screen.finish() == 0
        assert "not used" not in screen.text()
        assert screen.text().rstrip().endswith("\nyes")


def test_ctrl_c_cancels(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        screen.wait_for(PROMPT)
        screen.type("\x03")
        assert screen.finish() == 130
    assert hub.wait_until(lambda: hub.requests("cancel"))


def test_a_killed_prompt_leaves_the_terminal_as_it_was(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        screen.wait_for(PROMPT)
        screen.process.send_signal(signal.SIGKILL)
        screen.process.wait(20)
        assert screen.modes() == screen.before


def test_no_terminal_turns_the_prompt_off(home: "Home", hub: FakeHub) -> None:
    hub.channels = INBOX_UNSEEN
    with on_terminal(home, "ask", "Ship it?", *OPTIONS, "--no-terminal") as screen:
        screen.wait_for("nobody can see question")
        screen.type("yes\n")
        hub.answer(hub.first_ask()["id"], 1)
        assert screen.finish() == 0
        assert PROMPT not in screen.text()
    assert not [one for one in hub.requests("took") if "answer" in one]


def test_a_background_job_does_not_prompt(home: "Home", hub: FakeHub) -> None:
    """A shell with job control puts `&` jobs into process groups of their own."""
    hub.channels = INBOX_UNSEEN
    job = " ".join(home.argv("ask", "Ship", *OPTIONS))
    argv = ["/bin/bash", "-c", f"set -m; {job} & wait $!"]
    with PtyScreen(argv, home.env, cwd=str(home.root)) as screen:
        screen.wait_for("nobody can see question")
        hub.answer(hub.first_ask()["id"], 0)
        assert screen.finish() == 0
        assert PROMPT not in screen.text()


def test_two_questions_on_one_terminal_take_turns(home: "Home", hub: FakeHub) -> None:
    one = " ".join(home.argv("ask", "First", *OPTIONS))
    two = " ".join(home.argv("ask", "Second", *OPTIONS))
    # Without job control both are in the foreground group, as under `make -j`.
    with PtyScreen(["/bin/sh", "-c", f"{one} & {two}; wait"], home.env) as screen:
        screen.wait_for(PROMPT)
        hub.wait_until(lambda: len(hub.requests("ask")) == 2)
        assert sum(word in screen.text() for word in ("First", "Second")) == 1
        assert screen.text().count("asked ") == 1
        screen.type("1\n")
        screen.wait_for(lambda text: "First" in text and "Second" in text)
        screen.wait_for(lambda text: text.count("\n> ") + text.count("\n>\n") >= 2)
        screen.type("1\n")
        assert screen.finish() == 0
    assert sorted(ask["outcome"] for ask in hub.asks.values()) == ["answered", "answered"]


def test_hostile_text_reaches_the_terminal_escaped(home: "Home", hub: FakeHub) -> None:
    evil = "\x1b]0;pwned\x07\x1b[2J\x1b[31m\x9b31m\u202e[/]"
    with on_terminal(
        home, "ask", f"Q {evil}", "-o", f"a {evil}", "-o", "b", "--detail", f"d {evil}"
    ) as screen:
        screen.wait_for(PROMPT)
        assert screen.title == ""
        assert screen.text().count("\\x1b]0;pwned\\x07") >= 3
        assert "\\u202e" in screen.text()
        screen.type("2\n")
        assert screen.finish() == 0
        assert screen.title == ""


def test_numeric_labels_are_picked_by_hash_numbers_only(home: "Home", hub: FakeHub) -> None:
    words = ("ask", "How many?", "-o", "3", "-o", "2", "-o", "1")
    with on_terminal(home, *words) as screen:
        assert "#1 3" in screen.wait_for(PROMPT)
        screen.type("2\n")
        assert screen.finish() == 0
    assert took(hub)["answer"] == {"indices": [1]}


def test_a_lost_hub_keeps_the_prompt(home: "Home", hub: FakeHub) -> None:
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        screen.wait_for(PROMPT)
        hub.drop_clients()
        hub.wait_until(lambda: len(hub.requests("ask")) == 2)
        screen.type("1\n")
        assert screen.finish() == 0
    assert took(hub)["answer"] == {"indices": [0]}


def test_without_any_hub_the_question_is_asked_here(home: "Home") -> None:
    """No hub can be had: the asker hosts the question itself, and its own terminal answers."""
    os.makedirs(home.state, mode=0o700)
    FakeHub(str(home.state)).fail_with("disk_full", "the disk is full")
    with on_terminal(home, "ask", "Ship it?", *OPTIONS) as screen:
        shown = screen.wait_for(PROMPT)
        assert shown.count("the disk is full") == 1
        assert "without a hub" in shown
        screen.type("no\n")
        assert screen.finish() == 0
        assert screen.text().rstrip().endswith("\nno")
    assert not list(home.runtime.glob("sessions/*.json"))


def test_without_any_hub_a_client_of_the_wire_can_answer(home: "Home") -> None:
    os.makedirs(home.state, mode=0o700)
    FakeHub(str(home.state)).fail_with("disk_full", "the disk is full")
    process = home.start("ask", "Ship it?", *OPTIONS)
    assert process.stderr is not None
    while "without a hub" not in process.stderr.readline():
        pass
    program = (
        "import asyncio, os, sys\n"
        "from upcall.client import SessionClient\n"
        "from upcall_discovery.record import parse\n"
        "from upcall_discovery.watch import Watch\n"
        "async def main():\n"
        "    folder = sys.argv[1]\n"
        "    async with Watch([folder], sleep=asyncio.sleep) as watch:\n"
        "        while not (found := [n for n in os.listdir(folder) if n.endswith('.json')]):\n"
        "            await anext(watch)\n"
        "    with open(os.path.join(folder, found[0]), 'rb') as file:\n"
        "        record = parse(file.read(), found[0])\n"
        "    async with SessionClient.from_record(record) as client:\n"
        "        frames = aiter(client)\n"
        "        while not client.asks():\n"
        "            await anext(frames)\n"
        "        await client.reply(client.asks()[0].id, 'yes')\n"
        "asyncio.run(main())\n"
    )
    answerer = subprocess.run(
        [sys.executable, "-P", "-c", program, str(home.runtime / "sessions")],
        env=home.env, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert answerer.returncode == 0, answerer.stderr
    assert process.communicate(timeout=20)[0] == "yes\n"
    assert process.returncode == 0


def test_without_any_hub_a_signal_still_cancels(home: "Home") -> None:
    os.makedirs(home.state, mode=0o700)
    FakeHub(str(home.state)).fail_with("disk_full", "the disk is full")
    process = home.start("ask", "Ship it?", *OPTIONS)
    assert process.stderr is not None
    while "without a hub" not in process.stderr.readline():
        pass
    until = home.runtime / "sessions"
    for _ in range(400):
        if list(until.glob("*.json")):
            break
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    assert not list(until.glob("*.json"))
