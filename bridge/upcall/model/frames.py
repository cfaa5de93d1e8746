"""Frames between a session and its clients, one JSON object each.

Frames are immutable and know nothing of sockets. Names are snake_case here and camelCase on
the wire; what is absent is left out, never sent as null. Either side may be the older one, so
a new field has a default, and a type or a field that we don't know is not an error.

`docs/protocol.md` describes them; `tests/golden/frames.json` holds examples that any other
implementation can run.
"""

import math
import re
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec

from upcall.model.ask import AskClass, Outcome
from upcall.model.errors import MalformedFrame
from upcall.model.ids import ActionId, ConnectionId, ReplyKey
from upcall.model.text import one_line

U32_MAX: Final = 2**32 - 1

OptionIndex: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
UpdateId: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
SafeInt: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
RejectReason: TypeAlias = Literal[
    "already_answered",
    "unknown_action",
    "invalid_answer",
    "resolver_unavailable",
    "idempotency_conflict",
    "unauthorized",
]


class WireFrame(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="type",
    omit_defaults=True,
):
    """Base of every frame.

    Each class names its own tag, so that renaming the class is safe, and says `frozen=True`
    again: msgspec inherits it, but type checkers want to see it.
    """

    _unshown: ClassVar[frozenset[str]] = frozenset({"token"})

    # A frame is logged and stands in tracebacks; the token in it opens a session.
    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={'***' if name in self._unshown else repr(getattr(self, name))}"
            for name in self.__struct_fields__
        )
        return f"{type(self).__name__}({fields})"


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of what lies inside frames."""


class _ClosedPart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Base of what the protocol calls closed: an unknown field is an error."""


# --- Answers -------------------------------------------------------------------------------


class Choice(_ClosedPart, frozen=True):
    """An answer that is more than one option or one text: a control, or several options.

    Two closed objects on the wire and one class here, since a union cannot tell two untagged
    objects apart.
    """

    control_id: str | None = None
    selected: tuple[OptionIndex | str, ...] | None = None
    custom: str | None = None

    def __post_init__(self) -> None:
        if (self.control_id is None) == (self.selected is None):
            raise ValueError("exactly one of controlId and selected is needed")
        if self.control_id is not None and self.custom is not None:
            raise ValueError("custom goes with selected, not with controlId")


Answer: TypeAlias = OptionIndex | str | Choice


class By(_Part, frozen=True):
    """Who ended an ask, as far as the one who says so knows."""

    channel: str
    name: str | None = None


# --- From the session ----------------------------------------------------------------------


class Control(_Part, frozen=True):
    """A control beside the options, such as *Next*."""

    id: str
    kind: str
    label: str
    enabled: bool = True


class ActionNeeded(WireFrame, frozen=True, tag="action_needed"):
    """The session waits for somebody (`ask`), or tells that it is free (`idle`)."""

    id: ActionId
    kind: str
    session_id: str
    question: str | None = None
    options: tuple[str, ...] = ()
    # Peers send anything here; a bad hint must not cost us the question. See `recommended`.
    recommended_index: Any = None
    controls: tuple[Control, ...] = ()
    summary: str | None = None
    workflow_gate_id: str | None = None
    # Ours; peers ignore them.
    detail: str | None = None
    multi: bool = False
    min_selected: Count | None = None
    max_selected: Count | None = None
    # Absent means true, which is the peers' rule; see `takes_text`.
    free_text: bool | None = None
    deadline_at: SafeInt | None = None
    option_details: tuple[str, ...] | None = None
    ask_class: AskClass = msgspec.field(name="class", default="question")
    default: str | None = None
    held: bool = False
    # Shown only to clients with `secret_asks_v1`.
    secret: bool = False
    # Its card may stand for equal asks of the session too.
    merge: bool = False

    @property
    def recommended(self) -> int | None:
        """The option to offer first, if the peer named one that exists."""
        match self.recommended_index:
            case bool():
                return None
            case int(index) if 0 <= index < len(self.options):
                return index
            case _:
                return None

    @property
    def takes_text(self) -> bool:
        """Whether an answer in the person's own words is taken."""
        return self.free_text is not False


class ActionUnavailable(WireFrame, frozen=True, tag="action_unavailable"):
    """There is an ask that this client cannot show."""

    id: ActionId
    session_id: str
    reason: str
    required_capabilities: tuple[str, ...] = ()


