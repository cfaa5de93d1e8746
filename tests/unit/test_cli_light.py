"""Light commands stay light: what they import is pinned, and so is what the line may know."""

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fakes.hub_line import FakeHub

if TYPE_CHECKING:
    from conftest import Home

_PROGRAM = """
import atexit, json, sys
bare = set(sys.modules)
atexit.register(lambda: open({out!r}, "w").write(json.dumps(sorted(set(sys.modules) - bare))))
from upcall.cli import main
sys.exit(main({argv!r}))
"""
_HEAVY = (
    "asyncio", "pathlib", "dataclasses", "typing", "tomllib", "logging", "subprocess",
    "unicodedata", "shutil", "tempfile", "importlib.metadata", "inspect", "threading",
    "msgspec", "websockets", "aiohttp", "structlog", "rich", "sqlite3", "email", "http",
    "upcall.model", "upcall.core", "upcall.session", "upcall.hub", "upcall.config",
    "upcall_adapters", "upcall_discovery.record", "upcall_discovery.liveness",
)  # fmt: skip
_OURS = ("upcall", "upcall.line", "upcall.cli", "upcall_discovery", "upcall_discovery.paths")


def modules_of(home: "Home", *argv: str) -> set[str]:
    """Run `upcall` in a child process and return the modules that it imported."""
    out = str(home.root / "modules.json")
    program = _PROGRAM.format(out=out, argv=list(argv))
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=home.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with open(out, encoding="utf-8") as file:
        return set(json.load(file))


def assert_light(modules: set[str]) -> None:
    heavy = {m for m in modules for name in _HEAVY if m == name or m.startswith(f"{name}.")}
    assert not heavy
    ours = {m for m in modules if m.startswith("upcall")}
    assert all(m.startswith(_OURS) for m in ours)


@pytest.mark.parametrize("command", ["ask", "confirm", "wait", "notify", "answer", "asks"])
def test_help_is_light(home: "Home", command: str) -> None:
    assert_light(modules_of(home, command, "--help"))


def test_the_overall_help_needs_no_parser_and_no_socket(home: "Home") -> None:
    modules = modules_of(home, "--help")
    assert_light(modules)
    assert not modules & {"argparse", "socket", "json"}


def test_a_whole_ask_is_light(home: "Home") -> None:
    with FakeHub(str(home.state)) as hub:
        hub.after_ask = lambda ask: hub.answer(ask["id"], 0)
        modules = modules_of(home, "ask", "Colour?", "-o", "red", "--no-terminal")
    assert_light(modules)
    assert not modules & {"argparse", "gettext", "fcntl", "termios", "socket"}


def test_a_whole_notify_is_light(home: "Home") -> None:
    with FakeHub(str(home.state)):
        assert_light(modules_of(home, "notify", "Done"))


def test_a_whole_answer_and_wait_are_light(home: "Home") -> None:
    with FakeHub(str(home.state)) as hub:
        home.run("ask", "Colour?", "-o", "red", "--no-wait", "-q")
        ask_id = hub.first_ask()["id"]
        assert_light(modules_of(home, "answer", ask_id, "red"))
        assert_light(modules_of(home, "wait", ask_id))
