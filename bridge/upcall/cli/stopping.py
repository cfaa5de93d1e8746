"""Stop the hub: it is asked to, and one that does not answer any more is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

from upcall.cli import screen
from upcall.cli.errors import Failure
from upcall.line import HubLine, LineError
from upcall.line.connection import read_hub_json
from upcall.line.errors import LOST_CODES
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STOP_WITHIN_S = 15.0
_HELLO_WITHIN_S = 5.0
_TERMINATE_WITHIN_S = 3.0
_PAUSE_S = 0.05


def stop_running(*, stays_down: bool = False) -> dict[str, Any] | None:
    """Stop the hub and return what it said of itself; None if none was running.

    Args:
        stays_down: whoever waits for an answer does not start the next hub.

    Raises:
        Failure: it does not end.
    """
    try:
        line = HubLine.connect("control", timeout_s=_HELLO_WITHIN_S)
    except LineError as err:
        if err.code == "hub_not_running":
            return None
        if err.code == "hub_silent":
            return _kill_silent(err, stays_down=stays_down)
        raise
    hub = line.hub
    with line:
        try:
            line.request("stop", reason="stopped by a person", stays_down=stays_down)
        except LineError as err:
            if err.code == "hub_silent":
                return _kill_silent(err, stays_down=stays_down)
            if err.code not in LOST_CODES:
                raise
    until = time.monotonic() + _STOP_WITHIN_S
    while time.monotonic() < until:
        if not _is_up(hub):
            return hub
        time.sleep(_PAUSE_S)
    raise Failure(
        f"hub {hub.get('pid')} was asked to stop but is still there",
        "it waits for a delivery on its way; try again in a minute",
        "hub_busy",
    )


def _is_up(hub: dict[str, Any]) -> bool:
    """Tell whether that very process is there; its socket goes first, its lock later."""
    try:
        with HubLine.connect("control", timeout_s=2.0) as line:
            return line.hub.get("pid") == hub.get("pid")
    except LineError:
        pass
    pid = hub.get("pid")
    return isinstance(pid, int) and pid != os.getpid() and _start_of(pid) is not None


def _kill_silent(silence: LineError, *, stays_down: bool) -> dict[str, Any]:
    """End the process that hub.json names, if it is still that very one.

    Nothing is lost by it: what a hub has said it has is in its database.
    """
    state = paths.state_dir()
    told = read_hub_json(state)
    pid, start = told.get("pid"), told.get("pid_start")
    if not isinstance(pid, int) or pid <= 1 or start is None or _start_of(pid) != start:
        raise Failure(
            f"{silence.msg}, and {paths.hub_json(state)} does not tell its process",
            "end it by hand: find it with: ps -ef, and look for: upcall hub run",
            "hub_silent",
        )
    _end(pid, str(start))
    if stays_down:
        _mark_stopped(state, told)
    return {"pid": pid, "version": told.get("version")}


def _end(pid: int, start: str) -> None:
    for number, within_s in (
        (signal.SIGTERM, _TERMINATE_WITHIN_S),
        (signal.SIGKILL, _STOP_WITHIN_S),
    ):
        if _start_of(pid) != start:
            return
        screen.err(f"hub {pid} does not answer: {number.name}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            if _start_of(pid) != start:
                return
            time.sleep(_PAUSE_S)
    raise Failure(f"hub {pid} cannot be ended", "it waits for the disk; see: dmesg", "hub_busy")


def _mark_stopped(state: str, told: dict[str, Any]) -> None:
    marked = {**told, "stopped": True, "ended_ms": int(time.time() * 1000)}
    with contextlib.suppress(OSError, paths.PathProblem):
        data = json.dumps(marked).encode()
        paths.write_private_file(paths.hub_json(state), data, sync=False)


def _start_of(pid: int) -> str | None:
    from upcall_discovery.liveness import identify

    found = identify(pid)
    return None if found is None else found.start
