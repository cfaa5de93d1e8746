"""`upcall log`: the story of a question, live and stored, for people and for programs."""

import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.home import Home, Json, eventually

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def lines(home: Home, *args: str) -> list[Json]:
    done = home.run("log", "--json", *args)
    assert done.code == 0, done
    found: list[Json] = done.json["lines"]
    return found


def answered(home: Home, question: str = "Deploy?", *more: str) -> str:
    asking = home.start("ask", question, "-o", "yes", "-o", "no", *more)
    ask_id = asking.asked()
    assert home.run("answer", ask_id, "yes").code == 0
    asking.end()
    return ask_id


def test_a_question_in_a_chat_reads_like_a_story() -> None:
    with FakeChat() as chat, ChatHome(chat) as home:
        home.start_chat_hub()
        asking = home.start("ask", "Deploy?", "-o", "yes", "-o", "no")
        card = chat.card("Deploy?")
        chat.receipt(chat.press(card, "yes"))
        assert asking.end().code == 0
        chat.until(lambda: not card.buttons, what="the card is closed")
        (ask_id,) = {one["ask"] for one in lines(home) if "ask" in one}
        eventually(
            lambda: lines(home, "--ask", ask_id)[-1]["event"] == "card_closed",
            what="the last line",
        )
        told = home.run("log", "--ask", ask_id).out.splitlines()
        words = [re.sub(rf"^{STAMP}  ", "", line) for line in told]
        assert [word for word in words if "watch" not in word] == [
            words[0],
            "shown in fakechat",
            'ada answered "yes" in fakechat',
            "sent to the program",
            "the program took it",
            "card closed: fakechat",
        ]
        assert words[0].endswith(f"(pid {asking.pid}): “Deploy?”")
        found = lines(home, "--ask", ask_id[:6])
        assert [one["row"] for one in found] == sorted(one["row"] for one in found)
        assert {one["ask"] for one in found} == {ask_id}
        assert found[0]["question"] == "Deploy?"
        claimed = next(one for one in found if one["event"] == "claimed")
        assert (claimed["answer"], claimed["facts"]["operator"]) == ("yes", "ada")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", claimed["at"])


def test_the_log_is_the_same_with_and_without_a_hub(home: Home) -> None:
    home.start_hub()
    first, second = answered(home, "One?"), answered(home, "Two?")
    live = home.run("log")
    live_json = home.run("log", "--json").json
    home.run("hub", "stop")
    before = sorted(os.listdir(home.state))
    assert home.run("log").out == live.out
    assert home.run("log", "--json").json == live_json
    assert home.hub_pid() is None
    assert sorted(os.listdir(home.state)) == before  # looking leaves nothing behind
    assert {one["ask"] for one in lines(home, "--ask", second)} == {second}
    newest = lines(home, "--limit", "2")
    assert newest == live_json["lines"][-2:]
    assert live_json["head"]["hash"] == newest[-1]["hash"]
    assert lines(home, "--since", "1h") == live_json["lines"]
    assert first in live.out
    for _ in ("without a hub", "with one"):
        for unknown in (("--ask", "zzzz"), ("--session", "nobody")):
            done = home.run("log", *unknown)
            assert done.code == 2
            assert "is known" in done.err
        home.start_hub()


def test_after_a_crash_the_log_is_read_from_what_is_on_disk(home: Home) -> None:
    home.start_hub()
    ask_id = home.hand_over("Still there?", "-o", "yes")
    home.kill_hub()
    assert lines(home, "--ask", ask_id)[0]["event"] == "raised"


def test_a_session_is_named_as_people_name_it(home: Home) -> None:
    home.start_hub()
    mine = home.hand_over("Mine?", "-o", "yes", "--session", "nightly")
    home.hand_over("Other?", "-o", "yes")
    found = lines(home, "--session", "nightly")
    assert {one["ask"] for one in found} == {mine}
    assert lines(home, "--session", found[0]["session"]) == found


def test_follow_goes_on_with_what_happens_and_ends_by_a_signal(home: Home) -> None:
    home.start_hub()
    old = answered(home, "Old?")
    followers = [
        home.start("log", "--follow", "--json"),
        home.start("log", "--follow", "--limit", "1"),
    ]
    for one in followers:
        one.line("took it", on="out")
    new = answered(home, "New?")
    for one in followers:
        one.line(rf"{new}[\s\S]*took it", on="out")
    documents = [json.loads(line) for line in followers[0].out().splitlines()]
    rows = [one["row"] for one in documents]
    assert rows == list(range(1, len(rows) + 1))  # each once, in order
    assert {one["ask"] for one in documents} == {old, new}
    assert followers[1].out().count(old) == 1
    for one, number in zip(followers, (signal.SIGINT, signal.SIGTERM), strict=True):
        one.signal(number)
        assert one.end().code == 128 + number
        assert "Traceback" not in one.err()


