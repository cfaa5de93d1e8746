"""Going back to a backup: a new epoch, in which nothing from before counts as an answer.

The new database is made whole beside the old one and then renamed into its place, so that a
crash at any moment leaves one of the two. The caller holds the hub's lock.
"""

import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import upcall
from upcall.hub.store import backup, epoch, files, migrate
from upcall.hub.store.backup import Found
from upcall.hub.store.errors import StoreError, explained
from upcall.hub.store.rows import RowWriter, retire_buttons, retire_tokens, token_digest
from upcall.model.ids import AskId, Revision, SessionId, new_hosted_session_id
from upcall.model.rows import (
    RESTORED_ASKING,
    AuditRow,
    InboundRow,
    NoticeRow,
    SessionRow,
    in_epoch,
)
from upcall.model.text import visible

# Ids that were given to sessions after the backup was made must never be given again.
ID_GAP: Final = 1_000_000
_OUTCOME: Final = (
    "outcome, body, answer, answered_by, resolved_by, closed_ms, rerun_key, revision"
)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    Attributes:
        epoch: the one that has begun.
        replaced: where the former database is kept, or None if there was none.
        again: asks that were open in the backup; their programs are asked.
        carried: asks that were open in the backup and had ended since, as the replaced
            database says; they stay ended.
        lost_after_ms: what happened later than this is lost, or None if nothing ever did.
    """

    epoch: int
    replaced: str | None
    again: int
    carried: int
    lost_after_ms: int | None


def restore(
    db_path: str, source: Found, *, now_ms: int, machine: str, scripts: dict[int, str]
) -> Restored:
    """Put what *source* holds in the place of the database at *db_path*. Blocks.

    Args:
        db_path: the hub's database; it may be missing or damaged.
        source: a database that `backup.look` has read through; it may be that very one.
        now_ms: wall clock time.
        machine: this computer.
        scripts: the numbered schema scripts.

    Raises:
        StoreError: it cannot be done; the database is as before.
        OSError: as well.
    """
    temporary = f"{db_path}.restoring"
    _clear(temporary)
    try:
        _make_empty(temporary)
        backup.copy(source.path, temporary)
        former = _former(db_path, now_ms)
        done = _renewed(temporary, db_path, source, former, now_ms, machine, scripts)
        _sync(temporary)
        replaced = _set_aside(db_path, now_ms)
        os.replace(temporary, db_path)
        epoch.sync_folder(db_path)
    except sqlite3.Error as error:
        raise explained(error, db_path) from error
    finally:
        _clear(temporary)
    _note(db_path)
    return Restored(
        epoch=done.epoch,
        replaced=replaced,
        again=done.again,
        carried=done.carried,
        lost_after_ms=source.last_ms,
    )


@dataclass(frozen=True, slots=True)
class _Stops:
    """Whose rights were taken, and the lock, if there is one."""

    revoked: tuple[tuple[str, int], ...]
    lock: tuple[tuple[int, int, str, str, str], ...]


@dataclass(frozen=True, slots=True)
class _Former:
    """What is known of the database that is replaced; nothing if it cannot be read."""

    epoch: int = 0
    lines: int = 0
    head: str = ""
    last_ids: tuple[int, int] = (0, 0)
    ended: tuple[tuple[str, tuple[object, ...]], ...] = ()
    retired: tuple[tuple[bytes, str, str, str, int], ...] = ()
    stops: _Stops | None = None


def _former(db_path: str, now_ms: int) -> _Former:
    with suppress(StoreError, OSError, sqlite3.Error):
        connection = backup.open_source(db_path)
        try:
            (inbound,) = connection.execute("SELECT max(id) FROM inbound").fetchone()
            (notice,) = connection.execute("SELECT max(id) FROM notice").fetchone()
            ended = connection.execute(
                f"SELECT public_id, {_OUTCOME} FROM ask WHERE state = 'closed'"  # noqa: S608
            ).fetchall()
            return _Former(
                epoch.epoch_of(connection) or 0,
                *epoch.newest_line(connection),
                (inbound or 0, notice or 0),
                tuple((row[0], tuple(row[1:])) for row in ended),
                _buttons(connection, now_ms),
                _stops(connection),
            )
        finally:
            connection.close()
    return _Former()


def _stops(connection: sqlite3.Connection) -> _Stops | None:
    with suppress(sqlite3.Error):
        return _Stops(
            tuple(connection.execute("SELECT name, at_ms FROM revoked")),
            tuple(connection.execute("SELECT id, at_ms, name, channel, reason FROM hub_lock")),
        )
    return None


def _keep_stopped(connection: sqlite3.Connection, former: _Former) -> None:
    """Going back gives nobody rights that were taken since, and opens no lock."""
    if former.stops is None:
        return
    connection.execute("DELETE FROM revoked")
    connection.executemany(
        "INSERT INTO revoked (name, at_ms) VALUES (?, ?)", former.stops.revoked
    )
    connection.execute("DELETE FROM hub_lock")
    connection.executemany(
        "INSERT INTO hub_lock (id, at_ms, name, channel, reason) VALUES (?, ?, ?, ?, ?)",
        former.stops.lock,
    )


def _buttons(
    connection: sqlite3.Connection, now_ms: int
) -> tuple[tuple[bytes, str, str, str, int], ...]:
    """Return digests of all buttons of the replaced database; none if it is an older one."""
    found: list[tuple[bytes, str, str, str, int]] = []
    with suppress(sqlite3.Error):
        found += connection.execute(
            "SELECT digest, ask, channel, place, retired_ms FROM retired_token"
        )
        found += [
            (token_digest(token), *rest, now_ms)
            for token, *rest in connection.execute(
                "SELECT token, ask, channel, place FROM hub_button"
            )
        ]
    with suppress(sqlite3.Error):
        found += [
            (token_digest(token), public_id, channel, place or "", now_ms)
            for token, public_id, channel, place in connection.execute(
                "SELECT t.token, a.public_id, t.channel, (SELECT max(c.place) FROM card c"
                " WHERE c.ask = t.ask AND c.channel = t.channel)"
                " FROM token t JOIN ask a ON a.id = t.ask"
            )
        ]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Renewed:
    epoch: int
    again: int
    carried: int


def _renewed(
    temporary: str,
    db_path: str,
    source: Found,
    former: _Former,
    now_ms: int,
    machine: str,
    scripts: dict[int, str],
) -> _Renewed:
    beside = epoch.read(db_path)
    number = max(source.epoch, former.epoch, beside.epoch if beside else 0) + 1
    with _opened(temporary) as connection:
        migrate.migrate(connection, temporary, scripts, keeps_backup=False)
        connection.execute("BEGIN IMMEDIATE")
        writer = RowWriter(connection, str, bytes.fromhex(source.head or "00" * 32))
        writer.write(
            AuditRow(
                at_ms=now_ms,
                event="restored",
                ask_id=None,
                session_id=None,
                facts={
                    "epoch": number,
                    "from_head": source.head,
                    "from_lines": source.lines,
                    "replaced_head": former.head,
                    "replaced_lines": former.lines,
                },
            )
        )
        carried = _carry_over(connection, writer, former, now_ms)
        again = _ask_again(connection, number)
        _drop_old(connection, former, number, now_ms)
        _keep_stopped(connection, former)
        _leave_a_gap(connection, writer, former, number, now_ms)
        _tell(connection, writer, former, source, again, now_ms)
        for name, value in (
            ("epoch", str(number)),
            ("machine", machine),
            ("version", upcall.__version__),
            ("end", "clean"),
        ):
            epoch.set_meta(connection, name, value)
        connection.execute("COMMIT")
    return _Renewed(number, again, carried)


def _carry_over(
    connection: sqlite3.Connection, writer: RowWriter, former: _Former, now_ms: int
) -> int:
    """What ended since the backup stays ended: its program has its answer."""
    still_open = {
        row[0]: row[1]
        for row in connection.execute(
            "SELECT a.public_id, s.session_id FROM ask a JOIN session s ON s.id = a.session"
            " WHERE a.state <> 'closed'"
        )
    }
    carried = 0
    sets = ", ".join(f"{name.strip()} = ?" for name in _OUTCOME.split(","))
    for public_id, values in former.ended:
        if public_id not in still_open:
            continue
        connection.execute(
            f"UPDATE ask SET state = 'closed', note = '', {sets} WHERE public_id = ?",  # noqa: S608
            (*values, public_id),
        )
        writer.write(
            AuditRow(
                at_ms=now_ms,
                event="ended_before_restore",
                ask_id=AskId(public_id),
                session_id=SessionId(still_open[public_id]),
                facts={"outcome": str(values[0])},
            )
        )
        carried += 1
    return carried


def _ask_again(connection: sqlite3.Connection, number: int) -> int:
    asks = connection.execute("SELECT id, revision FROM ask WHERE state <> 'closed'").fetchall()
    for ask, revision in asks:
        connection.execute(
            "UPDATE ask SET state = 'open', revision = ?, note = ? WHERE id = ?",
            (in_epoch(Revision(revision), number), RESTORED_ASKING, ask),
        )
    return len(asks)


def _drop_old(
    connection: sqlite3.Connection, former: _Former, number: int, now_ms: int
) -> None:
    """Logins, buttons, claims, and all that was on its way in or out, are of the past.

    A button from before is known for what it is, also one that was made after the backup.
    """
    retire_tokens(connection, "1", (), now_ms)
    retire_buttons(connection, "1", (), now_ms)
    connection.executemany(
        "INSERT INTO retired_token (digest, ask, channel, place, retired_ms)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        former.retired,
    )
    for statement in (
        "DELETE FROM token",
        "DELETE FROM hub_button",
        "DELETE FROM held_text",
        "DELETE FROM card_copy WHERE ask IN (SELECT id FROM ask WHERE state <> 'closed')",
        "DELETE FROM web_login",
        "UPDATE claim SET live = 0 WHERE live = 1",
        "UPDATE vote SET live = 0 WHERE live = 1",
        "DELETE FROM card WHERE ask IN (SELECT id FROM ask WHERE state <> 'closed')",
        "UPDATE delivery SET state = 'done', body = x'', error = 'restored from a backup'"
        " WHERE state NOT IN ('done', 'dead')",
        "DELETE FROM gate",
    ):
        connection.execute(statement)
    # The same effects are wanted again, as new ones.
    connection.execute("UPDATE delivery SET effect = effect || '@' || ?", (f"{number}",))


def _leave_a_gap(
    connection: sqlite3.Connection,
    writer: RowWriter,
    former: _Former,
    number: int,
    now_ms: int,
) -> None:
    (last,) = connection.execute("SELECT max(id) FROM inbound").fetchone()
    writer.write(
        InboundRow(
            id=max(last or 0, former.last_ids[0]) + ID_GAP,
            channel="hub",
            event_key=f"restored:{number}",
            content_key="",
            at_ms=now_ms,
        )
    )


def _tell(
    connection: sqlite3.Connection,
    writer: RowWriter,
    former: _Former,
    source: Found,
    again: int,
    now_ms: int,
) -> None:
    session = SessionRow(
        session_id=new_hosted_session_id(secrets.token_bytes(8)),
        kind="hosted",
        conversation="hub",
        title="upcall",
        program="upcall hub restore",
        started_ms=now_ms,
        ended_ms=now_ms,
    )
    writer.write(session)
    (last,) = connection.execute("SELECT max(id) FROM notice").fetchone()
    when = "an empty one" if source.last_ms is None else f"one of {said(source.last_ms)}"
    asked = f"{again} open question{'' if again == 1 else 's'}"
    writer.write(
        NoticeRow(
            id=max(last or 0, former.last_ids[1]) + 1,
            session_id=session.session_id,
            kind="security",
            text=(
                f"The database was replaced by {when}. Answers, questions and logins since "
                f"then are gone; nothing pressed before counts. The programs of {asked} "
                "are asked whether they still wait."
            ),
            at_ms=now_ms,
        )
    )


def said(at_ms: int) -> str:
    """Return a time in words, such as `2026-05-04 14:02`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_ms / 1000))


