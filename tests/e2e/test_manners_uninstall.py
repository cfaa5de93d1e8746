"""`upcall uninstall`: everything of ours, nothing of anybody else, and never unasked."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.managers import UNIT, stand_ins
from fakes.pty_screen import PtyScreen
from upcall.cli import undo
from upcall.cli.completion import script
from upcall.cli.uninstall import removal_command
from upcall_discovery.liveness import identify

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Home


def hand_over(home: "Home", question: str) -> None:
    done = home.run("ask", question, "-o", "yes", "--no-wait", "-q")
    assert done.returncode == 0, done.stderr


def files_in(*folders: Path) -> set[str]:
    return {
        os.path.join(where, name)
        for folder in folders
        for where, folders_in, names in os.walk(folder)
        for name in [*folders_in, *names]
    }


def ours(home: "Home") -> set[str]:
    """Return everything called upcall in the home's folders."""
    return {path for path in files_in(home.root) if "/upcall" in path}


def test_everything_goes_in_one_command_the_hub_first(home: "Home") -> None:
    home.env["PATH"] = stand_ins(home.root / "bin", linger=True)
    home.write_config("[hub]\nlog_level = 'info'\n")
    hand_over(home, "Lost?")
    assert home.run("service", "install").returncode == 0
    fish = home.config.parent.parent / "fish" / "completions" / "upcall.fish"
    fish.parent.mkdir(parents=True)
    fish.write_text(script("fish") + "\n")
    hub = home.hub()
    assert hub is not None

    done = home.run("uninstall", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    for what in (UNIT, "upcall.fish", f"pid {hub.pid}", "hub.db", "config.toml"):
        assert what in done.stdout
    assert "1 open question is lost" in done.stdout
    assert "-m pip uninstall upcall" in done.stdout
    assert home.hub() == hub
    assert fish.exists()

    done = home.run("uninstall", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert home.hub() is None
    assert identify(hub.pid) is None
    assert ours(home) == set()
    assert "nothing of upcall is left here" in home.run("uninstall", "--yes").stdout


def test_without_a_terminal_it_needs_a_yes_and_says_what_is_lost_also_without_a_hub(
    home: "Home",
) -> None:
    hand_over(home, "One?")
    hand_over(home, "Two?")
    home.stop_hub()
    before = ours(home)
    done = home.run("uninstall", stdin="y\n")
    assert done.returncode == 2
    assert "2 open questions are lost" in done.stdout
    assert "nothing was removed" in done.stderr
    assert "--yes" in done.stderr
    assert ours(home) == before


@pytest.mark.parametrize(("typed", "code"), [("n\r", 1), ("\r", 1), ("y\r", 0)])
def test_on_a_terminal_it_asks_and_only_yes_is_yes(home: "Home", typed: str, code: int) -> None:
    hand_over(home, "Lost?")
    # What was typed ahead is no answer to a question that nobody had read.
    with PtyScreen(home.argv("uninstall"), home.env, type_ahead=b"y\n") as screen:
        screen.wait_for("Remove all this and lose 1 open question? [y/N]")
        screen.type(typed)
        assert screen.finish() == code
    assert home.state.exists() == bool(code)


def test_keep_data_keeps_questions_files_logs_and_configuration(home: "Home") -> None:
    home.write_config("[hub]\n")
    hand_over(home, "Kept?")
    done = home.run("uninstall", "--keep-data", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "lost" not in done.stdout
    left = {path.name for path in home.state.iterdir()}
    assert {"hub.db", "hub.log", "audit.anchors"} <= left
    assert not left & {"ask.sock", "control.sock", "hub.json", "start.lock", "hub.lock"}
    assert home.config.exists()
    assert "Kept?" in home.run("asks").stdout


def test_what_is_not_ours_stays_and_is_named(home: "Home") -> None:
    hand_over(home, "X?")
    home.write_config("")
    precious = home.root / "precious"
    precious.mkdir()
    (precious / "hub.db").write_text("precious")
    home.stop_hub()
    strangers: dict[str, Callable[[Path], object]] = {
        "notes.txt": lambda path: path.write_text("mine"),
        "hub.log.1": lambda path: path.symlink_to(precious / "hub.db"),
        "hub.db.before-1": lambda path: path.mkdir(),
        "evil\x1b[2J": lambda path: path.write_text("x"),
    }
    for name, make in strangers.items():
        make(home.state / name)
    (home.state / "files").mkdir(exist_ok=True)
    (home.state / "files" / "link").symlink_to(precious)
    (home.config.parent / "telegram.token").write_text("secret of another tool")
    done = home.run("uninstall", "--yes")
    assert done.returncode == 0, done.stderr
    for name in strangers:
        assert os.path.lexists(home.state / name)
        assert f"not ours: {home.state / name}".replace("\x1b", "\\x1b") in done.stdout
    assert "\x1b" not in done.stdout
    assert {path.name for path in home.state.iterdir()} == set(strangers)
    assert (precious / "hub.db").read_text() == "precious"
    assert (home.config.parent / "telegram.token").exists()
    assert not home.config.exists()


def test_a_state_folder_that_is_a_symlink_is_not_followed(home: "Home") -> None:
    elsewhere = home.root / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "hub.db").write_text("precious")
    home.state.symlink_to(elsewhere)
    done = home.run("uninstall", "--yes")
    assert f"{home.state} is a symlink" in done.stdout
    assert (elsewhere / "hub.db").read_text() == "precious"


def test_a_program_that_still_runs_keeps_its_record(home: "Home") -> None:
    code = (
        "import asyncio\nfrom upcall import Session\n"
        "async def main():\n async with Session('Living', hub=False):\n"
        "  print('up', flush=True)\n  await asyncio.Event().wait()\nasyncio.run(main())"
    )
    program = home.start_program([sys.executable, "-P", "-c", code])
    assert program.stdout is not None
    assert program.stdout.readline() == "up\n"
    (record,) = (home.runtime / "sessions").glob("*.json")
    done = home.run("uninstall", "--yes")
    assert f"a program that still runs: {record}" in done.stdout
    assert record.exists()


@pytest.mark.foreign_uid
def test_root_with_another_users_home_removes_nothing_of_theirs(home: "Home") -> None:
    hand_over(home, "Theirs?")
    home.write_config("")
    hub = home.hub()
    files = home.state / "files"
    files.mkdir(mode=0o700, exist_ok=True)
    (files / "kept").touch()
    os.chown(home.state, 65534, 65534)
    try:
        done = home.run("uninstall", "--yes")
        assert "is another user's; run it as that user" in done.stdout
        assert home.hub() == hub
        assert (files / "kept").exists()
        assert home.config.exists()
    finally:
        os.chown(home.state, 0, 0)


def test_a_file_that_was_replaced_meanwhile_is_not_removed(
    home: "Home", monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    home.state.mkdir(mode=0o700)
    (home.state / "hub.log").write_text("log")
    (one,) = [left for left in undo.find_all(keep_data=False) if left.remove is not None]
    (home.state / "hub.log").unlink()
    (home.state / "hub.log").symlink_to("/etc/passwd")
    assert one.remove is not None
    one.remove()
    assert (home.state / "hub.log").is_symlink()


@pytest.mark.parametrize(
    ("mark", "command"),
    [
        ("uv-receipt.toml", "uv tool uninstall upcall"),
        ("pipx_metadata.json", "pipx uninstall upcall"),
        (None, "/p/python -m pip uninstall upcall"),
    ],
)
def test_the_program_itself_is_removed_by_who_installed_it(
    tmp_path: Path, mark: str | None, command: str
) -> None:
    if mark is not None:
        (tmp_path / mark).touch()
    assert removal_command(str(tmp_path), "/p/python") == command
