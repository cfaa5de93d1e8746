"""What clients of the control socket can have done: answer, list, look, configure, stop."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from upcall.clock import Clock
from upcall.core.kernel import Kernel
from upcall.core.ledger import plain, result_of
from upcall.core.redact import mask
from upcall.core.render import CHANGED, late_code, late_words
from upcall.hub.letters import Letters
from upcall.hub.policies import Policies
from upcall.hub.redaction import Redactions
from upcall.hub.rights import Rights
from upcall.hub.store.db import Store
from upcall.hub.store.erase import Forgotten, Wanted
from upcall.hub.store.files import copies
from upcall.hub.view import with_sessions
from upcall.model.errors import HubError, UpcallError, UsageError
from upcall.model.ids import AskId
from upcall.model.platform import Answered, Inbound, Receipt, SessionRuled, SignsIn, Who
from upcall.model.rows import AskRow
from upcall.model.text import one_line, visible
from upcall.model.views import RefusedRecord, RootView

CONFIRM_S: Final = 10.0
PREFIX_CHARS: Final = 4


class ControlRefused(UpcallError):
    """A control request is refused; `extra` fields go beside the error."""

    code = "refused"

    def __init__(
        self, code: str, msg: str, *, recover: str | None = None, **extra: Any
    ) -> None:
        super().__init__(msg, code=code, recover=recover)
        self.extra = {name: value for name, value in extra.items() if value is not None}


class Hub(Protocol):
    """What the controls need of the daemon."""

    kernel: Kernel
    store: Store

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def policies(self) -> Policies:
        """The policy in force, and what people chose for conversations."""
        ...

    @property
    def redactions(self) -> Redactions:
        """What people chose for conversations."""
        ...

    @property
    def letters(self) -> Letters:
        """The outbox as people see it."""
        ...

    @property
    def rights(self) -> Rights:
        """The lock, and who may act."""
        ...

    async def put(self, channel: str, inbound: Inbound) -> Receipt:
        """Return what became of a person's act, after its commit."""
        ...

    def signs_in(self) -> SignsIn | None:
        """Return the adapter with logins of its own, if one is open."""
        ...

    def refused_records(self) -> list[RefusedRecord]:
        """Return discovery files that are not used."""
        ...

    async def forget(self, wanted: Wanted) -> Forgotten:
        """Erase texts from the file, from memory and from every view."""
        ...

    async def change_root(self, path: str, *, gone: bool) -> None:
        """Register or forget a project folder."""
        ...

    def root_views(self) -> list[RootView]:
        """Return the registered project folders."""
        ...

    def status(self) -> dict[str, Any]:
        """Return the status document."""
        ...

    async def reload(self) -> dict[str, Any]:
        """Read the configuration again."""
        ...

    def ask_to_stop(self, reason: str, *, stays_down: bool = False) -> None:
        """End the hub when nothing is on its way; `stays_down`: until one is wanted anew."""
        ...

    def begin_anew(self, reason: str) -> bool:
        """End it, and start it again in this process; False if that cannot be."""
        ...

    def is_outdated(self) -> bool:
        """Tell whether a newer version is on disk; does disk work."""
        ...


