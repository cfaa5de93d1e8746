"""What other programs find this hub by: hub.json, kept true while the hub lives."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

import structlog

from upcall.clock import Clock
from upcall.hub import hub_json
from upcall.hub.runtime import RuntimeFolder
from upcall.hub.socket import HubSockets
from upcall.model.errors import UpcallError
from upcall.model.limits import LINE_PROTOCOL
from upcall.model.text import one_line
from upcall_discovery import liveness, paths

LOOK_S: Final = 4.0


class Presence:
    """The hub's file in its state folder.

    Args:
        state_dir: the state folder.
        runtime: where sessions publish.
        sockets: the two sockets; listening.
        web_url: returns the inbox's address, once it is bound.
    """

    def __init__(
        self,
        state_dir: str,
        runtime: RuntimeFolder,
        sockets: HubSockets,
        web_url: Callable[[], str | None],
        *,
        clock: Clock,
        log: structlog.typing.FilteringBoundLogger,
        version: str,
        started_ms: int,
    ) -> None:
        self._state_dir = state_dir
        self._runtime = runtime
        self._sockets = sockets
        self._web_url = web_url
        self._clock = clock
        self._log = log
        self._version = version
        self._started_ms = started_ms
        self._own = liveness.identify(os.getpid())
        self._written: hub_json.HubFile | None = None

    def write(
        self, *, ended: bool = False, error: Exception | None = None, stopped: bool = False
    ) -> None:
        """Write the file if it would say something else, or is gone."""
        ask, control = self._sockets.paths
        content = hub_json.HubFile(
            pid=os.getpid(),
            pid_start=self._own.start if self._own else "",
            version=self._version,
            ask_sock=ask,
            control_sock=control,
            runtime_dir=self._runtime.path,
            web_url=self._web_url(),
            started_ms=self._started_ms,
            protocol=LINE_PROTOCOL,
            ended_ms=self._clock.wall_ms() if ended else None,
            last_error=None if error is None else _last_error(error),
            stopped=stopped,
        )
        if content == self._written and os.path.exists(paths.hub_json(self._state_dir)):
            return
        try:
            hub_json.write(self._state_dir, content)
        except (OSError, paths.PathProblem) as exc:
            self._log.error("hub_json_not_written", error=str(exc))
        else:
            self._written = content

    async def keep(self) -> None:
        """Write the file again whenever it vanished or is not true any more."""
        while True:
            await self._clock.sleep(LOOK_S)
            await asyncio.to_thread(self.write)


def _last_error(error: Exception) -> hub_json.LastError:
    if isinstance(error, UpcallError | paths.PathProblem):
        return hub_json.LastError(
            error.code,
            one_line(error.msg, 500),
            one_line(error.recover, 500) if error.recover else None,
        )
    return hub_json.LastError("internal", one_line(repr(error), 500))
