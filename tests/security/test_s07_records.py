"""S7: a file that says where a session is, is believed only if everything about it fits.

Real files, processes, users and hubs; a refused record is named with its reason.
"""

import asyncio
import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.home import Home, Json, Running, eventually
from upcall.cli import sessions as sessions_command
from upcall.hub.listeners import ListenerChecks
from upcall.model.errors import TransportError
from upcall.session.connect import open_connection
from upcall.session.publish import make_record
from upcall_discovery.publish import Publication
from upcall_discovery.record import Record, encode
from upcall_discovery.scan import Scan, scan

TOKEN = "t0k3n-of-the-session"
NOBODY = 65534
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who listens")


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="us7-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def record_on(port: int, session_id: str = "s-1") -> Record:
    return make_record(session_id, port, TOKEN, now_ms=now_ms())


def fields_on(port: int) -> Json:
    found = json.loads(encode(record_on(port)))
    assert isinstance(found, dict)
    return found


def put(folder: Path, data: bytes, name: str = "s-1.json", mode: int = 0o600) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    path.chmod(mode)
    return path


def look(folder: Path, **options: Any) -> Scan:
    return scan(str(folder), now_ms=now_ms(), **options)


def reason_in(found: Scan) -> tuple[str, str]:
    assert (found.live, found.dead, found.stale) == ([], [], [])
    [refused] = found.refused
    return refused.code, refused.reason


# --- what is in it ------------------------------------------------------------------------


def test_the_record_that_all_others_are_made_from_is_used(root: Path, port: int) -> None:
    put(root / "r", json.dumps(fields_on(port)).encode())
    assert [found.record.token for found in look(root / "r").live] == [TOKEN]


