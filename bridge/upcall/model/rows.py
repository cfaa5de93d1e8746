"""The hub's rows: what the kernel holds in memory and the store keeps in tables.

Each struct is one row, with the same names. `core` decides with them, `hub.store` writes
them; nothing else knows their columns.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from upcall.model.ask import AnsweredBy, AskSpec, AskState, Selection
from upcall.model.ids import ActionId, AskId, ReplyKey, Revision, SessionId
from upcall.model.policy import Right, Verbosity
from upcall.model.views import SessionKind

AsksShown: TypeAlias = Literal["shown", "muted", "stopped"]
Lane: TypeAlias = Literal["ask", "outcome", "text", "live", "idle"]
DeliveryKind: TypeAlias = Literal[
    "open", "post", "edit", "remind", "delete", "reply", "message", "hold"
]
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
        tags: what the program calls itself by, for routes.
        asks: what a person said of its questions: new ones are not shown on channels
            (`muted`), or refused (`stopped`).
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
    tags: tuple[str, ...] = ()
    asks: AsksShown = "shown"


class Course(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an ask has come in time: what it was reminded of, and who was asked too.

    Its clock counts from when the ask was raised, and stands while a person holds the ask.

    Attributes:
        from_ms: wall clock time at which the clock began; moved by every hold.
        from_boot_s: the same moment on the boot clock of `boot_id`.
        raised_boot_s: when the ask was raised, on that boot clock; no hold moves it.
        rang_s: what the clock showed when the ask was first shown where that rings somebody;
            reminders and escalation count from there.
        held_s: what the clock showed when it was stopped, or None while it runs.
        reminded: how many reminders are over, those that nobody could hear included.
        stage: how many steps of escalation were taken.
        people: whom those steps asked too, as the configuration names them.
        channels: where they showed it too.
        ttys: terminals of the program that asked; input there tells nothing of a person.
        uid: the user whose program asked, or None for a session of its own.
        moves: how often its card was taken back from a channel that was away.
        merged_into: the equal ask whose card and answer are this one's too.
        burst: of a permission ask, how many of its session there were within five minutes.
    """

    from_ms: int = 0
    from_boot_s: float = 0.0
    boot_id: str = ""
    raised_boot_s: float | None = None
    rang_s: float | None = None
    held_s: float | None = None
    reminded: int = 0
    stage: int = 0
    people: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    ttys: tuple[str, ...] = ()
    uid: int | None = None
    moves: int = 0
    merged_into: AskId | None = None
    burst: int = 0


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
        course: how far it has come in time.
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
    course: Course = Course()


