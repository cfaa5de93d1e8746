"""The `[web]` table of the configuration."""

from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

DEFAULT_PORT: Final = 8737


class WebConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the web inbox.

    Attributes:
        port: the loopback port, and no other; 0 takes any free one. Without it 8737 is
            tried, then any free one, which is remembered.
        public_url: `https://NAME[:PORT]` under which a private network or tunnel brings
            the inbox to other devices.
        other_users: take loopback connections of other local users too. A tunnel that
            runs as another user needs it.
    """

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    public_url: str | None = None
    other_users: bool = False

    def __post_init__(self) -> None:
        """Check the public address.

        Raises:
            ValueError: it is not a plain https origin.
        """
        if self.public_url is not None:
            public_origin(self.public_url)


def public_origin(url: str) -> str:
    """Return the origin that *url* names, as browsers write it.

    Raises:
        ValueError: not https, or it has a path, a query or a user.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise ValueError(f"public_url is not an address: {problem}") from problem
    if parts.scheme != "https":
        raise ValueError("public_url must begin with https://; plain http is loopback only")
    if not parts.hostname or parts.username is not None or parts.password is not None:
        raise ValueError("public_url must be https:// and a host name, nothing else")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("public_url must be https:// and a host name, without a path")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"https://{host}" + (f":{port}" if port not in {None, 443} else "")
