"""The pages that are open now, and how they learn that something changed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal


class Page:
    """One open page.

    Attributes:
        login: digest of the login that it came in with.
        changed: set when there is something to send.
        reads: numbers of the page's own requests to read again.
        leave: why it has to go, once it has to: `signed_out` or `stopping`.
    """

    def __init__(self, login: str) -> None:
        self.login = login
        self.changed = asyncio.Event()
        self.changed.set()
        self.reads: list[int] = []
        self.leave: Literal["signed_out", "stopping"] | None = None

    def read_again(self, number: int) -> None:
        """Send the present state once more, and then *number*."""
        self.reads = [*self.reads[-15:], number]
        self.changed.set()


class Pages:
    """All open pages. A slow page misses versions, never the newest one.

    Args:
        on_audience: called with the number of open pages whenever it changes.
    """

    def __init__(self, on_audience: Callable[[int], None]) -> None:
        self._on_audience = on_audience
        self._open: set[Page] = set()
        self.version = 0

    def __len__(self) -> int:
        return len(self._open)

    def of(self, login: str) -> int:
        """Return how many pages of *login* are open."""
        return sum(page.login == login for page in self._open)

    @contextmanager
    def joined(self, login: str) -> Iterator[Page]:
        """Count a page as open while the context lasts."""
        page = Page(login)
        self._open.add(page)
        self._on_audience(len(self._open))
        try:
            yield page
        finally:
            self._open.discard(page)
            self._on_audience(len(self._open))

    def bump(self) -> None:
        """Tell every page that there is something newer."""
        self.version += 1
        for page in self._open:
            page.changed.set()

    def sign_out(self, login: str | None = None) -> None:
        """Make the pages of *login*, or all, go back to the sign-in screen."""
        for page in self._open:
            if login is None or page.login == login:
                page.leave = "signed_out"
                page.changed.set()

    def stop(self) -> None:
        """Close all pages; they come back by themselves."""
        for page in self._open:
            page.leave = page.leave or "stopping"
            page.changed.set()
