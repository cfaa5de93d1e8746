"""The argument parser: errors in our words, help that fits the terminal."""

from __future__ import annotations

import argparse

from upcall.cli import args, screen
from upcall.cli.errors import Usage, nearest

_MAX_MESSAGE_CHARS = 400

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Text as it was written; given a width, the base class imports no more modules."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(100, screen.width()) - 2)


class Parser(argparse.ArgumentParser):
    """An argument parser that names what is wrong and the nearest option."""

    def __init__(self, command: str = "", about: str = "", **more: Any) -> None:
        # Subparsers are made by argparse, with a `prog` and `description` of their own.
        more.setdefault("prog", f"upcall {command}")
        more.setdefault("description", about)
        super().__init__(
            formatter_class=_Formatter,
            allow_abbrev=False,
            **more,
        )

    def error(self, message: str) -> NoReturn:
        """Raise `Usage` instead of printing and leaving."""
        raise Usage(args.short(message, _MAX_MESSAGE_CHARS), f"see: {self.prog} --help")

    def print_help(self, file: Any = None) -> None:  # noqa: ARG002 - where argparse wants it
        """Print the help to stdout.

        Raises:
            OSError: nobody gets it.
        """
        screen.out(self.format_help().rstrip("\n"))

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # argparse takes the value of `--detail=--` for the end of the options, and for a list.
        if action.option_strings and arg_strings == ["--"]:
            name = "/".join(action.option_strings)
            raise Usage(f"argument {name}: '--' is no value", f"see: {self.prog} --help")
        return super()._get_values(action, arg_strings)

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse *argv*.

        Raises:
            Usage: it cannot be used.
        """
        given, unknown = self.parse_known_args(list(argv))
        if unknown:
            word = unknown[0]
            if word.startswith("-"):
                name = args.short(word.split("=")[0])
                hint = nearest(name, self._option_string_actions)
                raise Usage(f"there is no option {name!r}{hint}", f"see: {self.prog} --help")
            raise Usage(
                f"{args.short(word)!r} is one argument too many", f"see: {self.prog} --help"
            )
        return given
