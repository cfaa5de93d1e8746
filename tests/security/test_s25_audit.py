"""S25: what was done to the audit is found and named, and what is not proven is said.

The chain alone shows a line that was changed, dropped, swapped or put in. A tail that was cut
off, a chain written anew from row 1 and a whole file put back show by anchors alone.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
import socket
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.clock import FakeClock
from fakes.home import Home, Json, eventually
from fakes.hub_rig import Log
from fakes.kernel_rig import Rig, channel
from upcall.cli.log_verify import _given
from upcall.config import parse
from upcall.hub import anchors
from upcall.hub.anchoring import Anchoring
from upcall.hub.anchors import Noted
from upcall.hub.store import Store, erase, migrate
from upcall.hub.store.audit import Wanted, lines
from upcall.hub.store.peek import reading
from upcall.hub.store.verify import Anchor, Verdict, verify
from upcall.model.ask import AskSpec
from upcall.model.errors import ConfigInvalid
from upcall.model.events import AuditAnchored
from upcall.model.ids import ActionId, AskId, Revision, SessionId
from upcall.model.rows import AskRow, AuditRow, SessionRow

ROWS = 12
START_MS = 1_800_000_000_000
SECOND_MS = 1000


# --- a chain to do things to ---------------------------------------------------------------


def digest(previous: bytes, row: tuple[Any, ...]) -> bytes:
    """Return a line's hash by the description of encoding 1 alone."""
    _, encoding, at_ms, event, ask_id, session_id, facts, _ = row
    sha = hashlib.sha256(bytes([encoding]))
    parts: list[bytes | None] = [previous, at_ms.to_bytes(8, "big", signed=True)]
    parts += [
        None if one is None else one.encode() for one in (event, ask_id, session_id, facts)
    ]
    for part in parts:
        if part is None:
            sha.update(b"\0" + bytes(8))
        else:
            sha.update(b"\1" + len(part).to_bytes(8, "big") + part)
    return sha.digest()


def line(number: int, event: str = "told", **facts: Any) -> AuditRow:
    return AuditRow(
        at_ms=START_MS + number * SECOND_MS,
        event=event,
        ask_id=AskId(f"a{number:012d}"),
        session_id=SessionId("s1"),
        facts={"n": number, "who": "Ada", **facts},
    )


@pytest.fixture(scope="module")
def whole() -> Iterator[str]:
    """A closed database with `ROWS` lines, and questions that are as old as their lines."""
    folder = tempfile.mkdtemp(prefix="up", dir="/tmp")
    os.chmod(folder, 0o700)
    path = f"{folder}/hub.db"
    store = Store.open(path)

    async def fill() -> None:
        await store.commit(
            [SessionRow(session_id=SessionId("s1"), kind="sdk", conversation="c")]
        )
        for number in range(1, ROWS + 1):
            ask = AskRow(
                ask_id=AskId(f"a{number:012d}"),
                session_id=SessionId("s1"),
                action_id=ActionId(f"x{number}"),
                state="open",
                spec=AskSpec(question=f"Number {number}?"),
                revision=Revision("r"),
                raised_ms=START_MS + number * SECOND_MS,
            )
            await store.commit([ask, line(number, "raised")])

    asyncio.run(fill())
    store.close_now()
    yield path
    shutil.rmtree(folder)


@pytest.fixture
def path(whole: str, tmp_path: Path) -> str:
    copy = str(tmp_path / "hub.db")
    shutil.copy(whole, copy)
    return copy