@pytest.mark.parametrize(
    "url",
    [
        "wss://10.0.0.1:{port}", "wss://127.0.0.1:{port}", "ws://10.0.0.1:{port}",
        "ws://127.1:{port}", "ws://127.0.1:{port}", "ws://2130706433:{port}",
        "ws://0x7f000001:{port}", "ws://0x7f.0.0.1:{port}", "ws://0177.0.0.1:{port}",
        "ws://127.0.0.01:{port}", "ws://127.000.000.001:{port}", "ws://127.0.0.2:{port}",
        "ws://0.0.0.0:{port}", "ws://0:{port}", "ws://[::]:{port}",
        "ws://[::ffff:127.0.0.1]:{port}", "ws://[::FFFF:7F00:1]:{port}",
        "ws://[0:0:0:0:0:0:0:1]:{port}", "ws://[::01]:{port}", "ws://[::1%lo]:{port}",
        "ws://[fe80::1]:{port}", "ws://[127.0.0.1]:{port}", "ws://::1:{port}",
        "ws://localhost:{port}", "ws://localhost.:{port}", "ws://LOCALHOST:{port}",
        "ws://127.0.0.1.:{port}", "ws://127.0.0.1.evil.example:{port}",
        "ws://evil.example:{port}", "ws://127.0.0.1@evil.example:{port}",
        "ws://127.0.0.1:{port}@evil.example", "ws://user@127.0.0.1:{port}",
        "ws://user:pw@127.0.0.1:{port}", "ws://@127.0.0.1:{port}",
        "ws://127.0.0.1:{port}/path", "ws://127.0.0.1:{port}//", "ws://127.0.0.1:{port}/?a=b",
        "ws://127.0.0.1:{port}?token=x", "ws://127.0.0.1:{port}#x", "ws://127.0.0.1:{port}/%2e",
        "ws://127.0.0.1:{port}\\@evil", "ws:/127.0.0.1:{port}", "ws:127.0.0.1:{port}",
        "//127.0.0.1:{port}", "http://127.0.0.1:{port}", "WS://127.0.0.1:{port}",
        " ws://127.0.0.1:{port}", "ws://127.0.0.1:{port} ", "ws://127.0.0.1:{port}\n",
        "ws://127.0.0.1:{port}\u0000", "ws://127.0.0.1\t:{port}", "ws://%31%32%37.0.0.1:{port}",
        "ws://127\u30020\u30020\u30021:{port}", "ws://\uff11\uff12\uff17.0.0.1:{port}",
        "ws://127.0.0.1:\u0661\u0662\u0663\u0664", "ws://127.0.0.1:0{port}",
        "ws://127.0.0.1:+{port}", "ws://127.0.0.1:0", "ws://127.0.0.1:65536",
        "ws://127.0.0.1:-1", "ws://127.0.0.1:", "ws://127.0.0.1", "ws://127.0.0.1:99999999999",
        "", "ws://", "unix:///tmp/x",
    ],
)  # fmt: skip
def test_only_a_plain_loopback_address_is_one(root: Path, port: int, url: str) -> None:
    fields = fields_on(port)
    fields["url"] = url.replace("{port}", str(port))
    path = put(root / "r", json.dumps(fields).encode())
    code, reason = reason_in(look(root / "r"))
    assert code == "record_url"
    assert path.name in reason
    assert TOKEN not in reason


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"port": 1}, "record_url"),
        ({"port": "PORT"}, "record_url"),
        ({"port": True}, "record_url"),
        ({"port": 1e3}, "record_url"),
        ({"port": 10**30}, "record_url"),
        ({"port": None}, "record_url"),
        ({"host": "localhost"}, "record_url"),
        ({"host": "::1"}, "record_url"),
        ({"host": "evil.example"}, "record_url"),
        ({"host": ["127.0.0.1"]}, "record_url"),
        ({"pid": 0}, "record_pid"),
        ({"pid": -1}, "record_pid"),
        ({"pid": True}, "record_pid"),
        ({"pid": 1.0}, "record_pid"),
        ({"pid": 2**31}, "record_pid"),
        ({"pid": 10**4000}, "record_pid"),
        ({"pid": "1"}, "record_pid"),
        ({"pidStart": 5}, "record_pid"),
        ({"pidStart": ""}, "record_pid"),
        ({"pidStart": "x" * 65}, "record_pid"),
        ({"sessionId": "s-2"}, "record_mismatch"),
        ({"sessionId": "S-1"}, "record_mismatch"),
        ({"sessionId": "s-1/../s-1"}, "record_invalid"),
        ({"sessionId": ""}, "record_invalid"),
        ({"sessionId": None}, "record_invalid"),
        ({"sessionId": "s-1\u0000"}, "record_invalid"),
        ({"version": 2}, "record_version"),
        ({"version": True}, "record_version"),
        ({"version": "1"}, "record_version"),
        ({"version": 1.0}, "record_version"),
        ({"token": ""}, "record_invalid"),
        ({"token": None}, "record_invalid"),
        ({"token": "a b"}, "record_invalid"),
        ({"token": "a\r\nX: y"}, "record_invalid"),
        ({"token": "x" * 1025}, "record_invalid"),
        ({"startedAt": -1}, "record_invalid"),
        ({"startedAt": 2**60}, "record_invalid"),
        ({"startedAt": "now"}, "record_invalid"),
        ({"stale": 0}, "record_invalid"),
        ({"stale": "false"}, "record_invalid"),
    ],
)
def test_a_field_that_does_not_fit_is_named(
    root: Path, port: int, changed: Json, code: str
) -> None:
    path = put(root / "r", json.dumps(fields_on(port) | changed).encode())
    found, reason = reason_in(look(root / "r"))
    assert found == code
    assert path.name in reason
    assert next(iter(changed)) in reason


