"""What clients of the hub's two sockets want, turned into events and calls.

Each request that somebody waits on has a number, the *waiter*, which stands for connection
and request id. The loop answers by that number.
"""

import asyncio
import os
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from upcall.clock import Clock
from upcall.core.redact import mask
from upcall.hub import requests
from upcall.hub.chain import asking_chain
from upcall.hub.desk_limits import DeskLimits
from upcall.hub.lines import LineConnection, LineTooLong
from upcall.hub.pace import Pace
from upcall.hub.peer import login_name
from upcall.hub.requests import SocketKind
from upcall.hub.workspace import Workspaces
from upcall.model.errors import HubError, InvalidAsk, TransportError, UpcallError
from upcall.model.events import (
    Asker,
    AskRaised,
    CancelAsked,
    Event,
    Moment,
    NoticeRaised,
    Took,
    WaitAsked,
    WaiterGone,
)
from upcall.model.ids import AskId
from upcall.model.limits import LINE_PROTOCOL, MAX_LINE_BYTES
from upcall.model.platform import SeamLog, Who
from upcall.model.quotas import Limits
from upcall.model.rows import AskRow
from upcall.model.text import one_line

FRESH_BYTES: Final = 64
# Requests of one client that were not answered yet, before no more are read from it.
MAX_UNANSWERED: Final = 1024
# Asks of one connection before it is slowed down, as many as a burst of programs raises.
ASKS_AT_ONCE: Final = 16_384.0


class HubPort(Protocol):
    """What the sockets need of the hub."""

    def submit(self, event: Event) -> None:
        """Queue an event for the kernel."""
        ...

    def moment(self) -> Moment:
        """Return now."""
        ...

    def random(self, size: int) -> bytes:
        """Return *size* random bytes."""
        ...

    def in_memory(self, ask_id: str) -> bool:
        """Tell whether the kernel has this ask."""
        ...

    def is_open(self, ask_id: str) -> bool:
        """Tell whether this ask has not ended."""
        ...

    def keyed(self, key: str, asker: Asker) -> AskId | None:
        """Return the ask that this asker, or one of its conversation, raised with *key*."""
        ...

    def warning(self) -> str | None:
        """Return what every command says on standard error, if anything."""
        ...

    async def find_closed(self, ask_id: str) -> AskRow | None:
        """Return an ask that was closed before this hub's life."""
        ...

    async def control(
        self, waiter: int, op: str, request: dict[str, Any], who: Who, asker: Asker
    ) -> dict[str, Any]:
        """Do what a client of the control socket wants; return the answer's fields.

        Raises:
            UpcallError: it is refused. Fields of an attribute `extra` go beside the error.
        """
        ...

    def watch(self, waiter: int) -> None:
        """Send `screen` and `notice` events from now on."""
        ...

    def unwatch(self, waiter: int) -> None:
        """Send no more of them."""
        ...


@dataclass(slots=True, eq=False)
class Client:
    """One connection, with what it waits for."""

    line: LineConnection
    kind: SocketKind
    greeted: bool = False
    # Lines that came while an earlier one was still looked up: order matters.
    waiting: deque[bytes] = field(default_factory=deque)
    busy: bool = False
    held: bool = False
    unanswered: int = 0
    pace: Pace = field(default_factory=lambda: Pace(ASKS_AT_ONCE))
    waiters: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Waiter:
    client: Client
    request_id: int | None
    op: str
    ask_id: AskId | None = None
    answered: bool = False
    ended: bool = False
    # It hears of more after its answer.
    stays: bool = False


_Work: TypeAlias = Coroutine[Any, Any, None]


