"""S12: nothing from the working folder or the environment runs in a command or the hub."""

import argparse
import ast
import ctypes
import importlib
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from fakes.home import Done, Home, eventually, open_files
from upcall.cli import COMMANDS
from upcall.line import interpreter

ROOT: Final = Path(__file__).resolve().parents[2]
CODE: Final = [
    path
    for folder in ("bridge", "adapters", "discovery")
    for path in (ROOT / folder).rglob("*.py")
]
DEPENDENCIES: Final = (
    "aiohttp", "asyncinotify", "msgspec", "segno", "structlog", "websockets", "keyring", "rich",
    "upcall_adapters", "upcall_discovery",
)  # fmt: skip
# What the interpreter itself imports by PYTHONPATH before any program begins.
BEFORE_US: Final = frozenset({"sitecustomize", "usercustomize", "encodings", "upcall"})
PROGRAMS: Final = (
    "python", "python3", "python3.11", "upcall", "xdg-open", "open", "firefox", "chromium",
    "google-chrome", "wslview", "git", "ssh", "tmux", "sh", "env", "systemctl", "loginctl",
    "launchctl", "hostname", "tput", "stty",
)  # fmt: skip
PAPERS: Final = (
    ".env", ".netrc", "pyproject.toml", "upcall.toml", "config.toml", "setup.cfg", "pyvenv.cfg",
    "keyringrc.cfg", ".pdbrc", "evil.pth", "hub.json", "ask.sock",
)  # fmt: skip
SECRET: Final = "tok-9f8e7d6c5b4a-environment"


class Hostile:
    """A folder in which everything that could be picked up by mistake leaves a mark."""

    def __init__(self, path: str, *, without: frozenset[str] = frozenset()) -> None:
        self.path = path
        self.marks = f"{path}.marks"
        os.mkdir(path)
        os.mkdir(self.marks)
        mark = f"open({self.marks!r} + '/' + __name__, 'w').close()\n"
        # A standard module that only leaves its mark would break what it stands in for.
        names = {*sys.stdlib_module_names, *DEPENDENCIES, *BEFORE_US} - without
        for name in names:
            if name in DEPENDENCIES or name in {"upcall", "encodings", "json", "asyncio"}:
                os.mkdir(f"{path}/{name}")
                self._write(f"{name}/__init__.py", mark)
            else:
                self._write(f"{name}.py", mark)
        for name in PROGRAMS:
            if name not in names:
                self._write(name, f"#!/bin/sh\n: > '{self.marks}/program-{name}'\n", 0o755)
        for name in PAPERS:
            self._write(name, "import os\n[hub]\nlog_level = 'nonsense'\n")

    def found(self) -> list[str]:
        return sorted(os.listdir(self.marks))

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = f"{self.path}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)


def by_dash_m() -> frozenset[str]:
    """Return what Python itself imports for `-m`, before the module that is named."""
    ask = "import sys, runpy; print(*{name.partition('.')[0] for name in sys.modules})"
    argv = [sys.executable, "-I", "-S", "-c", ask]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    return frozenset({"upcall", *done.stdout.split()})


