"""The control socket's say on rules: what would happen to an ask, and how much is shown."""

from collections.abc import Awaitable, Callable
from typing import Any

from upcall.core.explain import explain
from upcall.core.kernel import Kernel
from upcall.core.rules import Facts
from upcall.model.events import Event, Moment, VerbositySet


class Policies:
    """Explains the policy in force, and sets a conversation's verbosity."""

    def __init__(
        self,
        kernel: Kernel,
        submit: Callable[[Event], None],
        moment: Callable[[], Moment],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self._kernel = kernel
        self._submit = submit
        self._moment = moment
        self._settled = settled

    def explain(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what would happen to a sample ask, raised now."""
        facts = Facts(
            kind=request.get("class") or "question",
            repo=request.get("repo"),
            host=request.get("host") or self._kernel.machine,
            title=request.get("title"),
            tags=tuple(request.get("tags") or ()),
        )
        ground = self._kernel.ground(self._moment().wall_ms)
        return explain(ground, facts, request.get("timeout_s"))

    async def verbosity(self, conversation: str, level: Any) -> dict[str, Any]:
        """Set, or with None reset, how much of a conversation is shown."""
        self._submit(VerbositySet(at=self._moment(), conversation=conversation, level=level))
        await self._settled()
        return {"conversation": conversation, "level": level}
