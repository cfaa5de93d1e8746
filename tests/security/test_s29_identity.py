"""S29: a process is who it was, however often its pid is given out and the clock is set.

A pid comes back for real in a pid namespace of its own; only the kernel's time of boot is
faked, by which the wall clock's steps show.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from upcall.session.publish import make_record
from upcall_discovery import liveness
from upcall_discovery.liveness import ProcessIdentity, identify, is_alive
from upcall_discovery.record import Record, encode
from upcall_discovery.scan import Scan, scan, sweep

HOUR_MS = 3_600_000
linux = pytest.mark.skipif(sys.platform != "linux", reason="boot ids and ticks are Linux'")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="us29-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def put(folder: Path, record: Record) -> Record:
    path = folder / record.file_name
    path.write_bytes(encode(record))
    path.chmod(0o600)
    return record


def ours(port: int) -> Record:
    return make_record("s-1", port, "t", now_ms=now_ms())


def peers(port: int) -> Record:
    """A record of a program that knows no process start."""
    return replace(ours(port), pid_start=None)


def look(folder: Path, *, at_ms: int | None = None, **known: ProcessIdentity) -> Scan:
    return scan(str(folder), now_ms=now_ms() if at_ms is None else at_ms, known=known)


def alive_in(found: Scan) -> bool:
    assert found.refused == []
    assert len(found.live) + len(found.dead) == 1
    return bool(found.live)


def me() -> ProcessIdentity:
    found = identify(os.getpid())
    assert found is not None
    return found


# In a pid namespace of its own: a process ends, and another one gets its very number.
RECYCLE = """
import json, os, subprocess, sys, time
os.umask(0o077)
from upcall_discovery import liveness
from upcall_discovery.record import Record, encode
from upcall_discovery.scan import scan
folder = sys.argv[1]

def start():
    return subprocess.Popen(["sleep", "60"])

def now_ms():
    return time.time_ns() // 1_000_000

def verdict():
    found = scan(folder, now_ms=now_ms())
    return [len(found.live), len(found.dead), [one.code for one in found.refused]]

def publish(pid_start, started_ms):
    made = Record(
        session_id="s-1", pid=first.pid, host="127.0.0.1", port=1, url="ws://127.0.0.1:1",
        token="t", started_at_ms=started_ms, updated_at_ms=started_ms, pid_start=pid_start,
    )
    open(folder + "/s-1.json", "wb").write(encode(made))

first = start()
was = liveness.identify(first.pid)
publish(was.start, now_ms())
before = verdict()
first.kill()
first.wait()
# A kernel counts starts in hundredths of a second.
until = time.monotonic() + 0.05
while time.monotonic() < until:
    pass
for _ in range(40000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(first.pid - 1))
    second = start()
    if second.pid == first.pid:
        break
    second.kill()
    second.wait()
recycled = second.pid == first.pid
ours = verdict()
publish(None, now_ms() - 10_000)
peers = verdict()
second.kill()
second.wait()
print(json.dumps({"before": before, "recycled": recycled, "ours": ours, "peers": peers}))
"""


def can_unshare() -> bool:
    words = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@linux
@pytest.mark.skipif(not can_unshare(), reason="needs a pid namespace of its own")
def test_a_pid_that_came_back_is_another_process(folder: Path) -> None:
    done = subprocess.run(
        [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            sys.executable,
            "-P",
            "-c",
            RECYCLE,
            folder,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["recycled"]
    assert told["before"] == [1, 0, []]
    assert told["ours"] == [0, 1, []]
    assert told["peers"] == [0, 1, []], "by its start, which is after the record's"


@linux
@pytest.mark.parametrize("start", ["00000000:1", "unknown0:{ticks}", "{boot}", "1.5"])
def test_a_record_of_another_boot_or_machine_is_dead(
    folder: Path, port: int, start: str
) -> None:
    """Whatever runs under that pid here, and whoever listens on that port."""
    boot, _, ticks = me().start.partition(":")
    put(folder, replace(ours(port), pid_start=start.format(boot=boot, ticks=ticks)))
    assert not alive_in(look(folder))


@linux
@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 1000, -1000, 10 * 365 * 24 * HOUR_MS])
def test_a_step_of_the_clock_changes_nothing_for_a_record_with_its_processs_start(
    folder: Path, port: int, monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    put(folder, ours(port))
    started = me()
    boot_ms = liveness._boot_wall_ms()
    assert boot_ms is not None
    # The kernel tells the time of boot by the wall clock of now.
    monkeypatch.setattr(liveness, "_boot_wall_ms", lambda: boot_ms + step_ms)
    assert alive_in(look(folder, at_ms=now_ms() + step_ms))
    assert is_alive(started)


@linux
@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 1000, -1000])
def test_a_peer_that_was_found_before_a_step_of_the_clock_stays_alive(
    folder: Path, port: int, monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    put(folder, peers(port))
    assert alive_in(look(folder))
    boot_ms = liveness._boot_wall_ms()
    assert boot_ms is not None
    monkeypatch.setattr(liveness, "_boot_wall_ms", lambda: boot_ms + step_ms)
    known = {"s-1": me()}
    assert alive_in(scan(str(folder), now_ms=now_ms() + step_ms, known=known))
    if step_ms != HOUR_MS:
        assert alive_in(look(folder, at_ms=now_ms() + step_ms)), "also when it is not known"


@linux
def test_a_peer_that_nobody_knew_before_a_step_is_dead_but_not_swept(
    folder: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells it from a pid that was given out again; its own next record does."""
    record = put(folder, replace(peers(port), started_at_ms=now_ms() + 1))
    boot_ms = liveness._boot_wall_ms()
    assert boot_ms is not None
    monkeypatch.setattr(liveness, "_boot_wall_ms", lambda: boot_ms + HOUR_MS)
    found = look(folder, at_ms=now_ms() + HOUR_MS)
    assert not alive_in(found)
    assert sweep(found) == []
    assert (folder / record.file_name).exists()


@linux
def test_a_known_process_lends_its_life_to_no_other(folder: Path, port: int) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        # Started long after the record says that its session was.
        put(folder, replace(peers(port), pid=other.pid, started_at_ms=now_ms() - HOUR_MS))
        stranger, ended = me(), ProcessIdentity(other.pid, "00000000:1")
        assert not alive_in(look(folder))
        assert not alive_in(scan(str(folder), now_ms=now_ms(), known={"s-1": stranger}))
        assert not alive_in(scan(str(folder), now_ms=now_ms(), known={"s-1": ended}))
        other.kill()


@linux
def test_a_process_older_than_the_peers_record_by_less_than_two_seconds_is_it(
    folder: Path, port: int
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        for early_ms, alive in ((0, True), (500, True), (10_000, False)):
            record = replace(peers(1), pid=other.pid, started_at_ms=now_ms() - early_ms)
            put(folder, record)
            assert alive_in(look(folder)) is alive, early_ms
        other.kill()


@linux
def test_a_start_in_the_future_makes_no_process_older(folder: Path, port: int) -> None:
    put(folder, replace(peers(port), started_at_ms=now_ms() + 100 * HOUR_MS))
    started = identify(os.getpid())
    assert started is not None
    assert not alive_in(look(folder, at_ms=now_ms() - 24 * HOUR_MS * 3650))
