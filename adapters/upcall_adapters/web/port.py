"""The inbox's listening socket: a fixed port where one can be had."""

import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from upcall_adapters.web.config import DEFAULT_PORT

_BACKLOG: Final = 128
_TAKEN: Final = frozenset({errno.EADDRINUSE, errno.EACCES})


@dataclass(frozen=True, slots=True)
class Bound:
    """A listening socket and how it came about.

    Attributes:
        sock: bound to 127.0.0.1, listening, non-blocking.
        port: its port.
        taken: a port that was wanted and that somebody else holds.
    """

    sock: socket.socket
    port: int
    taken: int | None = None


def wanted_ports(configured: int | None, kept: str | None) -> Sequence[int]:
    """Return the ports to try, in order; a configured one is the only one."""
    if configured is not None:
        return (configured,)
    if kept is not None and kept.isascii() and kept.isdigit() and 0 < int(kept) < 65536:
        return (int(kept), 0)
    return (DEFAULT_PORT, 0)


def bind(ports: Sequence[int]) -> Bound:
    """Listen on the first free one of *ports*.

    Raises:
        OSError: none could be had.
    """
    taken: int | None = None
    for at, port in enumerate(ports):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(("127.0.0.1", port))
            sock.listen(_BACKLOG)
        except OSError as problem:
            sock.close()
            if problem.errno not in _TAKEN or at == len(ports) - 1:
                raise
            taken = port if taken is None else taken
            continue
        return Bound(sock, sock.getsockname()[1], taken)
    raise OSError(errno.EINVAL, "no port to try")
