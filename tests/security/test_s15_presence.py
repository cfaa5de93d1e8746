"""S15: a sign that somebody is at the computer delays an ask, by so much and no more."""

import os
import pty
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.clock import FakeClock
from fakes.kernel_rig import Rig, ask_id, asker, channel, lower
from upcall.config import parse
from upcall.core.at_machine import bound_s
from upcall.core.state import ChannelInfo
from upcall.hub.at_machine import MachineWatch, terminals_of
from upcall.model.ask import AskSpec
from upcall.model.errors import ConfigInvalid
from upcall.model.events import AtMachine, Event, Moment
from upcall.model.platform import Capabilities
from upcall.model.policy import Policy, Presence, Terms
from upcall.model.struct import replaced

WEB = ChannelInfo("web", Capabilities(text_limit=100, draws_asks=True, own_user=True), lower)
PERMISSION = AskSpec(
    question="Run it?", options=("allow", "deny"), free_text=False, ask_class="permission"
)


# --- the bound -------------------------------------------------------------------------------


def rig(delay_s: float = 120.0, signal: Any = "tty", **terms: Any) -> Rig:
    policy = Policy(
        defaults=Terms(reminders_s=(), **terms),
        presence=Presence(signal=signal, file="/run/here", delay_s=delay_s),
    )
    return Rig(WEB, channel("tg", repeat="by_key"), policy=policy)


def touch(made: Rig, place: str = "/dev/pts/7", *, ago_s: float = 0.0) -> None:
    made.do(AtMachine(at=made.now, seen={place: made.boot_s - ago_s}))


def is_posted(made: Rig, number: int = 1) -> bool:
    rows = made.store.deliveries.values()
    return any((row.target, row.ask_id) == ("tg", ask_id(number)) for row in rows)


def posted_after_s(made: Rig, *, looping: bool, limit_s: float = 300.0) -> float:
    """Return after how long the chat gets the ask, with the sign renewed in a loop or once."""
    start_s = made.boot_s
    while not is_posted(made):
        assert made.boot_s - start_s < limit_s
        if looping:
            touch(made)
        made.wait(0.5)
    return made.boot_s - start_s


@pytest.mark.parametrize(
    ("timeout_s", "bound_s"),
    [(None, 120), (1000.0, 120), (60.0, 30), (10.0, 5)],
)
def test_a_sign_that_is_renewed_in_a_loop_delays_no_longer_than_the_bound(
    timeout_s: float | None, bound_s: float
) -> None:
    """Two minutes, and half of the time that is left, whatever touches the file."""
    made = rig()
    touch(made)
    waiter = made.ask(timeout_s=timeout_s)
    fields = made.response(waiter).fields
    assert fields is not None
    told = {one["name"]: (one["state"], one["reason"]) for one in fields["channels"]}
    # The inbox shows it at once.
    assert told["web"][0] == "delivered"
    assert told["tg"] == ("later", "somebody is at this computer")
    took_s = posted_after_s(made, looping=True)
    assert bound_s - 1 <= took_s <= bound_s + 0.5


def test_a_start_of_the_hub_does_not_begin_the_bound_anew() -> None:
    made = rig()
    touch(made)
    made.ask(wait=False)
    for _ in range(11):
        made.wait(10)
        made.restart(down_s=0.5)
        touch(made)
    took_s = 11 * 10.5
    assert took_s + posted_after_s(made, looping=True) <= 120.5 + 1


def test_a_hold_does_not_begin_the_bound_anew() -> None:
    made = rig()
    touch(made)
    made.ask(timeout_s=1000.0)
    start_s = made.boot_s
    for number in range(10):
        made.wait(10)
        touch(made)
        made.answer(1, on="web", hold=number % 2 == 0)
    posted_after_s(made, looping=True)
    assert made.boot_s - start_s <= 120.5


