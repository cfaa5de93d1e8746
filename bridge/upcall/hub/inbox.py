"""Where adapters hand in what they hear: stored, deduplicated, then acknowledged."""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from upcall.core.kernel import Kernel
from upcall.model.effects import Acknowledge
from upcall.model.events import ChannelChanged, Event, Moment, PersonActed
from upcall.model.platform import (
    Answered,
    ChannelState,
    Inbound,
    LoginKept,
    Place,
    Pressed,
    Receipt,
    Texted,
)
from upcall.model.rows import AskRow, RetiredToken


@dataclass(frozen=True, slots=True)
class _Waiting:
    future: asyncio.Future[Receipt]
    on_commit: Callable[[], None] | None


class Past(Protocol):
    """What the store still knows of asks that the kernel has forgotten."""

    async def ask(self, ask_id: str) -> AskRow | None:
        """Return an ask in any state."""
        ...

    async def retired(self, token: str) -> RetiredToken | None:
        """Return what a button that is over was."""
        ...

    async def ask_of_card(self, place: Place, ref: str) -> AskRow | None:
        """Return the ask that the message *ref* at *place* shows."""
        ...


class Receipts:
    """Inbound acts that wait for their commit, by number."""

    def __init__(
        self,
        kernel: Kernel,
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        past: Past,
    ) -> None:
        self._kernel = kernel
        self._submit = submit
        self._moment = moment
        self._past = past
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
        found, retired = await self._look_up(inbound)
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
                retired=retired,
            )
        )
        return await future

    async def _look_up(self, inbound: Inbound) -> tuple[AskRow | None, RetiredToken | None]:
        """Return what *inbound* names and the kernel does not remember; one query at most."""
        match inbound:
            case Answered(ask=ask_id) if self._kernel.find(ask_id) is None:
                return await self._past.ask(ask_id), None
            case Pressed(token=token) if token and not self._kernel.knows_button(token):
                retired = await self._past.retired(token)
                if retired is None or self._kernel.find(retired.ask_id) is not None:
                    return None, retired
                return await self._past.ask(retired.ask_id), retired
            case Texted(place=Place() as place, reply_to=str(ref)):
                return await self._past.ask_of_card(place, ref), None
            case _:
                return None, None

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
                caught_up=state.caught_up,
                signed_in=state.signed_in,
            )
        )
