"""S19: no piece of a secret leaves by a log, an error, a printed line, status or a file."""

import base64
import http.client
import json
import os
import re
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.home import Home, Running, eventually
from fakes.installation import Installation
from upcall.log import leaving_scrubbed
from upcall.model import frames
from upcall.model.platform import Seams
from upcall.scrub import MAX_PASSING, RUN_CHARS, ScrubbedStream, Scrubber

# An adapter that does everything wrong that an adapter or its libraries could do with a secret.
LEAKY: Final = """
import asyncio, base64, gc, json, logging, os, sys, threading, urllib.parse, warnings
import msgspec
from upcall.model.errors import Refused
from upcall.model.platform import Body, Capabilities, ChannelState, Spec

class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    leak: str = ""
    crash: bool = False

class Bomb(BaseException):
    pass  # nothing that a supervisor takes for a defect: it ends the hub

class Bad:
    def __init__(self, value): self.value = value
    def __del__(self): raise ValueError("finalizer " + self.value)

def forms(value):
    data = value.encode()
    yield value
    quoted = urllib.parse.quote(value, safe="")
    yield "https://chat.example/bot" + value + "/send?token=" + quoted
    yield json.dumps({"password": value}); yield repr(value); yield repr(data)
    yield "".join("%%%02X" % one for one in data)
    for before in (b"", b"a", b"ab"):
        yield "Basic " + base64.b64encode(before + data + b"z").decode()
        yield base64.urlsafe_b64encode(before + data).decode()
    yield data.hex()
    yield "one " + value[2:14] + " two " + value[-9:]

class Adapter:
    def __init__(self, config, seams):
        self.config, self.seams = config, seams
        self.inbox = None
    async def run(self, inbox):
        self.inbox = inbox
        inbox.state(ChannelState(hearing=True))
        if self.config.crash:
            raise Bomb("bomb " + self.values()[0])
        await asyncio.Event().wait()
    def values(self):
        with open(self.config.leak) as file:
            return [*self.seams.secrets.values(), *file.read().split()]
    async def post(self, place, body, key):
        values = self.values()
        names = ("aiohttp.client", "websockets.client", "asyncio", "httpx", "slack_sdk",
                 "discord")
        own = logging.getLogger("acme.own")
        own.propagate = False
        if not own.handlers:
            own.addHandler(logging.StreamHandler())
        for value in values:
            for number, text in enumerate(forms(value)):
                logging.getLogger(names[number % len(names)]).debug("> %s", text)
                own.error("own handler %s", text)
                self.seams.log.error("said", text=text, nested={"deep": [text]})
                print("printed", text)
                sys.stderr.write("written " + text + chr(10))
                warnings.warn("warned " + text)
            try:
                raise ValueError({"token": value})
            except ValueError:
                logging.getLogger("aiohttp.server").critical("traceback", exc_info=True)
            thread = threading.Thread(target=self.fail, args=(value,))
            thread.start(); thread.join()
            Bad(value); gc.collect()
            loop = asyncio.get_running_loop()
            loop.call_soon(self.fail, value)
            future = loop.create_future(); future.set_exception(ValueError(value)); del future
            gc.collect()
            self.inbox.state(ChannelState(hearing=True, reason="trouble at " + value))
        await asyncio.sleep(0)
        raise Refused("the platform said no to https://chat.example/bot" + "/".join(values))
    def fail(self, value):
        raise RuntimeError("in a thread or the loop: " + value)
    async def edit(self, ref, body): pass
    async def check(self): return ()

SPEC = Spec(name="leaky", config=Config, capabilities=Capabilities(text_limit=100),
            lower=lambda message, place: (Body(b"x"),), open=Adapter)
"""


