"""What the hub knows of the terminal channel before it opens it."""

from typing import TYPE_CHECKING, Final

from upcall.model.platform import Capabilities, Seams, Spec
from upcall_adapters.terminal.config import TerminalConfig
from upcall_adapters.terminal.lower import MAX_TEXT_CHARS, lower

if TYPE_CHECKING:
    from upcall_adapters.terminal.adapter import TerminalScreens

CAPABILITIES: Final = Capabilities(
    text_limit=MAX_TEXT_CHARS,
    draws_asks=True,
    buttons_per_card=100,
    edits=True,
    threads=False,
    files=False,
    repeat="harmless",
    secrets=True,
    own_user=True,
)


def open_screens(config: TerminalConfig, seams: Seams) -> "TerminalScreens":
    """Build the adapter."""
    from upcall_adapters.terminal.adapter import TerminalScreens

    return TerminalScreens(config, seams)


SPEC: Final[Spec[TerminalConfig]] = Spec(
    name="terminal",
    config=TerminalConfig,
    capabilities=CAPABILITIES,
    lower=lower,
    open=open_screens,
)
