"""The hub's log: one event, one line, private, without secrets."""

import logging
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from upcall.log import LOG_FILES, open_log
from upcall.model.errors import HubError
from upcall.scrub import Scrubber

SECRET = "correct horse battery staple"
TOKEN = "ghp_" + "a1B2" * 9
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) \S+ .*")


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    for handler in handlers:
        root.removeHandler(handler)
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hub.log"


def test_an_event_is_one_line_with_its_facts(path: Path) -> None:
    log = open_log(str(path), "info", Scrubber())
    log.info("session_attached", session="s1", count=3)
    (line,) = path.read_text().splitlines()
    assert LINE.fullmatch(line)
    assert line.endswith("session_attached session='s1' count=3")


def test_a_bound_fact_is_in_every_line(path: Path) -> None:
    log = open_log(str(path), "info", Scrubber()).bind(channel="web")
    log.info("opened")
    log.warning("closed")
    assert all("channel='web'" in line for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("level", "kept"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_a_level_keeps_what_is_as_grave(path: Path, level: str, kept: int) -> None:
    log = open_log(str(path), level, Scrubber())
    log.debug("one")
    log.info("two")
    log.warning("three")
    log.error("four")
    assert len(path.read_text().splitlines()) == kept


@pytest.mark.parametrize(
    "text",
    ["two\nlines", "\x1b]0;title\x07", "a\rb", "\u202eevil", "\u2028", "\x9b2J", "\ud800"],
)
def test_whatever_is_in_it_a_line_stays_one_plain_line(path: Path, text: str) -> None:
    log = open_log(str(path), "info", Scrubber())
    log.info("said", text=text)
    logging.getLogger("library").warning("said %s", text)
    written = path.read_bytes().decode()
    assert written.count("\n") == 2
    for line in written.splitlines():
        assert line.isprintable(), line
        assert LINE.fullmatch(line)


def test_a_traceback_is_one_line_too(path: Path) -> None:
    log = open_log(str(path), "info", Scrubber())
    try:
        raise ValueError(f"password is {SECRET}")
    except ValueError:
        logging.getLogger("library").exception("failed")
    log.info("after")
    assert len(path.read_text().splitlines()) == 2
    assert "ValueError" in path.read_text()


def test_a_known_secret_is_in_no_line(path: Path) -> None:
    scrubber = Scrubber()
    scrubber.add(SECRET)
    log = open_log(str(path), "debug", scrubber)
    log.info("opened", token=SECRET, url=f"ws://127.0.0.1/?token={SECRET}")
    logging.getLogger("library").debug("GET %s", SECRET)
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("library").exception("failed")
    assert SECRET not in path.read_text()
    assert "***" in path.read_text()


def test_what_looks_like_a_credential_is_masked(path: Path) -> None:
    log = open_log(str(path), "info", Scrubber())
    log.info("said", text=f"use {TOKEN} for it")
    written = path.read_text()
    assert TOKEN not in written
    assert f"[token, {len(TOKEN)} characters]" in written
    assert "for it" in written


def test_a_short_word_is_no_secret() -> None:
    scrubber = Scrubber()
    scrubber.add("yes")
    assert scrubber.clean("yes or no") == "yes or no"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_read_the_file(path: Path, umask: int) -> None:
    former = os.umask(umask)
    try:
        open_log(str(path), "info", Scrubber()).info("opened")
    finally:
        os.umask(former)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_open_to_all_is_closed_to_them(path: Path) -> None:
    path.write_text("")
    path.chmod(0o666)
    open_log(str(path), "info", Scrubber())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_not_followed(tmp_path: Path, path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    path.symlink_to(target)
    with pytest.raises(HubError, match=r"is a symlink"):
        open_log(str(path), "info", Scrubber())
    assert target.read_text() == "untouched"


def test_what_is_not_a_file_of_ours_alone_is_refused(tmp_path: Path, path: Path) -> None:
    """A pipe would make the hub wait; a second name is somebody else's file."""
    os.mkfifo(path)
    with pytest.raises(HubError, match="log"):
        open_log(str(path), "info", Scrubber())
    path.unlink()
    target = tmp_path / "precious"
    target.write_text("untouched")
    target.chmod(0o644)
    os.link(target, path)
    with pytest.raises(HubError, match="has 2 hard links"):
        open_log(str(path), "info", Scrubber())
    assert target.read_text() == "untouched"
    assert target.stat().st_mode & 0o777 == 0o644


def test_old_lines_make_room_and_stay_private(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upcall.log.LOG_BYTES", 3000)
    log = open_log(str(path), "info", Scrubber())
    for _ in range(12):
        log.info("said", text="x" * 900)
    files = sorted(path.parent.iterdir())
    assert len(files) == LOG_FILES
    for file in files:
        assert file.stat().st_size <= 3000
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_warnings_of_python_are_logged(path: Path) -> None:
    # In a process of its own: pytest catches warnings before anybody else.
    code = (
        "import sys, warnings\n"
        "from upcall.log import open_log\n"
        "from upcall.scrub import Scrubber\n"
        "open_log(sys.argv[1], 'info', Scrubber())\n"
        "warnings.warn('an old way', stacklevel=1)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    assert "an old way" in path.read_text()
    assert len(path.read_text().splitlines()) == 1


def test_without_a_file_it_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    open_log(None, "info", Scrubber()).info("opened", port=1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.rstrip().endswith("opened port=1")
