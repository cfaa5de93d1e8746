"""Whether an opening handshake may reach a session: target, Host, Origin and token.

Any page in any browser on this computer can send a request to a loopback port. So a request
with an `Origin` that the program did not allow, or with a `Host` that is not loopback (a name
that somebody points at it), is refused before the token is looked at.
"""

import hmac
import ipaddress
from collections.abc import Collection
from typing import Final
from urllib.parse import unquote

from websockets.datastructures import Headers
from websockets.http11 import Request

_SINGLE: Final = ("Host", "Origin", "Authorization")
_BEARER: Final = "bearer "


def refusal(
    request: Request, token: str, allow_origins: Collection[str] = ()
) -> tuple[int, str] | None:
    """Return the HTTP status and body with which to refuse *request*, or None to accept it.

    Args:
        request: the client's opening handshake.
        token: the session's token.
        allow_origins: values of `Origin` that the program itself allowed, exactly.
    """
    headers = request.headers
    if any(len(headers.get_all(name)) > 1 for name in _SINGLE):
        return 400, "a header was sent twice\n"
    if not request.path.startswith("/"):
        return 400, "an absolute target is not served\n"
    host = headers.get("Host")
    if not host or "@" in host:
        return 400, "the Host header is not usable\n"
    if not is_loopback_host(host):
        return 403, "this Host is not served\n"
    origin = headers.get("Origin")
    if origin is not None and origin not in allow_origins:
        return 403, "this Origin is not allowed\n"
    if not any(same_secret(given, token) for given in _tokens(request.path, headers)):
        return 401, "unauthorized\n"
    return None


def is_loopback_host(host: str) -> bool:
    """Tell whether a `Host` value is literally loopback: an address, or `localhost`."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return False
        port = port.removeprefix(":")
    else:
        name, _, port = host.partition(":")
    if port and not (port.isascii() and port.isdigit()):
        return False
    if name.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address == ipaddress.IPv6Address("::1") or (
        address.version == 4 and address.is_loopback
    )


def same_secret(given: str, secret: str) -> bool:
    """Compare two secrets in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _tokens(path: str, headers: Headers) -> list[str]:
    given = []
    query = path.partition("?")[2].partition("#")[0]
    for pair in query.split("&"):
        name, equals, value = pair.partition("=")
        if name == "token" and equals:
            # The first one counts, as with the peers.
            given.append(unquote(value))
            break
    authorization = headers.get("Authorization")
    if authorization is not None and authorization[: len(_BEARER)].lower() == _BEARER:
        given.append(authorization[len(_BEARER) :].strip())
    return given
