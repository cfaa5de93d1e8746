"""Other people's programs: found in absolute folders only, run without a shell."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WITHIN_S = 30.0


class Ran:
    """A program that has ended.

    Attributes:
        code: its exit code, or None if it did not end in time or could not be run.
        out: its standard output.
        err: its standard error, or why it could not be run.
    """

    __slots__ = ("code", "err", "out")

    def __init__(self, code: int | None, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


def find(program: str, environ: Mapping[str, str]) -> str | None:
    """Return the absolute path of *program*; never one beside where we happen to stand."""
    if os.path.isabs(program):
        return program if _is_program(program) else None
    if "/" in program or not program:
        return None
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, program)
        if os.path.isabs(folder) and _is_program(path):
            return path
    return None


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def run(
    words: Sequence[str], environ: Mapping[str, str], *, within_s: float = _WITHIN_S
) -> Ran:
    """Run a program to its end, in `/` and without input."""
    import subprocess

    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(environ),
            cwd="/",
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(None, "", f"did not end within {within_s:g} s")
    except OSError as err:
        return Ran(None, "", err.strerror or str(err))
    return Ran(
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )
