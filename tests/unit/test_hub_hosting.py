"""Files that sessions attach: what is kept, under which names, and what is refused."""

import os
import stat
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.hub_shells import short_folder
from upcall.hub.files import FileRefused, SessionFiles
from upcall.model.limits import MAX_ATTACHMENT_BYTES
from upcall.model.quotas import Limits

ID = "0" * 31 + "1"
OTHER = "0" * 31 + "2"


@pytest.fixture
def state() -> Iterator[Path]:
    with short_folder() as path:
        yield Path(path)


def test_keeps_a_file_privately_under_our_own_name(state: Path) -> None:
    files = SessionFiles(str(state))
    former = os.umask(0)
    try:
        files.keep_encoded("s-1", ID, b64encode(b"hello").decode())
    finally:
        os.umask(former)
    path = state / "files" / "s-1" / ID
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert files.read("s-1", ID) == b"hello"
    files.remove("s-1")
    assert files.read("s-1", ID) is None


@pytest.mark.parametrize("data", ["%%%", "abc", "aGk=\n"])
def test_refuses_what_is_no_base64(state: Path, data: str) -> None:
    with pytest.raises(FileRefused):
        SessionFiles(str(state)).keep_encoded("s-1", ID, data)
    assert not (state / "files").exists()


def test_refuses_what_is_too_large_before_decoding_it(state: Path) -> None:
    files = SessionFiles(str(state))
    with pytest.raises(FileRefused) as caught:
        files.keep_encoded("s-1", ID, "A" * (MAX_ATTACHMENT_BYTES * 2))
    assert caught.value.code == "attachment_too_large"
    with pytest.raises(FileRefused, match=r"limits\.file_bytes") as over:
        files.keep("s-1", ID, bytes(Limits().file_bytes + 1))
    assert over.value.code == "limit_reached"
    files.keep_encoded("s-1", ID, b64encode(bytes(MAX_ATTACHMENT_BYTES)).decode())


def test_a_session_has_a_limit_for_its_files_of_an_hour_and_for_all(state: Path) -> None:
    now_s = [1e9]
    limits = Limits(file_bytes=1000, files_bytes_per_hour=3000, stored_bytes=5000)
    files = SessionFiles(str(state), limits, lambda: now_s[0])

    def keep(number: int, session: str = "s-1") -> None:
        files.keep(session, f"{number:032x}", bytes(1000))
        path = state / "files" / session / f"{number:032x}"
        os.utime(path, (now_s[0], now_s[0]))

    for number in range(3):
        keep(number)
    with pytest.raises(FileRefused, match=r"3000 \(limits\.files_bytes_per_hour\)") as over:
        keep(3)
    assert over.value.code == "limit_reached"
    keep(3, "s-2")
    now_s[0] += 3601
    keep(4)
    keep(5)
    with pytest.raises(FileRefused, match=r"5000 \(limits\.stored_bytes\)"):
        keep(6)


@pytest.mark.parametrize("name", ["../x", "x" * 32, "", "0" * 31, "0" * 33, "A" * 32])
def test_nothing_outside_the_folder_is_named(state: Path, name: str) -> None:
    files = SessionFiles(str(state))
    with pytest.raises(FileRefused):
        files.keep("s-1", name, b"x")
    assert files.read("s-1", name) is None


@pytest.mark.parametrize("session", ["..", ".", "a/b", "", "a\0b"])
def test_no_session_id_leads_out_of_the_folder(state: Path, session: str) -> None:
    files = SessionFiles(str(state))
    with pytest.raises(FileRefused):
        files.keep(session, ID, b"x")
    assert files.read(session, ID) is None
    files.remove(session)
    assert state.exists()


def test_copies_a_regular_file_of_ours(state: Path) -> None:
    source = state / "plot.png"
    source.write_bytes(b"png")
    files = SessionFiles(str(state))
    files.keep_copy("s-1", ID, str(source))
    assert files.read("s-1", ID) == b"png"


def test_copies_nothing_else(state: Path) -> None:
    files = SessionFiles(str(state))
    real = state / "real"
    real.write_bytes(b"x")
    (state / "link").symlink_to(real)
    os.mkfifo(state / "pipe")
    large = state / "large"
    with large.open("wb") as file:
        file.truncate(Limits().file_bytes + 1)
    for path in (state / "link", state / "pipe", state, state / "none", large):
        with pytest.raises(FileRefused):
            files.keep_copy("s-1", ID, str(path))
    for text in ("real", "", "/a\0b"):
        with pytest.raises(FileRefused):
            files.keep_copy("s-1", ID, text)


def test_a_planted_link_is_not_followed(state: Path) -> None:
    outside = state / "outside"
    outside.mkdir()
    (state / "files").mkdir(mode=0o700)
    (state / "files" / "s-1").symlink_to(outside)
    with pytest.raises(Exception, match="symlink"):
        SessionFiles(str(state)).keep("s-1", ID, b"x")
    assert list(outside.iterdir()) == []


def test_old_files_are_swept(state: Path) -> None:
    files = SessionFiles(str(state))
    files.keep("s-1", ID, b"old")
    files.keep("s-1", OTHER, b"new")
    os.utime(state / "files" / "s-1" / ID, (1, 1))
    assert files.sweep(before_ms=5000) == 1
    assert files.read("s-1", ID) is None
    assert files.read("s-1", OTHER) == b"new"
    os.utime(state / "files" / "s-1" / OTHER, (1, 1))
    assert files.sweep(before_ms=5000) == 1
    assert not (state / "files" / "s-1").exists()
