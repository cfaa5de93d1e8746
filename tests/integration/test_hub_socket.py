"""The hub's sockets, spoken to by plain clients and by other processes."""

import asyncio
import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.hub_shells import FakeLog, FakePort, LineClient, ManualClock, running, short_folder
from upcall.hub.socket import KEEP_S, HubSockets
from upcall.model.errors import HubError, UpcallError
from upcall.model.events import (
    AskRaised,
    CancelAsked,
    NoticeRaised,
    Took,
    WaitAsked,
    WaiterGone,
)
from upcall.model.limits import MAX_LINE_BYTES

ASK = "a0123456789ab"
OTHER = "a0123456789ac"


class Bench:
    """Sockets, with what surrounds them."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.port = FakePort()
        self.log = FakeLog()
        self.clock = ManualClock()
        self.sockets = HubSockets(
            self.port,
            state,
            clock=self.clock,
            log=self.log,
            version="0.1.0",
            max_queued_bytes=512 * 1024,
        )
        self.clients: list[LineClient] = []

    async def client(self, kind: str = "ask", *, hello: bool = True) -> LineClient:
        ask, control = self.sockets.paths
        path = ask if kind == "ask" else control
        client = await LineClient.connect(path, hello=hello)
        self.clients.append(client)
        return client


@contextlib.asynccontextmanager
async def bench(state: str | None = None) -> AsyncIterator[Bench]:
    with short_folder() as folder:
        made = Bench(state or folder)
        await made.sockets.start()
        try:
            yield made
        finally:
            await made.sockets.close()
            for client in made.clients:
                await client.close()


def asking(ask_id: str = ASK, number: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "id": number,
        "op": "ask",
        "ask": {"id": ask_id, "question": "Deploy?", "options": ["Yes", "No"], **fields},
        "session": {"cwd": "/", "program": "x"},
        "wait": True,
    }


# --- greeting and manners -------------------------------------------------------------------


@pytest.mark.asyncio
async def test_says_which_hub_and_socket_it_is() -> None:
    async with bench() as hub:
        for kind in ("ask", "control"):
            client = await hub.client(kind, hello=False)
            answer = await client.ask({"op": "hello", "protocol": 1, "version": "9", "new": 1})
            assert answer == {
                "ok": True,
                "hub": {
                    "pid": os.getpid(),
                    "version": "0.1.0",
                    "protocol": 1,
                    "socket": kind,
                    "state_dir": hub.state,
                },
            }


@pytest.mark.asyncio
async def test_wants_the_hello_first_and_a_protocol_that_it_speaks() -> None:
    async with bench() as hub:
        client = await hub.client(hello=False)
        answer = await client.ask({"id": 3, "op": "cancel", "ask": ASK})
        assert (answer["id"], answer["error"]["code"]) == (3, "hello_needed")
        answer = await client.ask({"op": "hello", "protocol": 2, "version": "9"})
        assert answer["error"]["code"] == "protocol_unknown"
        assert await client.is_over()
        assert hub.port.events == []


@pytest.mark.asyncio
async def test_bad_lines_cost_an_error_each_and_not_the_connection() -> None:
    async with bench() as hub:
        client = await hub.client("control")
        for line, code in [
            (b"not json", "invalid_line"),
            (b"[1]", "invalid_line"),
            (b"\xff\xfe", "invalid_line"),
            (b"[" * 5000, "invalid_line"),
            (b'{"id":7,"op":"dance"}', "unknown_op"),
            (b'{"id":7,"op":5}', "invalid_request"),
            (b'{"id":7,"op":"wait","ask":"zzz"}', "invalid_request"),
            (b'{"id":7,"op":"answer","ask":"a1b2"}', "invalid_request"),
            (b'{"id":7,"op":"log","before":9223372036854775808}', "invalid_request"),
            (b'{"id":7,"op":"log","since_ms":-1}', "invalid_request"),
            (b'{"id":7,"op":"forget","before_ms":9223372036854775808}', "invalid_request"),
            (b'{"id":7,"op":"outbox_drop","letters":[-1]}', "invalid_request"),
            (b'{"id":7,"op":"explain","timeout_s":1e308}', "invalid_request"),
        ]:
            client.writer.write(line + b"\n")
            answer = await client.receive()
            assert answer["ok"] is False
            assert answer["error"]["code"] == code
            assert set(answer["error"]) >= {"class", "code", "msg"}
        client.writer.write(b"\n  \n")
        assert (await client.ask({"id": 8, "op": "status"})) == {"id": 8, "ok": True}


@pytest.mark.asyncio
async def test_nothing_of_a_hostile_op_reaches_the_answer_unescaped() -> None:
    async with bench() as hub:
        client = await hub.client()
        answer = await client.ask({"id": 1, "op": "\x1b]0;x\x07"})
        assert "\x1b" not in answer["error"]["msg"]


@pytest.mark.asyncio
async def test_a_line_may_have_a_mebibyte_and_arrive_in_pieces() -> None:
    async with bench() as hub:
        client = await hub.client()
        filler = "x" * (MAX_LINE_BYTES - 200)
        whole = json.dumps({**asking(), "later": filler}).encode()
        assert len(whole) < MAX_LINE_BYTES
        for start in range(0, len(whole), 100_000):
            client.writer.write(whole[start : start + 100_000])
            await client.writer.drain()
        client.writer.write(b"\n" + json.dumps(asking(OTHER, 2)).encode() + b"\n")
        assert (await hub.port.next(AskRaised)).ask_id == ASK
        assert (await hub.port.next(AskRaised, 2)).ask_id == OTHER


@pytest.mark.asyncio
async def test_a_longer_line_ends_the_connection() -> None:
    async with bench() as hub:
        client = await hub.client()
        client.writer.write(b"x" * (MAX_LINE_BYTES + 2))
        answer = await client.receive()
        assert answer["error"]["code"] == "line_too_long"
        assert await client.is_over()


# --- asking ---------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_an_ask_becomes_an_event_with_the_kernels_word_on_its_asker() -> None:
    async with bench() as hub:
        client = await hub.client()
        client.send(asking(recommended="No", timeout_s=60, key="k", detail="why"))
        event = await hub.port.next(AskRaised)
        assert event.ask_id == ASK
        assert event.spec.question == "Deploy?"
        assert event.spec.options == ("Yes", "No")
        assert event.spec.recommended == 1
        assert event.spec.free_text is False
        assert event.spec.detail == "why"
        assert (event.timeout_s, event.key, event.wait) == (60, "k", True)
        assert event.asker.pid == os.getpid()
        assert event.asker.start
        assert event.asker.parent.startswith(f"{os.getppid()}:")
        assert event.asker.uid == os.geteuid()
        assert event.asker.cwd == str(Path.cwd())
        assert len(event.fresh) >= 16


@pytest.mark.asyncio
async def test_an_ask_is_told_what_was_closed_under_its_id_before() -> None:
    async with bench() as hub:
        client = await hub.client()
        client.send(asking())
        await hub.port.next(AskRaised)
        assert hub.port.looked_up == [ASK]
        hub.port.memory.add(ASK)
        client.send(asking(number=2))
        await hub.port.next(AskRaised, 2)
        assert hub.port.looked_up == [ASK]


@pytest.mark.asyncio
async def test_a_key_is_looked_up_by_the_ask_that_has_it_after_the_id_itself() -> None:
    async with bench() as hub:
        hub.port.keys["k"] = OTHER
        client = await hub.client()
        client.send(asking(key="k"))
        await hub.port.next(AskRaised)
        assert hub.port.looked_up == [ASK, OTHER]


@pytest.mark.asyncio
async def test_answers_and_events_carry_the_requests_id() -> None:
    async with bench() as hub:
        client = await hub.client()
        client.send(asking(number=41))
        waiter = (await hub.port.next(AskRaised)).waiter
        hub.sockets.respond(waiter, {"ask": {"id": ASK}, "channels": []})
        hub.sockets.respond(waiter, {"again": True})
        hub.sockets.event(waiter, "channels", {"channels": []})
        hub.sockets.event(waiter, "ended", {"result": {"id": ASK}})
        assert await client.receive() == {
            "id": 41,
            "ok": True,
            "ask": {"id": ASK},
            "channels": [],
        }
        assert await client.receive() == {"id": 41, "event": "channels", "channels": []}
        assert await client.receive() == {"id": 41, "event": "ended", "result": {"id": ASK}}


@pytest.mark.asyncio
async def test_a_refusal_may_have_fields_beside_its_error() -> None:
    async with bench() as hub:
        client = await hub.client()
        client.send({"id": 2, "op": "took", "ask": ASK, "answer": {"indices": [0]}})
        waiter = (await hub.port.next(Took)).waiter
        error = {"class": "runtime", "code": "already_answered", "msg": "late"}
        hub.sockets.respond(waiter, {"result": {"id": ASK}}, error)
        assert await client.receive() == {
            "id": 2,
            "ok": False,
            "error": error,
            "result": {"id": ASK},
        }
        hub.sockets.event(waiter, "ended", {})
        hub.sockets.respond(waiter, {})
        client.send({"id": 3, "op": "dance"})
        assert (await client.receive())["id"] == 3


@pytest.mark.asyncio
async def test_requests_keep_their_order_while_the_store_is_looked_at() -> None:
    async with bench() as hub:
        hub.port.look_up = asyncio.Event()
        client = await hub.client()
        client.send(asking())
        client.send({"id": 2, "op": "cancel", "ask": ASK})
        await hub.port.until(lambda: hub.port.looked_up == [ASK])
        assert hub.port.events == []
        hub.port.look_up.set()
        await hub.port.next(CancelAsked)
        assert [type(event) for event in hub.port.events] == [AskRaised, CancelAsked]


@pytest.mark.asyncio
async def test_a_cancel_counts_although_its_sender_has_left() -> None:
    async with bench() as hub:
        hub.port.look_up = asyncio.Event()
        client = await hub.client()
        client.send({"id": 1, "op": "wait", "ask": OTHER})
        client.send(asking(number=2))
        client.send({"id": 3, "op": "cancel", "ask": ASK})
        await hub.port.until(lambda: hub.port.looked_up == [OTHER])
        await client.close()
        await hub.port.next(WaiterGone)
        hub.port.look_up.set()
        await hub.port.next(CancelAsked)
        # Nobody is there any more to hear of these.
        assert hub.port.of(WaitAsked) == []
        assert hub.port.of(AskRaised) == []


@pytest.mark.asyncio
async def test_who_leaves_is_told_with_all_that_it_waited_for() -> None:
    async with bench() as hub:
        client = await hub.client()
        client.send(asking())
        client.send({"id": 2, "op": "wait", "ask": OTHER})
        first = (await hub.port.next(AskRaised)).waiter
        second = (await hub.port.next(WaitAsked)).waiter
        hub.sockets.respond(first, {})
        hub.sockets.event(first, "ended", {})
        await client.close()
        # Also the one that has ended: its asker has not said that it has the answer.
        assert (await hub.port.next(WaiterGone)).waiters == (first, second)


@pytest.mark.asyncio
async def test_who_took_its_answer_waits_no_longer() -> None:
    async with bench() as hub:
        client = await hub.client()
        client.send(asking())
        waiter = (await hub.port.next(AskRaised)).waiter
        hub.sockets.respond(waiter, {})
        hub.sockets.event(waiter, "ended", {})
        client.send({"id": 2, "op": "took", "ask": ASK})
        took = await hub.port.next(Took)
        assert (took.local, took.indices, took.text, took.declined) == (
            False,
            None,
            None,
            False,
        )
        assert took.asker is not None
        assert took.asker.pid == os.getpid()
        hub.sockets.respond(took.waiter, {})
        await client.receive()
        await client.receive()
        await client.receive()
        client.send({"id": 3, "op": "wait", "ask": OTHER})
        left = (await hub.port.next(WaitAsked)).waiter
        await client.close()
        assert (await hub.port.next(WaiterGone)).waiters == (left,)


@pytest.mark.asyncio
async def test_an_answer_at_the_askers_own_terminal_names_the_process() -> None:
    async with bench() as hub:
        client = await hub.client()
        client.send({"id": 1, "op": "took", "ask": ASK, "answer": {"indices": [1]}})
        client.send({"id": 2, "op": "took", "ask": ASK, "answer": {"declined": True}})
        client.send({"id": 3, "op": "took", "ask": ASK, "answer": {}})
        took = await hub.port.next(Took)
        assert (took.local, took.indices) == (True, (1,))
        assert took.who.pid == os.getpid()
        assert took.who.ancestors[0] == f"{os.getpid()}:{took.who.pid_start}"
        assert any(one.startswith(f"{os.getppid()}:") for one in took.who.ancestors)
        assert took.who.local
        assert (await hub.port.next(Took, 2)).declined
        assert (await client.receive())["error"]["code"] == "invalid_request"


@pytest.mark.asyncio
async def test_notices() -> None:
    async with bench() as hub:
        client = await hub.client()
        client.send({"id": 1, "op": "notify", "text": "done", "level": "warning"})
        event = await hub.port.next(NoticeRaised)
        assert (event.text, event.level) == ("done", "warning")
        answer = await client.ask({"id": 2, "op": "notify", "text": "a\0b"})
        assert answer["error"]["code"] == "invalid_request"


@pytest.mark.asyncio
async def test_an_ask_out_of_bounds_never_becomes_an_event() -> None:
    async with bench() as hub:
        client = await hub.client()
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"question": ""}, "invalid_ask"),
            ({"question": "x" * 9000}, "invalid_ask"),
            ({"options": ["Yes", "yes"]}, "ambiguous_labels"),
            ({"recommended": "Maybe"}, "invalid_ask"),
            ({"timeout_s": 0.001}, "invalid_ask"),
            ({"id": "short"}, "invalid_request"),
            ({"id": "ask:" + ASK}, "invalid_request"),
        ]
        for fields, code in wrong:
            answer = await client.ask(asking(**fields))
            assert answer["error"]["code"] == code, fields
        assert hub.port.events == []


@pytest.mark.asyncio
async def test_a_failure_while_looking_up_is_an_answer_and_leaves_the_rest_working() -> None:
    async with bench() as hub:
        real = hub.port.find_closed

        async def broken(ask_id: str) -> None:
            raise RuntimeError("planted")

        hub.port.find_closed = broken  # type: ignore[method-assign]  # a planted fault
        client = await hub.client()
        answer = await client.ask(asking())
        assert answer["error"]["code"] == "internal"
        assert hub.log.events() == ["request_failed"]
        hub.port.find_closed = real  # type: ignore[method-assign]  # undo it
        client.send(asking(number=2))
        assert (await hub.port.next(AskRaised)).ask_id == ASK


# --- controlling ----------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_the_asking_socket_can_only_ask() -> None:
    async with bench() as hub:
        client = await hub.client("ask")
        for op in [
            "answer",
            "asks",
            "sessions",
            "watch",
            "login",
            "roots",
            "status",
            "reload",
            "stop",
        ]:
            answer = await client.ask({"id": 1, "op": op, "ask": ASK})
            assert answer["error"]["code"] == "not_permitted", op
        assert hub.port.controls == []
        assert hub.port.watching == set()


@pytest.mark.asyncio
async def test_controls_get_their_fields_with_defaults_filled_in() -> None:
    async with bench() as hub:
        hub.port.do = lambda op, request: {"op_was": op}
        client = await hub.client("control")
        answer = await client.ask({"id": 1, "op": "asks", "new_field": [1]})
        assert answer == {"id": 1, "ok": True, "op_was": "asks"}
        await client.ask({"id": 2, "op": "answer", "ask": "a1b2", "values": ["#2"]})
        listed, answered = hub.port.controls
        assert listed[:2] == ("asks", {"ask": None, "state": "open", "limit": 100})
        assert answered[1]["values"] == ["#2"] or answered[1]["values"] == ("#2",)
        assert answered[1]["decline"] is False
        assert answered[2].pid == os.getpid()
        assert answered[3].pid == os.getpid()


@pytest.mark.asyncio
async def test_a_refused_control_keeps_what_goes_beside_the_error() -> None:
    class Ambiguous(UpcallError):
        code = "ambiguous_ask"
        extra = {"candidates": ["a1", "a2"]}  # noqa: RUF012 - a constant

    def refuse(op: str, request: dict[str, Any]) -> dict[str, Any]:
        raise Ambiguous("two asks begin so")

    async with bench() as hub:
        hub.port.do = refuse
        client = await hub.client("control")
        answer = await client.ask({"id": 1, "op": "answer", "ask": "a1b2", "decline": True})
        assert answer["candidates"] == ["a1", "a2"]
        assert answer["error"]["code"] == "ambiguous_ask"


@pytest.mark.asyncio
async def test_a_slow_control_does_not_hold_up_the_next() -> None:
    slow = asyncio.Event()

    async def answer(op: str, request: dict[str, Any]) -> dict[str, Any]:
        if op == "answer":
            await slow.wait()
        return {}

    async with bench() as hub:
        hub.port.do = answer
        client = await hub.client("control")
        client.send({"id": 1, "op": "answer", "ask": "a1b2", "decline": True})
        assert (await client.ask({"id": 2, "op": "status"}))["id"] == 2
        slow.set()
        assert (await client.receive())["id"] == 1


@pytest.mark.asyncio
async def test_watching_begins_with_the_answer_and_ends_with_the_connection() -> None:
    async with bench() as hub:
        client = await hub.client("control")
        assert await client.ask({"id": 5, "op": "watch"}) == {"id": 5, "ok": True}
        (waiter,) = hub.port.watching
        hub.sockets.event(waiter, "screen", {"asks": []})
        assert await client.receive() == {"id": 5, "event": "screen", "asks": []}
        await client.close()
        await hub.port.until(lambda: not hub.port.watching)


@pytest.mark.asyncio
async def test_an_answer_beyond_a_line_is_shortened_or_refused() -> None:
    asks = [{"id": str(number), "detail": "d" * 250_000} for number in range(8)]

    async with bench() as hub:
        hub.port.do = lambda op, request: {"asks": asks} if op == "asks" else {"x": "y" * 2**21}
        client = await hub.client("control")
        answer = await client.ask({"id": 1, "op": "asks"})
        assert len(answer["asks"]) == 8
        assert answer["shortened"] is True
        answer = await client.ask({"id": 2, "op": "status"})
        assert answer["error"]["code"] == "answer_too_long"


# --- clients that misbehave -----------------------------------------------------------------


@pytest.mark.asyncio
async def test_who_does_not_read_is_disconnected_and_delays_nobody() -> None:
    async with bench() as hub:
        deaf, other = await hub.client("control"), await hub.client("control")
        deaf.send({"id": 1, "op": "watch"})
        await hub.port.until(lambda: len(hub.port.watching) == 1)
        (waiter,) = hub.port.watching
        for number in range(100):
            hub.sockets.event(waiter, "notice", {"n": number, "text": "x" * 50_000})
        await hub.port.until(lambda: not hub.port.watching)
        assert (await other.ask({"id": 1, "op": "status"}))["ok"] is True


@pytest.mark.asyncio
async def test_who_is_behind_gets_only_the_newest_screen() -> None:
    async with bench() as hub:
        slow = await hub.client("control")
        slow.send({"id": 1, "op": "watch"})
        await hub.port.until(lambda: len(hub.port.watching) == 1)
        (waiter,) = hub.port.watching
        for number in range(200):
            hub.sockets.event(waiter, "screen", {"n": number, "text": "x" * 50_000})
        assert (await slow.receive())["ok"] is True
        seen = [(await slow.receive())["n"]]
        while seen[-1] != 199:
            seen.append((await slow.receive())["n"])
        assert seen == sorted(seen)
        assert len(seen) < 100


@pytest.mark.asyncio
async def test_unanswered_requests_of_one_client_are_bounded() -> None:
    async with bench() as hub:
        client = await hub.client()
        hub.port.memory.add(ASK)
        lines = b"".join(
            json.dumps({"id": number, "op": "cancel", "ask": ASK}).encode() + b"\n"
            for number in range(5000)
        )
        sending = asyncio.create_task(drained(client, lines))
        await hub.port.until(lambda: len(hub.port.of(CancelAsked)) >= 1024)
        other = await hub.client()
        other.send(asking(OTHER))
        await hub.port.next(AskRaised)
        assert len(hub.port.of(CancelAsked)) < 2000
        answered = 0
        while answered < 5000:
            await hub.port.next(CancelAsked, answered + 1)
            for event in hub.port.of(CancelAsked)[answered:]:
                hub.sockets.respond(event.waiter, {})
                answered += 1
        await sending


async def drained(client: LineClient, lines: bytes) -> None:
    client.writer.write(lines)
    await client.writer.drain()
    for _ in range(5000):
        await client.receive()


# --- the files ------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_sockets_are_private_whatever_the_umask_and_leave_nothing() -> None:
    with short_folder() as state:
        former = os.umask(0)
        try:
            async with bench(state) as hub:
                for path in hub.sockets.paths:
                    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
                assert sorted(os.listdir(state)) == ["ask.sock", "control.sock"]
        finally:
            os.umask(former)
        assert os.listdir(state) == []


@pytest.mark.asyncio
async def test_what_a_killed_hub_left_is_replaced() -> None:
    with short_folder() as state:
        for name in ("ask.sock", "control.sock", "control.sock~"):
            left = socket.socket(socket.AF_UNIX)
            left.bind(f"{state}/{name}")
            left.close()
        async with bench(state) as hub:
            assert (await (await hub.client("control")).ask({"id": 1, "op": "status"}))["ok"]


@pytest.mark.asyncio
async def test_what_is_no_socket_is_left_alone() -> None:
    with short_folder() as state:
        Path(state, "control.sock").write_text("precious")
        with pytest.raises(HubError) as caught:
            async with bench(state):
                pass
        assert caught.value.code == "socket_path_taken"
        assert Path(state, "control.sock").read_text() == "precious"
        assert not Path(state, "ask.sock").exists()


@pytest.mark.asyncio
async def test_a_deep_state_folder_gets_sockets_elsewhere() -> None:
    with short_folder() as folder:
        deep = Path(folder, "d" * 100)
        deep.mkdir(mode=0o700)
        async with bench(str(deep)) as hub:
            assert all(len(path) < 100 for path in hub.sockets.paths)
            assert (await (await hub.client("control")).ask({"id": 1, "op": "status"}))["ok"]
        assert not any(os.path.exists(path) for path in hub.sockets.paths)


@pytest.mark.asyncio
async def test_deleted_sockets_come_back_and_connections_stay() -> None:
    async with bench() as hub:
        client = await hub.client("control")
        moved = asyncio.Event()
        async with running(hub.sockets.keep(moved.set)):
            await hub.clock.until_waited_for(KEEP_S)
            hub.clock.advance(KEEP_S)
            await hub.clock.until_waited_for(KEEP_S)
            assert not moved.is_set()
            os.unlink(hub.sockets.paths[0])
            hub.clock.advance(KEEP_S)
            async with asyncio.timeout(20):
                await moved.wait()
            assert (await client.ask({"id": 1, "op": "status"}))["ok"]
            (await hub.client("ask")).send(asking())
            await hub.port.next(AskRaised)


@pytest.mark.asyncio
async def test_who_is_in_stays_when_nobody_is_let_in_any_more() -> None:
    async with bench() as hub:
        client = await hub.client("control")
        path = hub.sockets.paths[1]
        hub.sockets.stop_listening()
        assert not os.path.exists(path)
        assert (await client.ask({"id": 1, "op": "status"}))["ok"]
        assert hub.sockets.clients == 1


# --- other processes ------------------------------------------------------------------------

SPEAK = """
import json, os, socket, sys
if len(sys.argv) > 3:
    os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
