"""Rows out of the tables: the snapshot that the kernel starts from, and history."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from upcall.hub.store.rows import AUDIT_CUT, CHAIN_START, chain_hash, token_digest
from upcall.model.ask import AnsweredBy, AskSpec, Selection
from upcall.model.ids import AskId, SessionId
from upcall.model.platform import LoginKept
from upcall.model.rows import (
    AskRow,
    CardRow,
    ClaimRow,
    ConversationRow,
    CopyRow,
    Course,
    DeliveryRow,
    HeldText,
    HubButton,
    InboundRow,
    LockRow,
    NoticeRow,
    PairingRow,
    RetiredToken,
    SessionRow,
    Snapshot,
    TokenRow,
    VoteRow,
)

DAY_MS: Final = 86_400_000
INBOUND_DAYS: Final = 1
KEY_DAYS: Final = 30
MAX_LIKE: Final = 20
MAX_DEAD: Final = 1000
MAX_FORMER: Final = 1000
_IDS_AT_ONCE: Final = 500

_spec = msgspec.json.Decoder(AskSpec)
_selection = msgspec.json.Decoder(Selection)
_answered_by = msgspec.json.Decoder(AnsweredBy)
_course = msgspec.json.Decoder(Course)
_tags = msgspec.json.Decoder(tuple[str, ...])

_SESSION: Final = (
    "SELECT s.session_id, s.kind, s.conversation_key, s.pid, s.pid_start, s.asker_pid,"
    " s.asker_start, s.title, s.repo, s.branch, s.machine, s.cwd, s.program, s.record_path,"
    " s.started_ms, s.ended_ms, s.tags, s.asks FROM session s"
)
_ASK: Final = (
    "SELECT a.public_id, s.session_id, a.action_id, a.state, a.body, a.revision, a.raised_ms,"
    " a.outcome, a.deadline_ms, a.deadline_boot_s, a.boot_id, a.held_s, a.handed_over,"
    " a.rerun_key, a.answer, a.answered_by, a.resolved_by, a.closed_ms, a.note,"
    " a.askers, a.course FROM ask a JOIN session s ON s.id = a.session"
)
_CLAIM: Final = (
    "SELECT a.public_id, c.operator, c.channel, c.inbound, c.reply_key, c.answer, c.declined,"
    " c.origin, c.at_ms, c.live, c.person FROM claim c JOIN ask a ON a.id = c.ask"
)
_VOTE: Final = (
    "SELECT a.public_id, v.person, v.channel, v.name, v.detail, v.answer, v.inbound, v.at_ms,"
    " v.here, v.uid FROM vote v JOIN ask a ON a.id = v.ask"
)
_CARD: Final = (
    "SELECT a.public_id, c.channel, c.place, c.ref, c.posted_ms, c.reminder"
    " FROM card c JOIN ask a ON a.id = c.ask"
)
_COPY: Final = (
    "SELECT a.public_id, c.channel, c.place, c.ref FROM card_copy c JOIN ask a ON a.id = c.ask"
)
_STORED: Final = (
    "SELECT s.session_id,"
    " coalesce((SELECT sum(length(n.text)) FROM notice n WHERE n.session = s.id), 0)"
    " + coalesce((SELECT sum(length(a.body)) FROM ask a WHERE a.session = s.id), 0)"
    " FROM session s WHERE s.ended_ms IS NULL"
)
_BUTTON: Final = (
    "SELECT t.token, a.public_id, t.channel, t.choice FROM token t JOIN ask a ON a.id = t.ask"
)
_DELIVERY: Final = (
    "SELECT d.id, d.effect, d.kind, d.lane, d.target, d.place, d.state, d.body, a.public_id,"
    " d.ref, d.attempt, d.not_before_ms, d.created_ms, d.error, d.conversation"
    " FROM delivery d LEFT JOIN ask a ON a.id = d.ask"
)
_NOTICE: Final = (
    "SELECT n.id, s.session_id, n.kind, n.text, n.at_ms, n.file_id, n.file_name, n.mime"
    " FROM notice n JOIN session s ON s.id = n.session"
)
# What is still to be delivered about an ask needs the ask, even if it is closed.
_WANTED: Final = (
    "(SELECT id FROM ask WHERE state <> 'closed' UNION"
    " SELECT ask FROM delivery WHERE state NOT IN ('done', 'dead') AND ask IS NOT NULL)"
)


def snapshot(connection: sqlite3.Connection, now_ms: int) -> Snapshot:
    """Return the open rows and what they need, as of one moment.

    Asks that are closed are included while something about them is still to be delivered,
    with their session, live claim and cards.

    Raises:
        sqlite3.Error: the file cannot be read.
        msgspec.ValidationError: a row is not what was written.
    """
    run = connection.execute
    run("BEGIN")
    try:
        wanted = f"IN {_WANTED}"
        return Snapshot(
            sessions=[
                _session(row)
                for row in run(
                    f"{_SESSION} WHERE s.id IN (SELECT id FROM session WHERE ended_ms IS NULL"  # noqa: S608
                    f" UNION SELECT session FROM ask WHERE id {wanted}) ORDER BY s.id"
                )
            ],
            asks=[
                _ask(row)
                for row in run(f"{_ASK} WHERE a.id {wanted} ORDER BY a.raised_ms, a.id")
            ],
            claims=[
                _claim(row)
                for row in run(f"{_CLAIM} WHERE c.live = 1 AND c.ask {wanted} ORDER BY c.id")
            ],
            inbound=[
                InboundRow(
                    id=row[0],
                    channel=row[1],
                    event_key=row[2],
                    content_key=row[3],
                    at_ms=row[4],
                )
                for row in run(
                    "SELECT id, channel, event_key, content_key, at_ms FROM inbound"
                    " WHERE at_ms >= ? ORDER BY id",
                    (now_ms - INBOUND_DAYS * DAY_MS,),
                )
            ],
            conversations=[
                ConversationRow(key=row[0], channel=row[1], place=row[2], state=row[3])
                for row in run(
                    "SELECT key, channel, place, state FROM conversation"
                    " WHERE state = 'open' ORDER BY id"
                )
            ],
            cards=[
                CardRow(
                    ask_id=row[0],
                    channel=row[1],
                    place=row[2],
                    ref=row[3],
                    posted_ms=row[4],
                    reminder=row[5],
                )
                for row in run(f"{_CARD} WHERE c.ask {wanted} ORDER BY c.id")
            ],
            copies=[
                CopyRow(ask_id=row[0], channel=row[1], place=row[2], ref=row[3])
                for row in run(f"{_COPY} WHERE c.ask {wanted} ORDER BY c.id")
            ],
            buttons=[
                HubButton(
                    token=row[0],
                    channel=row[1],
                    place=row[2],
                    kind=row[3],
                    subject=row[4],
                    ask_id=row[5],
                    ref=row[6],
                    at_ms=row[7],
                )
                for row in run(
                    "SELECT token, channel, place, kind, subject, ask, ref, at_ms"
                    " FROM hub_button ORDER BY id"
                )
            ],
            texts=[
                HeldText(
                    id=row[0],
                    channel=row[1],
                    place=row[2],
                    session_id=row[3],
                    event_key=row[4],
                    identity=row[5],
                    name=row[6],
                    text=row[7],
                    at_ms=row[8],
                )
                for row in run(
                    "SELECT id, channel, place, session, event_key, identity, name, text,"
                    " at_ms FROM held_text ORDER BY id"
                )
            ],
            stored=stored_bytes(connection),
            tokens=[
                TokenRow(token=row[0], ask_id=row[1], channel=row[2], choice=row[3])
                for row in run(f"{_BUTTON} WHERE t.ask {wanted} ORDER BY t.id")
            ],
            deliveries=[
                _delivery(row)
                for row in run(
                    f"{_DELIVERY} WHERE d.state NOT IN ('done', 'dead') ORDER BY d.id"
                )
            ],
            dead=[
                _delivery(row)
                for row in run(
                    f"{_DELIVERY} WHERE d.id IN (SELECT id FROM delivery WHERE state = 'dead'"  # noqa: S608
                    " AND kind NOT IN ('reply', 'message', 'hold')"
                    f" ORDER BY id DESC LIMIT {MAX_DEAD}) ORDER BY d.id"
                )
            ],
            former_places={
                (key, channel): place
                for key, channel, place in run(
                    "SELECT key, channel, place FROM conversation WHERE state = 'closed'"  # noqa: S608
                    f" ORDER BY id DESC LIMIT {MAX_FORMER}"
                )
            },
            gates=dict(run("SELECT scope, closed_until_ms FROM gate")),
            settings={
                (channel, name): value
                for channel, name, value in run("SELECT channel, name, value FROM cursor")
            },
            roots=[
                bytes(path).decode("utf-8", "surrogatepass")
                for (path,) in run("SELECT path FROM root ORDER BY id")
            ],
            keys=_keys(connection, now_ms),
            verbosities=dict(run("SELECT conversation, level FROM verbosity")),
            votes=[
                _vote(row)
                for row in run(f"{_VOTE} WHERE v.live = 1 AND v.ask {wanted} ORDER BY v.id")
            ],
            pairings=[
                _pairing(row)
                for row in run(
                    "SELECT name, channel, identity, roles, rights, at_ms, ask FROM pairing"
                    " ORDER BY id"
                )
            ],
            revoked=dict(run("SELECT name, at_ms FROM revoked")),
            lock=_lock(connection),
            last_inbound=_last(connection, "inbound"),
            last_delivery=_last(connection, "delivery"),
            last_notice=_last(connection, "notice"),
        )
    finally:
        run("COMMIT")


def _keys(connection: sqlite3.Connection, now_ms: int) -> dict[str, AskId]:
    since_ms = now_ms - KEY_DAYS * DAY_MS
    found = connection.execute(
        "SELECT rerun_key, public_id, raised_ms, id FROM ask"
        " WHERE rerun_key IS NOT NULL AND raised_ms >= ? UNION"
        " SELECT rerun_key, public_id, raised_ms, id FROM ask"
        " WHERE rerun_key IS NOT NULL AND state <> 'closed' ORDER BY 3, 4",
        (since_ms,),
    )
    # The newest ask with a key is the one that a re-run finds.
    return {key: AskId(public_id) for key, public_id, _, _ in found}


def _last(connection: sqlite3.Connection, table: str) -> int:
    (newest,) = connection.execute(f"SELECT max(id) FROM {table}").fetchone()  # noqa: S608
    return newest or 0


def stored_bytes(connection: sqlite3.Connection) -> dict[SessionId, int]:
    """Return how much is kept of each session that lives, in characters of text."""
    return {SessionId(one): size for one, size in connection.execute(_STORED)}


def retired(connection: sqlite3.Connection, token: str) -> RetiredToken | None:
    """Return what is known of a button that is over, by its token."""
    row = connection.execute(
        "SELECT ask, channel, place, retired_ms FROM retired_token WHERE digest = ?",
        (token_digest(token),),
    ).fetchone()
    if row is None:
        return None
    return RetiredToken(ask_id=row[0], channel=row[1], place=row[2], retired_ms=row[3])


def ask_of_card(
    connection: sqlite3.Connection, channel: str, place: str, ref: str
) -> AskRow | None:
    """Return the ask that the message *ref* of a chat and thread shows, in any state."""
    row = connection.execute(
        f"{_ASK} WHERE a.id = coalesce("  # noqa: S608 - all words are ours
        "(SELECT ask FROM card WHERE channel = ? AND ref = ? AND place = ?"
        " ORDER BY id DESC LIMIT 1),"
        " (SELECT ask FROM card_copy WHERE channel = ? AND ref = ? AND place = ?))",
        (channel, ref, place) * 2,
    ).fetchone()
    return None if row is None else _ask(row)


def closed_asks(
    connection: sqlite3.Connection, before_ms: int | None, limit: int
) -> list[AskRow]:
    """Return asks that closed before *before_ms* (None: any), newest first."""
    end_ms = before_ms if before_ms is not None else (1 << 63) - 1
    return [
        _ask(row)
        for row in connection.execute(
            f"{_ASK} WHERE a.state = 'closed' AND a.closed_ms < ?"
            " ORDER BY a.closed_ms DESC, a.id DESC LIMIT ?",
            (end_ms, limit),
        )
    ]


def ask(connection: sqlite3.Connection, ask_id: str) -> AskRow | None:
    """Return one ask in any state, by its public id."""
    row = connection.execute(f"{_ASK} WHERE a.public_id = ?", (ask_id,)).fetchone()
    return None if row is None else _ask(row)


def ask_ids(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the id of every ask."""
    for (public_id,) in connection.execute("SELECT public_id FROM ask"):
        yield public_id


