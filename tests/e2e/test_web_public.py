"""The inbox under a public name, through a forwarder as a tunnel has one; and on a phone."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
import segno

from conftest import Home
from fakes.pty_screen import PtyScreen
from fakes.web_client import PageClient, running
from fakes.web_hub import FakeHub
from upcall.cli import phone
from upcall_adapters.web.adapter import WebInbox
from upcall_adapters.web.config import WebConfig

PUBLIC = "https://inbox.example"

# Ends https somewhere before it, as a tunnel does, and passes bytes on; it runs as *uid*.
FORWARDER = """
import asyncio, concurrent.futures.thread, os, sys
target, uid = int(sys.argv[1]), int(sys.argv[2])

async def pipe(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()

async def serve(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", target)
    await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    if uid != os.getuid():
        os.setgroups([]); os.setgid(uid); os.setuid(uid)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)

asyncio.run(main())
"""


class PublicPage(PageClient):
    """A page under the public name; its browser reaches us through the forwarder."""

    @property
    def cookie_name(self) -> str:
        return f"__Host-upcall_{self.inbox_port}"

    inbox_port = 0

    def headers(self, *, cookie: bool = True, key: bool = True) -> dict[str, str]:
        return {
            **super().headers(cookie=cookie, key=key),
            "Host": PUBLIC.removeprefix("https://"),
            "Origin": PUBLIC,
            "Sec-Fetch-Site": "same-origin",
            "X-Forwarded-For": "203.0.113.9",
            "X-Forwarded-Host": "evil.example",
            "X-Forwarded-Proto": "http",
        }


@asynccontextmanager
async def through_a_forwarder(
    inbox: WebInbox, uid: int | None = None
) -> AsyncIterator[PublicPage]:
    url = inbox.url()
    assert url is not None
    port = url.rstrip("/").rpartition(":")[2]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORWARDER, port, str(os.getuid() if uid is None else uid),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
    )  # fmt: skip
    assert child.stdout is not None
    try:
        there = int(await child.stdout.readline())
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(cookie_jar=jar, trust_env=False) as http:
            page = PublicPage(http, f"http://127.0.0.1:{there}/")
            page.inbox_port = int(port)
            yield page
    finally:
        await child.communicate(b"")


@pytest.mark.asyncio
async def test_everything_works_under_the_public_name() -> None:
    hub = FakeHub()
    ask = hub.raise_ask()
    config = WebConfig(port=0, public_url=PUBLIC)
    async with running(hub, config) as inbox, through_a_forwarder(inbox) as page:
        assert (await page.get("/")).status == 200
        link = str((await inbox.sign_in("link", None))["public_url"])
        assert link.startswith(f"{PUBLIC}/#login=")
        got = await page.post("/api/login", {"code": link.partition("#login=")[2]})
        assert got.status == 200
        cookie = got.headers["Set-Cookie"]
        assert cookie.startswith("__Host-upcall_")
        for word in ("Secure", "HttpOnly", "SameSite=Strict", "Path=/"):
            assert word in cookie
        assert "Domain" not in cookie
        page.keep_login(got)
        async with page.live() as ws:
            await ws.send_json({"key": page.key})
            assert (await ws.receive_json())["asks"][0]["id"] == ask.id
        (login,) = (await inbox.sign_in("list", None))["logins"]
        assert login["where"] == f"through {PUBLIC}"
        answer = {"ask": ask.id, "revision": ask.revision, "key": "0" * 16, "indices": [0]}
        assert (await page.post("/api/answer", answer)).status == 200
        assert (await page.get("/api/state", headers=page.headers(key=False))).status == 401
        for change in (
            {"Origin": "http://inbox.example"}, {"Origin": "https://evil.example"},
            {"Host": "evil.example"}, {"Host": "inbox.example:8080"},
            {"Origin": f"http://127.0.0.1:{page.inbox_port}"}, {"Sec-Fetch-Site": "cross-site"},
        ):  # fmt: skip
            got = await page.post("/api/answer", answer, headers={**page.headers(), **change})
            assert got.status == 403, change
        out = await page.post("/api/logout", {})
        assert "Secure" in out.headers["Set-Cookie"]
        assert (await page.get("/api/state")).status == 401


@pytest.mark.asyncio
async def test_a_login_of_one_address_is_none_at_the_other() -> None:
    config = WebConfig(port=0, public_url=PUBLIC)
    async with running(FakeHub(), config) as inbox, through_a_forwarder(inbox) as page:
        code = str((await inbox.sign_in("link", None))["public_url"]).partition("=")[2]
        page.keep_login(await page.post("/api/login", {"code": code}))
        url = inbox.url()
        assert url is not None
        local = PageClient(page.http, url, cookie=page.cookie, key=page.key)
        headers = {**local.headers(), "Cookie": f"{page.cookie_name}={page.cookie}"}
        assert (await local.get("/api/state", headers=headers)).status == 401


@pytest.mark.asyncio
@pytest.mark.foreign_uid
@pytest.mark.skipif(
    os.getuid() != 0 or not sys.platform.startswith("linux"),
    reason="starting a child as another user needs root on Linux",
)
@pytest.mark.parametrize(("other_users", "status"), [(False, 403), (True, 200)])
async def test_a_tunnel_of_another_user_has_to_be_allowed(
    other_users: bool, status: int
) -> None:
    config = WebConfig(port=0, public_url=PUBLIC, other_users=other_users)
    async with running(FakeHub(), config) as inbox, through_a_forwarder(inbox, 65534) as page:
        got = await page.get("/")
        assert got.status == status
        if status == 403:
            assert "other_users = true" in got.json["error"]["recover"]


# -- upcall inbox --phone ---------------------------------------------------------------------


def test_without_a_public_address_the_ways_are_said_and_no_code_is_drawn(home: Home) -> None:
    with PtyScreen(home.argv("inbox", "--phone"), home.env, rows=40) as screen:
        assert screen.finish() == 0
        shown = screen.text()
    for words in (
        "public_url = ", "https", "other_users = true", "Telegram", "Plain http",
        str(home.config), "upcall hub restart",
    ):  # fmt: skip
        assert words in re.sub(r"\s+", " ", shown) or words in shown.replace("\n", "")
    assert "#login=" not in shown
    assert not set("▀▄█") & set(shown)
    assert json.loads(home.run("inbox", "--phone", "--json").stdout)["url"] is None


@pytest.mark.parametrize("url", ["http://192.168.0.7:8737", "http://inbox.example"])
def test_plain_http_beyond_this_computer_is_refused_with_the_reason(
    home: Home, url: str
) -> None:
    home.write_config(f'[web]\npublic_url = "{url}"\n')
    done = home.run("config", "check")
    assert done.returncode != 0
    assert "https://" in done.stdout + done.stderr
    assert "read the login" in " ".join((done.stdout + done.stderr).split())


def test_a_public_address_is_drawn_for_the_phone_and_lets_one_in(home: Home) -> None:
    home.write_config(f'[web]\npublic_url = "{PUBLIC}"\n')
    env = {**home.env, "LANG": "C.UTF-8"}
    with PtyScreen(home.argv("inbox", "--phone"), env, rows=50) as screen:
        said = re.compile(rf"{re.escape(PUBLIC)}/#login=[0-9a-z]{{26}}")
        shown = screen.wait_for(lambda text: said.search(text) is not None)
        found = said.search(shown)
        assert found is not None
        link = found.group()
        wanted = phone.qr_lines(link, {"TERM": "xterm"}, 80)
        bare = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in wanted]
        code = "\n".join(line for line in bare if line)
        shown = screen.wait_for(code)
        assert "Enter ends this" in shown
        assert "other_users" in shown
        screen.type("\n")
        assert screen.finish() == 0
    code = json.loads(home.run("inbox", "--phone", "--json").stdout)
    assert code["url"].startswith(f"{PUBLIC}/#login=")
    piped = home.run("inbox", "--phone")
    assert piped.stdout.startswith(f"{PUBLIC}/#login=")
    assert not set("▀▄█\x1b") & set(piped.stdout)


def test_the_drawn_code_is_the_code() -> None:
    link = f"{PUBLIC}/#login=" + "q" * 26
    lines = phone.qr_lines(link, {"TERM": "xterm"}, 80)
    rows: list[list[int]] = []
    for line in lines:
        cells = re.sub(r"\x1b\[[0-9;]*m", "", line)
        pairs = [" ▀▄█".index(cell) for cell in cells]
        rows += [[pair & 1 for pair in pairs], [pair >> 1 for pair in pairs]]
    matrix = [
        list(row) for row in segno.make(link, error="m", micro=False).matrix_iter(border=2)
    ]
    assert rows[: len(matrix)] == matrix
    assert all(line.startswith("\x1b[") and line.endswith("\x1b[0m") for line in lines)


@pytest.mark.parametrize(
    ("url", "environ", "columns"),
    [
        (PUBLIC, {"TERM": "dumb"}, 80),
        (PUBLIC, {}, 80),
        (PUBLIC, {"TERM": "xterm", "LC_ALL": "C"}, 80),
        (PUBLIC, {"TERM": "xterm"}, 20),
        ("http://127.0.0.1:8737/", {"TERM": "xterm"}, 80),
        ("https://localhost:8443/", {"TERM": "xterm"}, 80),
        ("https://[::1]/", {"TERM": "xterm"}, 80),
    ],
)
def test_no_code_is_drawn_where_it_is_useless_or_unreadable(
    url: str, environ: dict[str, str], columns: int
) -> None:
    assert phone.qr_lines(url, environ, columns) == []
