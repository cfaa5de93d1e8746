"""The room in which every test runs: folders of its own, no proxies, no hub left behind.

Each test process (with xdist: each worker) has a short folder under /tmp that holds its HOME,
XDG folders and TMPDIR, so that nothing reads or writes what belongs to the person who runs
the tests, and socket paths stay short. `home` gives one test a further set of its own.
"""

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pytest

from upcall_discovery import paths
from upcall_discovery.liveness import ProcessIdentity, identify

IDLE_EXIT_S: Final = "2"
_END_WITHIN_S: Final = 10.0
_NO_BROWSER: Final = "needs chromium and chromedriver"
_NOT_ROOT: Final = "needs root, to start a child as another user"
_FOLDERS: Final = pytest.StashKey[Path]()
_OUTER: Final = pytest.StashKey[dict[str, str]]()

# What the person's own surroundings must not decide: proxies, screens, our own settings.
_REMOVED_PREFIXES: Final = ("UPCALL_", "SSH_", "XDG_")
_REMOVED: Final = frozenset(
    {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "COLUMNS", "LINES"}
)
_KEPT: Final = frozenset({"UPCALL_TEST_BROWSER"})


def folders_env(root: Path) -> dict[str, str]:
    """Make the folders of a home in *root* and return the variables that name them."""
    named = {
        "HOME": root / "home",
        "XDG_STATE_HOME": root / "state",
        "XDG_CONFIG_HOME": root / "config",
        "XDG_RUNTIME_DIR": root / "run",
        "TMPDIR": root / "tmp",
    }
    for folder in named.values():
        folder.mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)
    return {name: str(folder) for name, folder in named.items()}


def clean_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without proxies, screens and settings of ours."""
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT
        or not (
            name in _REMOVED
            or name.startswith(_REMOVED_PREFIXES)
            or name.lower().endswith("_proxy")
        )
    }


def pytest_configure(config: pytest.Config) -> None:
    """Move this process into folders of its own."""
    outer: dict[str, str] = dict(os.environ)
    config.stash[_OUTER] = outer
    root = Path(tempfile.mkdtemp(prefix="upc-", dir="/tmp"))
    # Children of another uid may pass through; what is in it is 0700.
    root.chmod(0o711)
    config.stash[_FOLDERS] = root
    env = clean_env(os.environ) | folders_env(root) | {"UPCALL_IDLE_EXIT_S": IDLE_EXIT_S}
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the folders away, and give the environment back."""
    if _FOLDERS not in config.stash:
        return
    outer: dict[str, str] = config.stash[_OUTER]
    os.environ.clear()
    os.environ.update(outer)
    tempfile.tempdir = None
    shutil.rmtree(config.stash[_FOLDERS], ignore_errors=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run; where browsers are required, fail instead."""
    if item.get_closest_marker("foreign_uid") is not None and os.getuid() != 0:
        pytest.skip(_NOT_ROOT)
    if item.get_closest_marker("browser") is not None and not _has_browser():
        if os.environ.get("UPCALL_TEST_BROWSER") == "required":
            pytest.fail(f"{_NO_BROWSER}; apt-get install chromium chromium-driver")
        pytest.skip(_NO_BROWSER)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why tests were skipped, one line for each reason."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")


def _has_browser() -> bool:
    # By explicit path, as the tests start them: a wrapper elsewhere in PATH is not Debian's.
    return all(os.access(f"/usr/bin/{name}", os.X_OK) for name in ("chromium", "chromedriver"))


@pytest.fixture(scope="session")
def outer_env(pytestconfig: pytest.Config) -> dict[str, str]:
    """The environment in which the tests were started, for tools that need a network."""
    outer: dict[str, str] = pytestconfig.stash[_OUTER]
    return outer


@pytest.fixture(scope="session", autouse=True)
def no_hub_left(pytestconfig: pytest.Config) -> Iterator[None]:
    """Stop every hub of this process' folders; one that does not end is a failure."""
    yield
    left = stop_hubs(pytestconfig.stash[_FOLDERS])
    assert not left, f"hubs did not end when told to: {left}"


# --- A home of its own -----------------------------------------------------------------------


class Home:
    """A private set of folders, and what runs in it.

    Attributes:
        root: the folder that holds them.
        env: the environment of programs of this home.
        state: where its hub keeps its state (`.../upcall`).
        runtime: where its sessions publish (`.../upcall`).
        config: its configuration file; not written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = (
            clean_env(os.environ) | folders_env(root) | {"UPCALL_IDLE_EXIT_S": IDLE_EXIT_S}
        )
        self.state = root / "state" / "upcall"
        self.runtime = root / "run" / "upcall"
        self.config = root / "config" / "upcall" / "config.toml"
        self._started: list[subprocess.Popen[str]] = []

    def write_config(self, text: str) -> None:
        """Write the configuration file."""
        self.config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.config.write_text(text)
        self.config.chmod(0o600)

    def run(
        self,
        *words: str,
        stdin: str | None = None,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `upcall` with *words* to its end; stdin is empty unless given."""
        return subprocess.run(
            self.argv(*words),
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**self.env, **(env or {})},
            cwd=cwd or self.root,
            check=False,
        )

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start `upcall` with *words*; it is ended with the test if it still runs then."""
        return self.start_program(self.argv(*words), **options)

    def start_program(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a program of this home; it is ended with the test if it still runs then."""
        settings: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "env": self.env,
            "cwd": self.root,
            **options,
        }
        process = subprocess.Popen(argv, **settings)
        self._started.append(process)
        return process

    @staticmethod
    def argv(*words: str) -> list[str]:
        """Return the argument vector of `upcall` with *words*."""
        return [sys.executable, "-m", "upcall", *words]

    def hub(self) -> ProcessIdentity | None:
        """Return the hub that serves this home now."""
        return _hub_of(self.state)

    def stop_hub(self) -> None:
        """Stop this home's hub, if it has one, and wait for its end.

        Raises:
            AssertionError: it did not end.
        """
        left = stop_hubs(self.root)
        assert not left, f"the hub did not end when told to: {left}"

    def close(self) -> None:
        """End what still runs."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            with process:
                process.wait(_END_WITHIN_S)
        self.stop_hub()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def home(pytestconfig: pytest.Config) -> Iterator[Home]:
    """A fresh home; its hub is stopped and its folders are removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="h", dir=pytestconfig.stash[_FOLDERS]))
    try:
        with Home(root) as made:
            yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)


