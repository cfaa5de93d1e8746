"""An upgrade under a running hub: noticed, said, and nobody's question is lost."""

import asyncio
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import upcall
from fakes.clock import FakeClock
from fakes.home import Home, eventually
from fakes.installed import Installed
from upcall.hub.upgrade import LOOK_S, Upgrade, version_on_disk


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # Short, and by itself: the interpreters in it start hubs.
    path = Path(tempfile.mkdtemp(prefix="ui", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def run(home: Home, installed: Installed, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        installed.argv(*words),
        env=home.env,
        cwd=home.path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


def status(home: Home, installed: Installed) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(home, installed, "hub", "status", "--json").stdout)
    return found


def test_a_hub_takes_up_the_version_that_was_installed_under_it(
    home: Home, folder: Path
) -> None:
    installed = Installed(folder / "one", "0.3.1")
    asking = home.start_program(installed.argv("ask", "Kept?", "-o", "yes", "-o", "no"))
    ask_id = asking.asked()
    before = status(home, installed)
    assert before["version"] == "0.3.1"

    installed.set_version("0.4.0")
    eventually(lambda: home.hub_json().get("version") == "0.4.0", within_s=20)
    eventually(lambda: home.ask_state(ask_id)["session"]["state"] == "attached")
    after = status(home, installed)
    # The same process, so that its service manager has not lost it.
    assert after["pid"] == before["pid"]
    assert after["open_asks"] == 1
    assert "hub_stopped reason='upgrade to 0.4.0'" in home.log()
    # The program of the old version that asked before gets its answer.
    assert run(home, installed, "answer", ask_id, "yes").returncode == 0
    assert asking.end().out == "yes\n"

    # The next upgrade is met by a command first, which says so.
    run(home, installed, "ask", "One?", "-o", "yes", "--no-wait")
    run(home, installed, "ask", "Two?", "-o", "yes", "--no-wait")
    installed.set_version("0.4.1")
    alone = run(home, installed)
    assert "hub 0.4.0 is running, this is 0.4.1: upcall hub restart" in alone.stdout
    done = run(home, installed, "asks")
    assert done.stderr.splitlines()[0] == (
        "hub 0.4.0 is running, this is 0.4.1 - restarting it (2 open questions are kept)"
    )
    assert len(done.stdout.splitlines()) == 2
    assert status(home, installed)["version"] == "0.4.1"

    # An older one on disk is only told: it may not know our database.
    installed.set_version("0.2.0")
    pid = home.hub_pid()
    assert run(home, installed, "asks").returncode == 0
    assert home.hub_pid() == pid


def test_another_installation_that_is_newer_puts_its_own_hub_in_place(
    home: Home, folder: Path
) -> None:
    old = Installed(folder / "old", "0.3.1")
    new = Installed(folder / "new", "0.4.0")
    run(home, old, "ask", "Kept?", "-o", "yes", "--no-wait")
    before = status(home, old)
    done = run(home, new, "asks")
    assert done.stderr.startswith(
        "hub 0.3.1 is running, this is 0.4.0 - restarting it (1 open question is kept)\n"
    )
    assert "Kept?" in done.stdout
    after = status(home, new)
    assert (after["version"], after["pid"] == before["pid"]) == ("0.4.0", False)
    # The older one uses it.
    done = run(home, old, "asks")
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_version_that_is_being_replaced_is_none(tmp_path: Path) -> None:
    assert version_on_disk(str(tmp_path)) is None
    path = tmp_path / "__init__.py"
    for text in ("", '__version__ = "0.', 'x = "__version__ = 1"', '__version__ = "\\n1"'):
        path.write_text(text)
        assert version_on_disk(str(tmp_path)) is None
    path.write_bytes(b'\xff\n__version__ = "1.0"\n')
    assert version_on_disk(str(tmp_path)) is None
    path.write_text('"""Doc."""\n__version__ = "1.0"\n')
    assert version_on_disk(str(tmp_path)) == "1.0"


class Watched:
    """An `Upgrade` on a clock of its own, and what it did."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.on_disk: str | None = None
        self.busy = False
        self.restarts: list[str] = []
        self.upgrade = Upgrade(
            clock=self.clock,
            log=_Log(),
            is_busy=lambda: self.busy,
            restart=self.restart,
            changed=lambda: None,
            look=lambda: self.on_disk,
        )

    def restart(self, reason: str) -> bool:
        self.restarts.append(reason)
        return True


class _Log:
    def info(self, event: str, **facts: Any) -> None:
        """Nothing to see."""

    warning = error = debug = info


def test_it_waits_for_settled_files_and_for_claims() -> None:
    async def scenario() -> None:
        watched = Watched()
        task = asyncio.create_task(watched.upgrade.keep())

        async def look(found: str | None) -> None:
            watched.on_disk = found
            await watched.clock.until_waited(LOOK_S)
            await watched.clock.advance(LOOK_S)

        for found in (upcall.__version__, upcall.__version__, None, "9.0.0", None, "9.0.1"):
            await look(found)
            await watched.clock.until_waited(LOOK_S)
        assert watched.restarts == []  # never the same twice
        watched.busy = True
        await look("9.0.1")
        await look("9.0.1")
        await watched.clock.until_waited(LOOK_S)
        assert watched.restarts == []
        watched.busy = False
        await look("9.0.1")
        await task
        assert watched.restarts == ["upgrade to 9.0.1"]

    asyncio.run(scenario())


def test_an_older_version_on_disk_is_told_and_not_taken_up() -> None:
    async def scenario() -> None:
        watched = Watched()
        task = asyncio.create_task(watched.upgrade.keep())
        watched.on_disk = "0.0.1"
        for _ in range(3):
            await watched.clock.until_waited(LOOK_S)
            await watched.clock.advance(LOOK_S)
        await watched.clock.until_waited(LOOK_S)
        assert watched.restarts == []
        problem = watched.upgrade.problem
        assert problem is not None
        assert (problem.code, problem.recover) == ("version_changed", "upcall hub restart")
        watched.on_disk = upcall.__version__
        for _ in range(2):
            await watched.clock.advance(LOOK_S)
            await watched.clock.until_waited(LOOK_S)
        assert watched.upgrade.problem is None
        task.cancel()

    asyncio.run(scenario())