class Desk:
    """Serves the clients of both sockets.

    Args:
        port: the hub.
        clock: time.
        log: where failures go.
        version: of the program, for the hello.
        pid: of the hub, for the hello.
        state: its state folder.
    """

    def __init__(
        self,
        port: HubPort,
        *,
        clock: Clock,
        log: SeamLog,
        version: str,
        pid: int,
        state: str,
        limits: Limits | None = None,
    ) -> None:
        self._port = port
        self._state = state
        self._log = log
        self._version = version
        self._pid = pid
        self._clients: dict[LineConnection, Client] = {}
        self._waiters: dict[int, _Waiter] = {}
        self._last_waiter = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock = clock
        self._workspaces = Workspaces(clock)
        self._limits = DeskLimits(clock, port.is_open, limits)

    @property
    def clients(self) -> int:
        """How many clients are connected."""
        return len(self._clients)

    # --- what the loop says ----------------------------------------------------------------

    def respond(
        self,
        waiter: int,
        fields: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        """Answer a request, once. With *error* it is refused, with *fields* beside it.

        A waiter that is gone is no error.
        """
        found = self._waiters.get(waiter)
        if found is None or found.answered:
            return
        found.answered = True
        client = found.client
        client.unanswered -= 1
        if error is not None or not (found.stays or found.op in {"ask", "wait", "watch"}):
            self._forget(waiter)
        body = {**(fields or {})}
        if error is None:
            self._send(client, {"id": found.request_id, "ok": True, **body})
        else:
            # What was wrong is often named by its own words.
            said = {**error, "msg": mask(str(error.get("msg", "")))}
            self._send(client, {"id": found.request_id, "ok": False, "error": said, **body})
        self._let_go_on(client)

    def event(self, waiter: int, name: str, fields: dict[str, Any]) -> None:
        """Say something to a waiter that was answered. One that is gone is no error."""
        found = self._waiters.get(waiter)
        if found is None:
            return
        message = {"id": found.request_id, "event": name, **fields}
        self._send(found.client, message, replaces=waiter if name == "screen" else None)
        # The waiter stays until the asker has said `took`, or is gone.
        found.ended = found.ended or name == "ended"

    def has(self, waiter: int) -> bool:
        """Tell whether this waiter is still there."""
        return waiter in self._waiters

    async def close(self) -> None:
        """Disconnect everybody, and wait until nothing is worked on any more."""
        for line in list(self._clients):
            line.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workspaces.close()

    # --- what connections say --------------------------------------------------------------

    def opened(self, line: LineConnection, kind: SocketKind) -> None:
        """Take a client."""
        self._clients[line] = Client(line, kind)

    def refuse(self, line: LineConnection, error: UpcallError) -> None:
        """Send a client away before it said anything."""
        line.send({"id": None, "ok": False, "error": error.as_dict()})
        line.close()

    def closed(self, line: LineConnection) -> None:
        """Forget a client, and tell the kernel what nobody waits for any more."""
        client = self._clients.pop(line, None)
        if client is None:
            return
        gone = sorted(client.waiters)
        for waiter in gone:
            found = self._waiters[waiter]
            if found.stays or found.op == "watch":
                self._port.unwatch(waiter)
            self._forget(waiter)
        if gone:
            self._port.submit(WaiterGone(at=self._port.moment(), waiters=tuple(gone)))

    def too_long(self, line: LineConnection) -> None:
        """Send a client away whose line does not end."""
        msg = f"the line is longer than {line.max_line_bytes} bytes"
        self.refuse(line, TransportError(msg, code="line_too_long"))

    def received(self, line: LineConnection, data: bytes) -> None:
        """Take a line of a client; the next one is looked at when this one is under way."""
        client = self._clients.get(line)
        if client is None:
            return
        if client.busy:
            client.waiting.append(data)
            if len(client.waiting) >= MAX_UNANSWERED:
                self._hold(client)
            return
        work = self._begin(client, data)
        if work is not None:
            client.busy = True
            self._spawn(self._finish(client, work))

    # --- one line --------------------------------------------------------------------------

    async def _finish(self, client: Client, work: _Work | None) -> None:
        """Do *work*, then what was sent meanwhile; also for a client that has left."""
        while True:
            if work is not None:
                await work
            if not client.waiting:
                break
            work = self._begin(client, client.waiting.popleft())
        client.busy = False
        self._let_go_on(client)

    def _begin(self, client: Client, data: bytes) -> _Work | None:
        """Handle a line; return what is left to be awaited, if anything."""
        if not data.strip():
            return None
        request_id: int | None = None
        try:
            head = requests.read_head(data)
            if head is None:
                raise TransportError("the line is not a JSON object", code="invalid_line")
            request_id = head.id
            if head.op == "hello":
                self._hello(client, requests.read_hello(data), request_id)
                return None
            request = self._read(client, head.op, data)
        except UpcallError as error:
            self._send(client, {"id": request_id, "ok": False, "error": error.as_dict()})
            return None
        waiter = self._register(client, head)
        try:
            work = self._start(client, waiter, head.op, request)
        except UpcallError as error:
            self._refuse(waiter, error)
            return None
        pause_s = 0.0
        if isinstance(request, requests.Ask):
            pause_s = client.pace.take(1.0, self._clock.boot_s())
        if pause_s:
            return self._paced(waiter, work, pause_s)
        return None if work is None else self._answering(waiter, work)

    async def _paced(self, waiter: int, work: _Work | None, pause_s: float) -> None:
        """Answer, and look at the next line of a client that asks without end only later."""
        if work is not None:
            await self._answering(waiter, work)
        await self._clock.sleep(pause_s)

    async def _answering(self, waiter: int, work: _Work) -> None:
        try:
            await work
        except UpcallError as error:
            self._refuse(waiter, error)
        except Exception as error:  # noqa: BLE001 - a supervisor: one request fails, it logs
            self._log.error("request_failed", error=one_line(repr(error)))
            self._refuse(waiter, HubError("the hub failed here; see its log", code="internal"))

    def _hello(self, client: Client, hello: requests.Hello, request_id: int | None) -> None:
        if hello.protocol != LINE_PROTOCOL:
            self.refuse(
                client.line,
                HubError(
                    f"this hub speaks protocol {LINE_PROTOCOL}, not {hello.protocol}",
                    code="protocol_unknown",
                    recover=f"Use a client that goes with upcall {self._version}.",
                ),
            )
            return
        client.greeted = client.line.greeted = True
        hub: dict[str, Any] = {
            "pid": self._pid,
            "version": self._version,
            "protocol": LINE_PROTOCOL,
            "socket": client.kind,
        }
        if client.line.peer.uid in {0, os.geteuid()}:
            # By this a client tells that it was led here by the copy of a state folder.
            hub["state_dir"] = self._state
        warning = self._port.warning()
        if warning is not None and client.line.peer.uid in (os.getuid(), 0):
            hub["warning"] = warning
        given = {} if request_id is None else {"id": request_id}
        self._send(client, {**given, "ok": True, "hub": hub})

    def _read(self, client: Client, op: str, data: bytes) -> requests.Request:
        if not client.greeted:
            raise HubError("the first line must be a hello", code="hello_needed")
        if op in requests.WITHHELD and client.kind == "ask":
            raise HubError(
                f"{one_line(op, 40)} is not permitted on this socket",
                code="not_permitted",
                recover="This socket can only ask. Use the control socket.",
            )
        if op not in requests.ASKING and op not in requests.CONTROLLING:
            raise HubError(f"there is no op {one_line(op, 40)!r}", code="unknown_op")
        return requests.read_request(op, data)

    def _register(self, client: Client, head: requests.Head) -> int:
        self._last_waiter += 1
        waiter = self._last_waiter
        self._waiters[waiter] = _Waiter(client, head.id, head.op)
        if not client.line.closed:
            client.waiters.add(waiter)
        client.unanswered += 1
        if client.unanswered >= MAX_UNANSWERED:
            self._hold(client)
        return waiter

    def _start(
        self, client: Client, waiter: int, op: str, request: requests.Request
    ) -> _Work | None:
        match request:
            case requests.Ask():
                return self._ask(client, waiter, request)
            case requests.Wait():
                return self._wait(waiter, request)
            case requests.Took():
                return self._took(client, waiter, request)
            case requests.Cancel():
                return self._cancel(waiter, request)
            case requests.Notify():
                self._notify(client, waiter, request)
            case requests.Watch():
                self._limits.watcher(self._watchers())
                self.respond(waiter)
                self._port.watch(waiter)
            case requests.Log(follow=True):
                self._limits.watcher(self._watchers())
                self._waiters[waiter].stays = True
                self._spawn(self._answering(waiter, self._control(client, waiter, op, request)))
            case _:
                # These do not wait for each other: an answer may take seconds.
                control = self._control(client, waiter, op, request)
                self._spawn(self._answering(waiter, control))
        return None

    # --- asking ----------------------------------------------------------------------------

    def _ask(self, client: Client, waiter: int, request: requests.Ask) -> _Work | None:
        words = request.ask
        ask_id = requests.ask_id(words.id)
        if words.secret and (not request.wait or words.key is not None):
            # Both would have the answer kept until somebody comes for it.
            what = "key" if request.wait else "wait"
            raise InvalidAsk(f"secret: is never kept, so {what} cannot be used with it")
        self._waiters[waiter].ask_id = ask_id
        said = requests.check_session(request.session)
        is_guarded = words.ask_class == "permission"
        chain = asking_chain(client.line.peer.pid, self._state) if is_guarded else ()
        event = AskRaised(
            at=self._port.moment(),
            waiter=waiter,
            ask_id=ask_id,
            spec=requests.spec_of(words),
            asker=client.line.peer.asker(
                name=said.name,
                title=said.title,
                cwd=said.cwd,
                program=said.program,
                chain=chain,
                tags=said.tags,
            ),
            timeout_s=words.timeout_s,
            wait=request.wait,
            key=words.key,
            fresh=self._port.random(FRESH_BYTES),
        )
        known = ask_id
        if words.key is not None:
            known = self._port.keyed(words.key, event.asker) or ask_id
        asker = self._placed(event.asker)
        if asker is not None and all(map(self._port.in_memory, {known, ask_id})):
            self._raise(client, msgspec.structs.replace(event, asker=asker))
            return None
        return self._look_up_and_raise(client, event, known)

    async def _look_up_and_raise(self, client: Client, event: AskRaised, known: AskId) -> None:
        asker = self._placed(event.asker)
        if asker is None and event.asker.cwd is not None:
            place = await self._workspaces.describe(event.asker.cwd)
            asker = msgspec.structs.replace(event.asker, repo=place.repo, branch=place.branch)
        # The id itself first: one that was used before must never name a second ask.
        found = await self._found(event.ask_id)
        if found is None and known != event.ask_id:
            found = await self._found(known)
        self._raise(
            client,
            msgspec.structs.replace(
                event, at=self._port.moment(), asker=asker or event.asker, found=found
            ),
        )

    def _raise(self, client: Client, event: AskRaised) -> None:
        self._limits.ask(client.line.peer.uid, event.ask_id)
        # Who left before its ask was raised repeats it; nobody would be told of this one.
        if client.line.closed:
            self._forget(event.waiter)
            return
        self._port.submit(event)

    def _placed(self, asker: Asker) -> Asker | None:
        """Return *asker* with repository and branch, if no disk has to be read for it."""
        if asker.cwd is None:
            return asker
        place = self._workspaces.known(asker.cwd)
        if place is None:
            return None
        return msgspec.structs.replace(asker, repo=place.repo, branch=place.branch)

    async def _found(self, ask_id: AskId) -> AskRow | None:
        if self._port.in_memory(ask_id):
            return None
        return await self._port.find_closed(ask_id)

    def _wait(self, waiter: int, request: requests.Wait) -> _Work | None:
        ask_id = requests.ask_id(request.ask)
        self._waiters[waiter].ask_id = ask_id
        event = WaitAsked(at=self._port.moment(), waiter=waiter, ask_id=ask_id)
        return self._submit_found(event)

    def _took(self, client: Client, waiter: int, request: requests.Took) -> _Work | None:
        ask_id = requests.ask_id(request.ask)
        peer, answer = client.line.peer, request.answer
        if answer is None:
            who = Who(
                identity=str(peer.uid),
                name=login_name(peer.uid),
                pid=peer.pid or None,
                local=True,
            )
            self._forget_ended(client, ask_id)
            event = Took(
                at=self._port.moment(),
                waiter=waiter,
                ask_id=ask_id,
                who=who,
                asker=peer.asker(),
            )
            return self._submit_found(event)
        given = answer.indices is not None or answer.text is not None or answer.secret
        if given == answer.declined:
            raise requests.InvalidRequest("answer: give indices or text, or decline")
        event = Took(
            at=self._port.moment(),
            waiter=waiter,
            ask_id=ask_id,
            who=peer.who(at_own_prompt=True),
            asker=peer.asker(),
            indices=answer.indices,
            text=answer.text,
            declined=answer.declined,
            secret=answer.secret,
            local=True,
        )
        return self._submit_found(event)

    def _cancel(self, waiter: int, request: requests.Cancel) -> _Work | None:
        ask_id = requests.ask_id(request.ask)
        return self._submit_found(
            CancelAsked(
                at=self._port.moment(),
                waiter=waiter,
                ask_id=ask_id,
                reason=one_line(request.reason or ""),
            )
        )

    def _submit_found(self, event: WaitAsked | Took | CancelAsked) -> _Work | None:
        if self._port.in_memory(event.ask_id):
            self._port.submit(event)
            return None
        return self._look_up_and_submit(event)

    async def _look_up_and_submit(self, event: WaitAsked | Took | CancelAsked) -> None:
        found = await self._found(event.ask_id)
        waiting = self._waiters.get(event.waiter)
        if isinstance(event, WaitAsked) and (waiting is None or waiting.client.line.closed):
            self._forget(event.waiter)
            return
        self._port.submit(msgspec.structs.replace(event, at=self._port.moment(), found=found))

    def _notify(self, client: Client, waiter: int, request: requests.Notify) -> None:
        said = requests.check_session(request.session)
        self._limits.notice(client.line.peer.uid)
        asker = client.line.peer.asker(
            name=said.name,
            title=said.title,
            cwd=said.cwd,
            program=said.program,
            tags=said.tags,
        )
        self._port.submit(
            NoticeRaised(
                at=self._port.moment(),
                waiter=waiter,
                text=requests.check_notice(request.text),
                level=request.level,
                asker=self._placed(asker) or asker,
                fresh=self._port.random(FRESH_BYTES),
            )
        )

    def _watchers(self) -> int:
        streams = (found.stays or found.op == "watch" for found in self._waiters.values())
        return max(0, sum(streams) - 1)

    # --- controlling -----------------------------------------------------------------------

    async def _control(
        self, client: Client, waiter: int, op: str, request: requests.Request
    ) -> None:
        peer = client.line.peer
        fields = msgspec.to_builtins(request)
        answer = await self._port.control(waiter, op, fields, peer.who(), peer.asker())
        self.respond(waiter, answer)

    # --- small things ----------------------------------------------------------------------

    def _refuse(self, waiter: int, error: UpcallError) -> None:
        extra = getattr(error, "extra", None)
        beside = extra if isinstance(extra, dict) else None
        self.respond(waiter, beside, error.as_dict())

    def _send(
        self, client: Client, message: dict[str, Any], *, replaces: int | None = None
    ) -> None:
        try:
            client.line.send(message, replaces=replaces)
        except LineTooLong:
            try:
                client.line.send(shortened(message), replaces=replaces)
            except LineTooLong:
                error = HubError(
                    f"the answer would be longer than {MAX_LINE_BYTES} bytes",
                    code="answer_too_long",
                    recover="Ask for less at a time.",
                )
                client.line.send({"id": message["id"], "ok": False, "error": error.as_dict()})
        except (TypeError, ValueError, RecursionError) as bad:
            # Whoever asked would wait for an answer that never comes.
            self._log.error("answer_not_encoded", error=one_line(repr(bad)))
            error = HubError("the hub failed here; see its log", code="internal")
            given = {"id": message.get("id"), "ok": False, "error": error.as_dict()}
            client.line.send(given)

    def _forget(self, waiter: int) -> None:
        found = self._waiters.pop(waiter, None)
        if found is not None:
            found.client.waiters.discard(waiter)

    def _forget_ended(self, client: Client, ask_id: AskId) -> None:
        ended = [
            waiter
            for waiter in client.waiters
            if self._waiters[waiter].ended and self._waiters[waiter].ask_id == ask_id
        ]
        for waiter in ended:
            self._forget(waiter)

    def _hold(self, client: Client) -> None:
        if not client.held:
            client.held = True
            client.line.hold()

    def _let_go_on(self, client: Client) -> None:
        few = client.unanswered < MAX_UNANSWERED // 2
        if client.held and few and len(client.waiting) < MAX_UNANSWERED // 2:
            client.held = False
            client.line.go_on()

    def _spawn(self, work: _Work) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def shortened(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose asks carry no details, and as few asks as fit into a line."""
    asks = message.get("asks")
    if not isinstance(asks, Iterable):
        return message
    short = []
    size = len(msgspec.json.encode({**message, "asks": []})) + 64
    for ask in asks:
        fields = msgspec.to_builtins(ask)
        if fields.get("class") == "permission" and fields.get("detail"):
            # What will run is not there to be read, so nobody can say yes to it there.
            fields["left_out"] = len(fields["detail"])
        fields["detail"] = None
        fields["option_details"] = None
        size += len(msgspec.json.encode(fields)) + 1
        if size > MAX_LINE_BYTES:
            break
        short.append(fields)
    return {**message, "asks": short, "shortened": True}
