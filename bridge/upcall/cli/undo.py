"""What upcall has left on this computer, and how each of it is removed.

`FINDERS` is the list of whoever may leave something: each looks, changes nothing, and returns
what it found. A new part that leaves something adds its own finder. Only what is ours by its
content, or by its name in a folder that is ours alone, is ever removed; the rest is named.
"""

from __future__ import annotations

import os
import re
import stat
import sys

from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    Remove = Callable[[], None]

_STATE = re.compile(
    r"hub\.(json|log|lock)|hub\.db([-.][\w.-]+)?|audit\.anchors|hub\.log\.\d|start\.lock"
    r"|(ask|control)\.sock|\.(hub\.json|audit\.anchors)\.\d+\.[0-9a-f]{8}\.tmp"
)
_DATA = re.compile(r"hub\.(db|log)|hub\.db[-.].+|hub\.log\.\d|audit\.anchors")
_RECORD = re.compile(r"[A-Za-z0-9._-]{1,128}\.json")
_MAX_SCRIPT_BYTES = 1024 * 1024


class Left:
    """One thing that was left.

    Attributes:
        what: it in words, with its path.
        remove: removes it; None for what is only told, since it is not (known to be) ours.
    """

    __slots__ = ("remove", "what")

    def __init__(self, what: str, remove: Remove | None) -> None:
        self.what = what
        self.remove = remove


def find_all(*, keep_data: bool) -> list[Left]:
    """Return everything that was left, in the order in which it is removed.

    Args:
        keep_data: leave the questions, the files, the logs and the configuration.
    """
    state = paths.state_dir()
    if _is_foreign(state) or _is_foreign(paths.config_dir()):
        # As with `sudo` and the HOME of whoever called it: all of it is theirs to remove.
        return [Left(f"{paths.home()} is another user's; run it as that user", None)]
    return [one for finder in FINDERS for one in finder(keep_data)]


def _is_foreign(path: str) -> bool:
    try:
        return os.stat(path).st_uid != os.geteuid()
    except OSError:
        return False


# --- finders ---------------------------------------------------------------------------------


def _service(keep_data: bool) -> Iterator[Left]:  # noqa: ARG001 - a service is no data
    from upcall.cli import service, units
    from upcall.cli.errors import Failure

    manager = service.manager_for(sys.platform, os.environ)
    try:
        unit = service.Unit.read(manager.unit_path)
    except Failure as err:
        yield Left(f"the service unit {err.msg}", None)
        return
    if unit.text is None:
        return
    if units.is_untouched(unit.text):
        yield Left(f"the service: {manager.unit_path}", lambda: service.remove(manager, unit))
    else:
        yield Left(
            f"the service unit {manager.unit_path} was changed by hand: "
            "upcall service uninstall --force",
            None,
        )


def _completions(keep_data: bool) -> Iterator[Left]:  # noqa: ARG001 - scripts are no data
    from upcall.cli.completion import script

    home = paths.home()
    data = os.environ.get("XDG_DATA_HOME", "")
    data = data if os.path.isabs(data) else os.path.join(home, ".local", "share")
    config = os.path.dirname(paths.config_dir())
    for shell, path in (
        ("bash", os.path.join(data, "bash-completion", "completions", "upcall")),
        ("fish", os.path.join(config, "fish", "completions", "upcall.fish")),
    ):
        try:
            fd = os.open(path, paths.READ_FLAGS)
        except OSError:
            continue
        with open(fd, "rb") as file:
            is_ours = (
                stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                and file.read(_MAX_SCRIPT_BYTES) == (script(shell) + "\n").encode()
            )
        folder, name = os.path.split(path)
        if is_ours:
            yield Left(f"completion for {shell}: {path}", _Names(folder, [name]).remove)
        else:
            yield Left(f"completion for {shell} of another version: {path}", None)


def _hub(keep_data: bool) -> Iterator[Left]:  # noqa: ARG001 - a process is no data
    from upcall.cli.stopping import stop_running
    from upcall.line import HubLine, LineError

    def stop() -> None:
        stop_running(stays_down=True)

    try:
        with HubLine.connect("control", timeout_s=2.0) as line:
            pid = line.hub.get("pid")
    except LineError as err:
        if err.code != "hub_not_running":
            yield Left(f"a hub that does not answer: {err.msg}", stop)
        return
    yield Left(f"the hub that runs (pid {pid})", stop)


def _runtime(keep_data: bool) -> Iterator[Left]:  # noqa: ARG001 - dies with the machine
    import time

    from upcall.hub.lock import owner_of
    from upcall.line.connection import read_hub_json
    from upcall_discovery.scan import scan

    state = paths.state_dir()
    hub = read_hub_json(state).get("pid")  # it hosts sessions of its own
    sockets = {os.path.basename(path) for path in paths.short_socket_paths(state)}
    places = paths.runtime_candidates()
    for folder in places:
        if not os.path.isdir(folder) or os.path.islink(folder):
            continue
        owner = owner_of(folder).state
        if owner != state and not (owner is None and folder == places[0]):
            # Shared with the hub of another state folder: only our own sockets are ours.
            names = sorted(sockets & set(os.listdir(folder)))
            if names:
                yield Left(f"sockets in {folder}", _Names(folder, names).remove)
            continue
        records = paths.sessions_dir(folder)
        found = scan(records, now_ms=int(time.time() * 1000))
        live = {os.path.basename(one.path) for one in found.live if one.record.pid != hub}
        for name in sorted(live):
            yield Left(f"a program that still runs: {os.path.join(records, name)}", None)
        yield from _folder(records, _is_record, "records", kept=live)
        yield from _folder(
            folder,
            lambda name: name == "hub.lock" or name in sockets,
            "runtime folder",
            inner={"sessions"},
        )