def leaves(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield a usable command line for every action of *parser*."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for group in groups:
        for name, inner in group.choices.items():
            yield from leaves(inner, (*words, name))
    if groups:
        return
    options = {text for action in parser._actions for text in action.option_strings}
    line = [*words]
    line += [one for one in ("--auto", "--yes") if one in options]
    line += ["--timeout", "100ms"] if "--timeout" in options else []
    required = [
        a for a in parser._actions if not a.option_strings and a.nargs not in ("?", "*")
    ]
    chosen = next((a for a in required if a.choices), None)
    rest = [f"x{words[-1]}" for a in required if a is not chosen]
    if chosen is None:
        yield (*line, *rest)
    else:
        assert chosen.choices is not None
        yield from ((*line, str(choice), *rest) for choice in chosen.choices)


def command_lines() -> list[tuple[str, ...]]:
    """Return the lines of all commands: what ends the hub comes last."""
    found: list[tuple[str, ...]] = [(), ("--help",), ("--version",)]
    for name in COMMANDS:
        module = importlib.import_module(f"upcall.cli.{name}")
        found += leaves(module.parser(), (name,))
    late = {"uninstall": 3, "stop": 2, "restart": 1, "restore": 1, "adopt": 1}
    return sorted(found, key=lambda line: max((late.get(one, 0) for one in line), default=0))


def script(home: Home) -> list[str]:
    """Return the command as an installer makes it: no option for the interpreter."""
    path = f"{home.path}/upcall"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!{sys.executable}\nimport sys\nfrom upcall.cli import main\n")
        file.write("if __name__ == '__main__':\n    sys.exit(main())\n")
    os.chmod(path, 0o755)
    return [path]


def run(home: Home, argv: Sequence[str], cwd: str, env: dict[str, str]) -> Done:
    running = home.start_program(argv, cwd=cwd, env=env)
    try:
        return running.end(40.0)
    finally:
        home._running.remove(running)
        running.abandon()


def codes(
    program: str, env: dict[str, str], without: frozenset[str] | None
) -> tuple[dict[tuple[str, ...], int], list[str]]:
    """Run every command in a home of its own, somewhere; return exit codes and marks."""
    with Home() as home:
        somewhere = f"{home.path}/repo"
        hostile = None if without is None else Hostile(somewhere, without=without)
        if hostile is None:
            os.mkdir(somewhere)
        path = env.get("PATH", "").replace("@", home.env["PATH"]) or home.env["PATH"]
        argv = script(home) if program == "script" else [sys.executable, *program.split()]
        found = {}
        for line in command_lines():
            done = run(home, [*argv, *line], somewhere, {**env, "PATH": path})
            assert "Traceback" not in done.err, (line, done)
            found[line] = done.code
        return found, [] if hostile is None else hostile.found()


@pytest.fixture(scope="module")
def elsewhere() -> dict[tuple[str, ...], int]:
    """The exit code of every command in an empty folder."""
    return codes("script", {}, None)[0]


# Each runs every command for real, with its hub: long on a busy machine, so not within the
# usual limit.
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("env", "without"),
    [
        ({"PATH": ".:@"}, frozenset()),
        ({"PATH": ":@", "PYTHONPATH": "."}, BEFORE_US),
    ],
    ids=["the folder, and PATH", "PYTHONPATH too"],
)
def test_every_command_does_in_a_hostile_folder_what_it_does_elsewhere(
    elsewhere: dict[tuple[str, ...], int], env: dict[str, str], without: frozenset[str]
) -> None:
    """The list of commands comes from the parsers."""
    assert len(elsewhere) > len(COMMANDS)
    found, marks = codes("script", env, without)
    assert marks == []
    assert found == elsewhere


@pytest.mark.parametrize(
    ("words", "env", "without"),
    [
        # Without an option Python itself looks for these in the folder it is in.
        ("-m upcall", {}, by_dash_m()),
        ("-m upcall", {"PYTHONPATH": ":"}, BEFORE_US | by_dash_m()),
        (
            "-P -m upcall",
            {"PYTHONSTARTUP": "json.py", "PYTHONBREAKPOINT": "json.x"},
            frozenset(),
        ),
        ("-I -m upcall", {"PYTHONPATH": ".", "PYTHONWARNINGS": "ignore::json.X"}, frozenset()),
    ],
)
def test_the_module_is_as_careful_as_the_command(
    words: str, env: dict[str, str], without: frozenset[str]
) -> None:
    with Home() as home:
        hostile = Hostile(f"{home.path}/repo", without=without)
        argv = [sys.executable, *words.split()]
        for line in (["ask", "Q?", "-o", "a", "--no-wait"], ["doctor"], ["hub", "status"]):
            done = run(home, [*argv, *line], hostile.path, env)
            assert "Traceback" not in done.err
            assert done.code == 0, done
        assert hostile.found() == []


