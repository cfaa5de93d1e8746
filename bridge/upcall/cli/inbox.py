"""`upcall inbox`: open the inbox in a browser, or manage its logins.

No secret is ever in an argument vector: the browser is opened on the plain address, shows
four characters, and the person here says whether to let it in.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time

from upcall.cli import args, control, exits, phone, screen
from upcall.cli.browser import (
    browser_command,
    container_line,
    forward_line,
    is_without_browser,
    with_address,
)
from upcall.cli.errors import Failure
from upcall.line.interpreter import absolute_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    import subprocess
    from collections.abc import Mapping, Sequence
    from typing import Any

    from upcall.line import HubLine

ABOUT = """Open the inbox in a browser. The browser shows four characters and this
terminal asks whether to sign it in. Where no browser can be opened, print a
link that signs one browser in, once, within 5 minutes."""
EPILOG = """examples:
  upcall inbox
  upcall inbox --phone
  upcall inbox --sign-out-all

exit codes:
  0 done   1 failure, or nobody was signed in   2 usage"""
_WAIT_S = 300.0
_PAUSE_S = 0.5
_TYPED_TRIES = 3


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `inbox` to *parser*."""
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--print", action="store_true", dest="link",
                     help="print a link instead of opening a browser")  # fmt: skip
    one.add_argument("--phone", action="store_true",
                     help="say how a phone opens it, with a QR code if one can")  # fmt: skip
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
        if given.phone:
            return _phone(line, as_json=given.json)
        if given.json or given.link or not _is_at_screen():
            return print_link(line, os.environ, as_json=given.json)
        command = browser_command(os.environ, sys.platform)
        if command is not None:
            return _open(line, command)
        waiting = _login(line, "browsers").get("waiting") or []
        if waiting and _let_in(line, waiting):
            return exits.OK
        return print_link(line, os.environ, as_json=False)


def _login(line: HubLine, action: str, **fields: Any) -> dict[str, Any]:
    return line.request("login", action=action, **fields)


def _tell_trouble(found: dict[str, Any]) -> None:
    """Say loudly if somebody else sits on the inbox's port."""
    if found.get("trouble"):
        screen.err(f"upcall: {screen.one_line(str(found['trouble']), 400)}")


def _is_at_screen() -> bool:
    return os.isatty(0) and os.isatty(2)


def _open(line: HubLine, command: list[str]) -> int:
    import subprocess

    found = _login(line, "browsers")
    _tell_trouble(found)
    url = str(found.get("url"))
    pages_before = _pages(line)
    known = {str(one.get("code")) for one in found.get("waiting") or []}
    try:
        process = subprocess.Popen(
            with_address(command, url),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            # It looks programs up itself.
            env={**os.environ, "PATH": absolute_path(dict(os.environ))},
        )
    except OSError as err:
        screen.err(f"cannot open a browser: {err.strerror}")
        return print_link(line, os.environ, as_json=False)
    screen.err(f"opened {url} - it shows four characters if it is not signed in yet")
    screen.err("press Enter for a link to copy")
    if _wait_for_browser(line, known, pages_before, process):
        return exits.OK
    return print_link(line, os.environ, as_json=False)


def _wait_for_browser(
    line: HubLine,
    known: set[str],
    pages_before: int,
    process: subprocess.Popen[bytes] | None = None,
) -> bool:
    """Let in who turns up; False once the person pressed Enter for something else.

    Args:
        line: the hub.
        known: the characters of browsers that waited before; they are not asked for.
        pages_before: how many signed-in pages were open before.
        process: what opens the browser, to be reaped.

    Raises:
        Failure: nobody was signed in within five minutes.
    """
    until = time.monotonic() + _WAIT_S
    seen: set[str] = set()
    while time.monotonic() < until:
        if process is not None:
            process.poll()
        fresh = [
            one
            for one in _login(line, "browsers").get("waiting") or []
            if str(one.get("code")) not in known
        ]
        codes = {str(one.get("code")) for one in fresh}
        # Asked only once the list stood still for a moment: another program that starts a
        # login of its own just now must not be the only one that is asked for.
        if fresh and codes == seen:
            known |= codes
            if _let_in(line, fresh):
                return True
        seen = codes
        if _pages(line) > pages_before:
            screen.err("the inbox is open in a browser that is signed in")
            return True
        if select.select([0], [], [], _PAUSE_S)[0]:
            if _typed_line() is None:
                break
            return False
    raise Failure("no browser was signed in", "for a link to copy: upcall inbox --print")


def _pages(line: HubLine) -> int:
    """Return how many signed-in pages are open."""
    channels = line.request("status").get("channels") or []
    return sum(int(c.get("audience") or 0) for c in channels if c.get("name") == "web")


