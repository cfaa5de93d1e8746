"""What a session says and does, as messages in its threads: lean, verbose, or not at all.

Lean is what it says at the end of a turn, and that it waits. Verbose is also what it is
saying and doing just now, in one message that is edited, and taken away when the turn has
ended. Channels that draw by themselves show all of it from the hub's view, and get nothing.
"""

from dataclasses import dataclass
from typing import Final

from upcall.core.lanes import WAITING, Lanes
from upcall.core.outbox import Outbox
from upcall.core.rules import Facts
from upcall.core.state import ChannelInfo, HubState, Step
from upcall.model.document import Message, Paragraph, Span
from upcall.model.effects import SaveVerbosity
from upcall.model.events import VerbositySet
from upcall.model.policy import Rules, Verbosity
from upcall.model.rows import NoticeRow, SessionRow
from upcall.model.text import one_line, visible

# Chats take an edit a second for each chat at best; asks need that more than this does.
EVERY_S: Final = 2.0
LIVE_CHARS: Final = 1000


def turn_message(text: str) -> Message:
    """Return what a session said at the end of a turn."""
    shown = visible(text, newlines=True)
    return Message((Paragraph((Span(shown),)),), plain=shown)


def idle_message(text: str) -> Message:
    """Return that a session waits, with what it says of that."""
    shown = f"Idle: {one_line(text, 300)}"
    return Message((Paragraph((Span(shown, "quiet"),)),), plain=shown)


def live_message(text: str, activity: str) -> Message:
    """Return what a session is saying and doing just now; of a long text, the end."""
    tail = text if len(text) <= LIVE_CHARS else f"…{text[-LIVE_CHARS:]}"
    shown = visible(tail, newlines=True)
    doing = one_line(activity, 120)
    spans = [Span(shown)] if shown else []
    if doing:
        spans.append(Span(f"\n{doing}" if shown else doing, "quiet"))
    return Message((Paragraph(tuple(spans)),), plain="\n".join(filter(None, (shown, doing))))


def session_rules(state: HubState, session: SessionRow) -> Rules:
    """Return what holds for a session's questions, and for what it says beside them."""
    return state.rules.of(
        state.settings.policy,
        Facts(
            kind="question",
            repo=session.repo,
            host=session.machine,
            title=session.title,
            tags=session.tags,
        ),
    )


def level_of(state: HubState, session: SessionRow) -> Verbosity:
    """Return how much of a session's work is shown: what people chose, or the rules say."""
    chosen = state.verbosities.get(session.conversation)
    return session_rules(state, session).verbosity if chosen is None else chosen


@dataclass(slots=True)
class _Stream:
    """The one message of a conversation that shows what is going on.

    Attributes:
        ref: the message, once it is there.
        flying: the delivery that is on its way.
        ready_s: from when the next one may go, on the boot clock.
        stale: what is shown is not what is going on.
    """

    text: str = ""
    activity: str = ""
    ref: str | None = None
    flying: int | None = None
    ready_s: float = 0.0
    stale: bool = False


