"""A hub's two sockets with scripted behaviour: real Unix sockets, no hub behind them.

In a test: `with FakeHub(state) as hub:`. As a program (`python hub_line.py`) it serves the
state folder of its environment until it is told to stop.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from upcall_discovery import paths

Json = dict[str, Any]
Handler = Callable[["Client", Json], Json | None]

INBOX_SEEN = [{"name": "web", "state": "delivered", "audience": 1, "reason": None}]
INBOX_UNSEEN = [{"name": "web", "state": "delivered", "audience": 0, "reason": None}]


class Refuse(Exception):
    """A handler's way to say no."""

    def __init__(
        self, code: str, msg: str = "", recover: str | None = None, **more: Any
    ) -> None:
        super().__init__(code)
        error = {"class": "runtime", "code": code, "msg": msg or code}
        if recover:
            error["recover"] = recover
        self.document = {"ok": False, "error": error, **more}


class Client:
    """One connection, as the hub sees it."""

    def __init__(self, sock: socket.socket, kind: str) -> None:
        self.sock = sock
        self.kind = kind
        self._lock = threading.Lock()

    def send(self, message: Json) -> None:
        with self._lock, contextlib.suppress(OSError):
            self.sock.sendall(json.dumps(message).encode() + b"\n")

    def drop(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class FakeHub:
    """Serves `ask.sock` and `control.sock`.

    Attributes:
        asks: every ask by id, in the shape of the protocol's ASK.
        seen: (op, request) of every request, in order.
        handlers: replaces what an op does, by name.
        channels: what asks are told of where they show.
        after_ask: called with an ask after its asker was told of it.
    """

    def __init__(self, state: str, *, version: str = "0.1.0", pid: int | None = None) -> None:
        self.state = state
        self.version = version
        self.pid = pid or os.getpid()
        self.asks: dict[str, Json] = {}
        self.seen: list[tuple[str, Json]] = []
        self.handlers: dict[str, Handler] = {}
        self.channels: list[Json] = INBOX_SEEN
        self.after_ask: Callable[[Json], object] | None = None
        self.stopped = threading.Event()
        self._stop_after = False
        self._changed = threading.Condition()
        self._waiters: dict[str, list[tuple[Client, int]]] = {}
        self._watchers: list[tuple[Client, int]] = []
        self._clients: set[Client] = set()
        self._listeners: list[socket.socket] = []
        self._threads: deque[threading.Thread] = deque()

    # --- life -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        paths.ensure_private_dir(self.state)
        names = paths.socket_paths(self.state)
        for kind, path in zip(("ask", "control"), names, strict=True):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(path)
            listener.listen(64)
            self._listeners.append(listener)
            self._start(self._accept, listener, kind)
        self._write_json(
            {
                "pid": self.pid,
                "version": self.version,
                "protocol": 1,
                "ask_sock": names[0],
                "control_sock": names[1],
            }
        )
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(paths.hub_json(self.state))
        for listener, path in zip(self._listeners, paths.socket_paths(self.state), strict=True):
            # First, as whoever finds nobody there puts a socket of its own in that place.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for client in list(self._clients):
            client.drop()
        self.stopped.set()
        while self._threads:
            self._threads.popleft().join(10)

    def _write_json(self, data: Json) -> None:
        paths.write_private_file(
            paths.hub_json(self.state), json.dumps(data).encode(), sync=False
        )

    def fail_with(self, code: str, msg: str, *, ended_ms: int | None = None) -> None:
        """Leave what a hub leaves that ended by itself."""
        when = int(time.time() * 1000) if ended_ms is None else ended_ms
        self._write_json({"ended_ms": when, "last_error": {"code": code, "msg": msg}})

    # --- for tests --------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], Any], timeout_s: float = 20.0) -> Any:
        """Return *condition*'s true value, looked at after every request."""
        with self._changed:
            self._changed.wait_for(condition, timeout_s)
            found = condition()
        assert found, f"did not happen; seen: {self.seen}"
        return found

    def requests(self, op: str) -> list[Json]:
        return [request for name, request in self.seen if name == op]

    def first_ask(self) -> Json:
        """Return the first ask, waiting for it to be raised."""
        found: Json = self.wait_until(lambda: next(iter(self.asks.values()), None))
        return found

    def end(self, ask_id: str, outcome: str, **more: Any) -> Json:
        """End an ask and tell its waiters."""
        result = self._close(ask_id, outcome, **more)
        for client, number in self._waiters.pop(ask_id, []):
            client.send({"id": number, "event": "ended", "result": result})
        return result

    def answer(self, ask_id: str, *indices: int, text: str | None = None, name: str = "Sam",
               channel: str = "web") -> Json:  # fmt: skip
        labels = [self.asks[ask_id]["options"][index] for index in indices]
        answer = {"indices": list(indices), "labels": labels, "text": text}
        return self.end(
            ask_id, "answered", answer=answer, answered_by={"name": name, "channel": channel}
        )

    def set_channels(self, channels: list[Json]) -> None:
        self.channels = channels
        for waiters in self._waiters.values():
            for client, number in waiters:
                client.send({"id": number, "event": "channels", "channels": channels})

    def screen(self) -> None:
        """Send every watcher how things stand."""
        for client, number in self._watchers:
            client.send({"id": number, "event": "screen", **self._screen()})

    def notice(self, text: str, title: str = "build") -> None:
        for client, number in self._watchers:
            session = {"session_id": "s1", "title": title}
            client.send({"id": number, "event": "notice", "session": session, "text": text})

    def drop_clients(self) -> None:
        for client in list(self._clients):
            client.drop()

    # --- serving ----------------------------------------------------------------------------

    def _start(self, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, kind: str) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            client = Client(sock, kind)
            self._clients.add(client)
            self._start(self._serve, client)

    def _serve(self, client: Client) -> None:
        with client.sock, contextlib.suppress(OSError), client.sock.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                answer = self._answer(client, request)
                if answer is not None:
                    client.send(answer)
                if self._stop_after:
                    self.stopped.set()
                with self._changed:
                    self.seen.append((request["op"], request))
                    self._changed.notify_all()
                if (
                    request["op"] == "ask"
                    and self.after_ask
                    and request["ask"]["id"] in self.asks
                ):
                    self.after_ask(self.asks[request["ask"]["id"]])
        self._clients.discard(client)

    def _answer(self, client: Client, request: Json) -> Json | None:
        op = request["op"]
        handler = self.handlers.get(op) or getattr(self, f"_op_{op}", None)
        number = {} if op == "hello" else {"id": request.get("id")}
        try:
            if handler is None:
                raise Refuse("unknown_op")
            found = handler(client, request)
        except Refuse as no:
            return number | no.document
        return None if found is None else number | {"ok": True} | found

    def _op_hello(self, client: Client, request: Json) -> Json:
        return {
            "hub": {
                "pid": self.pid,
                "version": self.version,
                "protocol": 1,
                "socket": client.kind,
            }
        }

    def _op_ask(self, client: Client, request: Json) -> Json:
        given = request["ask"]
        ask = self.asks.setdefault(
            given["id"],
            {
                "detail": None,
                "option_details": None,
                "min_selected": None,
                "max_selected": None,
                "default": None,
                "deadline_ms": None,
                "held": False,
                "state": "open",
                "outcome": None,
                "answer": None,
                "answered_by": None,
                "closed_ms": None,
                "can_decline": True,
                "can_hold": True,
                "note": "",
                "revision": "r1",
                "raised_ms": int(time.time() * 1000),
                "session": {"session_id": "s1", "kind": "hosted", **request["session"]},
                **given,
                "recommended": given["options"].index(given["recommended"])
                if "recommended" in given
                else None,
            },
        )
        if request["wait"]:
            self._waiters.setdefault(given["id"], []).append((client, request["id"]))
        return {"ask": ask, "channels": self.channels}

    def _op_wait(self, client: Client, request: Json) -> Json:
        ask = self._known(request)
        if ask["state"] == "open":
            self._waiters.setdefault(ask["id"], []).append((client, request["id"]))
        else:
            result = self._result(ask)
            self._start(client.send, {"id": request["id"], "event": "ended", "result": result})
        return {"ask": ask}

    def _op_took(self, client: Client, request: Json) -> Json:
        if "answer" not in request:
            return {}
        ask = self._known(request)
        if ask["state"] == "closed":
            raise Refuse("already_answered", result=self._result(ask))
        given = request["answer"]
        if given.get("declined"):
            return {"result": self._close(ask["id"], "declined")}
        indices = given.get("indices", [])
        answer = {
            "indices": indices,
            "labels": [ask["options"][index] for index in indices],
            "text": given.get("text"),
        }
        by = {"name": "op", "channel": "terminal"}
        return {"result": self._close(ask["id"], "answered", answer=answer, answered_by=by)}

    def _op_cancel(self, client: Client, request: Json) -> Json:
        self._close(request["ask"], "cancelled")
        return {}

    def _op_notify(self, client: Client, request: Json) -> Json:
        return {"channels": self.channels}

    def _op_answer(self, client: Client, request: Json) -> Json:
        found = [a for a in self.asks.values() if a["id"].startswith(request["ask"])]
        if not found:
            raise Refuse("unknown_ask", f"there is no question {request['ask']}")
        if len(found) > 1:
            raise Refuse("ambiguous_ask", candidates=[a["id"] for a in found])
        ask = found[0]
        if ask["state"] == "closed":
            raise Refuse("already_answered", result=self._result(ask))
        if request["decline"]:
            return {"result": self.end(ask["id"], "declined")}
        if request["hold"] is not None:
            return {"result": self._result(ask)}
        indices = [self._index(ask, value) for value in request["values"]]
        return {"result": self.answer(ask["id"], *indices)}

    def _index(self, ask: Json, value: str) -> int:
        if value.startswith("#") and 0 < int(value[1:]) <= len(ask["options"]):
            return int(value[1:]) - 1
        if value not in ask["options"]:
            raise Refuse("invalid_answer", f"{value} is no option")
        index: int = ask["options"].index(value)
        return index

    def _op_asks(self, client: Client, request: Json) -> Json:
        if request.get("ask"):
            found = [a for a in self.asks.values() if a["id"].startswith(request["ask"])]
            if not found:
                raise Refuse("unknown_ask", f"there is no question {request['ask']}")
            return {"asks": found[:1]}
        wanted = request["state"]
        asks = [a for a in self.asks.values() if wanted in {"all", a["state"]}]
        return {"asks": asks[: request["limit"]]}

    def _op_sessions(self, client: Client, request: Json) -> Json:
        return {"sessions": [], "refused": []}

    def _screen(self) -> Json:
        asks = [a for a in self.asks.values() if a["state"] == "open"]
        return {"asks": asks, "sessions": [], "channels": self.channels}

    def _op_watch(self, client: Client, request: Json) -> Json | None:
        self._watchers.append((client, request["id"]))
        client.send({"id": request["id"], "ok": True})
        client.send({"id": request["id"], "event": "screen", **self._screen()})
        return None

    def _op_status(self, client: Client, request: Json) -> Json:
        return {
            "pid": self.pid,
            "version": self.version,
            "protocol": 1,
            "state_dir": self.state,
            "runtime_dir": None,
            "web_url": "http://127.0.0.1:8737",
            "ready": True,
            "degraded": [],
            "channels": [{**c, "heard_ms": None} for c in self.channels],
            "sessions": 0,
            "open_asks": len(self._screen()["asks"]),
            "deliveries_waiting": 0,
            "started_ms": int(time.time() * 1000),
            "store": {"size_bytes": 4096, "commits": 1},
            "idle_exit_s": 600,
            "service": False,
        }

    def _op_stop(self, client: Client, request: Json) -> Json:
        # Only after the answer: who waits for `stopped` closes every connection.
        self._stop_after = True
        return {}

    def _op_reload(self, client: Client, request: Json) -> Json:
        return {}

    def _known(self, request: Json) -> Json:
        ask = self.asks.get(request["ask"])
        if ask is None:
            raise Refuse("unknown_ask", "there is no such question")
        return ask

    def _close(self, ask_id: str, outcome: str, **more: Any) -> Json:
        ask = self.asks[ask_id]
        ask.update({"state": "closed", "outcome": outcome, "closed_ms": _now_ms(), **more})
        return self._result(ask)

    def _result(self, ask: Json) -> Json:
        end_ms = ask["closed_ms"] or _now_ms()
        return {
            "id": ask["id"],
            "outcome": ask["outcome"] or "open",
            "answer": ask["answer"],
            "answered_by": ask["answered_by"],
            "waited_s": (end_ms - ask["raised_ms"]) / 1000,
        }


def _now_ms() -> int:
    return int(time.time() * 1000)


def main() -> int:
    """Serve until told to stop, or for 30 s; a second one leaves at once."""
    state = paths.state_dir()
    with FakeHub(state) as hub:
        with open(os.path.join(state, "started"), "a", encoding="utf-8") as log:
            log.write(f"{os.getpid()}\n")
        hub.stopped.wait(30)
    return 0


if __name__ == "__main__":
    sys.exit(main())
