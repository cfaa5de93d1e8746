"""Every request passes here first, and every response last."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from upcall.model.errors import UpcallError, UsageError
from upcall_adapters.web.guards import SECURITY_HEADERS, judge
from upcall_adapters.web.login import LoginRefused
from upcall_adapters.web.parts import Parts
from upcall_adapters.web.peers import read_tables, uid_of_peer

_MAX_KNOWN: Final = 64
_STATUS: Final = {
    "not_signed_in": 401,
    "too_many_waiting": 429,
    "wait_over": 410,
}


def json_response(document: Any, *, status: int = 200) -> web.Response:
    """Return *document* as a JSON response."""
    return web.Response(
        body=msgspec.json.encode(document), status=status, content_type="application/json"
    )


def error_response(
    status: int, code: str, msg: str, *, recover: str | None = None
) -> web.Response:
    """Return an error in the form of every error that crosses a border."""
    error = {"class": "transport", "code": code, "msg": msg}
    if recover is not None:
        error["recover"] = recover
    return json_response({"error": error}, status=status)


class Doorkeeper:
    """Refuses other users and foreign requests; puts the security headers on."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: dict[Any, tuple[asyncio.BaseTransport, bool]] = {}

        @web.middleware
        async def middleware(
            request: web.Request,
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        ) -> web.StreamResponse:
            return await self._handle(request, handler)

        self.middleware = middleware

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Put the security headers on *response*; a stricter policy of its own stays."""
        del request
        response.headers["Server"] = "upcall"
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)

    async def _handle(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if not await self._is_own_user(request):
            self._parts.seams.log.warning("web_other_user_refused")
            return error_response(
                403,
                "other_user",
                "this inbox belongs to another user of this computer",
                recover="its owner can set `other_users = true` under [web]",
            )
        upgrade = "websocket" in request.headers.get("Upgrade", "").lower()
        refusal = judge(
            self._parts.doors,
            request.method,
            request.raw_path,
            list(request.headers.items()),
            upgrade=upgrade,
        )
        if refusal is not None:
            return error_response(refusal.status, refusal.code, refusal.msg)
        try:
            return await handler(request)
        except web.HTTPException as problem:
            code = {404: "not_found", 405: "bad_method", 413: "body_too_large"}
            return error_response(
                problem.status, code.get(problem.status, "http_error"), problem.reason
            )
        except LoginRefused as problem:
            status = _STATUS.get(problem.code, 403)
            return json_response({"error": problem.as_dict()}, status=status)
        except UsageError as problem:
            return json_response({"error": problem.as_dict()}, status=400)
        except UpcallError as problem:
            return json_response({"error": problem.as_dict()}, status=503)

    async def _is_own_user(self, request: web.Request) -> bool:
        """Tell whether our user holds the other end; asked once for each connection."""
        if self._parts.own_uid is None:
            return True
        transport = request.transport
        if transport is None:
            return False
        peer = transport.get_extra_info("peername")
        known = self._known.get(peer)
        if known is not None and known[0] is transport:
            return known[1]
        local = transport.get_extra_info("sockname")
        lines = await asyncio.to_thread(read_tables)
        own = uid_of_peer(lines or (), peer[:2], local[:2]) == self._parts.own_uid
        if len(self._known) >= _MAX_KNOWN:
            self._known = {
                name: entry for name, entry in self._known.items() if not entry[0].is_closing()
            }
        self._known[peer] = (transport, own)
        return own
