"""Clients that read slowly, or not at all."""

import asyncio
import socket

import pytest
from websockets.asyncio.client import connect

from upcall.model.frames import TurnStream
from wire.rig import SESSION, TOKEN, Host, Stock, eventually, host

KIB = "x" * 1024


def live(text: str, ref: str | None = "t1") -> TurnStream:
    return TurnStream(session_id=SESSION, phase="live", text=text, message_ref=ref)


def final(text: str, ref: str | None = "t1") -> TurnStream:
    return TurnStream(session_id=SESSION, phase="finalized", text=text, message_ref=ref)


async def slow(made: Host) -> Stock:
    """A client whose socket holds little, and which reads only when it is told to."""
    raw = socket.socket()
    # Set before connecting it stays; a smaller one makes the kernel's own timers felt.
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 * 1024)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", made.endpoint.port))
    client = await connect(
        f"{made.url}?token={TOKEN}",
        sock=raw,
        proxy=None,
        compression=None,
        max_queue=1,
        max_size=None,
        ping_interval=None,
    )
    made_client = Stock(client)
    await made_client.hello("parallel_asks_v1")
    await made_client.until_pong("ready")
    client.transport.pause_reading()
    return made_client


async def block(made: Host, client: Stock) -> None:
    """Fill every buffer between the endpoint and *client*."""
    [wire] = made.endpoint._wires.values()
    number = 0
    while not wire._paused:
        made.endpoint.broadcast(final(KIB * 64, f"fill{number}"))
        number += 1
        await asyncio.sleep(0)


def resume(client: Stock) -> None:
    client.socket.transport.resume_reading()


@pytest.mark.asyncio
async def test_live_text_coalesces_and_goes_first() -> None:
    async with host(max_queued_bytes=512 * 1024) as made:
        client = await slow(made)
        await block(made, client)
        for number in range(2000):
            made.endpoint.broadcast(live(f"{number} {KIB}"))
        action = made.ask("Yes")
        # Live text of many messages alone fills the queue; the asks still get in.
        for number in range(2000):
            made.endpoint.broadcast(live(KIB, f"other{number}"))
        second = made.ask("Yes")
        assert made.endpoint.connections == 1
        resume(client)
        frames = [
            f for f in await client.until_pong() if not f.get("text", "").startswith("xx")
        ]
        assert [f["id"] for f in frames if f["type"] == "action_needed"] == [action, second]
        texts = [f["text"].split()[0] for f in frames if f["type"] == "turn_stream"]
        assert texts in ([], ["1999"])
        await client.socket.close()


@pytest.mark.asyncio
async def test_final_text_makes_waiting_live_text_pointless() -> None:
    async with host() as made:
        client = await slow(made)
        await block(made, client)
        made.endpoint.broadcast(live("half"))
        made.endpoint.broadcast(live("other", "t2"))
        made.endpoint.broadcast(final("whole"))
        resume(client)
        frames = [f for f in await client.until_pong() if len(f.get("text", "")) < 10]
        assert [f["text"] for f in frames] == ["other", "whole"]
        await client.socket.close()


@pytest.mark.asyncio
async def test_overflow_closes_with_1013_and_everything_is_found_again() -> None:
    async with host(max_queued_bytes=64 * 1024) as made:
        client = await slow(made)
        await block(made, client)
        async with made.client() as healthy:
            asked = [made.ask("Yes", question=KIB * 4) for _ in range(100)]
            resolved = asked.pop(0)
            made.conclude(made.book.withdraw(resolved))
            # The other client was never delayed.
            await healthy.ping()
            assert [ask.id for ask in healthy.asks()] == asked
        resume(client)
        assert await client.close_code() == 1013
        await eventually(lambda: made.endpoint.connections == 0)
        async with made.client() as again:
            assert [ask.id for ask in again.asks()] == asked


@pytest.mark.asyncio
async def test_a_flood_of_pings_that_nobody_reads_is_cut_off() -> None:
    async with host(max_queued_bytes=128 * 1024) as made:
        client = await slow(made)
        ping = '{"type":"ping","nonce":"' + "n" * 30_000 + '"}'

        async def flood() -> None:
            for _ in range(2000):
                await client.socket.send(ping)

        flooding = asyncio.create_task(flood())
        [wire] = made.endpoint._wires.values()
        await eventually(lambda: not wire.is_open)
        assert wire.waiting_bytes < 1024 * 1024
        resume(client)
        assert await client.close_code() == 1013
        await asyncio.gather(flooding, return_exceptions=True)


@pytest.mark.asyncio
async def test_a_client_that_vanishes_is_forgotten() -> None:
    async with host() as made:
        client = await slow(made)
        await block(made, client)
        client.socket.transport.abort()
        await eventually(lambda: made.endpoint.connections == 0)
        made.ask("Yes")


@pytest.mark.asyncio
async def test_closing_does_not_wait_for_a_client_that_does_not_read() -> None:
    async with host() as made:
        client = await slow(made)
        await block(made, client)
        made.ask("Yes")
        async with asyncio.timeout(5):
            await made.endpoint.close()
        await eventually(lambda: made.endpoint.connections == 0)
        client.socket.transport.abort()
