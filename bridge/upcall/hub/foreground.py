"""A hub that a person or a service starts becomes as clean a process as one started on demand.

Whoever starts it hands it an environment, and that of a process can be read from outside for
as long as it lives. So the process begins anew with a closed environment; the secrets that the
configuration takes from variables go along in an unnamed file.
"""

import contextlib
import json
import os
import sys
import tomllib
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from upcall.config import default_path
from upcall.line.errors import LineError
from upcall.line.interpreter import hub_command, hub_environment
from upcall.secrets import sources_in

HANDED: Final = "UPCALL_HUB_HANDED"
"""Names the descriptor of that file; `-` if there is none. That it is there ends the matter."""
_OF_THE_SERVICE: Final = (
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "XPC_SERVICE_NAME",
)
_MAX_BYTES: Final = 1024 * 1024


def begin_clean(*, detached: bool) -> dict[str, str]:
    """Begin this process anew, once, in `/` and with a closed environment, unless it has that.

    Args:
        detached: how the hub is started, and is again.

    Returns:
        The secrets that were handed over, by variable.
    """
    os.chdir("/")
    os.umask(0o077)
    handed = os.environ.pop(HANDED, None)
    if handed is not None:
        return _read_handed(handed)
    closed = _closed(dict(os.environ))
    if not sys.flags.safe_path or not set(os.environ) <= set(closed):
        # Run from a folder, without being installed, it can only go on as it is.
        with contextlib.suppress(LineError):
            _begin_anew(hub_command(detached=detached))
    return {}


def _closed(environ: dict[str, str]) -> dict[str, str]:
    of_service = {name: environ[name] for name in _OF_THE_SERVICE if name in environ}
    return hub_environment(environ) | of_service


def begin_again(
    *, detached: bool, secrets: Mapping[str, str], descriptors: Mapping[str, int]
) -> NoReturn:
    """Begin this process anew after its end, with what is installed now.

    Args:
        detached: how the hub was started, and is again.
        secrets: those that it was given, by variable.
        descriptors: files that go along, by the variable that names each.

    Raises:
        LineError: `hub_not_installed`; the program is not found any more.
        OSError: its interpreter cannot be run.
    """
    _begin_anew(hub_command(detached=detached), secrets, descriptors)


def _begin_anew(
    command: list[str],
    secrets: Mapping[str, str] | None = None,
    descriptors: Mapping[str, int] | None = None,
) -> NoReturn:
    environ = dict(os.environ)
    given = {name: environ[name] for name in _named_variables() if name in environ}
    given |= secrets or {}
    closed = _closed(environ)
    fd = _unnamed_file(given) if given else None
    closed[HANDED] = "-" if fd is None else str(fd)
    _let_go_of_descriptors(fd)
    for name, kept in (descriptors or {}).items():
        os.set_inheritable(kept, True)
        closed[name] = str(kept)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(command[0], command, closed)  # noqa: S606 - an argument vector, no shell


def _named_variables() -> list[str]:
    """Return the variables in which the configuration says that secrets are."""
    document: dict[str, Any] = {}
    # Whatever is wrong with the file, the hub itself says it.
    with contextlib.suppress(OSError, ValueError, RecursionError):
        fd = os.open(default_path(), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            document = tomllib.loads(file.read(_MAX_BYTES).decode("utf-8"))
    names = (source.get("env") for source in sources_in(document))
    return [name for name in names if isinstance(name, str)]


def _unnamed_file(given: Mapping[str, str]) -> int:
    data = json.dumps(dict(given)).encode("ascii")
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("upcall-secrets", 0)
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    else:
        # What was written stays in the pipe when the process begins anew; it is far smaller
        # than what a pipe takes, and is refused rather than waited for if it is not.
        fd, into = os.pipe()
        os.set_blocking(into, False)
        os.write(into, data)
        os.close(into)
    os.set_inheritable(fd, True)
    return fd


def _read_handed(handed: str) -> dict[str, str]:
    if not handed.isascii() or not handed.isdecimal():
        return {}
    try:
        with open(int(handed), "rb") as file:
            found = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _let_go_of_descriptors(keep: int | None) -> None:
    """Keep whatever our starter had open from going along."""
    for name in os.listdir("/dev/fd"):
        fd = int(name)
        if fd > 2 and fd != keep:
            with contextlib.suppress(OSError):
                os.set_inheritable(fd, False)
