"""Which user is at the other end of a loopback connection, on systems that tell."""

import glob
import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from upcall.model.text import one_line

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


@dataclass(frozen=True, slots=True)
class Listener:
    """Who listens on a port: the kernel's word.

    Attributes:
        uid: the user.
        inode: the number of the socket.
    """

    uid: int
    inode: str


def listener_on(lines: Iterable[str], port: int) -> Listener | None:
    """Return who listens on *port* of loopback or of all addresses, or None."""
    suffix = f":{port:04X}"
    for line in lines:
        cells = line.split()
        if len(cells) > 9 and cells[3] == _LISTEN and cells[1].endswith(suffix):
            return Listener(int(cells[7]), cells[9])
    return None


def program_with_socket(inode: str) -> tuple[int, str] | None:
    """Return pid and name of a program that has the socket *inode* open, or None.

    Only programs of our own user can be looked into, all of them by root. Blocks.
    """
    wanted = f"socket:[{inode}]"
    for path in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(path) != wanted:
                continue
            pid = path.split("/")[2]
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                return int(pid), one_line(file.read().strip(), 40)
        except OSError:
            continue
    return None


def holder_of(port: int) -> str:
    """Return in words who listens on *port*, as far as the system tells. Blocks."""
    lines = read_tables()
    found = None if lines is None else listener_on(lines, port)
    if found is None:
        return "another program"
    whose = "of yours" if found.uid == os.getuid() else f"of the user with uid {found.uid}"
    program = program_with_socket(found.inode)
    if program is None:
        return f"a program {whose}"
    return f"the program {program[1]} (pid {program[0]}) {whose}"
