"""`upcall demo` with the real hub, web inbox and session."""

import os
import pwd
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.pty_screen import PtyScreen
from upcall.cli.demo import program

if TYPE_CHECKING:
    from conftest import Home


def test_the_demo_answers_itself_without_a_terminal_and_leaves_nothing(home: "Home") -> None:
    done = home.run("demo", timeout_s=60)
    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    assert "demo: signed in to the inbox over HTTP" in done.stdout
    for number in (1, 2, 3):
        assert f"demo: {number}/3 " in done.stdout
    assert done.stdout.splitlines()[-1].startswith(
        "demo: done, 3 of 3 answered by itself, through the inbox, in "
    )
    assert not os.listdir(home.env["TMPDIR"])
    assert not home.state.exists()


def _prompts(text: str, question: str) -> bool:
    return question in text and text.rstrip().endswith(">")


def test_the_demo_is_answered_on_the_terminal(home: "Home") -> None:
    with PtyScreen(home.argv("demo"), home.env, cwd=str(home.root), columns=100) as screen:
        # What is typed before the prompt is drawn is thrown away, so wait for the prompt.
        assert "#login=" in screen.wait_for(lambda text: _prompts(text, "1 Deploy"))
        screen.type("1\n")
        screen.wait_for("1/3")
        screen.wait_for(lambda text: _prompts(text, "1 Old logs"))
        screen.type("1, 3\n")
        screen.wait_for("2/3")
        screen.wait_for(lambda text: _prompts(text, "called?"))
        screen.type("First Light\n")
        screen.wait_for('"First Light"')
        assert screen.finish() == 0
        shown = screen.text()
        assert "demo: done, 3 of 3 answered by you" in shown
        assert f"{pwd.getpwuid(os.geteuid()).pw_name} on terminal, after" in shown
    assert not os.listdir(home.env["TMPDIR"])


@pytest.mark.parametrize(
    ("started", "named"),
    [
        (".venv/bin/upcall", ".venv/bin/upcall"),
        ("/elsewhere/bin/upcall", "/elsewhere/bin/upcall"),
        ("upcall/__main__.py", "bin/python -m upcall"),
    ],
)
def test_what_comes_next_names_the_program_as_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: str, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "argv", [started])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    assert program() == named
    tool = tmp_path / "none" / "upcall"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert program() == "upcall"


def test_a_demo_that_is_interrupted_leaves_nothing(home: "Home") -> None:
    with PtyScreen(home.argv("demo"), home.env, cwd=str(home.root), columns=100) as screen:
        screen.wait_for("1 Deploy")
        screen.type("\x03")
        assert screen.finish() == 130
        assert "demo ended; nothing of it is left" in screen.text()
        assert "Traceback" not in screen.text()
    assert not os.listdir(home.env["TMPDIR"])


def test_a_demo_whose_inbox_fails_says_so_and_ends(home: "Home") -> None:
    program = (
        "import sys\nfrom upcall.cli import demo_auto, main\n"
        "demo_auto._WORDS = ' '\nsys.exit(main(['demo', '--auto']))"
    )
    process = home.start_program([sys.executable, "-P", "-c", program])
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out
    assert err.startswith("upcall: the inbox did not take an answer (400)")
    assert len(err.splitlines()) == 2
    assert not os.listdir(home.env["TMPDIR"])


def test_a_terminated_demo_leaves_nothing(home: "Home") -> None:
    process = home.start("demo")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert not os.listdir(home.env["TMPDIR"])
