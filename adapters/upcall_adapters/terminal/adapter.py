"""The terminal channel: open `upcall watch` screens are its platform.

Screens draw asks from the hub's own view and answer over its socket; what is posted here
only calls their attention. Nothing is kept, and nothing can fail.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from upcall.model.platform import (
    Body,
    ChannelState,
    DeliveryKey,
    Finding,
    Inbox,
    Place,
    Ref,
    Seams,
)
from upcall_adapters.terminal.config import TerminalConfig

# Screens may close without any other change in the hub.
_LOOK_EVERY_S: Final = 20.0


class TerminalScreens:
    """All screens of one hub."""

    def __init__(self, config: TerminalConfig, seams: Seams) -> None:
        del config
        self._seams = seams
        self._told: int | None = None

    async def run(self, inbox: Inbox) -> None:
        """Say how many screens look, until cancelled."""
        self._told = None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(inbox), name="terminal-follow")
            tasks.create_task(self._look(inbox), name="terminal-look")

    async def post(self, place: Place, body: Body, key: DeliveryKey) -> Ref:
        """Hand the card to every open screen; without any there is nothing to do."""
        del place
        self._seams.screens.show(body.data)
        return Ref(f"terminal:{key.key}")

    async def edit(self, ref: Ref, body: Body) -> None:
        """Hand the changed card to every open screen."""
        del ref
        self._seams.screens.show(body.data)

    async def check(self) -> Sequence[Finding]:
        """Say how many screens are open."""
        count = self._seams.screens.count()
        words = "no screen is open" if not count else f"{count} open"
        return [Finding("ok", "terminal", f"upcall watch: {words}")]

    async def _follow(self, inbox: Inbox) -> None:
        async for _ in self._seams.view.changes():
            self._tell(inbox)

    async def _look(self, inbox: Inbox) -> None:
        while True:
            self._tell(inbox)
            await self._seams.clock.sleep(_LOOK_EVERY_S)

    def _tell(self, inbox: Inbox) -> None:
        count = self._seams.screens.count()
        if count != self._told:
            self._told = count
            inbox.state(ChannelState(hearing=True, audience=count))
