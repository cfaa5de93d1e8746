"""Tells when a process ends, once for each that is watched.

Linux gives a descriptor that becomes readable at that moment. Elsewhere, and where no
descriptor can be had, processes are looked at every two seconds.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final, TypeAlias

from upcall.clock import Clock
from upcall_discovery import liveness
from upcall_discovery.liveness import ProcessIdentity

POLL_S: Final = 2.0

OnEnd: TypeAlias = Callable[[ProcessIdentity], None]
"""Called once when the process has ended, from the event loop, never from `watch`."""


def _open(pid: int) -> int | None:
    # Not on macOS, in old kernels, or behind a strict seccomp filter.
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    try:
        descriptor: int = opener(pid, 0)
    except OSError:
        return None
    return descriptor


class Processes:
    """Watches processes until they end.

    `run` has to be running for processes that have no descriptor.

    Args:
        clock: time.
        open_process: returns a descriptor that is readable once the process has ended, or
            None if there is none.
    """

    def __init__(
        self, clock: Clock, *, open_process: Callable[[int], int | None] = _open
    ) -> None:
        self._clock = clock
        self._open = open_process
        self._watched: dict[ProcessIdentity, tuple[int | None, list[OnEnd]]] = {}
        self._polled: set[ProcessIdentity] = set()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, process: ProcessIdentity, on_end: OnEnd) -> None:
        """Call *on_end* when *process* has ended; soon if it has already.

        A zombie has ended. A repeat does nothing. Must be called on the event loop.
        """
        known = self._watched.get(process)
        if known is not None:
            if on_end not in known[1]:
                known[1].append(on_end)
            return
        descriptor = self._open(process.pid)
        self._watched[process] = (descriptor, [on_end])
        # Only now, with the descriptor open, is it certain that nobody else gets the pid.
        loop = asyncio.get_running_loop()
        if not liveness.is_alive(process):
            loop.call_soon(self._ended, process)
        elif descriptor is not None:
            loop.add_reader(descriptor, self._ended, process)
        else:
            self._polled.add(process)
            self._wake.set()

    def forget(self, process: ProcessIdentity) -> None:
        """Watch it no longer, for whomever."""
        known = self._watched.pop(process, None)
        self._polled.discard(process)
        if known is not None and known[0] is not None:
            asyncio.get_running_loop().remove_reader(known[0])
            os.close(known[0])

    async def run(self) -> None:
        """Look at processes without a descriptor, for ever."""
        while True:
            while not self._polled:
                self._wake.clear()
                await self._wake.wait()
            await self._clock.sleep(POLL_S)
            for process in [one for one in self._polled if not liveness.is_alive(one)]:
                self._ended(process)

    def close(self) -> None:
        """Watch nothing any more."""
        for process in list(self._watched):
            self.forget(process)

    def _ended(self, process: ProcessIdentity) -> None:
        known = self._watched.get(process)
        self.forget(process)
        for on_end in known[1] if known is not None else ():
            on_end(process)
