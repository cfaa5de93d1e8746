"""S4: another port, another page and another user of this computer get nothing of a login."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from conftest import Home
from fakes.chromium import WAIT_S, chromium, inbox_on_thread, neighbour, traffic
from fakes.web_client import PageClient, client_of, running
from fakes.web_hub import FakeHub
from fakes.web_routes import Route, all_routes
from upcall.model.platform import Answered, LoginKept, SettingKept, Texted
from upcall_adapters.web.adapter import WebInbox
from upcall_adapters.web.config import WebConfig
from upcall_adapters.web.gate import MAX_CONNECTIONS, MAX_FOREIGN, Gate
from upcall_adapters.web.peers import read_tables

ROUTES = all_routes()
GUARDED = [route for route in ROUTES if route.needs_login]
KEY = "0123456789abcdef"


def ids(route: Route) -> str:
    return f"{route.method} {route.path}"


@asynccontextmanager
async def signed_in(hub: FakeHub) -> AsyncIterator[tuple[WebInbox, PageClient]]:
    async with running(hub) as inbox, client_of(inbox) as page:
        yield inbox, page


def answer_body(hub: FakeHub) -> dict[str, Any]:
    ask = hub.raise_ask()
    return {"ask": ask.id, "revision": ask.revision, "key": KEY, "indices": [0]}


def nothing_done(hub: FakeHub) -> bool:
    return not any(isinstance(event, Answered | Texted) for event in hub.events)


async def call(page: PageClient, route: Route, headers: dict[str, str]) -> Any:
    if route.method == "POST":
        headers = {"Content-Type": "application/json", **headers}
        return await page.call("POST", route.path, headers=headers, data=b"{}")
    return await page.call(route.method, route.path, headers=headers)


# -- the cookie alone -------------------------------------------------------------------------


def test_the_table_of_routes_knows_what_the_inbox_can_do() -> None:
    paths = {route.path for route in GUARDED}
    assert {"/api/state", "/api/answer", "/api/message", "/api/live", "/api/file/x"} <= paths
    assert {route.method for route in ROUTES} == {"GET", "POST"}


@pytest.mark.asyncio
@pytest.mark.parametrize("route", GUARDED, ids=ids)
async def test_neither_half_of_a_login_opens_a_route(route: Route) -> None:
    hub = FakeHub()
    answer_body(hub)
    async with signed_in(hub) as (inbox, page), client_of(inbox) as other:
        mixed = {**page.headers(), "X-Upcall-Key": other.key or ""}
        for headers in (
            page.headers(key=False),
            page.headers(cookie=False),
            page.headers(cookie=False, key=False),
            {**page.headers(), "X-Upcall-Key": ""},
            {**page.headers(), "X-Upcall-Key": page.cookie or ""},
            mixed,
        ):
            got = await call(page, route, headers)
            assert got.status == 401, headers
            assert got.json["error"]["code"] == "not_signed_in"
        assert (await call(page, route, page.headers())).status != 401
    assert nothing_done(hub)


@pytest.mark.asyncio
async def test_a_key_in_the_address_opens_nothing() -> None:
    async with signed_in(FakeHub()) as (_, page):
        for name in ("key", "X-Upcall-Key", "upcall_key"):
            got = await page.get(
                f"/api/state?{name}={page.key}", headers=page.headers(key=False)
            )
            assert got.status == 401


@pytest.mark.asyncio
async def test_a_live_connection_with_the_cookie_alone_hears_nothing() -> None:
    hub = FakeHub()
    hub.raise_ask()
    async with signed_in(hub) as (_, page):
        async with page.live() as ws:
            await ws.send_json({"key": "0" * 64})
            message = await ws.receive()
            assert message.type is aiohttp.WSMsgType.CLOSE
            assert ws.close_code == 4401
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await page.live(headers=page.headers(cookie=False))
    assert refused.value.status == 401
    assert all(state.audience == 0 for state in hub.states)


@pytest.mark.asyncio
async def test_a_second_cookie_set_by_a_neighbour_hides_ours_from_nobody() -> None:
    async with signed_in(FakeHub()) as (_, page):
        name = page.cookie_name
        for cookie in (
            f"{name}=junk; {name}={page.cookie}",
            f"{name}={page.cookie}; {name}=junk; x=1",
            f"other=1;{name}={page.cookie}",
        ):
            headers = {**page.headers(cookie=False), "Cookie": cookie}
            assert (await page.get("/api/state", headers=headers)).status == 200
        many = "; ".join([f"{name}=junk"] * 50 + [f"{name}={page.cookie}"])
        headers = {**page.headers(cookie=False), "Cookie": many}
        assert (await page.get("/api/state", headers=headers)).status == 401


# -- who sends it -----------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("route", ROUTES, ids=ids)
async def test_every_route_refuses_what_was_not_meant_for_it(route: Route) -> None:
    hub = FakeHub()
    async with signed_in(hub) as (_, page):
        before = len(hub.events)
        port = page.origin.rpartition(":")[2]
        for change in (
            {"Host": "evil.example"},
            {"Host": f"evil.example:{port}"},
            {"Host": "127.0.0.1"},
            {"Host": f"127.1:{port}"},
            {"Host": f"0.0.0.0:{port}"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": f"https://127.0.0.1:{port}"},
            {"Origin": f"http://localhost:{port}"},
            {"Origin": "http://evil.example"},
            {"Origin": page.origin + "/"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "none"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
             "Sec-Fetch-Dest": "iframe"},
        ):  # fmt: skip
            got = await call(page, route, {**page.headers(), **change})
            assert got.status == 403, change
            assert not any(name.startswith("Access-Control") for name in got.headers)
        if route.method == "POST":
            bare = {name: v for name, v in page.headers().items() if name != "Origin"}
            assert (await call(page, route, bare)).status == 403
            for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
                got = await call(page, route, {**page.headers(), "Content-Type": kind})
                assert got.status == 415, kind
        for method in ("OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"):
            got = await page.call(method, route.path)
            assert got.status == 405
            assert not any(name.startswith("Access-Control") for name in got.headers)
        assert len(hub.events) == before


# -- a real browser and a second port ---------------------------------------------------------

PROBE = """<!doctype html><title>probe</title><body><script>
const at = "http://127.0.0.1:PORT", routes = ROUTES, sent = [];
const note = (what, how) => sent.push([what, how]);
const tried = (what, promise) => promise.then((r) => note(what, r.type + " " + r.status),
                                              () => note(what, "failed"));
