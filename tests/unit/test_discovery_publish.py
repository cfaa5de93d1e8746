import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from upcall_discovery import filesystem
from upcall_discovery.paths import PathProblem
from upcall_discovery.publish import Publication, prepare_project_folder
from upcall_discovery.record import Record, parse

RECORD = Record(
    session_id="one",
    pid=4711,
    host="127.0.0.1",
    port=8123,
    url="ws://127.0.0.1:8123",
    token="tok",
    started_at_ms=1000,
    updated_at_ms=1000,
)
DISCOVERY = str(Path(filesystem.__file__).parent.parent)


@pytest.fixture
def private() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ud-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def read(path: Path) -> Record:
    return parse(path.read_bytes(), path.name)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("sync", [False, True])
def test_a_record_is_published_private_and_whole(private: Path, sync: bool) -> None:
    folder = private / "run" / "sessions"
    old = os.umask(0)
    try:
        Publication(str(folder), RECORD, sync=sync).write()
    finally:
        os.umask(old)
    assert read(folder / "one.json") == RECORD
    assert mode_of(folder / "one.json") == 0o600
    assert mode_of(folder) == 0o700
    assert os.listdir(folder) == ["one.json"]


def test_a_reader_never_sees_half_a_record(private: Path) -> None:
    """Rename, not rewrite: a reader that has the old file open still reads all of it."""
    publication = Publication(str(private), RECORD, sync=False)
    publication.write()
    with (private / "one.json").open("rb") as old:
        publication.refresh(5000, touch=True)
        assert parse(old.read(), "one.json") == RECORD
    assert read(private / "one.json").updated_at_ms == 5000


def test_refresh_leaves_an_untouched_record_alone(private: Path) -> None:
    publication = Publication(str(private), RECORD, sync=False)
    publication.write()
    before = (private / "one.json").stat()
    assert publication.refresh(2000) is False
    assert (private / "one.json").stat().st_ino == before.st_ino
    assert read(private / "one.json").updated_at_ms == 1000


def damage_gone(path: Path) -> None:
    path.unlink()


def damage_folder_gone(path: Path) -> None:
    shutil.rmtree(path.parent)


def damage_content(path: Path) -> None:
    path.write_bytes(b"{}")


def damage_mode(path: Path) -> None:
    path.chmod(0o644)


def damage_link(path: Path) -> None:
    path.with_name("other").hardlink_to(path)


@pytest.mark.parametrize(
    "damage", [damage_gone, damage_folder_gone, damage_content, damage_mode, damage_link]
)
def test_refresh_repairs_what_was_changed_or_vanished(private: Path, damage: object) -> None:
    folder = private / "sessions"
    publication = Publication(str(folder), RECORD, sync=False)
    publication.write()
    assert callable(damage)
    damage(folder / "one.json")
    assert publication.refresh(2000) is True
    path = folder / "one.json"
    assert read(path) == replace(RECORD, updated_at_ms=2000)
    assert (mode_of(path), path.stat().st_nlink) == (0o600, 1)
    assert publication.refresh(3000) is False
    assert publication.record.updated_at_ms == 2000


def test_withdraw_removes_the_record_and_refresh_never_brings_it_back(private: Path) -> None:
    publication = Publication(str(private), RECORD, sync=False)
    publication.write()
    publication.refresh(2000, touch=True)
    publication.withdraw()
    publication.withdraw()
    assert publication.refresh(3000, touch=True) is False
    assert os.listdir(private) == []


def test_withdraw_leaves_another_sessions_record_alone(private: Path) -> None:
    mine = Publication(str(private), RECORD, sync=False)
    mine.write()
    theirs = Publication(str(private), replace(RECORD, pid=99), sync=False)
    theirs.write()
    mine.withdraw()
    assert read(private / "one.json").pid == 99
    theirs.withdraw()
    assert os.listdir(private) == []


def test_withdraw_of_what_is_gone_is_no_error(private: Path) -> None:
    folder = private / "sessions"
    never = Publication(str(folder), RECORD, sync=False)
    never.withdraw()
    gone = Publication(str(folder), RECORD, sync=False)
    gone.write()
    (folder / "one.json").unlink()
    gone.withdraw()
    assert os.listdir(folder) == []


