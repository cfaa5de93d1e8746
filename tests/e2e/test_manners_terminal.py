"""Terminals without a browser: the headless inbox, the demo over SSH, `upcall` alone."""

import re
import signal
import time
from collections.abc import Iterator

import pytest

from fakes.home import UPCALL, Home, eventually
from fakes.pty_screen import PtyScreen

SSH = {"SSH_CONNECTION": "10.0.0.2 5 10.0.0.1 22", "USER": "sam"}
ALONE_WITHIN_S = 1.5  # 0.2 s where nothing else runs; the machine may be busy with tests


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        with made.line("control") as line:
            eventually(lambda: line.ok("status")["web_url"])
        yield made


def watch(home: Home, **more: str) -> PtyScreen:
    return PtyScreen([*UPCALL, "watch"], {**home.env, "NO_COLOR": "1", **more}, cwd=home.path)


# --- watch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_watch_gives_the_terminal_back_when_it_is_ended(home: Home, number: int) -> None:
    with watch(home) as screen:
        screen.wait_for("nothing is asked right now")
        assert screen.modes() != screen.before
        screen.process.send_signal(number)
        assert screen.finish() == 128 + number
        assert screen.modes() == screen.before
        # The cursor is shown and the usual screen is back, after all that was drawn.
        assert screen.raw.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")


def test_watch_needs_no_colour_and_answers_by_keys_alone_on_80_by_24(home: Home) -> None:
    ask_ids = [home.hand_over(f"Question {n}?", "-o", "left", "-o", "right") for n in (1, 2, 3)]
    with watch(home) as screen:
        shown = screen.wait_for("Question 3?")
        assert "3 open questions" in shown
        screen.type("\x1b[B")  # down
        screen.wait_for(lambda text: re.search(r"^>\s+2 ", text, re.MULTILINE) is not None)
        screen.type("\rright\r")
        screen.wait_for("2 open questions")
        screen.type("\x1b[A\rd")  # up; a letter while an answer is typed is part of it
        screen.type("\x7f1\r")
        screen.wait_for("1 open question,")
        screen.type("d\r")
        screen.wait_for("nothing is asked right now")
        screen.type("q")
        assert screen.finish() == 0
        # No colour at all: only the cursor is moved, and lines are cleared.
        assert b"m" not in re.findall(rb"\x1b\[[0-9;?]*([A-Za-z])", screen.raw)
    ends = [home.ask_state(ask_id)["outcome"] for ask_id in ask_ids]
    assert sorted(ends) == ["answered", "answered", "declined"]


# --- no browser ------------------------------------------------------------------------------


def test_inbox_without_a_browser_prints_the_line_that_forwards_the_port(home: Home) -> None:
    port = home.hub_json()["web_url"].rstrip("/").rpartition(":")[2]
    for env in (SSH, {**SSH, "DISPLAY": ":0"}, {"USER": "sam"}):
        with PtyScreen([*UPCALL, "inbox"], {**home.env, **env}, cwd=home.path) as screen:
            shown = " ".join(screen.wait_for("upcall watch").split())
            assert screen.finish() == 0
        assert f"ssh -N -L {port}:127.0.0.1:{port} sam@" in shown
        assert f"then open http://127.0.0.1:{port} - or answer here: upcall watch" in shown


def test_the_demo_over_ssh_says_so_and_is_answered_right_there(home: Home) -> None:
    env = {**home.env, **SSH}
    with PtyScreen([*UPCALL, "demo"], env, cwd=home.path, columns=120) as screen:
        shown = screen.wait_for("Deploy version 1.4")
        flat = " ".join(shown.split())
        assert "no browser here. From your computer: ssh -N -L" in flat
        assert "or answer right here" in flat
        screen.wait_for(lambda text: text.rstrip().endswith(">"))
        screen.type("1\r")
        screen.wait_for(lambda text: "1/3" in text and text.rstrip().endswith(">"))
        screen.type("1,2\r")
        screen.wait_for(lambda text: "2/3" in text and text.rstrip().endswith(">"))
        screen.type("First Light\r")
        screen.wait_for("3 of 3 answered by you")
        assert screen.finish() == 0


# --- upcall alone ----------------------------------------------------------------------------


def test_alone_it_is_quick_clean_in_a_pipe_and_has_three_next_commands(home: Home) -> None:
    ask_id = home.hand_over("Alone?", "-o", "yes")
    began = time.monotonic()
    done = home.run()
    took_s = time.monotonic() - began
    assert (done.code, done.err) == (0, "")
    assert took_s < ALONE_WITHIN_S
    assert "\x1b" not in done.out
    assert "1 open question" in done.out
    assert ask_id in done.out
    nexts = done.out.partition("next:\n")[2].splitlines()
    assert [line.split()[:2] for line in nexts] == [
        ["upcall", "answer"],
        ["upcall", "watch"],
        ["upcall", "inbox"],
    ]
    document = home.run("--json").json
    assert document["asks"][0]["id"] == ask_id
    assert {"channels", "version", "ready"} <= set(document["hub"])
    home.run("answer", ask_id, "--decline")
