"""Forgetting: texts go, and the audit's lines stay, with one more that says so."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from upcall.hub.store.rows import RowWriter
from upcall.model.ask import AskSpec
from upcall.model.ids import AskId, SessionId
from upcall.model.rows import AuditRow

NO_TEXT: Final = msgspec.json.encode(AskSpec(question="")).decode()
FORGOTTEN: Final = "forgotten"
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be forgotten; exactly one of them.

    Attributes:
        asks: these asks.
        conversation: all of this conversation, and its sessions' names.
        before_ms: all asks that closed, and notices that were told, before this time.
    """

    asks: tuple[AskId, ...] = ()
    conversation: str | None = None
    before_ms: int | None = None


@dataclass(slots=True)
class Forgotten:
    """What was, or would be, forgotten.

    Attributes:
        asks: closed asks that still had a text.
        open: open asks that fit; they keep it.
        sessions: sessions that have ended, whose names and files go.
        notices: how many notices.
    """

    asks: list[AskId] = field(default_factory=list)
    open: list[AskId] = field(default_factory=list)
    sessions: list[SessionId] = field(default_factory=list)
    notices: int = 0


def find(connection: sqlite3.Connection, wanted: Wanted) -> Forgotten:
    """Return what *wanted* fits."""
    found = Forgotten()
    where, values = _where(wanted)
    for public_id, state, body in connection.execute(
        "SELECT a.public_id, a.state, a.body FROM ask a"  # noqa: S608 - all words are ours
        " JOIN session s ON s.id = a.session"
        f" WHERE {where} ORDER BY a.raised_ms, a.id",
        values,
    ):
        if state != "closed":
            found.open.append(AskId(public_id))
        elif body != NO_TEXT:
            found.asks.append(AskId(public_id))
    if wanted.asks:
        return found
    found.sessions = [
        SessionId(row[0]) for row in connection.execute(*_sessions(wanted, "session_id"))
    ]
    notices = f"SELECT count(*) FROM notice WHERE {_notices(wanted)} AND text <> ''"  # noqa: S608
    (found.notices,) = connection.execute(notices, _value(wanted)).fetchone()
    return found


def forget(
    connection: sqlite3.Connection, writer: RowWriter, wanted: Wanted, now_ms: int
) -> Forgotten:
    """Erase the texts, inside a transaction that the caller holds."""
    found = find(connection, wanted)
    for some in _slices(found.asks):
        _erase_asks(connection, some)
    for ask_id in found.asks:
        row = connection.execute(
            "SELECT s.session_id FROM ask a JOIN session s ON s.id = a.session"
            " WHERE a.public_id = ?",
            (ask_id,),
        ).fetchone()
        _say(writer, now_ms, ask_id, SessionId(row[0]))
    if wanted.asks:
        return found
    connection.execute(
        "UPDATE notice SET text = '', file_id = NULL, file_name = NULL, mime = NULL"  # noqa: S608
        f" WHERE {_notices(wanted)}",
        _value(wanted),
    )
    inner, values = _sessions(wanted, "id")
    connection.execute(
        "UPDATE session SET title = NULL, repo = NULL, branch = NULL, cwd = NULL,"  # noqa: S608
        f" program = NULL, record_path = NULL, tags = '[]' WHERE id IN ({inner})",
        values,
    )
    if wanted.conversation is not None and not found.open:
        _rename(connection, wanted.conversation)
    for session_id in found.sessions:
        _say(writer, now_ms, None, session_id)
    return found


def has_conversation(connection: sqlite3.Connection, key: str) -> bool:
    """Tell whether any session was ever in this conversation."""
    row = connection.execute("SELECT 1 FROM session WHERE conversation_key = ?", (key,))
    return row.fetchone() is not None


