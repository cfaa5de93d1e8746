"""The outbox operations of the control socket: list, try once more, drop."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from upcall.core.kernel import Kernel
from upcall.core.ledger import plain
from upcall.core.letters import dead_asks
from upcall.model.events import Event, LettersSorted, Moment
from upcall.model.ids import AskId
from upcall.model.rows import AskRow


class Loop(Protocol):
    """What carries events to the kernel."""

    def submit(self, event: Event) -> None:
        """Queue a fact."""
        ...

    def moment(self) -> Moment:
        """Return now."""
        ...

    async def settled(self) -> None:
        """Wait until everything submitted so far is committed."""
        ...


class Letters:
    """What did not arrive, at a person's word."""

    def __init__(
        self,
        kernel: Kernel,
        loop: Loop,
        find_closed: Callable[[str], Awaitable[AskRow | None]],
    ) -> None:
        self._kernel = kernel
        self._loop = loop
        self._find_closed = find_closed
        self._numbers = itertools.count(1)

    async def do(self, op: str, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out `outbox`, `outbox_retry` or `outbox_drop`."""
        if op == "outbox":
            return {"letters": [plain(view) for view in self._kernel.letters()]}
        return await self._sort("retry" if op == "outbox_retry" else "drop", request)

    async def _sort(
        self, action: Literal["retry", "drop"], request: dict[str, Any]
    ) -> dict[str, Any]:
        views = self._kernel.letters()
        letters = tuple(request.get("letters") or ())
        if request.get("all"):
            letters = tuple(view.id for view in views if view.state == "dead")
        found = {}
        for ask in dead_asks([view for view in views if view.id in letters]):
            if self._kernel.find(ask) is None:
                row = await self._find_closed(ask)
                if row is not None:
                    found[AskId(ask)] = row
        number = next(self._numbers)
        self._loop.submit(
            LettersSorted(
                at=self._loop.moment(),
                number=number,
                action=action,
                letters=letters,
                found=found,
            )
        )
        await self._loop.settled()
        done = self._kernel.letters_sorted(number)
        return {
            "done": [letter for letter, why in done.items() if not why],
            "refused": [{"id": letter, "reason": why} for letter, why in done.items() if why],
        }
