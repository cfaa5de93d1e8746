"""Questions of jobs that a shell puts aside and brings back, in terminals of a real tmux."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.home import UPCALL, Home
from fakes.tmux import TMUX, Pane, Tmux

pytestmark = [
    pytest.mark.skipif(
        TMUX is None and os.environ.get("UPCALL_TEST_BROWSER") != "required",
        reason="needs tmux",
    ),
    pytest.mark.timeout(120),
]
DRAWN = r"\n> ?\Z"


@pytest.fixture(scope="module")
def tmux() -> Iterator[Tmux]:
    folder = Path(tempfile.mkdtemp(prefix="ut", dir="/tmp"))
    with Home() as home:
        home.start_hub()
        command = folder / "upcall"
        command.write_text(f'#!/bin/sh\nexec {" ".join(UPCALL)} "$@"\n')
        command.chmod(0o700)
        path = f"{folder}:{os.path.dirname(sys.executable)}:{home.env['PATH']}"
        env = {**home.env, "PATH": path, "UPCALL_INVOKED": "0"}
        with Tmux(folder, env, folder) as made:
            yield made
    shutil.rmtree(folder)


@pytest.fixture
def pane(tmux: Tmux, request: pytest.FixtureRequest) -> Pane:
    return tmux.pane(f"p{abs(hash(request.node.name)) % 10_000}")


def answered(pane: Pane, begin: int) -> str:
    pane.ready(begin)
    return pane.text()[begin:]


def test_a_question_of_the_background_is_asked_once_it_is_in_front(pane: Pane) -> None:
    begin = pane.start("upcall ask 'In front?' -o left -o right &")
    pane.see(r"asked a\w+|nobody can see question a\w+", after=begin)
    assert "answer here" not in pane.text()[begin:]
    pane.key("Enter")
    begin = pane.start("fg")
    # What is typed before the question is there is meant for nobody: the shell must not run it.
    pane.see(rf"In front\?[^$]*{DRAWN}", after=begin)
    pane.type("2")
    pane.key("Enter")
    assert "\nright\n" in answered(pane, begin)


def test_a_question_that_was_put_aside_is_drawn_again(pane: Pane) -> None:
    begin = pane.start("upcall ask 'Aside?' -o left -o right")
    pane.see(DRAWN, after=begin)
    pane.type("1")
    pane.key("C-z")
    pane.see(r"Stopped", after=begin)
    pane.ready(begin)
    # Another question has the terminal meanwhile: who is put aside does not hold it.
    other = pane.start("upcall ask 'Other?' -o a -o b")
    pane.see(rf"Other\?[^$]*{DRAWN}", after=other)
    pane.type("b")
    pane.key("Enter")
    assert "\nb\n" in answered(pane, other)
    begin = pane.start("fg")
    pane.see(rf"Aside\?[^$]*{DRAWN}", after=begin)
    pane.type("right")
    pane.key("Enter")
    assert "\nright\n" in answered(pane, begin)


def test_a_secret_that_was_put_aside_is_typed_unseen_again(pane: Pane) -> None:
    begin = pane.start("upcall ask 'Token?' --secret")
    pane.see(DRAWN, after=begin)
    pane.key("C-z")
    pane.see(r"Stopped", after=begin)
    pane.ready(begin)
    assert "seen-here" in pane.run("echo seen-here")
    begin = pane.start("fg")
    pane.see(rf"Token\?[^$]*{DRAWN}", after=begin)
    pane.type("hunter2")
    pane.key("Enter")
    shown = answered(pane, begin)
    assert shown.count("hunter2") == 1, shown  # the answer on stdout alone
    assert "seen-again" in pane.run("echo seen-again")


def test_two_questions_of_two_jobs_never_mix(pane: Pane) -> None:
    begin = pane.start(
        "upcall ask 'Second?' -o c -o d & sleep 1; upcall ask 'First?' -o a -o b"
    )
    pane.see(rf"First\?[^$]*{DRAWN}", after=begin)
    pane.type("1")
    pane.key("Enter")
    pane.see(r"^a$", after=begin)
    pane.ready(begin)
    begin = pane.start("fg")
    pane.see(rf"Second\?[^$]*{DRAWN}", after=begin)
    pane.type("2")
    pane.key("Enter")
    assert "\nd\n" in answered(pane, begin)


def test_a_question_of_the_background_says_nothing_into_another(pane: Pane, tmux: Tmux) -> None:
    begin = pane.start(
        "(sleep 1; upcall ask 'Behind?' -o c -o d) & upcall ask 'Front?' -o a -o b"
    )
    pane.see(rf"Front\?[^$]*{DRAWN}", after=begin)
    known = pane.text()
    other = tmux.pane("listing")
    # Raised as well, it has had its say, but not here.
    assert "listed" in other.run("until upcall asks | grep -q Behind; do :; done; echo listed")
    assert pane.text() == known
    pane.type("1")
    pane.key("Enter")
    pane.see(r"^a$", after=len(known))
    # Its line comes after the end of the one in front.
    found = pane.see(r"(asked|see question) a\w+", after=len(known))
    assert found.start() > pane.text().index("\na\n", len(known) - 5)
    # What it says of its end comes whenever it ends, also after the shell's prompt.
    begin = pane.start("kill %1")
    pane.see(r"is cancelled", after=begin)
