"""Opens the configured channels and keeps their adapters running."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from upcall.clock import Clock
from upcall.core import backoff
from upcall.hub.controls import Screens
from upcall.hub.inbox import ChannelInbox, Receipts
from upcall.hub.plugins import Loaded
from upcall.hub.view import HubView
from upcall.hub.workers import Workers, is_cancelled
from upcall.model.events import ChannelChanged, Event, Moment
from upcall.model.network import Outward
from upcall.model.platform import Adapter, Seams, SignsIn
from upcall.model.text import one_line
from upcall.scrub import Scrubber

# An adapter that ran so long before it failed starts with a short wait again.
STEADY_S: Final = 60.0


class Channels:
    """The adapters of one hub, each under its own supervisor."""

    def __init__(
        self,
        *,
        workers: Workers,
        receipts: Receipts,
        screens: Screens,
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        random: Callable[[int], bytes],
        clock: Clock,
        jitter: Callable[[], float],
        log: structlog.typing.FilteringBoundLogger,
        state_dir: str,
        machine: str,
        operator: str,
        version: str,
        scrubber: Scrubber | None = None,
        network: Outward | None = None,
    ) -> None:
        self._scrubber = scrubber or Scrubber()
        self._network = network or Outward()
        self._workers = workers
        self._receipts = receipts
        self._screens = screens
        self._submit = submit
        self._moment = moment
        self._random = random
        self._clock = clock
        self._jitter = jitter
        self._log = log
        self._state_dir = state_dir
        self._machine = machine
        self._operator = operator
        self._version = version
        self.adapters: dict[str, Adapter] = {}
        self._with_logins: dict[str, SignsIn] = {}
        self._known: dict[str, tuple[Loaded, HubView]] = {}

    def open(self, loaded: Loaded, view: HubView) -> None:
        """Build the adapter; nothing is connected yet. One that fails is built again later."""
        self._known[loaded.name] = (loaded, view)
        if loaded.origin is not None:
            self._log.warning(
                "adapter_of_others",
                channel=loaded.name,
                adapter=loaded.spec.name,
                package=loaded.origin.package,
                version=loaded.origin.version,
                path=loaded.origin.path,
            )
        try:
            self._build(loaded, view)
        except Exception as exc:  # noqa: BLE001 - one adapter's defect is not the hub's
            error = self._words(exc)
            self._log.error("adapter_not_built", channel=loaded.name, error=error)

    def _build(self, loaded: Loaded, view: HubView) -> Adapter:
        seams = Seams(
            channel=loaded.name,
            clock=self._clock,
            random=self._random,
            log=self._log.bind(channel=loaded.name),
            view=view,
            screens=self._screens,
            state_dir=self._state_dir,
            machine=self._machine,
            operator=self._operator,
            version=self._version,
            secrets={name: secret.reveal() for name, secret in loaded.secrets.items()},
            network=self._network,
            hide=self._scrubber.add_passing,
        )
        adapter = loaded.spec.open(loaded.config, seams)
        self.adapters[loaded.name] = adapter
        # Asked here once: the check of a protocol is slow, and status is asked for often.
        if isinstance(adapter, SignsIn):
            self._with_logins[loaded.name] = adapter
        self._workers.know(loaded.name, adapter)
        return adapter

    def _words(self, exc: BaseException) -> str:
        """Return an adapter's error as people may see it: it can quote a request's address."""
        return f"{type(exc).__name__}: {one_line(self._scrubber.hide(str(exc)))}"

    def signs_in(self) -> SignsIn | None:
        """Return the adapter with logins of its own, if one is open."""
        return next(iter(self._with_logins.values()), None)

    async def run(self, name: str) -> None:
        """Run one adapter for ever; a defect of it ends neither the hub nor another channel."""
        loaded, view = self._known[name]
        inbox = ChannelInbox(
            name,
            self._receipts,
            self._submit,
            self._moment,
            view.keep_login,
            self._scrubber.hide,
        )
        failures = 0
        while True:
            started_s = self._clock.boot_s()
            try:
                adapter = self.adapters.get(name) or self._build(loaded, view)
                await adapter.run(inbox)
                error = "it returned"
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                error = "it gave up"
            # An adapter that calls `sys.exit` ends itself, and not the hub either.
            except (Exception, SystemExit, KeyboardInterrupt) as exc:  # noqa: BLE001
                error = self._words(exc)
            if self._clock.boot_s() - started_s > STEADY_S:
                failures = 0
            failures += 1
            self._log.error("adapter_ended", channel=name, error=error, failures=failures)
            self._submit(
                ChannelChanged(
                    at=self._moment(),
                    channel=name,
                    hearing=False,
                    audience=0,
                    reason=f"it failed ({error}) and is started again",
                )
            )
            await self._clock.sleep(backoff.delay_s(failures, jitter=self._jitter()))
