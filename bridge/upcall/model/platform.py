"""What an adapter must offer, and all that it gets from the hub.

An adapter is one account on one platform: it lowers neutral messages (pure), posts and
edits cards, and hands every inbound event to `Inbox.put`, which returns after the commit.
It keeps no state that it could not lose.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    NewType,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import msgspec

from upcall.model.ask import AskResult
from upcall.model.document import Message
from upcall.model.network import Outward
from upcall.model.views import (
    AskView,
    HealthView,
    NoticeView,
    SessionView,
)

ConfigT = TypeVar("ConfigT")

Ref = NewType("Ref", str)
"""The platform's own id of a posted message; opaque to the hub."""


class Place(msgspec.Struct, frozen=True):
    """The address of a conversation: a chat and topic, a channel and thread, an inbox.

    Attributes:
        channel: the configured channel.
        address: what the adapter needs to post there; opaque to the hub.
    """

    channel: str
    address: str


class Opening(msgspec.Struct, frozen=True):
    """A conversation that is to get a thread.

    Attributes:
        conversation: its key in the hub; opaque, and equal for its repeats.
        title: what to call the thread; one line of other people's words.
        parent: the address of the place in which it is to be opened, if the adapter has
            several and gave one before; else empty.
    """

    conversation: str
    title: str
    parent: str = ""


THREAD_GONE: Final = "thread_gone"
"""Code of a `Refused` whose thread, or whole place, was removed on the platform."""


class Body(msgspec.Struct, frozen=True):
    """One lowered platform call. Stored before it is sent; one row, one call."""

    data: bytes


class DeliveryKey(msgspec.Struct, frozen=True):
    """What makes a delivery recognisable on platforms that can look it up.

    Attributes:
        key: unique for the effect, equal for its repeats.
        attempt: 1 for the first try.
    """

    key: str
    attempt: int


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform can do, as data."""

    text_limit: int
    # Its pages draw asks from the hub's view by themselves: a post only tells them to look,
    # so none is made while nobody looks, and no button needs a token.
    draws_asks: bool = False
    text_unit: Literal["characters", "utf16", "bytes"] = "characters"
    buttons_per_card: int = 0
    token_bytes: int = 64
    edits: bool = True
    threads: bool = False
    files: bool = False
    repeat: Literal["by_key", "by_lookup", "none", "harmless"] = "none"
    press_lifetime_s: float | None = None
    # How many calls the platform may be given at once.
    under_way: int = 8
    # Its adapter can take a message away again (`Deletes`).
    deletes: bool = False
    # Its adapter says by `ChannelState.caught_up` when all that people did while nobody
    # heard has been handed in; until then no deadline is taken for passed.
    catches_up: bool = False
    # Within how many seconds it completes an inbound round and says so by its state, also
    # when nothing came in. The hub takes it for deaf after three of them without a word,
    # however well its connection looks; None: it promises nothing.
    round_s: float | None = None
    # Words that a person types here go to the hub alone: no company keeps them. Without it
    # the channel never hears of a secret ask.
    secrets: bool = False
    # Whoever acts here has shown to be the hub's own user, by a login or to the system; a chat
    # only knows its own ids, and nobody there is an operator before being named.
    own_user: bool = False
    # Its cards show the options with their numbers, so a number that a person types there
    # is one of them. Elsewhere it is a word like any other.
    shows_numbers: bool = False


class Finding(msgspec.Struct, frozen=True):
    """One result of a check: `ok`, or what is wrong and what to do."""

    level: Literal["ok", "warning", "error"]
    code: str
    msg: str
    recover: str | None = None


class Who(msgspec.Struct, frozen=True):
    """Who did something on a channel, as the platform knows them.

    Attributes:
        identity: the platform's id of the person (user id, uid, login).
        name: what to call them, if the channel knows it.
        detail: what the kernel says of a local answer, such as `pid 12, bash, pts/3`.
        pid: process that answered on this computer, with its start, for local answers.
        pid_start: start of that process.
        ancestors: `pid:start` of the process and its ancestors, for local answers.
        tty: its controlling terminal, for local answers.
        local: the answer came from a program on this computer.
    """

    identity: str
    name: str | None = None
    detail: str = ""
    pid: int | None = None
    pid_start: str | None = None
    ancestors: tuple[str, ...] = ()
    tty: str | None = None
    local: bool = False


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A person answered on a surface that shows the ask itself (a page, a terminal).

    Attributes:
        key: unique for this act; a repeat with the same key is the same act.
        ask: the public id.
        revision: what was shown; an answer to another revision is refused.
        indices: options chosen, from 0.
        text: words, or a label typed as words; never both with a decline.
        typed: values as typed (labels, `#2` or words); the hub reads them.
        withdraw: takes the person's vote back, on an ask that several decide.
        sent_ms: the surface's own time of the act, in wall clock milliseconds, if it has one.
    """

    key: str
    ask: str
    revision: str | None
    who: Who
    indices: tuple[int, ...] | None = None
    text: str | None = None
    typed: tuple[str, ...] | None = None
    decline: bool = False
    hold: bool | None = None
    withdraw: bool = False
    sent_ms: int | None = None


