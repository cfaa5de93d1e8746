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
    """A session, with what it says of itself and what the hub found out."""

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


class AskView(msgspec.Struct, frozen=True):
    """An ask as every surface shows it.

    Attributes:
        labels_shown: the options as they are drawn: escaped, and marked if they could be
            taken for words of the hub.
        label_notes: for each option what tells it from another one that looks like it; "".
        warnings: what to say of characters that deceive, a line each.
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
    note: str = ""
    secret: bool = False
    labels_shown: tuple[str, ...] = ()
    label_notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class ChannelView(msgspec.Struct, frozen=True):
    """Where an ask can be seen, and whether that is true right now.

    Attributes:
        state: `delivered` the card is there; `sending`; `down` the channel is not hearing.
        audience: pages or screens that are open now.
        reason: why it is down, in words.
        heard_ms: when an inbound round was last completed.
    """

    name: str
    state: str
    audience: int = 0
    reason: str | None = None
    heard_ms: int | None = None


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


class HealthView(msgspec.Struct, frozen=True):
    """What is true of the hub right now."""

    ready: bool
    degraded: tuple[Problem, ...]
    channels: tuple[ChannelView, ...]
    sessions: int
    open_asks: int
    deliveries_waiting: int
    started_ms: int
