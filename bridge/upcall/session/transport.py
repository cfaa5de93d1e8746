"""One WebSocket connection on asyncio, server or client side.

The protocol is `websockets`' Sans-I/O layer; this is only its I/O. It stands on
`asyncio.BufferedProtocol` with one receive buffer for all connections of a thread, because
the loop otherwise allocates a quarter of a megabyte for every read, and it has no task, no
timer and no queue per connection while nothing happens. There is no compression and there
are no keep-alive pings: on loopback, end of file is death.
"""

import asyncio
import logging
import threading
from collections.abc import Hashable
from typing import Final, Protocol, cast

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Protocol as WebSocket
from websockets.protocol import State

from upcall.model.frames import TurnStream, WireFrame
from upcall.model.ids import ConnectionId
from upcall.model.limits import MAX_QUEUED_BYTES
from upcall.session.backlog import Backlog

LINGER_S: Final = 10.0
"""How long a connection that is closing may take before it is cut."""
_WRITE_HIGH_BYTES: Final = 64 * 1024
_RECEIVE_BYTES: Final = 256 * 1024

CLOSE_NORMAL: Final = 1000
CLOSE_GOING_AWAY: Final = 1001
CLOSE_UNSUPPORTED: Final = 1003
CLOSE_ABNORMAL: Final = 1006
CLOSE_TRY_AGAIN: Final = 1013


