"""A session's endpoint: a WebSocket server on a loopback port, guarded by a token.

`Endpoint` is the shell around `EndpointLink`: it listens, guards handshakes, and carries
frames. Whoever owns the session's asks is its handler: the action book of an SDK session, or
the hub for the sessions that it hosts.
"""

import asyncio
import errno
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol, cast

from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from upcall.core.link import SERVER_CAPABILITIES, Delivered, EndpointLink
from upcall.model import limits
from upcall.model.errors import TransportError, UpcallError
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    AskHold,
    ConfigCommand,
    IdentityHeader,
    Reply,
    SessionReady,
    UserMessage,
    WireFrame,
    encode,
)
from upcall.model.ids import ConnectionId
from upcall.session.entrance import Entrance
from upcall.session.guard import refusal, same_secret
from upcall.session.transport import (
    CLOSE_GOING_AWAY,
    SILENT,
    Wire,
    live_keys,
)

_HOST: Final = "127.0.0.1"
_CLOSE_S: Final = 1.0


class EndpointHandler(Protocol):
    """Who owns the asks. Called on the loop; must not block and not raise.

    Tokens are checked before. Answers go out by `Endpoint.send`, `present` and `resolve`.
    """

    def open_asks(self) -> Sequence[ActionNeeded]:
        """Return every open ask, oldest first."""
        ...

    def recent_resolutions(self) -> Sequence[ActionResolved]:
        """Return how the last asks ended, oldest first."""
        ...

    def reply(self, connection: ConnectionId, reply: Reply) -> None:
        """Decide a reply."""
        ...

    def hold(self, connection: ConnectionId, hold: AskHold) -> None:
        """Stop an ask's deadline, or let it run again."""
        ...

    def user_message(self, connection: ConnectionId, message: UserMessage) -> None:
        """Take a person's words."""
        ...

    def config(self, connection: ConnectionId, command: ConfigCommand) -> None:
        """Change how much the session tells."""
        ...

    def other(self, connection: ConnectionId, frame: Delivered) -> None:
        """Take anything else that a client may say."""
        ...


