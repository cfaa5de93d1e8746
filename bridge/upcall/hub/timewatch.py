"""Notices that the computer slept, that its clock was set, and how long commits take."""

from collections import deque
from typing import Final

from upcall.model.events import Moment

# The loop looks at least once a minute; whatever is much longer was no waiting.
ASLEEP_S: Final = 90.0
# Clocks are corrected by fractions of a second all the time.
STEP_MS: Final = 2_000
COMMITS_KEPT: Final = 512


class TimeWatch:
    """What the hub's loop finds out about time.

    Attributes:
        clock_steps: how often the wall clock was set since the start.
        sleeps: how often the computer slept, or the hub was stopped.
    """

    def __init__(self, now: Moment) -> None:
        self.clock_steps = 0
        self.sleeps = 0
        self._last = now
        self._commits_s: deque[float] = deque(maxlen=COMMITS_KEPT)

    def look(self, now: Moment) -> tuple[int | None, int]:
        """Compare both clocks with the last look.

        Returns:
            Since when it slept, in wall clock milliseconds, or None; and by how many
            milliseconds the wall clock was set, 0 if it was not.
        """
        gap_s = now.boot_s - self._last.boot_s
        step_ms = now.wall_ms - self._last.wall_ms - round(gap_s * 1000)
        self._last = now
        since_ms = None
        if gap_s > ASLEEP_S:
            self.sleeps += 1
            since_ms = now.wall_ms - round(gap_s * 1000)
        if abs(step_ms) <= STEP_MS:
            return since_ms, 0
        self.clock_steps += 1
        return since_ms, step_ms

    def committed(self, took_s: float) -> None:
        """Take note of how long a commit took."""
        self._commits_s.append(took_s)

    def commit_s(self, quantile: float) -> float | None:
        """Return how long commits took lately, at *quantile* from 0 to 1."""
        if not self._commits_s:
            return None
        ordered = sorted(self._commits_s)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]
