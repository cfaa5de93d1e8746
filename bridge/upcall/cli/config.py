"""`upcall config`: where the configuration is, whether it is valid, and its schema."""

from __future__ import annotations

import os

from upcall.cli import args, exits, screen
from upcall.cli.errors import Failure, Usage
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from upcall.config import Config

ABOUT = """The configuration: one TOML file that people write. Without one,
everything has its default and the inbox works."""
EPILOG = """examples:
  $EDITOR "$(upcall config path)"
  upcall config check

exit codes:
  0 fine   1 the configuration is not valid; stderr says where   2 usage"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `config` to *parser*."""
    add = parser.add_argument
    add("action", metavar="ACTION", choices=("path", "check", "schema"),
        help="path: where it is; check: is it valid; schema: its JSON Schema")  # fmt: skip
    add("file", metavar="FILE", nargs="?", help="check this file instead")
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall config`."""
    made = args.make_parser("config", ABOUT, EPILOG)
    fill(made)
    return made


def config_path() -> str:
    """Return where the configuration is, if there is one."""
    return os.path.join(paths.config_dir(), "config.toml")


def run(argv: Sequence[str]) -> int:
    """Run `upcall config`."""
    given = parser().read(argv)
    if given.file is not None and given.action != "check":
        raise Usage(f"{given.action} takes no FILE: {given.file!r}")
    if given.action == "path":
        if given.json:
            screen.document({"path": config_path(), "exists": os.path.exists(config_path())})
        else:
            screen.out(screen.visible(config_path()))
        return exits.OK
    if given.action == "schema":
        from upcall.config import schema

        screen.document(schema())
        return exits.OK
    return _check(given.file, as_json=given.json)


def _check(file: str | None, *, as_json: bool) -> int:
    from upcall.config import load

    path = config_path() if file is None else args.usable(file, "FILE")
    exists = os.path.exists(path)
    if not exists and file is not None:
        raise Usage(f"FILE: there is no {file!r}")
    config = load(path if exists else None)
    if exists:
        from upcall.hub.plugins import check_channels

        problems = check_channels(config)
        if problems:
            worst = problems[0]
            raise Failure(f"{path}: {worst.msg}", worst.recover, worst.code)
    samples = _samples(config)
    if as_json:
        screen.document({"path": path, "exists": exists, "valid": True, "samples": samples})
    else:
        words = "is valid" if exists else "does not exist; every default is in force"
        screen.out(f"{screen.visible(path)} {words}")
        for told in samples:
            screen.err(_in_short(told))
        screen.err("the whole story: upcall policy explain")
    return exits.OK


def _samples(config: Config) -> list[dict[str, Any]]:
    """Return what would happen to a question and to a permission of no particular session."""
    from upcall.cli import policy

    return [policy.of_config(config, {"class": kind}) for kind in ("question", "permission")]


def _in_short(told: dict[str, Any]) -> str:
    from upcall.cli import policy

    first = policy.shown_lines(told)[0]
    who = policy.answer_words(told)
    return screen.visible(f"  a {told['ask']['class']}: {first}; answered by {who}")
