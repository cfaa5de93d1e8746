"""What the hub shows of itself: asks, sessions, channels and health, as plain data.

The same objects go to web pages, to `upcall watch`, over the hub's sockets and into
`--json`; their fields are documented in docs/protocol.md.
"""

from typing import Literal, TypeAlias

import msgspec

from upcall.model.ask import AnsweredBy, AskClass, AskState, Selection

SessionKind: TypeAlias = Literal["hosted", "sdk", "peer"]
SessionState: TypeAlias = Literal["attached", "away", "gone"]


class SessionView(msgspec.Struct, frozen=True):
    """A session, with what it says of itself and what the hub found out.

    Attributes:
        asks: what a person said of its questions: `shown`, `muted` or `stopped`.
        waiting: how many of them wait to be shown.
        redaction: that credentials are shown there as they are: until when, by whose choice.
    """

    session_id: str
    kind: SessionKind
    state: SessionState
    conversation: str
    title: str | None = None
    repo: str | None = None
    branch: str | None = None
    machine: str | None = None
    cwd: str | None = None
    program: str | None = None
    pid: int | None = None
    task: str | None = None
    model: str | None = None
    usage: str | None = None
    activity: str | None = None
    last_text: str | None = None
    since_ms: int = 0
    record_path: str | None = None
    takes_text: bool = False
    tags: tuple[str, ...] = ()
    asks: str = "shown"
    waiting: int = 0
    redaction: str | None = None


class AskView(msgspec.Struct, frozen=True):
    """An ask as every surface shows it.

    Attributes:
        labels_shown: the options as they are drawn: escaped, and marked if they could be
            taken for words of the hub.
        label_notes: for each option what tells it from another one that looks like it; "".
        warnings: what to say of characters that deceive, a line each.
        waiting: channels show it once fewer of its session's asks are shown.
        burst: of a permission ask, how many of its session there were within five minutes.
        hidden_chars: of a permission, how many characters of what will run are masked.
        can_withdraw: a vote that came from this computer can be taken back.
        allows: of a permission, the options that do not plainly say no, by index.
    """

    id: str
    state: AskState
    ask_class: AskClass = msgspec.field(name="class")
    question: str
    options: tuple[str, ...]
    multi: bool
    free_text: bool
    revision: str
    raised_ms: int
    session: SessionView
    detail: str | None = None
    option_details: tuple[str, ...] | None = None
    min_selected: int | None = None
    max_selected: int | None = None
    recommended: int | None = None
    default: str | None = None
    deadline_ms: int | None = None
    held: bool = False
    outcome: str | None = None
    answer: Selection | None = None
    answered_by: AnsweredBy | None = None
    closed_ms: int | None = None
    can_decline: bool = False
    can_hold: bool = False
    can_withdraw: bool = False
    note: str = ""
    secret: bool = False
    labels_shown: tuple[str, ...] = ()
    label_notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    waiting: bool = False
    burst: int = 0
    hidden_chars: int = 0
    allows: tuple[int, ...] = ()


class ChannelView(msgspec.Struct, frozen=True):
    """Where an ask can be seen, and whether that is true right now.

    Attributes:
        state: `delivered` the card is there; `sending`; `down` the channel is not hearing.
        audience: pages or screens that are open now.
        signed_in: browsers that could open a page.
        reason: why it is down, in words.
        heard_ms: when an inbound round was last completed.
        event_ms: when something that a person did there was last handled.
        deaf_since_ms: since when it may have missed something.
    """

    name: str
    state: str
    audience: int = 0
    reason: str | None = None
    heard_ms: int | None = None
    event_ms: int | None = None
    deaf_since_ms: int | None = None
    signed_in: int = 0


