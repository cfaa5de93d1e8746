"""What clients may ask on the hub's sockets: the shape of each request, and its bounds.

Unknown fields are ignored, since a newer client may send them. A field of the wrong type is
an error that names it.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from upcall.core.asks import check_ask, check_deadline
from upcall.core.redact import mask
from upcall.model.ask import AskClass, AskSpec
from upcall.model.errors import InvalidAsk, UsageError
from upcall.model.ids import AskId, is_ask_id
from upcall.model.limits import MAX_DEADLINE_S, MAX_TEXT_CHARS, MAX_TITLE_CHARS
from upcall.model.policy import Right
from upcall.model.tags import TAG_RULE, sendable_tags
from upcall.model.text import fold_label, one_line, unpaired_surrogate_or_nul

SocketKind: TypeAlias = Literal["ask", "control"]

MAX_NAME_CHARS: Final = 200
_MAX_ID_CHARS: Final = 300

_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
_Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_ID_CHARS)]
# What the database takes.
_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Words: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_CHARS)]


class InvalidRequest(UsageError):
    """A request that is not shaped as the protocol says; the message names the field."""

    code = "invalid_request"


class Head(msgspec.Struct, frozen=True):
    """What tells one request from another."""

    op: str
    id: int | None = None


class Hello(msgspec.Struct, frozen=True):
    """The first line of a client."""

    protocol: int
    version: str


class SessionWords(msgspec.Struct, frozen=True):
    """What a program says of itself."""

    name: _Name | None = None
    title: str | None = None
    cwd: str | None = None
    program: str | None = None
    tags: tuple[str, ...] = ()


class AskWords(msgspec.Struct, frozen=True):
    """An ask as its program wrote it; `recommended` and `default` are labels."""

    id: str
    question: str
    options: tuple[str, ...] = ()
    option_details: tuple[str, ...] | None = None
    detail: str | None = None
    multi: bool = False
    min_selected: int | None = None
    max_selected: int | None = None
    free_text: bool | None = None
    recommended: str | None = None
    default: str | None = None
    timeout_s: float | None = None
    ask_class: AskClass = msgspec.field(name="class", default="question")
    key: _Name | None = None
    secret: bool = False
    merge: bool = False


class Ask(msgspec.Struct, frozen=True):
    """Raise an ask."""

    ask: AskWords
    session: SessionWords = SessionWords()
    wait: bool = True


class Wait(msgspec.Struct, frozen=True):
    """Hear how an ask ends."""

    ask: _Id


class AnswerGiven(msgspec.Struct, frozen=True):
    """An answer that the asker's own terminal took."""

    indices: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] | None = None
    text: _Words | None = None
    declined: bool = False
    # The asker has the words of a secret already; they are not sent.
    secret: bool = False


class Took(msgspec.Struct, frozen=True):
    """The asker has the answer, or took one at its own terminal."""

    ask: _Id
    answer: AnswerGiven | None = None
    terminal: str | None = None


class Cancel(msgspec.Struct, frozen=True):
    """Withdraw an ask; whoever waits for it is told the reason."""

    ask: _Id
    reason: _Words | None = None


class Notify(msgspec.Struct, frozen=True):
    """Say something that needs no answer."""

    text: _Words
    session: SessionWords = SessionWords()
    level: Literal["info", "warning", "error"] = "info"


class Answer(msgspec.Struct, frozen=True):
    """A person answers, declines, or stops the clock of an ask."""

    ask: _Id
    values: tuple[_Words, ...] = ()
    decline: bool = False
    hold: bool | None = None
    withdraw: bool = False
    revision: str | None = None
    # The values were typed where nobody could read them along; a secret is taken no other way.
    hidden: bool = False

    def __post_init__(self) -> None:
        given = (len(self.values) > 0) + self.decline + (self.hold is not None) + self.withdraw
        if given != 1:
            raise ValueError("exactly one of values, decline, hold and withdraw is needed")


class Asks(msgspec.Struct, frozen=True):
    """List asks; with `ask`, only the one that this names, in any state."""

    ask: _Id | None = None
    state: Literal["open", "closed", "all"] = "open"
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class Sessions(msgspec.Struct, frozen=True):
    """List sessions; with `all`, refused records too.

    Attributes:
        rule: what becomes of the asks of `session` from now on.
    """

    all: bool = False
    session: str | None = None
    rule: Literal["mute", "unmute", "stop", "hold"] | None = None


