"""The far end of the fake chat: rooms, messages, people, and everything that can go wrong."""

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Self

Kind = Literal[
    "throttle", "refuse", "not_sent", "hang", "lose", "drop", "drop_after", "uncertain"
]
SOON_S = 10.0


@dataclass
class Posted:
    """A message, as people see it.

    Attributes:
        ref: the platform's id.
        key: what the hub called the delivery.
        attempt: as the hub counts; above 1 it may be there already.
        bodies: all that it has shown, oldest first.
    """

    ref: str
    place: str
    key: str
    attempt: int
    bodies: list[dict[str, Any]]
    deleted: bool = False

    @property
    def body(self) -> dict[str, Any]:
        """What it shows now."""
        return self.bodies[-1]

    @property
    def text(self) -> str:
        """Its text now."""
        return str(self.body["text"])

    @property
    def state(self) -> str:
        """The hub's words on the state."""
        return str(self.body.get("state", ""))

    @property
    def buttons(self) -> dict[str, str]:
        """Its live buttons: token by label; decline and hold are `[decline]` and `[hold]`."""
        return dict(self.body.get("buttons", {}))


@dataclass
class Thread:
    """A thread."""

    place: str
    conversation: str
    title: str
    key: str
    gone: bool = False


@dataclass
class Fault:
    """What goes wrong with the next calls of one kind.

    Attributes:
        call: `post`, `edit`, `open`, `find`, `delete`, `round`, or `*`.
        kind: `throttle`, `refuse`, `not_sent`, `uncertain` are answers; `hang` accepts and
            never answers, `lose` does neither; `drop` and `drop_after` close the connection
            before and after the call is accepted.
        times: how many calls it hits.
        about: only calls whose fields have this text.
    """

    call: str
    kind: Kind
    times: int = 1
    retry_after_s: float = 1.0
    place_only: bool = False
    code: str = "refused"
    about: str = ""


