"""The heart: take events, let the kernel decide, commit once, then release.

Memory is never ahead of the file: nothing that a decision wants to be done is done before
its rows are committed, and a commit that fails ends the process.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from upcall.clock import Clock
from upcall.core.kernel import Kernel
from upcall.hub.store.db import Store
from upcall.hub.timewatch import TimeWatch
from upcall.model.effects import Log, Release, Write
from upcall.model.events import Delivered, Due, Event, Moment, Slept

BATCH: Final = 512
# A result that only says that an edit arrived may wait for company before it is committed:
# losing it repeats an edit, which nobody would notice.
LAZY_S: Final = 0.5
# Sleep and clock steps of the machine are noticed at least so often.
LONGEST_WAIT_S: Final = 60.0


class Releaser(Protocol):
    """Carries out releases, after the commit."""

    def release(self, release: Release) -> None:
        """Do it; must not block and must not raise for the other side's faults."""
        ...


class HubLoop:
    """One queue of events, one kernel, one store."""

    def __init__(
        self,
        kernel: Kernel,
        store: Store,
        clock: Clock,
        random: Callable[[int], bytes],
    ) -> None:
        self.kernel = kernel
        self._store = store
        self._clock = clock
        self._random = random
        # A future among the events is who waits for all that stands before it.
        self._queue: deque[Event | asyncio.Future[None]] = deque()
        self._lazy: deque[Event] = deque()
        self._lazy_due_s: float | None = None
        self._wake = asyncio.Event()
        self.times = TimeWatch(self.moment())

    def moment(self) -> Moment:
        """Return now, on both clocks."""
        return Moment(self._clock.wall_ms(), self._clock.boot_s())

    def random(self, count: int) -> bytes:
        """Return *count* random bytes."""
        return self._random(count)

    def submit(self, event: Event) -> None:
        """Queue a fact for the kernel."""
        if _is_lazy(event):
            self._lazy.append(event)
            if self._lazy_due_s is not None:
                return
            self._lazy_due_s = self._clock.boot_s() + LAZY_S
        else:
            self._queue.append(event)
        self._wake.set()

    async def settled(self) -> None:
        """Wait until everything submitted so far is committed and released."""
        self._queue.extend(self._lazy)
        self._lazy.clear()
        self._lazy_due_s = None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(future)
        self._wake.set()
        await future

    async def run(self, releaser: Releaser) -> None:
        """Work until cancelled.

        Raises:
            StoreError: a commit failed; the process must end.
        """
        while True:
            await self._wait()
            self._look_at_clocks(releaser)
            # Also while there is always more to do: nobody's deadline waits for a lull.
            due_s = self.kernel.next_due_s()
            if due_s is not None and due_s <= self._clock.boot_s():
                self.submit(Due(at=self.moment()))
            if self._has_work():
                await self._step(releaser)

    async def _step(self, releaser: Releaser) -> None:
        # What waited for company goes first: it happened first.
        batch: list[Event] = [*self._lazy]
        settled: list[asyncio.Future[None]] = []
        self._lazy.clear()
        self._lazy_due_s = None
        while self._queue and len(batch) < BATCH:
            taken = self._queue.popleft()
            if isinstance(taken, asyncio.Future):
                settled.append(taken)
            else:
                batch.append(taken)
        seed = self._random(32)
        writes: list[Write] = []
        releases: list[Release] = []
        for number, event in enumerate(batch):
            decision = self.kernel.handle(event, seed + number.to_bytes(4, "big"))
            writes += decision.writes
            releases += decision.releases
        if writes:
            before_s = self._clock.boot_s()
            await self._store.commit(writes)
            self.times.committed(self._clock.boot_s() - before_s)
        for release in releases:
            releaser.release(release)
        for future in settled:
            if not future.done():
                future.set_result(None)

    def _look_at_clocks(self, releaser: Releaser) -> None:
        now = self.moment()
        since_ms, step_ms = self.times.look(now)
        if since_ms is not None:
            # Before all that waits in the queue: it was heard afterwards.
            self._queue.appendleft(Slept(at=now, since_ms=since_ms))
            asleep_s = (now.wall_ms - since_ms) // 1000
            releaser.release(Log("slept", {"seconds": asleep_s}))
        if step_ms:
            releaser.release(Log("clock_stepped", {"ms": step_ms}))

    async def _wait(self) -> None:
        """Return when there is work, a timer is due, or nothing happened for long."""
        self._wake.clear()
        if self._has_work():
            return
        now_s = self._clock.boot_s()
        due_s = self.kernel.next_due_s()
        wait_s = LONGEST_WAIT_S
        for at_s in (due_s, self._lazy_due_s):
            if at_s is not None:
                wait_s = min(wait_s, at_s - now_s)
        if wait_s <= 0:
            return
        try:
            async with self._clock.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _has_work(self) -> bool:
        if self._queue:
            return True
        return self._lazy_due_s is not None and self._lazy_due_s <= self._clock.boot_s()


def _is_lazy(event: Event) -> bool:
    return isinstance(event, Delivered) and event.ref is None
