"""The question on the asker's own terminal.

It opens /dev/tty and never reads stdin. What was typed before it was drawn is thrown away,
and nothing is chosen by Enter alone. The terminal stays in its usual line mode, so there is
nothing to restore when we are killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import termios

from upcall.cli import choose, drawn, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Self

_DETAIL_LINES = 12
_LINE_BYTES = 4096
_INPUT_COUNT_BYTES = 4


class Prompt:
    """One question on /dev/tty.

    Attributes:
        name: the terminal, such as `/dev/pts/3`.
        is_shown: the question is on the screen.
        leaving: what Ctrl-D is told, once: how to leave.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self._turn = -1
        self._typed = b""
        self.name = name
        self.is_shown = False
        self._echoing: list[Any] | None = None
        self._opened: str | None = None
        self.leaving: str | None = "to leave: Ctrl-C, which cancels the question"
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        self._handlers: dict[int, Any] = {
            signal.SIGCONT: signal.signal(signal.SIGCONT, self._go_on)
        }
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._put_aside)

    @classmethod
    def open(cls) -> Self | None:
        """Return a prompt if a person can be asked here, now or later, else None.

        That is so if stderr is a terminal. In the background nothing is drawn until we are
        the terminal's foreground process group (`fg`).
        """
        try:
            if not os.isatty(2):
                return None
            fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            return None
        try:
            name = os.ttyname(2)
        except OSError:
            name = "/dev/tty"
        return cls(fd, name)

    def is_foreground(self) -> bool:
        """Tell whether what is typed comes to us now (we may have been put aside)."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    def _go_on(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """We were stopped, and go on: in the foreground again (`fg`), or not (`bg`)."""
        try:
            os.write(self._wakes, b"!")
        except BlockingIOError:
            return  # it is full of such news

    def _put_aside(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Ctrl-Z: stop, as asked, but not with the terminal in our hands."""
        self._show_typing()
        self.leave_turn()
        self.is_shown, self._typed = False, b""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._put_aside)

    def wakes(self) -> int:
        """Return the descriptor that has something after we were stopped."""
        return self._woken

    def look_again(self) -> bool:
        """Tell whether we were stopped meanwhile; what was drawn is drawn again then.

        The shell has written over it, and what was typed went to the shell.
        """
        try:
            os.read(self._woken, _LINE_BYTES)
        except BlockingIOError:
            return False
        self.is_shown, self._typed = False, b""
        # The shell has its own modes back; ours begin anew with what is drawn.
        self._echoing = None
        return True

    def fileno(self) -> int:
        """Return the terminal's descriptor."""
        return self._fd

    def take_turn(self) -> bool:
        """Take the terminal for this question; False while another question has it."""
        if self._turn >= 0:
            return True
        try:
            # By the terminal's own name: /dev/tty is one file for every terminal.
            turn = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            return True
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(turn)
            return False
        self._turn = turn
        return True

    def leave_turn(self) -> None:
        """Let another question have the terminal."""
        if self._turn >= 0:
            os.close(self._turn)
            self._turn = -1

    def show(self, ask: dict[str, Any]) -> None:
        """Draw the question, and from now on take what is typed."""
        self._write("\n".join([*question_lines(ask, screen.width()), ""]))
        # What was typed before the question could be read was meant for something else.
        try:
            termios.tcflush(self._fd, termios.TCIFLUSH)
        except termios.error:
            return  # the terminal is gone; its hang-up signal ends us
        self._typed = b""
        if ask.get("secret"):
            self._hide_typing()
        self._write("> ")
        self.is_shown = True

    def read(self) -> str | None:
        """Return a line that was typed, or None if none is complete yet."""
        try:
            data = os.read(self._fd, _LINE_BYTES)
        except OSError:
            return None
        if not data:  # Ctrl-D
            self._typed = b""
            said = f"{self.leaving}\n" if self.leaving is not None else ""
            self.leaving = None
            self._write(f"\n{said}> ")
            return None
        self._typed += data
        if not self._typed.endswith(b"\n"):
            return None
        typed, self._typed = self._typed, b""
        if self._echoing is not None:
            self._write("\n")  # the Enter was not shown either
        return typed.decode("utf-8", "replace").rstrip("\r\n")

    def _hide_typing(self) -> None:
        try:
            usual = termios.tcgetattr(self._fd)
            unseen = [*usual]
            unseen[3] &= ~termios.ECHO
            termios.tcsetattr(self._fd, termios.TCSANOW, unseen)
        except termios.error:
            return  # the terminal is gone
        if self._echoing is None:
            self._echoing = usual

    def _show_typing(self) -> None:
        # Put aside, the modes are the shell's; to change them would stop us.
        if self._echoing is None or not self.is_foreground():
            return
        usual, self._echoing = self._echoing, None
        try:
            termios.tcsetattr(self._fd, termios.TCSANOW, usual)
        except termios.error:
            return  # the terminal is gone

    def answered(self) -> None:
        """What was typed was taken; the terminal is as before."""
        self.is_shown = False
        self._show_typing()

    def opens(self, ask: dict[str, Any], answer: dict[str, Any]) -> bool:
        """Tell whether *answer* lets run what was not all shown; then show it first, once."""
        allowed = set(ask.get("allows") or []).intersection(answer.get("indices") or [])
        if not allowed or self._opened == ask.get("revision"):
            return False
        lines = rest_lines(ask, screen.width())
        if not lines:
            return False
        self._opened = ask.get("revision")
        self._write("\n".join([*lines, "> "]))
        return True

    def again(self, why: str) -> None:
        """Say *why* nothing was sent, and ask again."""
        self._write(f"{screen.visible(why)}\n> ")

    def has_input(self) -> bool:
        """Tell whether something was typed that no Enter has sent yet."""
        if self._typed:
            return True
        if not self.is_shown or not self.is_foreground():
            return False
        try:
            usual = termios.tcgetattr(self._fd)
            # In line mode an unfinished line is not counted: for an instant, no line mode.
            counting = [*usual]
            counting[3] &= ~termios.ICANON
            try:
                termios.tcsetattr(self._fd, termios.TCSANOW, counting)
                count = fcntl.ioctl(self._fd, termios.FIONREAD, bytes(_INPUT_COUNT_BYTES))
            finally:
                termios.tcsetattr(self._fd, termios.TCSANOW, usual)
        except (termios.error, OSError):
            return False
        return any(count)

    def clear(self, words: str | None = None) -> None:
        """Take the prompt off the screen, throw away what was typed, and say *words*."""
        self._show_typing()
        # Put aside, nothing of ours is on the last line, and to flush it would stop us.
        if self.is_shown and self.is_foreground():
            try:
                termios.tcflush(self._fd, termios.TCIFLUSH)
            except termios.error:
                return
            self._write("\n" if os.environ.get("TERM", "dumb") == "dumb" else "\r\x1b[K")
        self.is_shown = False
        if words is not None:
            self._write(f"{words}\n")

    def close(self) -> None:
        """Let go of the terminal; the next question gets its turn."""
        self._show_typing()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for fd in (self._fd, self._woken, self._wakes):
            os.close(fd)
        self.leave_turn()

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            return  # the terminal is gone; its hang-up signal ends us


