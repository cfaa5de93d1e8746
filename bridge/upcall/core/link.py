"""One endpoint and its clients: who is told what, and in which order.

`EndpointLink` is pure. It holds the capabilities of every connection and which ask each one
is shown; frames go in, and frames to send come out. What a client says about asks and
messages is handed on; whoever owns the asks decides it.

To a client that announces `parallel_asks_v1` every open ask is shown. Any other client is
shown one ask at a time, as the protocol of the peers has it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from upcall.model import control, frames
from upcall.model.errors import MalformedFrame
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    ActionUnavailable,
    Activity,
    AskHold,
    AskSelectedAckResult,
    ConfigCommand,
    ConfigUpdate,
    ContextUpdate,
    ControlCommand,
    ControlCommandResult,
    EphemeralTurn,
    EphemeralTurnCancel,
    EphemeralTurnResult,
    ErrorBody,
    FileAttachment,
    Frame,
    Hello,
    IdentityHeader,
    ImageAttachment,
    Ping,
    Pong,
    ProtocolError,
    ReasoningSummary,
    Reply,
    ReplyRejected,
    SessionReady,
    ToolActivity,
    TurnStream,
    Unknown,
    UserMessage,
    WireFrame,
)
from upcall.model.ids import ActionId, ConnectionId
from upcall.model.limits import PROTOCOL_VERSION

PARALLEL_ASKS: Final = "parallel_asks_v1"
OUTCOMES: Final = "outcomes_v1"
TOOL_ACTIVITY: Final = "tool_activity_v1"
ASK_CONTROLS: Final = "ask_controls_v1"
SECRET_ASKS: Final = "secret_asks_v1"  # noqa: S105 - a capability

SERVER_CAPABILITIES: Final = (
    "threaded",
    "context",
    "turn_stream",
    "images",
    "config",
    "client_ping_pong",
    "session_ready",
    "typing",
    "inbound_ack",
    TOOL_ACTIVITY,
    OUTCOMES,
    PARALLEL_ASKS,
    SECRET_ASKS,
)
CLIENT_CAPABILITIES: Final = (OUTCOMES, PARALLEL_ASKS, TOOL_ACTIVITY)

Delivered: TypeAlias = (
    Reply | AskHold | UserMessage | ConfigCommand | AskSelectedAckResult | EphemeralTurnCancel
)
"""What whoever owns the asks has to see. Tokens are already checked."""


class AskSource(Protocol):
    """Whoever owns the session's asks."""

    def open_asks(self) -> Sequence[ActionNeeded]:
        """Return every open ask, oldest first."""
        ...

    def recent_resolutions(self) -> Sequence[ActionResolved]:
        """Return how the last asks ended, oldest first."""
        ...


_State = TypeVar("_State", ContextUpdate, ConfigUpdate)


class Received(NamedTuple):
    """What one frame leads to: frames back to its sender, and what is handed on."""

    back: Sequence[WireFrame] = ()
    deliver: Delivered | None = None


@dataclass(slots=True)
class _Client:
    capabilities: set[str] = field(default_factory=set)
    # The one ask that a client without parallel asks is shown now.
    shown: ActionId | None = None

    @property
    def parallel(self) -> bool:
        return PARALLEL_ASKS in self.capabilities

    @property
    def shows_secrets(self) -> bool:
        return SECRET_ASKS in self.capabilities

    def may_see(self, ask: ActionNeeded) -> bool:
        # Whoever does not know what a secret is would show and keep the answer.
        return not ask.secret or self.shows_secrets


