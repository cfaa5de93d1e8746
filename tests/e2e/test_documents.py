"""The examples of the documents do what the documents say, against a real hub."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from upcall.line import HubLine

ROOT: Final = Path(__file__).resolve().parents[2]
_PYTHON: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Home(Protocol):
    """What these tests need of the `home` fixture."""

    root: Path
    state: Path
    env: dict[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]: ...

    def start_program(
        self, argv: list[str], *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]: ...


def example(page: str, mark: str, kind: re.Pattern[str] = _PYTHON) -> str:
    """Return the one example of *page* that holds *mark*."""
    blocks = kind.findall((ROOT / page).read_text(encoding="utf-8"))
    (found,) = [block for block in blocks if mark in block]
    return str(found)


def first_open_ask(home: Home) -> dict[str, Any]:
    """Wait until an ask is open, and return it."""
    assert home.run("hub", "start").returncode == 0
    with HubLine.connect("control", state=str(home.state)) as line:
        line.request("watch")
        while True:
            event = line.next_event(30)
            assert event is not None, "no question came"
            asks: list[dict[str, Any]] = event.get("asks") or []
            if asks:
                return asks[0]


def start_python(home: Home, code: str, **more: str) -> subprocess.Popen[str]:
    return home.start_program([sys.executable, "-c", code], env={**home.env, **more})


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize(
    ("page", "mark", "printed"),
    [
        ("README.md", 'print("deploying")', "deploying\n"),
        ("README.md", "tests are green", "Yes "),
        ("docs/quickstart.md", "except TimedOut", "('Yes',) "),
        ("docs/how-to.md", "permission=True", "deploying\n"),
    ],
)
def test_an_example_gets_its_answer(home: Home, page: str, mark: str, printed: str) -> None:
    code = example(page, mark)
    if "permission=True" in code:
        # From this process, which has no terminal, the answer would be refused.
        config = home.root / "config" / "upcall" / "config.toml"
        config.parent.mkdir(mode=0o700)
        config.write_text('[policy]\nlocal_answers = "any"\n')
        config.chmod(0o600)
    process = start_python(home, code)
    ask = first_open_ask(home)
    assert ask["options"] == ["Yes", "No"]
    done = home.run("answer", ask["id"], "yes")
    assert done.returncode == 0, done.stderr
    assert finish(process).startswith(printed)


def test_the_example_of_a_client_answers(home: Home) -> None:
    asking = example("README.md", "tests are green")
    process = start_python(home, asking)
    ask = first_open_ask(home)
    path = Path(ask["session"]["record_path"])
    record = json.loads(path.read_text())
    code = example("docs/how-to.md", "SessionClient")
    client = start_python(home, code, URL=record["url"], TOKEN=record["token"])
    assert finish(client) == "Deploy? is answered: Yes\n"
    assert finish(process).startswith("Yes ")


@pytest.mark.parametrize(("answer", "deployed"), [("yes", True), ("no", False)])
def test_the_first_script_of_the_readme(home: Home, answer: str, deployed: bool) -> None:
    script = example("README.md", "./deploy.sh", _SHELL)
    (home.root / "deploy.sh").write_text("#!/bin/sh\ntouch deployed\n")
    (home.root / "deploy.sh").chmod(0o700)
    config = home.root / "config" / "upcall" / "config.toml"
    config.parent.mkdir(mode=0o700)
    config.write_text('[policy]\nlocal_answers = "any"\n')
    config.chmod(0o600)
    folder = os.path.dirname(sys.executable)
    env = {**home.env, "PATH": f"{folder}{os.pathsep}{home.env['PATH']}"}
    process = home.start_program(["sh", "-c", script], env=env)
    ask = first_open_ask(home)
    done = home.run("answer", ask["id"], answer)
    assert done.returncode == 0, done.stderr
    process.communicate(timeout=40)
    assert process.returncode == (0 if deployed else 3)
    assert (home.root / "deployed").exists() == deployed
