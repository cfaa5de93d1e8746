"""The command line against a bare interpreter: P11, P12."""

import statistics
import subprocess
import sys
import threading
import time

from benchmarks.line import Line
from benchmarks.places import Place, hub
from benchmarks.table import Row, median_ratio

UPCALL = [sys.executable, "-m", "upcall"]
PASS = [sys.executable, "-c", "pass"]


def run(rounds: int) -> list[Row]:
    place = Place()
    try:
        with hub(place):
            return _measure(place, rounds)
    finally:
        place.remove()


def _measure(place: Place, rounds: int) -> list[Row]:
    helps, asks, floor_ms, help_ms, ask_ms = [], [], [], [], []
    answering = threading.Event()
    thread = threading.Thread(target=_answer_all, args=(place, answering), daemon=True)
    thread.start()
    for _ in range(rounds * 4):
        floor = _time([*PASS], place)
        shown = _time([*UPCALL, "ask", "--help"], place)
        asked = _time([*UPCALL, "ask", "-q", "--no-terminal", "Go?", "-o", "Yes"], place)
        helps.append(shown / floor)
        asks.append(asked / floor)
        floor_ms.append(floor * 1000)
        help_ms.append(shown * 1000)
        ask_ms.append(asked * 1000)
    answering.set()
    beside = f"`python -c pass` {statistics.median(floor_ms):.0f} ms"
    return [
        Row(
            "P12",
            "`upcall ask --help`",
            f"{statistics.median(help_ms):.0f} ms",
            beside,
            median_ratio(helps),
            3.5,
        ),
        Row(
            "P11",
            "`upcall ask`, answered at once, whole run",
            f"{statistics.median(ask_ms):.0f} ms",
            beside,
            median_ratio(asks),
            3.5,
        ),
    ]


def _time(command: list[str], place: Place) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=place.env, stdout=subprocess.DEVNULL, check=True, timeout=30)
    return time.perf_counter() - start


def _answer_all(place: Place, stop: threading.Event) -> None:
    watch = Line(place.state / "control.sock")
    answer = Line(place.state / "control.sock")
    watch.send("watch")
    answered: set[str] = set()
    while not stop.is_set():
        try:
            screen = watch.read()
        except ConnectionError:
            return
        for ask in screen.get("asks", ()):
            if ask["state"] == "open" and ask["id"] not in answered:
                answered.add(ask["id"])
                answer.send("answer", ask=ask["id"], values=["Yes"])