def test_a_permission_with_a_deadline_is_never_delayed() -> None:
    made = rig()
    touch(made)
    made.ask(1, PERMISSION, timeout_s=600.0)
    made.ask(2, PERMISSION)
    assert is_posted(made, 1)
    assert not is_posted(made, 2)
    row = made.row(1)
    assert row is not None
    assert bound_s(row, 120.0) == 0


def test_when_the_person_leaves_the_ask_goes_out() -> None:
    made = rig()
    touch(made)
    made.ask()
    assert posted_after_s(made, looping=False) == pytest.approx(60, abs=0.6)


def test_an_old_sign_delays_nothing() -> None:
    made = rig()
    touch(made, ago_s=60.0)
    made.ask()
    assert is_posted(made)


def test_a_sign_that_comes_later_does_not_take_back_what_was_sent() -> None:
    made = rig()
    made.ask()
    assert is_posted(made)
    touch(made)
    made.arrive_all()
    assert made.store.cards[ask_id(1), "tg", made.store.deliveries[1].place].ref is not None


def test_without_the_setting_no_sign_counts() -> None:
    made = rig(signal="off")
    touch(made)
    made.ask()
    assert is_posted(made)


def test_the_terminal_of_whoever_asks_is_no_sign() -> None:
    made = rig()
    touch(made, "/dev/pts/3")
    made.ask(1, who=replaced(asker(1), ttys=("/dev/pts/3",)))
    assert is_posted(made, 1)
    made.ask(2, who=replaced(asker(2), ttys=("/dev/pts/4",)))
    assert not is_posted(made, 2)


def test_the_terminal_of_a_session_of_its_own_is_no_sign_either() -> None:
    made = rig()
    touch(made, "/dev/pts/3")
    made.up()
    made.kernel._state.live["sess-1"].ttys = ("/dev/pts/3",)  # type: ignore[index]
    made.needs("q1")
    assert any(row.target == "tg" for row in made.store.deliveries.values())


def test_a_file_in_the_project_of_whoever_asks_is_no_sign() -> None:
    made = rig(signal="file")
    touch(made, "/work/.presence")
    made.ask()
    assert is_posted(made)


def test_an_answer_at_the_machine_in_time_rings_nobody() -> None:
    made = rig()
    touch(made)
    made.ask(wait=False)
    made.wait(20)
    made.answer(1, on="web")
    made.wait(600)
    assert not is_posted(made)


@pytest.mark.parametrize("value", ['"121s"', '"1h"', "0", '"-1s"', '"soon"'])
def test_no_configuration_makes_the_bound_longer(value: str) -> None:
    with pytest.raises(ConfigInvalid, match="presence_delay"):
        parse(f"[policy]\npresence_delay = {value}\n".encode(), "c.toml")


# --- what counts as a sign --------------------------------------------------------------------