class ActionResolved(WireFrame, frozen=True, tag="action_resolved"):
    """An ask is over: answered by us or elsewhere, or ended without an answer."""

    id: ActionId
    resolved_by: str
    answer: Answer | None = None
    outcome: Outcome | None = None
    by: By | None = None

    @property
    def how(self) -> Outcome:
        """How the ask ended; told from the older fields where a peer sends no outcome."""
        if self.outcome is not None:
            return self.outcome
        if self.resolved_by == "timeout":
            return "timed_out"
        return "answered" if self.answer is not None else "cancelled"


class ReplyRejected(WireFrame, frozen=True, tag="reply_rejected"):
    """The session did not take our answer."""

    id: ActionId
    # One of RejectReason; a newer peer may know more.
    reason: str


class Hello(WireFrame, frozen=True, tag="hello"):
    """First frame of either side: protocol version and capabilities."""

    protocol_version: Count
    capabilities: tuple[str, ...] = ()
    connection_id: ConnectionId | None = None


class Pong(WireFrame, frozen=True, tag="pong"):
    """Answer to a ping."""

    nonce: str


class IdentityHeader(WireFrame, frozen=True, tag="identity_header"):
    """What the session is and where it runs, in its own words."""

    session_id: str
    repo: str
    branch: str
    machine: str
    title: str | None = None
    # Ours. Whoever calls something else so must not lose the frame by it; see `said_tags`.
    tags: Any = ()

    @property
    def said_tags(self) -> tuple[str, ...]:
        """The tags, as far as they are texts."""
        found = self.tags if isinstance(self.tags, list | tuple) else ()
        return tuple(tag for tag in found if isinstance(tag, str))


class ContextUpdate(WireFrame, frozen=True, tag="context_update"):
    """What the session is at; a field that is absent is unchanged."""

    session_id: str
    cwd: str | None = None
    last_message: str | None = None
    task: str | None = None
    goal: str | None = None
    token_usage: str | None = None
    model: str | None = None
    diff: str | None = None


class TurnStream(WireFrame, frozen=True, tag="turn_stream"):
    """Text of the session; the same `message_ref` again replaces what was shown."""

    session_id: str
    phase: Literal["live", "finalized"]
    text: str
    final_answer: bool = False
    message_ref: str | None = None


class ToolActivity(WireFrame, frozen=True, tag="tool_activity"):
    """A tool of the session started or ended; for clients with `tool_activity_v1`."""

    session_id: str
    tool_call_id: str
    tool_name: str
    phase: str
    args_summary: str | None = None
    result_summary: str | None = None
    is_error: bool = False


class ReasoningSummary(WireFrame, frozen=True, tag="reasoning_summary"):
    """What the session thinks about; for clients with `tool_activity_v1`."""

    session_id: str
    text: str
    turn_ref: str | None = None


class ImageAttachment(WireFrame, frozen=True, tag="image_attachment"):
    """A picture: base64 in `data`, or the path of a file on this computer."""

    session_id: str
    source: str
    mime: str
    data: str = ""
    caption: str | None = None
    path: str | None = None


class FileAttachment(WireFrame, frozen=True, tag="file_attachment"):
    """A file: base64 in `data`, or the path of a file on this computer."""

    session_id: str
    name: str
    mime: str | None = None
    data: str = ""
    caption: str | None = None
    path: str | None = None


class Activity(WireFrame, frozen=True, tag="activity"):
    """The session is working, or waits."""

    session_id: str
    state: str


class InboundAck(WireFrame, frozen=True, tag="inbound_ack"):
    """What became of a person's message."""

    session_id: str
    update_id: UpdateId
    state: str


class ConfigUpdate(WireFrame, frozen=True, tag="config_update"):
    """How much the session tells."""

    session_id: str
    verbosity: str | None = None
    redact: bool | None = None


class SessionReady(WireFrame, frozen=True, tag="session_ready"):
    """The session can take messages; sent again to every later client."""

    session_id: str
    lifecycle_request_id: str | None = None
    startup_prompt_ref: str | None = None
    repo: str | None = None
    branch: str | None = None
    title: str | None = None


class SessionClosed(WireFrame, frozen=True, tag="session_closed"):
    """The session ends, on purpose."""

    session_id: str


class SessionStatus(_Part, frozen=True):
    """The status part of a command's result."""

    repo: str
    branch: str
    machine: str
    session_id: str
    model: str | None = None
    context: str | None = None
    workflow_lines: tuple[str, ...] = ()


class ModelChoice(_Part, frozen=True):
    """One model that a command may name."""

    selector: str
    label: str


