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
from upcall.model.effects import Release, Write
from upcall.model.events import Delivered, Due, Event, Moment

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
        self._queue: deque[Event] = deque()
        self._lazy: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._releaser: Releaser | None = None
        self._lazy_handle: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def moment(self) -> Moment:
        """Return now, on both clocks."""
        return Moment(self._clock.wall_ms(), self._clock.boot_s())

    def random(self, count: int) -> bytes:
        """Return *count* random bytes."""
        return self._random(count)

    def submit(self, event: Event) -> None:
        """Queue a fact for the kernel."""
        if self._is_lazy(event):
            self._lazy.append(event)
            if self._lazy_handle is None:
                loop = asyncio.get_running_loop()
                self._lazy_handle = loop.call_later(LAZY_S, self._lazy_due)
            return
        self._queue.append(event)
        self._idle.clear()
        self._wake.set()

    async def settled(self) -> None:
        """Wait until everything submitted so far is committed and released."""
        self._lazy_due()
        await self._idle.wait()

    async def run(self, releaser: Releaser) -> None:
        """Work until cancelled.

        Raises:
            StoreError: a commit failed; the process must end.
        """
        self._releaser = releaser
        while True:
            await self._wait()
            while self._queue or self._lazy_only_due():
                await self._step()
            self._idle.set()

    async def _step(self) -> None:
        writes: list[Write] = []
        releases: list[Release] = []
        # What waited for company goes first: it happened first.
        if self._lazy_handle is not None:
            self._lazy_handle.cancel()
            self._lazy_handle = None
        batch = [*self._lazy]
        self._lazy.clear()
        while self._queue and len(batch) < BATCH:
            batch.append(self._queue.popleft())
        seed = self._random(32)
        for number, event in enumerate(batch):
            decision = self.kernel.handle(event, seed + number.to_bytes(4, "big"))
            writes += decision.writes
            releases += decision.releases
        if writes:
            await self._store.commit(writes)
        if self._releaser is not None:
            for release in releases:
                self._releaser.release(release)

    async def _wait(self) -> None:
        now_s = self._clock.boot_s()
        due_s = self.kernel.next_due_s()
        wait_s = LONGEST_WAIT_S if due_s is None else min(LONGEST_WAIT_S, due_s - now_s)
        if not self._queue and wait_s > 0:
            self._wake.clear()
            try:
                async with self._clock.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
        due_s = self.kernel.next_due_s()
        if due_s is not None and due_s <= self._clock.boot_s():
            self._queue.append(Due(at=self.moment()))

    def _is_lazy(self, event: Event) -> bool:
        return isinstance(event, Delivered) and event.ref is None

    def _lazy_only_due(self) -> bool:
        return bool(self._lazy) and self._lazy_handle is None

    def _lazy_due(self) -> None:
        if self._lazy_handle is not None:
            self._lazy_handle.cancel()
            self._lazy_handle = None
        if self._lazy:
            self._idle.clear()
            self._wake.set()
