"""Looks whether a person is at this computer: input at a terminal, or a file's age.

What is found only delays what is sent elsewhere (`core.at_machine`), so a wrong sign costs
two minutes at most.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from typing import Final

from upcall.clock import Clock
from upcall.core.at_machine import FRESH_S
from upcall.model.events import AtMachine, Event, Moment
from upcall.model.policy import Presence
from upcall_discovery import liveness

LOOK_S: Final = 5.0
# A sign from the future is none: it would be fresh for as long as one likes.
_AHEAD_S: Final = 1.0
_FOLDERS: Final = ("/dev/pts", "/dev")


class MachineWatch:
    """Tells the kernel of fresh signs of life, and of their end.

    Args:
        presence: returns what the configuration in force says.
        submit: takes the kernel's events.
        moment: tells the time on both clocks.
        clock: time to wait.
        folders: where terminals are.
    """

    def __init__(
        self,
        presence: Callable[[], Presence],
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        clock: Clock,
        folders: tuple[str, ...] = _FOLDERS,
    ) -> None:
        self._presence = presence
        self._submit = submit
        self._moment = moment
        self._clock = clock
        self._folders = folders
        self._told: dict[str, float] = {}

    @property
    def is_on(self) -> bool:
        """Whether anybody wants to know."""
        return self._presence().signal != "off"

    async def run(self) -> None:
        """Look every few seconds, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Look once; tell the kernel what is new."""
        found: dict[str, float] = {}
        if self.is_on:
            found = await asyncio.to_thread(self._touched)
        now = self._moment()
        wall_s = now.wall_ms / 1000
        fresh = {
            place: touched_s
            for place, touched_s in found.items()
            if -_AHEAD_S <= wall_s - touched_s < FRESH_S
        }
        if fresh != self._told:
            self._told = fresh
            seen = {
                place: now.boot_s - max(0.0, wall_s - touched_s)
                for place, touched_s in fresh.items()
            }
            self._submit(AtMachine(at=now, seen=seen))

    def _touched(self) -> dict[str, float]:
        """Return when each sign was last touched, in wall clock seconds."""
        presence = self._presence()
        if presence.signal == "file":
            path = os.path.realpath(os.path.expanduser(presence.file))
            touched_s = _file_touched_s(path)
            return {} if touched_s is None else {path: touched_s}
        return dict(_terminals(self._folders))


def terminals_of(pid: int) -> tuple[str, ...]:
    """Return the terminals of a process and of what started it: those tell of no person."""
    if not pid:
        return ()
    line = (pid, *(process.pid for process in liveness.ancestors(pid)))
    found = [liveness.controlling_tty(one) for one in line]
    return tuple(dict.fromkeys(tty for tty in found if tty is not None))


def _terminals(folders: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Yield this user's terminals and when something was last read from each."""
    own = os.getuid()
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            if not (name.isdigit() or (name.startswith("tty") and len(name) > len("tty"))):
                continue
            path = os.path.join(folder, name)
            try:
                info = os.lstat(path)
            except OSError:
                continue
            # One that was only opened, or handed to somebody, was read by nobody yet.
            was_read = info.st_atime > info.st_ctime
            if stat.S_ISCHR(info.st_mode) and info.st_uid == own and was_read:
                yield path, info.st_atime


def _file_touched_s(path: str) -> float | None:
    """Return the age mark of a file that only this user can have touched."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    others = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid() and not others
    return info.st_mtime if is_ours else None
