"""S26: a store that was put back, copied or restored answers nothing a second time.

Real hubs against a real adapter over a loopback chat; the programs count their answers.
"""

import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.chat_parts.server import Posted
from fakes.home import Home, Json, Running, eventually
from upcall.hub import daemon
from upcall.hub.store import Store, StoreError, backup, epoch, migrate, restore
from upcall.hub.store.db import Guard
from upcall.hub.store.read import audit_break
from upcall.model.errors import HubError
from upcall_discovery import filesystem

# A program with a session of its own: it says each answer it gets, and how each ask ended.
PROGRAM = """
import asyncio, sys
import upcall
from upcall import Session

async def one(session, question):
    try:
        print("GOT", question, await session.ask(question, ["yes", "no"]), flush=True)
    except upcall.NoAnswer as error:
        print("END", question, type(error).__name__, flush=True)

async def main():
    async with Session("counting") as session:
        print("up", flush=True)
        async with asyncio.TaskGroup() as tasks:
            for question in sys.argv[1:]:
                tasks.create_task(one(session, question))
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
OPEN = ("open one?", "open two?", "open three?")
SINCE = ("since one?", "since two?", "since three?")


@pytest.fixture
def chat() -> Iterator[FakeChat]:
    with FakeChat() as made:
        yield made


@pytest.fixture
def home(chat: FakeChat) -> Iterator[ChatHome]:
    with ChatHome(chat) as made:
        yield made


def answers(running: Running, question: str) -> list[str]:
    """Return what a program got for one of its questions."""
    return [line for line in running.out().splitlines() if f" {question} " in line]


def raised(home: ChatHome) -> Running:
    program = [sys.executable, "-P", "-u", "-c", PROGRAM, *OPEN, *SINCE]
    running = home.start_program(program, stdin=True)
    for question in (*OPEN, *SINCE):
        home.chat.card(question)
    return running


def asks(home: Home) -> dict[str, Json]:
    with home.line("control") as line:
        found: list[Json] = line.ok("asks", state="all", limit=100)["asks"]
    return {ask["question"]: ask for ask in found}


def asked_again(home: Home, question: str) -> Json:
    """Return the ask once it is shown again after the restore."""

    def look() -> Json | None:
        one = asks(home)[question]
        return one if one["note"] == "restored, please answer again" else None

    found = eventually(look, what=question)
    assert found is not None
    return found


def new_card(chat: FakeChat, question: str, former: dict[str, str]) -> Posted:
    """Return the card with other buttons than the former one."""

    def look() -> list[Posted]:
        shown = chat.shown(question)
        return [one for one in shown if one.buttons and one.buttons != former]

    found: list[Posted] = chat.until(look, what="a new card")
    return found[-1]


def test_a_restore_answers_nobody_twice_and_counts_no_press_from_before(
    home: ChatHome, chat: FakeChat
) -> None:
    home.start_chat_hub()
    running = raised(home)
    cards = {question: chat.card(question) for question in (*OPEN, *SINCE)}
    buttons = {question: dict(card.buttons) for question, card in cards.items()}
    file = f"{home.path}/upcall.backup"
    assert home.run("hub", "backup", file).code == 0
    for question in SINCE:
        chat.receipt(chat.press(cards[question], "yes"))
        running.line(re.escape(f"GOT {question}"), on="out")
    # People press on while nobody hears: on open cards, on those that are over.
    chat.deaf()
    queued = [
        chat.press(cards[question], "yes", token=buttons[question]["yes"])
        for question in (*OPEN, *SINCE)
    ]
    home.run("hub", "stop")
    done = home.run("hub", "restore", file, "--yes", "--json")
    assert done.code == 0, done
    assert done.json["epoch"] == 2
    home.start_chat_hub(ready=False)
    chat.hear()
    refused = [chat.receipt(key) for key in queued]
    assert [one["ok"] for one in refused] == [False] * 6
    for question in OPEN:
        assert asked_again(home, question)["state"] == "open"
        assert answers(running, question) == []
    for question in SINCE:
        assert answers(running, question) == [f"GOT {question} yes"]
        assert asks(home)[question]["state"] == "closed"
    # A new card can be answered, once.
    for question in OPEN:
        fresh = new_card(chat, question, buttons[question])
        assert chat.receipt(chat.press(fresh, "no"))["ok"]
        running.line(re.escape(f"GOT {question} no"), on="out")
    running.abandon()
    home.run("hub", "stop")
    with home.database() as db:
        assert audit_break(db) is None
        # Nobody is told that a stranger pressed: the buttons were ours.
        events = [row[0] for row in db.execute("SELECT event FROM audit ORDER BY id")]
        assert "foreign_press" not in events
        claims = db.execute(
            "SELECT a.body, count(*) FROM claim c JOIN ask a ON a.id = c.ask GROUP BY a.id"
        ).fetchall()
    assert sorted(count for _, count in claims) == [1] * len(claims)


def test_a_raw_copy_put_back_asks_nobody_and_after_adopt_answers_nobody_twice(
    home: ChatHome, chat: FakeChat
) -> None:
    home.start_chat_hub()
    running = raised(home)
    home.run("hub", "stop")
    old = f"{home.path}/day-old.db"
    shutil.copy(f"{home.state}/hub.db", old)
    home.start_chat_hub()
    for question in SINCE:
        chat.receipt(chat.press(chat.card(question), "yes"))
        running.line(re.escape(f"GOT {question}"), on="out")
    home.run("hub", "stop")
    shutil.copy(old, f"{home.state}/hub.db")
    before = len(chat.messages)
    refused = home.run("hub", "start", "--json")
    assert refused.code == 1
    assert home.hub_json()["last_error"]["code"] == "store_behind"
    for words in ("upcall hub restore", "upcall hub adopt"):
        assert words in refused.json["error"]["recover"] + refused.err
    # Neither the program nor the chat heard anything of the old file.
    assert len(chat.messages) == before
    verdict = home.run("log", "--verify", "--json")
    assert verdict.code == 1
    assert [one["kind"] for one in verdict.json["problems"]] == ["rewound"]
    assert home.run("hub", "adopt", "--yes").code == 0
    home.start_chat_hub()
    # Its session says what it still waits for: three, and not six.
    eventually(
        lambda: all(asks(home)[q]["note"].startswith("restored, please") for q in OPEN),
        what="asked again",
    )
    eventually(
        lambda: all(asks(home)[q]["state"] == "closed" for q in SINCE), what="not waited for"
    )
    for question in SINCE:
        assert answers(running, question) == [f"GOT {question} yes"]
        # The session says itself how it ended, and the hub names no person for it.
        assert (asks(home)[question]["answered_by"] or {}).get("name") is None
        shown = [one for one in chat.shown(question) if one.buttons]
        assert all(not chat.receipt(chat.press(one, "no"))["ok"] for one in shown)
        assert answers(running, question) == [f"GOT {question} yes"]
    running.abandon()


def test_going_back_gives_no_rights_back_and_opens_no_lock(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    path, file = str(tmp_path / "hub.db"), str(tmp_path / "old")
    Store.open(path, guard=Guard("m")).close_now()
    shutil.copy(path, file)
    db = sqlite3.connect(path)
    with db:
        db.execute("INSERT INTO revoked (name, at_ms) VALUES ('eve', 5)")
        db.execute("INSERT INTO hub_lock VALUES (1, 7, 'ada', 'terminal', 'stolen phone')")
    db.close()
    done = restore.restore(
        path, backup.look(file), now_ms=9, machine="m", scripts=migrate.steps()
    )
    db = sqlite3.connect(path)
    assert db.execute("SELECT name FROM revoked").fetchall() == [("eve",)]
    assert db.execute("SELECT reason FROM hub_lock").fetchall() == [("stolen phone",)]
    db.close()
    # And what was given back since stays given back: going back to where it was locked.
    assert done.replaced is not None
    locked = done.replaced
    db = sqlite3.connect(path)
    with db:
        db.execute("DELETE FROM revoked")
        db.execute("DELETE FROM hub_lock")
    db.close()
    restore.restore(path, backup.look(locked), now_ms=10, machine="m", scripts=migrate.steps())
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM revoked").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM hub_lock").fetchone() == (0,)
    db.close()


def test_a_file_of_another_machine_is_refused_with_both_remedies(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    path = str(tmp_path / "hub.db")
    Store.open(path, guard=Guard("one")).close_now()
    with pytest.raises(StoreError) as refused:
        Store.open(path, guard=Guard("another"))
    assert refused.value.code == "store_moved"
    assert "upcall hub adopt" in (refused.value.recover or "")
    assert "upcall hub restore" in (refused.value.recover or "")
    # With the mark beside it, and without.
    os.unlink(path + epoch.SUFFIX)
    with pytest.raises(StoreError, match="another computer"):
        Store.open(path, guard=Guard("another"))
    Store.open(path, guard=Guard("one")).close_now()
    # A machine without an id cannot tell, and goes on.
    Store.open(path, guard=Guard("")).close_now()
    restore.restore(
        path, backup.look(path), now_ms=1, machine="another", scripts=migrate.steps()
    )
    Store.open(path, guard=Guard("another")).close_now()
    with pytest.raises(StoreError, match="another computer"):
        Store.open(path, guard=Guard("one"))


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "9p", "cifs", "fuse.sshfs"])
def test_a_state_folder_on_a_network_file_system_is_refused_with_the_setting(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel's table of mounts says, for a folder below the mount."""
    os.chmod(tmp_path, 0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    mounts = [("/", "ext4"), (os.path.realpath(tmp_path), kind)]
    monkeypatch.setattr(filesystem, "_mounts", lambda: mounts)
    with pytest.raises(HubError) as refused:
        daemon._state_folder()
    assert refused.value.code == "state_not_local"
    assert "XDG_STATE_HOME" in (refused.value.recover or "")
    with pytest.raises(StoreError) as closed:
        Store.open(str(tmp_path / "hub.db"))
    assert closed.value.code == "state_not_local"
    assert not os.path.exists(tmp_path / "hub.db")
