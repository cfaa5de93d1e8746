"""Everything that the core can want, as two unions: writes and releases.

Writes become rows in one transaction. Releases are carried out only after its commit, and
carry nothing that isn't in a row or harmless to lose.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from upcall.model.ids import AskId, SessionId
from upcall.model.platform import LoginKept, Receipt
from upcall.model.policy import Verbosity
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
    LockRow,
    NoticeRow,
    PairingRow,
    SessionRow,
    TokenRow,
    VoteRow,
)


class SaveSetting(msgspec.Struct, frozen=True):
    """Keep or drop an adapter's own fact."""

    channel: str
    name: str
    value: str | None


class SaveLogin(msgspec.Struct, frozen=True):
    """Keep or drop a web login."""

    channel: str
    login: LoginKept


class SaveRoot(msgspec.Struct, frozen=True):
    """Register or forget a project folder."""

    path: str
    gone: bool = False


class SaveGate(msgspec.Struct, frozen=True):
    """Keep a channel or place closed until a wall clock time; 0: it is open again."""

    scope: str
    closed_until_ms: int


class SaveVerbosity(msgspec.Struct, frozen=True):
    """Keep how much of a conversation's work is shown; None: as the configuration says."""

    conversation: str
    level: Verbosity | None


class SaveLock(msgspec.Struct, frozen=True):
    """Lock the hub, or unlock it."""

    lock: LockRow | None


class SaveRevoked(msgspec.Struct, frozen=True):
    """Take all rights from a person, or, without a time, give them back."""

    name: str
    at_ms: int | None


class DropTokens(msgspec.Struct, frozen=True):
    """Retire all tokens of an ask; their digests are kept."""

    ask_id: AskId
    at_ms: int


class DropButtons(msgspec.Struct, frozen=True):
    """Retire all buttons of one of the hub's own questions; their digests are kept."""

    subject: str
    at_ms: int


class DropText(msgspec.Struct, frozen=True):
    """A held text is over; its words are not kept."""

    id: int


class DropCard(msgspec.Struct, frozen=True):
    """An ask's card on this channel was never posted, and is not going to be.

    Attributes:
        shown: it was posted, and is gone.
    """

    ask_id: AskId
    channel: str
    shown: bool = False


class EndClaim(msgspec.Struct, frozen=True):
    """The ask's claim is no longer the live one."""

    ask_id: AskId


Write: TypeAlias = (
    SessionRow
    | AskRow
    | ClaimRow
    | InboundRow
    | ConversationRow
    | CardRow
    | TokenRow
    | DeliveryRow
    | NoticeRow
    | AuditRow
    | SaveSetting
    | SaveLogin
    | SaveRoot
    | SaveGate
    | SaveVerbosity
    | VoteRow
    | PairingRow
    | SaveLock
    | SaveRevoked
    | CopyRow
    | HubButton
    | HeldText
    | DropTokens
    | DropButtons
    | DropText
    | DropCard
    | EndClaim
)


Find: TypeAlias = Literal["no", "first", "only"]


class Send(msgspec.Struct, frozen=True):
    """Try a delivery now; its row says `sending` already.

    Attributes:
        find: it may be there already: look it up before it is sent (`first`), or look it up
            and send nothing (`only`).
    """

    delivery: DeliveryRow
    find: Find = "no"


class ToClients(msgspec.Struct, frozen=True):
    """Say a frame to clients of a hosted session's endpoint; to one, or to all."""

    session_id: SessionId
    frame: Any
    connection: str | None = None


class ToWaiter(msgspec.Struct, frozen=True):
    """Say an event to a program on one of the hub's sockets."""

    waiter: int
    event: str
    fields: dict[str, Any]


class Respond(msgspec.Struct, frozen=True):
    """Answer a request of a program on one of the hub's sockets, or refuse it."""

    waiter: int
    fields: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Acknowledge(msgspec.Struct, frozen=True):
    """Tell an adapter what became of its inbound event."""

    receipt_id: int
    receipt: Receipt


class Host(msgspec.Struct, frozen=True):
    """Open an endpoint and a record for a hosted session."""

    session: SessionRow


class Unhost(msgspec.Struct, frozen=True):
    """Close a hosted session's endpoint."""

    session_id: SessionId


class WatchProcess(msgspec.Struct, frozen=True):
    """Tell when this process ends, if it has not already."""

    pid: int
    start: str


class Noticed(msgspec.Struct, frozen=True):
    """A session, or the hub about it, said something that needs no answer."""

    notice: NoticeRow


class Changed(msgspec.Struct, frozen=True):
    """Something that views show is different now."""


class Log(msgspec.Struct, frozen=True):
    """Write one event to the log."""

    event: str
    facts: dict[str, Any]


Release: TypeAlias = (
    Send
    | ToClients
    | ToWaiter
    | Respond
    | Acknowledge
    | Host
    | Unhost
    | WatchProcess
    | Noticed
    | Changed
    | Log
)


class Decision(msgspec.Struct):
    """What one event leads to: rows first, then acts."""

    writes: list[Write] = msgspec.field(default_factory=list)
    releases: list[Release] = msgspec.field(default_factory=list)
