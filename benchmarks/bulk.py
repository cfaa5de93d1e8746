"""Large frames, many asks at once, and a store with a long past: P10, P15, P16."""

import asyncio
import json
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable

from websockets.asyncio.client import connect

from benchmarks.durable import _burst
from benchmarks.line import Line, mint
from benchmarks.places import Place, hub
from benchmarks.table import Row, median_ratio
from upcall.session.connect import open_connection

FRAMES = 40

STREAMS = """
import asyncio, sys
from websockets.asyncio.server import serve
from upcall import Session
from upcall.model.frames import TurnStream
size, count = int(sys.argv[1]), int(sys.argv[2])
def text(n): return "x" * (size - 12) + f"{n:012d}"
async def stock(ws):
    import json
    async for _ in ws:
        for n in range(count):
            head = {"type": "turn_stream", "sessionId": "s", "phase": "finalized"}
            await ws.send(json.dumps({**head, "text": text(n)}))
async def main():
    async with Session("bench", hub=False, session_id="bench") as s, \\
            serve(stock, "127.0.0.1", 0) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        async for message in s.messages():
            for n in range(count):
                await s.stream(text(n), final=True)
                await asyncio.sleep(0)
asyncio.run(main())
"""

CLIENT_HELLO = '{"type":"hello","protocolVersion":3,"capabilities":[]}'


