"""Each write of the kernel as statements; upserts by natural key.

A row comes after the rows that it names: an ask after its session, a card after its ask.
Within one list of writes the order is kept.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from upcall.model.ask import AskSpec
from upcall.model.effects import (
    DropButtons,
    DropCard,
    DropText,
    DropTokens,
    EndClaim,
    SaveGate,
    SaveLock,
    SaveLogin,
    SaveRevoked,
    SaveRoot,
    SaveSetting,
    SaveVerbosity,
    Write,
)
from upcall.model.rows import (
    AskRow,
    AuditRow,
    CardRow,
    ClaimRow,
    ConversationRow,
    CopyRow,
    DeliveryRow,
    HeldText,
    HubButton,
    InboundRow,
    NoticeRow,
    PairingRow,
    SessionRow,
    TokenRow,
    VoteRow,
)
from upcall.model.struct import replaced

Mask: TypeAlias = Callable[[str], str]
"""Returns a text with recognised credentials masked."""

Parameter: TypeAlias = str | int | float | bytes | None

CHAIN_START: Final = bytes(32)
CHAIN_ENCODING: Final = 1
AUDIT_CUT: Final = "audit_cut"
AUDIT_TRIMMED: Final = "audit_trimmed"
"""The event of the row that stands for a prefix of the audit that was cut off."""

_json = msgspec.json.Encoder(order="deterministic")

_SESSION_ID: Final = "(SELECT id FROM session WHERE session_id = ?)"
_ASK_ID: Final = "(SELECT id FROM ask WHERE public_id = ?)"


def _upsert(
    table: str, columns: str, key: str, *, fixed: str = "", refs: dict[str, str] | None = None
) -> str:
    names = columns.split()
    keys = key.split()
    values = ", ".join((refs or {}).get(name, "?") for name in names)
    # Columns that never change are left out: SQLite rewrites every index of a column that
    # it sets, even to the same value.
    changing = [name for name in names if name not in keys and name not in fixed.split()]
    sets = ", ".join(f"{name} = excluded.{name}" for name in changing)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) "  # noqa: S608 - ours
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {sets}"
    )


_SESSION: Final = _upsert(
    "session",
    "session_id kind conversation_key pid pid_start asker_pid asker_start title repo branch"
    " machine cwd program record_path started_ms ended_ms tags asks",
    "session_id",
)
_ASK: Final = _upsert(
    "ask",
    "public_id session action_id state body revision raised_ms outcome deadline_ms"
    " deadline_boot_s boot_id held_s handed_over rerun_key answer answered_by resolved_by"
    " closed_ms note askers course",
    "public_id",
    refs={"session": _SESSION_ID},
)
_CLAIM: Final = _upsert(
    "claim",
    "ask operator channel inbound reply_key answer declined origin at_ms live person",
    "inbound",
    fixed="ask",
    refs={"ask": _ASK_ID},
)
# A platform may repeat an event that the kernel has forgotten already: the newer row wins.
_INBOUND: Final = _upsert(
    "inbound", "id channel event_key content_key at_ms", "channel event_key"
)
_CONVERSATION: Final = _upsert("conversation", "key channel place state", "key channel")
_CARD: Final = _upsert(
    "card",
    "ask channel place ref reminder posted_ms",
    "ask channel place",
    refs={"ask": _ASK_ID},
)
_COPY: Final = (
    "INSERT INTO card_copy (ask, channel, place, ref)"  # noqa: S608 - ours
    f" VALUES ({_ASK_ID}, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_HUB_BUTTON: Final = _upsert(
    "hub_button", "token channel place kind subject ask ref at_ms", "token"
)
_RETIRED: Final = (
    "INSERT INTO retired_token (digest, ask, channel, place, retired_ms)"
    " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_HELD_TEXT: Final = _upsert(
    "held_text", "id channel place session event_key identity name text at_ms", "id"
)
_TOKEN: Final = _upsert(
    "token", "token ask channel choice", "token", fixed="ask", refs={"ask": _ASK_ID}
)
_DELIVERY: Final = _upsert(
    "delivery",
    "id effect kind lane target place state body ask ref attempt not_before_ms created_ms"
    " error conversation",
    "id",
    fixed="effect ask created_ms conversation",
    refs={"ask": _ASK_ID},
)
_ATTEMPT: Final = _upsert("attempt", "delivery number state error", "delivery number")
_NOTICE: Final = _upsert(
    "notice",
    "id session kind text at_ms file_id file_name mime",
    "id",
    fixed="session",
    refs={"session": _SESSION_ID},
)
_SETTING: Final = _upsert("cursor", "channel name value", "channel name")
_LOGIN: Final = _upsert("web_login", "channel digest kind data expires_ms", "channel digest")
_GATE: Final = _upsert("gate", "scope closed_until_ms", "scope")
_VOTE: Final = _upsert(
    "vote",
    "ask person channel name detail answer inbound at_ms here uid live",
    "ask person channel",
    refs={"ask": _ASK_ID},
)
_PAIRING: Final = _upsert(
    "pairing", "name channel identity roles rights at_ms ask", "channel identity"
)
_REVOKED: Final = _upsert("revoked", "name at_ms", "name")
_LOCK: Final = _upsert("hub_lock", "id at_ms name channel reason", "id")
_VERBOSITY: Final = _upsert("verbosity", "conversation level", "conversation")
_AUDIT: Final = (
    "INSERT INTO audit (encoding, at_ms, event, ask_id, session_id, facts, hash)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)


def root_bytes(path: str) -> bytes:
    """Return a folder's name as it is stored, whatever bytes it was made of."""
    return path.encode("utf-8", "surrogatepass")


