"""The control socket's say on redaction in one conversation."""

from collections.abc import Awaitable, Callable
from typing import Any

from upcall.core.kernel import Kernel
from upcall.core.policy import local_name
from upcall.core.redaction_choice import MAX_OFF_S
from upcall.model.errors import UsageError
from upcall.model.events import Event, Moment, RedactionChosen
from upcall.model.platform import Who


class Redactions:
    """Carries the requests out, and tells how things stand afterwards."""

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

    async def do(self, conversation: str, request: dict[str, Any], who: Who) -> dict[str, Any]:
        """Do `redact`; it is in force when this returns.

        Raises:
            UsageError: credentials cannot be shown for so long.
        """
        redact, for_s = request.get("redact"), request.get("for_s")
        if for_s is not None and redact is not False:
            raise UsageError("for_s: only what is shown is shown for a while")
        if for_s is not None and not 1.0 <= for_s <= MAX_OFF_S:
            raise UsageError("for_s: credentials are shown for 1 s to 24 h")
        self._submit(
            RedactionChosen(
                at=self._moment(),
                conversation=conversation,
                redact=redact,
                for_s=for_s,
                by=f"user {local_name(who)} on this computer",
            )
        )
        await self._settled()
        redacted, until_ms, by = self._kernel.redaction(conversation)
        return {"redacted": redacted, "until_ms": until_ms, "by": by}