class Endpoint:
    """One session's server.

    Args:
        session_id: the session.
        token: 32 URL-safe characters that let a client in.
        handler: who owns the asks.
        allow_origins: `Origin` values that are let in; none, unless the program allows some.
        ready: told to every client after the hello.
        identity: what the session is, told to every client.
        capabilities: what the endpoint announces.
        handshake_s: how long a client may take for its opening handshake, in seconds.
        max_queued_bytes: what may wait for one client before it is closed with 1013.
        keep_early_bytes: how much of what is said before the first client came is kept for
            it.
    """

    __slots__ = (
        "_closed",
        "_counter",
        "_entrance",
        "_handler",
        "_link",
        "_met",
        "_server",
        "_token",
        "_wires",
        "allow_origins",
        "handshake_s",
        "max_queued_bytes",
        "port",
        "session_id",
    )

    def __init__(
        self,
        session_id: str,
        token: str,
        handler: EndpointHandler,
        *,
        allow_origins: Collection[str] = (),
        ready: SessionReady | None = None,
        identity: IdentityHeader | None = None,
        capabilities: Sequence[str] = SERVER_CAPABILITIES,
        handshake_s: float = limits.HANDSHAKE_DEADLINE_S,
        max_queued_bytes: int = limits.MAX_QUEUED_BYTES,
        keep_early_bytes: int = 0,
    ) -> None:
        if not token:
            raise UpcallError("an endpoint needs a token", code="token_missing")
        self.session_id = session_id
        self.allow_origins = frozenset(allow_origins)
        self.handshake_s = handshake_s
        self.max_queued_bytes = max_queued_bytes
        self.port = 0
        self._token = token
        self._handler = handler
        self._link = EndpointLink(
            session_id,
            self._token_ok,
            handler,
            capabilities=capabilities,
            ready=ready,
            identity=identity,
            keep_early_bytes=keep_early_bytes,
        )
        self._wires: dict[ConnectionId, Wire] = {}
        self._entrance = Entrance()
        self._counter = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._closed = False
        self._met = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Endpoint {self.session_id} on port {self.port}>"

    async def start(self) -> int:
        """Listen on a free loopback port and return it.

        Raises:
            TransportError: `listen_failed`; there is no port, or no descriptor, to be had.
        """
        loop = asyncio.get_running_loop()
        try:
            # In two steps: who is cancelled in the second one still knows what to close.
            self._server = await loop.create_server(
                lambda: _ServerWire(self), _HOST, 0, start_serving=False
            )
            try:
                await self._server.start_serving()
            except BaseException:
                self._server.close()
                raise
        except OSError as exc:
            raise TransportError(
                f"cannot listen on {_HOST}: {os.strerror(exc.errno or errno.EIO)}",
                code="listen_failed",
            ) from exc
        self.port = cast("int", self._server.sockets[0].getsockname()[1])
        self._entrance.port = self.port
        return self.port

    async def close(self) -> None:
        """Stop listening and close every connection; waits for them, up to one second."""
        if self._closed:
            return
        self._closed = True
        self._entrance.close()
        if self._server is not None:
            self._server.close()
        for wire in self._all_wires():
            wire.close(CLOSE_GOING_AWAY, "the session ends")
        waiting = [wire.gone for wire in self._all_wires()]
        if waiting:
            await asyncio.wait(waiting, timeout=_CLOSE_S)
        for wire in self._all_wires():
            wire.abort()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._wires)

    def has_early(self) -> bool:
        """Tell whether something was said that nobody has been told yet."""
        return self._link.has_early()

    async def first_client(self) -> None:
        """Wait until some client has connected."""
        await self._met.wait()

    def capabilities_of(self, connection: ConnectionId) -> frozenset[str]:
        """Return what a client announced."""
        return self._link.capabilities_of(connection)

    # --- To clients ------------------------------------------------------------------------

    def send(self, connection: ConnectionId, frame: WireFrame) -> None:
        """Send one frame to one client; nothing happens if it is gone.

        Raises:
            UpcallError: `oversized_frame`; over 1 MiB.
        """
        self._send_each([(connection, frame)])

    def broadcast(self, frame: WireFrame) -> None:
        """Send one frame to every client that can take it.

        Raises:
            UpcallError: `oversized_frame`; over 1 MiB.
        """
        data = _encoded(frame)
        self._send_all(self._link.broadcast(frame), frame, data)

    def present(self, ask: ActionNeeded) -> None:
        """Show a new ask, or one that changed, to every client whose turn it is."""
        self._send_each(self._link.present(ask))

    def resolve(self, resolved: ActionResolved) -> None:
        """Tell how an ask ended, and show the next one to clients that see one at a time.

        The ask must have left the handler's `open_asks` before.
        """
        self._send_each(self._link.resolved(resolved))

    def _send_all(
        self, connections: Iterable[ConnectionId], frame: WireFrame, data: bytes
    ) -> None:
        live, ends_live = live_keys(frame)
        for connection in connections:
            wire = self._wires.get(connection)
            if wire is not None:
                wire.send(data, live, ends_live)

    def _send_each(self, told: Iterable[tuple[ConnectionId, WireFrame]]) -> None:
        # Mostly one frame for everybody, so it is encoded once.
        last: WireFrame | None = None
        data = b""
        for connection, frame in told:
            if frame is not last:
                last, data = frame, _encoded(frame)
            self._send_all((connection,), frame, data)

    # --- From connections ------------------------------------------------------------------

    def _token_ok(self, token: str) -> bool:
        return same_secret(token, self._token)

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        return refusal(request, self._token, self.allow_origins)

    def _admits(self, wire: Wire, peer: tuple[str, int] | None) -> bool:
        """Take a new connection into the handshake, or not."""
        return not self._closed and self._entrance.admits(wire, peer)

    def _next_id(self) -> ConnectionId:
        return ConnectionId(f"connection:{next(self._counter)}")

    def _all_wires(self) -> Iterator[Wire]:
        # Only wires of ours are guests.
        guests = cast("list[Wire]", self._entrance.guests)
        return iter((*guests, *self._wires.values()))

    def opened(self, wire: Wire) -> None:
        """See `transport.Owner`."""
        self._entrance.left(wire)
        self._wires[wire.id] = wire
        self._met.set()
        self._send_each([(wire.id, frame) for frame in self._link.opened(wire.id)])

    def received(self, wire: Wire, data: bytes | bytearray | memoryview) -> None:
        """See `transport.Owner`."""
        received = self._link.received(wire.id, data)
        for frame in received.back:
            wire.send(_encoded(frame))
        if received.deliver is None:
            return
        match received.deliver:
            case Reply() as reply:
                self._handler.reply(wire.id, reply)
            case AskHold() as hold:
                self._handler.hold(wire.id, hold)
            case UserMessage() as message:
                self._handler.user_message(wire.id, message)
            case ConfigCommand() as command:
                self._handler.config(wire.id, command)
            case other:
                self._handler.other(wire.id, other)

    def closed(self, wire: Wire, code: int, reason: str, error: Exception | None) -> None:
        """See `transport.Owner`."""
        del code, reason, error
        self._entrance.left(wire)
        if self._wires.pop(wire.id, None) is not None:
            self._link.closed(wire.id)


class _ServerWire(Wire):
    """The server's side of one connection."""

    __slots__ = ("_deadline", "_endpoint")

    def __init__(self, endpoint: Endpoint) -> None:
        websocket = ServerProtocol(max_size=limits.MAX_INBOUND_BYTES, logger=SILENT)
        super().__init__(endpoint, websocket, max_queued_bytes=endpoint.max_queued_bytes)
        self._endpoint = endpoint
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        super().connection_made(transport)
        if not self._endpoint._admits(self, transport.get_extra_info("peername")):
            self.abort()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._endpoint.handshake_s, self.abort)

    def _handshake(self, event: Request | Response) -> None:
        if not isinstance(event, Request):
            return
        websocket = cast("ServerProtocol", self._websocket)
        refused = self._endpoint._refusal(event)
        response = websocket.reject(*refused) if refused else websocket.accept(event)
        websocket.send_response(response)
        if response.status_code != 101:
            # The deadline goes on: it may not stay to read for ever.
            self._endpoint._entrance.refused(self)
            return
        self._cancel_deadline()
        self.id = self._endpoint._next_id()
        self._endpoint.opened(self)

    def _ended(self, code: int, reason: str, error: Exception | None) -> None:
        self._cancel_deadline()
        super()._ended(code, reason, error)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _encoded(frame: WireFrame) -> bytes:
    data = encode(frame)
    if len(data) > limits.MAX_OUTBOUND_BYTES:
        raise UpcallError(
            f"a frame of {len(data)} bytes is over the limit of {limits.MAX_OUTBOUND_BYTES}",
            code="oversized_frame",
        )
    return data
