"""Many sessions at once, and what may be read of a token anywhere."""

import asyncio
import logging

import pytest

from upcall.model.errors import TransportError
from upcall.session.client import SessionClient
from wire.rig import TOKEN, Host, host, stock


@pytest.mark.asyncio
async def test_two_hundred_sessions_each_get_their_own_answer() -> None:
    hosts = [Host() for _ in range(200)]
    for made in hosts:
        await made.endpoint.start()

    async def answer(number: int, made: Host) -> None:
        async with made.client() as client:
            [ask] = client.asks()
            resolved = await client.reply(ask.id, f"answer {number}")
            assert resolved.answer == f"answer {number}"

    for made in hosts:
        made.ask()
    async with asyncio.TaskGroup() as group:
        for number, made in enumerate(hosts):
            group.create_task(answer(number, made))
    for number, made in enumerate(hosts):
        [ending] = made.ended
        assert ending.selection is not None
        assert ending.selection.text == f"answer {number}"
        await made.endpoint.close()


@pytest.mark.asyncio
async def test_no_log_and_no_error_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    other = "another-token-of-32-characters-00"
    async with host() as made:
        async with made.client() as client:
            action = made.ask("Yes")
            await client.reply(action, "Yes")
            shown = [repr(made.endpoint), repr(client), repr(client._connection)]
        with pytest.raises(TransportError) as refused:
            async with SessionClient.connect(made.url + "?token=" + TOKEN, other):
                pass
        shown.append(repr(refused.value))
        with pytest.raises(TransportError) as not_loopback:
            async with SessionClient.connect("ws://10.0.0.1:1/?token=" + TOKEN, other):
                pass
        shown.append(repr(not_loopback.value))
    asyncio.get_running_loop().set_debug(False)
    shown.append(caplog.text)
    for secret in (TOKEN, other):
        for start in range(len(secret) - 8):
            assert not any(secret[start : start + 8] in text for text in shown)


@pytest.mark.asyncio
async def test_a_client_of_the_stock_library_needs_nothing_of_ours() -> None:
    async with host() as made, stock(made) as client:
        assert (await client.receive())["type"] == "hello"
        action = made.ask("Yes", "No")
        assert (await client.receive())["id"] == action
        await client.send(type="reply", id=action, answer=0, token=TOKEN)
        assert (await client.receive())["resolvedBy"] == "client"