def rows_of(path: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as db:
        found = db.execute("SELECT * FROM audit ORDER BY id").fetchall()
    db.close()
    return found


def look(path: str, *noted: Anchor) -> Verdict:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return verify(db, noted, said=str)
    finally:
        db.close()


def change(path: str, *statements: str) -> None:
    db = sqlite3.connect(path)
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


def rewrite(path: str, rows: list[tuple[Any, ...]], *, anew: bool = False) -> None:
    """Put *rows* in the place of all; *anew*: numbered and hashed as if nothing had been."""
    previous = bytes(32)
    db = sqlite3.connect(path)
    with db:
        db.execute("DELETE FROM audit")
        for number, row in enumerate(rows, 1):
            put = row
            if anew:
                put = (number, *row[1:7], digest(previous, row))
                previous = put[7]
            db.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", put)
    db.close()


def anchor(path: str, row: int | None = None, *, source: str = "system journal") -> Anchor:
    found = rows_of(path)[-1 if row is None else row - 1]
    return Anchor(
        source=source,
        at_ms=found[2],
        rows=found[0],
        head=found[7].hex(),
        epoch=1,
        row_ms=found[2],
    )


def kinds(verdict: Verdict) -> list[tuple[str, int]]:
    return [(one.kind, one.row) for one in verdict.problems]


# --- what the chain itself shows -----------------------------------------------------------


def test_an_audit_that_nobody_touched_is_whole_and_hashed_as_described(path: str) -> None:
    verdict = look(path, anchor(path), anchor(path, 5), anchor(path, 5, source="file"))
    assert verdict.ok
    assert (verdict.first, verdict.rows) == (1, ROWS)
    assert verdict.anchors == {"system journal": 2, "file": 1}
    previous = bytes(32)
    for row in rows_of(path):
        assert row[1] == 1
        assert row[7] == digest(previous, row)
        previous = row[7]
    assert verdict.head == previous.hex()


def test_the_hashed_bytes_never_change() -> None:
    """A value written down: whoever changes the encoding breaks every chain that there is."""
    row = (1, 1, 1_700_000_000_000, "raised", "a1", None, '{"x":"é"}', b"")
    assert digest(bytes(32), row).hex() == GOLDEN
    store_dir = tempfile.mkdtemp(prefix="up", dir="/tmp")
    try:
        os.chmod(store_dir, 0o700)
        store = Store.open(f"{store_dir}/hub.db")
        written = AuditRow(
            at_ms=1_700_000_000_000,
            event="raised",
            ask_id=AskId("a1"),
            session_id=None,
            facts={"x": "é"},
        )
        asyncio.run(store.commit([written]))
        assert store.head.hash == GOLDEN
        assert (store.head.rows, store.head.at_ms) == (1, 1_700_000_000_000)
        store.close_now()
    finally:
        shutil.rmtree(store_dir)


GOLDEN = "b07754c974daf0fea599365a9c2fdbe2049badcf3f5e69f80343466f59260e1d"


@pytest.mark.parametrize(
    "flip",
    [
        "at_ms = at_ms + 1",
        "event = 'closed'",
        "ask_id = 'a000000000009'",
        "ask_id = NULL",
        "ask_id = ''",
        "session_id = session_id || 'x'",
        "session_id = NULL",
        "facts = replace(facts, 'Ada', 'Eve')",
        "facts = 'no JSON at all'",
        "hash = zeroblob(32)",
        "hash = x''",
        "event = event || 'r', ask_id = substr(ask_id, 2)",
    ],
)
@pytest.mark.parametrize("number", [1, 6, ROWS])
def test_a_flipped_line_is_named(path: str, flip: str, number: int) -> None:
    change(path, f"UPDATE audit SET {flip} WHERE id = {number}")
    verdict = look(path)
    assert not verdict.ok
    assert verdict.problems[0].row in {number, number + 1}
    assert verdict.problems[0].kind == "changed"
    assert f"row {verdict.problems[0].row} " in verdict.problems[0].msg
    if not flip.startswith("hash"):
        assert kinds(verdict) == [("changed", number)]


def test_an_encoding_that_nobody_knows_is_named(path: str) -> None:
    change(path, "UPDATE audit SET encoding = 2 WHERE id = 4")
    assert kinds(look(path)) == [("unknown", 4)]


@pytest.mark.parametrize(
    ("gone", "found", "words"),
    [
        ("id = 1", ("missing", 1), "row 1 is missing"),
        ("id = 6", ("missing", 6), "row 6 is missing"),
        ("id IN (3, 4, 5)", ("missing", 3), "rows 3 to 5 are missing"),
        ("id <= 4", ("missing", 1), "rows 1 to 4 are missing"),
    ],
)
def test_a_dropped_line_is_named(
    path: str, gone: str, found: tuple[str, int], words: str
) -> None:
    change(path, f"DELETE FROM audit WHERE {gone}")
    verdict = look(path)
    assert kinds(verdict) == [found]
    assert verdict.problems[0].msg == words


def test_lines_that_were_closed_up_do_not_follow(path: str) -> None:
    change(
        path,
        "DELETE FROM audit WHERE id = 6",
        "UPDATE audit SET id = -id WHERE id > 6",
        "UPDATE audit SET id = -id - 1 WHERE id < 0",
    )
    verdict = look(path)
    assert kinds(verdict) == [("changed", 6)]
    assert "lines before it were removed" in verdict.problems[0].msg


def test_swapped_lines_are_named(path: str) -> None:
    rows = rows_of(path)
    rows[4], rows[5] = (5, *rows[5][1:]), (6, *rows[4][1:])
    rewrite(path, rows)
    verdict = look(path)
    assert kinds(verdict)[0] == ("swapped", 5)
    assert verdict.problems[0].msg == "rows 5 and 6 were swapped"
    assert len(verdict.problems) == 1


def test_lines_swapped_over_a_distance_are_named(path: str) -> None:
    rows = rows_of(path)
    rows[2], rows[8] = (3, *rows[8][1:]), (9, *rows[2][1:])
    rewrite(path, rows)
    verdict = look(path)
    assert ("swapped", 3) in kinds(verdict)
    assert ("swapped", 9) in kinds(verdict)
    assert {one.row for one in verdict.problems} <= {3, 4, 9, 10}


def test_swapped_contents_are_named(path: str) -> None:
    rows = rows_of(path)
    rows[4], rows[5] = (
        (*rows[4][:2], *rows[5][2:7], rows[4][7]),
        (
            *rows[5][:2],
            *rows[4][2:7],
            rows[5][7],
        ),
    )
    rewrite(path, rows)
    assert kinds(look(path)) == [("changed", 5), ("changed", 6)]


def test_an_inserted_line_is_named(path: str) -> None:
    rows = rows_of(path)
    new = (7, 1, rows[6][2], "claimed", rows[6][4], "s1", '{"operator":"Eve"}', bytes(32))
    follows = (*new[:7], digest(rows[5][7], new))
    for one in (new, follows):
        rewrite(path, [*rows[:6], one, *[(row[0] + 1, *row[1:]) for row in rows[6:]]])
        verdict = look(path)
        assert verdict.problems[0].row in {7, 8}
        # Whoever hashes it well moves the fault to the line after it.
        assert verdict.problems[0].kind in {"inserted", "changed"}
    rewrite(path, [*rows, (ROWS + 1, *new[1:])])
    assert kinds(look(path)) == [("changed", ROWS + 1)]
    rewrite(path, [(0, *new[1:]), *rows])
    assert kinds(look(path))[0] == ("inserted", 0)


# --- what only anchors show ----------------------------------------------------------------


def test_a_cut_tail_is_found_by_anchors_alone(path: str) -> None:
    noted = anchor(path)
    change(path, "DELETE FROM audit WHERE id > 9")
    assert look(path).ok
    verdict = look(path, noted)
    assert kinds(verdict) == [("truncated", 10)]
    assert "rows 10 to 12 were cut off" in verdict.problems[0].msg
    assert "system journal" in verdict.problems[0].msg


def test_all_lines_cut_off_are_found_by_anchors_alone(path: str) -> None:
    noted = anchor(path)
    change(path, "DELETE FROM audit")
    assert look(path).ok
    assert kinds(look(path, noted)) == [("truncated", 1)]


@pytest.mark.parametrize("touched", [1, 5, ROWS])
def test_a_chain_written_anew_is_found_by_anchors_alone(path: str, touched: int) -> None:
    before, after = anchor(path, 3), anchor(path)
    rows = rows_of(path)
    rows[touched - 1] = (*rows[touched - 1][:6], '{"who":"Eve"}', b"")
    rewrite(path, rows, anew=True)
    assert look(path).ok
    verdict = look(path, before, after)
    assert verdict.problems[0].kind == "rewritten"
    if touched > 3:
        assert "after row 3" in verdict.problems[0].msg
        assert verdict.anchors == {"system journal": 1}
    assert f"row {verdict.problems[0].row} is not what it was" in verdict.problems[0].msg


def test_a_line_taken_out_of_a_chain_written_anew_is_found_by_anchors_alone(path: str) -> None:
    noted = anchor(path)
    rows = rows_of(path)
    rewrite(path, [*rows[:4], *rows[5:]], anew=True)
    assert look(path).ok
    assert not look(path, noted).ok


def test_the_file_of_yesterday_is_found_by_anchors_alone(path: str, tmp_path: Path) -> None:
    yesterday = str(tmp_path / "yesterday.db")
    shutil.copy(path, yesterday)
    store = Store.open(path)
    asyncio.run(store.commit([line(number) for number in range(ROWS + 1, ROWS + 5)]))
    store.close_now()
    noted = anchor(path)
    shutil.copy(yesterday, path)
    assert look(path).ok
    verdict = look(path, noted)
    assert kinds(verdict) == [("rewound", ROWS + 1)]
    assert "whole file is as it was at row 12" in verdict.problems[0].msg
    # What was written since does not make the old lines right.
    store = Store.open(path)
    asyncio.run(store.commit([line(number, "other") for number in range(ROWS + 1, ROWS + 9)]))
    store.close_now()
    assert look(path).ok
    assert kinds(look(path, noted)) == [("rewritten", ROWS + 4)]


def test_an_anchor_of_a_person_may_be_short_but_must_fit(path: str) -> None:
    head = rows_of(path)[4][7].hex()
    assert look(path, _given(f"5:{head[:8]}")).anchors == {"your note": 1}
    assert look(path, _given(f"audit 5:{head.upper()}")).anchors == {"your note": 1}
    other = "0" if head[0] != "0" else "1"
    assert kinds(look(path, _given(f"5:{other}{head[1:8]}"))) == [("rewritten", 5)]
    for bad in ("5", "5:", f"5:{head[:7]}", f"x:{head}", f"5:{head}00", f"-5:{head}", ":"):
        with pytest.raises(Exception, match="is no anchor"):
            _given(bad)


@pytest.mark.parametrize("facts", [b"[" * 200_000 + b"]" * 200_000, b"\xff{"])
def test_what_cannot_be_read_of_a_line_is_named_as_changed(path: str, facts: bytes) -> None:
    for event in ("raised", "restored", "audit_trimmed"):
        db = sqlite3.connect(path)
        with db:
            db.execute(
                "UPDATE audit SET facts = CAST(? AS TEXT), event = ? WHERE id = 5",
                (facts, event),
            )
        db.close()
        assert ("changed", 5) in kinds(look(path))
        with reading(path) as connection:
            told = lines(connection, Wanted(), lambda text: text)
        assert len(told) == ROWS


def cut_by_hand(path: str, last: int, at_ms: int) -> None:
    """Replace the first lines as retention does."""
    kept = rows_of(path)[last - 1][7]
    facts = f'{{"last_hash":"{kept.hex()}","lines":{last}}}'
    db = sqlite3.connect(path)
    with db:
        db.execute("DELETE FROM audit WHERE id <= ?", (last,))
        db.execute(
            "INSERT INTO audit VALUES (?, 1, ?, 'audit_cut', NULL, NULL, ?, ?)",
            (last, at_ms, facts, kept),
        )
    db.close()


def test_first_lines_that_somebody_removed_are_named(path: str) -> None:
    cut_by_hand(path, 8, START_MS)
    assert kinds(look(path)) == [("removed", 8)]
    assert "no line says that it was for their age" in look(path).problems[0].msg


def test_lines_that_were_too_young_to_be_removed_are_named_by_anchors(path: str) -> None:
    noted = [anchor(path, row) for row in (2, 6, 8)]
    last = rows_of(path)[-1]
    cut_by_hand(path, 8, START_MS)
    # Whoever writes the chain's end anew can claim what they like of the rest.
    at_ms = START_MS + 100 * SECOND_MS
    new = (ROWS + 1, 1, at_ms, "audit_trimmed", None, None, '{"lines":8,"days":1}')
    db = sqlite3.connect(path)
    with db:
        db.execute(
            "INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*new, digest(last[7], (*new, b""))),
        )
    db.close()
    assert look(path).ok
    assert "as older than 1 day" in look(path).notes[0]
    verdict = look(path, *noted)
    assert kinds(verdict) == [("removed", 2)]
    assert "was removed before its time" in verdict.problems[0].msg


# --- what is allowed to change -------------------------------------------------------------


@pytest.mark.asyncio
async def test_retention_leaves_a_chain_that_is_whole_and_says_what_went(path: str) -> None:
    old, cut, kept = anchor(path, 3), anchor(path, 8), anchor(path, 10)
    day_ms = 86_400_000
    store = Store.open(path)
    change(path, "UPDATE ask SET state = 'closed', closed_ms = raised_ms")
    await store.retain(START_MS + 9 * SECOND_MS + 10 * day_ms, text_days=1, audit_days=10)
    await store.close()
    assert rows_of(path)[0][0] == 8
    verdict = look(path, old, cut, kept)
    assert verdict.ok
    assert len(verdict.notes) == 1
    assert verdict.notes[0].startswith("rows 1 to 8 were removed on ")
    assert verdict.notes[0].endswith(", as older than 10 days")
    assert verdict.anchors == {"system journal": 2}
    assert "row 3 was removed for its age" in verdict.unread[0]
    for forged in ("hash = zeroblob(32)", "facts = '{}'"):
        change(path, f"UPDATE audit SET {forged} WHERE id = 8")
        assert ("changed", 8) in kinds(look(path))


@pytest.mark.asyncio
async def test_a_forgotten_text_leaves_its_line_and_its_hash(path: str) -> None:
    before = rows_of(path)
    noted = anchor(path)
    store = Store.open(path)
    change(path, "UPDATE ask SET state = 'closed', closed_ms = raised_ms WHERE id = 4")
    wanted = erase.Wanted(asks=(AskId(f"a{4:012d}"),))
    await store.forget(wanted, START_MS + 60 * SECOND_MS)
    await store.close()
    after = rows_of(path)
    assert after[:ROWS] == before
    assert (after[-1][3], after[-1][4]) == ("forgotten", f"a{4:012d}")
    assert look(path, noted, anchor(path)).ok
    assert b"Number 4?" not in Path(path).read_bytes()


def test_a_chain_goes_on_across_two_schema_versions(tmp_path: Path) -> None:
    """Rows of the oldest schema, with an anchor from then, under today's."""
    os.chmod(tmp_path, 0o700)
    path = str(tmp_path / "hub.db")
    scripts = migrate.steps()
    assert len(scripts) > 1
    oldest = min(scripts)
    db = sqlite3.connect(path)
    db.executescript(
        f"{scripts[oldest]} PRAGMA application_id = {migrate.APPLICATION_ID};"
        f"PRAGMA user_version = {oldest};"
    )
    previous = bytes(32)
    for number in range(1, 6):
        row = (number, 1, START_MS + number, "told", None, "s", '{"n":1}', b"")
        previous = digest(previous, row)
        db.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row[:7], previous))
    db.commit()
    db.close()
    os.chmod(path, 0o600)
    assert look(path).ok
    noted, before = anchor(path), rows_of(path)
    store = Store.open(path)
    assert store.migrated_from is not None
    assert store.head.rows == 5
    asyncio.run(store.commit([line(6)]))
    store.close_now()
    assert rows_of(path)[:5] == before
    verdict = look(path, noted, anchor(path))
    assert verdict.ok
    assert verdict.anchors == {"system journal": 2}