class Opened:
    """What is opened in a folder, by whatever process, as the kernel tells it."""

    _OPEN = 0x20

    def __init__(self, folder: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        watch = libc.inotify_add_watch(self._fd, folder.encode(), self._OPEN)
        assert self._fd >= 0
        assert watch >= 0

    def names(self) -> set[str]:
        """Return the names in the folder that were opened since the last look."""
        found = set()
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return set()
        while data:
            size = int.from_bytes(data[12:16], sys.byteorder)
            found.add(data[16 : 16 + size].rstrip(b"\0").decode())
            data = data[16 + size :]
        return found - {""}

    def close(self) -> None:
        os.close(self._fd)


@pytest.mark.skipif(sys.platform != "linux", reason="watches with inotify")
def test_no_file_of_the_folder_is_opened_by_anyone() -> None:
    """Not even read: not by the command, the hub that it starts, or the browser's starter."""
    with Home() as home:
        hostile = Hostile(f"{home.path}/repo")
        opened = Opened(hostile.path)
        try:
            open(f"{hostile.path}/.env", encoding="utf-8").close()
            assert opened.names() == {".env"}
            env = {"BROWSER": "./firefox", "DISPLAY": ":9", "PATH": f".:{home.env['PATH']}"}
            for line in (
                ["ask", "Q?", "-o", "a", "--no-wait"], ["ask", "R?", "--timeout", "50ms"],
                ["doctor"], ["inbox", "--json"], ["config", "check"], ["sessions", "--all"],
            ):  # fmt: skip
                done = run(home, [*script(home), *line], hostile.path, env)
                assert "Traceback" not in done.err
            assert opened.names() == set()
        finally:
            opened.close()
        assert hostile.found() == []


def test_a_project_folder_of_pythonpath_that_holds_this_program_still_works() -> None:
    """A developer's `PYTHONPATH=bridge:...` in the source folder is no hostile one."""
    with Home() as home:
        env = {"PYTHONPATH": "bridge:adapters:discovery"}
        done = run(home, [sys.executable, "-m", "upcall", "--version"], str(ROOT), env)
        assert done.code == 0, done


# --- the hub ----------------------------------------------------------------------------


def hub_facts(pid: int) -> tuple[list[str], dict[str, str]]:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode().split("\0")[:-1]
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = [one.partition("=") for one in file.read().decode().split("\0") if one]
    return words, {name: value for name, _, value in pairs}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["on demand", "foreground"])
def test_the_hub_is_a_clean_process_however_it_is_started(how: str) -> None:
    inherited, kept = os.pipe()
    with Home() as home:
        home.write_config("[web]\nmetrics_token = { env = 'METRICS_TOKEN' }\n")
        hostile = Hostile(f"{home.path}/repo", without=BEFORE_US)
        env = {
            "METRICS_TOKEN": SECRET, "OTHER_TOKEN": f"{SECRET}-other", "PYTHONPATH": ".",
            "PYTHONHASHSEED": "1", "LD_BIND_NOW": "1", "DYLD_X": "1",
            "PATH": f".:{home.env['PATH']}",
            "HTTPS_PROXY": f"http://user:{SECRET}@127.0.0.1:1",
        }  # fmt: skip
        argv = script(home)

        def open_up() -> None:
            os.umask(0)
            most = resource.getrlimit(resource.RLIMIT_CORE)[1]
            resource.setrlimit(resource.RLIMIT_CORE, (most, most))

        def start(*words: str) -> None:
            home.start_program(
                [*argv, *words],
                cwd=hostile.path,
                env=env,
                before=open_up,
                pass_fds=[inherited, kept],
            )

        try:
            start("hub", "run" if how == "foreground" else "start")
            pid = eventually(home.hub_pid, what="a hub")
            assert pid is not None
            words, environ = hub_facts(pid)
            assert words[1] == "-I"
            assert os.readlink(f"/proc/{pid}/cwd") == "/"
            assert not [one for one in environ if one.startswith(("PYTHON", "LD_", "DYLD_"))]
            assert "proxy" not in " ".join(environ).lower()
            assert SECRET not in str(environ)
            assert all(os.path.isabs(one) for one in environ["PATH"].split(":"))
            with open(f"/proc/{pid}/limits", encoding="ascii") as file:
                core = next(one for one in file if one.startswith("Max core file size"))
            assert core.split()[4:6] == ["0", "0"]
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                assert "Umask:\t0077\n" in file.read()
            theirs = {os.readlink(f"/proc/self/fd/{one}") for one in (inherited, kept)}
            files = open_files(pid)
            assert not theirs & set(files.values())
            assert not [one for one in files.values() if "memfd" in one]
            if how == "on demand":
                assert os.getsid(pid) == pid
                assert {files[one] for one in (0, 1, 2)} == {"/dev/null"}
            else:
                # What the environment held was handed over all the same.
                with home.line("control") as line:
                    degraded = line.ok("status")["degraded"]
                assert not [one for one in degraded if one["code"] == "secret_missing"]
            assert hostile.found() == []
        finally:
            os.close(inherited)
            os.close(kept)


