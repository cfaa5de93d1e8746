import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import IO, cast

import pytest

from upcall_discovery import liveness
from upcall_discovery.liveness import ProcessIdentity

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")
NOBODY = 65534


def start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")


def finish(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def test_a_process_is_itself_until_it_ends() -> None:
    process = start("cat")
    identity = liveness.identify(process.pid)
    assert identity is not None
    assert liveness.is_alive(identity)
    finish(process)
    assert not liveness.is_alive(identity)
    assert liveness.identify(process.pid) is None


@linux
def test_a_process_that_ended_but_was_not_waited_for_is_dead() -> None:
    process = start("cat")
    identity = liveness.identify(process.pid)
    assert identity is not None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not liveness.is_alive(identity)
    finish(process)


@linux
def test_a_stopped_process_is_alive() -> None:
    process = start("cat")
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert liveness.identify(process.pid) is not None
    finish(process)


@linux
def test_a_pid_given_out_again_and_another_boot_are_other_processes() -> None:
    me = liveness.identify(os.getpid())
    assert me is not None
    boot, _, ticks = me.start.partition(":")
    assert len(boot) == 8
    assert liveness.is_alive(me)
    assert not liveness.is_alive(ProcessIdentity(me.pid, f"{boot}:{int(ticks) + 1}"))
    assert not liveness.is_alive(ProcessIdentity(me.pid, f"{boot}:{int(ticks) - 1}"))
    assert not liveness.is_alive(ProcessIdentity(me.pid, f"00000000:{ticks}"))


@pytest.mark.parametrize("pid", [0, -1, 2**31 - 1])
def test_no_process_has_an_impossible_pid(pid: int) -> None:
    assert liveness.identify(pid) is None
    assert liveness.started_before(pid, 2**50) is None
    assert liveness.parent_of(pid) is None
    assert liveness.ancestors(pid) == []


@linux
def test_a_name_full_of_parentheses_confuses_nothing() -> None:
    process = start(
        sys.executable,
        "-I",
        "-S",
        "-c",
        "open('/proc/self/comm', 'w').write(') S (1 2)'); print(flush=True); input()",
    )
    cast("IO[bytes]", process.stdout).readline()
    try:
        assert liveness.program_of(process.pid) == ") S (1 2)"
        assert liveness.parent_of(process.pid) == os.getpid()
        assert liveness.identify(process.pid) is not None
    finally:
        finish(process)


def test_started_before_compares_with_the_wall_clock() -> None:
    now_ms = time.time_ns() // 1_000_000
    process = start("cat")
    try:
        assert liveness.started_before(process.pid, now_ms + 5000) is True
        assert liveness.started_before(process.pid, now_ms - 60_000) is False
        assert liveness.started_before(process.pid, now_ms - 60_000, slack_ms=90_000) is True
    finally:
        finish(process)


@linux
def test_what_proc_says_of_a_child() -> None:
    process = start("cat")
    try:
        assert liveness.parent_of(process.pid) == os.getpid()
        assert liveness.program_of(process.pid) == "cat"
        assert liveness.working_dir_of(process.pid) == "/"
        assert liveness.uid_of(process.pid) == os.geteuid()
        line = liveness.ancestors(process.pid)
        assert line[0] == liveness.identify(os.getpid())
        assert [identity.pid for identity in line[1:]] == [
            identity.pid for identity in liveness.ancestors(os.getpid())
        ]
    finally:
        finish(process)
    assert liveness.program_of(process.pid) == ""
    assert liveness.working_dir_of(process.pid) is None
    assert liveness.uid_of(process.pid) is None
    assert liveness.controlling_tty(process.pid) is None


@linux
def test_the_controlling_terminal_is_named_and_absent_after_setsid() -> None:
    near, far = os.openpty()
    name = os.ttyname(far)
    program = (
        "import fcntl, os, sys, termios; os.setsid(); "
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0); print(flush=True); sys.stdin.read()"
    )
    with_tty = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program], stdin=far, stdout=subprocess.PIPE
    )
    without = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        cast("IO[bytes]", with_tty.stdout).readline()
        assert liveness.controlling_tty(with_tty.pid) == name
        assert liveness.controlling_tty(without.pid) is None
    finally:
        finish(with_tty)
        finish(without)
        os.close(near)
        os.close(far)


@linux
@pytest.mark.parametrize(
    ("device", "path"),
    [
        (0, None),
        (136 << 8 | 7, "/dev/pts/7"),
        (137 << 8 | 1, "/dev/pts/257"),
        (136 << 8 | 0x2C | 0x3 << 20, "/dev/pts/812"),
        (0xFFE << 8 | 1, "tty 4094:1"),
    ],
)
def test_device_numbers_of_terminals(device: int, path: str | None) -> None:
    assert liveness._tty_path(device) == path


