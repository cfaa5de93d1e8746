"""Where we run: over SSH, in a container, in WSL; with a screen or without."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SSH = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
_CONTAINER_VARIABLES = (
    "container",
    "REMOTE_CONTAINERS",
    "CODESPACES",
    "KUBERNETES_SERVICE_HOST",
)


def is_remote(environ: Mapping[str, str]) -> bool:
    """Tell whether we run over SSH: a browser here would open far from the person."""
    return any(environ.get(name) for name in _SSH)


def has_screen(environ: Mapping[str, str]) -> bool:
    """Tell whether a graphical screen of this computer is named."""
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def is_container(environ: Mapping[str, str], root: str = "/") -> bool:
    """Tell whether we run in a container.

    Args:
        environ: our environment.
        root: where the file system begins; for tests.
    """
    if any(environ.get(name) for name in _CONTAINER_VARIABLES):
        return True
    return any(os.path.exists(os.path.join(root, path[1:])) for path in _CONTAINER_FILES)


def wsl(environ: Mapping[str, str], version_file: str = "/proc/version") -> str | None:
    """Return the name of the WSL distribution that we run in, or None outside of WSL.

    The name is empty where only the kernel says it, as under `sudo` or cron.
    """
    name = environ.get("WSL_DISTRO_NAME", "")
    if name:
        return name
    try:
        with open(version_file, encoding="utf-8", errors="replace") as file:
            kernel = file.read(1024)
    except OSError:
        return None
    return "" if "microsoft" in kernel.lower() else None


def on_windows_drive(path: str, environ: Mapping[str, str]) -> bool:
    """Tell whether *path* is on a drive of Windows, seen from WSL.

    Such a drive tells of no changes, keeps no modes, and has locks that cannot be trusted.
    """
    if wsl(environ) is None:
        return False
    from upcall_discovery.filesystem import type_at

    kind = type_at(path)
    return kind in {"9p", "drvfs"} or (kind == "virtiofs" and path.startswith("/mnt/"))
