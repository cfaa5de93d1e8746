"""S34: links, pipes, foreign owners, loose parents: refused or harmless, whatever the file."""

import asyncio
import grp
import json
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from fakes.home import UPCALL, Home, ended, limit_files
from upcall.cli.errors import Failure
from upcall.cli.service import Unit
from upcall.cli.stored import _nobody_starts_one
from upcall.config import load
from upcall.hub import files, hub_json
from upcall.hub import socket as hub_socket
from upcall.hub.files import FileRefused, SessionFiles
from upcall.hub.lock import HubLock
from upcall.hub.store import backup, epoch
from upcall.hub.store.db import Store
from upcall.hub.upgrade import Handover
from upcall.model.errors import HubError, UpcallError
from upcall.secrets import read_secret
from upcall_discovery import chain, paths
from upcall_discovery.paths import PathProblem
from upcall_discovery.scan import scan

NOBODY: Final = 65534
PRECIOUS: Final = b"precious bytes of somebody\n"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")

HUB_FILE: Final = hub_json.HubFile(
    pid=1, pid_start="x", version="0", ask_sock="/a", control_sock="/c", runtime_dir="/r",
    web_url=None, started_ms=1, protocol=1,
)  # fmt: skip
MARK: Final = epoch.Mark(1, 0, "")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="u") as made:
        os.chmod(made, 0o700)
        yield Path(made)


# --- every file, and every way to put something else in its place ----------------------------


def _lock(path: Path) -> object:
    return HubLock.acquire(str(path.parent), str(path.parent))


def _starting(path: Path) -> object:
    with _nobody_starts_one(str(path.parent)):
        return None


def _backup(path: Path, *, force: bool = False) -> object:
    with tempfile.TemporaryDirectory(prefix="u") as made:
        asyncio.run(Store.open(f"{made}/hub.db").close())
        return backup.make(f"{made}/hub.db", str(path), force=force)


OPENED: Final[dict[str, Callable[[Path], object]]] = {
    "hub.lock": _lock,
    "hub.db": lambda path: Store.open(str(path)),
    "hub.db-wal": lambda path: Store.open(str(path)[: -len("-wal")]),
    "hub.db-shm": lambda path: Store.open(str(path)[: -len("-shm")]),
    "hub.db.epoch": lambda path: epoch.write(str(path)[: -len(".epoch")], MARK),
    "hub.json": lambda path: hub_json.write(str(path.parent), HUB_FILE),
    "hub.json read": lambda path: hub_json.read(str(path.parent)),
    "config.toml": lambda path: load(str(path)),
    "token": lambda path: read_secret("t", {"file": str(path)}),
    "own": lambda path: paths.open_own_file(
        path.name, dir_fd=os.open(path.parent, os.O_RDONLY), path=str(path), append=True
    ),
    "private": lambda path: paths.read_private_file(str(path), 1000),
    "start.lock": _starting,
    "start.lock handed over": lambda path: Handover(detached=True, secrets={}).take_lock(
        str(path.parent)
    ),
    "backup": _backup,
    "backup forced": lambda path: _backup(path, force=True),
    "upcall.service": lambda path: Unit.read(str(path)).text,
    "upcall.service written": lambda path: Unit(str(path), None).write("new"),
    "f" * 32: lambda path: files.SessionFiles(str(path.parent)).keep_copy(
        "s-1", "0" * 32, str(path)
    ),
    "written": lambda path: paths.write_private_file(str(path), b"new", sync=False),
}


# Whatever has the name is replaced; it is never opened.
RENAMED: Final = {"written", "hub.json", "hub.db.epoch", "upcall.service written"}


def symlink(path: Path, target: Path) -> None:
    path.symlink_to(target)


def hard_link(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def fifo(path: Path, _target: Path) -> None:
    os.mkfifo(path, 0o600)


def directory(path: Path, _target: Path) -> None:
    path.mkdir(0o700)


def foreign(path: Path, _target: Path) -> None:
    path.write_bytes(PRECIOUS)
    os.chown(path, NOBODY, NOBODY)
    os.chmod(path, 0o600)


def device(path: Path, _target: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))


PUT = [symlink, hard_link, fifo, directory,
       pytest.param(foreign, marks=as_root), pytest.param(device, marks=as_root)]  # fmt: skip


