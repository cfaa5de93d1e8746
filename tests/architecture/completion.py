"""The completion scripts, made from the parsers at development time with shtab.

They are static files of the package, which `upcall completion` prints.
"""

import argparse
import importlib

import shtab

from upcall.cli import COMMANDS

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
