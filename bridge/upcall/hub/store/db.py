"""The connection, its one writer thread, group commit, and the end at the first failure."""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

import upcall
from upcall.clock import SystemClock
from upcall.hub.store import audit, epoch, erase, files, migrate, read, retention
from upcall.hub.store.errors import StoreError, corrupt, explained
from upcall.hub.store.known import KnownIds
from upcall.hub.store.rows import AUDIT_TRIMMED, Mask, RowWriter
from upcall.model.effects import Write
from upcall.model.ids import SessionId
from upcall.model.log import LogLine
from upcall.model.platform import LoginKept, Place
from upcall.model.rows import (
    AskRow,
    AuditRow,
    NoticeRow,
    RetiredToken,
    SessionRow,
    Snapshot,
)
from upcall.model.text import visible
from upcall_discovery.paths import PathProblem

T = TypeVar("T")
Work = Callable[[RowWriter, sqlite3.Connection], None]

BUSY_TIMEOUT_MS: Final = 5000
CHECKPOINT_PATIENCE_MS: Final = 50
ERASING_PATIENCE_MS: Final = 2000
# The log is moved into the database when it has grown to about 4 MiB, or nothing is written
# for a while. SQLite's own threshold stands behind, for when readers kept us from it.
CHECKPOINT_PAGES: Final = 1024
AUTOCHECKPOINT_PAGES: Final = 4096
IDLE_CHECKPOINT_S: Final = 5.0
# What a transaction and its rows add to the log, on average, or less; measured.
_PAGES_PER_COMMIT: Final = 12
_ROWS_PER_PAGE: Final = 4


@dataclass(frozen=True, slots=True)
class _Job:
    """One caller's work, and who waits for it."""

    work: Work
    rows: int
    done: asyncio.Future[None]
    vacates: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """That the file is this computer's newest is looked at, and noted beside it.

    Attributes:
        machine: this computer, as `epoch.machine_id` tells it.
    """

    machine: str


@dataclass(frozen=True, slots=True)
class Head:
    """The newest committed line of the audit.

    Attributes:
        rows: its number, 0 without one.
        hash: its hash, hex.
        at_ms: its time.
    """

    rows: int
    hash: str
    at_ms: int | None


def _head(writer: RowWriter) -> Head:
    return Head(writer.audit_rows, writer.audit_head.hex(), writer.audit_ms)


