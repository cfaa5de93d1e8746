"""Opening handshakes against a real endpoint, byte by byte where it matters."""

import asyncio
import contextlib
import os
import subprocess
import sys

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from upcall.model.errors import TransportError
from upcall.session.client import SessionClient
from wire.rig import TOKEN, Host, host, stock

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def request(
    target: str = f"/?token={TOKEN}",
    host_line: str = "127.0.0.1",
    *more: str,
    upgrade: bool = True,
) -> bytes:
    lines = [f"GET {target} HTTP/1.1", *([f"Host: {host_line}"] if host_line else [])]
    if upgrade:
        lines += [
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {KEY}",
            "Sec-WebSocket-Version: 13",
        ]
    return "\r\n".join([*lines, *more, "", ""]).encode()


async def status_of(made: Host, data: bytes) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", made.endpoint.port)
    try:
        writer.write(data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split()[1])
        body = "" if status == 101 else (await reader.read()).decode()
        return status, body
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(), 101),
        (request("/anything/at/all?x=1&token=" + TOKEN), 101),
        (request("/?token=" + TOKEN.replace("-", "%2D")), 101),
        (request("/", "127.0.0.1", f"Authorization: Bearer {TOKEN}"), 101),
        (request("/", "127.0.0.1", f"authorization: bearer  {TOKEN}"), 101),
        (request(host_line="localhost:80"), 101),
        (request(host_line="[::1]:1234"), 101),
        (request("/"), 401),
        (request("/?token="), 401),
        (request("/?token=" + TOKEN[:-1]), 401),
        (request("/?token=" + TOKEN + "x"), 401),
        (request("/?token=wrong&token=" + TOKEN), 401),
        (request("/?Token=" + TOKEN), 401),
        (request("/?token=%ff%fe"), 401),
        (request("/", "127.0.0.1", "Authorization: Basic " + TOKEN), 401),
        (request("/?token=x", "127.0.0.1", "Authorization: Bearer y"), 401),
        (request("/", upgrade=False), 401),
        (request(upgrade=False), 426),
        (request(f"/?token={TOKEN}", "127.0.0.1", "Origin: http://evil.example"), 403),
        (request(f"/?token={TOKEN}", "127.0.0.1", "Origin: null"), 403),
        (request(f"/?token={TOKEN}", "127.0.0.1", "Origin: http://127.0.0.1"), 403),
        (request(host_line="evil.example"), 403),
        (request(host_line="127.0.0.1.evil.example"), 403),
        (request(host_line="127.1"), 403),
        (request(host_line="192.168.0.1"), 403),
        (request(host_line="[::ffff:127.0.0.1]"), 403),
        (request(host_line="127.0.0.1:port"), 403),
        (request(host_line=""), 400),
        (request(host_line="user@127.0.0.1"), 400),
        (request(f"/?token={TOKEN}", "127.0.0.1", "Host: 127.0.0.1"), 400),
        (request(f"/?token={TOKEN}", "127.0.0.1", "Origin: a", "Origin: a"), 400),
        (
            request(
                "/", "127.0.0.1", "Authorization: Bearer x", f"Authorization: Bearer {TOKEN}"
            ),
            400,
        ),
        (request(f"http://127.0.0.1/?token={TOKEN}"), 400),
        (request(f"ws://127.0.0.1/?token={TOKEN}"), 400),
    ],
)
async def test_lets_in_only_who_may_come(data: bytes, status: int) -> None:
    async with host() as made:
        got, body = await status_of(made, data)
    assert got == status, data
    assert TOKEN not in body
    if status == 401:
        assert body == "unauthorized\n"


@pytest.mark.asyncio
async def test_lets_an_allowed_origin_in() -> None:
    async with host(allow_origins=["http://127.0.0.1:8737"]) as made:
        async with stock(made, origin="http://127.0.0.1:8737") as client:
            assert (await client.receive())["type"] == "hello"
        with pytest.raises(InvalidStatus) as refused:
            async with stock(made, origin="http://127.0.0.1:9999"):
                pass
    assert refused.value.response.status_code == 403


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x00\xa5", b"GET / HTTP/3\r\n\r\n", b"\0" * 20000]
)
async def test_drops_what_is_not_http_and_goes_on(data: bytes) -> None:
    async with host() as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.endpoint.port)
        writer.write(data)
        writer.write_eof()
        assert b"101" not in await reader.read()
        writer.close()
        await writer.wait_closed()
        async with made.client() as client:
            assert client.capabilities


@pytest.mark.asyncio
async def test_drops_the_seventeenth_silent_handshake_at_once() -> None:
    async with host(handshake_s=30.0) as made:
        silent = [
            await asyncio.open_connection("127.0.0.1", made.endpoint.port) for _ in range(16)
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", made.endpoint.port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        # A freed place is a place.
        silent[0][1].close()
        await silent[0][1].wait_closed()
        async with made.client() as client:
            assert client.capabilities
        for _, other in silent[1:]:
            other.close()
            await other.wait_closed()


@pytest.mark.asyncio
async def test_drops_a_handshake_that_takes_too_long() -> None:
    async with host(handshake_s=0.05) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.endpoint.port)
        writer.write(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.asyncio
async def test_has_no_limit_on_connections_that_are_let_in() -> None:
    async with host() as made:
        clients = [await connect(f"{made.url}?token={TOKEN}", proxy=None) for _ in range(65)]
        assert made.endpoint.connections == 65
        for client in clients:
            await client.close()


@pytest.mark.foreign_uid
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a child as another user")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who connects")
@pytest.mark.asyncio
async def test_keeps_room_for_its_own_user() -> None:
    script = (
        "import encodings.idna, os, socket, sys\n"
        "os.setuid(65534)\n"
        "port = int(sys.argv[1])\n"
        "held = []\n"
        "for _ in range(64):\n"
        "    held.append(socket.create_connection(('127.0.0.1', port)))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    async with host(handshake_s=30.0) as made:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-c",
            script,
            str(made.endpoint.port),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
        async with asyncio.timeout(2), made.client() as client:
            assert client.capabilities
        child.kill()
        await child.communicate()


@pytest.mark.asyncio
async def test_tells_the_client_what_was_wrong() -> None:
    async with host() as made:
        for url, token, code in (
            (made.url, "wrong", "unauthorized"),
            ("ws://127.0.0.1:1/", TOKEN, "connection_refused"),
            (f"ws://localhost:{made.endpoint.port}/", TOKEN, "url_refused"),
            (f"wss://127.0.0.1:{made.endpoint.port}/", TOKEN, "url_refused"),
            (f"ws://127.1:{made.endpoint.port}/", TOKEN, "url_refused"),
            (f"ws://127.0.0.1@10.0.0.1:{made.endpoint.port}/", TOKEN, "url_refused"),
            (f"ws://[::ffff:127.0.0.1]:{made.endpoint.port}/", TOKEN, "url_refused"),
            ("ws://127.0.0.1/", TOKEN, "url_refused"),
            ("ws://127.0.0.1:99999/", TOKEN, "url_refused"),
        ):
            with pytest.raises(TransportError) as refused:
                async with SessionClient.connect(url, token):
                    pass
            assert refused.value.code == code, url
            assert TOKEN not in str(refused.value)


@pytest.mark.asyncio
@pytest.mark.parametrize("steps", range(5))
async def test_a_start_that_is_cut_short_leaves_no_socket_open(steps: int) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    endpoint = Host().endpoint
    starting = asyncio.create_task(endpoint.start())
    for _ in range(steps):
        await asyncio.sleep(0)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
        await endpoint.close()
    assert sorted(os.listdir("/proc/self/fd")) == before
