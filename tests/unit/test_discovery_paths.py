import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from upcall_discovery import filesystem, paths
from upcall_discovery.paths import PathProblem

DISCOVERY = str(Path(paths.__file__).parent.parent)
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")


@pytest.fixture
def private() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ud-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home(private: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(private))
    return private


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_importing_paths_takes_in_no_heavy_module() -> None:
    program = (
        f"import sys; sys.path.insert(0, {DISCOVERY!r}); before = set(sys.modules); "
        "import upcall_discovery.paths; print(*sorted(set(sys.modules) - before))"
    )
    out = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(out.stdout.split())
    assert loaded <= {"upcall_discovery", "upcall_discovery.paths", "errno"}


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has places of its own")
def test_state_and_config_follow_the_xdg_variables_else_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert paths.state_dir() == f"{home}/.local/state/upcall"
    assert paths.config_dir() == f"{home}/.config/upcall"
    monkeypatch.setenv("XDG_STATE_HOME", "/x/state")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/x/config")
    assert (paths.state_dir(), paths.config_dir()) == ("/x/state/upcall", "/x/config/upcall")


def test_relative_variables_are_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "somewhere")
    assert paths.config_dir() == f"{home}/.config/upcall"
    monkeypatch.setenv("HOME", "")
    assert paths.config_dir() == f"{pwd.getpwuid(os.getuid()).pw_dir}/.config/upcall"


def test_macos_has_its_own_places(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    state = f"{home}/Library/Application Support/upcall"
    assert paths.state_dir() == state
    assert paths.runtime_candidates() == [f"{state}/run"]


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has one place only")
@pytest.mark.parametrize("mode", [0o755, 0o750, 0o1777, 0o500])
def test_a_runtime_variable_counts_only_with_mode_0700(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    base = home / "run"
    base.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    assert paths.runtime_candidates()[0] == f"{base}/upcall"
    base.chmod(mode)
    assert f"{base}/upcall" not in paths.runtime_candidates()
    base.chmod(0o700)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has one place only")
def test_a_runtime_variable_that_is_a_symlink_is_passed_over(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "real").mkdir(mode=0o700)
    (home / "link").symlink_to(home / "real")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "link"))
    assert paths.runtime_candidates()[-1] == f"/tmp/upcall-{os.geteuid()}"
    assert not any(place.startswith(str(home)) for place in paths.runtime_candidates())


def test_runtime_dir_makes_the_first_usable_place(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked, good = home / "blocked", home / "good"
    blocked.symlink_to(home)
    monkeypatch.setattr(paths, "runtime_candidates", lambda: [str(blocked), str(good)])
    with pytest.raises(PathProblem) as none_yet:
        paths.runtime_dir(create=False)
    assert none_yet.value.code == "folder_symlink"
    assert paths.runtime_dir() == str(good)
    assert mode_of(good) == 0o700
    assert paths.runtime_dir(create=False) == str(good)


def test_runtime_dir_says_so_when_there_is_none_yet(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "runtime_candidates", lambda: [str(home / "none")])
    with pytest.raises(PathProblem) as problem:
        paths.runtime_dir(create=False)
    assert problem.value.code == "no_runtime"
    assert not (home / "none").exists()


def test_runtime_dir_tells_why_the_last_place_cannot_be_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").write_bytes(b"")
    monkeypatch.setattr(paths, "runtime_candidates", lambda: [str(home / "file" / "upcall")])
    with pytest.raises(PathProblem) as problem:
        paths.runtime_dir()
    assert problem.value.code == "no_runtime"
    assert "file/upcall" in problem.value.msg


def test_places_within_the_state_folder() -> None:
    assert paths.socket_paths("/s") == ("/s/ask.sock", "/s/control.sock")
    assert paths.sessions_dir("/r") == "/r/sessions"
    names = [paths.hub_json("/s"), paths.hub_lock("/s"), paths.start_lock("/s")]
    assert names == ["/s/hub.json", "/s/hub.lock", "/s/start.lock"]
    assert (paths.hub_log("/s"), paths.db_path("/s")) == ("/s/hub.log", "/s/hub.db")


def test_sockets_move_when_their_path_would_be_over_100_bytes() -> None:
    fits = "/" + "s" * (100 - len("//control.sock"))
    assert len(paths.socket_paths(fits)[1]) == 100
    ask, control = paths.socket_paths(fits + "s")
    assert ask.startswith(f"/tmp/upcall-{os.geteuid()}/")
    assert ask.endswith(".ask")
    assert control.endswith(".control")
    assert len(os.path.basename(ask)) == 16 + len(".ask")
    assert paths.socket_paths(fits + "t")[0] != ask


def test_bytes_count_for_a_socket_path_not_characters() -> None:
    assert paths.socket_paths("/" + "é" * 50)[0].startswith("/tmp/")


def test_ensure_private_dir_makes_parents_and_is_repeatable(private: Path) -> None:
    old = os.umask(0)
    try:
        paths.ensure_private_dir(str(private / "a" / "b"))
    finally:
        os.umask(old)
    paths.ensure_private_dir(str(private / "a" / "b"))
    assert mode_of(private / "a" / "b") == 0o700
    assert mode_of(private / "a") == 0o700


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o770, 0o777, 0o701])
def test_ensure_private_dir_refuses_an_open_folder_and_names_the_fix(
    private: Path, mode: int
) -> None:
    folder = private / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PathProblem) as problem:
        paths.ensure_private_dir(str(folder))
    assert problem.value.code == "folder_not_private"
    assert str(folder) in problem.value.msg
    assert problem.value.recover == f"chmod 700 {folder}"
    assert mode_of(folder) == mode, "what exists is never changed"


