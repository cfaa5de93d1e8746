"""How fast one session is listened to: at its leisure at first, then so many frames a second.

What it says beyond is not lost: nothing more is read of it for a while, so it waits in the
session's own socket (security.md S32). All other sessions are heard meanwhile.
"""

from typing import Final

BURST: Final = 4096.0
PER_S: Final = 20.0
# Reading on for one frame at a time would cost more than the frames.
_READS_ON_WITH: Final = 40.0


class Pace:
    """An allowance that fills with time.

    Args:
        burst: what it holds at most, and at first.
        per_s: what comes back each second.
    """

    __slots__ = ("_at_s", "_burst", "_left", "_per_s")

    def __init__(self, burst: float = BURST, per_s: float = PER_S) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = burst
        self._at_s: float | None = None

    def take(self, cost: float, now_s: float) -> float:
        """Spend *cost*; return for how many seconds nothing more is to be read.

        Args:
            cost: of what was just read.
            now_s: on a clock that does not step.
        """
        if self._at_s is not None:
            gained = max(0.0, now_s - self._at_s) * self._per_s
            self._left = min(self._burst, self._left + gained)
        self._at_s = now_s
        self._left -= cost
        if self._left >= 0:
            return 0.0
        return (_READS_ON_WITH - self._left) / self._per_s
