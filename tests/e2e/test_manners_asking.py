"""Asking from scripts: what is said at once, from wherever, and who may be shown it."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fakes.home import UPCALL, Home, eventually
from fakes.hub_line import INBOX_UNSEEN, FakeHub
from fakes.pty_screen import PtyScreen
from upcall.cli import asking, waiting
from upcall.cli.errors import Failure
from upcall.cli.signals import EndingSignals
from upcall.line import mint_ask_id

OPTIONS = ("-o", "yes", "-o", "no")
MINUTE_S = 60.0


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        # Where HOME alone leads to, as with most people.
        made.state_home = made.env["XDG_STATE_HOME"] = f"{made.path}/.local/state"
        made.state = f"{made.state_home}/upcall"
        made.start_hub()
        yield made


# --- from wherever ---------------------------------------------------------------------------

_PATH = "/usr/bin:/bin"
_PLACES: dict[str, Mapping[str, str]] = {
    "cron": {"LOGNAME": "sam", "PATH": _PATH, "SHELL": "/bin/sh"},
    "systemd": {
        "LOGNAME": "sam", "USER": "sam", "SHELL": "/bin/bash", "PATH": _PATH,
        "INVOCATION_ID": "0123", "JOURNAL_STREAM": "8:1",
    },
    "ssh host upcall": {
        "USER": "sam", "PATH": _PATH, "SSH_CONNECTION": "10.0.0.2 5 10.0.0.1 22", "LANG": "C",
    },
    "sudo -u": {
        "USER": "sam", "LOGNAME": "sam", "SUDO_USER": "root", "SUDO_UID": "0", "PATH": _PATH,
        "SUDO_COMMAND": "/usr/bin/upcall",
    },
    "env -i HOME=...": {},
}  # fmt: skip


@pytest.mark.parametrize("place", list(_PLACES))
def test_the_same_hub_is_found_from_everywhere(home: Home, place: str) -> None:
    pid = home.hub_pid()
    done = subprocess.run(
        [*UPCALL, "ask", f"From {place}?", *OPTIONS, "--no-wait"],
        env={"HOME": home.path, **_PLACES[place]},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert home.hub_pid() == pid
    assert home.ask_state(done.stdout.strip())["question"] == f"From {place}?"


@pytest.mark.foreign_uid
@pytest.mark.parametrize("words", [["ask", "Q?", "--no-wait"], ["notify", "x"], ["asks"]])
def test_root_with_another_users_home_leaves_nothing_there(
    tmp_path: Path, words: list[str]
) -> None:
    theirs = Path(f"/tmp/uf{os.getpid()}")
    theirs.mkdir(mode=0o700)
    try:
        os.chown(theirs, 65534, 65534)
        done = subprocess.run(
            [*UPCALL, *words],
            env={"HOME": str(theirs), "PATH": _PATH, "SUDO_USER": "sam"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 1
        assert str(theirs) in done.stderr
        assert "belongs to user 65534" in done.stderr
        assert "sudo" in done.stderr
        assert list(theirs.iterdir()) == []
    finally:
        shutil.rmtree(theirs)


def test_a_logout_that_takes_the_runtime_folder_leaves_the_hub_in_reach(home: Home) -> None:
    asking_one = home.start("ask", "Still there?", *OPTIONS)
    ask_id = asking_one.asked()
    pid = home.hub_pid()
    # As the end of a login session without lingering does; at once, before the hub mends it.
    gone = f"{home.path}/gone"
    os.rename(home.runtime_home, gone)
    shutil.rmtree(gone)

    def published() -> bool:
        # In place or elsewhere: hub.json, in the state folder, says where.
        sessions = Path(home.hub_json().get("runtime_dir", "")) / "sessions"
        return sessions.is_dir() and any(sessions.iterdir())

    eventually(published, within_s=6, what="the record is published again")
    assert home.hub_pid() == pid
    # A new login has no such folder either.
    done = home.run("answer", ask_id, "yes", env={"XDG_RUNTIME_DIR": "/run/user/none"})
    assert done.code == 0, done
    assert asking_one.end().out == "yes\n"


# --- who can see it --------------------------------------------------------------------------


class Clock:
    """Time that passes only while somebody waits, and then at once."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.jumps = 0
        self.until: Any = None

    def now(self) -> float:
        return self.now_s

    def wait_for(
        self, reads: Iterable[int], output: int | None, timeout_s: float | None
    ) -> tuple[set[int], bool]:
        ready = waiting.wait_for(reads, output, 0.0)
        if ready[0]:
            return ready
        assert timeout_s is not None
        self.now_s += timeout_s
        self.jumps += 1
        if self.until is not None and self.until():
            return waiting.wait_for(reads, output, 20.0)
        return ready


@pytest.fixture
def alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A scripted hub of this very process' own home."""
    with Home() as other:
        for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"):
            monkeypatch.setenv(name, other.env[name])
        with FakeHub(other.state) as hub:
            hub.channels = INBOX_UNSEEN
            yield hub


def ask_of(ask_id: str) -> dict[str, Any]:
    return {
        "id": ask_id, "question": "Ship?", "options": ["yes", "no"], "multi": False,
        "free_text": False, "class": "question",
    }  # fmt: skip


