"""What one user's programs may raise over the hub's sockets, and how fast."""

import os
from collections.abc import Callable
from typing import Final

from upcall.clock import Clock
from upcall.model.errors import HubError
from upcall.model.ids import AskId
from upcall.model.limits import MAX_WATCHERS
from upcall.model.quotas import Limits, over

NOTICES_AT_ONCE: Final = 256
NOTICES_EVERY_S: Final = 0.25
FOREIGN_NOTICES_AT_ONCE: Final = 16
FOREIGN_NOTICES_EVERY_S: Final = 2.0
_USERS_KEPT: Final = 256
_ON_ITS_WAY_S: Final = 5.0


class DeskLimits:
    """Counts what users raise.

    Args:
        clock: time.
        is_open: tells whether an ask has not ended.
        limits: as configured.
    """

    def __init__(
        self, clock: Clock, is_open: Callable[[str], bool], limits: Limits | None = None
    ) -> None:
        self._limits = limits or Limits()
        self._clock = clock
        self._is_open = is_open
        self._paid_until_s: dict[int, float] = {}
        self._raised: dict[int, dict[AskId, float]] = {}

    def notice(self, uid: int) -> None:
        """Count a notice.

        Raises:
            HubError: `limit_reached`.
        """
        ours = uid in {0, os.geteuid()}
        at_once = NOTICES_AT_ONCE if ours else FOREIGN_NOTICES_AT_ONCE
        every_s = NOTICES_EVERY_S if ours else FOREIGN_NOTICES_EVERY_S
        now_s = self._clock.boot_s()
        paid_until_s = max(now_s, self._paid_until_s.get(uid, now_s)) + every_s
        if paid_until_s - now_s > at_once * every_s:
            raise HubError(
                f"too many notices of user {uid}: {at_once} at once and one every "
                f"{every_s:g} s is the limit",
                code="limit_reached",
                recover="wait a moment, and say several things in one notice",
            )
        if len(self._paid_until_s) >= _USERS_KEPT:
            self._paid_until_s = {
                one: until_s for one, until_s in self._paid_until_s.items() if until_s > now_s
            }
        self._paid_until_s[uid] = paid_until_s

    def ask(self, uid: int, ask_id: AskId) -> None:
        """Count an ask; one that is raised again is counted once.

        Raises:
            HubError: `limit_reached`.
        """
        if uid in {0, os.geteuid()}:
            return
        now_s = self._clock.boot_s()
        raised = self._raised.setdefault(uid, {})
        if ask_id in raised:
            return
        if len(raised) >= self._limits.foreign_asks:
            # One that was raised just now may not have reached the kernel yet.
            raised = {
                one: at_s
                for one, at_s in raised.items()
                if now_s - at_s < _ON_ITS_WAY_S or self._is_open(one)
            }
            self._raised[uid] = raised
        if len(raised) >= self._limits.foreign_asks:
            raise over(
                self._limits,
                "foreign_asks",
                f"user {uid} has {len(raised)} open asks",
                "wait until some of them are answered, or cancel them",
            )
        raised[ask_id] = now_s

    def watcher(self, others: int) -> None:
        """Let one more screen in, beside *others*.

        Raises:
            HubError: `limit_reached`.
        """
        if others >= MAX_WATCHERS:
            raise HubError(
                f"{others} programs watch already, and that is the limit",
                code="limit_reached",
                recover="close some `upcall watch`",
            )
