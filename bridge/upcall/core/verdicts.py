"""What becomes of a delivery that failed, and how long one may wait at all: pure rules.

`attempt` counts the sends that may have arrived; one that failed for certain is taken back,
so that a repeat is marked as a possible repeat only if it may be one.
"""

from typing import Final, Literal, TypeAlias

from upcall.model.platform import Capabilities
from upcall.model.rows import DeliveryKind, DeliveryRow, Lane

MAX_TRIES: Final = 12
MAX_UNCERTAIN: Final = 3
"""So many sends of one card may each stand there already; more would be a nuisance."""

TEN_MINUTES_S: Final = 600.0
DAY_S: Final = 86_400.0
MAX_AGE_S: Final[dict[Lane, float]] = {
    "outcome": TEN_MINUTES_S,
    "text": DAY_S,
    "live": TEN_MINUTES_S,
    "idle": TEN_MINUTES_S,
}
"""After so long nobody needs to be told any more; asks, and how they ended, never grow old."""

_REPEATED: Final[frozenset[DeliveryKind]] = frozenset({"edit", "delete"})
TO_SESSIONS: Final[frozenset[DeliveryKind]] = frozenset({"reply", "message", "hold"})
Verdict: TypeAlias = Literal["again", "uncertain", "dead"]
Repeat: TypeAlias = Literal["by_key", "by_lookup", "none", "harmless"]


def is_stale(row: DeliveryRow, now_ms: int) -> bool:
    """Tell whether *row* has waited for so long that it is dropped.

    What may be there already is not dropped for its age, but by its own rules.
    """
    if row.ask_id is not None or row.kind != "post" or row.attempt:
        return False
    age_s = MAX_AGE_S.get(row.lane)
    return age_s is not None and now_ms - row.created_ms > age_s * 1000


def repeat_of(capabilities: Capabilities | None) -> Repeat:
    """Return how a channel tells a repeat; one that is not configured shows nothing."""
    return "harmless" if capabilities is None else capabilities.repeat


def on_failure(
    row: DeliveryRow,
    tries: int,
    *,
    certain: bool,
    repeat: Repeat,
    known: bool,
    attached: bool,
) -> Verdict:
    """Return what becomes of *row* after one more try failed.

    Args:
        row: with `attempt` as it stands after the failure.
        tries: how often it has failed in this hub's life.
        certain: nothing of it arrived.
        repeat: how its channel tells a repeat.
        known: its channel is configured.
        attached: of one to a session: the session is there, and it failed nevertheless.
    """
    verdict: Verdict
    if row.kind == "reply":
        # With its key a repeat is safe, and without it nobody is answered.
        verdict = "again"
    elif row.kind in TO_SESSIONS:
        verdict = "dead" if tries >= MAX_TRIES and attached else "again"
    elif not known or (not certain and (repeat != "none" or row.kind in _REPEATED)):
        verdict = "dead" if tries >= MAX_TRIES else "again"
    elif certain:
        # A channel that is out of reach for a day loses nothing; age ends what can wait no
        # longer.
        verdict = "again"
    elif row.kind == "remind" or (row.kind == "post" and row.ask_id is None):
        # The same twice is worse than one that may be missing.
        verdict = "dead"
    else:
        verdict = "dead" if row.attempt >= MAX_UNCERTAIN else "again"
    if verdict == "again" and row.attempt > 0:
        # It may be there, from this try or from one before.
        return "uncertain"
    return verdict
