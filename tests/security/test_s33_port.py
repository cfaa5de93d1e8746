"""S33, the inbox's port: who sits on it gets no login, and no flood shuts a person out."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from conftest import Home
from fakes.web_client import PageClient, client_of, running
from fakes.web_hub import FakeHub
from upcall_adapters.web import routes
from upcall_adapters.web.adapter import WebInbox
from upcall_adapters.web.config import WebConfig
from upcall_adapters.web.gate import MAX_CONNECTIONS
from upcall_adapters.web.routes import CLOSE_TOO_MANY, MAX_LIVE, MAX_UNPROVEN

_SQUAT = """
import os, socket, sys
uid = int(sys.argv[2])
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
with socket.socket() as sock:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", int(sys.argv[1])))
    sock.listen()
    print("sits", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(home: Home) -> Home:
    """A home whose hub does not go between two commands of a slow machine."""
    home.env["UPCALL_IDLE_EXIT_S"] = "60"
    return home


@asynccontextmanager
async def page_of(url: str) -> AsyncIterator[PageClient]:
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar, trust_env=False) as http:
        yield PageClient(http, url)


async def signed_in(home: Home) -> tuple[str, str | None, str | None]:
    """Sign in at the real hub; return its address, the cookie and the key."""
    shown = await asyncio.to_thread(home.run, "inbox", "--json")
    assert shown.returncode == 0, shown.stderr
    url, _, code = json.loads(shown.stdout)["url"].partition("#login=")
    async with page_of(url) as page:
        page.keep_login(await page.post("/api/login", {"code": code}))
        assert (await page.get("/api/state")).status == 200
        return url, page.cookie, page.key


async def state_status(url: str, cookie: str | None, key: str | None) -> int:
    async with page_of(url) as page:
        page.cookie, page.key = cookie, key
        status: int = (await page.get("/api/state")).status
        return status


