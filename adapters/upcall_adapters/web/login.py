"""Signing a browser in and knowing it again. Secrets are kept as SHA-256 only.

A login is two secrets: a cookie, which browsers send to every port of this computer, and
a key, which only pages of this very origin can read. Neither is worth anything alone.
"""

import asyncio
import hashlib
import hmac
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from upcall.model.errors import UpcallError, UsageError
from upcall.model.ids import crockford
from upcall.model.platform import Inbound, LoginKept, Receipt, SeamClock, View
from upcall.model.text import one_line

CODE_LIFE_MS: Final = 5 * 60_000
# A used or stale code is remembered for a day, so that its second use can be explained.
CODE_KEPT_MS: Final = 24 * 3_600_000
LOGIN_IDLE_MS: Final = 7 * 24 * 3_600_000
LOGIN_LIFE_MS: Final = 30 * 24 * 3_600_000
TOUCH_EVERY_MS: Final = 3_600_000
# Browsers that wait, from this computer and through the public address each: who floods one
# of them shuts nobody out of the other.
MAX_WAITING: Final = 16
# A browser that waits asks again at least every 25 s; one that doesn't was closed.
WAITING_GONE_MS: Final = 60_000
MAX_CODES: Final = 32
# Wrong tries a minute. What is right counts nothing and is always taken, so that nobody can
# use the limit to keep a person out.
MAX_WRONG: Final = 20
WRONG_WITHIN_MS: Final = 60_000
HERE: Final = "on this computer"
_SECRET_BYTES: Final = 32

Put = Callable[[Inbound], Awaitable[Receipt]]


class LoginRefused(UpcallError):
    """A code that lets nobody in; the message says why and what to do."""

    code = "login_refused"
    error_class = "daemon"


