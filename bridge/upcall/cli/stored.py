"""`upcall hub backup | restore | adopt`: the hub's database, out and in again."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from contextlib import contextmanager, suppress

from upcall.cli import exits, screen
from upcall.cli.errors import Failure, Usage
from upcall.line import ensure_hub
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from upcall.hub.lock import HubLock
    from upcall.hub.store.backup import Found
    from upcall.hub.store.restore import Restored

_START_LOCK_WITHIN_S = 30.0
_PAUSE_S = 0.05
_STOP_TRIES = 5
_PROGRESS_EVERY_S = 1.0


def fill_backup(parser: argparse.ArgumentParser) -> None:
    """Add the options of `hub backup`."""
    add = parser.add_argument
    add("file", metavar="FILE", help="where the copy goes")
    add("--force", action="store_true", help="replace FILE if it is there")


def fill_restore(parser: argparse.ArgumentParser) -> None:
    """Add the options of `hub restore`."""
    parser.add_argument("file", metavar="FILE", help="what `upcall hub backup` made")
    fill_adopt(parser)


def fill_adopt(parser: argparse.ArgumentParser) -> None:
    """Add the options of `hub adopt`."""
    parser.add_argument("--yes", action="store_true", help="do not ask on this terminal")


def backup(given: argparse.Namespace) -> int:
    """Copy the database into a file, while the hub runs."""
    from upcall.hub.store import backup as copies

    db_path = paths.db_path(paths.state_dir())
    target = os.path.abspath(given.file)
    if os.path.isdir(target) or given.file.endswith("/"):
        raise Usage(f"{given.file!r} is a folder", "name the file, such as upcall.backup")
    if os.path.realpath(os.path.dirname(target)) == os.path.realpath(
        os.path.dirname(db_path)
    ) and os.path.basename(target).startswith(("hub.", "ask.", "control.", "start.", "audit.")):
        raise Usage(f"{given.file!r} is a name that the hub uses", "choose another name")
    told = _Progress(db_path)
    umask = os.umask(0o077)
    try:
        found = copies.make(db_path, target, force=given.force, progress=told.turn)
    finally:
        os.umask(umask)
    if given.json:
        screen.document({"backup": _document(found)})
        return exits.OK
    told.end()
    screen.out(
        f"{screen.visible(target)}: {_size(found.size_bytes)}, {_asks(found)}; read through"
    )
    screen.err("it holds all texts: keep it where only you can read it")
    return exits.OK


def restore(given: argparse.Namespace) -> int:
    """Put a backup in the database's place."""
    return _go_back(os.path.abspath(given.file), given, adopts=False)


def adopt(given: argparse.Namespace) -> int:
    """Go on with the database that is there, though it is old or from another computer."""
    return _go_back(paths.db_path(paths.state_dir()), given, adopts=True)


def _go_back(source: str, given: argparse.Namespace, *, adopts: bool) -> int:
    from upcall.hub.store import backup as copies

    state = paths.state_dir()
    db_path = paths.db_path(state)
    umask = os.umask(0o077)
    try:
        paths.ensure_private_dir(state)
        _check_local(state)
        found = copies.look(source)
        _confirm(found, db_path, given, adopts=adopts)
        ran, done = _swap(state, db_path, source)
    finally:
        os.umask(umask)
    if ran:
        ensure_hub(note=screen.err).close()
    _tell(done, found, given, ran=ran, adopts=adopts)
    return exits.OK


def _check_local(state: str) -> None:
    kind = paths.is_network_filesystem(state)
    if kind is not None:
        raise Failure(
            f"the state folder {screen.visible(state)} is on a network file system ({kind})",
            "set XDG_STATE_HOME to a folder on a local disk",
            "state_not_local",
        )


def _confirm(found: Found, db_path: str, given: argparse.Namespace, *, adopts: bool) -> None:
    if found.broken_at is not None:
        screen.err(
            f"warning: the audit in this file was changed: line {found.broken_at} does not "
            "follow from the one before it"
        )
    if given.yes:
        return
    if given.json or not _is_asked():
        raise Usage("this replaces the hub's database", "to do it without a question: --yes")
    when = "nothing yet" if found.last_ms is None else f"until {_time(found.last_ms)}"
    what = "Go on with" if adopts else f"Replace {screen.visible(db_path)} by"
    screen.err(f"{what} {screen.visible(found.path)} ({_asks(found)}, {when})?")
    screen.err(
        "What was asked and answered after that is lost, browsers are signed out, and the "
        f"programs of {found.open_asks} open question{'' if found.open_asks == 1 else 's'} "
        "are asked whether they still wait."
    )
    sys.stderr.write("Type yes to do it: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise Failure("nothing was changed", code="not_confirmed")


def _is_asked() -> bool:
    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stderr is not None
        and sys.stderr.isatty()
    )


