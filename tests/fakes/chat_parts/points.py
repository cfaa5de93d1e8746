"""Finds every point at which a hub could be killed, and kills it at one of them.

It is installed with the fake adapter and joined to the hub's parts from outside, when the
adapter is opened: the hub itself knows nothing of it. A point is before and after each
commit, each call of an adapter or a session, and each word to a program.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

from upcall.hub.hub import Hub
from upcall.hub.store.db import Store
from upcall.hub.workers import Workers
from upcall.model.effects import Acknowledge, Host, Respond, ToClients, ToWaiter, Unhost

OUTSIDE = (Acknowledge, Host, Respond, ToClients, ToWaiter, Unhost)


class Points:
    """Counts the points of one hub's life."""

    def __init__(self, path: str, kill_at: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # A hub that comes after the one that was killed lives.
        self._killed = f"{path}.killed"
        self._kill_at = 0 if os.path.exists(self._killed) else kill_at
        self._count = 0

    def at(self, name: str) -> None:
        """Pass one point, or end here."""
        self._count += 1
        os.write(self._file, f"{self._count} {name}\n".encode())
        if self._count == self._kill_at:
            os.close(os.open(self._killed, os.O_WRONLY | os.O_CREAT, 0o600))
            os.kill(os.getpid(), signal.SIGKILL)


def watch(path: str, kill_at: int) -> None:
    """Count from now on."""
    points = Points(path, kill_at)
    _around(Store, "commit", points, lambda self, writes: f"commit {_kinds(writes)}")
    _around(Workers, "_call", points, lambda self, row, *_: f"call {row.kind}")
    released = Hub.release

    def release(self: Hub, one: Any) -> None:
        if not isinstance(one, OUTSIDE):
            released(self, one)
            return
        name = f"release {type(one).__name__}"
        points.at(f"before {name}")
        released(self, one)
        points.at(f"after {name}")

    Hub.release = release  # type: ignore[method-assign, assignment]


def _kinds(writes: Any) -> str:
    return "+".join(dict.fromkeys(type(one).__name__ for one in writes))


def _around(owner: type, method: str, points: Points, name: Callable[..., str]) -> None:
    inner = getattr(owner, method)

    async def outer(self: Any, *args: Any, **fields: Any) -> Any:
        label = name(self, *args)
        points.at(f"before {label}")
        try:
            return await inner(self, *args, **fields)
        finally:
            points.at(f"after {label}")

    setattr(owner, method, outer)