async function run() {
  const jobs = [];
  for (const [method, path] of routes) {
    const body = method === "POST" ? BODY : undefined;
    const plain = { method, body, credentials: "include" };
    jobs.push(tried(`plain ${path}`, fetch(at + path, { ...plain, mode: "no-cors" })));
    jobs.push(tried(`read ${path}`, fetch(at + path, plain)));
    jobs.push(tried(`key ${path}`, fetch(at + path, { ...plain, headers: {
      "X-Upcall-Key": "KEY", "Content-Type": "application/json" } })));
    jobs.push(new Promise((done) => { const image = new Image();
      image.onload = () => done(note(`img ${path}`, "loaded"));
      image.onerror = () => done(note(`img ${path}`, "failed")); image.src = at + path; }));
  }
  jobs.push(new Promise((done) => { const socket = new WebSocket("ws://127.0.0.1:PORT/api/live");
    socket.onopen = () => { socket.send('{"key":"KEY"}'); note("ws", "open"); };
    socket.onmessage = () => note("ws", "heard");
    socket.onclose = () => done(note("ws", "closed")); }));
  jobs.push(new Promise((done) => { const source = new EventSource(at + "/api/state",
      { withCredentials: true });
    source.onmessage = () => done(note("events", "heard"));
    source.onerror = () => { source.close(); done(note("events", "failed")); }; }));
  for (const kind of ["text/plain", "application/x-www-form-urlencoded",
                      "multipart/form-data"]) {
    jobs.push(new Promise((done) => {
      const frame = document.createElement("iframe"); frame.name = "f" + kind;
      const form = document.createElement("form");
      Object.assign(form, { action: at + "/api/answer", method: "post", enctype: kind,
                            target: frame.name });
      const input = document.createElement("input");
      input.name = BODY.slice(0, -1) + ',"x":"'; input.value = '"}';
      form.append(input); document.body.append(frame, form);
      frame.onload = () => { note("form", "sent"); done(); };
      form.submit(); }));
  }
  await Promise.all(jobs);
  window.results = sent;
  document.title = "done";
}
run();
</script>"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(str(tmp_path_factory.mktemp("chromium"))) as made:
        yield made


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_a_page_on_another_port_gets_the_cookie_and_nothing_else(
    driver: webdriver.Chrome,
) -> None:
    hub = FakeHub()
    body = json.dumps(answer_body(hub))
    with inbox_on_thread(hub) as served, neighbour(empty="nothing") as other:
        driver.get(served.link())
        until = WebDriverWait(driver, WAIT_S, 0.05).until
        until(lambda d: d.find_element(By.TAG_NAME, "body").get_attribute("data-live"))
        key = driver.execute_script("return localStorage.getItem('upcall_key')")
        assert len(key) == 64
        before = len(hub.events)
        other.pages["/probe"] = (
            PROBE.replace("PORT", str(served.port))
            .replace("ROUTES", json.dumps([[one.method, one.path] for one in ROUTES]))
            .replace("BODY", json.dumps(body))
            .replace("KEY", key)
        )
        driver.get("about:blank")  # what the inbox itself still asked for is over now
        traffic(driver)
        driver.get(f"http://127.0.0.1:{other.port}/probe")
        until(lambda d: d.title == "done")
        results = [tuple(one) for one in driver.execute_script("return window.results")]
        assert len(results) == 4 * len(ROUTES) + 1 + 1 + 3
        # Nothing can be read, whatever it is; an opaque answer says nothing of itself.
        assert {how for what, how in results if not what.startswith(("plain", "form"))} == {
            "failed", "closed",
        }  # fmt: skip
        assert {how for what, how in results if what.startswith("plain")} <= {
            "opaque 0", "failed",
        }  # fmt: skip
        # 405 is what a preflight gets; what the browser sent at all got 403.
        seen = traffic(driver).statuses
        to_inbox = {url: got for url, got in seen.items() if f":{served.port}/" in url}
        assert to_inbox
        for url, statuses in to_inbox.items():
            assert statuses <= {403, 405, 415}, (url, statuses)
        assert 403 in to_inbox[f"{served.url}api/answer"]
        assert [event for event in hub.events[before:] if not _is_beat(event)] == []

        # The browser does send its cookie to the other port: that is why it opens nothing.
        cookie = other.headers_of("/probe")["Cookie"]
        assert f"upcall_{served.port}=" in cookie
        assert asyncio.run(_replayed(served.url, cookie)) == {401}
        assert nothing_done(hub)


