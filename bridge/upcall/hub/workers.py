"""Carries deliveries to channels and sessions, and brings their results back as events."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import structlog

from upcall.clock import Clock
from upcall.model.effects import Send
from upcall.model.errors import DeliveryError, NotSent, Refused, Throttled
from upcall.model.events import Delivered, DeliveryFailed, Event, Moment
from upcall.model.platform import Adapter, Body, DeliveryKey, Place, Ref
from upcall.model.rows import DeliveryRow

# A call that takes longer is taken for lost; whether it arrived is then uncertain.
CALL_LIMIT_S: Final = 60.0


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
        task = self._tasks.create_task(self._carry(row), name=f"delivery-{row.id}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _carry(self, row: DeliveryRow) -> None:
        limit = self._clock.timeout(CALL_LIMIT_S)
        try:
            async with limit:
                ref = await self._call(row)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # Something within the adapter was cancelled, not this delivery.
            self._failed(row, "uncertain", "the adapter gave the call up")
        except Throttled as exc:
            self._failed(row, "throttled", exc.msg, exc.retry_after_s)
        except Refused as exc:
            self._failed(row, "refused", exc.msg)
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
        if not row.body:
            raise Refused("the adapter could not draw this card")
        if row.kind == "edit":
            await adapter.edit(Ref(row.ref or ""), Body(row.body))
            return None
        key = DeliveryKey(row.effect, row.attempt)
        return await adapter.post(Place(row.target, row.place), Body(row.body), key)

    def _failed(self, row: DeliveryRow, kind: Any, msg: str, retry_after_s: float = 0) -> None:
        self._submit(
            DeliveryFailed(
                at=self._moment(),
                delivery=row.id,
                kind=kind,
                # It is kept and shown; an adapter's error can quote a request's address.
                msg=self._hide(msg),
                retry_after_s=retry_after_s,
                jitter=self._jitter(),
            )
        )
