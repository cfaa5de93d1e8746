"""A person who isn't there: answers through the inbox's real HTTP interface.

It does what the page does: uses a link's code up, keeps the cookie and the key, reads the
state and posts answers with the page's own origin.
"""

from __future__ import annotations

import http.client
import json
import secrets
import time
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_REQUEST_S = 5.0
_PAUSE_S = 0.1
_WORDS = "First Light"


class AutoFailed(Exception):
    """The inbox did not do what it should."""


class _Browser:
    """One signed-in client of one inbox."""

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._cookie = ""
        self._key = ""
        code = parts.fragment.removeprefix("login=")
        status, found, cookies = self._call("POST", "/api/login", {"code": code})
        if status != 200 or "key" not in found:
            raise AutoFailed(f"the inbox did not let us in ({status}): {found}")
        self._key = str(found["key"])
        self._cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in cookies.items())

    def state(self) -> dict[str, Any]:
        """Return what the page would show."""
        status, found, _ = self._call("GET", "/api/state")
        if status != 200:
            raise AutoFailed(f"the inbox did not show its state ({status}): {found}")
        return found

    def answer(self, ask: dict[str, Any]) -> None:
        """Answer one ask: the first option, the first two, or words."""
        body: dict[str, Any] = {
            "ask": ask["id"],
            "revision": ask["revision"],
            "key": secrets.token_hex(12),
        }
        options = ask.get("options") or []
        if not options:
            body["text"] = _WORDS
        else:
            body["indices"] = [0, 1] if ask.get("multi") else [0]
        status, found, _ = self._call("POST", "/api/answer", body)
        if status != 200:
            raise AutoFailed(f"the inbox did not take an answer ({status}): {found}")

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any], SimpleCookie]:
        headers = {"Accept": "application/json"}
        if self._key:
            headers |= {"X-Upcall-Key": self._key, "Cookie": self._cookie}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers |= {"Content-Type": "application/json", "Origin": self._origin}
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_REQUEST_S)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            text = response.read()
            cookies = SimpleCookie(response.getheader("Set-Cookie") or "")
            found = json.loads(text) if text else {}
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as err:
            raise AutoFailed(f"the inbox does not answer {method} {path}: {err}") from err
        finally:
            connection.close()
        if not isinstance(found, dict):
            raise AutoFailed(f"the inbox answered {method} {path} with no object")
        return response.status, found, cookies


def answer_all(
    link: str, ask_ids: Sequence[str], limit_s: float, say: Callable[[str], None]
) -> None:
    """Sign in with *link* and answer the asks as they appear.

    Raises:
        AutoFailed: the inbox did not do what it should, or not within *limit_s* seconds.
    """
    until = time.monotonic() + limit_s
    browser = _Browser(link)
    say("demo: signed in to the inbox over HTTP")
    left = set(ask_ids)
    while left:
        if time.monotonic() > until:
            raise AutoFailed(f"{len(left)} of the questions never came to the inbox")
        for ask in browser.state().get("asks") or []:
            if ask.get("id") in left and ask.get("state") == "open":
                browser.answer(ask)
                left.discard(str(ask["id"]))
        if left:
            time.sleep(_PAUSE_S)
