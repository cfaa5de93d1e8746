"""Signals that end a waiting command, as an exception at the place where it waits."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Self

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked the process to end.

    Attributes:
        number: the signal's number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class EndingSignals:
    """While entered, SIGINT, SIGTERM and SIGHUP raise `Interrupted`, once.

    A signal that was ignored when we started (`nohup`, a background job) stays ignored.
    """

    def __init__(self) -> None:
        self._former: dict[int, Any] = {}
        self._spent = False

    def __enter__(self) -> Self:
        for number in _ENDING:
            former = signal.getsignal(number)
            if former is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._raise)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The signals that end the command; those that were ignored are not among them."""
        return tuple(self._former)

    def settle(self) -> None:
        """From now on the end is decided, and a signal does not undo it."""
        self._spent = True

    def _raise(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self._spent:
            self._spent = True
            raise Interrupted(number)
