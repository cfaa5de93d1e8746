"""The store when others hold it, when it has a long past, and when it is from tomorrow."""

import asyncio
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.clock import FakeClock
from fakes.home import Home, Running, eventually
from fakes.hub_rig import ADA, Heart, ask_id
from upcall.hub.store import Store, StoreError, db
from upcall.hub.store.verify import verify
from upcall.model.ask import AskSpec
from upcall.model.events import CancelAsked, Took
from upcall.model.ids import SessionId
from upcall.model.platform import Answered, Who
from upcall.model.rows import AuditRow, SessionRow

HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
print("free", flush=True)
"""
# Small tables of a whole hub, of which all rows are wanted.
SMALL = frozenset({"gate", "root", "revoked", "hub_lock", "meta", "pairing", "verbosity"})


@pytest.fixture
def path() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="up", dir="/tmp")
    os.chmod(folder, 0o700)
    yield f"{folder}/hub.db"
    shutil.rmtree(folder)


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def holding(home: Home, path: str) -> Running:
    """Hold the database's write lock in another process."""
    holder = home.start_program([sys.executable, "-P", "-u", "-c", HOLD, path], stdin=True)
    holder.line("held", on="out")
    return holder


def let_go(holder: Running) -> None:
    assert holder.process.stdin is not None
    holder.process.stdin.write(b"\n")
    holder.process.stdin.close()
    holder.line("free", on="out")


# --- a long past ---------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_no_statement_of_an_asks_life_looks_through_a_table(path: str) -> None:
    """What a new ask costs must not grow with what is over: every row is found by an index."""
    clock = FakeClock()
    heart = Heart(path, clock, "chat", "other")
    said: list[str] = []
    heart.store._connection.set_trace_callback(said.append)
    async with heart.running():
        heart.raise_ask(1)
        heart.raise_ask(2, AskSpec(question="Why?", free_text=True), key="again")
        await heart.loop.settled()
        heart.deliver()
        await heart.loop.settled()
        row = heart.row(1)
        await heart.receipts.put(
            "chat",
            Answered(key="k", ask=row.ask_id, revision=row.revision, who=ADA, indices=(0,)),
        )
        heart.loop.submit(CancelAsked(at=heart.loop.moment(), waiter=77, ask_id=ask_id(2)))
        await heart.loop.settled()
        who = Who(identity="1000", local=True)
        heart.loop.submit(Took(at=heart.loop.moment(), waiter=78, ask_id=ask_id(1), who=who))
        await heart.loop.settled()
        heart.deliver()
        await heart.loop.settled()
        assert heart.row(1).outcome == "answered"
        heart.store._connection.set_trace_callback(None)
    looked = sqlite3.connect(path)
    checked = 0
    for statement in dict.fromkeys(said):
        if not re.match(r"(INSERT|UPDATE|DELETE|SELECT|WITH)\b", statement):
            continue
        plan = looked.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
        for _, _, _, step in plan:
            scanned = re.match(r"SCAN (?!CONSTANT)(\w+)", step)
            assert scanned is None or scanned[1] in SMALL, (step, statement)
        checked += 1
    looked.close()
    assert checked > 15


@pytest.mark.parametrize(
    "query",
    [
        "SELECT hash FROM audit ORDER BY id DESC LIMIT 1",
        "SELECT max(id) FROM inbound",
        "SELECT max(id) FROM delivery",
        "SELECT 1 FROM ask WHERE public_id = 'a'",
        "SELECT id FROM ask WHERE public_id >= 'a1' AND public_id < 'a2'",
        "SELECT * FROM audit WHERE id > 5 ORDER BY id LIMIT 200",
        "SELECT ask FROM retired_token WHERE digest = x'00'",
    ],
)
def test_what_is_looked_up_while_people_wait_is_found_by_an_index(
    path: str, query: str
) -> None:
    Store.open(path).close_now()
    looked = sqlite3.connect(path)
    plan = str(looked.execute(f"EXPLAIN QUERY PLAN {query}").fetchall())
    looked.close()
    # A walk from the newest row on, of which one is taken, is no look through the table.
    assert "SEARCH" in plan or "LIMIT 1" in query, plan


@pytest.mark.asyncio
async def test_ten_thousand_old_lines_do_not_slow_the_next_one(path: str) -> None:
    """Counted in pages that are written, which no busy computer can blur."""
    store = Store.open(path)

    def line(number: int) -> AuditRow:
        return AuditRow(
            at_ms=number, event="told", ask_id=None, session_id=None, facts={"n": number}
        )

    async def pages(number: int) -> int:
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await store.commit([line(number)])
        return os.stat(f"{path}-wal").st_size

    await store.commit([SessionRow(session_id=SessionId("s"), kind="sdk", conversation="c")])
    few = await pages(1)
    await store.commit([line(number) for number in range(2, 10_002)])
    assert await pages(10_002) <= few + 2 * 4120
    await store.close()


