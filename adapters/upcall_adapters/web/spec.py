"""What the hub knows of the web inbox before it opens it."""

from typing import TYPE_CHECKING, Final

from upcall.model.platform import Capabilities, Seams, Spec
from upcall_adapters.web.config import WebConfig
from upcall_adapters.web.lower import lower

if TYPE_CHECKING:
    from upcall_adapters.web.adapter import WebInbox

CAPABILITIES: Final = Capabilities(
    text_limit=1_000_000,
    draws_asks=True,
    buttons_per_card=100,
    edits=True,
    threads=False,
    files=True,
    repeat="harmless",
    secrets=True,
    own_user=True,
)


def open_inbox(config: WebConfig, seams: Seams) -> "WebInbox":
    """Build the adapter; nothing is bound before it runs."""
    from upcall_adapters.web.adapter import WebInbox

    return WebInbox(config, seams)


SPEC: Final[Spec[WebConfig]] = Spec(
    name="web",
    config=WebConfig,
    capabilities=CAPABILITIES,
    lower=lower,
    open=open_inbox,
    secrets=("metrics_token",),
)
