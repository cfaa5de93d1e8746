"""S15: no time-out approves anything, and no default counts for what nobody could see."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fakes.home import Home, Json, eventually
from fakes.peer import Peer
from upcall.line import mint_ask_id

OPTIONS = ("-o", "yes", "-o", "no")


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


@contextmanager
def configured(text: str) -> Iterator[Home]:
    with Home() as made:
        made.write_config(text)
        made.start_hub()
        yield made


def asks(home: Home) -> list[Json]:
    with home.line("control") as line:
        found: list[Json] = line.ok("asks", state="all")["asks"]
    return found


# --- a permission has none -------------------------------------------------------------------

BLOCKING = """
import sys, upcall
try:
    upcall.ask("Deploy?", ["yes", "no"], permission=True, default="yes", timeout_s=5)
except upcall.InvalidAsk as error:
    print(error.code, error)
"""
SESSION = """
import asyncio, upcall
async def main():
    async with upcall.Session("t") as session:
        for more in ({"permission": True, "timeout_s": 5}, {}):
            try:
                await session.ask("Deploy?", ["yes", "no"], default="yes", **more)
            except upcall.InvalidAsk as error:
                print(error.code, error)
asyncio.run(main())
"""


def test_a_permission_with_a_default_is_refused_at_every_entrance(home: Home) -> None:
    given = ("--timeout", "5s", "--default", "yes")
    for command in (
        ("ask", "Deploy?", *OPTIONS, "--permission", *given),
        ("ask", "--no-wait", "Deploy?", *OPTIONS, "--permission", *given),
        ("confirm", "Deploy?", *given),
    ):
        done = home.run(*command)
        assert done.code == 2, done
        assert "default" in done.err
    done = home.start_python(BLOCKING).end()
    assert done.out.startswith("invalid_ask default:"), done
    done = home.start_python(SESSION).end()
    one, two = done.out.splitlines()
    assert one.startswith("invalid_ask default:"), done
    # Alike in both calls: a default without a time-out would never be used.
    assert two.startswith("invalid_ask default:"), done
    ask: Json = {"id": mint_ask_id(), "question": "Deploy?", "options": ["yes", "no"]}
    ask |= {"class": "permission", "default": "yes", "timeout_s": 5}
    for which in ("ask", "control"):
        with home.line(which) as line:
            assert line.refused("ask", ask=ask, wait=False) == "invalid_ask"
    assert asks(home) == []


def test_a_default_in_the_frame_of_a_permission_is_left_out(home: Home) -> None:
    assert home.run("roots", "add", home.path).code == 0
    with Peer(home.path) as peer:
        eventually(lambda: peer.connected == 1)
        frame: Json = {
            "id": "ask:1",
            "kind": "ask",
            "question": "Deploy?",
            "options": ["yes", "no"],
        }
        frame |= {"type": "action_needed", "sessionId": peer.session_id, "freeText": False}
        peer.pending = {**frame, "class": "permission", "default": "yes"}
        peer.say(peer.pending)
        (ask,) = eventually(lambda: asks(home))
        assert (ask["class"], ask["default"]) == ("permission", None)
        # Its time is up, it says, and it gives itself what it wanted.
        peer.say(
            {
                "type": "action_resolved",
                "id": "ask:1",
                "resolvedBy": "timeout",
                "outcome": "timed_out",
                "answer": "yes",
            }
        )
        peer.pending = None
        ended = home.until_ask(ask["id"], state="closed")
        assert (ended["outcome"], ended["answered_by"]) == ("timed_out", None)
        assert ended["answer"] is None


# --- a default that is used, and one that is not ----------------------------------------------


def test_a_default_is_told_as_nobodys_choice(home: Home) -> None:
    done = home.run("ask", "Go?", *OPTIONS, "--timeout", "1s", "--default", "no", "--json")
    assert done.code == 0, done
    result = done.json
    assert (result["outcome"], result["answered_by"]) == ("timed_out", None)
    assert result["answer"]["labels"] == ["no"]
    words = 'the program\'s own default "no" was used. Nobody chose it.'
    assert words in done.err
    state = home.ask_state(result["id"])
    assert state["note"] == f"no answer within 1 s; {words}"
    rows = home.rows(
        "SELECT facts FROM audit WHERE event = 'closed' AND ask_id = ?", state["id"]
    )
    facts = json.loads(rows[0][0])
    assert (facts["outcome"], facts["resolved_by"]) == ("timed_out", "timeout")
    assert (facts["operator"], facts["channel"]) == (None, None)


@contextmanager
def deaf_home() -> Iterator[Home]:
    """A home whose only channel cannot hear: another program holds the inbox's port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = f"[web]\nport = {port}\n[channels.terminal]\nenabled = false\n"
        with configured(text) as made:
            yield made


NO_CHANNEL = "[web]\nenabled = false\n[channels.terminal]\nenabled = false\n"


def test_without_a_place_that_hears_a_time_out_gives_no_default() -> None:
    # Both at once: a hub that has just begun gives its channels some seconds to be there.
    with deaf_home() as deaf, configured(NO_CHANNEL) as mute:
        given = ("ask", "Go?", *OPTIONS, "--timeout", "1s", "--default", "no")
        asking, plainly = deaf.start(*given, "--json"), mute.start(*given)
        done = asking.end()
        assert done.code == 4, done
        assert (done.json["outcome"], done.json["answer"]) == ("timed_out", None)
        assert "nobody said no" in done.err
        done = plainly.end()
        assert (done.code, done.out) == (4, ""), done


# --- without a hub ---------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
def test_without_a_hub_a_time_out_gives_no_default(as_json: bool) -> None:
    with Home() as home:
        home.write_config("[policy]\nallow_defaults = false\n")
        os.mkdir(home.state, 0o755)
        more = ("--json",) if as_json else ()
        done = home.run("ask", "Go?", *OPTIONS, "--timeout", "1s", "--default", "yes", *more)
        assert done.code == 4, done
        assert done.err.count("without a hub a default is not used") == 2, done
        assert "nobody said no" in done.err
        if as_json:
            assert (done.json["outcome"], done.json["answer"]) == ("timed_out", None)
            assert "without a hub" in done.json["reason"]
        else:
            assert done.out == ""


# --- the policy ------------------------------------------------------------------------------

FORBIDDEN = """
import upcall
try:
    upcall.ask("Go?", ["yes", "no"], default="no", timeout_s=5)
except upcall.UpcallError as error:
    print(error.code)
"""


def test_defaults_can_be_forbidden() -> None:
    with configured("[policy]\nallow_defaults = false\n") as home:
        given: tuple[Any, ...] = ("--timeout", "5s", "--default", "no")
        for command in (("ask", "Go?"), ("ask", "--no-wait", "Go?")):
            done = home.run(*command, *OPTIONS, *given)
            assert (done.code, done.out) == (1, ""), done
            assert "policy.allow_defaults" in done.err
        assert home.start_python(FORBIDDEN).end().out == "defaults_forbidden\n"
        assert asks(home) == []
        home.hand_over("Go?", *OPTIONS, "--timeout", "1m")


def test_a_policy_that_is_no_truth_value_is_named() -> None:
    with Home() as home:
        home.write_config("[policy]\nallow_defaults = 'no'\n")
        done = home.run("config", "check")
        assert done.code != 0, done
        assert "allow_defaults" in done.err