class EndpointLink:
    """The protocol side of one endpoint with any number of connections.

    Args:
        session_id: the session.
        token_ok: whether a token is the session's; compares in constant time.
        source: who owns the asks.
        capabilities: what the endpoint announces.
        ready: told to every client after the hello.
        identity: told to every client, so that a later one knows the session's name.
        keep_early_bytes: how much of what is said before the first client came is kept
            for it.
    """

    __slots__ = (
        "_activity",
        "_capabilities",
        "_clients",
        "_config",
        "_context",
        "_controlled",
        "_early",
        "_early_bytes",
        "_identity",
        "_ready",
        "_session_id",
        "_source",
        "_token_ok",
    )

    def __init__(
        self,
        session_id: str,
        token_ok: Callable[[str], bool],
        source: AskSource,
        *,
        capabilities: Sequence[str] = SERVER_CAPABILITIES,
        ready: SessionReady | None = None,
        identity: IdentityHeader | None = None,
        keep_early_bytes: int = 0,
    ) -> None:
        self._session_id = session_id
        self._token_ok = token_ok
        self._source = source
        self._capabilities = tuple(capabilities)
        self._clients: dict[ConnectionId, _Client] = {}
        # What a later client has to know, in the order in which it is told.
        self._ready = ready
        self._identity = identity
        self._context: ContextUpdate | None = None
        self._config: ConfigUpdate | None = None
        self._activity: Activity | None = None
        # Said while nobody was connected yet; the first client gets it.
        self._early: list[WireFrame] = []
        self._early_bytes = keep_early_bytes
        # Asks with controls, which not every client can show.
        self._controlled: set[ActionId] = set()

    def connections(self) -> Sequence[ConnectionId]:
        """Return all connections, oldest first."""
        return tuple(self._clients)

    def capabilities_of(self, connection: ConnectionId) -> frozenset[str]:
        """Return what a connection announced so far."""
        client = self._clients.get(connection)
        return frozenset() if client is None else frozenset(client.capabilities)

    # --- Connections -----------------------------------------------------------------------

    def opened(self, connection: ConnectionId) -> list[WireFrame]:
        """Add a connection and return what it is told first, in order."""
        client = self._clients[connection] = _Client()
        told: list[WireFrame] = [
            Hello(
                protocol_version=PROTOCOL_VERSION,
                capabilities=self._capabilities,
                connection_id=connection,
            )
        ]
        state = (self._ready, self._identity, self._context, self._config, self._activity)
        told.extend(frame for frame in state if frame is not None)
        told.extend(self._show_next(client))
        told.extend(self._early)
        self._early, self._early_bytes = [], 0
        return told

    def closed(self, connection: ConnectionId) -> None:
        """Forget a connection."""
        self._clients.pop(connection, None)

    def received(
        self, connection: ConnectionId, data: str | bytes | bytearray | memoryview
    ) -> Received:
        """Handle one frame of a client. Nothing that it may contain raises."""
        try:
            frame = frames.decode(data)
        except frames.BadReply as exc:
            known = exc.token is not None and self._token_ok(exc.token)
            reason = "invalid_answer" if known else "unauthorized"
            return Received([ReplyRejected(id=exc.id, reason=reason)])
        except MalformedFrame as exc:
            return Received([_protocol_error(exc.msg)])
        if isinstance(frame, Unknown):
            if frame.type not in control.REQUEST_TYPES:
                return Received()
            refusal = control.refusal(data, self._session_id)
            return Received(() if refusal is None else [refusal])
        return self._dispatch(self._clients[connection], frame)

    def _dispatch(self, client: _Client, frame: Frame) -> Received:
        match frame:
            case Ping():
                return Received([Pong(nonce=frame.nonce)])
            case Hello():
                return Received(self._hello(client, frame))
            case Reply():
                return self._reply(client, frame)
            case AskSelectedAckResult():
                return Received((), frame)
            case AskHold() | UserMessage() | ConfigCommand() | EphemeralTurnCancel():
                # With a wrong token these get no answer at all; the protocol has none.
                return Received((), frame if self._token_ok(frame.token) else None)
            case ControlCommand() | EphemeralTurn():
                known = self._token_ok(frame.token)
                return Received([_not_served(frame, self._session_id)] if known else ())
            case _:
                # A session's frame from a client: known, and none of its business.
                return Received()

    def _hello(self, client: _Client, frame: Hello) -> list[WireFrame]:
        was_parallel = client.parallel
        had_controls = ASK_CONTROLS in client.capabilities
        had_secrets = client.shows_secrets
        client.capabilities.update(frame.capabilities)
        told: list[WireFrame] = []
        if client.parallel and not was_parallel:
            told.extend(
                self._for_client(client, ask)
                for ask in self._source.open_asks()
                if ask.id != client.shown and client.may_see(ask)
            )
            told.extend(self._source.recent_resolutions())
        elif client.shows_secrets and not had_secrets:
            secret = [ask for ask in self._source.open_asks() if ask.secret]
            told.extend(secret if client.parallel else ())
            if client.shown is None:
                told.extend(self._show_next(client))
        elif ASK_CONTROLS in client.capabilities and not had_controls:
            # What it could only be told of before, it can be shown now.
            told.extend(
                ask
                for ask in self._source.open_asks()
                if ask.controls and (client.parallel or ask.id == client.shown)
            )
        return told

    def _reply(self, client: _Client, frame: Reply) -> Received:
        if frame.id in self._controlled and ASK_CONTROLS not in client.capabilities:
            return Received([ReplyRejected(id=frame.id, reason="invalid_answer")])
        if not self._token_ok(frame.token):
            return Received([ReplyRejected(id=frame.id, reason="unauthorized")])
        if not client.shows_secrets and frame.id in {
            ask.id for ask in self._source.open_asks() if ask.secret
        }:
            return Received([ReplyRejected(id=frame.id, reason="resolver_unavailable")])
        return Received((), frame)

    # --- Asks ------------------------------------------------------------------------------

    def present(self, ask: ActionNeeded) -> list[tuple[ConnectionId, WireFrame]]:
        """Return who is shown a new ask, or one whose deadline changed, and as what."""
        if ask.controls:
            self._controlled.add(ask.id)
        told: list[tuple[ConnectionId, WireFrame]] = []
        for connection, client in self._clients.items():
            if not client.may_see(ask):
                continue
            if client.parallel or client.shown in {None, ask.id}:
                client.shown = ask.id
                told.append((connection, self._for_client(client, ask)))
        return told

    def resolved(self, resolved: ActionResolved) -> list[tuple[ConnectionId, WireFrame]]:
        """Return who is told that an ask ended, and which ask each one is shown next.

        The ask must have left `AskSource.open_asks` before.
        """
        self._controlled.discard(resolved.id)
        told: list[tuple[ConnectionId, WireFrame]] = []
        for connection, client in self._clients.items():
            if client.parallel:
                told.append((connection, resolved))
            elif client.shown == resolved.id:
                client.shown = None
                told.append((connection, resolved))
                told.extend((connection, frame) for frame in self._show_next(client))
        return told

    def _show_next(self, client: _Client) -> Iterable[WireFrame]:
        for ask in self._source.open_asks():
            if not client.may_see(ask):
                continue
            client.shown = ask.id
            if ask.controls:
                self._controlled.add(ask.id)
            return (self._for_client(client, ask),)
        return ()

    def _for_client(self, client: _Client, ask: ActionNeeded) -> WireFrame:
        if not ask.controls or ASK_CONTROLS in client.capabilities:
            return ask
        return ActionUnavailable(
            id=ask.id,
            session_id=ask.session_id,
            reason="missing_capability",
            required_capabilities=(ASK_CONTROLS,),
        )

    # --- Everything else -------------------------------------------------------------------

    def broadcast(self, frame: WireFrame) -> list[ConnectionId]:
        """Remember what later clients must know, and return who gets *frame* now."""
        match frame:
            case SessionReady():
                self._ready = frame
            case IdentityHeader():
                self._identity = frame
            case ContextUpdate():
                self._context = _merged(self._context, frame)
            case ConfigUpdate():
                self._config = _merged(self._config, frame)
            case Activity():
                self._activity = frame
            case ToolActivity() | ReasoningSummary():
                return [
                    connection
                    for connection, client in self._clients.items()
                    if TOOL_ACTIVITY in client.capabilities
                ]
            case _ if self._early_bytes and not self._clients:
                self._keep_early(frame)
            case _:
                pass
        return list(self._clients)

    def has_early(self) -> bool:
        """Tell whether something was said that nobody has been told yet."""
        return bool(self._early)

    def _keep_early(self, frame: WireFrame) -> None:
        lasting = isinstance(frame, ActionNeeded | ImageAttachment | FileAttachment) or (
            isinstance(frame, TurnStream) and frame.phase == "finalized"
        )
        size = len(frames.encode(frame)) if lasting else 0
        if lasting and size <= self._early_bytes:
            self._early.append(frame)
            # What is left; once nothing is, later notices are for those who listen.
            self._early_bytes -= size


def _merged(old: _State | None, new: _State) -> _State:
    """Return *old* with every field that *new* has."""
    if old is None:
        return new
    given = {
        name: value
        for name in new.__struct_fields__
        if (value := getattr(new, name)) is not None
    }
    return msgspec.structs.replace(old, **given)


def _protocol_error(why: str) -> ProtocolError:
    return ProtocolError(ok=False, error=ErrorBody(code="invalid_frame", message=why))


def _not_served(frame: ControlCommand | EphemeralTurn, session_id: str) -> WireFrame:
    if isinstance(frame, EphemeralTurn):
        return EphemeralTurnResult(
            session_id=session_id,
            request_id=frame.request_id,
            update_id=frame.update_id,
            message_id=frame.message_id,
            thread_id=frame.thread_id,
            status="session_unavailable",
        )
    return ControlCommandResult(
        session_id=session_id,
        request_id=frame.request_id,
        update_id=frame.update_id,
        status="unavailable",
        message="This session takes no commands.",
    )