class Watched:
    """A `MachineWatch` with a clock in hand, and what it told the kernel."""

    def __init__(self, presence: Presence) -> None:
        self.clock = FakeClock(wall_ms=time.time_ns() // 1_000_000)
        self.events: list[Event] = []
        self.watch = MachineWatch(lambda: presence, self.events.append, self.moment, self.clock)

    def moment(self) -> Moment:
        return Moment(self.clock.wall_ms(), self.clock.boot_s())

    async def seen(self) -> dict[str, float]:
        """Look, and return what the kernel knows now: how old each sign is."""
        await self.watch.look()
        known: dict[str, float] = {}
        for event in self.events:
            assert isinstance(event, AtMachine)
            known = {place: event.at.boot_s - at_s for place, at_s in event.seen.items()}
        return known


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "here"
    path.touch(mode=0o600)
    return path


def at_file(path: Path) -> Watched:
    return Watched(Presence(signal="file", file=str(path)))


@pytest.mark.asyncio
async def test_a_fresh_file_of_ours_is_a_sign_and_an_old_one_none(file: Path) -> None:
    watched = at_file(file)
    (age_s,) = (await watched.seen()).values()
    assert 0 <= age_s < 5
    await watched.clock.advance(61)
    assert await watched.seen() == {}
    assert len(watched.events) == 2


@pytest.mark.asyncio
async def test_a_file_from_the_future_is_no_sign(file: Path) -> None:
    """It would be fresh for as long as one likes."""
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    assert await at_file(file).seen() == {}


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
@pytest.mark.asyncio
async def test_a_file_that_others_can_touch_is_no_sign(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert await at_file(file).seen() == {}


@pytest.mark.foreign_uid
@pytest.mark.asyncio
async def test_a_file_of_another_user_is_no_sign(file: Path) -> None:
    os.chown(file, 65534, -1)
    assert await at_file(file).seen() == {}


@pytest.mark.asyncio
async def test_no_file_and_no_folder_is_no_sign(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path, tmp_path / "none" / "deeper"):
        assert await at_file(path).seen() == {}


@contextmanager
def terminal() -> Iterator[tuple[int, str]]:
    """A real terminal of ours: its other end, and its path."""
    ours, theirs = pty.openpty()
    try:
        yield ours, os.ttyname(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.asyncio
async def test_input_at_a_terminal_is_a_sign_and_a_terminal_that_was_only_opened_none() -> None:
    watched = Watched(Presence(signal="tty"))
    with terminal() as (_, path):
        assert stat.S_ISCHR(os.lstat(path).st_mode)
        # A program that opens terminals looks like no person.
        assert path not in await watched.seen()
        # The kernel notes reads to eight seconds; this one is twenty from now.
        os.utime(path, (time.time() + 20, time.time()))
        assert path not in await watched.seen()
        await watched.clock.advance(21)
        assert (await watched.seen())[path] < 5


@pytest.mark.asyncio
async def test_nobody_looks_where_nobody_wants_to_know(file: Path) -> None:
    watched = Watched(Presence(signal="off", file=str(file)))
    assert await watched.seen() == {}
    assert watched.events == []


def test_the_terminals_of_a_process_are_those_of_its_ancestors_too() -> None:
    """A program without a terminal, run by one with it: as an agent runs its commands."""
    with terminal() as (ours, path):
        script = (
            "import os, subprocess, sys\n"
            "child = subprocess.Popen(['sleep', '30'], start_new_session=True)\n"
            "print(child.pid, flush=True)\n"
            "sys.stdin.readline()\n"
            "child.kill()\n"
        )
        end = os.open(path, os.O_RDWR | os.O_NOCTTY)
        shell = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-c", script],
            stdin=end,
            stdout=end,
            stderr=end,
        )
        os.close(end)
        try:
            said = b""
            while b"\n" not in said:
                said += os.read(ours, 100)
            assert path in terminals_of(int(said.split()[0]))
        finally:
            os.write(ours, b"\n")
            shell.wait(20)
    assert terminals_of(0) == ()


# --- a real hub ------------------------------------------------------------------------------

DELAY_S = 1.5
# Two cores under load; without the bound it would be for ever.
SLACK_S = 5.0
POLICY = """
[policy]
presence = "file"
presence_file = "{path}"
presence_delay = "1500ms"
"""


def test_a_file_that_is_touched_in_a_loop_delays_a_real_hub_for_no_longer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "here"
    path.touch(mode=0o600)
    stop = threading.Event()

    def keep_touching() -> None:
        while not stop.wait(0.05):
            os.utime(path)

    toucher = threading.Thread(target=keep_touching)
    toucher.start()
    try:
        with FakeChat() as chat, ChatHome(chat, config=POLICY.format(path=path)) as home:
            home.start_chat_hub()
            begun = time.monotonic()
            home.hand_over("Deploy?", "-o", "yes", "-o", "no")
            chat.card("Deploy?")
            took_s = time.monotonic() - begun
    finally:
        stop.set()
        toucher.join()
    assert DELAY_S - 0.3 <= took_s <= DELAY_S + SLACK_S