class Pressed(msgspec.Struct, frozen=True, kw_only=True):
    """A tap on a button of a message that the channel's own account posted.

    Attributes:
        token: what the button carries; empty for a button that carries none.
        place: the chat and thread that the tap names.
        ref: the platform's id of the message with the button, where the tap names it.
        content: the platform's id of the tap itself, where that is not the event's: an event
            that comes again under another key is then the same act.
        sent_ms: the platform's own time of the tap, in wall clock milliseconds.
    """

    key: str
    token: str
    place: Place
    who: Who
    ref: str | None = None
    sent_ms: int | None = None
    content: str = ""


TextOrigin: TypeAlias = Literal[
    "typed", "forwarded", "edited", "quoted", "relayed", "automatic"
]
"""How a text came to be in a conversation. Only what a person typed there can answer.

`edited` is the later form of a message, `relayed` came by another bot, app, channel or
webhook, and `automatic` was written by nobody.
"""


class Texted(msgspec.Struct, frozen=True, kw_only=True):
    """Words from a person, in a session's conversation.

    Attributes:
        session_id: the session that the surface itself sent it to, such as a page's message
            box; such a text is a message, and never an answer.
        place: the chat and thread that it was written in.
        reply_to: the platform's id of the message that it directly replies to.
        ref: the platform's id of the text itself; its later forms bear the same.
        sent_ms: the platform's own time of it, in wall clock milliseconds. Without it the
            text answers nothing that it does not reply to.
    """

    key: str
    who: Who
    text: str
    session_id: str | None = None
    place: Place | None = None
    reply_to: str | None = None
    ref: str | None = None
    sent_ms: int | None = None
    origin: TextOrigin = "typed"


class SessionRuled(msgspec.Struct, frozen=True, kw_only=True):
    """A person says what becomes of the questions of a session that asks too many.

    Attributes:
        rule: `mute`: no more of them are shown on channels; `unmute`; `stop`: those that
            were not shown are declined, and new ones are refused; `hold`: mute, and stop
            the clocks of those that are open.
    """

    key: str
    who: Who
    session_id: str
    rule: Literal["mute", "unmute", "stop", "hold"]


class Commanded(msgspec.Struct, frozen=True, kw_only=True):
    """A person gave the hub a command, such as `/lock`, in any conversation.

    Attributes:
        name: the command, without its mark, in lower case.
        text: what followed it.
    """

    key: str
    who: Who
    name: str
    text: str = ""
    place: Place | None = None
    session_id: str | None = None


class SettingKept(msgspec.Struct, frozen=True):
    """An adapter's own small fact that must outlive the hub (a cursor, a port)."""

    name: str
    value: str | None


