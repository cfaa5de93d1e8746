"""What is true of the hub right now, and what of it changes is logged once each way."""

from collections.abc import Sequence
from typing import Final

import structlog

from upcall.hub.links import Links
from upcall.hub.loop import HubLoop
from upcall.model.text import one_line
from upcall.model.views import HealthView, Problem

# What stops a session that people expect to see.
_TOLD_RECORDS: Final = frozenset({"duplicate_session", "limit_reached"})
# The kernel logs these itself, with the reason.
_LOGGED_ELSEWHERE: Final = frozenset({"channel_deaf"})


def health_of(
    loop: HubLoop,
    links: Links,
    problems: Sequence[Problem],
    *,
    started_ms: int,
    dead_letters: int,
) -> HealthView:
    """Return the health of a hub.

    Ready means: every session that was found is attached or was tried, and every channel has
    completed an inbound round.

    Args:
        loop: its heart.
        links: its connections to sessions.
        problems: what is not as it should be, beside channels and records.
        started_ms: when it started.
        dead_letters: deliveries that were given up.
    """
    kernel = loop.kernel
    channels = kernel.channels()
    degraded = [
        *problems,
        *(
            Problem("channel_deaf", f"{view.name}: not hearing - {view.reason or 'starting'}")
            for view in channels
            if view.state == "down"
        ),
        *(
            Problem(one.code, f"not used: {one_line(one.path, 300)}: {one.reason}")
            for one in links.refused()
            if one.code in _TOLD_RECORDS
        ),
    ]
    times = loop.times
    return HealthView(
        ready=all(view.state != "down" for view in channels) and links.settled,
        degraded=tuple(degraded),
        channels=tuple(channels),
        sessions=len(kernel.sessions()),
        open_asks=len(kernel.open_rows()),
        deliveries_waiting=kernel.waiting_deliveries(),
        started_ms=started_ms,
        discovered=links.discovered,
        attached=links.attached,
        dead_letters=dead_letters,
        numbers=kernel.numbers(loop.moment()),
        commit_p50_s=times.commit_s(0.5),
        commit_p99_s=times.commit_s(0.99),
        clock_steps=times.clock_steps,
        sleeps=times.sleeps,
    )


class HealthLog:
    """Logs each problem when it appears and when it is gone, once each."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger) -> None:
        self._log = log
        self._known: dict[tuple[str, str], str] = {}

    def look(self, degraded: Sequence[Problem]) -> None:
        """Compare with the last look."""
        now = {
            (one.code, one.msg): one.msg
            for one in degraded
            if one.code not in _LOGGED_ELSEWHERE
        }
        for code, msg in now.keys() - self._known.keys():
            self._log.warning("degraded", code=code, msg=msg)
        for code, msg in self._known.keys() - now.keys():
            self._log.info("recovered", code=code, msg=msg)
        self._known = now