@pytest.mark.parametrize("put", PUT)
@pytest.mark.parametrize("name", OPENED)
def test_nothing_put_in_a_files_place_is_used_or_changed(
    folder: Path, name: str, put: Callable[[Path, Path], None]
) -> None:
    target = folder / "target"
    target.write_bytes(PRECIOUS)
    target.chmod(0o600)
    path = folder / name.split(" ")[0]
    if name.startswith("hub.db-"):
        (folder / "hub.db").touch(0o600)
    put(path, target)
    problem: Exception | None = None
    got: object = None
    try:
        got = OPENED[name](path)
    except (UpcallError, PathProblem, Failure, OSError) as refused:
        problem = refused
    if isinstance(problem, UpcallError | PathProblem | Failure):
        assert path.name in problem.msg, problem.msg
        assert problem.recover, problem.msg
    elif isinstance(problem, OSError):
        # Nothing can be renamed onto a folder.
        assert put is directory
        assert problem.filename == str(path)
    else:
        # A file that is renamed into place, or one that is only looked for.
        assert not got, got
        if name in RENAMED:
            assert stat.S_ISREG(path.lstat().st_mode)
            assert path.stat().st_ino != target.stat().st_ino
    assert target.read_bytes() == PRECIOUS


@pytest.mark.parametrize("put", PUT)
@pytest.mark.parametrize("name", ["ask.sock", "ask.sock~"])
def test_what_is_in_a_sockets_place_is_left_alone_and_named(
    folder: Path, name: str, put: Callable[[Path, Path], None]
) -> None:
    target = folder / "target"
    target.write_bytes(PRECIOUS)
    put(folder / name, target)
    with pytest.raises(HubError) as refused:
        hub_socket._bound(str(folder / "ask.sock"))
    assert refused.value.code == "socket_path_taken"
    assert name in refused.value.msg
    assert refused.value.recover
    assert target.read_bytes() == PRECIOUS
    assert (folder / name).lstat()


@pytest.mark.parametrize("put", PUT)
def test_only_a_plain_file_of_ours_is_attached_by_its_path(
    folder: Path, put: Callable[[Path, Path], None]
) -> None:
    target = folder / "target"
    target.write_bytes(PRECIOUS)
    put(folder / "out.png", target)
    files = SessionFiles(str(folder / "state"))
    with pytest.raises(FileRefused) as refused:
        files.keep_copy("s-1", "0" * 32, str(folder / "out.png"))
    assert "out.png" in refused.value.msg
    assert files.read("s-1", "0" * 32) is None


def test_a_file_in_a_folder_that_others_can_change_is_not_attached_by_its_path(
    folder: Path,
) -> None:
    """They could put a link to something private there between two looks."""
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "out.png").write_bytes(PRECIOUS)
    files = SessionFiles(str(folder / "state"))
    with pytest.raises(FileRefused) as refused:
        files.keep_copy("s-1", "0" * 32, str(shared / "out.png"))
    assert str(shared) in refused.value.msg
    assert refused.value.recover
    (folder / "out.png").write_bytes(PRECIOUS)
    files.keep_copy("s-1", "0" * 32, str(folder / "out.png"))
    assert files.read("s-1", "0" * 32) == PRECIOUS


@pytest.mark.parametrize("link", ["files", "files/s-1"])
def test_nothing_is_swept_or_removed_behind_a_symlink(folder: Path, link: str) -> None:
    elsewhere = folder / "elsewhere" / "s-1"
    elsewhere.mkdir(mode=0o700, parents=True)
    (elsewhere / ("0" * 32)).write_bytes(PRECIOUS)
    place = folder / "state" / link
    place.parent.mkdir(mode=0o700, parents=True)
    place.symlink_to(elsewhere if link.endswith("s-1") else elsewhere.parent)
    files = SessionFiles(str(folder / "state"))
    assert files.sweep(2**53) == 0
    files.remove("s-1")
    files.remove("..")
    assert (elsewhere / ("0" * 32)).read_bytes() == PRECIOUS
    with pytest.raises(PathProblem):
        files.keep("s-1", "1" * 32, b"x")


# --- the way to the file ---------------------------------------------------------------------


def loose(parent: Path) -> None:
    parent.chmod(0o777)


def shared(parent: Path) -> None:
    os.chown(parent, -1, NOBODY)  # a group that has somebody in it on every system
    parent.chmod(0o770)


def given_away(parent: Path) -> None:
    os.chown(parent, NOBODY, -1)


