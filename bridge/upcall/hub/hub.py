"""One running hub: its parts, how they are joined, and when it ends."""

import asyncio
import os
import random as random_module
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

import upcall
from upcall.clock import Clock
from upcall.config import Config
from upcall.core.kernel import Kernel
from upcall.core.ledger import plain
from upcall.hub.anchoring import Anchoring
from upcall.hub.anchors import Noted, words
from upcall.hub.at_machine import MachineWatch, terminals_of
from upcall.hub.channels import Channels
from upcall.hub.controls import Controls, Screens
from upcall.hub.files import SessionFiles
from upcall.hub.health import HealthLog, health_of
from upcall.hub.hosting import Hosting
from upcall.hub.inbox import Receipts
from upcall.hub.letters import Letters
from upcall.hub.links import Links
from upcall.hub.lock import HubLock
from upcall.hub.logfeed import LogFeed, head_view
from upcall.hub.loop import HubLoop
from upcall.hub.plugins import Loaded
from upcall.hub.policies import Policies
from upcall.hub.presence import Presence
from upcall.hub.processes import Processes
from upcall.hub.redaction import Redactions
from upcall.hub.reloading import Reloading
from upcall.hub.rights import Rights
from upcall.hub.runtime import RuntimeFolder
from upcall.hub.settings import file_mark
from upcall.hub.sleep import SleepWatch
from upcall.hub.socket import HubSockets
from upcall.hub.store.db import Store
from upcall.hub.store.erase import Forgotten, Wanted
from upcall.hub.store.files import sweep_copies
from upcall.hub.upgrade import Handover, Upgrade, version_on_disk
from upcall.hub.view import Changes, HubView
from upcall.hub.workers import Workers
from upcall.line.start import is_newer
from upcall.model.effects import (
    Acknowledge,
    Changed,
    Host,
    Log,
    Noticed,
    Release,
    Respond,
    Send,
    ToClients,
    ToWaiter,
    Unhost,
    WatchProcess,
)
from upcall.model.errors import HubError, UsageError
from upcall.model.events import (
    Asker,
    AskerDied,
    AskRaised,
    AuditAnchored,
    Event,
    FrameIn,
    LinkUp,
    Moment,
    Resumed,
    RootChanged,
    StoreMeasured,
    TextsForgotten,
)
from upcall.model.frames import ActionNeeded, ActionResolved
from upcall.model.ids import AskId, SessionId, ask_id_in
from upcall.model.network import Outward
from upcall.model.platform import Inbound, Receipt, SignsIn, Who
from upcall.model.rows import AskRow, AuditRow, NoticeRow
from upcall.model.struct import replaced
from upcall.model.text import one_line, visible
from upcall.model.views import HealthView, Problem, RefusedRecord, RootView
from upcall.scrub import Scrubber
from upcall_discovery import paths
from upcall_discovery.liveness import ProcessIdentity

IDLE_LOOK_S: Final = 1.0
DAY_S: Final = 86400.0
NOTE_HEAD_S: Final = 60.0
EMBEDDED_CHANNELS: Final = frozenset({"web", "terminal"})
STOP_WITHIN_S: Final = 5.0
STORE_LOOK_S: Final = 4.0


class _Stopped(Exception):
    """Ends the task group on purpose."""