def _rename(connection: sqlite3.Connection, conversation: str) -> None:
    """A conversation that nobody is in any more loses its name, which a person chose."""
    living = connection.execute(
        "SELECT 1 FROM session WHERE conversation_key = ? AND ended_ms IS NULL", (conversation,)
    ).fetchone()
    if living is not None:
        return
    connection.execute(
        "UPDATE session SET conversation_key = session_id WHERE conversation_key = ?",
        (conversation,),
    )
    connection.execute("DELETE FROM conversation WHERE key = ?", (conversation,))
    connection.execute("DELETE FROM verbosity WHERE conversation = ?", (conversation,))
    # What the hub keeps for a conversation by its name, such as whether it masks there.
    connection.execute("DELETE FROM cursor WHERE name = ?", (conversation,))
    connection.execute(
        "UPDATE card SET place = '' WHERE place = ? AND id IN (SELECT min(id) FROM card"
        " WHERE place = ? GROUP BY ask, channel)",
        (conversation, conversation),
    )
    for table in ("card_copy", "held_text", "hub_button"):
        connection.execute(f"DELETE FROM {table} WHERE place = ?", (conversation,))  # noqa: S608
    connection.execute("UPDATE retired_token SET place = '' WHERE place = ?", (conversation,))
    connection.execute(
        "UPDATE delivery SET place = '' WHERE place = ? AND state IN ('done', 'dead')",
        (conversation,),
    )
    connection.execute(
        "UPDATE delivery SET conversation = '', effect = 'forgotten:' || id"
        " WHERE conversation = ? AND state IN ('done', 'dead')",
        (conversation,),
    )


def _erase_asks(connection: sqlite3.Connection, asks: Sequence[AskId]) -> None:
    marks = ", ".join("?" * len(asks))
    ids = f"(SELECT id FROM ask WHERE public_id IN ({marks}))"  # noqa: S608 - marks only
    run = connection.execute
    for table in ("claim", "vote"):
        run(f"UPDATE {table} SET answer = NULL WHERE ask IN {ids}", asks)  # noqa: S608
    deliveries = f"(SELECT id FROM delivery WHERE ask IN {ids})"  # noqa: S608
    run(f"UPDATE attempt SET error = NULL WHERE delivery IN {deliveries}", asks)  # noqa: S608
    run(f"UPDATE delivery SET body = x'', error = NULL WHERE ask IN {ids}", asks)  # noqa: S608
    run(
        "UPDATE ask SET body = ?, answer = NULL, rerun_key = NULL, note = ''"  # noqa: S608
        f" WHERE id IN {ids}",
        (NO_TEXT, *asks),
    )


def _say(writer: RowWriter, now_ms: int, ask_id: AskId | None, session_id: SessionId) -> None:
    writer.write(
        AuditRow(at_ms=now_ms, event=FORGOTTEN, ask_id=ask_id, session_id=session_id, facts={})
    )


def _where(wanted: Wanted) -> tuple[str, tuple[str | int, ...]]:
    if wanted.conversation is not None:
        return "s.conversation_key = ?", (wanted.conversation,)
    if wanted.before_ms is not None:
        # Open ones are listed too: what they say stays, and the person should know.
        return "coalesce(a.closed_ms, a.raised_ms) < ?", (wanted.before_ms,)
    return f"a.public_id IN ({', '.join('?' * len(wanted.asks))})", tuple(wanted.asks)


def _sessions(wanted: Wanted, column: str) -> tuple[str, tuple[str | int, ...]]:
    fits = "conversation_key = ?" if wanted.conversation is not None else "ended_ms < ?"
    return (
        f"SELECT {column} FROM session WHERE {fits} AND ended_ms IS NOT NULL AND id NOT IN"  # noqa: S608
        " (SELECT session FROM ask WHERE state <> 'closed')",
        _value(wanted),
    )


def _notices(wanted: Wanted) -> str:
    if wanted.conversation is not None:
        return "session IN (SELECT id FROM session WHERE conversation_key = ?)"
    return "at_ms < ?"


def _value(wanted: Wanted) -> tuple[str | int, ...]:
    value = wanted.conversation if wanted.conversation is not None else wanted.before_ms
    return () if value is None else (value,)


def _slices(asks: Sequence[AskId]) -> Iterable[Sequence[AskId]]:
    return (asks[start : start + _AT_ONCE] for start in range(0, len(asks), _AT_ONCE))
