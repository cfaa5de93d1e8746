"""The web inbox as an adapter: binds its port, counts its pages, signs browsers in.

The port is bound when the adapter starts; the HTTP library is loaded when the first
connection arrives, which waits in the kernel's queue meanwhile.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from upcall.model.errors import HubError, UsageError
from upcall.model.platform import (
    Body,
    ChannelState,
    DeliveryKey,
    Finding,
    Inbound,
    Inbox,
    LoginKept,
    Place,
    Receipt,
    Ref,
    Seams,
    SettingKept,
)
from upcall_adapters.web.config import WebConfig, public_origin
from upcall_adapters.web.gate import can_tell_users
from upcall_adapters.web.guards import Doors
from upcall_adapters.web.login import CODE_LIFE_MS, Logins
from upcall_adapters.web.pages import Pages
from upcall_adapters.web.parts import Parts
from upcall_adapters.web.peers import holder_of
from upcall_adapters.web.port import Bound, bind, wanted_ports

_BIND_AGAIN_S: Final = 5.0
_SEEN_EVERY_S: Final = 20.0
# Whoever takes the port while no hub runs gets what a page left open sends it.
_AWAY_LIMIT_MS: Final = 60_000
_START_S: Final = 5.0
_PORT: Final = "port"
_SEEN: Final = "seen_ms"


class WebInbox:
    """One inbox on one loopback port."""

    def __init__(self, config: WebConfig, seams: Seams) -> None:
        self._config = config
        self._seams = seams
        self._inbox: Inbox | None = None
        self._bound: Bound | None = None
        self._trouble: str | None = None
        self._blocked = False
        self._bound_once = asyncio.Event()
        self._pages = Pages(self._tell_audience)
        self._logins = Logins(seams.clock, seams.random, seams.view, self._put, seams.hide)

    # -- the Adapter protocol ------------------------------------------------------------

    async def run(self, inbox: Inbox) -> None:
        """Serve until cancelled."""
        self._inbox = inbox
        bound = await self._listen()
        try:
            own_uid = await self._only_user()
            await self._end_doubtful_logins()
            self._bound = bound
            self._bound_once.set()
            self._tell_audience(0)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow(), name="web-follow")
                tasks.create_task(self._serve(bound, own_uid), name="web-serve")
                tasks.create_task(self._stay_seen(), name="web-seen")
        finally:
            self._bound = None
            bound.sock.close()

    async def post(self, place: Place, body: Body, key: DeliveryKey) -> Ref:
        """Tell open pages; the inbox itself shows the ask whenever it is opened."""
        del place, body
        self._pages.bump()
        return Ref(f"web:{key.key}")

    async def edit(self, ref: Ref, body: Body) -> None:
        """Tell open pages; they draw the ask as it stands."""
        del ref, body
        self._pages.bump()

    async def check(self) -> Sequence[Finding]:
        """Say whether the port could be had, and who has it if not."""
        findings: list[Finding] = []
        if self._bound is None:
            findings.append(
                Finding(
                    "error",
                    "web_port_taken" if self._trouble else "web_not_running",
                    self._trouble or "the web inbox isn't running",
                    "choose another port with `[web] port` in the configuration",
                )
            )
        elif self._trouble:
            findings.append(Finding("warning", "web_port_moved", self._trouble, None))
        else:
            findings.append(Finding("ok", "web_listens", f"the inbox is at {self.url()}"))
        if self._config.public_url is not None and not self._config.other_users:
            findings.append(
                Finding(
                    "warning",
                    "web_tunnel_user",
                    "a tunnel that runs as another user is refused",
                    "set `other_users = true` under [web] if yours does",
                )
            )
        return findings

    # -- SignsIn -------------------------------------------------------------------------

    def url(self) -> str | None:
        """Return the address without a secret, once it is bound."""
        return None if self._bound is None else f"http://127.0.0.1:{self._bound.port}/"

    async def sign_in(self, action: str, browser: str | None) -> Mapping[str, Any]:
        """Do one step of signing browsers in or out.

        What the person has to know of the port stands in `trouble` of `link`, `browsers` and
        `list`.

        * `link`: `{url, public_url, expires_ms}`; the code is in the fragment.
        * `browsers`: `{url, public_url, other_users, waiting: [{code, agent, where,
          since_ms}]}`.
        * `approve`, with the four characters: `{code, agent}`.
        * `list`: `{logins: [{id, agent, where, made_ms, used_ms, ends_ms, pages}]}`.
        * `sign_out_all`: `{signed_out}`, how many logins ended.

        Raises:
            UsageError: no such action, or no such browser waits.
            HubError: the inbox has no port yet.
        """
        url = await self._url_soon()
        if url is None:
            raise HubError(
                self._trouble or "the web inbox isn't running yet", code="web_not_running"
            )
        match action:
            case "link":
                expires_ms = self._seams.clock.wall_ms() + CODE_LIFE_MS
                code = await self._logins.make_link_code()
                public = self._config.public_url
                return {
                    "url": f"{url}#login={code}",
                    "public_url": (
                        f"{public_origin(public)}/#login={code}" if public else None
                    ),
                    "expires_ms": expires_ms,
                    "trouble": self._trouble,
                }
            case "browsers":
                waiting = [
                    {
                        "code": one.code,
                        "agent": one.agent,
                        "where": one.where,
                        "since_ms": one.since_ms,
                    }
                    for one in self._logins.waiting()
                ]
                public = self._config.public_url
                return {
                    "url": url,
                    "public_url": f"{public_origin(public)}/" if public else None,
                    "other_users": self._config.other_users,
                    "waiting": waiting,
                    "trouble": self._trouble,
                }
            case "approve":
                if not browser:
                    raise UsageError("approve needs the four characters the browser shows")
                let_in = self._logins.approve(browser)
                self._seams.log.info("web_browser_approved", agent=let_in.agent)
                return {"code": let_in.code, "agent": let_in.agent}
            case "list":
                logins = self._logins.listed(self._pages.of)
                return {"logins": logins, "trouble": self._trouble}
            case "sign_out_all":
                return {"signed_out": await self._sign_out_all()}
            case _:
                raise UsageError(f"no such login action: {action!r}")

    # -- inside --------------------------------------------------------------------------

    async def _url_soon(self) -> str | None:
        """Return the address; right after the hub's start it is a moment away."""
        if self._inbox is not None and not self._blocked:
            try:
                async with asyncio.timeout(_START_S):
                    await self._bound_once.wait()
            except TimeoutError:
                return None
        return self.url()

    async def _put(self, event: Inbound) -> Receipt:
        if self._inbox is None:
            raise HubError("the web inbox isn't running yet", code="web_not_running")
        receipt = await self._inbox.put(event)
        if isinstance(event, LoginKept) and event.kind == "login" and not event.gone:
            await self._note_seen()
        if isinstance(event, LoginKept) and event.kind == "login":
            self._tell_audience(len(self._pages))
        return receipt

    def _tell_audience(self, pages: int) -> None:
        if self._inbox is not None:
            self._inbox.state(
                ChannelState(
                    hearing=self._bound is not None,
                    audience=pages,
                    signed_in=len(self._logins.all()),
                    reason=self._trouble,
                )
            )

    async def _sign_out_all(self) -> int:
        count = await self._logins.sign_out_all()
        self._pages.sign_out()
        return count

    async def _listen(self) -> Bound:
        """Bind, again and again if need be, and keep the port in mind.

        A port that somebody else had may have been taken for ours: all logins end.
        """
        kept = self._seams.view.settings().get(_PORT)
        ports = wanted_ports(self._config.port, kept)
        was_taken, ended = False, 0
        while True:
            try:
                bound = bind(ports)
            except OSError as problem:
                was_taken = self._blocked = True
                await self._report_taken(ports[0], problem)
                await self._seams.clock.sleep(_BIND_AGAIN_S)
                continue
            self._trouble, self._blocked = None, False
            try:
                if bound.taken is not None or was_taken:
                    ended = await self._end_logins("port_taken")
                if bound.taken is not None:
                    await self._report_moved(bound.taken, bound.port, ended)
                if self._config.port is None and kept != str(bound.port):
                    await self._put(SettingKept(_PORT, str(bound.port)))
            except BaseException:
                bound.sock.close()
                raise
            return bound

    async def _report_moved(self, taken: int, port: int, ended: int) -> None:
        holder = await asyncio.to_thread(holder_of, taken)
        also = " and every browser was signed out" if ended else ""
        self._trouble = (
            f"port {taken} is held by {holder}, so the inbox moved to port {port}{also}; "
            f"a page at port {taken} is not the inbox"
        )
        self._seams.log.warning("web_port_moved", wanted=taken, port=port, holder=holder)

    async def _report_taken(self, port: int, problem: OSError) -> None:
        holder = await asyncio.to_thread(holder_of, port)
        trouble = f"port {port} can't be had ({problem.strerror}), held by {holder}"
        if trouble != self._trouble:
            self._trouble = trouble
            self._seams.log.error("web_port_taken", port=port, holder=holder)
            self._tell_audience(0)

    async def _only_user(self) -> int | None:
        """Return our uid if connections of others can be told and are not wanted."""
        if self._config.other_users or not await asyncio.to_thread(can_tell_users):
            return None
        return os.getuid()

    async def _end_doubtful_logins(self) -> None:
        """End all logins that somebody else on our port could have collected.

        A page left open shows its cookie and key to whoever takes the port while no hub
        runs, and a page that was loaded from there acts in the person's own browser: that
        connections of other users are refused does not help.
        """
        seen = self._seams.view.settings().get(_SEEN) or "0"
        away_ms = self._seams.clock.wall_ms() - (int(seen) if seen.isdecimal() else 0)
        if not 0 <= away_ms <= _AWAY_LIMIT_MS:
            await self._end_logins("hub_was_away")

    async def _end_logins(self, reason: str) -> int:
        if not self._logins.all():
            return 0
        count = await self._sign_out_all()
        self._seams.log.warning("web_logins_ended", reason=reason, count=count)
        return count

    async def _stay_seen(self) -> None:
        while True:
            if self._logins.all():
                await self._note_seen()
            await self._seams.clock.sleep(_SEEN_EVERY_S)

    async def _note_seen(self) -> None:
        await self._put(SettingKept(_SEEN, str(self._seams.clock.wall_ms())))

    async def _follow(self) -> None:
        async for _ in self._seams.view.changes():
            self._pages.bump()

    async def _serve(self, bound: Bound, own_uid: int | None) -> None:
        await _first_connection(bound.sock)
        await asyncio.to_thread(_load_routes)
        from upcall_adapters.web.routes import serving

        public = self._config.public_url
        doors = Doors(bound.port, public_origin(public) if public else None)
        parts = Parts(
            seams=self._seams,
            doors=doors,
            pages=self._pages,
            logins=self._logins,
            put=self._put,
            own_uid=own_uid,
            undo_s=self._config.undo_s,
        )
        async with serving(parts, bound.sock):
            await asyncio.get_running_loop().create_future()


def _load_routes() -> None:
    """Load the HTTP library; takes a good part of a second, so off the loop."""
    import upcall_adapters.web.routes  # noqa: F401


async def _first_connection(sock: socket.socket) -> None:
    """Wait until somebody connects, without accepting."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(sock.fileno(), arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(sock.fileno())
