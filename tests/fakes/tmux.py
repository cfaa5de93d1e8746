"""Terminals of a real tmux, as a person has them: typed at, and read as they appear."""

import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

TMUX: Final = shutil.which("tmux")
WITHIN_S: Final = 30.0
PROMPT: Final = "$ "


class Pane:
    """One terminal: a plain shell in a pane of tmux.

    Args:
        tmux: the command words that reach the server.
        target: the pane's name for tmux.
        pipe: a named pipe that gets a copy of what the pane writes; it only wakes us.
    """

    def __init__(self, tmux: list[str], target: str, pipe: Path) -> None:
        self._tmux = [*tmux]
        self._target = target
        os.mkfifo(pipe, 0o600)
        # Opened for both directions: it then never ends, whoever writes to it.
        self._changes = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._run("pipe-pane", "-O", "-t", target, f"exec cat > '{pipe}'")

    def close(self) -> None:
        os.close(self._changes)

    def text(self) -> str:
        """Return all that this terminal has shown, its wrapped lines joined."""
        shown = self._run("capture-pane", "-p", "-J", "-S", "-", "-t", self._target)
        return "\n".join(line.rstrip() for line in shown.splitlines()).rstrip("\n")

    def type(self, text: str) -> None:
        """Type *text*, without Enter."""
        self._run("send-keys", "-t", self._target, "-l", "--", text)

    def key(self, *names: str) -> None:
        """Press keys by tmux's names (`Enter`, `C-c`, `Up`)."""
        self._run("send-keys", "-t", self._target, *names)

    def see(self, pattern: str, *, after: int = 0) -> re.Match[str]:
        """Return the first match of *pattern* behind the first *after* characters, once there.

        Raises:
            AssertionError: it does not appear in time.
        """
        until = time.monotonic() + WITHIN_S
        while True:
            text = self.text()
            found = re.compile(pattern, re.MULTILINE).search(text, min(after, len(text)))
            if found is not None:
                return found
            left_s = until - time.monotonic()
            if left_s <= 0 or not select.select([self._changes], [], [], left_s)[0]:
                raise AssertionError(f"no {pattern!r} within {WITHIN_S} s in:\n{text}")
            os.read(self._changes, 65536)

    def run(self, command: str) -> str:
        """Type a command, wait until the shell asks for the next, and return what it wrote."""
        before = self.start(command)
        self.ready(before)
        return self.text()[before:].removesuffix(PROMPT.strip()).strip("\n")

    def start(self, command: str) -> int:
        """Type a command and Enter; return where in `text()` its output begins."""
        line = len(self.text()) + 1 + len(command)
        self.type(command)
        self.see(re.escape(command), after=line - len(command) - 1)
        self.key("Enter")
        return line

    def ready(self, after: int) -> None:
        """Wait until the shell asks for a command again."""
        self.see(rf"^{re.escape(PROMPT.strip())}\Z", after=after)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], capture_output=True, text=True, timeout=WITHIN_S, check=True
        )
        return done.stdout


class Tmux:
    """A tmux server of its own, in a folder, without anybody's configuration.

    Args:
        folder: where its socket lives; short.
        env: the environment of its shells.
        cwd: their working folder.
    """

    def __init__(
        self, folder: Path, env: Mapping[str, str], cwd: Path, *, columns: int = 100
    ) -> None:
        assert TMUX is not None
        self._folder = folder
        self._words = [TMUX, "-S", str(folder / "tmux"), "-f", os.devnull]
        self._shell = ["bash", "--norc", "--noprofile"]
        self._columns = columns
        self._env = {**env, "PS1": PROMPT, "LC_ALL": "C.UTF-8", "TERM": "screen"}
        self._cwd = cwd
        self._panes: list[Pane] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        subprocess.run(
            [*self._words, "kill-server"], capture_output=True, timeout=WITHIN_S, check=False
        )
        for pane in self._panes:
            pane.close()

    def pane(self, name: str) -> Pane:
        """Open a terminal, 30 lines high."""
        subprocess.run(
            [
                *self._words, "new-session", "-d", "-s", name, "-c", str(self._cwd),
                "-x", str(self._columns), "-y", "30", *self._shell,
            ],
            env=self._env, timeout=WITHIN_S, check=True, capture_output=True,
        )  # fmt: skip
        made = Pane(self._words, f"{name}:", self._folder / f"{name}.pipe")
        self._panes.append(made)
        made.ready(0)
        return made
