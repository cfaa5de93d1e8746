"""Our client: against our endpoint, and against a stock server in the peers' manner."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from upcall.client import (
    Connection,
    ConnectionEnded,
    ReplyRejectedError,
    SessionClient,
    open_connection,
)
from upcall.model.errors import TransportError, UpcallError
from upcall.model.frames import (
    Choice,
    Frame,
    Hello,
    Ping,
    Pong,
    SessionClosed,
    SessionReady,
    Unknown,
    UserMessage,
)
from wire.rig import SESSION, TOKEN, eventually, host

READY = SessionReady(session_id=SESSION)


@pytest.mark.asyncio
async def test_knows_every_open_ask_once_connected() -> None:
    async with host(ready=READY) as made:
        asked = [made.ask("Yes", "No") for _ in range(3)]
        async with made.client() as client:
            assert [ask.id for ask in client.asks()] == asked
            resolved = await client.reply(asked[1], "Yes", key="k")
            assert resolved.how == "answered"
            assert (await client.reply(asked[1], "Yes", key="k")) == resolved
            assert [ask.id for ask in client.asks()] == [asked[0], asked[2]]


@pytest.mark.asyncio
async def test_only_one_of_two_clients_wins_even_with_the_same_answer() -> None:
    async with host() as made, made.client() as one, made.client() as two:
        action = made.ask("Yes", "No")
        results = await asyncio.gather(
            one.reply(action, "Yes", key="one"),
            two.reply(action, "Yes", key="two"),
            return_exceptions=True,
        )
        lost = [result for result in results if isinstance(result, Exception)]
        assert len(lost) == 1
        assert isinstance(lost[0], ReplyRejectedError)
        assert lost[0].code == "already_answered"


@pytest.mark.asyncio
async def test_raises_the_reason_of_a_rejection() -> None:
    async with host() as made, made.client() as client:
        action = made.ask("Yes", "No")
        for answer in (7, "maybe", Choice(control_id="x"), Choice(selected=(0, 1))):
            with pytest.raises(ReplyRejectedError) as rejected:
                await client.reply(action, answer)
            assert rejected.value.code == "invalid_answer"
        with pytest.raises(ReplyRejectedError, match="unknown_action"):
            await client.reply("ask:none", 0)


@pytest.mark.asyncio
async def test_declines_and_holds() -> None:
    async with host() as made, made.client() as client:
        action = made.ask("Yes", deadline_at_ms=made.now_ms + 1000)
        await client.ping()
        assert (await client.hold(action)).held
        assert (await client.hold(action, False)).deadline_at == made.now_ms + 1000
        assert (await client.decline(action)).how == "declined"
        with pytest.raises(UpcallError, match="no such open ask"):
            await client.hold(action)


@pytest.mark.asyncio
async def test_sends_messages() -> None:
    async with host(ready=READY) as made, made.client() as client:
        await client.message("also fix the docs", update_id=5)
        await client.ping()
        [message] = made.messages
        assert (message.session_id, message.text, message.update_id) == (
            SESSION,
            "also fix the docs",
            5,
        )


@pytest.mark.asyncio
async def test_iterates_over_frames_until_the_session_ends() -> None:
    async with host(ready=READY) as made, made.client() as client:
        made.endpoint.broadcast(SessionClosed(session_id=SESSION))
        await made.endpoint.close()
        seen: list[Frame | Unknown] = []
        with pytest.raises(ConnectionEnded) as ended:
            await collect(client, seen)
        assert ended.value.close_code == 1001
        assert [type(frame) for frame in seen] == [Hello, SessionReady, Pong, SessionClosed]
        assert client.session_closed


@pytest.mark.asyncio
async def test_refuses_to_send_what_the_session_would_refuse() -> None:
    async with host() as made, made.client() as client:
        with pytest.raises(UpcallError) as refused:
            await client.message("x" * 300_000)
        assert refused.value.code == "oversized_frame"
        await client.ping()


async def collect(client: SessionClient, seen: list[Frame | Unknown]) -> None:
    async for frame in client:
        seen.append(frame)  # noqa: PERF401 - what came before the end is wanted too


# --- A stock server ------------------------------------------------------------------------

Script = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def peer(script: Script) -> AsyncIterator[str]:
    async with serve(script, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/"


async def say(socket: ServerConnection, **frame: Any) -> None:
    await socket.send(json.dumps(frame))


async def hear(socket: ServerConnection) -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(await socket.recv())
    return frame


@pytest.mark.asyncio
async def test_works_with_a_peer_that_has_none_of_our_additions() -> None:
    async def script(socket: ServerConnection) -> None:
        assert socket.request is not None
        assert socket.request.path == f"/?token={TOKEN}"
        assert socket.request.headers["Authorization"] == f"Bearer {TOKEN}"
        await say(socket, type="hello", protocolVersion=3, capabilities=["client_ping_pong"])
        await say(socket, type="brand_new", x=1)
        await socket.send("not JSON")
        await say(
            socket,
            type="action_needed",
            id="ask:a",
            kind="ask",
            sessionId="p",
            question="?",
            options=["Yes"],
            recommendedIndex=None,
        )
        assert (await hear(socket))["type"] == "hello"
        ping = await hear(socket)
        await say(socket, type="pong", nonce=ping["nonce"])
        await say(socket, type="action_needed", id="ask:b", kind="ask", sessionId="p")
        reply = await hear(socket)
        assert reply == {"type": "reply", "id": "ask:b", "answer": "x", "token": TOKEN}
        await say(socket, type="action_resolved", id="ask:b", resolvedBy="client", answer="x")
        ping = await hear(socket)
        await say(socket, type="pong", nonce=ping["nonce"])
        await socket.wait_closed()

    async with peer(script) as url, SessionClient.connect(url, TOKEN) as client:
        frames = aiter(client)
        while True:
            frame = await anext(frames)
            if getattr(frame, "id", None) == "ask:b":
                break
        # Such a session has one ask at a time.
        assert [ask.id for ask in client.asks()] == ["ask:b"]
        assert (await client.reply("ask:b", "x")).how == "answered"
        with pytest.raises(UpcallError, match="knows no decline"):
            await client.decline("ask:b")


@pytest.mark.asyncio
async def test_says_when_it_cannot_know_whether_a_reply_arrived() -> None:
    async def script(socket: ServerConnection) -> None:
        await say(socket, type="hello", protocolVersion=3, capabilities=[])
        await hear(socket)
        await hear(socket)
        socket.transport.abort()

    async with peer(script) as url, SessionClient.connect(url, TOKEN) as client:
        with pytest.raises(TransportError) as failed:
            await client.reply("ask:a", 0)
        assert failed.value.code == "uncertain_after_send"
        with pytest.raises(ConnectionEnded) as ended:
            await client.message("x")
        assert ended.value.close_code == 1006


@pytest.mark.asyncio
async def test_a_server_that_says_nothing_is_a_time_out() -> None:
    async def script(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with peer(script) as url:
        with pytest.raises(TransportError) as failed:
            async with SessionClient.connect(url, TOKEN, timeout_s=0.05):
                pass
    assert failed.value.code == "connection_timeout"


@pytest.mark.asyncio
async def test_ignores_proxies_and_can_keep_the_token_out_of_the_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy", "WS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with host() as made:
        frames: list[Frame | Unknown] = []
        closed: list[Exception | None] = []
        connection: Connection = await open_connection(
            made.url + "?token=ignored",
            TOKEN,
            on_frame=frames.append,
            on_close=closed.append,
            token_in_url=False,
        )
        assert connection.hello is not None
        assert "outcomes_v1" in connection.capabilities
        connection.send(Ping(nonce="x"))
        await eventually(lambda: Pong(nonce="x") in frames)
        await connection.close()
        assert closed == [None]
        with pytest.raises(ConnectionEnded):
            connection.send(Ping(nonce="y"))


@pytest.mark.asyncio
async def test_says_so_when_a_session_is_killed() -> None:
    closed: list[Exception | None] = []
    async with host() as made:
        connection = await open_connection(
            made.url, TOKEN, on_frame=lambda _: None, on_close=closed.append
        )
        [wire] = made.endpoint._wires.values()
        wire.abort()
        await eventually(lambda: bool(closed))
        assert isinstance(closed[0], ConnectionEnded)
        assert closed[0].close_code == 1006
        assert not connection.is_open


@pytest.mark.asyncio
async def test_keeps_a_bounded_number_of_unread_frames() -> None:
    async with host(ready=READY) as made, made.client() as client:
        for _ in range(2000):
            made.endpoint.broadcast(READY)
        await client.ping()
        assert client.dropped == 2000 + 3 + 1 - 1024


@pytest.mark.asyncio
async def test_user_messages_keep_their_additions() -> None:
    async with host() as made, made.client() as client:
        connection = client._connection
        assert connection is not None
        connection.send(UserMessage(session_id=SESSION, text="t", token=TOKEN, thread_id="12"))
        await client.ping()
        assert made.messages[0].thread_id == "12"


@pytest.mark.asyncio
async def test_an_answer_that_was_taken_counts_though_the_program_ends_at_once() -> None:
    """The program resolves the ask and closes; the ping behind the reply goes unanswered."""

    async def talk(peer: ServerConnection) -> None:
        hello = {"type": "hello", "protocolVersion": 3, "capabilities": ["client_ping_pong"]}
        await peer.send(json.dumps(hello))
        asked = {"type": "action_needed", "id": "ask:1", "kind": "ask", "sessionId": SESSION}
        await peer.send(json.dumps({**asked, "question": "Deploy?", "options": ["Yes", "No"]}))
        async for text in peer:
            frame = json.loads(text)
            if frame["type"] == "ping":
                await peer.send(json.dumps({"type": "pong", "nonce": frame["nonce"]}))
            elif frame["type"] == "reply":
                resolved = {"type": "action_resolved", "id": "ask:1", "resolvedBy": "client"}
                await peer.send(json.dumps({**resolved, "answer": frame["answer"]}))
                await peer.close(1001, "the session ends")
                return

    async with serve(talk, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with SessionClient.connect(f"ws://127.0.0.1:{port}", TOKEN) as client:
            await client.ping()
            assert (await client.reply("ask:1", "Yes")).answer == "Yes"
