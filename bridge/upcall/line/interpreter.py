"""The interpreter of a hub: the running one, which takes nothing from where it was started.

With `-I` neither the working folder nor `PYTHON*` variables nor the user's own site folder
decide what is imported. Where the program is installed in that folder, `-P` and an
environment without `PYTHON*` do the same for all but that folder.
"""

from __future__ import annotations

import os
import sys

import upcall
from upcall.line.errors import LineError

# The hub gets these and nothing else: no PYTHON*, LD_*, DYLD_*, no token of anybody, and no
# proxy, which is the configuration's matter.
_KEPT = frozenset(
    {
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "XDG_STATE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
        "XDG_DATA_HOME",
        "DBUS_SESSION_BUS_ADDRESS",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "UPCALL_IDLE_EXIT_S",
    }
)
_PROBE = (
    "import os, sys, upcall, upcall_adapters, upcall_discovery;"
    "sys.stdout.buffer.write(os.fsencode(os.path.realpath(upcall.__file__)))"
)
_PROBE_WITHIN_S = 5.0


def hub_environment(environ: dict[str, str]) -> dict[str, str]:
    """Return what of *environ* a hub gets."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in _KEPT or name.startswith("LC_")
    }
    kept["PATH"] = absolute_path(environ)
    return kept


def absolute_path(environ: dict[str, str]) -> str:
    """Return PATH without what depends on where we stand: no program is found there."""
    folders = [one for one in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(one)]
    return os.pathsep.join(folders) or os.defpath


def hub_command(*, detached: bool) -> list[str]:
    """Return the argument vector that starts a hub.

    Raises:
        LineError: `hub_not_installed`; a clean interpreter does not find this program.
    """
    words = ["-m", "upcall", "hub", "run"]
    return [sys.executable, _isolation(), *words, *(["--detached"] if detached else [])]


def _isolation() -> str:
    if sys.flags.isolated:
        return "-I"
    # Imported here: only who starts a hub needs it.
    import subprocess

    ours = os.fsencode(os.path.realpath(upcall.__file__))
    for flag in ("-I", "-P"):
        try:
            found = subprocess.run(
                [sys.executable, flag, "-c", _PROBE],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=hub_environment(dict(os.environ)),
                timeout=_PROBE_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            break
        if found.returncode == 0 and found.stdout == ours:
            return flag
    raise LineError(
        "hub_not_installed",
        "a hub cannot be started: without PYTHONPATH, the working folder and what this "
        f"program did to its import path, {sys.executable} does not find this upcall",
        "install it for that interpreter: pip install upcall",
    )
