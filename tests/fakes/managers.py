"""Stand-ins for `systemctl`, `loginctl` and `launchctl`, which do what a test can see.

A unit that is started is really run, as its `ExecStart` and environment say, with what a
service manager adds; so a test sees the hub that a person would get.
"""

import os
import plistlib
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

UNIT = "upcall-hub.service"


def stand_ins(folder: Path, *, linger: bool = False, is_reachable: bool = True) -> str:
    """Put the stand-ins into *folder* and return a PATH of that folder alone.

    What they were called with is in `calls` there, a line for each.
    """
    folder.mkdir()
    (folder / "linger").write_text("yes" if linger else "no")
    (folder / "reachable").write_text("yes" if is_reachable else "")
    for name in ("systemctl", "loginctl", "launchctl"):
        path = folder / name
        path.write_text(f"#!{sys.executable} -I\n{_SOURCE}")
        path.chmod(0o755)
    return str(folder)


def calls(folder: Path) -> list[str]:
    """Return what the stand-ins were called with."""
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def main(argv: list[str]) -> int:
    """Be one of the programs."""
    folder = Path(argv[0]).parent
    with (folder / "calls").open("a") as log:
        log.write(shlex.join([Path(argv[0]).name, *argv[1:]]) + "\n")
    if not (folder / "reachable").read_text():
        sys.stderr.write("Failed to connect to bus: No medium found\n")
        return 1
    if Path(argv[0]).name == "loginctl":
        sys.stdout.write(f"Linger={(folder / 'linger').read_text()}\n")
        return 0
    words = [word for word in argv[1:] if not word.startswith("--")]
    if (folder / f"fail-{words[0]}").exists():
        sys.stderr.write("Job for \x1b[31munit failed.\n")
        return 1
    return _systemd(words, folder) if "systemctl" in argv[0] else _launchd(words, folder)


def _systemd(words: list[str], folder: Path) -> int:
    user = Path(os.environ["XDG_CONFIG_HOME"]) / "systemd" / "user"
    wanted = user / "default.target.wants" / UNIT
    match words[0]:
        case "enable":
            wanted.parent.mkdir(exist_ok=True)
            wanted.unlink(missing_ok=True)
            wanted.symlink_to(user / UNIT)
        case "disable":
            wanted.unlink(missing_ok=True)
            _stop(folder)
        case "restart":
            _stop(folder)
            lines = (user / UNIT).read_text().splitlines()
            (command,) = (line[10:] for line in lines if line.startswith("ExecStart="))
            _run(shlex.split(command), {"INVOCATION_ID": "0123"}, folder)
        case "is-active":
            return 0 if _is_running(folder) else 3
        case _:
            pass
    return 0


def _launchd(words: list[str], folder: Path) -> int:
    match words[0]:
        case "print":
            is_agent = words[1].count("/") == 2
            return 0 if not is_agent or _is_running(folder) else 113
        case "bootstrap":
            agent = plistlib.loads(Path(words[2]).read_bytes())
            _run(agent["ProgramArguments"], {"XPC_SERVICE_NAME": agent["Label"]}, folder)
        case "bootout":
            _stop(folder)
        case _:
            pass
    return 0


def _run(command: list[str], more: dict[str, str], folder: Path) -> None:
    process = subprocess.Popen(
        command,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "journal").open("ab"),
        start_new_session=True,
        cwd="/",
    )
    (folder / "pid").write_text(str(process.pid))


def _pid(folder: Path) -> int:
    return int((folder / "pid").read_text()) if (folder / "pid").exists() else 0


def _is_running(folder: Path) -> bool:
    return bool(_pid(folder)) and Path(f"/proc/{_pid(folder)}").exists()


def _stop(folder: Path) -> None:
    if _is_running(folder):
        handle = os.pidfd_open(_pid(folder))
        os.kill(_pid(folder), signal.SIGTERM)
        # Readable once the process has ended.
        select.select([handle], [], [], 20)
    (folder / "pid").unlink(missing_ok=True)


_SOURCE = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n" + (
    "import managers\nsys.exit(managers.main(sys.argv))\n"
)
