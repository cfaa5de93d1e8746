"""The audit's lines as they are read, with what the tables still know about them."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from upcall.core.render import selection_words
from upcall.core.story import About, words
from upcall.hub.store.erase import NO_TEXT
from upcall.model.ask import AskSpec, Selection
from upcall.model.log import LogLine
from upcall.model.text import one_line

MAX_LINES: Final = 10_000
_IDS_AT_ONCE: Final = 500
_ASK_ID: Final = re.compile(r"a[0-9a-z]{3,12}")

_spec: Final = msgspec.json.Decoder(AskSpec)
_selection: Final = msgspec.json.Decoder(Selection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines are read.

    Attributes:
        asks: of these asks only, by public id; None: of any.
        sessions: of these sessions only, by id; None: of any.
        since_ms: not older than this.
        after: only lines with a greater number.
        before: only lines with a smaller number.
        limit: at most so many, the newest; those after `after` from the oldest on.
    """

    asks: tuple[str, ...] | None = None
    sessions: tuple[str, ...] | None = None
    since_ms: int | None = None
    after: int | None = None
    before: int | None = None
    limit: int = 200


@dataclass(slots=True)
class _Known:
    """What the tables know of the asks and sessions that some lines are about."""

    specs: dict[str, AskSpec | None] = field(default_factory=dict)
    answers: dict[str, Selection] = field(default_factory=dict)
    claims: dict[int, Selection] = field(default_factory=dict)
    votes: dict[int, Selection] = field(default_factory=dict)
    sessions: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)


def lines(
    connection: sqlite3.Connection, wanted: Wanted, mask: Callable[[str], str]
) -> list[LogLine]:
    """Return lines of the audit, oldest first, each told in words.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    where: list[str] = []
    values: list[str | int] = []
    for column, ids in (("ask_id", wanted.asks), ("session_id", wanted.sessions)):
        if ids is not None:
            where.append(f"{column} IN ({', '.join('?' * len(ids))})")
            values += ids
    if wanted.since_ms is not None:
        where.append("at_ms >= ?")
        values.append(wanted.since_ms)
    if wanted.after is not None:
        where.append("id > ?")
        values.append(wanted.after)
    if wanted.before is not None:
        where.append("id < ?")
        values.append(wanted.before)
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    order = "DESC" if wanted.after is None else "ASC"
    with any_bytes(connection):
        found = connection.execute(
            "SELECT id, at_ms, event, ask_id, session_id, facts, hash FROM audit"  # noqa: S608
            f"{condition} ORDER BY id {order} LIMIT ?",
            (*values, min(wanted.limit, MAX_LINES)),
        ).fetchall()
    if wanted.after is None:
        found.reverse()
    return _told(connection, found, mask)


@contextmanager
def any_bytes(connection: sqlite3.Connection) -> Iterator[None]:
    """Read text of any bytes: whoever changed the file may have left anything in it."""
    former = connection.text_factory
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        connection.text_factory = former


def head(connection: sqlite3.Connection) -> tuple[int, str, int | None]:
    """Return number, hash (hex) and time of the newest line; 0 and nothing without one."""
    row = connection.execute(
        "SELECT id, hash, at_ms FROM audit ORDER BY id DESC LIMIT 1"
    ).fetchone()
    return (0, "", None) if row is None else (row[0], bytes(row[1]).hex(), row[2])


def sessions_named(connection: sqlite3.Connection, name: str) -> tuple[str, ...]:
    """Return the ids of the sessions that *name* means: an id, or a conversation's name."""
    return tuple(
        row[0]
        for row in connection.execute(
            "SELECT session_id FROM session WHERE session_id = ? OR conversation_key IN (?, ?)",
            (name, name, f"n:{name}"),
        )
    )