class LoginKept(msgspec.Struct, frozen=True, kw_only=True):
    """A web login or login code, by digest only; a repeat replaces the former.

    Attributes:
        digest: SHA-256 (hex) of the secret; the row's key.
        kind: `code` or `login`.
        data: what the adapter wants to know again, JSON.
        gone: remove it.
    """

    digest: str
    kind: Literal["code", "login"]
    data: str = "{}"
    expires_ms: int = 0
    gone: bool = False


Inbound: TypeAlias = (
    Answered | Pressed | Texted | Commanded | SessionRuled | SettingKept | LoginKept
)


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an inbound event, known after its commit.

    Attributes:
        ok: it was taken.
        code: stable reason if not: `already_answered`, `stale_card`, `invalid_answer`,
            `unknown_ask`, `self_answer`, `not_permitted`, `locked`, ... At `stranger` an
            adapter says and does nothing that anybody could see.
        msg: the reason in words, for the person.
        recover: what the person can do instead, if the words do not say it.
        result: how the ask stands, if the event named one.
    """

    ok: bool
    code: str = "ok"
    msg: str = ""
    recover: str | None = None
    result: AskResult | None = None


class ChannelState(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter's word on itself; not stored.

    With `Capabilities.round_s` it is said after every completed round, changed or not.

    Attributes:
        hearing: an inbound round was completed recently.
        audience: pages or screens open now.
        signed_in: browsers that could open a page, whether one is open or not.
        reason: why it does not hear, in words.
        caught_up: all that was done while it did not hear has been handed in
            (`Capabilities.catches_up`).
    """

    hearing: bool
    audience: int = 0
    signed_in: int = 0
    reason: str | None = None
    caught_up: bool = False


class Inbox(Protocol):
    """Where an adapter hands in what it hears."""

    async def put(self, event: Inbound) -> Receipt:
        """Return after *event* and its consequences are committed."""
        ...

    def state(self, state: ChannelState) -> None:
        """Say whether the channel hears, and who looks."""
        ...


class View(Protocol):
    """The hub, read only. Everything is as committed."""

    def open_asks(self) -> Sequence[AskView]:
        """Return open and claimed asks, oldest first."""
        ...

    def ask(self, ask_id: str) -> AskView | None:
        """Return an ask that is open, or was closed in this hub's life."""
        ...

    async def history(self, before_ms: int | None, limit: int) -> Sequence[AskView]:
        """Return closed asks, newest first, that closed before *before_ms*."""
        ...

    def sessions(self) -> Sequence[SessionView]:
        """Return sessions that live or have open asks."""
        ...

    async def notices(self, limit: int) -> Sequence[NoticeView]:
        """Return the newest notices of sessions, newest first."""
        ...

    async def file(self, file_id: str) -> tuple[str, str, bytes] | None:
        """Return name, mime and bytes of a session's attachment."""
        ...

    def health(self) -> HealthView:
        """Return what is true right now."""
        ...

    def settings(self) -> Mapping[str, str]:
        """Return what the adapter kept with `SettingKept`."""
        ...

    def logins(self) -> Sequence[LoginKept]:
        """Return what was kept with `LoginKept` and has not expired."""
        ...

    def changes(self) -> AsyncIterator[int]:
        """Yield a growing number at once and after each change; bursts come as one."""
        ...


class Screens(Protocol):
    """The open `upcall watch` terminals: the terminal adapter's platform."""

    def show(self, body: bytes) -> int:
        """Hand a lowered card to every screen; return how many there are."""
        ...

    def count(self) -> int:
        """Return how many screens are open."""
        ...


class SeamClock(Protocol):
    """Time, as an adapter may know it."""

    def wall_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        ...

    def boot_s(self) -> float:
        """Return seconds since boot, time asleep included."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Wait *duration_s* seconds."""
        ...


class SeamLog(Protocol):
    """Structured log: an event name and key-value facts."""

    def info(self, event: str, **facts: Any) -> None:
        """Log something normal."""
        ...

    def warning(self, event: str, **facts: Any) -> None:
        """Log something to look at."""
        ...

    def error(self, event: str, **facts: Any) -> None:
        """Log something that failed."""
        ...