class LetterView(msgspec.Struct, frozen=True):
    """A message of the outbox that has not arrived.

    Attributes:
        id: by which it is tried again or dropped.
        kind: `post`, `edit`, `remind`, `delete`, or `open` for a thread.
        state: `dead` it was given up; `uncertain` it may have arrived; `retry` and `queued`
            it waits; `sending` it is on its way.
        attempts: how many sends may have arrived.
        ask: the public id of the ask that it is about.
        next_ms: when it is tried again.
        reason: what went wrong, in words.
    """

    id: int
    kind: str
    lane: str
    channel: str
    state: str
    attempts: int
    created_ms: int
    ask: str | None = None
    next_ms: int | None = None
    reason: str | None = None


class NoticeView(msgspec.Struct, frozen=True):
    """Something a session said that nobody has to answer.

    Attributes:
        title: the session's title, else its program; the session may have ended long ago.
    """

    id: int
    session_id: str
    kind: str
    text: str
    at_ms: int
    file_id: str | None = None
    file_name: str | None = None
    mime: str | None = None
    title: str | None = None
    repo: str | None = None


class RefusedRecord(msgspec.Struct, frozen=True):
    """A discovery file that is not used, and why."""

    path: str
    code: str
    reason: str


class RootView(msgspec.Struct, frozen=True):
    """A registered project folder whose sessions the hub reads."""

    path: str
    records: int
    problem: str | None = None


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as it should be, with the remedy."""

    code: str
    msg: str
    recover: str | None = None


class IdentityView(msgspec.Struct, frozen=True):
    """How one person is known on one channel.

    Attributes:
        added: while the hub ran, and not in the configuration.
        waits_for: the ask that somebody has to agree to before it counts.
    """

    channel: str
    identity: str
    added: bool = False
    waits_for: str | None = None


class OperatorView(msgspec.Struct, frozen=True):
    """A person who may act, or whose rights were taken.

    Attributes:
        rights_on: channel to what the person may do there instead.
        revoked: all rights are taken, whatever is said here.
    """

    name: str
    identities: tuple[IdentityView, ...] = ()
    roles: tuple[str, ...] = ()
    rights: tuple[str, ...] = ()
    rights_on: dict[str, tuple[str, ...]] = {}
    revoked: bool = False


class LaneView(msgspec.Struct, frozen=True):
    """How much waits in one lane of the outbox, and for how long the oldest of it has."""

    lane: str
    waiting: int
    oldest_s: float | None = None


class GateView(msgspec.Struct, frozen=True):
    """A channel, or one place of it, that asked for a pause.

    Attributes:
        one_place: not the whole channel.
    """

    channel: str
    one_place: bool
    closed_for_s: float


class Numbers(msgspec.Struct, frozen=True):
    """What the kernel can say of itself in numbers.

    Attributes:
        uncertain: deliveries that may have arrived, or not.
        claimed: asks whose answer is on its way to the program.
        answers: channel to how many asks ended with an answer from there, since the start.
    """

    lanes: tuple[LaneView, ...] = ()
    gates: tuple[GateView, ...] = ()
    uncertain: int = 0
    claimed: int = 0
    oldest_ask_s: float | None = None
    answers: dict[str, int] = {}


class HealthView(msgspec.Struct, frozen=True):
    """What is true of the hub right now.

    Attributes:
        discovered: endpoints of sessions that were found and are alive.
        attached: how many of them the hub is connected to.
        dead_letters: deliveries that were given up.
        commit_p50_s, commit_p99_s: how long the last commits took.
        clock_steps: how often the wall clock was set since the start.
        sleeps: how often the computer slept since the start.
    """

    ready: bool
    degraded: tuple[Problem, ...]
    channels: tuple[ChannelView, ...]
    sessions: int
    open_asks: int
    deliveries_waiting: int
    started_ms: int
    discovered: int = 0
    attached: int = 0
    dead_letters: int = 0
    numbers: Numbers = Numbers()
    commit_p50_s: float | None = None
    commit_p99_s: float | None = None
    clock_steps: int = 0
    sleeps: int = 0