class Content:
    """Posts what sessions say and do to channels with threads."""

    def __init__(self, state: HubState, outbox: Outbox, lanes: Lanes) -> None:
        self._state = state
        self._outbox = outbox
        self._lanes = lanes
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._flying: dict[int, tuple[str, str]] = {}
        # Of a turn that ended while its message was on its way.
        self._left: dict[int, tuple[str, str]] = {}

    def set_level(self, step: Step, event: VerbositySet) -> None:
        """People chose how much is shown of a conversation."""
        if event.level is None:
            self._state.verbosities.pop(event.conversation, None)
        else:
            self._state.verbosities[event.conversation] = event.level
        step.write(SaveVerbosity(event.conversation, event.level))
        step.audit("verbosity", None, level=event.level)
        if event.level != "verbose":
            self._end_streams(step, event.conversation)
        step.change()

    def said(self, step: Step, session: SessionRow, notice: NoticeRow, text: str) -> None:
        """A session said something at the end of a turn."""
        self._end_streams(step, session.conversation)
        self._post(step, session, notice, turn_message(text))

    def waits(self, step: Step, session: SessionRow, notice: NoticeRow) -> None:
        """A session has nothing to do."""
        self._end_streams(step, session.conversation)
        self._post(step, session, notice, idle_message(notice.text))

    def goes_on(
        self, step: Step, session: SessionRow, *, text: str | None = None, activity: str = ""
    ) -> None:
        """A session says (`text`) or does something just now."""
        if level_of(self._state, session) != "verbose":
            return
        for info in self._threaded(session):
            if not info.capabilities.edits or not self._state.channels[info.name].hearing:
                continue
            key = (info.name, session.conversation)
            stream = self._streams.setdefault(key, _Stream())
            stream.text = stream.text if text is None else text
            stream.activity = activity
            stream.stale = True
            self._flow(step, key)

    def arrived(self, step: Step, delivery: int, ref: str | None) -> None:
        """A delivery arrived, or will not any more."""
        key = self._left.pop(delivery, None)
        if key is not None and ref is not None:
            self._take_away(step, key, ref)
        key = self._flying.pop(delivery, None)
        stream = self._streams.get(key) if key is not None else None
        if key is None or stream is None:
            return
        stream.flying = None
        stream.ref = ref or stream.ref
        self._flow(step, key)

    def failed(self, step: Step, delivery: int) -> None:
        """A delivery failed; one that is given up leaves no message behind to edit."""
        if delivery in self._state.deliveries:
            return
        key = self._flying.get(delivery)
        if key is not None and key in self._streams:
            self._streams[key].ref = None
        self._left.pop(delivery, None)
        self.arrived(step, delivery, None)

    def due(self, step: Step, key: str) -> None:
        """The next state of a message may go."""
        channel, _, conversation = key.partition("\0")
        if (channel, conversation) in self._streams:
            self._flow(step, (channel, conversation))

    def _post(
        self, step: Step, session: SessionRow, notice: NoticeRow, message: Message
    ) -> None:
        if level_of(self._state, session) == "quiet":
            return
        for info in self._threaded(session):
            self._outbox.say(
                step,
                info,
                session.conversation,
                message,
                lane="idle" if notice.kind == "idle" else "text",
                effect=f"said:{notice.id}",
            )

    def _threaded(self, session: SessionRow) -> list[ChannelInfo]:
        named = session_rules(self._state, session).channels
        return [
            info
            for info in self._state.infos.values()
            if info.capabilities.threads
            and not info.capabilities.draws_asks
            and (named is None or info.name in named)
        ]

    def _flow(self, step: Step, key: tuple[str, str]) -> None:
        channel, conversation = key
        stream, now_s = self._streams[key], step.at.boot_s
        if stream.flying is not None and stream.flying not in self._state.deliveries:
            # A newer one took its place before it went, or it had grown too old.
            self._flying.pop(stream.flying, None)
            stream.flying = None
        if not stream.stale or stream.flying is not None:
            return
        if now_s < stream.ready_s:
            step.timer(stream.ready_s, "stream", f"{channel}\0{conversation}")
            return
        stream.stale = False
        stream.ready_s = now_s + EVERY_S
        info = self._state.infos[channel]
        message = live_message(stream.text, stream.activity)
        stream.flying = self._outbox.say_now(step, info, conversation, message, stream.ref)
        if stream.flying is not None:
            self._flying[stream.flying] = key

    def _end_streams(self, step: Step, conversation: str) -> None:
        for key in [key for key in self._streams if key[1] == conversation]:
            stream = self._streams.pop(key)
            flying = stream.flying
            row = self._state.deliveries.get(flying) if flying is not None else None
            if flying is not None:
                self._flying.pop(flying, None)
            if row is not None and row.state in WAITING and not row.attempt:
                self._lanes.drop(step, row)
                self._lanes.wake(step, row)
            elif row is not None and row.kind == "post":
                self._left[row.id] = key
            if stream.ref is not None:
                self._take_away(step, key, stream.ref)

    def _take_away(self, step: Step, key: tuple[str, str], ref: str) -> None:
        channel, conversation = key
        info = self._state.infos.get(channel)
        if info is not None and info.capabilities.deletes:
            self._outbox.take_away(step, info, conversation, ref)