def asks_like(connection: sqlite3.Connection, prefix: str) -> list[AskRow]:
    """Return at most 20 asks in any state whose public id starts with *prefix*."""
    return [
        _ask(row)
        for row in connection.execute(
            f"{_ASK} WHERE a.public_id >= ? AND a.public_id < ? ORDER BY a.public_id LIMIT ?",
            (prefix, prefix + "\U0010ffff", MAX_LIKE),
        )
    ]


def notices(connection: sqlite3.Connection, limit: int) -> list[NoticeRow]:
    """Return the newest notices of sessions, newest first."""
    return [
        NoticeRow(
            id=row[0],
            session_id=row[1],
            kind=row[2],
            text=row[3],
            at_ms=row[4],
            file_id=row[5],
            file_name=row[6],
            mime=row[7],
        )
        for row in connection.execute(f"{_NOTICE} ORDER BY n.id DESC LIMIT ?", (limit,))
    ]


def sessions_by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, SessionRow]:
    """Return the sessions among *ids* that are known, living or ended."""
    found = {}
    for start in range(0, len(ids), _IDS_AT_ONCE):
        some = ids[start : start + _IDS_AT_ONCE]
        marks = ", ".join("?" * len(some))
        for row in connection.execute(f"{_SESSION} WHERE s.session_id IN ({marks})", some):
            session = _session(row)
            found[str(session.session_id)] = session
    return found


