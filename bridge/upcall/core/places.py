"""Where an ask belongs, given how the channels stand: no time, no rows."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from upcall.model.policy import Rules

CardState: TypeAlias = Literal["none", "posting", "shown", "dead"]
Why: TypeAlias = Literal["quiet", "presence"]


class Stand(msgspec.Struct, frozen=True):
    """How one channel stands for one ask.

    Attributes:
        local: it draws asks by itself.
        well: it hears, or has been away for a moment only, and takes posts.
        card: whether the ask is there.
    """

    name: str
    local: bool
    well: bool
    card: CardState = "none"

    @property
    def serves(self) -> bool:
        """Whether a person sees the ask there, or will in a moment."""
        return self.well and self.card != "dead"


class Plan(msgspec.Struct, frozen=True):
    """Where an ask is shown.

    Attributes:
        show: the channels that show it, in the order in which they are configured.
        withdraw: channels whose card has not gone out and does not go out any more: the ask
            went to another one.
        later: channels that will show it, but not yet.
        why: what holds those back.
        until_ms: until when, by the wall clock.
    """

    show: tuple[str, ...]
    withdraw: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    why: Why | None = None
    until_ms: int | None = None


def places(
    rules: Rules, also: Sequence[str], stands: Sequence[Stand]
) -> tuple[set[str], set[str]]:
    """Return where an ask belongs, and which cards on their way it does not need there.

    Args:
        rules: what holds for it.
        also: channels that steps of escalation have added.
        stands: all channels.
    """
    by_name = {stand.name: stand for stand in stands}
    if rules.channels is None:
        first = list(stands)
    else:
        first = [by_name[name] for name in rules.channels if name in by_name]
    added = {name for name in also if name in by_name}
    wanted = {stand.name for stand in first} | added
    spare = [by_name[name] for name in rules.fallback if name in by_name]
    spare = [stand for stand in spare if stand.name not in wanted]
    moved = [stand for stand in spare if stand.card != "none"]
    ringing = [stand for stand in first if not stand.local] or first
    if not moved:
        if any(stand.serves for stand in ringing) or not ringing:
            return wanted, set()
        chosen = next((stand for stand in spare if stand.serves), None)
        if chosen is None:
            return wanted, set()
        moved = [chosen]
    elif not any(stand.serves for stand in (*moved, *ringing) if stand.card != "none"):
        # Where it went is gone too: on to the next one, or back to where it belongs.
        chosen = next((one for one in (*ringing, *spare) if one.serves), None)
        moved = [*moved, *([chosen] if chosen is not None else [])]
    # It has moved, and stays where it is when the first channel comes back: what was not
    # posted there by then would only be a second card.
    here = {stand.name for stand in moved}
    left = {
        stand.name
        for stand in ringing
        if not stand.local
        and stand.card in {"none", "posting"}
        and stand.name not in here | added
    }
    return (wanted | here) - left, left