# --- where anchors are ---------------------------------------------------------------------


NOTED = Noted(at_ms=START_MS, rows=7, head="ab" * 32, epoch=2, why="daily")


@pytest.fixture
def state(tmp_path: Path) -> str:
    os.chmod(tmp_path, 0o700)
    return str(tmp_path)


def test_the_file_of_anchors_is_private_and_only_grows(state: str) -> None:
    old = os.umask(0)
    try:
        anchors.append(state, NOTED)
    finally:
        os.umask(old)
    file = Path(state, anchors.FILE)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = file.read_bytes()
    file.write_bytes(first + b'{"rows": 12, "he')  # a full disk cut it off
    anchors.append(state, NOTED)
    assert file.read_bytes().startswith(first)
    found, trouble = anchors.from_file(state)
    assert [(one.rows, one.head, one.epoch) for one in found] == [(7, "ab" * 32, 2)] * 2
    assert trouble == [f"{anchors.FILE}: line 2 is none of ours"]
    file.unlink()
    assert anchors.from_file(state)[0] == []
    file.symlink_to("/etc/passwd")
    assert "not read" in anchors.from_file(state)[1][0]
    with pytest.raises(Exception, match="symlink"):
        anchors.append(state, NOTED)


def test_years_of_anchors_do_not_fill_the_disk(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchors, "MAX_FILE_BYTES", 4000)
    monkeypatch.setattr(anchors, "KEPT_BYTES", 1000)
    for number in range(1, 60):
        anchors.append(state, Noted(at_ms=number, rows=number, head="c" * 64, epoch=1))
    found, trouble = anchors.from_file(state)
    assert found[-1].rows == 59
    assert trouble == []
    assert Path(state, anchors.FILE).stat().st_size <= 4200