@linux
@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_listener_of_a_port_is_found(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as server:
        try:
            server.bind((host, 0))
        except OSError:
            pytest.skip("no IPv6 here")
        port = server.getsockname()[1]
        assert liveness.Sockets().listener(port, host) is None, "bound is not listening"
        server.listen()
        sockets = liveness.Sockets()
        found = sockets.listener(port, host)
        assert found is not None
        assert found.uid == os.geteuid()
        assert found.inode == os.fstat(server.fileno()).st_ino
        assert sockets.holds(os.getpid(), found.inode) is True
    assert liveness.listener_uid(port) is None


HEAD = b"  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid\n"
REST = b" 00000000:00000000 00:00000000 00000000 "


def row(local: str, remote: str, state: str, uid: int, inode: int) -> bytes:
    start = f"   0: {local} {remote} {state}".encode()
    return start + REST + f" {uid}        0 {inode} 1 0000000000000000 100\n".encode()


@linux
@pytest.mark.skipif(sys.byteorder == "big", reason="the table is in this machine's order")
def test_the_most_special_listener_gets_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far, zero = "00000000:0000", "00000000000000000000000000000000"
    mapped = "0000000000000000FFFF00000100007F"
    tables = {
        "/proc/net/tcp": HEAD
        + row("0100007F:1F90", "0100007F:D431", "01", 5, 55)
        + row("00000000:1F90", far, "0A", 6, 66)
        + row("0100007F:1F90", far, "0A", 7, 77)
        + row("00000000:1F91", far, "0A", 6, 67),
        "/proc/net/tcp6": HEAD
        + row(f"{zero}:1F91", f"{zero}:0000", "0A", 8, 88)
        + row(f"{mapped}:1F91", f"{zero}:0000", "0A", 9, 99)
        + row(f"{zero}:1F92", f"{zero}:0000", "0A", 8, 89),
    }
    monkeypatch.setattr(liveness, "_read", tables.get)
    sockets = liveness.Sockets()
    assert sockets.listener(8080) == liveness.Listener(7, 77)
    assert sockets.listener(8081) == liveness.Listener(9, 99)
    assert sockets.listener(8082) == liveness.Listener(8, 89)
    assert sockets.listener(8082, "::1") == liveness.Listener(8, 89)
    assert sockets.listener(8083) is None


@linux
def test_a_socket_is_held_by_its_process_or_a_descendant_and_by_no_sibling() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    inode = os.fstat(server.fileno()).st_ino
    holder = subprocess.Popen(
        ["sh", "-c", "echo; cat; :"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[server.fileno()],
    )
    sibling = start("cat")
    server.close()
    try:
        cast("IO[bytes]", holder.stdout).readline()
        sockets = liveness.Sockets()
        assert sockets.holds(holder.pid, inode) is True
        assert sockets.holds(sibling.pid, inode) is False
        assert sockets.holds(os.getpid(), inode) in {True, None}, "through its child"
    finally:
        holder.communicate()
        finish(sibling)


@linux
@as_root
@pytest.mark.foreign_uid
def test_a_listener_of_another_user_is_known_by_its_uid() -> None:
    program = (
        f"import os, socket; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); "
        "s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); input()"
    )
    process = start(sys.executable, "-I", "-S", "-c", program)
    try:
        port = int(cast("IO[bytes]", process.stdout).readline())
        assert liveness.listener_uid(port) == NOBODY
        assert liveness.uid_of(process.pid) == NOBODY
    finally:
        finish(process)


class FarError(Exception):
    pass


class FarProcess:
    """Answers like psutil on a platform that has no /proc."""

    known = frozenset({7, 8})

    def __init__(self, pid: int) -> None:
        if pid not in self.known:
            raise FarError(pid)
        self.pid = pid

    def status(self) -> str:
        return "zombie" if self.pid == 8 else "running"

    def create_time(self) -> float:
        return 1000.25

    def ppid(self) -> int:
        return 0

    def name(self) -> str:
        return "prog"

    def cwd(self) -> str:
        raise FarError("denied")

    def uids(self) -> SimpleNamespace:
        return SimpleNamespace(real=1, effective=501)

    def terminal(self) -> str | None:
        return "/dev/ttys001"


def test_other_platforms_are_asked_through_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    far = SimpleNamespace(Process=FarProcess, Error=FarError, STATUS_ZOMBIE="zombie")
    monkeypatch.setitem(sys.modules, "psutil", far)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert liveness.identify(7) == ProcessIdentity(7, "1000.250000")
    assert liveness.is_alive(ProcessIdentity(7, "1000.250000"))
    assert not liveness.is_alive(ProcessIdentity(7, "1000.250001"))
    assert liveness.identify(8) is None, "a zombie"
    assert liveness.identify(9) is None
    assert liveness.started_before(7, 998_250) is True
    assert liveness.started_before(7, 998_249) is False
    assert liveness.started_before(9, 0) is None
    assert liveness.parent_of(7) is None
    assert liveness.program_of(7) == "prog"
    assert liveness.working_dir_of(7) is None
    assert liveness.uid_of(7) == 501
    assert liveness.uid_of(9) is None
    assert liveness.controlling_tty(7) == "/dev/ttys001"
    assert liveness.listener_uid(80) is None
