"""A thin client of the hub's sockets: one JSON object a line."""

import json
import os
import socket
from pathlib import Path
from typing import Any

CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


def mint() -> str:
    """Return a new public ask id."""
    return "a" + "".join(CROCKFORD[byte & 31] for byte in os.urandom(12))


class Line:
    """One connection."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(str(path))
        self._buffer = b""
        self._number = 0
        self._sock.sendall(b'{"op":"hello","protocol":1,"version":"0.1.0"}\n')
        assert self.read()["ok"]

    def send(self, op: str, **fields: Any) -> int:
        self._number += 1
        message = json.dumps({"id": self._number, "op": op, **fields}) + "\n"
        self._sock.sendall(message.encode())
        return self._number

    def read(self) -> dict[str, Any]:
        """Return the next message, waiting for it."""
        while b"\n" not in self._buffer:
            self._fill()
        data, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(data)
        return message

    def read_ready(self) -> list[dict[str, Any]]:
        """Return all whole messages that one read from the socket brings."""
        self._fill()
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(data) for data in lines]

    def fileno(self) -> int:
        return self._sock.fileno()

    def _fill(self) -> None:
        data = self._sock.recv(262144)
        if not data:
            raise ConnectionError("the hub closed the connection")
        self._buffer += data

    def request(self, op: str, **fields: Any) -> dict[str, Any]:
        number = self.send(op, **fields)
        while True:
            message = self.read()
            if message.get("id") == number and "ok" in message:
                if not message["ok"]:
                    raise RuntimeError(str(message["error"]))
                return message

    def ask(
        self, ask_id: str, question: str = "Deploy to production now?", *, wait: bool
    ) -> int:
        return self.send(
            "ask",
            ask={
                "id": ask_id,
                "question": question,
                "options": ["Yes", "No"],
                "multi": False,
                "free_text": False,
                "class": "question",
            },
            session={"cwd": "/", "program": "bench"},
            wait=wait,
        )

    def close(self) -> None:
        self._sock.close()
