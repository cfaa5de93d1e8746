"""S20: loopback never goes through a proxy; the way out is one setting, and no variable."""

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fakes.home import Home, eventually
from fakes.installation import Installation
from upcall.config import parse
from upcall.model.errors import ConfigInvalid, NotSent
from upcall.model.network import Outward, is_here, read_proxy

PASSWORD: Final = "pw-6d3f9a1c5e-proxy"
VARIABLES: Final = (
    "http_proxy", "https_proxy", "all_proxy", "ws_proxy", "wss_proxy", "socks_proxy",
    "socks5_proxy", "ftp_proxy", "rsync_proxy",
)  # fmt: skip
# A program that hosts an ask, and a client that finds it and answers.
SESSION: Final = """
import asyncio, sys
from upcall import Session
async def main():
    async with Session("proxied", hub=False) as session:
        print(session.record_path if hasattr(session, "record_path") else "up", flush=True)
        answer = await session.ask("Go on?", ["yes", "no"])
        print("answer", answer, flush=True)
asyncio.run(main())
"""
CLIENT: Final = """
import asyncio, glob, json, os, sys
from upcall.client import SessionClient
async def main():
    folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "upcall", "sessions")
    records = [json.load(open(path)) for path in glob.glob(folder + "/*.json")]
    [record] = [one for one in records if one["pid"] == int(sys.argv[1])]
    async with SessionClient.connect(record["url"], record["token"]) as client:
        async for _ in client:
            if client.asks():
                await client.reply(client.asks()[0].id, "yes")
                break
asyncio.run(main())
"""
BLOCKING: Final = """
from upcall import ask
print("answer", ask("Which?", ["a", "b"], timeout_s=0.3, default="b"))
"""


class Recorder:
    """A proxy that only writes down that it was asked."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.seen: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def env(self) -> dict[str, str]:
        """Return every proxy variable in both cases, and no exception for this computer."""
        address = f"http://someone:{PASSWORD}@127.0.0.1:{self.port}"
        names = (*VARIABLES, *(one.upper() for one in VARIABLES))
        return dict.fromkeys(names, address)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                with contextlib.suppress(OSError):
                    self.seen.append(connection.recv(4096))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    made.close()


def test_the_recorder_sees_who_uses_a_proxy(recorder: Recorder) -> None:
    """Or the tests below could not fail."""
    program = (
        "import urllib.request\n"
        "try: urllib.request.urlopen('http://127.0.0.1:9/', timeout=5)\n"
        "except Exception: pass\n"
    )
    with Home(more_env=recorder.env()) as home:
        home.start_python(program).end()
    eventually(lambda: recorder.seen, what="the proxied request")


def test_no_part_of_it_uses_a_proxy_for_this_computer(recorder: Recorder) -> None:
    with Home(more_env=recorder.env()) as home:
        # The hub, what it finds, and every command that talks to it.
        hosted = home.start_python(SESSION)
        hosted.line("up|/", on="out")
        home.start_hub()
        waiting = home.start("ask", "Answer me?", "-o", "yes", "-o", "no", "--no-terminal")
        ask_id = waiting.asked()
        with home.line("control") as line:
            eventually(
                lambda: line.ok("status")["sessions"] >= 2,
                what="the hub attached to the session",
            )
        assert home.run("answer", ask_id, "yes").code == 0
        assert waiting.end().out == "yes\n"
        assert home.run("notify", "done").code == 0
        assert home.run("inbox", "--json").code == 0
        doctor = home.run("doctor", "--json")
        assert doctor.code == 0, doctor
        done = home.start_python(CLIENT, str(hosted.pid)).end()
        assert done.code == 0, done
        assert "answer yes" in hosted.end().out
        assert "answer b" in home.start_python(BLOCKING).end().out
        assert home.run("demo", "--auto", within_s=60).code == 0
        # The environment's proxy is told as not used, and never with its password.
        [way] = [one for one in doctor.json["findings"] if one["code"] == "proxy"]
        assert "HTTPS_PROXY" in way["msg"]
        assert PASSWORD not in doctor.out
    assert recorder.seen == []


def test_the_token_is_in_a_header_and_in_an_address_only_for_peers(tmp_path: Path) -> None:
    """Ours know the header. A peer's record has no `pidStart`; peers read the address only."""
    requests: list[bytes] = []
    with Home() as home, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        home.start_hub()
        from upcall_discovery.liveness import identify
        from upcall_discovery.paths import ensure_private_dir

        ensure_private_dir(home.sessions)
        own = identify(os.getpid())
        assert own is not None
        for number, start in enumerate((own.start, None)):
            token = f"t0k3n-{number}-abcdefghijklmnopqrstuvwxyz0123"
            record: dict[str, Any] = {
                "version": 1, "sessionId": f"peer{number}", "pid": os.getpid(),
                "host": "127.0.0.1", "port": port, "url": f"ws://127.0.0.1:{port}",
                "token": token, "startedAt": _now_ms(), "updatedAt": _now_ms(), "stale": False,
            }  # fmt: skip
            if start is not None:
                record["pidStart"] = start
            path = f"{home.sessions}/peer{number}.json"
            descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(record, file)
            os.rename(f"{path}.new", path)
            server.settimeout(15)
            connection, _ = server.accept()
            with connection:
                connection.settimeout(5)
                requests.append(connection.recv(4096))
            os.unlink(path)
            line, _, rest = requests[-1].partition(b"\r\n")
            assert f"Authorization: Bearer {token}".encode() in rest
            assert (token.encode() in line) == (start is None), requests


