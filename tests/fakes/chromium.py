"""Debian's Chromium for tests, an inbox on a thread for it, and a second port beside it."""

import asyncio
import http.server
import json
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from fakes.web_client import running
from fakes.web_hub import FakeHub
from upcall_adapters.web.adapter import WebInbox
from upcall_adapters.web.config import WebConfig

WAIT_S = 20.0
_T = TypeVar("_T")
_RULES = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@contextmanager
def chromium(folder: str, *, resolve: str = "") -> Iterator[webdriver.Chrome]:
    """Run a headless Chromium with its profile in *folder*.

    Args:
        folder: the profile.
        resolve: rules before the one that lets nothing but 127.0.0.1 be found.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    rules = f"{resolve}, {_RULES}" if resolve else _RULES
    for argument in (
        "--headless", "--disable-dev-shm-usage", "--disable-background-networking",
        "--disable-component-update", "--no-first-run", f"--user-data-dir={folder}",
        f"--host-resolver-rules={rules}",
    ):  # fmt: skip
        options.add_argument(argument)
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        driver.set_page_load_timeout(WAIT_S)
        driver.set_script_timeout(WAIT_S)
        yield driver
    finally:
        driver.quit()


@dataclass
class Traffic:
    """What a browser asked for, and what it got.

    Attributes:
        asked: every address, in order.
        statuses: the statuses that came for each address.
    """

    asked: list[str] = field(default_factory=list)
    statuses: dict[str, set[int]] = field(default_factory=dict)


def traffic(driver: webdriver.Chrome) -> Traffic:
    """Return the traffic since the last call."""
    found = Traffic()
    for entry in driver.execute("getLog", {"type": "performance"})["value"]:
        message = json.loads(entry["message"])["message"]
        params = message["params"]
        match message["method"]:
            case "Network.requestWillBeSent":
                found.asked.append(params["request"]["url"])
            case "Network.webSocketCreated":
                found.asked.append(params["url"])
            case "Network.responseReceived":
                response = params["response"]
                found.statuses.setdefault(response["url"], set()).add(response["status"])
            case _:
                continue
    return found


@dataclass
class InboxThread:
    """A running inbox on a loop of its own, for a browser that blocks."""

    hub: FakeHub
    inbox: WebInbox
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        url = self.inbox.url()
        assert url is not None
        return url

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rpartition(":")[2])

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def in_hub(self, act: Callable[[FakeHub], _T]) -> _T:
        async def acted() -> _T:
            return act(self.hub)

        return self.call(acted())

    def link(self) -> str:
        return str(self.call(self.inbox.sign_in("link", None))["url"])


@contextmanager
def inbox_on_thread(hub: FakeHub, config: WebConfig | None = None) -> Iterator[InboxThread]:
    """Run an inbox until the block ends."""
    ready: Future[tuple[WebInbox, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        done = asyncio.Event()
        async with running(hub, config) as inbox:
            ready.set_result((inbox, asyncio.get_running_loop(), done))
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="inbox")
    thread.start()
    inbox, loop, done = ready.result(WAIT_S)
    try:
        yield InboxThread(hub, inbox, loop)
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(WAIT_S)


@dataclass
class Neighbour:
    """A web server on another port of this computer, as any program may run one.

    Attributes:
        port: where it listens.
        pages: what it serves, by path.
        heard: the headers of every request, by path.
    """

    port: int
    pages: dict[str, str]
    heard: list[tuple[str, Mapping[str, str]]]

    def headers_of(self, path: str) -> Mapping[str, str]:
        return next(headers for asked, headers in self.heard if asked == path)


@contextmanager
def neighbour(**pages: str) -> Iterator[Neighbour]:
    """Serve *pages* (`name` at `/name`) on any free port until the block ends."""
    served = {f"/{name}": page for name, page in pages.items()}
    heard: list[tuple[str, Mapping[str, str]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append((self.path, dict(self.headers.items())))
            page = served.get(self.path)
            data = (page or "nothing").encode()
            self.send_response(200 if page is not None else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            del args

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Neighbour(server.server_address[1], served, heard)
        finally:
            server.shutdown()
            thread.join(WAIT_S)