def test_the_journal_gets_each_head_in_its_own_fields(state: str) -> None:
    listening = f"{state}/journal"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(listening)
        journal.settimeout(5)
        assert anchors.to_journal(state, NOTED, socket_path=listening)
        got = journal.recv(65536).decode()
    fields = dict(part.split("=", 1) for part in got.strip().split("\n"))
    assert fields["UPCALL_AUDIT_ROWS"] == "7"
    assert fields["UPCALL_AUDIT_HEAD"] == "ab" * 32
    assert fields["UPCALL_AUDIT_EPOCH"] == "2"
    assert fields["SYSLOG_IDENTIFIER"] == "upcall"
    assert fields["MESSAGE_ID"] == anchors.MESSAGE_ID
    assert fields["MESSAGE"] == f"upcall audit 7:{'ab' * 32}"
    assert state not in got
    assert not anchors.to_journal(state, NOTED, socket_path=f"{state}/nobody")


def test_the_journal_is_read_by_absolute_path_and_of_this_user_alone(state: str) -> None:
    entry = {
        "UPCALL_AUDIT_ROWS": "7",
        "UPCALL_AUDIT_HEAD": "ab" * 32,
        "UPCALL_AUDIT_EPOCH": "2",
        "__REALTIME_TIMESTAMP": str(START_MS * 1000),
    }
    program = Path(state, "journalctl")
    program.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {state}/argv\nenv > {state}/env\n"
        f"echo '{json.dumps(entry)}'\necho 'not json'\necho '{{\"UPCALL_AUDIT_ROWS\": [1]}}'\n"
    )
    program.chmod(0o755)
    found, trouble = anchors.from_journal(state, programs=["/nowhere/journalctl", str(program)])
    assert trouble == []
    assert [(one.rows, one.at_ms, one.epoch) for one in found] == [(7, START_MS, 2)]
    said = Path(state, "argv").read_text().split("\n")
    assert f"_UID={os.geteuid()}" in said
    assert f"UPCALL_STORE={anchors.store_name(state)}" in said
    assert "UPCALL_STATE" not in Path(state, "env").read_text()
    assert all(path.startswith("/") for path in anchors.JOURNALCTL)
    for broken in ("exit 1", "kill -9 $$", "head -c 100 /dev/zero"):
        program.write_text(f"#!/bin/sh\n{broken}\n")
        assert anchors.from_journal(state, programs=[str(program)])[0] == []
    assert "no journalctl" in anchors.from_journal(state, programs=["/nowhere"])[1][0]


