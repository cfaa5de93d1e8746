"""A person's computer in a folder: real `upcall` processes with places of their own.

Nothing here knows the product's code, only its promises: the command line, hub.json, the
line protocol and the database's tables.
"""

import compileall
import contextlib
import fcntl
import importlib.util
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

Json = dict[str, Any]
_T = TypeVar("_T")

UPCALL = (sys.executable, "-P", "-m", "upcall")
RUN_WITHIN_S = 30.0
SOON_S = 10.0
_LOOK_EVERY_S = 0.01


def eventually(check: Callable[[], _T], *, within_s: float = SOON_S, what: str = "") -> _T:
    """Return what *check* returns as soon as it is true; fail after *within_s* seconds."""
    until = time.monotonic() + within_s
    pause = threading.Event()
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() >= until:
            raise AssertionError(f"not within {within_s} s: {what or check}; last: {found!r}")
        pause.wait(_LOOK_EVERY_S)


def ended(pid: int, within_s: float) -> bool:
    """Tell whether the process *pid*, which need not be our child, ends in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], within_s)[0])
    finally:
        os.close(descriptor)


def open_files(pid: int) -> dict[int, str]:
    """Return what a process has open, by descriptor."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        """The one document on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict), found
        return found

    def __str__(self) -> str:
        return f"exit {self.code}\nstdout: {self.out}\nstderr: {self.err}"


