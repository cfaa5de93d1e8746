"""What the hub itself costs: P6, P8, P9, P13, P14."""

import json
import statistics
import time
from pathlib import Path

from benchmarks.line import Line
from benchmarks.places import Child, Place, hub, wait_for
from benchmarks.table import Row

SESSIONS = """
import asyncio, sys
from upcall.session.server import Endpoint
from upcall.session.publish import RecordKeeper, make_record
from upcall.clock import SystemClock
import secrets, time
class Quiet:
    def open_asks(self): return ()
    def recent_resolutions(self): return ()
    def reply(self, *a): pass
    hold = user_message = config = other = reply
async def main(count):
    kept = []
    for n in range(count):
        sid = "bench-" + secrets.token_hex(6)
        token = secrets.token_urlsafe(24)
        endpoint = Endpoint(sid, token, Quiet())
        port = await endpoint.start()
        record = make_record(sid, port, token, now_ms=int(time.time() * 1000))
        keeper = RecordKeeper(record, SystemClock())
        kept.append((endpoint, keeper, sid))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for endpoint, keeper, sid in kept:
        await keeper.start()
    print("published", flush=True)
    await asyncio.get_running_loop().create_future()
asyncio.run(main(int(sys.argv[1])))
"""

ONE = """
import asyncio, sys, time, secrets
from upcall.session.server import Endpoint
from upcall.session.publish import RecordKeeper, make_record
from upcall.clock import SystemClock
class Quiet:
    def open_asks(self): return ()
    def recent_resolutions(self): return ()
    def reply(self, *a): pass
    hold = user_message = config = other = reply
async def main():
    while True:
        if not await asyncio.to_thread(sys.stdin.readline): return
        sid = "bench-" + secrets.token_hex(6)
        token = secrets.token_urlsafe(24)
        endpoint = Endpoint(sid, token, Quiet())
        port = await endpoint.start()
        record = make_record(sid, port, token, now_ms=int(time.time() * 1000))
        keeper = RecordKeeper(record, SystemClock())
        start = time.monotonic()
        await keeper.start()
        while not endpoint.connections:
            await asyncio.sleep(0.0005)
        print(time.monotonic() - start, flush=True)
asyncio.run(main())
"""


def run(rounds: int, *, idle_s: float = 60.0, count: int = 500) -> list[Row]:
    return [*_memory_and_idle(count, idle_s), *_attach(rounds * 3), *_death(rounds)]


def _memory_and_idle(count: int, idle_s: float) -> list[Row]:
    place = Place()
    rows = []
    try:
        with hub(place) as child:
            time.sleep(1)
            empty_kib = child.rss_kib()
            rows.append(
                Row(
                    "P14",
                    "hub memory before the first page is opened",
                    f"{empty_kib / 1024:.1f} MiB",
                    "-",
                    empty_kib / 1024,
                    40.0,
                    "MiB",
                )
            )
            sessions = place.child(SESSIONS, str(count))
            try:
                assert sessions.line() == "ready"
                sessions.say("go")
                assert sessions.line() == "published"
                control = Line(place.state / "control.sock")
                wait_for(lambda: _attached(control) >= count, f"{count} sessions", 120)
                control.close()
                time.sleep(2)
                each_kib = (child.rss_kib() - empty_kib) / count
                rows.append(
                    Row(
                        "P6",
                        f"hub memory an attached idle session ({count} of them)",
                        f"{each_kib:.1f} KiB",
                        "-",
                        each_kib,
                        16.0,
                        "KiB",
                    )
                )
                rows += _idle(child, sessions, count, idle_s)
            finally:
                sessions.end()
    finally:
        place.remove()
    return rows


def _idle(child: Child, sessions: Child, count: int, idle_s: float) -> list[Row]:
    before = child.cpu_s(), sessions.cpu_s()
    time.sleep(idle_s)
    after = child.cpu_s(), sessions.cpu_s()
    hub_percent = (after[0] - before[0]) / idle_s * 100
    session_percent = (after[1] - before[1]) / idle_s * 100 / count
    return [
        Row(
            "P8",
            f"idle CPU of the hub, {count} sessions, {idle_s:g} s",
            f"{hub_percent:.3f} %",
            "-",
            hub_percent,
            0.05,
            "%",
        ),
        Row(
            "-",
            f"idle CPU of one session, {idle_s:g} s",
            f"{session_percent:.4f} %",
            "-",
            session_percent,
            None,
            "%",
        ),
    ]


def _attached(control: Line) -> int:
    sessions = control.request("sessions")["sessions"]
    return sum(1 for one in sessions if one["state"] == "attached")


def _attach(rounds: int) -> list[Row]:
    place = Place()
    times = []
    try:
        with hub(place):
            child = place.child(ONE)
            try:
                for _ in range(rounds):
                    child.say("go")
                    times.append(float(child.line()) * 1000)
            finally:
                child.end()
    finally:
        place.remove()
    middle = statistics.median(times)
    return [
        Row(
            "P13",
            "record renamed -> attached, p50",
            f"{middle:.1f} ms",
            "-",
            middle,
            15.0,
            "ms",
        )
    ]


def _death(rounds: int) -> list[Row]:
    place = Place()
    times = []
    try:
        with hub(place):
            watch = Line(place.state / "control.sock")
            watch.send("watch")
            times += [_one_death(place, watch) * 1000 for _ in range(rounds)]
            watch.close()
    finally:
        place.remove()
    middle = statistics.median(times)
    return [
        Row(
            "P9",
            "session killed -> shown as gone, p50",
            f"{middle:.1f} ms",
            "-",
            middle,
            20.0,
            "ms",
        )
    ]


def _one_death(place: Place, watch: Line) -> float:
    child = place.child(ONE)
    child.say("go")
    child.line()
    while not _screen_has(watch.read(), 1):
        pass
    start = time.perf_counter()
    child.process.kill()
    while not _screen_has(watch.read(), 0):
        pass
    spent = time.perf_counter() - start
    child.process.wait()
    child.end()
    for record in Path(place.sessions).glob("*.json"):
        record.unlink(missing_ok=True)
    return spent


def _screen_has(message: dict[str, object], count: int) -> bool:
    sessions = message.get("sessions")
    return isinstance(sessions, list) and len(sessions) == count


def report(rows: list[Row]) -> str:
    return json.dumps([row.__dict__ for row in rows])
