"""One blocking connection to one of the hub's sockets: a JSON object a line, both ways."""

from __future__ import annotations

# The C module behind `socket`, which would bring `selectors` and `enum` along.
import _socket as sockets
import json
import os
import select
import struct
import sys
import time
from collections import deque

import upcall
from upcall.line.errors import LineError
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self

PROTOCOL = 1
LENT_SOCKET = "UPCALL_ASK_SOCKET"
MAX_LINE_BYTES = 1024 * 1024
MAX_HUB_JSON_BYTES = 64 * 1024
ANSWER_WITHIN_S = 30.0
_BACKLOG_PAUSE_S = 0.01
_READ_BYTES = 64 * 1024


class HubLine:
    """A connection to a running hub.

    Attributes:
        hub: what the hub said of itself: `pid`, `version`, `protocol`, `socket`.
    """

    def __init__(self, sock: sockets.socket) -> None:
        self.hub: dict[str, Any] = {}
        self._sock = sock
        self._buffer = bytearray()
        self._answers: dict[int | None, dict[str, Any]] = {}
        self._events: deque[dict[str, Any]] = deque()
        self._last_id = 0

    @classmethod
    def connect(
        cls, socket: str = "ask", *, timeout_s: float = 10.0, state: str | None = None
    ) -> Self:
        """Connect to a hub that runs already.

        Args:
            socket: `ask` (raise, wait, cancel) or `control` (everything).
            timeout_s: time for the connection and the hub's hello together.
            state: the hub's state folder; the user's own by default.

        Raises:
            LineError: `hub_not_running`, `hub_silent`, `hub_foreign`, `hub_refused`,
                `protocol_unknown`.
        """
        state = paths.state_dir() if state is None else state
        until = time.monotonic() + timeout_s
        lent = lent_socket()
        if lent is not None and socket != "ask":
            raise LineError(
                "not_permitted",
                f"{LENT_SOCKET} is set: here programs can ask, and nothing else",
                "run this where the hub runs",
            )
        for path in socket_paths(state, socket) if lent is None else [lent]:
            sock = _open(path, until)
            if sock is None:
                continue
            try:
                _check_peer(sock, state, path)
                line = cls(sock)
                line._greet(until)
            except BaseException:
                sock.close()
                raise
            if lent is None and not is_only_for_asking(state) and line._is_elsewhere(state):
                sock.close()
                continue
            return line
        if lent is not None or is_only_for_asking(state):
            raise _not_at(lent or paths.socket_paths(state)[0])
        raise LineError(
            "hub_not_running", "no hub is running", "start one with: upcall hub start"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. What an attached ask means then is up to the hub."""
        self._sock.close()

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait on it together with others."""
        return self._sock.fileno()

    def request(
        self, op: str, /, *, timeout_s: float = ANSWER_WITHIN_S, **fields: Any
    ) -> dict[str, Any]:
        """Send one request and return the hub's answer; events meanwhile are kept.

        Raises:
            LineError: the hub said no (its own code), or `hub_gone`, `hub_silent`,
                `line_too_long`.
        """
        answer = self._ask(op, time.monotonic() + timeout_s, fields)
        if answer.get("ok") is True:
            return answer
        error = answer.get("error")
        error = error if isinstance(error, dict) else {}
        recover = error.get("recover")
        raise LineError(
            str(error.get("code", "internal")),
            str(error.get("msg", "the hub gave no reason")),
            recover if isinstance(recover, str) else None,
            answer,
            str(error.get("class", "daemon")),
        )

    def next_event(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Return the next event, or None if none came within *timeout_s* seconds.

        Raises:
            LineError: `hub_gone`.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._events:
            if not self._read(until):
                return None
        return self._events.popleft()

    def _greet(self, until: float) -> None:
        self._send({"op": "hello", "protocol": PROTOCOL, "version": upcall.__version__}, until)
        while None not in self._answers:
            if not self._read(until):
                raise LineError(
                    "hub_silent",
                    "the hub took the connection but does not answer",
                    "look at its log, then: upcall hub stop",
                )
        hello = self._answers.pop(None)
        hub = hello.get("hub")
        if hello.get("ok") is not True or not isinstance(hub, dict):
            error = hello.get("error")
            error = error if isinstance(error, dict) else {}
            raise LineError(
                str(error.get("code", "hub_refused")),
                str(error.get("msg", "the hub refused the connection")),
                str(error["recover"]) if error.get("recover") else None,
                hello,
            )
        if hub.get("protocol") != PROTOCOL:
            raise LineError(
                "protocol_unknown",
                f"the hub speaks line protocol {hub.get('protocol')}, this program {PROTOCOL}",
                "restart the hub with: upcall hub stop",
            )
        self.hub = hub

    def _is_elsewhere(self, state: str) -> bool:
        """Tell whether the hub serves another state folder, of which ours is a copy."""
        named = self.hub.get("state_dir")
        if not isinstance(named, str):
            return False  # an older hub, found where ours would be
        try:
            return not os.path.samefile(named, state)
        except (OSError, ValueError):
            return False  # mounted here under another name

    def _ask(self, op: str, until: float, fields: dict[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        number = self._last_id
        self._send({"id": number, "op": op, **fields}, until)
        while number not in self._answers:
            if None in self._answers:
                # The hub could not read the number of what it refuses; it is this request.
                return self._answers.pop(None)
            if not self._read(until):
                raise LineError("hub_silent", f"the hub did not answer to {op!r} in time")
        return self._answers.pop(number)

    def _send(self, message: dict[str, Any], until: float) -> None:
        # UTF-8, as ASCII makes other scripts three times as long; but a lone surrogate
        # stays an escape instead of breaking the encoding.
        try:
            data = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            data = json.dumps(message, separators=(",", ":")).encode("ascii")
        data += b"\n"
        if len(data) > MAX_LINE_BYTES:
            raise LineError(
                "line_too_long",
                f"this is {len(data)} bytes for the hub; the limit is {MAX_LINE_BYTES}",
                "shorten the detail",
                error_class="configuration",
            )
        self._sock.settimeout(max(0.001, until - time.monotonic()))
        try:
            self._sock.sendall(data)
        except TimeoutError:
            raise LineError("hub_silent", "the hub does not read") from None
        except OSError as err:
            raise _gone() from err

    def _read(self, until: float | None) -> bool:
        """Take in what has come, waiting until *until* for something; False: nothing came."""
        wait_s = None if until is None else max(0.0, until - time.monotonic())
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        if not poll.poll(None if wait_s is None else wait_s * 1000):
            return False
        self._sock.settimeout(None)
        try:
            data = self._sock.recv(_READ_BYTES)
        except OSError as err:
            raise _gone() from err
        if not data:
            raise _gone()
        searched = len(self._buffer)
        self._buffer += data
        while (end := self._buffer.find(b"\n", searched)) >= 0:
            message = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            searched = 0
            self._take(message)
        if len(self._buffer) > MAX_LINE_BYTES:
            raise LineError("hub_gone", "the hub sent a line without end")
        return True

    def _take(self, data: bytes) -> None:
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise LineError("hub_gone", "the hub sent something that isn't JSON") from None
        if not isinstance(message, dict):
            raise LineError("hub_gone", "the hub sent something that isn't a JSON object")
        if "event" in message:
            self._events.append(message)
            return
        number = message.get("id")
        self._answers[number if isinstance(number, int) else None] = message


def lent_socket() -> str | None:
    """Return the path of the asking socket that somebody else's hub lends to this place."""
    return os.environ.get(LENT_SOCKET) or None


def is_only_for_asking(state: str) -> bool:
    """Tell whether a state folder is no hub's own, but holds the asking socket of one.

    So it is in a sandbox or container to which only that socket was given.
    """
    own = (paths.hub_lock(state), paths.db_path(state), paths.hub_json(state))
    return os.path.lexists(os.path.join(state, "ask.sock")) and not any(
        os.path.lexists(path) for path in own
    )


def _not_at(path: str) -> LineError:
    return LineError(
        "hub_not_running",
        f"no hub answers at {path}, and none is started here: this place can only ask",
        "start the hub where it runs, and give this place its new ask.sock",
    )


def read_hub_json(state: str) -> dict[str, Any]:
    """Return what the last hub wrote of itself; empty if there is nothing usable."""
    try:
        found = json.loads(paths.read_private_file(paths.hub_json(state), MAX_HUB_JSON_BYTES))
    except (OSError, ValueError, RecursionError, paths.PathProblem):
        return {}
    return found if isinstance(found, dict) else {}


def socket_paths(state: str, socket: str) -> Iterator[str]:
    """Yield where the socket may be: as hub.json says, then the usual places.

    What hub.json says is followed only to a place of this very state folder.
    """
    index = {"ask": 0, "control": 1}[socket]
    named = read_hub_json(state).get(f"{socket}_sock")
    if isinstance(named, str) and named and paths.is_own_socket(state, named):
        yield named
    usual = paths.socket_paths(state)[index]
    if usual != named:
        yield usual
    # Last, and only when it is wanted: its name takes a hash, which takes long to load.
    short = paths.short_socket_paths(state)[index]
    if short not in {named, usual}:
        yield short


def _open(path: str, until: float) -> sockets.socket | None:
    sock = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        while True:
            sock.settimeout(max(0.001, until - time.monotonic()))
            try:
                sock.connect(path)
            except BlockingIOError:
                # The backlog is full: many ask at once. The hub gets to it.
                if time.monotonic() >= until:
                    raise LineError("hub_silent", "the hub takes no connections") from None
                time.sleep(_BACKLOG_PAUSE_S)
            else:
                return sock
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        sock.close()
        return None
    except TimeoutError:
        sock.close()
        raise LineError("hub_silent", "the hub takes no connections") from None
    except PermissionError:
        sock.close()
        raise LineError(
            "not_permitted",
            f"you may not connect to {path}",
            "only the socket's owner can; `ask.sock` can be shared, `control.sock` should not",
        ) from None
    except OSError as err:
        sock.close()
        raise LineError("hub_unreachable", f"cannot connect to {path}: {err.strerror}") from err
    except BaseException:
        sock.close()
        raise


def _check_peer(sock: sockets.socket, state: str, path: str) -> None:
    """Refuse a listener that is somebody else: it would read questions and invent answers."""
    if sys.platform == "linux":
        credentials = sock.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, 12)
        uid = struct.unpack("3i", credentials)[1]
    else:
        # SOL_LOCAL, LOCAL_PEERCRED: struct xucred begins with its version and the uid.
        uid = struct.unpack("=II", sock.getsockopt(0, 1, 76)[:8])[1]
    try:
        # The file's own owner where somebody gave us just that.
        owner = os.stat(path if lent_socket() else state).st_uid
    except OSError:
        owner = os.geteuid()
    if uid not in {os.geteuid(), 0, owner}:
        raise LineError(
            "hub_foreign",
            f"{path} is served by another user (uid {uid}), not by your hub",
            "remove that file, or ask an administrator to",
        )


def _gone() -> LineError:
    return LineError("hub_gone", "the hub ended or closed the connection")