def masked(spec: AskSpec, mask: Mask) -> AskSpec:
    """Return *spec* with every text masked."""
    return replaced(
        spec,
        question=mask(spec.question),
        options=tuple(mask(label) for label in spec.options),
        detail=None if spec.detail is None else mask(spec.detail),
        default=None if spec.default is None else mask(spec.default),
        option_details=(
            None
            if spec.option_details is None
            else tuple(mask(text) for text in spec.option_details)
        ),
    )


def chain_hash(
    previous: bytes, at_ms: int, event: str, ids: Sequence[str | None], facts: str
) -> bytes:
    """Return the hash of one audit line, in encoding 1.

    SHA-256 over: one byte of encoding; then each of the previous hash, the time (8 bytes,
    big-endian, signed), the event, each id and the facts as one byte that tells a missing
    value from an empty one, 8 bytes of length, and the bytes.
    """
    parts: list[bytes | None] = [
        previous,
        at_ms.to_bytes(8, "big", signed=True),
        *(
            # A file that somebody changed is read with whatever bytes are in it.
            None if one is None else one.encode("utf-8", "surrogateescape")
            for one in (event, *ids, facts)
        ),
    ]
    digest = hashlib.sha256(bytes([CHAIN_ENCODING]))
    for part in parts:
        if part is None:
            digest.update(b"\0" + bytes(8))
        else:
            digest.update(b"\1" + len(part).to_bytes(8, "big") + part)
    return digest.digest()


def token_digest(token: str) -> bytes:
    """Return what is kept of a button's token once it is over."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def retire_tokens(
    connection: sqlite3.Connection, which: str, values: tuple[Parameter, ...], at_ms: int
) -> None:
    """Keep the digests of tokens of asks, and where they stood; the tokens stay.

    Args:
        connection: within a transaction.
        which: a condition on `t`, the table of tokens.
        values: its parameters.
        at_ms: wall clock time.
    """
    found = connection.execute(
        "SELECT t.token, a.public_id, t.channel, coalesce((SELECT c.place FROM card c"  # noqa: S608
        " WHERE c.ask = t.ask AND c.channel = t.channel ORDER BY c.id DESC LIMIT 1), '')"
        f" FROM token t JOIN ask a ON a.id = t.ask WHERE {which}",
        values,
    ).fetchall()
    connection.executemany(
        _RETIRED, [(token_digest(token), *rest, at_ms) for token, *rest in found]
    )


def retire_buttons(
    connection: sqlite3.Connection, which: str, values: tuple[Parameter, ...], at_ms: int
) -> None:
    """Keep the digests of buttons of the hub's own questions; the buttons stay."""
    found = connection.execute(
        f"SELECT token, ask, channel, place FROM hub_button WHERE {which}",  # noqa: S608
        values,
    ).fetchall()
    connection.executemany(
        _RETIRED, [(token_digest(token), *rest, at_ms) for token, *rest in found]
    )


