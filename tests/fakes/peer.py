"""A session as other programs host one: it knows the wire, and nothing of this project."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from fakes.home import Json


class Peer:
    """A session as the peer's programs host one: one ask at a time, no outcomes, no decline.

    Its record lies below `<root>/.gjc/state/sdk/`, without the start of its process.
    """

    CAPABILITIES = ("threaded", "context", "turn_stream", "client_ping_pong", "session_ready")

    def __init__(self, root: str, session_id: str = "peer-1") -> None:
        self.session_id = session_id
        self.token = "Peer-token_0123456789abcdefghijklm"
        self.frames: list[Json] = []
        self.pending: Json | None = None
        self.reject: str | None = None
        self.auto_resolve = True
        self._connections: set[ServerConnection] = set()
        self._changed = threading.Condition()
        self._folder = os.path.join(root, ".gjc", "state", "sdk")
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._server = serve(
            self._serve, "127.0.0.1", 0, process_request=self._check, compression=None
        )
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self._publish(self._server.socket.getsockname()[1])
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.drop()
        assert self._server is not None
        assert self._thread is not None
        self._server.shutdown()
        self._thread.join(10)

    @property
    def path(self) -> str:
        return f"{self._folder}/{self.session_id}.json"

    @property
    def connected(self) -> int:
        return len(self._connections)

    def drop(self) -> None:
        """End every connection."""
        for connection in list(self._connections):
            connection.close()

    def ask(self, action: str, question: str, *options: str) -> None:
        """Ask; what was asked before is superseded, as the peer has it."""
        self.pending = {
            "type": "action_needed",
            "id": action,
            "kind": "ask",
            "sessionId": self.session_id,
            "question": question,
            "options": list(options),
        }
        self.say(self.pending)

    def resolve(self, action: str, by: str = "client", answer: Any = None) -> None:
        if self.pending is not None and self.pending["id"] == action:
            self.pending = None
        frame: Json = {"type": "action_resolved", "id": action, "resolvedBy": by}
        self.say(frame if answer is None else {**frame, "answer": answer})

    def say(self, frame: Json) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(ConnectionClosed):
                connection.send(json.dumps(frame))

    def heard(self, what: Callable[[Json], bool], within_s: float = 10) -> Json:
        """Return the first frame of the hub that fits, as soon as it is there."""
        until = time.monotonic() + within_s
        with self._changed:
            while True:
                for frame in self.frames:
                    if what(frame):
                        return frame
                left_s = until - time.monotonic()
                assert left_s > 0, f"not heard; but: {self.frames}"
                self._changed.wait(left_s)

    def replies(self) -> list[Json]:
        with self._changed:
            return [frame for frame in self.frames if frame["type"] == "reply"]

    def _publish(self, port: int) -> None:
        os.makedirs(self._folder, 0o700, exist_ok=True)
        now_ms = int(time.time() * 1000)
        content = {
            "version": 1,
            "sessionId": self.session_id,
            "pid": os.getpid(),
            "host": "127.0.0.1",
            "port": port,
            "url": f"ws://127.0.0.1:{port}",
            "token": self.token,
            "startedAt": now_ms,
            "updatedAt": now_ms,
            "stale": False,
        }
        temporary = f"{self._folder}/.{self.session_id}.{os.getpid()}.tmp"
        with open(temporary, "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            json.dump(content, file, indent=2)
        os.rename(temporary, self.path)

    def _check(self, connection: ServerConnection, request: Request) -> Response | None:
        token = parse_qs(urlsplit(request.path).query).get("token")
        if token == [self.token]:
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "unauthorized")

    def _serve(self, connection: ServerConnection) -> None:
        capabilities = list(self.CAPABILITIES)
        hello = {"type": "hello", "protocolVersion": 3, "capabilities": capabilities}
        connection.send(json.dumps({**hello, "connectionId": "connection:1"}))
        self._connections.add(connection)
        try:
            if self.pending is not None:
                connection.send(json.dumps(self.pending))
            for text in connection:
                self._take(connection, json.loads(text))
        finally:
            self._connections.discard(connection)

    def _take(self, connection: ServerConnection, frame: Json) -> None:
        if frame["type"] == "ping":
            connection.send(json.dumps({"type": "pong", "nonce": frame["nonce"]}))
        elif frame["type"] == "reply":
            self._reply(connection, frame)
        with self._changed:
            self.frames.append(frame)
            self._changed.notify_all()

    def _reply(self, connection: ServerConnection, frame: Json) -> None:
        reason = self.reject
        if frame.get("token") != self.token:
            reason = "unauthorized"
        elif self.pending is None or frame["id"] != self.pending["id"]:
            reason = "unknown_action"
        if reason is not None:
            rejected = {"type": "reply_rejected", "id": frame["id"], "reason": reason}
            connection.send(json.dumps(rejected))
        elif self.auto_resolve:
            self.resolve(frame["id"], "client", frame["answer"])
