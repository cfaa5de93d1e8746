"""Carries deliveries to channels and sessions, and brings their results back as events."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec
import structlog

from upcall.clock import Clock
from upcall.model.effects import Find, Send
from upcall.model.errors import DeliveryError, NotSent, Refused, Throttled
from upcall.model.events import Delivered, DeliveryFailed, Event, Moment
from upcall.model.platform import (
    Adapter,
    Body,
    Deletes,
    DeliveryKey,
    FindsByKey,
    Opening,
    OpensThreads,
    Place,
    Ref,
)
from upcall.model.rows import DeliveryRow

# A call that takes longer is taken for lost; whether it arrived is then uncertain.
CALL_LIMIT_S: Final = 60.0
_opening: Final = msgspec.json.Decoder(Opening)


def is_cancelled() -> bool:
    """Tell whether the running task itself is to end, not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class ToSession(Protocol):
    """Writes a frame to a session's link."""

    async def __call__(self, session_id: str, frame: bytes) -> None:
        """Raise `NotSent` when it is not attached, `Uncertain` when the link broke."""
        ...


class Workers:
    """One task a delivery under way; the kernel sees to order and number."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        to_session: Callable[[str, bytes], Awaitable[None]],
        clock: Clock,
        jitter: Callable[[], float],
        log: structlog.typing.FilteringBoundLogger,
        hide: Callable[[str], str] = str,
    ) -> None:
        self._hide = hide
        self._tasks = tasks
        self._submit = submit
        self._moment = moment
        self._to_session = to_session
        self._clock = clock
        self._jitter = jitter
        self._log = log
        self._adapters: dict[str, Adapter] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._stopping = False

    def know(self, channel: str, adapter: Adapter) -> None:
        """Send what is for *channel* through *adapter*."""
        self._adapters[channel] = adapter

    def forget(self, channel: str) -> None:
        """Send nothing to *channel* any more."""
        self._adapters.pop(channel, None)

    def stop(self) -> None:
        """Start nothing new; what is queued is a row and goes on in the hub's next life."""
        self._stopping = True

    async def finish(self) -> None:
        """Wait until nothing is under way any more; call `stop` before."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def send(self, release: Send) -> None:
        """Start a delivery whose row already says `sending`."""
        row = release.delivery
        if self._stopping:
            # Said at once, so that the next life does not take it for one that may have
            # arrived.
            self._failed(row, "not_sent", "the hub is stopping")
            return
        task = self._tasks.create_task(
            self._carry(row, release.find), name=f"delivery-{row.id}"
        )
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _carry(self, row: DeliveryRow, find: Find) -> None:
        limit = self._clock.timeout(CALL_LIMIT_S)
        try:
            async with limit:
                ref = None if find == "no" else await self._find(row)
                if find == "only" and ref is None:
                    self._failed(row, "absent", "it was looked up and is not there")
                    return
                if ref is None:
                    ref = await self._call(row)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # Something within the adapter was cancelled, not this delivery.
            self._failed(row, "uncertain", "the adapter gave the call up")
        except Throttled as exc:
            self._failed(row, "throttled", exc.msg, exc)
        except Refused as exc:
            self._failed(row, "refused", exc.msg, exc)
        except NotSent as exc:
            self._failed(row, "not_sent", exc.msg)
        except DeliveryError as exc:
            self._failed(row, "uncertain", exc.msg)
        # An adapter's defect must not end the hub, nor may its `sys.exit`.
        except (Exception, SystemExit, KeyboardInterrupt) as exc:  # noqa: BLE001
            if limit.expired():
                self._failed(row, "uncertain", f"no answer within {CALL_LIMIT_S:g} s")
            else:
                self._log.error("adapter_defect", channel=row.target, error=repr(exc))
                self._failed(row, "uncertain", f"the adapter failed: {type(exc).__name__}")
        else:
            self._submit(Delivered(at=self._moment(), delivery=row.id, ref=ref))

    async def _call(self, row: DeliveryRow) -> str | None:
        if row.kind in {"reply", "message", "hold"}:
            await self._to_session(row.target, row.body)
            return None
        adapter = self._adapters.get(row.target)
        if adapter is None:
            raise NotSent(f"the channel {row.target} is not open")
        if row.kind == "delete":
            if isinstance(adapter, Deletes):
                await adapter.delete(Ref(row.ref or ""))
            return None
        if not row.body:
            raise Refused("the adapter could not draw this card")
        if row.kind == "edit":
            await adapter.edit(Ref(row.ref or ""), Body(row.body))
            return None
        key = DeliveryKey(row.effect, row.attempt)
        if row.kind == "open":
            return await self._open(adapter, row, key)
        return await adapter.post(Place(row.target, row.place), Body(row.body), key)

    async def _open(self, adapter: Adapter, row: DeliveryRow, key: DeliveryKey) -> str:
        if not isinstance(adapter, OpensThreads):
            raise Refused("the adapter says that it has threads, and cannot open one")
        opening = _opening.decode(row.body)
        place = await adapter.open_thread(opening, key)
        if not place.address:
            raise Refused("the adapter opened a thread without an address")
        return place.address

    async def _find(self, row: DeliveryRow) -> str | None:
        """Return what was sent before, if it arrived; that this fails is no harm.

        Raises:
            NotSent, Refused, Throttled: it could not be looked up, and nothing was sent.
        """
        adapter = self._adapters.get(row.target)
        if not isinstance(adapter, FindsByKey):
            return None
        key = DeliveryKey(row.effect, row.attempt)
        try:
            return await adapter.find(Place(row.target, row.place), key)
        except (NotSent, Refused, Throttled):
            raise
        except DeliveryError as exc:
            raise NotSent(f"it could not be looked up: {exc.msg}") from exc

    def _failed(
        self, row: DeliveryRow, kind: Any, msg: str, exc: DeliveryError | None = None
    ) -> None:
        paused = exc if isinstance(exc, Throttled) else None
        self._submit(
            DeliveryFailed(
                at=self._moment(),
                delivery=row.id,
                kind=kind,
                # It is kept and shown; an adapter's error can quote a request's address.
                msg=self._hide(msg),
                retry_after_s=0.0 if paused is None else paused.retry_after_s,
                jitter=self._jitter(),
                code="" if exc is None else exc.code,
                place_only=paused is not None and paused.place_only,
            )
        )
