"""S21: a secret is typed unseen, reaches its asker once, and is in no file at any moment."""

import contextlib
import json
import os
import signal
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.home import Done, Home, Json, Running, eventually
from fakes.kernel_rig import Rig, channel
from upcall.core.state import ChannelInfo
from upcall.model.ask import SECRET as SECRET_STANDS
from upcall.model.ask import AskSpec
from upcall.model.effects import Send
from upcall.model.platform import Answered, Who
from upcall.model.struct import replaced

SECRET = "correct horse 7f3a battery"
AGAIN = "staple 91c2 paperclip"
BOSS = Who(identity="ada", name="ada")


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def holders(home: Home, *words: str) -> list[str]:
    """Return every file of this home that holds one of *words*, in UTF-8 or JSON's escapes."""
    wanted = [
        form for word in words for form in (word.encode(), json.dumps(word).encode()[1:-1])
    ]
    found = []
    for folder, _, names in os.walk(home.path):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and any(word in path.read_bytes() for word in wanted):
                found.append(str(path))
    return found


def only_ask(home: Home) -> Json:
    """Return the one ask, as soon as it is there."""

    def look() -> list[Json]:
        with home.line("control") as line:
            asks: list[Json] = line.ok("asks", state="all")["asks"]
            return asks

    return eventually(look, what="an ask")[0]


def answer(home: Home, ask: Json, words: str) -> Json:
    """Answer as `upcall answer` does after the words were typed; not waiting for the asker."""
    with home.line("control") as line:
        line.post("answer", ask=ask["id"], values=[words], hidden=True)
        until_claimed(home, ask["id"])
    return ask


def until_claimed(home: Home, ask_id: str) -> None:
    """Return as soon as it is on disk that the ask was answered."""

    def look() -> bool:
        with home.database() as db:
            query = "SELECT state FROM ask WHERE public_id = ?"
            return bool(db.execute(query, (ask_id,)).fetchone() == ("claimed",))

    eventually(look, what="the claim on disk")


def typed_at_terminal(running: Running, words: str) -> Done:
    """Type *words* as soon as they are asked for, and return how it ended."""
    running.line(r"not shown, then Enter.*\)\s+> ")
    running.type(words + "\n")
    return running.end(20)


def test_a_secret_typed_at_the_askers_terminal_is_printed_and_not_shown(home: Home) -> None:
    home.start_hub()
    done = typed_at_terminal(home.start("ask", "Token?", "--secret", on_terminal=True), SECRET)
    assert done.code == 0, done
    assert done.out == f"{SECRET}\n"
    assert SECRET not in done.err  # all that was on the terminal
    ask = only_ask(home)
    assert ask["outcome"] == "answered"
    assert ask["answer"] == {"indices": [], "labels": [], "text": None, "secret": True}
    assert "(secret)" in home.run("asks", "--all").out
    again = home.run("wait", ask["id"], "--json")
    assert again.code == 3, again
    assert SECRET not in again.out + again.err
    assert holders(home, SECRET) == []


def test_the_terminal_shows_typing_again_after_ctrl_c(home: Home) -> None:
    home.start_hub()
    asking = home.start("ask", "Token?", "--secret", on_terminal=True)
    asking.line(r"not shown, then Enter.*\)\s+> ")
    assert not termios.tcgetattr(asking._terminal)[3] & termios.ECHO
    asking.type("half of it\x03")
    done = asking.end(20)
    assert done.code == 130
    assert "half of it" not in done.err
    assert termios.tcgetattr(asking._terminal)[3] & termios.ECHO


def test_a_secret_is_answered_from_another_terminal_and_never_on_a_command_line(
    home: Home,
) -> None:
    home.start_hub()
    asking = home.start("ask", "Token?", "--secret", "--json")
    ask = only_ask(home)
    refused = home.run("answer", ask["id"], "open-sesame")
    assert refused.code == 1, refused
    assert "command line" in refused.err
    assert only_ask(home)["state"] == "open"
    done = home.start("answer", ask["id"], on_terminal=True)
    done.line(r"not shown\) > ")
    done.type(SECRET + "\n")
    end = done.end(20)
    assert end.code == 0, end
    assert SECRET not in end.err + end.out
    asked = asking.end(20)
    assert asked.code == 0
    assert asked.json["answer"] == {"indices": [], "labels": [], "text": SECRET}
    assert SECRET not in asked.err
    assert only_ask(home)["outcome"] == "answered"
    home.run("hub", "stop")
    assert holders(home, SECRET) == []
    with home.database() as db:
        events = [row[0] for row in db.execute("SELECT event FROM audit ORDER BY id")]
        (contents,) = db.execute("SELECT count(*) FROM inbound").fetchone()
    assert events[-1] == "closed"
    assert contents == 1


