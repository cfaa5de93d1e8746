"""Routes, tags, verbosity and what a policy means, with real programs and a real hub."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.home import Home, eventually

ROUTES = f"""
[operators.grace]
identities = {{ local = "{os.getuid()}" }}

[policy]
reminders = ["1s", "1h"]

[[route]]
tag = "night*"
channels = ["web"]
merge = true

[[route]]
kind = "permission"
answer_by = ["ada"]
quiet_hours = {{ from = "00:00", to = "23:59" }}
"""


@pytest.fixture(scope="module")
def chat() -> Iterator[FakeChat]:
    with FakeChat() as made:
        yield made


@pytest.fixture(scope="module")
def home(chat: FakeChat) -> Iterator[ChatHome]:
    with ChatHome(chat, config=ROUTES) as made:
        made.start_chat_hub()
        yield made


def test_tags_of_option_and_environment_decide_where_an_ask_is_shown(
    home: ChatHome, chat: FakeChat
) -> None:
    first = home.hand_over("By option?", "--tag", "nightly", "--tag", "x")
    variable = {"UPCALL_TAGS": "nightly, big"}
    second = home.run("ask", "By variable?", "--no-wait", env=variable).out.strip()
    home.hand_over("By default?")
    chat.card("By default?")
    assert chat.shown("By option?") == []
    assert chat.shown("By variable?") == []
    sessions = home.run("sessions", "--json").json["sessions"]
    assert sorted(one["tags"] for one in sessions) == [[], ["nightly", "big"], ["nightly", "x"]]
    for ask_id in (first, second):
        assert home.run("answer", ask_id, "done").code == 0


def test_people_are_reminded_once_in_the_chat(home: ChatHome, chat: FakeChat) -> None:
    ask_id = home.hand_over("Remind me?", "-o", "yes")
    chat.card("Remind me?")
    found = eventually(
        lambda: [one for one in chat.messages if "Still open after" in one.text
                 and "Remind me?" in one.text],
        what="the reminder",
    )  # fmt: skip
    assert len(found) == 1
    assert found[0].text.splitlines()[0].endswith(": Remind me?")
    home.run("answer", ask_id, "yes")


def test_equal_asks_of_one_name_are_one_and_one_answer_is_for_both(home: ChatHome) -> None:
    args = ("Go on?", "-o", "yes", "-o", "no", "--tag", "nightly", "--merge", "--session", "n")
    first, second = home.hand_over(*args), home.hand_over(*args)
    listed = [one["id"] for one in home.run("asks", "--json").json["asks"]]
    assert first in listed
    assert second not in listed
    home.run("answer", first, "yes")
    for ask_id in (first, second):
        home.until_ask(ask_id, outcome="answered")


def test_the_policy_in_force_is_explained_with_what_hears(
    home: ChatHome, chat: FakeChat
) -> None:
    told = home.run("policy", "explain", "--class", "permission", "--json").json
    assert told["source"] == "the hub's rules in force"
    sources = {one["key"]: one["from"] for one in told["rules"]}
    assert sources["answer_by"] == "route 2 (kind=permission)"
    assert [one["name"] for one in told["answer"]["people"]] == ["ada"]
    assert {one["name"]: one["hears"] for one in told["channels"]}["fakechat"] is True
    # All day long is night: only what draws by itself shows it now.
    assert told["shown"][0]["channels"] == ["web", "terminal"]
    words = home.run("policy", "explain", "--tag", "nightly").out
    assert "now: in inbox\n" in words
    assert "route 1 (tag=night*)" in words
    del chat


def test_verbosity_is_kept_for_a_conversation(home: ChatHome) -> None:
    ask_id = home.hand_over("Talk?", "--session", "talk")
    assert home.run("verbosity", "talk", "quiet").code == 0
    assert home.rows("SELECT conversation, level FROM verbosity") == [("n:talk", "quiet")]
    told = home.run("verbosity", "talk", "default", "--json").json
    assert told == {"conversation": "n:talk", "level": None}
    assert home.rows("SELECT conversation, level FROM verbosity") == []
    home.run("answer", ask_id, "done")
    assert home.run("verbosity", "nobody", "lean").code == 2
    assert home.run("verbosity", "talk", "loud").code == 2


# --- without a hub ---------------------------------------------------------------------------


def test_a_file_is_explained_without_a_hub_and_none_is_started(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[channels.tg]\n[policy]\nchannels = ["tg"]\nfallback = ["web"]\n')
    path.chmod(0o600)
    with Home() as alone:
        told = alone.run("policy", "explain", "--file", str(path), "--json").json
        assert told["shown"][0]["channels"] == ["tg"]
        assert {one["hears"] for one in told["channels"]} == {None}
        assert alone.run("policy", "explain").code == 0
        assert alone.hub_pid() is None
        assert alone.run("policy", "explain", "--file", "/nowhere").code == 2
        path.write_text("[policy]\nquorum = 0\n")
        refused = alone.run("policy", "explain", "--file", str(path))
        assert refused.code == 1
        assert "quorum" in refused.err


def test_the_check_of_a_configuration_says_what_would_happen(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[[route]]\nkind = "permission"\nanswer_by = ["owner"]\n')
    path.chmod(0o600)
    with Home() as alone:
        said = alone.run("config", "check", str(path)).err
        assert "a question: now: in inbox, watch; answered by " in said
        document = alone.run("config", "check", str(path), "--json").json
        assert json.dumps(document["samples"][1]["ask"]["class"]) == '"permission"'
        assert len(document["samples"]) == 2


# --- what a session says ---------------------------------------------------------------------

AGENT = """
import asyncio, sys, upcall
async def main():
    async with upcall.Session("agent", session_id="agent-1", tags=["prod"]) as session:
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, _, text = line.strip().partition(" ")
            if what == "live":
                await session.stream(text, final=False)
            elif what == "final":
                await session.stream(text, final=True)
            else:
                await session.idle(text)
asyncio.run(main())
"""


def test_a_session_is_read_in_its_thread_as_much_as_people_want() -> None:
    config = '[[route]]\ntag = "prod"\nverbosity = "verbose"\n'
    with (
        FakeChat() as chat,
        ChatHome(chat, config=config, capabilities={"threads": True, "deletes": True}) as home,
    ):
        home.start_chat_hub()
        agent = home.start_program([sys.executable, "-P", "-u", "-c", AGENT], stdin=True)

        def say(*lines: str) -> None:
            assert agent.process.stdin is not None
            agent.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            agent.process.stdin.flush()

        eventually(
            lambda: [
                one["state"]
                for one in home.run("sessions", "--json").json["sessions"]
                if one["state"] == "attached"
            ],
            what="the agent is attached",
        )
        say("live I am looking")
        live = chat.card("I am looking")
        say("final All is well.", "idle done")
        said = chat.card("All is well.")
        chat.card("Idle: done")
        assert live.place == said.place
        chat.until(lambda: not chat.shown("I am looking"), what="the live text is taken away")
        assert home.run("verbosity", "agent-1", "quiet").code == 0
        say("final Nobody reads this.")
        eventually(
            lambda: home.rows("SELECT 1 FROM notice WHERE text = 'Nobody reads this.'"),
            what="the hub heard it",
        )
        assert chat.shown("Nobody reads this.") == []
        agent.process.stdin.close()  # type: ignore[union-attr]
        agent.end()
