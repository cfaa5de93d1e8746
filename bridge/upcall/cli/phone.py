"""`upcall inbox --phone`: how a phone reaches the inbox, with a QR code where there is one."""

from __future__ import annotations

import os
import sys

from upcall.cli import screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BORDER = 2
_RESET = "\x1b[0m"
# Black on white whatever the terminal's colours are: cameras want it so.
_INK = "\x1b[38;5;16;48;5;231m"


def ways(url: str, config_file: str, *, has_setup: bool) -> list[str]:
    """Return how a phone could reach the inbox at *url*, as nothing is set up yet.

    Args:
        url: the loopback address.
        config_file: where `[web]` is written.
        has_setup: this version can set a chat channel up.
    """
    port = url.rstrip("/").rpartition(":")[2]
    chat = (
        "2. Telegram: upcall setup telegram"
        if has_setup
        else "2. Telegram: this version has no Telegram channel yet."
    )
    return [
        "The inbox listens on this computer only, so a phone can't open it yet. Two ways:",
        "",
        "1. A private network or tunnel of yours that has an https address on the phone's side",
        f"   and forwards to http://127.0.0.1:{port}. Say its address in {config_file}:",
        "",
        "     [web]",
        f"     port = {port}",
        '     public_url = "https://inbox.example"',
        "",
        "   Then: upcall hub restart && upcall inbox --phone",
        *_other_user_lines(),
        "",
        chat,
        "",
        "Plain http beyond this computer is refused: everybody on the way could read the",
        "login and answer in your name.",
    ]


def _other_user_lines() -> list[str]:
    if sys.platform != "linux":
        return []
    return [
        "   A tunnel that runs as another user than you (root, a service) is refused, unless",
        "   you also set: other_users = true",
    ]


def tunnel_line(*, other_users: bool) -> str | None:
    """Return what to know of the tunnel's user, or None if there is nothing."""
    if other_users or sys.platform != "linux":
        return None
    return (
        "if the page says that the inbox belongs to another user, the tunnel runs as one: "
        "set other_users = true under [web]"
    )


def is_loopback(url: str) -> bool:
    """Tell whether *url* leads a phone to itself."""
    host = url.partition("://")[2].partition("/")[0]
    if host.startswith("["):
        return host.startswith("[::1]")
    name = host.partition(":")[0].rstrip(".")
    return name == "localhost" or name.endswith(".localhost") or name.startswith("127.")


def qr_lines(
    url: str, environ: Mapping[str, str], columns: int, rows: int | None = None
) -> list[str]:
    """Return the QR code of *url* for a terminal; nothing where it can't be drawn.

    Args:
        url: what the phone is to open.
        environ: the variables; a terminal without colours or UTF-8 draws none.
        columns: the terminal's width.
        rows: its height; a code whose top is scrolled out is of no use.
    """
    words = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "UTF-8"
    is_utf8 = words.upper().replace("-", "").endswith("UTF8")
    if environ.get("TERM", "dumb") == "dumb" or not is_utf8 or is_loopback(url):
        return []
    import segno

    made = segno.make(url, error="m", micro=False)
    matrix = [bytes(row) for row in made.matrix_iter(border=_BORDER)]
    lines = list(_halves(matrix))
    # The line below it, where the cursor stands, is one more.
    fits = len(matrix[0]) <= columns and (rows is None or len(lines) < rows)
    return lines if fits else []


def _halves(rows: list[bytes]) -> Iterator[str]:
    """Yield lines of half blocks: two rows of the code in one of the terminal."""
    blank = bytes(len(rows[0]))
    for at in range(0, len(rows), 2):
        below = rows[at + 1] if at + 1 < len(rows) else blank
        cells = (" ▀▄█"[top + 2 * bottom] for top, bottom in zip(rows[at], below, strict=True))
        yield f"{_INK}{''.join(cells)}{_RESET}"


def draw(url: str) -> bool:
    """Draw the QR code of *url* if stdout is a terminal that can; return whether it did."""
    if not os.isatty(1):
        return False
    lines = qr_lines(url, os.environ, screen.width(), screen.height())
    for text in lines:
        screen.out(text)
    return bool(lines)
