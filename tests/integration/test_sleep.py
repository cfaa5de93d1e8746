"""The computer's sleep, heard from a logind of the test's own on a real bus."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from fakes.hub_shells import FakeLog, ManualClock, running, short_folder
from upcall.hub.sleep import LOOK_EVERY_S, SleepWatch, is_on_mains
from upcall.model.ask import AskSpec
from upcall.model.events import Event, Moment, SleepComing
from upcall.model.ids import ActionId, AskId, Revision, SessionId
from upcall.model.rows import AskRow

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(
        shutil.which("dbus-daemon") is None and not os.environ.get("CI"),
        reason="needs dbus-daemon",
    ),
]

BUS = """<busconfig>
  <type>custom</type>
  <listen>unix:path={}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
"""
NAME, PATH = "org.freedesktop.login1", "/org/freedesktop/login1"
MANAGER = "org.freedesktop.login1.Manager"


class Logind:
    """Answers `Inhibit`, and tells of sleep."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self.allows = True
        self.changed = asyncio.Event()
        self.held: dict[str, int] = {}
        self._later = -1
        bus.add_message_handler(self._take)

    def _take(self, message: Message) -> Message | None:
        if message.message_type is not MessageType.METHOD_CALL or message.member != "Inhibit":
            return None
        what, who, _, mode = message.body
        if not self.allows:
            return Message.new_error(message, "org.freedesktop.DBus.Error.AccessDenied", "no")
        assert who == "upcall"
        ours, theirs = os.pipe()
        self.held[f"{what} {mode}"] = ours
        self.changed.set()
        self._later = theirs
        return Message.new_method_return(message, "h", [0], unix_fds=[theirs])

    async def until_held(self, key: str) -> None:
        async with asyncio.timeout(10):
            while key not in self.held:
                self.changed.clear()
                await self.changed.wait()
        # Only now has the other side its own copy.
        os.close(self._later)

    async def until_let_go(self, key: str) -> None:
        ours = self.held.pop(key)
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(os.read, ours, 1) == b""
        os.close(ours)

    async def tell(self, coming: bool, bus: MessageBus | None = None) -> None:
        bus = bus or self.bus
        await bus.send(Message.new_signal(PATH, MANAGER, "PrepareForSleep", "b", [coming]))


class Rig:
    """A watch with stand-ins for the hub."""

    def __init__(self, socket: str, **options: Any) -> None:
        self.socket = socket
        self.events: list[Event] = []
        self.heard = asyncio.Event()
        self.rows: list[AskRow] = []
        self.left = 0
        self.clock = ManualClock()
        self.log = FakeLog()
        self.watch = SleepWatch(
            self.submit,
            lambda: Moment(1_800_000_000_000, 1000.0),
            clock=self.clock,
            log=self.log,
            asks=self,
            socket=socket,
            **{"stay_awake": False, "on_mains": lambda: True, **options},
        )

    def submit(self, event: Event) -> None:
        self.events.append(event)
        self.heard.set()

    def waiting_deliveries(self) -> int:
        return self.left

    def open_rows(self) -> list[AskRow]:
        return self.rows

    async def next(self) -> bool:
        async with asyncio.timeout(10):
            await self.heard.wait()
        self.heard.clear()
        event = self.events.pop()
        assert isinstance(event, SleepComing)
        return event.coming