class Watch(msgspec.Struct, frozen=True):
    """See everything as it changes."""


class Login(msgspec.Struct, frozen=True):
    """Sign browsers in and out."""

    action: Literal["link", "browsers", "approve", "list", "sign_out_all"]
    browser: _Name | None = None


class Roots(msgspec.Struct, frozen=True):
    """Register project folders."""

    action: Literal["add", "remove", "list"]
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None

    def __post_init__(self) -> None:
        if self.action != "list" and self.path is None:
            raise ValueError("path is needed")


class Lock(msgspec.Struct, frozen=True):
    """Refuse everything from everywhere but the control socket."""

    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Unlock(msgspec.Struct, frozen=True):
    """End that."""


class Operators(msgspec.Struct, frozen=True):
    """List who may act; add an identity; take rights or give them back."""

    action: Literal["list", "add", "revoke", "restore"] = "list"
    name: _Name | None = None
    channel: _Name | None = None
    identity: _Name | None = None
    roles: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=32)] = ()
    rights: tuple[Right, ...] | None = None

    def __post_init__(self) -> None:
        if self.action != "list" and self.name is None:
            raise ValueError("name is needed")
        if self.action == "add" and (self.channel is None or self.identity is None):
            raise ValueError("channel and identity are needed")


class Redact(msgspec.Struct, frozen=True):
    """Mask credentials in one conversation, or show them for a while; null: as configured."""

    session: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    redact: bool | None
    for_s: float | None = None


class Forget(msgspec.Struct, frozen=True):
    """Erase texts; with `dry_run`, say which."""

    asks: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=200)], ...] | None = None
    session: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)] | None = None
    before_ms: _Whole | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if sum([bool(self.asks), self.session is not None, self.before_ms is not None]) != 1:
            raise ValueError("exactly one of asks, session and before_ms is needed")


class Verbosity(msgspec.Struct, frozen=True):
    """Choose how much of one conversation's work is shown; null: as configured."""

    session: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    level: Literal["lean", "verbose", "quiet"] | None


class Explain(msgspec.Struct, frozen=True):
    """Say what would happen to a sample ask, raised now."""

    ask_class: AskClass = msgspec.field(name="class", default="question")
    repo: _Name | None = None
    host: _Name | None = None
    title: _Name | None = None
    tags: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=32)] = ()
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_DEADLINE_S)] | None = None


class Log(msgspec.Struct, frozen=True):
    """Read the audit, newest lines; with `follow`, hear of later ones too."""

    ask: _Id | None = None
    session: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)] | None = None
    since_ms: _Whole | None = None
    before: _Whole | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 200
    follow: bool = False


class Outbox(msgspec.Struct, frozen=True):
    """List what has not arrived on a channel."""


class SortLetters(msgspec.Struct, frozen=True):
    """Try messages that did not arrive once more, or drop them; `all`: every one given up."""

    letters: Annotated[tuple[_Whole, ...], msgspec.Meta(max_length=1000)] = ()
    all: bool = False

    def __post_init__(self) -> None:
        if bool(self.letters) == self.all:
            raise ValueError("exactly one of letters and all is needed")


class Status(msgspec.Struct, frozen=True):
    """How the hub is."""


class Reload(msgspec.Struct, frozen=True):
    """Read the configuration again."""


class Stop(msgspec.Struct, frozen=True):
    """End the hub; `again` starts it anew in its process, for `upgrade` if it is outdated.

    With `stays_down` whoever waits for an answer does not start the next hub.
    """

    reason: str | None = None
    stays_down: bool = False
    again: Literal["upgrade", "always"] | None = None


Controlling: TypeAlias = (
    Answer
    | Asks
    | Sessions
    | Login
    | Roots
    | Lock
    | Unlock
    | Operators
    | Redact
    | Verbosity
    | Explain
    | Forget
    | Log
    | Outbox
    | SortLetters
    | Status
    | Reload
    | Stop
)
Request: TypeAlias = Ask | Wait | Took | Cancel | Notify | Watch | Controlling

ASKING: Final[dict[str, type[Request]]] = {
    "ask": Ask,
    "wait": Wait,
    "took": Took,
    "cancel": Cancel,
    "notify": Notify,
}
CONTROLLING: Final[dict[str, type[Request]]] = {
    "answer": Answer,
    "asks": Asks,
    "sessions": Sessions,
    "watch": Watch,
    "login": Login,
    "roots": Roots,
    "lock": Lock,
    "unlock": Unlock,
    "operators": Operators,
    "redact": Redact,
    "verbosity": Verbosity,
    "explain": Explain,
    "forget": Forget,
    "log": Log,
    "outbox": Outbox,
    "outbox_retry": SortLetters,
    "outbox_drop": SortLetters,
    "status": Status,
    "reload": Reload,
    "stop": Stop,
}