def test_a_record_that_cannot_be_removed_is_marked_stale_without_its_token(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = Publication(str(private), RECORD, sync=False)
    publication.write()

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    # A folder that takes no change; as root the mode of a folder would not stop us.
    monkeypatch.setattr(os, "unlink", refuse)
    publication.withdraw(9000)
    monkeypatch.undo()
    left = read(private / "one.json")
    assert left.stale
    assert (left.token, left.stopped_at_ms) == ("", 9000)
    assert b"tok" not in (private / "one.json").read_bytes().replace(b'"token"', b"")


def test_an_open_folder_takes_no_record(private: Path) -> None:
    private.chmod(0o750)
    with pytest.raises(PathProblem) as problem:
        Publication(str(private), RECORD, sync=False).write()
    assert problem.value.code == "folder_not_private"
    assert os.listdir(private) == []


def test_a_writer_killed_at_any_moment_leaves_a_whole_record_or_none(private: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {DISCOVERY!r})\n"
        "from upcall_discovery.publish import Publication\n"
        "from upcall_discovery.record import Record\n"
        "p = Publication(sys.argv[1], Record('one', 1, '127.0.0.1', 1, 'ws://127.0.0.1:1', "
        "'t' * 1000, 1, 1), sync=False)\n"
        "p.write(); print(flush=True)\n"
        "while True: p.refresh(2, touch=True)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-I", "-c", program, str(private)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    for _ in range(200):
        assert read(private / "one.json").token == "t" * 1000
    writer.kill()
    writer.communicate()
    assert read(private / "one.json").token == "t" * 1000


def test_a_project_folder_is_private_and_kept_out_of_version_control(private: Path) -> None:
    root = private / "project"
    root.mkdir(mode=0o755)
    path = prepare_project_folder(str(root))
    assert path == f"{root}/.upcall/state/sdk"
    assert [mode_of(Path(path)), mode_of(root / ".upcall")] == [0o700, 0o700]
    assert (root / ".upcall" / ".gitignore").read_bytes() == b"*\n"
    before = (root / ".upcall" / ".gitignore").stat().st_ino
    assert prepare_project_folder(str(root)) == path
    assert (root / ".upcall" / ".gitignore").stat().st_ino == before
    Publication(path, RECORD, sync=True).write()


def test_a_repositorys_own_ignore_file_that_ignores_nothing_is_replaced(private: Path) -> None:
    (private / ".upcall").mkdir(mode=0o755)
    ignore = private / ".upcall" / ".gitignore"
    ignore.write_bytes(b"*\n!state\n")
    prepare_project_folder(str(private))
    assert ignore.read_bytes() == b"*\n"


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
@pytest.mark.parametrize("name", ["", ".upcall", ".upcall/state", ".upcall/state/sdk"])
def test_a_project_that_others_can_write_to_takes_no_record(
    private: Path, name: str, mode: int
) -> None:
    root = private / "project"
    root.mkdir()
    prepare_project_folder(str(root))
    (root / name).chmod(mode)
    with pytest.raises(PathProblem) as problem:
        prepare_project_folder(str(root))
    assert problem.value.code == "folder_not_private"


@pytest.mark.parametrize("name", [".upcall", ".upcall/state", ".upcall/state/sdk"])
def test_a_symlink_within_a_project_is_refused(private: Path, name: str) -> None:
    root, elsewhere = private / "project", private / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (root / name).parent.mkdir(parents=True)
    (root / name).symlink_to(elsewhere)
    with pytest.raises(PathProblem) as problem:
        prepare_project_folder(str(root))
    assert problem.value.code == "folder_symlink"
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("kind", ["symlink", "folder", "fifo"])
def test_an_ignore_file_that_is_no_file_is_refused_or_replaced(
    private: Path, kind: str
) -> None:
    (private / ".upcall").mkdir(mode=0o700)
    ignore = private / ".upcall" / ".gitignore"
    target = private / "target"
    target.write_bytes(b"precious")
    if kind == "symlink":
        ignore.symlink_to(target)
    elif kind == "folder":
        ignore.mkdir()
    else:
        os.mkfifo(ignore)
    if kind == "fifo":
        prepare_project_folder(str(private))
        assert ignore.read_bytes() == b"*\n"
    else:
        with pytest.raises((PathProblem, IsADirectoryError)):
            prepare_project_folder(str(private))
    assert target.read_bytes() == b"precious"


def test_a_project_on_a_network_file_system_takes_no_record(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "_mounts", lambda: [("/", "nfs4")])
    with pytest.raises(PathProblem) as problem:
        prepare_project_folder(str(private))
    assert problem.value.code == "folder_network"
    assert os.listdir(private) == []


@pytest.mark.foreign_uid
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")
def test_a_project_of_another_user_takes_no_record(private: Path) -> None:
    root = private / "project"
    root.mkdir()
    os.chown(root, 65534, 65534)
    with pytest.raises(PathProblem) as problem:
        prepare_project_folder(str(root))
    assert problem.value.code == "folder_foreign"