@pytest.mark.parametrize("session_id", [".", "..", "a/b", "a\\b", "a b", "\u0430", "x" * 129])
def test_no_session_id_can_name_another_place(root: Path, port: int, session_id: str) -> None:
    name = f"{session_id.replace('/', '_')}.json"
    put(root / "r", json.dumps(fields_on(port) | {"sessionId": session_id}).encode(), name)
    assert reason_in(look(root / "r"))[0] in {"record_invalid", "record_mismatch"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"null",
        b"[]",
        b'"x"',
        b"{",
        b'{"version":1',
        b"{}{}",
        b"\xff\xfe{}",
        b"{" + b"\xff" * 10 + b"}",
        b"[" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b"[" * 10_000 + b"]" * 10_000,
        b'{"pid":' + b"9" * 5000 + b"}",
        b'{"pid":NaN}',
        b'{"startedAt":Infinity}',
    ],
)
def test_what_is_no_plain_json_object_is_refused(root: Path, data: bytes) -> None:
    put(root / "r", data)
    assert reason_in(look(root / "r"))[0] in {
        "record_invalid",
        "record_truncated",
        "record_version",
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data + b"\0",
        lambda data: data + b" x",
        lambda data: data.replace(b'"pid":', b'"pid": 1, "pid":', 1),
        lambda data: data.replace(b'"url":', b'"url": "ws://10.0.0.1:1", "url":', 1),
        lambda data: data.replace(b'"url":', b'"u\\u0072l": "ws://10.0.0.1:1", "url":', 1),
        lambda data: data.decode().encode("utf-16"),
        lambda data: data + b" " * 70_000,
    ],
)
def test_what_two_readers_could_read_differently_is_refused(
    root: Path, port: int, change: Callable[[bytes], bytes]
) -> None:
    put(root / "r", change(encode(record_on(port))))
    assert reason_in(look(root / "r"))[0] in {
        "record_invalid",
        "record_truncated",
        "record_too_large",
    }


# --- what kind of file it is ----------------------------------------------------------------


def _mode(mode: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(mode)


def _hard_link(path: Path) -> None:
    path.with_name("other").hardlink_to(path)


def _symlink(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/at/all")


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    path.chmod(0o600)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_mode(0o644), "record_not_private"),
        (_mode(0o640), "record_not_private"),
        (_mode(0o602), "record_not_private"),
        (_mode(0o601), "record_not_private"),
        (_hard_link, "record_linked"),
        (_symlink, "record_symlink"),
        (_dangling, "record_symlink"),
        (_fifo, "record_not_regular"),
        (_socket, "record_not_regular"),
        (_directory, "record_not_regular"),
    ],
)
def test_a_file_that_is_not_plainly_ours_is_refused(
    root: Path, port: int, change: Callable[[Path], None], code: str
) -> None:
    path = put(root / "r", encode(record_on(port)))
    change(path)
    found, reason = reason_in(look(root / "r"))
    assert found == code
    assert str(path) in reason


@pytest.mark.foreign_uid
@pytest.mark.parametrize("what", ["device", "owner", "folder owner"])
def test_a_device_or_another_users_file_is_refused(root: Path, port: int, what: str) -> None:
    path = put(root / "r", encode(record_on(port)))
    code = "record_foreign"
    if what == "device":
        path.unlink()
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        code = "record_not_regular"
    elif what == "owner":
        os.chown(path, NOBODY, NOBODY)
    else:
        os.chown(root / "r", NOBODY, NOBODY)
        code = "folder_foreign"
    assert reason_in(look(root / "r"))[0] == code


@pytest.mark.parametrize("mode", [0o750, 0o755, 0o701, 0o777, 0o1777])
def test_a_folder_that_others_can_enter_is_refused_as_a_whole(
    root: Path, port: int, mode: int
) -> None:
    put(root / "r", encode(record_on(port)))
    (root / "r").chmod(mode)
    code, reason = reason_in(look(root / "r"))
    assert code == "folder_not_private"
    assert str(root / "r") in reason


@pytest.mark.parametrize("link", [".gjc", ".gjc/state", ".gjc/state/sdk"])
def test_a_project_cannot_point_at_a_folder_elsewhere(root: Path, port: int, link: str) -> None:
    project, elsewhere = root / "project", root / "elsewhere"
    put(elsewhere / ".gjc" / "state" / "sdk", encode(record_on(port)))
    place = project / link
    place.parent.mkdir(mode=0o700, parents=True)
    place.symlink_to(elsewhere / link)
    code, reason = reason_in(look(project / ".gjc" / "state" / "sdk", project=str(project)))
    assert code == "folder_symlink"
    assert str(place) in reason


# --- whose process listens ------------------------------------------------------------------


