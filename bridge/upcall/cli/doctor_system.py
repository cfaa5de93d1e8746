"""What `upcall doctor` checks of the system around: service manager, lingering, WSL."""

from __future__ import annotations

import os
import sys

from upcall.cli import at_login, managers, service
from upcall.cli import surroundings as around
from upcall.cli.errors import Failure
from upcall.cli.finding import Finding
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def after_reboot() -> Iterator[Finding]:
    """Say whether the hub is there again after a reboot, and after a logout."""
    manager = service.manager_for(sys.platform, os.environ)
    try:
        found = service.state_of(manager)
    except Failure as err:
        yield Finding("error", err.code, f"service: {err.msg}", err.recover)
        return
    if not found["installed"]:
        yield Finding(
            "warning",
            "no_service",
            "no service is installed: after a reboot nobody is asked until some upcall "
            "command runs",
            "upcall service install",
        )
        # Without it, a hub that was started in a login session lives until its end anyway.
        yield from _lingering(manager, "the runtime folder goes when you log out; a hub that "
                              "lives on in tmux makes another")  # fmt: skip
        return
    if found["changed_by_hand"]:
        yield Finding("ok", "service", f"service: {manager.unit_path}, changed by hand")
    elif not found["current"]:
        yield Finding(
            "warning",
            "service_old",
            f"service: {manager.unit_path} is of another version or for another Python",
            "upcall service install",
        )
    else:
        yield Finding("ok", "service", f"service: {manager.unit_path}")
    if not found["running"]:
        yield Finding(
            "warning",
            "service_stopped",
            f"the service is not running under {manager.name}",
            f"systemctl --user start {at_login.SYSTEMD_NAME}"
            if manager.name == "systemd"
            else "upcall service install",
        )
    yield from _lingering(manager, "the service ends when you log out")


def _lingering(manager: managers.Manager, words: str) -> Iterator[Finding]:
    if manager.is_there() and manager.ends_at_logout():
        yield Finding(
            "warning", "no_linger", words, f"loginctl enable-linger {managers.login_name()}"
        )


def windows() -> Iterator[Finding]:
    """Say what is special in WSL."""
    name = around.wsl(os.environ)
    if name is None:
        return
    yield Finding(
        "ok",
        "wsl",
        f"WSL{f' ({name})' if name else ''}: questions stop while Windows has it shut down",
    )
    for path in (paths.state_dir(), paths.config_dir()):
        if around.on_windows_drive(path, os.environ):
            yield Finding(
                "error",
                "on_windows_drive",
                f"{path} is on a Windows drive, which keeps no modes",
                "move it into the Linux file system, such as below your home there",
            )
