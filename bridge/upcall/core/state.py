"""What the kernel's machines share: the open rows in memory, and one step's decision."""

import hashlib
import heapq
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from upcall.model.document import Message
from upcall.model.effects import Changed, Decision, Log, Release, Write
from upcall.model.events import Moment
from upcall.model.ids import ActionId, AskId, SessionId
from upcall.model.platform import Body, Capabilities, Place, Receipt
from upcall.model.rows import (
    AskRow,
    AuditRow,
    CardRow,
    ClaimRow,
    ConversationRow,
    DeliveryRow,
    NoticeRow,
    SessionRow,
    TokenRow,
)

CLOSED_KEPT: Final = 256
INBOUND_KEPT: Final = 10_000
LocalAnswers: TypeAlias = Literal["tty", "any", "off"]


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """A configured channel, as the kernel knows it."""

    name: str
    capabilities: Capabilities
    lower: Callable[[Message, Place], Sequence[Body]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """What configuration and machine give the kernel.

    Attributes:
        operator: name of the only operator where none is configured.
        operators: channel name and identity of a person, to the person's name.
        machine: what this machine is called.
        boot_id: this boot; deadlines of another one go by the wall clock.
    """

    operator: str
    machine: str
    boot_id: str
    channels: tuple[ChannelInfo, ...] = ()
    operators: dict[tuple[str, str], str] = field(default_factory=dict)
    local_answers: LocalAnswers = "tty"
    allow_direct_clients: bool = False


@dataclass(slots=True)
class SessionLive:
    """What a session says while it lives; nothing of it is stored."""

    attached: bool = False
    capabilities: frozenset[str] = frozenset()
    task: str | None = None
    model: str | None = None
    usage: str | None = None
    activity: str | None = None
    last_text: str | None = None
    verbosity: str | None = None
    presented: set[AskId] = field(default_factory=set)
    syncing: bool = False


@dataclass(slots=True)
class ChannelLive:
    """What a channel says of itself."""

    hearing: bool = False
    audience: int = 0
    reason: str | None = "starting"
    heard_ms: int | None = None


@dataclass(slots=True)
class HubState:
    """The kernel's dictionaries: a cache of the open rows, rebuilt at start."""

    settings: KernelSettings
    sessions: dict[SessionId, SessionRow] = field(default_factory=dict)
    hosted: dict[tuple[int, str, str], SessionId] = field(default_factory=dict)
    live: dict[SessionId, SessionLive] = field(default_factory=dict)
    asks: dict[AskId, AskRow] = field(default_factory=dict)
    closed: OrderedDict[AskId, AskRow] = field(default_factory=OrderedDict)
    by_action: dict[tuple[SessionId, ActionId], AskId] = field(default_factory=dict)
    by_session: defaultdict[SessionId, dict[AskId, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    claims: dict[AskId, ClaimRow] = field(default_factory=dict)
    won: OrderedDict[AskId, ClaimRow] = field(default_factory=OrderedDict)
    conversations: dict[tuple[str, str], ConversationRow] = field(default_factory=dict)
    cards: dict[tuple[AskId, str], CardRow] = field(default_factory=dict)
    tokens: dict[str, TokenRow] = field(default_factory=dict)
    deliveries: dict[int, DeliveryRow] = field(default_factory=dict)
    tokens_of: dict[AskId, list[TokenRow]] = field(default_factory=dict)
    deliveries_of: dict[AskId, dict[int, None]] = field(default_factory=dict)
    inbound: OrderedDict[tuple[str, str], Receipt | None] = field(default_factory=OrderedDict)
    gates: dict[str, int] = field(default_factory=dict)
    settings_kept: dict[tuple[str, str], str] = field(default_factory=dict)
    roots: dict[str, None] = field(default_factory=dict)
    keys: dict[str, AskId] = field(default_factory=dict)
    channels: dict[str, ChannelLive] = field(default_factory=dict)
    waiters: defaultdict[AskId, dict[int, bool]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    waiting_for: dict[int, AskId] = field(default_factory=dict)
    receipts_waiting: defaultdict[AskId, list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )
    ended: OrderedDict[SessionId, SessionRow] = field(default_factory=OrderedDict)
    timers: list[tuple[float, str, str]] = field(default_factory=list)
    last_inbound: int = 0
    last_delivery: int = 0
    last_notice: int = 0
    lanes: dict[str, dict[int, None]] = field(default_factory=dict)

    def find(self, ask_id: AskId) -> AskRow | None:
        """Return an ask that is open, or was closed in this hub's life."""
        return self.asks.get(ask_id) or self.closed.get(ask_id)

    def session(self, session_id: SessionId) -> SessionRow | None:
        """Return a session that lives, or ended in this hub's life."""
        return self.sessions.get(session_id) or self.ended.get(session_id)

    def live_of(self, session_id: SessionId) -> SessionLive:
        """Return what the session says while it lives."""
        return self.live.setdefault(session_id, SessionLive())


class Step:
    """One event's decision in the making, with the time and the randomness it may use."""

    __slots__ = ("_drawn", "_seed", "at", "changed", "decision", "state")

    def __init__(self, state: HubState, at: Moment, seed: bytes) -> None:
        self.state = state
        self.at = at
        self.decision = Decision()
        self.changed = False
        self._seed = seed
        self._drawn = 0

    def random(self, count: int) -> bytes:
        """Return *count* bytes (at most 64) drawn from this step's seed."""
        self._drawn += 1
        return hashlib.blake2b(
            self._drawn.to_bytes(4, "big"), key=self._seed[:64], digest_size=count
        ).digest()

    def write(self, row: Write) -> None:
        """Let *row* become part of the step's transaction."""
        self.decision.writes.append(row)

    def release(self, release: Release) -> None:
        """Let *release* be carried out after the commit."""
        self.decision.releases.append(release)

    def change(self) -> None:
        """Views show something else after this step."""
        if not self.changed:
            self.changed = True
            self.decision.releases.append(Changed())

    def log(self, event: str, **facts: Any) -> None:
        """Log *event* after the commit."""
        self.release(Log(event, facts))

    def audit(
        self, event: str, row: AskRow | None = None, **facts: str | int | float | bool | None
    ) -> None:
        """Write one line of the story."""
        self.write(
            AuditRow(
                at_ms=self.at.wall_ms,
                event=event,
                ask_id=row.ask_id if row else None,
                session_id=row.session_id if row else None,
                facts=facts,
            )
        )

    def timer(self, boot_s: float, kind: str, key: str) -> None:
        """Ask to be woken at *boot_s* with (kind, key); a timer may turn out to be void."""
        heapq.heappush(self.state.timers, (boot_s, kind, key))

    def notice(
        self,
        session_id: SessionId,
        kind: str,
        text: str,
        *,
        file_id: str | None = None,
        file_name: str | None = None,
        mime: str | None = None,
    ) -> NoticeRow:
        """Keep something that a session, or the hub about it, has to say."""
        self.state.last_notice += 1
        row = NoticeRow(
            id=self.state.last_notice,
            session_id=session_id,
            kind=kind,
            text=text,
            at_ms=self.at.wall_ms,
            file_id=file_id,
            file_name=file_name,
            mime=mime,
        )
        self.write(row)
        self.change()
        return row