def test_follow_with_a_filter_hears_of_nothing_else(home: Home) -> None:
    home.start_hub()
    wanted = home.hand_over("Wanted?", "-o", "yes")
    by_ask = home.start("log", "--follow", "--json", "--ask", wanted)
    by_ask.line("raised", on="out")
    home.hand_over("Other?", "-o", "yes")
    home.run("answer", wanted, "yes")
    by_ask.line('"closed"', on="out")
    found = [json.loads(line) for line in by_ask.out().splitlines()]
    assert {one["ask"] for one in found} == {wanted}
    by_ask.kill()


def test_who_follows_hears_when_the_hub_ends(home: Home) -> None:
    home.start_hub()
    home.hand_over("One?", "-o", "yes")
    following = home.start("log", "--follow")
    following.line("raised", on="out")
    home.run("hub", "stop")
    done = following.end()
    assert done.code == 1
    assert "hub" in done.err


def test_many_lines_come_whole_and_in_order(home: Home) -> None:
    """More than fit into one line of the socket, and more than one request returns."""
    home.start_hub()
    home.hand_over("First?", "-o", "yes")
    home.run("hub", "stop")
    with sqlite3.connect(f"{home.state}/hub.db") as db:
        row = db.execute("SELECT encoding, at_ms, hash FROM audit").fetchone()
        for _ in range(3000):
            db.execute(
                "INSERT INTO audit (encoding, at_ms, event, facts, hash)"
                " VALUES (?, ?, ?, ?, ?)",
                (*row[:2], "told", json.dumps({"x": "y" * 900}), row[2]),
            )
    db.close()
    os.unlink(f"{home.state}/hub.db.epoch")
    home.start_hub()
    found = lines(home, "--limit", "2500")
    assert len(found) == 2500
    assert [one["row"] for one in found] == list(range(found[0]["row"], found[0]["row"] + 2500))
    assert found[-1]["row"] >= 3001


@pytest.mark.parametrize("running", [True, False])
def test_credentials_and_control_characters_reach_nobody(home: Home, running: bool) -> None:
    token = "ghp_" + "a1B2" * 10
    home.start_hub()
    ask_id = home.hand_over(f"Use {token}?\x1b[2J\u202e", "-o", "yes", "--session", "s\u202e")
    home.run("answer", ask_id, "yes")
    if not running:
        home.run("hub", "stop")
    for args in ((), ("--json",), ("--ask", ask_id)):
        done = home.run("log", *args)
        assert done.code == 0
        assert token not in done.out
        assert "characters]" in done.out
        if "--json" not in args:
            assert "\x1b" not in done.out
            assert "\u202e" not in done.out


def test_what_was_forgotten_is_told_without_its_text(home: Home) -> None:
    home.start_hub()
    ask_id = answered(home, "Very private?")
    assert "Very private?" in home.run("log").out
    home.run("forget", ask_id, "--yes")
    told = home.run("log", "--ask", ask_id).out
    assert "Very private?" not in told
    assert "option 1 (not kept any more)" in told
    assert told.splitlines()[-1].endswith("the text was forgotten; this story stays")


def test_a_terminal_gets_short_times_and_colour_only_where_it_is_wanted(home: Home) -> None:
    home.start_hub()
    ask_id = answered(home)

    def shown(**env: str) -> str:
        # All three standard streams are the terminal.
        program = ["sh", "-c", f"exec {' '.join(home.upcall)} log --ask {ask_id} >&2"]
        running = home.start_program(program, on_terminal=True, env=env)
        return running.end().err

    coloured = shown(TERM="xterm", COLUMNS="40")
    assert "\x1b[2m" in coloured
    for env in ({"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}):
        plain = shown(**env)
        assert "\x1b" not in plain
        assert re.search(r"^\d\d:\d\d:\d\d  raised", plain, re.MULTILINE)
    bare = re.sub(r"\x1b\[\d+m", "", coloured)
    assert max(map(len, bare.splitlines())) <= 40
    piped = home.run("log", "--ask", ask_id, env={"TERM": "xterm"}).out
    assert "\x1b" not in piped
    assert re.match(rf"{STAMP}  raised", piped)


def test_usage_is_said_in_words(home: Home) -> None:
    for args in (
        ("--limit", "0"),
        ("--limit", "x"),
        ("--since", "tomorrow"),
        ("--since", "2999-01-01"),
        ("--ask", ""),
        ("--nonsense",),
        ("extra",),
    ):
        done = home.run("log", *args)
        assert done.code == 2, args
        assert "Traceback" not in done.err
    nothing = home.run("log")
    assert nothing.code == 1
    assert "nothing was ever asked here" in nothing.err
    home.start_hub()
    empty = home.run("log")
    assert (empty.code, empty.out) == (0, "")


def test_the_asking_socket_tells_no_story(home: Home) -> None:
    home.start_hub()
    with home.line("ask") as line:
        for fields in ({}, {"follow": True}):
            assert line.refused("log", **fields) == "not_permitted"
