"""`upcall service`: have the hub started at login by the system's service manager."""

from __future__ import annotations

import os
import shlex
import sys
import time

from upcall.cli import args, at_login, exits, managers, screen, units
from upcall.cli import surroundings as around
from upcall.cli.errors import Failure
from upcall.line import HubLine, LineError
from upcall.line.interpreter import hub_command
from upcall_discovery import paths
from upcall_discovery.chain import open_chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

ABOUT = """Start the hub at login, so that questions of before a reboot are asked again
without anybody's command: a systemd user unit, or on macOS a launchd agent."""
EPILOG = """examples:
  upcall service install --dry-run
  upcall service install
  upcall service status

exit codes:
  0 done; status: installed and running   1 it could not be done; status: it is
  not   2 usage"""
_UP_WITHIN_S = 15.0
_PAUSE_S = 0.1
_MAX_UNIT_BYTES = 64 * 1024
_CODES = "exit codes:\n  0 done   1 it could not be done   2 usage"
_ACTIONS = {
    "install": "write the unit, enable it and start the hub under it",
    "status": "whether it is installed, unchanged, and running",
    "uninstall": "stop it, disable it and remove the unit",
}


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `service` to *parser*."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, what in _ACTIONS.items():
        action = actions.add_parser(
            name,
            help=what,
            description=what.capitalize() + ".",
            prog=f"upcall service {name}",
            epilog=f"example:\n  upcall service {name}\n\n{_CODES}",
        )
        if name == "status":
            action.add_argument("--json", action="store_true", help="print one JSON document")
        else:
            action.add_argument("--dry-run", action="store_true",
                                help="say what would be done, and do nothing")  # fmt: skip
            action.add_argument("--force", action="store_true",
                                help="also if the unit was changed by hand")  # fmt: skip


