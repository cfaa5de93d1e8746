"""A standard output that takes nothing: an exit code and words, never a traceback."""

import os
from collections.abc import Iterator

import pytest

from fakes.home import Done, Home
from upcall.cli import COMMANDS


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


def shell(home: Home, words: str) -> Done:
    program = " ".join(f"'{word}'" for word in home.upcall)
    return home.start_program(["/bin/sh", "-c", words.replace("upcall", program, 1)]).end()


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_no_command_with_json_shows_a_traceback(home: Home, where: str) -> None:
    ends = {"hub": "hub status", "config": "config path", "roots": "roots list"}
    commands = [
        ends.get(name, name)
        for name in COMMANDS
        if name not in {"demo", "uninstall", "watch", "inbox", "lock", "unlock", "doctor"}
    ]
    all_at_once = [
        home.start_program(
            ["/bin/sh", "-c", f'"$@" {where}', "sh", *home.upcall, *one.split(), "--json"]
        )
        for one in commands
    ]
    for one, running in zip(commands, all_at_once, strict=True):
        done = running.end()
        assert "Traceback" not in done.err, (one, done)
        assert "Exception ignored" not in done.err, (one, done)
        assert done.code in {1, 2, 3}, (one, done)
        assert done.err, (one, done)


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_help_that_cannot_be_written_fails(home: Home, where: str) -> None:
    for words in ("ask", "hub", "hub status", ""):
        done = shell(home, f"upcall {words} --help {where}")
        assert done.code == 1, (words, done)
        assert "Traceback" not in done.err
        assert done.err


def test_the_error_is_told_once_where_it_can_be(home: Home) -> None:
    done = home.run("asks", "--limit", "x", "--json")
    assert done.code == 2
    assert done.json["error"]["code"] == "usage"
    assert os.linesep in done.err