@pytest.mark.asyncio
async def test_the_head_is_noted_daily_and_at_every_answer_to_a_permission(state: str) -> None:
    clock = FakeClock()
    said: list[Noted] = []
    store = Store.open(f"{state}/hub.db")
    anchoring = Anchoring(store, state, clock=clock, log=Log(), say=said.append, journal=False)
    store.on_audit = anchoring.look

    async def until(count: int) -> list[Noted]:
        async with asyncio.timeout(10):
            while len(said) < count:
                await asyncio.sleep(0)
        return said

    task = asyncio.create_task(anchoring.run())
    await store.commit([line(1, "raised")])
    assert (await until(1))[0].why == "daily"  # the first line ever
    await store.commit([line(2, "claimed")])
    await store.commit([line(3, "claimed", permission=True)])
    noted = (await until(2))[1]
    assert (noted.why, noted.rows, noted.head) == ("permission", 3, store.audit_head)
    await store.commit([line(4, "closed")])
    await clock.advance(86_400)
    assert (await until(3))[2].why == "daily"
    await clock.advance(86_400)
    await store.commit([line(5, "closed", permission=True)])
    assert (await until(4))[3].rows == 5  # and none for the day on which nothing happened
    clock.step_wall(-3_600_000)
    await store.commit([line(6)])
    assert (await until(5))[4].rows == 6  # a clock that was set back puts nothing off
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()
    found, _ = anchors.from_file(state)
    assert [one.rows for one in found] == [1, 3, 4, 5, 6]
    assert look(f"{state}/hub.db", *found).anchors == {anchors.FILE: 5}


