"""The store: what is committed is there, all at once or not at all."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from upcall.hub.store import Store, StoreError, db
from upcall.hub.store.rows import RowWriter
from upcall.model.ask import AnsweredBy, AskSpec, Selection
from upcall.model.effects import (
    DropTokens,
    EndClaim,
    SaveGate,
    SaveLogin,
    SaveRoot,
    SaveSetting,
    Write,
)
from upcall.model.ids import ActionId, AskId, ReplyKey, Revision, SessionId
from upcall.model.platform import LoginKept
from upcall.model.rows import (
    AskRow,
    AuditRow,
    CardRow,
    ClaimRow,
    DeliveryRow,
    InboundRow,
    NoticeRow,
    SessionRow,
    TokenRow,
)
from upcall.model.struct import replaced

DAY_MS = 86_400_000
NOW_MS = 500 * DAY_MS


@pytest.fixture
def folder() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="us", dir="/tmp")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def path(folder: str) -> str:
    return f"{folder}/hub.db"


def session(name: str = "s1", ended_ms: int | None = None) -> SessionRow:
    return SessionRow(
        session_id=SessionId(name), kind="sdk", conversation="c", ended_ms=ended_ms
    )


def ask(number: int, *, raised_ms: int = NOW_MS, key: str | None = None) -> AskRow:
    return AskRow(
        ask_id=AskId(f"a{number:012d}"),
        session_id=SessionId("s1"),
        action_id=ActionId(f"n{number}"),
        state="open",
        spec=AskSpec(question=f"Deploy {number}?", options=("Yes", "No"), free_text=False),
        revision=Revision(f"{number:064x}"),
        raised_ms=raised_ms,
        boot_id="boot",
        key=key,
    )


def closed(row: AskRow, closed_ms: int = NOW_MS) -> AskRow:
    return replaced(
        row,
        state="closed",
        outcome="answered",
        answer=Selection((0,), ("Yes",)),
        answered_by=AnsweredBy("Ann", "web"),
        closed_ms=closed_ms,
    )


def claim(row: AskRow, inbound: int, *, live: bool = True) -> ClaimRow:
    return ClaimRow(
        ask_id=row.ask_id,
        operator="Ann",
        channel="web",
        inbound=inbound,
        key=ReplyKey(f"u{inbound}"),
        selection=Selection((0,), ("Yes",)),
        live=live,
    )


def delivery(number: int, row: AskRow | None = None) -> DeliveryRow:
    return DeliveryRow(
        id=number,
        effect=f"post:{number}",
        kind="post",
        lane="ask",
        target="web",
        place="c",
        state="sending",
        body=b"raw \x00\xff",
        ask_id=row.ask_id if row else None,
        attempt=1,
        created_ms=NOW_MS,
    )


def story(number: int, at_ms: int = NOW_MS) -> AuditRow:
    return AuditRow(
        at_ms=at_ms, event="raised", ask_id=None, session_id=None, facts={"n": number}
    )


def raw(path: str, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(sql).fetchall()
        connection.commit()
        return rows
    finally:
        connection.close()


def test_every_write_has_a_handler() -> None:
    connection = sqlite3.connect(":memory:")
    try:
        assert set(RowWriter(connection, str, b"")._handlers) == set(get_args(Write))
    finally:
        connection.close()


@pytest.mark.asyncio
async def test_an_open_ask_is_read_back_with_all_that_it_needs(path: str) -> None:
    store = Store.open(path)
    row = replaced(ask(1), state="claimed")
    token = TokenRow(token="t", ask_id=row.ask_id, channel="web", choice="0")
    card = CardRow(ask_id=row.ask_id, channel="web", place="c", ref="7")
    await store.commit(
        [
            session(),
            row,
            InboundRow(
                id=9, channel="web", event_key="e", content_key="k", at_ms=NOW_MS - DAY_MS
            ),
            claim(row, 9),
            card,
            token,
            delivery(4, row),
        ]
    )
    await store.close()
    store = Store.open(path)
    found = store.snapshot(NOW_MS)
    await store.close()
    assert found.sessions == [session()]
    assert found.asks == [row]
    assert found.claims == [claim(row, 9)]
    assert found.cards == [card]
    assert found.tokens == [token]
    assert found.deliveries == [delivery(4, row)]
    assert [one.id for one in found.inbound] == [9]
    assert (found.last_inbound, found.last_delivery, found.last_notice) == (9, 4, 0)


@pytest.mark.asyncio
async def test_closed_and_ended_rows_are_not_in_the_snapshot(path: str) -> None:
    store = Store.open(path)
    row = ask(1, key="k1")
    await store.commit(
        [
            session(),
            session("gone", ended_ms=5),
            row,
            claim(row, 1),
            TokenRow(token="t", ask_id=row.ask_id, channel="web", choice="0"),
            CardRow(ask_id=row.ask_id, channel="web", place="c"),
            delivery(1, row),
            InboundRow(
                id=1, channel="web", event_key="e", content_key="", at_ms=NOW_MS - 2 * DAY_MS
            ),
        ]
    )
    await store.commit(
        [
            closed(row),
            EndClaim(row.ask_id),
            DropTokens(row.ask_id, NOW_MS),
            replaced(delivery(1, row), state="done"),
            replaced(session(), ended_ms=8),
        ]
    )
    found = store.snapshot(NOW_MS)
    assert (found.sessions, found.asks, found.claims, found.cards) == ([], [], [], [])
    assert (found.tokens, found.deliveries, found.inbound) == ([], [], [])
    assert found.keys == {"k1": row.ask_id}
    assert (found.last_inbound, found.last_delivery) == (1, 1)
    assert store.snapshot(NOW_MS + 31 * DAY_MS).keys == {}
    await store.close()


@pytest.mark.asyncio
async def test_a_closed_ask_stays_while_something_about_it_is_to_be_delivered(
    path: str,
) -> None:
    store = Store.open(path)
    row = closed(ask(1))
    card = CardRow(ask_id=row.ask_id, channel="web", place="c")
    await store.commit([session(ended_ms=3), row, card, delivery(1, row)])
    found = store.snapshot(NOW_MS)
    await store.close()
    assert (found.asks, found.cards) == ([row], [card])
    assert found.sessions == [session(ended_ms=3)]


@pytest.mark.asyncio
async def test_the_newest_ask_with_a_key_is_found_and_an_open_one_at_any_age(
    path: str,
) -> None:
    store = Store.open(path)
    await store.commit(
        [
            session(),
            ask(2, key="k", raised_ms=NOW_MS),
            closed(ask(1, key="k", raised_ms=NOW_MS - 5)),
            ask(3, key="old", raised_ms=1),
            closed(ask(4, key="past", raised_ms=1)),
        ]
    )
    assert store.snapshot(NOW_MS).keys == {"k": ask(2).ask_id, "old": ask(3).ask_id}
    await store.close()


@pytest.mark.asyncio
async def test_small_facts_are_kept_replaced_and_dropped(path: str) -> None:
    store = Store.open(path)
    odd = "/home/a\udcff"
    login = LoginKept(digest="d", kind="login", expires_ms=NOW_MS + 1)
    await store.commit(
        [
            SaveSetting("web", "port", "1"),
            SaveSetting("web", "port", "2"),
            SaveSetting("web", "x", "1"),
            SaveSetting("web", "x", None),
            SaveGate("web", 5),
            SaveGate("web", 7),
            SaveRoot(odd),
            SaveRoot(odd),
            SaveRoot("/b"),
            SaveRoot("/b", gone=True),
            SaveLogin("web", login),
            SaveLogin("web", replaced(login, digest="e", expires_ms=NOW_MS)),
            SaveLogin("web", replaced(login, digest="f")),
            SaveLogin("web", replaced(login, digest="f", gone=True)),
        ]
    )
    found = store.snapshot(NOW_MS)
    assert found.settings == {("web", "port"): "2"}
    assert found.gates == {"web": 7}
    assert found.roots == [odd]
    assert await store.logins("web", NOW_MS) == [login]
    await store.close()


@pytest.mark.asyncio
async def test_history_is_read_newest_first(path: str) -> None:
    store = Store.open(path)
    rows = [closed(ask(number), closed_ms=number) for number in range(1, 6)]
    said = [
        NoticeRow(id=number, session_id=SessionId("s1"), kind="text", text="x", at_ms=number)
        for number in (1, 2, 3)
    ]
    await store.commit([session(), *rows, ask(9), *said])
    assert await store.closed_asks(None, 2) == [rows[4], rows[3]]
    assert await store.closed_asks(4, 9) == [rows[2], rows[1], rows[0]]
    assert await store.ask(rows[0].ask_id) == rows[0]
    assert await store.ask("a0") is None
    assert await store.ask_like("a00000000000") == [*rows, ask(9)]
    assert await store.ask_like("a000000000009") == [ask(9)]
    assert await store.ask_like("b") == []
    assert await store.notices(2) == [said[2], said[1]]
    many = ["s1", *(f"x{number}" for number in range(1200))]
    assert await store.sessions_by_id(many) == {"s1": session()}
    await store.close()


@pytest.mark.asyncio
async def test_a_hundred_commits_at_once_are_few_transactions(path: str) -> None:
    store = Store.open(path)
    await store.commit([session()])
    before = store.commits
    await asyncio.gather(*(store.commit([ask(number)]) for number in range(100)))
    assert store.commits - before <= 5
    assert len(store.snapshot().asks) == 100
    await store.close()


@pytest.mark.asyncio
async def test_all_that_waits_is_one_transaction_and_one_call_into_the_loop(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(path)
    await store.commit([session()])
    before = store.commits
    busy, go_on = threading.Event(), threading.Event()

    def hold(writer: RowWriter, connection: sqlite3.Connection) -> None:
        busy.set()
        go_on.wait(10)

    loop = asyncio.get_running_loop()
    calls = []
    plain = loop.call_soon_threadsafe

    def counted(*args: object, **more: object) -> asyncio.Handle:
        calls.append(args)
        return plain(*args, **more)  # type: ignore[arg-type]  # handed on as they came

    first = asyncio.create_task(store._do(hold, 0))
    await asyncio.to_thread(busy.wait, 10)
    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    others = [asyncio.create_task(store.commit([ask(number)])) for number in range(50)]
    # Each task has put its rows once the loop has been round.
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, *others)
    monkeypatch.undo()
    assert store.commits - before == 2
    assert len(calls) == 2
    await store.close()


@pytest.mark.asyncio
async def test_a_cancelled_commit_disturbs_nobody(path: str) -> None:
    store = Store.open(path)
    gone = asyncio.create_task(store.commit([session()]))
    stays = asyncio.create_task(store.commit([session("s2")]))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await stays
    await store.close()


@pytest.mark.asyncio
async def test_nothing_to_write_is_no_transaction(path: str) -> None:
    store = Store.open(path)
    await store.commit([])
    assert store.commits == 0
    await store.close()
    for attempt in (store.commit([]), store.commit([session()]), store.notices(1)):
        with pytest.raises(StoreError) as caught:
            await attempt
        assert caught.value.code == "store_closed"
    await store.close()


@pytest.mark.asyncio
async def test_a_second_live_claim_is_refused_and_ends_the_store(path: str) -> None:
    store = Store.open(path)
    await store.commit([session(), ask(1), claim(ask(1), 1)])
    with pytest.raises(StoreError) as caught:
        await store.commit([ask(2), claim(ask(1), 2)])
    assert caught.value.code == "store_conflict"
    with pytest.raises(StoreError) as later:
        await store.commit([session("s2")])
    assert later.value.code == "store_conflict"
    with pytest.raises(StoreError):
        await store.commit([])
    await store.close()
    store = Store.open(path)
    found = store.snapshot()
    assert (found.asks, found.claims) == ([ask(1)], [claim(ask(1), 1)])
    await store.commit([EndClaim(ask(1).ask_id), claim(ask(1), 2)])
    assert store.snapshot().claims == [claim(ask(1), 2)]
    await store.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "twice",
    [
        replaced(ask(2), action_id=ask(1).action_id),
        replaced(delivery(2), effect="post:1"),
        InboundRow(id=1, channel="web", event_key="other", content_key="", at_ms=0),
        replaced(ask(3), session_id=SessionId("nobody")),
    ],
    ids=["action", "effect", "inbound", "orphan"],
)
async def test_what_must_be_unique_or_known_is_guarded(path: str, twice: Write) -> None:
    store = Store.open(path)
    await store.commit(
        [
            session(),
            ask(1),
            delivery(1),
            InboundRow(id=1, channel="web", event_key="e", content_key="", at_ms=0),
        ]
    )
    with pytest.raises(StoreError) as caught:
        await store.commit([twice])
    assert caught.value.code == "store_conflict"
    await store.close()


@pytest.mark.asyncio
async def test_a_closed_asks_action_may_be_asked_again_in_the_same_transaction(
    path: str,
) -> None:
    store = Store.open(path)
    await store.commit([session(), ask(1)])
    again = replaced(ask(2), action_id=ask(1).action_id)
    await store.commit([closed(ask(1)), again])
    assert store.snapshot().asks == [again]
    await store.close()


@pytest.mark.asyncio
async def test_a_repeated_inbound_event_takes_the_newer_row(path: str) -> None:
    store = Store.open(path)
    first = InboundRow(id=1, channel="web", event_key="e", content_key="", at_ms=NOW_MS)
    await store.commit([first])
    await store.commit([replaced(first, id=2)])
    assert store.snapshot(NOW_MS).inbound == [replaced(first, id=2)]
    await store.close()


@pytest.mark.asyncio
async def test_a_name_that_is_no_text_is_kept_escaped(path: str) -> None:
    store = Store.open(path)
    await store.commit(
        [
            replaced(session(), cwd="/a\udcff"),
            replaced(
                ask(1), spec=AskSpec(question="\ud800?", options=("\udc80", "b"), multi=True)
            ),
            AuditRow(
                at_ms=1, event="e", ask_id=None, session_id=None, facts={"\udc80": "\udc81"}
            ),
        ]
    )
    found = store.snapshot()
    assert found.sessions[0].cwd == "/a\\udcff"
    assert found.asks[0].spec == AskSpec("\\ud800?", ("\\udc80", "b"), multi=True)
    assert await store.audit_break() is None
    await store.close()


@pytest.mark.asyncio
async def test_what_cannot_be_stored_ends_the_store_in_words(path: str) -> None:
    store = Store.open(path)
    with pytest.raises(StoreError) as caught:
        await store.commit([replaced(session(), pid=1 << 80)])
    assert caught.value.code == "store_failed"
    assert isinstance(caught.value.__cause__, OverflowError)
    assert caught.value.recover
    await store.close()


@pytest.mark.asyncio
async def test_a_full_disk_ends_the_store_and_keeps_what_was_there(path: str) -> None:
    store = Store.open(path, max_pages=80)
    await store.commit([session()])
    kept = 0

    async def fill() -> None:
        nonlocal kept
        while True:
            await store.commit([ask(kept + 1)])
            kept += 1

    with pytest.raises(StoreError) as caught:
        await fill()
    assert caught.value.code == "store_full"
    assert caught.value.recover
    with pytest.raises(StoreError) as later:
        await store.commit([session()])
    assert later.value.code == "store_full"
    await store.close()
    store = Store.open(path)
    assert kept > 10
    assert len(store.snapshot().asks) == kept
    await store.commit([ask(kept + 1)])
    await store.close()


@pytest.mark.asyncio
async def test_text_is_masked_once_an_ask_is_closed_and_in_the_audit(path: str) -> None:
    store = Store.open(path, mask=lambda text: text.replace("hunter2", "***"))
    spec = AskSpec(
        question="Use hunter2?",
        options=("hunter2", "no"),
        detail="hunter2",
        default="hunter2",
        option_details=("hunter2", ""),
    )
    row = replaced(ask(1), spec=spec, note="hunter2")
    await store.commit(
        [
            session(),
            row,
            AuditRow(
                at_ms=1, event="e", ask_id=None, session_id=None, facts={"a": "hunter2", "b": 1}
            ),
        ]
    )
    assert store.snapshot().asks == [row]
    await store.commit([closed(row)])
    found = await store.ask(row.ask_id)
    assert found is not None
    assert found.spec == AskSpec(
        "Use ***?", ("***", "no"), "***", default="***", option_details=("***", "")
    )
    assert found.note == "***"
    assert found.answer == Selection((0,), ("Yes",))
    await store.close()
    assert raw(path, "SELECT facts FROM audit") == [('{"a":"***","b":1}',)]
    assert b"hunter2" not in Path(path).read_bytes()


@pytest.mark.asyncio
async def test_what_was_delivered_is_not_kept_but_its_failed_attempts_are(path: str) -> None:
    store = Store.open(path)
    row = delivery(1)
    await store.commit([row])
    await store.commit([replaced(row, state="retry", error="no route")])
    await store.commit([replaced(row, state="sending", attempt=2)])
    await store.commit([replaced(row, state="done", attempt=2, ref="5")])
    await store.close()
    assert raw(path, "SELECT state, body, ref FROM delivery") == [("done", b"", "5")]
    assert raw(path, "SELECT delivery, number, state, error FROM attempt") == [
        (1, 1, "retry", "no route")
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("damage", "first_bad"),
    [
        ("UPDATE audit SET facts = '{}' WHERE id = 3", 3),
        ("UPDATE audit SET ask_id = '' WHERE id = 2", 2),
        ("DELETE FROM audit WHERE id = 4", 5),
        ("UPDATE audit SET hash = zeroblob(32) WHERE id = 5", 5),
        ("UPDATE audit SET event = 'audit_cut' WHERE id = 2", 2),
    ],
)
async def test_a_changed_or_missing_line_breaks_the_audit_chain(
    path: str, damage: str, first_bad: int
) -> None:
    store = Store.open(path)
    for number in range(6):
        await store.commit([story(number)])
    head = store.audit_head
    assert await store.audit_break() is None
    await store.close()
    store = Store.open(path)
    assert store.audit_head == head
    await store.commit([story(7)])
    assert store.audit_head != head
    assert await store.audit_break() is None
    await store.close()
    raw(path, damage)
    store = Store.open(path)
    assert await store.audit_break() == first_bad
    await store.close()


@pytest.mark.asyncio
async def test_retention_removes_texts_then_rows_and_keeps_the_chain(path: str) -> None:
    store = Store.open(path)
    old, older, young = ask(1, key="k"), ask(2), ask(3)
    gone = replaced(session("s0"), ended_ms=1)
    await store.commit(
        [
            session(),
            gone,
            closed(old, closed_ms=NOW_MS - 31 * DAY_MS),
            closed(older, closed_ms=NOW_MS - 401 * DAY_MS),
            closed(young, closed_ms=NOW_MS - DAY_MS),
            claim(old, 1),
            claim(older, 2),
            CardRow(ask_id=older.ask_id, channel="web", place="c"),
            replaced(delivery(1, older), state="dead", created_ms=5),
            replaced(delivery(2, old), state="done", created_ms=5),
            NoticeRow(id=1, session_id=SessionId("s1"), kind="t", text="x", at_ms=1),
            NoticeRow(id=2, session_id=SessionId("s1"), kind="t", text="y", at_ms=1),
            InboundRow(id=1, channel="web", event_key="a", content_key="", at_ms=1),
            InboundRow(id=2, channel="web", event_key="b", content_key="", at_ms=1),
            SaveGate("web", 1),
            SaveLogin("web", LoginKept(digest="d", kind="code", expires_ms=1)),
            *(story(number, at_ms=number) for number in range(3)),
            story(4),
        ]
    )
    before = store.audit_head
    await store.retain(NOW_MS)
    head = store.audit_head
    assert head != before
    for _ in range(2):
        await store.retain(NOW_MS)
        found = await store.ask(old.ask_id)
        assert found is not None
        assert (found.spec, found.answer, found.key) == (AskSpec(question=""), None, None)
        assert found.outcome == "answered"
        assert await store.ask(older.ask_id) is None
        assert await store.ask(young.ask_id) == closed(young, closed_ms=NOW_MS - DAY_MS)
        assert await store.sessions_by_id(["s0", "s1"]) == {"s1": session()}
        last = store.snapshot(NOW_MS)
        assert (last.last_delivery, last.last_notice, last.last_inbound) == (2, 2, 2)
        assert last.gates == {}
        assert store.audit_head == head
        assert await store.audit_break() is None
    await store.commit([story(5)])
    assert await store.audit_break() is None
    # The log is emptied too, up to the one page that keeps its header in place.
    for name in (path, f"{path}-wal"):
        assert b"Deploy 1?" not in Path(name).read_bytes()
    await store.close()
    assert raw(path, "SELECT event, id FROM audit ORDER BY id") == [
        ("audit_cut", 3),
        ("raised", 4),
        ("audit_trimmed", 5),
        ("raised", 6),
    ]
    assert raw(path, "SELECT count(*) FROM notice") == [(1,)]


@pytest.mark.asyncio
async def test_the_log_is_moved_when_it_is_quiet(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "IDLE_CHECKPOINT_S", 0.01)
    store = Store.open(path)
    marked = threading.Event()
    plain = db._mark

    def noted(connection: sqlite3.Connection, end: str) -> None:
        plain(connection, end)
        marked.set()

    monkeypatch.setattr(db, "_mark", noted)
    await store.commit([session()])
    assert await asyncio.to_thread(marked.wait, 10)
    assert store.checkpoints == 1
    assert os.stat(f"{path}-wal").st_size < 3 * 4200
    await store.close()


@pytest.mark.asyncio
async def test_the_log_does_not_grow_without_bound_and_a_reader_only_delays_that(
    path: str,
) -> None:
    store = Store.open(path)
    await store.commit([session()])
    for start in range(0, 400, 2):
        await store.commit([ask(start), ask(start + 1)])
    assert store.checkpoints >= 2
    assert os.stat(f"{path}-wal").st_size < 8 << 20
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM ask").fetchone()
    await store.commit([ask(1000)])
    await store.retain(NOW_MS)
    await store.commit([ask(1001)])
    reader.close()
    await store.close()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_lone_commit_is_exactly_one_fsync(folder: str) -> None:
    script = textwrap.dedent(
        """
        import asyncio, os, sys
        from upcall.hub.store import Store
        from upcall.model.rows import SessionRow

        async def main():
            store = Store.open(sys.argv[1])
            for number in range(5):
                os.path.exists("/mark")
                await store.commit(
                    [SessionRow(session_id=f"s{number}", kind="sdk", conversation="c")]
                )
            os.path.exists("/mark")
            await store.close()

        asyncio.run(main())
        """
    )
    log = f"{folder}/strace"
    done = subprocess.run(
        [
            *("strace", "-f", "-o", log, "-e", "trace=fsync,fdatasync,stat,newfstatat"),
            *(sys.executable, "-c", script, f"{folder}/hub.db"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip("this place does not allow tracing")
    assert done.returncode == 0, done.stderr
    counts, seen = [], False
    for line in Path(log).read_text(encoding="utf-8", errors="replace").splitlines():
        if '"/mark"' in line:
            seen = True
            counts.append(0)
        elif seen and ("fsync(" in line or "fdatasync(" in line):
            counts[-1] += 1
    assert counts[:-1] == [1, 1, 1, 1, 1]


@pytest.mark.asyncio
async def test_a_row_that_is_not_what_was_written_is_corrupt(path: str) -> None:
    store = Store.open(path)
    await store.commit([session(), ask(1)])
    await store.close()
    raw(path, "UPDATE ask SET body = '{}'")
    store = Store.open(path)
    with pytest.raises(StoreError) as caught:
        store.snapshot()
    assert caught.value.code == "store_corrupt"
    raw(path, "DROP TABLE card")
    with pytest.raises(StoreError):
        store.snapshot()
    await store.close()


@pytest.mark.asyncio
async def test_open_rows_are_found_without_looking_at_closed_ones(path: str) -> None:
    store = Store.open(path)
    await store.close()
    for sql, index in (
        ("SELECT id FROM ask WHERE state <> 'closed'", "ask_open"),
        ("SELECT id FROM session WHERE ended_ms IS NULL", "session_living"),
        (
            "SELECT id FROM delivery WHERE state NOT IN ('done', 'dead') ORDER BY id",
            "delivery_due",
        ),
        ("SELECT id FROM conversation WHERE state = 'open'", "conversation_open"),
        ("UPDATE claim SET live = 0 WHERE live = 1 AND ask = 1", "claim_live"),
        (
            "SELECT id FROM ask WHERE state = 'closed' AND closed_ms < 5"
            " ORDER BY closed_ms DESC, id DESC",
            "ask_closed",
        ),
    ):
        plan = str(raw(path, f"EXPLAIN QUERY PLAN {sql}"))
        assert index in plan, plan


@pytest.mark.asyncio
async def test_size_counts_the_database_and_its_log(path: str) -> None:
    store = Store.open(path)
    await store.commit([session()])
    assert store.size_bytes() == sum(os.stat(path + end).st_size for end in ("", "-wal"))
    await store.close()
    assert store.size_bytes() == os.stat(path).st_size
