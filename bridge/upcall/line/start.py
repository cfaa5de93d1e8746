"""Start a hub on demand: one at a time, detached, and not again right after a failure."""

from __future__ import annotations

import os
import time

import upcall
from upcall.line.connection import (
    HubLine,
    is_only_for_asking,
    lent_socket,
    read_hub_json,
)
from upcall.line.errors import LOST_CODES, LineError
from upcall.line.interpreter import hub_command, hub_environment
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

START_WITHIN_S = 10.0
FAILED_RECENTLY_S = 10.0
_PAUSE_S = 0.02
_LOOKS_AGAIN_S = 0.25
# What a hub exits with while another one has the state folder; a test compares them.
_RUNS_ALREADY = 75


def ensure_hub(
    timeout_s: float = START_WITHIN_S,
    *,
    socket: str = "ask",
    note: Callable[[str], None] | None = None,
    command: Sequence[str] | None = None,
) -> HubLine:
    """Return a connection to the hub, started now if none runs.

    A hub that is older than this program is asked to stop, and ours takes its place.

    Args:
        timeout_s: time for all of it.
        socket: `ask` or `control`.
        note: told in words what takes a person's notice, such as a restart.
        command: what starts a hub; our own by default.

    Raises:
        LineError: no hub could be had; the code is the hub's own where it left one.
    """
    until = time.monotonic() + timeout_s
    state = paths.state_dir()
    lent = is_lent(state)
    line = _try(state, socket, until)
    if line is None and lent:
        # A hub started here would be one that nobody looks at. The line says why.
        return HubLine.connect(
            socket, timeout_s=max(0.05, until - time.monotonic()), state=state
        )
    if (
        line is not None
        and not lent
        and is_newer(upcall.__version__, str(line.hub.get("version")))
    ):
        line = _replace(line, state, socket, until, note)
    if line is not None:
        return _warned(line, note)
    try:
        paths.ensure_private_dir(state)
        with _Lock(paths.start_lock(state), until):
            line = _try(state, socket, until) or _start(state, socket, until, command)
            return _warned(line, note)
    except paths.PathProblem as err:
        raise LineError(err.code, err.msg, err.recover, error_class="configuration") from err
    except OSError as err:
        where = err.filename or state
        raise LineError("hub_start", f"cannot start a hub: {err.strerror}: {where}") from err


def _warned(line: HubLine, note: Callable[[str], None] | None) -> HubLine:
    """Pass on what the hub has to say to whoever runs a command."""
    warning = line.hub.get("warning")
    if note is not None and isinstance(warning, str):
        note("upcall: " + "".join(one if one.isprintable() else "?" for one in warning))
    return line


class Again:
    """Gets a hub back for whoever has lost it.

    One that a person has stopped is not started again by those that only wait: they go on
    as soon as somebody wants a hub anew.
    """

    def __init__(self) -> None:
        # Remembered, as the mark may be removed together with all else of upcall.
        self._is_stopped = False

    def ensure(
        self,
        timeout_s: float = START_WITHIN_S,
        *,
        socket: str = "ask",
        note: Callable[[str], None] | None = None,
    ) -> HubLine:
        """Return a connection as `ensure_hub` does.

        Raises:
            LineError: as there, and `hub_stopped`.
        """
        self._is_stopped = self._is_stopped or was_stopped(paths.state_dir())
        if self._is_stopped:
            try:
                HubLine.connect(socket, timeout_s=timeout_s).close()
            except LineError as err:
                if err.code not in {"hub_not_running", "hub_gone"}:
                    raise
                raise LineError(
                    "hub_stopped", "the hub was stopped", "to go on: upcall hub start"
                ) from err
            self._is_stopped = False
        return ensure_hub(timeout_s, socket=socket, note=note)


def is_lent(state: str | None = None) -> bool:
    """Tell whether only the asking socket of a hub elsewhere is here, so none is started."""
    state = paths.state_dir() if state is None else state
    return lent_socket() is not None or is_only_for_asking(state)


def was_stopped(state: str) -> bool:
    """Tell whether a person stopped the last hub of the folder *state*."""
    return read_hub_json(state).get("stopped") is True


def is_newer(ours: str, theirs: str) -> bool:
    """Tell whether version *ours* is newer; a version that can't be read never is older."""
    try:
        return [int(part) for part in ours.split(".")] > [
            int(part) for part in theirs.split(".")
        ]
    except ValueError:
        return False


def _try(state: str, socket: str, until: float) -> HubLine | None:
    try:
        return HubLine.connect(
            socket, timeout_s=max(0.05, until - time.monotonic()), state=state
        )
    except LineError as err:
        # Ending right now: as good as not there.
        if err.code in {"hub_not_running", "hub_gone"}:
            return None
        raise


