"""A hub that is killed at every point of an ask's life: found by itself, one after the other.

One whole life runs without a kill and writes down every point: before and after each commit,
each call of a chat or session, and each word to a program. Then the same life runs once for
each of them, with a SIGKILL there, and has to end as if nothing had happened.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from fakes.chat import ChatHome, FakeChat, Posted, config_of, install
from fakes.home import Home, Running
from fakes.installation import Installation

QUESTION: Final = ("Deploy?", "-o", "yes", "-o", "no")
SESSION: Final = """
import asyncio, sys, upcall
async def main():
    async with upcall.Session("Nightly build") as session:
        print("up", flush=True)
        answer = await session.ask("Deploy?", ["yes", "no"])
        print(f"answer {answer}", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""
WITHIN_S: Final = 40.0
AT_ONCE: Final = 4
_LOOK_S: Final = 0.05


@dataclass
class Life:
    """One life of an ask with a hub that may be killed."""

    repeat: str
    chat: FakeChat
    second: FakeChat
    home: ChatHome
    hub: Running
    outcome: str = ""
    untold: bool = False

    @property
    def was_killed(self) -> bool:
        """Whether the hub was killed by now."""
        return os.path.exists(f"{self.home.path}/points.killed")

    def until(self, check: Callable[[], Any], what: str) -> Any:
        """Wait for something; a hub that was killed is started again, as a service would."""
        pause = threading.Event()
        for _ in range(int(WITHIN_S / _LOOK_S)):
            found = check()
            if found:
                return found
            if self.hub.process.poll() is not None and self.home.hub_pid() is None:
                self.hub = self.home.start("hub", "run")
            pause.wait(_LOOK_S)
        cards = [(one.place, one.text, one.state) for one in self.cards()]
        audit = self.home.rows("SELECT event, facts FROM audit ORDER BY id")
        errors = [one.err() for one in self.home._running]
        raise AssertionError(f"not in time: {what}; {cards}; {audit}; {errors}")

    def cards(self) -> list[Posted]:
        """Return all messages that show the ask, with or without buttons."""
        found = [*self.chat.messages, *self.second.messages]
        return [one for one in found if any("state" in body for body in one.bodies)]

    def reminders(self) -> list[Posted]:
        """Return all reminders, also those that were taken away."""
        found = [*self.chat.messages, *self.second.messages]
        return [one for one in found if "Still open" in one.bodies[0]["text"]]

    def live(self) -> list[Posted]:
        """Return the messages that can be answered."""
        return [one for one in self.chat.shown("Deploy?") if one.buttons]

    def press(self, label: str) -> None:
        """Tap the newest card, until the hub has kept the tap."""
        card = self.until(self.live, "a card with buttons")[-1]
        key = self.chat.press(card, label)
        self.until(lambda: self.chat.receipts.get(key), "the receipt")


def answered_by_tap(life: Life) -> None:
    """Raised, opened, posted, escalated, reminded, tapped, taken by a program that waits."""
    asker = life.home.start("ask", "--session", "s", "--timeout", "120s", *QUESTION)
    life.until(lambda: life.second.shown("Deploy?"), "the second channel")
    # One that may be there is not sent again; the next comes in an hour.
    over = "SELECT 1 FROM delivery WHERE kind = 'remind' AND state IN ('done', 'dead')"
    life.until(lambda: life.reminders() or life.home.rows(over), "the reminder")
    life.press("yes")
    life.until(lambda: asker.process.poll() is not None, "the asker has its answer")
    done = asker.end()
    assert (done.code, done.out) == (0, "yes\n"), done
    life.outcome = "answered"


def timed_out(life: Life) -> None:
    """Nobody answers, and the time is over."""
    asker = life.home.start("ask", "--session", "s", "--timeout", "1500ms", *QUESTION)
    life.until(lambda: asker.process.poll() is not None, "the asker hears of its end")
    done = asker.end()
    assert (done.code, done.out) == (4, ""), done
    life.outcome = "timed_out"


def replied_to_a_session(life: Life) -> None:
    """Claimed, sent to a session with an endpoint of its own, and confirmed by it."""
    argv = [life.home.upcall[0], "-u", "-c", SESSION]
    program = life.home.start_program(argv, stdin=True)
    life.press("no")
    life.until(lambda: "answer" in program.out(), "the session has its answer")
    closed = "SELECT 1 FROM ask WHERE state = 'closed'"
    life.until(lambda: life.home.rows(closed), "the hub knows that it was taken")
    assert program.process.stdin is not None
    program.process.stdin.close()
    life.until(lambda: program.process.poll() is not None, "the session ends")
    assert program.end().out == "up\nanswer no\n"
    life.outcome = "answered"


LIVES: Final = {
    "tap": answered_by_tap,
    "timeout": timed_out,
    "session": replied_to_a_session,
}
CONFIG: Final = """
[policy]
channels = ["fakechat"]
reminders = ["500ms", "1h"]
escalate = [{ after = "250ms", channels = ["second"] }]
"""


def live(
    installation: Installation, repeat: str, name: str, kill_at: int
) -> tuple[list[str], Life]:
    """Let one life happen, check how it ended, and return its points and what became of it."""
    dedupes = repeat == "by_key"
    with FakeChat(dedupes=dedupes) as chat, FakeChat(dedupes=dedupes) as second:
        config = CONFIG + config_of(second, "second", adapter="fakechat")
        with ChatHome(chat, installation=installation, config=config) as home:
            points = f"{home.path}/points"
            home.configure(points=points, kill_at=kill_at)
            life = Life(repeat, chat, second, home, home.start("hub", "run"))
            LIVES[name](life)
            check(life)
            with open(points, encoding="utf-8") as file:
                found = file.read().splitlines()
            # Lives differ by a few points: what came late in the first may not come at all.
            assert life.was_killed or not kill_at or len(found) < kill_at, (found, kill_at)
            return found, life


def check(life: Life) -> None:
    """Check what has to hold after every crash."""
    home = life.home
    asks = "SELECT public_id, state, outcome FROM ask"
    if life.outcome == "timed_out" and not home.rows(asks):
        # Its time was over before a hub knew of it; the program ended it by itself.
        return
    life.until(lambda: {"closed"} == {row[1] for row in home.rows(asks)}, "it is closed")
    [(_, _, outcome)] = home.rows(asks)
    if life.was_killed and outcome == "unreachable":
        # The program has its answer, and was gone before a hub was there to be told.
        life.untold = True
    else:
        assert outcome == life.outcome
    events = [row[0] for row in home.rows("SELECT event FROM audit WHERE ask_id IS NOT NULL")]
    assert events.count("closed") == 1, events
    assert home.rows("SELECT count(*) FROM claim WHERE live = 1")[0][0] <= 1

    def copies(where: FakeChat) -> int:
        return sum("This may be a repeat" in one.bodies[0]["text"] for one in where.messages)

    def is_quiet() -> bool:
        waiting = "SELECT 1 FROM delivery WHERE state NOT IN ('done', 'dead')"
        return not home.rows(waiting) and all(not one.buttons for one in known_cards(life))

    life.until(is_quiet, "every card is closed and nothing waits")
    for where in (life.chat, life.second):
        texts = [(one.place, one.bodies[0]["text"]) for one in where.messages]
        first = [one for one in where.messages if one.bodies[0].get("buttons")]
        # One more at most, and only where the platform cannot tell.
        assert len(first) <= 1 + (life.repeat == "none"), texts
        assert len(where.threads) <= 1 + (life.repeat == "none"), where.threads
        if len(first) > 1:
            assert copies(where) == 1, texts
    extra = sum(
        max(0, len([one for one in where.messages if one.bodies[0].get("buttons")]) - 1)
        + max(0, len(where.threads) - 1)
        for where in (life.chat, life.second)
    )
    assert extra <= (life.repeat == "none"), "one crash has led to more than one repeat"
    for where in (life.chat, life.second):
        reminders = [one for one in life.reminders() if one in where.messages]
        assert len(reminders) <= 1, "a reminder that may be there is not sent again"
        # One whose arrival nobody knows of cannot be taken away.
        assert len([one for one in reminders if not one.deleted]) <= life.was_killed
    if life.outcome == "answered":
        assert len(life.chat.shown("Deploy?")) >= 1
    assert home.rows("PRAGMA integrity_check") == [("ok",)]
    assert "Traceback" not in life.hub.err()


def known_cards(life: Life) -> list[Posted]:
    """Return the cards that the hub knows to stand there."""
    refs = {
        (channel, ref)
        for channel, ref in life.home.rows("SELECT channel, ref FROM card WHERE ref <> ''")
    }
    return [
        one
        for channel, where in (("fakechat", life.chat), ("second", life.second))
        for one in where.messages
        if (channel, one.ref) in refs
    ]


@pytest.fixture(scope="module")
def installations() -> Iterator[dict[str, Installation]]:
    with Home() as home:
        made = {}
        for repeat in ("none", "by_key"):
            made[repeat] = Installation(f"{home.path}/{repeat}")
            install(made[repeat], repeat=repeat)
        yield made


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LIVES)
@pytest.mark.parametrize("repeat", ["none", "by_key"])
def test_a_hub_killed_at_any_point_ends_as_if_nothing_had_happened(
    installations: dict[str, Installation], repeat: str, name: str
) -> None:
    installation = installations[repeat]
    found, _ = live(installation, repeat, name, 0)
    failed = {}
    untold = []

    def one(kill_at: int) -> None:
        try:
            _, life = live(installation, repeat, name, kill_at)
            untold.extend([found[kill_at - 1]] * life.untold)
        except Exception as exc:  # noqa: BLE001 - all of them are told together
            failed[kill_at, found[kill_at - 1]] = exc

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(1, len(found) + 1)))
    told = "\n\n".join(f"{point}: {error}" for point, error in sorted(failed.items()))
    assert not failed, f"{len(failed)} of {len(found)} points:\n{told}"
    # A computer that is busy may be slow to start a hub; as a rule a program is heard.
    assert len(untold) <= len(found) // 10, untold


@pytest.mark.parametrize(
    ("name", "point"), [("tap", "after call post"), ("session", "after call reply")]
)
def test_a_hub_killed_between_an_act_and_its_record(
    installations: dict[str, Installation], name: str, point: str
) -> None:
    """A few of the same in a few seconds; the points are found here too."""
    installation = installations["none"]
    found, _ = live(installation, "none", name, 0)
    assert {line.split(" ", 2)[1] for line in found} == {"before", "after"}
    kill_at = next(number for number, line in enumerate(found, 1) if line.endswith(point))
    live(installation, "none", name, kill_at)