def logins(connection: sqlite3.Connection, channel: str, now_ms: int) -> list[LoginKept]:
    """Return a channel's logins and codes that have not expired, oldest first."""
    return [
        LoginKept(digest=row[0], kind=row[1], data=row[2], expires_ms=row[3])
        for row in connection.execute(
            "SELECT digest, kind, data, expires_ms FROM web_login"
            " WHERE channel = ? AND expires_ms > ? ORDER BY id",
            (channel, now_ms),
        )
    ]


def audit_head(connection: sqlite3.Connection) -> bytes:
    """Return the hash of the newest audit line."""
    row = connection.execute("SELECT hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
    return CHAIN_START if row is None else bytes(row[0])


def audit_break(connection: sqlite3.Connection) -> int | None:
    """Return the id of the first audit line that does not follow from the one before it.

    None means that the chain holds. A tail that was cut off shows only against a head that
    was noted elsewhere.
    """
    previous, before = CHAIN_START, 0
    for number, at_ms, event, ask_id, session_id, facts, kept in connection.execute(
        "SELECT id, at_ms, event, ask_id, session_id, facts, hash FROM audit ORDER BY id"
    ):
        if before == 0 and event == AUDIT_CUT:
            previous, before = bytes(kept), number
            continue
        expected = chain_hash(previous, at_ms, event, (ask_id, session_id), facts)
        if number != before + 1 or bytes(kept) != expected:
            return int(number)
        previous, before = expected, number
    return None


def _session(row: Sequence[Any]) -> SessionRow:
    return SessionRow(
        session_id=row[0],
        kind=row[1],
        conversation=row[2],
        pid=row[3],
        pid_start=row[4],
        asker_pid=row[5],
        asker_start=row[6],
        title=row[7],
        repo=row[8],
        branch=row[9],
        machine=row[10],
        cwd=row[11],
        program=row[12],
        record_path=row[13],
        started_ms=row[14],
        ended_ms=row[15],
        tags=_tags.decode(row[16]),
        asks=row[17],
    )


def _ask(row: Sequence[Any]) -> AskRow:
    return AskRow(
        ask_id=row[0],
        session_id=row[1],
        action_id=row[2],
        state=row[3],
        spec=_spec.decode(row[4]),
        revision=row[5],
        raised_ms=row[6],
        outcome=row[7],
        deadline_ms=row[8],
        deadline_boot_s=row[9],
        boot_id=row[10],
        held_s=row[11],
        handed_over=bool(row[12]),
        key=row[13],
        answer=None if row[14] is None else _selection.decode(row[14]),
        answered_by=None if row[15] is None else _answered_by.decode(row[15]),
        resolved_by=row[16],
        closed_ms=row[17],
        note=row[18],
        askers=tuple(row[19].split()),
        course=_course.decode(row[20]),
    )


def _claim(row: Sequence[Any]) -> ClaimRow:
    return ClaimRow(
        ask_id=row[0],
        operator=row[1],
        channel=row[2],
        inbound=row[3],
        key=row[4],
        selection=None if row[5] is None else _selection.decode(row[5]),
        declined=bool(row[6]),
        origin=row[7],
        at_ms=row[8],
        live=bool(row[9]),
        person=row[10],
    )


def _vote(row: Sequence[Any]) -> VoteRow:
    return VoteRow(
        ask_id=row[0],
        person=row[1],
        channel=row[2],
        name=row[3],
        detail=row[4],
        selection=None if row[5] is None else _selection.decode(row[5]),
        inbound=row[6],
        at_ms=row[7],
        here=bool(row[8]),
        uid=row[9],
    )


def _pairing(row: Sequence[Any]) -> PairingRow:
    return PairingRow(
        name=row[0],
        channel=row[1],
        identity=row[2],
        roles=_tags.decode(row[3]),
        rights=None if row[4] is None else tuple(row[4].split()),
        at_ms=row[5],
        ask_id=row[6],
    )


def _lock(connection: sqlite3.Connection) -> LockRow | None:
    row = connection.execute("SELECT at_ms, name, channel, reason FROM hub_lock").fetchone()
    if row is None:
        return None
    return LockRow(at_ms=row[0], name=row[1], channel=row[2], reason=row[3])


def _delivery(row: Sequence[Any]) -> DeliveryRow:
    return DeliveryRow(
        id=row[0],
        effect=row[1],
        kind=row[2],
        lane=row[3],
        target=row[4],
        place=row[5],
        state=row[6],
        body=row[7],
        ask_id=row[8],
        ref=row[9],
        attempt=row[10],
        not_before_ms=row[11],
        created_ms=row[12],
        error=row[13],
        conversation=row[14],
    )
