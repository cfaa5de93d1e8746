"""What came in before has no second effect: by the event's key, and by what it says.

A platform may hand out one and the same tap or text under another event key, such as after a
new connection. So an act is also known by its channel, person, place, content and the
platform's own id of it, for a day at least, and over restarts.
"""

import hashlib
from typing import Final

from upcall.core.state import INBOUND_KEPT, HubState, Step
from upcall.model.platform import Pressed, Texted
from upcall.model.rows import InboundRow
from upcall.model.struct import replaced

KEPT_MS: Final = 24 * 3600 * 1000
MOST_KEPT: Final = 200_000


def content_key(channel: str, inbound: object) -> str:
    """Return what an act is known by besides its event, or nothing if it has no id."""
    match inbound:
        case Pressed(content=number, token=content, place=place, who=who) if number:
            parts = ("press", channel, who.identity, place.address, content, number)
        case Texted(ref=ref, text=content, place=where, who=who) if ref:
            address = where.address if where is not None else ""
            parts = ("text", channel, who.identity, address, content, ref)
        case _:
            return ""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def seen_before(state: HubState, channel: str, inbound: object) -> str | None:
    """Return the event key under which the same act came before, if it did."""
    kept = state.contents.get(content_key(channel, inbound))
    return None if kept is None or kept[0] != channel else kept[1]


def note(step: Step, state: HubState, channel: str, key: str, inbound: object) -> None:
    """Keep what an act is known by with the row that its effect has left in this step."""
    if (channel, key) in state.inbound:
        state.inbound_ms[channel, key] = step.at.wall_ms
    content = content_key(channel, inbound)
    if not content:
        return
    writes = step.decision.writes
    for number, row in enumerate(writes):
        if isinstance(row, InboundRow) and (row.channel, row.event_key) == (channel, key):
            writes[number] = replaced(row, content_key=content)
            state.contents[content] = (channel, key)


def load(state: HubState, row: InboundRow) -> None:
    """At start: go on knowing it."""
    seen = (row.channel, row.event_key)
    state.inbound[seen] = None
    state.inbound_ms[seen] = row.at_ms
    state.contents[row.content_key] = seen


def prune(step: Step, state: HubState) -> None:
    """Forget the oldest, if there are many and they are old."""
    while len(state.inbound) > INBOUND_KEPT:
        oldest = next(iter(state.inbound))
        is_young = step.at.wall_ms - state.inbound_ms.get(oldest, 0) < KEPT_MS
        if is_young and len(state.inbound) <= MOST_KEPT:
            break
        del state.inbound[oldest]
        state.inbound_ms.pop(oldest, None)
    while state.contents:
        content, seen = next(iter(state.contents.items()))
        if seen in state.inbound:
            break
        del state.contents[content]
