"""`upcall completion`: print a shell's completion script."""

from __future__ import annotations

import os

from upcall.cli import args, exits, screen
from upcall.cli.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ABOUT = """Print the completion script of a shell. It is static: nothing of upcall runs
while you type."""
EPILOG = """examples:
  upcall completion bash > ~/.local/share/bash-completion/completions/upcall
  upcall completion zsh > "${fpath[1]}/_upcall"
  upcall completion fish > ~/.config/fish/completions/upcall.fish

exit codes:
  0 printed   1 failure   2 usage"""
SHELLS = ("bash", "zsh", "fish")


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `completion` to *parser*."""
    parser.add_argument(
        "shell", metavar="SHELL", nargs="?", choices=SHELLS, help="bash, zsh or fish"
    )


def parser() -> args.Parser:
    """Return the parser of `upcall completion`."""
    made = args.make_parser("completion", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall completion`."""
    shell = parser().read(argv).shell
    if shell is None:
        shell = os.path.basename(os.environ.get("SHELL", ""))
        if shell not in SHELLS:
            raise Usage(f"which shell? {', '.join(SHELLS)}", "example: upcall completion bash")
    screen.out(script(shell))
    return exits.OK


def script(shell: str) -> str:
    """Return the completion script of *shell*, without its last line's end."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "completions")
    with open(os.path.join(folder, f"upcall.{shell}"), encoding="utf-8") as file:
        return file.read().rstrip("\n")