def pieces(secret: str) -> set[str]:
    """Return what must be nowhere: every run of eight, and of its usual encodings."""
    data = secret.encode()
    whole = [secret, quote(secret, safe=""), json.dumps(secret)[1:-1], data.hex()]
    whole += [base64.b64encode(b"ab"[:n] + data).decode().rstrip("=")[4:-2] for n in range(3)]
    return {one[at : at + RUN_CHARS] for one in whole for at in range(len(one) - RUN_CHARS + 1)}


def leaks(text: str, *values: str) -> list[str]:
    text = f"{text}\n{unquote(text)}" if "%" in text else text
    return [piece for value in values for piece in pieces(value) if piece in text]


def files_in(*folders: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of these folders, but for the records, which are there for the token."""
    for folder in folders:
        for path in Path(folder).rglob("*"):
            if path.is_file() and path.parent.name != "sessions":
                yield str(path), path.read_bytes()


def signed_in(home: Home) -> tuple[str, str, str]:
    """Return a link's code, a cookie and a key of the inbox, as a browser gets them."""
    link = urlsplit(home.run("inbox", "--json").json["url"])
    code = link.fragment.removeprefix("login=")
    origin = f"http://{link.netloc}"
    connection = http.client.HTTPConnection(link.hostname or "", link.port or 0, timeout=10)
    headers = {"Content-Type": "application/json", "Origin": origin}
    connection.request("POST", "/api/login", json.dumps({"code": code}), headers)
    response = connection.getresponse()
    key = json.loads(response.read())["key"]
    [(_, morsel)] = SimpleCookie(response.getheader("Set-Cookie") or "").items()
    connection.close()
    return code, morsel.value, key


def knock_badly(port: int, token: str) -> None:
    """Send an endpoint, or the inbox, what no client would."""
    for data in (
        f"GET /?token={token} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        f"GET /?token={token}x HTTP/1.1\r\nHost: evil\r\nUpgrade: websocket\r\n\r\n",
        f"GET /{token} HTTP/9.9\r\nAuthorization: Bearer {token}\r\n\r\n",
        f"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: x={token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{'code': '{token}'",
        f"{token}\x00\x01\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
            one.sendall(data.encode())
            one.shutdown(socket.SHUT_WR)
            while one.recv(4096):
                pass


@pytest.fixture
def planted() -> dict[str, str]:
    """Secrets of every kind that is configured."""
    made = {
        name: f"{name[:2]}-{secrets.token_urlsafe(24)}" for name in ("file", "metrics", "proxy")
    }
    return made | {"env": 'odd "quoted" \\ ' + secrets.token_hex(12) + " \u00e9\u4e2d/+%=&"}


def configure(home: Home, planted: dict[str, str], *, crash: bool, env: bool = True) -> str:
    for name in ("file", "metrics", "proxy"):
        value = planted[name]
        text = f"http://someone:{value}@proxy.example:3128" if name == "proxy" else value
        fd = os.open(f"{home.path}/{name}.secret", os.O_WRONLY | os.O_CREAT, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
    leak = f"{home.path}/leak"
    home.write_config(f"""
        [hub]
        log_level = "debug"
        [web]
        metrics_token = {{ file = "{home.path}/metrics.secret" }}
        [network]
        proxy = {{ file = "{home.path}/proxy.secret" }}
        [channels.leaky]
        leak = "{leak}"
        crash = {str(crash).lower()}
        token = {{ file = "{home.path}/file.secret" }}
        {'other = { env = "LEAKY_TOKEN" }' if env else ""}
    """)
    with open(leak, "w", encoding="utf-8") as file:
        file.write(f"{planted['metrics']} {planted['proxy']}")
    return leak


def start(home: Home, installation: Installation, value: str) -> Running:
    argv = [installation.python, "-P", "-m", "upcall", "hub", "run"]
    return home.start_program(argv, env={"LEAKY_TOKEN": value})


def test_no_piece_of_any_secret_is_in_any_output(planted: dict[str, str]) -> None:
    with Home() as home:
        installation = Installation(home.path)
        installation.add_adapter("acme_leaky", "leaky", LEAKY)
        leak = configure(home, planted, crash=False)
        hub = start(home, installation, planted["env"])
        eventually(lambda: home.hub_pid() == hub.pid, what="the hub")

        first = home.hand_over("First?", "-o", "yes")
        eventually(lambda: os.listdir(home.sessions), what="the record")
        [name] = os.listdir(home.sessions)
        with open(f"{home.sessions}/{name}", encoding="utf-8") as file:
            record = json.load(file)
        code, cookie, key = signed_in(home)
        with open(leak, "a", encoding="utf-8") as file:
            file.write(" " + " ".join((record["token"], code, cookie, key)))
        knock_badly(record["port"], record["token"])
        knock_badly(urlsplit(home.hub_json()["web_url"]).port or 0, cookie)
        second = home.hand_over("Second?", "-o", "yes")
        hub.line("Exception in callback", within_s=30)
        told = [
            home.run(*words)
            for words in (
                ("hub", "status", "--json"), ("hub", "status"),
                ("doctor",), ("doctor", "--json"),
                ("asks", "--all", "--json"), ("--json",), ("sessions", "--all", "--json"),
                ("config", "check"), ("answer", first, "yes"), ("answer", second, "maybe"),
            )
        ]  # fmt: skip
        words = [
            path.read_bytes().decode("utf-8", "replace")
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if os.access(path, os.R_OK) and _still(path)
        ]
        environ = Path(f"/proc/{hub.pid}/environ").read_bytes().decode("utf-8", "replace")
        hub.signal(signal.SIGTERM)
        done = hub.end()
        assert done.code == 0, done.err[-2000:]
        everything = {
            "standard output": done.out,
            "standard error": done.err,
            "commands": "\n".join(f"{one.out}{one.err}" for one in told),
            "command lines": "\n".join(words),
            "environment": environ,
        }
        for path, data in files_in(home.state_home, home.runtime_home, home.config_home):
            everything[path] = data.decode("utf-8", "replace")
        values = [*planted.values(), record["token"], code, cookie, key]
        for where, text in everything.items():
            found = leaks(text, *values)
            assert not found, (
                where,
                found[:3],
                [text[max(0, text.find(found[0]) - 200) :][:400]],
            )
        # It went through all of this, and came out without.
        for mark in ("> ***", "own handler", "said", "written", "warned", "traceback",
                     "uncaught_in_thread", "unraisable", "Future exception was never retrieved",
                     "Exception in callback"):  # fmt: skip
            assert mark in done.err, mark
        assert "printed ***" in done.out
        assert "***" in everything["commands"]


def _still(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("how", ["run", "start"])
def test_a_crash_of_the_hub_tells_what_it_was_and_no_secret(
    planted: dict[str, str], how: str
) -> None:
    with Home() as home:
        installation = Installation(home.path)
        installation.add_adapter("acme_leaky", "leaky", LEAKY)
        # On demand there is no variable.
        configure(home, planted, crash=True, env=how == "run")
        argv = [installation.python, "-P", "-m", "upcall", "hub", how]
        done = home.start_program(argv, env={"LEAKY_TOKEN": planted["env"]}).end()
        eventually(lambda: home.hub_json().get("ended_ms"), what="the hub's end")
        left = home.hub_json()
        following = home.run("ask", "Q?", "-o", "a", "--no-wait")
        everything = {"output": done.out + done.err, "next": str(following)}
        for path, data in files_in(home.state_home, home.runtime_home):
            everything[path] = data.decode("utf-8", "replace")
        for where, text in everything.items():
            found = leaks(text, *planted.values())
            assert not found, (where, found[:3], text[-1500:])
        log = done.err if how == "run" else home.log()
        assert "bomb" in log
        assert "bomb" in str(left.get("last_error"))


# --- the scrubber itself ----------------------------------------------------------------------

SECRETS: Final = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF), min_size=8, max_size=60
).filter(lambda text: len(set(text)) > 3)
TOKENS: Final = st.text("abcdefXYZ0123456789-_", min_size=16, max_size=64)


@given(secret=SECRETS, before=st.text(max_size=9), after=st.text(max_size=9), data=st.data())
def test_every_run_of_eight_is_removed_wherever_it_stands(
    secret: str, before: str, after: str, data: st.DataObject
) -> None:
    scrubber = Scrubber()
    scrubber.add(secret)
    start_at = data.draw(st.integers(0, len(secret) - RUN_CHARS))
    end = data.draw(st.integers(start_at + RUN_CHARS, len(secret)))
    shown = scrubber.hide(f"{before}{secret[start_at:end]}{after}")
    assert not [at for at in range(len(secret) - 7) if secret[at : at + RUN_CHARS] in shown]


@given(secret=TOKENS, junk=st.binary(max_size=8), hold=st.booleans())
def test_base64_hex_and_percent_signs_hide_nothing(
    secret: str, junk: bytes, hold: bool
) -> None:
    scrubber = Scrubber()
    (scrubber.hold if hold else scrubber.add)(secret)
    data = junk + secret.encode() + junk
    for coded in (
        base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex(),
        data.hex().upper(), "".join(f"%{one:02x}" for one in data), quote(data),
    ):  # fmt: skip
        shown = scrubber.hide(f"see {coded} there")
        assert coded not in shown
        assert shown.startswith("see ")
        assert shown.endswith(" there")


@given(secret=TOKENS, text=st.text(max_size=200))
def test_what_is_no_secret_stays_as_it_is(secret: str, text: str) -> None:
    known, blank = Scrubber(), Scrubber()
    known.add(secret)
    if not leaks(text, secret):
        assert known.hide(text) == blank.hide(text)


def test_a_token_is_hidden_while_it_opens_something_and_for_a_while_after() -> None:
    scrubber = Scrubber()
    held = [secrets.token_urlsafe(32) for _ in range(2 * MAX_PASSING)]
    for one in held:
        scrubber.hold(one)
    assert all(scrubber.hide(one) == "***" for one in held)
    for one in held:
        scrubber.release(one)
    assert scrubber.hide(held[-1]) == "***"
    # Bounded: a hub that hosts a million questions does not keep their tokens.
    assert scrubber.hide(held[0]) == held[0]
    size = len(scrubber._blocks)
    for _ in range(2000):
        scrubber.add_passing(secrets.token_urlsafe(32))
    assert len(scrubber._blocks) <= size + 50
    again = held[-1]
    scrubber.hold(again)
    scrubber.add_passing(again)
    scrubber.release(again)
    assert scrubber.hide(again) == "***"


def test_a_login_in_an_address_is_hidden_part_by_part() -> None:
    scrubber = Scrubber()
    scrubber.add_login("http://someone:p%40ssw%2Frd-of-mine@proxy.example:1")
    for text in (
        "p@ssw/rd-of-mine",
        "p%40ssw%2Frd-of-mine",
        base64.b64encode(b"someone:p@ssw/rd-of-mine").decode(),
    ):
        assert scrubber.hide(f"x {text} y") == "x *** y"
    assert scrubber.hide("someone at proxy.example") == "someone at proxy.example"


def test_nothing_gets_round_it_and_everything_is_as_before_afterwards(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    scrubber = Scrubber()
    scrubber.add("correct-horse-battery")
    before = (sys.stdout, sys.stderr, sys.excepthook, threading.excepthook, sys.unraisablehook)
    with leaving_scrubbed(scrubber):
        print("out", "correct-horse-", end="")
        print("battery", flush=True)
        print("err correct-horse-battery\x1b[2J", file=sys.stderr)
        print("no end: correct-horse-battery", end="", file=sys.stderr)
        assert isinstance(sys.stderr, ScrubbedStream)
        sys.excepthook(ValueError, ValueError("x"), None)
        threading.excepthook(threading.ExceptHookArgs((SystemExit, None, None, None)))
    after = (sys.stdout, sys.stderr, sys.excepthook, threading.excepthook, sys.unraisablehook)
    assert after == before
    captured = capsys.readouterr()
    assert captured.out == "out ***\n"
    assert captured.err == "err ***\\x1b[2J\nno end: ***"
    assert [one.getMessage() for one in caplog.records] == ["uncaught"]


# --- representations --------------------------------------------------------------------------


def frame_types() -> list[type[frames.WireFrame]]:
    kinds = [one for one in vars(frames).values() if isinstance(one, type)]
    return [
        one
        for one in kinds
        if issubclass(one, frames.WireFrame) and "token" in one.__struct_fields__
    ]


@pytest.mark.parametrize("kind", frame_types(), ids=lambda kind: kind.__name__)
def test_a_frame_does_not_print_its_token(kind: type[frames.WireFrame]) -> None:
    token = "t0k3n-abcdefghijklmnop"
    fields: dict[str, Any] = {
        one.name: token if one.name == "token" else f"the {one.name}"
        for one in msgspec.structs.fields(kind)
        if one.required
    }
    needed = {"Reply": {"decline": True}, "ConfigCommand": {"redact": True}}
    fields |= needed.get(kind.__name__, {})
    frame = kind(**fields)
    assert not leaks(repr(frame), token)
    assert "token='" not in repr(frame)
    assert kind.__name__ in repr(frame)
    assert not leaks(f"{frame}{[frame]!r}{ValueError(frame)!r}", token)


def test_no_other_type_of_ours_prints_a_secret() -> None:
    """Every class with a field of such a name hides it in its representation."""
    import dataclasses
    import importlib
    import pkgutil

    import upcall
    import upcall_adapters
    import upcall_discovery

    names = re.compile(r"(?i)(^|_)(token|secret|secrets|cookie|password|key|proxy)$")
    # A delivery's and an idempotency key open nothing; a web login's is a digest.
    harmless = {
        "DeliveryKey",
        "Answered",
        "Pressed",
        "Texted",
        "LoginData",
        "Asker",
        "AskRaised",
    }
    wrong = []
    for package in (upcall, upcall_adapters, upcall_discovery):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith("__main__"):
                continue
            for kind in vars(importlib.import_module(info.name)).values():
                if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
                    continue
                if kind.__name__ in harmless or not kind.__module__.startswith("upcall"):
                    continue
                wrong += [
                    f"{kind.__module__}.{kind.__name__}.{one.name}: {one.type}"
                    for one in dataclasses.fields(kind)
                    if names.search(one.name) and one.repr
                ]
    allowed = {
        "Loaded.secrets",  # a mapping of `Secret`s, which print as ***
        "Spec.secrets",  # the names of keys
    }
    assert [one for one in wrong if not any(ok in one for ok in allowed)] == []


def test_seams_do_not_print_their_secrets() -> None:
    [field] = [one for one in Seams.__dataclass_fields__.values() if one.name == "secrets"]
    assert field.repr is False


def test_an_error_of_a_command_is_masked_as_its_traceback_is(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    program = (
        "import sys\n"
        "from upcall.cli import errors\n"
        f"try: raise ValueError('password={token} http://u:{token}@h/#login=abcdefghijkl')\n"
        "except ValueError as err: sys.exit(errors.report(err, as_json=True))\n"
    )
    with Home(more_env={"UPCALL_DEBUG": "1"}) as home:
        # The traceback shows the line of the source, which holds it as well.
        path = tmp_path / "program.py"
        path.write_text(program)
        done = home.start_program([sys.executable, "-P", str(path)]).end()
    assert "Traceback" in done.err
    assert not leaks(done.out + done.err, token, "abcdefghijkl")
