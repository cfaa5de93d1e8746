"""The machine's clock behind a protocol; nothing else in the product tells time."""

import asyncio
import sys
import time
from calendar import timegm
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Protocol

# CLOCK_BOOTTIME counts the time asleep; macOS' monotonic clock does so already.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What a shell may know of time."""

    def wall_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch; it may step."""
        ...

    def boot_s(self) -> float:
        """Return seconds since boot, time asleep included; it never steps."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Wait *duration_s* seconds."""
        ...

    def timeout(self, duration_s: float | None) -> asyncio.Timeout:
        """Return a context that raises `TimeoutError` after *duration_s* seconds."""
        ...


class SystemClock:
    """The machine's own clock."""

    def wall_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def boot_s(self) -> float:
        """Return seconds since boot, time asleep included."""
        return time.clock_gettime(_BOOT_CLOCK)

    async def sleep(self, duration_s: float) -> None:
        """Wait *duration_s* seconds."""
        await asyncio.sleep(duration_s)

    def timeout(self, duration_s: float | None) -> asyncio.Timeout:
        """Return a context that raises `TimeoutError` after *duration_s* seconds."""
        return asyncio.timeout(duration_s)


class LocalZone(tzinfo):
    """The machine's own time zone, as it is at each moment, summer time included."""

    def fromutc(self, dt: datetime) -> datetime:
        """Return what clocks here show at *dt*."""
        local = time.localtime(timegm(dt.timetuple()))
        return datetime(*local[:6], dt.microsecond, tzinfo=self)

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        """Return how far clocks here are ahead of UTC."""
        if dt is None:
            return None
        shown = dt.replace(tzinfo=None).timetuple()
        return timedelta(seconds=time.localtime(time.mktime(shown)).tm_gmtoff)

    def dst(self, dt: datetime | None) -> timedelta | None:
        """Return nothing: only the sum is known."""
        del dt
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        """Return nothing: names of zones mean little to people."""
        del dt
        return None


def boot_id() -> str:
    """Return an id of this boot, so that boot seconds of another one are not mixed in."""
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return str(round(time.time() - time.clock_gettime(_BOOT_CLOCK)))