# What some control socket does, or is taken to do: on the socket that can only ask, these are
# refused like those that there are.
WITHHELD: Final = frozenset(
    {
        *CONTROLLING,
        *("list", "log", "show", "read", "get", "set", "config", "export", "backup", "restore"),
        *("lock", "unlock", "operators", "approve", "steer", "send", "run", "restart", "start"),
    }
)

_head: Final = msgspec.json.Decoder(Head)
_object: Final = msgspec.json.Decoder(dict[str, Any])
_requests: Final = {
    op: msgspec.json.Decoder(kind) for op, kind in [*ASKING.items(), *CONTROLLING.items()]
}
_hello: Final = msgspec.json.Decoder(Hello)

_T = TypeVar("_T")


def read_head(line: bytes) -> Head | None:
    """Return op and id of a line, or None if it is not a JSON object.

    Raises:
        InvalidRequest: it is one, but op or id is not what it must be.
    """
    try:
        return _head.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        try:
            _object.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        raise InvalidRequest(one_line(str(error))) from error


def read_hello(line: bytes) -> Hello:
    """Return the client's hello. Raises `InvalidRequest`."""
    return _decoded(_hello, line)


def read_request(op: str, line: bytes) -> Request:
    """Return the request of a known *op*. Raises `InvalidRequest`."""
    return _decoded(_requests[op], line)


def _decoded(decoder: "msgspec.json.Decoder[_T]", line: bytes) -> _T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(one_line(str(error))) from error


def ask_id(text: str) -> AskId:
    """Return *text* as a full public id, the only form in which asking ops take one.

    Raises:
        InvalidRequest: it is none.
    """
    if not is_ask_id(text):
        raise InvalidRequest(f"ask: {one_line(text, 40)!r} is not a full ask id")
    return AskId(text)


def check_session(words: SessionWords) -> SessionWords:
    """Return what a program says of itself, cut to size.

    Raises:
        InvalidRequest: a text in it has a character that cannot be sent.
    """
    for name in ("name", "title", "cwd", "program"):
        text = getattr(words, name)
        if text is not None and unpaired_surrogate_or_nul(text) is not None:
            raise InvalidRequest(f"session.{name}: has a character that cannot be sent")
    if words.tags != sendable_tags(words.tags):
        raise InvalidRequest(f"session.tags: {TAG_RULE}")
    if words.title is not None and len(words.title) > MAX_TITLE_CHARS:
        # Masked first: a cut could leave half of a credential, which nobody would know.
        title = mask(words.title)[: MAX_TITLE_CHARS - 1] + "…"
        return msgspec.structs.replace(words, title=title)
    return words


def check_notice(text: str) -> str:
    """Return the text of a notice.

    Raises:
        InvalidRequest: it has a character that cannot be sent.
    """
    if unpaired_surrogate_or_nul(text) is not None:
        raise InvalidRequest("text: has a character that cannot be sent")
    return text


def spec_of(words: AskWords) -> AskSpec:
    """Return the ask that *words* describe; its deadline is the hub's matter.

    Raises:
        InvalidAsk: something is out of bounds.
        AmbiguousLabels: two labels look alike.
    """
    if words.timeout_s is not None:
        check_deadline(words.timeout_s)
    free_text = not words.options if words.free_text is None else words.free_text
    return check_ask(
        AskSpec(
            question=words.question,
            options=words.options,
            detail=words.detail,
            multi=words.multi,
            min_selected=words.min_selected,
            max_selected=words.max_selected,
            free_text=free_text,
            recommended=_index_of(words.options, words.recommended),
            default=words.default,
            ask_class=words.ask_class,
            option_details=words.option_details,
            secret=words.secret,
            merge=words.merge,
        )
    )


def _index_of(options: tuple[str, ...], label: str | None) -> int | None:
    if label is None:
        return None
    for wanted, known in (
        (label, list(options)),
        (fold_label(label), [fold_label(option) for option in options]),
    ):
        if wanted in known:
            return known.index(wanted)
    raise InvalidAsk(f"recommended: {one_line(label, 80)!r} is not one of the options")
