"""The files that are written by the program itself, and what they must hold.

`make generate` runs this and writes them; a test compares them with what they must be.
"""

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from upcall.cli import units

ROOT: Final = Path(__file__).resolve().parents[2]


def config_schema() -> str:
    """Return the JSON Schema of the configuration, as `upcall config schema` prints it."""
    return json.dumps(json.loads(_run("upcall", "config", "schema")), indent=2) + "\n"


def frames_schema() -> str:
    """Return the JSON Schema of the session protocol."""
    return _run("upcall.model.schema")


def systemd_unit() -> str:
    """Return the systemd user unit, for an interpreter in an ordinary place."""
    return units.systemd_unit(_hub_command("/home/you"), {})


def launchd_agent() -> str:
    """Return the launchd agent, for an interpreter in an ordinary place."""
    return units.launchd_agent([*_hub_command("/Users/you"), "--detached"], {})


def _hub_command(home: str) -> list[str]:
    python = f"{home}/.local/share/uv/tools/upcall/bin/python"
    return [python, "-I", "-m", "upcall", "hub", "run"]


def _completion(shell: str) -> Callable[[], str]:
    return lambda: _scripts()[shell]


@cache
def _scripts() -> dict[str, str]:
    # By its path: this file also runs by itself, where `tests` is not on the path.
    path = str(Path(__file__).with_name("completion.py"))
    scripts: dict[str, str] = runpy.run_path(path)["scripts"]()
    return scripts


def _lookalikes(name: str) -> Callable[[], str]:
    # Its facts are Unicode's, and what reads them from ICU need not be installed: checked is
    # that nobody changed the table by hand.
    path = str(Path(__file__).with_name("lookalikes.py"))
    return lambda: str(runpy.run_path(path)["text"](name))


def _run(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=60, check=True
    ).stdout


FILES: Final[dict[str, Callable[[], str]]] = {
    "config/schema/config.schema.json": config_schema,
    "config/schema/frames.schema.json": frames_schema,
    "config/systemd/upcall-hub.service": systemd_unit,
    "config/launchd/upcall.hub.plist": launchd_agent,
    **{
        f"bridge/upcall/cli/completions/upcall.{shell}": _completion(shell)
        for shell in ("bash", "zsh", "fish")
    },
    **{
        f"bridge/upcall/model/{name}.py": _lookalikes(f"bridge/upcall/model/{name}.py")
        for name in ("confusables", "scripts")
    },
}


def write_all() -> None:
    """Write every file that is not what it must be."""
    for name, text in FILES.items():
        path = ROOT / name
        wanted = text()
        if not path.exists() or path.read_text(encoding="utf-8") != wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")


if __name__ == "__main__":
    write_all()
