"""When the audit's head is noted elsewhere: once a day, and at every permission answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from upcall.clock import Clock
from upcall.hub import anchors
from upcall.hub.anchors import Noted
from upcall.hub.store.db import Store
from upcall.model.platform import SeamLog
from upcall.model.rows import AuditRow
from upcall.model.text import one_line
from upcall_discovery.paths import PathProblem

if TYPE_CHECKING:
    from upcall.hub.store.verify import Anchor

DAY_MS: Final = 86_400_000
# The shell looks at least so often, so that a machine that slept notes its head soon after.
LOOK_S: Final = 600.0
ANSWERS: Final = frozenset({"claimed", "closed"})


class Anchoring:
    """Notes the audit's head outside of the database.

    Args:
        store: the hub's.
        state: its state folder.
        clock: time.
        log: where it says that a note could not be made, once.
        say: puts the line into the configured channel, if one is configured.
        journal: the system journal gets it too.
    """

    def __init__(
        self,
        store: Store,
        state: str,
        *,
        clock: Clock,
        log: SeamLog,
        say: Callable[[Noted], None] | None = None,
        journal: bool = True,
    ) -> None:
        self._store = store
        self._state = state
        self._clock = clock
        self._log = log
        self._say = say
        self._journal = journal
        self._wanted = asyncio.Event()
        self._why = ""
        self._failed = False
        self._last: Noted | Anchor | None = None

    def look(self, lines: Sequence[AuditRow]) -> None:
        """Take note of lines that were committed: an answer to a permission is anchored."""
        if self._is_due():
            self._wanted.set()
        if any(line.event in ANSWERS and line.facts.get("permission") for line in lines):
            self._why = "permission"
            self._wanted.set()

    async def run(self) -> None:
        """Note the head whenever it is due, until cancelled."""
        before = await asyncio.to_thread(anchors.newest, self._state)
        self._last = before
        while True:
            if self._wanted.is_set() or self._is_due():
                self._wanted.clear()
                why, self._why = self._why or "daily", ""
                await self._note(why)
            try:
                async with self._clock.timeout(LOOK_S):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    def _is_due(self) -> bool:
        last, now_ms = self._last, self._clock.wall_ms()
        if last is None:
            return self._store.head.rows > 0
        if last.head == self._store.head.hash:
            return False
        # A clock that was set back must not put it off for ever.
        return not last.at_ms <= now_ms < last.at_ms + DAY_MS

    async def _note(self, why: str) -> None:
        mark = await self._store.mark()
        if not mark.lines or (self._last is not None and mark.head == self._last.head):
            return
        head = self._store.head
        noted = Noted(
            at_ms=self._clock.wall_ms(),
            rows=mark.lines,
            head=mark.head,
            epoch=mark.epoch,
            why=why,
            row_ms=head.at_ms if head.rows == mark.lines else None,
        )
        await asyncio.to_thread(self._put, noted)
        self._last = noted
        if self._say is not None:
            self._say(noted)

    def _put(self, noted: Noted) -> None:
        if self._journal:
            anchors.to_journal(self._state, noted)
        try:
            anchors.append(self._state, noted)
        except (OSError, PathProblem) as error:
            if not self._failed:
                self._log.warning("anchor_not_noted", error=one_line(str(error), 200))
            self._failed = True
        else:
            self._failed = False
