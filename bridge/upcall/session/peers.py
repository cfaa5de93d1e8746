"""Which user is at the other end of a loopback connection, where the system can tell."""

import sys
from pathlib import Path

_PROC_TCP = Path("/proc/net/tcp")


def peer_uid(own_port: int, peer_port: int) -> int | None:
    """Return the uid of the process that connected from *peer_port* of 127.0.0.1.

    Reads one file of the kernel, which takes milliseconds with many connections: only for
    when it matters. None where the system cannot tell.
    """
    if sys.platform != "linux":
        return None
    try:
        table = _PROC_TCP.read_text(encoding="ascii")
    except OSError:
        return None
    # The kernel writes the address as one little-endian or big-endian word.
    loopback = f"{int.from_bytes(bytes((127, 0, 0, 1)), sys.byteorder):08X}"
    wanted = f" {loopback}:{peer_port:04X} {loopback}:{own_port:04X} "
    for line in table.splitlines():
        if wanted in line:
            return int(line.split()[7])
    return None
