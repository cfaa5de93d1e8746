"""Migrations: numbered, forward only, with a backup; what is newer or foreign is refused."""

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import upcall
from upcall.hub.store import Store, StoreError, migrate
from upcall.model.ids import SessionId
from upcall.model.rows import SessionRow

ROW = SessionRow(session_id=SessionId("s1"), kind="sdk", conversation="c")
SECOND = "CREATE TABLE later (id INTEGER PRIMARY KEY) STRICT; INSERT INTO later VALUES (1);"


@pytest.fixture
def path() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="us", dir="/tmp")
    yield f"{folder}/hub.db"
    shutil.rmtree(folder)


def raw(path: str, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(sql).fetchall()
        connection.commit()
        return rows
    finally:
        connection.close()


def schema_of(*scripts: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(":memory:")
    try:
        for script in scripts:
            connection.executescript(script)
        return connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
        ).fetchall()
    finally:
        connection.close()


async def filled(path: str) -> None:
    store = Store.open(path)
    await store.commit([ROW])
    await store.close()


def refusal(path: str, scripts: dict[int, str] | None = None) -> StoreError:
    with pytest.raises(StoreError) as caught:
        Store.open(path, scripts=scripts)
    return caught.value


def test_the_latest_schema_is_what_the_numbered_steps_lead_to() -> None:
    steps = migrate.steps()
    assert list(steps) == list(range(1, len(steps) + 1))
    assert schema_of(migrate.latest()) == schema_of(*steps.values())


def test_every_table_is_strict_with_an_integer_key() -> None:
    for kind, name, _, sql in schema_of(migrate.latest()):
        if kind == "table":
            assert str(sql).endswith("STRICT"), name
            assert "id INTEGER PRIMARY KEY" in str(sql), name


@pytest.mark.asyncio
async def test_a_new_database_bears_our_mark_and_its_version(path: str) -> None:
    await filled(path)
    assert raw(path, "PRAGMA application_id") == [(migrate.APPLICATION_ID,)]
    assert raw(path, "PRAGMA user_version") == [(max(migrate.steps()),)]
    assert raw(path, "PRAGMA journal_mode") == [("wal",)]
    assert not [name for name in os.listdir(os.path.dirname(path)) if "before" in name]


@pytest.mark.asyncio
async def test_an_older_database_is_backed_up_and_brought_forward(path: str) -> None:
    await filled(path)
    newest = max(migrate.steps())
    backup = f"{path}.before-{upcall.__version__}"
    # A former attempt may have left something behind.
    Path(f"{backup}.part").write_bytes(b"half")
    umask = os.umask(0)
    try:
        store = Store.open(path, scripts={**migrate.steps(), newest + 1: SECOND})
    finally:
        os.umask(umask)
    assert store.snapshot().sessions == [ROW]
    await store.close()
    assert raw(path, "SELECT * FROM later") == [(1,)]
    assert raw(path, "PRAGMA user_version") == [(newest + 1,)]
    assert stat.S_IMODE(os.stat(backup).st_mode) == 0o600
    assert sorted(os.listdir(os.path.dirname(path))) == [
        "hub.db",
        f"hub.db.before-{upcall.__version__}",
    ]
    os.rename(backup, path)
    store = Store.open(path)
    assert store.snapshot().sessions == [ROW]
    await store.close()


@pytest.mark.asyncio
async def test_a_step_that_fails_leaves_the_database_as_it_was(path: str) -> None:
    await filled(path)
    newest = max(migrate.steps())
    scripts = {**migrate.steps(), newest + 1: f"{SECOND} SELECT no_such_column FROM later;"}
    assert refusal(path, scripts).code == "store_failed"
    store = Store.open(path)
    assert store.snapshot().sessions == [ROW]
    await store.close()
    assert raw(path, "SELECT count(*) FROM sqlite_master WHERE name = 'later'") == [(0,)]


@pytest.mark.asyncio
async def test_a_backup_never_replaces_what_is_not_ours(path: str) -> None:
    await filled(path)
    newest = max(migrate.steps())
    os.symlink("/nowhere", f"{path}.before-{upcall.__version__}")
    error = refusal(path, {**migrate.steps(), newest + 1: SECOND})
    assert error.code == "store_foreign"
    assert os.path.islink(f"{path}.before-{upcall.__version__}")


@pytest.mark.asyncio
async def test_a_backup_that_fails_leaves_no_half_of_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(path)
    newest = max(migrate.steps())

    def failing(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("upcall.hub.store.migrate.os.replace", failing)
    error = refusal(path, {**migrate.steps(), newest + 1: SECOND})
    assert error.code == "store_full"
    assert os.listdir(os.path.dirname(path)) == ["hub.db"]


@pytest.mark.asyncio
async def test_a_newer_database_is_refused_naming_both_versions(path: str) -> None:
    await filled(path)
    raw(path, "PRAGMA user_version = 93")
    before = Path(path).read_bytes()
    error = refusal(path)
    assert error.code == "store_newer"
    assert "schema 93" in error.msg
    assert f"schema {max(migrate.steps())}" in error.msg
    assert "upgrade" in (error.recover or "")
    assert Path(path).read_bytes() == before


@pytest.mark.asyncio
async def test_an_impossible_version_is_corrupt(path: str) -> None:
    await filled(path)
    raw(path, "PRAGMA user_version = 0")
    assert refusal(path).code == "store_corrupt"


def test_another_programs_database_is_refused_untouched(path: str) -> None:
    raw(path, "CREATE TABLE theirs (a)")
    os.chmod(path, 0o600)
    before = Path(path).read_bytes()
    assert refusal(path).code == "store_foreign"
    assert Path(path).read_bytes() == before
    assert os.listdir(os.path.dirname(path)) == ["hub.db"]


def test_an_sqlite_that_is_too_old_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "MIN_SQLITE", (99, 0, 0))
    error = refusal(path)
    assert error.code == "sqlite_too_old"
    assert sqlite3.sqlite_version in error.msg
