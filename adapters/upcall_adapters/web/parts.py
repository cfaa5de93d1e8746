"""What the adapter and its HTTP routes share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from upcall.model.platform import Inbound, Receipt, Seams
from upcall_adapters.web.guards import Doors
from upcall_adapters.web.login import Logins
from upcall_adapters.web.pages import Pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One running inbox.

    Attributes:
        seams: what the hub gives.
        doors: the addresses it answers under.
        pages: the open pages.
        logins: who may come in.
        put: hands an event to the hub and returns after its commit.
        own_uid: the only user whose loopback connections are taken, or None for any.
        undo_s: for how long the page lets a doubtful press be taken back.
    """

    seams: Seams
    doors: Doors
    pages: Pages
    logins: Logins
    put: Callable[[Inbound], Awaitable[Receipt]]
    own_uid: int | None
    undo_s: float = 5.0

    @property
    def url(self) -> str:
        """The loopback address, without a secret."""
        return f"http://127.0.0.1:{self.doors.port}/"
