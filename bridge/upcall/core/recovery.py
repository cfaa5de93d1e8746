"""After a start, a sleep or a time of deafness: hear first, expire second, post third.

What people did while nobody heard may still come: an answer in time counts although it is
heard late. So overdue asks end, and cards are posted, only after each channel that can say so
has handed in all that had waited, or has had its time for it.
"""

from collections.abc import Callable
from typing import Final

from upcall.core.lanes import Lanes
from upcall.core.resend import Resend
from upcall.core.state import HubState, Step, is_overdue
from upcall.model.events import ChannelChanged, PersonActed
from upcall.model.platform import Answered, Pressed, Texted
from upcall.model.rows import AskRow

CATCH_UP_S: Final = 20.0


class Recovery:
    """Keeps the order in which things are made up for.

    Args:
        state: the hub's.
        lanes: what is posted.
        resend: tries once more what was given up.
        expire: ends an ask whose time is over.
    """

    def __init__(
        self,
        state: HubState,
        lanes: Lanes,
        resend: Resend,
        expire: Callable[[Step, AskRow], None],
    ) -> None:
        self._state = state
        self._lanes = lanes
        self._resend = resend
        self._expire = expire

    def resume(self, step: Step) -> None:
        """At start, before anything is posted."""
        for name in self._that_catch_up():
            self._begin(step, name)

    def slept(self, step: Step) -> None:
        """The computer was asleep: what was done meanwhile is heard now."""
        for name in self._that_catch_up():
            if self._state.channels[name].hearing:
                self._begin(step, name)

    def before_change(self, step: Step, event: ChannelChanged) -> None:
        """A channel is about to hear again: first it is only listened to."""
        live = self._state.channels.get(event.channel)
        if live is None or event.channel not in self._that_catch_up():
            return
        if event.hearing and not live.hearing and live.catch_up_by_s is None:
            self._begin(step, event.channel)

    def after_change(self, step: Step, event: ChannelChanged) -> None:
        """A channel said how it is; perhaps that all that had waited is handed in."""
        live = self._state.channels[event.channel]
        if event.caught_up and event.hearing and not live.caught_up:
            self._done(step, event.channel)

    def due(self, step: Step, channel: str) -> None:
        """A channel has had its time."""
        self._done(step, channel)

    def is_waiting(self) -> bool:
        """Tell whether answers from before now may still come."""
        return any(live.catch_up_by_s is not None for live in self._state.channels.values())

    def too_late(self, step: Step, event: PersonActed) -> list[AskRow]:
        """Return the overdue asks that this act cannot answer: it was made after their end.

        Of an act without the platform's time only the hub's own clock is known.
        """
        inbound = event.inbound
        if not isinstance(inbound, Answered | Pressed | Texted):
            return []
        return [
            row
            for row in self._meant(event.channel, inbound)
            if is_overdue(step, row)
            and row.deadline_ms is not None
            and (inbound.sent_ms is None or inbound.sent_ms > row.deadline_ms)
        ]

    def _meant(self, channel: str, inbound: Answered | Pressed | Texted) -> list[AskRow]:
        asks = self._state.asks
        match inbound:
            case Answered():
                return [row for row in asks.values() if row.ask_id == inbound.ask]
            case Pressed():
                token = self._state.tokens.get(inbound.token)
                row = None if token is None else asks.get(token.ask_id)
                return [] if row is None else [row]
            case Texted():  # pragma: no branch - there is no other
                return [
                    row
                    for row in asks.values()
                    if channel in self._state.cards.get(row.ask_id, ())
                ]

    def _begin(self, step: Step, channel: str) -> None:
        live = self._state.channels[channel]
        live.caught_up = False
        live.catch_up_by_s = step.at.boot_s + CATCH_UP_S
        self._lanes.hold_back(channel)
        step.timer(live.catch_up_by_s, "catch_up", channel)

    def _done(self, step: Step, channel: str) -> None:
        live = self._state.channels[channel]
        live.caught_up = True
        live.catch_up_by_s = None
        if not self.is_waiting():
            for row in [row for row in self._state.asks.values() if is_overdue(step, row)]:
                self._expire(step, row)
        self._lanes.let_go(step, channel)
        self._once_more(step, channel)

    def _once_more(self, step: Step, channel: str) -> None:
        """Draw what was given up there once more, where a repeat does no harm."""
        info = self._state.infos[channel]
        for letter in list(self._state.dead.values()):
            if letter.target != channel or letter.ask_id is None:
                continue
            row = self._state.find(letter.ask_id)
            if letter.kind == "edit" or (
                letter.kind == "post" and info.capabilities.repeat in {"by_key", "by_lookup"}
            ):
                self._resend.by_hand(step, letter, row)

    def _that_catch_up(self) -> list[str]:
        infos = self._state.infos.values()
        return [info.name for info in infos if info.capabilities.catches_up]
