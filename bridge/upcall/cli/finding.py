"""One result of a check of `upcall doctor`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Finding:
    """One result of a check."""

    __slots__ = ("code", "level", "msg", "recover")

    def __init__(self, level: str, code: str, msg: str, recover: str | None = None) -> None:
        self.level = level
        self.code = code
        self.msg = msg
        self.recover = recover

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "level": self.level,
            "code": self.code,
            "msg": self.msg,
            "recover": self.recover,
        }
