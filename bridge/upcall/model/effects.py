"""Everything that the core can want, as two unions: writes and releases.

Writes become rows in one transaction. Releases are carried out only after its commit, and
carry nothing that isn't in a row or harmless to lose.
"""

from typing import Any, TypeAlias

import msgspec

from upcall.model.ids import AskId, SessionId
from upcall.model.platform import LoginKept, Receipt
from upcall.model.rows import (
    AskRow,
    AuditRow,
    CardRow,
    ClaimRow,
    ConversationRow,
    DeliveryRow,
    InboundRow,
    NoticeRow,
    SessionRow,
    TokenRow,
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
    """Keep a channel or place closed until a wall clock time."""

    scope: str
    closed_until_ms: int


class DropTokens(msgspec.Struct, frozen=True):
    """Retire all tokens of an ask."""

    ask_id: AskId


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
    | DropTokens
    | EndClaim
)


class Send(msgspec.Struct, frozen=True):
    """Try a delivery now; its row says `sending` already."""

    delivery: DeliveryRow


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
