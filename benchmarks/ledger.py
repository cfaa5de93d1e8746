"""The ledger itself: commits a second, from raise to effect row, and recovery.

In one process, without sockets: what the loop, the kernel and the store take together,
beside one bare commit of SQLite on the same disk.
"""

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence

from benchmarks.durable import Floor
from benchmarks.places import Place
from benchmarks.table import Row
from upcall.clock import SystemClock
from upcall.core.kernel import Kernel
from upcall.core.state import ChannelInfo, KernelSettings
from upcall.hub.loop import HubLoop
from upcall.hub.store import Store
from upcall.model.ask import AskSpec
from upcall.model.document import Message
from upcall.model.effects import Release, Send
from upcall.model.events import (
    Asker,
    AskRaised,
    CancelAsked,
    ChannelChanged,
    Delivered,
    Resumed,
)
from upcall.model.ids import ActionId, AskId, Revision, SessionId, new_ask_id
from upcall.model.platform import Body, Capabilities
from upcall.model.platform import Place as Address
from upcall.model.quotas import Limits
from upcall.model.rows import AskRow, CardRow, DeliveryRow, SessionRow

SPEC = AskSpec(question="Deploy to production now?", options=("Yes", "No"), free_text=False)
EFFECTS = 10_000


def run(rounds: int) -> list[Row]:
    seconds = 1.0 if rounds < 5 else 3.0
    return [*_raised(seconds), *_recovery(rounds)]


def _lower(message: Message, address: Address) -> Sequence[Body]:
    del address
    return (Body(message.plain.encode()),)


def _settings() -> KernelSettings:
    capabilities = Capabilities(text_limit=4096, repeat="by_key", buttons_per_card=8)
    return KernelSettings(
        operator="bench",
        machine="bench",
        boot_id="bench",
        channels=(ChannelInfo("chat", capabilities, _lower),),
        limits=Limits(shown_asks=EFFECTS, shown_asks_per_minute=1_000_000),
    )


def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="ub", dir="/tmp")
    os.chmod(folder, 0o700)
    return folder


class _Releaser:
    """Wakes who raised an ask once the row of its first effect is on disk."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.loop: HubLoop | None = None

    def release(self, release: Release) -> None:
        if isinstance(release, Send) and release.delivery.ask_id is not None:
            assert self.loop is not None
            at, number = self.loop.moment(), release.delivery.id
            self.loop.submit(Delivered(at=at, delivery=number, ref=f"r{number}"))
            done = self.waiting.pop(release.delivery.ask_id, None)
            if done is not None and not done.done():
                done.set_result(None)


def _raised(seconds: float) -> list[Row]:
    place = Place()
    floor = Floor(place)
    rows = []
    try:
        for count in (1, 10, 200):
            bare_s = statistics.median([floor.commit() for _ in range(200)])
            times, commits, spent = asyncio.run(_sessions(count, seconds))
            p50, p99 = _percentile(times, 50), _percentile(times, 99)
            rows.append(
                Row(
                    "-",
                    f"raise to effect row on disk, {count} sessions at once",
                    f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms;"
                    f" {len(times) / spent:,.0f} asks/s in {commits / spent:,.0f} commits/s",
                    f"one bare SQLite commit, {bare_s * 1e3:.2f} ms",
                    p50 / bare_s,
                    None,
                )
            )
    finally:
        floor.close()
        place.remove()
    return rows


async def _sessions(count: int, seconds: float) -> tuple[list[float], int, float]:
    folder = _folder()
    store = Store.open(f"{folder}/hub.db")
    releaser = _Releaser()
    loop = HubLoop(Kernel(_settings()), store, SystemClock(), os.urandom)
    releaser.loop = loop
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def session(number: int) -> None:
        asker = Asker(pid=1000 + number, start="s", parent=f"{number}:p", uid=1000)
        turn = 0
        while time.perf_counter() < end:
            turn += 1
            ask_id = new_ask_id(os.urandom(8))
            done = asyncio.get_running_loop().create_future()
            releaser.waiting[ask_id] = done
            start = time.perf_counter()
            loop.submit(
                AskRaised(
                    at=loop.moment(),
                    waiter=number * 1_000_000 + turn,
                    ask_id=ask_id,
                    spec=SPEC,
                    asker=asker,
                    wait=False,
                )
            )
            await done
            times.append(time.perf_counter() - start)
            loop.submit(CancelAsked(at=loop.moment(), waiter=0, ask_id=ask_id))

    task = asyncio.create_task(loop.run(releaser))
    loop.submit(Resumed(at=loop.moment()))
    loop.submit(
        ChannelChanged(
            at=loop.moment(), channel="chat", hearing=True, audience=0, caught_up=True
        )
    )
    await loop.settled()
    before, start = store.commits, time.perf_counter()
    try:
        await asyncio.gather(*(session(number) for number in range(count)))
        return times, store.commits - before, time.perf_counter() - start
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()
        shutil.rmtree(folder)


def _recovery(rounds: int) -> list[Row]:
    folder = _folder()
    try:
        asyncio.run(_fill(f"{folder}/hub.db"))
        spent = [asyncio.run(_recover(f"{folder}/hub.db")) for _ in range(max(2, rounds // 3))]
    finally:
        shutil.rmtree(folder)
    middle = statistics.median(spent)
    return [
        Row(
            "-",
            f"start with {EFFECTS:,} open effects: file opened to first effect handed out",
            f"{middle * 1e3:,.0f} ms",
            "-",
            middle,
            None,
            "s",
        )
    ]


async def _fill(path: str) -> None:
    store = Store.open(path)
    session = SessionId("bench")
    rows: list[AskRow | CardRow | DeliveryRow] = []
    await store.commit([SessionRow(session_id=session, kind="sdk", conversation="c")])
    for number in range(1, EFFECTS + 1):
        ask_id = AskId(f"a{number:012d}")
        ask = AskRow(
            ask_id=ask_id,
            session_id=session,
            action_id=ActionId(f"x{number}"),
            state="open",
            spec=SPEC,
            revision=Revision("r"),
            raised_ms=number,
            boot_id="bench",
        )
        card = CardRow(ask_id=ask_id, channel="chat", place="c")
        effect = DeliveryRow(
            id=number,
            effect=f"post:{ask_id}:chat:0",
            kind="post",
            lane="ask",
            target="chat",
            place="c",
            state="queued",
            body=b"x" * 300,
            ask_id=ask_id,
            created_ms=number,
        )
        rows += [ask, card, effect]
        if number % 500 == 0:
            await store.commit(rows)
            rows = []
    await store.close()


async def _recover(path: str) -> float:
    """Return how long it takes, and leave the file as it was."""
    copy = f"{path}.copy"
    shutil.copy(path, copy)
    os.chmod(copy, 0o600)
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Once:
        def release(self, release: Release) -> None:
            if isinstance(release, Send) and not first.done():
                first.set_result(None)

    start = time.perf_counter()
    store = Store.open(copy)
    kernel = Kernel.load(_settings(), store.snapshot())
    loop = HubLoop(kernel, store, SystemClock(), os.urandom)
    task = asyncio.create_task(loop.run(Once()))
    loop.submit(Resumed(at=loop.moment()))
    loop.submit(
        ChannelChanged(
            at=loop.moment(), channel="chat", hearing=True, audience=0, caught_up=True
        )
    )
    await first
    spent = time.perf_counter() - start
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()
    os.unlink(copy)
    return spent


def _percentile(times: Sequence[float], percent: int) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