def _is_beat(event: object) -> bool:
    return isinstance(event, SettingKept) and event.name == "seen_ms"


async def _replayed(url: str, cookie: str) -> set[int]:
    """Return the statuses that a program gets which knows the cookie and forges the rest."""
    statuses = set()
    origin = url.rstrip("/")
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        for route in GUARDED:
            headers = {"Cookie": cookie, "Origin": origin, "Content-Type": "application/json"}
            async with http.request(
                route.method, origin + route.path, headers=headers, data=b"{}"
            ) as got:
                statuses.add(got.status)
    return statuses


# -- another user -----------------------------------------------------------------------------

_OTHER_USER = """
import os, socket, sys
port, family, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
kind = socket.AF_INET6 if family == "6" else socket.AF_INET
host = "::ffff:127.0.0.1" if family == "6" else "127.0.0.1"
held = []
for _ in range(300 if mode == "flood" else 1):  # nothing that would load modules
    sock = socket.socket(kind)
    try:
        sock.connect((host, port))
    except OSError:
        continue
    held.append(sock)
if mode == "flood":
    print("held", flush=True)
    sys.stdin.read()
else:
    held[0].sendall(f"GET /api/state HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n".encode())
    print(held[0].recv(100).split()[1].decode())
"""
foreign = [
    pytest.mark.foreign_uid,
    pytest.mark.skipif(
        os.getuid() != 0 or not sys.platform.startswith("linux"),
        reason="starting a child as another user needs root on Linux",
    ),
]


def marked(*cases: Any) -> list[Any]:
    return [pytest.param(*case, marks=foreign) for case in cases]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("family", "other_users", "status"),
    marked(("4", False, "403"), ("6", False, "403"), ("4", True, "401"), ("6", True, "401")),
)
async def test_another_user_is_refused_unless_wanted(
    family: str, other_users: bool, status: str
) -> None:
    async with running(FakeHub(), WebConfig(port=0, other_users=other_users)) as inbox:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-S", "-c", _OTHER_USER, _port(inbox), family, "one"],
            capture_output=True,
            text=True,
            timeout=20,
            cwd="/",
        )
    assert done.stdout.strip() == status, done.stderr


