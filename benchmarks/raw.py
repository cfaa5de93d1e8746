"""A blocking WebSocket client as thin as can be, so that servers are what is measured."""

import base64
import os
import socket
import struct


class RawWebSocket:
    """Text frames to and from one server on 127.0.0.1; no fragmentation, no extensions."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        target = f"/?token={token}" if token else "/"
        request = (
            f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n"
        )
        self._sock.sendall(request.encode())
        self._buffer = b""
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += self._sock.recv(65536)
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"no upgrade: {head[:80]!r}")

    def send(self, payload: bytes) -> None:
        """Send one masked text frame (mask 0: the cost of masking is not the server's)."""
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x81, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, size)
        self._sock.sendall(head + b"\0\0\0\0" + payload)

    def recv(self) -> bytes:
        """Return the payload of the next frame."""
        self._fill(2)
        size = self._buffer[1] & 0x7F
        start = 2
        if size == 126:
            self._fill(4)
            size, start = struct.unpack("!H", self._buffer[2:4])[0], 4
        elif size == 127:
            self._fill(10)
            size, start = struct.unpack("!Q", self._buffer[2:10])[0], 10
        self._fill(start + size)
        payload = self._buffer[start : start + size]
        self._buffer = self._buffer[start + size :]
        return payload

    def _fill(self, count: int) -> None:
        while len(self._buffer) < count:
            data = self._sock.recv(262144)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._buffer += data

    def close(self) -> None:
        self._sock.close()
