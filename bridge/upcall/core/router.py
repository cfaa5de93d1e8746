"""Which channels show an ask now.

A channel is *local* if it draws asks by itself (the inbox, a watch screen): it rings nobody,
so quiet hours and presence do not hold it back, and it does not count when the hub looks
whether an ask has to go elsewhere. All others ring.
"""

from typing import Final

from upcall.core import gates
from upcall.core.at_machine import rings_from_s
from upcall.core.operators import is_shown_on, rules_of
from upcall.core.places import CardState, Plan, Stand, Why, places
from upcall.core.quiet import quiet_until
from upcall.core.state import ChannelInfo, HubState
from upcall.model.events import Moment
from upcall.model.ids import AskId
from upcall.model.policy import Rules
from upcall.model.rows import AskRow

# A channel that is away for a moment needs no stand-in.
GRACE_S: Final = 30.0


class Router:
    """Knows how the channels stand."""

    def __init__(self, state: HubState) -> None:
        self._state = state

    def plan(self, at: Moment, row: AskRow) -> Plan:
        """Return where *row* is shown now."""
        infos = [
            one
            for one in self._state.infos.values()
            if _may_show(row, one) and is_shown_on(self._state, one.name)
        ]
        rules = rules_of(self._state, row)
        stands = [self.stand(at, row, info) for info in infos]
        wanted, left = places(rules, row.course.channels, stands)
        until_ms, why = self.silent_until(at, row, rules)
        held = {
            stand.name
            for stand in stands
            if until_ms is not None
            and stand.name in wanted
            and not stand.local
            and stand.card == "none"
        }
        return Plan(
            show=tuple(one.name for one in stands if one.name in wanted - held),
            withdraw=tuple(one.name for one in stands if one.name in left),
            later=tuple(one.name for one in stands if one.name in held),
            why=why if held else None,
            until_ms=until_ms if held else None,
        )

    def silent_until(
        self, at: Moment, row: AskRow, rules: Rules
    ) -> tuple[int | None, Why | None]:
        """Return until when (wall clock) nobody is rung for *row*, and why."""
        if row.spec.ask_class == "permission" and row.spec.deadline_at_ms is not None:
            # What something waits for is worth waking somebody; and nothing at the machine
            # may keep it from them (security.md S15).
            return None, None
        night_ms = quiet_until(rules.quiet, at.wall_ms, self._state.settings.zone)
        if night_ms is not None:
            return night_ms, "quiet"
        rings_s = rings_from_s(self._state, row, at)
        if rings_s is not None and rings_s > at.boot_s:
            return at.wall_ms + int((rings_s - at.boot_s) * 1000) + 1, "presence"
        return None, None

    def stand(self, at: Moment, row: AskRow, info: ChannelInfo) -> Stand:
        """Return how a channel stands for an ask."""
        return Stand(
            name=info.name,
            local=info.capabilities.draws_asks,
            well=self._is_well(at, row, info.name),
            card=self._card(row.ask_id, info.name),
        )

    def _is_well(self, at: Moment, row: AskRow, name: str) -> bool:
        live = self._state.channels[name]
        away_s = live.away_since_s
        if away_s is None:
            # It has not said anything since the hub began.
            away_s = self._state.resumed_boot_s
        if not live.hearing and at.boot_s - away_s >= GRACE_S:
            return False
        # A ban of the whole channel, or of the chat that the ask would be posted in.
        session = self._state.session(row.session_id)
        of_key = self._state.conversations.get(session.conversation) if session else None
        place = of_key[name].place if of_key is not None and name in of_key else ""
        closed = (self._state.gate_due.get(gate, 0.0) for gate in _gates(name, place))
        return all(due_s - at.boot_s <= GRACE_S for due_s in closed)

    def _card(self, ask_id: AskId, name: str) -> CardState:
        card = self._state.cards.get(ask_id, {}).get(name)
        if card is None:
            return "none"
        if card.ref is not None:
            return "shown"
        return "posting" if self._state.is_posting(ask_id, name) else "dead"


def _gates(channel: str, place: str) -> set[str]:
    return {gates.scope_of(channel), gates.scope_of(channel, place)}


def _may_show(row: AskRow, info: ChannelInfo) -> bool:
    return info.capabilities.secrets or not row.spec.secret
