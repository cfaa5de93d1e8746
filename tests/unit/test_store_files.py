"""The store's file: private, ours alone, whole; and refused in words when it is not."""

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from upcall.hub.store import Store, StoreError, db
from upcall.model.ids import SessionId
from upcall.model.rows import SessionRow


@pytest.fixture
def folder() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="us", dir="/tmp")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def path(folder: str) -> str:
    return f"{folder}/hub.db"


def session(name: str = "s1") -> SessionRow:
    return SessionRow(session_id=SessionId(name), kind="sdk", conversation="c")


def raw(path: str, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(sql).fetchall()
        connection.commit()
        return rows
    finally:
        connection.close()


@pytest.mark.asyncio
async def test_files_are_private_whatever_the_umask(path: str) -> None:
    umask = os.umask(0)
    try:
        store = Store.open(path)
        await store.commit([session()])
        await store.notices(1)
        modes = {
            suffix: stat.S_IMODE(os.stat(path + suffix).st_mode)
            for suffix in ("", "-wal", "-shm")
        }
        assert os.umask(0) == 0
        await store.close()
    finally:
        os.umask(umask)
    assert modes == {"": 0o600, "-wal": 0o600, "-shm": 0o600}


def refusal(path: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        Store.open(path)
    assert caught.value.recover
    return caught.value


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("symlink", "store_foreign"),
        ("dangling", "store_foreign"),
        ("linked", "store_foreign"),
        ("fifo", "store_foreign"),
        ("folder", "store_foreign"),
        ("loose", "store_not_private"),
    ],
)
def test_a_file_that_is_not_ours_alone_is_refused_untouched(
    path: str, folder: str, suffix: str, kind: str, code: str
) -> None:
    target, other = path + suffix, Path(folder, "other")
    if kind != "dangling":
        other.write_bytes(b"precious")
        other.chmod(0o600)
    match kind:
        case "symlink" | "dangling":
            os.symlink(other, target)
        case "linked":
            os.link(other, target)
        case "fifo":
            os.mkfifo(target, 0o600)
        case "folder":
            os.mkdir(target, 0o700)
        case _:
            os.rename(other, target)
            os.chmod(target, 0o640)
            other = Path(target)
    error = refusal(path)
    assert error.code == code
    assert target in error.msg
    assert other.exists() == (kind != "dangling")
    if kind != "dangling":
        assert other.read_bytes() == b"precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(path: str) -> None:
    Path(path).touch(0o600)
    os.chown(path, 65534, 65534)
    assert refusal(path).code == "store_foreign"


def test_a_file_that_is_swapped_while_it_is_opened_is_refused(
    path: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = db._connect

    def swapping(name: str, mode: str) -> sqlite3.Connection:
        os.rename(name, f"{folder}/real")
        Path(name).touch(0o600)
        return plain(name, mode)

    monkeypatch.setattr(db, "_connect", swapping)
    error = refusal(path)
    assert error.code == "store_foreign"
    assert Path(path).stat().st_size == 0


def test_a_loose_folder_is_refused(path: str, folder: str) -> None:
    os.chmod(folder, 0o755)
    assert refusal(path).code == "folder_not_private"
    assert not os.path.exists(path)


def test_a_network_file_system_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.hub.store.files.is_network_filesystem", lambda _: "nfs4")
    error = refusal(path)
    assert error.code == "state_not_local"
    assert "nfs4" in error.msg


def test_what_is_no_database_is_refused_untouched(path: str) -> None:
    Path(path).write_bytes(b"not a database, " * 100)
    os.chmod(path, 0o600)
    error = refusal(path)
    assert error.code == "store_corrupt"
    assert f"mv {path} {path}.damaged" in (error.recover or "")
    assert Path(path).read_bytes() == b"not a database, " * 100


@pytest.mark.asyncio
async def test_damage_is_found_when_the_last_hub_did_not_close(path: str) -> None:
    store = Store.open(path)
    await store.commit([session(), *(session(f"x{number}") for number in range(400))])
    await store.close()
    size = os.stat(path).st_size
    (page,) = raw(
        path, "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_session_1'"
    )[0]
    assert isinstance(page, int)
    assert size > page * 4096
    raw(path, "UPDATE meta SET value = 'open' WHERE name = 'end'")
    with open(path, "r+b") as file:
        file.seek((page - 1) * 4096 + 8)
        file.write(b"\xff" * 600)
    assert refusal(path).code == "store_corrupt"


@pytest.mark.asyncio
async def test_a_store_without_its_own_tables_is_corrupt(path: str) -> None:
    store = Store.open(path)
    await store.close()
    raw(path, "DROP TABLE meta")
    assert refusal(path).code == "store_corrupt"


@pytest.mark.asyncio
async def test_a_file_that_another_program_holds_is_named(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(path)
    await store.close()
    monkeypatch.setattr(db, "BUSY_TIMEOUT_MS", 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert refusal(path).code == "store_busy"
    other.close()