def _state(keep_data: bool) -> Iterator[Left]:
    state = paths.state_dir()
    kept = "questions, files, logs: " + state
    if not os.path.isdir(state) or os.path.islink(state):
        if os.path.islink(state):
            yield Left(f"{state} is a symlink", None)
        return
    pollers = os.path.join(state, "pollers")
    yield from _folder(pollers, lambda name: name.endswith(".lock"), "pollers' locks")
    files = os.path.join(state, "files")
    if not keep_data and os.path.isdir(files) and not os.path.islink(files):
        yield Left(f"files of sessions: {files}", lambda: _remove_tree(files))
    yield from _folder(
        state,
        lambda name: _STATE.fullmatch(name) is not None,
        "sockets and locks" if keep_data else "questions, logs, sockets",
        inner={"pollers", "files", "run"},
        kept=_data_in(state) if keep_data else set(),
    )
    if keep_data and _data_in(state):
        yield Left(f"kept as you wish: {kept}", None)


def _is_record(name: str) -> bool:
    return _RECORD.fullmatch(name) is not None


def _data_in(state: str) -> set[str]:
    return {name for name in os.listdir(state) if _DATA.fullmatch(name)}


def _config(keep_data: bool) -> Iterator[Left]:
    folder = paths.config_dir()
    if keep_data:
        if os.path.isdir(folder):
            yield Left(f"kept as you wish: {folder}", None)
        return
    yield from _folder(folder, lambda name: name == "config.toml", "configuration")


FINDERS: Sequence[Callable[[bool], Iterator[Left]]] = (
    _service,
    _completions,
    _hub,
    _runtime,
    _state,
    _config,
)


# --- folders ---------------------------------------------------------------------------------


def _folder(
    path: str,
    is_ours: Callable[[str], bool],
    what: str,
    *,
    inner: Collection[str] = (),
    kept: Collection[str] = (),
) -> Iterator[Left]:
    """Yield what in the folder *path* is ours, and name what is not.

    Args:
        path: the folder; a link, or a folder of somebody else, is only named.
        is_ours: tells our files by their names.
        what: what they are, in words.
        inner: folders in it that have finders of their own.
        kept: names that stay without a word.
    """
    try:
        fd = os.open(path, paths.DIRECTORY_FLAGS)
    except FileNotFoundError:
        return
    except OSError:
        yield Left(f"{path} is a symlink or no folder", None)
        return
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            yield Left(f"{path} belongs to another user", None)
            return
        names: list[str] = []
        is_ours_alone = True
        for name in sorted(os.listdir(fd)):
            if name in inner:
                continue
            if name in kept:
                is_ours_alone = False
            elif is_ours(name) and _is_plain(name, fd):
                names.append(name)
            else:
                is_ours_alone = False
                yield Left(f"not ours: {os.path.join(path, name)}", None)
    finally:
        os.close(fd)
    if not names and not is_ours_alone:
        return
    more = "" if not names else f" ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})"
    yield Left(f"{what}: {path}{more}", _Names(path, names, folder_too=True).remove)


def _remove_tree(path: str) -> None:
    """Remove a folder of ours with all that is in it; links are removed, never followed."""
    import shutil

    # rmtree walks by descriptors here, so a folder that is swapped for a link is not entered.
    if not shutil.rmtree.avoids_symlink_attacks:
        raise OSError(95, "this platform cannot remove a folder safely", path)
    shutil.rmtree(path)


def _is_plain(name: str, fd: int) -> bool:
    found = os.lstat(name, dir_fd=fd)
    is_file = stat.S_ISREG(found.st_mode) or stat.S_ISSOCK(found.st_mode)
    return is_file and found.st_uid == os.geteuid()


class _Names:
    """Files of ours in one folder."""

    def __init__(self, folder: str, names: Sequence[str], *, folder_too: bool = False) -> None:
        self._folder = folder
        self._names = names
        self._folder_too = folder_too

    def remove(self) -> None:
        """Remove them, and the folder if it is empty then and was ours."""
        try:
            fd = os.open(self._folder, paths.DIRECTORY_FLAGS)
        except FileNotFoundError:
            return
        try:
            for name in self._names:
                try:
                    # Looked at again: between finding and asking it may have been replaced.
                    if _is_plain(name, fd):
                        os.unlink(name, dir_fd=fd)
                except FileNotFoundError:
                    continue
        finally:
            os.close(fd)
        if self._folder_too:
            try:
                os.rmdir(self._folder)
            except OSError:
                return  # something of somebody else is in it; that was said
