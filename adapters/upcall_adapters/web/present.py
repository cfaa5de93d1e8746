"""The hub's view as JSON for pages: every foreign character visible, nothing else added.

Agent text goes out with visible escapes for characters that hide or turn text. Answers
come back by index and revision, so the labels here are for eyes only.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from upcall.model.ask import WITHHELD, AnsweredBy, AskResult, Selection
from upcall.model.platform import Receipt
from upcall.model.shown import with_shown
from upcall.model.text import one_line, visible
from upcall.model.views import AskView, ChannelView, HealthView, NoticeView, SessionView
from upcall_adapters.web.destructive import looks_destructive

DETAIL_SHOWN_CHARS: Final = 8_000
DETAIL_CUT_CHARS: Final = 4_000
MAX_ASKS: Final = 200
MAX_NOTICES: Final = 40


def _line(text: str | None, limit_chars: int = 300) -> str | None:
    return None if text is None else one_line(text, limit_chars)


def _block(text: str | None) -> str | None:
    return None if text is None else visible(text, newlines=True)


def _options(ask: AskView) -> list[dict[str, Any]]:
    details = ask.option_details or ()
    is_numbered = any(ask.label_notes)
    return [
        {
            "label": visible(label),
            "shown": shown,
            "number": at + 1 if is_numbered else None,
            "note": note or None,
            "detail": _block(details[at]) if at < len(details) else None,
            "allows": at in ask.allows,
        }
        for at, (label, shown, note) in enumerate(
            zip(ask.options, ask.labels_shown, ask.label_notes, strict=True)
        )
    ]


def _session(session: SessionView) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "kind": session.kind,
        "state": session.state,
        "title": _line(session.title),
        "repo": _line(session.repo),
        "branch": _line(session.branch),
        "machine": _line(session.machine),
        "cwd": _line(session.cwd),
        "program": _line(session.program),
        "pid": session.pid,
        "task": _line(session.task),
        "model": _line(session.model),
        "usage": _line(session.usage),
        "activity": _line(session.activity),
        "last_text": None if session.last_text is None else _cut(session.last_text)[0],
        "since_ms": session.since_ms,
        "takes_text": session.takes_text,
        "redaction": _line(session.redaction),
    }


def _cut(text: str) -> tuple[str, int]:
    """Return *text* visible and cut for a list, and how many characters are not shown."""
    if len(text) <= DETAIL_SHOWN_CHARS:
        return visible(text, newlines=True), 0
    return visible(text[:DETAIL_CUT_CHARS], newlines=True), len(text) - DETAIL_CUT_CHARS


def _selection(selection: Selection | None) -> dict[str, Any] | None:
    if selection is None:
        return None
    return {
        "indices": selection.indices,
        "labels": [visible(label) for label in selection.labels],
        "text": WITHHELD if selection.secret is True else _block(selection.text),
    }


def _by(by: AnsweredBy | None) -> dict[str, Any] | None:
    if by is None:
        return None
    found = {"name": _line(by.name), "channel": _line(by.channel)}
    # Of a program on this computer the kernel's facts; a person has none.
    return {**found, "detail": _line(by.detail)} if by.detail else found


def ask_json(ask: AskView, *, whole: bool = False) -> dict[str, Any]:
    """Return one ask for a page; long detail only if *whole*, else cut and counted."""
    if len(ask.labels_shown) != len(ask.options):
        ask = with_shown(ask)
    detail, hidden = (None, 0) if ask.detail is None else _cut(ask.detail)
    if whole and ask.detail is not None:
        detail, hidden = visible(ask.detail, newlines=True), 0
    return {
        "id": ask.id,
        "state": ask.state,
        "class": ask.ask_class,
        "question": _block(ask.question),
        "detail": detail,
        "detail_hidden": hidden,
        "hidden_chars": ask.hidden_chars,
        "options": _options(ask),
        "warnings": list(ask.warnings),
        "multi": ask.multi,
        "min_selected": ask.min_selected,
        "max_selected": ask.max_selected,
        "free_text": ask.free_text,
        "recommended": None if ask.ask_class == "permission" else ask.recommended,
        "default": _line(ask.default),
        "deadline_ms": ask.deadline_ms,
        "held": ask.held,
        "revision": ask.revision,
        "raised_ms": ask.raised_ms,
        "session": _session(ask.session),
        "outcome": ask.outcome,
        "answer": _selection(ask.answer),
        "answered_by": _by(ask.answered_by),
        "closed_ms": ask.closed_ms,
        "can_decline": ask.can_decline,
        "can_hold": ask.can_hold,
        "can_withdraw": ask.can_withdraw,
        "note": _line(ask.note),
        "secret": ask.secret,
        "destructive": looks_destructive(ask),
        "waiting": ask.waiting,
        "burst": ask.burst,
    }


def _notice(notice: NoticeView) -> dict[str, Any]:
    text, hidden = _cut(notice.text)
    return {
        "id": notice.id,
        "session_id": notice.session_id,
        "title": _line(notice.title),
        "repo": _line(notice.repo),
        "kind": _line(notice.kind),
        "text": text,
        "hidden": hidden,
        "at_ms": notice.at_ms,
        "file_id": notice.file_id,
        "file_name": None if notice.file_name is None else file_name(notice.file_name),
    }


def _channel(channel: ChannelView) -> dict[str, Any]:
    return {
        "name": _line(channel.name),
        "state": channel.state,
        "audience": channel.audience,
        "reason": _line(channel.reason),
        "heard_ms": channel.heard_ms,
    }


def state_json(
    *,
    asks: Sequence[AskView],
    sessions: Sequence[SessionView],
    notices: Sequence[NoticeView],
    health: HealthView,
    about: Mapping[str, Any],
) -> bytes:
    """Return everything a page shows, as one JSON document."""
    # What waits behind others of its session must not push those of others off the page.
    asks = sorted(asks, key=lambda ask: ask.waiting)
    document: dict[str, Any] = {
        **about,
        "asks": [ask_json(ask) for ask in asks[:MAX_ASKS]],
        "more_asks": max(0, len(asks) - MAX_ASKS),
        "sessions": [
            {**_session(one), "asks": one.asks, "waiting": one.waiting} for one in sessions
        ],
        "notices": [_notice(notice) for notice in notices],
        "channels": [_channel(channel) for channel in health.channels],
        "ready": health.ready,
        "degraded": [
            {"code": one.code, "msg": _line(one.msg, 600), "recover": _line(one.recover, 600)}
            for one in health.degraded
        ],
    }
    return msgspec.json.encode(document)


def result_json(result: AskResult | None) -> dict[str, Any] | None:
    """Return how an ask stands, for a page."""
    if result is None:
        return None
    return {
        "id": result.id,
        "outcome": result.outcome,
        "answer": _selection(result.answer),
        "answered_by": _by(result.answered_by),
        "waited_s": result.waited_s,
        "reason": _line(result.reason),
    }


def receipt_json(receipt: Receipt) -> dict[str, Any]:
    """Return what became of an answer or message."""
    return {
        "ok": receipt.ok,
        "code": receipt.code,
        "msg": _line(receipt.msg, 600),
        "result": result_json(receipt.result),
    }


def file_name(name: str) -> str:
    """Return *name* as one path component that no system and no reader mistakes."""
    last = name.replace("\\", "/").rpartition("/")[2]
    kept = "".join(
        char
        for char in last
        if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} and char not in ':"'
    ).strip(" .")
    return kept[:120] or "file"
