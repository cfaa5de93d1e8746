"""How long to wait before a delivery is tried again; jitter is an argument."""

from typing import Final

BASE_S: Final = 1.0
CEILING_S: Final = 300.0


def delay_s(attempt: int, *, jitter: float, hint_s: float = 0.0) -> float:
    """Return the wait in seconds after *attempt* failures.

    The wait doubles from `BASE_S` to `CEILING_S` and is shortened at random by up to a half,
    so that many deliveries do not come back at once. A platform's own hint is a floor.

    Args:
        attempt: failures so far, at least 1.
        jitter: a sample from [0, 1).
        hint_s: the pause that the platform asked for.
    """
    # The exponent is capped: a float power beyond 1023 overflows.
    undisturbed_s = min(CEILING_S, BASE_S * 2.0 ** min(max(attempt, 1) - 1, 32))
    return max(hint_s, undisturbed_s * (1.0 + jitter) / 2.0)
