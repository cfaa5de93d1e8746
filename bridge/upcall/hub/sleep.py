"""The computer's sleep, as logind tells of it on the system bus (Linux).

Before it, open cards say that taps are lost; logind waits for that a few seconds
(`org.freedesktop.login1.Manager.Inhibit`, mode `delay`). If the configuration wants it, the
computer is kept awake while a permission question is open (mode `block`).
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from upcall.clock import Clock
from upcall.model.events import Event, Moment, SleepComing
from upcall.model.platform import SeamLog
from upcall.model.rows import AskRow
from upcall.model.text import one_line

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

SYSTEM_BUS: Final = "/run/dbus/system_bus_socket"
POWER: Final = "/sys/class/power_supply"
# logind waits for five seconds unless it is told otherwise.
TELL_WITHIN_S: Final = 3.0
LOOK_EVERY_S: Final = 5.0
AGAIN_AFTER_S: Final = 60.0
_LOGIND: Final = "org.freedesktop.login1"
_PATH: Final = "/org/freedesktop/login1"
_MANAGER: Final = "org.freedesktop.login1.Manager"
_BUS: Final = "org.freedesktop.DBus"
_BUS_PATH: Final = "/org/freedesktop/DBus"


class NoLogind(Exception):
    """Nobody on the bus tells of the computer's sleep; the message says why."""


class Asks(Protocol):
    """What is open, and what of it has still to be said."""

    def waiting_deliveries(self) -> int:
        """Return how many messages have still to go out."""
        ...

    def open_rows(self) -> list[AskRow]:
        """Return the open asks."""
        ...


