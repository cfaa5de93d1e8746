"""What the kernel's machines share: the open rows in memory, and one step's decision."""

import hashlib
import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Final, Literal, TypeAlias

from upcall.model.document import Message
from upcall.model.effects import Changed, Decision, Log, Noticed, Release, Write
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
ENDED_KEPT: Final = 512
INBOUND_KEPT: Final = 10_000
KEYS_KEPT: Final = 50_000
Process: TypeAlias = tuple[int, str]
"""A process by pid and start."""
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
        uid: the hub's own user; its programs may answer at their own prompts.
        allow_defaults: asks of programs without an endpoint may have a default.
        zone: where people's clocks are, for times in words; without it none are said.
    """

    operator: str
    machine: str
    boot_id: str
    channels: tuple[ChannelInfo, ...] = ()
    operators: dict[tuple[str, str], str] = field(default_factory=dict)
    local_answers: LocalAnswers = "tty"
    uid: str = ""
    allow_direct_clients: bool = False
    allow_defaults: bool = True
    zone: tzinfo | None = None


@dataclass(slots=True)
class SessionLive:
    """What a session says while it lives; nothing of it is stored.

    Attributes:
        presented: what it presented since the link came up, until it is in step.
        sync_due_s: boot clock time at which a peer has presented all that it waits for.
    """

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
    sync_due_s: float | None = None


@dataclass(slots=True)
class ChannelLive:
    """What a channel says of itself."""

    hearing: bool = False
    audience: int = 0
    reason: str | None = "starting"
    heard_ms: int | None = None


@dataclass(slots=True)
class Heard:
    """Of an open ask with a default, how long no place has shown it; in boot clock seconds.

    Attributes:
        since_s: since when none does, or None.
        total_s: how long none did before.
        extended_s: how much of that its deadline was put off by.
        ever: some place has shown it in this hub's life.
    """

    since_s: float | None
    total_s: float = 0.0
    extended_s: float = 0.0
    ever: bool = False


@dataclass(slots=True)
class HubState:
    """The kernel's dictionaries: a cache of the open rows, rebuilt at start.

    What is kept of things that are over (`closed`, `won`, `inbound`, `ended`, `keys`, and
    what hangs on them) is bounded, since a hub may run for months.

    Attributes:
        hosted: of each asking process, its sessions by conversation.
        living: of each conversation, its sessions that have not ended.
        idle_due: when a conversation without such sessions is closed, on the boot clock.
        lanes: of each target, its lanes with their deliveries in order.
        tries: failures of each delivery in this hub's life, for the next wait.
        retry_due: when a delivery that waits is tried again, on the boot clock.
        gate_due: until when a target takes nothing, on the boot clock.
        waiters: of each ask, who waits, and whether it is the asker itself.
        waiting_for: the ask that each of them waits for.
        process_of: the process behind an attached waiter, and `waiters_of` the reverse.
        offered: attached waiters that were told the claimed answer.
        secrets: words that were claimed for secret asks; in memory only.
        heard: of open asks with a default, whether a person could have answered.
        refusals: of an open ask, how many answers were not believed in this hub's life.
    """

    settings: KernelSettings
    infos: dict[str, ChannelInfo] = field(default_factory=dict)
    sessions: dict[SessionId, SessionRow] = field(default_factory=dict)
    hosted: dict[Process, dict[str, SessionId]] = field(default_factory=dict)
    living: dict[str, dict[SessionId, None]] = field(default_factory=dict)
    idle_due: dict[str, float] = field(default_factory=dict)
    live: dict[SessionId, SessionLive] = field(default_factory=dict)
    asks: dict[AskId, AskRow] = field(default_factory=dict)
    closed: OrderedDict[AskId, AskRow] = field(default_factory=OrderedDict)
    by_action: dict[tuple[SessionId, ActionId], AskId] = field(default_factory=dict)
    by_session: dict[SessionId, dict[AskId, None]] = field(default_factory=dict)
    claims: dict[AskId, ClaimRow] = field(default_factory=dict)
    won: OrderedDict[AskId, ClaimRow] = field(default_factory=OrderedDict)
    conversations: dict[str, dict[str, ConversationRow]] = field(default_factory=dict)
    cards: dict[AskId, dict[str, CardRow]] = field(default_factory=dict)
    tokens: dict[str, TokenRow] = field(default_factory=dict)
    tokens_of: dict[AskId, list[TokenRow]] = field(default_factory=dict)
    deliveries: dict[int, DeliveryRow] = field(default_factory=dict)
    deliveries_of: dict[AskId, dict[int, None]] = field(default_factory=dict)
    lanes: dict[str, dict[str, dict[int, None]]] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    retry_due: dict[int, float] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    gate_due: dict[str, float] = field(default_factory=dict)
    inbound: OrderedDict[tuple[str, str], Receipt | None] = field(default_factory=OrderedDict)
    settings_kept: dict[tuple[str, str], str] = field(default_factory=dict)
    roots: dict[str, None] = field(default_factory=dict)
    keys: OrderedDict[str, AskId] = field(default_factory=OrderedDict)
    channels: dict[str, ChannelLive] = field(default_factory=dict)
    waiters: dict[AskId, dict[int, bool]] = field(default_factory=dict)
    waiting_for: dict[int, AskId] = field(default_factory=dict)
    process_of: dict[int, Process] = field(default_factory=dict)
    waiters_of: dict[Process, dict[int, None]] = field(default_factory=dict)
    offered: set[int] = field(default_factory=set)
    secrets: dict[AskId, str] = field(default_factory=dict, repr=False)
    refusals: dict[AskId, int] = field(default_factory=dict)
    heard: dict[AskId, Heard] = field(default_factory=dict)
    receipts_waiting: dict[AskId, list[int]] = field(default_factory=dict)
    ended: OrderedDict[SessionId, SessionRow] = field(default_factory=OrderedDict)
    timers: list[tuple[float, str, str]] = field(default_factory=list)
    resumed_boot_s: float = float("-inf")
    last_inbound: int = 0
    last_delivery: int = 0
    last_notice: int = 0

    def __post_init__(self) -> None:
        for info in self.settings.channels:
            self.infos[info.name] = info
            self.channels[info.name] = ChannelLive()

    def find(self, ask_id: AskId) -> AskRow | None:
        """Return an ask that is open, or was closed in this hub's life."""
        return self.asks.get(ask_id) or self.closed.get(ask_id)

    def at_action(self, session_id: SessionId, action_id: ActionId) -> AskRow | None:
        """Return the newest ask that the session raised under this action id."""
        ask_id = self.by_action.get((session_id, action_id))
        return None if ask_id is None else self.find(ask_id)

    def session(self, session_id: SessionId) -> SessionRow | None:
        """Return a session that lives, or ended in this hub's life."""
        return self.sessions.get(session_id) or self.ended.get(session_id)

    def live_of(self, session_id: SessionId) -> SessionLive:
        """Return what the session says while it lives."""
        return self.live.setdefault(session_id, SessionLive())

    def is_hosted(self, session_id: SessionId) -> bool:
        """Tell whether the hub hosts the session's endpoint."""
        session = self.session(session_id)
        return session is not None and session.kind == "hosted"

    def asks_of(self, session_id: SessionId) -> list[AskRow]:
        """Return a session's open and claimed asks, oldest first."""
        return [self.asks[ask_id] for ask_id in self.by_session.get(session_id, ())]

    def enter(self, session: SessionRow) -> None:
        """Track a session that lives, or track how it changed."""
        self.sessions[session.session_id] = session
        self.ended.pop(session.session_id, None)
        self.living.setdefault(session.conversation, {})[session.session_id] = None
        self.idle_due.pop(session.conversation, None)
        if session.kind == "hosted" and session.asker_pid:
            process = (session.asker_pid, session.asker_start)
            self.hosted.setdefault(process, {})[session.conversation] = session.session_id

    def leave_process(self, session: SessionRow) -> None:
        """Forget that the session's asker is its asker."""
        process = (session.asker_pid, session.asker_start)
        of_process = self.hosted.get(process, {})
        if of_process.get(session.conversation) == session.session_id:
            del of_process[session.conversation]
            if not of_process:
                del self.hosted[process]

    def leave(self, session: SessionRow) -> bool:
        """Track that a session has ended; return whether its conversation is idle now."""
        self.sessions.pop(session.session_id, None)
        self.live.pop(session.session_id, None)
        self.leave_process(session)
        self.ended[session.session_id] = session
        while len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)
        others = self.living[session.conversation]
        del others[session.session_id]
        if others:
            return False
        del self.living[session.conversation]
        return True

    def remember_key(self, key: str, ask_id: AskId) -> None:
        """Let a re-run with *key* find *ask_id*; what is over is forgotten some day."""
        self.keys[key] = ask_id
        self.keys.move_to_end(key)
        looks = 8
        while len(self.keys) > KEYS_KEPT and looks:
            looks -= 1
            oldest, of_oldest = self.keys.popitem(last=False)
            if of_oldest in self.asks:
                self.keys[oldest] = of_oldest

    def add_waiter(
        self, waiter: int, ask_id: AskId, *, attached: bool, process: Process | None
    ) -> None:
        """Track who waits for an ask."""
        self.waiters.setdefault(ask_id, {})[waiter] = attached
        self.waiting_for[waiter] = ask_id
        if attached and process is not None and process[0]:
            self.process_of[waiter] = process
            self.waiters_of.setdefault(process, {})[waiter] = None

    def drop_waiter(self, waiter: int) -> tuple[AskId, bool] | None:
        """Forget a waiter; return what it waited for, and whether it was the asker itself."""
        ask_id = self.waiting_for.pop(waiter, None)
        if ask_id is None:
            return None
        self.offered.discard(waiter)
        process = self.process_of.pop(waiter, None)
        if process is not None:
            of_process = self.waiters_of[process]
            del of_process[waiter]
            if not of_process:
                del self.waiters_of[process]
        of_ask = self.waiters[ask_id]
        attached = of_ask.pop(waiter)
        if not of_ask:
            del self.waiters[ask_id]
        return ask_id, attached

    def detach(self, process: Process) -> list[AskId]:
        """Take a process' waiters for askers no longer; return the asks they waited for."""
        asks = []
        for waiter in self.waiters_of.pop(process, ()):
            del self.process_of[waiter]
            ask_id = self.waiting_for[waiter]
            self.waiters[ask_id][waiter] = False
            asks.append(ask_id)
        return asks

    def is_posting(self, ask_id: AskId, channel: str) -> bool:
        """Tell whether a card of the ask has still to arrive on the channel."""
        return any(
            self.deliveries[number].kind == "post" and self.deliveries[number].target == channel
            for number in self.deliveries_of.get(ask_id, ())
        )


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
        self.release(Noticed(row))
        self.change()
        return row