def _set_aside(db_path: str, now_ms: int) -> str | None:
    """Copy the former database and its log beside it; then let nothing of its log be left."""
    try:
        files.check(os.lstat(db_path), db_path)
    except FileNotFoundError:
        _clear_companions(db_path)
        return None
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(db_path, isolation_level=None)
        try:
            connection.execute("PRAGMA secure_delete = ON")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StoreError(
                    f"another program reads {visible(db_path)}",
                    code="store_busy",
                    recover="end that program, then repeat the command",
                )
        finally:
            connection.close()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_ms / 1000))
    aside = _free(f"{db_path}.replaced-{stamp}")
    for suffix in ("", *files.COMPANIONS):
        if os.path.lexists(db_path + suffix):
            _copy_file(db_path + suffix, aside + suffix)
    epoch.sync_folder(db_path)
    # A log of the former database must not be taken for one of the new.
    _clear_companions(db_path)
    return aside


def _copy_file(path: str, target: str) -> None:
    files.check(os.lstat(path), path)
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(source, "rb") as reading:
        _make_empty(target)
        writing = os.open(target, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(writing, "wb") as to:
            shutil.copyfileobj(reading, to)
            to.flush()
            os.fsync(to.fileno())


def _free(path: str) -> str:
    number, found = 1, path
    while os.path.lexists(found):
        number += 1
        found = f"{path}-{number}"
    return found


def _make_empty(path: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _clear(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
    _clear_companions(path)


def _clear_companions(path: str) -> None:
    for suffix in files.COMPANIONS:
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _note(db_path: str) -> None:
    with _opened(db_path) as connection:
        mark = epoch.current(connection)
    epoch.write(db_path, mark)


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        yield connection
    finally:
        connection.close()


def replaced_words(restored: Restored) -> str:
    """Return where the former database is, for a person."""
    if restored.replaced is None:
        return "there was no database before"
    return f"the former database is kept as {visible(restored.replaced)}"