class ControlCommandResult(WireFrame, frozen=True, tag="control_command_result"):
    """Result of a command; only ever sent to the one who gave it.

    A peer's client takes `message` for JSON and fails all it waits for if it is not.
    """

    session_id: str
    request_id: str
    status: Literal["ok", "error", "unavailable"]
    message: str
    update_id: UpdateId | None = None
    session_status: SessionStatus | None = None
    model_choices: tuple[ModelChoice, ...] | None = None


class AskSelectedAckRequest(WireFrame, frozen=True, tag="ask_selected_ack_request"):
    """The session asks its client to confirm a selection to the person."""

    mode: Literal["live", "recovery"]
    request_id: str
    commit_key: str
    action_id: ActionId | None = None
    deadline_at: SafeInt | None = None
    session_id: str | None = None


class AskSelectedAckCancel(WireFrame, frozen=True, tag="ask_selected_ack_cancel"):
    """The confirmation is not wanted any more."""

    request_id: str
    commit_key: str
    reason: str


EphemeralStatus: TypeAlias = Literal[
    "ok", "busy", "timeout", "cancelled", "session_unavailable", "failed"
]


class EphemeralTurnResult(WireFrame, frozen=True, tag="ephemeral_turn_result"):
    """Answer to a question beside the conversation."""

    session_id: str
    request_id: str
    update_id: SafeInt
    message_id: SafeInt
    thread_id: str
    status: EphemeralStatus
    text: str | None = None


class ErrorBody(_Part, frozen=True):
    """Code and message of an error frame."""

    code: str
    message: str
    current_revision: str | None = None
    restart_query: bool | None = None
    details: Any = None


class ProtocolError(WireFrame, frozen=True, tag="protocol_error"):
    """What we sent is not a frame. The connection goes on."""

    error: ErrorBody
    # Always there on the wire, so no default: omit_defaults would drop it.
    ok: bool


# --- From the client -----------------------------------------------------------------------


class Reply(WireFrame, frozen=True, tag="reply"):
    """A client answers or declines. A repeat with the same key is the same answer.

    `by` is ours: for whom the client answers. The session takes the word of whoever holds
    its token for it.
    """

    # It may answer a secret ask.
    _unshown: ClassVar[frozenset[str]] = frozenset({"token", "answer"})

    id: ActionId
    token: str
    answer: Answer | None = None
    idempotency_key: ReplyKey | None = None
    decline: bool = False
    by: By | None = None

    def __post_init__(self) -> None:
        if (self.answer is None) != self.decline:
            raise ValueError("exactly one of answer and decline is needed")


class Ping(WireFrame, frozen=True, tag="ping"):
    """Asks for a pong with the same nonce."""

    nonce: str


class InlineImage(_Part, frozen=True):
    """A picture inside a message: base64."""

    data: str
    mime: str | None = None


class UserMessage(WireFrame, frozen=True, tag="user_message"):
    """A person's words for the session."""

    session_id: str
    text: str
    token: str
    update_id: UpdateId | None = None
    thread_id: str | None = None
    images: tuple[InlineImage, ...] = ()
    by: By | None = None


class ConfigCommand(WireFrame, frozen=True, tag="config_command"):
    """A person changes how much the session tells."""

    session_id: str
    token: str
    verbosity: str | None = None
    redact: bool | None = None

    def __post_init__(self) -> None:
        if self.verbosity is None and self.redact is None:
            raise ValueError("verbosity or redact is needed")


class ControlCommand(WireFrame, frozen=True, tag="control_command"):
    """A command for the session; its inner grammar is the session's own."""

    session_id: str
    token: str
    request_id: str
    command: dict[str, Any]
    update_id: UpdateId | None = None
    thread_id: str | None = None


class AskSelectedAckResult(WireFrame, frozen=True, tag="ask_selected_ack_result"):
    """Whether the person saw the confirmation."""

    request_id: str
    commit_key: str
    outcome: dict[str, Any]


_BtwId: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern="^btw:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
    ),
]
_Decimal: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,20}$")]
_Id512: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
_Token: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
_Question: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class EphemeralTurn(WireFrame, frozen=True, tag="ephemeral_turn", forbid_unknown_fields=True):
    """A question beside the conversation."""

    session_id: _Id512
    question: _Question
    token: _Token
    request_id: _BtwId
    update_id: SafeInt
    message_id: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    thread_id: _Decimal


class EphemeralTurnCancel(
    WireFrame, frozen=True, tag="ephemeral_turn_cancel", forbid_unknown_fields=True
):
    """The question beside the conversation is not wanted any more."""

    session_id: _Id512
    token: _Token
    request_id: _BtwId
    update_id: SafeInt
    message_id: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    thread_id: _Decimal
    reason: str


