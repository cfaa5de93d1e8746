"""The audit's head as a line in a channel, which keeps it where the hub cannot change it."""

from upcall.core.announce import HUB_CONVERSATION
from upcall.core.outbox import Outbox
from upcall.core.state import HubState, Step
from upcall.model.document import Message, Paragraph, Span
from upcall.model.events import AuditAnchored


def say_anchor(step: Step, state: HubState, outbox: Outbox, event: AuditAnchored) -> None:
    """Post the line where the hub speaks of itself; nobody is called by it."""
    info = state.infos.get(event.channel)
    if info is None or info.capabilities.draws_asks:
        return
    message = Message(
        (Paragraph((Span(event.text, "quiet"),)),),
        plain=f"{state.settings.machine}: {event.text}",
        rings=False,
    )
    outbox.say(step, info, HUB_CONVERSATION, message, lane="idle", effect=event.effect)
