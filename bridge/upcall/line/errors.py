"""The one error of the line to the hub."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LineError(Exception):
    """The hub is not there, went away, or said no.

    Attributes:
        code: stable name, such as `hub_gone` or `already_answered`.
        msg: what is wrong, in words. It may hold text from outside: show it escaped.
        recover: what to do about it, or None.
        extra: the whole answer of the hub, if there was one.
        error_class: where the error belongs, as on the wire.
    """

    def __init__(
        self,
        code: str,
        msg: str,
        recover: str | None = None,
        extra: dict[str, Any] | None = None,
        error_class: str = "daemon",
    ) -> None:
        super().__init__(msg)
        self.code = code
        self.msg = msg
        self.recover = recover
        self.extra = extra or {}
        self.error_class = error_class

    def as_dict(self) -> dict[str, Any]:
        """Return the error as it crosses a process boundary."""
        out = {"class": self.error_class, "code": self.code, "msg": self.msg}
        if self.recover:
            out["recover"] = self.recover
        return out


LOST_CODES = frozenset({"hub_gone", "hub_not_running", "hub_silent", "hub_stopped"})
"""Codes that say that no hub answers now; it is tried again."""
