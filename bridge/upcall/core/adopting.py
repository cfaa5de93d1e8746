"""A program that could not reach the hub in time asks by itself: the same question, once.

It had raised the ask over the hub's socket, the hub was gone before it said so, and the
program went on with an endpoint of its own under the same id. The ask moves to that session;
its cards, and an answer that somebody has given already, stay.
"""

from upcall.core.ledger import Ledger
from upcall.core.outbox import Outbox
from upcall.core.state import HubState, Step
from upcall.model.frames import ActionNeeded
from upcall.model.ids import Revision, SessionId, ask_id_in
from upcall.model.rows import AskRow, bare_revision
from upcall.model.struct import replaced


def adopted(
    step: Step,
    state: HubState,
    ledger: Ledger,
    outbox: Outbox,
    session_id: SessionId,
    frame: ActionNeeded,
    revision: Revision,
) -> AskRow | None:
    """Return the hosted ask that *frame* presents, moved to its session; None if it is none."""
    own = ask_id_in(frame.id)
    row = state.asks.get(own) if own is not None else None
    if row is None or bare_revision(row.revision) != revision:
        return None
    former, session = state.session(row.session_id), state.sessions[session_id]
    if former is None or former.kind != "hosted" or former.session_id == session_id:
        return None
    same_process = (former.asker_pid, former.asker_start) == (session.pid, session.pid_start)
    if not same_process or not former.asker_pid or ledger.attached(row.ask_id):
        return None
    state.by_action.pop((row.session_id, row.action_id), None)
    of_former = state.by_session[row.session_id]
    del of_former[row.ask_id]
    if not of_former:
        del state.by_session[row.session_id]
    moved = replaced(
        row,
        session_id=session_id,
        action_id=frame.id,
        deadline_ms=None if frame.held else frame.deadline_at,
        deadline_boot_s=None,
        held_s=0.0 if frame.held else None,
    )
    state.asks[row.ask_id] = moved
    state.by_action[session_id, frame.id] = row.ask_id
    state.by_session.setdefault(session_id, {})[row.ask_id] = None
    step.write(moved)
    step.audit("asks_itself", moved)
    ledger.end_session_if_done(step, former.session_id)
    outbox.redraw(step, moved)
    step.change()
    return moved