def test_the_line_in_a_channel_is_posted_where_the_hub_speaks_and_nowhere_else() -> None:
    rig = Rig(channel("chat", repeat="by_key", buttons=8), channel("other"))
    words = anchors.words(NOTED)
    rig.do(AuditAnchored(at=rig.now, channel="chat", text=words, effect="anchor:1:7"))
    posts = [row for row in rig.sending() if row.kind == "post"]
    assert [(row.target, row.lane) for row in posts] == [("chat", "idle")]
    assert words.encode() in posts[0].body
    assert _given(words).rows == 7
    rig.do(AuditAnchored(at=rig.now, channel="gone", text=words, effect="anchor:1:8"))
    assert len([row for row in rig.sending() if row.kind == "post"]) == 1


@pytest.mark.parametrize("name", ["web", "terminal", "telegrm"])
def test_only_a_configured_chat_can_keep_anchors(name: str) -> None:
    text = f'[channels.telegram]\nadapter = "telegram"\n[audit]\nanchor_channel = "{name}"\n'
    with pytest.raises(ConfigInvalid, match="anchor_channel"):
        parse(text.encode(), "c.toml")
    kept = parse(text.replace(name, "telegram").encode(), "c.toml")
    assert kept.audit.anchor_channel == "telegram"


# --- real hubs -----------------------------------------------------------------------------


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        # The journal of the computer that runs the tests is not ours to write to.
        made.write_config("[audit]\njournal = false\n")
        yield made


