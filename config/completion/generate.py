"""Write the completion scripts: `python config/completion/generate.py`.

They are static, made from the parsers at development time with shtab. The same files go
here, for packagers, and into the package, for `upcall completion`.
"""

import argparse
import importlib
import sys
from pathlib import Path

import shtab

from upcall.cli import COMMANDS

HERE = Path(__file__).resolve().parent
PACKAGED = HERE.parents[1] / "bridge" / "upcall" / "cli" / "completions"
SHELLS = ("bash", "zsh", "fish")


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser with every command."""
    parser = argparse.ArgumentParser(prog="upcall", description="Ask people.")
    parser.add_argument("--version", action="store_true", help="the version")
    commands = parser.add_subparsers()
    for name, what in COMMANDS.items():
        module = importlib.import_module(f"upcall.cli.{name}")
        module.fill(commands.add_parser(name, help=what, description=what))
    return parser


def scripts() -> dict[str, str]:
    """Return the script of each shell."""
    # A parser is used up by each generator.
    return {shell: shtab.complete(whole_parser(), shell).rstrip() + "\n" for shell in SHELLS}


def main() -> int:
    """Write them all."""
    for folder in (HERE, PACKAGED):
        folder.mkdir(exist_ok=True)
        for shell, text in scripts().items():
            (folder / f"upcall.{shell}").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