@pytest.mark.parametrize("kind", ["symlink", "dangling", "file"])
def test_ensure_private_dir_refuses_what_is_no_folder(private: Path, kind: str) -> None:
    target, path = private / "target", private / "path"
    if kind == "file":
        path.write_bytes(b"")
    else:
        path.symlink_to(target)
    if kind == "symlink":
        target.mkdir(mode=0o700)
    with pytest.raises(PathProblem) as problem:
        paths.ensure_private_dir(str(path))
    assert problem.value.code == "folder_symlink"
    assert (kind == "symlink") == target.exists()


@as_root
@pytest.mark.foreign_uid
def test_ensure_private_dir_refuses_a_folder_made_by_another_user(private: Path) -> None:
    folder = private / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(PathProblem) as problem:
        paths.ensure_private_dir(str(folder))
    assert problem.value.code == "folder_foreign"
    assert str(NOBODY) in problem.value.msg


def test_words_about_a_path_carry_no_terminal_control(private: Path) -> None:
    folder = private / "a\x1b]0;x\x07\u202eb\u115f"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(PathProblem) as problem:
        paths.ensure_private_dir(str(folder))
    assert "a\\x1b]0;x\\x07\\u202eb\\u115f" in problem.value.msg


def test_shown_escapes_what_shows_as_nothing() -> None:
    text = "é\ufe0f\U000e0101\udc80\n"
    assert paths.shown(text) == "é\\ufe0f\\U000e0101\\udc80\\x0a"


def test_a_private_file_is_written_0600_whatever_the_umask(private: Path) -> None:
    path = private / "file"
    for umask in (0, 0o777):
        old = os.umask(umask)
        try:
            paths.write_private_file(str(path), b"x" * 100_000, sync=umask == 0)
        finally:
            os.umask(old)
        assert mode_of(path) == 0o600
    assert paths.read_private_file(str(path), 100_000) == b"x" * 100_000
    assert os.listdir(private) == ["file"]


def test_writing_replaces_a_symlink_and_leaves_its_target_alone(private: Path) -> None:
    target, path = private / "target", private / "file"
    target.write_bytes(b"precious")
    path.symlink_to(target)
    paths.write_private_file(str(path), b"new", sync=False)
    assert target.read_bytes() == b"precious"
    assert not path.is_symlink()