# --- Hubs ------------------------------------------------------------------------------------


def stop_hubs(folder: Path) -> list[int]:
    """Stop the hubs of every home in *folder*; return the pids that had to be killed."""
    stubborn = []
    for hub in _hubs_in(folder):
        if not _end(hub, signal.SIGTERM):
            stubborn.append(hub.pid)
            _end(hub, signal.SIGKILL)
    return stubborn


def _hubs_in(folder: Path) -> list[ProcessIdentity]:
    states = [Path(found).parent for found in folder.glob("**/upcall/hub.json")]
    found = {hub.pid: hub for hub in map(_hub_of, states) if hub is not None}
    for pid in _hub_processes(folder):
        hub = identify(pid)
        if hub is not None:
            found.setdefault(pid, hub)
    return list(found.values())


def _hub_of(state: Path) -> ProcessIdentity | None:
    try:
        told = json.loads(Path(paths.hub_json(str(state))).read_bytes())
        pid, start = int(told["pid"]), str(told["pid_start"])
    except (OSError, ValueError, KeyError):
        return None
    hub = identify(pid)
    # A pid may be another program's by now; its start tells.
    return hub if hub is not None and hub.start == start and not told.get("ended_ms") else None


def _hub_processes(folder: Path) -> Iterator[int]:
    """Yield hubs that live in *folder* whether hub.json knows them or not (Linux)."""
    mark = f"={folder}/".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"hub" in words and b"run" in words and mark in (entry / "environ").read_bytes():
                yield int(entry.name)


def _end(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signal *process* and wait for its end; False if it is still there."""
    try:
        handle = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return True
    try:
        if identify(process.pid) != process:
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        if handle is not None:
            return bool(select.select([handle], [], [], _END_WITHIN_S)[0])
        psutil = importlib.import_module("psutil")  # installed only where it is needed
        with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            psutil.Process(process.pid).wait(_END_WITHIN_S)
        return identify(process.pid) != process
    finally:
        if handle is not None:
            os.close(handle)
