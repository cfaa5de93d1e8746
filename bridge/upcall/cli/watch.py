"""`upcall watch`: everything live in this terminal, and answers from here."""

from __future__ import annotations

import os
import select
import termios
import time

from upcall.cli import args, control, exits, screen
from upcall.cli.errors import Failure, Usage
from upcall.cli.signals import EndingSignals, Interrupted
from upcall.cli.watching import (
    BACKSPACE,
    DOWN,
    ENTER,
    ESCAPE,
    PAGE_DOWN,
    PAGE_UP,
    UP,
    Watching,
    Wish,
)
from upcall.line import HubLine, LineError
from upcall.line.errors import LOST_CODES
from upcall.line.start import Again

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any, Self

ABOUT = """See all open questions live and answer them in this terminal. Needs no
colour and fits 80x24."""
EPILOG = """example:
  upcall watch

keys:
  up/down or a number picks a question   Enter answers it (number, label or
  words, then Enter); with one question a number begins its answer   d declines,
  after Enter   h holds, or releases   page up/down scrolls   q quits

exit codes:
  0 quit   1 failure   2 usage, or no terminal   130 Ctrl-C, 143 terminated"""
_TICK_S = 1.0
_ESCAPE_S = 0.05
_RETRY_EVERY_S = 1.0
_KEYS = {
    b"\x1b[A": UP, b"\x1bOA": UP, b"\x1b[B": DOWN, b"\x1bOB": DOWN,
    b"\x1b[5~": PAGE_UP, b"\x1b[6~": PAGE_DOWN,
    b"\r": ENTER, b"\n": ENTER, b"\x7f": BACKSPACE, b"\x08": BACKSPACE, b"\x1b": ESCAPE,
}  # fmt: skip


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `watch` to *parser*: it has none."""


def parser() -> args.Parser:
    """Return the parser of `upcall watch`."""
    made = args.make_parser("watch", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall watch`."""
    parser().read(argv)
    if not os.isatty(0) or not os.isatty(1):
        raise Usage("watch needs a terminal", "without one: upcall asks")
    with EndingSignals():
        try:
            line = _connect()
            with Terminal() as terminal:
                _Watch(line, terminal).run()
        except Interrupted as signal:
            return exits.SIGNAL_BASE + signal.number
    return exits.OK


def _connect() -> HubLine:
    return _watched(control.connect(note=None))


def _watched(line: HubLine) -> HubLine:
    try:
        line.request("watch")
    except BaseException:
        line.close()
        raise
    return line


class Terminal:
    """The screen in its other buffer, keys one by one; given back at the end, always."""

    def __init__(self) -> None:
        self._former: list[Any] = []
        self._drawn: list[str] = []
        self._typed = b""

    def __enter__(self) -> Self:
        try:
            self._former = termios.tcgetattr(0)
            changed = termios.tcgetattr(0)
        except termios.error as err:
            raise Failure(f"the terminal does not answer: {err}") from err
        # Keys at once and unechoed; Ctrl-C stays a signal.
        changed[3] &= ~(termios.ICANON | termios.ECHO)
        changed[6][termios.VMIN], changed[6][termios.VTIME] = 0, 0
        # Ctrl-Z would leave the terminal like this.
        changed[6][termios.VSUSP] = b"\0"
        # What was typed before is thrown away: it was meant for something else.
        termios.tcsetattr(0, termios.TCSAFLUSH, changed)
        _write("\x1b[?1049h\x1b[?25l\x1b[2J")
        return self

    def __exit__(self, *exc_info: object) -> None:
        _write("\x1b[?25h\x1b[?1049l")
        try:
            termios.tcsetattr(0, termios.TCSAFLUSH, self._former)
        except termios.error:
            return  # it is gone

    def draw(self, lines: list[str]) -> None:
        """Show *lines*; only those that changed are written."""
        if len(lines) != len(self._drawn):
            self._drawn = [""] * len(lines)
            _write("\x1b[2J")
        changed = [
            f"\x1b[{row};1H{line}\x1b[K"
            for row, (line, former) in enumerate(zip(lines, self._drawn, strict=True), 1)
            if line != former
        ]
        if changed:
            _write("".join(changed))
        self._drawn = lines

    def forget(self) -> None:
        """Draw everything next time: somebody else may have written here."""
        self._drawn = []

    def keys(self) -> list[str]:
        """Return the keys that were pressed."""
        data = os.read(0, 4096)
        if not data:
            return []
        self._typed += data
        found = []
        while self._typed:
            key, length = self._first_key()
            if not length:
                break
            self._typed = self._typed[length:]
            if key:
                found.append(key)
        return found

    def _first_key(self) -> tuple[str, int]:
        """Return the first key of what was typed, and how many bytes it is; 0: incomplete."""
        data = self._typed
        if data[0] == 0x1B and len(data) > 1:
            for code, key in _KEYS.items():
                if len(code) > 1 and data.startswith(code):
                    return key, len(code)
            return "", _escape_length(data)
        if data[:1] == b"\x1b" and select.select([0], [], [], _ESCAPE_S)[0]:
            return "", 0  # the rest of a key is on its way
        if data[:1] in _KEYS:
            return _KEYS[data[:1]], 1
        if data[0] < 0x20:
            return "", 1
        size = 1 if data[0] < 0x80 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
        if len(data) < size:
            return "", 0
        return data[:size].decode("utf-8", "replace"), size


