"""Words typed at this terminal without being shown."""

from __future__ import annotations

import os
import termios

from upcall.cli.errors import Usage

_LINE_BYTES = 4096


def is_possible() -> bool:
    """Tell whether there is a terminal to type at."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError:
        return False
    return True


def typed(question: str) -> str:
    """Return a line that a person types at /dev/tty; nothing of it appears there.

    Args:
        question: what is asked, escaped, in quotes, on one line.

    Raises:
        Usage: there is no terminal to type at.
    """
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        raise Usage(
            "a secret is typed at a terminal, and there is none here", "or use: upcall inbox"
        ) from None
    try:
        usual = termios.tcgetattr(fd)
        hidden = [*usual]
        hidden[3] &= ~termios.ECHO
        try:
            # Before the prompt: whoever sees it may type at once, and is not shown. What was
            # typed before was meant for something else.
            termios.tcsetattr(fd, termios.TCSAFLUSH, hidden)
            os.write(fd, f"{question}\n(not shown) > ".encode())
            return _line(fd)
        finally:
            termios.tcsetattr(fd, termios.TCSANOW, usual)
            os.write(fd, b"\n")
    finally:
        os.close(fd)


def asked(question: str) -> str:
    """Return a line that a person types at /dev/tty, where it is shown.

    Args:
        question: escaped, on one line.

    Raises:
        Usage: there is no terminal to type at.
    """
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        raise Usage("this is confirmed at a terminal, and there is none here") from None
    try:
        # What was typed before was meant for something else.
        termios.tcflush(fd, termios.TCIFLUSH)
        os.write(fd, question.encode())
        return _line(fd)
    finally:
        os.close(fd)


def _line(fd: int) -> str:
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(fd, _LINE_BYTES)
        if not more:
            break
        data += more
    return data.decode("utf-8", "replace").rstrip("\r\n")
