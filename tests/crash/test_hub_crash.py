"""The hub and askers killed at any moment: one outcome, one answer, an unbroken audit."""

import hashlib
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from fakes.home import Done, Home, Json, Line, ended, eventually

QUESTION = ("Deploy?", "-o", "yes", "-o", "no")
SPEC: Json = {"question": "Deploy?", "options": ["yes", "no"], "free_text": False}
SESSION: Json = {"program": "test", "cwd": "/"}


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


# --- what has to hold after every crash ------------------------------------------------------


def check_audit(home: Home) -> list[tuple[str, str | None]]:
    """Check the chain, by its description alone, and return each line's event and ask."""
    rows = home.rows(
        "SELECT encoding, at_ms, event, ask_id, session_id, facts, hash FROM audit ORDER BY id"
    )
    assert rows
    previous = bytes(32)
    for encoding, at_ms, event, ask_id, session_id, facts, digest in rows:
        sha = hashlib.sha256(bytes([encoding]))
        texts = [event, ask_id, session_id, facts]
        parts = [previous, at_ms.to_bytes(8, "big", signed=True)]
        for part in [*parts, *(None if one is None else one.encode() for one in texts)]:
            if part is None:
                sha.update(b"\0" + bytes(8))
            else:
                sha.update(b"\1" + len(part).to_bytes(8, "big") + part)
        assert sha.digest() == digest, "the audit's chain is broken"
        previous = digest
    return [(event, ask_id) for _, _, event, ask_id, *_ in rows]


def check_outcome(home: Home, ask_id: str, outcome: str) -> Json:
    """Check that the ask has exactly one outcome, and return the ask."""
    home.start_hub()
    assert len(home.rows("SELECT 1 FROM ask WHERE public_id = ?", ask_id)) == 1
    found = home.ask_state(ask_id)
    assert (found["state"], found["outcome"]) == ("closed", outcome), found
    closings = [one for one in check_audit(home) if one == ("closed", ask_id)]
    assert len(closings) == 1, closings
    query = "SELECT count(*) FROM claim JOIN ask ON ask.id = claim.ask WHERE public_id = ?"
    assert home.rows(f"{query} AND live = 1", ask_id)[0][0] <= 1
    assert home.rows("PRAGMA integrity_check") == [("ok",)]
    return found


def check_answered(home: Home, ask_id: str, asker: Done, told: "Told") -> None:
    """Check that the asker got one answer, the store's, and that nobody was told another."""
    assert asker.code == 0, asker
    found = check_outcome(home, ask_id, "answered")
    (label,) = found["answer"]["labels"]
    assert asker.out == f"{label}\n", (asker, found)
    assert told.taken <= {label}, (told, found)
    assert told.lost_to <= {label}, (told, found)
    assert "Traceback" not in asker.err


@dataclass
class Told:
    """What people were told who answered."""

    taken: set[str] = field(default_factory=set)
    lost_to: set[str] = field(default_factory=set)


def answer_until_it_ends(home: Home, ask_id: str, value: str, told: Told) -> None:
    """Answer as a stubborn person does, until the answer is taken or another one has won."""
    for _ in range(40):
        done = home.run("answer", ask_id, value, "--json")
        assert "Traceback" not in done.err, done
        if done.code in {0, 3} and done.json["outcome"] != "open":
            assert done.json["outcome"] == "answered", done
            (label,) = done.json["answer"]["labels"]
            (told.taken if done.code == 0 else told.lost_to).add(label)
            return
        # Not raised yet, or the hub is gone, or another answer is on its way to the asker.
    raise AssertionError("no answer was ever taken")


def race(home: Home, ask_id: str, told: Told) -> list[threading.Thread]:
    people = [
        threading.Thread(target=answer_until_it_ends, args=(home, ask_id, value, told))
        for value in ("yes", "no")
    ]
    for one in people:
        one.start()
    return people


# --- the hub killed --------------------------------------------------------------------------