def parser() -> args.Parser:
    """Return the parser of `upcall service`."""
    made = args.make_parser("service", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall service`."""
    given = parser().read(argv)
    manager = manager_for(sys.platform, os.environ)
    if given.action == "install":
        return install(manager, os.environ, dry_run=given.dry_run, force=given.force)
    if given.action == "uninstall":
        return uninstall(manager, dry_run=given.dry_run, force=given.force)
    return status(manager, as_json=given.json)


def manager_for(platform: str, environ: Mapping[str, str]) -> managers.Manager:
    """Return the service manager of *platform*."""
    if platform == "darwin":
        return managers.Launchd(environ)
    return managers.Systemd(environ)


# --- install ---------------------------------------------------------------------------------


def install(
    manager: managers.Manager, environ: Mapping[str, str], *, dry_run: bool, force: bool
) -> int:
    """Write the unit, enable it and start the hub under it."""
    try:
        text = manager.unit_text()
    except units.UnusableProgram as err:
        raise Failure(
            str(err),
            "install upcall where the path is plain, such as with: uv tool install upcall",
            "service_program",
        ) from None
    if not manager.is_there():
        for line in without_manager(manager.name, environ):
            screen.err(line)
        return exits.FAILURE
    found = Unit.read(manager.unit_path)
    found.check_may_replace(text, force=force)
    if dry_run:
        screen.out(f"would write {screen.visible(manager.unit_path)}:")
        for line in text.splitlines():
            screen.out(f"  {screen.visible(line)}")
        screen.out("would enable it, and start the hub under it")
        return exits.OK
    found.write(text)
    try:
        _stop_other_hub()
        manager.enable()
    except (Failure, LineError):
        found.restore()
        manager.forget()
        raise
    screen.out(f"installed: {screen.visible(manager.unit_path)}")
    _wait_for_hub(manager.name)
    if manager.ends_at_logout():
        screen.out("the service ends when you log out. To keep it:")
        screen.out(f"  loginctl enable-linger {managers.login_name()}")
    return exits.OK


def _stop_other_hub() -> None:
    """Stop the hub that a command started; its questions are kept."""
    from upcall.cli.stopping import stop_running

    if stop_running() is not None:
        screen.out("stopped the hub that ran; its open questions are kept")


def _wait_for_hub(name: str) -> None:
    until = time.monotonic() + _UP_WITHIN_S
    while time.monotonic() < until:
        try:
            with HubLine.connect("control", timeout_s=2.0) as line:
                told = line.request("status", timeout_s=2.0)
        except LineError:
            time.sleep(_PAUSE_S)
            continue
        under = f"under {name}" if told.get("service") else f"but not under {name}"
        screen.out(f"the hub runs {under}, pid {told.get('pid')}")
        return
    raise Failure(
        f"{name} started the unit, but no hub answers",
        _log_command(name),
        "service_silent",
    )


def _log_command(name: str) -> str:
    if name == "systemd":
        return f"why: journalctl --user -u {at_login.SYSTEMD_NAME}"
    return f"why: {paths.hub_log(paths.state_dir())}"


def without_manager(name: str, environ: Mapping[str, str]) -> list[str]:
    """Return what to do where there is no service manager; nothing was written."""
    command = shlex.join(hub_command(detached=False))
    if name == "launchd":
        return [
            "upcall: launchd cannot be reached here; nothing was written",
            "        log in on the Mac's own screen once and run it there",
        ]
    head = "upcall: no systemd runs for you here; nothing was written"
    distribution = around.wsl(environ)
    if distribution is not None:
        named = f"-d {screen.one_line(distribution, 60)} " if distribution else ""
        return [
            head,
            "        Let WSL run systemd: put these two lines into /etc/wsl.conf,",
            "          [boot]",
            "          systemd=true",
            "        then in Windows: wsl --shutdown, and run this again.",
            "        Or make a scheduled task in Windows that runs at logon:",
            f"          wsl.exe {named}-- {command} --detached",
            "        While WSL is shut down nobody is asked; an idle WSL is shut down by "
            "Windows.",
        ]
    if around.is_container(environ):
        return [
            head,
            "        In a container, run the hub as its command or under its supervisor:",
            f"          {command}",
        ]
    return [
        head,
        "        With cron, put this line into the table that `crontab -e` opens:",
        f"          @reboot {command} --detached",
    ]


# --- status ----------------------------------------------------------------------------------


def status(manager: managers.Manager, *, as_json: bool) -> int:
    """Say whether the service is installed, unchanged, and running."""
    found = state_of(manager)
    well = found["installed"] and found["running"]
    if as_json:
        screen.document(found)
        return exits.OK if well else exits.FAILURE
    if not found["installed"]:
        screen.out(f"not installed: {at_login.AFTER_REBOOT}")
        return exits.FAILURE
    screen.out(f"installed: {screen.visible(manager.unit_path)}")
    if found["changed_by_hand"]:
        screen.out("  changed by hand")
    elif not found["current"]:
        screen.out(
            "  written by another version, or for another Python: upcall service install"
        )
    running = f"running under {manager.name}" if found["running"] else "not running"
    screen.out(running + ("" if found["running"] else f"; {_log_command(manager.name)}"))
    if found["ends_at_logout"]:
        screen.out(f"it ends when you log out: loginctl enable-linger {managers.login_name()}")
    return exits.OK if well else exits.FAILURE


def state_of(manager: managers.Manager) -> dict[str, Any]:
    """Return how the service is; nothing is changed."""
    unit = Unit.read(manager.unit_path)
    installed = unit.text is not None
    try:
        wanted = manager.unit_text()
    except (units.UnusableProgram, LineError):
        wanted = None
    return {
        "manager": manager.name,
        "unit": manager.unit_path,
        "installed": installed,
        "changed_by_hand": unit.text is not None and not units.is_untouched(unit.text),
        "current": installed and unit.text == wanted,
        "running": installed and manager.is_active(),
        "ends_at_logout": installed and manager.ends_at_logout(),
    }


# --- uninstall -------------------------------------------------------------------------------


def uninstall(manager: managers.Manager, *, dry_run: bool, force: bool) -> int:
    """Stop the service and remove its unit."""
    found = Unit.read(manager.unit_path)
    if found.text is None:
        screen.out("not installed")
        return exits.OK
    found.check_may_remove(force=force)
    shown = screen.visible(manager.unit_path)
    if dry_run:
        screen.out(f"would stop and disable it, and remove {shown}")
        return exits.OK
    remove(manager, found)
    screen.out(f"removed {shown}; open questions are kept")
    return exits.OK


def remove(manager: managers.Manager, unit: Unit) -> None:
    """Stop the service, disable it and remove its unit."""
    manager.disable()
    unit.remove()
    manager.forget()


# --- the file --------------------------------------------------------------------------------


class Unit:
    """A unit's file, as it was found.

    Attributes:
        path: where it is.
        text: its content, None if there is none.
    """

    def __init__(self, path: str, text: str | None) -> None:
        self.path = path
        self.text = text

    @classmethod
    def read(cls, path: str) -> Unit:
        """Return what is at *path*.

        Raises:
            Failure: `unit_unsafe`: it is a link, no file, or somebody else's; nobody changes
                such a thing, whatever is forced.
        """
        try:
            fd = os.open(path, paths.READ_FLAGS)
        except FileNotFoundError:
            return cls(path, None)
        except OSError as err:
            import errno

            if err.errno not in {errno.ELOOP, errno.ENXIO}:
                raise
            raise _unsafe(path, "is a symlink or no regular file") from None
        try:
            found = os.fstat(fd)
            import stat

            # A folder could not even be made a file object.
            if not stat.S_ISREG(found.st_mode):
                raise _unsafe(path, "is no regular file")
            if found.st_uid != os.geteuid():
                raise _unsafe(path, f"belongs to user {found.st_uid}")
            if found.st_nlink > 1:
                raise _unsafe(path, f"has {found.st_nlink} hard links")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(_MAX_UNIT_BYTES)
        finally:
            os.close(fd)
        return cls(path, data.decode("utf-8", "replace"))

    def check_may_replace(self, text: str, *, force: bool) -> None:
        """Raise `Failure` (`unit_changed`) if a person has changed it, unless forced."""
        if self.text not in {None, text}:
            self.check_may_remove(force=force)

    def check_may_remove(self, *, force: bool) -> None:
        """Raise `Failure` (`unit_changed`) if a person has changed it, unless forced."""
        if self.text is not None and not units.is_untouched(self.text) and not force:
            raise Failure(
                f"{self.path} was changed by hand, or is not ours",
                "look at it; to do it anyway, add --force",
                "unit_changed",
            )

    def write(self, text: str) -> None:
        """Put *text* there; folders that are missing are made."""
        # The way to it must be ours: with the HOME of another user nothing is left there.
        os.close(open_chain(os.path.dirname(self.path), make=True, private=False))
        paths.write_private_file(self.path, text.encode(), sync=True)

    def restore(self) -> None:
        """Put back what was found."""
        if self.text is None:
            self.remove()
        else:
            paths.write_private_file(self.path, self.text.encode(), sync=True)

    def remove(self) -> None:
        """Remove the file, if it is there."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return


def _unsafe(path: str, why: str) -> Failure:
    return Failure(
        f"{path} {why}; it is left alone", f"look at it: ls -l {path}", "unit_unsafe"
    )
