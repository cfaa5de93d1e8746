"""The inbox's HTTP interface.

Every POST carries JSON and the inbox's own `Origin` (`http://127.0.0.1:PORT`). Reads and
answers carry the login: the cookie `upcall_PORT` and its key in `X-Upcall-Key`. A refusal
is `{"error": {class, code, msg, recover}}`. GET never changes anything.

* `POST /api/login {code}`: uses a link's code up, sets the cookie, returns `{key}`.
* `POST /api/browser {}`: asks to be let in, returns `{code, poll}`; people see the code.
* `POST /api/browser/wait {poll}`: `{"state": "waiting"}`, or sets the cookie and returns
  `{"state": "in", key}`; answers within 25 s.
* `POST /api/logout {}`: ends this login.
* `GET /api/state`: `{now_ms, asks, more_asks, sessions, notices, channels, ...}`.
* `GET /api/ask/ID`: one ask, whole, also one that is closed.
* `GET /api/history?before=MS&limit=N`: `{asks}`, closed ones, newest first.
* `GET /api/file/ID`: the bytes of an attachment, never as a document.
* `POST /api/answer {ask, revision, key, indices | text | decline | hold}`: 200 with the
  receipt `{ok, code, msg, result}`, 409 with the same if it was refused. `key` is the
  act's own: a repeat with the same key is the same act.
* `POST /api/message {session, text, key}`: words to a session; receipt as above.
* `POST /api/session {session, rule, key}`: what becomes of the asks of a session that asks
  too much, `mute`, `unmute`, `stop` or `hold`; receipt as above.
* `WS /api/live`: first message `{key}`; then the state at once and after every change.
  `{read: N}` gets the state again and then `{read: N}`.
* `GET /healthz`, `/readyz`: `ok` or not. `GET /metrics`: with the bearer token of the
  secret `metrics_token`.
"""

import asyncio
import hmac
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast
from urllib.parse import quote

import msgspec
from aiohttp import ClientPayloadError, WSCloseCode, WSMsgType, web
from aiohttp.http import HttpProcessingError

from upcall.model.errors import UsageError
from upcall.model.ids import is_session_id
from upcall.model.limits import MAX_OPTIONS, MAX_TEXT_CHARS
from upcall.model.platform import Answered, Receipt, SessionRuled, Texted, Who
from upcall.model.text import unpaired_surrogate_or_nul, visible
from upcall_adapters.web.assets import Asset, read_assets
from upcall_adapters.web.door import Doorkeeper
from upcall_adapters.web.gate import Gate
from upcall_adapters.web.guards import FILE_POLICY, cookie_values, image_type
from upcall_adapters.web.login import (
    HERE,
    LOGIN_LIFE_MS,
    Login,
    LoginRefused,
    Secrets,
    agent_words,
)
from upcall_adapters.web.metrics import metrics_text
from upcall_adapters.web.pages import Page
from upcall_adapters.web.parts import Parts
from upcall_adapters.web.present import (
    MAX_NOTICES,
    ask_json,
    file_name,
    receipt_json,
    state_json,
)
from upcall_adapters.web.responses import error_response, json_response
from upcall_adapters.web.server import running

if TYPE_CHECKING:
    from upcall_adapters.web.server import InboxHandler

MAX_BODY_BYTES: Final = 64 * 1024
WAIT_S: Final = 25.0
BODY_S: Final = 10.0
FIRST_MESSAGE_S: Final = 10.0
MAX_LIVE: Final = 64
# Connections that have shown a cookie and not yet the key, which a page does at once.
MAX_UNPROVEN: Final = 16
HEARTBEAT_S: Final = 20.0
CLOSE_SIGNED_OUT: Final = 4401
CLOSE_TOO_MANY: Final = 4503
MAX_HISTORY: Final = 100
BodyT = TypeVar("BodyT")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class LoginBody(msgspec.Struct, frozen=True):
    """`POST /api/login`."""

    code: str


class WaitBody(msgspec.Struct, frozen=True):
    """`POST /api/browser/wait`."""

    poll: str


class AnswerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`POST /api/answer`: exactly one of indices, text, decline, hold and withdraw."""

    ask: str
    revision: str
    key: str
    indices: tuple[int, ...] | None = None
    text: str | None = None
    decline: bool = False
    hold: bool | None = None
    withdraw: bool = False


class MessageBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`POST /api/message`."""

    session: str
    text: str
    key: str


class SessionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`POST /api/session`."""

    session: str
    rule: Literal["mute", "unmute", "stop", "hold"]
    key: str


class KeyMessage(msgspec.Struct, frozen=True):
    """First message of a live connection."""

    key: str


class ReadMessage(msgspec.Struct, frozen=True):
    """Later messages of a live connection."""

    read: int


def _checked_words(text: str) -> str:
    if not text.strip():
        raise UsageError("the words are empty", code="invalid_answer")
    if len(text) > MAX_TEXT_CHARS:
        raise UsageError(
            f"the words are {len(text)} characters long, {MAX_TEXT_CHARS} are taken",
            code="invalid_answer",
        )
    if unpaired_surrogate_or_nul(text) is not None:
        raise UsageError(
            "the words contain a character that can't be sent", code="invalid_answer"
        )
    return text


def _checked_key(key: str) -> str:
    if not 8 <= len(key) <= 64 or not key.isascii() or not key.isprintable():
        raise UsageError("key must be 8 to 64 printable ASCII characters", code="invalid_key")
    return key


def _checked_answer(body: AnswerBody) -> None:
    kinds = (body.indices is not None, body.text is not None, body.decline)
    if sum((*kinds, body.hold is not None, body.withdraw)) != 1:
        raise UsageError(
            "give exactly one of indices, text, decline, hold and withdraw",
            code="invalid_answer",
        )
    if body.text is not None:
        _checked_words(body.text)
    if body.indices is not None and (
        not 1 <= len(body.indices) <= MAX_OPTIONS
        or len(set(body.indices)) != len(body.indices)
        or not all(0 <= index < MAX_OPTIONS for index in body.indices)
    ):
        raise UsageError("indices must be different option numbers", code="invalid_answer")


async def _read(request: web.Request) -> bytes:
    """Return the body, which has to come whole and soon.

    Raises:
        web.HTTPRequestTimeout: it did not come in time.
        UsageError: what came is no body.
    """
    guest = cast("InboxHandler", request.protocol)
    guest.reading = True
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError as problem:
        raise web.HTTPRequestTimeout from problem
    except (web.RequestPayloadError, ClientPayloadError, HttpProcessingError) as problem:
        raise UsageError("the body can't be read", code="invalid_body") from problem
    finally:
        guest.reading = False


async def _body(request: web.Request, kind: type[BodyT]) -> BodyT:
    data = await _read(request)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise UsageError(visible(str(problem)), code="invalid_body") from problem


def _not_signed_in() -> LoginRefused:
    return LoginRefused(
        "this browser isn't signed in", code="not_signed_in", recover="run `upcall inbox`"
    )


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise UsageError(f"{name} must be a whole number", code="invalid_query")
    return int(text)


class Routes:
    """The handlers of one inbox."""

    def __init__(self, parts: Parts, assets: Mapping[str, Asset]) -> None:
        self._parts = parts
        self._assets = assets
        self._view = parts.seams.view
        self._built: tuple[int, bytes] | None = None
        self._building = asyncio.Lock()
        self._live_count = 0
        self._unproven: deque[asyncio.Timeout] = deque()

    def add_to(self, app: web.Application) -> None:
        """Register every route."""
        for path in self._assets:
            app.router.add_get(path, self._asset)
        add = app.router
        add.add_get("/healthz", self._healthz)
        add.add_get("/readyz", self._readyz)
        add.add_get("/metrics", self._metrics)
        add.add_post("/api/login", self._login)
        add.add_post("/api/browser", self._browser)
        add.add_post("/api/browser/wait", self._browser_wait)
        add.add_get("/api/live", self._live)
        add.add_post("/api/logout", self._with_login(self._logout))
        add.add_get("/api/state", self._with_login(self._state))
        add.add_get("/api/ask/{id}", self._with_login(self._ask))
        add.add_get("/api/history", self._with_login(self._history))
        add.add_get("/api/file/{id}", self._with_login(self._file))
        add.add_post("/api/answer", self._with_login(self._answer))
        add.add_post("/api/message", self._with_login(self._message))
        add.add_post("/api/session", self._with_login(self._session))

    # -- open to everybody who got past the door -----------------------------------------

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets[request.path]
        return web.Response(body=asset.data, headers={"Content-Type": asset.content_type})

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        del request
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.StreamResponse:
        del request
        ready = self._view.health().ready
        return web.Response(text="ok\n" if ready else "not ok\n", status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        token = self._parts.seams.secrets.get("metrics_token")
        if not token:
            return error_response(404, "not_found", "there is nothing here")
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(
            given.encode("utf-8", "surrogateescape"), f"Bearer {token}".encode()
        ):
            return error_response(401, "unauthorized", "the bearer token is missing or wrong")
        now_ms = self._parts.seams.clock.wall_ms()
        return web.Response(
            text=metrics_text(self._view.health(), len(self._parts.pages), now_ms)
        )

    # -- signing in ----------------------------------------------------------------------

    def _agent(self, request: web.Request) -> str:
        return agent_words(request.headers.get("User-Agent", ""))

    def _origin(self, request: web.Request) -> str | None:
        return self._parts.doors.origin_of(request.headers.get("Host", "").strip())

    def _where(self, request: web.Request) -> str:
        """Return from where a browser comes, as far as we can tell."""
        origin = self._origin(request)
        is_public = origin is not None and origin == self._parts.doors.public
        return f"through {origin}" if is_public else HERE

    def _cookies(self, request: web.Request) -> list[str]:
        name = self._parts.doors.cookie_name(self._origin(request))
        return cookie_values(list(request.headers.items()), name)

    def _signed_in(
        self, request: web.Request, secrets: Secrets, extra: Mapping[str, str]
    ) -> web.Response:
        origin = self._origin(request)
        response = json_response({**extra, "key": secrets.key})
        response.set_cookie(
            self._parts.doors.cookie_name(origin),
            secrets.cookie,
            max_age=LOGIN_LIFE_MS // 1000,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=origin is not None and origin.startswith("https:"),
        )
        return response

    async def _login(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request, LoginBody)
        agent = self._agent(request)
        code = body.code.strip().lower()
        secrets = await self._parts.logins.redeem(code, agent, self._where(request))
        self._parts.seams.log.info("web_signed_in", agent=agent, way="link")
        return self._signed_in(request, secrets, {})

    async def _browser(self, request: web.Request) -> web.StreamResponse:
        await _read(request)
        where = self._where(request)
        code, poll = self._parts.logins.start_waiting(self._agent(request), where)
        return json_response({"code": code, "poll": poll})

    async def _browser_wait(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request, WaitBody)
        secrets = await self._parts.logins.wait(body.poll, WAIT_S)
        if secrets is None:
            return json_response({"state": "waiting"})
        self._parts.seams.log.info("web_signed_in", agent=self._agent(request), way="browser")
        return self._signed_in(request, secrets, {"state": "in"})

    def _login_of(self, request: web.Request, key: str | None) -> Login | None:
        found = (self._parts.logins.find(cookie, key) for cookie in self._cookies(request))
        return next((login for login in found if login is not None), None)

    def _with_login(
        self, handler: Callable[[web.Request, Login], Awaitable[web.StreamResponse]]
    ) -> Handler:
        async def checked(request: web.Request) -> web.StreamResponse:
            login = self._login_of(request, request.headers.get("X-Upcall-Key"))
            if login is None:
                raise _not_signed_in()
            if request.method == "POST":
                await self._parts.logins.touch(login)
            return await handler(request, login)

        return checked

    async def _logout(self, request: web.Request, login: Login) -> web.StreamResponse:
        await _read(request)
        await self._parts.logins.sign_out(login.digest)
        self._parts.pages.sign_out(login.digest)
        response = json_response({"ok": True})
        name = self._parts.doors.cookie_name(self._origin(request))
        response.del_cookie(name, path="/", secure=name.startswith("__Host-"))
        return response

    # -- reading -------------------------------------------------------------------------

    async def _document(self) -> bytes:
        """Return the state without its time, as of now."""
        notices = await self._view.notices(MAX_NOTICES)
        seams = self._parts.seams
        return state_json(
            asks=self._view.open_asks(),
            sessions=self._view.sessions(),
            notices=notices,
            health=self._view.health(),
            about={
                "machine": visible(seams.machine),
                "version": seams.version,
                "me": visible(seams.operator),
                "channel": visible(seams.channel),
                "undo_s": self._parts.undo_s,
            },
        )

    def _timed(self, document: bytes) -> bytes:
        return b'{"now_ms":%d,' % self._parts.seams.clock.wall_ms() + document[1:]

    async def _shared_document(self) -> bytes:
        """Return the state for live pages, built once for each change."""
        async with self._building:
            version = self._parts.pages.version
            if self._built is None or self._built[0] != version:
                self._built = (version, await self._document())
            return self._built[1]

    async def _state(self, request: web.Request, login: Login) -> web.StreamResponse:
        del request, login
        body = self._timed(await self._document())
        return web.Response(body=body, content_type="application/json")

    async def _ask(self, request: web.Request, login: Login) -> web.StreamResponse:
        del login
        ask = self._view.ask(request.match_info["id"])
        if ask is None:
            return error_response(404, "unknown_ask", "this ask isn't known any more")
        return json_response(ask_json(ask, whole=True))

    async def _history(self, request: web.Request, login: Login) -> web.StreamResponse:
        del login
        limit = min(_number(request, "limit") or 20, MAX_HISTORY)
        asks = await self._view.history(_number(request, "before"), limit)
        return json_response({"asks": [ask_json(ask) for ask in asks]})

    async def _file(self, request: web.Request, login: Login) -> web.StreamResponse:
        del login
        found = await self._view.file(request.match_info["id"])
        if found is None:
            return error_response(404, "unknown_file", "this file isn't kept any more")
        name, _, data = found
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file_name(name), '')}",
            "Content-Security-Policy": FILE_POLICY,
        }
        image = image_type(data)
        if image is not None:
            headers["X-Upcall-Image"] = image
        return web.Response(body=data, headers=headers)

    # -- deciding ------------------------------------------------------------------------

    def _who(self) -> Who:
        operator = self._parts.seams.operator
        return Who(identity=operator, name=operator)

    def _receipt(self, receipt: Receipt) -> web.Response:
        self._parts.pages.bump()
        return json_response(receipt_json(receipt), status=200 if receipt.ok else 409)

    async def _answer(self, request: web.Request, login: Login) -> web.StreamResponse:
        body = await _body(request, AnswerBody)
        _checked_answer(body)
        event = Answered(
            key=f"{login.digest[:16]}:{_checked_key(body.key)}",
            ask=body.ask,
            revision=body.revision,
            who=self._who(),
            indices=body.indices,
            text=body.text,
            decline=body.decline,
            hold=body.hold,
            withdraw=body.withdraw,
        )
        return self._receipt(await self._parts.put(event))

    async def _message(self, request: web.Request, login: Login) -> web.StreamResponse:
        body = await _body(request, MessageBody)
        if not is_session_id(body.session):
            raise UsageError("this is no session id", code="unknown_session")
        event = Texted(
            key=f"{login.digest[:16]}:{_checked_key(body.key)}",
            who=self._who(),
            text=_checked_words(body.text),
            session_id=body.session,
        )
        return self._receipt(await self._parts.put(event))

    async def _session(self, request: web.Request, login: Login) -> web.StreamResponse:
        body = await _body(request, SessionBody)
        if not is_session_id(body.session):
            raise UsageError("this is no session id", code="unknown_session")
        event = SessionRuled(
            key=f"{login.digest[:16]}:{_checked_key(body.key)}",
            who=self._who(),
            session_id=body.session,
            rule=body.rule,
        )
        return self._receipt(await self._parts.put(event))

    # -- live ----------------------------------------------------------------------------

    async def _live(self, request: web.Request) -> web.StreamResponse:
        logins = self._parts.logins
        if not any(logins.known_cookie(cookie) for cookie in self._cookies(request)):
            raise _not_signed_in()
        ws = web.WebSocketResponse(
            heartbeat=HEARTBEAT_S, max_msg_size=MAX_BODY_BYTES, compress=False, timeout=2.0
        )
        if not ws.can_prepare(request).ok:
            if self._login_of(request, request.headers.get("X-Upcall-Key")) is None:
                raise _not_signed_in()
            return error_response(400, "not_a_websocket", "this is a WebSocket address")
        await ws.prepare(request)
        return await self._serve_live(ws, request)

    async def _serve_live(
        self, ws: web.WebSocketResponse, request: web.Request
    ) -> web.StreamResponse:
        limit = asyncio.timeout(FIRST_MESSAGE_S)
        self._unproven.append(limit)
        if len(self._unproven) > MAX_UNPROVEN:
            # The cookie alone keeps nobody out: the oldest that shows nothing more goes.
            self._unproven.popleft().reschedule(asyncio.get_running_loop().time())
        login = await self._first_message(ws, request, limit)
        is_too_many = limit not in self._unproven
        if not is_too_many:
            self._unproven.remove(limit)
            is_too_many = login is not None and self._live_count >= MAX_LIVE
        if is_too_many:
            await ws.close(code=CLOSE_TOO_MANY, message=b"too many pages")
            return ws
        if login is None:
            await ws.close(code=CLOSE_SIGNED_OUT, message=b"not signed in")
            return ws
        self._live_count += 1
        try:
            await self._serve_page(ws, login)
        finally:
            self._live_count -= 1
        return ws

    async def _serve_page(self, ws: web.WebSocketResponse, login: Login) -> None:
        await self._parts.logins.touch(login)
        with self._parts.pages.joined(login.digest) as page:
            async with asyncio.TaskGroup() as tasks:
                writer = tasks.create_task(self._write(ws, page), name="web-page")
                await self._read(ws, page)
                writer.cancel()

    async def _first_message(
        self, ws: web.WebSocketResponse, request: web.Request, limit: asyncio.Timeout
    ) -> Login | None:
        try:
            async with limit:
                message = await ws.receive()
        except TimeoutError:
            return None
        if message.type is not WSMsgType.TEXT:
            return None
        try:
            key = msgspec.json.decode(message.data, type=KeyMessage).key
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        return self._login_of(request, key)

    async def _read(self, ws: web.WebSocketResponse, page: Page) -> None:
        async for message in ws:
            if message.type is not WSMsgType.TEXT:
                continue
            try:
                number = msgspec.json.decode(message.data, type=ReadMessage).read
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                continue
            login = self._parts.logins.get(page.login)
            if login is not None:
                await self._parts.logins.touch(login)
            page.read_again(number)

    async def _write(self, ws: web.WebSocketResponse, page: Page) -> None:
        try:
            while True:
                await page.changed.wait()
                page.changed.clear()
                if page.leave is None and self._parts.logins.get(page.login) is None:
                    page.leave = "signed_out"
                if page.leave == "signed_out":
                    await ws.close(code=CLOSE_SIGNED_OUT, message=b"signed out")
                    return
                if page.leave == "stopping":
                    await ws.close(code=WSCloseCode.GOING_AWAY, message=b"the hub stops")
                    return
                reads, page.reads = page.reads, []
                await ws.send_str(self._timed(await self._shared_document()).decode())
                for number in reads:
                    await ws.send_str(f'{{"read":{number}}}')
        except ConnectionError:
            return  # the page is gone; its reader ends as well


def application(parts: Parts, assets: Mapping[str, Asset], gate: Gate) -> web.Application:
    """Return the inbox as an application: the door and every route."""
    door = Doorkeeper(parts, gate, MAX_BODY_BYTES)
    app = web.Application(middlewares=[door.middleware], client_max_size=MAX_BODY_BYTES)
    app.on_response_prepare.append(door.add_headers)
    Routes(parts, assets).add_to(app)
    return app


@asynccontextmanager
async def serving(parts: Parts, sock: socket.socket) -> AsyncIterator[None]:
    """Serve *parts* on a listening socket while the context lasts."""
    assets = await asyncio.to_thread(read_assets)
    gate = Gate(parts.own_uid)
    app = application(parts, assets, gate)
    async with running(app, sock, gate, parts.seams.log):
        try:
            yield
        finally:
            parts.pages.stop()
            parts.logins.stop_waiting()
