"""What to do when the system lets us write no more."""

import errno
import resource
from typing import Final

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: BaseException) -> bool:
    """Tell whether *error* says that there is no room, on the disk or by a limit."""
    return isinstance(error, OSError) and error.errno in {*_FULL, errno.EFBIG}


def is_limited() -> bool:
    """Tell whether files of this process may only grow so far."""
    return resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY


def how_to_make_room(
    error: BaseException | None = None, *, then: str = "start the hub again"
) -> str:
    """Return what a person can do so that files can be written again, and what after that."""
    if is_limited() and not (isinstance(error, OSError) and error.errno in _FULL):
        limit_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return (
            f"raise the limit of {limit_bytes} bytes on files (ulimit -f unlimited), or free "
            f"some space on this disk; then {then}"
        )
    return f"free some space on this disk, then {then}"