def _swap(state: str, db_path: str, source: str) -> tuple[bool, Restored]:
    from upcall.hub.store import backup as copies
    from upcall.hub.store import epoch, migrate
    from upcall.hub.store.restore import restore as put_back

    with _nobody_starts_one(state):
        ran, lock = _stopped(state)
        try:
            # Read again: until now the hub may have written to it.
            done = put_back(
                db_path,
                copies.look(source),
                now_ms=int(time.time() * 1000),
                machine=epoch.machine_id(),
                scripts=migrate.steps(),
            )
        finally:
            lock.release()
        # What the last hub failed of may be over; the next one is not kept from starting.
        with suppress(FileNotFoundError):
            os.unlink(paths.hub_json(state))
    return ran, done


@contextmanager
def _nobody_starts_one(state: str) -> Iterator[None]:
    """Hold the lock of those who start a hub; whoever asks meanwhile waits for it."""
    path = paths.start_lock(state)
    folder = paths.open_private_dir(state)
    try:
        fd = paths.open_own_file(os.path.basename(path), dir_fd=folder, path=path)
    finally:
        os.close(folder)
    try:
        until = time.monotonic() + _START_LOCK_WITHIN_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise Failure(
                        "another program has been starting a hub for long",
                        "try again in a minute",
                        "hub_busy",
                    ) from None
                time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(fd)


def _stopped(state: str) -> tuple[bool, HubLock]:
    """Stop the hub, take its lock, and return whether one was running."""
    from upcall.cli.stopping import stop_running
    from upcall.hub.lock import HubLock
    from upcall.model.errors import HubError

    ran = False
    for left in reversed(range(_STOP_TRIES)):
        ran = stop_running() is not None or ran
        try:
            return ran, HubLock.acquire(state, paths.runtime_dir())
        except HubError:
            # A service manager may have started the next one already.
            if not left:
                raise
            time.sleep(_PAUSE_S)
    raise AssertionError("unreachable")


def _tell(
    done: Restored, found: Found, given: argparse.Namespace, *, ran: bool, adopts: bool
) -> None:
    from upcall.hub.store.restore import replaced_words

    if given.json:
        screen.document(
            {
                "restored": _document(found),
                "epoch": done.epoch,
                "replaced": done.replaced,
                "asked_again": done.again,
                "ended_since": done.carried,
                "hub_running": ran,
            }
        )
        return
    what = "adopted" if adopts else "restored"
    screen.out(f"{what} {screen.visible(found.path)}; {replaced_words(done)}")
    if done.carried:
        are = "question had" if done.carried == 1 else "questions had"
        stay = "stays" if done.carried == 1 else "stay"
        screen.out(f"{done.carried} {are} ended since, and {stay} ended")
    if done.again:
        again = "question is asked again if its program still waits"
        if done.again != 1:
            again = "questions are asked again if their programs still wait"
        screen.out(f"{done.again} {again}")
    screen.out("every browser has to sign in anew: upcall inbox")


def _document(found: Found) -> dict[str, object]:
    return {
        "path": found.path,
        "size_bytes": found.size_bytes,
        "asks": found.asks,
        "open_asks": found.open_asks,
        "epoch": found.epoch,
        "last_ms": found.last_ms,
        "audit_head": found.head,
        "audit_lines": found.lines,
    }


class _Progress:
    """Says on a person's terminal that it goes on, once a second."""

    def __init__(self, db_path: str) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._next_s = time.monotonic() + _PROGRESS_EVERY_S
        self._said = False
        try:
            self._size = _size(os.stat(db_path).st_size)
        except OSError:
            self._size = ""

    def turn(self) -> None:
        """Something was copied."""
        now_s = time.monotonic()
        if self._shown and now_s >= self._next_s:
            self._next_s = now_s + _PROGRESS_EVERY_S
            sys.stderr.write("." if self._said else f"copying {self._size} ")
            sys.stderr.flush()
            self._said = True

    def end(self) -> None:
        """All is copied."""
        if self._said:
            sys.stderr.write("\n")


def _asks(found: Found) -> str:
    return f"{found.asks} question{'' if found.asks == 1 else 's'}, {found.open_asks} open"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 100_000 else f"{size_bytes} bytes"


def _time(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", screen.local_time(at_ms))
