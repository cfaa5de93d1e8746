"""Where a program runs: repository, branch and machine, without starting another program."""

import errno
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HEAD_LIMIT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Origin:
    """Repository, branch and machine as shown to people; empty where there is none."""

    repo: str
    branch: str
    machine: str


def origin_of(folder: str | os.PathLike[str]) -> Origin:
    """Return the origin of a program that runs in *folder*. Reads files; never fails."""
    repo, branch = "", ""
    start = Path(folder)
    for place in (start, *start.parents):
        head = _head_of(place / ".git")
        if head is not None:
            repo = place.name
            branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head
            break
    # A detached head is a commit: seven characters name it well enough.
    if len(branch) == 40 and all(char in "0123456789abcdef" for char in branch):
        branch = branch[:7]
    return Origin(repo, branch, socket.gethostname())


def _head_of(git: Path) -> str | None:
    try:
        if git.is_file():
            # A worktree or submodule: the file names the real folder.
            pointer = _first_line(git).removeprefix("gitdir:").strip()
            git = git.parent / pointer
        return _first_line(git / "HEAD")
    except (OSError, ValueError):
        return None


def _first_line(path: Path) -> str:
    # A repository can hold anything: a pipe in place of a file must not hold the program up.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        data = os.read(fd, _HEAD_LIMIT_BYTES)
    finally:
        os.close(fd)
    return data.decode("utf-8", "replace").partition("\n")[0].strip()
