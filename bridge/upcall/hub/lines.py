"""One connection of the hub's sockets: lines in, lines out, both bounded.

There is no task per connection. What a client does not read is kept up to a limit, beyond
which it is disconnected, so that it delays nobody else.
"""

import asyncio
import json
import os
from typing import Any, Final, Protocol

import msgspec

from upcall.hub.peer import Peer
from upcall.model.limits import (
    MAX_FOREIGN_PARTIAL_BYTES,
    MAX_HELLO_BYTES,
    MAX_LINE_BYTES,
    MAX_PARTIAL_BYTES,
    MAX_QUEUED_BYTES,
)

_READ_BYTES: Final = 64 * 1024
# Beyond this the client is behind, and of what it can miss only the newest is kept.
_BEHIND_BYTES: Final = 256 * 1024
# A client that has begun a line no longer than this is never the one that is too much.
_SMALL_BYTES: Final = 64 * 1024

_encode_quickly: Final = msgspec.json.Encoder().encode


def _encode(message: dict[str, Any]) -> bytes:
    try:
        return _encode_quickly(message)
    except UnicodeEncodeError:
        # The name of a file need not be UTF-8: what is not stays an escape, as JSON has it.
        return json.dumps(msgspec.to_builtins(message), separators=(",", ":")).encode("ascii")


class LineTooLong(Exception):
    """A line to be sent is longer than the protocol allows."""


class Listener(Protocol):
    """Who works for the connections."""

    def opened(self, line: "LineConnection") -> None:
        """A client has connected."""
        ...

    def received(self, line: "LineConnection", data: bytes) -> None:
        """A client sent a line, without its end."""
        ...

    def too_long(self, line: "LineConnection") -> None:
        """A client sent a line beyond the limit; nothing more is read from it."""
        ...

    def crowded(self, line: "LineConnection") -> None:
        """All clients together have begun lines beyond the limit; this one adds to them."""
        ...

    def closed(self, line: "LineConnection") -> None:
        """The connection has ended."""
        ...


class ReadBuffer:
    """Where bytes arrive; one for any number of connections, each empties it at once."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_READ_BYTES))
        # What our own user's connections, and others', have of lines whose end has not come.
        self.partial_bytes = {True: 0, False: 0}


class LineConnection(asyncio.BufferedProtocol):
    """One client.

    Attributes:
        peer: who it is; set while it is connected.
        closed: nothing arrives at the client any more.
        greeted: it has said hello; before that, its lines are short.
    """

    __slots__ = (
        "_buffer",
        "_latest",
        "_limit_bytes",
        "_listener",
        "_ours",
        "_partial",
        "_paused",
        "_transport",
        "closed",
        "greeted",
        "peer",
    )

    def __init__(
        self,
        listener: Listener,
        buffer: ReadBuffer,
        *,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        self.peer = Peer(0, -1)
        self.closed = True
        self.greeted = False
        self._listener = listener
        self._buffer = buffer
        self._limit_bytes = max_queued_bytes
        self._ours = False
        self._partial = bytearray()
        self._latest: dict[int, bytes] = {}
        self._paused = False
        self._transport: asyncio.Transport | None = None

    # --- asyncio calls these ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the client in, if the kernel says who it is."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream socket
        self._transport = transport
        transport.set_write_buffer_limits(high=_BEHIND_BYTES)
        try:
            self.peer = Peer.of(transport.get_extra_info("socket"))
        except OSError:
            transport.abort()
            return
        self.closed = False
        self._ours = self.peer.uid in {0, os.geteuid()}
        self._listener.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        del sizehint
        return self._buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on the lines that are complete."""
        partial = self._partial
        before = len(partial)
        partial += self._buffer.view[:nbytes]
        start = 0
        # Only the new bytes can hold the end of the first line.
        end = partial.find(b"\n", len(partial) - nbytes)
        while end >= 0 and not self.closed:
            if end - start > self.max_line_bytes:
                break
            self._listener.received(self, bytes(partial[start:end]))
            start = end + 1
            end = partial.find(b"\n", start)
        del partial[:start]
        if not self.closed and len(partial) > self.max_line_bytes:
            partial.clear()
            self._listener.too_long(self)
        all_partial = self._buffer.partial_bytes
        all_partial[self._ours] += len(partial) - before
        limit_bytes = MAX_PARTIAL_BYTES if self._ours else MAX_FOREIGN_PARTIAL_BYTES
        if all_partial[self._ours] > limit_bytes and len(partial) > _SMALL_BYTES:
            self._forget_partial()
            if not self.closed:
                self._listener.crowded(self)

    @property
    def max_line_bytes(self) -> int:
        """How long a line of this client may be now."""
        return MAX_LINE_BYTES if self.greeted else MAX_HELLO_BYTES

    def _forget_partial(self) -> None:
        self._buffer.partial_bytes[self._ours] -= len(self._partial)
        self._partial.clear()

    def eof_received(self) -> bool:
        """Take a half-closed connection for a closed one."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the listener, once."""
        del exc
        was_open, self.closed = self._transport is not None, True
        self._forget_partial()
        self._transport = None
        self._latest.clear()
        if was_open:
            self._listener.closed(self)

    def pause_writing(self) -> None:
        """Note that the client is behind."""
        self._paused = True

    def resume_writing(self) -> None:
        """Send the newest of what the client missed."""
        self._paused = False
        latest, self._latest = self._latest, {}
        for data in latest.values():
            self._write(data)

    # --- the hub calls these ---------------------------------------------------------------

    def send(self, message: dict[str, Any], *, replaces: int | None = None) -> None:
        """Send one line; a client that does not read is disconnected.

        Args:
            message: what to send.
            replaces: while the client is behind, only the newest message with this number
                is kept for it.

        Raises:
            LineTooLong: nothing was sent.
        """
        data = _encode(message) + b"\n"
        if len(data) > MAX_LINE_BYTES:
            raise LineTooLong
        if self._paused and replaces is not None:
            self._latest[replaces] = data
        else:
            self._write(data)

    def close(self) -> None:
        """Disconnect after what was sent has left."""
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Disconnect at once."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def hold(self) -> None:
        """Read nothing more for now; what the client sends waits in the kernel."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self.closed:
            return
        transport.write(data)
        if transport.get_write_buffer_size() > self._limit_bytes:
            self.abort()