class RowWriter:
    """Carries writes out on one connection, inside a transaction that the caller holds.

    Attributes:
        audit_head: hash of the newest audit line, counting those not committed yet.
        audit_rows: its number.
        audit_ms: its time, or None if there is none.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        mask: Mask,
        audit_head: bytes,
        *,
        audit_rows: int = 0,
        audit_ms: int | None = None,
    ) -> None:
        self.audit_head = audit_head
        self.audit_rows = audit_rows
        self.audit_ms = audit_ms
        self._connection = connection
        self._mask = mask
        self._handlers: dict[type, Callable[[Any], None]] = {
            SessionRow: self._session,
            AskRow: self._ask,
            ClaimRow: self._claim,
            InboundRow: self._inbound,
            ConversationRow: self._conversation,
            CardRow: self._card,
            TokenRow: self._token,
            DeliveryRow: self._delivery,
            NoticeRow: self._notice,
            AuditRow: self._audit,
            SaveSetting: self._setting,
            SaveLogin: self._login,
            SaveRoot: self._root,
            SaveGate: self._gate,
            SaveVerbosity: self._verbosity,
            VoteRow: self._vote,
            PairingRow: self._pairing,
            SaveLock: self._lock,
            SaveRevoked: self._revoked,
            CopyRow: self._copy,
            HubButton: self._hub_button,
            HeldText: self._held_text,
            DropTokens: self._drop_tokens,
            DropButtons: self._drop_buttons,
            DropText: self._drop_text,
            DropCard: self._drop_card,
            EndClaim: self._end_claim,
        }

    def write(self, row: Write) -> None:
        """Carry out one write.

        Raises:
            sqlite3.Error: it could not be carried out.
        """
        self._handlers[type(row)](row)

    def _run(self, sql: str, parameters: tuple[Parameter, ...]) -> None:
        try:
            self._connection.execute(sql, parameters)
        except UnicodeEncodeError:
            # A folder or program may have a name that is no text; it must not end the hub.
            self._connection.execute(sql, tuple(map(_storable, parameters)))

    def _session(self, row: SessionRow) -> None:
        self._run(
            _SESSION,
            (
                row.session_id,
                row.kind,
                row.conversation,
                row.pid,
                row.pid_start,
                row.asker_pid,
                row.asker_start,
                row.title,
                row.repo,
                row.branch,
                row.machine,
                row.cwd,
                row.program,
                row.record_path,
                row.started_ms,
                row.ended_ms,
                _text(row.tags),
                row.asks,
            ),
        )

    def _ask(self, row: AskRow) -> None:
        spec, note = row.spec, row.note
        if row.state == "closed":
            spec, note = masked(spec, self._mask), self._mask(note)
        self._run(
            _ASK,
            (
                row.ask_id,
                row.session_id,
                row.action_id,
                row.state,
                _text(spec),
                row.revision,
                row.raised_ms,
                row.outcome,
                row.deadline_ms,
                row.deadline_boot_s,
                row.boot_id,
                row.held_s,
                int(row.handed_over),
                row.key,
                _text_or_none(row.answer),
                _text_or_none(row.answered_by),
                row.resolved_by,
                row.closed_ms,
                note,
                " ".join(row.askers),
                _text(row.course),
            ),
        )

    def _claim(self, row: ClaimRow) -> None:
        self._run(
            _CLAIM,
            (
                row.ask_id,
                row.operator,
                row.channel,
                row.inbound,
                row.key,
                _text_or_none(row.selection),
                int(row.declined),
                row.origin,
                row.at_ms,
                int(row.live),
                row.person,
            ),
        )

    def _inbound(self, row: InboundRow) -> None:
        self._run(_INBOUND, (row.id, row.channel, row.event_key, row.content_key, row.at_ms))

    def _conversation(self, row: ConversationRow) -> None:
        self._run(_CONVERSATION, (row.key, row.channel, row.place, row.state))

    def _card(self, row: CardRow) -> None:
        self._run(
            _CARD,
            (row.ask_id, row.channel, row.place, row.ref, row.reminder, row.posted_ms),
        )

    def _copy(self, row: CopyRow) -> None:
        self._run(_COPY, (row.ask_id, row.channel, row.place, row.ref))

    def _hub_button(self, row: HubButton) -> None:
        self._run(
            _HUB_BUTTON,
            (
                row.token,
                row.channel,
                row.place,
                row.kind,
                row.subject,
                row.ask_id,
                row.ref,
                row.at_ms,
            ),
        )

    def _held_text(self, row: HeldText) -> None:
        self._run(
            _HELD_TEXT,
            (
                row.id,
                row.channel,
                row.place,
                row.session_id,
                row.event_key,
                row.identity,
                row.name,
                row.text,
                row.at_ms,
            ),
        )

    def _token(self, row: TokenRow) -> None:
        self._run(_TOKEN, (row.token, row.ask_id, row.channel, row.choice))

    def _delivery(self, row: DeliveryRow) -> None:
        # What was delivered is not needed again, and may hold what should not be kept.
        body = b"" if row.state == "done" or row.secret else row.body
        self._run(
            _DELIVERY,
            (
                row.id,
                row.effect,
                row.kind,
                row.lane,
                row.target,
                row.place,
                row.state,
                body,
                row.ask_id,
                row.ref,
                row.attempt,
                row.not_before_ms,
                row.created_ms,
                row.error,
                row.conversation,
            ),
        )
        if row.state in {"retry", "uncertain", "dead"}:
            self._run(_ATTEMPT, (row.id, row.attempt, row.state, row.error))

    def _notice(self, row: NoticeRow) -> None:
        self._run(
            _NOTICE,
            (
                row.id,
                row.session_id,
                row.kind,
                row.text,
                row.at_ms,
                row.file_id,
                row.file_name,
                row.mime,
            ),
        )

    def _audit(self, row: AuditRow) -> None:
        mask = self._mask
        facts = _storable_text(
            _text(
                {
                    name: mask(value) if isinstance(value, str) else value
                    for name, value in row.facts.items()
                }
            )
        )
        self.audit_head = chain_hash(
            self.audit_head, row.at_ms, row.event, (row.ask_id, row.session_id), facts
        )
        self._run(
            _AUDIT,
            (
                CHAIN_ENCODING,
                row.at_ms,
                row.event,
                row.ask_id,
                row.session_id,
                facts,
                self.audit_head,
            ),
        )
        self.audit_rows += 1
        self.audit_ms = row.at_ms

    def _setting(self, row: SaveSetting) -> None:
        if row.value is None:
            self._run(
                "DELETE FROM cursor WHERE channel = ? AND name = ?", (row.channel, row.name)
            )
        else:
            self._run(_SETTING, (row.channel, row.name, row.value))

    def _login(self, row: SaveLogin) -> None:
        kept = row.login
        if kept.gone:
            self._run(
                "DELETE FROM web_login WHERE channel = ? AND digest = ?",
                (row.channel, kept.digest),
            )
        else:
            self._run(_LOGIN, (row.channel, kept.digest, kept.kind, kept.data, kept.expires_ms))

    def _root(self, row: SaveRoot) -> None:
        path = root_bytes(row.path)
        if row.gone:
            self._run("DELETE FROM root WHERE path = ?", (path,))
        else:
            self._run("INSERT INTO root (path) VALUES (?) ON CONFLICT DO NOTHING", (path,))

    def _gate(self, row: SaveGate) -> None:
        if row.closed_until_ms:
            self._run(_GATE, (row.scope, row.closed_until_ms))
        else:
            self._run("DELETE FROM gate WHERE scope = ?", (row.scope,))

    def _verbosity(self, row: SaveVerbosity) -> None:
        if row.level is None:
            self._run("DELETE FROM verbosity WHERE conversation = ?", (row.conversation,))
        else:
            self._run(_VERBOSITY, (row.conversation, row.level))

    def _vote(self, row: VoteRow) -> None:
        self._run(
            _VOTE,
            (
                row.ask_id,
                row.person,
                row.channel,
                row.name,
                row.detail,
                _text_or_none(row.selection),
                row.inbound,
                row.at_ms,
                int(row.here),
                row.uid,
                int(row.live),
            ),
        )

    def _pairing(self, row: PairingRow) -> None:
        if row.gone:
            self._run(
                "DELETE FROM pairing WHERE channel = ? AND identity = ?",
                (row.channel, row.identity),
            )
            return
        rights = None if row.rights is None else " ".join(row.rights)
        roles, ask = _text(row.roles), row.ask_id
        self._run(
            _PAIRING, (row.name, row.channel, row.identity, roles, rights, row.at_ms, ask)
        )

    def _lock(self, row: SaveLock) -> None:
        lock = row.lock
        if lock is None:
            self._run("DELETE FROM hub_lock", ())
        else:
            self._run(_LOCK, (1, lock.at_ms, lock.name, lock.channel, lock.reason))

    def _revoked(self, row: SaveRevoked) -> None:
        if row.at_ms is None:
            self._run("DELETE FROM revoked WHERE name = ?", (row.name,))
        else:
            self._run(_REVOKED, (row.name, row.at_ms))

    def _drop_tokens(self, row: DropTokens) -> None:
        retire_tokens(self._connection, f"t.ask = {_ASK_ID}", (row.ask_id,), row.at_ms)
        self._run(f"DELETE FROM token WHERE ask = {_ASK_ID}", (row.ask_id,))  # noqa: S608

    def _drop_buttons(self, row: DropButtons) -> None:
        retire_buttons(self._connection, "subject = ?", (row.subject,), row.at_ms)
        self._run("DELETE FROM hub_button WHERE subject = ?", (row.subject,))

    def _drop_text(self, row: DropText) -> None:
        self._run("DELETE FROM held_text WHERE id = ?", (row.id,))

    def _drop_card(self, row: DropCard) -> None:
        self._run(
            f"DELETE FROM card WHERE (ref IS NULL OR ?) AND channel = ? AND ask = {_ASK_ID}",  # noqa: S608
            (int(row.shown), row.channel, row.ask_id),
        )

    def _end_claim(self, row: EndClaim) -> None:
        self._run(
            f"UPDATE claim SET live = 0 WHERE live = 1 AND ask = {_ASK_ID}",  # noqa: S608
            (row.ask_id,),
        )


def _text(value: Any) -> str:
    try:
        return _json.encode(value).decode()
    except UnicodeEncodeError:
        return _json.encode(_cleaned(value)).decode()


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _cleaned(value: Any) -> Any:
    """Return plain data with every text in it made storable."""
    match value:
        case str():
            return _storable_text(value)
        case dict():
            return {_cleaned(name): _cleaned(one) for name, one in value.items()}
        case tuple() | list():
            return [_cleaned(one) for one in value]
        case msgspec.Struct():
            return {name: _cleaned(getattr(value, name)) for name in value.__struct_fields__}
        case _:
            return value


def _storable(value: Parameter) -> Parameter:
    return _storable_text(value) if isinstance(value, str) else value


def _storable_text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
