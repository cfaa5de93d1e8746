"""S33: silence, crowds and floods of one program or user shut nobody else out.

Real sockets and, where the suite runs as root, a child of another user.
"""

import asyncio
import contextlib
import itertools
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.home import Home, Line, eventually
from fakes.hub_shells import FakeLog, FakePort, LineClient, ManualClock, running, short_folder
from upcall.hub.desk_limits import FOREIGN_NOTICES_AT_ONCE, NOTICES_AT_ONCE, DeskLimits
from upcall.hub.gate import Gate, Places
from upcall.hub.peer import Peer
from upcall.hub.socket import KEEP_S, HubSockets
from upcall.model.errors import HubError
from upcall.model.events import NoticeRaised
from upcall.model.limits import (
    HELLO_S,
    MAX_FOREIGN_CLIENTS,
    MAX_FOREIGN_PARTIAL_BYTES,
    MAX_HELLO_BYTES,
    MAX_LINE_BYTES,
    MAX_OPEN_ASKS_OF_FOREIGN_USER,
    MAX_OPEN_ASKS_OF_SESSION,
    MAX_PARTIAL_BYTES,
    MAX_WATCHERS,
)
from upcall.session.entrance import Entrance
from upcall.session.peers import PeerAddress
from upcall_discovery.scan import MAX_RECORDS, scan
from wire.rig import host

NOBODY = 65534
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who connects")

# --- a session's endpoint ---------------------------------------------------------------------

# Another user's program: holds connections to a port, and says something on each.
CROWD = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
port, count, kind, said = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
held = []
for _ in range(count):
    if kind == "mapped":
        made = socket.socket(socket.AF_INET6)
        made.connect(("::ffff:127.0.0.1", port))
    elif kind == "other address":
        made = socket.socket()
        made.bind(("127.0.0.2", 0))
        made.connect(("127.0.0.1", port))
    else:
        made = socket.create_connection(("127.0.0.1", port))
    try:
        made.sendall(said.encode().decode("unicode_escape").encode())
    except OSError:
        pass
    held.append(made)
