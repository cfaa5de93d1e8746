"""Which users are at the other end of loopback connections, where the system can tell."""

import socket
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final, TypeAlias

from upcall_discovery import liveness

PeerAddress: TypeAlias = tuple[str, int]
"""IPv4 address and port of a client."""

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"
_MAPPED: Final = bytes(10) + b"\xff\xff"


def peer_uids(own_port: int, peers: Collection[PeerAddress]) -> dict[PeerAddress, int] | None:
    """Return the uids of those who connected from *peers* to a loopback port of ours.

    Reads files of the kernel, which takes milliseconds with many connections: only for when
    it matters, and then for all at once. Who is missing has left already. None where the
    system cannot tell.
    """
    if sys.platform != "linux" or liveness.Sockets().listener(own_port) is None:
        return None
    uids: dict[PeerAddress, int] = {}
    own, wanted = f":{own_port:04X}", {}
    for peer in peers:
        packed = socket.inet_aton(peer[0])
        # A client may come by an IPv6 socket, too; its row is in the other table.
        for address in (packed, _MAPPED + packed):
            wanted[f"{liveness.hex_address(address)}:{peer[1]:04X}"] = peer
    for path in _TABLES:
        try:
            rows = path.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split(maxsplit=8)
            if fields[3] == _ESTABLISHED and fields[2].endswith(own):
                found = wanted.get(fields[1])
                if found is not None:
                    uids[found] = int(fields[7])
    return uids