def _now_ms() -> int:
    import time

    return int(time.time() * 1000)


# --- the way out ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:80/x", "ws://127.8.9.1", "http://localhost", "https://LOCALHOST:1/",
        "http://inbox.localhost/", "http://localhost./", "http://[::1]:9/", "ws://[::ffff:127.0.0.1]",
        "http://127.1/", "http://0x7f.1/", "http://2130706433/", "http://0177.0.0.1/",
        "http://0.0.0.0:5/", "http://[::]/", "http://0/", "http://user:pw@127.0.0.1/",
        "http://127.0.0.1./", "localhost", "::1", "[::1]", "127.0.0.1", "http://[::1%25lo]/",
    ],
)  # fmt: skip
def test_this_computer_has_no_proxy_however_it_is_written(url: str) -> None:
    assert is_here(url)
    assert Outward("http://proxy.example:3128").proxy_for(url) is None
    assert Outward(trouble="no secret").proxy_for(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://chat.example/x", "http://10.0.0.1", "http://localhost.example/", "http://128.1/",
        "http://notlocalhost/", "http://127.0.0.1.example/", "http://127.0.0.1@chat.example/",
        "http://[2001:db8::1]/", "http://192.168.0.1/", "http://1.127.0.1/", "http://",
    ],
)  # fmt: skip
def test_other_computers_have_it(url: str) -> None:
    assert Outward("http://proxy.example:3128").proxy_for(url) == "http://proxy.example:3128"
    assert Outward().proxy_for(url) is None
    # A proxy that cannot be read is no leave to go around it.
    with pytest.raises(NotSent, match="no secret"):
        Outward(trouble="no secret").proxy_for(url)


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("http://proxy.example:3128", "http://proxy.example:3128"),
        (" http://proxy.example:3128/\n", "http://proxy.example:3128"),
        ("https://proxy.example:443", "https://proxy.example:443"),
        (f"http://me:{PASSWORD}@[2001:db8::1]:8", f"http://me:{PASSWORD}@[2001:db8::1]:8"),
    ],
)
def test_a_proxy_is_scheme_host_and_port(text: str, used: str) -> None:
    assert read_proxy(text) == used