print("ready", flush=True)
sys.stdin.read()
"""
BAD = "GET / HTTP/1.1\\r\\nHost: evil.example\\r\\nUpgrade: websocket\\r\\n\\r\\n"


@contextlib.asynccontextmanager
async def crowd(*words: str) -> AsyncIterator[None]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-X",
        "importtime=0",
        "-c",
        "import encodings.idna, encodings.unicode_escape\n" + CROWD,
        *words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        assert await child.stdout.readline() == b"ready\n"
        yield
    finally:
        child.kill()
        await child.communicate()


@linux
@pytest.mark.foreign_uid
@pytest.mark.parametrize("kind", ["plain", "mapped", "other address"])
@pytest.mark.parametrize("said", ["", "GET / HTTP/1.1\\r\\n", BAD])
@pytest.mark.asyncio
async def test_another_users_sockets_leave_room_for_our_own_client(
    kind: str, said: str
) -> None:
    async with (
        host(handshake_s=30.0) as made,
        crowd(str(made.endpoint.port), "64", kind, said),
        asyncio.timeout(2),
        made.client() as client,
    ):
        assert client.capabilities


@linux
@pytest.mark.asyncio
async def test_a_refused_handshake_costs_no_place() -> None:
    """Also while its sender has not read that it is refused."""
    async with host(handshake_s=30.0) as made:
        said = BAD.encode().decode("unicode_escape").encode()
        refused = []
        for _ in range(40):
            reader, writer = await asyncio.open_connection("127.0.0.1", made.endpoint.port)
            refused.append(writer)
            writer.write(said)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read(12) in {b"HTTP/1.1 403", b""}
        async with asyncio.timeout(2), made.client() as client:
            assert client.capabilities
        for writer in refused:
            writer.close()


class Guest:
    def __init__(self) -> None:
        self.is_cut = False

    def abort(self) -> None:
        self.is_cut = True


@pytest.mark.asyncio
async def test_the_kernel_is_asked_once_for_all_that_come_together() -> None:
    looks: list[int] = []

    def ask_uids(port: int, peers: Any) -> dict[PeerAddress, int]:
        assert port == 80
        looks.append(len(peers))
        return {peer: os.geteuid() if peer[1] % 2 else NOBODY for peer in peers if peer[1] > 9}

    entrance = Entrance(16, ask_uids)
    entrance.port = 80
    guests = [Guest() for _ in range(100)]
    assert all(entrance.admits(guest, ("127.0.0.1", at)) for at, guest in enumerate(guests))
    assert entrance.admits(guests[0], None) is False
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert looks == [92]
    # The first eight, and of the rest eight of our own user; who left already is cut, too.
    assert [at for at, guest in enumerate(guests) if not guest.is_cut] == [
        *range(8), 11, 13, 15, 17, 19, 21, 23, 25,
    ]  # fmt: skip
    entrance.close()


@pytest.mark.asyncio
async def test_where_the_system_cannot_tell_the_places_go_to_who_comes_first() -> None:
    entrance = Entrance(16, lambda _port, _peers: None)
    guests = [Guest() for _ in range(20)]
    for at, guest in enumerate(guests):
        entrance.admits(guest, ("127.0.0.1", at))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(guest.is_cut for guest in guests) == 4
    entrance.close()


@linux
@pytest.mark.asyncio
async def test_a_listener_without_a_descriptor_left_serves_again_when_there_is_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reported: list[dict[str, Any]] = []
    async with host() as made:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
        lowest = os.dup(0)
        os.close(lowest)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            for one in waiting:
                with contextlib.suppress(BlockingIOError):
                    one.connect(("127.0.0.1", made.endpoint.port))
            began = time.process_time()
            while not reported:
                await asyncio.sleep(0)
            # It waits a second now, and does not try again and again meanwhile.
            ticks = len(reported)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(reported) == ticks
            assert time.process_time() - began < 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for one in waiting:
                one.close()
        async with asyncio.timeout(5), made.client() as client:
            assert client.capabilities
        loop.set_exception_handler(None)


# --- the hub's two sockets, in this process ---------------------------------------------------


class Bench:
    def __init__(self, state: str, places: Places | None) -> None:
        self.port = FakePort()
        self.clock = ManualClock()
        self.sockets = HubSockets(
            self.port,
            state,
            clock=self.clock,
            log=FakeLog(),
            version="0.1.0",
            places=places,
        )
        self.made: list[socket.socket] = []

    def connect(self, kind: str, said: bytes = b"") -> socket.socket:
        path = self.sockets.paths[0 if kind == "ask" else 1]
        made = socket.socket(socket.AF_UNIX)
        self.made.append(made)
        made.setblocking(False)
        made.connect(path)
        if said:
            made.send(said)
        return made

    async def client(self, kind: str = "ask") -> LineClient:
        path = self.sockets.paths[0 if kind == "ask" else 1]
        async with asyncio.timeout(5):
            return await LineClient.connect(path)


HELLO = b'{"op":"hello","protocol":1,"version":"0.1.0"}\n'


@contextlib.asynccontextmanager
async def bench(places: Places | None = None) -> AsyncIterator[Bench]:
    with short_folder() as folder:
        made = Bench(folder, places)
        await made.sockets.start()
        try:
            yield made
        finally:
            await made.sockets.close()
            for one in made.made:
                one.close()


@pytest.mark.parametrize("kind", ["ask", "control"])
@pytest.mark.asyncio
async def test_silent_connections_make_room_for_who_says_hello(kind: str) -> None:
    places = Places(total=64, silent=8, foreign=8, of_foreign_user=4)
    async with bench(places) as hub:
        for _ in range(100):
            hub.connect(kind)
            await asyncio.sleep(0)
        for one in ("ask", "control"):
            client = await hub.client(one)
            await client.close()
        assert hub.sockets.clients <= 9


@pytest.mark.asyncio
async def test_the_last_places_are_not_for_who_has_taken_the_others() -> None:
    gate = Gate(Places(total=64, silent=64, foreign=8, of_foreign_user=4))
    crowd_of = [Caller(100) for _ in range(64)]
    refusals = [gate.enter(one, 0.0) for one in crowd_of]
    for one in crowd_of:
        gate.greeted(one)
    assert [bool(one) for one in refusals] == [False] * 60 + [True] * 4
    full = refusals[-1]
    assert isinstance(full, HubError)
    assert (full.code, "64" in full.msg, "100" in full.msg) == ("limit_reached", True, True)
    assert full.recover
    newcomers = [Caller(200 + at) for at in range(5)]
    assert [bool(gate.enter(one, 0.0)) for one in newcomers] == [False] * 4 + [True]
    gate.leave(crowd_of[0])
    gate.leave(crowd_of[0])
    assert gate.enter(Caller(300), 0.0) is None


class Caller:
    def __init__(self, pid: int, uid: int | None = None) -> None:
        self.peer = Peer(pid, os.geteuid() if uid is None else uid)


def test_another_user_has_a_small_number_of_places() -> None:
    gate = Gate(Places(total=64, silent=64, foreign=8, of_foreign_user=4))
    for uid, refused in ((NOBODY, 4), (NOBODY - 1, 4), (NOBODY - 2, 0)):
        found = [gate.enter(Caller(1, uid), 0.0) for _ in range(8)]
        assert [one is None for one in found] == [True] * refused + [False] * (8 - refused)
        assert all(one.code == "limit_reached" for one in found if one is not None)
    assert gate.enter(Caller(1), 0.0) is None


def test_the_places_leave_descriptors_for_everything_else() -> None:
    for descriptors in (64, 256, 1024, 4096, 20_000, 1_000_000):
        places = Places.within(descriptors)
        assert places.total <= 8192
        assert places.silent < places.total
        assert places.of_foreign_user < places.foreign < places.total
        if descriptors >= 256:
            assert places.total < descriptors * 3 // 4
    assert Places.within(1_000_000) == Places()


@pytest.mark.asyncio
async def test_who_does_not_say_hello_has_to_go() -> None:
    async with bench() as hub, running(hub.sockets.keep(lambda: None)):
        silent = await LineClient.connect(hub.sockets.paths[1], hello=False)
        slow = await LineClient.connect(hub.sockets.paths[0], hello=False)
        slow.writer.write(b'{"op":"hel')
        polite = await hub.client("control")
        for _ in range(4):
            await hub.clock.until_waited_for(KEEP_S)
            hub.clock.advance(KEEP_S)
        assert 4 * KEEP_S > HELLO_S
        for one in (silent, slow):
            assert (await one.receive())["error"]["code"] == "hello_late"
            assert await one.is_over()
        answer = await polite.ask({"id": 1, "op": "status"})
        assert answer["ok"] is True
        for one in (silent, slow, polite):
            await one.close()


@pytest.mark.asyncio
async def test_before_the_hello_a_line_is_short_and_behind_it_as_long_as_ever() -> None:
    async with bench() as hub:
        long = hub.connect("ask", b" " * (MAX_HELLO_BYTES + 1))
        reader = await asyncio.open_unix_connection(sock=long)
        told = json.loads(await reader[0].readline())
        assert told["error"]["code"] == "line_too_long"
        assert str(MAX_HELLO_BYTES) in told["error"]["msg"]
        reader[1].close()
        both = await LineClient.connect(hub.sockets.paths[0], hello=False)
        text = {"id": 1, "op": "notify", "text": "t" * 60_000, "more": "x" * 900_000}
        both.writer.write(HELLO + json.dumps(text).encode() + b"\n")
        assert (await both.receive())["ok"] is True
        await hub.port.next(NoticeRaised)
        await both.close()


@pytest.mark.asyncio
async def test_lines_that_nobody_ends_are_bounded_together() -> None:
    begun = b"x" * (MAX_LINE_BYTES - 1)
    async with bench() as hub:
        crowd_of = [await hub.client() for _ in range(MAX_PARTIAL_BYTES // len(begun) + 4)]
        small = await hub.client()
        small.writer.write(b'{"id":1,"op":"not')
        await small.writer.drain()
        for one in crowd_of:
            one.writer.write(begun)
            with contextlib.suppress(ConnectionError):
                await one.writer.drain()
        # Which of them it is depends on whose last bytes come last.
        hearing = [asyncio.create_task(one.receive()) for one in crowd_of]
        async with asyncio.timeout(10):
            for heard in itertools.islice(asyncio.as_completed(hearing), 4):
                told = await heard
                assert told["error"]["code"] == "limit_reached"
                assert str(MAX_PARTIAL_BYTES) in told["error"]["msg"]
        for task in hearing:
            task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)
        small.writer.write(b'ify","text":"hello"}\n')
        await hub.port.next(NoticeRaised)
        for one in crowd_of:
            await one.close()
        await small.close()
    assert MAX_FOREIGN_PARTIAL_BYTES * 4 < MAX_PARTIAL_BYTES


@pytest.mark.asyncio
async def test_screens_are_bounded() -> None:
    async with bench() as hub:
        client = await hub.client("control")
        for number in range(MAX_WATCHERS):
            assert (await client.ask({"id": number, "op": "watch"}))["ok"] is True
        refused = await client.ask({"id": 999, "op": "watch"})
        assert refused["error"]["code"] == "limit_reached"
        assert str(MAX_WATCHERS) in refused["error"]["msg"]
        assert len(hub.port.watching) == MAX_WATCHERS
        await client.close()
        again = await hub.client("control")
        await hub.port.until(lambda: not hub.port.watching)
        assert (await again.ask({"id": 1, "op": "watch"}))["ok"] is True
        await again.close()


def test_notices_are_bounded_for_each_user_and_come_back_with_time() -> None:
    clock = ManualClock()
    limits = DeskLimits(clock, lambda _: True)
    for uid, at_once in ((os.geteuid(), NOTICES_AT_ONCE), (NOBODY, FOREIGN_NOTICES_AT_ONCE)):
        for _ in range(at_once):
            limits.notice(uid)
        with pytest.raises(HubError) as full:
            limits.notice(uid)
        assert full.value.code == "limit_reached"
        assert str(at_once) in full.value.msg
    limits.notice(NOBODY - 1)
    clock.advance(2.0)
    for uid in (os.geteuid(), NOBODY):
        limits.notice(uid)


def test_a_thousand_users_cost_no_memory_for_ever() -> None:
    clock = ManualClock()
    limits = DeskLimits(clock, lambda _: True)
    for uid in range(1000, 4000):
        limits.notice(uid)
        clock.advance(2.0)
    assert len(limits._paid_until_s) <= 256


@pytest.mark.asyncio
async def test_a_flood_of_notices_is_told_so_and_delays_nobody() -> None:
    async with bench() as hub:
        client = await hub.client()
        flood = [{"id": at, "op": "notify", "text": "x"} for at in range(NOTICES_AT_ONCE + 50)]
        for message in flood:
            client.send(message)
        for _ in range(50):
            assert (await client.receive())["error"]["code"] == "limit_reached"
        assert len(hub.port.of(NoticeRaised)) == NOTICES_AT_ONCE
        await client.close()


def test_open_asks_of_another_user_are_bounded_and_ended_ones_do_not_count() -> None:
    clock = ManualClock()
    opened: set[str] = set()
    limits = DeskLimits(clock, opened.__contains__)
    for at in range(MAX_OPEN_ASKS_OF_FOREIGN_USER):
        ask: Any = f"a{at:012d}"
        limits.ask(NOBODY, ask)
        limits.ask(NOBODY, ask)  # raised again: the same one
        opened.add(ask)
    late: Any = "a999999999999"
    with pytest.raises(HubError) as full:
        limits.ask(NOBODY, late)
    assert full.value.code == "limit_reached"
    assert str(MAX_OPEN_ASKS_OF_FOREIGN_USER) in full.value.msg
    limits.ask(os.geteuid(), late)
    limits.ask(NOBODY - 1, late)
    clock.advance(10)
    opened.pop()
    limits.ask(NOBODY, late)


# --- a whole hub ------------------------------------------------------------------------------


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def crowd_on(path: str, count: int, said: bytes = b"") -> list[socket.socket]:
    held = []
    for _ in range(count):
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(10)
        try:
            made.connect(path)
            if said:
                made.sendall(said)
        except OSError:
            made.close()
            continue
        held.append(made)
    return held


@pytest.mark.parametrize("said", [b"", HELLO])
def test_thousands_of_connections_of_one_program_shut_out_neither_socket(
    home: Home, said: bytes
) -> None:
    hub = home.start_hub()
    told = home.hub_json()
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200
    count = min(4500, room // 2)
    held: list[socket.socket] = []
    try:
        for name in ("ask_sock", "control_sock"):
            held += crowd_on(str(told[name]), count, said)
        began = time.monotonic()
        # Of another process than the crowd's.
        done = home.run("ask", "Still there?", "-o", "yes", "--no-wait")
        assert done.code == 0, done
        assert home.run("answer", done.out.strip(), "yes").code == 0
        assert time.monotonic() - began < 10
    finally:
        for one in held:
            one.close()
    assert home.hub_pid() == hub


@linux
def test_a_hub_with_few_descriptors_survives_a_crowd(home: Home) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))

    hub = home.start("hub", "run", before=few)
    eventually(lambda: home.hub_pid() == hub.pid)
    held: list[socket.socket] = []
    try:
        for name in ("ask_sock", "control_sock"):
            held += crowd_on(str(home.hub_json()[name]), 400, HELLO)
        done = home.run("ask", "Still there?", "-o", "yes", "--no-wait")
        assert done.code == 0, done
        with home.line("control") as line:
            assert line.ok("status")["open_asks"] == 1
    finally:
        for one in held:
            one.close()
    assert home.run("answer", done.out.strip(), "yes").code == 0
    assert "Traceback" not in hub.err()


@pytest.mark.foreign_uid
def test_another_user_with_the_ask_socket_has_its_limits_named(home: Home) -> None:
    home.start_hub()
    path = f"{home.path}/box"
    os.mkdir(path, 0o755)
    os.chmod(home.path, 0o711)
    os.link(home.hub_json()["ask_sock"], f"{path}/ask.sock")
    os.chmod(f"{path}/ask.sock", 0o666)
    program = (
        "import json, os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "def connect():\n"
        "    made = socket.socket(socket.AF_UNIX)\n"
        "    made.connect(sys.argv[1])\n"
        '    made.sendall(b\'{"op":"hello","protocol":1,"version":"0"}\\n\')\n'
        "    return made, made.makefile('r')\n"
        "held = [connect() for _ in range(80)]\n"
        "told = [json.loads(one[1].readline()) for one in held]\n"
        "print(json.dumps([one.get('error') for one in told if not one['ok']]))\n"
        "sock, lines = held[0]\n"
        "for at in range(80):\n"
        "    spec = {'id': f'a{at:012d}', 'question': 'x', 'options': ['y']}\n"
        "    ask = {'id': at, 'op': 'ask', 'ask': spec, 'wait': False}\n"
        "    sock.sendall(json.dumps(ask).encode() + b'\\n')\n"
        "told = [json.loads(lines.readline()) for _ in range(80)]\n"
        "print(json.dumps([one.get('error') for one in told if not one['ok']]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, f"{path}/ask.sock"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    clients, asks = (json.loads(line) for line in done.stdout.splitlines())
    assert len(clients) == len(asks) == 16
    for refused in (*clients, *asks):
        assert refused["code"] == "limit_reached"
        assert "64" in refused["msg"]
        assert refused["recover"]
    # Ours are as before.
    assert home.run("ask", "Mine?", "-o", "yes", "--no-wait").code == 0
    assert MAX_FOREIGN_CLIENTS == 256


def test_open_asks_of_one_program_are_bounded(home: Home) -> None:
    """More than that many are only a bug or an attack, and they would be cards."""
    home.start_hub()
    with home.line() as line:
        codes = raise_asks(line, MAX_OPEN_ASKS_OF_SESSION + 3)
    assert codes == {None: MAX_OPEN_ASKS_OF_SESSION, "limit_reached": 3}


def raise_asks(line: Line, count: int) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for first in range(0, count, 512):
        numbers = [
            line.post(
                "ask",
                ask={"id": f"a{at:012d}", "question": "x", "options": ["y"]},
                session={},
                wait=False,
            )
            for at in range(first, min(count, first + 512))
        ]
        for number in numbers:
            answer = line.answer_to(number)
            code = None if answer["ok"] else str(answer["error"]["code"])
            found[code] = found.get(code, 0) + 1
    return found


def test_a_folder_of_ten_thousand_records_is_read_as_far_as_the_limit(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir(mode=0o700)
    for at in range(10_000):
        (folder / f"s{at}.json").touch(0o600)
    began = time.process_time()
    found = scan(str(folder), now_ms=time.time_ns() // 1_000_000)
    assert time.process_time() - began < 5
    assert len(found.refused) == MAX_RECORDS + 1
    assert found.refused[-1].code == "too_many_records"
    assert str(MAX_RECORDS) in found.refused[-1].reason
