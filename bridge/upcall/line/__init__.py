"""The way to the hub for everything short-lived: find it, start it if need be, talk to it.

Standard library and `upcall_discovery.paths` only, so that `upcall ask` pays for nothing
that it doesn't use. `ask.sock` lets a program ask; `control.sock` lets it do everything else.
"""

from upcall.line.connection import HubLine
from upcall.line.errors import LineError
from upcall.line.ids import full_ask_id, mint_ask_id
from upcall.line.start import ensure_hub

__all__ = ["HubLine", "LineError", "ensure_hub", "full_ask_id", "mint_ask_id"]
