"""A person's first ten minutes, from an empty home folder, in the terminals of a real tmux.

What the terminals show stands in docs/first-ten-minutes.md. `WRITE_DOCS=1` writes it
there; otherwise the test compares, after replacing what differs from run to run.
"""

import contextlib
import getpass
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fakes.tmux import TMUX, Pane, Tmux

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "first-ten-minutes.md"
ID: Final = re.compile(r"\ba[0-9a-hjkmnp-tv-z]{12}\b")
SHOWN_IDS: Final = ("a7q2m4x9kt3wc", "a3hv8c0nz5r1e", "ab6dj2p7ys4fk", "a9wt0g5mq8n2x")
BLOCK: Final = r"(<!-- terminal: {} -->\n```\n)(.*?)(^```$)"

pytestmark = [
    pytest.mark.skipif(
        TMUX is None and os.environ.get("UPCALL_TEST_BROWSER") != "required",
        reason="needs tmux",
    ),
    pytest.mark.timeout(120),
]


class Story:
    """Terminals of one person, and what each step of the story showed."""

    def __init__(self, tmux: Tmux, home: Path, run: Path) -> None:
        self._tmux = tmux
        self._home = home
        self._run = run
        self._ids: list[str] = []
        self.steps: dict[str, str] = {}

    def pane(self, name: str) -> Pane:
        return self._tmux.pane(name)

    @contextlib.contextmanager
    def step(self, name: str, pane: Pane) -> Iterator[int]:
        """Keep what *pane* shows of this block as the step *name*, prompt and command included.

        Yields where in the pane's text the step begins.
        """
        begin = pane.text().rindex("$")
        yield begin
        text = pane.text()[begin:].strip("\n")
        self.steps[name] = self._told(text.removesuffix("\n$")) + "\n"

    def id_in(self, pane: Pane, after: int) -> str:
        found = pane.see(ID.pattern, after=after).group()
        if found not in self._ids:
            self._ids.append(found)
        return found

    def _told(self, text: str) -> str:
        for real, shown in zip(self._ids, SHOWN_IDS, strict=False):
            for length in range(len(real), 3, -1):
                text = re.sub(rf"\b{real[:length]}\b", shown[:length], text)
        text = text.replace(str(self._home), "~").replace(str(self._run), "/run/user/1000")
        for pattern in ASIDE:
            text = re.sub(pattern, "", text + "\n", flags=re.MULTILINE).removesuffix("\n")
        text = re.sub(rf"\b{re.escape(getpass.getuser())}\b", "ada", text)
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "laptop", text)
        for pattern, shown in STABLE:
            text = re.sub(pattern, shown, text)
        return text


# What another program on the port, or a container around the tests, adds.
ASIDE: Final = (
    r"^upcall: port \d+ is held by[^;]*;\s+a page at port \d+ is not the inbox\n",
    r"^  ! port \d+ is held by.*\n",
    r"^warn  port \d+ is held by.*\n.*\n",
    r"^in a container,[^;]*;[^$]*?does not get there\n",
)

# What differs from run to run, and what stands in the document for it.
STABLE: Final = (
    (r"\b\d+(?:\.\d+)? (ms|s)\b", r"2 \1"),
    (r"\b2 ms\b", "2 s"),
    (r"\b\d{4}-\d\d-\d\d\b", "2026-03-14"),
    (r"\b\d\d:\d\d(?::\d\d)?\b", "14:02"),
    (r"\bpid \d+", "pid 4711"),
    (r"\bpts/\d+", "pts/1"),
    (r"(127\.0\.0\.1:)\d+", r"\g<1>8737"),
    (r"-L \d+:", "-L 8737:"),
    (r"\bport \d+", "port 8737"),
    (r"#login=\w+", "#login=k7qf9w2m5t8x3c6v0n4bz1hd7r"),
    (r"\bpython 3[.\d]+", "python 3.13.1"),
)


@pytest.fixture
def story() -> Iterator[Story]:
    folder = Path(tempfile.mkdtemp(prefix="u-"))
    home = folder / "home"
    run = folder / "run"
    home.mkdir(mode=0o700)
    run.mkdir(mode=0o700)
    programs = Path(sys.executable).parent
    env = {
        "HOME": str(home),
        "USER": getpass.getuser(),
        "LOGNAME": getpass.getuser(),
        "PATH": f"{programs}:/usr/bin:/bin",
        "XDG_RUNTIME_DIR": str(run),
        "UPCALL_IDLE_EXIT_S": "60",
    }
    try:
        with Tmux(folder, env, home) as tmux:
            yield Story(tmux, home, run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_the_first_ten_minutes_go_as_the_document_shows_them(story: Story) -> None:
    mine = story.pane("one")
    with story.step("look", mine):
        mine.run("upcall")

    with story.step("confirm", mine) as begin:
        typed = mine.start("upcall confirm 'Deploy to production?' && echo deploying")
        ask_id = story.id_in(mine, begin)
        mine.see("#decline", after=begin)
        other = story.pane("two")
        with story.step("answer", other):
            other.run("upcall asks")
            other.run(f"upcall answer {ask_id[:5]} yes")
        mine.ready(typed)
    assert story.steps["confirm"].endswith("\ndeploying\n")

    with story.step("ask", mine) as begin:
        typed = mine.start("upcall ask 'Which colour?' -o red -o green")
        story.id_in(mine, begin)
        mine.see(r"^>", after=begin)
        mine.type("2")
        mine.key("Enter")
        mine.ready(typed)
    assert story.steps["ask"].endswith("\ngreen\n")

    with story.step("later", mine) as begin:
        mine.run("id=$(upcall ask 'Ship it tonight?' -o yes -o no --no-wait)")
        story.id_in(mine, begin)
        mine.run("upcall")

    with story.step("inbox", mine):
        mine.run("upcall inbox")

    with story.step("wait", mine):
        mine.run("upcall answer $id no")
        mine.run("upcall wait $id")

    with story.step("doctor", mine):
        mine.run("upcall doctor")

    with story.step("stop", mine):
        mine.run("upcall hub stop")

    _compare_with_the_document(story.steps)


def _compare_with_the_document(steps: dict[str, str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"<!-- terminal: (\w+) -->", page)
    assert named == list(steps) or set(named) == set(steps), "each step stands there once"
    written = page
    for name, text in steps.items():
        block = re.compile(BLOCK.format(name), re.MULTILINE | re.DOTALL)
        found = block.search(page)
        assert found is not None, f"no block for {name}"
        if _squeezed(found[2]) != _squeezed(text):
            written = written.replace(found[0], found[1] + text + found[3])
    if os.environ.get("WRITE_DOCS") == "1":
        PAGE.write_text(written, encoding="utf-8")
    else:
        assert page == written, "WRITE_DOCS=1 writes what the terminals show now"


def _squeezed(text: str) -> str:
    """Return *text* without what depends on the length of names and times."""
    return " ".join(re.sub(r"just now|\d+ s ago", "0 s ago", text).split())
