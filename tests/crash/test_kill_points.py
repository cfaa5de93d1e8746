"""A hub that is killed at every point of an ask's life: found by itself, one after the other.

One whole life runs without a kill and writes down every point: before and after each commit,
each call of a chat or session, and each word to a program. Then the same life runs once for
each of them, with a SIGKILL there, and has to end as if nothing had happened; and on from
there, until a life comes to its end without being killed. `make test` does so for a few
points of each life, others each day.
"""

import datetime
import itertools
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator
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
SAMPLED: Final = 8
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

    def press(self, label: str, *, who: str = "ada") -> None:
        """Tap the newest card, until the hub has kept the tap."""

        def with_label() -> list[Posted]:
            return [one for one in self.live() if label in one.buttons]

        card = self.until(with_label, f"a card with {label}")[-1]
        key = self.chat.press(card, label, who=who)
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


def voted_by_two(life: Life) -> None:
    """Held, then voted for by two people."""
    asker = life.home.start("ask", "--session", "s", "--timeout", "120s", *QUESTION)
    life.press("[hold]")
    life.press("yes", who="ada")
    life.press("yes", who="bob")
    life.until(lambda: asker.process.poll() is not None, "the asker has its answer")
    done = asker.end()
    assert (done.code, done.out) == (0, "yes\n"), done
    votes = life.home.rows("SELECT person FROM vote WHERE live = 1 ORDER BY person")
    assert votes in ([("ada",), ("bob",)], []), votes
    life.outcome = "answered"


LIVES: Final = {
    "tap": answered_by_tap,
    "votes": voted_by_two,
    "timeout": timed_out,
    "session": replied_to_a_session,
}
CONFIG: Final = """
[policy]
channels = ["fakechat"]
reminders = ["500ms", "1h"]
escalate = [{ after = "250ms", channels = ["second"] }]
"""
MORE: Final = {"votes": "quorum = 2\nexclude_asker = false\n"}


def live(
    installation: Installation, repeat: str, name: str, kill_at: int
) -> tuple[list[str], Life]:
    """Let one life happen, check how it ended, and return its points and what became of it."""
    dedupes = repeat == "by_key"
    with FakeChat(dedupes=dedupes) as chat, FakeChat(dedupes=dedupes) as second:
        config = CONFIG + MORE.get(name, "")
        config += config_of(second, "second", adapter="fakechat")
        with ChatHome(chat, installation=installation, config=config) as home:
            points = f"{home.path}/points"
            home.configure(points=points, kill_at=kill_at)
            life = Life(repeat, chat, second, home, home.start("hub", "run"))
            # Whoever asks meets a hub that runs: it is the hub's life that is looked at.
            life.until(lambda: home.chat_state() == "hearing", "the chat is heard")
            LIVES[name](life)
            check(life)
            with open(points, encoding="utf-8") as file:
                found = file.read().splitlines()
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
        for repeat in ("none", "by_key", "by_lookup"):
            made[repeat] = Installation(f"{home.path}/{repeat}")
            install(made[repeat], repeat=repeat)
        yield made


CARD: Final = ("call open", "call post", "call edit")
# What each life has to come by, or it is not the life that it is meant to be.
LABELS: Final = {
    "tap": {*CARD, "call remind", "call delete", "release ToWaiter", "release Acknowledge"},
    "votes": {*CARD, "release ToWaiter", "release Acknowledge"},
    "timeout": {*CARD, "call remind", "release ToWaiter"},
    "session": {*CARD, "call reply", "release Acknowledge"},
}


def killed_at_each(
    installation: Installation, repeat: str, name: str, points: Iterable[int]
) -> tuple[dict[int, Exception], list[int]]:
    """Let one life happen for each point; return what went wrong, and who was not heard."""
    failed: dict[int, Exception] = {}
    untold: list[int] = []

    def one(kill_at: int) -> None:
        try:
            _, life = live(installation, repeat, name, kill_at)
            untold.extend([kill_at] * life.untold)
        except Exception as exc:  # noqa: BLE001 - all of them are told together
            failed[kill_at] = exc

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, points))
    return failed, untold


def told(failed: dict[int, Exception], found: list[str]) -> str:
    """Return what went wrong at which point."""
    return "\n\n".join(
        f"{found[point - 1] if point <= len(found) else point}: {error}"
        for point, error in sorted(failed.items())
    )


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LIVES)
@pytest.mark.parametrize("repeat", ["none", "by_key", "by_lookup"])
def test_a_hub_killed_at_any_point_ends_as_if_nothing_had_happened(
    installations: dict[str, Installation], repeat: str, name: str
) -> None:
    installation = installations[repeat]
    found, _ = live(installation, repeat, name, 0)
    labels = {line.split(" ", 2)[2] for line in found}
    assert labels >= LABELS[name], labels
    failed, untold = killed_at_each(installation, repeat, name, range(1, len(found) + 1))
    assert not failed, f"{len(failed)} of {len(found)} points:\n{told(failed, found)}"
    # Lives differ by a few points, so the first one does not tell where the last is.
    for point in itertools.count(len(found) + 1):
        _, life = live(installation, repeat, name, point)
        if not life.was_killed:
            break
        assert point < 2 * len(found), "it never ends"
    # A computer that is busy may be slow to start a hub; as a rule a program is heard.
    assert len(untold) <= len(found) // 10, [found[point - 1] for point in untold]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", LIVES)
def test_a_few_points_of_each_life_others_each_day(
    installations: dict[str, Installation], name: str
) -> None:
    today = datetime.datetime.now(datetime.UTC).date().toordinal()
    repeat = ("none", "by_key", "by_lookup")[today % 3]
    found, _ = live(installations[repeat], repeat, name, 0)
    points = random.Random(today).sample(range(1, len(found) + 1), SAMPLED)
    failed, _ = killed_at_each(installations[repeat], repeat, name, points)
    assert not failed, f"{repeat}, day {today}:\n{told(failed, found)}"


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