def question_lines(ask: dict[str, Any], columns: int) -> list[str]:
    """Return the question as it is drawn: everything from outside escaped and wrapped."""
    room = max(20, columns - 1)
    lines, left = _asked(ask, room)
    lines += drawn.options(ask, room, with_details=False, hidden=_hidden_chars(ask, left))
    lines += drawn.warnings(ask, room)
    lines.append(f"({_how(ask, bool(ask.get('options')))})")
    return lines


def _asked(ask: dict[str, Any], room: int) -> tuple[list[str], list[str]]:
    """Return the lines that are drawn of what is asked, and the lines that are left out."""
    detail, question = ask.get("detail"), drawn.quoted(str(ask.get("question", "")), room)
    if not detail:
        return question, []
    runs = ask.get("class") == "permission"
    more = drawn.quoted(str(detail) if runs else f"\n{detail}", room)
    shown, left = more[: _DETAIL_LINES + 1], more[_DETAIL_LINES + 1 :]
    if left:
        shown.append(f"  … {len(left)} more lines, whole in the inbox")
    if runs:
        return [*shown, "the agent says:", *question], left
    return [*question, *shown], left


def _hidden_chars(ask: dict[str, Any], left: list[str]) -> int:
    if ask.get("class") != "permission":
        return 0
    cut = sum(len(line) - len(drawn.BAR) for line in left)
    return cut + int(ask.get("hidden_chars") or 0)


def rest_lines(ask: dict[str, Any], columns: int) -> list[str]:
    """Return what the question as it is drawn leaves out of what will run, or nothing."""
    room = max(20, columns - 1)
    _, left = _asked(ask, room)
    if not _hidden_chars(ask, left):
        return []
    lines = ["All of what will run:", *drawn.quoted(str(ask["detail"]), room)] if left else []
    masked = int(ask.get("hidden_chars") or 0)
    if masked:
        lines.append(f"{drawn.hidden_words(masked)}: masked as credentials.")
    return [*lines, "To let it run, answer the same again."]


def _how(ask: dict[str, Any], has_options: bool) -> str:
    if ask.get("secret"):
        how = "type your answer, which is not shown, then Enter"
    elif not has_options:
        how = "type your answer, then Enter"
    elif choose.takes_initials(ask):
        how = "y or n, then Enter"
    elif ask.get("multi"):
        how = "numbers or labels, with commas between, then Enter"
    elif ask.get("free_text"):
        how = "a number, a label or your own words, then Enter"
    else:
        how = "a number or a label, then Enter"
    return f"{how}; {choose.DECLINE} declines"