def _let_in(line: HubLine, browsers: list[dict[str, Any]]) -> bool:
    """Ask which of the waiting *browsers* is the person's; True if one was let in.

    One is asked for by its characters. Of several, one may be a stranger's: the person types
    what their own browser shows, and nothing here shows it to them.
    """
    for browser in browsers:
        agent = screen.one_line(str(browser.get("agent") or "an unknown program"), 60)
        where = screen.one_line(str(browser.get("where") or "on this computer"), 100)
        since_ms = browser.get("since_ms")
        age = f", for {screen.age(since_ms)}" if isinstance(since_ms, int) else ""
        screen.err(f"waiting: {agent} {where}{age}")
    if len(browsers) == 1:
        code = str(browsers[0].get("code"))
        answer = _asked(f"A browser shows {screen.one_line(code, 8)}. Sign it in? [y/N] ")
        if answer is None or answer.lower() not in {"y", "yes"}:
            screen.err("not signed in")
            return False
        return _approve(line, code)
    codes = {str(one.get("code")) for one in browsers}
    for _ in range(_TYPED_TRIES):
        typed = _asked(
            f"{len(browsers)} browsers wait. Type the four characters that yours shows "
            "(Enter: none): "
        )
        if not typed:
            break
        if typed.upper() in codes:
            return _approve(line, typed.upper())
        screen.err("none of them shows that")
    screen.err("not signed in")
    return False


def _approve(line: HubLine, code: str) -> bool:
    _login(line, "approve", browser=code)
    screen.err("signed in")
    return True


def _asked(prompt: str) -> str | None:
    """Return the line typed after *prompt* was drawn; None at the end of the input."""
    try:
        # What was typed before the question was there is no answer to it.
        termios.tcflush(0, termios.TCIFLUSH)
    except termios.error:
        return None
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return _typed_line()


def _typed_line() -> str | None:
    """Read one line of the terminal, past every buffer of ours; None at its end."""
    data = os.read(0, 4096)
    return data.decode("utf-8", "replace").strip() if data else None


def print_link(line: HubLine, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print a link that signs one browser in, and how to reach it from afar."""
    found = _login(line, "link")
    _tell_trouble(found)
    url = str(found.get("public_url") or found.get("url"))
    if as_json:
        screen.document({"url": url, "expires_ms": found.get("expires_ms")})
        return exits.OK
    screen.out(screen.visible(url))
    screen.err("this link signs one browser in, once, within 5 minutes")
    if is_without_browser(environ, sys.platform) and not found.get("public_url"):
        for words in (forward_line(url, environ), container_line(url, environ)):
            if words is not None:
                screen.err(words)
    return exits.OK


def _phone(line: HubLine, *, as_json: bool) -> int:
    """Say how a phone reaches the inbox; with a public address, sign one in."""
    found = _login(line, "browsers")
    _tell_trouble(found)
    public = str(found.get("public_url") or "")
    if not public or phone.is_loopback(public):
        if as_json:
            screen.document({"public_url": None, "url": None, "expires_ms": None})
            return exits.OK
        from upcall.cli import COMMANDS
        from upcall.cli.config import config_path

        config_file = screen.visible(config_path())
        lines = phone.ways(str(found.get("url")), config_file, has_setup="setup" in COMMANDS)
        for text in lines:
            screen.words(text)
        return exits.OK
    known = {str(one.get("code")) for one in found.get("waiting") or []}
    pages_before = _pages(line)
    link = _login(line, "link")
    url = str(link.get("public_url"))
    if as_json:
        expires_ms = link.get("expires_ms")
        screen.document({"public_url": public, "url": url, "expires_ms": expires_ms})
        return exits.OK
    # The code comes last and the words are few, so that all of it is on a small screen.
    tunnel = phone.tunnel_line(other_users=bool(found.get("other_users")))
    if tunnel is not None:
        screen.err(tunnel)
    if _is_at_screen():
        screen.err(
            f"or open {screen.visible(public)} there: it shows four characters. Enter ends this"
        )
    screen.err("this link signs one browser in, once, within 5 minutes")
    screen.out(screen.visible(url))
    phone.draw(url)
    if not _is_at_screen():
        return exits.OK
    _wait_for_browser(line, known, pages_before)
    return exits.OK


def _list(line: HubLine, *, as_json: bool) -> int:
    listed = _login(line, "list")
    _tell_trouble(listed)
    found = listed.get("logins") or []
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
                screen.one_line(
                    f"{login.get('agent', '?')} {login.get('where') or ''}".strip(), 120
                ),
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