@dataclass
class _Line:
    """One connection of a hub."""

    socket: socket.socket
    lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: dict[str, Any]) -> None:
        try:
            with self.lock:
                self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.close()

    def close(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


class FakeChat:
    """A chat platform on 127.0.0.1 that a test plays.

    Args:
        dedupes: it knows a repeat by its key (`repeat="by_key"`).
        keeps_taps: taps that are made while nobody hears come later, and are not lost.

    Attributes:
        port: where it listens.
        messages: everything that was posted, oldest first.
        calls: every call that came in, by its kind and fields.
        receipts: what the hub said of each event, by its key.
    """

    def __init__(self, *, dedupes: bool = False, keeps_taps: bool = True) -> None:
        self.dedupes = dedupes
        self.keeps_taps = keeps_taps
        self.messages: list[Posted] = []
        self.threads: dict[str, Thread] = {}
        self.calls: list[dict[str, Any]] = []
        self.receipts: dict[str, dict[str, Any]] = {}
        self._faults: list[Fault] = []
        self._changed = threading.Condition(threading.RLock())
        self._events: dict[int, dict[str, Any]] = {}
        self._sent: set[int] = set()
        self._numbers = itertools.count(1)
        self._deaf = ""
        self._up = True
        self._line: _Line | None = None
        self._readers: list[threading.Thread] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        with self._changed:
            self._up = False
            line = self._line
        if line is not None:
            line.close()
        # It wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._acceptor.join(SOON_S)
        for reader in self._readers:
            reader.join(SOON_S)

    # --- what a test looks at ---------------------------------------------------------------

    def until(
        self, check: Callable[[], Any], *, within_s: float = SOON_S, what: str = ""
    ) -> Any:
        """Return what *check* returns as soon as it is true; fail after *within_s*."""
        end = time.monotonic() + within_s
        with self._changed:
            while not (found := check()):
                left_s = end - time.monotonic()
                if left_s <= 0:
                    shown = [(one.text, one.state) for one in self.messages]
                    raise AssertionError(f"not within {within_s} s: {what}; there is {shown}")
                self._changed.wait(left_s)
        return found

    def shown(self, text: str) -> list[Posted]:
        """Return the messages with *text* in them that nobody has taken away."""
        with self._changed:
            return [one for one in self.messages if text in one.text and not one.deleted]

    def card(self, text: str, *, within_s: float = SOON_S) -> Posted:
        """Return the newest message with *text* as soon as it is there."""
        found: Posted = self.until(
            lambda: self.shown(text)[-1:], within_s=within_s, what=f"a message with {text!r}"
        )[0]
        return found

    # --- what people do ---------------------------------------------------------------------

    def press(
        self,
        card: Posted,
        label: str,
        *,
        who: str = "ada",
        key: str | None = None,
        token: str | None = None,
        **fields: Any,
    ) -> str:
        """Tap the button *label* of *card*, or one with *token*; return the event's key."""
        token = token if token is not None else card.buttons[label]
        return self._happen(
            {
                "event": "press",
                "key": key or f"tap-{next(self._numbers)}",
                "token": token,
                "place": card.place,
                "ref": card.ref,
                "who": {"identity": who, "name": who},
                **fields,
            },
            taps=True,
        )

    def write(
        self, place: str, text: str, *, who: str = "ada", key: str | None = None, **fields: Any
    ) -> str:
        """Write *text* in a thread; return the event's key."""
        number = next(self._numbers)
        return self._happen(
            {
                "event": "text",
                "key": key or f"text-{number}",
                "text": text,
                "place": place,
                "ref": f"m{number}",
                "sent_ms": int(time.time() * 1000),
                "who": {"identity": who, "name": who},
                **fields,
            }
        )

    def command(self, place: str, name: str, text: str = "", *, who: str = "ada") -> str:
        """Give the hub a command in a thread; return the event's key."""
        number = next(self._numbers)
        return self._happen(
            {
                "event": "command",
                "key": f"command-{number}",
                "name": name,
                "text": text,
                "place": place,
                "who": {"identity": who, "name": who},
            }
        )

    def receipt(self, key: str, *, within_s: float = SOON_S) -> dict[str, Any]:
        """Return what the hub said of an event."""
        what = f"a receipt for {key}"
        found: dict[str, Any] = self.until(
            lambda: self.receipts.get(key), within_s=within_s, what=what
        )
        return found

    # --- what goes wrong --------------------------------------------------------------------

    def fault(self, call: str, kind: Kind, **fields: Any) -> Fault:
        """Let the next calls of this kind go wrong; see `Fault`."""
        made = Fault(call, kind, **fields)
        with self._changed:
            self._faults.append(made)
        return made

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        with self._changed:
            self._faults.clear()

    def deaf(self, reason: str = "no rounds") -> None:
        """Hand out no events; calls still work."""
        with self._changed:
            self._deaf = reason
            self._tell_state()

    def hear(self) -> None:
        """Hand out events again, first those that waited."""
        with self._changed:
            self._deaf = ""
            self._flush()

    def down(self) -> None:
        """Take no connection any more."""
        with self._changed:
            self._up = False
            line, self._line = self._line, None
        if line is not None:
            line.close()

    def up(self) -> None:
        """Take connections again."""
        with self._changed:
            self._up = True

    def remove_thread(self, place: str) -> None:
        """Remove a thread with all that is in it."""
        with self._changed:
            self.threads[place].gone = True
            for one in self.messages:
                one.deleted = one.deleted or one.place == place

    # --- the platform -----------------------------------------------------------------------

    def _happen(self, event: dict[str, Any], *, taps: bool = False) -> str:
        with self._changed:
            if taps and not self.keeps_taps and (self._deaf or self._line is None):
                return str(event["key"])
            number = next(self._numbers)
            self._events[number] = {**event, "number": number}
            self._flush()
            return str(event["key"])

    def _flush(self) -> None:
        if self._line is None or self._deaf:
            return
        for number, event in self._events.items():
            if number not in self._sent:
                self._sent.add(number)
                self._line.send(event)
        self._tell_state()

    def _tell_state(self) -> None:
        if self._line is None:
            return
        state: dict[str, Any] = {"hearing": not self._deaf, "reason": self._deaf or None}
        if not self._deaf and not self._events:
            # Everything that had waited is kept by the hub.
            state["caught_up"] = True
        self._line.send({"state": state})

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self._changed:
                if not self._up:
                    connection.close()
                    continue
                if self._line is not None:
                    self._line.close()
                self._line = _Line(connection)
                self._sent.clear()
                reader = threading.Thread(target=self._read, args=(self._line,), daemon=True)
                self._readers = [one for one in self._readers if one.is_alive()]
                self._readers.append(reader)
                self._flush()
                if self._deaf:
                    self._tell_state()
            reader.start()

    def _read(self, line: _Line) -> None:
        buffer = b""
        while True:
            try:
                data = line.socket.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for one in lines:
                self._take(line, json.loads(one))
        with self._changed:
            if self._line is line:
                self._line = None
            self._changed.notify_all()
        line.socket.close()

    def _take(self, line: _Line, told: dict[str, Any]) -> None:
        with self._changed:
            if "ack" in told:
                event = self._events.pop(told["ack"], None)
                if event is not None:
                    self.receipts[event["key"]] = told["receipt"]
                if not self._events:
                    self._tell_state()
            else:
                self.calls.append(told)
                answer = self._answer(line, told)
                if answer is not None:
                    line.send({"id": told["id"], **answer})
            self._changed.notify_all()

    def _answer(self, line: _Line, told: dict[str, Any]) -> dict[str, Any] | None:
        fault = self._next_fault(told)
        match fault.kind if fault is not None else None:
            case "throttle":
                assert fault is not None
                return {
                    "error": "throttled",
                    "retry_after_s": fault.retry_after_s,
                    "place_only": fault.place_only,
                }
            case "refuse":
                assert fault is not None
                return {"error": "refused", "code": fault.code, "msg": fault.code}
            case "not_sent":
                return {"error": "not_sent"}
            case "uncertain":
                return {"error": "uncertain"}
            case "lose":
                return None
            case "hang":
                self._do(told)
                return None
            case "drop":
                line.close()
                return None
            case "drop_after":
                self._do(told)
                line.close()
                return None
            case _:
                return self._do(told)

    def _next_fault(self, told: dict[str, Any]) -> Fault | None:
        for fault in self._faults:
            if fault.call not in {"*", told["call"]} or fault.about not in json.dumps(told):
                continue
            fault.times -= 1
            if fault.times <= 0:
                self._faults.remove(fault)
            return fault
        return None

    def _do(self, told: dict[str, Any]) -> dict[str, Any]:
        place = told.get("place")
        thread = self.threads.get(place) if isinstance(place, str) else None
        if thread is not None and thread.gone:
            return {"error": "refused", "code": "thread_gone", "msg": "no such thread"}
        match told["call"]:
            case "post":
                return self._post(told)
            case "open":
                return self._open(told)
            case "find":
                return {"ref": self._find(told["key"])}
            case "round":
                return {}
            case "edit" | "delete":
                return self._change(told)
            case other:
                raise AssertionError(f"no such call: {other}")

    def _find(self, key: str) -> str | None:
        for one in self.messages:
            if one.key == key:
                return one.ref
        for thread in self.threads.values():
            if thread.key == key:
                return thread.place
        return None

    def _post(self, told: dict[str, Any]) -> dict[str, Any]:
        known = self._find(told["key"]) if self.dedupes else None
        if known is not None:
            return {"ref": known}
        ref = f"r{len(self.messages) + 1}"
        self.messages.append(
            Posted(ref, told["place"], told["key"], told["attempt"], [told["body"]])
        )
        return {"ref": ref}

    def _open(self, told: dict[str, Any]) -> dict[str, Any]:
        known = self._find(told["key"]) if self.dedupes else None
        if known is not None:
            return {"ref": known}
        place = f"t{len(self.threads) + 1}"
        self.threads[place] = Thread(place, told["conversation"], told["title"], told["key"])
        return {"ref": place}

    def _change(self, told: dict[str, Any]) -> dict[str, Any]:
        for one in self.messages:
            if one.ref == told["ref"]:
                thread = self.threads.get(one.place)
                if thread is not None and thread.gone:
                    return {"error": "refused", "code": "thread_gone", "msg": "gone"}
                if told["call"] == "delete":
                    one.deleted = True
                else:
                    one.bodies.append(told["body"])
                return {}
        return {"error": "refused", "code": "unknown_message", "msg": "no such message"}