def test_a_process_that_only_the_wall_clock_calls_older_is_another_one(
    root: Path, port: int
) -> None:
    """Its start says that the pid was given out again, whatever times are written down."""
    record = record_on(port)
    assert record.pid_start is not None
    boot, _, ticks = record.pid_start.partition(":")
    later = replace(record, pid_start=f"{boot}:{int(ticks) - 100}")
    put(root / "r", encode(later))
    assert [found.record.session_id for found in look(root / "r").dead] == ["s-1"]


@contextlib.contextmanager
def as_nobody(program: str) -> Iterator[subprocess.Popen[str]]:
    drop = (
        f"import os, socket, sys\nos.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", drop + program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def line_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


# Tells its port, then all that is ever sent to it.
RECORDER = """
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
taken, _ = server.accept()
if {leaves}:
    server.close()
print("taken", flush=True)
got = b""
while piece := taken.recv(65536):
    got += piece
print(repr(got), flush=True)
"""


@linux
@pytest.mark.foreign_uid
def test_another_users_process_or_listener_is_refused(root: Path, port: int) -> None:
    with as_nobody(RECORDER.format(leaves=False)) as child:
        theirs = int(line_of(child))
        put(root / "r", encode(record_on(theirs)))
        assert reason_in(look(root / "r"))[0] == "record_foreign_listener"
        put(root / "r", encode(replace(record_on(port), pid=child.pid, pid_start=None)))
        assert reason_in(look(root / "r"))[0] == "record_foreign_process"


async def _connect(record: Record, checks: ListenerChecks) -> None:
    connection = await open_connection(
        record.url,
        record.token,
        on_frame=lambda _: None,
        on_close=lambda _: None,
        timeout_s=5.0,
        check=lambda: checks.check(record),
    )
    await connection.close()


@linux
@pytest.mark.foreign_uid
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.asyncio
async def test_who_took_the_port_after_the_record_was_read_gets_not_one_byte(
    leaves: bool,
) -> None:
    """Also if it stops listening at once, so that nobody can be seen any more."""
    with as_nobody(RECORDER.format(leaves=leaves)) as child:
        record = record_on(int(line_of(child)))
        checks = ListenerChecks()

        async def check_when_taken() -> None:
            assert await asyncio.to_thread(line_of, child) == "taken"
            await checks.check(record)

        with pytest.raises(TransportError) as refused:
            await open_connection(
                record.url,
                record.token,
                on_frame=lambda _: None,
                on_close=lambda _: None,
                timeout_s=5.0,
                check=check_when_taken,
            )
        assert refused.value.code in {"record_foreign_listener", "record_other_listener"}
        assert await asyncio.to_thread(line_of, child) == "b''"


@linux
@pytest.mark.asyncio
async def test_one_look_at_the_machine_serves_all_that_wait(port: int) -> None:
    checks = ListenerChecks()
    record = record_on(port)
    await asyncio.gather(*(checks.check(record) for _ in range(100)))
    nowhere = replace(record, port=1, url="ws://127.0.0.1:1")
    with pytest.raises(TransportError):
        await checks.check(nowhere)


@linux
@pytest.mark.asyncio
async def test_no_redirect_is_followed() -> None:
    elsewhere: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        elsewhere.append(await reader.read(100))
        writer.close()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        where = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/"
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {where}\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(take, "127.0.0.1", 0) as other,
        await asyncio.start_server(redirect, "127.0.0.1", 0) as server,
    ):
        record = record_on(server.sockets[0].getsockname()[1])
        with pytest.raises(TransportError) as refused:
            await _connect(record, ListenerChecks())
        assert refused.value.code == "handshake_failed"
        assert elsewhere == []


# --- a whole hub ------------------------------------------------------------------------------

