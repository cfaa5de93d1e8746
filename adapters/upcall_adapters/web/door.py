"""Every request passes here first."""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from upcall.model.errors import UpcallError, UsageError
from upcall_adapters.web.gate import Gate
from upcall_adapters.web.guards import judge
from upcall_adapters.web.login import LoginRefused
from upcall_adapters.web.parts import Parts
from upcall_adapters.web.responses import (
    error_response,
    json_response,
    library_response,
    put_headers,
)
from upcall_adapters.web.server import InboxHandler

_STATUS: Final = {
    "not_signed_in": 401,
    "too_many_tries": 429,
    "too_many_waiting": 429,
    "wait_over": 410,
}


class Doorkeeper:
    """Refuses other users and foreign requests; puts the security headers on.

    Args:
        parts: the inbox.
        gate: knows whose each connection is.
        max_body_bytes: what a body may have.
    """

    def __init__(self, parts: Parts, gate: Gate, max_body_bytes: int) -> None:
        self._parts = parts
        self._gate = gate
        self._max_body_bytes = max_body_bytes
        self._told_foreign = False

        @web.middleware
        async def middleware(
            request: web.Request,
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        ) -> web.StreamResponse:
            return await self._handle(request, handler)

        self.middleware = middleware

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Put the security headers on a response that a route sends by itself."""
        del request
        put_headers(response)

    async def _handle(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        guest = request.protocol
        if not isinstance(guest, InboxHandler) or not await self._gate.is_own(guest):
            return self._refuse_foreigner()
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
        if (request.content_length or 0) > self._max_body_bytes:
            return library_response(
                web.HTTPRequestEntityTooLarge(self._max_body_bytes, request.content_length or 0)
            )
        try:
            return await handler(request)
        except web.HTTPException as problem:
            return library_response(problem)
        except LoginRefused as problem:
            status = _STATUS.get(problem.code, 403)
            return json_response({"error": problem.as_dict()}, status=status)
        except UsageError as problem:
            return json_response({"error": problem.as_dict()}, status=400)
        except UpcallError as problem:
            return json_response({"error": problem.as_dict()}, status=503)

    def _refuse_foreigner(self) -> web.Response:
        if not self._told_foreign:
            # Once: another user could fill the log otherwise.
            self._told_foreign = True
            self._parts.seams.log.warning("web_other_user_refused")
        response = error_response(
            403,
            "other_user",
            "this inbox belongs to another user of this computer",
            recover="its owner can set `other_users = true` under [web]",
        )
        response.force_close()
        return response