def asks_named(connection: sqlite3.Connection, name: str) -> tuple[str, ...]:
    """Return the ids of the asks that *name* means: an id or its beginning, an action id.

    Lines outlive the row of their ask, so they are looked through as well.
    """
    found = connection.execute(
        "SELECT public_id FROM ask WHERE public_id = ? OR action_id = ? ORDER BY id",
        (name, name),
    ).fetchall()
    if not found and _ASK_ID.fullmatch(name):
        for table, column in (("ask", "public_id"), ("audit", "ask_id")):
            found = connection.execute(
                f"SELECT DISTINCT {column} FROM {table}"  # noqa: S608 - names of ours
                f" WHERE {column} >= ? AND {column} < ? LIMIT 20",
                (name, name + "\U0010ffff"),
            ).fetchall()
            if found:
                break
    return tuple(row[0] for row in found)


def _told(
    connection: sqlite3.Connection, found: Sequence[Any], mask: Callable[[str], str]
) -> list[LogLine]:
    known = _known(
        connection,
        {row[3] for row in found if row[3] is not None},
        {row[4] for row in found if row[4] is not None},
    )
    told = []
    for number, at_ms, event, ask_id, session_id, text, digest in found:
        facts = _facts(text)
        about = _about(known, event, ask_id, session_id, facts, mask)
        told.append(
            LogLine(
                row=number,
                at_ms=at_ms,
                event=event,
                ask=ask_id,
                session=session_id,
                facts=facts,
                words=words(event, facts, about),
                hash=bytes(digest).hex(),
                question=about.question if event == "raised" else None,
                answer=about.answer,
                program=about.program,
                place=about.place,
            )
        )
    return told


def _facts(text: str) -> dict[str, Any]:
    # Whoever changed a line may have left anything there; it is still shown.
    try:
        facts = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        facts = None
    return facts if isinstance(facts, dict) else {"unreadable": one_line(text, 200)}


def _about(
    known: _Known,
    event: str,
    ask_id: str | None,
    session_id: str | None,
    facts: dict[str, Any],
    mask: Callable[[str], str],
) -> About:
    said = known.sessions.get(session_id or "", (None, None))
    program, place = (None if text is None else mask(text) for text in said)
    spec = known.specs.get(ask_id or "")
    question = None if spec is None else mask(spec.question)
    chosen: Selection | None = None
    if event in {"claimed", "voted"}:
        inbound = facts.get("inbound")
        said_by = known.claims if event == "claimed" else known.votes
        chosen = said_by.get(inbound) if isinstance(inbound, int) else None
    elif event == "closed":
        chosen = known.answers.get(ask_id or "")
    answer = None if chosen is None else selection_words(chosen, mask)
    return About(program=program, place=place, question=question, answer=answer or None)


def _known(connection: sqlite3.Connection, asks: set[str], sessions: set[str]) -> _Known:
    known = _Known()
    # A database that no hub of this version has opened yet lacks the newer ones.
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    for some in _slices(sorted(asks)):
        marks = ", ".join("?" * len(some))
        for public_id, body, answer in connection.execute(
            f"SELECT public_id, body, answer FROM ask WHERE public_id IN ({marks})",  # noqa: S608
            some,
        ):
            known.specs[public_id] = None if body == NO_TEXT else _decoded(_spec, body)
            selection = _decoded(_selection, answer)
            if selection is not None:
                known.answers[public_id] = selection
        for table, kept in (("claim", known.claims), ("vote", known.votes)):
            if table not in tables:
                continue
            for inbound, answer in connection.execute(
                f"SELECT c.inbound, c.answer FROM {table} c"  # noqa: S608 - names of ours
                " JOIN ask a ON a.id = c.ask"
                f" WHERE c.answer IS NOT NULL AND a.public_id IN ({marks})",
                some,
            ):
                selection = _decoded(_selection, answer)
                if selection is not None:
                    kept[inbound] = selection
    for some in _slices(sorted(sessions)):
        marks = ", ".join("?" * len(some))
        for session_id, program, repo, title in connection.execute(
            "SELECT session_id, program, repo, title FROM session"  # noqa: S608
            f" WHERE session_id IN ({marks})",
            some,
        ):
            known.sessions[session_id] = (program, repo or title)
    return known


def _decoded(decoder: Any, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _slices(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (ids[start : start + _IDS_AT_ONCE] for start in range(0, len(ids), _IDS_AT_ONCE))