def test_a_hub_on_demand_has_no_variable_and_says_how_to_make_it_a_file() -> None:
    with Home(more_env={"METRICS_TOKEN": SECRET}) as home:
        home.write_config("[web]\nmetrics_token = { env = 'METRICS_TOKEN' }\n")
        home.start_hub()
        with home.line("control") as line:
            [problem] = [
                one for one in line.ok("status")["degraded"] if one["code"] == "secret_missing"
            ]
        assert "file" in problem["recover"]


def test_a_substitution_returns_with_the_answer_though_it_started_the_hub() -> None:
    """`x=$(upcall ask ...)` would wait for a hub that held its pipe."""
    with Home() as home:
        shell = 'x=$("$@" 3>&1); echo "got:$x"'
        argv = ["/bin/sh", "-c", shell, "sh", *script(home)]
        running = home.start_program([*argv, "ask", "Q?", "-o", "a", "--timeout", "300ms",
                                      "--default", "a"])  # fmt: skip
        done = running.end(20.0)
        assert done.out == "got:a\n", done
        pid = home.hub_pid()
        assert pid is not None
        assert not [one for one in open_files(pid).values() if one.startswith("pipe:")]
        locks = [one for one in open_files(pid).values() if one.endswith("start.lock")]
        assert locks == []


def test_a_program_that_is_here_only_by_pythonpath_says_how_to_install_it() -> None:
    """The hub would not find it; that is told, and not found out after ten seconds."""
    with Home() as home:
        bare = f"{home.path}/venv"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", bare], check=True, timeout=60
        )
        packages = [*(f"{ROOT}/{one}" for one in ("bridge", "adapters", "discovery"))]
        env = {"PYTHONPATH": ":".join(packages)}
        done = run(home, [f"{bare}/bin/python", "-m", "upcall", "hub", "start", "--json"],
                   home.path, env)  # fmt: skip
        assert done.code == 1, done
        error = json.loads(done.out)["error"]
        assert error["code"] == "hub_not_installed"
        assert "install" in error["recover"]


# --- other programs ---------------------------------------------------------------------


def test_no_program_is_looked_up_where_we_stand() -> None:
    path = interpreter.absolute_path({"PATH": ".::/usr/bin:bin:../x:/bin:"})
    assert path == "/usr/bin:/bin"
    assert interpreter.absolute_path({"PATH": ".:"}) == os.defpath
    assert interpreter.absolute_path({}) == os.defpath


def _starts_a_program(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    return (
        last in {"Popen", "Detached", "system", "popen", "create_subprocess_exec",
                 "create_subprocess_shell", "check_output", "check_call", "which"}
        or (last.startswith(("exec", "spawn", "posix_spawn")) and name.startswith("os."))
        or name in {"subprocess.run", "subprocess.call", "webbrowser.open"}
    )  # fmt: skip


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_whatever_starts_a_program_names_it_whole(path: Path) -> None:
    """No shell, no look-up by PATH, and never a folder of somebody else's to stand in."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call) or not _starts_a_program(call):
            continue
        where = f"{path.name}:{call.lineno}"
        given = {one.arg: ast.unparse(one.value) for one in call.keywords}
        assert given.get("shell", "False") == "False", where
        name = ast.unparse(call.func)
        assert not [one for one in ("which", "system", "popen") if one in name], where
        if "exec" not in name:
            assert given.get("cwd") == "'/'", where
            assert "env" in given, where


def test_the_own_script_of_an_installer_is_what_was_tested() -> None:
    """An installer writes no option into it; were that to change, the better."""
    installed = Path(sys.executable).with_name("upcall")
    if not installed.exists():
        pytest.skip("no console script beside the interpreter")
    assert stat.S_IMODE(installed.stat().st_mode) & 0o111
    text = installed.read_text()
    assert text.startswith("#!/")
    assert "from upcall.cli import main" in text
