"""The version 3 control plane: frames that we know by name and do not serve.

Requests, queries, event replay, providers and leases belong to sessions that run an agent.
Our endpoints say so in each family's own error form, so that a client which asks learns it
at once instead of waiting for its time-out.
"""

from typing import Any, Final, TypeAlias, get_args

import msgspec

from upcall.model.frames import ErrorBody, WireFrame

# --- From the client -----------------------------------------------------------------------


class ControlRequest(WireFrame, frozen=True, tag="control_request"):
    """An operation on the session."""

    id: str
    operation: str
    input: Any = None
    expected_revision: str | None = None
    idempotency_key: str | None = None
    confirm: bool = False
    elevation_request_id: str | None = None


class QueryRequest(WireFrame, frozen=True, tag="query_request"):
    """A page of something that the session knows."""

    query: str
    id: str | None = None
    input: Any = None
    cursor: str | None = None


class EventReplay(WireFrame, frozen=True, tag="event_replay"):
    """Events since a point."""

    id: str
    since_generation: int | None = None
    since_seq: int = 0


class SessionActivate(WireFrame, frozen=True, tag="session_activate"):
    """Starts a session that was only prepared."""

    id: str
    session_id: str
    endpoint_generation: int | None = None


class RegisterProvider(WireFrame, frozen=True, tag="register_provider"):
    """Offers a capability of the client to the session."""

    id: str
    capability: str
    connection_id: str | None = None
    definitions: Any = None
    expected_lease_id: str | None = None
    idempotency_key: str | None = None


class ProviderHeartbeat(WireFrame, frozen=True, tag="provider_heartbeat"):
    """The provider is alive."""

    connection_id: str
    lease_id: str


class ClientHeartbeat(WireFrame, frozen=True, tag="client_heartbeat"):
    """The client is alive."""

    connection_id: str


class LeaseRelease(WireFrame, frozen=True, tag="lease_release"):
    """The provider gives its lease back."""

    connection_id: str
    lease_id: str
    handoff_to: str | None = None


class ReverseResponse(WireFrame, frozen=True, tag="reverse_response"):
    """Result of something that the session asked its client to do."""

    id: str
    ok: bool
    connection_id: str | None = None
    lease_id: str | None = None
    result: Any = None
    error: ErrorBody | None = None


ControlClientFrame: TypeAlias = (
    ControlRequest
    | QueryRequest
    | EventReplay
    | SessionActivate
    | RegisterProvider
    | ProviderHeartbeat
    | ClientHeartbeat
    | LeaseRelease
    | ReverseResponse
)

# --- From the session ----------------------------------------------------------------------


class ControlResponse(WireFrame, frozen=True, tag="control_response"):
    """Result of a request."""

    id: str
    ok: bool
    result: Any = None
    error: ErrorBody | None = None


class QueryResponse(WireFrame, frozen=True, tag="query_response"):
    """Result of a query."""

    ok: bool
    id: str | None = None
    page: Any = None
    result: Any = None
    error: ErrorBody | None = None


class Event(WireFrame, frozen=True, tag="event"):
    """Something happened in the session."""

    generation: int
    seq: int
    name: str | None = None
    kind: str | None = None
    payload: Any = None


class EventReplayResult(WireFrame, frozen=True, tag="event_replay_result"):
    """The events that were asked for."""

    id: str
    ok: bool
    # No defaults: they are always there on the wire.
    events: tuple[Any, ...]
    generation: int
    last_seq: int
    gap: Any = None
    error: ErrorBody | None = None


class SessionActivateResult(WireFrame, frozen=True, tag="session_activate_result"):
    """What became of an activation."""

    id: str
    ok: bool
    status: str
    session_id: str
    generation: int
    error: ErrorBody | None = None


class RegisterProviderResult(WireFrame, frozen=True, tag="register_provider_result"):
    """The lease of a provider."""

    id: str
    lease_id: str
    lease_expires_at: str
    registered_names: tuple[str, ...]


class LeaseState(WireFrame, frozen=True, tag="lease_state"):
    """How a lease stands."""

    id: str
    connection_id: str
    capability: str
    lease_id: str
    lease_expires_at: str
    active: bool


class ReverseRequest(WireFrame, frozen=True, tag="reverse_request"):
    """The session asks its client to do something."""

    id: str
    capability: str
    connection_id: str
    lease_id: str
    payload: Any


class ReverseCancel(WireFrame, frozen=True, tag="reverse_cancel"):
    """What the session asked its client to do is not wanted any more."""

    id: str
    connection_id: str
    lease_id: str


ControlSessionFrame: TypeAlias = (
    ControlResponse
    | QueryResponse
    | Event
    | EventReplayResult
    | SessionActivateResult
    | RegisterProviderResult
    | LeaseState
    | ReverseRequest
    | ReverseCancel
)

REQUEST_TYPES: Final = frozenset(
    str(cls.__struct_config__.tag) for cls in get_args(ControlClientFrame)
)
"""Every control-plane type that a client sends."""

_decoder: Final = msgspec.json.Decoder[ControlClientFrame](ControlClientFrame)


class _PeekedId(msgspec.Struct, frozen=True):
    type: str
    id: str | None = None


_id_decoder: Final = msgspec.json.Decoder(_PeekedId)


def refusal(text: str | bytes | bytearray | memoryview, session_id: str) -> WireFrame | None:
    """Return the frame that tells a client that its control-plane request isn't served.

    Args:
        text: a frame whose type is one of `REQUEST_TYPES`.
        session_id: the session that it was sent to.

    Returns:
        The answer in the form of the request's family, or None where the protocol has none.
    """
    try:
        frame = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _malformed(text)
    match frame:
        case QueryRequest():
            return QueryResponse(id=frame.id, ok=False, error=_UNKNOWN_QUERY)
        case EventReplay():
            return EventReplayResult(
                id=frame.id, ok=False, events=(), generation=0, last_seq=0, error=_UNAVAILABLE
            )
        case SessionActivate():
            return SessionActivateResult(
                id=frame.id,
                ok=False,
                status="authority_unavailable",
                session_id=session_id,
                generation=0,
                error=_UNAVAILABLE,
            )
        case ControlRequest():
            return ControlResponse(id=frame.id, ok=False, error=_UNKNOWN_OPERATION)
        case RegisterProvider():
            return ControlResponse(id=frame.id, ok=False, error=_UNAVAILABLE)
        case ReverseResponse():
            return ReverseResponse(id=frame.id, ok=False, error=_INVALID_REVERSE)
        case ProviderHeartbeat() | ClientHeartbeat() | LeaseRelease():
            return None


def _malformed(text: str | bytes | bytearray | memoryview) -> WireFrame | None:
    try:
        peeked = _id_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if peeked.id is None:
        return None
    if peeked.type == "reverse_response":
        return ReverseResponse(id=peeked.id, ok=False, error=_INVALID_REVERSE)
    return ControlResponse(id=peeked.id, ok=False, error=_INVALID_FRAME)


_UNAVAILABLE: Final = ErrorBody(
    code="unavailable", message="this session does not serve the control plane"
)
_UNKNOWN_OPERATION: Final = ErrorBody(
    code="unknown_operation", message="this session has no such operation"
)
_UNKNOWN_QUERY: Final = ErrorBody(
    code="unknown_operation", message="this session has no such query"
)
_INVALID_REVERSE: Final = ErrorBody(
    code="invalid_reverse_frame", message="this session asked for nothing"
)
_INVALID_FRAME: Final = ErrorBody(
    code="invalid_frame", message="a field is missing or has the wrong type"
)
