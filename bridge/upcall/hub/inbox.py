"""Where adapters hand in what they hear: stored, deduplicated, then acknowledged."""

import asyncio
from collections.abc import Awaitable, Callable

from upcall.core.kernel import Kernel
from upcall.model.effects import Acknowledge
from upcall.model.events import ChannelChanged, Event, Moment, PersonActed
from upcall.model.ids import AskId
from upcall.model.platform import Answered, ChannelState, Inbound, LoginKept, Receipt
from upcall.model.rows import AskRow


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
        self._waiting: dict[int, asyncio.Future[Receipt]] = {}
        self._last = 0

    async def put(self, channel: str, inbound: Inbound) -> Receipt:
        """Return what became of *inbound*, after its commit."""
        found = None
        if isinstance(inbound, Answered) and self._kernel.find(inbound.ask) is None:
            found = await self._find_closed(AskId(inbound.ask))
        self._last += 1
        number = self._last
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
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
        finally:
            self._waiting.pop(number, None)

    def acknowledge(self, release: Acknowledge) -> None:
        """Tell who waits; one that gave up waiting is no fault."""
        future = self._waiting.get(release.receipt_id)
        if future is not None and not future.done():
            future.set_result(release.receipt)


class ChannelInbox:
    """One channel's inbox."""

    def __init__(
        self,
        channel: str,
        receipts: Receipts,
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        on_login: Callable[[LoginKept], None],
    ) -> None:
        self._channel = channel
        self._receipts = receipts
        self._submit = submit
        self._moment = moment
        self._on_login = on_login

    async def put(self, event: Inbound) -> Receipt:
        """Return after *event* and its consequences are committed."""
        receipt = await self._receipts.put(self._channel, event)
        if isinstance(event, LoginKept):
            self._on_login(event)
        return receipt

    def state(self, state: ChannelState) -> None:
        """Say whether the channel hears, and who looks."""
        self._submit(
            ChannelChanged(
                at=self._moment(),
                channel=self._channel,
                hearing=state.hearing,
                audience=state.audience,
                reason=state.reason,
            )
        )
