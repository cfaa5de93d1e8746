"""Rows to the views that every surface shows. Agent text goes as it is; surfaces escape it."""

from upcall.core.merging import stands_for
from upcall.core.outbox import can_decline
from upcall.core.redacting import (
    Mask,
    mask_for,
    redaction_header,
    shown_ask,
    shown_session,
    shown_spec,
)
from upcall.core.render import burst_words, later_words
from upcall.core.standing import standing_words
from upcall.core.state import ChannelInfo, HubState
from upcall.model.frames import sendable
from upcall.model.ids import AskId, SessionId
from upcall.model.rows import AskRow, NoticeRow, SessionRow
from upcall.model.shown import with_shown
from upcall.model.struct import replaced
from upcall.model.views import AskView, ChannelView, NoticeView, SessionState, SessionView

WAITING_WORDS = "after older questions of this program"
NOT_KEPT = "(the text is not kept any more)"
_UNKNOWN = SessionRow(session_id=SessionId("gone"), kind="sdk", conversation="")


def session_view(state: HubState, row: SessionRow) -> SessionView:
    """Return a session as it is shown."""
    shown = mask_for(state, row)
    header = redaction_header(state, row)
    row = shown_session(row, shown)
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
        task=_masked(live.task, shown) if live else None,
        model=_masked(live.model, shown) if live else None,
        usage=_masked(live.usage, shown) if live else None,
        activity=_masked(live.activity, shown) if live else None,
        last_text=_masked(live.last_text, shown) if live else None,
        since_ms=row.started_ms,
        record_path=None if row.record_path is None else sendable(row.record_path),
        takes_text=row.kind != "hosted" and status == "attached",
        redaction=header[0][1] if header else None,
        tags=row.tags,
        asks=row.asks,
        waiting=len(flood.back) if (flood := state.floods.get(row.session_id)) else 0,
    )


def waits(state: HubState, row: AskRow) -> bool:
    """Tell whether an open ask waits until fewer of its session's asks are shown."""
    flood = state.floods.get(row.session_id)
    return flood is not None and row.ask_id in flood.back


def _masked(text: str | None, shown: Mask) -> str | None:
    return None if text is None else shown(text)


def ask_view(state: HubState, row: AskRow, session: SessionRow | None = None) -> AskView:
    """Return an ask as it is shown."""
    session = state.session(row.session_id) or session or _UNKNOWN
    _, hidden = shown_spec(state, row, session)
    note = standing_words(state, row)
    row = shown_ask(state, row, session)
    spec = row.spec
    permission = spec.ask_class == "permission"
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
        recommended=None if permission else spec.recommended,
        default=spec.default,
        deadline_ms=row.deadline_ms,
        held=row.held_s is not None,
        outcome=row.outcome,
        answer=row.answer,
        answered_by=row.answered_by,
        closed_ms=row.closed_ms,
        can_decline=declinable,
        can_hold=declinable and (row.deadline_ms is not None or row.held_s is not None),
        can_withdraw=row.state == "open"
        and any(vote.here for vote in state.votes.get(row.ask_id, {}).values()),
        note=note,
        secret=spec.secret,
        waiting=waits(state, row),
        burst=row.course.burst,
        hidden_chars=hidden if permission else 0,
    )
    view = with_shown(view)
    burst = burst_words(row)
    return replaced(view, warnings=(burst, *view.warnings)) if burst else view


def channel_views(state: HubState, ask_id: AskId | None) -> list[ChannelView]:
    """Return where an ask (or, without one, anything) can be seen, and whether that is true."""
    views = []
    ask_id = None if ask_id is None else stands_for(state, ask_id)
    asked = state.asks.get(ask_id) if ask_id is not None else None
    for info in state.settings.channels:
        if asked is not None and asked.spec.secret and not info.capabilities.secrets:
            continue
        if ask_id is not None and not _belongs(state, info.name, ask_id):
            continue
        live = state.channels[info.name]
        status, reason = "delivered", live.reason
        if not live.hearing:
            status = "down"
        elif ask_id is not None and ask_id in state.asks and not _shows(state, info, ask_id):
            status = "sending"
            plan = state.plans.get(ask_id)
            if plan is not None and info.name in plan.later:
                status, reason = "later", later_words(plan, state.settings.zone)
            elif asked is not None and waits(state, asked):
                status, reason = "later", WAITING_WORDS
            elif not state.is_posting(ask_id, info.name):
                status, reason = "down", "the card could not be posted"
        views.append(
            ChannelView(
                name=info.name,
                state=status,
                audience=live.audience,
                signed_in=live.signed_in,
                reason=reason,
                heard_ms=live.heard_ms,
                event_ms=live.event_ms,
                deaf_since_ms=live.deaf_since_ms,
            )
        )
    return views


def is_shown(state: HubState, ask_id: AskId) -> bool:
    """Tell whether a place that hears shows the ask, or draws it for whoever looks."""
    ask_id = stands_for(state, ask_id)
    return any(
        state.channels[info.name].hearing and _shows(state, info, ask_id)
        for info in state.settings.channels
    )


def shows_there(state: HubState, channel: str, row: AskRow) -> bool:
    """Tell whether a channel that draws asks by itself draws this one."""
    return row.course.merged_into is None and _belongs(state, channel, row.ask_id)


def _belongs(state: HubState, channel: str, ask_id: AskId) -> bool:
    """Tell whether an ask is shown on a channel, or will be, or was before it moved."""
    plan = state.plans.get(ask_id)
    if plan is None:
        return True
    return (
        channel in plan.show or channel in plan.later or channel in state.cards.get(ask_id, ())
    )


def _shows(state: HubState, info: ChannelInfo, ask_id: AskId) -> bool:
    shown = state.cards.get(ask_id, {}).get(info.name)
    if shown is None:
        return info.capabilities.draws_asks and _belongs(state, info.name, ask_id)
    return shown.ref is not None


def notice_view(
    state: HubState, row: NoticeRow, session: SessionRow | None = None
) -> NoticeView:
    """Return a notice as it is shown, with the name of the session that it is from."""
    shown = mask_for(state, session)
    session = None if session is None else shown_session(session, shown)
    return NoticeView(
        id=row.id,
        session_id=row.session_id,
        kind=row.kind,
        text=shown(row.text),
        at_ms=row.at_ms,
        file_id=row.file_id,
        file_name=_masked(row.file_name, shown),
        mime=row.mime,
        title=(session.title or session.program) if session is not None else None,
        repo=session.repo if session is not None else None,
    )
