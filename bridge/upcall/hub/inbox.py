"""Where adapters hand in what they hear: stored, deduplicated, then acknowledged."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from upcall.core.kernel import Kernel
from upcall.model.effects import Acknowledge
from upcall.model.events import ChannelChanged, Event, Moment, PersonActed
from upcall.model.ids import AskId
from upcall.model.platform import Answered, ChannelState, Inbound, LoginKept, Receipt
from upcall.model.rows import AskRow


@dataclass(frozen=True, slots=True)
class _Waiting:
    future: asyncio.Future[Receipt]
    on_commit: Callable[[], None] | None


class Receipts:
    """Inbound acts that wait for their commit, by number."""

    def __init__(
        self,
        kernel: Kernel,
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        find_closed: Callable[[str], Awaitable[AskRow | None]],
    ) -> None:
        self._kernel = kernel
        self._submit = submit
        self._moment = moment
        self._find_closed = find_closed
        self._waiting: dict[int, _Waiting] = {}
        self._last = 0

    async def put(
        self, channel: str, inbound: Inbound, on_commit: Callable[[], None] | None = None
    ) -> Receipt:
        """Return what became of *inbound*, after its commit.

        Args:
            channel: where it came from.
            inbound: what a person or an adapter did.
            on_commit: called after the commit, also if nobody waits for it any more.
        """
        found = None
        if isinstance(inbound, Answered) and self._kernel.find(inbound.ask) is None:
            found = await self._find_closed(AskId(inbound.ask))
        self._last += 1
        number = self._last
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        # Who gives up waiting leaves this in place: the act goes on without them.
        self._waiting[number] = _Waiting(future, on_commit)
        self._submit(
            PersonActed(
                at=self._moment(),
                channel=channel,
                inbound=inbound,
                receipt_id=number,
                found=found,
            )
        )
        return await future

    def acknowledge(self, release: Acknowledge) -> None:
        """Tell who waits; one that gave up waiting is no fault."""
        waiting = self._waiting.pop(release.receipt_id, None)
        if waiting is None:
            return
        if waiting.on_commit is not None:
            waiting.on_commit()
        if not waiting.future.done():
            waiting.future.set_result(release.receipt)


class ChannelInbox:
    """One channel's inbox."""

    def __init__(
        self,
        channel: str,
        receipts: Receipts,
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        on_login: Callable[[LoginKept], None],
        hide: Callable[[str], str] = str,
    ) -> None:
        self._hide = hide
        self._channel = channel
        self._receipts = receipts
        self._submit = submit
        self._moment = moment
        self._on_login = on_login

    async def put(self, event: Inbound) -> Receipt:
        """Return after *event* and its consequences are committed."""
        on_commit = None
        if isinstance(event, LoginKept):
            on_commit = functools.partial(self._on_login, event)
        return await self._receipts.put(self._channel, event, on_commit)

    def state(self, state: ChannelState) -> None:
        """Say whether the channel hears, and who looks."""
        self._submit(
            ChannelChanged(
                at=self._moment(),
                channel=self._channel,
                hearing=state.hearing,
                audience=state.audience,
                reason=None if state.reason is None else self._hide(state.reason),
            )
        )
