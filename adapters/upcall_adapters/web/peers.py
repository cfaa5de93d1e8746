"""Which user is at the other end of a loopback connection, on systems that tell."""

import socket
import sys
from collections.abc import Iterable
from typing import Final

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_TIME_WAIT: Final = "06"
_LISTEN: Final = "0A"


def address_in_table(host: str, port: int) -> frozenset[str]:
    """Return how the kernel's tables may write an IPv4 or IPv6 address and port."""
    if ":" in host:
        packed = socket.inet_pton(socket.AF_INET6, host)
        return frozenset({f"{_words(packed)}:{port:04X}"})
    packed = socket.inet_pton(socket.AF_INET, host)
    mapped = b"\x00" * 10 + b"\xff\xff" + packed
    return frozenset({f"{_words(packed)}:{port:04X}", f"{_words(mapped)}:{port:04X}"})


def _words(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def read_tables() -> list[str] | None:
    """Return the lines of the kernel's tables, or None where there are none. Blocks."""
    lines: list[str] = []
    found = False
    for path in TABLES:
        try:
            with open(path, encoding="ascii") as table:
                lines += table.readlines()[1:]
            found = True
        except OSError:
            continue
    return lines if found else None


def uid_of_peer(
    lines: Iterable[str], peer: tuple[str, int], local: tuple[str, int]
) -> int | None:
    """Return the uid that holds the socket at *peer* connected to *local*, or None.

    A socket without an inode was closed by its owner and is listed as uid 0, so it
    proves nothing.
    """
    here, there = address_in_table(*peer), address_in_table(*local)
    for line in lines:
        cells = line.split()
        if len(cells) < 10 or cells[1] not in here or cells[2] not in there:
            continue
        if cells[3] != _TIME_WAIT and cells[9] != "0":
            return int(cells[7])
    return None


def uid_of_listener(lines: Iterable[str], port: int) -> int | None:
    """Return the uid that listens on *port* of loopback or of all addresses, or None."""
    suffix = f":{port:04X}"
    for line in lines:
        cells = line.split()
        if len(cells) > 9 and cells[3] == _LISTEN and cells[1].endswith(suffix):
            return int(cells[7])
    return None
