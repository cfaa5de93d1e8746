"""How every response looks: JSON errors, and the security headers on all of them."""

from typing import Any, Final

import msgspec
from aiohttp import web

from upcall_adapters.web.guards import SECURITY_HEADERS

_CODES: Final = {
    400: "bad_request",
    404: "not_found",
    405: "bad_method",
    408: "too_slow",
    413: "body_too_large",
    417: "bad_expectation",
    500: "internal",
    504: "too_slow",
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


def library_response(problem: web.HTTPException) -> web.Response:
    """Return an answer of the HTTP library's own in our form."""
    return error_response(
        problem.status, _CODES.get(problem.status, "http_error"), problem.reason
    )


def put_headers(response: web.StreamResponse) -> None:
    """Put the security headers on *response*; a stricter policy of its own stays.

    The library would otherwise say which version of it runs here.
    """
    response.headers["Server"] = "upcall"
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
