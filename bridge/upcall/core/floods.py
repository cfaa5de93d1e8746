"""What people see of a session that asks too much: one line, with a way to make it stop."""

from collections.abc import Callable
from typing import Final

from upcall.core.buttons import ASKS, HubButtons
from upcall.core.outbox import Outbox, can_decline
from upcall.core.quotas import MINUTE_S, Quotas
from upcall.core.state import Flood, HubState, Step
from upcall.model.events import PersonActed
from upcall.model.ids import AskId, SessionId
from upcall.model.platform import Answered, Receipt, Who
from upcall.model.rows import AsksShown, ButtonKind, SessionRow
from upcall.model.struct import replaced

LINE_EVERY_S: Final = 30.0
AT_ONCE: Final = 200
LABELS: Final[dict[ButtonKind, str]] = {
    "mute": "Mute",
    "unmute": "Unmute",
    "stop": "Stop asking",
}
_OFFERED: Final[dict[AsksShown, tuple[ButtonKind, ...]]] = {
    "shown": ("mute", "stop"),
    "muted": ("unmute", "stop"),
    "stopped": ("unmute",),
}
MUTED: Final = "Muted: new questions of this session wait in the inbox."
STOPPED: Final = (
    "This session was told to stop asking: what waited is declined, and new questions of it "
    "are refused."
)

Answer = Callable[[Step, PersonActed, Answered], Receipt | None]


