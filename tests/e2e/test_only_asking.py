"""A box that holds ask.sock and nothing else: it can ask, and it can do nothing else.

A hard link stands for the bind mount: it is the same socket in another folder, and needs no
rights to make.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.home import UPCALL, Done, Home

OPTIONS = ("-o", "yes", "-o", "no")


class Box:
    """A place of its own, with the socket of *home*'s hub in its state folder."""

    def __init__(self, home: Home) -> None:
        self.folder = Path(home.path, "box")
        state = self.folder / "upcall"
        state.mkdir(mode=0o700, parents=True)
        self.folder.chmod(0o700)
        os.link(f"{home.state}/ask.sock", state / "ask.sock")

    def run(self, *words: str) -> Done:
        done = subprocess.run(
            [*UPCALL, *words],
            env={"HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def holds(self) -> list[str]:
        return sorted(os.listdir(self.folder / "upcall"))


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


@pytest.fixture
def box(home: Home) -> Box:
    home.start_hub()
    return Box(home)


def test_it_asks_and_collects_its_answer(home: Home, box: Box) -> None:
    asked = box.run("ask", "From the box?", *OPTIONS, "--no-wait")
    assert asked.code == 0, asked
    ask_id = asked.out.strip()
    assert home.ask_state(ask_id)["question"] == "From the box?"
    assert box.run("notify", "hello").code == 0
    assert home.run("answer", ask_id, "no").code == 0
    waited = box.run("wait", ask_id)
    assert (waited.code, waited.out) == (0, "no\n"), waited
    assert box.holds() == ["ask.sock"]


@pytest.mark.parametrize(
    "words",
    [
        ["asks"],
        ["answer", "a123", "yes"],
        ["sessions"],
        ["inbox"],
        ["hub", "stop"],
        ["hub", "status"],
        ["hub", "restart"],
        ["hub", "backup", "b.db"],
    ],
    ids=" ".join,
)
def test_it_does_nothing_else_and_says_where_that_is_done(box: Box, words: list[str]) -> None:
    done = box.run(*words)
    assert done.code == 1, done
    assert "run it where the hub runs" in done.err
    assert box.holds() == ["ask.sock"]


def lent(home: Home, *words: str) -> Done:
    """Run upcall where only a variable says where the socket is, and nothing can be written."""
    path = Path(home.path, "lent.sock")
    if not path.exists():
        os.link(f"{home.state}/ask.sock", path)
    done = subprocess.run(
        [*UPCALL, *words],
        env={"HOME": "/nonexistent", "UPCALL_ASK_SOCKET": str(path)},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_the_socket_may_lie_anywhere_if_a_variable_names_it(home: Home) -> None:
    home.start_hub()
    asked = lent(home, "ask", "From elsewhere?", *OPTIONS, "--no-wait")
    assert asked.code == 0, asked
    assert lent(home, "notify", "hello").code == 0
    assert home.run("answer", asked.out.strip(), "yes").code == 0
    waited = lent(home, "wait", asked.out.strip())
    assert (waited.code, waited.out) == (0, "yes\n"), waited
    refused = lent(home, "asks")
    assert refused.code == 1, refused
    assert "UPCALL_ASK_SOCKET" in refused.err or "can ask, and nothing else" in refused.err
    home.kill_hub()
    gone = lent(home, "ask", "Q?", "--no-wait")
    assert gone.code == 1, gone
    assert "lent.sock, and none is started here: this place can only ask" in gone.err
    assert not Path("/nonexistent").exists()


def test_it_says_what_it_is(box: Box) -> None:
    assert "this place can ask, and nothing else" in box.run().out
    assert "this place can ask, and nothing else" in box.run("doctor").out
    assert box.holds() == ["ask.sock"]


def test_without_the_hub_it_says_so_and_starts_none(home: Home, box: Box) -> None:
    home.kill_hub()  # which leaves the socket's file behind
    for words in (["ask", "Q?", "--no-wait"], ["notify", "x"]):
        done = box.run(*words)
        assert done.code == 1, done
        assert "none is started here: this place can only ask" in done.err
        assert "give this place its new ask.sock" in done.err
    assert box.holds() == ["ask.sock"]
