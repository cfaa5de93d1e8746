"""A clock that moves only when a test says so; it satisfies `upcall.clock.Clock`."""

import asyncio
import heapq
import itertools

_SETTLE_ROUNDS = 10
_PATIENCE_S = 20.0


class FakeClock:
    """Both clocks, with sleeps and time limits.

    Attributes:
        asked: every duration that somebody has waited for, in seconds.
    """

    def __init__(self, start_s: float = 1_000.0, wall_ms: int = 1_800_000_000_000) -> None:
        self.asked: list[float] = []
        self._now_s = start_s
        self._wall_offset_ms = wall_ms - int(start_s * 1000)
        self._order = itertools.count()
        self._waits: list[tuple[float, int, asyncio.Future[None] | asyncio.Timeout]] = []
        self._added = asyncio.Event()

    def wall_ms(self) -> int:
        return self._wall_offset_ms + int(self._now_s * 1000)

    def boot_s(self) -> float:
        return self._now_s

    def step_wall(self, by_ms: int) -> None:
        """Set the wall clock, as people and NTP do; the boot clock does not notice."""
        self._wall_offset_ms += by_ms

    async def sleep(self, duration_s: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(duration_s, woken)
        await woken

    def timeout(self, duration_s: float | None) -> asyncio.Timeout:
        limit = asyncio.timeout(None)
        if duration_s is not None:
            self._add(duration_s, limit)
        return limit

    async def settle(self) -> None:
        """Let every task run until it waits for something."""
        for _ in range(_SETTLE_ROUNDS):
            await asyncio.sleep(0)

    async def advance(self, duration_s: float) -> None:
        """Move on, stopping at each moment at which someone wakes."""
        await self.settle()
        end_s = self._now_s + duration_s
        while self._waits and self._waits[0][0] <= end_s:
            due_s, _, waiting = heapq.heappop(self._waits)
            if not _is_live(waiting):
                continue
            self._now_s = max(self._now_s, due_s)
            if isinstance(waiting, asyncio.Timeout):
                waiting.reschedule(asyncio.get_running_loop().time())
            else:
                waiting.set_result(None)
            await self.settle()
        self._now_s = max(self._now_s, end_s)

    async def until_waited(self, duration_s: float) -> None:
        """Return once somebody waits for the moment *duration_s* seconds from now."""
        due_s = self._now_s + duration_s
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                await self.settle()
                if any(
                    abs(at_s - due_s) < 1e-6 and _is_live(waiting)
                    for at_s, _, waiting in self._waits
                ):
                    return
                self._added.clear()
                await self._added.wait()

    def _add(self, duration_s: float, waiting: asyncio.Future[None] | asyncio.Timeout) -> None:
        self.asked.append(duration_s)
        heapq.heappush(self._waits, (self._now_s + duration_s, next(self._order), waiting))
        self._added.set()


def _is_live(waiting: asyncio.Future[None] | asyncio.Timeout) -> bool:
    if not isinstance(waiting, asyncio.Timeout):
        return not waiting.done()
    try:
        waiting.reschedule(None)
    except RuntimeError:
        # It was left already, or never entered.
        return False
    return True
