"""The `[web]` table of the configuration."""

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

DEFAULT_PORT: Final = 8737
_NAME: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?:\.(?!-)[a-z0-9-]{1,63})*", re.ASCII)
_IPV6: Final = re.compile(r"[0-9a-f:.]{2,45}", re.ASCII)


class WebConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the web inbox.

    Attributes:
        port: the loopback port, and no other; 0 takes any free one. Without it 8737 is
            tried, then any free one, which is remembered.
        public_url: `https://NAME[:PORT]` under which a private network or tunnel brings
            the inbox to other devices.
        other_users: take loopback connections of other local users too. A tunnel that
            runs as another user needs it.
        undo_s: for how many seconds an answer that reads as if it destroys something, or a
            decline, can be taken back on the page before it is sent; 0 asks for a second
            press instead.
    """

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    public_url: str | None = None
    other_users: bool = False
    undo_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 5.0

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
        ValueError: not https, or it has a path, a query or a user, or no usable name.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise ValueError(f"public_url is not an address: {problem}") from problem
    if parts.scheme != "https":
        raise ValueError(
            "public_url must begin with https://: over plain http everybody on the way could "
            "read the login and answer in your name"
        )
    if (
        port == 0
        or not parts.hostname
        or parts.username is not None
        or parts.password is not None
    ):
        raise ValueError("public_url must be https:// and a host name, nothing else")
    if "[" in parts.netloc and ":" not in parts.hostname:
        raise ValueError("public_url has an IPv6 address that can't be read")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("public_url must be https:// and a host name, without a path")
    return f"https://{_host(parts.hostname)}" + (f":{port}" if port not in {None, 443} else "")


def _host(name: str) -> str:
    """Return a host name as browsers send it.

    Raises:
        ValueError: no browser sends such a name.
    """
    if ":" in name:
        if not _IPV6.fullmatch(name):
            raise ValueError("public_url has an IPv6 address that can't be read")
        return f"[{name}]"
    try:
        plain = name if name.isascii() else name.encode("idna").decode("ascii")
    except UnicodeError as problem:
        raise ValueError(f"public_url has a name that can't be used: {problem}") from problem
    if not _NAME.fullmatch(plain):
        raise ValueError("public_url must be https:// and a host name, nothing else")
    return plain