def unseen_line(ask_id: str) -> str:
    return (
        f"nobody can see question {ask_id} yet: no channel is set up and no browser is "
        f"signed in. Answer: upcall answer {ask_id} yes. Open the inbox: upcall inbox"
    )


def test_nobody_can_see_it_is_said_at_once_and_every_ten_minutes(
    alone: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, ask_id = Clock(), mint_ask_id()

    def answer_after_an_hour() -> bool:
        if clock.now_s - 1000.0 >= 60 * MINUTE_S:
            alone.answer(ask_id, 0)
            return True
        return False

    clock.until = answer_after_an_hour
    one = asking.Asking(
        ask_of(ask_id), {"program": "t", "cwd": "/"}, quiet=False, unseen_fails=False,
        prompt=None, now=clock.now, wait_for=clock.wait_for,
    )  # fmt: skip
    assert one.run(EndingSignals())["outcome"] == "answered"
    one.close()
    told = [line for line in capsys.readouterr().err.splitlines() if "nobody" in line]
    assert told == [unseen_line(ask_id)] * 7
    assert asking.SAY_AGAIN_S == 10 * MINUTE_S


def test_unseen_fail_gives_up_after_exactly_a_minute(alone: FakeHub) -> None:
    clock, ask_id = Clock(), mint_ask_id()
    one = asking.Asking(
        ask_of(ask_id), {"program": "t", "cwd": "/"}, quiet=True, unseen_fails=True,
        prompt=None, now=clock.now, wait_for=clock.wait_for,
    )  # fmt: skip
    with pytest.raises(Failure) as caught:
        one.run(EndingSignals())
    assert caught.value.code == "nobody_reachable"
    assert clock.now_s - 1000.0 == pytest.approx(MINUTE_S)
    assert eventually(lambda: alone.requests("cancel"))


def test_a_pipe_gets_one_line_without_colour(home: Home) -> None:
    done = home.run("ask", "\x1b[31mRed?\x1b[0m", *OPTIONS, "--no-wait", env={"TERM": "xterm"})
    first = done.err.splitlines()[0]
    assert first == unseen_line(done.out.strip())
    assert "\x1b" not in done.err + done.out


# --- ending ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_the_ask_and_says_so(home: Home, number: int) -> None:
    one = home.start("ask", "Ended?", *OPTIONS)
    ask_id = one.asked()
    one.signal(number)
    done = one.end()
    assert (done.code, done.out) == (128 + number, "")
    assert done.err.endswith(f"question {ask_id} is cancelled\n")
    assert home.until_ask(ask_id, state="closed")["outcome"] == "cancelled"


def test_a_killed_asker_leaves_no_open_question(home: Home) -> None:
    one = home.start("ask", "Killed?", *OPTIONS)
    ask_id = one.asked()
    one.kill()
    assert home.until_ask(ask_id, state="closed")["outcome"] == "unreachable"


# --- one terminal ----------------------------------------------------------------------------

_TWO = """
import subprocess, sys
upcall = [sys.executable, "-P", "-m", "upcall", "ask"]
first = subprocess.Popen([*upcall, "First?", "-o", "red", "-o", "green"])
input_is_shown = sys.stdin  # never read: the prompts have the terminal
second = subprocess.Popen([*upcall, "Second?", "-o", "one", "-o", "two"])
print("ended", first.wait(), second.wait(), flush=True)
"""


def one_question(shown: str) -> str:
    """Return the question whose prompt is on the screen; there is only one."""
    questions = [word for word in ("First?", "Second?") if word in shown]
    assert len(questions) == 1, shown
    return questions[0]


def test_two_asks_on_one_terminal_queue_and_never_mix(home: Home) -> None:
    argv = [sys.executable, "-P", "-c", _TWO]
    with PtyScreen(argv, home.env, cwd=home.path) as screen:
        shown = screen.wait_for("\n>")
        eventually(lambda: len(home.run("asks").out.splitlines()) >= 2)
        first = one_question(screen.text())
        screen.type("2\r")
        other = {"First?": "Second?", "Second?": "First?"}[first]
        screen.wait_for(other)
        screen.wait_for(lambda text: text.rstrip().endswith(">") and other in text)
        screen.type("1\r")
        shown = screen.wait_for("ended 0 0")
    assert shown.count("> 2") == 1
    assert shown.index("> 2") < shown.index(f"\n| {other}") < shown.index("> 1")


def test_an_end_elsewhere_makes_room_beside_the_question_on_the_screen(home: Home) -> None:
    argv = [sys.executable, "-P", "-c", _TWO]
    with PtyScreen(argv, home.env, cwd=home.path) as screen:
        screen.wait_for("\n>")
        listed = eventually(
            lambda: (
                [
                    line
                    for line in home.run("asks").out.splitlines()
                    if "First?" in line or "Second?" in line
                ][1:]
                and home.run("asks").out.splitlines()
            )
        )
        other = {"First?": "Second?", "Second?": "First?"}[one_question(screen.text())]
        (line,) = [line for line in listed if other in line]
        assert home.run("answer", line.split()[0], "#2").code == 0
        label = {"First?": "green", "Second?": "two"}[other]
        # On lines of its own, and the prompt is there again below.
        screen.wait_for(lambda text: f"\n{label}\n" in text and text.rstrip().endswith("\n>"))
        screen.type("1\r")
        screen.wait_for("ended 0 0")
