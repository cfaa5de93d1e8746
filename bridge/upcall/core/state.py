"""What the kernel's machines share: the open rows in memory, and one step's decision."""

import hashlib
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Final, Literal, TypeAlias

from upcall.core.places import Plan
from upcall.core.redact import Masks
from upcall.core.rules import RulesBook
from upcall.model.ask import AskSpec
from upcall.model.document import Message
from upcall.model.effects import Changed, Decision, Log, Noticed, Release, Write
from upcall.model.events import Moment
from upcall.model.ids import ActionId, AskId, SessionId
from upcall.model.platform import Body, Capabilities, Place, Receipt, Who
from upcall.model.policy import Operator, Policy, Verbosity
from upcall.model.quotas import Limits
from upcall.model.rows import (
    AskRow,
    AuditRow,
    CardRow,
    ClaimRow,
    ConversationRow,
    DeliveryRow,
    HeldText,
    HubButton,
    LockRow,
    NoticeRow,
    PairingRow,
    RetiredToken,
    SessionRow,
    TokenRow,
    VoteRow,
)
from upcall.model.settings import LiveSettings

CLOSED_KEPT: Final = 256
ENDED_KEPT: Final = 512
INBOUND_KEPT: Final = 10_000
KEYS_KEPT: Final = 50_000
FORMER_KEPT: Final = 1000
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
        people: the people whom the configuration names, by name.
        policy: who is asked, who may answer, and when.
        machine: what this machine is called.
        boot_id: this boot; deadlines of another one go by the wall clock.
        uid: the hub's own user; its programs may answer at their own prompts.
        allow_defaults: asks of programs without an endpoint may have a default.
        zone: where people's clocks are, for times in words; without it none are said.
        redact: recognised credentials are masked in what is kept and shown.
        confirm_changes: what widens a right waits until a former operator agrees.
        adapters: channel to the adapter that serves it, for those of other people.
        tell_degraded: what goes wrong with a channel is told on the others.
        limits: how much a session may ask, say and keep.
    """

    operator: str
    machine: str
    boot_id: str
    channels: tuple[ChannelInfo, ...] = ()
    operators: dict[tuple[str, str], str] = field(default_factory=dict)
    people: dict[str, Operator] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    local_answers: LocalAnswers = "tty"
    uid: str = ""
    allow_direct_clients: bool = False
    allow_defaults: bool = True
    zone: tzinfo | None = None
    redact: bool = True
    confirm_changes: bool = False
    adapters: dict[str, str] = field(default_factory=dict)
    tell_degraded: bool = True
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True)
class SessionLive:
    """What a session says while it lives; nothing of it is stored.

    Attributes:
        said: the end of what it said last, as it came, and by which name.
        presented: what it presented since the link came up, until it is in step.
        sync_due_s: boot clock time at which a peer has presented all that it waits for.
        ttys: terminals of the program; input there tells nothing of a person.
    """

    attached: bool = False
    capabilities: frozenset[str] = frozenset()
    task: str | None = None
    model: str | None = None
    usage: str | None = None
    activity: str | None = None
    last_text: str | None = None
    verbosity: str | None = None
    said: str = ""
    said_ref: str | None = None
    presented: set[AskId] = field(default_factory=set)
    syncing: bool = False
    sync_due_s: float | None = None
    ttys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Redaction:
    """What people chose for a conversation: masked, or for a while not.

    Attributes:
        by: who chose it, in words.
        until_ms: wall clock time at which that ends; None: it does not.
    """

    redact: bool
    by: str
    until_ms: int | None = None


@dataclass(slots=True)
class ChannelLive:
    """What a channel says of itself.

    Attributes:
        heard_ms: when an inbound round was last completed.
        silent_due_s: when it is taken for deaf if no other round is completed (boot time).
        event_ms: when something that a person did there was last handled.
        deaf_since_ms: since when it may have missed something, until that was made up for.
        told_deaf: people were told on other channels.
        logged_deaf: the log says that it is deaf, and not yet that it hears again.
        caught_up: nothing that was done while it did not hear has still to come.
        catch_up_by_s: how long that is waited for, on the boot clock; None: it is not.
        too_old: how much grew too old while it did not hear, and was not posted.
        settled: how many questions were settled elsewhere meanwhile, and were not posted.
        away_since_s: since when it does not hear, on the boot clock; None while it does, or
            before it said anything.
    """

    hearing: bool = False
    audience: int = 0
    signed_in: int = 0
    reason: str | None = "starting"
    heard_ms: int | None = None
    silent_due_s: float | None = None
    event_ms: int | None = None
    deaf_since_ms: int | None = None
    told_deaf: bool = False
    logged_deaf: bool = False
    caught_up: bool = True
    catch_up_by_s: float | None = None
    too_old: int = 0
    settled: int = 0
    away_since_s: float | None = None


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


@dataclass(frozen=True, slots=True)
class WaitingSettings:
    """Settings that are not in force yet.

    Attributes:
        source: the tables as they are kept.
        ask_id: the ask that somebody has to agree to; None: it was refused.
    """

    settings: LiveSettings
    source: str
    ask_id: AskId | None


@dataclass(slots=True)
class Flood:
    """How much one session asks and says, in this hub's life; times are on the boot clock.

    Attributes:
        shown: its open asks that channels show, or are about to.
        shown_s: when asks were newly shown, within the last minute.
        back: its open asks that wait to be shown, oldest first.
        approvals_s: when it asked for permissions, within the last five minutes.
        said: bytes of text within the minute that began at `said_from_s`.
        files: when it attached files within the last hour, and how large they were.
        stored: how much is kept of it, in characters of text.
        told_s: of a limit, when people were last told that it was reached.
        lines: of each channel, the words on its waiting asks that stand there.
        line_s: when those words may be changed again.
        stopped_by: who said that it is to stop asking.
    """

    shown: dict[AskId, None] = field(default_factory=dict)
    shown_s: deque[float] = field(default_factory=deque)
    back: dict[AskId, None] = field(default_factory=dict)
    approvals_s: deque[float] = field(default_factory=deque)
    said: int = 0
    said_from_s: float = float("-inf")
    files: deque[tuple[float, int]] = field(default_factory=deque)
    stored: int = 0
    told_s: dict[str, float] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    line_s: float = float("-inf")
    stopped_by: tuple[str, Who] | None = None


@dataclass(slots=True)
class HubState:
    """The kernel's dictionaries: a cache of the open rows, rebuilt at start.

    What is kept of things that are over (`closed`, `won`, `inbound`, `ended`, `keys`, and
    what hangs on them) is bounded, since a hub may run for months.

    Attributes:
        hosted: of each asking process, its sessions by conversation.
        hosted_count: how many sessions `hosted` holds.
        clock_offset_ms: by how much the wall clock was ahead of the boot clock at the last
            event.
        sleep_coming: the computer is going to sleep, or sleeps.
        living: of each conversation, its sessions that have not ended.
        idle_due: when a conversation without such sessions is closed, on the boot clock.
        lanes: of each target, its lanes with their deliveries in order.
        tries: failures of each delivery in this hub's life, for the next wait.
        retry_due: when a delivery that waits is tried again, on the boot clock.
        gate_due: until when a target takes nothing, on the boot clock.
        inbound_ms: when each inbound event had its effect.
        contents: what inbound events are known by besides their keys.
        held_back: channels that have first to be heard before anything is posted.
        dead: what was given up for a channel, until a person tries again or drops it.
        letters_sorted: of each request, why some of its letters stayed as they were.
        former_places: threads of conversations that were closed, for when they go on.
        waiters: of each ask, who waits, and whether it is the asker itself.
        waiting_for: the ask that each of them waits for.
        process_of: the process behind an attached waiter, and `waiters_of` the reverse.
        offered: attached waiters that were told the claimed answer.
        secrets: words that were claimed for secret asks; in memory only.
        heard: of open asks with a default, whether a person could have answered.
        rules: what holds for asks under the policy in force.
        answers: of each channel, how many asks ended with an answer from there.
        refusals: of an open ask, how many answers were not believed in this hub's life.
        votes: of an open ask that needs several, those that are live.
        pairings: identities that were added while the hub ran, by channel and identity.
        revoked: names of people whose rights were taken, with when.
        lock: nothing is taken but from the control socket.
        waiting_settings: what was read, and waits until the ask with this id is agreed to.
        untold: of a new identity, the messages that tell others of it.
        denied: how often each identity was refused in this hub's life.
        taken_back: claims that ended because their person may not answer any more.
        course_due: when it is looked at next what an open ask's time has brought.
        plans: where open asks are shown, as it was decided last.
        seen_here: signs of a person at this computer, and when, on the boot clock.
        verbosities: of conversations, how much of their work is shown.
        merged: of an ask whose card stands for others, those others, oldest first.
        copies: of an ask, what each channel calls further messages that show it.
        retired: buttons that were over lately; older ones are looked up in the store.
        buttons: those of the hub's own questions; `buttons_of` by their subject.
        texts: what waits until its writer says what it was.
        texts_since: of a person in a thread, when something was last heard from there.
        foreign_presses: presses of buttons that were never ours, in this hub's life.
        floods: how much each session asks and says.
        flooding: sessions whose waiting asks, or the words on them, are to be looked at.
        redactions: of conversations, whether people chose that credentials are masked.
        redaction_due: when such a choice ends, on the boot clock.
        masked_specs: of an open ask, its texts, what is shown of them, and how many characters
            of what will run that hides.
        masks: masks texts, and remembers short ones.
        opened: of an ask, the channels where the rest of what will run was shown.
        opening: deliveries that show it, with ask and channel.
        shown_text: returns what a session says as it may be shown.
    """

    settings: KernelSettings
    infos: dict[str, ChannelInfo] = field(default_factory=dict)
    sessions: dict[SessionId, SessionRow] = field(default_factory=dict)
    hosted: dict[Process, dict[str, SessionId]] = field(default_factory=dict)
    hosted_count: int = 0
    sleep_coming: bool = False
    clock_offset_ms: int | None = None
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
    copies: dict[AskId, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    retired: OrderedDict[str, RetiredToken] = field(default_factory=OrderedDict)
    buttons: dict[str, HubButton] = field(default_factory=dict)
    buttons_of: dict[str, dict[str, None]] = field(default_factory=dict)
    texts: dict[int, HeldText] = field(default_factory=dict)
    texts_since: dict[tuple[str, str, str], int] = field(default_factory=dict)
    foreign_presses: int = 0
    floods: dict[SessionId, Flood] = field(default_factory=dict)
    flooding: dict[SessionId, None] = field(default_factory=dict)
    deliveries: dict[int, DeliveryRow] = field(default_factory=dict)
    deliveries_of: dict[AskId, dict[int, None]] = field(default_factory=dict)
    lanes: dict[str, dict[str, dict[int, None]]] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    retry_due: dict[int, float] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    gate_due: dict[str, float] = field(default_factory=dict)
    held_back: dict[str, None] = field(default_factory=dict)
    dead: OrderedDict[int, DeliveryRow] = field(default_factory=OrderedDict)
    letters_sorted: dict[int, dict[int, str]] = field(default_factory=dict)
    former_places: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict)
    inbound: OrderedDict[tuple[str, str], Receipt | None] = field(default_factory=OrderedDict)
    inbound_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    contents: dict[str, tuple[str, str]] = field(default_factory=dict)
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
    votes: dict[AskId, dict[tuple[str, str], VoteRow]] = field(default_factory=dict)
    pairings: dict[tuple[str, str], PairingRow] = field(default_factory=dict)
    revoked: dict[str, int] = field(default_factory=dict)
    lock: LockRow | None = None
    waiting_settings: WaitingSettings | None = None
    untold: dict[tuple[str, str], frozenset[int]] = field(default_factory=dict)
    denied: OrderedDict[tuple[str, str], int] = field(default_factory=OrderedDict)
    taken_back: dict[AskId, ClaimRow] = field(default_factory=dict)
    course_due: dict[AskId, float] = field(default_factory=dict)
    plans: dict[AskId, Plan] = field(default_factory=dict)
    seen_here: dict[str, float] = field(default_factory=dict)
    verbosities: dict[str, Verbosity] = field(default_factory=dict)
    merged: dict[AskId, dict[AskId, None]] = field(default_factory=dict)
    receipts_waiting: dict[AskId, list[int]] = field(default_factory=dict)
    ended: OrderedDict[SessionId, SessionRow] = field(default_factory=OrderedDict)
    timers: list[tuple[float, str, str]] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    rules: RulesBook = field(default_factory=RulesBook)
    resumed_boot_s: float = float("-inf")
    redactions: dict[str, Redaction] = field(default_factory=dict)
    redaction_due: dict[str, float] = field(default_factory=dict)
    masked_specs: dict[AskId, tuple[AskSpec, AskSpec, int]] = field(default_factory=dict)
    masks: Masks = field(default_factory=Masks)
    opened: dict[AskId, set[str]] = field(default_factory=dict)
    opening: dict[int, tuple[AskId, str]] = field(default_factory=dict)
    shown_text: Callable[[SessionId, str], str] = lambda _, text: text
    last_inbound: int = 0
    last_delivery: int = 0
    last_notice: int = 0
    last_text: int = 0

    def __post_init__(self) -> None:
        for info in self.settings.channels:
            self.infos[info.name] = info
            self.channels[info.name] = ChannelLive()

    def forget_shown(self, ask_id: AskId) -> None:
        """Forget how an ask was shown: it is over, or shown otherwise from now on."""
        self.masked_specs.pop(ask_id, None)
        self.opened.pop(ask_id, None)
        for number in [at for at, (ask, _) in self.opening.items() if ask == ask_id]:
            del self.opening[number]

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
            of_process = self.hosted.setdefault(process, {})
            self.hosted_count += session.conversation not in of_process
            of_process[session.conversation] = session.session_id

    def leave_process(self, session: SessionRow) -> None:
        """Forget that the session's asker is its asker."""
        process = (session.asker_pid, session.asker_start)
        of_process = self.hosted.get(process, {})
        if of_process.get(session.conversation) == session.session_id:
            del of_process[session.conversation]
            self.hosted_count -= 1
            if not of_process:
                del self.hosted[process]

    def leave(self, session: SessionRow) -> bool:
        """Track that a session has ended; return whether its conversation is idle now."""
        self.sessions.pop(session.session_id, None)
        self.live.pop(session.session_id, None)
        self.leave_process(session)
        flood = self.floods.get(session.session_id)
        if flood is not None and flood.lines:
            # What stands on chats about it is to be settled.
            self.flooding[session.session_id] = None
        elif flood is not None:
            del self.floods[session.session_id]
        self.ended[session.session_id] = session
        while len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)
        others = self.living[session.conversation]
        del others[session.session_id]
        if others:
            return False
        del self.living[session.conversation]
        return True

    def keep_former(self, key: str, channel: str, place: str) -> None:
        """Remember the thread of a conversation that is closed, in case it goes on."""
        info = self.infos.get(channel)
        if place and info is not None and info.capabilities.threads:
            self.former_places[key, channel] = place
            while len(self.former_places) > FORMER_KEPT:
                self.former_places.popitem(last=False)

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

    __slots__ = ("_drawn", "_loud", "_seed", "at", "changed", "decision", "state")

    def __init__(self, state: HubState, at: Moment, seed: bytes) -> None:
        self.state = state
        self.at = at
        self.decision = Decision()
        self.changed = False
        self._seed = seed
        self._drawn = 0
        self._loud: list[NoticeRow] = []

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
        quietly: bool = False,
    ) -> NoticeRow:
        """Keep something that a session, or the hub about it, has to say.

        What concerns operators (`security`) is said on every channel too, unless *quietly*.
        """
        text = self.state.shown_text(session_id, text)
        if file_name is not None:
            file_name = self.state.shown_text(session_id, file_name)
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
        if kind == "security" and not quietly:
            self._loud.append(row)
        return row

    def take_loud(self) -> list[NoticeRow]:
        """Return what has still to be said on every channel."""
        loud, self._loud = self._loud, []
        return loud


def is_overdue(step: Step, row: AskRow) -> bool:
    """Tell whether the time of an open ask is over."""
    return (
        row.state == "open"
        and row.deadline_boot_s is not None
        and row.deadline_boot_s <= step.at.boot_s
    )