def test_a_hub_killed_after_it_handed_the_answer_over_is_told_by_the_next(home: Home) -> None:
    home.start_hub()
    asking = home.start("ask", "Token?", "--secret")
    ask = only_ask(home)
    os.kill(asking.process.pid, signal.SIGSTOP)  # the answer waits in its socket
    answer(home, ask, SECRET)
    assert holders(home, SECRET) == []
    home.kill_hub()
    assert holders(home, SECRET) == []
    os.kill(asking.process.pid, signal.SIGCONT)
    # It had the answer in its socket, or the hub was killed before it could put it there.
    found = eventually(lambda: next_of(home, asking, ask), what="the end, or the question")
    if found == (False,):
        answer_now(home, ask, AGAIN)
    done = asking.end(20)
    assert done.code == 0, done
    assert done.out in {f"{SECRET}\n", f"{AGAIN}\n"}
    assert home.until_ask(ask["id"], state="closed")["outcome"] == "answered"
    assert holders(home, SECRET, AGAIN) == []


def next_of(home: Home, asking: Running, ask: Json) -> tuple[bool] | None:
    """Tell whether the asker has ended, or is asking again; None while neither is so."""
    if asking.process.poll() is not None:
        return (True,)
    if home.hub_pid() is None:
        return None
    with contextlib.suppress(OSError, AssertionError):
        return (False,) if home.ask_state(ask["id"])["state"] == "open" else None
    return None


def answer_now(home: Home, ask: Json, words: str) -> None:
    with home.line("control") as line:
        line.ok("answer", ask=ask["id"], values=[words], hidden=True)


def test_a_hub_killed_while_nobody_could_take_the_answer_asks_again(home: Home) -> None:
    """The words were in the memory of the killed hub alone, and are gone with it."""
    home.start_hub()
    ask_id = "a" + "0" * 11 + "1"
    spec = {"id": ask_id, "question": "Token?", "secret": True}
    with home.line() as asker:
        asker.ok("ask", ask=spec, session={"program": "probe"})
        pid = home.hub_pid()
        assert pid is not None
        with home.line("control") as person:
            person.post("answer", ask=ask_id, values=[SECRET], hidden=True)
            until_claimed(home, ask_id)
            home.kill_hub()
    assert holders(home, SECRET) == []
    home.start_hub()
    assert home.ask_state(ask_id)["state"] == "claimed"
    with home.line() as asker:
        asker.ok("ask", ask=spec, session={"program": "probe"})
        assert "answer again" in home.until_ask(ask_id, state="open")["note"]
        with home.line("control") as person:
            number = person.post("answer", ask=ask_id, values=[AGAIN], hidden=True)
            ended = asker.event("ended")["result"]
            assert ended["answer"]["text"] == AGAIN
            asker.ok("took", ask=ask_id)
            assert person.answer_to(number)["ok"] is True
    assert home.ask_state(ask_id)["outcome"] == "answered"
    assert holders(home, SECRET, AGAIN) == []


def test_an_asker_killed_before_it_took_the_secret_loses_it(home: Home) -> None:
    home.start_hub()
    asking = home.start("ask", "Token?", "--secret")
    ask = only_ask(home)
    os.kill(asking.process.pid, signal.SIGSTOP)
    answer(home, ask, SECRET)
    os.kill(asking.process.pid, signal.SIGKILL)
    asking.process.wait(10)
    ended = home.until_ask(ask["id"], state="closed")
    assert ended["outcome"] == "unreachable"
    home.kill_hub()
    home.start_hub()
    assert holders(home, SECRET) == []


def test_a_secret_is_handed_out_once(home: Home) -> None:
    home.start_hub()
    ask_id = "a" + "0" * 11 + "2"
    spec = {"id": ask_id, "question": "Token?", "secret": True}
    with home.line() as first, home.line() as second, home.line() as other:
        first.ok("ask", ask=spec)
        second.ok("ask", ask=spec)
        other.ok("wait", ask=ask_id)
        with home.line("control") as person:
            number = person.post("answer", ask=ask_id, values=[SECRET], hidden=True)
            got = first.event("ended")["result"]
            assert got["answer"]["text"] == SECRET
            first.ok("took", ask=ask_id)
            told = json.dumps(person.answer_to(number))
        told += json.dumps([second.event("ended"), other.event("ended")])
        with home.line() as late:
            late.ok("ask", ask=spec)
            told += json.dumps(late.event("ended"))
    assert SECRET not in told
    assert told.count('"secret": true') >= 3


