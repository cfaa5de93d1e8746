"""The one way out: which proxy connections to other computers take. This computer, none."""

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit

from upcall.model.errors import ConfigInvalid, NotSent
from upcall.model.text import one_line, visible

SCHEMES: Final = frozenset({"http", "https"})
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10}")
_HERE: Final = frozenset({0, 127})


@dataclass(frozen=True, slots=True)
class Outward:
    """How connections to other computers are made.

    Attributes:
        proxy: the proxy's address, with its login if it wants one; None: straight.
        trouble: why the configured proxy is not known; nothing goes out then.
    """

    proxy: str | None = field(default=None, repr=False)
    trouble: str | None = None

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy for a connection to *url*, None for none.

        Raises:
            NotSent: the configured proxy cannot be had; going without would go around it.
        """
        if is_here(url):
            return None
        if self.trouble is not None:
            raise NotSent(self.trouble)
        return self.proxy

    @property
    def shown(self) -> str | None:
        """The proxy as people may see it: scheme, host and port, never its login."""
        if self.proxy is None:
            return None
        parts = urlsplit(self.proxy)
        login = "***@" if parts.username is not None else ""
        host = parts.netloc.rpartition("@")[2]
        return visible(f"{parts.scheme}://{login}{host}")


def read_proxy(text: str) -> str:
    """Return a proxy's address as it is used.

    Raises:
        ConfigInvalid: it is no `http://HOST:PORT` or `https://HOST:PORT`; what is wrong is
            said without a login that the address may hold.
    """
    form = "write http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT from a { file = ... }"
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise ConfigInvalid("network.proxy is no address", recover=form) from None
    if parts.scheme not in SCHEMES:
        kind = f"is of an unknown kind, {one_line(parts.scheme, 20)}" if parts.scheme else ""
        words = kind if "://" in text else "has no scheme"
        raise ConfigInvalid(f"network.proxy {words}", recover=form)
    if not parts.hostname or not port or not _is_plain(parts):
        raise ConfigInvalid(
            "network.proxy needs a host and a port, and nothing after them", recover=form
        )
    return f"{parts.scheme}://{parts.netloc}"


def is_here(url: str) -> bool:
    """Tell whether *url* (or a host alone) is this computer, in whatever way it is written."""
    try:
        host = (urlsplit(url).hostname or "") if "://" in url else url.strip("[]")
    except ValueError:
        return False
    host = host.rstrip(".").lower().partition("%")[0]
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _is_old_style(host)
    mapped = getattr(address, "ipv4_mapped", None) or address
    # The unspecified address reaches this computer too.
    return bool(mapped.is_loopback or mapped.is_unspecified)


def _is_plain(parts: SplitResult) -> bool:
    text = parts.netloc
    clean = text.isascii() and text.isprintable() and not set(text) & set(" \\\"'<>")
    return clean and parts.path in {"", "/"} and not parts.query and not parts.fragment


def _is_old_style(host: str) -> bool:
    """Tell whether *host* is a loopback address as `127.1` and `0x7f.1` are."""
    numbers = host.split(".")
    if not 1 <= len(numbers) <= 4 or not all(_NUMBER.fullmatch(one) for one in numbers):
        return False
    try:
        values = [
            int(one, 8) if one.startswith("0") and one[1:].isdecimal() else int(one, 0)
            for one in numbers
        ]
    except ValueError:
        return False
    return (values[0] >> 24 if len(values) == 1 else values[0]) in _HERE
