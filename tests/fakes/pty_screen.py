"""A program on a real pseudo-terminal, and what a person sees on it (pyte)."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import pyte

WITHIN_S = 20.0


class PtyScreen:
    """Runs a program as the foreground job of a terminal of its own.

    Args:
        argv: what to run.
        env: its environment.
        type_ahead: keys that are in the terminal's buffer before the program starts.
        stdin: another stdin than the terminal.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        type_ahead: bytes = b"",
        columns: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        stdout: int | None = None,
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.before = termios.tcgetattr(slave)
        if type_ahead:
            os.write(self._master, type_ahead)
        self._slave = slave
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            env={**env, "TERM": "xterm"},
            cwd=cwd,
            start_new_session=True,
            # One system call between fork and exec: no lock of a thread is touched.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WITHIN_S)
        os.close(self._slave)
        os.close(self._master)

    def type(self, keys: str) -> None:
        """Press *keys*."""
        os.write(self._master, keys.encode())

    def modes(self) -> list[object]:
        """Return the terminal's modes, to compare with `before`."""
        return termios.tcgetattr(self._slave)

    def _read(self, wait_s: float) -> None:
        if select.select([self._master], [], [], wait_s)[0]:
            with contextlib.suppress(OSError):
                data = os.read(self._master, 65536)
                self.raw += data
                self._stream.feed(data)

    def lines(self) -> list[str]:
        """Return what is on the screen, and what has scrolled away above it."""
        history = [
            "".join(row[column].data for column in range(self._screen.columns)).rstrip()
            for row in self._screen.history.top
        ]
        return [*history, *(line.rstrip() for line in self._screen.display)]

    def text(self) -> str:
        return "\n".join(self.lines())

    @property
    def title(self) -> str:
        return str(self._screen.title)

    def wait_for(self, wanted: str | Callable[[str], bool]) -> str:
        """Read until *wanted* is on the screen, and return everything on it."""
        until = time.monotonic() + WITHIN_S
        while True:
            shown = self.text()
            if wanted(shown) if callable(wanted) else wanted in shown:
                return shown
            assert time.monotonic() < until, f"not on the screen: {wanted!r}\n{shown}"
            self._read(0.1)

    def finish(self) -> int:
        """Read until the program has ended, and return its exit code."""
        until = time.monotonic() + WITHIN_S
        while self.process.poll() is None:
            assert time.monotonic() < until, f"still running\n{self.text()}"
            self._read(0.05)
        self._read(0.05)
        return self.process.returncode
