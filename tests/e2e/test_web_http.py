"""The inbox over real HTTP on loopback, with a hub in memory."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from fakes.web_client import PageClient, client_of, running
from fakes.web_hub import SESSION, FakeHub
from upcall.model.ask import AnsweredBy, Selection
from upcall.model.errors import HubError, UsageError
from upcall.model.platform import Answered, Body, DeliveryKey, Place, Ref, SettingKept, Texted
from upcall.model.views import NoticeView
from upcall_adapters.web.adapter import WebInbox
from upcall_adapters.web.config import WebConfig

PLACE = Place("web", "inbox")
KEY = "0123456789abcdef"


@asynccontextmanager
async def inbox_and_page(
    hub: FakeHub, config: WebConfig | None = None, **seams: Any
) -> AsyncIterator[tuple[WebInbox, PageClient]]:
    async with running(hub, config, **seams) as inbox, client_of(inbox) as page:
        yield inbox, page


# -- answering


@pytest.mark.asyncio
async def test_an_answer_by_index_reaches_the_hub_bound_to_key_and_revision() -> None:
    hub = FakeHub()
    ask = hub.raise_ask()
    async with inbox_and_page(hub) as (_, page):
        state = (await page.get("/api/state")).json
        shown = state["asks"][0]
        assert [option["shown"] for option in shown["options"]] == ["Yes", "No"]
        answer = {"ask": ask.id, "revision": shown["revision"], "key": KEY, "indices": [1]}
        got = await page.post("/api/answer", answer)
        again = await page.post("/api/answer", answer)
        after = (await page.get("/api/state")).json
        closed = (await page.get(f"/api/ask/{ask.id}")).json
    assert got.status == again.status == 200
    assert got.json["result"]["answer"]["labels"] == ["No"]
    assert got.json["result"]["answered_by"] == {"name": "sam", "channel": "web"}
    assert again.json == got.json
    assert after["asks"] == []
    assert closed["outcome"] == "answered"
    first, second = (event for event in hub.events if isinstance(event, Answered))
    assert first == second
    assert first.who.identity == "sam"
    assert first.indices == (1,)
    assert first.key.endswith(":" + KEY)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("act", "field", "value"),
    [
        ({"text": "tomorrow"}, "text", "tomorrow"),
        ({"decline": True}, "decline", True),
        ({"hold": True}, "hold", True),
        ({"hold": False}, "hold", False),
        ({"indices": [0, 1]}, "indices", (0, 1)),
        ({"withdraw": True}, "withdraw", True),
    ],
)
async def test_every_kind_of_answer_arrives_as_it_was_given(
    act: dict[str, Any], field: str, value: object
) -> None:
    hub = FakeHub()
    ask = hub.raise_ask()
    async with inbox_and_page(hub) as (_, page):
        body = {"ask": ask.id, "revision": ask.revision, "key": KEY, **act}
        got = await page.post("/api/answer", body)
    assert got.status == 200
    (event,) = [event for event in hub.events if isinstance(event, Answered)]
    assert getattr(event, field) == value


@pytest.mark.asyncio
async def test_a_refused_answer_says_why_and_how_the_ask_stands() -> None:
    hub = FakeHub()
    ask = hub.raise_ask()
    async with inbox_and_page(hub) as (_, page):
        base = {"ask": ask.id, "indices": [0]}
        stale = await page.post("/api/answer", {**base, "revision": "old", "key": KEY})
        await page.post("/api/answer", {**base, "revision": ask.revision, "key": KEY + "1"})
        late = await page.post(
            "/api/answer", {**base, "revision": ask.revision, "key": KEY + "2"}
        )
    assert (stale.status, stale.json["code"]) == (409, "stale_card")
    assert (late.status, late.json["code"]) == (409, "already_answered")
    assert late.json["result"]["answer"]["labels"] == ["Yes"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, "invalid_answer"),
        ({"indices": [0], "text": "x"}, "invalid_answer"),
        ({"indices": [0], "decline": True}, "invalid_answer"),
        ({"indices": []}, "invalid_answer"),
        ({"indices": [0, 0]}, "invalid_answer"),
        ({"indices": [-1]}, "invalid_answer"),
        ({"indices": [100]}, "invalid_answer"),
        ({"indices": [1.5]}, "invalid_body"),
        ({"indices": ["Yes"]}, "invalid_body"),
        ({"text": "  \n"}, "invalid_answer"),
        ({"text": "a\0b"}, "invalid_answer"),
        ({"text": "x", "key": "short"}, "invalid_key"),
        ({"text": "x", "key": "\x07" * 10}, "invalid_key"),
        ({"text": "x", "bogus": 1}, "invalid_body"),
        ({"text": "x", "revision": None}, "invalid_body"),
    ],
)
async def test_a_bad_answer_is_named_and_reaches_nobody(
    change: dict[str, Any], code: str
) -> None:
    hub = FakeHub()
    ask = hub.raise_ask()
    async with inbox_and_page(hub) as (_, page):
        body = {"ask": ask.id, "revision": ask.revision, "key": KEY, **change}
        got = await page.post("/api/answer", body)
    assert (got.status, got.json["error"]["code"]) == (400, code)
    assert not any(isinstance(event, Answered) for event in hub.events)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"ask":"\xff"}',
        b"[" * 5000,
        b'{"x":' + b"[" * 9999 + b"]" * 9999 + b"}",
    ],
)
async def test_a_body_that_is_no_answer_is_a_400(data: bytes) -> None:
    async with inbox_and_page(FakeHub()) as (_, page):
        headers = {**page.headers(), "Content-Type": "application/json"}
        got = await page.call("POST", "/api/answer", headers=headers, data=data)
    assert (got.status, got.json["error"]["code"]) == (400, "invalid_body")


@pytest.mark.asyncio
async def test_a_body_over_64_kib_is_refused() -> None:
    hub = FakeHub()
    ask = hub.raise_ask()
    async with inbox_and_page(hub) as (_, page):
        body = {"ask": ask.id, "revision": ask.revision, "key": KEY, "text": "x" * 66_000}
        got = await page.post("/api/answer", body)
    assert (got.status, got.json["error"]["code"]) == (413, "body_too_large")
    assert not any(isinstance(event, Answered) for event in hub.events)


@pytest.mark.asyncio
async def test_a_message_goes_to_its_session() -> None:
    hub = FakeHub()
    async with inbox_and_page(hub) as (_, page):
        body = {"session": SESSION.session_id, "text": "look at the log", "key": KEY}
        got = await page.post("/api/message", body)
        bad = await page.post("/api/message", {**body, "session": "../x"})
    assert (got.status, got.json["ok"]) == (200, True)
    assert (bad.status, bad.json["error"]["code"]) == (400, "unknown_session")
    (event,) = [event for event in hub.events if isinstance(event, Texted)]
    assert (event.session_id, event.text) == (SESSION.session_id, "look at the log")


# -- reading


@pytest.mark.asyncio
async def test_history_pages_backwards() -> None:
    hub = FakeHub()
    for number in range(5):
        hub.clock.advance(10)
        ask = hub.raise_ask(f"Question {number}?")
        hub.close_ask(ask.id, "answered", Selection((0,), ("Yes",)), AnsweredBy("sam", "web"))
    async with inbox_and_page(hub) as (_, page):
        first = (await page.get("/api/history?limit=2")).json["asks"]
        before = first[-1]["closed_ms"]
        rest = (await page.get(f"/api/history?before={before}&limit=10")).json["asks"]
        bad = await page.get("/api/history?limit=-1")
    assert [ask["question"][9] for ask in first + rest] == ["4", "3", "2", "1", "0"]
    assert (bad.status, bad.json["error"]["code"]) == (400, "invalid_query")


@pytest.mark.asyncio
async def test_an_image_is_named_by_its_bytes() -> None:
    hub = FakeHub()
    hub.files["f1"] = ("x.html", "text/html", b"\x89PNG\r\n\x1a\n...")
    async with inbox_and_page(hub) as (_, page):
        got = await page.get("/api/file/f1")
    assert got.headers["X-Upcall-Image"] == "image/png"
    assert got.headers["Content-Type"] == "application/octet-stream"


# -- live


@pytest.mark.asyncio
async def test_a_live_page_gets_every_change_and_is_counted() -> None:
    hub = FakeHub()
    async with inbox_and_page(hub) as (inbox, page), page.live() as ws:
        await ws.send_json({"key": page.key})
        assert (await ws.receive_json())["asks"] == []
        assert hub.states[-1].audience == 1
        ask = hub.raise_ask()
        while not (state := await ws.receive_json())["asks"]:
            pass
        assert state["asks"][0]["id"] == ask.id
        await ws.send_json({"read": 7})
        last = state
        while "read" not in (state := await ws.receive_json()):
            last = state
        assert state == {"read": 7}
        assert last["asks"][0]["id"] == ask.id
        ref = await inbox.post(PLACE, Body(b"{}"), DeliveryKey("k", 1))
        assert "asks" in await ws.receive_json()
        await inbox.edit(ref, Body(b"{}"))
        assert "asks" in await ws.receive_json()
    async with asyncio.timeout(5):
        while hub.states[-1].audience:
            await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_posting_succeeds_while_nobody_looks() -> None:
    async with running(FakeHub()) as inbox:
        assert await inbox.post(PLACE, Body(b"{}"), DeliveryKey("k", 1)) == Ref("web:k")
        await inbox.edit(Ref("web:k"), Body(b"{}"))


async def _until_shown(ws: aiohttp.ClientWebSocketResponse, ask_id: str) -> int:
    """Read states until one shows *ask_id*; return how many were read."""
    count = 1
    while not any(ask["id"] == ask_id for ask in (await ws.receive_json())["asks"]):
        count += 1
    return count


@pytest.mark.asyncio
async def test_a_page_that_stops_reading_delays_nobody_and_gets_the_newest() -> None:
    hub = FakeHub()
    for _ in range(20):
        hub.raise_ask(detail="x" * 8000)
    rounds = 100  # of 160 kB: far more than the kernel takes for a page that does not read
    async with inbox_and_page(hub) as (_, page), page.live() as slow, page.live() as fast:
        await slow.send_json({"key": page.key})
        await fast.send_json({"key": page.key})
        transport = slow.get_extra_info("socket") and slow._response.connection.transport
        transport.pause_reading()
        for _ in range(rounds):
            ask = hub.raise_ask("one more")
            await _until_shown(fast, ask.id)
            hub.close_ask(ask.id, "cancelled")
        last = hub.raise_ask("last")
        await _until_shown(fast, last.id)
        transport.resume_reading()
        assert await _until_shown(slow, last.id) < rounds


@pytest.mark.asyncio
@pytest.mark.parametrize("first", ['{"key": "wrong"}', "{}", "nonsense", '{"key": 1}'])
async def test_a_live_connection_without_the_key_is_closed(first: str) -> None:
    hub = FakeHub()
    hub.raise_ask()
    async with inbox_and_page(hub) as (_, page), page.live() as ws:
        await ws.send_str(first)
        message = await ws.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert ws.close_code == 4401
    assert all(state.audience == 0 for state in hub.states)


@pytest.mark.asyncio
async def test_signing_out_everywhere_closes_open_pages_and_ends_their_rights() -> None:
    hub = FakeHub()
    async with inbox_and_page(hub) as (inbox, page), page.live() as ws:
        await ws.send_json({"key": page.key})
        await ws.receive_json()
        (row,) = (await inbox.sign_in("list", None))["logins"]
        assert row["pages"] == 1
        assert await inbox.sign_in("sign_out_all", None) == {"signed_out": 1}
        while (message := await ws.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert ws.close_code == 4401
        assert (await page.get("/api/state")).status == 401


@pytest.mark.asyncio
async def test_signing_out_ends_this_login_alone() -> None:
    async with inbox_and_page(FakeHub()) as (inbox, page), client_of(inbox) as other:
        assert (await page.post("/api/logout", {})).status == 200
        assert (await page.get("/api/state")).status == 401
        assert (await other.get("/api/state")).status == 200


# -- signing in


@pytest.mark.asyncio
async def test_the_link_carries_its_code_in_the_fragment_and_getting_it_uses_nothing() -> None:
    hub = FakeHub()
    async with running(hub) as inbox, client_of(inbox, signed_in=False) as page:
        link = (await inbox.sign_in("link", None))["url"]
        base, _, code = link.partition("#login=")
        assert base == inbox.url()
        before = len(hub.events)
        for _ in range(10):
            assert (await page.get("/")).status == 200
        assert len(hub.events) == before
        got = await page.post("/api/login", {"code": code})
        assert got.status == 200
        cookie = got.headers["Set-Cookie"]
        assert cookie.startswith(page.cookie_name + "=")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Secure" not in cookie
        again = await page.post("/api/login", {"code": code})
        assert (again.status, again.json["error"]["code"]) == (403, "code_used")
        assert "Set-Cookie" not in again.headers


@pytest.mark.asyncio
async def test_a_browser_is_let_in_from_the_terminal() -> None:
    async with running(FakeHub()) as inbox, client_of(inbox, signed_in=False) as page:
        asked = (await page.post("/api/browser", {})).json
        (waiting,) = (await inbox.sign_in("browsers", None))["waiting"]
        assert waiting["code"] == asked["code"]
        async with asyncio.TaskGroup() as tasks:
            wait = tasks.create_task(page.post("/api/browser/wait", {"poll": asked["poll"]}))
            await inbox.sign_in("approve", asked["code"])
        got = wait.result()
        assert got.json["state"] == "in"
        page.keep_login(got)
        assert (await page.get("/api/state")).status == 200
        again = await page.post("/api/browser/wait", {"poll": asked["poll"]})
        assert again.status == 410


@pytest.mark.asyncio
async def test_knowing_the_four_characters_is_not_enough() -> None:
    async with running(FakeHub()) as inbox, client_of(inbox, signed_in=False) as page:
        asked = (await page.post("/api/browser", {})).json
        await inbox.sign_in("approve", asked["code"])
        got = await page.post("/api/browser/wait", {"poll": asked["code"]})
        assert got.status == 410
        assert "Set-Cookie" not in got.headers


@pytest.mark.asyncio
async def test_unknown_login_steps_are_refused() -> None:
    hub = FakeHub()
    with pytest.raises(HubError):
        await WebInbox(WebConfig(port=0), hub.seams()).sign_in("link", None)
    async with running(hub) as inbox:
        for action, browser in (("dance", None), ("approve", None), ("approve", "0000")):
            with pytest.raises(UsageError):
                await inbox.sign_in(action, browser)


@pytest.mark.asyncio
async def test_a_port_held_by_somebody_else_ends_all_logins_and_is_told() -> None:
    hub = FakeHub()
    async with inbox_and_page(hub, WebConfig()) as (_, page):
        port = int(page.cookie_name.partition("_")[2])
    with socket.create_server(("127.0.0.1", port)):
        async with running(hub, WebConfig()) as inbox:
            assert inbox.url() != page.url
            async with client_of(inbox, signed_in=False) as later:
                later.cookie, later.key = page.cookie, page.key
                assert (await later.get("/api/state")).status == 401
            (finding,) = await inbox.check()
            assert finding.code == "web_port_moved"
            assert str(port) in finding.msg
            assert hub.states[-1].reason == finding.msg
    assert hub.kept["port"] != str(port)


@pytest.mark.asyncio
async def test_a_configured_port_that_is_taken_is_waited_for() -> None:
    hub = FakeHub()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        inbox = WebInbox(WebConfig(port=port), hub.seams())
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(inbox.run(hub))
            await hub.clock.slept.wait()
            assert inbox.url() is None
            (finding,) = await inbox.check()
            assert (finding.level, finding.code) == ("error", "web_port_taken")
            assert not hub.states[-1].hearing
            other.close()
            hub.clock.advance(5)
            async with asyncio.timeout(5):
                while inbox.url() is None:
                    await asyncio.sleep(0)
            assert inbox.url() == f"http://127.0.0.1:{port}/"
            assert hub.states[-1].hearing
            assert hub.states[-1].reason is None
            task.cancel()
    assert not any(isinstance(event, SettingKept) for event in hub.events)


# -- who is kept out


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": None}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
async def test_another_page_can_not_answer_even_with_cookie_and_key(
    change: dict[str, str | None], status: int
) -> None:
    hub = FakeHub()
    ask = hub.raise_ask()
    body = {"ask": ask.id, "revision": ask.revision, "key": KEY, "indices": [0]}
    async with inbox_and_page(hub) as (_, page):
        wanted = {**page.headers(), "Content-Type": "application/json", **change}
        headers = {name: value for name, value in wanted.items() if value is not None}
        got = await page.call(
            "POST", "/api/answer", headers=headers, data=json.dumps(body).encode()
        )
        assert got.status == status
        if status == 403 and "Sec-Fetch-Site" not in change:
            headers.pop("X-Upcall-Key")
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await page.live(headers=headers)
            assert refused.value.status == 403
    assert not any(isinstance(event, Answered) for event in hub.events)


# -- health


@pytest.mark.asyncio
async def test_health_says_ok_or_not_and_nothing_else() -> None:
    hub = FakeHub()
    async with running(hub) as inbox, client_of(inbox, signed_in=False) as page:
        assert (await page.get("/healthz", headers={})).body == b"ok\n"
        assert (await page.get("/readyz", headers={})).body == b"ok\n"
        hub.ready = False
        got = await page.get("/readyz", headers={})
        assert (got.status, got.body) == (503, b"not ok\n")
        assert (await page.get("/readyz", headers={"Host": "evil.example"})).status == 403
        assert (await page.get("/metrics", headers={})).status == 404


@pytest.mark.asyncio
async def test_metrics_need_their_token_and_name_nobody() -> None:
    hub = FakeHub()
    hub.raise_ask("secret question")
    async with (
        running(hub, secrets={"metrics_token": "t0ken"}) as inbox,
        client_of(inbox, signed_in=False) as page,
    ):
        assert (await page.get("/metrics", headers={})).status == 401
        wrong = {"Authorization": "Bearer t0kex"}
        assert (await page.get("/metrics", headers=wrong)).status == 401
        got = await page.get("/metrics", headers={"Authorization": "Bearer t0ken"})
    assert got.status == 200
    text = got.body.decode()
    assert "upcall_open_asks 1\n" in text
    assert not any(word in text for word in ("secret", "shop", "release", "laptop"))


# -- loading


def test_the_http_library_is_loaded_by_the_first_connection_only() -> None:
    code = """
