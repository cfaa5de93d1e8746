import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

import pytest

from upcall_discovery import liveness, scan
from upcall_discovery.publish import Publication
from upcall_discovery.record import MAX_RECORD_BYTES, Record, encode
from upcall_discovery.scan import Scan, sweep

NOBODY = 65534
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who listens")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ud-", dir="/tmp"))
    yield path
    path.chmod(0o700)
    shutil.rmtree(path)


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def record_of(session_id: str, port: int, **fields: object) -> Record:
    me = liveness.identify(os.getpid())
    assert me is not None
    record = Record(
        session_id=session_id,
        pid=me.pid,
        host="127.0.0.1",
        port=port,
        url=f"ws://127.0.0.1:{port}",
        token="tok",
        started_at_ms=now_ms(),
        updated_at_ms=now_ms(),
        pid_start=me.start,
    )
    return replace(record, **fields)  # type: ignore[arg-type]  # the fields are the test's


def put(folder: Path, record: Record) -> Path:
    publication = Publication(str(folder), record, sync=False)
    publication.write()
    return Path(publication.path)


def look(folder: Path) -> Scan:
    return scan.scan(str(folder), now_ms=now_ms())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def running(*command: str) -> Iterator[tuple[int, IO[bytes]]]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process.pid, cast("IO[bytes]", process.stdout)
    finally:
        process.kill()
        process.communicate()


def as_nobody(program: str) -> list[str]:
    drop = f"import os, socket; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); "
    return [sys.executable, "-I", "-S", "-c", drop + program]


def test_a_missing_folder_is_empty(folder: Path) -> None:
    assert look(folder / "none") == Scan()


def test_a_live_session_is_found(folder: Path, listening: int) -> None:
    record = record_of("one", listening)
    path = put(folder, record)
    found = look(folder)
    assert [item.record for item in found.live] == [record]
    assert found.live[0].path == str(path)
    assert (found.dead, found.stale, found.refused) == ([], [], [])


def test_a_peers_short_record_lives_by_the_time_of_its_file(
    folder: Path, listening: int
) -> None:
    path = folder / "one.json"
    path.write_text(
        f'{{"version": 1, "sessionId": "one", "url": "ws://127.0.0.1:{listening}/", '
        f'"token": "t", "pid": {os.getpid()}}}'
    )
    path.chmod(0o600)
    assert look(folder).live[0].record.started_at_ms == int(path.stat().st_mtime * 1000)
    os.utime(path, (1, 1))
    assert len(look(folder).dead) == 1, "the file is older than the process"


def test_one_bad_file_hides_no_other(folder: Path, listening: int) -> None:
    put(folder, record_of("good", listening))
    for name in ("bad.json", "worse.json"):
        (folder / name).write_bytes(b"{")
        (folder / name).chmod(0o600)
    (folder / "notes.txt").write_bytes(b"not a record")
    found = look(folder)
    assert [item.record.session_id for item in found.live] == ["good"]
    assert [refusal.code for refusal in found.refused] == ["record_truncated"] * 2
    assert [refusal.path for refusal in found.refused] == [
        str(folder / "bad.json"),
        str(folder / "worse.json"),
    ]


def test_a_session_that_ended_is_stale(folder: Path, listening: int) -> None:
    put(folder, record_of("one", listening, stale=True, token=""))
    found = look(folder)
    assert len(found.stale) == 1
    assert found.live == []


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 2**31 - 1},
        {"pid_start": "00000000:1"},
        {"pid_start": None, "started_at_ms": 1000},
    ],
    ids=["no such process", "pid of another process or boot", "peer's pid given out again"],
)
def test_a_record_whose_process_is_gone_is_dead(
    folder: Path, listening: int, change: dict[str, object]
) -> None:
    put(folder, record_of("one", listening, **change))
    found = look(folder)
    assert len(found.dead) == 1
    assert (found.live, found.refused) == ([], [])


def test_a_start_in_the_future_makes_no_process_older(folder: Path, listening: int) -> None:
    put(folder, record_of("one", listening, pid_start=None, started_at_ms=2**52))
    assert len(look(folder).live) == 1
    assert len(scan.scan(str(folder), now_ms=1000).dead) == 1


@pytest.mark.parametrize("shift_ms", [-3_600_000, 3_600_000, 1000])
def test_steps_of_the_clock_leave_a_live_session_alive(
    folder: Path, listening: int, shift_ms: int
) -> None:
    put(folder, record_of("one", listening, started_at_ms=now_ms() + shift_ms))
    assert len(look(folder).live) == 1


