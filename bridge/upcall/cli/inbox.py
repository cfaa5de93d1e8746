"""`upcall inbox`: open the inbox in a browser, or manage its logins.

No secret is ever in an argument vector: the browser is opened on the plain address, shows
four characters, and the person here says whether to let it in.
"""

from __future__ import annotations

import os
import select
import sys
import time

from upcall.cli import args, control, exits, screen
from upcall.cli.errors import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

    from upcall.line import HubLine

ABOUT = """Open the inbox in a browser. The browser shows four characters and this
terminal asks whether to sign it in. Where no browser can be opened, print a
link that signs one browser in, once, within 5 minutes."""
EPILOG = """examples:
  upcall inbox
  upcall inbox --sign-out-all

exit codes:
  0 done   1 failure, or nobody was signed in   2 usage"""
_WAIT_S = 300.0
_PAUSE_S = 0.5
_TEXT_BROWSERS = frozenset(
    {"www-browser", "lynx", "links", "links2", "elinks", "w3m", "browsh", "carbonyl"}
)


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `inbox` to *parser*."""
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--print", action="store_true", dest="link",
                     help="print a link instead of opening a browser")  # fmt: skip
    one.add_argument("--sessions", action="store_true", help="list signed-in browsers")
    one.add_argument("--sign-out-all", action="store_true", help="sign all browsers out")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall inbox`."""
    made = args.make_parser("inbox", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall inbox`."""
    given = parser().read(argv)
    with control.connect() as line:
        if given.sessions:
            return _list(line, as_json=given.json)
        if given.sign_out_all:
            return _sign_out(line, as_json=given.json)
        if given.json or given.link or not _is_at_screen():
            return print_link(line, os.environ, as_json=given.json)
        command = browser_command(os.environ, sys.platform)
        if command is None:
            return print_link(line, os.environ, as_json=False)
        return _open(line, command)


def _login(line: HubLine, action: str, **fields: Any) -> dict[str, Any]:
    return line.request("login", action=action, **fields)


def _is_at_screen() -> bool:
    return os.isatty(0) and os.isatty(2)


def is_remote(environ: Mapping[str, str]) -> bool:
    """Tell whether we run over SSH: a browser here would open far from the person."""
    return any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"))


def browser_command(environ: Mapping[str, str], platform: str) -> list[str] | None:
    """Return what opens a graphical browser, or None where there is none."""
    if is_remote(environ):
        return None
    if platform == "darwin":
        return ["/usr/bin/open"]
    if environ.get("WSL_DISTRO_NAME") and (found := _which("wslview", environ)):
        return [found]
    if not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        return None
    named = environ.get("BROWSER", "").split(os.pathsep)[0]
    words = [*named.split(), "xdg-open", "firefox", "chromium", "google-chrome"]
    for word in words if " " not in named.strip() else words[len(named.split()) :]:
        found = _which(word, environ)
        if (
            found is not None
            and os.path.basename(os.path.realpath(found)) not in _TEXT_BROWSERS
        ):
            return [found]
    return None


def _which(program: str, environ: Mapping[str, str]) -> str | None:
    """Find *program* in absolute folders only: never beside where we happen to stand."""
    if os.path.basename(program) in _TEXT_BROWSERS:
        return None
    if os.path.isabs(program):
        return program if os.access(program, os.X_OK) else None
    if "/" in program or not program:
        return None
    for folder in environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, program)
        if os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _open(line: HubLine, command: list[str]) -> int:
    import subprocess

    found = _login(line, "browsers")
    url = str(found.get("url"))
    pages_before = _pages(line)
    known = {str(one.get("code")) for one in found.get("waiting") or []}
    try:
        process = subprocess.Popen(
            [*command, url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    except OSError as err:
        screen.err(f"cannot open a browser: {err.strerror}")
        return print_link(line, os.environ, as_json=False)
    screen.err(f"opened {url} - it shows four characters if it is not signed in yet")
    screen.err("press Enter for a link to copy")
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        process.poll()
        fresh = [
            one
            for one in _login(line, "browsers").get("waiting") or []
            if str(one.get("code")) not in known
        ]
        for browser in fresh:
            known.add(str(browser.get("code")))
            if _approve(line, browser):
                return exits.OK
        if _pages(line) > pages_before:
            screen.err("the inbox is open in a browser that is signed in")
            return exits.OK
        if select.select([0], [], [], _PAUSE_S)[0]:
            if not sys.stdin.readline():
                break
            return print_link(line, os.environ, as_json=False)
    raise Failure("no browser was signed in", "for a link to copy: upcall inbox --print")


def _pages(line: HubLine) -> int:
    """Return how many signed-in pages are open."""
    channels = line.request("status").get("channels") or []
    return sum(int(c.get("audience") or 0) for c in channels if c.get("name") == "web")


def _approve(line: HubLine, browser: dict[str, Any]) -> bool:
    code = screen.one_line(str(browser.get("code")), 8)
    agent = screen.one_line(str(browser.get("agent") or "an unknown program"), 60)
    sys.stderr.write(f"A browser shows {code} ({agent}). Sign it in? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        screen.err("not signed in")
        return False
    _login(line, "approve", browser=browser.get("code"))
    screen.err("signed in")
    return True


def print_link(line: HubLine, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print a link that signs one browser in, and how to reach it from afar."""
    found = _login(line, "link")
    url = str(found.get("public_url") or found.get("url"))
    if as_json:
        screen.document({"url": url, "expires_ms": found.get("expires_ms")})
        return exits.OK
    screen.out(screen.visible(url))
    screen.err("this link signs one browser in, once, within 5 minutes")
    if is_remote(environ) and not found.get("public_url"):
        screen.err(forward_line(url, environ))
    return exits.OK


def forward_line(url: str, environ: Mapping[str, str]) -> str:
    """Return how to reach the inbox from the computer that we are connected from."""
    import socket

    port = url.split("//", 1)[-1].split("/", 1)[0].rpartition(":")[2]
    user = screen.one_line(environ.get("USER") or environ.get("LOGNAME") or "user", 40)
    host = screen.one_line(socket.gethostname() or "host", 80)
    return (
        "no browser here. From your computer: "
        f"ssh -N -L {port}:127.0.0.1:{port} {user}@{host}, "
        "then open the link there - or answer here: upcall watch"
    )


def _list(line: HubLine, *, as_json: bool) -> int:
    found = _login(line, "list").get("logins") or []
    if as_json:
        screen.document({"logins": found})
        return exits.OK
    rows: list[tuple[str, ...]] = []
    for login in found:
        used_ms, pages = int(login.get("used_ms") or 0), int(login.get("pages") or 0)
        rows.append(
            (
                screen.one_line(str(login.get("id", "?")), 16),
                f"used {screen.age(used_ms)} ago",
                "open now" if pages else "",
                screen.one_line(str(login.get("agent", "?")), 60),
            )
        )
    for text in screen.table(rows):
        screen.out(text)
    if not rows:
        screen.err("no browser is signed in")
    return exits.OK


def _sign_out(line: HubLine, *, as_json: bool) -> int:
    count = int(_login(line, "sign_out_all").get("signed_out") or 0)
    if as_json:
        screen.document({"signed_out": count})
    else:
        screen.out(f"signed {count} browser{'' if count == 1 else 's'} out")
    return exits.OK
