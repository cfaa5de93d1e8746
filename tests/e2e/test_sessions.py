"""Sessions with endpoints of their own: programs with our SDK, and peers that know less."""

import os
import signal
from collections.abc import Iterator

import pytest

from fakes.home import Home, Json, eventually
from fakes.peer import Peer


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def sessions(home: Home) -> dict[str, Json]:
    with home.line("control") as line:
        return {one["session_id"]: one for one in line.ok("sessions", all=True)["sessions"]}


def open_asks(home: Home, session_id: str) -> list[Json]:
    with home.line("control") as line:
        asks = line.ok("asks")["asks"]
    return [ask for ask in asks if ask["session"]["session_id"] == session_id]


def the_ask(home: Home, session_id: str, question: str | None = None) -> Json:
    """Return the one open ask of a session, as soon as it is there."""

    def look() -> Json | None:
        found = open_asks(home, session_id)
        right = [ask for ask in found if question in {None, ask["question"]}]
        return right[0] if len(found) == len(right) == 1 else None

    found = eventually(look, what=f"one open ask of {session_id}: {question}")
    assert found is not None
    stored = "SELECT 1 FROM ask WHERE public_id = ?"
    eventually(lambda: home.rows(stored, found["id"]), what="the ask is in the store")
    return found


# --- programs with our SDK -------------------------------------------------------------------

SDK = """
import asyncio, sys
from upcall import Session, NoAnswer

async def one(session, question, options, **more):
    try:
        answer = await session.ask(question, options, **more)
    except NoAnswer as ended:
        print(question, "ended", ended.code, flush=True)
    else:
        print(question, "=", answer, answer.indices, answer.outcome, flush=True)

async def main():
    async with Session("sdk " + sys.argv[1], session_id=sys.argv[1]) as session:
        print("up", flush=True)
        await session.notify("starting")
        await asyncio.gather(
            *(one(session, question, ["Yes", "No"]) for question in sys.argv[2:])
        )
        print("done", flush=True)

asyncio.run(main())
"""


def with_options(options: str) -> str:
    return SDK.replace("session_id=sys.argv[1]", f"session_id=sys.argv[1], {options}")


def test_an_sdk_session_is_found_and_its_asks_are_answered_side_by_side(home: Home) -> None:
    program = home.start_python(SDK, "sdk-1", "One?", "Two?", "Three?")
    program.line("up", on="out")
    eventually(home.hub_pid, what="the session started a hub")
    eventually(lambda: len(open_asks(home, "sdk-1")) == 3)
    found = sessions(home)["sdk-1"]
    assert (found["kind"], found["state"], found["title"]) == ("sdk", "attached", "sdk sdk-1")
    assert found["pid"] == program.pid
    for ask in open_asks(home, "sdk-1"):
        value = "no" if ask["question"] == "Two?" else "#1"
        done = home.run("answer", ask["id"], value)
        assert done.code == 0, done
    done = program.end()
    assert done.code == 0, done
    lines = set(done.out.splitlines())
    assert "One? = Yes (0,) answered" in lines
    assert "Two? = No (1,) answered" in lines
    assert "Three? = Yes (0,) answered" in lines
    eventually(lambda: sessions(home).get("sdk-1", {}).get("state") in {None, "gone"})
    assert os.listdir(home.sessions) == []


def test_a_declined_sdk_ask_raises_in_the_program(home: Home) -> None:
    program = home.start_python(SDK, "sdk-1", "One?")
    eventually(home.hub_pid)
    ask = the_ask(home, "sdk-1")
    assert home.run("answer", ask["id"], "--decline").code == 0
    assert "One? ended declined" in program.end().out
    assert home.ask_state(ask["id"])["outcome"] == "declined"


def test_a_killed_session_is_gone_within_five_seconds_and_cannot_be_answered(
    home: Home,
) -> None:
    program = home.start_python(SDK, "sdk-1", "One?")
    eventually(home.hub_pid)
    ask = the_ask(home, "sdk-1")
    program.kill()
    eventually(
        lambda: sessions(home).get("sdk-1", {}).get("state") in {None, "gone"}, within_s=5
    )
    found = home.until_ask(ask["id"], within_s=5, state="closed")
    assert found["outcome"] == "unreachable"
    late = home.run("answer", ask["id"], "Yes")
    assert late.code == 3, late
    assert "program" in late.err


def test_a_session_that_starts_again_asks_again(home: Home) -> None:
    home.start_hub()
    first = home.start_python(SDK, "sdk-1", "One?")
    former = the_ask(home, "sdk-1")
    first.kill()
    second = home.start_python(SDK, "sdk-1", "Again?")
    ask = the_ask(home, "sdk-1", "Again?")
    assert ask["id"] != former["id"]
    assert home.run("answer", ask["id"], "Yes").code == 0
    assert "Again? = Yes" in second.end().out
    assert home.until_ask(former["id"], state="closed")["outcome"] in {
        "unreachable",
        "superseded",
    }


