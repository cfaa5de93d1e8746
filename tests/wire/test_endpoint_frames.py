"""What an endpoint says and how it takes what it is told, seen by the stock client."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from upcall.model.frames import (
    Activity,
    ContextUpdate,
    IdentityHeader,
    ReasoningSummary,
    SessionClosed,
    SessionReady,
    ToolActivity,
    TurnStream,
)
from wire.rig import SESSION, TOKEN, host, stock, types

READY = SessionReady(session_id=SESSION, repo="demo", branch="main")
IDENTITY = IdentityHeader(session_id=SESSION, repo="demo", branch="main", machine="box")


@pytest.mark.asyncio
async def test_greets_and_replays_in_order() -> None:
    async with host(ready=READY, identity=IDENTITY) as made:
        made.endpoint.broadcast(ContextUpdate(session_id=SESSION, task="a", model="m"))
        made.endpoint.broadcast(ContextUpdate(session_id=SESSION, task="b"))
        made.endpoint.broadcast(Activity(session_id=SESSION, state="busy"))
        for _ in range(3):
            made.ask("Yes", "No")
        ended = made.ask("Yes", "No")
        made.conclude(made.book.withdraw(ended))
        async with stock(made) as client:
            first = await client.until_pong()
            assert types(first) == [
                "hello",
                "session_ready",
                "identity_header",
                "context_update",
                "activity",
                "action_needed",
            ]
            assert first[0]["protocolVersion"] == 3
            assert "parallel_asks_v1" in first[0]["capabilities"]
            assert first[0]["connectionId"] == "connection:1"
            assert (first[3]["task"], first[3]["model"]) == ("b", "m")
            assert first[5]["id"] == "ask:1"
            await client.hello("parallel_asks_v1")
            rest = await client.until_pong()
            assert types(rest) == ["action_needed", "action_needed", "action_resolved"]
            assert [frame["id"] for frame in rest] == ["ask:2", "ask:3", ended]
            # A second hello adds capabilities and repeats nothing.
            await client.hello("parallel_asks_v1", "tool_activity_v1")
            assert await client.until_pong() == []


@pytest.mark.asyncio
async def test_numbers_its_connections() -> None:
    async with host() as made, stock(made) as one, stock(made) as two:
        assert (await one.receive())["connectionId"] == "connection:1"
        assert (await two.receive())["connectionId"] == "connection:2"


@pytest.mark.asyncio
async def test_omits_what_is_absent_and_always_says_whether_words_are_taken() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        made.ask("Yes", "No", question="Deploy?")
        made.ask(question="Why?")
        assert await client.receive() == {
            "type": "action_needed",
            "id": "ask:1",
            "kind": "ask",
            "sessionId": SESSION,
            "question": "Deploy?",
            "options": ["Yes", "No"],
            "freeText": False,
        }
        made.conclude(made.book.withdraw(made.book.open_asks()[0].id))
        assert (await client.receive())["outcome"] == "cancelled"
        assert (await client.receive())["freeText"] is True


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "3",
        "null",
        "{}",
        '{"type":3}',
        '{"type":"ping"}',
        '{"type":"ping","nonce":1}',
        '{"type":"reply","answer":1,"token":"t"}',
        '{"type":"ping","nonce":"\\ud800"}',
        "[" * 5000,
    ],
)
async def test_answers_what_is_no_frame_and_goes_on(text: str) -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        await client.socket.send(text)
        error = await client.receive()
        assert error["type"] == "protocol_error"
        assert error["ok"] is False
        assert error["error"]["code"] == "invalid_frame"
        assert await client.until_pong() == []


@pytest.mark.asyncio
async def test_invalid_utf8_is_no_frame() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        await client.socket.send(b'{"type":"ping","nonce":"\xff"}', text=True)
        assert (await client.receive())["type"] == "protocol_error"


@pytest.mark.asyncio
async def test_ignores_types_and_fields_from_the_future() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        await client.send(type="hologram", x=1)
        await client.send(type="action_needed", id="x", kind="ask", sessionId=SESSION)
        assert await client.until_pong() == []
        await client.send(type="ping", nonce="q", more={"a": [1]})
        assert await client.receive() == {"type": "pong", "nonce": "q"}


@pytest.mark.asyncio
async def test_takes_a_fragmented_message() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()

        async def parts() -> AsyncIterator[str]:
            for part in ('{"type":"pi', 'ng","non', 'ce":"f"}'):
                yield part

        await client.socket.send(parts())
        assert await client.receive() == {"type": "pong", "nonce": "f"}


@pytest.mark.asyncio
async def test_refuses_binary_frames_with_1003() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        await client.socket.send(b'{"type":"ping","nonce":"b"}')
        assert await client.close_code() == 1003


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [256 * 1024 + 1, 300 * 1024])
async def test_refuses_a_message_over_256_kib_with_1009(size: int) -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        frame = {"type": "ping", "nonce": ""}
        frame["nonce"] = "x" * (size - len(json.dumps(frame)))
        await client.socket.send(json.dumps(frame))
        assert await client.close_code() == 1009


@pytest.mark.asyncio
async def test_refuses_fragments_that_add_up_to_too_much() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()

        async def parts() -> AsyncIterator[str]:
            for _ in range(3):
                yield "x" * 100 * 1024

        await client.socket.send(parts())
        assert await client.close_code() == 1009


@pytest.mark.asyncio
async def test_takes_a_message_of_256_kib() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        frame = {"type": "ping", "nonce": ""}
        frame["nonce"] = "x" * (256 * 1024 - len(json.dumps(frame)))
        await client.socket.send(json.dumps(frame))
        assert (await client.receive())["nonce"] == frame["nonce"]


@pytest.mark.asyncio
async def test_answers_websocket_pings() -> None:
    async with host() as made, stock(made) as client:
        await (await client.socket.ping())


@pytest.mark.asyncio
async def test_tells_tools_and_reasoning_only_to_those_who_asked() -> None:
    tool = ToolActivity(session_id=SESSION, tool_call_id="1", tool_name="sh", phase="started")
    async with host() as made, stock(made) as plain, stock(made) as able:
        await plain.until_pong()
        await able.hello("tool_activity_v1")
        await able.until_pong()
        made.endpoint.broadcast(tool)
        made.endpoint.broadcast(ReasoningSummary(session_id=SESSION, text="hm"))
        made.endpoint.broadcast(TurnStream(session_id=SESSION, phase="finalized", text="t"))
        assert types(await plain.until_pong()) == ["turn_stream"]
        assert types(await able.until_pong()) == [
            "tool_activity",
            "reasoning_summary",
            "turn_stream",
        ]


@pytest.mark.asyncio
async def test_hands_messages_and_settings_on_and_drops_those_with_a_wrong_token() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        for token in ("wrong", TOKEN):
            await client.send(type="user_message", sessionId=SESSION, text=token, token=token)
            await client.send(
                type="config_command", sessionId=SESSION, verbosity="lean", token=token
            )
            await client.send(type="ask_hold", id="ask:1", hold=True, token=token)
        assert await client.until_pong() == []
        assert [message.text for message in made.messages] == [TOKEN]
        assert len(made.configs) == 1


@pytest.mark.asyncio
async def test_says_at_once_that_it_serves_no_control_plane() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        cases: dict[str, tuple[dict[str, Any], str]] = {
            "control_request": ({"operation": "turn.prompt"}, "control_response"),
            "query_request": ({"query": "todo.list"}, "query_response"),
            "event_replay": ({}, "event_replay_result"),
            "session_activate": ({"sessionId": SESSION}, "session_activate_result"),
            "register_provider": ({"capability": "ui"}, "control_response"),
            "reverse_response": ({"ok": True}, "reverse_response"),
        }
        for kind, (fields, answer) in cases.items():
            await client.send(type=kind, id=f"id-{kind}", **fields)
            frame = await client.receive()
            assert (frame["type"], frame["id"]) == (answer, f"id-{kind}")
            assert frame["ok"] is False
            assert frame["error"]["code"]
        await client.send(type="control_request", id="c", operation=5)
        assert (await client.receive())["error"]["code"] == "invalid_frame"
        await client.send(type="client_heartbeat", connectionId="connection:1")
        assert await client.until_pong() == []


@pytest.mark.asyncio
async def test_answers_commands_and_side_questions_only_to_their_sender() -> None:
    async with host() as made, stock(made) as client, stock(made) as other:
        await client.until_pong()
        await other.until_pong()
        command: dict[str, Any] = {
            "sessionId": SESSION,
            "requestId": "r",
            "command": {"kind": "model"},
        }
        await client.send(type="control_command", token="no", **command)
        await client.send(type="control_command", token=TOKEN, **command)
        result = await client.receive()
        assert (result["type"], result["status"]) == ("control_command_result", "unavailable")
        turn = {
            "sessionId": SESSION,
            "question": "what is left?",
            "requestId": "btw:6e0b6e4e-8a5c-4f6f-9f6e-0d9d1f0a7c11",
            "updateId": 7,
            "messageId": 9,
            "threadId": "12",
        }
        await client.send(type="ephemeral_turn", token=TOKEN, **turn)
        assert (await client.receive())["status"] == "session_unavailable"
        await client.send(type="ephemeral_turn", token=TOKEN, **turn, more=1)
        assert (await client.receive())["type"] == "protocol_error"
        assert await other.until_pong() == []


@pytest.mark.asyncio
async def test_says_goodbye_when_it_ends() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        made.endpoint.broadcast(SessionClosed(session_id=SESSION))
        await made.endpoint.close()
        assert (await client.receive())["type"] == "session_closed"
        assert await client.close_code() == 1001
        assert made.endpoint.connections == 0
