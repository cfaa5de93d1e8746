"""Times that were given on the command line: a date, or an age."""

from __future__ import annotations

import time

from upcall.cli import args
from upcall.cli.errors import Usage

_DATE_FORMS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


def past_ms(text: str, what: str) -> int:
    """Return a moment in the past as epoch milliseconds.

    Args:
        text: a local date such as `2026-05-01` or `2026-05-01 14:00`, or an age such as `30d`.
        what: the option, for the message.

    Raises:
        Usage: it is none of these, or in the future.
    """
    for form in _DATE_FORMS:
        try:
            then = time.mktime(time.strptime(text, form))
        except (ValueError, OverflowError):
            continue
        if then > time.time():
            raise Usage(
                f"{what}: {args.short(text)!r} is in the future", "give a date in the past"
            )
        return int(then * 1000)
    try:
        age_s = args.seconds(text, what)
    except Usage as err:
        raise Usage(
            f"{what}: {args.short(text)!r} is no date and no age", "such as 2026-05-01, or 30d"
        ) from err
    return int((time.time() - age_s) * 1000)