# -- somebody sits on the port ----------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "uid",
    [
        pytest.param(None, id="ours"),
        pytest.param(
            65534,
            id="foreign",
            marks=[
                pytest.mark.foreign_uid,
                pytest.mark.skipif(os.getuid() != 0, reason="needs root"),
            ],
        ),
    ],
)
async def test_a_port_taken_between_two_hubs_ends_the_logins_and_is_told(
    home: Home, uid: int | None
) -> None:
    url, cookie, key = await signed_in(home)
    port = url.rstrip("/").rpartition(":")[2]
    await asyncio.to_thread(home.run, "hub", "stop")
    child = home.start_program(
        [sys.executable, "-S", "-c", _SQUAT, port, str(os.getuid() if uid is None else uid)],
        stdin=subprocess.PIPE, cwd="/",
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "sits\n"
    done = await asyncio.to_thread(home.run, "inbox", "--json")
    moved = json.loads(done.stdout)["url"].partition("#")[0]
    assert moved != url
    assert await state_status(moved, cookie, key) == 401
    async with page_of(moved) as page:  # the cookie of the old port, under the new name too
        page.cookie, page.key = cookie, key
        old = {"Cookie": f"upcall_{port}={cookie}", "X-Upcall-Key": key or ""}
        assert (await page.get("/api/state", headers=old)).status == 401
    told = [done.stderr]
    told.append((await asyncio.to_thread(home.run, "hub", "status")).stdout)
    if uid is None:
        told.append((await asyncio.to_thread(home.run)).stdout)
        told.append((await asyncio.to_thread(home.run, "doctor")).stdout)
        told.append((await asyncio.to_thread(home.run, "inbox", "--phone")).stderr)
    for text in told:
        words = " ".join(text.split())
        assert f"port {port} is held by " in words
        assert f"pid {child.pid}" in words
        assert "every browser was signed out" in words
        assert f"a page at port {port} is not the inbox" in words
        if uid is not None:
            assert f"of the user with uid {uid}" in words
    log = (home.state / "hub.log").read_text()
    assert "web_port_moved" in log
    assert f"pid {child.pid}" in log
    assert "web_logins_ended" in log
    # The port of now is the fixed one from now on, also once the other one is free.
    child.communicate("", timeout=20)
    await asyncio.to_thread(home.run, "hub", "restart")
    again = await asyncio.to_thread(home.run, "inbox", "--json")
    assert json.loads(again.stdout)["url"].partition("#")[0] == moved
    assert again.stderr == "" or "is held by" not in again.stderr


@pytest.mark.asyncio
async def test_a_configured_port_that_was_taken_ends_the_logins_too() -> None:
    hub = FakeHub()
    async with running(hub) as inbox, client_of(inbox) as page:
        port = int(page.origin.rpartition(":")[2])
    assert hub.login_rows
    hub.clock.slept.clear()
    with socket.create_server(("127.0.0.1", port)) as other:
        inbox = WebInbox(WebConfig(port=port), hub.seams())
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(inbox.run(hub))
            await hub.clock.slept.wait()
            with pytest.raises(Exception, match=f"port {port} can't be had"):
                await inbox.sign_in("link", None)
            other.close()
            hub.clock.advance(5)
            async with asyncio.timeout(5):
                while inbox.url() is None:
                    await asyncio.sleep(0)
            assert not any(row.kind == "login" for row in hub.login_rows.values())
            task.cancel()


# -- nobody was there -------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_login_outlives_a_restart_but_not_a_minute_without_a_hub() -> None:
    hub = FakeHub()
    config = WebConfig()
    async with running(hub, config) as inbox, client_of(inbox) as page:
        pass  # ended at once, before any beat: the login itself is one
    for away_s, status in ((1, 200), (30, 200), (61, 401)):
        hub.clock.slept.clear()
        hub.clock.advance(away_s)
        async with running(hub, config) as inbox:
            assert inbox.url() == page.url
            assert await state_status(page.url, page.cookie, page.key) == status
            if status == 200:
                await hub.clock.slept.wait()
                hub.clock.slept.clear()
                hub.clock.advance(20)  # one beat
                await hub.clock.slept.wait()


@pytest.mark.asyncio
async def test_a_clock_that_was_set_back_ends_the_logins() -> None:
    hub = FakeHub()
    async with running(hub, WebConfig()) as inbox, client_of(inbox) as page:
        pass
    hub.clock.now_ms -= 3_600_000
    async with running(hub, WebConfig()) as inbox:
        assert inbox.url() == page.url
        assert await state_status(page.url, page.cookie, page.key) == 401


@pytest.mark.asyncio
async def test_a_real_restart_keeps_the_browser_signed_in(home: Home) -> None:
    # A port of its own: the usual one may be anybody's while the hub is away.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home.write_config(f"[web]\nport = {port}\n")
    url, cookie, key = await signed_in(home)
    await asyncio.to_thread(home.run, "hub", "restart")
    # It returns once the inbox's address is known again.
    await asyncio.to_thread(home.run, "hub", "start")
    assert await state_status(url, cookie, key) == 200


# -- floods -----------------------------------------------------------------------------------


async def _silent(port: int, count: int, data: bytes = b"") -> list[asyncio.StreamWriter]:
    opened = []
    for _ in range(count):
        with contextlib.suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            opened.append(writer)
    return opened


def _slow_post(port: int) -> bytes:
    return (
        f"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Origin: http://127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Content-Length: 1000\r\n\r\n{"
    ).encode()


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["silent", "half a header", "half a body"])
async def test_connections_that_bring_nothing_shut_nobody_out(kind: str) -> None:
    hub = FakeHub()
    hub.raise_ask()
    async with running(hub) as inbox, client_of(inbox) as page, page.live() as ws:
        await ws.send_json({"key": page.key})
        port = int(page.origin.rpartition(":")[2])
        data = {
            "silent": b"",
            "half a header": b"GET / HTTP/1.1\r\nX: ",
            "half a body": _slow_post(port),
        }[kind]
        opened = await _silent(port, 3 * MAX_CONNECTIONS, data)
        async with asyncio.timeout(10), client_of(inbox, signed_in=False) as late:
            late.cookie, late.key = page.cookie, page.key
            # The silent ones may still be coming in: then it is the one that has shown least.
            statuses: list[int] = []
            while not statuses:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    statuses.append((await late.get("/api/state")).status)
            assert statuses == [200]
        # The page that was open stays open.
        ask = hub.raise_ask("still live?")
        async with asyncio.timeout(10):
            while not any(a["id"] == ask.id for a in (await ws.receive_json())["asks"]):
                pass
        for writer in opened:
            writer.transport.abort()


@pytest.mark.asyncio
async def test_pages_are_bounded() -> None:
    async with (
        running(FakeHub()) as inbox,
        client_of(inbox) as page,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(MAX_LIVE):
            ws = await stack.enter_async_context(page.live())
            await ws.send_json({"key": page.key})
            await ws.receive_json()
        one_more = await stack.enter_async_context(page.live())
        await one_more.send_json({"key": page.key})
        await one_more.receive()
        assert one_more.close_code == CLOSE_TOO_MANY
        assert (await page.get("/api/state")).status == 200


@pytest.mark.asyncio
async def test_a_cookie_without_its_key_keeps_no_page_out() -> None:
    async with (
        running(FakeHub()) as inbox,
        client_of(inbox) as page,
        contextlib.AsyncExitStack() as stack,
    ):
        first = await stack.enter_async_context(page.live())
        async with asyncio.TaskGroup() as tasks:
            # Whoever does not listen for the end is cut off soon after it.
            tasks.create_task(first.receive())
            for _ in range(MAX_UNPROVEN + MAX_LIVE):
                await stack.enter_async_context(page.live())
        assert first.close_code == CLOSE_TOO_MANY
        ws = await stack.enter_async_context(page.live())
        await ws.send_json({"key": page.key})
        assert "asks" in await ws.receive_json()


@pytest.mark.asyncio
async def test_a_live_connection_without_its_first_message_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "FIRST_MESSAGE_S", 0.05)
    async with running(FakeHub()) as inbox, client_of(inbox) as page, page.live() as ws:
        message: Any = await ws.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