def _escape_length(data: bytes) -> int:
    """Return the length of an escape sequence that we do not know."""
    if data[1:2] not in {b"[", b"O"}:
        return 1
    for index, byte in enumerate(data[2:], 2):
        if 0x40 <= byte <= 0x7E:
            return index + 1
    return len(data)


def _write(text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(1, data) :]


class _Watch:
    """The loop between keys and hub."""

    def __init__(self, line: HubLine, terminal: Terminal) -> None:
        self._line: HubLine | None = line
        self._terminal = terminal
        self._state = Watching()
        self._tried_at = 0.0
        self._again = Again()

    def run(self) -> None:
        """Run until the person quits."""
        try:
            while self._step():
                pass
        finally:
            if self._line is not None:
                self._line.close()

    def _step(self) -> bool:
        self._take_events()
        size = os.get_terminal_size(1)
        self._terminal.draw(self._state.draw(size.columns, size.lines))
        reads = [0] if self._line is None else [0, self._line.fileno()]
        ready = select.select(reads, [], [], _TICK_S)[0]
        if 0 not in ready:
            if self._line is None:
                self._reconnect()
            return True
        keys = self._terminal.keys()
        if not keys and not os.isatty(0):
            return False
        return all(self._take_key(key) for key in keys)

    def _take_key(self, key: str) -> bool:
        wish = self._state.key(key)
        if wish is None:
            return True
        if wish.leave:
            return False
        size = os.get_terminal_size(1)
        self._terminal.draw(self._state.draw(size.columns, size.lines))
        self._send(wish)
        return True

    def _send(self, wish: Wish) -> None:
        if self._line is None:
            self._state.says = "not sent: no connection to the hub"
            return
        try:
            answer = self._line.request("answer", **(wish.fields or {}))
        except LineError as err:
            if err.code in LOST_CODES:
                self._lose()
                self._state.says = "the hub went away; look whether the question is still open"
                return
            from upcall.cli.answer import ended_words

            result = err.extra.get("result")
            ended = isinstance(result, dict) and result.get("outcome") not in {None, "open"}
            self._state.says = (
                ended_words(result, None)
                if ended and isinstance(result, dict) and err.msg != result.get("reason")
                else screen.one_line(err.msg, 300)
            )
            return
        self._state.told(answer.get("result") or {})

    def _take_events(self) -> None:
        try:
            while self._line is not None and (event := self._line.next_event(0)) is not None:
                if event.get("event") == "screen":
                    self._state.take_screen(event)
                elif event.get("event") == "notice":
                    self._state.take_notice(event)
        except LineError:
            self._lose()

    def _lose(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None
        self._state.is_connected = False

    def _reconnect(self) -> None:
        if time.monotonic() - self._tried_at < _RETRY_EVERY_S:
            return
        self._tried_at = time.monotonic()
        try:
            self._line = _watched(self._again.ensure(socket="control"))
        except LineError as err:
            goes_on = f"; {err.recover}" if err.code == "hub_stopped" else ""
            self._state.says = screen.one_line(f"{err.msg}{goes_on}", 200)
        else:
            self._state.is_connected = True
            self._state.says = ""