class SleepWatch:
    """Hears when the computer is going to sleep, and when it woke.

    Args:
        submit: queues an event for the kernel.
        moment: returns now.
        clock: time.
        log: where it says that nothing is heard.
        asks: what is open.
        stay_awake: the computer is kept awake while a permission question is open.
        on_mains: tells whether it has power from outside.
        socket: where the system bus is.
    """

    def __init__(
        self,
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        *,
        clock: Clock,
        log: SeamLog,
        asks: Asks,
        stay_awake: bool,
        on_mains: Callable[[], bool] | None = None,
        socket: str = SYSTEM_BUS,
    ) -> None:
        self._submit = submit
        self._moment = moment
        self._clock = clock
        self._log = log
        self._asks = asks
        self._stay_awake_wanted = stay_awake
        self._on_mains = on_mains or is_on_mains
        self._socket = socket
        self._said = False
        self._coming: asyncio.Queue[bool] = asyncio.Queue()

    async def run(self) -> None:
        """Watch until cancelled; where there is no system bus, nothing is watched."""
        while await asyncio.to_thread(os.path.exists, self._socket):
            try:
                await self._watch()
            except* (NoLogind, OSError, EOFError) as problems:
                if not self._said:
                    self._said = True
                    why = "; ".join(str(one) or repr(one) for one in problems.exceptions)
                    self._log.info("sleep_not_heard", why=one_line(why, 200))
            await self._clock.sleep(AGAIN_AFTER_S)

    async def _watch(self) -> None:
        # Imported where it is used: most of what runs this has no such bus.
        from dbus_fast.aio import MessageBus
        from dbus_fast.errors import AuthError, DBusError

        bus = MessageBus(bus_address=f"unix:path={self._socket}", negotiate_unix_fd=True)
        try:
            try:
                await bus.connect()
                owner = await self._owner(bus)
                await self._follow(bus, owner)
            except (AuthError, DBusError) as error:
                raise NoLogind(str(error)) from error
            async with asyncio.TaskGroup() as tasks:
                works = [
                    tasks.create_task(self._tell(bus), name="sleep"),
                    tasks.create_task(self._stay_awake(bus), name="stay-awake"),
                ]
                with contextlib.suppress(EOFError, OSError):
                    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
                for work in works:
                    work.cancel()
        finally:
            bus.disconnect()

    async def _owner(self, bus: "MessageBus") -> str:
        """Return the connection that is logind: anybody can send a signal in its name."""
        body, _ = await _call(bus, _BUS, _BUS_PATH, "GetNameOwner", "s", _LOGIND)
        return str(body[0])

    async def _follow(self, bus: "MessageBus", owner: str) -> None:
        def heard(message: Any) -> None:
            if message.sender == owner and message.member == "PrepareForSleep":
                self._coming.put_nowait(bool(message.body and message.body[0]))

        bus.add_message_handler(heard)
        rule = (
            f"type='signal',sender='{_LOGIND}',path='{_PATH}',"
            f"interface='{_MANAGER}',member='PrepareForSleep'"
        )
        await _call(bus, _BUS, _BUS_PATH, "AddMatch", "s", rule)

    async def _tell(self, bus: "MessageBus") -> None:
        delay = await self._inhibit(bus, "sleep", "tells open questions about it", "delay")
        try:
            while True:
                coming = await self._coming.get()
                self._submit(SleepComing(at=self._moment(), coming=coming))
                if coming:
                    await self._until_told()
                    _close(delay)
                    delay = None
                elif delay is None:
                    delay = await self._inhibit(
                        bus, "sleep", "tells open questions about it", "delay"
                    )
        finally:
            _close(delay)

    async def _until_told(self) -> None:
        """Wait until the cards say it, or for as long as logind would."""
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(TELL_WITHIN_S):
                # What was just submitted is queued first.
                await self._clock.sleep(0.05)
                while self._asks.waiting_deliveries():
                    await self._clock.sleep(0.05)

    async def _stay_awake(self, bus: "MessageBus") -> None:
        block: int | None = None
        try:
            while True:
                wanted = self._stay_awake_wanted and self._is_awaited() and self._on_mains()
                if wanted and block is None:
                    why = "a permission question is open"
                    block = await self._inhibit(bus, "sleep:idle", why, "block")
                elif not wanted:
                    _close(block)
                    block = None
                await self._clock.sleep(LOOK_EVERY_S)
        finally:
            _close(block)

    def _is_awaited(self) -> bool:
        return any(row.spec.ask_class == "permission" for row in self._asks.open_rows())

    async def _inhibit(self, bus: "MessageBus", what: str, why: str, mode: str) -> int | None:
        """Return a descriptor that holds the computer awake until it is closed, if allowed."""
        try:
            body, fds = await _call(
                bus, _LOGIND, _PATH, "Inhibit", "ssss", what, "upcall", why, mode
            )
        except NoLogind as error:
            self._log.info("sleep_not_held", mode=mode, why=one_line(str(error), 200))
            return None
        return fds[body[0]] if body and body[0] < len(fds) else None


async def _call(
    bus: "MessageBus", name: str, path: str, member: str, signature: str, *body: str
) -> tuple[list[Any], list[int]]:
    from dbus_fast import Message, MessageType

    interface = _BUS if name == _BUS else _MANAGER
    reply: Any = await bus.call(
        Message(
            destination=name,
            path=path,
            interface=interface,
            member=member,
            signature=signature,
            body=list(body),
        )
    )
    if reply is None or reply.message_type is not MessageType.METHOD_RETURN:
        raise NoLogind("no answer" if reply is None else f"{reply.error_name}: {reply.body}")
    return list(reply.body), list(reply.unix_fds)


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def is_on_mains(folder: str = POWER) -> bool:
    """Tell whether the computer has power from outside; also if it has no battery at all."""
    seen = False
    try:
        supplies = os.listdir(folder)
    except OSError:
        return True
    for supply in supplies:
        if _read(f"{folder}/{supply}/type") in {"Mains", "USB"}:
            seen = True
            if _read(f"{folder}/{supply}/online") == "1":
                return True
    return not seen


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return ""