import asyncio, socket, sys
from fakes.web_hub import FakeHub
from upcall_adapters.web import SPEC
from upcall_adapters.web.config import WebConfig

async def main():
    hub = FakeHub()
    inbox = SPEC.open(WebConfig(port=0), hub.seams())
    task = asyncio.create_task(inbox.run(hub))
    while inbox.url() is None:
        await asyncio.sleep(0)
    assert "aiohttp" not in sys.modules
    port = int(inbox.url().rstrip("/").rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /healthz HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n".encode())
    line = await reader.readline()
    assert b"200" in line, line
    assert "aiohttp" in sys.modules
    writer.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

asyncio.run(main())
"""
    env = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=30)


@pytest.mark.asyncio
async def test_two_hundred_asks_fit_and_the_rest_is_counted() -> None:
    hub = FakeHub()
    for number in range(203):
        hub.raise_ask(f"Question {number}?")
    hub.notice_list = [
        NoticeView(number, SESSION.session_id, "notify", "x" * 20_000, number)
        for number in range(60)
    ]
    hub.session_list = [msgspec.structs.replace(SESSION, session_id=f"s{n}") for n in range(3)]
    async with inbox_and_page(hub) as (_, page):
        state = (await page.get("/api/state")).json
    assert (len(state["asks"]), state["more_asks"]) == (200, 3)
    assert state["notices"][0]["id"] == 59
    assert state["notices"][0]["hidden"] > 0
    assert len(state["sessions"]) == 3