class Hub:
    """Everything of one hub's life."""

    def __init__(
        self,
        *,
        kernel: Kernel,
        store: Store,
        clock: Clock,
        random: Callable[[int], bytes],
        state_dir: str,
        runtime_dir: str,
        config: Config,
        problems: list[Problem],
        loaded: Sequence[Loaded],
        lock: HubLock,
        log: structlog.typing.FilteringBoundLogger,
        scrubber: Scrubber | None = None,
        network: Outward | None = None,
        handover: Handover | None = None,
        config_mark: tuple[int, ...] | None = None,
        config_refused: Problem | None = None,
    ) -> None:
        self.scrubber = scrubber or Scrubber()
        self._network = network or Outward()
        self.kernel = kernel
        self.store = store
        self.clock = clock
        self._problems = problems
        self.stop_reason = ""
        self._state_dir = state_dir
        self._runtime = RuntimeFolder(runtime_dir, lock, clock=clock, log=log)
        self._config = config
        self._loaded = loaded
        self._log = log
        self._started_ms = clock.wall_ms()
        self._stop = asyncio.Event()
        self._stays_down = False
        self._changes = Changes()
        self._files = SessionFiles(state_dir, config.limits, lambda: clock.wall_ms() / 1000)
        self.loop = HubLoop(kernel, store, clock, random)
        self._machine_watch = MachineWatch(
            lambda: kernel.presence, self.submit, self.moment, clock
        )
        self._sleep_watch = SleepWatch(
            self.submit, self.moment, clock=clock, log=log, asks=kernel,
            stay_awake=config.hub.stay_awake,
        )  # fmt: skip
        self._sockets = HubSockets(
            self,
            state_dir,
            clock=clock,
            log=log,
            version=upcall.__version__,
            limits=config.limits,
        )
        self._presence = Presence(
            state_dir,
            self._runtime,
            self._sockets,
            self._web_url,
            clock=clock,
            log=log,
            version=upcall.__version__,
            started_ms=self._started_ms,
        )
        self._hosting = Hosting(self, runtime_dir, clock=clock, log=log, scrubber=self.scrubber)
        self._processes = Processes(clock)
        self._links = Links(
            self,
            runtime_dir,
            clock=clock,
            log=log,
            files=self._files,
            processes=self._processes,
            is_hosted=lambda session_id: session_id in self._hosting,
            roots=kernel.roots(),
            max_sessions=config.limits.sessions,
            scrubber=self.scrubber,
        )
        self._screens = Screens(self._sockets.event)
        self._logfeed = LogFeed(store, self._sockets.event, self._sockets.has)
        self._anchoring = Anchoring(
            store,
            state_dir,
            clock=clock,
            log=log,
            say=self._say_anchor if config.audit.anchor_channel else None,
            journal=config.audit.journal,
        )
        store.on_audit = self._audited
        self._receipts = Receipts(kernel, self.submit, self.moment, store)
        self.policies = Policies(kernel, self.submit, self.moment, self.loop.settled)
        self.letters = Letters(kernel, self.loop, self.find_closed)
        self.redactions = Redactions(kernel, self.submit, self.moment, self.loop.settled)
        self.rights = Rights(kernel, self.submit, self.moment, self.loop.settled)
        self._reloading = Reloading(
            config,
            refused=config_refused,
            mark=file_mark() if config_mark is None else config_mark,
            kernel=kernel,
            submit=self.submit,
            moment=self.moment,
            settled=self.loop.settled,
            changed=self._changes.bump,
            clock=clock,
            log=log,
        )
        self._controls = Controls(self)
        self._channels: Channels | None = None
        self._idle_exit_s = _idle_exit_s(config)
        self._busy_since_s = clock.boot_s()
        self._handover = handover
        self._upgrade = Upgrade(
            clock=clock,
            log=log,
            is_busy=self._has_claims,
            restart=self.begin_anew,
            changed=self._changes.bump,
        )

    # --- what the sockets, links and hosted sessions need ------------------------------------

    def submit(self, event: Event) -> None:
        """Queue a fact for the kernel."""
        if isinstance(event, AskRaised) and event.key is not None:
            event = replaced(event, key=scoped_key(event.key, event.asker))
        elif isinstance(event, FrameIn) and isinstance(event.frame, ActionNeeded):
            own = ask_id_in(event.frame.id)
            if own is not None and self.store.may_have(own):
                event = replaced(event, id_taken=True)
        if self._machine_watch.is_on:
            event = _with_terminals(event)
        self.loop.submit(event)

    def moment(self) -> Moment:
        """Return now, on both clocks."""
        return self.loop.moment()

    def random(self, size: int) -> bytes:
        """Return *size* random bytes."""
        return self.loop.random(size)

    def in_memory(self, ask_id: str) -> bool:
        """Tell whether the file need not be asked: the kernel has this ask, or nobody has."""
        return self.kernel.find(ask_id) is not None or not self.store.may_have(ask_id)

    def is_open(self, ask_id: str) -> bool:
        """Tell whether this ask has not ended."""
        row = self.kernel.find(ask_id)
        return row is not None and row.state != "closed"

    def keyed(self, key: str, asker: Asker) -> AskId | None:
        """Return the newest ask that was raised with *key* in the same place."""
        return self.kernel.find_by_key(scoped_key(key, asker))

    def warning(self) -> str | None:
        """Return what is wrong with the configuration, for whoever runs a command."""
        problems = self._reloading.problems()
        return one_line(problems[0].msg, 500) if problems else None

    async def find_closed(self, ask_id: str) -> AskRow | None:
        """Return an ask that was closed before this hub's life."""
        return await self.store.ask(ask_id)

    async def control(
        self, waiter: int, op: str, request: dict[str, Any], who: Who, asker: Asker
    ) -> dict[str, Any]:
        """Do what a client of the control socket wants."""
        del asker
        if op == "log":
            # What waits for company belongs to the story too.
            await self.loop.settled()
            return await self._logfeed.answer(waiter, request)
        return await self._controls.do(op, request, who)

    def watch(self, waiter: int) -> None:
        """A screen was opened."""
        self._screens.add(waiter)
        self._changes.bump()

    def unwatch(self, waiter: int) -> None:
        """A screen was closed."""
        self._screens.remove(waiter)
        self._logfeed.remove(waiter)
        self._changes.bump()

    def asks_of(self, session_id: SessionId) -> Sequence[ActionNeeded]:
        """Return a hosted session's open asks, oldest first."""
        return self.kernel.hosted_asks(session_id)

    def resolved_of(self, session_id: SessionId) -> Sequence[ActionResolved]:
        """Return how a hosted session's last asks ended."""
        return self.kernel.hosted_resolutions(session_id)

    # --- what the controls need ---------------------------------------------------------------

    async def put(self, channel: str, inbound: Inbound) -> Receipt:
        """Return what became of a person's act, after its commit."""
        return await self._receipts.put(channel, inbound)

    def signs_in(self) -> SignsIn | None:
        """Return the adapter with logins of its own."""
        return self._channels.signs_in() if self._channels is not None else None

    def refused_records(self) -> list[RefusedRecord]:
        """Return discovery files that are not used."""
        return self._links.refused()

    async def forget(self, wanted: Wanted) -> Forgotten:
        """Erase texts from memory, from the file and its log, and from the files' folder."""
        found = await self.store.forgettable(wanted)
        conversation = None if found.open else wanted.conversation
        self.submit(
            TextsForgotten(
                at=self.moment(),
                asks=tuple(found.asks),
                sessions=tuple(found.sessions),
                conversation=conversation,
            )
        )
        await self.loop.settled()
        found = await self.store.forget(wanted, self.clock.wall_ms())
        for session_id in found.sessions:
            await asyncio.to_thread(self._files.remove, session_id)
        if wanted.before_ms is not None:
            await asyncio.to_thread(self._files.sweep, wanted.before_ms)
        self._changes.bump()
        self._log.info("forgotten", asks=len(found.asks), sessions=len(found.sessions))
        return found

    async def change_root(self, path: str, *, gone: bool) -> None:
        """Register or forget a project folder."""
        real, is_folder = await asyncio.to_thread(_real_folder, path)
        if gone:
            known = path if path in self.kernel.roots() else real
            if known not in self.kernel.roots():
                raise UsageError(
                    f"{visible(path)} is not registered", recover="upcall roots list"
                )
            real = known
        elif not is_folder:
            raise UsageError(f"{visible(path)} is no folder")
        self.submit(RootChanged(at=self.moment(), waiter=0, path=real, gone=gone))
        await self.loop.settled()
        self._links.set_roots(self.kernel.roots())

    def root_views(self) -> list[RootView]:
        """Return the registered project folders."""
        return self._links.roots()

    def status(self) -> dict[str, Any]:
        """Return the status document."""
        health = self.health()
        adapter = self.signs_in()
        status = {
            "pid": os.getpid(),
            "version": upcall.__version__,
            "protocol": 1,
            "started_ms": self._started_ms,
            "state_dir": self._state_dir,
            "runtime_dir": self._runtime.path,
            "web_url": adapter.url() if adapter is not None else None,
            "ready": health.ready,
            "degraded": [plain(problem) for problem in health.degraded],
            "channels": [plain(channel) for channel in health.channels],
            "sessions": health.sessions,
            "open_asks": health.open_asks,
            "deliveries_waiting": health.deliveries_waiting,
            "numbers": _numbers_view(health),
            "store": {
                "size_bytes": self.store.size_bytes(),
                "commits": self.store.commits,
                "audit_head": self.store.audit_head,
                "audit": head_view(self.store.head),
            },
            "idle_exit_s": self._idle_exit_s or None,
            "service": _under_service_manager(),
            "network": {"proxy": self._network.shown, "trouble": self._network.trouble},
            "adapters": [_adapter_view(one) for one in self._loaded],
            "lock": None if self.kernel.lock is None else plain(self.kernel.lock),
        }
        hidden: dict[str, Any] = self.scrubber.hide_in(status)
        return hidden

    async def reload(self) -> dict[str, Any]:
        """Read the configuration again; say what was taken up, and what only a restart does.

        Raises:
            ConfigInvalid: the file cannot be used; the message names file, line and key.
        """
        return await self._reloading.reload()

    def ask_to_stop(self, reason: str, *, stays_down: bool = False) -> None:
        """End the hub when nothing is on its way; `stays_down`: until one is wanted anew."""
        if not self._stop.is_set():
            self._stays_down = stays_down
            self.stop_reason = reason
            self._log.info("stopping", reason=reason)
            self._stop.set()

    def begin_anew(self, reason: str) -> bool:
        """End the hub, and start it again in this very process.

        Returns:
            False if it does not do that: somebody else is starting a hub, or it is ending.
        """
        if self._handover is None or self._stop.is_set():
            return False
        if not self._handover.take_lock(self._state_dir):
            return False
        self._handover.is_wanted = True
        self.ask_to_stop(reason)
        return True

    def is_outdated(self) -> bool:
        """Tell whether the files on disk are of a newer version than this hub."""
        found = version_on_disk()
        return found is not None and is_newer(found, upcall.__version__)

    def health(self) -> HealthView:
        """Return what is true right now."""
        problems = [
            *self._problems,
            *self._reloading.problems(),
            *([self._upgrade.problem] if self._upgrade.problem is not None else []),
            *_lock_problem(self.kernel),
        ]
        return health_of(
            self.loop,
            self._links,
            problems,
            started_ms=self._started_ms,
            dead_letters=self.kernel.dead_letters(),
        )

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until told to stop, or idle for long.

        Raises:
            ExceptionGroup: of `UpcallError`s that ended it.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._start(tasks)
                await self._stop.wait()
                await self._wind_down()
                raise _Stopped
        except* _Stopped:
            self._presence.write(ended=True, stopped=self._stays_down)
        except* Exception as group:
            # Before the sockets close: who finds them gone must not start the next hub at once.
            self._presence.write(ended=True, error=_first(group))
            raise
        finally:
            await self._sockets.close()
            await self.store.close()

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        self._workers = Workers(
            tasks,
            self.submit,
            self.moment,
            self._links.send,
            self.clock,
            random_module.random,
            self._log,
            self.scrubber.hide,
        )
        self._channels = Channels(
            workers=self._workers,
            receipts=self._receipts,
            screens=self._screens,
            submit=self.submit,
            moment=self.moment,
            random=self.random,
            clock=self.clock,
            jitter=random_module.random,
            log=self._log,
            state_dir=self._state_dir,
            machine=self.kernel.machine,
            operator=self.kernel.operator,
            version=upcall.__version__,
            scrubber=self.scrubber,
            network=self._network,
        )
        await asyncio.to_thread(
            paths.ensure_private_dir, paths.sessions_dir(self._runtime.path)
        )
        tasks.create_task(self.loop.run(self), name="loop")
        for loaded in self._loaded:
            view = HubView(
                loaded.name,
                self.kernel,
                self.store,
                self._changes,
                self.health,
                self._files,
                self.clock.wall_ms,
            )
            await view.load()
            self._channels.open(loaded, view)
        self.submit(Resumed(at=self.moment()))
        # Before any channel is heard: who may act is known from the first press on.
        self._reloading.begin()
        tasks.create_task(self._hosting.run(), name="hosting")
        tasks.create_task(self._processes.run(), name="processes")
        tasks.create_task(self._machine_watch.run(), name="at-machine")
        tasks.create_task(self._sleep_watch.run(), name="sleep")
        for name in [loaded.name for loaded in self._loaded]:
            tasks.create_task(self._channels.run(name), name=f"channel-{name}")
        for row in self.kernel.session_rows():
            if row.kind != "hosted":
                self._links.expect(row.session_id, row.pid, row.pid_start)
        tasks.create_task(self._links.run(), name="links")
        await self._sockets.start()
        self._presence.write()
        tasks.create_task(self._sockets.keep(self._presence.write), name="sockets")
        tasks.create_task(self._runtime.keep(self._moved), name="runtime-folder")
        tasks.create_task(self._push_screens(), name="screens")
        tasks.create_task(self._watch_idle(), name="idle")
        tasks.create_task(self._retain(), name="retention")
        tasks.create_task(self._reloading.watch(), name="configuration")
        tasks.create_task(self._note_head(), name="store-epoch")
        tasks.create_task(self._logfeed.run(), name="log")
        tasks.create_task(self._anchoring.run(), name="audit-anchors")
        tasks.create_task(self._follow_url(), name="inbox-address")
        tasks.create_task(self._log_health(), name="health-log")
        tasks.create_task(self._presence.keep(), name="hub-json")
        tasks.create_task(self._watch_store(), name="store-file")
        if self._handover is not None:
            self._handover.is_up()
            tasks.create_task(self._upgrade.keep(), name="version-on-disk")
        self._log.info("hub_started", pid=os.getpid(), version=upcall.__version__)

    async def _wind_down(self) -> None:
        self._sockets.stop_listening()
        self._workers.stop()
        try:
            async with self.clock.timeout(STOP_WITHIN_S):
                await self.loop.settled()
                # What was sent already would otherwise be uncertain for the next life.
                await self._workers.finish()
                await self.loop.settled()
                # An endpoint that is just being opened could not be closed.
                await self._hosting.settled()
        except TimeoutError:
            self._log.warning("stopped_with_work_left")

    def release(self, release: Release) -> None:
        """Carry out one release, after its commit."""
        match release:
            case Send():
                self._workers.send(release)
            case Respond(waiter, fields, error):
                self._sockets.respond(waiter, fields, error)
            case ToWaiter(waiter, event, fields):
                self._sockets.event(waiter, event, fields)
            case Acknowledge():
                self._receipts.acknowledge(release)
            case ToClients(session_id, frame, connection):
                self._hosting.to_clients(session_id, frame, connection)
            case Host(session):
                self._hosting.host(session)
            case Unhost(session_id):
                self._hosting.unhost(session_id)
            case WatchProcess(pid, start):
                self._processes.watch(ProcessIdentity(pid, start), self._asker_died)
            case Noticed(notice):
                self._tell_notice(notice)
            case Changed():
                self._changes.bump()
            case Log(event, facts):
                self._log.info(event, **facts)

    def _tell_notice(self, notice: NoticeRow) -> None:
        if not self._screens.count():
            return
        view = self.kernel.session_view(notice.session_id)
        self._screens.tell(
            "notice",
            {
                "session": None if view is None else plain(view),
                "text": notice.text,
                "kind": notice.kind,
                "at_ms": notice.at_ms,
            },
        )

    def _asker_died(self, process: ProcessIdentity) -> None:
        self.submit(AskerDied(at=self.moment(), pid=process.pid, start=process.start))

    def _web_url(self) -> str | None:
        adapter = self.signs_in()
        return adapter.url() if adapter is not None else None

    async def _moved(self, runtime: str) -> None:
        """The runtime folder was made anew, perhaps in another place."""
        await self._hosting.move(runtime)
        self._links.set_runtime(runtime)
        self._presence.write()

    async def _log_health(self) -> None:
        """Say in the log what is wrong, and when it is over."""
        log = HealthLog(self._log)
        async for _ in self._changes.follow():
            log.look(self.health().degraded)

    async def _follow_url(self) -> None:
        """The inbox's address is known a moment after the start, and may change later."""
        url = None
        async for _ in self._changes.follow():
            now = self._web_url()
            if now != url:
                url = now
                self._presence.write()

    async def _push_screens(self) -> None:
        async for _ in self._changes.follow():
            if self._screens.count():
                self._screens.tell(
                    "screen",
                    {
                        "asks": [plain(view) for view in self.kernel.drawn("terminal")],
                        "sessions": [plain(view) for view in self.kernel.sessions()],
                        "channels": [plain(view) for view in self.kernel.channels()],
                    },
                )

    async def _watch_idle(self) -> None:
        if not self._idle_exit_s or _under_service_manager():
            return
        while True:
            await self.clock.sleep(min(IDLE_LOOK_S, self._idle_exit_s / 2))
            now_s = self.clock.boot_s()
            if self._is_busy():
                self._busy_since_s = now_s
            elif now_s - self._busy_since_s >= self._idle_exit_s:
                self.ask_to_stop(f"nothing to do for {self._idle_exit_s:g} s")
                return

    def _has_claims(self) -> bool:
        return any(row.state == "claimed" for row in self.kernel.open_rows())

    def _is_busy(self) -> bool:
        return (
            bool(self.kernel.sessions())
            or bool(self.kernel.open_rows())
            or self._sockets.clients > 0
            or any(view.audience for view in self.kernel.channels())
            or any(one.spec.name not in EMBEDDED_CHANNELS for one in self._loaded)
            or self.kernel.waiting_deliveries() > 0
        )

    async def _watch_store(self) -> None:
        """A database that was removed or replaced keeps nothing, though it can be written.

        Raises:
            HubError: `store_gone`; it ends the hub, and the next one starts with what is there.
        """
        before = await asyncio.to_thread(_file_mark, self.store.path)
        while True:
            await self.clock.sleep(STORE_LOOK_S)
            if await asyncio.to_thread(_file_mark, self.store.path) != before:
                raise HubError(
                    f"the database {visible(self.store.path)} was removed or replaced while "
                    "the hub ran; what was asked since is lost",
                    code="store_gone",
                    recover="ask again; to begin anew on purpose, stop the hub first",
                )

    async def _retain(self) -> None:
        kept = self._config.retention
        while True:
            now_ms = self.clock.wall_ms()
            await self.store.retain(
                now_ms, text_days=kept.text_days, audit_days=kept.audit_days
            )
            sizes = await self.store.stored_bytes()
            self.submit(StoreMeasured(at=self.moment(), sizes=sizes))
            # A copy of the database holds texts that the database has dropped.
            copies_s = now_ms / 1000 - kept.text_days * DAY_S
            await asyncio.to_thread(sweep_copies, self.store.path, copies_s)
            files_ms = int(kept.files_days * DAY_S * 1000)
            await asyncio.to_thread(self._files.sweep, now_ms - files_ms)
            await self.clock.sleep(DAY_S)

    def _audited(self, lines: Sequence[AuditRow]) -> None:
        self._logfeed.look(lines)
        self._anchoring.look(lines)

    def _say_anchor(self, noted: Noted) -> None:
        self.submit(
            AuditAnchored(
                at=self.moment(),
                channel=self._config.audit.anchor_channel,
                text=words(noted),
                effect=f"anchor:{noted.epoch}:{noted.rows}",
            )
        )

    async def _note_head(self) -> None:
        """What is noted beside the database tells an older copy that is put back."""
        while True:
            await self.clock.sleep(NOTE_HEAD_S)
            try:
                await self.store.note_head()
            except (OSError, paths.PathProblem) as exc:
                self._log.warning("head_not_noted", error=one_line(str(exc), 200))


