"""Which place a conversation has, and how it gets one where the platform has threads.

A conversation without a place is opened by a delivery of its own before anything is posted
in it. When somebody has removed the thread, the conversation has no place any more; another
one is opened, and the asks that are still open are shown there.
"""

from typing import Final

import msgspec

from upcall.core.redacting import mask_for, shown_session
from upcall.core.state import HubState, Step
from upcall.model.effects import DropCard
from upcall.model.platform import Opening
from upcall.model.rows import CardRow, ConversationRow, DeliveryRow, SessionRow
from upcall.model.struct import replaced
from upcall.model.text import one_line

TITLE_CHARS: Final = 100
# Somebody, or something, that removes every thread at once is not to be fought.
REOPENED_AT_MOST: Final = 3
REOPENED_WITHIN_S: Final = 3600.0

_opening = msgspec.json.Encoder()


class Threads:
    """The places of conversations."""

    def __init__(self, state: HubState) -> None:
        self._state = state
        self._reopened: dict[tuple[str, str], list[float]] = {}

    def needs_opening(self, row: DeliveryRow) -> bool:
        """Tell whether *row* is to be posted in a conversation that has no thread yet."""
        if row.kind not in {"post", "remind"} or not row.conversation:
            return False
        info = self._state.infos.get(row.target)
        if info is None or not info.capabilities.threads:
            return False
        found = self._find(row)
        return found is not None and not found.place

    def opening(self, step: Step, row: DeliveryRow, number: int) -> DeliveryRow:
        """Return the delivery that opens a thread for what *row* is to be posted in."""
        session = self._session(row.conversation)
        if session is not None:
            session = shown_session(session, mask_for(self._state, session))
        title = thread_title(session, self._state.settings.machine)
        return DeliveryRow(
            id=number,
            effect=f"open:{row.target}:{row.conversation}:{number}",
            kind="open",
            lane=row.lane,
            target=row.target,
            place="",
            state="queued",
            body=_opening.encode(Opening(row.conversation, title)),
            created_ms=step.at.wall_ms,
            conversation=row.conversation,
        )

    def opened(self, step: Step, row: DeliveryRow, place: str | None) -> None:
        """A thread is there: it is the conversation's place from now on."""
        found = self._find(row)
        if found is None:
            found = ConversationRow(key=row.conversation, channel=row.target, place="")
        self._keep(step, replaced(found, place=place or ""))

    def addressed(self, row: DeliveryRow) -> DeliveryRow:
        """Return *row* with the place that its conversation has now."""
        if row.kind not in {"post", "remind"} or not row.conversation:
            return row
        found = self._find(row)
        return row if found is None or not found.place else replaced(row, place=found.place)

    def placed(self, step: Step, shown: CardRow, place: str) -> CardRow:
        """Return a card with the place where it was really posted."""
        if shown.place == place:
            return shown
        step.write(DropCard(shown.ask_id, shown.channel, shown=True))
        return replaced(shown, place=place)

    def may_reopen(self, step: Step, row: DeliveryRow) -> bool:
        """Tell whether a thread that is gone is opened anew."""
        info = self._state.infos.get(row.target)
        if info is None or not info.capabilities.threads or not row.conversation:
            return False
        found = self._find(row)
        if found is not None and found.place != row.place:
            # It was opened anew since this was sent.
            return True
        times = self._reopened.get((row.conversation, row.target), [])
        since_s = step.at.boot_s - REOPENED_WITHIN_S
        return sum(one > since_s for one in times) < REOPENED_AT_MOST

    def gone(self, step: Step, row: DeliveryRow) -> None:
        """Somebody has removed the thread that *row* was sent to."""
        found = self._find(row)
        if found is None or not found.place or found.place != row.place:
            return
        times = self._reopened.setdefault((row.conversation, row.target), [])
        times[:] = [*times[-REOPENED_AT_MOST:], step.at.boot_s]
        step.audit("thread_gone", None, channel=row.target)
        self._keep(step, replaced(found, place=""))

    def _find(self, row: DeliveryRow) -> ConversationRow | None:
        return self._state.conversations.get(row.conversation, {}).get(row.target)

    def _keep(self, step: Step, row: ConversationRow) -> None:
        if row.state == "open":
            self._state.conversations.setdefault(row.key, {})[row.channel] = row
        step.write(row)

    def _session(self, conversation: str) -> SessionRow | None:
        for session_id in self._state.living.get(conversation, ()):
            return self._state.sessions.get(session_id)
        for session in reversed(self._state.ended.values()):
            if session.conversation == conversation:
                return session
        return None


def thread_title(session: SessionRow | None, machine: str) -> str:
    """Return what to call the thread of a session: one line, at most 100 characters."""
    if session is None:
        return machine
    names = (session.repo, session.title or session.program or session.cwd, machine)
    return one_line(" · ".join(name for name in names if name), TITLE_CHARS)
