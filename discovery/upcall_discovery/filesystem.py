"""Which file system a path lies on, as far as it matters: one of this machine or not.

Locks and memory maps of a database cannot be trusted over a network.
"""

import os
import re
import sys
from importlib import import_module
from typing import Final

_NETWORK: Final = frozenset(
    (
        *("9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs"),
        *("glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "orangefs", "pvfs2"),
        *("smb3", "smbfs", "webdav"),
    )
)
_NETWORK_FUSE: Final = frozenset(
    ("ceph", "curlftpfs", "davfs2", "gcsfuse", "glusterfs", "goofys", "rclone", "s3fs", "sshfs")
)


def network_type(path: str) -> str | None:
    """Return the type of the network file system that holds *path*, None for a local one.

    *path* need not exist; its nearest existing parent counts.
    """
    kind = type_at(path)
    base, _, sub = kind.partition(".")
    return kind if base in _NETWORK or (base == "fuse" and sub in _NETWORK_FUSE) else None


def where_not_local(path: str, kind: str) -> str:
    """Return in words what *path* lies on, whose type `network_type` has told."""
    drive = re.match(r"/mnt/[a-z](/|$)", os.path.realpath(path))
    if kind == "drvfs" or (kind == "9p" and drive is not None):
        # So does WSL show the drives of Windows.
        return f"is on a Windows drive ({kind}), whose file locks cannot be trusted"
    return f"is on a network file system ({kind})"


def type_at(path: str) -> str:
    """Return the type of the file system that holds *path*; empty if nobody tells."""
    return _type_at(os.path.realpath(path), _mounts())


def _type_at(path: str, mounts: list[tuple[str, str]]) -> str:
    best, kind = "", ""
    for point, found in mounts:
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # At equal length the later mount covers the earlier one.
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def _mounts() -> list[tuple[str, str]]:
    if sys.platform != "linux":
        partitions = import_module("psutil").disk_partitions(all=True)
        return [(part.mountpoint, part.fstype) for part in partitions]
    try:
        with open("/proc/self/mountinfo", "rb") as table:
            return parse_mountinfo(table.read())
    except OSError:
        return []


def parse_mountinfo(table: bytes) -> list[tuple[str, str]]:
    """Return mount point and type of each line of the kernel's mount table, in its order."""
    mounts = []
    for line in table.splitlines():
        left, _, right = line.partition(b" - ")
        fields, kinds = left.split(b" "), right.split(b" ")
        if len(fields) > 4:
            mounts.append((_unescaped(fields[4]), os.fsdecode(kinds[0])))
    return mounts


def _unescaped(field: bytes) -> str:
    # The kernel writes blank, tab, line feed and backslash as three octal digits.
    for octal, plain in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n")):
        field = field.replace(octal, plain)
    return os.fsdecode(field.replace(b"\\134", b"\\"))
