"""What the hub has to say of itself and of attempts that it refused: told on every channel.

Channels that draw by themselves show it among their notices. In a chat it stands in a
conversation of the hub's own, so that it is not lost in a session's.
"""

from typing import Final

from upcall.core.outbox import Outbox
from upcall.core.state import HubState, Step
from upcall.model.document import Message, Paragraph, Span
from upcall.model.ids import SessionId
from upcall.model.rows import SessionRow
from upcall.model.text import visible

# No session can be called so: session ids have no colon.
HUB_SESSION: Final = SessionId("hub:")
HUB_CONVERSATION: Final = "hub:"
LOUD: Final = frozenset({"security", "health"})


class Announcer:
    """Says on channels what operators must know."""

    def __init__(self, state: HubState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def tell(
        self, step: Step, kind: str, text: str, *, only: str = "", besides: str = ""
    ) -> None:
        """Tell operators *text*, the hub's own words.

        Args:
            step: what is being decided.
            kind: `security` or `health`.
            text: one or more sentences.
            only: the one channel that it is said on.
            besides: a channel that it is not said on, such as the one that is deaf.
        """
        self.ensure_session(step)
        row = step.notice(HUB_SESSION, kind, text, quietly=True)
        self._post(step, row.id, text, only=only, besides=besides)

    def spread(self, step: Step) -> None:
        """Say on chats what this step told of sessions and concerns operators."""
        for row in step.take_loud():
            self._post(step, row.id, row.text)

    def _post(
        self, step: Step, number: int, text: str, *, only: str = "", besides: str = ""
    ) -> None:
        shown = visible(text, newlines=True)
        machine = self._state.settings.machine
        message = Message((Paragraph((Span(shown),)),), plain=f"{machine}: {shown}", rings=True)
        for info in self._state.infos.values():
            if info.capabilities.draws_asks or info.name == besides:
                continue
            if only and info.name != only:
                continue
            self._outbox.say(
                step,
                info,
                HUB_CONVERSATION,
                message,
                lane="outcome",
                effect=f"notice:{number}",
            )

    def ensure_session(self, step: Step) -> None:
        """See that the hub's own session can be named by notices and asks."""
        known = self._state.session(HUB_SESSION)
        row = known or SessionRow(
            session_id=HUB_SESSION,
            kind="hosted",
            conversation=HUB_CONVERSATION,
            title="upcall",
            program="upcall",
            machine=self._state.settings.machine,
            started_ms=step.at.wall_ms,
            ended_ms=step.at.wall_ms,
        )
        self._state.ended[HUB_SESSION] = row
        self._state.ended.move_to_end(HUB_SESSION)
        if known is None:
            step.write(row)
