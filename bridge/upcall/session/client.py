"""The client of any endpoint: see a session's asks, answer them, send it messages."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from upcall.clock import Clock, SystemClock
from upcall.core.link import ASK_CONTROLS, CLIENT_CAPABILITIES, OUTCOMES, PARALLEL_ASKS
from upcall.model.errors import TransportError, UpcallError
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    Answer,
    AskHold,
    Frame,
    Hello,
    InlineImage,
    Ping,
    Pong,
    Reply,
    ReplyRejected,
    SessionClosed,
    Unknown,
    UserMessage,
)
from upcall.model.ids import ActionId, ReplyKey
from upcall.model.limits import PROTOCOL_VERSION
from upcall.model.text import one_line
from upcall.session.connect import Connection, ConnectionEnded, open_connection

__all__ = [
    "Connection",
    "ConnectionEnded",
    "ReplyRejectedError",
    "SessionClient",
    "open_connection",
]

_T = TypeVar("_T")

MAX_UNREAD_FRAMES: Final = 1024
_CAPABILITIES: Final = (*CLIENT_CAPABILITIES, ASK_CONTROLS)
_PING_PONG: Final = "client_ping_pong"


class RecordLike(Protocol):
    """What `SessionClient.from_record` reads of a discovery record."""

    @property
    def url(self) -> str:
        """Where the endpoint listens."""
        ...

    @property
    def token(self) -> str:
        """What lets a client in."""
        ...


class ReplyRejectedError(UpcallError):
    """The session did not take the answer; `code` is the reason that it gave.

    Attributes:
        resolved: what won instead, as far as this client saw it.
    """

    code = "reply_rejected"

    def __init__(self, reason: str, resolved: ActionResolved | None = None) -> None:
        super().__init__(f"the session did not take the answer: {one_line(reason)}")
        self.code = reason
        self.resolved = resolved


class _Waiting:
    """One reply on its way."""

    __slots__ = ("answer", "future", "nonce", "resolved")

    def __init__(self, reply: Reply, nonce: str | None) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[ActionResolved] = loop.create_future()
        self.answer = reply.answer
        self.nonce = nonce
        self.resolved: ActionResolved | None = None

    def settle(self, resolved: ActionResolved) -> None:
        if self.future.done():
            return
        if resolved.resolved_by == "client" and resolved.answer == self.answer:
            self.future.set_result(resolved)
        else:
            self.future.set_exception(ReplyRejectedError("already_answered", resolved))


class SessionClient:
    """A connection to one session, as an async context manager and an iterator of frames.

    ```python
    async with SessionClient.connect(url, token) as client:
        for ask in client.asks():
            await client.reply(ask.id, "Yes")
    ```

    Iterating gives every frame that the session sends, until the connection is over. Of
    frames that nobody reads the last 1,024 are kept.

    Attributes:
        session_closed: whether the session said that it ends.
        dropped: how many frames were dropped because nobody read them.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float = 10.0,
        token_in_url: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._url = url
        self._token = token
        self._timeout_s = timeout_s
        self._token_in_url = token_in_url
        self._connection: Connection | None = None
        self._session_id = ""
        self._asks: dict[ActionId, ActionNeeded] = {}
        self._waiting: dict[ActionId, list[_Waiting]] = {}
        self._holding: dict[ActionId, list[asyncio.Future[ActionNeeded]]] = {}
        self._pings: dict[str, asyncio.Future[None]] = {}
        self._nonces = itertools.count(1)
        self._frames: deque[Frame | Unknown] = deque()
        self._arrived = asyncio.Event()
        self._over: Exception | None = None
        self._is_over = False
        self.session_closed = False
        self.dropped = 0

    @classmethod
    def connect(
        cls,
        url: str,
        token: str,
        *,
        timeout_s: float = 10.0,
        token_in_url: bool = True,
        clock: Clock | None = None,
    ) -> Self:
        """Return a client for the endpoint at *url*; entering it connects.

        Args:
            url: `ws://` with a literal loopback address.
            token: the session's token.
            timeout_s: for connecting, and for each request, in seconds.
            token_in_url: also send the token in the URL, which peers need.
            clock: for the time-outs.
        """
        return cls(url, token, timeout_s=timeout_s, token_in_url=token_in_url, clock=clock)

    @classmethod
    def from_record(cls, record: RecordLike, *, timeout_s: float = 10.0) -> Self:
        """Return a client for the session that published *record*."""
        return cls(record.url, record.token, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        """Connect, and wait until every ask that is open now is known.

        Raises:
            TransportError: see `open_connection`.
        """
        self._connection = await open_connection(
            self._url,
            self._token,
            on_frame=self._on_frame,
            on_close=self._on_close,
            timeout_s=self._timeout_s,
            token_in_url=self._token_in_url,
            clock=self._clock,
        )
        try:
            self._connection.send(
                Hello(protocol_version=PROTOCOL_VERSION, capabilities=_CAPABILITIES)
            )
            if _PING_PONG in self.capabilities:
                await self.ping()
        except BaseException:
            self._connection.abort()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()

    # --- What the session says -------------------------------------------------------------

    @property
    def capabilities(self) -> frozenset[str]:
        """What the session announced."""
        return frozenset() if self._connection is None else self._connection.capabilities

    def asks(self) -> list[ActionNeeded]:
        """Return the asks that are open now, oldest first."""
        return list(self._asks.values())

    async def __aiter__(self) -> AsyncIterator[Frame | Unknown]:
        """Iterate over the session's frames, until the connection is over.

        Raises:
            ConnectionEnded: it did not end by a normal closure.
        """
        while True:
            while self._frames:
                yield self._frames.popleft()
            if self._is_over:
                if self._over is not None:
                    raise self._over
                return
            self._arrived.clear()
            await self._arrived.wait()

    # --- What a person says ----------------------------------------------------------------

    async def reply(
        self, ask_id: str, answer: Answer, key: str | None = None
    ) -> ActionResolved:
        """Answer an ask and return how it was resolved.

        Args:
            ask_id: the action id.
            answer: an index from 0, a label, words, or a `Choice`.
            key: with the same key the same answer may be sent again, and counts once.

        Raises:
            ReplyRejectedError: the session did not take it.
            TransportError: `uncertain_after_send`; the connection ended, or no word came in
                time: the session may have taken it.
        """
        reply = Reply(
            id=ActionId(ask_id),
            answer=answer,
            token=self._token,
            idempotency_key=None if key is None else ReplyKey(key),
        )
        return await self._send_reply(reply)

    async def decline(self, ask_id: str, key: str | None = None) -> ActionResolved:
        """Say that nobody will answer an ask.

        Raises:
            UpcallError: `not_supported`; the session knows no such thing.
            ReplyRejectedError: the session did not take it.
            TransportError: `uncertain_after_send`.
        """
        self._require(OUTCOMES, "decline")
        reply = Reply(
            id=ActionId(ask_id),
            token=self._token,
            decline=True,
            idempotency_key=None if key is None else ReplyKey(key),
        )
        return await self._send_reply(reply)

    async def hold(self, ask_id: str, hold: bool = True) -> ActionNeeded:
        """Stop an ask's deadline, or let it run again; return the ask as it is then.

        Raises:
            UpcallError: `not_supported`, or `unknown_action`; it is not open.
            TransportError: no word came in time.
        """
        self._require(OUTCOMES, "hold")
        action = ActionId(ask_id)
        if action not in self._asks:
            raise UpcallError("there is no such open ask", code="unknown_action")
        future: asyncio.Future[ActionNeeded] = asyncio.get_running_loop().create_future()
        self._holding.setdefault(action, []).append(future)
        try:
            self._live().send(AskHold(id=action, token=self._token, hold=hold))
            return await self._within(future)
        finally:
            waiting = self._holding.get(action, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._holding.pop(action, None)

    async def message(
        self,
        text: str,
        *,
        images: Iterable[InlineImage] = (),
        update_id: int | None = None,
        session_id: str | None = None,
    ) -> None:
        """Send a person's words to the session.

        Raises:
            ConnectionEnded: the connection is over.
        """
        self._live().send(
            UserMessage(
                session_id=self._session_id if session_id is None else session_id,
                text=text,
                token=self._token,
                images=tuple(images),
                update_id=update_id,
            )
        )

    async def ping(self) -> None:
        """Wait until the session has answered everything that was sent before.

        Raises:
            TransportError: no word came in time.
        """
        nonce = f"n{next(self._nonces)}"
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pings[nonce] = future
        try:
            self._live().send(Ping(nonce=nonce))
            await self._within(future)
        finally:
            self._pings.pop(nonce, None)

    # --- Inside ----------------------------------------------------------------------------

    def _live(self) -> Connection:
        if self._connection is None or self._is_over:
            raise ConnectionEnded(1006, "")
        return self._connection

    def _require(self, capability: str, what: str) -> None:
        if capability not in self.capabilities:
            raise UpcallError(f"this session knows no {what}", code="not_supported")

    async def _send_reply(self, reply: Reply) -> ActionResolved:
        connection = self._live()
        nonce = f"n{next(self._nonces)}" if _PING_PONG in self.capabilities else None
        waiting = _Waiting(reply, nonce)
        self._waiting.setdefault(reply.id, []).append(waiting)
        try:
            connection.send(reply)
            if nonce is not None:
                connection.send(Ping(nonce=nonce))
            return await self._within(waiting.future)
        finally:
            queue = self._waiting.get(reply.id, [])
            if waiting in queue:
                queue.remove(waiting)
            if not queue:
                self._waiting.pop(reply.id, None)

    async def _within(self, future: "asyncio.Future[_T]") -> _T:
        try:
            async with self._clock.timeout(self._timeout_s):
                return await future
        except TimeoutError as exc:
            raise TransportError(
                f"no word from the session within {self._timeout_s:g} s",
                code="uncertain_after_send",
            ) from exc

    def _on_frame(self, frame: Frame | Unknown) -> None:
        match frame:
            case ActionNeeded():
                self._note_ask(frame)
            case ActionResolved():
                self._asks.pop(frame.id, None)
                self._note_resolved(frame)
            case ReplyRejected():
                self._note_rejected(frame)
            case Pong():
                self._note_pong(frame.nonce)
            case SessionClosed():
                self.session_closed = True
            case _:
                pass
        session_id = getattr(frame, "session_id", None)
        if isinstance(session_id, str) and not self._session_id:
            self._session_id = session_id
        if len(self._frames) >= MAX_UNREAD_FRAMES:
            self._frames.popleft()
            self.dropped += 1
        self._frames.append(frame)
        self._arrived.set()

    def _note_ask(self, frame: ActionNeeded) -> None:
        if frame.kind == "idle":
            return
        if PARALLEL_ASKS not in self.capabilities and frame.id not in self._asks:
            # Such a session has one ask at a time; this one replaces it.
            self._asks.clear()
        self._asks[frame.id] = frame
        for future in self._holding.get(frame.id, ()):
            if not future.done():
                future.set_result(frame)

    def _note_resolved(self, frame: ActionResolved) -> None:
        for waiting in self._waiting.get(frame.id, ()):
            if waiting.nonce is None:
                waiting.settle(frame)
            else:
                # Somebody else may have given the same answer first: then a rejection of
                # ours comes before the pong.
                waiting.resolved = frame

    def _note_rejected(self, frame: ReplyRejected) -> None:
        for waiting in self._waiting.get(frame.id, ()):
            if not waiting.future.done():
                error = ReplyRejectedError(frame.reason, waiting.resolved)
                waiting.future.set_exception(error)
                return

    def _note_pong(self, nonce: str) -> None:
        future = self._pings.get(nonce)
        if future is not None and not future.done():
            future.set_result(None)
        for queue in self._waiting.values():
            for waiting in queue:
                if waiting.nonce == nonce:
                    # A session that decides later than it answers pings is taken at its
                    # first word.
                    waiting.nonce = None
                    if waiting.resolved is not None:
                        waiting.settle(waiting.resolved)

    def _on_close(self, error: Exception | None) -> None:
        self._is_over = True
        self._over = error
        for queue in self._waiting.values():
            for waiting in queue:
                if waiting.resolved is not None:
                    # A program that has its answer may end before it answers the ping.
                    waiting.settle(waiting.resolved)
        uncertain = TransportError(
            "the connection ended before the session confirmed", code="uncertain_after_send"
        )
        uncertain.__cause__ = error
        pending: list[asyncio.Future[ActionResolved] | asyncio.Future[ActionNeeded]] = [
            waiting.future for queue in self._waiting.values() for waiting in queue
        ]
        pending.extend(future for held in self._holding.values() for future in held)
        for future in (*pending, *self._pings.values()):
            if not future.done():
                future.set_exception(uncertain)
        self._arrived.set()