class Controls:
    """Carries out the operations of the control socket."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def do(self, op: str, request: dict[str, Any], who: Who) -> dict[str, Any]:
        """Do *op* and return the answer's fields.

        Raises:
            UpcallError: it is refused.
        """
        match op:
            case "answer":
                return await self._answer(request, who)
            case "asks":
                return await self._asks(request)
            case "sessions":
                if request.get("rule"):
                    await self._rule(request, who)
                return self._sessions(request)
            case "login":
                return await self._login(request)
            case "roots":
                return await self._roots(request)
            case "lock" | "unlock" | "operators":
                return await self._hub.rights.do(op, request, who)
            case "explain":
                return self._hub.policies.explain(request)
            case "verbosity":
                conversation = await self._conversation(request["session"])
                return await self._hub.policies.verbosity(conversation, request.get("level"))
            case "redact":
                conversation = await self._conversation(request["session"])
                return await self._hub.redactions.do(conversation, request, who)
            case "forget":
                return await self._forget(request)
            case "outbox" | "outbox_retry" | "outbox_drop":
                return await self._hub.letters.do(op, request)
            case "status":
                return self._hub.status()
            case "reload":
                return await self._hub.reload()
            case "stop":
                return await self._stop(request)
            case _:
                raise HubError(f"unknown operation {visible(op)!r}", code="unknown_op")

    async def find(self, text: str) -> AskRow:
        """Return the one ask that *text* names.

        Raises:
            ControlRefused: `unknown_ask`, or `ambiguous_ask` with the candidates.
        """
        rows = self._hub.kernel.match(text)
        if not rows and len(text) >= PREFIX_CHARS:
            rows = await self._hub.store.ask_like(text)
        if not rows:
            raise ControlRefused(
                "unknown_ask",
                f"there is no question {one_line(text)!r}",
                recover="an id, or at least its first 4 characters; see: upcall asks --all",
            )
        open_rows = [row for row in rows if row.state != "closed"]
        if len(rows) > 1 and len(open_rows) == 1 and not _may_have_drifted(open_rows[0], rows):
            return open_rows[0]
        if len(rows) > 1:
            raise ControlRefused(
                "ambiguous_ask",
                f"{one_line(text)!r} names {len(rows)} asks",
                recover="give the whole id of the one you mean",
                candidates=[row.ask_id for row in rows[:20]],
            )
        return rows[0]

    async def _answer(self, request: dict[str, Any], who: Who) -> dict[str, Any]:
        row = await self.find(request["ask"])
        values = tuple(request.get("values") or ())
        if row.spec.secret and values and not request.get("hidden"):
            raise ControlRefused(
                "secret_shown",
                "this is a secret: others of this computer can read what is on a command line",
                recover=f"upcall answer {row.ask_id}, without a value, asks for it unseen",
            )
        act = Answered(
            key=f"local-{secrets.token_hex(12)}",
            ask=row.ask_id,
            revision=request.get("revision"),
            who=who,
            typed=values or None,
            decline=bool(request.get("decline")),
            hold=request.get("hold"),
            withdraw=bool(request.get("withdraw")),
        )
        if row.state == "closed" and self._hub.kernel.find(row.ask_id) is None:
            now_ms = self._hub.clock.wall_ms()
            raise ControlRefused(
                late_code(row),
                late_words(self._hub.kernel.shown(row), now_ms),
                result=plain(result_of(self._hub.kernel.shown(row), now_ms)),
            )
        try:
            async with self._hub.clock.timeout(CONFIRM_S):
                receipt = await self._hub.put("terminal", act)
        except TimeoutError:
            now = self._hub.kernel.find(row.ask_id) or row
            shown = self._hub.kernel.shown(now)
            result = plain(result_of(shown, self._hub.clock.wall_ms()))
            if now.state != "closed":
                result["reason"] = "claimed, waiting for the program"
            return {"result": result}
        result = None if receipt.result is None else plain(receipt.result)
        if not receipt.ok:
            raise ControlRefused(
                receipt.code, receipt.msg, recover=receipt.recover, result=result
            )
        # A vote decides nothing by itself; what is missing is said in words.
        more = {"code": receipt.code, "msg": receipt.msg} if receipt.msg else {}
        return {"result": result, **more}

    async def _asks(self, request: dict[str, Any]) -> dict[str, Any]:
        state, limit = request.get("state", "open"), int(request.get("limit", 100))
        kernel = self._hub.kernel
        if request.get("ask") is not None:
            row = await self.find(request["ask"])
            if kernel.find(row.ask_id) is not None:
                return {"asks": [plain(kernel.view(row))]}
            closed = await with_sessions(kernel, self._hub.store, [row])
            return {"asks": [plain(view) for view in closed]}
        views = {AskId(view.id): view for view in kernel.open_asks()}
        if state == "open":
            return {"asks": [plain(view) for view in list(views.values())[:limit]]}
        rows = await self._hub.store.closed_asks(None, limit)
        closed = await with_sessions(kernel, self._hub.store, rows)
        if state == "closed":
            return {"asks": [plain(view) for view in closed]}
        # What ended while the store was read is listed once, as it stands now.
        now = [kernel.find(ask_id) for ask_id in views]
        listed = {row.ask_id: kernel.view(row) for row in now if row is not None}
        listed |= {AskId(view.id): view for view in closed if view.id not in listed}
        return {"asks": [plain(view) for view in list(listed.values())[:limit]]}

    async def _rule(self, request: dict[str, Any], who: Who) -> None:
        act = SessionRuled(
            key=f"local-{secrets.token_hex(12)}",
            who=who,
            session_id=str(request.get("session") or ""),
            rule=request["rule"],
        )
        receipt = await self._hub.put("terminal", act)
        if not receipt.ok:
            raise ControlRefused(receipt.code, receipt.msg, recover=receipt.recover)

    def _sessions(self, request: dict[str, Any]) -> dict[str, Any]:
        views = [plain(view) for view in self._hub.kernel.sessions()]
        fields: dict[str, Any] = {"sessions": views}
        if request.get("all"):
            records = self._hub.refused_records()
            fields["refused"] = [
                {name: mask(str(value)) for name, value in plain(record).items()}
                for record in records
            ]
        return fields

    async def _login(self, request: dict[str, Any]) -> dict[str, Any]:
        adapter = self._hub.signs_in()
        if adapter is None:
            raise HubError(
                "the web inbox is not open",
                code="no_web",
                recover="look at `upcall hub status`; set web.enabled = true",
            )
        answer = await adapter.sign_in(request["action"], request.get("browser"))
        return dict(answer)

    async def _stop(self, request: dict[str, Any]) -> dict[str, Any]:
        reason = one_line(str(request.get("reason") or "asked to"))
        again = request.get("again")
        if again == "upgrade" and not await asyncio.to_thread(self._hub.is_outdated):
            again = None  # another installation is newer; the next hub has to be its own
        if again is not None and self._hub.begin_anew(reason):
            return {"again": True}
        self._hub.ask_to_stop(reason, stays_down=bool(request.get("stays_down")))
        return {}

    async def _forget(self, request: dict[str, Any]) -> dict[str, Any]:
        ids = []
        for text in request.get("asks") or ():
            row = await self.find(text)
            if row.state != "closed":
                raise ControlRefused(
                    "ask_open",
                    f"{row.ask_id} is still open; what is open is not forgotten",
                    recover=f"end it first, such as: upcall answer {row.ask_id} --decline",
                )
            ids.append(row.ask_id)
        conversation = None
        if request.get("session") is not None:
            conversation = await self._conversation(request["session"])
        wanted = Wanted(tuple(dict.fromkeys(ids)), conversation, request.get("before_ms"))
        if request.get("dry_run"):
            found = await self._hub.store.forgettable(wanted)
        else:
            found = await self._hub.forget(wanted)
        return {
            "forgotten": {
                "asks": list(found.asks),
                "open": list(found.open),
                "sessions": list(found.sessions),
                "notices": found.notices,
                "copies": await asyncio.to_thread(copies, self._hub.store.path),
            }
        }

    async def _conversation(self, name: str) -> str:
        """Return the conversation of a session's name or id."""
        for key in (f"n:{name}", name):
            if await self._hub.store.has_conversation(key):
                return key
        session = self._hub.kernel.session(name)
        if session is None:
            session = (await self._hub.store.sessions_by_id([name])).get(name)
        if session is None:
            raise ControlRefused(
                "unknown_session",
                f"no session {one_line(name)!r} is known",
                recover="upcall sessions lists those that live",
            )
        return session.conversation

    async def _roots(self, request: dict[str, Any]) -> dict[str, Any]:
        action, path = request["action"], request.get("path")
        if action != "list":
            if not path or not path.startswith("/") or "\0" in path:
                raise UsageError(f"a root is an absolute path, not {one_line(str(path))!r}")
            await self._hub.change_root(path, gone=action == "remove")
        return {"roots": [plain(view) for view in self._hub.root_views()]}


def _may_have_drifted(row: AskRow, rows: Sequence[AskRow]) -> bool:
    """Tell whether whoever named *row* by less than its id may have seen another question.

    A program chooses its ids, and asks anew under the same action id when it changes its
    question.
    """
    return row.spec.ask_class == "permission" or any(one.note == CHANGED for one in rows)


class Screens:
    """The open `upcall watch` terminals."""

    def __init__(self, send: Callable[[int, str, dict[str, Any]], None]) -> None:
        self._send = send
        self._screens: set[int] = set()

    def add(self, waiter: int) -> None:
        """A screen was opened."""
        self._screens.add(waiter)

    def remove(self, waiter: int) -> None:
        """A screen was closed."""
        self._screens.discard(waiter)

    def show(self, body: bytes) -> int:
        """Hand a lowered card to every screen; return how many there are."""
        card = msgspec.json.decode(body) if self._screens else None
        for waiter in tuple(self._screens):
            self._send(waiter, "card", {"card": card})
        return len(self._screens)

    def count(self) -> int:
        """Return how many screens are open."""
        return len(self._screens)

    def tell(self, event: str, fields: dict[str, Any]) -> None:
        """Say *event* to every screen."""
        for waiter in tuple(self._screens):
            self._send(waiter, event, fields)