def change_mode(mode: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(mode)


def hard_link(path: Path) -> None:
    (path.parent / "other").hardlink_to(path)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def unix_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def symlink(path: Path) -> None:
    path.rename(path.parent / "real")
    path.symlink_to(path.parent / "real")


def subfolder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def too_large(path: Path) -> None:
    path.write_bytes(b" " * (MAX_RECORD_BYTES + 1))


def other_name(path: Path) -> None:
    path.rename(path.with_name("two.json"))


def hostile_name(path: Path) -> None:
    path.rename(path.with_name("\x1b]0;x\x07\u202e.json"))


def truncated(path: Path) -> None:
    os.truncate(path, 100)


def rewritten(old: str, new: str) -> Callable[[Path], None]:
    def rewrite(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return rewrite


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (change_mode(0o644), "record_not_private"),
        (change_mode(0o640), "record_not_private"),
        (change_mode(0o620), "record_not_private"),
        (hard_link, "record_linked"),
        (fifo, "record_not_regular"),
        (unix_socket, "record_not_regular"),
        (subfolder, "record_not_regular"),
        (symlink, "record_symlink"),
        (too_large, "record_too_large"),
        (other_name, "record_mismatch"),
        (hostile_name, "record_mismatch"),
        (truncated, "record_truncated"),
        (rewritten('"version": 1', '"version": 2'), "record_version"),
        (rewritten("ws://127.0.0.1", "wss://10.0.0.1"), "record_url"),
        (rewritten("ws://127.0.0.1", "ws://10.0.0.1"), "record_url"),
        (rewritten("ws://127.0.0.1", "ws://127.0.0.1@evil"), "record_url"),
        (rewritten("ws://127.0.0.1", "ws://[::ffff:127.0.0.1]"), "record_url"),
        (rewritten("ws://127.0.0.1", "ws://127.1"), "record_url"),
        (rewritten('"port": ', '"port": 1'), "record_url"),
        (rewritten('"host": "127.0.0.1"', '"host": "10.0.0.1"'), "record_url"),
    ],
)
def test_a_hostile_file_is_refused_with_its_reason(
    folder: Path, listening: int, spoil: Callable[[Path], None], code: str
) -> None:
    spoil(put(folder, record_of("one", listening)))
    found = look(folder)
    assert [refusal.code for refusal in found.refused] == [code]
    assert (found.live, found.dead, found.stale) == ([], [], [])
    assert ".json" in found.refused[0].reason
    assert found.refused[0].reason.isprintable()
    assert "tok" not in found.refused[0].reason


@pytest.mark.parametrize("mode", [0o750, 0o755, 0o770, 0o701, 0o777])
def test_an_open_folder_is_refused_as_a_whole(folder: Path, listening: int, mode: int) -> None:
    put(folder, record_of("one", listening))
    folder.chmod(mode)
    found = look(folder)
    assert [refusal.code for refusal in found.refused] == ["folder_not_private"]
    assert found.refused[0].recover == f"chmod 700 {folder}"
    assert found.live == []


def test_a_folder_that_is_a_symlink_is_refused(folder: Path, listening: int) -> None:
    real, link = folder / "real", folder / "link"
    put(real, record_of("one", listening))
    link.symlink_to(real)
    assert [refusal.code for refusal in look(link).refused] == ["folder_symlink"]
    assert len(look(real).live) == 1


def test_a_parent_may_be_what_it_is(folder: Path, listening: int) -> None:
    put(folder / "root" / "state" / "sdk", record_of("one", listening))
    (folder / "root").chmod(0o755)
    (folder / "link").symlink_to(folder / "root")
    assert len(look(folder / "link" / "state" / "sdk").live) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(folder: Path, listening: int) -> None:
    put(folder, record_of("one", listening)).chmod(0)
    assert [refusal.code for refusal in look(folder).refused] == ["record_unreadable"]