def _replace(
    line: HubLine, state: str, socket: str, until: float, note: Callable[[str], None] | None
) -> HubLine | None:
    old = line.hub
    try:
        with HubLine.connect("control", timeout_s=2.0, state=state) as control:
            open_asks = int(control.request("status").get("open_asks") or 0)
            if note is not None:
                kept = f"{open_asks} open question{' is' if open_asks == 1 else 's are'}"
                note(
                    f"hub {old.get('version')} is running, this is {upcall.__version__} - "
                    f"restarting it ({kept} kept)"
                )
            # A hub whose own files were upgraded begins anew in its process, as its service
            # manager wants it; one of another installation makes room for ours.
            control.request("stop", reason="upgrade", again="upgrade")
    except LineError as err:
        if err.code not in LOST_CODES:
            return line  # we may not stop it (a sandbox): the running one serves us too
    line.close()
    while time.monotonic() < until:
        found = _try(state, socket, until)
        if found is None or _who(found.hub) != _who(old):
            return found
        found.close()
        time.sleep(_PAUSE_S)
    raise LineError(
        "hub_old",
        f"hub {old.get('version')} does not stop; this program is {upcall.__version__}",
        "stop it with: upcall hub stop",
    )


def _who(hub: dict[str, Any]) -> tuple[object, object]:
    return hub.get("pid"), hub.get("version")


def _start(state: str, socket: str, until: float, command: Sequence[str] | None) -> HubLine:
    failed = _recent_failure(state)
    if failed is not None:
        raise failed
    process = _spawn(command or hub_command(detached=True))
    for _ in _until(until):
        ended = process.poll()
        line = _try(state, socket, until)
        if line is not None:
            return line
        if ended == _RUNS_ALREADY:
            # Another one is starting, or ending: either it answers soon, or there is room.
            time.sleep(_LOOKS_AGAIN_S)
            process = _spawn(command or hub_command(detached=True))
        elif ended is not None:
            raise _recent_failure(state) or LineError(
                "hub_start",
                f"the hub ended at once (exit {ended})",
                _no_room(state) or f"its log may say why: {paths.hub_log(state)}",
            )
    raise LineError(
        "hub_start",
        "a hub was started but did not answer in time",
        f"its log may say why: {paths.hub_log(state)}",
    )


def _no_room(state: str) -> str | None:
    """Return what is in the way of writing anything, even a line that would say so."""
    import resource

    limit_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit_bytes != resource.RLIM_INFINITY:
        return (
            f"files are limited to {limit_bytes} bytes here, so that it can write nothing into "
            f"{state}: raise that limit (ulimit -f unlimited)"
        )
    if os.statvfs(state).f_bavail == 0:
        return f"no space is left for {state}: free some"
    return None


def _until(until: float) -> Iterator[None]:
    while time.monotonic() < until:
        yield
        time.sleep(_PAUSE_S)


def _recent_failure(state: str) -> LineError | None:
    found = read_hub_json(state)
    error, ended_ms = found.get("last_error"), found.get("ended_ms")
    if not isinstance(error, dict) or not isinstance(ended_ms, int):
        return None
    age_s = time.time() - ended_ms / 1000
    if not -1 <= age_s <= FAILED_RECENTLY_S:
        return None
    recover = error.get("recover")
    return LineError(
        str(error.get("code", "hub_start")),
        f"the hub ended by itself: {error.get('msg') or error.get('code')}",
        recover if isinstance(recover, str) else f"its log: {paths.hub_log(state)}",
    )


def _spawn(command: Sequence[str]) -> _Process:
    # Imported here: only the first asker of the day starts a hub.
    import subprocess
    import warnings

    class Detached(subprocess.Popen[bytes]):
        """A child that is meant to outlive us; nobody waits for it."""

        def __del__(self) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                super().__del__()

    return Detached(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=hub_environment(dict(os.environ)),
        close_fds=True,
        start_new_session=True,
        umask=0o077,
    )


if TYPE_CHECKING:
    import subprocess

    _Process = subprocess.Popen[bytes]


class _Lock:
    """`start.lock`, held by one starter; the kernel lets go of it when we die."""

    def __init__(self, path: str, until: float) -> None:
        self._path = path
        self._until = until
        self._fd = -1

    def __enter__(self) -> None:
        import fcntl

        folder, name = os.path.split(self._path)
        directory = paths.open_private_dir(folder)
        try:
            self._fd = paths.open_own_file(name, dir_fd=directory, path=self._path)
        finally:
            os.close(directory)
        try:
            for _ in _until(self._until):
                try:
                    fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                return
            raise LineError("hub_start", "another program is starting the hub and isn't done")
        except BaseException:
            os.close(self._fd)
            raise

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._fd)