f = s.makefile("rwb")
for line in ({"op":"hello","protocol":1,"version":"0"}, json.loads(sys.argv[2])):
    f.write(json.dumps(line).encode() + b"\\n"); f.flush()
    print(f.readline().decode().strip(), flush=True)
"""


async def spoken(path: str, line: dict[str, Any], *more: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SPEAK,
        path,
        json.dumps(line),
        *more,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    return out.decode().splitlines()


@pytest.mark.asyncio
async def test_an_answering_process_is_told_with_the_line_of_its_ancestors() -> None:
    async with bench() as hub:
        line = {"id": 1, "op": "answer", "ask": "a1b2", "decline": True}
        await spoken(hub.sockets.paths[1], line)
        _, _, who, asker = hub.port.controls[0]
        assert who.pid not in {None, os.getpid()}
        assert who.ancestors[0].startswith(f"{who.pid}:")
        assert who.ancestors[1].startswith(f"{os.getpid()}:")
        assert f"pid {who.pid}" in who.detail
        assert asker.pid == who.pid
        assert asker.parent == who.ancestors[1]


@pytest.mark.foreign_uid
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a child as another user")
@pytest.mark.asyncio
async def test_another_user_can_be_let_ask_but_never_control() -> None:
    async with bench() as hub:
        os.chmod(hub.state, 0o755)
        for path in hub.sockets.paths:
            os.chmod(path, 0o666)
        ask, control = hub.sockets.paths
        asked = asyncio.create_task(spoken(ask, asking(), "foreign"))
        event = await hub.port.next(AskRaised)
        assert event.asker.uid == 65534
        hub.sockets.respond(event.waiter, {})
        assert json.loads((await asked)[1])["ok"] is True
        for op in ("answer", "asks", "status", "reload"):
            refused = await spoken(ask, {"id": 1, "op": op, "ask": ASK}, "foreign")
            assert json.loads(refused[1])["error"]["code"] == "not_permitted"
        (sent_away, *_) = await spoken(control, {"id": 1, "op": "status"}, "foreign")
        assert json.loads(sent_away)["error"]["code"] == "not_permitted"
        assert hub.port.controls == []
        os.chmod(hub.state, 0o700)