class Store:
    """The hub's rows on disk. One process, one event loop, one `Store` for a file.

    `commit` returns after the rows are on disk. All that waits at that moment becomes one
    transaction with one fsync. The first failure is final: nothing is written any more, and
    every later call raises the same error, so that memory is never ahead of the file.

    Attributes:
        commits: transactions made for callers since it was opened.
        checkpoints: times that the log was moved into the database.
        migrated_from: backup of the file as it was before it was migrated just now, if it was.
        on_audit: told, in the event loop, of lines of the audit that were committed.
    """

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        writer: RowWriter,
        *,
        migrated_from: str | None = None,
        guarded: bool = False,
        mask: Mask = str,
    ) -> None:
        self.path = path
        self.migrated_from = migrated_from
        self._guarded = guarded
        self._noted: epoch.Mark | None = None
        self.commits = 0
        self.checkpoints = 0
        self._connection = connection
        self._writer = writer
        self._head = _head(writer)
        self._mask = mask
        self.on_audit: Callable[[Sequence[AuditRow]], None] | None = None
        self._told_rows = writer.audit_rows
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._known = KnownIds(read.ask_ids(connection))
        self._failure: StoreError | None = None
        self._closed = False
        self._log_pages = 0
        self._log_left = False
        self._reader_connection: sqlite3.Connection | None = None
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        path: str,
        *,
        max_pages: int | None = None,
        mask: Mask = str,
        scripts: dict[int, str] | None = None,
        guard: Guard | None = None,
    ) -> "Store":
        """Open the database, after making or migrating it. Blocks; call it before the loop.

        That only one hub uses the file is the caller's business (the hub's lock).

        Args:
            path: the file; its folder has to exist and be ours alone.
            max_pages: the file never grows beyond this many pages of 4 KiB.
            mask: masks credentials in the text of asks that are closed, and in the audit.
            scripts: the numbered schema scripts, for tests of migrations.
            guard: refuse a file that is not this computer's newest.

        Raises:
            StoreError: it cannot be used; see there for the codes.
        """
        path = os.path.abspath(path)
        connection = None
        # SQLite makes companion files with the mode of the database; this makes sure.
        umask = os.umask(0o077)
        try:
            identity = files.secure(path)
            connection = _connect(path, "rw")
            files.still(path, identity)
            head, kept = _prepare(
                connection, path, scripts or migrate.steps(), max_pages, guard
            )
        except StoreError:
            _close(connection)
            raise
        except PathProblem as error:
            _close(connection)
            raise StoreError(error.msg, code=error.code, recover=error.recover) from error
        except (sqlite3.Error, OSError) as error:
            _close(connection)
            raise explained(error, path) from error
        finally:
            os.umask(umask)
        rows, _, at_ms = audit.head(connection)
        writer = RowWriter(connection, mask, head, audit_rows=rows, audit_ms=at_ms)
        return cls(
            path,
            connection,
            writer,
            migrated_from=kept,
            guarded=guard is not None,
            mask=mask,
        )

    def snapshot(self, now_ms: int | None = None) -> Snapshot:
        """Return the open rows. Blocks; call it before the loop.

        Args:
            now_ms: wall clock time that inbound rows and keys are aged by; now if omitted.

        Raises:
            StoreError: the file cannot be read.
        """
        at_ms = SystemClock().wall_ms() if now_ms is None else now_ms
        return self._readers.submit(
            self._reading, lambda connection: read.snapshot(connection, at_ms)
        ).result()

    async def commit(self, writes: Sequence[Write]) -> None:
        """Return after *writes* are on disk, all of them together.

        Calls take effect in the order in which they are made. A call that is cancelled may
        still take effect.

        Raises:
            StoreError: they are not, and the store takes nothing any more.
        """
        if not writes:
            self._check()
            return
        rows = tuple(writes)
        for row in rows:
            if type(row) is AskRow:
                self._known.add(row.ask_id)

        def work(writer: RowWriter, _: sqlite3.Connection) -> None:
            for row in rows:
                writer.write(row)

        await self._do(work, len(rows))
        self._tell([row for row in rows if type(row) is AuditRow])

    async def retain(
        self,
        now_ms: int,
        *,
        text_days: int = retention.TEXT_DAYS,
        audit_days: int = retention.AUDIT_DAYS,
    ) -> None:
        """Remove what is too old to be kept, and its traces in the log file.

        Args:
            now_ms: wall clock time.
            text_days: texts and answers of closed asks, and notices, are kept so long.
            audit_days: lines of the audit, and asks without their text, are kept so long.

        Raises:
            StoreError: as for `commit`.
        """

        def work(writer: RowWriter, connection: sqlite3.Connection) -> None:
            cut = retention.retain(
                connection, now_ms, text_days=text_days, audit_days=audit_days
            )
            if cut:
                facts: dict[str, str | int | float | bool | None] = {
                    "lines": cut,
                    "days": audit_days,
                }
                writer.write(
                    AuditRow(
                        at_ms=now_ms,
                        event=AUDIT_TRIMMED,
                        ask_id=None,
                        session_id=None,
                        facts=facts,
                    )
                )

        await self._do(work, 0, vacates=True)
        self._tell([])

    async def forgettable(self, wanted: erase.Wanted) -> erase.Forgotten:
        """Return what *wanted* fits; nothing is erased."""
        return await self._read(lambda found: erase.find(found, wanted))

    async def forget(self, wanted: erase.Wanted, now_ms: int) -> erase.Forgotten:
        """Erase texts from the file and its log; the audit's lines stay.

        Raises:
            StoreError: as for `commit`; `store_busy` if the log could not be emptied, since
                another program reads the database. It is tried again later.
        """
        found = erase.Forgotten()

        def work(writer: RowWriter, connection: sqlite3.Connection) -> None:
            nonlocal found
            found = erase.forget(connection, writer, wanted, now_ms)

        await self._do(work, 0, vacates=True)
        self._tell([])
        if self._log_left:
            raise StoreError(
                f"the texts are erased, but {visible(self.path)}-wal still holds them, "
                "because another program reads the database",
                code="store_busy",
                recover="end that program, then repeat the command",
            )
        return found

    async def has_conversation(self, key: str) -> bool:
        """Tell whether any session was ever in this conversation."""
        return await self._read(lambda found: erase.has_conversation(found, key))

    async def note_head(self) -> None:
        """Note beside the file how far it has come, if that is news."""
        if self._guarded:
            await self._read(self._note)

    def _note(self, connection: sqlite3.Connection) -> None:
        mark = epoch.current(connection)
        if mark != self._noted:
            epoch.write(self.path, mark)
            self._noted = mark

    async def closed_asks(self, before_ms: int | None, limit: int) -> list[AskRow]:
        """Return asks that closed before *before_ms* (None: any), newest first."""
        return await self._read(lambda found: read.closed_asks(found, before_ms, limit))

    async def ask(self, ask_id: str) -> AskRow | None:
        """Return one ask in any state, by its public id."""
        return await self._read(lambda found: read.ask(found, ask_id))

    async def retired(self, token: str) -> RetiredToken | None:
        """Return what is known of a button that is over, by its token."""
        return await self._read(lambda found: read.retired(found, token))

    async def ask_of_card(self, place: Place, ref: str) -> AskRow | None:
        """Return the ask that the message *ref* at *place* shows, in any state."""
        return await self._read(
            lambda found: read.ask_of_card(found, place.channel, place.address, ref)
        )

    async def stored_bytes(self) -> dict[SessionId, int]:
        """Return how much is kept of each session that lives, in characters of text."""
        return await self._read(read.stored_bytes)

    def may_have(self, ask_id: str) -> bool:
        """Tell whether the file may have this ask, without reading it.

        Now and then that is a yes for one that it does not have.
        """
        return ask_id in self._known

    async def ask_like(self, prefix: str) -> list[AskRow]:
        """Return at most 20 asks in any state whose public id starts with *prefix*."""
        return await self._read(lambda found: read.asks_like(found, prefix))

    async def notices(self, limit: int) -> list[NoticeRow]:
        """Return the newest notices of sessions, newest first."""
        return await self._read(lambda found: read.notices(found, limit))

    async def sessions_by_id(self, ids: Sequence[str]) -> dict[str, SessionRow]:
        """Return the sessions among *ids* that are known, living or ended."""
        wanted = tuple(ids)
        return await self._read(lambda found: read.sessions_by_id(found, wanted))

    async def logins(self, channel: str, now_ms: int) -> list[LoginKept]:
        """Return a channel's logins and codes that have not expired, oldest first."""
        return await self._read(lambda found: read.logins(found, channel, now_ms))

    async def audit_break(self) -> int | None:
        """Return the id of the first audit line that does not follow, None if all do."""
        return await self._read(read.audit_break)

    @property
    def audit_head(self) -> str:
        """Hash (hex) of the newest committed audit line."""
        return self._head.hash

    @property
    def head(self) -> "Head":
        """The newest committed audit line."""
        return self._head

    async def mark(self) -> epoch.Mark:
        """Return epoch, number and hash of the newest audit line, as the file has them."""
        return await self._read(epoch.current)

    async def audit_lines(self, wanted: audit.Wanted) -> list[LogLine]:
        """Return lines of the audit, oldest first, each told in words."""
        return await self._read(lambda found: audit.lines(found, wanted, self._mask))

    async def audit_asks(self, name: str) -> tuple[str, ...]:
        """Return the ids of the asks that *name* means, also of those that are gone."""
        return await self._read(lambda found: audit.asks_named(found, name))

    async def audit_sessions(self, name: str) -> tuple[str, ...]:
        """Return the ids of the sessions that *name* means."""
        return await self._read(lambda found: audit.sessions_named(found, name))

    def size_bytes(self) -> int:
        """Return the size of the database and its log on disk."""
        size = 0
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                size += os.stat(self.path + suffix).st_size
        return size

    async def close(self) -> None:
        """Write what waits, then close; later calls raise `store_closed`. Idempotent."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Close from outside an event loop. Blocks."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        self._thread.join()
        self._readers.shutdown()
        if self._guarded and self._failure is None:
            # The disk may be full; what was noted before stays true.
            with suppress(sqlite3.Error, OSError, PathProblem):
                self._note(self._connection)
            self._guarded = False
        if self._reader_connection is not None:
            self._reader_connection.close()
            self._reader_connection = None
        # The last to close: it removes the companion files, which a reader can't.
        self._connection.close()

    # -- the loop's side

    def _tell(self, lines: Sequence[AuditRow]) -> None:
        """Tell who follows the audit of new lines."""
        if self.on_audit is not None and (lines or self._head.rows != self._told_rows):
            self._told_rows = self._head.rows
            self.on_audit(lines)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.again()
        if self._closed:
            raise StoreError("the store is closed", code="store_closed")

    async def _do(self, work: Work, rows: int, *, vacates: bool = False) -> None:
        self._check()
        done = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(work, rows, done, vacates))
        await done

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreError("the store is closed", code="store_closed")
        return await asyncio.get_running_loop().run_in_executor(
            self._readers, self._reading, query
        )

    # -- the reader's thread

    def _reading(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._reader_connection is None:
                self._reader_connection = _connect(self.path, "ro")
            return query(self._reader_connection)
        except sqlite3.Error as error:
            raise explained(error, self.path) from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise corrupt(self.path, str(error)) from error

    # -- the writer's thread

    def _work(self) -> None:
        open_ = True
        while open_:
            batch, open_ = self._take()
            if batch:
                self._carry_out(batch)
                vacates = any(job.vacates for job in batch)
                if not vacates:
                    _wake(batch, self._failure)
                if vacates or self._log_pages >= CHECKPOINT_PAGES:
                    self._checkpoint("TRUNCATE" if vacates else "PASSIVE", patient=vacates)
                if vacates:
                    # Who has something erased hears of it when the log holds it no more.
                    _wake(batch, self._failure)
            elif open_:
                self._checkpoint("TRUNCATE")
        if self._failure is None:
            with suppress(sqlite3.Error):
                _mark(self._connection, "clean")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _take(self) -> tuple[list[_Job], bool]:
        """Return all that waits, after waiting for it; nothing when it has been quiet."""
        # Without anything to move there is nothing to wake up for.
        patience_s = IDLE_CHECKPOINT_S if self._log_pages and self._failure is None else None
        try:
            first = self._jobs.get(timeout=patience_s)
        except queue.Empty:
            return [], True
        batch: list[_Job] = []
        while first is not None:
            batch.append(first)
            try:
                first = self._jobs.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _carry_out(self, batch: list[_Job]) -> None:
        if self._failure is None:
            try:
                self._transact(batch)
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends the store
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                self._failure = explained(error, self.path)
                self._failure.__cause__ = error

    def _transact(self, batch: list[_Job]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for job in batch:
            job.work(self._writer, self._connection)
        self._connection.execute("COMMIT")
        self.commits += 1
        writer = self._writer
        if self._head.rows != writer.audit_rows:
            self._head = _head(writer)
        self._log_pages += _PAGES_PER_COMMIT
        self._log_pages += sum(job.rows for job in batch) // _ROWS_PER_PAGE

    def _checkpoint(self, mode: str, *, patient: bool = False) -> None:
        self._log_pages = 0
        self._log_left = patient
        if self._failure is not None:
            return
        run = self._connection.execute
        patience_ms = ERASING_PATIENCE_MS if patient else CHECKPOINT_PATIENCE_MS
        # A log that could not be moved is no loss, and the next time will do; if the disk is
        # full, a commit will say so.
        with suppress(sqlite3.Error):
            run(f"PRAGMA busy_timeout = {patience_ms}")
            try:
                (busy, _, _) = run(f"PRAGMA wal_checkpoint({mode})").fetchone()
            finally:
                run(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            if busy:
                # A reader is in the way; try again when it is quiet.
                self._log_pages = 1
                return
            self._log_left = False
            self.checkpoints += 1
            # The first commit to a fresh log costs a second fsync, for the log's header. Let
            # it be this one, and not that of somebody who waits.
            _mark(self._connection, "open")


def _wake(batch: list[_Job], failure: StoreError | None) -> None:
    """Settle all futures of a batch, with one call into each event loop (there is one)."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for job in batch:
        loops.setdefault(job.done.get_loop(), []).append(job.done)
    for loop, waiting in loops.items():
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, waiting, failure)


