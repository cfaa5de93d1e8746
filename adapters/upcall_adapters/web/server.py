"""The HTTP library's server, with our headers on what it answers by itself, and limits.

What the library refuses before any route is reached (a request that it cannot parse, a bad
expectation) and what it makes of a fault of ours look like every other error here. Nothing
of such a request is logged: it may hold a secret.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from upcall.model.platform import SeamLog
from upcall_adapters.web.gate import Gate, ends_of
from upcall_adapters.web.responses import error_response, library_response, put_headers

FIRST_REQUEST_S: Final = 10.0
IDLE_S: Final = 75.0
LINGER_S: Final = 2.0
SHUTDOWN_S: Final = 2.0


class InboxHandler(RequestHandler):
    """One connection.

    Attributes:
        reading: whether it is at a request's body, which may never come.
    """

    __slots__ = ("_first", "_gate", "_log", "reading")

    def __init__(self, manager: web.Server, gate: Gate, log: SeamLog, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._gate = gate
        self._log = log
        self._first: asyncio.TimerHandle | None = None
        self.reading = False

    # -- what the gate sees --------------------------------------------------------------

    @property
    def ends(self) -> tuple[tuple[str, int], tuple[str, int]] | None:
        """The addresses of the other end and of ours, or None once it is gone."""
        return None if self.transport is None else ends_of(self.transport)

    @property
    def rank(self) -> int:
        """What it has shown: 0 nothing, 1 requests before, 2 a request now."""
        if self._request_in_progress and not self.reading:
            return 2
        return 1 if self._request_count and not self.reading else 0

    def cut(self) -> None:
        """Close it now."""
        if self.transport is not None:
            self.transport.abort()

    # -- the library's protocol ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self._first = loop.call_later(FIRST_REQUEST_S, self._end_if_silent)
        self._gate.entered(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """See `asyncio.BaseProtocol`."""
        if self._first is not None:
            self._first.cancel()
            self._first = None
        self._gate.left(self)
        super().connection_lost(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Put the headers on whatever goes out, also what no route made."""
        if isinstance(resp, web.HTTPException):
            resp = library_response(resp)
        if not resp.prepared:
            put_headers(resp)
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be parsed, and what failed here.

        Raises:
            ConnectionError: part of a response is out already.
        """
        del message
        if status >= 500:
            self._log.error("web_request_failed", error=type(exc).__name__)
            self.logger.error("a request of the inbox failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of the response is out already")
        words = {400: "this is no request that can be read", 504: "it took too long"}
        code = {400: "bad_request", 504: "too_slow"}.get(status, "internal")
        response = error_response(status, code, words.get(status, "the inbox failed at this"))
        response.force_close()
        return response

    def _end_if_silent(self) -> None:
        self._first = None
        if not self._request_count:
            self.force_close()


class InboxServer(web.Server):
    """Makes the connections of one inbox."""

    def __init__(self, gate: Gate, log: SeamLog, like: web.Server, **settings: Any) -> None:
        super().__init__(
            like.request_handler,
            request_factory=like.request_factory,
            loop=asyncio.get_running_loop(),
            **settings,
        )
        self._gate = gate
        self._log = log

    def __call__(self) -> InboxHandler:
        """Return the protocol of a new connection."""
        return InboxHandler(self, self._gate, self._log, loop=self._loop, **self._kwargs)


class InboxRunner(web.AppRunner):
    """Runs an application with our server."""

    __slots__ = ("_gate", "_log")

    def __init__(self, app: web.Application, gate: Gate, log: SeamLog) -> None:
        super().__init__(
            app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S
        )
        self._gate = gate
        self._log = log

    async def _make_server(self) -> web.Server:
        return InboxServer(
            self._gate,
            self._log,
            await super()._make_server(),
            access_log=None,
            # A body is what was sent: nobody sends us compressed ones but to burst here.
            auto_decompress=False,
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
        )


@asynccontextmanager
async def running(
    app: web.Application, sock: Any, gate: Gate, log: SeamLog
) -> AsyncIterator[None]:
    """Serve *app* on a listening socket while the context lasts."""
    runner = InboxRunner(app, gate, log)
    await runner.setup()
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(gate.watch(), name="web-gate")
            await web.SockSite(runner, sock).start()
            try:
                yield
            finally:
                watching.cancel()
    finally:
        await runner.cleanup()