class Running:
    """A command that runs, and what it has written so far.

    Args:
        argv: the command.
        terminal: our end of its controlling terminal, which hangs up when it is closed.
        options: of `subprocess.Popen`; standard error is what is read as `err`, and where
            that is the terminal, all that appears on it.
    """

    def __init__(self, argv: Sequence[Any], *, terminal: int = -1, **options: Any) -> None:
        self._terminal = terminal
        options.setdefault("stderr", subprocess.PIPE)
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, **options)
        self._written: dict[str, list[bytes]] = {"out": [], "err": []}
        self._changed = threading.Condition()
        assert self.process.stdout is not None
        error = self.process.stderr
        streams = {
            "out": self.process.stdout.fileno(),
            "err": terminal if error is None else error.fileno(),
        }
        self._readers = [
            threading.Thread(target=self._read, args=(name, descriptor), daemon=True)
            for name, descriptor in streams.items()
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def out(self) -> str:
        return self._text("out")

    def err(self) -> str:
        return self._text("err")

    def _text(self, name: str) -> str:
        with self._changed:
            return b"".join(self._written[name]).decode()

    def line(self, pattern: str, *, on: str = "err", within_s: float = SOON_S) -> re.Match[str]:
        """Return the first match of *pattern* in what was written, as soon as it is there."""
        until = time.monotonic() + within_s
        with self._changed:
            while True:
                text = b"".join(self._written[on]).decode()
                found = re.search(pattern, text)
                if found is not None:
                    return found
                left_s = until - time.monotonic()
                over = not any(reader.is_alive() for reader in self._readers)
                if left_s <= 0 or over:
                    written = {k: b"".join(v).decode() for k, v in self._written.items()}
                    raise AssertionError(f"no {pattern!r} on {on}: {written}")
                self._changed.wait(min(left_s, 0.5))

    def asked(self) -> str:
        """Return the id of the ask that it says it has raised."""
        return self.line(r"\b(a[0-9a-hjkmnp-tv-z]{12})\b.*\n")[1]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL and reap it."""
        self.process.kill()
        self.end()

    def end(self, within_s: float = RUN_WITHIN_S) -> Done:
        """Return how it ended."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            written = f"stdout: {self.out()}\nstderr: {self.err()}"
            raise AssertionError(f"still runs after {within_s} s\n{written}") from None
        for reader in self._readers:
            reader.join(5.0)
        return Done(code, self.out(), self.err())

    def abandon(self) -> None:
        """End it whatever it does, and let go of everything."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SOON_S)
        for reader in self._readers:
            reader.join(5.0)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def type(self, text: str) -> None:
        """Type on the terminal."""
        os.write(self._terminal, text.encode())

    def _read(self, name: str, descriptor: int) -> None:
        # A terminal that nobody else holds any more is EIO.
        with contextlib.suppress(OSError):
            while chunk := os.read(descriptor, 65536):
                with self._changed:
                    self._written[name].append(chunk)
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


class Line:
    """A client of the hub's line protocol that knows only its bytes."""

    def __init__(self, path: str, *, version: str = "0.0.1") -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._buffer = b""
        self._ids = 0
        self._events: deque[Json] = deque()
        self._answers: dict[int | None, Json] = {}
        try:
            self._socket.settimeout(SOON_S)
            self._socket.connect(path)
            self.send({"op": "hello", "protocol": 1, "version": version})
            self.hello = self._next(SOON_S)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: Json) -> None:
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        self._socket.settimeout(SOON_S)
        self._socket.sendall(data)

    def request(self, op: str, /, *, within_s: float = SOON_S, **fields: Any) -> Json:
        """Send a request and return its answer, also if it is a refusal."""
        return self.answer_to(self.post(op, **fields), within_s=within_s)

    def post(self, op: str, /, **fields: Any) -> int:
        """Send a request and return its number."""
        self._ids += 1
        self.send({"id": self._ids, "op": op, **fields})
        return self._ids

    def answer_to(self, number: int | None, *, within_s: float = SOON_S) -> Json:
        """Return the answer to the request *number* (None: to a line without); keep events."""
        until = time.monotonic() + within_s
        while number not in self._answers:
            found = self._next(until - time.monotonic())
            if "event" in found:
                self._events.append(found)
            else:
                self._answers[found.get("id")] = found
        return self._answers.pop(number)

    def ok(self, op: str, /, **fields: Any) -> Json:
        """Send a request that must succeed."""
        answer = self.request(op, **fields)
        assert answer.get("ok") is True, answer
        return answer

    def refused(self, op: str, /, **fields: Any) -> str:
        """Send a request that must fail, and return the error's code."""
        answer = self.request(op, **fields)
        assert answer.get("ok") is False, answer
        code = answer["error"]["code"]
        assert isinstance(code, str)
        return code

    def event(self, name: str | None = None, *, within_s: float = SOON_S) -> Json:
        """Return the next event, of that name if one is given; answers are kept."""
        until = time.monotonic() + within_s
        while True:
            if self._events:
                found = self._events.popleft()
            else:
                found = self._next(until - time.monotonic())
            if "event" not in found:
                self._answers[found.get("id")] = found
            elif name is None or found["event"] == name:
                return found

    def is_over(self, *, within_s: float = SOON_S) -> bool:
        """Tell whether the hub closes the connection in time; what comes before is dropped."""
        self._socket.settimeout(within_s)
        try:
            while self._socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def _next(self, within_s: float) -> Json:
        while b"\n" not in self._buffer:
            self._socket.settimeout(max(0.001, within_s))
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("the hub closed the connection")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        found = json.loads(line)
        assert isinstance(found, dict), found
        return found


