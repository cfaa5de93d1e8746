"""The control socket's say on who may act: the lock, and people added, revoked, restored."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from upcall.core.kernel import Kernel
from upcall.core.ledger import plain
from upcall.model.errors import HubError, UsageError
from upcall.model.events import Event, LockAsked, Moment, OperatorChanged
from upcall.model.lookalikes import alike
from upcall.model.platform import Who
from upcall.model.policy import ANYBODY, OWNER, ROLE
from upcall.model.rows import PairingRow
from upcall.model.text import one_line, unpaired_surrogate_or_nul

MAX_NAME_CHARS: Final = 64
_LOCAL: Final = "local"


class Rights:
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

    async def do(self, op: str, request: dict[str, Any], who: Who) -> dict[str, Any]:
        """Do `lock`, `unlock` or `operators`; it is in force when this returns.

        Raises:
            UpcallError: it is refused.
        """
        if op == "operators":
            return await self._operators(request, who)
        before = self._kernel.lock
        reason = one_line(str(request.get("reason") or ""), 500)
        self._submit(LockAsked(at=self._moment(), lock=op == "lock", who=who, reason=reason))
        await self._settled()
        lock = self._kernel.lock
        return {"locked": None if lock is None else plain(lock), "changed": lock != before}

    async def _operators(self, request: dict[str, Any], who: Who) -> dict[str, Any]:
        action, name = request["action"], str(request.get("name") or "")
        waits = None
        if action == "add":
            pairing = self._pairing(request, name)
            await self._change(OperatorChanged(at=self._moment(), who=who, pairing=pairing))
            waits = self._kernel.pairing_waits_for(pairing.channel, pairing.identity)
        elif action != "list":
            known = {one.name: one for one in self._kernel.operators_list()}
            if name not in known:
                raise HubError(
                    f"no operator is called {one_line(name, 80)!r}",
                    code="unknown_operator",
                    recover="upcall operators lists them",
                )
            back = action == "restore"
            if known[name].revoked == back:
                await self._change(
                    OperatorChanged(at=self._moment(), who=who, name=name, back=back)
                )
        people = [plain(one) for one in self._kernel.operators_list()]
        return {"operators": people, "waits_for": waits}

    async def _change(self, event: OperatorChanged) -> None:
        self._submit(event)
        await self._settled()

    def _pairing(self, request: dict[str, Any], name: str) -> PairingRow:
        channel, identity = request.get("channel") or "", request.get("identity") or ""
        known = self._kernel.operators_list()
        check_name(name, [one.name for one in known])
        places = [*self._kernel.channel_names, _LOCAL]
        if channel not in places:
            raise UsageError(
                f"no channel is called {one_line(channel, 60)!r}; there are {', '.join(places)}"
            )
        if not identity.strip() or unpaired_surrogate_or_nul(identity) is not None:
            raise UsageError("the id on the channel is missing or cannot be used")
        for one in known:
            if any((i.channel, i.identity) == (channel, identity) for i in one.identities):
                raise HubError(
                    f"{one_line(identity, 80)!r} on {one_line(channel)} is "
                    f"{one_line(one.name)} already; one identity, one person",
                    code="identity_taken",
                    recover="upcall operators lists who is who",
                )
        rights = request.get("rights")
        if rights is not None and "control" in rights:
            raise UsageError(
                "control over a chat is given in the configuration file only",
                recover="see `rights` under [operators] in docs/configuration.md",
            )
        return PairingRow(
            name=name,
            channel=channel,
            identity=identity,
            roles=tuple(request.get("roles") or ()),
            rights=None if rights is None else tuple(rights),
        )


def check_name(name: str, others: list[str]) -> None:
    """See that *name* can be an operator's.

    Raises:
        UsageError: it is empty, too long, has a meaning of its own, or could be taken for
            another operator's.
    """
    if not name.strip() or len(name) > MAX_NAME_CHARS or len(name.splitlines()) != 1:
        raise UsageError(f"a name has 1 to {MAX_NAME_CHARS} characters on one line")
    if unpaired_surrogate_or_nul(name) is not None:
        raise UsageError("the name has a character that cannot be used")
    if name in (ANYBODY, OWNER) or name.startswith(ROLE):
        raise UsageError(f"{one_line(name)!r} has a meaning of its own in `answer_by`")
    different = [one for one in others if one != name]
    for index, twins in alike((name, *different)).items():
        if 0 in (index, *twins):
            twin = different[(twins[0] if index == 0 else index) - 1]
            raise UsageError(
                f"{one_line(name)!r} could be taken for operator {one_line(twin)!r}"
            )
