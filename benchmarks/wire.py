"""The endpoint against a stock `websockets` server: P1, the round trip of an ask, P15."""

import json
import statistics
import time

from benchmarks.places import Child, Place
from benchmarks.raw import RawWebSocket
from benchmarks.table import Row, median_ratio

STOCK = """
import asyncio
from websockets.asyncio.server import serve
async def echo(ws):
    async for m in ws: await ws.send(m)
async def main():
    async with serve(echo, "127.0.0.1", 0, max_size=2**21) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await asyncio.get_running_loop().create_future()
asyncio.run(main())
"""

ENDPOINT = """
import asyncio
from upcall import Session
async def main():
    async with Session(hub=False, title="bench") as s:
        print("ready", flush=True)
        while True:
            await s.ask("Deploy to production now?", ["Yes", "No"])
asyncio.run(main())
"""


def run(rounds: int) -> list[Row]:
    place = Place()
    stock = place.child(STOCK)
    ours = place.child(ENDPOINT)
    try:
        return _measure(place, stock, ours, rounds)
    finally:
        stock.end()
        ours.end()
        place.remove()


def _measure(place: Place, stock: Child, ours: Child, rounds: int) -> list[Row]:
    stock_ws = RawWebSocket(int(stock.line()))
    assert ours.line() == "ready"
    record = json.loads(next(place.sessions.glob("*.json")).read_text())
    token = record["token"]
    our_ws = RawWebSocket(record["port"], token)
    our_ws.send(
        b'{"type":"hello","protocolVersion":3,"capabilities":["parallel_asks_v1","outcomes_v1"]}'
    )
    ask = _next(our_ws, "action_needed")
    nonce = "n" * 270
    ping = json.dumps({"type": "ping", "nonce": nonce}, separators=(",", ":")).encode()
    echo_ratios, ask_ratios = [], []
    echo_us, stock_us, ask_us = [], [], []
    # Warm both before the first round counts.
    for _ in range(300):
        _echo(stock_ws, ping, 1)
        _ping(our_ws, ping, 1)
    for _ in range(rounds):
        theirs = _echo(stock_ws, ping, 300)
        mine = _ping(our_ws, ping, 300)
        spent, ask, reply_bytes = _asks(our_ws, ask, token, 200)
        same = _echo(stock_ws, b"x" * reply_bytes, 200)
        echo_ratios.append(mine / theirs)
        ask_ratios.append(spent / same)
        echo_us.append(mine * 1e6)
        stock_us.append(theirs * 1e6)
        ask_us.append(spent * 1e6)
    return [
        Row(
            "P1",
            "endpoint ping, 300 B, p50",
            f"{statistics.median(echo_us):.0f} us",
            f"stock `websockets` echo {statistics.median(stock_us):.0f} us",
            median_ratio(echo_ratios),
            0.6,
        ),
        Row(
            "-",
            "ask -> client reply -> resolved -> next ask, p50",
            f"{statistics.median(ask_us):.0f} us",
            "stock `websockets` echo of the same bytes",
            median_ratio(ask_ratios),
            None,
        ),
    ]


def _echo(ws: RawWebSocket, payload: bytes, count: int) -> float:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        ws.send(payload)
        ws.recv()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _ping(ws: RawWebSocket, payload: bytes, count: int) -> float:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        ws.send(payload)
        while b'"pong"' not in ws.recv()[:24]:
            pass
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _asks(ws: RawWebSocket, ask: str, token: str, count: int) -> tuple[float, str, int]:
    times = []
    size = 0
    for _ in range(count):
        reply = json.dumps(
            {"type": "reply", "id": ask, "answer": "Yes", "token": token},
            separators=(",", ":"),
        ).encode()
        size = len(reply)
        start = time.perf_counter()
        ws.send(reply)
        while b'"action_resolved"' not in ws.recv()[:40]:
            pass
        times.append(time.perf_counter() - start)
        ask = _next(ws, "action_needed")
    return statistics.median(times), ask, size


def _next(ws: RawWebSocket, kind: str) -> str:
    while True:
        frame = json.loads(ws.recv())
        if frame["type"] == kind:
            return str(frame["id"])
