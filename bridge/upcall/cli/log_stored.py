"""`upcall log` while no hub runs: the same lines, read from the database."""

from __future__ import annotations

from upcall.cli import screen
from upcall.cli.errors import Usage
from upcall.core.ledger import plain
from upcall.core.redact import mask
from upcall.hub.store import audit
from upcall.hub.store.peek import reading
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def stored(wanted: dict[str, Any], limit: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the newest *limit* lines, oldest first, and the head.

    Args:
        wanted: `ask`, `session` and `since_ms`, each of them only if it was given.
        limit: at most so many.

    Raises:
        Usage: no such question or session.
        StoreError: the database cannot be read.
    """
    with reading(paths.db_path(paths.state_dir())) as connection:
        name, session = wanted.get("ask"), wanted.get("session")
        asks = None if name is None else _known_asks(name, audit.asks_named(connection, name))
        sessions = None
        if session is not None:
            sessions = audit.sessions_named(connection, session)
            if not sessions:
                shown = screen.in_quotes(session, 60)
                raise Usage(f"no session {shown} is known", code="unknown_session")
        found = audit.lines(
            connection,
            audit.Wanted(
                asks=asks,
                sessions=sessions,
                since_ms=wanted.get("since_ms"),
                limit=limit,
            ),
            mask,
        )
        rows, digest, at_ms = audit.head(connection)
    return [plain(line) for line in found], {"rows": rows, "hash": digest, "at_ms": at_ms}


def _known_asks(name: str, asks: tuple[str, ...]) -> tuple[str, ...]:
    shown = screen.in_quotes(name, 60)
    if not asks:
        raise Usage(f"no ask {shown} is known", code="unknown_ask")
    if len(asks) > 1 and any(one.startswith(name) for one in asks):
        raise Usage(
            f"{shown} names {len(asks)} asks",
            "give the whole id of the one you mean",
            "ambiguous_ask",
        )
    return asks