class Floods:
    """Shows what waits when there is room, and says how much waits."""

    def __init__(
        self, state: HubState, outbox: Outbox, buttons: HubButtons, answer: Answer
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._buttons = buttons
        self._answer = answer
        self._quotas = Quotas(state)

    def settle(self, step: Step) -> list[AskId]:
        """After a step: show what may be shown now; return the asks that newly are."""
        newly: list[AskId] = []
        while self._state.flooding:
            session_id = next(iter(self._state.flooding))
            del self._state.flooding[session_id]
            flood = self._state.floods.get(session_id)
            if flood is None:
                continue
            session = self._state.sessions.get(session_id)
            if session is None:
                self._over(step, session_id, flood)
                continue
            if session.asks == "stopped" and flood.stopped_by is not None:
                self._decline(step, session, flood)
            elif session.asks == "shown":
                newly += self._release(step, flood, session_id)
            self._say(step, session, flood)
        return newly

    def due(self, session_id: SessionId) -> None:
        """A minute has passed, or a line may be changed again, or stands on a channel."""
        self._state.flooding[session_id] = None

    def rule(
        self, step: Step, event: PersonActed, session_id: str, rule: str, who: Who, key: str
    ) -> Receipt:
        """A person decides what becomes of a session's asks; whoever calls let them in."""
        session = self._state.sessions.get(SessionId(session_id))
        if session is None:
            msg = "This session has ended; nothing waits any more."
            return Receipt(ok=False, code="session_gone", msg=msg)
        flood = self._quotas.of(session.session_id)
        if rule == "hold":
            self._hold_all(step, event, session.session_id, who, key)
        shown: AsksShown = "muted"
        if rule == "stop":
            shown = "stopped"
            flood.stopped_by = (event.channel, who)
        elif rule == "unmute":
            shown = "shown"
        session = replaced(session, asks=shown)
        self._state.sessions[session.session_id] = session
        step.write(session)
        step.audit(f"asks_{shown}", None, session=session.session_id, channel=event.channel)
        flood.line_s = float("-inf")
        self._state.flooding[session.session_id] = None
        step.change()
        return Receipt(ok=True, code=rule, msg=_words(shown, len(flood.back)))

    def _release(self, step: Step, flood: Flood, session_id: SessionId) -> list[AskId]:
        newly = []
        while flood.back:
            ask_id = next(iter(flood.back))
            row = self._state.asks.get(ask_id)
            if row is None:
                del flood.back[ask_id]
            elif not self._quotas.lets(step, row):
                break
            else:
                self._outbox.show(step, row)
                newly.append(ask_id)
        if flood.back and flood.shown_s:
            step.timer(flood.shown_s[0] + MINUTE_S, "flood", session_id)
        return newly

    def _decline(self, step: Step, session: SessionRow, flood: Flood) -> None:
        if flood.stopped_by is None:
            return
        channel, who = flood.stopped_by
        declined = 0
        for ask_id in list(flood.back):
            row = self._state.asks.get(ask_id)
            if row is None or row.state != "open" or not can_decline(self._state, row):
                continue
            if declined == AT_ONCE:
                # The rest in another step: one must not hold everybody up.
                step.timer(step.at.boot_s, "flood", session.session_id)
                return
            declined += 1
            act = Answered(
                key=f"stop:{ask_id}:{row.revision}",
                ask=ask_id,
                revision=row.revision,
                who=who,
                decline=True,
            )
            event = PersonActed(at=step.at, channel=channel, inbound=act)
            receipt = self._answer(step, event, act)
            if receipt is not None and not receipt.ok:
                # Whoever said so may not decline these.
                break
        flood.stopped_by = None

    def _hold_all(
        self, step: Step, event: PersonActed, session_id: SessionId, who: Who, key: str
    ) -> None:
        for row in self._state.asks_of(session_id):
            if row.state != "open" or row.held_s is not None or row.deadline_ms is None:
                continue
            act = Answered(
                key=f"{key}:{row.ask_id}",
                ask=row.ask_id,
                revision=row.revision,
                who=who,
                hold=True,
            )
            held = PersonActed(at=step.at, channel=event.channel, inbound=act)
            self._answer(step, held, act)

    def _say(self, step: Step, session: SessionRow, flood: Flood) -> None:
        """Let the line on each chat say how many wait."""
        count = len(flood.back)
        subject = f"{ASKS}{session.session_id}"
        if not count and session.asks == "shown":
            if flood.lines:
                self._buttons.settle(step, subject, "Nothing more waits.")
                flood.lines.clear()
            return
        words = _words(session.asks, count)
        for channel in self._chats(flood):
            info = self._state.infos[channel]
            labels: dict[ButtonKind, str] = {}
            if info.capabilities.buttons_per_card:
                labels = {kind: LABELS[kind] for kind in _OFFERED[session.asks]}
            if not self._buttons.of(subject, channel) and channel not in flood.lines:
                flood.lines[channel] = words
                flood.line_s = step.at.boot_s + LINE_EVERY_S
                offered: list[tuple[str, ButtonKind, str]] = [
                    (labels.get(kind, ""), kind, "") for kind in LABELS
                ]
                self._buttons.ask(
                    step, info, session.conversation, subject, words, offered, rings=False
                )
            elif flood.lines.get(channel) != words:
                if step.at.boot_s < flood.line_s:
                    step.timer(flood.line_s, "flood", session.session_id)
                elif self._buttons.edit(step, subject, channel, words, labels):
                    flood.lines[channel] = words
                    flood.line_s = step.at.boot_s + LINE_EVERY_S

    def _chats(self, flood: Flood) -> list[str]:
        """Return the chats that show asks of the session, or say that more wait."""
        chats = [
            name for name, info in self._state.infos.items() if not info.capabilities.draws_asks
        ]
        if not chats:
            return []
        shows = set(flood.lines).union(
            *(self._state.cards.get(ask_id, ()) for ask_id in flood.shown)
        )
        return [name for name in chats if name in shows]

    def _over(self, step: Step, session_id: SessionId, flood: Flood) -> None:
        self._buttons.settle(step, f"{ASKS}{session_id}", "This session has ended.")
        flood.lines.clear()
        del self._state.floods[session_id]

    def resume(self) -> None:
        """At start: what is shown counts, and the lines that stand are looked at."""
        for ask_id in self._state.cards:
            row = self._state.asks.get(ask_id)
            if row is not None:
                self._quotas.of(row.session_id).shown[ask_id] = None
        for subject, tokens in self._state.buttons_of.items():
            session_id = SessionId(subject.removeprefix(ASKS))
            if session_id == subject:
                continue
            flood = self._quotas.of(session_id)
            for token in tokens:
                flood.lines.setdefault(self._state.buttons[token].channel, "")
            self._state.flooding[session_id] = None


def _words(shown: AsksShown, count: int) -> str:
    more = f"{count} more from this session"
    match shown:
        case "shown":
            return more
        case "muted":
            return f"{more}. Muted: they wait in the inbox." if count else MUTED
        case _:
            return STOPPED
