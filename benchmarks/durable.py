"""A durable ask through the hub: P2/P3 to the adapter's call, P5 and P10 in numbers, P16."""

import os
import selectors
import sqlite3
import statistics
import time

from benchmarks import wire
from benchmarks.line import Line, mint
from benchmarks.places import Child, Place, hub
from benchmarks.raw import RawWebSocket
from benchmarks.table import Row, median_ratio

PAYLOAD = b"x" * 300


def run(rounds: int) -> list[Row]:
    return [*_to_the_adapter(rounds), *_many_at_once(max(3, rounds // 3)), *_per_second()]


def _to_the_adapter(rounds: int) -> list[Row]:
    place = Place()
    stock = place.child(wire.STOCK)
    ratios, ours_us, floor_us, sqlite_ratios = [], [], [], []
    try:
        with hub(place, "record", "web-only") as child:
            ws = RawWebSocket(int(stock.line()))
            line = Line(place.state / "ask.sock")
            floor = Floor(place)
            # A program that asks again: its session is there already.
            line.ask(mint(), "Which version?", wait=False)
            for _ in range(50):
                _one(line, child)
                floor.echo_and(ws, floor.append)
            for _ in range(rounds):
                mine = statistics.median([_one(line, child) for _ in range(40)])
                log = statistics.median([floor.append() for _ in range(40)])
                echo = statistics.median([floor.echo_and(ws, None) for _ in range(40)])
                commit = statistics.median([floor.commit() for _ in range(40)])
                ratios.append((mine - echo) / log)
                sqlite_ratios.append(mine / (echo + commit))
                ours_us.append(mine * 1e6)
                floor_us.append((echo + log) * 1e6)
            line.close()
            floor.close()
    finally:
        stock.end()
        place.remove()
    return [
        Row(
            "P3",
            "ask of a session -> commit -> web adapter called, beyond one echo",
            f"{statistics.median(ours_us):.0f} us whole",
            "append + fdatasync, same round",
            median_ratio(ratios),
            2.5,
        ),
        Row(
            "-",
            "the same, whole",
            f"{statistics.median(ours_us):.0f} us",
            "stock echo + one SQLite commit",
            median_ratio(sqlite_ratios),
            None,
        ),
    ]


def _one(line: Line, child: Child) -> float:
    ask_id = mint()
    start = time.monotonic_ns()
    line.ask(ask_id, wait=False)
    words = child.line().split()
    while words[0] != "post" or f":{ask_id}:" not in words[1]:
        words = child.line().split()
    posted = int(words[2])
    while not line.read().get("ok"):
        pass
    line.request("cancel", ask=ask_id)
    return (posted - start) / 1e9


class Floor:
    """What the same disk takes for the least that durability can cost."""

    def __init__(self, place: Place) -> None:
        place.state.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(place.state / "floor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._db = sqlite3.connect(place.state / "floor.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")

    def append(self) -> float:
        start = time.perf_counter()
        os.write(self._fd, PAYLOAD)
        os.fdatasync(self._fd)
        return time.perf_counter() - start

    def commit(self) -> float:
        start = time.perf_counter()
        self._db.execute("BEGIN")
        self._db.execute("INSERT INTO t (body) VALUES (?)", (PAYLOAD,))
        self._db.execute("COMMIT")
        return time.perf_counter() - start

    def echo_and(self, ws: RawWebSocket, then: object) -> float:
        start = time.perf_counter()
        ws.send(PAYLOAD)
        ws.recv()
        if callable(then):
            then()
        return time.perf_counter() - start

    def close(self) -> None:
        os.close(self._fd)
        self._db.close()


def _many_at_once(rounds: int) -> list[Row]:
    """100 asks at once, against a commit each on the same disk."""
    place = Place()
    ratios, rates = [], []
    try:
        with hub(place, "web-only") as child:
            del child
            lines = [Line(place.state / "ask.sock") for _ in range(100)]
            floor = Floor(place)
            _burst(lines)
            for _ in range(rounds):
                ours = _burst(lines)
                each = sum(floor.commit() for _ in range(100))
                ratios.append(each / ours)
                rates.append(100 / ours)
            floor.close()
            for line in lines:
                line.close()
    finally:
        place.remove()
    return [
        Row(
            "P5",
            "100 durable asks at once, through the hub's socket",
            f"{statistics.median(rates):,.0f} asks/s",
            "a bare SQLite commit each",
            median_ratio(ratios),
            12.0,
            at_least=True,
        )
    ]


def _burst(lines: list[Line]) -> float:
    ids = [mint() for _ in lines]
    start = time.perf_counter()
    for line, ask_id in zip(lines, ids, strict=True):
        line.ask(ask_id, wait=False)
    for line in lines:
        while not line.read().get("ok"):
            pass
    spent = time.perf_counter() - start
    for line, ask_id in zip(lines, ids, strict=True):
        line.request("cancel", ask=ask_id)
    return spent


def _per_second() -> list[Row]:
    """Whole asks a second: raised, answered from the control socket, taken."""
    rows = []
    for count in (1, 10, 200):
        place = Place()
        try:
            with hub(place) as child:
                del child
                rate = _answered_per_second(place, count)
        finally:
            place.remove()
        rows.append(
            Row(
                "-",
                f"asks raised, answered and taken, {count} askers",
                f"{rate:,.0f}/s",
                "-",
                rate,
                None,
                "asks/s",
            )
        )
    return rows


def _answered_per_second(place: Place, count: int, limit_s: float = 3.0) -> float:
    selector = selectors.DefaultSelector()
    askers = [Line(place.state / "ask.sock") for _ in range(count)]
    control = Line(place.state / "control.sock")
    for line in [*askers, control]:
        selector.register(line.fileno(), selectors.EVENT_READ, line)
    for line in askers:
        line.ask(mint(), wait=True)
    done = 0
    start = time.perf_counter()
    while time.perf_counter() - start < limit_s:
        for key, _ in selector.select(0.05):
            line = key.data
            for message in line.read_ready():
                if message.get("event") == "ended":
                    line.send("took", ask=message["result"]["id"])
                    done += 1
                    line.ask(mint(), wait=True)
                elif "ask" in message:
                    control.send("answer", ask=message["ask"]["id"], values=["Yes"])
    spent = time.perf_counter() - start
    for line in [*askers, control]:
        line.close()
    return done / spent