def test_the_answer_arrives_once_although_the_hub_was_killed_while_the_ask_was_open(
    home: Home,
) -> None:
    asking = home.start("ask", *QUESTION)
    ask_id = asking.asked()
    former = home.kill_hub()
    told = Told()
    answer_until_it_ends(home, ask_id, "no", told)
    check_answered(home, ask_id, asking.end(), told)
    assert told.taken == {"no"}
    assert home.hub_pid() != former


def test_the_asker_starts_the_hub_again_by_itself(home: Home) -> None:
    asking = home.start("ask", *QUESTION)
    asking.asked()
    former = home.kill_hub()
    home.next_hub(former)
    assert asking.process.poll() is None


def test_a_handed_over_ask_is_collected_any_number_of_times_across_kills(home: Home) -> None:
    ask_id = home.hand_over(*QUESTION)
    former = home.kill_hub()
    waiting = home.start("wait", ask_id)
    home.next_hub(former)
    home.until_ask(ask_id, state="open")
    home.kill_hub()
    assert home.run("answer", ask_id, "no").code == 0
    assert waiting.end().out == "no\n"
    for _ in range(2):
        home.kill_hub()
        again = home.run("wait", ask_id, "--json")
        assert again.json["answer"]["labels"] == ["no"]
    check_outcome(home, ask_id, "answered")


def test_a_key_finds_its_ask_and_its_answer_across_kills(home: Home) -> None:
    first = home.run("ask", *QUESTION, "--key", "k", "--no-wait")
    home.kill_hub()
    second = home.run("ask", *QUESTION, "--key", "k", "--no-wait")
    assert first.out == second.out
    assert home.run("answer", first.out.strip(), "yes").code == 0
    home.kill_hub()
    third = home.run("ask", *QUESTION, "--key", "k", "--json")
    assert third.json["id"] == first.out.strip()
    assert third.json["answer"]["labels"] == ["yes"]


def test_a_deadline_does_not_begin_anew_with_the_next_hub(home: Home) -> None:
    ask_id = home.hand_over(*QUESTION, "--timeout", "3s", "--default", "no")
    home.kill_hub()
    done = home.run("wait", ask_id, "--json")
    assert (done.code, done.json["outcome"]) == (0, "timed_out"), done
    assert done.json["answer"]["labels"] == ["no"]
    assert 2.9 < done.json["waited_s"] < 4.5
    check_outcome(home, ask_id, "timed_out")


def test_a_deadline_that_came_while_no_hub_lived_is_over_at_once(home: Home) -> None:
    ask_id = home.hand_over(*QUESTION, "--timeout", "500ms")
    home.kill_hub()
    ((deadline_ms,),) = home.rows("SELECT deadline_ms FROM ask WHERE public_id = ?", ask_id)
    eventually(lambda: time.time() * 1000 > deadline_ms)
    done = home.run("wait", ask_id, "--json")
    assert (done.code, done.json["outcome"]) == (4, "timed_out"), done
    check_outcome(home, ask_id, "timed_out")


def test_many_open_asks_outlive_many_kills(home: Home) -> None:
    askers = [home.start("ask", f"{n}?", "-o", "yes", "-o", "no") for n in range(6)]
    ids = [one.asked() for one in askers]
    handed_over = home.hand_over(*QUESTION)
    for _ in range(3):
        former = home.kill_hub()
        home.next_hub(former)
    for n, ask_id in enumerate(ids):
        told = Told()
        answer_until_it_ends(home, ask_id, ("yes", "no")[n % 2], told)
        check_answered(home, ask_id, askers[n].end(), told)
    assert home.ask_state(handed_over)["state"] == "open"


# --- the matrix ------------------------------------------------------------------------------