class _Scratch(threading.local):
    """The receive buffer of a thread. What is in it never outlives one read."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_RECEIVE_BYTES))


_scratch: Final = _Scratch()


# The library writes request lines and headers, and so tokens, at DEBUG. This logger is in no
# hierarchy and writes nothing, whatever is configured.
SILENT: Final = logging.Logger("upcall.wire", logging.CRITICAL + 1)  # noqa: LOG001


class Owner(Protocol):
    """Who is behind a connection. Called on the loop; must not block."""

    def opened(self, wire: "Wire") -> None:
        """Note that the handshake is done."""
        ...

    def received(self, wire: "Wire", data: bytes | bytearray | memoryview) -> None:
        """Take one text message."""
        ...

    def closed(self, wire: "Wire", code: int, reason: str, error: Exception | None) -> None:
        """Note that the connection is over; *code* is 1006 if it just ended."""
        ...


class Wire(asyncio.BufferedProtocol):
    """Base of both sides: reading, writing, back-pressure and closing."""

    __slots__ = (
        "_backlog",
        "_gone",
        "_lingering",
        "_lost",
        "_max_queued_bytes",
        "_owner",
        "_parts",
        "_paused",
        "_transport",
        "_websocket",
        "id",
    )

    def __init__(
        self,
        owner: Owner,
        websocket: WebSocket,
        *,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        self._owner = owner
        self._websocket = websocket
        self._max_queued_bytes = max_queued_bytes
        # Made when the first frame has to wait: most connections never need one.
        self._backlog: Backlog | None = None
        self._parts: list[bytes | bytearray | memoryview] | None = None
        self._paused = False
        self._lost = False
        self._lingering: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] | None = None
        self.id = ConnectionId("")

    # --- For whoever owns it ---------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent."""
        return self._websocket.state is State.OPEN and not self._lost

    @property
    def gone(self) -> asyncio.Future[None]:
        """Done when the connection is over; made on demand, since few ask."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
            if self._lost:
                self._gone.set_result(None)
        return self._gone

    @property
    def waiting_bytes(self) -> int:
        """How many bytes wait for the other side to read."""
        backlog = 0 if self._backlog is None else self._backlog.size_bytes
        return backlog + (0 if self._transport is None else self._written_ahead())

    def send(
        self, data: bytes, live: Hashable | None = None, ends_live: Hashable | None = None
    ) -> None:
        """Send one text message, now or when the other side has read what waits.

        If too much waits, the connection is closed with 1013. Does nothing on a connection
        that is not open.

        Args:
            data: JSON text in UTF-8.
            live: key of the message of which this is live text, which may be dropped.
            ends_live: key of the message whose waiting live text this makes pointless.
        """
        if not self.is_open:
            return
        if not self._paused:
            self._websocket.send_text(data)
            self._flush()
            return
        if self._backlog is None:
            self._backlog = Backlog(self._max_queued_bytes)
        if ends_live is not None:
            self._backlog.forget_live(ends_live)
        if not self._backlog.add(data, live):
            self._overflow()

    def close(self, code: int = CLOSE_NORMAL, reason: str = "") -> None:
        """Start the closing handshake; the connection is cut if it does not end in time."""
        if self._lost or self._transport is None:
            return
        if self._websocket.state is State.OPEN:
            self._drain_backlog(everything=True)
            self._websocket.send_close(code, reason)
            self._flush()
        elif self._websocket.state is State.CONNECTING:
            self._transport.abort()

    def hold(self) -> None:
        """Read nothing more for now; what the other side sends waits in the kernel."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.BufferedProtocol ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        del sizehint
        return _scratch.view

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        # The library appends it to its own buffer at once, for which a view is enough.
        self._websocket.receive_data(cast("bytes", _scratch.view[:nbytes]))
        self._step()

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`."""
        self._websocket.receive_eof()
        self._step()
        # False makes the transport close itself once everything is written.
        return False

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._paused = True

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._paused = False
        self._drain_backlog(everything=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self._lost = True
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        self._backlog = None
        self._parts = None
        self._ended(*self._why_closed(), exc)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    # --- For the two sides -----------------------------------------------------------------

    def _handshake(self, event: Request | Response) -> None:
        raise NotImplementedError

    def _ended(self, code: int, reason: str, error: Exception | None) -> None:
        self._owner.closed(self, code, reason, error)

    def _step(self) -> None:
        for event in self._websocket.events_received():
            if not isinstance(event, Frame):
                self._handshake(event)
            elif not self._frame(event):
                # What came behind a frame that broke the rules is void. What came before a
                # closing frame is not, although the state is no longer OPEN.
                break
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        for data in self._websocket.data_to_send():
            if self._lost:
                return
            if data:
                transport.write(data)
            elif transport.can_write_eof() and not transport.is_closing():
                # Not close(): with unread input the kernel would answer with a reset, and
                # the other side would never read why it was refused.
                transport.write_eof()
        if self._websocket.state is not State.OPEN:
            self._linger()
        elif self._paused and self._written_ahead() > self._max_queued_bytes:
            # Answers to a flood of pings of a client that reads nothing.
            self._overflow()

    # --- Inside ----------------------------------------------------------------------------

    def _frame(self, frame: Frame) -> bool:
        if frame.opcode is Opcode.TEXT:
            if frame.fin:
                self._owner.received(self, frame.data)
            else:
                self._parts = [frame.data]
        elif frame.opcode is Opcode.CONT and self._parts is not None:
            self._parts.append(frame.data)
            if frame.fin:
                whole, self._parts = b"".join(self._parts), None
                self._owner.received(self, whole)
        elif frame.opcode is Opcode.BINARY:
            self._websocket.fail(CLOSE_UNSUPPORTED, "binary frames are not supported")
            return False
        return True

    def _drain_backlog(self, *, everything: bool) -> None:
        backlog = self._backlog
        while backlog and self.is_open and (everything or not self._paused):
            self._websocket.send_text(backlog.pop())
            if everything:
                for data in self._websocket.data_to_send():
                    cast("asyncio.Transport", self._transport).write(data)
            else:
                self._flush()

    def _overflow(self) -> None:
        if self._backlog is not None:
            self._backlog.clear()
        if self._websocket.state is State.OPEN:
            self._websocket.send_close(CLOSE_TRY_AGAIN, "too much waits to be read")
            self._flush()

    def _written_ahead(self) -> int:
        return cast("asyncio.Transport", self._transport).get_write_buffer_size()

    def _linger(self) -> None:
        """See that a connection which is closing is gone in a bounded time."""
        transport = self._transport
        if self._lost or transport is None:
            return
        if self._websocket.state is State.CLOSED:
            transport.close()
        elif self._websocket.close_expected() and self._lingering is None:
            loop = asyncio.get_running_loop()
            self._lingering = loop.call_later(LINGER_S, transport.abort)

    def _why_closed(self) -> tuple[int, str]:
        websocket = self._websocket
        if websocket.close_rcvd is not None and websocket.close_rcvd_then_sent is not False:
            return websocket.close_rcvd.code, websocket.close_rcvd.reason
        if websocket.close_sent is not None:
            return websocket.close_sent.code, websocket.close_sent.reason
        return CLOSE_ABNORMAL, ""


def live_keys(frame: WireFrame) -> tuple[Hashable | None, Hashable | None]:
    """Return the `live` and `ends_live` keys of a frame for `Wire.send`.

    Live text without a message ref replaces nothing, but may be dropped all the same.
    """
    if not isinstance(frame, TurnStream):
        return None, None
    ref = frame.message_ref
    if frame.phase == "live":
        return (object() if ref is None else ref), None
    return None, ref
