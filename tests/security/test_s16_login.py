"""S16: how a browser is signed in, and that nothing of it can be read on the way."""

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.wait import WebDriverWait

from conftest import Home
from fakes.chromium import WAIT_S, chromium, inbox_on_thread, neighbour
from fakes.pty_screen import PtyScreen
from fakes.web_client import client_of, running
from fakes.web_hub import FakeHub
from upcall_adapters.web import routes, server
from upcall_adapters.web.adapter import WebInbox
from upcall_adapters.web.login import MAX_CODES, MAX_WAITING, MAX_WRONG, LoginRefused, Logins

DAY_S = 86_400
PROMISED = {
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
}


# -- headers ----------------------------------------------------------------------------------


def _lines(*lines: str, body: str = "") -> bytes:
    return ("\r\n".join([*lines, "", ""]) + body).encode("latin-1")


def _post(path: str, *more: str, body: str = "{}") -> bytes:
    return _lines(
        f"POST {path} HTTP/1.1", "Host: 127.0.0.1:PORT", "Origin: http://127.0.0.1:PORT",
        "Content-Type: application/json", *more, body=body,
    )  # fmt: skip


_GET = "GET / HTTP/1.1"
_HOST = "Host: 127.0.0.1:PORT"
_UPGRADE = ("Upgrade: websocket", "Connection: Upgrade", "Origin: http://127.0.0.1:PORT")
RAW: list[tuple[str, bytes, set[int]]] = [
    ("fine", _lines(_GET, _HOST), {200}),
    ("no version", b"GET /\r\n\r\n", {400}),
    ("two words", b"GET HTTP/1.1\r\n\r\n", {400}),
    ("nonsense", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", {400}),
    ("binary", bytes(range(1, 256)) * 3 + b"\r\n\r\n", {400}),
    ("http/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 405}),
    ("http/3", _lines("GET / HTTP/3.0", _HOST), {400}),
    ("http/1.0 without host", b"GET / HTTP/1.0\r\n\r\n", {400}),
    ("nul in the line", _lines("GET /\0 HTTP/1.1", _HOST), {400}),
    ("a space in the line", _lines("GET /a b HTTP/1.1", _HOST), {400}),
    ("a strange method", _lines("GE{T / HTTP/1.1", _HOST), {400}),
    ("a lower-case method", _lines("get / HTTP/1.1", _HOST), {400, 405}),
    ("a long line", _lines("GET /" + "x" * 20_000 + " HTTP/1.1", _HOST), {400, 414}),
    ("a long header", _lines(_GET, _HOST, "X: " + "x" * 20_000), {400, 431}),
    ("many headers", _lines(_GET, _HOST, *(f"X-{n}: 1" for n in range(500))), {400, 431}),
    ("no colon", _lines(_GET, _HOST, "nonsense"), {400}),
    ("nul in a header", _lines(_GET, _HOST, "X: a\0b"), {400}),
    ("a bare CR in a header", _lines(_GET, _HOST, "X: a\rb"), {400}),
    ("a space before the colon", _lines(_GET, _HOST, "X : a"), {400}),
    ("a folded header", _lines(_GET, _HOST, "X: a", " b"), {200, 400}),
    ("no host", _lines(_GET), {400}),
    ("two hosts", _lines(_GET, _HOST, _HOST), {400}),
    ("a foreign host", _lines(_GET, "Host: evil.example"), {403}),
    ("a user in the host", _lines(_GET, "Host: me@127.0.0.1:PORT"), {400}),
    ("an absolute target", _lines("GET http://127.0.0.1:PORT/ HTTP/1.1", _HOST), {400}),
    ("a star", _lines("OPTIONS * HTTP/1.1", _HOST), {400, 405}),
    ("connect", _lines("CONNECT 127.0.0.1:PORT HTTP/1.1", _HOST), {400, 405}),
    ("nothing there", _lines("GET /nothing HTTP/1.1", _HOST), {404}),
    ("dots", _lines("GET /../../etc/passwd HTTP/1.1", _HOST), {404}),
    ("a bad escape", _lines("GET /%zz%00 HTTP/1.1", _HOST), {404, 400}),
    ("not allowed", _post("/api/state", "Content-Length: 2"), {405}),
    ("head", _lines("HEAD / HTTP/1.1", _HOST), {200}),
    ("head of data", _lines("HEAD /api/state HTTP/1.1", _HOST), {401}),
    ("trace", _lines("TRACE / HTTP/1.1", _HOST), {405}),
    ("expectation", _post("/api/login", "Expect: tea", "Content-Length: 2"), {417}),
    ("length and chunks", _post("/api/login", "Content-Length: 2",
                                "Transfer-Encoding: chunked"), {400}),
    ("two lengths", _post("/api/login", "Content-Length: 2", "Content-Length: 3"), {400}),
    ("a negative length", _post("/api/login", "Content-Length: -2"), {400}),
    ("no number", _post("/api/login", "Content-Length: ten"), {400}),
    ("bad chunks", _post("/api/login", "Transfer-Encoding: chunked", body="zz\r\n{}\r\n"),
     {400}),
    ("an unknown coding", _post("/api/login", "Transfer-Encoding: tea, chunked"), {400}),
    ("too large", _post("/api/login", "Content-Length: 99999999"), {413}),
    ("too large in chunks", _post("/api/login", "Transfer-Encoding: chunked",
                                  body="20000\r\n" + "x" * 0x20000 + "\r\n0\r\n\r\n"), {413}),
    ("compressed", _post("/api/login", "Content-Encoding: gzip", "Content-Length: 2"), {400}),
    ("an unknown code", _post("/api/login", "Content-Length: 12", body='{"code":"x"}'), {403}),
    ("no json", _post("/api/login", "Content-Length: 1", body="{"), {400}),
    ("wait for nothing", _post("/api/browser/wait", "Content-Length: 12",
                               body='{"poll":"x"}'), {410}),
    ("upgrade without cookie", _lines("GET /api/live HTTP/1.1", _HOST, *_UPGRADE), {401}),
    ("upgrade without origin", _lines("GET /api/live HTTP/1.1", _HOST, *_UPGRADE[:2]), {403}),
    ("upgrade to something", _lines(_GET, _HOST, "Upgrade: tea", "Connection: Upgrade"), {200}),
    ("upgrade elsewhere", _lines(_GET, _HOST, *_UPGRADE), {200}),
    ("metrics", _lines("GET /metrics HTTP/1.1", _HOST), {404}),
]  # fmt: skip
SIGNED_IN: list[tuple[str, bytes, set[int]]] = [
    (name, _lines("GET /api/live HTTP/1.1", _HOST, "Cookie: COOKIE", *_UPGRADE, *more), status)
    for name, more, status in (
        ("no key", ("Sec-WebSocket-Version: 13",), {400, 401}),
        ("a bad key", ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x"), {400, 401}),
        (
            "an old version",
            ("Sec-WebSocket-Version: 8", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
            {101, 400, 426},
        ),
        (
            "a good one",
            ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
            {101},
        ),
    )
]


async def _heads(port: int, data: bytes) -> tuple[int, dict[str, list[str]]]:
    """Send raw bytes, and return status and headers of the first response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data.replace(b"PORT", str(port).encode()))
        async with asyncio.timeout(10):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    finally:
        writer.transport.abort()
    first, *rest = head.split("\r\n")
    headers: dict[str, list[str]] = {}
    for line in filter(None, rest):
        name, _, value = line.partition(": ")
        headers.setdefault(name, []).append(value)
    return int(first.split()[1]), headers


def _check_headers(headers: dict[str, list[str]], what: str) -> None:
    for name, value in PROMISED.items():
        assert headers.get(name) == [value], (what, name)
    assert headers.get("Server") == ["upcall"], what
    assert not any(name.startswith("Access-Control") for name in headers), what
    assert "aiohttp" not in str(headers).lower(), what
    assert "python" not in str(headers).lower(), what


@pytest.mark.asyncio
async def test_every_response_has_the_promised_headers_the_librarys_own_too() -> None:
    async with running(FakeHub()) as inbox, client_of(inbox) as page:
        port = int(page.origin.rpartition(":")[2])
        cookie = f"{page.cookie_name}={page.cookie}".encode()
        for what, data, statuses in [*RAW, *SIGNED_IN]:
            status, headers = await _heads(port, data.replace(b"COOKIE", cookie))
            assert status in statuses, (what, status)
            _check_headers(headers, what)


@pytest.mark.asyncio
async def test_a_body_that_does_not_come_is_answered_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "BODY_S", 0.05)
    async with running(FakeHub()) as inbox:
        data = _post("/api/login", "Content-Length: 10", body="{")
        status, headers = await _heads(_port(inbox), data)
    assert status == 408
    _check_headers(headers, "slow body")


@pytest.mark.asyncio
async def test_a_fault_of_ours_tells_nothing_of_itself() -> None:
    hub = FakeHub()
    async with running(hub) as inbox, client_of(inbox) as page:

        def broken() -> Any:
            raise ZeroDivisionError("secret words")

        hub.health = broken  # type: ignore[method-assign]
        got = await page.get("/api/state", headers={**page.headers(), "Accept": "text/html"})
    assert (got.status, got.json["error"]["code"]) == (500, "internal")
    assert b"secret" not in got.body
    _check_headers({name: [value] for name, value in got.headers.items()}, "fault")


@pytest.mark.asyncio
async def test_a_silent_connection_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_REQUEST_S", 0.05)
    async with running(FakeHub()) as inbox:
        for data in (b"", b"GET / HTTP/1.1\r\nHost: 127."):
            reader, writer = await asyncio.open_connection("127.0.0.1", _port(inbox))
            writer.write(data)
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()


def _port(inbox: WebInbox) -> int:
    url = inbox.url()
    assert url is not None
    return int(url.rstrip("/").rpartition(":")[2])


# -- the link ---------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_link_survives_being_looked_at_and_works_once() -> None:
    hub = FakeHub()
    async with running(hub) as inbox, client_of(inbox, signed_in=False) as page:
        link = (await inbox.sign_in("link", None))["url"]
        base, _, code = link.partition("#login=")
        assert base == inbox.url()
        assert re.fullmatch("[0-9a-z]{26}", code)
        before = list(hub.events)
        for _ in range(10):
            assert (await page.get("/")).status == 200
        for path in (f"/api/login?code={code}", f"/?login={code}"):
            await page.get(path)
        assert hub.events == before
        firefox = {**page.headers(), "User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/140.0"}
        assert (await page.post("/api/login", {"code": code}, headers=firefox)).status == 200
        hub.clock.advance(130)
        again = await page.post("/api/login", {"code": code})
    assert (again.status, again.json["error"]["code"]) == (403, "code_used")
    assert again.json["error"]["msg"] == (
        "this link was already used 2 min ago by Firefox on Linux on this computer"
    )
    assert again.json["error"]["recover"].endswith("upcall inbox --sign-out-all")
    assert "Set-Cookie" not in again.headers


@pytest.mark.asyncio
async def test_a_login_ends_after_seven_days_unused_and_after_thirty_at_most() -> None:
    hub = FakeHub()
    async with running(hub) as inbox, client_of(inbox) as used, client_of(inbox) as idle:
        for day in range(1, 30):
            hub.clock.advance(DAY_S)
            assert (await used.get("/api/state")).status == 200
            # Being read without a word of the person keeps nothing alive; acts do.
            await used.post("/api/message", {})
            got = await idle.get("/api/state")
            assert got.status == (200 if day < 7 else 401), day
        hub.clock.advance(DAY_S)
        assert (await used.get("/api/state")).status == 401


@pytest.mark.asyncio
async def test_guessing_links_is_slowed_and_the_right_one_still_works() -> None:
    hub = FakeHub()
    async with running(hub) as inbox, client_of(inbox, signed_in=False) as page:
        link = (await inbox.sign_in("link", None))["url"]
        statuses = [
            (await page.post("/api/login", {"code": f"{n:026d}"})).status
            for n in range(MAX_WRONG + 5)
        ]
        assert statuses == [403] * MAX_WRONG + [429] * 5
        good = await page.post("/api/login", {"code": link.partition("#login=")[2]})
        assert good.status == 200
        hub.clock.advance(61)
        assert (await page.post("/api/login", {"code": "0" * 26})).status == 403


@pytest.mark.asyncio
async def test_links_are_not_kept_without_number() -> None:
    hub = FakeHub()
    logins = Logins(hub.clock, os.urandom, hub, hub.put)
    first = last = await logins.make_link_code()
    for _ in range(MAX_CODES):
        hub.clock.advance(0.01)
        last = await logins.make_link_code()
    assert sum(row.kind == "code" for row in hub.logins()) == MAX_CODES
    await logins.redeem(last, "x")
    with pytest.raises(LoginRefused, match="isn't known"):
        await logins.redeem(first, "x")


# -- the browser that shows four characters ---------------------------------------------------


@pytest.mark.asyncio
async def test_who_floods_the_waiting_room_shuts_out_neither_the_others_nor_for_long() -> None:
    hub = FakeHub()
    logins = Logins(hub.clock, os.urandom, hub, hub.put)
    for _ in range(MAX_WAITING):
        logins.start_waiting("x", "through https://inbox.example")
    with pytest.raises(LoginRefused) as refused:
        logins.start_waiting("x", "through https://inbox.example")
    assert refused.value.code == "too_many_waiting"
    _, poll = logins.start_waiting("Firefox on Linux")
    for _ in range(5):  # this one asks again and again, as a page does; the others are gone
        hub.clock.advance(25)
        assert await logins.wait(poll, 0) is None
    assert [one.agent for one in logins.waiting()] == ["Firefox on Linux"]
    logins.start_waiting("x", "through https://inbox.example")


@pytest.mark.asyncio
async def test_characters_that_nobody_shows_can_not_be_tried_for_ever() -> None:
    async with running(FakeHub()) as inbox, client_of(inbox, signed_in=False) as page:
        asked = (await page.post("/api/browser", {})).json
        codes = []
        for n in range(MAX_WRONG + 3):
            with pytest.raises(Exception, match=r"characters|shows") as refused:
                await inbox.sign_in("approve", f"I{n:03d}")  # no code has the letter I
            codes.append(refused.value.code)  # type: ignore[attr-defined]
        assert codes == ["unknown_browser"] * MAX_WRONG + ["too_many_tries"] * 3
        await inbox.sign_in("approve", asked["code"])
        got = await page.post("/api/browser/wait", {"poll": asked["poll"]})
    assert got.json["state"] == "in"


# What a browser does that is opened on the inbox and left there: it asks to be let in, says
# where a test can see it what it shows, and waits.
BROWSER = """#!{python} -S
import http.client, json, os, sys, time
url, out = sys.argv[-1], {out!r}
host = url.split("//")[1].strip("/")
def post(path, document):
    http_ = http.client.HTTPConnection(host, timeout=40)
    body = json.dumps(document)
    http_.request("POST", path, body, {{"Content-Type": "application/json",
        "Origin": "http://" + host, "User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/140.0"}})
    response = http_.getresponse()
    return response.getheader("Set-Cookie"), json.loads(response.read())
_, asked = post("/api/browser", {{}})
def tell(document):
    with open(out + ".new", "w") as file:
        json.dump(document, file)
    os.rename(out + ".new", out)
told = {{"argv": sys.argv, **asked}}
tell(told)
while True:
    cookie, answer = post("/api/browser/wait", {{"poll": asked["poll"]}})
    if answer.get("state") != "waiting":
        tell({{**told, "cookie": cookie, "answer": answer}})
        break
"""
SCAN = """
import os, select, sys
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
seen = set()
print("scanning", flush=True)
rounds = 0
while rounds < 1000 or not select.select([0], [], [], 0)[0]:
    rounds += 1
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    seen.add(file.read())
            except OSError:
                pass
sys.stdout.buffer.write(b"\\n".join(seen))
"""


@pytest.fixture
def home(home: Home) -> Home:
    """A home whose hub does not go between two commands of a slow machine."""
    home.env["UPCALL_IDLE_EXIT_S"] = "60"
    return home


def _stand_in(home: Home, name: str = "xdg-open") -> tuple[Path, dict[str, str]]:
    """Return where a stand-in browser says what it shows, and the environment to find it."""
    tools = home.root / "bin"
    tools.mkdir(exist_ok=True)
    out = home.root / f"{name}.json"
    program = tools / name
    program.write_text(BROWSER.format(python=sys.executable, out=str(out)))
    program.chmod(stat.S_IRWXU)
    env = {**home.env, "DISPLAY": ":0", "PATH": f"{tools}:{os.environ['PATH']}"}
    return out, env


def _told(path: Path, screen: PtyScreen, field: str) -> dict[str, Any]:
    def known(_: str) -> bool:
        return path.exists() and field in json.loads(path.read_text())

    screen.wait_for(known)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.timeout(90)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="scans /proc")
def test_no_secret_is_in_any_argument_vector_or_log_while_a_browser_is_signed_in(
    home: Home,
) -> None:
    home.run("hub", "start")
    shown, env = _stand_in(home)
    scan = home.start_program(
        [sys.executable, "-S", "-c", SCAN],
        stdin=subprocess.PIPE, errors="replace", cwd="/",
    )  # fmt: skip
    assert scan.stdout is not None
    assert scan.stdout.readline() == "scanning\n"
    with PtyScreen(home.argv("inbox"), env, cwd=str(home.root)) as screen:
        code = _told(shown, screen, "code")["code"]
        screen.wait_for(f"A browser shows {code}. Sign it in? [y/N]")
        screen.type("y\n")
        assert screen.finish() == 0
        told = _told(shown, screen, "answer")
        text = screen.text()
    seen, _ = scan.communicate("\n", timeout=60)
    assert told["answer"]["state"] == "in"
    assert "inbox" in seen
    secrets = (
        told["poll"],
        told["answer"]["key"],
        told["cookie"].partition("=")[2].partition(";")[0],
    )
    assert all(len(secret) == 64 for secret in secrets)
    for secret in (*secrets, code):
        assert secret not in seen
    log = (home.state / "hub.log").read_text()
    kept = b"".join(path.read_bytes() for path in home.state.iterdir() if path.is_file())
    for secret in secrets:
        assert secret not in text
        assert secret not in log
        assert secret.encode() not in kept
    assert told["argv"][1:] == [told["argv"][-1]]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", told["argv"][-1])

    listed = home.run("inbox", "--sessions")
    assert re.match(r"[0-9a-f]{8}  used .* ago .*Firefox on Linux", listed.stdout)
    (login,) = json.loads(home.run("inbox", "--sessions", "--json").stdout)["logins"]
    assert {"id", "agent", "where", "made_ms", "used_ms", "ends_ms", "pages"} <= login.keys()
    assert home.run("inbox", "--sign-out-all").stdout == "signed 1 browser out\n"
    assert json.loads(home.run("inbox", "--sessions", "--json").stdout)["logins"] == []


def test_of_two_browsers_the_person_names_their_own(home: Home) -> None:
    """Another program starts a login of its own just when the person's browser is opened."""
    home.run("hub", "start")
    theirs, env = _stand_in(home, "other")
    mine, env = _stand_in(home)
    program = home.root / "bin" / "xdg-open"
    both = home.root / "bin" / "both"
    both.write_text(f'#!/bin/sh\n{home.root}/bin/other "$1" &\nexec {program} "$1"\n')
    both.chmod(stat.S_IRWXU)
    env["BROWSER"] = str(both)
    with PtyScreen(home.argv("inbox"), env, cwd=str(home.root)) as screen:
        code = _told(mine, screen, "code")["code"]
        stranger = _told(theirs, screen, "code")["code"]
        shown = screen.wait_for("Type the four characters that yours shows")
        assert code not in shown
        assert stranger not in shown
        screen.type("y\n")
        screen.wait_for("none of them shows that")
        screen.type(f"{code.lower()}\n")
        assert screen.finish() == 0
        assert _told(mine, screen, "answer")["answer"]["state"] == "in"
    assert "answer" not in json.loads(theirs.read_text())


@pytest.mark.parametrize("typed", ["\n", "yep\n", "\x04"])
def test_only_yes_is_yes(home: Home, typed: str) -> None:
    home.run("hub", "start")
    shown, env = _stand_in(home)
    with PtyScreen(home.argv("inbox"), env, cwd=str(home.root)) as screen:
        code = _told(shown, screen, "code")["code"]
        screen.wait_for(f"A browser shows {code}. Sign it in? [y/N]")
        screen.type(typed)
        screen.wait_for("not signed in")
    assert json.loads(home.run("inbox", "--sessions", "--json").stdout)["logins"] == []


def test_what_was_typed_before_the_question_is_no_answer(home: Home) -> None:
    """The stand-in types "y" for the person, before there is a question."""
    home.run("hub", "start")
    shown, env = _stand_in(home)
    # Not canonical while it types: nothing reads it as a line before the question is drawn.
    with PtyScreen(home.argv("inbox"), env, cwd=str(home.root)) as screen:
        _told(shown, screen, "code")
        screen.type("y")
        screen.wait_for("Sign it in? [y/N]")
        screen.type("\n")
        screen.wait_for("not signed in")


def test_without_a_browser_here_one_that_waits_is_asked_for(home: Home) -> None:
    home.run("hub", "start")
    shown, env = _stand_in(home)
    status = json.loads(home.run("hub", "status", "--json").stdout)
    home.start_program([str(home.root / "bin" / "xdg-open"), status["web_url"]])
    ssh = {**env, "SSH_CONNECTION": "1 2 3 4"}
    with PtyScreen(["sh", "-c", "read x; exec " + " ".join(home.argv("inbox"))], ssh) as screen:
        code = _told(shown, screen, "code")["code"]
        screen.type("\n")
        screen.wait_for(f"A browser shows {code}. Sign it in? [y/N]")
        screen.type("y\n")
        assert screen.finish() == 0
        assert "#login=" not in screen.text()


# -- a real browser ---------------------------------------------------------------------------


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "profile"


def _until_live(driver: WebDriver) -> None:
    WebDriverWait(driver, WAIT_S, 0.05).until(
        lambda d: d.find_element(By.TAG_NAME, "body").get_attribute("data-live")
    )


def _follow_a_link(driver: WebDriver, address: str) -> None:
    driver.execute_script(
        "const a = document.createElement('a'); a.href = arguments[0];"
        "document.body.append(a); a.click();",
        address,
    )
    WebDriverWait(driver, WAIT_S, 0.05).until(lambda d: d.current_url == address)


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_a_browser_that_was_let_in_keeps_no_secret_in_its_history(profile: Path) -> None:
    with inbox_on_thread(FakeHub()) as served, neighbour(there="hello") as other:
        url = served.url
        with chromium(str(profile)) as driver:
            driver.get(url)
            until = WebDriverWait(driver, WAIT_S, 0.05).until
            code = until(lambda d: d.find_element(By.ID, "sign-in-code").text)
            served.call(served.inbox.sign_in("approve", code))
            _until_live(driver)
            key = driver.execute_script("return localStorage.getItem('upcall_key')")
            cookie = driver.get_cookie(f"upcall_{served.port}")
            assert cookie is not None
            assert cookie["httpOnly"]
            assert cookie["sameSite"] == "Strict"
            assert driver.execute_script("return document.cookie") == ""
            _follow_a_link(driver, f"http://127.0.0.1:{other.port}/there")
        assert "Referer" not in other.headers_of("/there")
    found = [path for path in profile.rglob("History*") if path.is_file()]
    history = b"".join(path.read_bytes() for path in found)
    assert url.encode() in history
    for secret in (key, cookie["value"]):
        assert secret.encode() not in history


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_what_a_browser_keeps_of_a_pasted_link_is_used_up(profile: Path) -> None:
    """Chromium keeps the whole address of what was pasted; a page can't keep it from that."""
    with inbox_on_thread(FakeHub()) as served, neighbour(there="hello") as other:
        link = served.link()
        code = link.partition("#login=")[2]
        with chromium(str(profile)) as driver:
            driver.get(link)
            _until_live(driver)
            assert driver.current_url == served.url
            assert code not in driver.execute_script(
                "return JSON.stringify([history.state, {...localStorage}, document.referrer,"
                "document.documentElement.outerHTML])"
            )
            _follow_a_link(driver, f"http://127.0.0.1:{other.port}/there")
        assert code not in str(other.heard)
        assert "Referer" not in other.headers_of("/there")

        async def again() -> tuple[int, str]:
            async with client_of(served.inbox, signed_in=False) as page:
                got = await page.post("/api/login", {"code": code})
                return got.status, got.json["error"]["code"]

        assert served.call(again()) == (403, "code_used")
        assert code not in str(served.hub.events)