class RawAsker:
    """Asks by the line protocol's bytes, and has the hub killed after a certain line."""

    def __init__(self, home: Home, kill_after: int) -> None:
        self.home = home
        self.ask_id = f"a{os.getpid() % 10**6:06d}{kill_after:06d}"
        self.results: list[Json] = []
        self.kill_after = kill_after
        self.lines = 0
        self.killed = False

    def run(self) -> bool:
        """Ask until the answer was taken; return whether the hub was killed on the way."""
        for _ in range(5):
            self.home.start_hub()
            try:
                with self._line("ask") as line, self._line("control") as control:
                    self._converse(line, control)
            except (ConnectionError, TimeoutError, FileNotFoundError):
                continue
            return self.killed
        raise AssertionError("the hub was killed once only, and still there is no answer")

    def _line(self, which: str) -> Line:
        line = self.home.line(which)
        self._tick()
        return line

    def _converse(self, line: Line, control: Line) -> None:
        raised = line.post("ask", ask={**SPEC, "id": self.ask_id}, session=SESSION, wait=True)
        self._tick()
        answer = line.answer_to(raised)
        assert answer["ok"] is True, answer
        self._tick()
        claimed = None
        if answer["ask"]["state"] == "open":
            claimed = control.post("answer", ask=self.ask_id, values=["no"])
            self._tick()
        self.results.append(line.event("ended")["result"])
        self._tick()
        took = line.post("took", ask=self.ask_id)
        self._tick()
        assert line.answer_to(took)["ok"] is True
        self._tick()
        if claimed is not None:
            assert control.answer_to(claimed)["result"]["outcome"] == "answered"
            self._tick()

    def _tick(self) -> None:
        self.lines += 1
        if self.lines == self.kill_after:
            self.killed = True
            self.home.kill_hub()


@pytest.mark.parametrize(
    "kill_after",
    [*range(3, 8), *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 8, 9))],
)
def test_the_hub_killed_after_each_line_of_a_conversation(home: Home, kill_after: int) -> None:
    asker = RawAsker(home, kill_after)
    assert asker.run(), "the conversation is shorter than that"
    assert {str(one["answer"]) for one in asker.results} == {str(asker.results[0]["answer"])}
    assert asker.results[0]["outcome"] == "answered"
    assert asker.results[0]["answer"]["labels"] == ["no"]
    check_outcome(home, asker.ask_id, "answered")


def kill_at_audit_line(home: Home, ask_id: str, count: int, over: threading.Event) -> bool:
    """Kill the hub the moment that the audit has so many lines about the ask."""
    query = "SELECT count(*) FROM audit WHERE ask_id = ?"
    with home.database() as connection:
        while not over.is_set():
            if connection.execute(query, (ask_id,)).fetchone()[0] >= count:
                home.kill_hub()
                return True
    return False


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_hub_killed_the_moment_a_step_is_on_disk(home: Home, count: int) -> None:
    home.start_hub()
    told, over, killed = Told(), threading.Event(), list[bool]()
    ask_id = "a00000000000k"
    killer = threading.Thread(
        target=lambda: killed.append(kill_at_audit_line(home, ask_id, count, over))
    )
    killer.start()
    try:
        asking = home.start_python(ASK_WITH_ID, ask_id)
        people = race(home, ask_id, told)
        done = asking.end()
        for one in people:
            one.join(60)
    finally:
        over.set()
        killer.join(10)
    assert killed == [True], "there was no such line"
    check_answered(home, ask_id, done, told)


# `upcall ask` with an id of our choice.
ASK_WITH_ID = """
import sys
from upcall.cli import ask
ask.mint_ask_id = lambda: sys.argv[1]
sys.exit(ask.run(["Deploy?", "-o", "yes", "-o", "no"]))
"""


def kill_at_random(home: Home, chance: random.Random, over: threading.Event) -> int:
    """Kill hubs at random moments, at most three, until *over*; return how many."""
    kills = 0
    for _ in range(chance.randrange(1, 4)):
        if over.wait(chance.uniform(0, 0.2)):
            break
        pid = home.hub_pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            assert ended(pid, 10)
            kills += 1
    return kills


def random_run(home: Home, seed: int) -> int:
    chance = random.Random(seed)
    if chance.random() < 0.7:
        home.start_hub()
    told, over, kills = Told(), threading.Event(), list[int]()
    killer = threading.Thread(target=lambda: kills.append(kill_at_random(home, chance, over)))
    asking = home.start("ask", *QUESTION)
    killer.start()
    try:
        ask_id = asking.asked()
        people = race(home, ask_id, told)
        done = asking.end()
        for one in people:
            one.join(60)
    finally:
        over.set()
        killer.join(20)
    check_answered(home, ask_id, done, told)
    return kills[0]


