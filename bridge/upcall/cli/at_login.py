"""Whether a service starts the hub at login: where its unit is, by `os` alone."""

from __future__ import annotations

import os
import sys

from upcall.cli import screen
from upcall_discovery import paths

SYSTEMD_NAME = "upcall-hub.service"
LAUNCHD_LABEL = "upcall.hub"
_AFTER_REBOOT = "after a reboot nobody is asked until the hub runs: "
_INSTALL = "upcall service install"
AFTER_REBOOT = _AFTER_REBOOT + _INSTALL
AFTER_REBOOT_GLUED = _AFTER_REBOOT + _INSTALL.replace(" ", screen.GLUE)
"""For `screen.err`, which then breaks no line inside the command."""


def unit_path(platform: str = sys.platform) -> str:
    """Return where the unit of this person is, whether it exists or not."""
    if platform == "darwin":
        name = f"{LAUNCHD_LABEL}.plist"
        return os.path.join(paths.home(), "Library", "LaunchAgents", name)
    config_home = os.path.dirname(paths.config_dir())
    return os.path.join(config_home, "systemd", "user", SYSTEMD_NAME)


def is_installed() -> bool:
    """Tell whether there is such a unit, or another one of this user runs the hub."""
    return os.path.exists(unit_path())
