"""A running inbox on loopback, and a client that behaves as its page does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from fakes.web_hub import FakeHub
from upcall_adapters.web.adapter import WebInbox
from upcall_adapters.web.config import WebConfig


@asynccontextmanager
async def running(
    hub: FakeHub, config: WebConfig | None = None, **seams: Any
) -> AsyncIterator[WebInbox]:
    """Run an inbox on any free port until the block ends."""
    inbox = WebInbox(config or WebConfig(port=0), hub.seams(**seams))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(inbox.run(hub))
        try:
            async with asyncio.timeout(10):
                while inbox.url() is None:
                    await asyncio.sleep(0)
            yield inbox
        finally:
            task.cancel()


@dataclass
class Got:
    """A response, read."""

    status: int
    headers: Any
    body: bytes
    json: Any


@dataclass
class PageClient:
    """Requests as the page makes them: own Origin, JSON, cookie and key."""

    http: aiohttp.ClientSession
    url: str
    cookie: str | None = None
    key: str | None = None
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return self.url.rstrip("/")

    @property
    def cookie_name(self) -> str:
        return f"upcall_{self.url.rstrip('/').rpartition(':')[2]}"

    def headers(self, *, cookie: bool = True, key: bool = True) -> dict[str, str]:
        headers = {"Origin": self.origin, **self.extra}
        if cookie and self.cookie is not None:
            headers["Cookie"] = f"{self.cookie_name}={self.cookie}"
        if key and self.key is not None:
            headers["X-Upcall-Key"] = self.key
        return headers

    async def call(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **kwargs: Any
    ) -> Got:
        async with self.http.request(
            method,
            self.origin + path,
            headers=self.headers() if headers is None else headers,
            allow_redirects=False,
            **kwargs,
        ) as response:
            body = await response.read()
            is_json = response.content_type == "application/json"
            return Got(
                response.status,
                response.headers,
                body,
                await response.json() if is_json else None,
            )

    async def get(self, path: str, **kwargs: Any) -> Got:
        return await self.call("GET", path, **kwargs)

    async def post(self, path: str, document: Any, **kwargs: Any) -> Got:
        return await self.call("POST", path, json=document, **kwargs)

    def keep_login(self, got: Got) -> None:
        morsel = got.headers["Set-Cookie"].partition(";")[0]
        assert morsel.startswith(self.cookie_name + "=")
        self.cookie = morsel.partition("=")[2]
        self.key = got.json["key"]

    async def sign_in(self, inbox: WebInbox) -> None:
        """Sign in by a link's code."""
        link = (await inbox.sign_in("link", None))["url"]
        got = await self.post("/api/login", {"code": link.partition("#login=")[2]})
        assert got.status == 200, got.body
        self.keep_login(got)

    def live(self, **kwargs: Any) -> Any:
        """Return the context manager of a live connection; the key is not sent yet."""
        headers = kwargs.pop("headers", None) or self.headers(key=False)
        return self.http.ws_connect(
            self.origin + "/api/live", headers=headers, max_msg_size=0, **kwargs
        )


@asynccontextmanager
async def client_of(
    inbox: WebInbox, *, signed_in: bool = True, **session: Any
) -> AsyncIterator[PageClient]:
    """Return a client of *inbox*."""
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar, trust_env=False, **session) as http:
        url = inbox.url()
        assert url is not None
        client = PageClient(http, url)
        if signed_in:
            await client.sign_in(inbox)
        yield client
