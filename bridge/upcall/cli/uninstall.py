"""`upcall uninstall`: remove what upcall has left on this computer."""

from __future__ import annotations

import os
import sys

from upcall.cli import args, exits, screen, undo
from upcall.cli.errors import Failure, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

ABOUT = """Remove what upcall has left on this computer: the service, completion
scripts, the running hub, questions and their answers, logs, configuration. It
says what that is and asks before. The program itself goes as it was installed."""
EPILOG = """examples:
  upcall uninstall --dry-run
  upcall uninstall --keep-data

exit codes:
  0 done, or nothing to do   1 something could not be removed, or you said no
  2 usage, or nobody can be asked (use --yes)"""

_MANY = 1000


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `uninstall` to *parser*."""
    add = parser.add_argument
    add("--keep-data", action="store_true",
        help="keep questions, files, logs and the configuration")  # fmt: skip
    add("--dry-run", action="store_true", help="say what would be removed, remove nothing")
    add("--yes", action="store_true", help="do not ask")


def parser() -> args.Parser:
    """Return the parser of `upcall uninstall`."""
    made = args.make_parser("uninstall", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall uninstall`."""
    given = parser().read(argv)
    lost = 0 if given.keep_data else open_asks()
    found = undo.find_all(keep_data=given.keep_data)
    removable = [one for one in found if one.remove is not None]
    told = [one for one in found if one.remove is None]
    if not removable:
        screen.words("nothing of upcall is left here")
    else:
        screen.words("would remove:" if given.dry_run else "to be removed:")
        for one in removable:
            screen.words(f"  {screen.visible(one.what)}")
    if told:
        screen.words("left alone:")
        for one in told:
            screen.words(f"  {screen.visible(one.what)}")
    if lost:
        screen.words(f"{_questions(lost)} lost: whoever waits is told that it is cancelled")
    failed = False
    if removable and not given.dry_run:
        if not given.yes and not _agrees(lost):
            screen.err("nothing was removed")
            return exits.FAILURE
        if not given.keep_data:
            withdraw_all("upcall was uninstalled")
        failed = not _remove(removable)
    screen.words("the program itself: " + removal_command(sys.prefix, sys.executable))
    return exits.FAILURE if failed else exits.OK


def _questions(count: int) -> str:
    return f"{count} open question{' is' if count == 1 else 's are'}"


def _agrees(lost: int) -> bool:
    if not (os.isatty(0) and os.isatty(2)):
        raise Usage(
            "nobody can be asked here; nothing was removed",
            "look at it with --dry-run, then add --yes",
            "confirm_needed",
        )
    also = f" and lose {lost} open question{'' if lost == 1 else 's'}" if lost else ""
    import termios

    # What was typed before the question could be read is no answer to it.
    termios.tcflush(0, termios.TCIFLUSH)
    sys.stderr.write(f"Remove all this{also}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _remove(found: Sequence[undo.Left]) -> bool:
    """Remove everything; go on after a failure, so that what can go is gone."""
    from upcall.line import LineError
    from upcall_discovery.paths import PathProblem

    well = True
    for one in found:
        if one.remove is None:
            continue
        try:
            one.remove()
        except (OSError, Failure, LineError, PathProblem) as err:
            well = False
            why = getattr(err, "msg", None) or getattr(err, "strerror", None) or str(err)
            screen.err(f"upcall: not removed: {screen.visible(f'{one.what}: {why}')}")
        else:
            screen.words(f"removed {screen.visible(one.what)}")
    return well


def open_asks() -> int:
    """Return how many questions are open: as the hub says, or else as its store does."""
    from upcall.line import HubLine, LineError
    from upcall_discovery import paths

    try:
        with HubLine.connect("control", timeout_s=2.0) as line:
            status: dict[str, Any] = line.request("status", timeout_s=5.0)
            return int(status.get("open_asks") or 0)
    except LineError:
        pass
    from upcall.hub.store.peek import open_asks as stored

    return stored(paths.db_path(paths.state_dir()))


def withdraw_all(reason: str) -> None:
    """Cancel what is open, so that whoever waits for it ends too and starts no hub again."""
    from upcall.line import HubLine, LineError

    try:
        with HubLine.connect("control", timeout_s=2.0) as line:
            for ask in line.request("asks", limit=_MANY).get("asks") or []:
                try:
                    line.request("cancel", ask=ask["id"], reason=reason)
                except LineError as err:
                    # A program with an endpoint of its own goes on without us, and one that
                    # has its answer already needs nothing.
                    if err.code not in {"not_permitted", "already_answered", "unknown_ask"}:
                        raise
    except LineError as err:
        if err.code != "hub_not_running":
            screen.err(f"upcall: not cancelled: {screen.visible(err.msg)}")


def removal_command(prefix: str, executable: str) -> str:
    """Return what removes the package, from what the installer left beside it.

    Args:
        prefix: the environment that the package is in.
        executable: its interpreter.
    """
    if os.path.exists(os.path.join(prefix, "uv-receipt.toml")):
        return "uv tool uninstall upcall"
    if os.path.exists(os.path.join(prefix, "pipx_metadata.json")):
        return "pipx uninstall upcall"
    return f"{screen.visible(executable)} -m pip uninstall upcall"