SESSION = """
import asyncio, sys
from upcall.model.frames import ActionNeeded
from upcall.session.publish import make_record
from upcall.session.server import Endpoint
from upcall_discovery.publish import Publication
folder, session_id, question = sys.argv[1:]
class Handler:
    def open_asks(self):
        ask = {"id": "x", "kind": "ask", "session_id": session_id, "question": question}
        return [ActionNeeded(options=("y",), **ask)]
    def recent_resolutions(self): return []
    def reply(self, *_): pass
    hold = user_message = config = other = reply
async def main():
    endpoint = Endpoint(session_id, "t" * 32, Handler())
    port = await endpoint.start()
    made = make_record(session_id, port, "t" * 32, now_ms=1_900_000_000_000)
    Publication(folder, made, sync=False, parents=False).write()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def refused_by(home: Home) -> list[Json]:
    with home.line("control") as line:
        found: list[Json] = line.ok("sessions", all=True)["refused"]
    return found


@pytest.mark.parametrize("hidden", [".gjc", ".upcall"])
def test_a_cloned_repository_that_ships_a_record_is_ignored_with_the_reason(
    home: Home, root: Path, hidden: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        port = trap.getsockname()[1]
        fields = fields_on(port) | {"sessionId": "x", "url": f"ws://10.1.2.3:{port}"}
        folder = root / hidden / "state" / "sdk"
        # As git would leave it, and then with each thing mended that was complained of.
        path = put(folder, json.dumps(fields).encode(), "x.json", 0o644)
        for place in (folder, folder.parent, folder.parent.parent):
            place.chmod(0o755)
        home.start_hub()
        assert home.run("roots", "add", str(root)).code == 0
        for wanted, mended, mode in (
            ("folder_not_private", folder, 0o700),
            ("record_not_private", path, 0o600),
            ("record_url", path, 0o600),
        ):
            home.run("roots", "remove", str(root))
            assert home.run("roots", "add", str(root)).code == 0
            [refused] = eventually(
                lambda code=wanted: [  # type: ignore[misc]  # bound now
                    one for one in refused_by(home) if one["code"] == code
                ],
                what=wanted,
            )
            told = home.run("sessions", "--all")
            assert refused["reason"] in told.err
            assert refused["path"] in told.err
            told = home.run("sessions", "--all", "--json")
            assert refused in told.json["refused"]
            assert told.json["sessions"] == []
            mended.chmod(mode)
        with pytest.raises(BlockingIOError):
            trap.accept()


def start_session(home: Home, folder: str, session_id: str, question: str) -> Running:
    made = home.start_program(
        [sys.executable, "-P", "-c", SESSION, folder, session_id, question], stdin=True
    )
    made.line("ready", on="out")
    return made


def test_a_second_record_with_a_known_id_reaches_no_conversation_and_both_are_named(
    home: Home, root: Path
) -> None:
    home.start_hub()
    start_session(home, home.sessions, "s-1", "Mine?")

    def questions() -> list[str]:
        with home.line("control") as line:
            return [ask["question"] for ask in line.ok("asks")["asks"]]

    eventually(lambda: questions() == ["Mine?"])
    beside = root / ".upcall" / "state" / "sdk"
    beside.mkdir(mode=0o700, parents=True)
    start_session(home, str(beside), "s-1", "Theirs?")
    assert home.run("roots", "add", str(root)).code == 0
    [refused] = eventually(lambda: refused_by(home))
    first, second = f"{home.sessions}/s-1.json", str(beside / "s-1.json")
    assert (refused["code"], refused["path"]) == ("duplicate_session", second)
    assert first in refused["reason"]
    for words in (("sessions", "--all"), ("hub", "status")):
        told = home.run(*words)
        assert first in told.out + told.err, words
        assert second in told.out + told.err, words
    assert questions() == ["Mine?"]


def test_what_a_session_says_of_itself_stands_apart() -> None:
    row = sessions_command._row(
        {
            "session_id": "s-1",
            "kind": "peer",
            "state": "idle",
            "title": "postgres production",
            "repo": "bank",
            "branch": "main",
            "program": "node",
            "machine": "laptop",
            "cwd": "/tmp/evil",
        }
    )
    assert row[:4] == ("s-1", "peer idle", "node", "laptop /tmp/evil")
    assert row[4] == "says: postgres production · bank · main"


def test_a_record_that_vanishes_from_a_loose_folder_is_no_error(root: Path, port: int) -> None:
    publication = Publication(str(root / "r"), record_on(port), sync=False)
    publication.write()
    (root / "r").chmod(0o755)
    publication.withdraw()
    assert Path(publication.path).exists()