# --- others hold it ------------------------------------------------------------------------


def test_who_asks_while_another_program_holds_the_database_waits_and_is_served(
    home: Home,
) -> None:
    home.start_hub()
    pid = home.hub_pid()
    holder = holding(home, f"{home.state}/hub.db")
    asking = home.start("ask", "Now?", "-o", "yes", "--no-wait")
    # It is not told that it was taken before it is on disk.
    assert not asking.out()
    assert home.rows("SELECT count(*) FROM ask") == [(0,)]
    let_go(holder)
    done = asking.end()
    assert done.code == 0, done
    assert home.rows("SELECT public_id FROM ask") == [(done.out.strip(),)]
    assert home.hub_pid() == pid


@pytest.mark.asyncio
async def test_a_database_that_is_held_for_long_ends_the_store_in_words(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "BUSY_TIMEOUT_MS", 100)
    store = Store.open(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    row = SessionRow(session_id=SessionId("s"), kind="sdk", conversation="c")
    with pytest.raises(StoreError) as refused:
        await store.commit([row])
    assert refused.value.code == "store_busy"
    assert "end the program" in (refused.value.recover or "")
    other.execute("ROLLBACK")
    # Memory must not run ahead of the file: only a new store goes on.
    with pytest.raises(StoreError, match="another program holds"):
        await store.commit([row])
    other.close()
    await store.close()
    again = Store.open(path)
    await again.commit([row])
    assert again.snapshot().sessions == [row]
    await again.close()


@pytest.mark.long
def test_a_hub_that_loses_its_database_to_another_program_says_so_and_the_next_goes_on(
    home: Home,
) -> None:
    home.start_hub()
    kept = home.hand_over("Before?", "-o", "yes")
    holder = holding(home, f"{home.state}/hub.db")
    asking = home.start("ask", "Meanwhile?", "-o", "yes", "-o", "no")
    # SQLite's patience is 5 s.
    eventually(
        lambda: (home.hub_json().get("last_error") or {}).get("code") == "store_busy",
        within_s=15,
        what="the hub has ended",
    )
    assert "Traceback" not in asking.err()
    let_go(holder)
    # For a while no command starts one by itself; a person may at once.
    again = home.start("hub", "run")
    eventually(lambda: home.hub_pid() == again.pid, what="the next hub")
    # The asker hands its question over to the next hub, under the same id.
    (raised,) = eventually(
        lambda: home.rows("SELECT public_id FROM ask WHERE public_id <> ?", kept),
        what="the question is handed over",
    )
    assert home.run("answer", raised[0], "yes").code == 0
    assert asking.end().out == "yes\n"
    assert home.run("answer", kept, "yes").code == 0


# --- from tomorrow -------------------------------------------------------------------------


def test_a_newer_database_is_left_alone_by_every_command(home: Home) -> None:
    home.start_hub()
    home.hand_over("Old?", "-o", "yes")
    home.run("hub", "stop")
    file = f"{home.state}/hub.db"
    with sqlite3.connect(file) as newer:
        newer.execute("PRAGMA user_version = 99")
        newer.execute("UPDATE meta SET value = '9.9.9' WHERE name = 'schema_by'")
    newer.close()
    before = Path(file).read_bytes()
    for command in (
        ("hub", "start", "--json"),
        ("log", "--json"),
        ("log", "--verify", "--json"),
        ("ask", "New?", "-o", "yes", "--no-wait", "--json"),
    ):
        done = home.run(*command)
        assert done.code == 1, (command, done)
        assert "store_newer" in done.out, (command, done)
        assert "9.9.9" in done.err, (command, done)
        assert "Traceback" not in done.err
    assert Path(file).read_bytes() == before


def test_a_wall_clock_that_is_set_leaves_the_audit_whole_and_in_order(path: str) -> None:
    """An hour back, and an hour forward: lines are ordered by their number."""
    store = Store.open(path)
    now_ms = 1_800_000_000_000

    async def write() -> None:
        for at_ms in (now_ms, now_ms - 3_600_000, now_ms + 3_600_000, now_ms):
            await store.commit(
                [AuditRow(at_ms=at_ms, event="told", ask_id=None, session_id=None, facts={})]
            )

    asyncio.run(write())
    store.close_now()
    looked = sqlite3.connect(path, isolation_level=None)
    verdict = verify(looked, [], said=str)
    looked.close()
    assert verdict.ok
    assert verdict.rows == 4
