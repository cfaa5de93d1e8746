"""The way to the hub for everything short-lived: find it, start it if need be, talk to it.

Standard library and `upcall_discovery.paths` only, so that `upcall ask` pays for nothing
that it doesn't use. `ask.sock` lets a program ask; `control.sock` lets it do everything else.
"""

from __future__ import annotations

from upcall.line.errors import LineError
from upcall.line.ids import full_ask_id, mint_ask_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from upcall.line.connection import HubLine
    from upcall.line.start import ensure_hub

__all__ = ["HubLine", "LineError", "ensure_hub", "full_ask_id", "mint_ask_id"]


def __getattr__(name: str) -> object:
    # Sockets and JSON are loaded when somebody connects: `--help` does not.
    if name == "HubLine":
        from upcall.line.connection import HubLine

        return HubLine
    if name == "ensure_hub":
        from upcall.line.start import ensure_hub

        return ensure_hub
    raise AttributeError(f"module 'upcall.line' has no attribute {name!r}")