def test_too_many_records_are_said(
    folder: Path, listening: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MAX_RECORDS", 2)
    for name in ("a", "b", "c"):
        put(folder, record_of(name, listening))
    found = look(folder)
    assert [item.record.session_id for item in found.live] == ["a", "b"]
    assert [refusal.code for refusal in found.refused] == ["too_many_records"]


@linux
@as_root
@pytest.mark.foreign_uid
def test_a_file_or_folder_of_another_user_is_refused(folder: Path, listening: int) -> None:
    path = put(folder, record_of("one", listening))
    os.chown(path, NOBODY, NOBODY)
    assert [refusal.code for refusal in look(folder).refused] == ["record_foreign"]
    os.chown(folder, NOBODY, NOBODY)
    assert [refusal.code for refusal in look(folder).refused] == ["folder_foreign"]


@linux
@as_root
@pytest.mark.foreign_uid
@pytest.mark.parametrize("with_start", [True, False])
def test_a_process_of_another_user_is_refused(
    folder: Path, listening: int, with_start: bool
) -> None:
    with running(*as_nobody("print(flush=True); input()")) as (pid, out):
        out.readline()
        identity = liveness.identify(pid)
        assert identity is not None
        start = identity.start if with_start else None
        put(folder, record_of("one", listening, pid=pid, pid_start=start))
        found = look(folder)
    assert [refusal.code for refusal in found.refused] == ["record_foreign_process"]
    assert str(NOBODY) in found.refused[0].reason
    assert found.live == []


@linux
@as_root
@pytest.mark.foreign_uid
def test_a_port_on_which_another_user_listens_is_refused(folder: Path) -> None:
    program = (
        "s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); input()"
    )
    with running(*as_nobody(program)) as (_, out):
        put(folder, record_of("one", int(out.readline())))
        found = look(folder)
    assert [refusal.code for refusal in found.refused] == ["record_foreign_listener"]
    assert found.live == []


@linux
def test_a_port_on_which_another_process_listens_is_refused(
    folder: Path, listening: int
) -> None:
    with running("cat") as (pid, _):
        identity = liveness.identify(pid)
        assert identity is not None
        put(folder, record_of("one", listening, pid=pid, pid_start=identity.start))
        found = look(folder)
    assert [refusal.code for refusal in found.refused] == ["record_other_listener"]


@linux
def test_a_port_on_which_a_descendant_listens_is_taken(folder: Path) -> None:
    inner = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); input()"
    )
    command = ["sh", "-c", f'"$0" -I -S -c "{inner}"; :', sys.executable]
    with running(*command) as (pid, out):
        port = int(out.readline())
        identity = liveness.identify(pid)
        assert identity is not None
        put(folder, record_of("one", port, pid=pid, pid_start=identity.start))
        found = look(folder)
        child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        os.kill(child, 9)
    assert len(found.live) == 1


def test_sweep_removes_the_dead_and_the_stale_that_nobody_answers_for(folder: Path) -> None:
    port = free_port()
    dead = put(folder, record_of("dead", port, pid=2**31 - 1))
    stale = put(folder, record_of("stale", port, stale=True, token=""))
    live = put(folder, record_of("live", port))
    assert sweep(look(folder)) == [str(dead), str(stale)]
    assert os.listdir(folder) == [live.name]


def test_sweep_keeps_a_dead_record_whose_port_answers(folder: Path, listening: int) -> None:
    put(folder, record_of("dead", listening, pid=2**31 - 1))
    assert sweep(look(folder)) == []
    assert os.listdir(folder) == ["dead.json"]


def test_sweep_keeps_a_record_that_was_written_anew_after_the_scan(folder: Path) -> None:
    port = free_port()
    put(folder, record_of("one", port, pid=2**31 - 1))
    scanned = look(folder)
    put(folder, record_of("one", port))
    assert sweep(scanned) == []
    assert os.listdir(folder) == ["one.json"]


def test_sweep_touches_no_refused_file(folder: Path) -> None:
    put(folder, record_of("one", free_port(), pid=2**31 - 1)).chmod(0o644)
    assert sweep(look(folder)) == []
    assert os.listdir(folder) == ["one.json"]


def test_sweep_of_a_folder_that_went_away_is_no_error(folder: Path) -> None:
    inner = folder / "sessions"
    put(inner, record_of("one", free_port(), pid=2**31 - 1))
    scanned = look(inner)
    shutil.rmtree(inner)
    assert sweep(scanned) == []


def test_what_a_killed_writer_left_is_swept_and_a_living_ones_is_not(folder: Path) -> None:
    record = encode(record_of("one", 1))
    dead = folder / f".one.json.{2**31 - 1}.0a1b2c3d.tmp"
    alive = folder / f".one.json.{os.getpid()}.0a1b2c3d.tmp"
    dead.write_bytes(record)
    alive.write_bytes(record)
    assert sweep(look(folder)) == [str(dead)]
    assert os.listdir(folder) == [alive.name]
