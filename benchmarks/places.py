"""Private folders, child processes and what the system says of them."""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Place:
    """A home of its own for one hub and its sessions."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ub", dir="/tmp"))
        runtime = self.root / "r"
        runtime.mkdir(mode=0o700)
        config = self.root / "c" / "upcall"
        config.mkdir(parents=True, mode=0o700)
        # One program asks more here than any does in earnest.
        (config / "config.toml").write_text(
            "[limits]\nshown_asks = 10000\nshown_asks_per_minute = 100000\n"
        )
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("XDG_", "UPCALL_")) and "proxy" not in name.lower()
        } | {
            "HOME": str(self.root),
            "XDG_STATE_HOME": str(self.root / "s"),
            "XDG_CONFIG_HOME": str(self.root / "c"),
            "XDG_RUNTIME_DIR": str(runtime),
            "UPCALL_IDLE_EXIT_S": "0",
        }

    @property
    def state(self) -> Path:
        return self.root / "s" / "upcall"

    @property
    def sessions(self) -> Path:
        return self.root / "r" / "upcall" / "sessions"

    def child(self, code: str, *args: str) -> "Child":
        return Child([sys.executable, "-u", "-c", code, *args], self.env)

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


class Child:
    """A child process that talks by lines."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        # Its listeners and links may be many; the limit is inherited.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if not text:
            raise RuntimeError(f"the child ended with {self.process.wait()}")
        return text.strip()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    @property
    def pid(self) -> int:
        return self.process.pid

    def rss_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        rows = [line.split() for line in status.splitlines()]
        return sum(
            int(row[1]) for row in rows if row[0] in {"Private_Clean:", "Private_Dirty:"}
        )

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


HUB = """
import json, os, sys, time
import msgspec
# In a user's installation there is no rich; here import-linter brings it, and structlog
# would load it.
sys.modules["rich"] = None
from upcall.hub import daemon, plugins
real = plugins.load_channels
class Recorder:
    '''The real adapter, with the moment of each post told on standard output.'''
    def __init__(self, inner): self._inner = inner
    def __getattr__(self, name): return getattr(self._inner, name)
    async def run(self, inbox):
        '''Somebody looks: pages that nobody looks at are not posted to.'''
        class Looking:
            put = inbox.put
            def state(self, state): inbox.state(msgspec.structs.replace(state, audience=1))
        await self._inner.run(Looking())
    async def post(self, place, body, key):
        now = time.monotonic_ns()
        ref = await self._inner.post(place, body, key)
        os.write(1, b"post %s %d\\n" % (key.key.encode(), now))
        return ref
def load(config, sources=None):
    import dataclasses
    loaded, problems = real(config, sources)
    out = []
    for one in loaded:
        if one.name != "web" and "web-only" in sys.argv: continue
        spec = one.spec
        if "record" in sys.argv and one.name == "web":
            spec = dataclasses.replace(spec, open=lambda c, s, o=spec.open: Recorder(o(c, s)))
        out.append(dataclasses.replace(one, spec=spec))
    return out, problems
daemon.load_channels = load
sys.exit(daemon.main(True))
"""


@contextmanager
def hub(place: Place, *args: str) -> Iterator[Child]:
    """Run a real hub in *place* until the block ends."""
    child = place.child(HUB, *args)
    wait_for(lambda: _is_up(place, child), "the hub")
    try:
        yield child
    finally:
        child.end()


def _is_up(place: Place, child: Child) -> bool:
    if child.process.poll() is not None:
        raise RuntimeError(f"the hub ended with {child.process.returncode}")
    try:
        told = json.loads((place.state / "hub.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(told["pid"] == child.pid and told.get("web_url"))


def wait_for(ready, what: str, limit_s: float = 60.0) -> None:  # type: ignore[no-untyped-def]
    """Poll until *ready*; a benchmark may sleep."""
    import time

    until = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come within {limit_s:g} s")
        time.sleep(0.005)
