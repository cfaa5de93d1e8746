"""How much one session may ask, say and keep, and what of it people are shown at once.

What is over the limit of what is shown is not lost: it waits, open and answerable, and its
card is posted when an older one closes or a minute has passed.
"""

from typing import Final

from upcall.core.state import Flood, HubState, Step
from upcall.model.ids import SessionId
from upcall.model.quotas import limit_words
from upcall.model.rows import AskRow
from upcall.model.struct import replaced

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
APPROVALS_S: Final = 300.0
TOLD_EVERY_S: Final = 3600.0


class Quotas:
    """Counts what sessions ask and say; it keeps nothing of its own."""

    def __init__(self, state: HubState) -> None:
        self._state = state

    def of(self, session_id: SessionId) -> Flood:
        """Return what is counted of a session."""
        return self._state.floods.setdefault(session_id, Flood())

    def full(self, session_id: SessionId | None) -> str | None:
        """Return which limit one more ask would break, in words.

        Args:
            session_id: the session that asks, or None for one that asks for the first time.
        """
        state, limits = self._state, self._state.settings.limits
        if len(state.asks) >= limits.all_asks:
            return limit_words(limits, "all_asks", f"{len(state.asks)} asks are open")
        if session_id is None:
            if state.hosted_count >= limits.sessions:
                what = f"asks of {state.hosted_count} programs are open"
                return limit_words(limits, "sessions", what)
            return None
        session = state.sessions.get(session_id)
        if session is not None and session.asks == "stopped":
            return "a person told this program to stop asking (limits: stop asking)"
        open_here = len(state.by_session.get(session_id, ()))
        if open_here >= limits.session_asks:
            what = f"{open_here} asks of this program are open"
            return limit_words(limits, "session_asks", what)
        if self.of(session_id).stored >= limits.stored_bytes:
            what = f"{self.of(session_id).stored} characters of this program are kept"
            return limit_words(limits, "stored_bytes", what)
        return None

    def counted(self, step: Step, row: AskRow) -> AskRow:
        """Count a new ask; return it with what its card says of how many there are."""
        flood = self.of(row.session_id)
        flood.stored += len(row.spec.question) + len(row.spec.detail or "")
        flood.stored += sum(map(len, row.spec.options))
        if row.spec.ask_class != "permission":
            return row
        seen = flood.approvals_s
        seen.append(step.at.boot_s)
        while seen and seen[0] <= step.at.boot_s - APPROVALS_S:
            seen.popleft()
        if len(seen) < self._state.settings.limits.approvals_at_ease:
            return row
        return replaced(row, course=replaced(row.course, burst=len(seen)))

    def lets(self, step: Step, row: AskRow) -> bool:
        """Tell whether channels may show *row* now; if not, it waits its turn."""
        flood, limits = self.of(row.session_id), self._state.settings.limits
        if row.ask_id in flood.shown:
            return True
        if self._state.cards.get(row.ask_id):
            flood.back.pop(row.ask_id, None)
            flood.shown[row.ask_id] = None
            return True
        recent = flood.shown_s
        while recent and recent[0] <= step.at.boot_s - MINUTE_S:
            recent.popleft()
        session = self._state.session(row.session_id)
        held = session is not None and session.asks != "shown"
        first = next(iter(flood.back), row.ask_id)
        if (
            held
            or first != row.ask_id
            or len(flood.shown) >= limits.shown_asks
            or len(recent) >= limits.shown_asks_per_minute
        ):
            if row.ask_id not in flood.back:
                flood.back[row.ask_id] = None
                self._state.flooding[row.session_id] = None
            return False
        flood.back.pop(row.ask_id, None)
        flood.shown[row.ask_id] = None
        recent.append(step.at.boot_s)
        return True

    def left(self, row: AskRow) -> None:
        """An ask is over; another one may be shown."""
        flood = self._state.floods.get(row.session_id)
        if flood is None:
            return
        flood.shown.pop(row.ask_id, None)
        had = row.ask_id in flood.back
        flood.back.pop(row.ask_id, None)
        if had or flood.back or flood.lines:
            self._state.flooding[row.session_id] = None

    def may_say(self, step: Step, session_id: SessionId, size: int, *, kept: bool) -> bool:
        """Count text of a session; tell people, now and then, when it is too much.

        Args:
            step: what is being decided.
            session_id: who says it.
            size: in bytes.
            kept: it is stored.
        """
        flood, limits = self.of(session_id), self._state.settings.limits
        if step.at.boot_s >= flood.said_from_s + MINUTE_S:
            flood.said_from_s, flood.said = step.at.boot_s, 0
        if flood.said + size > limits.live_text_bytes_per_minute:
            what = "This session says more within a minute than is taken"
            self.tell(step, session_id, "live_text_bytes_per_minute", what)
            return False
        flood.said += size
        if not kept:
            return True
        if flood.stored + size > limits.stored_bytes:
            what = "More of this session would be kept than is allowed"
            self.tell(step, session_id, "stored_bytes", what)
            return False
        flood.stored += size
        return True

    def tell(self, step: Step, session_id: SessionId, name: str, what: str) -> None:
        """Say that a limit was reached; once an hour for each limit and session."""
        words = limit_words(self._state.settings.limits, name, what)
        self.tell_words(step, session_id, name, words)

    def tell_words(self, step: Step, session_id: SessionId, name: str, words: str) -> None:
        """Say, in these words, that a limit was reached; once an hour for each as well."""
        flood = self.of(session_id)
        if step.at.boot_s < flood.told_s.get(name, float("-inf")) + TOLD_EVERY_S:
            return
        flood.told_s[name] = step.at.boot_s
        step.notice(session_id, "warning", f"limit_reached: {words}")
        step.log("limit_reached", session=session_id, limit=name)

    def measured(self, sizes: dict[SessionId, int]) -> None:
        """The store says how much it keeps of each session that lives."""
        for session_id, size in sizes.items():
            if session_id in self._state.sessions:
                self.of(session_id).stored = size