def _settle(waiting: list[asyncio.Future[None]], failure: StoreError | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if failure is None:
            done.set_result(None)
        else:
            error = failure.again()
            error.__cause__ = failure.__cause__
            done.set_exception(error)


def _connect(path: str, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        timeout=BUSY_TIMEOUT_MS / 1000,
    )
    if mode == "ro":
        connection.execute("PRAGMA query_only = ON")
    return connection


def _prepare(
    connection: sqlite3.Connection,
    path: str,
    scripts: dict[int, str],
    max_pages: int | None,
    guard: Guard | None,
) -> tuple[bytes, str | None]:
    """Check, migrate and set up the writer's connection.

    Returns:
        The audit's head, and where the file as it was before a migration is kept.
    """
    if max_pages is not None:
        connection.execute(f"PRAGMA max_page_count = {max_pages:d}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
    _check_end(connection, path)
    kept = migrate.migrate(connection, path, scripts)
    if guard is not None:
        epoch.check(connection, path, guard.machine)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"this disk does not let SQLite keep a write-ahead log (it says {mode})",
            recover="set XDG_STATE_HOME to a folder on another local disk",
        )
    _mark(connection, "open")
    if epoch.meta(connection, "version") != upcall.__version__:
        epoch.set_meta(connection, "version", upcall.__version__)
    return read.audit_head(connection), kept


def _check_end(connection: sqlite3.Connection, path: str) -> None:
    """Look through the file if the one who had it last did not close it."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != migrate.APPLICATION_ID:
        return
    try:
        row = connection.execute("SELECT value FROM meta WHERE name = 'end'").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise corrupt(path, str(error)) from error
    if row is None or row[0] == "clean":
        return
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise corrupt(path, verdict)


def _mark(connection: sqlite3.Connection, end: str) -> None:
    epoch.set_meta(connection, "end", end)


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        connection.close()