@pytest.mark.parametrize(
    "change",
    [loose, pytest.param(shared, marks=as_root), pytest.param(given_away, marks=as_root)],
)
@pytest.mark.parametrize(
    "name",
    ["hub.lock", "start.lock", "hub.db", "hub.json", "config.toml", "token", "backup",
     "upcall.service written", "f" * 32],
)  # fmt: skip
def test_a_way_that_somebody_else_can_change_is_refused_by_name(
    folder: Path, name: str, change: Callable[[Path], None]
) -> None:
    parent = folder / "parent"
    inside = parent / "state"
    inside.mkdir(mode=0o700, parents=True)
    change(parent)
    path = inside / name.split(" ")[0]
    if name in {"config.toml", "token", "f" * 32}:
        path.write_bytes(b"# x\n")
        path.chmod(0o600)
    problem: UpcallError | PathProblem | None = None
    before = path.exists()
    try:
        OPENED[name](path)
    except (UpcallError, PathProblem) as refused:
        problem = refused
    assert problem is not None
    assert str(parent) in problem.msg
    assert problem.recover
    assert os.listdir(inside) == ([path.name] if before else [])


def test_a_sticky_folder_on_the_way_is_no_harm(folder: Path) -> None:
    shared_by_all = folder / "tmp"
    shared_by_all.mkdir()
    shared_by_all.chmod(0o1777)
    (shared_by_all / "state").mkdir(0o700)
    os.close(paths.open_private_dir(str(shared_by_all / "state")))


@as_root
def test_a_group_with_nobody_else_in_it_may_write_on_the_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = folder / "local"
    (parent / "state").mkdir(mode=0o700, parents=True)
    os.chown(parent, -1, 54_321)
    parent.chmod(0o775)
    monkeypatch.setattr(chain, "_has_no_other_member", lambda gid: gid == 54_321)
    os.close(paths.open_private_dir(str(parent / "state")))
    monkeypatch.setattr(chain, "_has_no_other_member", lambda gid: False)
    with pytest.raises(PathProblem):
        os.close(paths.open_private_dir(str(parent / "state")))


def test_a_symlink_of_ours_on_the_way_is_followed_and_one_in_the_place_is_not(
    folder: Path,
) -> None:
    (folder / "disk" / "state").mkdir(mode=0o700, parents=True)
    (folder / "local").symlink_to(folder / "disk")
    os.close(paths.open_private_dir(str(folder / "local" / "state")))
    (folder / "state").symlink_to(folder / "disk" / "state")
    with pytest.raises(PathProblem) as refused:
        paths.open_private_dir(str(folder / "state"))
    assert refused.value.code == "folder_symlink"


def test_a_swap_between_the_look_and_the_opening_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that was checked is the one that is written to, whatever its name leads to."""
    mine, theirs = folder / "mine", folder / "theirs"
    mine.mkdir(0o700)
    theirs.mkdir(0o700)

    def swapped(path: str, *, private: bool = True) -> int:
        fd = chain.open_chain(path, private=private)
        mine.rename(folder / "moved")
        mine.symlink_to(theirs)
        return fd

    monkeypatch.setattr(paths, "_open_chain", swapped)
    paths.write_private_file(str(mine / "file"), b"new", sync=False)
    assert os.listdir(theirs) == []
    assert (folder / "moved" / "file").read_bytes() == b"new"


ACCOUNTS: Final = {"me": (1000, 1000), "you": (1001, 1001), "boss": (0, 0)}


@pytest.mark.parametrize(
    ("gid", "name", "members", "is_ours"),
    [
        (1000, "me", [], True),  # the private group of a system with umask 002
        (1000, "me", ["me", "boss"], True),
        (1000, "me", ["gone"], True),
        (1000, "me", ["you"], False),
        (2000, "team", ["me"], True),
        (2000, "team", ["me", "you"], False),
        (1001, "you", [], False),  # somebody's own group, though it lists nobody
        (1001, "you", ["me"], False),
    ],
)
def test_a_group_is_ours_alone_only_if_nobody_else_is_in_it_by_any_way(
    monkeypatch: pytest.MonkeyPatch, gid: int, name: str, members: list[str], is_ours: bool
) -> None:
    accounts = {
        who: pwd.struct_passwd((who, "x", uid, first, "", "/", "/bin/sh"))
        for who, (uid, first) in ACCOUNTS.items()
    }
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((name, "x", gid, members)))
    monkeypatch.setattr(pwd, "getpwall", lambda: list(accounts.values()))
    monkeypatch.setattr(pwd, "getpwnam", accounts.__getitem__)
    assert chain._has_no_other_member(gid) is is_ours


# --- records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("put", PUT)
def test_a_record_that_is_something_else_is_refused_with_the_reason(
    folder: Path, put: Callable[[Path, Path], None]
) -> None:
    target = folder / "target"
    target.write_bytes(PRECIOUS)
    sessions = folder / "sessions"
    sessions.mkdir(0o700)
    put(sessions / "s-1.json", target)
    found = scan(str(sessions), now_ms=0)
    assert not found.live
    (refusal,) = found.refused
    assert refusal.path.endswith("s-1.json")
    assert target.read_bytes() == PRECIOUS


# --- whole commands --------------------------------------------------------------------------


def run(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*UPCALL, *words], env=env, cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


@as_root
@pytest.mark.foreign_uid
def test_a_folder_that_another_user_made_before_us_is_named_and_never_waited_for() -> None:
    with Home() as home:
        os.mkdir(home.state, 0o777)
        os.chown(home.state, NOBODY, NOBODY)
        os.chmod(home.state, 0o777)
        done = run(home.env, "ask", "Q?", "--no-wait")
        assert done.returncode == 1, done
        assert home.state in done.stderr
        assert "Traceback" not in done.stderr
        assert os.listdir(home.state) == []


VICTIM: Final = 64_329
AS_VICTIM: Final = """
import os, sys
from upcall_discovery import chain, paths  # before we may no longer read where they are
import encodings.idna, grp, pwd, json
os.setgroups([]); os.setgid(64329); os.setuid(64329)
for attempt in (paths.runtime_dir, lambda: os.close(paths.open_private_dir(sys.argv[1]))):
    try:
        print(json.dumps(["used", attempt()]))
    except paths.PathProblem as problem:
        print(json.dumps([problem.code, problem.msg, problem.recover]))
