"""Times in which a channel did not hear: told on others, and made up for when it is over.

A tap that a person makes in such a time may be lost: platforms keep them for seconds, or not
at all (`Capabilities.press_lifetime_s`). So the person is told, in the same channel, as soon
as it hears again; and cards that are still open are drawn anew there.
"""

from datetime import datetime
from typing import Final

from upcall.core.announce import Announcer
from upcall.core.outbox import Outbox
from upcall.core.render import duration_words
from upcall.core.state import ChannelInfo, ChannelLive, HubState, Step
from upcall.model.effects import SaveSetting
from upcall.model.events import ChannelChanged, PersonActed
from upcall.model.platform import LoginKept, SettingKept
from upcall.model.text import one_line

# Shorter ones are not told elsewhere: connections are renewed all the time.
TOLD_AFTER_S: Final = 60.0
HEARD_KEY: Final = "hub:heard_ms"
# Rounds of which none was completed before a channel is taken for deaf (design.md, inv. 9).
ROUNDS_MISSED: Final = 3
# How often it is kept until when a channel has heard, in case the hub is killed.
KEPT_EVERY_MS: Final = 60_000


class Deafness:
    """Keeps account of what each chat channel may have missed."""

    def __init__(self, state: HubState, outbox: Outbox, announcer: Announcer) -> None:
        self._state = state
        self._outbox = outbox
        self._announcer = announcer

    def resume(self, step: Step) -> None:
        """At start: nothing was heard since the hub last wrote down that a channel did."""
        for info in self._chats():
            kept = self._state.settings_kept.get((info.name, HEARD_KEY), "")
            if kept.isdigit() and int(kept) < step.at.wall_ms:
                self._state.channels[info.name].deaf_since_ms = int(kept)

    def sleep_coming(self, step: Step, *, coming: bool) -> None:
        """The computer is going to sleep, or woke: what is open says so where people tap."""
        if self._state.sleep_coming == coming:
            return
        self._state.sleep_coming = coming
        for info in self._chats():
            for row in list(self._state.asks.values()):
                if info.name in self._state.cards.get(row.ask_id, ()):
                    self._outbox.redraw(step, row, only=info.name)
        step.change()

    def slept(self, since_ms: int) -> None:
        """The computer was asleep since then: no channel heard, whatever it says."""
        for info in self._chats():
            live = self._state.channels[info.name]
            if live.deaf_since_ms is None or since_ms < live.deaf_since_ms:
                live.deaf_since_ms = since_ms

    def heard(self, event: PersonActed) -> None:
        """Something that a person did on a channel is handled."""
        live = self._state.channels.get(event.channel)
        if live is not None and not isinstance(event.inbound, SettingKept | LoginKept):
            live.event_ms = event.at.wall_ms

    def changed(self, step: Step, channel: str, *, was_hearing: bool) -> None:
        """A channel said how it is; the hub has taken note already."""
        live = self._state.channels[channel]
        info = self._state.infos.get(channel)
        if was_hearing and not live.hearing:
            live.logged_deaf = True
            step.log("channel_deaf", channel=channel, reason=live.reason)
        elif live.hearing and live.logged_deaf:
            live.logged_deaf = False
            step.log("channel_hears", channel=channel)
        if info is None or info.capabilities.draws_asks:
            return
        if live.hearing:
            self._hears(step, info, live)
        elif was_hearing:
            live.deaf_since_ms = live.heard_ms or step.at.wall_ms
            step.timer(step.at.boot_s + TOLD_AFTER_S, "deaf", channel)

    def completed_round(self, step: Step, channel: str, live: ChannelLive) -> None:
        """A channel says that it hears: for how long that is believed is counted anew."""
        info = self._state.infos.get(channel)
        round_s = info.capabilities.round_s if info is not None else None
        if round_s is not None:
            live.silent_due_s = step.at.boot_s + ROUNDS_MISSED * round_s
            step.timer(live.silent_due_s, "silent", channel)

    def silent(self, step: Step, channel: str) -> ChannelChanged:
        """Return what a channel that completes no round should have said of itself."""
        live = self._state.channels[channel]
        zone, since = self._state.settings.zone, ""
        if live.heard_ms is not None and zone is not None:
            since = f" since {datetime.fromtimestamp(live.heard_ms / 1000, zone):%H:%M}"
        return ChannelChanged(
            at=step.at,
            channel=channel,
            hearing=False,
            audience=live.audience,
            signed_in=live.signed_in,
            reason=f"connected, but no inbound round{since}",
        )

    def due(self, step: Step, channel: str) -> None:
        """A channel has been deaf for so long that it is told elsewhere."""
        live = self._state.channels.get(channel)
        if live is None or live.hearing or live.told_deaf or live.deaf_since_ms is None:
            return
        since_s = (step.at.wall_ms - live.deaf_since_ms) / 1000
        if since_s < TOLD_AFTER_S / 2:
            # It heard in between.
            return
        live.told_deaf = True
        self._announce(step, channel, f"{deaf_words(self._state, channel)} - asks go elsewhere")

    def _hears(self, step: Step, info: ChannelInfo, live: ChannelLive) -> None:
        since_ms, live.deaf_since_ms = live.deaf_since_ms, None
        self._keep(step, info.name)
        if live.told_deaf:
            live.told_deaf = False
            self._announce(step, info.name, f"{info.name} hears again")
        self._outbox.lanes.sweep(step, info.name)
        settled, live.settled = live.settled, 0
        too_old, live.too_old = live.too_old, 0
        if since_ms is None:
            return
        words = [*self._lost_words(step, info, since_ms), *_unsaid_words(settled, too_old)]
        if words:
            # One message for all of it.
            words.insert(0, self._span_words(step, since_ms))
            self._announcer.tell(step, "health", " ".join(words), only=info.name)

    def _lost_words(self, step: Step, info: ChannelInfo, since_ms: int) -> list[str]:
        """Draw anew what is open, if taps were lost, and say so."""
        life_s = info.capabilities.press_lifetime_s
        if life_s is None or step.at.wall_ms - since_ms <= life_s * 1000:
            return []
        shown = [
            row
            for row in self._state.asks.values()
            if info.name in self._state.cards.get(row.ask_id, ())
        ]
        for row in shown:
            self._outbox.redraw(step, row, only=info.name)
        if not shown:
            return []
        still = "1 question is" if len(shown) == 1 else f"{len(shown)} questions are"
        return [f"Taps in that time were lost; {still} still open."]

    def _span_words(self, step: Step, since_ms: int) -> str:
        zone = self._state.settings.zone
        if zone is None:
            span = f"for {duration_words((step.at.wall_ms - since_ms) / 1000)}"
        else:
            begin, end = (
                f"{datetime.fromtimestamp(ms / 1000, zone):%H:%M}"
                for ms in (since_ms, step.at.wall_ms)
            )
            span = f"from {begin} to {end}"
        return f"I could not hear you {span}."

    def _keep(self, step: Step, channel: str) -> None:
        kept = self._state.settings_kept.get((channel, HEARD_KEY), "0")
        if step.at.wall_ms - (int(kept) if kept.isdigit() else 0) >= KEPT_EVERY_MS:
            value = str(step.at.wall_ms)
            self._state.settings_kept[channel, HEARD_KEY] = value
            step.write(SaveSetting(channel, HEARD_KEY, value))

    def _announce(self, step: Step, channel: str, words: str) -> None:
        if self._state.settings.tell_degraded:
            self._announcer.tell(step, "health", words, besides=channel)

    def _chats(self) -> list[ChannelInfo]:
        return [one for one in self._state.infos.values() if not one.capabilities.draws_asks]


def _unsaid_words(settled: int, too_old: int) -> list[str]:
    words = []
    if settled:
        were = "1 question was" if settled == 1 else f"{settled} questions were"
        words.append(f"Meanwhile {were} settled elsewhere and not shown here.")
    if too_old:
        are = "1 message is" if too_old == 1 else f"{too_old} messages are"
        words.append(f"{are} too old to be shown here.")
    return words


def deaf_words(state: HubState, channel: str) -> str:
    """Return since when and why a channel does not hear, in words."""
    live = state.channels[channel]
    zone = state.settings.zone
    since = ""
    if live.deaf_since_ms is not None and zone is not None:
        since = f" since {datetime.fromtimestamp(live.deaf_since_ms / 1000, zone):%H:%M}"
    reason = f" - {one_line(live.reason, 200)}" if live.reason else ""
    return f"{channel}: not hearing{since}{reason}"