@contextlib.asynccontextmanager
async def bus_at(socket: str) -> AsyncIterator[None]:
    """Run a real message bus."""
    config = f"{socket}.conf"
    Path(config).write_text(BUS.format(socket), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *("dbus-daemon", f"--config-file={config}", "--nofork", "--print-address"),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert (await process.stdout.readline()).startswith(b"unix:path=")
        yield
    finally:
        process.terminate()
        await process.communicate()


@contextlib.asynccontextmanager
async def logind(socket: str, **options: Any) -> AsyncIterator[tuple[Rig, Logind]]:
    address = f"unix:path={socket}"
    bus = await MessageBus(bus_address=address, negotiate_unix_fd=True).connect()
    made = Logind(bus)
    await bus.request_name(NAME)
    rig = Rig(socket, **options)
    async with running(rig.watch.run()):
        yield rig, made
    bus.disconnect()


@pytest_asyncio.fixture
async def socket() -> AsyncIterator[str]:
    with short_folder() as folder:
        async with bus_at(f"{folder}/bus"):
            yield f"{folder}/bus"


async def test_before_the_sleep_cards_are_told_and_only_then_it_is_let_go(socket: str) -> None:
    async with logind(socket) as (rig, made):
        await made.until_held("sleep delay")
        rig.left = 1
        await made.tell(True)
        assert await rig.next() is True
        await rig.clock.until_waited_for(0.05)
        os.set_blocking(made.held["sleep delay"], False)
        with pytest.raises(BlockingIOError):
            os.read(made.held["sleep delay"], 1)
        os.set_blocking(made.held["sleep delay"], True)
        rig.left = 0
        rig.clock.advance(0.05)
        await made.until_let_go("sleep delay")
        await made.tell(False)
        assert await rig.next() is False
        await made.until_held("sleep delay")


async def test_a_card_that_does_not_arrive_holds_the_sleep_up_for_seconds_only(
    socket: str,
) -> None:
    async with logind(socket) as (rig, made):
        await made.until_held("sleep delay")
        rig.left = 1
        await made.tell(True)
        assert await rig.next() is True
        await rig.clock.until_waited_for(0.05)
        rig.clock.advance(3.1)
        await made.until_let_go("sleep delay")


async def test_nobody_but_logind_is_believed(socket: str) -> None:
    async with logind(socket) as (rig, made):
        await made.until_held("sleep delay")
        stranger = await MessageBus(bus_address=f"unix:path={socket}").connect()
        (watch,) = [name for name in await _names(stranger) if name.startswith(":")][1:2]
        forged = Message.new_signal(PATH, MANAGER, "PrepareForSleep", "b", [True])
        forged.destination = watch
        await stranger.send(forged)
        await made.tell(False)
        assert await rig.next() is False
        assert rig.events == []
        stranger.disconnect()


async def test_it_stays_awake_while_a_permission_is_open_on_mains(socket: str) -> None:
    power = [False]
    async with logind(socket, stay_awake=True, on_mains=lambda: power[0]) as (rig, made):
        await made.until_held("sleep delay")
        rig.rows = [permission()]
        await rig.clock.until_waited_for(LOOK_EVERY_S)
        rig.clock.advance(LOOK_EVERY_S)
        await rig.clock.until_waited_for(LOOK_EVERY_S)
        assert "sleep:idle block" not in made.held
        power[0] = True
        rig.clock.advance(LOOK_EVERY_S)
        await made.until_held("sleep:idle block")
        await rig.clock.until_waited_for(LOOK_EVERY_S)
        rig.rows = []
        rig.clock.advance(LOOK_EVERY_S)
        await made.until_let_go("sleep:idle block")


async def test_a_computer_that_may_not_be_held_is_still_heard(socket: str) -> None:
    address = f"unix:path={socket}"
    bus = await MessageBus(bus_address=address, negotiate_unix_fd=True).connect()
    made = Logind(bus)
    made.allows = False
    await bus.request_name(NAME)
    rig = Rig(socket)
    async with running(rig.watch.run()):
        while "sleep_not_held" not in rig.log.events():
            await asyncio.sleep(0)
        await made.tell(True)
        assert await rig.next() is True
    bus.disconnect()


async def test_without_logind_it_is_said_once_and_tried_again(socket: str) -> None:
    rig = Rig(socket)
    async with running(rig.watch.run()):
        for _ in range(2):
            await rig.clock.until_waited_for(60.0)
            rig.clock.advance(60.0)
        await rig.clock.until_waited_for(60.0)
        assert rig.log.events() == ["sleep_not_heard"]


async def test_where_there_is_no_bus_nothing_is_watched(tmp_path: Path) -> None:
    rig = Rig(str(tmp_path / "none"))
    async with asyncio.timeout(5):
        await rig.watch.run()
    assert rig.log.events() == []


@pytest.mark.parametrize(
    ("supplies", "on"),
    [
        ({}, True),
        ({"BAT0": ("Battery", "")}, True),
        ({"AC": ("Mains", "1"), "BAT0": ("Battery", "")}, True),
        ({"AC": ("Mains", "0"), "BAT0": ("Battery", "")}, False),
        ({"AC": ("Mains", "0"), "usb": ("USB", "1")}, True),
    ],
)
async def test_power_from_outside(
    tmp_path: Path, supplies: dict[str, tuple[str, str]], on: bool
) -> None:
    for name, (kind, online) in supplies.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "type").write_text(kind + "\n", encoding="ascii")
        if online:
            (folder / "online").write_text(online + "\n", encoding="ascii")
    assert is_on_mains(str(tmp_path)) is on
    assert is_on_mains(str(tmp_path / "nowhere")) is True


def permission() -> AskRow:
    return AskRow(
        ask_id=AskId("a0123456789ab"),
        session_id=SessionId("s1"),
        action_id=ActionId("x"),
        state="open",
        spec=AskSpec(question="Run?", options=("Yes", "No"), ask_class="permission"),
        revision=Revision("r"),
        raised_ms=0,
    )


async def _names(bus: MessageBus) -> list[str]:
    reply = await bus.call(
        Message(
            destination="org.freedesktop.DBus",
            path="/org/freedesktop/DBus",
            interface="org.freedesktop.DBus",
            member="ListNames",
        )
    )
    assert reply is not None
    names: list[str] = reply.body[0]
    return sorted(names)