def test_a_full_disk_leaves_the_former_file_and_no_other(private: Path) -> None:
    path = private / "file"
    paths.write_private_file(str(path), b"former", sync=False)
    program = (
        f"import resource, sys; sys.path.insert(0, {DISCOVERY!r})\n"
        "from upcall_discovery.paths import write_private_file\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: write_private_file(sys.argv[1], b'x' * 1000, sync=False)\n"
        "except OSError as error: print(error.errno)\n"
    )
    out = subprocess.run(
        [sys.executable, "-I", "-c", program, str(path)], capture_output=True, check=True
    )
    assert out.stdout.strip()
    assert path.read_bytes() == b"former"
    assert os.listdir(private) == ["file"]


def test_reading_a_missing_file_is_told_apart(private: Path) -> None:
    with pytest.raises(FileNotFoundError):
        paths.read_private_file(str(private / "none"), 10)


def test_a_file_over_the_limit_is_refused_and_one_at_it_is_read(private: Path) -> None:
    path = private / "file"
    paths.write_private_file(str(path), b"12345", sync=False)
    assert paths.read_private_file(str(path), 5) == b"12345"
    with pytest.raises(PathProblem) as problem:
        paths.read_private_file(str(path), 4)
    assert problem.value.code == "file_too_large"


def make_fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def make_symlink(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(b"{}")
    target.chmod(0o600)
    path.symlink_to(target)


def make_hard_link(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(b"{}")
    target.chmod(0o600)
    path.hardlink_to(target)


def make_folder(path: Path) -> None:
    path.mkdir(mode=0o700)


def make_socket(path: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFSOCK)


def make_readable(path: Path) -> None:
    path.write_bytes(b"{}")
    path.chmod(0o640)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (make_fifo, "file_not_regular"),
        (make_symlink, "file_symlink"),
        (make_hard_link, "file_linked"),
        (make_folder, "file_not_regular"),
        (make_socket, "file_not_regular"),
        (make_readable, "file_not_private"),
    ],
)
def test_a_file_that_is_not_ours_alone_is_refused(
    private: Path, make: Callable[[Path], None], code: str
) -> None:
    path = private / "file"
    make(path)
    with pytest.raises(PathProblem) as problem:
        paths.read_private_file(str(path), 1000)
    assert problem.value.code == code
    assert str(path) in problem.value.msg


@as_root
@pytest.mark.foreign_uid
def test_a_file_of_another_user_is_refused(private: Path) -> None:
    path = private / "file"
    paths.write_private_file(str(path), b"{}", sync=False)
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(PathProblem) as problem:
        paths.read_private_file(str(path), 1000)
    assert problem.value.code == "file_foreign"


MOUNTS = rb"""22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /proc rw - proc proc rw
40 22 0:50 / /home rw shared:9 master:2 - nfs4 server:/home rw
41 40 0:51 / /home/me/my\040disk rw - ext4 /dev/sdb1 rw
42 22 0:52 / /mnt/far rw - fuse.sshfs me@far:/ rw
43 22 0:53 / /mnt/near rw - fuse.portal portal rw
44 22 0:54 / /c rw - 9p drvfs rw
45 22 0:55 / /mnt/far2 rw - ext4 /dev/sdc1 rw
46 22 0:56 / /mnt/far2 rw - cifs //far/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/state", "nfs4"),
        ("/home/me/my disk/state", None),
        ("/homes/me", None),
        ("/mnt/far", "fuse.sshfs"),
        ("/mnt/near/x", None),
        ("/c/Users", "9p"),
        ("/mnt/far2/x", "cifs"),
        ("/", None),
    ],
)
def test_a_network_file_system_is_known_by_the_innermost_mount(
    monkeypatch: pytest.MonkeyPatch, path: str, kind: str | None
) -> None:
    table = filesystem.parse_mountinfo(MOUNTS)
    monkeypatch.setattr(filesystem, "_mounts", lambda: table)
    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    assert paths.is_network_filesystem(path) == kind


def test_this_machines_own_mount_table_is_understood(private: Path) -> None:
    assert paths.is_network_filesystem(str(private / "none" / "such")) is None
