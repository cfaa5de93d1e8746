"""How certain a failed call is: not sent, refused, throttled, or uncertain."""

from typing import Final

from upcall.model.errors import DeliveryError, NotSent, Refused, Throttled, Uncertain

ALLOWED: Final = (NotSent, Refused, Throttled, Uncertain)
"""All that `post` and `edit` may raise, besides being cancelled."""
MAX_PAUSE_S: Final = 24 * 3600.0
_DEFAULT_PAUSE_S: Final = 30.0


def of_status(
    status: int, msg: str, *, retry_after_s: float | None = None
) -> DeliveryError | None:
    """Return what an HTTP status says of a call, or None if it went well.

    Args:
        status: the response's status.
        msg: what went wrong, without secrets.
        retry_after_s: the pause that the platform asks for; clamped to 24 h.
    """
    if 200 <= status < 300:
        return None
    if status == 429:
        pause_s = _DEFAULT_PAUSE_S if retry_after_s is None else retry_after_s
        return Throttled(min(max(pause_s, 0.0), MAX_PAUSE_S))
    if status == 408 or status >= 500:
        # The platform failed somewhere on the way: it may have acted.
        return Uncertain(msg)
    return Refused(msg)


def of_connection(error: OSError, *, bytes_left: bool) -> DeliveryError:
    """Return what a broken connection says of a call.

    Args:
        error: what was raised; a `TimeoutError` is one too.
        bytes_left: some of the request had left this machine.
    """
    words = error.strerror or type(error).__name__
    return Uncertain(words) if bytes_left else NotSent(words)