def run(rounds: int) -> list[Row]:
    return [*_large_frames(rounds), *_thousand(max(3, rounds // 3)), *_long_past(rounds)]


def _large_frames(rounds: int) -> list[Row]:
    place = Place()
    child = place.child(STREAMS, str(256 * 1024 - 200), str(FRAMES))
    try:
        port = int(child.line())
        record = json.loads((place.sessions / "bench.json").read_text())
        ratios, ours_ms = asyncio.run(_stream_rounds(port, record, rounds))
    finally:
        child.end()
        place.remove()
    return [
        Row(
            "P15",
            "256 KiB `turn_stream`, session -> our client",
            f"{statistics.median(ours_ms):.2f} ms each",
            "stock `websockets`, defaults",
            median_ratio(ratios),
            0.35,
        )
    ]


async def _stream_rounds(
    port: int, record: dict[str, str], rounds: int
) -> tuple[list[float], list[float]]:
    ratios, ours_ms = [], []
    async with connect(f"ws://127.0.0.1:{port}", max_size=2**21) as stock:
        got = 0
        done = asyncio.Event()

        def on_frame(frame: object) -> None:
            nonlocal got
            if type(frame).__name__ == "TurnStream":
                got += 1
                if got == FRAMES:
                    done.set()

        ours = await open_connection(
            record["url"], record["token"], on_frame=on_frame, on_close=lambda _: None
        )

        async def ours_once() -> None:
            nonlocal got
            got = 0
            done.clear()
            message = {"type": "user_message", "sessionId": "bench", "text": "go"}
            ours.send(_frame({**message, "token": record["token"]}))
            await done.wait()

        async def stock_once() -> None:
            await stock.send("go")
            for _ in range(FRAMES):
                json.loads(await stock.recv())

        for _ in range(rounds + 1):
            mine, theirs = await _timed(ours_once), await _timed(stock_once)
            ratios.append(mine / theirs)
            ours_ms.append(mine / FRAMES * 1000)
        await ours.close()
    return ratios[1:], ours_ms[1:]


def _frame(fields: dict[str, str]):  # type: ignore[no-untyped-def]
    from upcall.model.frames import decode

    return decode(json.dumps(fields))


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


def _thousand(rounds: int) -> list[Row]:
    place = Place()
    ratios, ours_ms = [], []
    try:
        with hub(place, "web-only") as child:
            del child
            lines = [Line(place.state / "ask.sock") for _ in range(1000)]
            for _ in range(rounds):
                ours = _burst(lines)
                floor = asyncio.run(_decode_alone())
                ratios.append(ours / floor)
                ours_ms.append(ours * 1000)
            for line in lines:
                line.close()
    finally:
        place.remove()
    return [
        Row(
            "P10",
            "1,000 asks at once, raised to durable",
            f"{statistics.median(ours_ms):.0f} ms",
            "stock `websockets` receiving 1,000 such frames",
            median_ratio(ratios),
            1.5,
        )
    ]


async def _decode_alone() -> float:
    """Receive 1,000 asks with a stock client, on 100 connections, and read them as JSON."""
    from websockets.asyncio.server import ServerConnection, serve

    text = json.dumps(
        {
            "type": "action_needed",
            "id": mint(),
            "kind": "ask",
            "sessionId": "s",
            "question": "Deploy to production now?",
            "options": ["Yes", "No"],
            "detail": "x" * 150,
        }
    )

    async def say(socket: ServerConnection) -> None:
        async for _ in socket:
            for _ in range(10):
                await socket.send(text)

    async def hear(socket: object) -> None:
        for _ in range(10):
            json.loads(await socket.recv())  # type: ignore[attr-defined]

    async with serve(say, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        sockets = [await connect(f"ws://127.0.0.1:{port}") for _ in range(100)]
        start = time.perf_counter()
        for socket in sockets:
            await socket.send("go")
        await asyncio.gather(*(hear(socket) for socket in sockets))
        spent = time.perf_counter() - start
        for socket in sockets:
            await socket.close()
    return spent


def _long_past(rounds: int) -> list[Row]:
    """One ask in a store with many closed ones, against an empty store: it must be flat."""
    return [_beside(10_000, rounds, None), _beside(100_000, rounds, 1.1)]


def _beside(closed: int, rounds: int, goal: float | None) -> Row:
    empty, full = Place(), Place()
    try:
        with hub(full, "web-only"):
            line = Line(full.state / "ask.sock")
            line.ask(mint(), wait=False)
            line.read()
            line.close()
        _multiply(full, closed)
        with hub(empty, "web-only"), hub(full, "web-only"):
            few, many = Line(empty.state / "ask.sock"), Line(full.state / "ask.sock")
            for line in (few, many):
                line.ask(mint(), "Which version?", wait=False)
                line.read()
                _durable_us(line, 30)
            ratios, ours_s = [], []
            for _ in range(rounds * 2):
                ours_s.append(_durable_us(many, 40))
                ratios.append(ours_s[-1] / _durable_us(few, 40))
            few.close()
            many.close()
    finally:
        empty.remove()
        full.remove()
    return Row(
        "-" if goal is None else "P16",
        f"one ask beside {closed:,} closed ones",
        f"{statistics.median(ours_s) * 1e6:.0f} us",
        "an empty store",
        median_ratio(ratios),
        goal,
    )


def _durable_us(line: Line, count: int) -> float:
    times = []
    for _ in range(count):
        ask_id = mint()
        start = time.perf_counter()
        line.ask(ask_id, wait=False)
        while not line.read().get("ok"):
            pass
        times.append(time.perf_counter() - start)
        line.request("cancel", ask=ask_id)
    return statistics.median(times)


def _multiply(place: Place, count: int) -> None:
    """Make *count* closed asks of the one that is there, as rows of the same table."""
    with sqlite3.connect(place.state / "hub.db") as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(ask)")]
        others = [name for name in columns if name not in {"id", "public_id", "state"}]
        changed = ", ".join(
            {"action_id": "'bulk' || n", "outcome": "'answered'", "closed_ms": "n"}.get(
                name, name
            )
            for name in others
        )
        db.execute(
            "WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count "
            f"WHERE n < {count}) INSERT INTO ask (public_id, state, {', '.join(others)}) "
            f"SELECT printf('a%012d', n), 'closed', {changed} FROM count, ask "
            "WHERE ask.id = (SELECT min(id) FROM ask)"
        )
    db.close()
