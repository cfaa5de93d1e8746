"""Reading a folder of records: who lives, who is gone, and why a file is refused."""

import errno
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from upcall_discovery import liveness
from upcall_discovery.liveness import ProcessIdentity
from upcall_discovery.paths import (
    DIRECTORY_FLAGS,
    PathProblem,
    check_private_dir,
    open_private_dir,
    read_at,
    shown,
)
from upcall_discovery.record import MAX_RECORD_BYTES, SUFFIX, Record, RecordProblem, parse

MAX_RECORDS: Final = 4096
"""Beyond this many files in a folder the rest is refused as `too_many_records`."""

_CONNECT_TIMEOUT_S: Final = 0.25
_TEMPORARY: Final = re.compile(r"\..+\.json\.(\d{1,10})\.[0-9a-f]{8}\.tmp")
# What is wrong with a file, in the words of records.
_FILE_CODES: Final = {
    "file_symlink": "record_symlink",
    "file_not_regular": "record_not_regular",
    "file_foreign": "record_foreign",
    "file_linked": "record_linked",
    "file_not_private": "record_not_private",
    "file_too_large": "record_too_large",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A valid record.

    Attributes:
        record: its content. A peer's record that doesn't say when its session started has
            the file's time of change.
        path: the file.
        mark: device, inode and change time of the file that was read.
    """

    record: Record
    path: str
    mark: tuple[int, int, int] = field(default=(0, 0, 0), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file or folder that is not used.

    Attributes:
        path: as it was found; text from outside.
        code: stable name, such as `record_url`.
        reason: one sentence, safe to show.
        recover: what to do about it, or None.
    """

    path: str
    code: str
    reason: str
    recover: str | None = None


@dataclass(slots=True)
class Scan:
    """What a folder held.

    Attributes:
        live: endpoints to connect to.
        dead: the process is gone, or its pid is another process' now.
        stale: the session said that it ended.
        refused: not to be used, each with its reason.
        leftovers: temporary files of writers that died.
    """

    live: list[Found] = field(default_factory=list)
    dead: list[Found] = field(default_factory=list)
    stale: list[Found] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


def scan(
    folder: str,
    *,
    now_ms: int,
    project: str | None = None,
    known: Mapping[str, ProcessIdentity] | None = None,
) -> Scan:
    """Read every record of a folder; does disk work, so it belongs off the event loop.

    Args:
        folder: its path. A missing one is empty; one that is not ours alone is refused as
            a whole.
        now_ms: the wall clock, beyond which no record can have been written.
        project: the project beside which it lies: then no symlink below that is followed,
            and its parents may be what they are. Otherwise nobody else may be able to
            change the way to it.
        known: processes of sessions that were found before; such a session lives while
            its process does, whatever the wall clock has done since.
    """
    result = Scan()
    try:
        fd = open_private_dir(folder) if project is None else _open_below(project, folder)
    except FileNotFoundError:
        return result
    except PathProblem as problem:
        result.refused.append(Refusal(folder, problem.code, problem.msg, problem.recover))
        return result
    except OSError as error:
        result.refused.append(_unreadable("folder_unreadable", folder, error))
        return result
    try:
        _read_all(fd, folder, _Judge(now_ms, known or {}), result)
    finally:
        os.close(fd)
    return result


def sweep(scanned: Scan) -> list[str]:
    """Remove the records that nobody answers for, and return their paths.

    A record goes if it is dead or stale and a connection to its port is refused, and only
    if its file is still the one that was scanned. Connects to loopback, up to 0.25 s each,
    so it belongs off the event loop.
    """
    removed = [
        found.path
        for found in [*scanned.dead, *scanned.stale]
        if _nobody_listens(found.record) and _remove(found.path, found.mark)
    ]
    removed += [path for path in scanned.leftovers if _remove(path, None)]
    return removed


def _open_below(project: str, folder: str) -> int:
    """Open a folder of a project without following any symlink below the project's own."""
    fd = os.open(project, DIRECTORY_FLAGS)
    path = project
    try:
        for name in os.path.relpath(folder, project).split(os.sep):
            path = os.path.join(path, name)
            try:
                fd, above = os.open(name, DIRECTORY_FLAGS, dir_fd=fd), fd
            except OSError as error:
                if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                    raise
                raise PathProblem(
                    "folder_symlink",
                    f"{shown(path)} is a symlink or no folder",
                    f"remove {shown(path)}; it has to be a real folder",
                ) from error
            os.close(above)
        check_private_dir(fd, folder)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _read_all(fd: int, folder: str, judge: "_Judge", result: Scan) -> None:
    names = sorted(os.listdir(fd))
    records = [name for name in names if name.endswith(SUFFIX)]
    for name in records[:MAX_RECORDS]:
        path = os.path.join(folder, name)
        try:
            found = _read_one(fd, name, path)
            judge.sort_in(found, result)
        except FileNotFoundError:
            continue
        except PathProblem as problem:
            code = _FILE_CODES.get(problem.code, problem.code)
            result.refused.append(Refusal(path, code, problem.msg, problem.recover))
        except RecordProblem as problem:
            result.refused.append(Refusal(path, problem.code, problem.msg, problem.recover))
        except OSError as error:
            result.refused.append(_unreadable("record_unreadable", path, error))
    if len(records) > MAX_RECORDS:
        reason = f"{shown(folder)} has {len(records)} records; {MAX_RECORDS} are read"
        result.refused.append(Refusal(folder, "too_many_records", reason))
    for name in names:
        writer = _TEMPORARY.fullmatch(name)
        if writer and liveness.identify(int(writer[1])) is None:
            result.leftovers.append(os.path.join(folder, name))


def _read_one(fd: int, name: str, path: str) -> Found:
    data, status = read_at(name, MAX_RECORD_BYTES, dir_fd=fd, path=path)
    record = parse(data, name)
    if record.started_at_ms == 0:
        record = replace(record, started_at_ms=status.st_mtime_ns // 1_000_000)
    return Found(record, path, (status.st_dev, status.st_ino, status.st_ctime_ns))


class _Judge:
    """Decides whose record lives, with one look at the machine for all of a folder."""

    def __init__(self, now_ms: int, known: Mapping[str, ProcessIdentity]) -> None:
        self._now_ms = now_ms
        self._known = known
        self._sockets = liveness.Sockets()

    def sort_in(self, found: Found, result: Scan) -> None:
        record = found.record
        if record.stale:
            result.stale.append(found)
        elif not self._is_running(record):
            result.dead.append(found)
        else:
            problem = listener_problem(record, self._sockets)
            if problem is not None:
                raise problem
            result.live.append(found)

    def _is_running(self, record: Record) -> bool:
        if record.pid_start is not None:
            return liveness.is_alive(ProcessIdentity(record.pid, record.pid_start))
        known = self._known.get(record.session_id)
        if known is not None and known.pid == record.pid and liveness.is_alive(known):
            return True
        # A start in the future would make any process look older than its record.
        before_ms = min(record.started_at_ms, self._now_ms)
        return liveness.started_before(record.pid, before_ms) is True


def listener_problem(
    record: Record, sockets: liveness.Sockets, *, connected: bool = False
) -> RecordProblem | None:
    """Return why nobody may connect to a record's port, None if its process listens there.

    Where the system does not tell who listens, there is no problem.

    Args:
        record: whose process lives.
        sockets: a look at the machine.
        connected: the look was taken after a connection to the port was made, so that
            somebody did listen there.
    """
    name, port = shown(record.file_name), record.port
    uid = liveness.uid_of(record.pid)
    if uid is not None and uid != os.geteuid():
        return RecordProblem(
            "record_foreign_process",
            f"{name}: process {record.pid} belongs to user {uid}",
        )
    listening = sockets.listener(port, record.host)
    if listening is None:
        if connected and sockets.tells():
            return RecordProblem(
                "record_other_listener", f"{name}: who listened on port {port} is gone"
            )
        return None
    if listening.uid != os.geteuid():
        return RecordProblem(
            "record_foreign_listener", f"{name}: user {listening.uid} listens on port {port}"
        )
    if sockets.holds(record.pid, listening.inode) is False:
        return RecordProblem(
            "record_other_listener",
            f"{name}: another process than {record.pid} listens on port {port}",
        )
    return None


def _unreadable(code: str, path: str, error: OSError) -> Refusal:
    return Refusal(path, code, f"{shown(path)} cannot be read: {error.strerror}")


def _nobody_listens(record: Record) -> bool:
    if record.port == 0:
        return True
    family = socket.AF_INET6 if record.host == "::1" else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(_CONNECT_TIMEOUT_S)
            probe.connect((record.host, record.port))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _remove(path: str, mark: tuple[int, int, int] | None) -> bool:
    folder, name = os.path.split(path)
    try:
        # The mark tells whether it is still the file that was read, wherever the way leads.
        fd = open_private_dir(folder, parents=False)
    except (OSError, PathProblem):
        return False
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if mark is not None and mark != (found.st_dev, found.st_ino, found.st_ctime_ns):
            return False
        os.unlink(name, dir_fd=fd)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
