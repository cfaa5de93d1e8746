"""Waiting on several descriptors at once, and noticing that nobody reads any more."""

from __future__ import annotations

import os
import select
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_SLICE_S = 0.5
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def watched_output() -> int | None:
    """Return stdout's descriptor if its reader can go away (a pipe or a socket)."""
    try:
        mode = os.fstat(1).st_mode
    except OSError:
        return None
    return 1 if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def wait_for(
    reads: Iterable[int], output: int | None, timeout_s: float | None
) -> tuple[set[int], bool]:
    """Wait until one of *reads* has something, or *output* lost its reader.

    Returns:
        The descriptors that are ready, and whether the reader is gone.
    """
    reads = list(reads)
    if sys.platform != "darwin":
        return _poll(reads, output, timeout_s)
    # There, poll() does not know terminals: select, and look at the output in between.
    until = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = _SLICE_S if until is None else min(_SLICE_S, max(0, until - time.monotonic()))
        ready = set(select.select(reads, [], [], left_s)[0])
        gone = output is not None and _poll([], output, 0)[1]
        if ready or gone or (until is not None and time.monotonic() >= until):
            return ready, gone


def _poll(
    reads: list[int], output: int | None, timeout_s: float | None
) -> tuple[set[int], bool]:
    poll = select.poll()
    for fd in reads:
        poll.register(fd, select.POLLIN)
    if output is not None:
        poll.register(output, 0)
    found = poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
    ready = {fd for fd, _ in found if fd != output}
    return ready, any(fd == output and what & _GONE for fd, what in found)
