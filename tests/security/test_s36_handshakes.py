"""S36: rebinding, framing and foreign WebSockets get nowhere, at the inbox and at endpoints."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from fakes.chromium import WAIT_S, chromium, inbox_on_thread, neighbour, traffic
from fakes.web_client import client_of, running
from fakes.web_hub import FakeHub
from upcall.model.platform import Answered, LoginKept, Texted
from wire.rig import TOKEN, host

WS_KEY = "dGhlIHNhbXBsZSBub25jZQ=="
NAME = "evil.test"


@dataclass(frozen=True)
class Server:
    """One of the two servers, and a handshake that it takes.

    Attributes:
        port: where it listens.
        target: the path of a good handshake.
        headers: what a good handshake needs besides Host, Origin left out.
        origin: an Origin that it takes, or None if it takes none.
    """

    port: int
    target: str
    headers: tuple[str, ...]
    origin: str | None

    @property
    def host(self) -> str:
        return f"Host: 127.0.0.1:{self.port}"

    @property
    def origins(self) -> tuple[str, ...]:
        return () if self.origin is None else (f"Origin: {self.origin}",)

    async def status(self, target: str, *lines: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = [f"GET {target} HTTP/1.1", *lines, *self.headers, "", ""]
        try:
            writer.write("\r\n".join(head).encode("latin-1"))
            async with asyncio.timeout(10):
                return int((await reader.readline()).split()[1])
        finally:
            writer.transport.abort()


_UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    f"Sec-WebSocket-Key: {WS_KEY}",
    "Sec-WebSocket-Version: 13",
)


@asynccontextmanager
async def inbox_server() -> AsyncIterator[Server]:
    async with running(FakeHub()) as inbox, client_of(inbox) as page:
        port = int(page.origin.rpartition(":")[2])
        cookie = f"Cookie: {page.cookie_name}={page.cookie}"
        yield Server(port, "/api/live", (*_UPGRADE, cookie), page.origin)


@asynccontextmanager
async def endpoint_server() -> AsyncIterator[Server]:
    async with host() as made:
        yield Server(made.endpoint.port, f"/?token={TOKEN}", _UPGRADE, None)


SERVERS = pytest.mark.parametrize("serve", [inbox_server, endpoint_server])


@pytest.mark.asyncio
@SERVERS
async def test_what_can_be_read_in_two_ways_is_400(serve) -> None:  # type: ignore[no-untyped-def]
    async with serve() as server:
        good = (server.host, *server.origins)
        assert await server.status(server.target, *good) == 101
        base = f"127.0.0.1:{server.port}"
        for what, target, lines in (
            ("two hosts", server.target, (server.host, *good)),
            ("two different hosts", server.target, ("Host: evil.example", *good)),
            ("the second host is foreign", server.target, (*good, "Host: evil.example")),
            ("two origins", server.target, (*good, f"Origin: http://{base}", "Origin: null")),
            ("the same origin twice", server.target,
             (server.host, f"Origin: http://{base}", f"Origin: http://{base}")),
            ("no host", server.target, server.origins),
            ("an empty host", server.target, ("Host:", *server.origins)),
            ("a blank host", server.target, ("Host:  ", *server.origins)),
            ("a user", server.target, (f"Host: me@{base}", *server.origins)),
            ("a user and a password", server.target, (f"Host: a:b@{base}", *server.origins)),
            ("an empty user", server.target, (f"Host: @{base}", *server.origins)),
            ("an absolute target", f"http://{base}{server.target}", good),
            ("an absolute ws target", f"ws://{base}{server.target}", good),
            ("a foreign absolute target", f"http://evil.example{server.target}", good),
            ("an authority", base, good),
            ("a star", "*", good),
        ):  # fmt: skip
            assert await server.status(target, *lines) == 400, what


@pytest.mark.asyncio
@SERVERS
async def test_foreign_names_and_origins_are_403(serve) -> None:  # type: ignore[no-untyped-def]
    async with serve() as server:
        for name in (
            "evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example",
            "127.1", "2130706433", "0x7f000001", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]",
            "localhost.evil.example", "localhost.", "127.0.0.1.", "192.168.0.1",
        ):  # fmt: skip
            got = await server.status(server.target, f"Host: {name}", *server.origins)
            assert got == 403, name
        for origin in (
            "null", "http://evil.example", f"http://evil.example:{server.port}",
            "http://127.0.0.1:1", f"https://127.0.0.1:{server.port}", "file://", "",
            f"http://127.0.0.1:{server.port}/", f"http://127.0.0.1:{server.port}.evil.example",
            f"http://127.0.0.1:{server.port}, http://evil.example",
            f"http://x@127.0.0.1:{server.port}", "chrome-extension://abc",
        ):  # fmt: skip
            got = await server.status(server.target, server.host, f"Origin: {origin}")
            assert got == 403, origin


@pytest.mark.asyncio
async def test_an_endpoint_takes_only_origins_that_the_program_allowed() -> None:
    async with host(allow_origins=["http://127.0.0.1:8737"]) as made:
        server = Server(made.endpoint.port, f"/?token={TOKEN}", _UPGRADE, None)
        own = f"Origin: http://127.0.0.1:{server.port}"
        for origin, status in (
            (own, 403),  # its own address is no page of anybody
            ("Origin: http://127.0.0.1:8737", 101),
            ("Origin: HTTP://127.0.0.1:8737", 403),
            ("Origin: http://127.0.0.1:87370", 403),
        ):
            assert await server.status(server.target, server.host, origin) == status


@pytest.mark.asyncio
async def test_an_inbox_needs_the_origin_at_a_handshake() -> None:
    async with inbox_server() as server:
        assert await server.status(server.target, server.host) == 403


# -- a real browser ---------------------------------------------------------------------------

PROBE = """<!doctype html><title>probe</title><body><script>
const heard = [], socket = (name, url) => new Promise((done) => {
  const made = new WebSocket(url);
  made.onopen = () => { heard.push(name + " open"); made.send("{}"); };
  made.onmessage = () => { heard.push(name + " heard"); done(); };
  made.onclose = () => { heard.push(name + " closed"); done(); };
});
const frame = (url) => new Promise((done) => {
  const made = document.createElement("iframe");
  document.body.append(made);
  made.onload = () => {
    let inside = "shut";
    try { inside = made.contentDocument ? made.contentDocument.body.textContent : "shut"; }
    catch (problem) { inside = "shut"; }
    heard.push("frame " + (inside.includes("upcall") ? "open" : "shut"));
    done();
  };
  made.src = url;
});
const open = ([kind, name, url]) => kind === "frame" ? frame(url) : socket(name, url);
Promise.all(TARGETS.map(open)).then(() => { window.heard = heard; document.title = "done"; });
</script>"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    folder = str(tmp_path_factory.mktemp("chromium"))
    with chromium(folder, resolve=f"MAP {NAME} 127.0.0.1") as made:
        yield made


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_a_name_that_leads_here_a_frame_and_foreign_sockets_get_nothing(
    driver: webdriver.Chrome,
) -> None:
    hub = FakeHub()
    hub.raise_ask("a secret question")
    with inbox_on_thread(hub) as served, neighbour(there="hello") as other:
        port, done, task = served.call(_open_endpoint())
        try:
            driver.get(served.link())
            until = WebDriverWait(driver, WAIT_S, 0.05).until
            until(lambda d: d.find_element(By.TAG_NAME, "body").get_attribute("data-live"))
            logins = [event for event in hub.events if isinstance(event, LoginKept)]
            traffic(driver)

            # The name leads to us, and Chromium finds it: only the Host tells.
            driver.get(f"http://{NAME}:{other.port}/there")
            assert driver.page_source.count("hello") == 1
            driver.get(f"http://{NAME}:{served.port}/")
            assert "foreign_host" in driver.page_source
            assert "secret" not in driver.page_source
            read = driver.execute_async_script(
                "const done = arguments[0]; fetch('/api/state').then((r) => done(r.status))"
            )
            assert read == 403

            at, ask = f"127.0.0.1:{served.port}", f"127.0.0.1:{port}"
            targets = [
                ["ws", "inbox", f"ws://{at}/api/live"],
                ["ws", "inbox by name", f"ws://{NAME}:{served.port}/api/live"],
                ["ws", "endpoint", f"ws://{ask}/?token={TOKEN}"],
                ["ws", "endpoint by name", f"ws://{NAME}:{port}/?token={TOKEN}"],
                ["frame", "inbox", f"http://{at}/"],
                ["frame", "state", f"http://{at}/api/state"],
            ]
            for name in ("127.0.0.1", NAME):
                other.pages["/probe"] = PROBE.replace("TARGETS", json.dumps(targets))
                driver.get(f"http://{name}:{other.port}/probe")
                until(lambda d: d.title == "done")
                heard = driver.execute_script("return window.heard")
                assert sorted(heard) == sorted(
                    [f"{target[1]} closed" for target in targets[:4]] + ["frame shut"] * 2
                )
            seen = traffic(driver).statuses
            framed = seen.get(served.url, set()) | seen.get(f"{served.url}api/state", set())
            assert framed <= {403}
            assert [e for e in hub.events if isinstance(e, Answered | Texted)] == []
            assert [e for e in hub.events if isinstance(e, LoginKept)] == logins
        finally:
            served.call(_close_endpoint(done, task))


async def _open_endpoint() -> tuple[int, asyncio.Event, asyncio.Task[None]]:
    """Run an endpoint on the present loop until the event is set."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def serve() -> None:
        async with host() as made:
            ready.set_result(made.endpoint.port)
            await done.wait()

    task = asyncio.create_task(serve())
    return await ready, done, task


async def _close_endpoint(done: asyncio.Event, task: asyncio.Task[None]) -> None:
    done.set()
    await task