def test_an_sdk_ask_keeps_its_id_while_hubs_come_and_go(home: Home) -> None:
    program = home.start_python(SDK, "sdk-1", "One?")
    eventually(home.hub_pid)
    ask = the_ask(home, "sdk-1")
    home.kill_hub()
    home.start_hub()
    again = the_ask(home, "sdk-1")
    assert again["id"] == ask["id"]
    assert home.run("answer", ask["id"], "Yes").code == 0
    assert program.end().out.count("One? = Yes") == 1
    assert home.until_ask(ask["id"], state="closed")["outcome"] == "answered"


def test_a_session_without_a_hub_is_found_by_the_hub_that_comes(home: Home) -> None:
    program = home.start_python(
        SDK.replace("session_id=sys.argv[1]", "session_id=sys.argv[1], hub=False"),
        "s-1",
        "One?",
    )
    program.line("up", on="out")
    assert home.hub_pid() is None
    home.start_hub()
    assert home.run("answer", the_ask(home, "s-1")["id"], "No").code == 0
    assert "One? = No" in program.end().out


def test_an_interrupted_program_withdraws_its_asks(home: Home) -> None:
    program = home.start_python(SDK, "sdk-1", "One?")
    eventually(home.hub_pid)
    ask = the_ask(home, "sdk-1")
    program.signal(signal.SIGINT)
    program.end()
    found = home.until_ask(ask["id"], state="closed")
    assert found["outcome"] == "cancelled", found


def test_a_session_beside_a_project_is_seen_once_its_root_is_registered(home: Home) -> None:
    project = f"{home.path}/project"
    os.mkdir(project, 0o700)
    home.write_config("[publish]\nproject_token = true\n")
    home.start_hub()
    source = SDK.replace(
        "session_id=sys.argv[1]", f"session_id=sys.argv[1], project={project!r}"
    )
    program = home.start_python(source, "s-p", "One?")
    ask = the_ask(home, "s-p")
    assert home.run("roots", "add", project).code == 0
    with open(f"{project}/.upcall/.gitignore") as file:
        assert file.read().strip() == "*"
    # Published twice, and still one session with one ask.
    with home.line("control") as line:
        eventually(lambda: line.ok("roots", action="list")["roots"][0]["records"] == 1)
    assert the_ask(home, "s-p")["id"] == ask["id"]
    assert home.run("answer", ask["id"], "Yes").code == 0
    assert program.end().out.count("= Yes") == 1


def test_the_blocking_call_returns_the_answer_and_is_no_boolean(home: Home) -> None:
    home.start_hub()
    source = (
        "import upcall\n"
        "answer = upcall.ask('Deploy?', ['Yes', 'No'])\n"
        "print(answer, answer == 'No', answer.indices, answer.outcome, flush=True)\n"
        "try:\n"
        "    bool(answer)\n"
        "except TypeError as error:\n"
        "    print('TypeError', error, flush=True)\n"
    )
    program = home.start_python(source)

    def raised() -> str:
        with home.line("control") as line:
            return next((ask["id"] for ask in line.ok("asks")["asks"]), "")

    assert home.run("answer", eventually(raised), "no").code == 0
    done = program.end()
    assert done.code == 0, done
    assert done.out.startswith("No True (1,) answered\nTypeError ")


# --- peers that know less --------------------------------------------------------------------


@pytest.fixture
def peer(home: Home) -> Iterator[Peer]:
    project = os.path.realpath(f"{home.path}/project")
    os.mkdir(project, 0o700)
    home.start_hub()
    assert home.run("roots", "add", project).code == 0
    with Peer(project) as made:
        eventually(lambda: made.connected == 1, what="the hub attached to the peer")
        yield made


def test_a_peer_is_answered_by_the_exact_label_with_its_token(home: Home, peer: Peer) -> None:
    peer.ask("ask:6f0c", "Deploy?", "Yes, deploy", "No")
    ask = the_ask(home, "peer-1")
    assert ask["session"]["kind"] == "peer"
    assert (ask["can_decline"], ask["can_hold"]) == (False, False)
    done = home.run("answer", ask["id"], "yes, DEPLOY")
    assert done.code == 0, done
    reply = peer.heard(lambda frame: frame["type"] == "reply")
    assert reply["id"] == "ask:6f0c"
    assert reply["answer"] == "Yes, deploy"
    assert reply["token"] == peer.token
    assert "decline" not in reply
    assert home.until_ask(ask["id"], state="closed")["outcome"] == "answered"
    assert len(peer.replies()) == 1


def test_the_action_id_names_a_peers_ask_too(home: Home, peer: Peer) -> None:
    peer.ask("ask:6f0c-long-uuid", "Deploy?", "Yes", "No")
    the_ask(home, "peer-1")
    assert home.run("answer", "ask:6f0c-long-uuid", "No").code == 0
    assert peer.replies()[0]["answer"] == "No"


