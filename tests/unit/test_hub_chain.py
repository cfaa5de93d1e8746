"""Which processes count as the one that asked; against real processes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from upcall.hub.chain import _shell_use, asking_chain, is_cut_off
from upcall_discovery import liveness, paths

# What the tests were started with, which is not what they have now.
STARTED_WITH = liveness.environment_of(os.getpid()) or {}
OURS = paths.state_dir_in(STARTED_WITH) or "/nowhere/upcall"
ELSEWHERE = "/nowhere/else/upcall"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="starts processes by /proc")


@contextmanager
def running(argv: list[str], **options: Any) -> Iterator[int]:
    """Run a program that says a line once it runs, and waits for its standard input."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **options,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        if "echo" not in " ".join(argv):
            process.stdin.write(b"echo up; read x\n")
            process.stdin.flush()
        assert process.stdout.readline() == b"up\n"
        yield process.pid
    finally:
        process.communicate(b"\n")


RUN = "echo up; read x; :"


@pytest.mark.parametrize(
    ("words", "use"),
    [
        (["-c", RUN], "command"),
        (["-ec", RUN], "command"),
        (["-e", "-u", "-c", RUN], "command"),
        (["-o", "errexit", "-c", RUN], "command"),
        (["-eo", "errexit", "-c", RUN], "command"),
        (["+x", "-c", RUN], "command"),
        (["{script}"], "script"),
        (["-e", "{script}", "-c"], "script"),
        (["--", "{script}"], "script"),
        (["-"], "input"),
        (["-s"], "input"),
        ([], "input"),
    ],
)
def test_what_a_shell_runs_is_told_from_its_arguments(
    tmp_path: Any, words: list[str], use: str
) -> None:
    script = tmp_path / "echo.sh"
    script.write_text(RUN)
    with running(["sh", *(word.format(script=script) for word in words)]) as pid:
        assert _shell_use(pid) == use


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "use"),
    [
        (["--rcfile", "/dev/null", "-c", RUN], "command"),
        (["--norc", "--noprofile", "-c", RUN], "command"),
        (["-O", "extglob", "-c", RUN], "command"),
        (["--norc"], "input"),
    ],
)
def test_long_options_of_a_shell_are_no_scripts(words: list[str], use: str) -> None:
    with running(["bash", *words]) as pid:
        assert _shell_use(pid) == use


def test_what_started_it_counts_whatever_it_is() -> None:
    inner = f"import subprocess; subprocess.run(['sh', '-c', {RUN!r}])"
    with running([sys.executable, "-c", inner]) as pid:
        (child,) = liveness._children(pid) or []
        chain = asking_chain(child, OURS)
        assert [process.pid for process in chain][:3] == [child, pid, os.getpid()]
        assert all(liveness.is_alive(process) for process in chain)


def test_a_state_folder_in_between_does_not_end_the_chain() -> None:
    elsewhere = {**os.environ, "XDG_STATE_HOME": "/nowhere/at/all"}
    inner = ["sh", "-c", f"{RUN}"]
    code = f"import os, subprocess; subprocess.run({inner!r}, env={dict(STARTED_WITH)!r})"
    with running([sys.executable, "-c", code], env=elsewhere) as pid:
        (child,) = liveness._children(pid) or []
        chain = [process.pid for process in asking_chain(child, OURS)]
        assert chain[:3] == [child, pid, os.getpid()]


def test_a_name_alone_makes_no_terminal_or_service_manager(tmp_path: Any) -> None:
    """A program that calls itself tmux is not where a person begins."""
    python = os.path.realpath(sys.executable)
    named = tmp_path / "tmux"
    shutil.copy2(python, named)
    code = f"import subprocess; subprocess.run(['sh', '-c', {RUN!r}])"
    home = {**STARTED_WITH, "PYTHONHOME": sys.base_prefix}
    with running([str(named), "-c", code], env=home) as pid:
        assert liveness.program_file_of(pid) == str(named)
        (child,) = liveness._children(pid) or []
        assert pid in [process.pid for process in asking_chain(child, OURS)]


def test_what_starts_programs_with_another_state_folder_does_not_count() -> None:
    with running(["sh", "-c", RUN]) as pid:
        assert [process.pid for process in asking_chain(pid, ELSEWHERE)] == [pid]


@pytest.mark.foreign_uid
def test_another_users_program_does_not_count() -> None:
    with running(["sh", "-c", RUN], user=65534, group=65534) as pid:
        assert [process.pid for process in asking_chain(pid, OURS)] == [pid]


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_a_process_that_is_not_there_has_no_chain(pid: int) -> None:
    assert asking_chain(pid, OURS) == ()


def test_a_process_in_the_session_of_its_ancestors_is_not_cut_off() -> None:
    own = liveness.identify(os.getpid())
    assert own is not None
    line = [own, *liveness.ancestors(os.getpid())]
    leader = os.getsid(0)
    # Where the session began above what we can see, nothing tells that we belong to it; one
    # that began outside of this pid namespace has the number 0, and then nothing is known.
    left_behind = leader != 0 and leader not in {process.pid for process in line}
    assert is_cut_off(os.getpid(), line) == left_behind
    with running(["sh", "-c", RUN], start_new_session=True) as pid:
        child = liveness.identify(pid)
        assert child is not None
        assert not is_cut_off(pid, [child, *line])
        assert is_cut_off(pid, line)
