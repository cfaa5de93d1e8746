"""Many at once, and some of them slow: nobody waits for another."""

import base64
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.home import Home, Json, Line, eventually

SESSIONS = 200
PROCESSES = 4
SESSION: Json = {"program": "test", "cwd": "/"}

# As many sessions as told, each with one ask; every one of them checks its own answer.
PROGRAM = """
import asyncio, sys
from contextlib import AsyncExitStack
from upcall import Session

first, count = int(sys.argv[1]), int(sys.argv[2])

async def one(stack, number):
    session = await stack.enter_async_context(
        Session(f"session {number}", session_id=f"scale-{number}", hub=False)
    )
    answer = await session.ask(f"question {number}", ["even", "odd"])
    assert str(answer) == ("even", "odd")[number % 2], (number, answer)

async def main():
    async with AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as tasks:
            for number in range(first, first + count):
                tasks.create_task(one(stack, number))
        print("all answered", flush=True)

asyncio.run(main())
"""


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


def round_trip_s(home: Home, number: int, control: Line) -> float:
    """Return how long an ask took from raising to its end."""
    with home.line() as line:
        spec: Json = {"id": f"a{number:012d}", "question": f"{number}?", "options": ["yes"]}
        since_s = time.monotonic()
        line.ok("ask", ask={**spec, "free_text": False}, session=SESSION, wait=True)
        answer = control.post("answer", ask=spec["id"], values=["yes"])
        assert line.event("ended")["result"]["outcome"] == "answered"
        line.ok("took", ask=spec["id"])
        control.answer_to(answer)
        return time.monotonic() - since_s