def checked(home: Home, *more: str) -> Json:
    """Return what `upcall log --verify` finds, whose exit code has to fit."""
    done = home.run("log", "--verify", "--json", *more)
    assert done.code == (0 if done.json["ok"] else 1), done
    return done.json


def found(verdict: Json) -> list[tuple[str, int]]:
    return [(one["kind"], one["row"]) for one in verdict["problems"]]


def let_local_answers_count(home: Home) -> None:
    home.write_config('[policy]\nlocal_answers = "any"\n[audit]\njournal = false\n')


def test_every_answer_to_a_permission_is_anchored_and_status_says_the_head(home: Home) -> None:
    let_local_answers_count(home)
    home.start_hub()
    asking = home.start("confirm", "Deploy?")
    home.run("answer", asking.asked(), "yes")
    assert asking.end().code == 0
    file = f"{home.state}/audit.anchors"

    def noted() -> list[Json]:
        if not os.path.exists(file):
            return []
        kept = [json.loads(one) for one in Path(file).read_text().splitlines()]
        return [one for one in kept if one["why"] == "permission"]

    last = eventually(noted, what="an anchor")[-1]
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    rows = home.rows("SELECT hash, event FROM audit WHERE id = ?", last["rows"])
    assert rows[0][0].hex() == last["head"]
    assert rows[0][1] in {"claimed", "sent", "closed", "card_closed"}
    status = home.run("hub", "status", "--json").json["store"]
    newest = home.rows("SELECT id, hash, at_ms FROM audit ORDER BY id DESC LIMIT 1")[0]
    assert status["audit"] == {
        "rows": newest[0],
        "hash": newest[1].hex(),
        "at_ms": newest[2],
    }
    verdict = checked(home)
    assert verdict["ok"]
    assert verdict["anchors"]["audit.anchors"] >= 1
    assert verdict["anchors"]["running hub"] == 1


