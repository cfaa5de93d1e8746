"""A connection to an endpoint, ours or a peer's, without a task of its own.

Loopback only, straight to the address: no name is looked up, no proxy is used whatever the
environment says, and no redirect is followed.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import quote, urlsplit

from websockets.client import ClientProtocol
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.uri import WebSocketURI

from upcall.clock import Clock, SystemClock
from upcall.model import limits
from upcall.model.errors import MalformedFrame, TransportError, UpcallError
from upcall.model.frames import Frame, Hello, Unknown, WireFrame, decode, encode
from upcall.model.text import one_line
from upcall.session.transport import CLOSE_ABNORMAL, CLOSE_NORMAL, SILENT, Wire

MAX_RECEIVED_BYTES: Final = 4 * 1024 * 1024
"""What one message of a session may have; peers send up to 1 MiB, pictures may be larger."""
_STATUS_CODES: Final = {401: "unauthorized", 403: "forbidden"}
_CLOSE_S: Final = 1.0


class ConnectionEnded(TransportError):
    """The connection is over.

    Attributes:
        close_code: WebSocket close code; 1006 if the other side is simply gone.
    """

    code = "connection_closed"

    def __init__(self, close_code: int, reason: str) -> None:
        words = "the session is gone" if close_code == CLOSE_ABNORMAL else "closed"
        shown = f": {one_line(reason)}" if reason else ""
        super().__init__(f"{words} ({close_code}{shown})")
        self.close_code = close_code


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint listens: a literal loopback address, a port and a path."""

    host: str
    port: int
    path: str = "/"


def parse_url(url: str) -> Address:
    """Return the address in an endpoint's URL. A token in it is left out.

    Raises:
        TransportError: `url_refused`; not `ws://` with a literal loopback address.
    """
    shown = one_line(url.partition("?")[0], 80)
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname or ""
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        port, host, loopback = None, "", False
        parts = None
    # The literal form only: an address written otherwise could be read otherwise elsewhere.
    canonical = loopback and (host == "::1" or host.startswith("127."))
    if (
        parts is None
        or parts.scheme != "ws"
        or not canonical
        or not port
        or "@" in parts.netloc
    ):
        raise TransportError(
            f"{shown!r} is not ws:// with a loopback address and a port", code="url_refused"
        )
    return Address(host, port, parts.path or "/")


class Connection:
    """An open connection. Frames come by the callbacks given to `open_connection`.

    Attributes:
        hello: what the session said first; None if it was not waited for and is not here.
        malformed: how many messages were no frames.
    """

    __slots__ = (
        "_greeted",
        "_on_close",
        "_on_frame",
        "_opened",
        "_wire",
        "hello",
        "malformed",
    )

    def __init__(
        self,
        on_frame: Callable[[Frame | Unknown], None],
        on_close: Callable[[Exception | None], None],
    ) -> None:
        self._on_frame = on_frame
        self._on_close = on_close
        self._wire: _ClientWire | None = None
        self._opened = False
        self._greeted: asyncio.Future[None] | None = None
        self.hello: Hello | None = None
        self.malformed = 0

    @property
    def capabilities(self) -> frozenset[str]:
        """What the session's hello announced."""
        return frozenset() if self.hello is None else frozenset(self.hello.capabilities)

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent."""
        return self._wire is not None and self._wire.is_open

    def send(self, frame: WireFrame) -> None:
        """Send one frame; never waits.

        Raises:
            ConnectionEnded: the connection is over.
            UpcallError: `oversized_frame`; the session would close the connection.
        """
        data = encode(frame)
        if len(data) > limits.MAX_INBOUND_BYTES:
            raise UpcallError(
                f"a frame of {len(data)} bytes is over the session's limit of"
                f" {limits.MAX_INBOUND_BYTES}",
                code="oversized_frame",
            )
        if self._wire is None or not self._wire.is_open:
            raise ConnectionEnded(CLOSE_ABNORMAL, "")
        self._wire.send(data)

    def hold(self) -> None:
        """Read nothing more for now; neither is the end of the connection noticed."""
        if self._wire is not None:
            self._wire.hold()

    def go_on(self) -> None:
        """Read again."""
        if self._wire is not None:
            self._wire.go_on()

    async def close(self) -> None:
        """Close and wait until it is, up to one second."""
        wire = self._wire
        if wire is None:
            return
        wire.close(CLOSE_NORMAL)
        await asyncio.wait([wire.gone], timeout=_CLOSE_S)
        wire.abort()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._wire is not None:
            self._wire.abort()

    # --- transport.Owner -------------------------------------------------------------------

    def opened(self, wire: Wire) -> None:
        """See `transport.Owner`."""
        del wire
        self._opened = True

    def received(self, wire: Wire, data: bytes | bytearray | memoryview) -> None:
        """See `transport.Owner`."""
        del wire
        try:
            frame = decode(data)
        except MalformedFrame:
            self.malformed += 1
            return
        if isinstance(frame, Hello) and self.hello is None:
            self.hello = frame
            if self._greeted is not None and not self._greeted.done():
                self._greeted.set_result(None)
        self._on_frame(frame)

    def closed(self, wire: Wire, code: int, reason: str, error: Exception | None) -> None:
        """See `transport.Owner`."""
        del wire
        ended = ConnectionEnded(code, reason)
        ended.__cause__ = error
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_exception(ended)
        if self._opened:
            self._opened = False
            self._on_close(None if code == CLOSE_NORMAL else ended)


class _ClientWire(Wire):
    """The client's side of one connection."""

    __slots__ = ("_request", "ready")

    def __init__(
        self,
        owner: Connection,
        websocket: ClientProtocol,
        request: Request,
        ready: asyncio.Future[None],
        max_queued_bytes: int,
    ) -> None:
        super().__init__(owner, websocket, max_queued_bytes=max_queued_bytes)
        self._request: Request | None = request
        self.ready: asyncio.Future[None] | None = ready

    def begin(self) -> None:
        """Send the request, and with it the token."""
        if self._request is not None and not self._lost:
            cast("ClientProtocol", self._websocket).send_request(self._request)
            # It has the token in it, and is not needed again.
            self._request = None
            self._flush()

    def _handshake(self, event: Request | Response) -> None:
        if not isinstance(event, Response) or self.ready is None or self.ready.done():
            return
        if self._websocket.state is State.OPEN:
            self._owner.opened(self)
            self.ready.set_result(None)
        elif event.status_code != 101:
            self.ready.set_exception(_refused(event))
        else:
            self.ready.set_exception(_no_handshake())
        self.ready = None

    def _ended(self, code: int, reason: str, error: Exception | None) -> None:
        if self.ready is not None and not self.ready.done():
            self.ready.set_exception(_no_handshake())
        self.ready = None
        super()._ended(code, reason, error)


