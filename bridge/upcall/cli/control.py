"""The connection of commands that act for a person: `control.sock`."""

from __future__ import annotations

import os
import time

from upcall.cli import screen
from upcall.cli.errors import Failure
from upcall.line import HubLine, ensure_hub
from upcall.line.connection import socket_paths
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_APPEARS_WITHIN_S = 0.5
_PAUSE_S = 0.05


def connect(note: Callable[[str], None] | None = screen.err) -> HubLine:
    """Return a connection to the hub's control socket, with a hub started if need be.

    Raises:
        Failure: only `ask.sock` was brought here, as into a container: nothing is started.
        LineError: no hub could be had.
    """
    require_control()
    return ensure_hub(socket="control", note=note)


def require_control() -> None:
    """Refuse to go on where only `ask.sock` was brought, as into a container.

    Raises:
        Failure: a hub may well run, but not here.
    """
    state = paths.state_dir()
    until = time.monotonic() + _APPEARS_WITHIN_S
    while has_only_ask(state):
        # A hub that is just starting binds one after the other.
        if time.monotonic() >= until:
            raise Failure(
                "only ask.sock is here; this command needs control.sock",
                "run it where the hub runs",
                "control_missing",
            )
        time.sleep(_PAUSE_S)


def has_only_ask(state: str) -> bool:
    """Tell whether this state folder was given a hub's `ask.sock` and nothing else of it."""
    if os.path.exists(paths.start_lock(state)) or os.path.exists(paths.hub_lock(state)):
        return False  # a hub was started here: it can be again
    return _is_there(state, "ask") and not _is_there(state, "control")


def _is_there(state: str, socket: str) -> bool:
    return any(os.path.exists(path) for path in socket_paths(state, socket))
