"""Which browser can be opened from here, and how the inbox is reached where none can.

Only graphical ones: a browser of the terminal would take over the terminal that the person
works in. Programs are found in absolute folders only.
"""

from __future__ import annotations

import os
import re

from upcall.cli import screen
from upcall.cli.programs import find
from upcall.cli.surroundings import has_screen, is_container, is_remote, wsl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT_BROWSERS = frozenset(
    {"www-browser", "lynx", "links", "links2", "elinks", "w3m", "browsh", "carbonyl"}
)
_PLAIN_ADDRESS = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+/?")


def browser_command(
    environ: Mapping[str, str], platform: str, *, version_file: str = "/proc/version"
) -> list[str] | None:
    """Return what opens a graphical browser, but for the address; None where there is none.

    Args:
        environ: our environment.
        platform: as `sys.platform`.
        version_file: what the kernel says of itself, for WSL.
    """
    if is_remote(environ):
        return None
    if platform == "darwin":
        return ["/usr/bin/open"]
    if wsl(environ, version_file) is not None and (windows := _windows(environ)) is not None:
        return windows
    if not has_screen(environ):
        return None
    named = environ.get("BROWSER", "").split(os.pathsep)[0]
    words = [*named.split(), "xdg-open", "firefox", "chromium", "google-chrome"]
    for word in words if " " not in named.strip() else words[len(named.split()) :]:
        found = _graphical(word, environ)
        if found is not None:
            return [found]
    return None


def with_address(command: list[str], url: str) -> list[str]:
    """Return *command* with the inbox's plain address, which has no secret.

    Raises:
        ValueError: *url* is more than an address; PowerShell would read it as a program.
    """
    if not _PLAIN_ADDRESS.fullmatch(url):
        raise ValueError(f"{url!r} is no plain address")
    if os.path.basename(command[0]) == "powershell.exe":
        return [*command, f"Start-Process '{url}'"]
    return [*command, url]


def _windows(environ: Mapping[str, str]) -> list[str] | None:
    """Return what opens the browser of the Windows that WSL runs in."""
    found = find("wslview", environ)
    if found is not None:
        return [found]
    found = find("powershell.exe", environ)
    if found is not None:
        return [found, "-NoProfile", "-NonInteractive", "-Command"]
    return None


def _graphical(program: str, environ: Mapping[str, str]) -> str | None:
    if os.path.basename(program) in TEXT_BROWSERS:
        return None
    found = find(program, environ)
    if found is None or os.path.basename(os.path.realpath(found)) in TEXT_BROWSERS:
        return None
    return found


def is_without_browser(environ: Mapping[str, str], platform: str) -> bool:
    """Tell whether no browser can be opened from here."""
    return browser_command(environ, platform) is None


def forward_line(url: str, environ: Mapping[str, str]) -> str:
    """Return how to reach the inbox from the computer that the person sits at."""
    import socket

    port = _port_of(url)
    user = screen.one_line(environ.get("USER") or environ.get("LOGNAME") or _login(), 40)
    host = screen.one_line(socket.gethostname() or "host", 80)
    return (
        "no browser here. From your computer: "
        f"ssh -N -L {port}:127.0.0.1:{port} {user}@{host}, "
        f"then open http://127.0.0.1:{port} - or answer here: upcall watch"
    )


def _login() -> str:
    """Return what the system calls the user of this process."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def container_line(url: str, environ: Mapping[str, str]) -> str | None:
    """Return what else helps in a container, into which nobody forwards a port by SSH."""
    if not is_container(environ) or is_remote(environ):
        return None
    return (
        f"in a container, have whatever runs it forward port {_port_of(url)} of the "
        "container's own 127.0.0.1; a published port does not get there"
    )


def _port_of(url: str) -> str:
    address = url.split("//", 1)[-1].split("/", 1)[0].split("#", 1)[0]
    return screen.one_line(address.rpartition(":")[2], 10)