async def open_connection(
    url: str,
    token: str,
    *,
    on_frame: Callable[[Frame | Unknown], None],
    on_close: Callable[[Exception | None], None],
    timeout_s: float = 10.0,
    token_in_url: bool = True,
    wait_hello: bool = True,
    max_outbound: int = limits.MAX_QUEUED_BYTES,
    clock: Clock | None = None,
    check: Callable[[], Awaitable[None]] | None = None,
) -> Connection:
    """Connect to an endpoint and wait for its hello.

    Args:
        url: `ws://` with a literal loopback address.
        token: the session's token; goes into the `Authorization` header.
        on_frame: called with every frame, in order, and from before this returns. What is
            not a frame is counted and left out.
        on_close: called once when an open connection is over, with None after a normal
            closure.
        timeout_s: for all of it, in seconds.
        token_in_url: send the token in the URL as well, which peers need.
        wait_hello: return only after the session's hello.
        max_outbound: bytes that may wait to be sent; beyond, the connection is closed with
            1013.
        clock: for the time-out.
        check: waited for once somebody has taken the connection and before anything is
            sent; it raises `TransportError` if that is not who should have.

    Raises:
        TransportError: `url_refused`, `connection_refused`, `unauthorized`, `forbidden`,
            `handshake_failed`, `connection_timeout` or `connection_closed`.
    """
    address = parse_url(url)
    query = f"token={quote(token, safe='')}" if token_in_url else ""
    uri = WebSocketURI(False, address.host, address.port, address.path, query)
    websocket = ClientProtocol(uri, max_size=MAX_RECEIVED_BYTES, logger=SILENT)
    request = websocket.connect()
    request.headers["Authorization"] = f"Bearer {token}"
    loop = asyncio.get_running_loop()
    connection = Connection(on_frame, on_close)
    ready: asyncio.Future[None] = loop.create_future()
    wire = _ClientWire(connection, websocket, request, ready, max_outbound)
    connection._wire = wire
    greeted: asyncio.Future[None] | None = None
    if wait_hello:
        greeted = connection._greeted = loop.create_future()
    try:
        async with (clock or SystemClock()).timeout(timeout_s):
            await loop.create_connection(lambda: wire, address.host, address.port)
            if check is not None:
                await check()
            wire.begin()
            await ready
            if greeted is not None:
                await greeted
    except BaseException as exc:
        connection._opened = False
        wire.abort()
        if isinstance(exc, TimeoutError):
            raise TransportError(
                f"no answer from port {address.port} within {timeout_s:g} s",
                code="connection_timeout",
            ) from exc
        if isinstance(exc, OSError):
            raise TransportError(
                f"cannot connect to port {address.port}: {exc.strerror or 'refused'}",
                code="connection_refused",
            ) from exc
        raise
    finally:
        # Nobody awaits them any more; an exception in them would be reported as lost.
        for future in (ready, greeted):
            if future is not None and not future.cancelled() and future.done():
                future.exception()
            elif future is not None:
                future.cancel()
        connection._greeted = None
    return connection


def _refused(response: Response) -> TransportError:
    status = response.status_code
    return TransportError(
        f"the session refused the connection (HTTP {status})",
        code=_STATUS_CODES.get(status, "handshake_failed"),
    )


def _no_handshake() -> TransportError:
    return TransportError(
        "the session dropped the connection during the handshake", code="handshake_failed"
    )