def test_what_would_keep_a_secret_is_refused(home: Home) -> None:
    home.start_hub()
    spec = {"id": "a" + "0" * 11 + "3", "question": "Token?", "secret": True}
    with home.line() as line:
        for more in (
            {"options": ["a", "b"]},
            {"default": "x", "timeout_s": 5},
            {"key": "k"},
            {"class": "permission"},
            {"free_text": False},
        ):
            assert line.refused("ask", ask={**spec, **more}) == "invalid_ask", more
        assert line.refused("ask", ask=spec, wait=False) == "invalid_ask"
    for option in (["--key", "k"], ["--no-wait"], ["-o", "a"], ["--permission"]):
        assert home.run("ask", "Token?", "--secret", *option).code == 2


PROGRAM = """
import asyncio, sys
from upcall import Session
async def main():
    async with Session("probe") as session:
        print("up", flush=True)
        answer = await session.ask("Token?", secret=True)
        print("got", answer.text, flush=True)
asyncio.run(main())
"""


def test_a_session_of_its_own_gets_a_secret_and_no_file_does(home: Home) -> None:
    home.start_hub()
    program = home.start_python(PROGRAM)
    ask = only_ask(home)
    assert ask["secret"] is True
    os.kill(program.process.pid, signal.SIGSTOP)
    answer(home, ask, SECRET)
    # It waits on its way to the session, in memory.
    assert holders(home, SECRET) == []
    home.kill_hub()
    os.kill(program.process.pid, signal.SIGCONT)
    home.start_hub()
    found = eventually(lambda: next_of(home, program, ask), what="the end, or the question")
    if found == (False,):
        answer_now(home, ask, AGAIN)
    done = program.end(20)
    assert f"got {SECRET}" in done.out or f"got {AGAIN}" in done.out, done
    closed = json.dumps(home.until_ask(ask["id"], state="closed"))
    assert SECRET not in closed
    assert AGAIN not in closed
    assert holders(home, SECRET, AGAIN) == []


def secret_rig(*channels: ChannelInfo) -> Rig:
    rig = Rig(*channels)
    for info in channels:
        rig.hears(info.name, audience=1)
    return rig


def with_secrets(info: ChannelInfo) -> ChannelInfo:
    return ChannelInfo(info.name, replaced(info.capabilities, secrets=True), info.lower)


def test_a_chat_is_never_told_of_a_secret_and_cannot_answer_one() -> None:
    rig = secret_rig(with_secrets(channel("web")), channel("chat", buttons=8))
    rig.ask(1, spec=AskSpec(question="Token?", secret=True))
    assert rig.sending("web")
    rig.arrive_all()
    row = rig.only()
    assert not [sent for sent in rig.of(Send) if sent.delivery.target == "chat"]
    assert [view.name for view in rig.kernel.channels(row.ask_id)] == ["web"]
    act = Answered(key="k1", ask=row.ask_id, revision=row.revision, who=BOSS, text=SECRET)
    receipt = rig.act(act, on="chat")
    assert receipt is not None
    assert receipt.code == "not_permitted"
    assert rig.only().state == "open"
    taken = rig.act(replaced(act, key="k3"), on="web")
    assert taken is not None
    assert taken.ok
    assert SECRET not in repr(rig.store.snapshot())
    assert rig.told(1)[0]["result"]["answer"]["text"] == SECRET


def test_a_session_that_did_not_hear_the_answer_before_the_hub_died_asks_again() -> None:
    rig = secret_rig(with_secrets(channel("web")))
    rig.up()
    rig.needs("x1", question="Token?", options=(), secret=True)
    rig.sync()
    row = rig.only()
    act = Answered(key="k1", ask=row.ask_id, revision=row.revision, who=BOSS, text=SECRET)
    rig.act(act)
    assert [frame.answer for frame in rig.sent_frames()] == [SECRET]
    assert SECRET not in repr(rig.store.snapshot())
    rig.restart()
    rig.up(sync=False)
    assert rig.sent_frames() == []
    rig.needs("x1", question="Token?", options=(), secret=True)
    rig.sync()
    assert rig.only().state == "open"
    assert "answer again" in rig.only().note
    rig.act(replaced(act, key="k2", text=AGAIN))
    assert [frame.answer for frame in rig.sent_frames()] == [AGAIN]
    rig.resolved("x1", resolved_by="client", outcome="answered")
    assert rig.only("closed").answer == SECRET_STANDS
    assert AGAIN not in repr(rig.store.snapshot())
