"""The hub's rows: what the kernel holds in memory and the store keeps in tables.

Each struct is one row, with the same names. `core` decides with them, `hub.store` writes
them; nothing else knows their columns.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from upcall.model.ask import AnsweredBy, AskSpec, AskState, Selection
from upcall.model.ids import ActionId, AskId, ReplyKey, Revision, SessionId
from upcall.model.views import SessionKind

Lane: TypeAlias = Literal["ask", "outcome", "text", "live", "idle"]
DeliveryKind: TypeAlias = Literal["post", "edit", "reply", "message", "hold"]
DeliveryState: TypeAlias = Literal["queued", "sending", "done", "retry", "uncertain", "dead"]

RESTORED_ASKING: Final = "restored from a backup; its program is asked whether it still waits"
"""Note of an open ask that is not shown for answering until its program presented it again."""
RESTORED_AGAIN: Final = "restored, please answer again"


def bare_revision(revision: Revision) -> Revision:
    """Return what is asked, without the epoch that a restore adds.

    A restored ask is the same question under another revision, so that nothing which was
    pressed before counts.
    """
    return Revision(revision.partition(".")[0])


def in_epoch(revision: Revision, epoch: int) -> Revision:
    """Return *revision* as it is shown after the restore that began *epoch*."""
    return Revision(f"{bare_revision(revision)}.{epoch}")


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One running program that asks.

    Attributes:
        asker_pid: for hosted sessions, the process that asked over the hub's socket; 0 when
            the kernel could not tell (another pid namespace).
        asker_start: its start, as `upcall_discovery.liveness` tells it.
        parent: pid and start of the asker's parent, `pid:start`.
        ended_ms: when it ended, or None while it lives or may come back.
    """

    session_id: SessionId
    kind: SessionKind
    conversation: str
    pid: int = 0
    pid_start: str = ""
    asker_pid: int = 0
    asker_start: str = ""
    title: str | None = None
    repo: str | None = None
    branch: str | None = None
    machine: str | None = None
    cwd: str | None = None
    program: str | None = None
    record_path: str | None = None
    started_ms: int = 0
    ended_ms: int | None = None


class AskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ask, from raised to closed.

    Attributes:
        deadline_ms: wall clock end, or None; `deadline_boot_s` is the same moment on the
            boot clock of the boot `boot_id`.
        held_s: seconds that were left when a person stopped the clock, or None.
        handed_over: nobody waits; the answer is kept until it is collected.
        key: what a re-run finds the same ask by, or None.
        raised_boot_s: for the waiting time that is reported, within one boot.
        note: the hub's words on a card, such as why an answer was refused.
        askers: of a permission ask, `pid:start` of all processes that count as the one that
            asked: none of them, nor what descends from them, answers it.
    """

    ask_id: AskId
    session_id: SessionId
    action_id: ActionId
    state: AskState
    spec: AskSpec
    revision: Revision
    raised_ms: int
    outcome: str | None = None
    deadline_ms: int | None = None
    deadline_boot_s: float | None = None
    boot_id: str = ""
    held_s: float | None = None
    handed_over: bool = False
    key: str | None = None
    answer: Selection | None = None
    answered_by: AnsweredBy | None = None
    resolved_by: str | None = None
    closed_ms: int | None = None
    note: str = ""
    askers: tuple[str, ...] = ()


class ClaimRow(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer that is on its way to a program, or has won.

    Attributes:
        inbound: the inbound row that it came from; unique.
        key: idempotency key of the reply to the session.
        origin: connection and key of an endpoint client's reply, for re-acknowledgement;
            `local:` and what the kernel says of the program, for a local answer.
        live: it is the ask's current claim.
    """

    ask_id: AskId
    operator: str | None
    channel: str
    inbound: int
    key: ReplyKey
    selection: Selection | None
    declined: bool = False
    origin: str | None = None
    at_ms: int = 0
    live: bool = True


class InboundRow(msgspec.Struct, frozen=True, kw_only=True):
    """An inbound event that took effect; its id is the `updateId` sent to sessions."""

    id: int
    channel: str
    event_key: str
    content_key: str
    at_ms: int


class ConversationRow(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation on one channel."""

    key: str
    channel: str
    place: str
    state: Literal["open", "closed"] = "open"


class CardRow(msgspec.Struct, frozen=True, kw_only=True):
    """Where one ask is shown, and what the platform calls that message."""

    ask_id: AskId
    channel: str
    place: str
    ref: str | None = None


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A button's token; `choice` is an option's index, `decline`, `hold` or `done`."""

    token: str
    ask_id: AskId
    channel: str
    choice: str


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One intent to tell somebody something, with its attempts.

    Attributes:
        effect: unique key of the intent; a repeat of the same decision finds it.
        target: a channel's name for cards, a session id for replies and messages.
        place: the address on that channel, empty for sessions.
        body: one lowered platform call, or one encoded frame.
        secret: the body is in memory only, and never kept.
        not_before_ms: wall clock time before which it is not tried again.
        stale: a newer edit of the same card replaced it.
    """

    id: int
    effect: str
    kind: DeliveryKind
    lane: Lane
    target: str
    place: str
    state: DeliveryState
    body: bytes
    ask_id: AskId | None = None
    ref: str | None = None
    attempt: int = 0
    not_before_ms: int = 0
    created_ms: int = 0
    error: str | None = None
    secret: bool = False


class NoticeRow(msgspec.Struct, frozen=True, kw_only=True):
    """Something a session said that needs no answer."""

    id: int
    session_id: SessionId
    kind: str
    text: str
    at_ms: int
    file_id: str | None = None
    file_name: str | None = None
    mime: str | None = None


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an ask's story; masked, append-only."""

    at_ms: int
    event: str
    ask_id: AskId | None
    session_id: SessionId | None
    facts: dict[str, str | int | float | bool | None]


class Snapshot(msgspec.Struct, kw_only=True):
    """The open rows, as the store reads them at start."""

    sessions: list[SessionRow] = msgspec.field(default_factory=list)
    asks: list[AskRow] = msgspec.field(default_factory=list)
    claims: list[ClaimRow] = msgspec.field(default_factory=list)
    inbound: list[InboundRow] = msgspec.field(default_factory=list)
    conversations: list[ConversationRow] = msgspec.field(default_factory=list)
    cards: list[CardRow] = msgspec.field(default_factory=list)
    tokens: list[TokenRow] = msgspec.field(default_factory=list)
    deliveries: list[DeliveryRow] = msgspec.field(default_factory=list)
    gates: dict[str, int] = msgspec.field(default_factory=dict)
    settings: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    roots: list[str] = msgspec.field(default_factory=list)
    keys: dict[str, AskId] = msgspec.field(default_factory=dict)
    last_inbound: int = 0
    last_delivery: int = 0
    last_notice: int = 0
