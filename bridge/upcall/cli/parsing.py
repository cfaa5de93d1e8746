"""The argument parser: errors in our words, help that fits the terminal."""

from __future__ import annotations

import argparse

from upcall.cli import screen
from upcall.cli.errors import Usage, nearest

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
        raise Usage(message, f"see: {self.prog} --help")

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse *argv*.

        Raises:
            Usage: it cannot be used.
        """
        given, unknown = self.parse_known_args(list(argv))
        if unknown:
            word = unknown[0]
            if word.startswith("-"):
                name = word.split("=")[0]
                hint = nearest(name, self._option_string_actions)
                raise Usage(f"there is no option {name!r}{hint}", f"see: {self.prog} --help")
            raise Usage(f"{word!r} is one argument too many", f"see: {self.prog} --help")
        return given