def _unknown_to_log(secret: str) -> None:
    """Hide nothing: the log of whoever made these seams is not the hub's."""
    del secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """All that an adapter gets.

    Attributes:
        channel: the name of this channel.
        clock: time; nothing else tells it.
        random: returns n random bytes.
        log: the hub's log, bound to this channel.
        view: the hub, read only.
        screens: open watch terminals.
        state_dir: the hub's state folder.
        machine: what this machine is called.
        operator: the name of the only operator when none is configured.
        version: the program's version.
        secrets: the values of those secrets that this channel's table names.
        network: the way to other computers: its `proxy_for` is asked for every connection,
            and the environment for none.
        hide: tells the log a secret of the adapter's own making, such as a login code, so
            that it is in no line.
    """

    channel: str
    clock: SeamClock
    random: Callable[[int], bytes]
    log: SeamLog
    view: View
    screens: Screens
    state_dir: str
    machine: str
    operator: str
    version: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    network: Outward = field(default_factory=Outward)
    hide: Callable[[str], None] = _unknown_to_log


class Adapter(Protocol):
    """One account on one platform."""

    async def run(self, inbox: Inbox) -> None:
        """Hear until cancelled; reconnect by itself; never raise for the network."""
        ...

    async def post(self, place: Place, body: Body, key: DeliveryKey) -> Ref:
        """Make one call.

        Raises:
            NotSent, Refused, Throttled, Uncertain: exactly these.
        """
        ...

    async def edit(self, ref: Ref, body: Body) -> None:
        """Replace what *ref* shows. Raises as `post` does."""
        ...

    async def check(self) -> Sequence[Finding]:
        """Check credentials, rights, target; each finding with its remedy."""
        ...


@dataclass(frozen=True, slots=True)
class Spec(Generic[ConfigT]):
    """What the hub knows of an adapter before it opens anything.

    Attributes:
        name: the adapter's name, as in the configuration.
        config: the type of its table in the configuration.
        capabilities: what the platform can do.
        lower: pure; one body for each call that will be made.
        open: builds the adapter; connects nothing yet.
        secrets: keys of its table that are secrets: the file says only where they are kept.
    """

    name: str
    config: type[ConfigT]
    capabilities: Capabilities
    lower: Callable[[Message, Place], Sequence[Body]]
    open: Callable[[ConfigT, Seams], Adapter]
    secrets: tuple[str, ...] = ()


@runtime_checkable
class OpensThreads(Protocol):
    """An adapter that opens a thread for a conversation."""

    async def open_thread(self, opening: Opening, key: DeliveryKey) -> Place:
        """Open one and return its place. Raises as `post` does.

        A later `post` or `edit` into a thread that somebody has removed is refused with
        the code `THREAD_GONE`; the hub then opens another and shows there what is open.
        """
        ...


@runtime_checkable
class Deletes(Protocol):
    """An adapter that can take a message away again."""

    async def delete(self, ref: Ref) -> None:
        """Remove what *ref* shows; that it is gone already is no error. Raises as `post`."""
        ...


@runtime_checkable
class FindsByKey(Protocol):
    """An adapter that can tell whether an earlier delivery arrived."""

    async def find(self, place: Place, key: DeliveryKey) -> Ref | None:
        """Return the ref of what was posted under *key*, if it is there.

        Of a thread that was being opened the place is empty, and the ref is its address.
        Raises as `post` does.
        """
        ...


@runtime_checkable
class SignsIn(Protocol):
    """An adapter with logins of its own (the web inbox)."""

    async def sign_in(self, action: str, browser: str | None) -> Mapping[str, Any]:
        """Do one step: `link`, `browsers`, `approve`, `list`, `sign_out_all`.

        Raises:
            UsageError: no such action, or no such browser waits.
        """
        ...

    def url(self) -> str | None:
        """Return the address without a secret, once it is bound."""
        ...