def test_hubs_killed_at_random_moments(home: Home) -> None:
    kills = sum(random_run(home, seed) for seed in range(4))
    assert kills > 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_hubs_killed_at_random_moments_forty_times(home: Home) -> None:
    kills = sum(random_run(home, seed) for seed in range(100, 140))
    assert kills >= 15


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", range(1, 6))
def test_a_busy_hub_killed_while_many_ask(home: Home, count: int) -> None:
    chance = random.Random(count)
    home.start_hub()
    told = [Told() for _ in range(8)]
    askers = [home.start("ask", *QUESTION) for _ in told]
    over = threading.Event()
    killer = threading.Thread(target=kill_at_random, args=(home, chance, over))
    killer.start()
    ids = [asking.asked() for asking in askers]
    people = [one for n, ask_id in enumerate(ids) for one in race(home, ask_id, told[n])]
    ends = [asking.end(60) for asking in askers]
    for one in people:
        one.join(60)
    over.set()
    killer.join(20)
    for ask_id, done, heard in zip(ids, ends, told, strict=True):
        check_answered(home, ask_id, done, heard)


# --- the asker killed ------------------------------------------------------------------------


def refused_as_unreachable(home: Home, ask_id: str) -> None:
    found = home.until_ask(ask_id, within_s=5.0, state="closed")
    assert found["outcome"] == "unreachable"
    assert found["note"], "the card says why"
    late = home.run("answer", ask_id, "yes")
    assert late.code == 3, late
    assert "program" in late.err, late
    check_outcome(home, ask_id, "unreachable")


def test_a_killed_askers_card_says_so_within_five_seconds(home: Home) -> None:
    asking = home.start("ask", *QUESTION)
    ask_id = asking.asked()
    asking.kill()
    refused_as_unreachable(home, ask_id)


def test_an_asker_that_died_while_no_hub_lived_is_unreachable_under_the_next(
    home: Home,
) -> None:
    asking = home.start("ask", *QUESTION)
    ask_id = asking.asked()
    asking.signal(signal.SIGSTOP)  # it must not start a hub
    home.kill_hub()
    asking.kill()
    home.start_hub()
    refused_as_unreachable(home, ask_id)


def test_an_answer_that_the_asker_never_took_is_unreachable_and_the_person_is_told(
    home: Home,
) -> None:
    asking = home.start("ask", *QUESTION)
    ask_id = asking.asked()
    asking.signal(signal.SIGSTOP)
    answering = home.start("answer", ask_id, "yes")
    home.until_ask(ask_id, state="claimed")
    asking.kill()
    done = answering.end()
    assert done.code == 3, done
    assert "stopped before it took the answer" in done.err
    found = check_outcome(home, ask_id, "unreachable")
    assert "took" in found["note"], found


def test_a_claim_outlives_the_hub_and_the_asker_still_gets_it(home: Home) -> None:
    asking = home.start("ask", *QUESTION)
    ask_id = asking.asked()
    asking.signal(signal.SIGSTOP)
    answering = home.start("answer", ask_id, "no")
    home.until_ask(ask_id, state="claimed")
    home.kill_hub()
    asking.signal(signal.SIGCONT)
    done = asking.end()
    assert (done.code, done.out) == (0, "no\n")
    check_outcome(home, ask_id, "answered")
    answering.abandon()


def test_no_process_that_got_the_dead_askers_pid_is_taken_for_it(home: Home) -> None:
    """The row keeps the start time too: a row with another start is dead at once."""
    asking = home.start("ask", *QUESTION)
    ask_id = asking.asked()
    asking.signal(signal.SIGSTOP)
    home.kill_hub()
    with home.database() as connection:
        assert connection.execute("SELECT asker_start FROM session").fetchone()[0]
    rewrite(home, "UPDATE session SET asker_start = 'other:1'")
    home.start_hub()
    refused_as_unreachable(home, ask_id)
    asking.kill()


def rewrite(home: Home, statement: str) -> None:
    connection = sqlite3.connect(f"{home.state}/hub.db")
    try:
        connection.execute(statement)
        connection.commit()
    finally:
        connection.close()