def check_prompt(home: Home, first: int = 0, count: int = 30) -> None:
    """Check that asks go through at their usual speed, with much room for a busy machine."""
    with home.line("control") as control:
        times = sorted(round_trip_s(home, first + n, control) for n in range(count))
    assert times[len(times) // 2] < 0.5, times
    assert times[-1] < 3.0, times


@pytest.mark.timeout(180)
def test_two_hundred_sessions_ask_at_once_and_each_gets_its_own_answer(home: Home) -> None:
    each = SESSIONS // PROCESSES
    programs = [
        home.start_python(PROGRAM, str(first), str(each)) for first in range(0, SESSIONS, each)
    ]
    since_s = time.monotonic()
    with home.line("control") as control:
        # The hub says so by itself: nobody polls.
        control.post("watch")
        answers: list[int] = []
        asked: set[str] = set()
        while len(asked) < SESSIONS:
            for ask in control.event("screen", within_s=60)["asks"]:
                number = int(ask["question"].split()[1])
                if ask["id"] not in asked:
                    asked.add(ask["id"])
                    value = ("even", "odd")[number % 2]
                    answers.append(control.post("answer", ask=ask["id"], values=[value]))
        for number in answers:
            assert control.answer_to(number, within_s=60)["result"]["outcome"] == "answered"
    for program in programs:
        done = program.end(60)
        assert (done.code, done.out) == (0, "all answered\n"), done
    assert time.monotonic() - since_s < 60
    rows = home.rows("SELECT outcome, count(*) FROM ask GROUP BY outcome")
    assert rows == [("answered", SESSIONS)]
    replies = home.rows("SELECT count(*) FROM claim WHERE live = 1")
    assert replies[0][0] in {0, SESSIONS}
    # All of them have ended properly: nothing is left.
    eventually(lambda: os.listdir(home.sessions) == [])
    with home.line("control") as control:
        eventually(lambda: control.ok("status")["sessions"] == 0, within_s=20)


def test_clients_that_stop_reading_the_hubs_socket_delay_nobody(home: Home) -> None:
    deaf = []
    try:
        for _ in range(5):
            line = home.line("control")
            line.post("watch")
            for number in range(20):
                line.send({"id": 1000 + number, "op": "asks", "state": "all", "limit": 1000})
            deaf.append(line)
        big: Json = {"id": "azzzzzzzzzzzz", "question": "Q?", "options": [], "free_text": True}
        with home.line() as line:
            line.ok("ask", ask={**big, "detail": "d" * 200_000}, session=SESSION, wait=False)
        check_prompt(home)
    finally:
        for one in deaf:
            one.close()
    # Who is cut off is cut off alone.
    with home.line("control") as line:
        assert line.ok("status")["open_asks"] == 1


def test_a_client_that_never_ends_its_line_delays_nobody(home: Home) -> None:
    with home.line() as slow, home.line("control") as other:
        slow.send_bytes(b'{"id":1,"op":"no')
        other.send_bytes(b"x" * 900_000)
        check_prompt(home)
        slow.send_bytes(b'tify","text":"at last","session":{"program":"t","cwd":"/"}}\n')
        assert slow.answer_to(1)["ok"] is True


def test_idle_connections_in_hundreds_delay_nobody(home: Home) -> None:
    lines = [home.line() for _ in range(200)]
    try:
        check_prompt(home)
    finally:
        for line in lines:
            line.close()


def test_a_session_that_stands_still_delays_no_other(home: Home) -> None:
    frozen = home.start_python(PROGRAM, "0", "10")
    lively = home.start_python(PROGRAM, "100", "10")

    def asks() -> dict[str, Json]:
        with home.line("control") as line:
            return {ask["question"]: ask for ask in line.ok("asks")["asks"]}

    eventually(lambda: len(asks()) == 20)
    frozen.signal(signal.SIGSTOP)
    try:
        with home.line("control") as stuck, home.line("control") as control:
            waits = stuck.post("answer", ask=asks()["question 0"]["id"], values=["even"])
            for number in range(100, 110):
                one = asks()[f"question {number}"]
                value = ("even", "odd")[number % 2]
                since_s = time.monotonic()
                answer = control.ok("answer", ask=one["id"], values=[value])
                assert answer["result"]["outcome"] == "answered"
                assert time.monotonic() - since_s < 3
            assert lively.end().out == "all answered\n"
            check_prompt(home, first=500)
            frozen.signal(signal.SIGCONT)
            # Nothing was lost: the frozen one hears its answer when it wakes.
            result = stuck.answer_to(waits, within_s=15)["result"]
            assert result["outcome"] in {"answered", "open"}
            home.until_ask(result["id"], outcome="answered")
    finally:
        frozen.signal(signal.SIGCONT)
    frozen.kill()


STREAMER = """
import asyncio
from upcall import Session

async def main():
    async with Session("streamer", session_id="streamer") as session:
        ask = asyncio.create_task(session.ask("Go on?", ["Yes", "No"]))
        print("up", flush=True)
        while not ask.done():
            await session.stream("x" * 50_000, final=False)
            await asyncio.sleep(0)
        print("answer", await ask, flush=True)

asyncio.run(main())
"""


def test_a_client_that_stops_reading_an_endpoint_delays_neither_session_nor_hub(
    home: Home,
) -> None:
    program = home.start_python(STREAMER)
    program.line("up", on="out")
    path = f"{home.sessions}/streamer.json"
    eventually(lambda: os.path.exists(path))
    with open(path) as file:
        record = json.load(file)
    deaf = [connect_and_never_read(record) for _ in range(3)]
    try:

        def asked() -> Any:
            with home.line("control") as line:
                return line.ok("asks")["asks"]

        (ask,) = eventually(asked)
        check_prompt(home, count=15)
        assert home.run("answer", ask["id"], "yes").code == 0
        assert program.line(r"answer \w+", on="out")[0] == "answer Yes"
        assert program.end().code == 0
    finally:
        for one in deaf:
            one.close()


def connect_and_never_read(record: Json) -> socket.socket:
    """Return a WebSocket connection whose greeting alone was read."""
    sock = socket.create_connection(("127.0.0.1", record["port"]), 10)
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        f"GET /?token={record['token']} HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{record['port']}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    sock.sendall(head.encode())
    assert sock.recv(12).startswith(b"HTTP/1.1 101")
    return sock