def _numbers_view(health: HealthView) -> dict[str, Any]:
    """Return the numbers of the status document."""
    return {
        **plain(health.numbers),
        **{
            name: getattr(health, name)
            for name in (
                "discovered", "attached", "dead_letters", "commit_p50_s", "commit_p99_s",
                "clock_steps", "sleeps",
            )
        },
    }  # fmt: skip


def _lock_problem(kernel: Kernel) -> list[Problem]:
    lock = kernel.lock
    if lock is None:
        return []
    why = f": {one_line(lock.reason, 200)}" if lock.reason else ""
    by = f"{one_line(lock.name)} from {one_line(lock.channel)}"
    return [Problem("locked", f"locked by {by}{why}; nothing is taken", "upcall unlock")]


def _adapter_view(loaded: Loaded) -> dict[str, Any]:
    """Return whose code serves a channel."""
    origin = loaded.origin
    return {
        "channel": loaded.name,
        "adapter": loaded.spec.name,
        "ours": origin is None,
        "package": None if origin is None else origin.package,
        "version": None if origin is None else origin.version,
        "path": None if origin is None else origin.path,
    }


def _with_terminals(event: Event) -> Event:
    """Return *event* with the terminals of the program that it is about, if it is about one."""
    match event:
        case AskRaised(asker=asker):
            return replaced(event, asker=replaced(asker, ttys=terminals_of(asker.pid)))
        case LinkUp(pid=pid):
            return replaced(event, ttys=terminals_of(pid))
        case _:
            return event


def _file_mark(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _real_folder(path: str) -> tuple[str, bool]:
    real = os.path.realpath(path)
    return real, os.path.isdir(real)


def _first(group: ExceptionGroup[Exception]) -> Exception:
    failure: BaseException = group
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure if isinstance(failure, Exception) else group


def scoped_key(key: str, asker: Asker) -> str:
    """Return `--key NAME` with what it is a key of: a user's conversation or folder."""
    return f"{asker.uid}:{asker.name or asker.cwd or ''}\0{key}"


def _idle_exit_s(config: Config) -> float:
    given = os.environ.get("UPCALL_IDLE_EXIT_S")
    if given is not None:
        try:
            return max(0.0, float(given))
        except ValueError:
            pass
    return config.hub.idle_exit_s


def _under_service_manager() -> bool:
    return "INVOCATION_ID" in os.environ or os.environ.get("XPC_SERVICE_NAME", "0") not in {
        "",
        "0",
    }