@pytest.mark.parametrize(
    "text",
    [
        "", "proxy.example", "proxy.example:3128", "http://proxy.example", "http://:3128",
        f"socks5://me:{PASSWORD}@proxy.example:1080", f"ftp://me:{PASSWORD}@proxy.example:1",
        "http://proxy.example:99999", "http://proxy.example:0", "http://proxy.example:1/path",
        "http://proxy.example:1?x", "http://pro xy:1", "http://pr\u043exy.example:1",
        "http://proxy.example:1#x", "http://\x1b[31mx:1", f"http://me:{PASSWORD}@:1", "http://[::1",
    ],
)  # fmt: skip
def test_another_proxy_is_refused_without_telling_its_login(text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_proxy(text)
    assert PASSWORD not in caught.value.msg
    assert "\x1b" not in caught.value.msg
    # In the file, with the line and the form that is taken.
    document = f"[network]\nproxy = {json.dumps(text)}\n".encode()
    with pytest.raises(ConfigInvalid) as caught:
        parse(document, "/c/config.toml")
    assert "/c/config.toml:2" in caught.value.msg
    assert "network.proxy" in caught.value.msg
    assert "http://HOST:PORT" in (caught.value.recover or "")
    assert PASSWORD not in caught.value.msg


def test_a_proxy_shows_without_its_login() -> None:
    outward = Outward(f"http://me:{PASSWORD}@proxy.example:3128")
    assert outward.shown == "http://***@proxy.example:3128"
    assert PASSWORD not in repr(outward)
    config = parse(f"[network]\nproxy = 'http://me:{PASSWORD}@p.example:1'".encode(), "/c")
    assert PASSWORD not in repr(config)


def test_the_setting_reaches_adapters_status_and_doctor_and_outlives_a_restart() -> None:
    with Home() as home:
        installation = Installation(home.path)
        installation.add_adapter("acme_plain", "plain")
        address = f"http://me:{PASSWORD}@proxy.example:3128"
        with open(os.open(f"{home.path}/proxy", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(address + "\n")
        report = f"{home.path}/report"
        home.write_config(
            f"[network]\nproxy = {{ file = '{home.path}/proxy' }}\n"
            f"[channels.plain]\nreport = '{report}'\n"
        )
        for words in (("hub", "start"), ("hub", "restart")):
            done = home.start_program([installation.python, "-P", "-m", "upcall", *words]).end()
            assert done.code == 0, done
            eventually(lambda: os.path.exists(report), what="the adapter's report")
            with open(report, encoding="utf-8") as file:
                seen = json.load(file)
            os.unlink(report)
            assert seen["proxy"] == {
                "https://chat.example/x": address, "http://127.0.0.1:80": None,
                "ws://localhost:1": None, "http://[::1]/": None,
            }  # fmt: skip
            assert PASSWORD not in seen["seams"]
            shown = home.run("hub", "status", "--json")
            assert shown.json["network"]["proxy"] == "http://***@proxy.example:3128"
            doctor = home.run("doctor", "--json")
            assert "proxy.example:3128" in doctor.out
            assert PASSWORD not in shown.out + doctor.out + home.log()


def test_a_proxy_that_cannot_be_read_stops_what_goes_out_and_says_so() -> None:
    with Home() as home:
        home.write_config(f"[network]\nproxy = {{ file = '{home.path}/missing' }}\n")
        home.start_hub()
        with home.line("control") as line:
            status = line.ok("status")
        assert status["network"]["proxy"] is None
        assert "nothing goes out" in status["network"]["trouble"]
        assert [one["code"] for one in status["degraded"]] == ["secret_missing"]
        # What needs no way out is as ever.
        assert {one["name"] for one in status["channels"]} == {"web", "terminal"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_hub_on_demand_has_no_proxy_variable(recorder: Recorder) -> None:
    with Home(more_env=recorder.env()) as home:
        pid = home.start_hub()
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read().lower()
        assert b"_proxy" not in environ
        assert PASSWORD.encode() not in environ