class CodeData(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept with a link code."""

    until_ms: int
    used_ms: int | None = None
    agent: str = ""
    where: str = HERE


class LoginData(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept with a login; `key` is the SHA-256 of the page's key."""

    key: str
    made_ms: int
    used_ms: int
    agent: str = ""
    where: str = HERE


@dataclass(frozen=True, slots=True)
class Login:
    """A valid login: the digest of its cookie, and what was kept."""

    digest: str
    data: LoginData

    @property
    def ends_ms(self) -> int:
        """Wall clock time at which it ends if it isn't used again."""
        return min(self.data.used_ms + LOGIN_IDLE_MS, self.data.made_ms + LOGIN_LIFE_MS)


@dataclass(frozen=True, slots=True)
class Secrets:
    """The two secrets of a new login; they leave the process once and are not kept."""

    cookie: str = field(repr=False)
    key: str = field(repr=False)


@dataclass(slots=True, eq=False)
class Waiting:
    """A browser that shows a code and waits to be let in."""

    code: str
    agent: str
    where: str
    since_ms: int
    asked_ms: int
    approved: asyncio.Event = field(default_factory=asyncio.Event)


class _Tries:
    """Counts wrong tries in a window of time."""

    def __init__(self) -> None:
        self._at_ms: deque[int] = deque(maxlen=MAX_WRONG)

    def wrong(self, now_ms: int) -> bool:
        """Note a wrong try; return whether there were too many."""
        too_many = (
            len(self._at_ms) == MAX_WRONG and 0 <= now_ms - self._at_ms[0] < WRONG_WITHIN_MS
        )
        if not too_many:
            self._at_ms.append(now_ms)
        return too_many


def digest(secret: str) -> str:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def agent_words(user_agent: str) -> str:
    """Return a browser's name in few words, such as `Firefox on Linux`."""
    names = (
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
    )
    systems = (
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Mac OS X", "macOS"),
        ("Windows", "Windows"),
        ("CrOS", "ChromeOS"),
        ("Linux", "Linux"),
    )
    name = next((word for mark, word in names if mark in user_agent), None)
    system = next((word for mark, word in systems if mark in user_agent), None)
    if name is None:
        return one_line(user_agent, 40) or "a program without a name"
    return name if system is None else f"{name} on {system}"


class Logins:
    """Codes and logins of one inbox.

    Args:
        clock: the hub's clock.
        random: returns n random bytes.
        view: where kept logins are read.
        put: hands a `LoginKept` to the hub and returns after its commit.
        hide: is told every secret that is made or was right, to keep it out of the log.
    """

    def __init__(
        self,
        clock: SeamClock,
        random: Callable[[int], bytes],
        view: View,
        put: Put,
        hide: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._hide = hide
        self._clock = clock
        self._random = random
        self._view = view
        self._put = put
        self._waiting: dict[str, Waiting] = {}
        self._redeeming: set[str] = set()
        self._wrong_links = _Tries()
        self._wrong_approvals = _Tries()

    # -- the link that is copied ---------------------------------------------------------

    async def make_link_code(self) -> str:
        """Return a code that lets one browser in, once, within five minutes.

        Of very many, the oldest are forgotten.
        """
        kept = sorted(
            (row for row in self._view.logins() if row.kind == "code"),
            key=lambda row: row.expires_ms,
        )
        for row in kept[: max(0, len(kept) - MAX_CODES + 1)]:
            await self._put(LoginKept(digest=row.digest, kind="code", gone=True))
        code = crockford(self._random(17), 26)
        self._hide(code)
        until = self._clock.wall_ms() + CODE_LIFE_MS
        await self._keep_code(code, CodeData(until_ms=until))
        return code

    async def redeem(self, code: str, agent: str, where: str = HERE) -> Secrets:
        """Use a link code up and return a new login.

        Args:
            code: what the link carried.
            agent: the browser in few words.
            where: from where it comes, in words.

        Raises:
            LoginRefused: the code is unknown, too old, or was used before.
        """
        name = digest(code)
        kept = next(
            (row for row in self._view.logins() if row.kind == "code" and row.digest == name),
            None,
        )
        now = self._clock.wall_ms()
        again = "run `upcall inbox` for a new link"
        if kept is not None:
            self._hide(code)
        if kept is None and self._wrong_links.wrong(now):
            raise LoginRefused(
                "too many links that aren't known were tried",
                code="too_many_tries",
                recover="wait a minute, then run `upcall inbox` for a new link",
            )
        if kept is None:
            raise LoginRefused("this link isn't known", code="code_unknown", recover=again)
        data = msgspec.json.decode(kept.data, type=CodeData)
        if data.used_ms is not None or name in self._redeeming:
            raise self._used_before(data, now)
        if now >= data.until_ms:
            raise LoginRefused(
                "this link is older than 5 minutes", code="code_expired", recover=again
            )
        self._redeeming.add(name)
        try:
            used = msgspec.structs.replace(data, used_ms=now, agent=agent, where=where)
            await self._keep_code(code, used)
            return await self._new_login(agent, where)
        finally:
            self._redeeming.discard(name)

    @staticmethod
    def _used_before(data: CodeData, now: int) -> LoginRefused:
        ago = max(0, now - (now if data.used_ms is None else data.used_ms)) // 1000
        when = f"{ago} s ago" if ago < 120 else f"{ago // 60} min ago"
        return LoginRefused(
            f"this link was already used {when} by {data.agent or 'another browser'} "
            f"{data.where}",
            code="code_used",
            recover="if that was not you, sign every browser out: upcall inbox --sign-out-all",
        )

    async def _keep_code(self, code: str, data: CodeData) -> None:
        await self._put(
            LoginKept(
                digest=digest(code),
                kind="code",
                data=msgspec.json.encode(data).decode(),
                expires_ms=data.until_ms + CODE_KEPT_MS,
            )
        )

    # -- the browser that shows four characters ------------------------------------------

    def start_waiting(self, agent: str, where: str = HERE) -> tuple[str, str]:
        """Return the code that the browser shows and the secret it waits with.

        Args:
            agent: the browser in few words.
            where: from where it comes, in words.

        Raises:
            LoginRefused: too many browsers wait already.
        """
        self._forget_old()
        if sum(one.where == where for one in self._waiting.values()) >= MAX_WAITING:
            raise LoginRefused(
                "too many browsers wait to be signed in",
                code="too_many_waiting",
                recover="try again in a minute, or use the link of `upcall inbox --print`",
            )
        shown = {waiting.code for waiting in self._waiting.values()}
        code = ""
        while not code or code in shown:
            code = crockford(self._random(3), 4).upper()
        poll = self._random(_SECRET_BYTES).hex()
        self._hide(poll)
        now = self._clock.wall_ms()
        self._waiting[digest(poll)] = Waiting(code, agent, where, now, now)
        return code, poll

    async def wait(self, poll: str, timeout_s: float) -> Secrets | None:
        """Return a new login once the terminal let this browser in, None if not yet.

        Raises:
            LoginRefused: this browser doesn't wait, or no longer.
        """
        self._forget_old()
        name = digest(poll)
        waiting = self._waiting.get(name)
        if waiting is None:
            raise LoginRefused("this browser waits no longer", code="wait_over")
        waiting.asked_ms = self._clock.wall_ms()
        try:
            async with asyncio.timeout(timeout_s):
                await waiting.approved.wait()
        except TimeoutError:
            return None
        if self._waiting.pop(name, None) is None:
            raise LoginRefused("this browser waits no longer", code="wait_over")
        return await self._new_login(waiting.agent, waiting.where)

    def waiting(self) -> list[Waiting]:
        """Return the browsers that wait now and were not let in yet, oldest first."""
        self._forget_old()
        return [one for one in self._waiting.values() if not one.approved.is_set()]

    def approve(self, code: str) -> Waiting:
        """Let the browser in that shows *code*.

        Raises:
            UsageError: no browser that waits shows it, or too many such were named.
        """
        wanted = code.strip().upper()
        for one in self.waiting():
            if hmac.compare_digest(one.code.encode(), wanted.encode("utf-8", "replace")):
                one.approved.set()
                return one
        if self._wrong_approvals.wrong(self._clock.wall_ms()):
            raise UsageError(
                "too many characters that no browser shows were typed",
                code="too_many_tries",
                recover="wait a minute, then run: upcall inbox",
            )
        raise UsageError(
            f"no browser that waits shows {one_line(code, 20)!r}",
            code="unknown_browser",
            recover="open the inbox in the browser and read the four characters there",
        )

    def stop_waiting(self) -> None:
        """Send every waiting browser away; it may ask again."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for one in waiting:
            one.approved.set()

    def _forget_old(self) -> None:
        now = self._clock.wall_ms()
        for name, waiting in list(self._waiting.items()):
            is_old = waiting.since_ms < now - CODE_LIFE_MS
            if is_old or waiting.asked_ms < now - WAITING_GONE_MS:
                del self._waiting[name]

    # -- logins --------------------------------------------------------------------------

    async def _new_login(self, agent: str, where: str) -> Secrets:
        secrets = Secrets(
            cookie=self._random(_SECRET_BYTES).hex(), key=self._random(_SECRET_BYTES).hex()
        )
        self._hide(secrets.cookie)
        self._hide(secrets.key)
        now = self._clock.wall_ms()
        data = LoginData(
            key=digest(secrets.key), made_ms=now, used_ms=now, agent=agent, where=where
        )
        await self._keep(Login(digest(secrets.cookie), data))
        return secrets

    async def _keep(self, login: Login) -> None:
        await self._put(
            LoginKept(
                digest=login.digest,
                kind="login",
                data=msgspec.json.encode(login.data).decode(),
                expires_ms=login.ends_ms,
            )
        )

    def all(self) -> list[Login]:
        """Return the logins that are valid now."""
        now = self._clock.wall_ms()
        found = (
            Login(row.digest, msgspec.json.decode(row.data, type=LoginData))
            for row in self._view.logins()
            if row.kind == "login"
        )
        return [login for login in found if now < login.ends_ms]

    def known_cookie(self, cookie: str | None) -> Login | None:
        """Return the login that *cookie* belongs to; it opens nothing by itself."""
        found = self.get(digest(cookie)) if cookie else None
        if found is not None and cookie:
            self._hide(cookie)
        return found

    def get(self, name: str) -> Login | None:
        """Return the login with the digest *name*, if it is valid now."""
        return next((login for login in self.all() if login.digest == name), None)

    def find(self, cookie: str | None, key: str | None) -> Login | None:
        """Return the login whose cookie and key these are."""
        login = self.known_cookie(cookie)
        if login is None or not key or not hmac.compare_digest(digest(key), login.data.key):
            return None
        self._hide(key)
        return login

    async def touch(self, login: Login) -> None:
        """Note that *login* is used; written at most once an hour."""
        now = self._clock.wall_ms()
        if now - login.data.used_ms >= TOUCH_EVERY_MS:
            data = msgspec.structs.replace(login.data, used_ms=now)
            await self._keep(Login(login.digest, data))

    async def sign_out(self, name: str) -> None:
        """End the login with the digest *name*."""
        await self._put(LoginKept(digest=name, kind="login", gone=True))

    async def sign_out_all(self) -> int:
        """End every login and every code that could make one; return how many logins."""
        self.stop_waiting()
        count = 0
        for row in list(self._view.logins()):
            count += row.kind == "login"
            await self._put(LoginKept(digest=row.digest, kind=row.kind, gone=True))
        return count

    def listed(self, pages_of: Callable[[str], int]) -> list[dict[str, Any]]:
        """Return the logins as data for a list, without anything secret."""
        return [
            {
                "id": login.digest[:8],
                "agent": login.data.agent,
                "where": login.data.where,
                "made_ms": login.data.made_ms,
                "used_ms": login.data.used_ms,
                "ends_ms": login.ends_ms,
                "pages": pages_of(login.digest),
            }
            for login in self.all()
        ]
