"""What is removed for its age: texts first, then whole rows, and the audit's oldest lines."""

import sqlite3
from typing import Final

import msgspec

from upcall.hub.store.erase import NO_TEXT
from upcall.hub.store.read import DAY_MS
from upcall.hub.store.rows import AUDIT_CUT, CHAIN_ENCODING

TEXT_DAYS: Final = 30
AUDIT_DAYS: Final = 400
INBOUND_KEPT_DAYS: Final = 7
TOKEN_DAYS: Final = 90
"""How long a button of what is over is told from one that was never ours."""

_OLD_ASKS: Final = "(SELECT id FROM ask WHERE state = 'closed' AND closed_ms < ?)"


def retain(
    connection: sqlite3.Connection,
    now_ms: int,
    *,
    text_days: int,
    audit_days: int,
) -> int:
    """Remove what is too old, inside a transaction that the caller holds.

    The newest row of a table whose ids the kernel counts is never removed, so that an id is
    never given twice.

    Returns:
        The number of the newest line of the audit that was removed just now, 0 if none was.
    """
    text_ms = now_ms - text_days * DAY_MS
    audit_ms = now_ms - audit_days * DAY_MS
    run = connection.execute
    run(
        "UPDATE ask SET body = ?, answer = NULL, rerun_key = NULL, note = ''"
        " WHERE state = 'closed' AND closed_ms < ? AND body <> ?",
        (NO_TEXT, text_ms, NO_TEXT),
    )
    for table in ("claim", "vote"):
        run(f"UPDATE {table} SET answer = NULL WHERE ask IN {_OLD_ASKS}", (text_ms,))  # noqa: S608
    old_deliveries = (
        "state IN ('done', 'dead') AND created_ms < ? AND id < (SELECT max(id) FROM delivery)"
    )
    doomed = f"(SELECT id FROM delivery WHERE {old_deliveries})"  # noqa: S608
    run(f"DELETE FROM attempt WHERE delivery IN {doomed}", (text_ms,))  # noqa: S608
    run(f"DELETE FROM delivery WHERE {old_deliveries}", (text_ms,))  # noqa: S608
    # The newest one stays for its number, without its bytes.
    run(
        "UPDATE attempt SET error = NULL WHERE error IS NOT NULL AND delivery IN"
        " (SELECT id FROM delivery WHERE state IN ('done', 'dead') AND created_ms < ?)",
        (text_ms,),
    )
    run(
        "UPDATE delivery SET body = x'', error = NULL"
        " WHERE state IN ('done', 'dead') AND created_ms < ? AND length(body) > 0",
        (text_ms,),
    )
    run("DELETE FROM notice WHERE at_ms < ? AND id < (SELECT max(id) FROM notice)", (text_ms,))
    run(
        "UPDATE notice SET text = '', file_id = NULL, file_name = NULL, mime = NULL"
        " WHERE at_ms < ? AND text <> ''",
        (text_ms,),
    )
    run("DELETE FROM held_text WHERE at_ms < ?", (text_ms,))
    run(
        "DELETE FROM inbound WHERE at_ms < ? AND id < (SELECT max(id) FROM inbound)",
        (now_ms - INBOUND_KEPT_DAYS * DAY_MS,),
    )
    run("DELETE FROM retired_token WHERE retired_ms < ?", (now_ms - TOKEN_DAYS * DAY_MS,))
    run("DELETE FROM web_login WHERE expires_ms < ?", (now_ms,))
    run("DELETE FROM gate WHERE closed_until_ms < ?", (now_ms,))
    _remove_asks(connection, audit_ms)
    return _cut_audit(connection, audit_ms)


def _remove_asks(connection: sqlite3.Connection, before_ms: int) -> None:
    run = connection.execute
    # An ask that something is still to be delivered about, or whose delivery bears the
    # newest id, stays for another time.
    old = f"{_OLD_ASKS[:-1]} EXCEPT SELECT ask FROM delivery WHERE ask IS NOT NULL)"  # noqa: S608
    for table in ("claim", "vote", "card", "card_copy", "token"):
        run(f"DELETE FROM {table} WHERE ask IN {old}", (before_ms,))  # noqa: S608
    run(f"DELETE FROM ask WHERE id IN {old}", (before_ms,))  # noqa: S608
    run(
        "DELETE FROM session WHERE ended_ms < ?"
        " AND id NOT IN (SELECT session FROM ask)"
        " AND id NOT IN (SELECT session FROM notice)",
        (before_ms,),
    )


def _cut_audit(connection: sqlite3.Connection, before_ms: int) -> int:
    """Replace the lines before the first one that is young enough by one with their hash."""
    last = connection.execute(
        "SELECT id, at_ms, hash, event FROM audit WHERE id < coalesce("
        "(SELECT min(id) FROM audit WHERE at_ms >= ? AND event <> ?),"
        " (SELECT max(id) + 1 FROM audit)) ORDER BY id DESC LIMIT 1",
        (before_ms, AUDIT_CUT),
    ).fetchone()
    if last is None or last[3] == AUDIT_CUT:
        return 0
    number, at_ms, kept, _ = last
    facts = msgspec.json.encode({"last_hash": bytes(kept).hex(), "lines": number}).decode()
    connection.execute("DELETE FROM audit WHERE id <= ?", (number,))
    connection.execute(
        "INSERT INTO audit (id, encoding, at_ms, event, facts, hash) VALUES (?, ?, ?, ?, ?, ?)",
        (number, CHAIN_ENCODING, at_ms, AUDIT_CUT, facts, kept),
    )
    return int(number)