def test_yesterdays_file_is_named_by_the_command_with_anchors_and_not_without(
    home: Home,
) -> None:
    home.start_hub()
    home.hand_over("First?", "-o", "yes")
    home.run("hub", "stop")
    old = f"{home.path}/old.db"
    shutil.copy(f"{home.state}/hub.db", old)
    head = checked(home)
    home.start_hub()
    second = home.hand_over("Second?", "-o", "yes")
    home.run("answer", second, "yes")
    home.run("hub", "stop")
    newest = checked(home)
    assert newest["ok"]
    assert checked(home, "--anchor", f"{head['rows']}:{head['head']}")["ok"]
    shutil.copy(old, f"{home.state}/hub.db")
    verdict = checked(home)
    assert found(verdict) == [("rewound", head["rows"] + 1)]
    assert "hub.db.epoch" in verdict["problems"][0]["msg"]
    in_words = home.run("log", "--verify")
    assert in_words.code == 1
    assert "WRONG" in in_words.out
    os.unlink(f"{home.state}/hub.db.epoch")
    os.unlink(f"{home.state}/audit.anchors")
    blind = checked(home)
    assert blind["ok"]
    assert blind["anchors"] == {}
    assert "could have written all of it anew" in home.run("log", "--verify").out
    # A head that a person noted in a chat shows it all the same.
    noted = f"{newest['rows']}:{newest['head'][:16]}"
    assert found(checked(home, "--anchor", noted)) == [("rewound", head["rows"] + 1)]
    # Nor is a database that is gone altogether whole.
    os.unlink(f"{home.state}/hub.db")
    assert found(checked(home, "--anchor", noted)) == [("removed", 1)]
    assert home.run("log", "--verify").code == 1


def test_a_restore_is_named_and_is_no_damage(home: Home) -> None:
    let_local_answers_count(home)
    home.start_hub()
    home.hand_over("First?", "-o", "yes")
    file = f"{home.path}/x.backup"
    home.run("hub", "backup", file)
    asking = home.start("confirm", "Deploy?")
    home.run("answer", asking.asked(), "yes")
    asking.end()
    home.run("hub", "stop")
    before = checked(home)
    assert before["ok"]
    assert home.run("hub", "restore", file, "--yes").code == 0
    verdict = checked(home, "--anchor", f"{before['rows']}:{before['head']}")
    assert verdict["ok"], verdict
    assert any("replaced by a backup" in note for note in verdict["notes"])
    assert any("was replaced at row" in text for text in verdict["unread"]), verdict


def test_a_database_made_anew_says_so_in_its_first_row(home: Home) -> None:
    home.start_hub()
    home.hand_over("First?", "-o", "yes")
    home.run("hub", "stop")
    rows = checked(home)["rows"]
    os.unlink(f"{home.state}/hub.db")
    home.start_hub()
    assert home.rows("SELECT event FROM audit WHERE id = 1") == [("begun_anew",)]
    verdict = checked(home)
    assert verdict["ok"], verdict
    assert f"had come to row {rows}" in verdict["notes"][0]


def test_verify_takes_no_filter_and_an_anchor_goes_with_nothing_else(home: Home) -> None:
    for words in (
        ("--verify", "--ask", "a7q2"),
        ("--verify", "--follow"),
        ("--anchor", "1:00000000"),
        ("--verify", "--anchor", "nonsense"),
    ):
        assert home.run("log", *words).code == 2, words
    nothing = home.run("log", "--verify", "--json")
    assert nothing.code == 1
    assert nothing.json["error"]["code"] == "store_missing"


def test_a_chat_keeps_the_head_and_what_it_kept_can_be_checked() -> None:
    config = '[audit]\nanchor_channel = "fakechat"\njournal = false\n'
    with FakeChat() as chat, ChatHome(chat, config=config) as home:
        home.start_chat_hub()
        asking = home.start("confirm", "Deploy?")
        card = chat.card("Deploy?")
        assert chat.receipt(chat.press(card, "Yes"))["ok"]
        assert asking.end().code == 0

        def noted() -> list[str]:
            return [found for one in chat.shown("audit ") for found in HEAD.findall(one.text)]

        chat.until(lambda: len(noted()) > 1, what="the day's head, and the answer's")
        home.run("hub", "stop")
        assert checked(home, *(f"--anchor={one}" for one in noted()))["ok"]
        newest = noted()[-1].partition(":")[0]
        change(f"{home.state}/hub.db", f"DELETE FROM audit WHERE id >= {newest}")
        for file in ("hub.db.epoch", "audit.anchors"):
            os.unlink(f"{home.state}/{file}")
        assert checked(home)["ok"]
        assert found(checked(home, "--anchor", noted()[-1])) == [("truncated", int(newest))]


HEAD = re.compile(r"audit (\d+:[0-9a-f]{64})")