class AskHold(WireFrame, frozen=True, tag="ask_hold"):
    """A person needs longer: stops the ask's deadline, or lets it run again."""

    id: ActionId
    token: str
    hold: bool


class Unknown(msgspec.Struct, frozen=True):
    """A frame of a type that only a newer peer knows. Count it and carry on."""

    type: str


class BadReply(MalformedFrame):
    """A reply whose action is readable and whose answer is not.

    Attributes:
        id: the action it was for.
        token: the token it carried, or None.
    """

    def __init__(self, action: ActionId, token: str | None, msg: str) -> None:
        super().__init__(msg)
        self.id = action
        self.token = token


SessionFrame: TypeAlias = (
    ActionNeeded
    | ActionUnavailable
    | ActionResolved
    | ReplyRejected
    | Hello
    | Pong
    | IdentityHeader
    | ContextUpdate
    | TurnStream
    | ToolActivity
    | ReasoningSummary
    | ImageAttachment
    | FileAttachment
    | Activity
    | InboundAck
    | ConfigUpdate
    | SessionReady
    | SessionClosed
    | ControlCommandResult
    | AskSelectedAckRequest
    | AskSelectedAckCancel
    | EphemeralTurnResult
    | ProtocolError
)
"""What a session sends."""

ClientFrame: TypeAlias = (
    Reply
    | Hello
    | Ping
    | UserMessage
    | ConfigCommand
    | ControlCommand
    | AskSelectedAckResult
    | EphemeralTurn
    | EphemeralTurnCancel
    | AskHold
)
"""What a client sends."""

Frame: TypeAlias = SessionFrame | ClientFrame

TYPES: Final = frozenset(str(cls.__struct_config__.tag) for cls in get_args(Frame))
"""Every frame type that `decode` knows."""


class _PeekedReply(msgspec.Struct, frozen=True):
    type: Literal["reply"]
    id: ActionId
    token: Any = None


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# Every escape of a JSON text, so that a backslash that is itself escaped begins none. The
# first group is a pair of surrogates, which is a character; the second one that is alone.
_ESCAPE: Final = re.compile(
    r"\\(?:(u[dD][89abAB]..\\u[dD][c-fC-F]..)|(u[dD][89a-fA-F]..)|.)", re.DOTALL
)
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder[Frame](Frame)
_type_decoder: Final = msgspec.json.Decoder(Unknown)
_reply_decoder: Final = msgspec.json.Decoder(_PeekedReply)


def encode(frame: WireFrame) -> bytes:
    """Return *frame* as JSON text in UTF-8.

    Raises:
        UnicodeEncodeError: a text in it has a lone surrogate; see `sendable`.
    """
    return _encoder.encode(frame)


def decode(text: str | bytes | bytearray | memoryview) -> Frame | Unknown:
    """Decode one frame received from a peer.

    Args:
        text: JSON as received; not trusted. The transport has already bounded its size.

    Returns:
        The frame, or `Unknown` if its type is none of those in this module.

    Raises:
        BadReply: a reply whose action is readable, and whose answer is not an answer.
        MalformedFrame: *text* isn't JSON or breaks the schema; the message names the path.
    """
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        unknown = _peek(text)
        if unknown is not None:
            return unknown
        why = one_line(str(exc))
        bad = _peek_reply(text, why)
        if bad is not None:
            raise bad from exc
        raise MalformedFrame(why) from exc


def _peek(text: str | bytes | bytearray | memoryview) -> Unknown | None:
    try:
        peeked = _type_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return None if peeked.type in TYPES else peeked


def _peek_reply(text: str | bytes | bytearray | memoryview, why: str) -> BadReply | None:
    try:
        peeked = _reply_decoder.decode(_without_lone_surrogates(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if "\N{REPLACEMENT CHARACTER}" in peeked.id:
        return None
    return BadReply(peeked.id, peeked.token if isinstance(peeked.token, str) else None, why)


def _without_lone_surrogates(text: str | bytes | bytearray | memoryview) -> str:
    """Return JSON that decodes although a text in it was none; what it says is not kept."""
    whole = text if isinstance(text, str) else bytes(text).decode()
    return _ESCAPE.sub(lambda found: "\\ufffd" if found[2] else found[0], whole)


def sendable(text: str) -> str:
    """Return *text* with lone surrogates, which no frame can carry, as replacement marks."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def base64_size(size_bytes: int) -> int:
    """Return how many characters *size_bytes* bytes take as base64."""
    return 4 * math.ceil(size_bytes / 3)