class Home:
    """Places, environment, and everything that was started there.

    Args:
        idle_exit_s: after how long its hub ends by itself.
        more_env: added to the environment of every process.
    """

    def __init__(
        self, *, idle_exit_s: float = 30.0, more_env: Mapping[str, str] | None = None
    ) -> None:
        self.path = tempfile.mkdtemp(prefix="uh", dir="/tmp")
        self.state_home = f"{self.path}/s"
        self.runtime_home = f"{self.path}/r"
        self.config_home = f"{self.path}/c"
        for folder in (self.state_home, self.runtime_home, self.config_home, f"{self.path}/t"):
            os.mkdir(folder, 0o700)
        self.state = f"{self.state_home}/upcall"
        self.runtime = f"{self.runtime_home}/upcall"
        self.sessions = f"{self.runtime}/sessions"
        self.env = {
            "HOME": self.path,
            "XDG_STATE_HOME": self.state_home,
            "XDG_RUNTIME_DIR": self.runtime_home,
            "XDG_CONFIG_HOME": self.config_home,
            "TMPDIR": f"{self.path}/t",
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "UPCALL_IDLE_EXIT_S": f"{idle_exit_s:g}",
            **(more_env or {}),
        }
        self.upcall: Sequence[str] = UPCALL
        self._running: list[Running] = []
        self._hubs: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # --- commands ---------------------------------------------------------------------------

    def run(
        self,
        *args: str | bytes,
        stdin: bytes | None = None,
        within_s: float = RUN_WITHIN_S,
        env: Mapping[str, str] | None = None,
        terminal: bool = False,
        cwd: str | None = None,
    ) -> Done:
        """Run `upcall ARGS` to its end.

        Args:
            args: the arguments.
            stdin: what is on standard input; nothing by default.
            within_s: the time for it.
            env: added to the environment.
            terminal: with a controlling terminal, as a person's shell has one.
            cwd: its working folder.
        """
        running = self.start(
            *args, stdin=stdin is not None, env=env, terminal=terminal, cwd=cwd
        )
        if stdin is not None:
            assert running.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                running.process.stdin.write(stdin)
            running.process.stdin.close()
        try:
            return running.end(within_s)
        finally:
            self._running.remove(running)
            running.abandon()

    def start(
        self,
        *args: str | bytes,
        stdin: bool = False,
        env: Mapping[str, str] | None = None,
        terminal: bool = False,
        cwd: str | None = None,
        before: Callable[[], None] | None = None,
        pass_fds: Sequence[int] = (),
        on_terminal: bool = False,
    ) -> Running:
        """Start `upcall ARGS`; *before* runs in the child."""
        return self.start_program(
            [*self.upcall, *args],
            stdin=stdin,
            env=env,
            terminal=terminal,
            cwd=cwd,
            before=before,
            pass_fds=pass_fds,
            on_terminal=on_terminal,
        )

    def start_python(self, source: str, *args: str) -> Running:
        """Start a Python program that may use the package."""
        return self.start_program([sys.executable, "-P", "-u", "-c", source, *args])

    def start_program(
        self,
        argv: Sequence[Any],
        *,
        stdin: bool = False,
        env: Mapping[str, str] | None = None,
        terminal: bool = False,
        cwd: str | None = None,
        before: Callable[[], None] | None = None,
        pass_fds: Sequence[int] = (),
        on_terminal: bool = False,
    ) -> Running:
        """Start any program in this home's environment.

        With *terminal* it has a controlling terminal, and with *on_terminal* its standard
        input and error are that terminal, as in `x=$(program)` in a shell.
        """
        terminal = terminal or on_terminal
        stdin_is = subprocess.PIPE if stdin else subprocess.DEVNULL
        master, slave = pty.openpty() if terminal else (-1, -1)

        def prepare() -> None:
            if terminal:
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            if before is not None:
                before()

        try:
            running = Running(
                argv,
                terminal=master,
                stdin=slave if on_terminal else stdin_is,
                stderr=slave if on_terminal else subprocess.PIPE,
                env={**self.env, **(env or {})},
                cwd=cwd or self.path,
                start_new_session=True,
                preexec_fn=prepare if terminal or before else None,
                pass_fds=[*pass_fds, *([slave] if terminal else [])],
            )
        finally:
            if terminal:
                os.close(slave)
        self._running.append(running)
        return running

    def write_config(self, text: str) -> str:
        """Put a configuration in place and return its path."""
        folder = f"{self.config_home}/upcall"
        os.makedirs(folder, 0o700, exist_ok=True)
        path = f"{folder}/config.toml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o600)
        return path

    # --- asks -------------------------------------------------------------------------------

    def hand_over(self, *args: str) -> str:
        """Hand an ask over and return its id."""
        done = self.run("ask", "--no-wait", *args)
        assert done.code == 0, done
        ask_id = done.out.strip()
        assert re.fullmatch(r"a[0-9a-hjkmnp-tv-z]{12}", ask_id), done
        return ask_id

    def ask_state(self, ask_id: str) -> Json:
        """Return one ask as `upcall asks` lists it."""

        def look() -> list[Json]:
            with self.line("control") as line:
                known = line.ok("asks", state="all", limit=1000)["asks"]
            return [ask for ask in known if ask["id"] == ask_id]

        # One that closes right now may be missing for the moment of its commit.
        return eventually(look, what=f"{ask_id} is listed")[-1]

    def until_ask(self, ask_id: str, within_s: float = SOON_S, **fields: Any) -> Json:
        """Return the ask as soon as these of its fields are so."""

        def look() -> Json | None:
            state = self.ask_state(ask_id)
            return state if all(state[k] == v for k, v in fields.items()) else None

        found = eventually(look, within_s=within_s, what=f"{ask_id} with {fields}")
        assert found is not None
        return found

    # --- the hub ----------------------------------------------------------------------------

    def hub_json(self) -> Json:
        """Return hub.json; empty if there is none yet."""
        try:
            with open(f"{self.state}/hub.json", encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return {}
        assert isinstance(found, dict)
        if isinstance(found.get("pid"), int) and "ended_ms" not in found:
            self._hubs.add(found["pid"])
        return found

    def hub_pid(self) -> int | None:
        """Return the living hub's pid by hub.json."""
        found = self.hub_json()
        pid = found.get("pid")
        if not isinstance(pid, int) or found.get("ended_ms") is not None:
            return None
        return pid if self._is_our_hub(pid) else None

    def start_hub(self) -> int:
        """Start the hub on demand and return its pid."""
        done = self.run("hub", "start", "--json")
        assert done.code == 0, done
        pid = self.hub_pid()
        assert pid is not None
        assert pid == done.json["hub"]["pid"], (pid, done)
        return pid

    def next_hub(self, former: int) -> int:
        """Return the pid of the hub that comes after *former*, as soon as it is there."""

        def other() -> int | None:
            pid = self.hub_pid()
            return pid if pid != former else None

        pid = eventually(other, what=f"a hub after {former}")
        assert pid is not None
        return pid

    def kill_hub(self) -> int:
        """End the hub with SIGKILL, wait until it is gone, and return its pid."""
        pid = self.hub_pid()
        assert pid is not None, "no hub runs"
        os.kill(pid, signal.SIGKILL)
        assert ended(pid, SOON_S)
        return pid

    def line(self, which: str = "ask", **options: Any) -> Line:
        """Return a raw client of one of the hub's sockets."""
        path = self.hub_json().get(f"{which}_sock")
        assert isinstance(path, str), "no hub.json names a socket"
        return Line(path, **options)

    def database(self) -> contextlib.closing[sqlite3.Connection]:
        """Return a read-only connection to the store."""
        return contextlib.closing(
            sqlite3.connect(f"file:{self.state}/hub.db?mode=ro", uri=True, timeout=10)
        )

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Return rows of the store; nothing while it is not there yet."""
        try:
            with self.database() as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.OperationalError:
            return []

    def log(self) -> str:
        """Return the hub's log."""
        try:
            with open(f"{self.state}/hub.log", encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    # --- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything that was started here, and remove the folders."""
        for running in self._running:
            running.abandon()
        with contextlib.suppress(ValueError, OSError):
            self.hub_json()
        for pid in self._hubs:
            self._stop_hub(pid)
        shutil.rmtree(self.path, ignore_errors=True)

    def _stop_hub(self, pid: int) -> None:
        if not self._is_our_hub(pid):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            if not ended(pid, SOON_S):
                os.kill(pid, signal.SIGKILL)
                ended(pid, SOON_S)

    def _is_our_hub(self, pid: int) -> bool:
        """Tell whether *pid* is still a hub of this home, and not another one's number."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            return False
        return f"XDG_STATE_HOME={self.state_home}\0".encode() in environment


def limit_files(size_bytes: int) -> Callable[[], None]:
    """Return what keeps a child's files below *size_bytes*, as a full disk would."""
    # Or the child would write the first half of a compiled module into the tree.
    for package in ("upcall", "upcall_adapters", "upcall_discovery"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or ():
            compileall.compile_dir(folder, quiet=2)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    return limit


@contextlib.contextmanager
def home(**options: Any) -> Iterator[Home]:
    """A home for the length of a block."""
    with Home(**options) as made:
        yield made