class ClaimRow(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer that is on its way to a program, or has won.

    Attributes:
        inbound: the inbound row that it came from; unique.
        key: idempotency key of the reply to the session.
        origin: connection and key of an endpoint client's reply, for re-acknowledgement;
            `local:` and what the kernel says of the program, for a local answer.
        live: it is the ask's current claim.
        person: the operator who made it, whatever `operator` calls them.
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
    person: str | None = None


class VoteRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one person said, on one channel, to an ask that more than one act decides.

    Attributes:
        person: the operator; votes of one person on several channels count once.
        name: what the person is called on cards; of a local program, its user.
        detail: what the kernel says of a local program.
        selection: what was chosen; None is a decline.
        inbound: the inbound row that it came from.
        here: it came from this computer.
        uid: for those, the user whose program it was.
        live: neither withdrawn nor replaced.
    """

    ask_id: AskId
    person: str
    channel: str
    name: str
    selection: Selection | None
    inbound: int
    at_ms: int
    detail: str = ""
    here: bool = False
    uid: str = ""
    live: bool = True


class PairingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person's identity on one channel, added while the hub runs.

    Attributes:
        rights: what the person may do on this channel; None: what the person may do at all.
        ask_id: the ask that somebody has to agree to before it counts, or None.
        gone: remove it.
    """

    name: str
    channel: str
    identity: str
    roles: tuple[str, ...] = ()
    rights: tuple[Right, ...] | None = None
    at_ms: int = 0
    ask_id: AskId | None = None
    gone: bool = False


class LockRow(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is taken from anywhere but the control socket.

    Attributes:
        name: who locked.
        channel: from where; `terminal` is the command line.
    """

    at_ms: int
    name: str
    channel: str
    reason: str = ""


class InboundRow(msgspec.Struct, frozen=True, kw_only=True):
    """An inbound event that took effect; its id is the `updateId` sent to sessions."""

    id: int
    channel: str
    event_key: str
    content_key: str
    at_ms: int


class ConversationRow(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation on one channel; its place is empty until a thread is open for it."""

    key: str
    channel: str
    place: str
    state: Literal["open", "closed"] = "open"


class CardRow(msgspec.Struct, frozen=True, kw_only=True):
    """Where one ask is shown, and what the platform calls that message.

    Attributes:
        posted_ms: when the hub knew that it stands there, or None.
        reminder: the message that reminded of it last.
    """

    ask_id: AskId
    channel: str
    place: str
    ref: str | None = None
    posted_ms: int | None = None
    reminder: str | None = None


class CopyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Another message that shows the ask: it was posted twice because nobody knew."""

    ask_id: AskId
    channel: str
    place: str
    ref: str


class RetiredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A button of ours that is over.

    Attributes:
        ask_id: what it was about; empty for buttons of the hub's own questions.
        place: where its card stood; empty if that is not known any more.
    """

    ask_id: str
    channel: str
    place: str
    retired_ms: int


ButtonKind: TypeAlias = Literal["answer", "message", "drop", "mute", "unmute", "stop", "hold"]


class HubButton(msgspec.Struct, frozen=True, kw_only=True):
    """A button of one of the hub's own questions.

    Attributes:
        subject: `text:` and a held text's id, or `asks:` and a session's.
        ask_id: the ask that a text is to answer, or empty.
        ref: what the platform calls the message with the button, once it is there.
    """

    token: str
    channel: str
    place: str
    kind: ButtonKind
    subject: str
    ask_id: str = ""
    ref: str | None = None
    at_ms: int = 0


class HeldText(msgspec.Struct, frozen=True, kw_only=True):
    """A text of which nothing is sent before its writer says what it was.

    Attributes:
        event_key: what the platform calls the event that brought it.
        identity: the writer, as the platform knows them, with the name that it tells.
    """

    id: int
    channel: str
    place: str
    session_id: str
    event_key: str
    identity: str
    name: str | None
    text: str
    at_ms: int


OPEN: Final = "open"
CONFIRM: Final = "confirm"


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A button's token; `choice` is an option's index, `decline`, `hold` or `done`.

    An option of a permission ask that lets something run also has `open:` with its index, for
    the rest of what will run to be shown, and `confirm:` with it, for the yes after that.
    """

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
        conversation: its key, for what goes to a channel; its place may be known only later.
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
    conversation: str = ""


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
    copies: list[CopyRow] = msgspec.field(default_factory=list)
    buttons: list[HubButton] = msgspec.field(default_factory=list)
    texts: list[HeldText] = msgspec.field(default_factory=list)
    stored: dict[SessionId, int] = msgspec.field(default_factory=dict)
    tokens: list[TokenRow] = msgspec.field(default_factory=list)
    deliveries: list[DeliveryRow] = msgspec.field(default_factory=list)
    dead: list[DeliveryRow] = msgspec.field(default_factory=list)
    former_places: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    gates: dict[str, int] = msgspec.field(default_factory=dict)
    settings: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    roots: list[str] = msgspec.field(default_factory=list)
    keys: dict[str, AskId] = msgspec.field(default_factory=dict)
    verbosities: dict[str, Verbosity] = msgspec.field(default_factory=dict)
    votes: list[VoteRow] = msgspec.field(default_factory=list)
    pairings: list[PairingRow] = msgspec.field(default_factory=list)
    revoked: dict[str, int] = msgspec.field(default_factory=dict)
    lock: LockRow | None = None
    last_inbound: int = 0
    last_delivery: int = 0
    last_notice: int = 0
