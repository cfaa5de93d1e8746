"""A new version under a running hub: noticed on disk, and taken up when nothing is in flight.

The hub loads parts of itself only when they are needed; after an upgrade those would be of
another version. So it ends and begins anew as the same process, which a service manager does
not even notice. Meanwhile it holds the lock under which others start a hub: whoever finds the
sockets gone waits for this one.
"""

import asyncio
import fcntl
import os
import re
from collections.abc import Callable
from typing import Final

import upcall
from upcall.clock import Clock
from upcall.hub.foreground import begin_again
from upcall.line.errors import LineError
from upcall.line.start import is_newer
from upcall.model.platform import SeamLog
from upcall.model.text import visible
from upcall.model.views import Problem
from upcall_discovery import paths

LOOK_S: Final = 3.0
STARTING: Final = "UPCALL_HUB_STARTING"
"""Names the descriptor of the start lock that a hub holds while it begins anew."""
_MAX_BYTES: Final = 64 * 1024
_VERSION: Final = re.compile(r'^__version__ = "([0-9A-Za-z.+!-]{1,40})"$', re.MULTILINE)


def version_on_disk(package: str | None = None) -> str | None:
    """Return the version of the files that this program would load now; does disk work.

    Args:
        package: the package's folder; our own by default.

    Returns:
        None while it cannot be told, as when the files are just being replaced.
    """
    folder = os.path.dirname(os.path.abspath(upcall.__file__)) if package is None else package
    try:
        with open(os.path.join(folder, "__init__.py"), encoding="utf-8") as file:
            found = _VERSION.search(file.read(_MAX_BYTES))
    except (OSError, UnicodeDecodeError):
        return None
    return None if found is None else found[1]


class Handover:
    """What one life of the hub leaves to the next one in the same process.

    Args:
        detached: how the hub was started.
        secrets: those that were handed over beside the environment.

    Attributes:
        secrets: all that were read from variables, which are in no environment any more.
        is_wanted: the hub is to begin anew when it has ended.
    """

    def __init__(self, *, detached: bool, secrets: dict[str, str]) -> None:
        self.secrets = secrets
        self.is_wanted = False
        self._detached = detached
        self._lock = _inherited_lock()

    def take_lock(self, state: str) -> bool:
        """Take the start lock, so that nobody starts another hub meanwhile; does disk work."""
        if self._lock >= 0:
            return True
        path = paths.start_lock(state)
        try:
            folder = paths.open_private_dir(state)
            try:
                fd = paths.open_own_file(os.path.basename(path), dir_fd=folder, path=path)
            finally:
                os.close(folder)
        except (OSError, paths.PathProblem):
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._lock = fd
        return True

    def is_up(self) -> None:
        """The new hub can be reached: let others start one again when it has ended."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def go_on(self) -> int:
        """Begin anew, with the files that are on disk now.

        Returns:
            The exit code, if that cannot be done: a service manager starts the hub again, and
            so does the next command.
        """
        keep = {} if self._lock < 0 else {STARTING: self._lock}
        try:
            begin_again(detached=self._detached, secrets=self.secrets, descriptors=keep)
        except (OSError, LineError):
            self.is_up()
            return 1


def _inherited_lock() -> int:
    named = os.environ.pop(STARTING, "")
    if not named.isascii() or not named.isdecimal() or len(named) > 6:
        return -1
    fd = int(named)
    try:
        same = os.path.samestat(os.fstat(fd), os.stat(paths.start_lock(paths.state_dir())))
    except OSError:
        return -1
    if not same:
        return -1
    os.set_inheritable(fd, False)
    return fd


class Upgrade:
    """Watches the version on disk.

    Args:
        clock: time.
        log: where it is told.
        is_busy: tells whether a claim is in flight; no restart cuts into one.
        restart: begins the hub anew, for a reason in words; False if not now.
        changed: called when `problem` has changed.
        look: returns the version on disk.

    Attributes:
        problem: what a person should know, or None.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        log: SeamLog,
        is_busy: Callable[[], bool],
        restart: Callable[[str], bool],
        changed: Callable[[], None],
        look: Callable[[], str | None] = version_on_disk,
    ) -> None:
        self.problem: Problem | None = None
        self._clock = clock
        self._log = log
        self._is_busy = is_busy
        self._restart = restart
        self._changed = changed
        self._look = look

    async def keep(self) -> None:
        """Look until the hub begins anew."""
        before: str | None = None
        while True:
            await self._clock.sleep(LOOK_S)
            found = await asyncio.to_thread(self._look)
            is_settled = found == before
            before = found
            if found is None or not is_settled:
                continue  # files are being replaced: it has to be the same twice
            if not is_newer(found, upcall.__version__):
                self._tell(found)
            elif not self._is_busy() and self._restart(f"upgrade to {found}"):
                return

    def _tell(self, found: str) -> None:
        """Say that an older version is on disk: it may not know our database."""
        problem = None
        if found != upcall.__version__:
            words = f"hub {upcall.__version__} is running, on disk is {visible(found)}"
            problem = Problem("version_changed", words, "upcall hub restart")
        if problem != self.problem:
            self.problem = problem
            self._changed()
            if problem is not None:
                self._log.warning("version_changed", found=found)
