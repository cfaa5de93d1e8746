"""A session's discovery record: written at start, kept there, taken away at the end."""

import asyncio
import errno
import json
import os
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Final

from upcall.clock import Clock
from upcall.model.errors import UpcallError
from upcall_discovery import paths
from upcall_discovery.liveness import identify
from upcall_discovery.paths import shown
from upcall_discovery.publish import Publication, prepare_project_folder
from upcall_discovery.record import Record

CHECK_S: Final = 4.0
"""How often a session looks whether its record is still there."""
_TOUCH_MS: Final = 60_000
_HUB_JSON_LIMIT_BYTES: Final = 64 * 1024


def make_record(session_id: str, port: int, token: str, *, now_ms: int) -> Record:
    """Return the record of an endpoint of this process."""
    identity = identify(os.getpid())
    return Record(
        session_id=session_id,
        pid=os.getpid(),
        host="127.0.0.1",
        port=port,
        url=f"ws://127.0.0.1:{port}",
        token=token,
        started_at_ms=now_ms,
        updated_at_ms=now_ms,
        pid_start=None if identity is None else identity.start,
    )


class RecordKeeper:
    """Keeps the record of one session where hubs look for it.

    That is the runtime folder that a hub names in its `hub.json`, else our own; if it changes
    the record moves. A record that vanished is written again within seconds.

    Args:
        record: what to publish.
        clock: for the checks.
        project: root of a project beside which to publish as well.
    """

    def __init__(self, record: Record, clock: Clock, *, project: str | None = None) -> None:
        self._record = record
        self._clock = clock
        self._project = project
        self._runtime: Publication | None = None
        self._runtime_folder = ""
        self._beside: Publication | None = None
        self._touched_ms = 0
        # A check that was cancelled goes on in its thread; it must not publish again what
        # `stop` has taken away.
        self._lock = threading.Lock()
        self._stopped = False

    async def start(self) -> None:
        """Publish.

        Raises:
            UpcallError: there is no usable folder; code and remedy of the discovery library.
        """
        await asyncio.to_thread(self._publish)

    async def run(self) -> None:
        """Keep it published, until cancelled. Trouble with a folder is tried again."""
        while True:
            await self._clock.sleep(CHECK_S)
            # Whatever is wrong with the folder now may be over at the next look.
            with suppress(OSError, paths.PathProblem):
                await asyncio.to_thread(self._refresh)

    async def stop(self) -> None:
        """Take the record away."""
        await asyncio.to_thread(self._withdraw)

    def _publish(self) -> None:
        try:
            self._move_to(_sessions_folder())
            if self._project is not None:
                folder = prepare_project_folder(self._project)
                self._beside = Publication(folder, _for_project(self._record), sync=True)
                self._beside.write()
                self._touched_ms = self._clock.wall_ms()
        except paths.PathProblem as exc:
            raise UpcallError(exc.msg, code=exc.code, recover=exc.recover) from exc
        except OSError as exc:
            where = exc.filename or paths.runtime_candidates()[0]
            raise UpcallError(
                f"the session's record {shown(where)} cannot be written: {exc.strerror}",
                code="record_not_written",
                recover=(
                    "raise the limit on the size of files (ulimit -f unlimited)"
                    if exc.errno == errno.EFBIG
                    else "make that folder writable, with some room on its disk"
                ),
            ) from exc

    def _move_to(self, folder: str) -> None:
        fresh = Publication(folder, self._record, sync=False)
        fresh.write()
        former, self._runtime = self._runtime, fresh
        self._runtime_folder = folder
        if former is not None:
            former.withdraw(self._clock.wall_ms())

    def _refresh(self) -> None:
        with self._lock:
            if not self._stopped:
                self._check()

    def _check(self) -> None:
        now_ms = self._clock.wall_ms()
        folder = _sessions_folder()
        if folder != self._runtime_folder:
            self._move_to(folder)
        elif self._runtime is not None:
            self._runtime.refresh(now_ms)
        if self._beside is not None:
            due = now_ms - self._touched_ms >= _TOUCH_MS
            if self._beside.refresh(now_ms, touch=due):
                self._touched_ms = now_ms

    def _withdraw(self) -> None:
        with self._lock:
            self._stopped = True
            for publication in (self._runtime, self._beside):
                if publication is not None:
                    with suppress(OSError):
                        publication.withdraw(self._clock.wall_ms())


def _for_project(record: Record) -> Record:
    """Return what may lie beside a project: without the token, unless its person wants that.

    Whoever reads the project's files could answer with it.
    """
    from upcall.config import load  # only who publishes beside a project pays for it

    try:
        token_too = load().publish.project_token
    except (UpcallError, OSError):
        token_too = False
    return record if token_too else replace(record, token="")


def _sessions_folder() -> str:
    named = _runtime_of_hub()
    if named is not None:
        folder = paths.sessions_dir(named)
        try:
            paths.ensure_private_dir(named)
            paths.ensure_private_dir(folder)
        except (OSError, paths.PathProblem):
            # The hub finds that out too and names another one; until then, our own.
            pass
        else:
            return folder
    return paths.sessions_dir(paths.runtime_dir())


def _runtime_of_hub() -> str | None:
    try:
        state = paths.state_dir()
        data = paths.read_private_file(paths.hub_json(state), _HUB_JSON_LIMIT_BYTES)
        found = json.loads(data)
        named = found["runtime_dir"]
        if not paths.is_own_socket(state, found["control_sock"]):
            return None  # of the state folder that ours was copied from
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        paths.PathProblem,
    ):
        return None
    return named if isinstance(named, str) and os.path.isabs(named) else None
