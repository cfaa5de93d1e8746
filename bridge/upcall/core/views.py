"""Rows to the views that every surface shows. Agent text goes as it is; surfaces escape it."""

from upcall.core.outbox import can_decline
from upcall.core.render import state_words
from upcall.core.state import ChannelInfo, HubState
from upcall.model.frames import sendable
from upcall.model.ids import AskId, SessionId
from upcall.model.rows import AskRow, NoticeRow, SessionRow
from upcall.model.shown import with_shown
from upcall.model.views import AskView, ChannelView, NoticeView, SessionState, SessionView

NOT_KEPT = "(the text is not kept any more)"
_UNKNOWN = SessionRow(session_id=SessionId("gone"), kind="sdk", conversation="")


def session_view(state: HubState, row: SessionRow) -> SessionView:
    """Return a session as it is shown."""
    live = state.live.get(row.session_id)
    status: SessionState = "attached" if live is not None and live.attached else "away"
    if row.ended_ms is not None:
        status = "gone"
    return SessionView(
        session_id=row.session_id,
        kind=row.kind,
        state=status,
        conversation=row.conversation,
        title=row.title,
        repo=row.repo,
        branch=row.branch,
        machine=row.machine,
        cwd=row.cwd,
        program=row.program,
        pid=row.asker_pid or row.pid or None,
        task=live.task if live else None,
        model=live.model if live else None,
        usage=live.usage if live else None,
        activity=live.activity if live else None,
        last_text=live.last_text if live else None,
        since_ms=row.started_ms,
        record_path=None if row.record_path is None else sendable(row.record_path),
        takes_text=row.kind != "hosted" and status == "attached",
    )


def ask_view(state: HubState, row: AskRow, session: SessionRow | None = None) -> AskView:
    """Return an ask as it is shown."""
    spec = row.spec
    session = state.session(row.session_id) or session or _UNKNOWN
    declinable = row.state == "open" and can_decline(state, row)
    view = AskView(
        id=row.ask_id,
        state=row.state,
        ask_class=spec.ask_class,
        question=spec.question or (NOT_KEPT if row.state == "closed" else ""),
        options=spec.options,
        multi=spec.multi,
        free_text=spec.free_text,
        revision=row.revision,
        raised_ms=row.raised_ms,
        session=session_view(state, session),
        detail=spec.detail,
        option_details=spec.option_details,
        min_selected=spec.min_selected,
        max_selected=spec.max_selected,
        # Of a permission no option is put forward.
        recommended=None if spec.ask_class == "permission" else spec.recommended,
        default=spec.default,
        deadline_ms=row.deadline_ms,
        held=row.held_s is not None,
        outcome=row.outcome,
        answer=row.answer,
        answered_by=row.answered_by,
        closed_ms=row.closed_ms,
        can_decline=declinable,
        can_hold=declinable and (row.deadline_ms is not None or row.held_s is not None),
        note=state_words(row, state.claims.get(row.ask_id)),
        secret=spec.secret,
    )
    return with_shown(view)


def channel_views(state: HubState, ask_id: AskId | None) -> list[ChannelView]:
    """Return where an ask (or, without one, anything) can be seen, and whether that is true."""
    views = []
    asked = state.asks.get(ask_id) if ask_id is not None else None
    for info in state.settings.channels:
        if asked is not None and asked.spec.secret and not info.capabilities.secrets:
            continue
        live = state.channels[info.name]
        status, reason = "delivered", live.reason
        if not live.hearing:
            status = "down"
        elif ask_id is not None and ask_id in state.asks and not _shows(state, info, ask_id):
            status = "sending"
            if not state.is_posting(ask_id, info.name):
                status, reason = "down", "the card could not be posted"
        views.append(
            ChannelView(
                name=info.name,
                state=status,
                audience=live.audience,
                reason=reason,
                heard_ms=live.heard_ms,
            )
        )
    return views


def is_shown(state: HubState, ask_id: AskId) -> bool:
    """Tell whether a place that hears shows the ask, or draws it for whoever looks."""
    return any(
        state.channels[info.name].hearing and _shows(state, info, ask_id)
        for info in state.settings.channels
    )


def _shows(state: HubState, info: ChannelInfo, ask_id: AskId) -> bool:
    shown = state.cards.get(ask_id, {}).get(info.name)
    if shown is None:
        return info.capabilities.draws_asks
    return shown.ref is not None


def notice_view(row: NoticeRow, session: SessionRow | None = None) -> NoticeView:
    """Return a notice as it is shown, with the name of the session that it is from."""
    return NoticeView(
        id=row.id,
        session_id=row.session_id,
        kind=row.kind,
        text=row.text,
        at_ms=row.at_ms,
        file_id=row.file_id,
        file_name=row.file_name,
        mime=row.mime,
        title=(session.title or session.program) if session is not None else None,
        repo=session.repo if session is not None else None,
    )
