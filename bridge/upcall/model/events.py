"""Everything that can happen to the hub, as one union: facts, each with its time."""

from typing import Any, Literal, TypeAlias

import msgspec

from upcall.model.ask import AskSpec
from upcall.model.ids import AskId, SessionId
from upcall.model.platform import Inbound, Who
from upcall.model.policy import Verbosity
from upcall.model.rows import AskRow, PairingRow, RetiredToken
from upcall.model.settings import LiveSettings


class Moment(msgspec.Struct, frozen=True):
    """One instant on both clocks: wall milliseconds, and seconds since boot."""

    wall_ms: int
    boot_s: float


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """The program on the other end of the hub's socket, as kernel and client tell it.

    Attributes:
        pid: from the peer's credentials; 0 when the kernel could not tell.
        start: its start.
        parent: `pid:start` of its parent, which keys the conversation.
        uid: peer's uid.
        name: `--session NAME`, if given.
        chain: `pid:start` of all processes that count as the one that asked.
        tags: what it calls itself by, for routes.
        ttys: terminals of the program and of what started it.
    """

    pid: int
    start: str
    parent: str
    uid: int
    name: str | None = None
    title: str | None = None
    cwd: str | None = None
    program: str | None = None
    repo: str | None = None
    branch: str | None = None
    chain: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    ttys: tuple[str, ...] = ()


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    at: Moment


class AskRaised(_Event, frozen=True, kw_only=True):
    """A program asks over the hub's socket.

    Attributes:
        timeout_s: seconds until it ends by itself, or None.
        found: the ask with this id or key, if it was closed before this hub's life.
        fresh: random bytes for new ids.
    """

    waiter: int
    ask_id: AskId
    spec: AskSpec
    asker: Asker
    timeout_s: float | None = None
    wait: bool = True
    key: str | None = None
    found: AskRow | None = None
    fresh: bytes = b""


class WaitAsked(_Event, frozen=True, kw_only=True):
    """A program wants to hear how an ask ends."""

    waiter: int
    ask_id: AskId
    found: AskRow | None = None


class Took(_Event, frozen=True, kw_only=True):
    """The asker has written the answer; or its own terminal prompt answered."""

    waiter: int
    ask_id: AskId
    who: Who
    asker: Asker | None = None
    indices: tuple[int, ...] | None = None
    text: str | None = None
    declined: bool = False
    secret: bool = False
    local: bool = False
    found: AskRow | None = None


class CancelAsked(_Event, frozen=True, kw_only=True):
    """The asker, or its user, withdraws its ask."""

    waiter: int
    ask_id: AskId
    found: AskRow | None = None
    reason: str = ""


class NoticeRaised(_Event, frozen=True, kw_only=True):
    """A program says something over the hub's socket."""

    waiter: int
    text: str
    level: str
    asker: Asker
    fresh: bytes


class WaiterGone(_Event, frozen=True, kw_only=True):
    """A connection to the hub's socket ended."""

    waiters: tuple[int, ...]


class AskerDied(_Event, frozen=True, kw_only=True):
    """A process that asked has ended."""

    pid: int
    start: str


class LinkUp(_Event, frozen=True, kw_only=True):
    """The hub is attached to a session's endpoint and has its hello.

    Attributes:
        ttys: terminals of the program and of what started it.
    """

    session_id: SessionId
    pid: int
    pid_start: str
    record_path: str
    program: str | None
    cwd: str | None
    capabilities: tuple[str, ...] | frozenset[str]
    ttys: tuple[str, ...] = ()


class LinkSynced(_Event, frozen=True, kw_only=True):
    """Everything that the session had to replay was received."""

    session_id: SessionId


class LinkDown(_Event, frozen=True, kw_only=True):
    """The connection to a session ended; `gone`: the program is no more."""

    session_id: SessionId
    gone: bool


class FrameIn(_Event, frozen=True, kw_only=True):
    """A session said something. Attachments arrive with their bytes already in a file.

    Attributes:
        id_taken: the public id in the frame's action id may be another ask's, which was
            closed before this hub's life.
    """

    session_id: SessionId
    frame: Any
    fresh: bytes
    file_id: str | None = None
    id_taken: bool = False


class HostedReply(_Event, frozen=True, kw_only=True):
    """A client of a hosted session's endpoint replies (token already checked)."""

    session_id: SessionId
    connection: str
    frame: Any


class PersonActed(_Event, frozen=True, kw_only=True):
    """A person did something on a channel.

    Attributes:
        receipt_id: what the adapter waits on, or 0.
        found: the ask that it names, or whose card or button it names, if closed before
            this hub's life.
        retired: what the button was, if it was over before this hub's life.
    """

    channel: str
    inbound: Inbound
    receipt_id: int = 0
    found: AskRow | None = None
    retired: RetiredToken | None = None


class Delivered(_Event, frozen=True, kw_only=True):
    """A delivery arrived; for posts, under this ref."""

    delivery: int
    ref: str | None = None