"""


@as_root
@pytest.mark.foreign_uid
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777, 0o1777])
def test_the_shared_places_folder_of_another_user_is_refused_by_name(mode: int) -> None:
    taken = f"/tmp/upcall-{VICTIM}"
    os.mkdir(taken)
    try:
        os.chown(taken, NOBODY, NOBODY)
        os.chmod(taken, mode)
        done = subprocess.run(
            [sys.executable, "-c", AS_VICTIM, taken], cwd="/", stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=10, check=False,
            env={"HOME": "/", "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            code, told, fix = json.loads(line)
            assert code == "folder_foreign"
            assert f"{taken} belongs to user {NOBODY}, not to {VICTIM}" in told
            assert taken in fix
        assert len(done.stdout.splitlines()) == 2
        assert os.listdir(taken) == []
    finally:
        os.rmdir(taken)


@pytest.mark.parametrize("name", ["hub.log", "start.lock", "hub.db", "hub.lock", "ask.sock"])
@pytest.mark.parametrize("put", [symlink, fifo])
def test_a_start_with_something_in_the_place_of_a_file_is_safe_and_in_words(
    name: str, put: Callable[[Path, Path], None]
) -> None:
    with Home() as home:
        os.makedirs(home.state, 0o700)
        target = Path(home.path, "target")
        target.write_bytes(PRECIOUS)
        put(Path(home.state, name), target)
        done = run(home.env, "hub", "start")
        assert target.read_bytes() == PRECIOUS
        assert "Traceback" not in done.stderr
        if done.returncode != 0:
            assert name in done.stderr, done.stderr
            assert len(done.stderr.splitlines()) >= 2, "and what to do"
        else:
            assert name == "ask.sock"  # what a former hub left there is cleared away
            pid = home.hub_pid()
            assert pid is not None
            assert run(home.env, "hub", "stop").returncode == 0
            assert ended(pid, 10)


def test_a_copy_that_finds_no_room_names_itself_and_what_to_do() -> None:
    size_bytes = 20_000
    with Home() as home:
        home.start_hub()
        target = f"{home.path}/copy"
        done = subprocess.run(
            [*UPCALL, "hub", "backup", target], env=home.env, cwd="/",
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False,
            preexec_fn=limit_files(size_bytes),
        )  # fmt: skip
        assert done.returncode == 1, done
        told, fix = done.stderr.strip().splitlines()
        assert told == f"upcall: no room is left for {target}; nothing was written"
        assert f"limit of {size_bytes} bytes" in fix
        assert "ulimit -f" in fix
        assert fix.endswith("then try again")
        assert not [name for name in os.listdir(home.path) if "copy" in name]


def test_the_descriptors_that_a_hub_holds_are_not_inherited() -> None:
    with Home() as home:
        pid = home.start_hub()
        for name in os.listdir(f"/proc/{pid}/fd"):
            with open(f"/proc/{pid}/fdinfo/{name}") as file:
                flags = next(line for line in file if line.startswith("flags:"))
            assert int(flags.split()[1], 8) & os.O_CLOEXEC or int(name) < 3, name


if sys.platform != "linux":
    del test_the_descriptors_that_a_hub_holds_are_not_inherited