@pytest.mark.asyncio
@pytest.mark.parametrize("family", marked(("4",), ("6",)))
async def test_connections_of_another_user_take_no_room(family: str) -> None:
    async with running(FakeHub()) as inbox:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", _OTHER_USER, _port(inbox), family, "flood",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
        )  # fmt: skip
        assert child.stdout is not None
        assert await child.stdout.readline() == b"held\n"
        async with asyncio.timeout(5), client_of(inbox) as page, page.live() as ws:
            await ws.send_json({"key": page.key})
            assert "asks" in await ws.receive_json()
        child.kill()
        await child.communicate()


def _port(inbox: WebInbox) -> str:
    url = inbox.url()
    assert url is not None
    return url.rstrip("/").rpartition(":")[2]


class _Guest:
    """A connection for the gate; its end of the wire is not told."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.was_cut = False

    @property
    def ends(self) -> None:
        return None

    def cut(self) -> None:
        self.was_cut = True


@pytest.mark.asyncio
async def test_who_has_shown_the_least_gives_way_and_pages_stay() -> None:
    gate = Gate(None, max_connections=3)
    page, idle, silent, newer = _Guest(2), _Guest(1), _Guest(0), _Guest(0)
    for guest in (page, idle, silent, newer):
        gate.entered(guest)
    assert [one.was_cut for one in (page, idle, silent, newer)] == [False, False, True, False]
    gate.left(silent)
    newer.rank = 2
    gate.entered(later := _Guest(0))
    assert later.was_cut  # it has shown no more than the idle one, and came last
    assert not page.was_cut


@pytest.mark.asyncio
async def test_whose_connection_cannot_be_told_is_not_ours() -> None:
    gate = Gate(os.getuid(), read=read_tables, max_foreign=MAX_FOREIGN)
    guests = [_Guest() for _ in range(MAX_FOREIGN + 2)]
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(gate.watch())
        for guest in guests:
            gate.entered(guest)
        for guest in guests:
            assert not await gate.is_own(guest)
        assert [guest.was_cut for guest in guests].count(True) == 2
        gate.entered(gone := _Guest())
        gate.left(gone)
        assert not await gate.is_own(gone)
        watching.cancel()
    assert MAX_CONNECTIONS > MAX_FOREIGN


# -- reading changes nothing ------------------------------------------------------------------


@pytest.fixture
def home(home: Home) -> Home:
    """A home whose hub does not go between two commands of a slow machine."""
    home.env["UPCALL_IDLE_EXIT_S"] = "60"
    return home


def _ledger(home: Home) -> dict[str, str]:
    """Return the digest of every file of the ledger."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(home.state).iterdir())
        if ".db" in path.name and not path.name.endswith("-shm")
    }


@pytest.mark.asyncio
async def test_getting_every_route_leaves_the_ledger_as_it_is(home: Home) -> None:
    await asyncio.to_thread(home.run, "ask", "Deploy?", "-o", "yes", "-o", "no", "--no-wait")
    shown = await asyncio.to_thread(home.run, "inbox", "--json")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    url, _, code = json.loads(shown.stdout)["url"].partition("#login=")
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar, trust_env=False) as http:
        page = PageClient(http, url)
        page.keep_login(await page.post("/api/login", {"code": code}))
        (ask,) = (await page.get("/api/state")).json["asks"]
        before = _ledger(home)
        assert before
        for route in ROUTES:
            for path in (route.path, f"{route.path}?ask={ask['id']}&indices=0&code={code}"):
                for headers in (page.headers(), page.headers(key=False), {}):
                    assert (await page.get(path, headers=headers)).status in {
                        200, 400, 401, 404, 405,
                    }  # fmt: skip
        assert _ledger(home) == before
        assert [one["state"] for one in (await page.get("/api/state")).json["asks"]] == ["open"]


@pytest.mark.asyncio
async def test_getting_any_address_hands_nothing_to_the_hub() -> None:
    hub = FakeHub()
    ask = hub.raise_ask()
    async with signed_in(hub) as (_, page):
        kept = [event for event in hub.events if isinstance(event, LoginKept)]
        hub.clock.advance(4000)  # so that a login's use would be due to be written down
        paths = [route.path for route in ROUTES]
        for path in (*paths, f"/api/answer?ask={ask.id}&indices=0", "/nothing", "/api/login?x"):
            got = await page.get(path)
            assert got.status in {200, 400, 404, 405}, (path, got.status)
        assert [event for event in hub.events if isinstance(event, LoginKept)] == kept
        assert nothing_done(hub)