class DeliveryFailed(_Event, frozen=True, kw_only=True):
    """A delivery did not arrive, or may not have.

    Attributes:
        kind: `absent`: it was looked up and is not there, and was not sent again.
        code: of the error.
        place_only: the platform asks for a pause in this place alone.
    """

    delivery: int
    kind: Literal["not_sent", "refused", "throttled", "uncertain", "absent"]
    msg: str
    retry_after_s: float = 0.0
    jitter: float = 0.0
    code: str = ""
    place_only: bool = False


class ChannelChanged(_Event, frozen=True, kw_only=True):
    """A channel hears, or not; and how many look.

    Attributes:
        caught_up: all that people did while it did not hear has been handed in.
    """

    channel: str
    hearing: bool
    audience: int
    reason: str | None = None
    caught_up: bool = False
    signed_in: int = 0


class SleepComing(_Event, frozen=True, kw_only=True):
    """The computer is going to sleep, or, not `coming`, it woke."""

    coming: bool


class Slept(_Event, frozen=True, kw_only=True):
    """The computer was asleep until now.

    Attributes:
        since_ms: wall clock time at which it was last known to be awake.
    """

    since_ms: int


class AtMachine(_Event, frozen=True, kw_only=True):
    """Somebody was seen at this computer, or nobody was.

    Attributes:
        seen: terminal or file of a signal, to when it was last touched on the boot clock.
    """

    seen: dict[str, float]


class VerbositySet(_Event, frozen=True, kw_only=True):
    """How much of a conversation's work is shown; None: as the configuration says."""

    conversation: str
    level: Verbosity | None


class RedactionChosen(_Event, frozen=True, kw_only=True):
    """Somebody at the control socket chose whether credentials are masked in a conversation.

    Attributes:
        redact: masked or not; None: as the configuration says.
        for_s: how long they are shown.
        by: who chose it, in words.
    """

    conversation: str
    redact: bool | None
    by: str
    for_s: float | None = None


class LettersSorted(_Event, frozen=True, kw_only=True):
    """A person wants messages that did not arrive tried once more, or dropped.

    Attributes:
        number: of the request, for its result.
        letters: their ids.
        found: their asks that were closed before this hub's life.
    """

    number: int
    action: Literal["retry", "drop"]
    letters: tuple[int, ...]
    found: dict[AskId, AskRow] = {}


class RootChanged(_Event, frozen=True, kw_only=True):
    """A project folder was registered or forgotten."""

    waiter: int
    path: str
    gone: bool


class LockAsked(_Event, frozen=True, kw_only=True):
    """Somebody at the control socket locks the hub, or unlocks it."""

    lock: bool
    who: Who
    reason: str = ""


class OperatorChanged(_Event, frozen=True, kw_only=True):
    """Somebody at the control socket adds a person's identity, or takes or returns rights.

    Attributes:
        pairing: what is added.
        name: whose rights are taken, or with `back` given back.
    """

    who: Who
    pairing: PairingRow | None = None
    name: str = ""
    back: bool = False
    fresh: bytes = b""


class SettingsChanged(_Event, frozen=True, kw_only=True):
    """The configuration file was read, and can be used.

    Attributes:
        source: its live tables, as they are kept for the next start.
    """

    settings: LiveSettings
    source: str


class SettingsRefused(_Event, frozen=True, kw_only=True):
    """The configuration file was read, and cannot be used; the former stays in force."""

    msg: str


class StoreMeasured(_Event, frozen=True, kw_only=True):
    """The store was looked through.

    Attributes:
        sizes: how much it keeps of each session that lives, in characters of text.
    """

    sizes: dict[SessionId, int]


class Due(_Event, frozen=True, kw_only=True):
    """Time has passed; see what is due."""


class TextsForgotten(_Event, frozen=True, kw_only=True):
    """A person had texts erased; what memory holds of them goes too.

    Attributes:
        asks: closed asks.
        sessions: sessions that have ended, whose names go.
        conversation: a conversation whose name goes, if nobody is in it any more.
    """

    asks: tuple[AskId, ...]
    sessions: tuple[SessionId, ...] = ()
    conversation: str | None = None


class AuditAnchored(_Event, frozen=True, kw_only=True):
    """The audit's head was noted; a channel is to keep it too.

    Attributes:
        channel: which.
        text: the line.
        effect: unique to this head.
    """

    channel: str
    text: str
    effect: str


class Resumed(_Event, frozen=True, kw_only=True):
    """The hub starts with the rows that it had; what must go on, goes on."""


Event: TypeAlias = (
    AskRaised
    | WaitAsked
    | Took
    | CancelAsked
    | NoticeRaised
    | WaiterGone
    | AskerDied
    | LinkUp
    | LinkSynced
    | LinkDown
    | FrameIn
    | HostedReply
    | PersonActed
    | Delivered
    | DeliveryFailed
    | ChannelChanged
    | AtMachine
    | VerbositySet
    | RedactionChosen
    | LettersSorted
    | RootChanged
    | SleepComing
    | Slept
    | StoreMeasured
    | AuditAnchored
    | LockAsked
    | OperatorChanged
    | SettingsChanged
    | SettingsRefused
    | TextsForgotten
    | Due
    | Resumed
)