def test_a_peers_next_ask_supersedes_the_former(home: Home, peer: Peer) -> None:
    peer.ask("ask:1", "One?", "Yes", "No")
    first = the_ask(home, "peer-1", "One?")
    peer.ask("ask:2", "Two?", "Yes", "No")
    second = the_ask(home, "peer-1", "Two?")
    assert home.until_ask(first["id"], state="closed")["outcome"] == "superseded"
    late = home.run("answer", first["id"], "Yes")
    assert late.code == 3, late
    assert "superseded" in late.err or "changed" in late.err
    assert home.run("answer", second["id"], "Yes").code == 0
    assert [reply["id"] for reply in peer.replies()] == ["ask:2"]


def test_a_peers_own_answer_closes_the_ask_and_the_late_one_is_told(
    home: Home, peer: Peer
) -> None:
    peer.ask("ask:1", "One?", "Yes", "No")
    ask = the_ask(home, "peer-1")
    peer.resolve("ask:1", "local", "No")
    found = home.until_ask(ask["id"], state="closed")
    assert found["outcome"] == "answered"
    assert found["answer"]["labels"] == ["No"]
    late = home.run("answer", ask["id"], "Yes")
    assert late.code == 3
    assert '"No"' in late.err
    assert peer.replies() == []


def test_a_peer_that_withdraws_its_ask_cancels_it(home: Home, peer: Peer) -> None:
    peer.ask("ask:1", "One?", "Yes", "No")
    ask = the_ask(home, "peer-1")
    peer.resolve("ask:1", "local")
    assert home.until_ask(ask["id"], state="closed")["outcome"] == "cancelled"


def test_an_answer_that_the_peer_rejects_leaves_the_ask_open(home: Home, peer: Peer) -> None:
    peer.reject = "invalid_answer"
    peer.ask("ask:1", "One?", "Yes", "No")
    ask = the_ask(home, "peer-1")
    refused = home.run("answer", ask["id"], "Yes")
    assert refused.code in {1, 2}, refused
    assert "Traceback" not in refused.err
    assert home.until_ask(ask["id"], state="open")
    peer.reject = None
    assert home.run("answer", ask["id"], "No").code == 0
    assert home.until_ask(ask["id"], state="closed")["answer"]["labels"] == ["No"]


def test_a_peer_is_offered_no_decline(home: Home, peer: Peer) -> None:
    peer.ask("ask:1", "One?", "Yes", "No")
    ask = the_ask(home, "peer-1")
    refused = home.run("answer", ask["id"], "--decline")
    assert refused.code in {1, 2}, refused
    assert home.ask_state(ask["id"])["state"] == "open"
    assert peer.replies() == []


def test_an_ask_that_ended_while_the_hub_was_away_is_superseded(home: Home, peer: Peer) -> None:
    peer.ask("ask:1", "One?", "Yes", "No")
    ask = the_ask(home, "peer-1")
    home.kill_hub()
    peer.pending = None
    home.start_hub()
    found = home.until_ask(ask["id"], within_s=10, state="closed")
    assert found["outcome"] == "superseded"
    assert "while the hub was away" in found["note"]


def test_an_ask_that_is_still_there_after_the_hubs_restart_keeps_its_id(
    home: Home, peer: Peer
) -> None:
    peer.ask("ask:1", "One?", "Yes", "No")
    ask = the_ask(home, "peer-1")
    home.kill_hub()
    home.start_hub()
    eventually(lambda: peer.connected == 1)
    assert the_ask(home, "peer-1")["id"] == ask["id"]
    assert home.run("answer", ask["id"], "Yes").code == 0
    assert len(peer.replies()) == 1


def test_a_dropped_connection_is_made_again(home: Home, peer: Peer) -> None:
    peer.drop()
    eventually(lambda: peer.connected == 1)
    peer.ask("ask:1", "One?", "Yes", "No")
    assert home.run("answer", the_ask(home, "peer-1")["id"], "Yes").code == 0


def test_unknown_frames_and_garbage_of_a_peer_are_survived(home: Home, peer: Peer) -> None:
    for frame in (
        {"type": "never_heard_of_it", "x": 1},
        {
            "type": "action_needed",
            "id": "ask:w",
            "kind": "workflow_gate",
            "sessionId": "peer-1",
        },
        {"type": "action_resolved", "id": "ask:unknown", "resolvedBy": "client"},
        {"type": "reply_rejected", "id": "ask:unknown", "reason": "unknown_action"},
        {"type": "turn_stream", "sessionId": "peer-1"},
    ):
        peer.say(frame)
    for connection in list(peer._connections):
        connection.send("no json")
    eventually(lambda: peer.connected == 1)
    peer.ask("ask:1", "One?", "Yes", "No")
    assert home.run("answer", the_ask(home, "peer-1")["id"], "Yes").code == 0
