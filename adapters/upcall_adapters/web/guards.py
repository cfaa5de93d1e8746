"""Which requests the inbox looks at, and the headers of every response: pure functions.

A request gets past here only if it was meant for this very address (Host), by a page of
this very address (Origin, Sec-Fetch-Site) or by a program that says so, and in a form
that no foreign page can send without asking first (JSON).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
FILE_POLICY: Final = "sandbox; default-src 'none'"
_READS: Final = frozenset({"GET", "HEAD"})
_MAX_COOKIES: Final = 8


@dataclass(frozen=True, slots=True)
class Doors:
    """The addresses under which the inbox answers.

    Attributes:
        port: the bound loopback port.
        public: the origin of a configured tunnel, such as `https://inbox.example`.
    """

    port: int
    public: str | None = None

    def origin_of(self, host: str) -> str | None:
        """Return the origin that belongs to the *host* header, or None for a foreign one."""
        host = host.lower()
        names = ("127.0.0.1", "localhost", "[::1]")
        if host in {f"{name}:{self.port}" for name in names}:
            return f"http://{host}"
        if self.port == 80 and host in names:
            return f"http://{host}"
        if (
            self.public is not None
            and host.removesuffix(":443") == urlsplit(self.public).netloc
        ):
            return self.public
        return None

    def cookie_name(self, origin: str | None) -> str:
        """Return the name of the login cookie at *origin*.

        Cookies do not know ports, so the name does. Under https the prefix makes browsers
        refuse a cookie of that name that a neighbouring name or a plain page sets.
        """
        prefix = "__Host-" if origin is not None and origin.startswith("https:") else ""
        return f"{prefix}upcall_{self.port}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not looked at: HTTP status, stable code, words."""

    status: int
    code: str
    msg: str


def _all(headers: Sequence[tuple[str, str]], name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name]


def judge(
    doors: Doors,
    method: str,
    target: str,
    headers: Sequence[tuple[str, str]],
    *,
    upgrade: bool = False,
) -> Refusal | None:
    """Return why the request is refused, or None if it may go on to its route.

    Args:
        doors: our addresses.
        method: the request's method.
        target: the request target as sent.
        headers: every header as sent, repeats included.
        upgrade: it wants to become a WebSocket.
    """
    hosts, origins = _all(headers, "host"), _all(headers, "origin")
    if len(hosts) != 1 or not hosts[0].strip():
        return Refusal(400, "bad_host", "exactly one Host header is needed")
    if len(origins) > 1:
        return Refusal(400, "bad_origin", "more than one Origin header")
    if not target.startswith("/") or "@" in hosts[0]:
        return Refusal(400, "bad_target", "the target must be a path, the host without a user")
    own = doors.origin_of(hosts[0].strip())
    if own is None:
        return Refusal(
            403, "foreign_host", f"this inbox answers under http://127.0.0.1:{doors.port} only"
        )
    if method not in {*_READS, "POST"}:
        return Refusal(405, "bad_method", "only GET and POST are used here")
    needs_origin = upgrade or method not in _READS
    if origins and origins[0] != own:
        return Refusal(403, "foreign_origin", "the request comes from another site")
    if needs_origin and not origins:
        return Refusal(403, "origin_missing", f"the Origin header must be {own}")
    return _judge_fetch(headers) or _judge_type(method, headers)


def _judge_fetch(headers: Sequence[tuple[str, str]]) -> Refusal | None:
    sites = _all(headers, "sec-fetch-site")
    navigation = _all(headers, "sec-fetch-mode") == ["navigate"] and _all(
        headers, "sec-fetch-dest"
    ) == ["document"]
    if sites and sites != ["same-origin"] and not navigation:
        return Refusal(403, "foreign_site", "the request comes from another site")
    return None


def _judge_type(method: str, headers: Sequence[tuple[str, str]]) -> Refusal | None:
    if method in _READS:
        return None
    kinds = _all(headers, "content-type")
    if len(kinds) != 1 or kinds[0].split(";")[0].strip().lower() != "application/json":
        return Refusal(415, "not_json", "bodies must be application/json")
    return None


def cookie_values(headers: Sequence[tuple[str, str]], name: str) -> list[str]:
    """Return every value of the cookie *name*, a few at most.

    A page on another port of this computer can set a second one beside ours; it must not
    hide the one that counts.
    """
    pairs = (
        pair.strip().partition("=")
        for value in _all(headers, "cookie")
        for pair in value.split(";")
    )
    return [value for key, _, value in pairs if key == name and value][:_MAX_COOKIES]


def image_type(data: bytes) -> str | None:
    """Return the image type that the first bytes of *data* prove, or None."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None
