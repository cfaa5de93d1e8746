"""`upcall roots`: the project folders whose sessions the hub reads."""

from __future__ import annotations

import os

from upcall.cli import args, control, exits, screen
from upcall.cli.errors import Usage
from upcall.cli.surroundings import on_windows_drive

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ABOUT = """Project folders whose sessions the hub reads, beside those that publish in
your runtime folder: <root>/.upcall/state/sdk and <root>/.gjc/state/sdk."""
EPILOG = """examples:
  upcall roots add ~/projects/shop
  upcall roots list

exit codes:
  0 done   1 failure   2 usage"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `roots` to *parser*."""
    add = parser.add_argument
    add("action", metavar="ACTION", nargs="?", choices=("add", "remove", "list"),
        default="list", help="add, remove or list (the default)")  # fmt: skip
    add("path", metavar="FOLDER", nargs="?", help="a project folder")
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall roots`."""
    made = args.make_parser("roots", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall roots`."""
    given = parser().read(argv)
    fields = {"action": given.action}
    if given.action == "list":
        if given.path is not None:
            raise Usage(f"list takes no folder: {given.path!r}")
    elif given.path is None:
        raise Usage(f"{given.action} needs a FOLDER", f"example: upcall roots {given.action} .")
    else:
        path = os.path.realpath(os.path.expanduser(args.usable(given.path, "FOLDER")))
        if not given.path:
            raise Usage("FOLDER is empty; name a project folder")
        if given.action == "add" and not os.path.isdir(path):
            raise Usage(f"FOLDER: {given.path!r} is no folder")
        fields["path"] = path
        if given.action == "add" and on_windows_drive(path, os.environ):
            screen.err(
                "that folder is on a Windows drive, which tells of no changes: "
                "the hub looks there every 30 s"
            )
    with control.connect() as line:
        found = line.request("roots", **fields).get("roots") or []
    if given.json:
        screen.document({"roots": found})
        return exits.OK
    if given.action == "remove":
        screen.err(f"removed {screen.one_line(fields['path'], 300)}")
    if not found:
        screen.err("no roots; add one with: upcall roots add FOLDER")
    for root in found:
        problem = (
            f"  ! {screen.one_line(str(root['problem']), 200)}" if root.get("problem") else ""
        )
        count = root.get("records") or 0
        path = screen.one_line(str(root.get("path")), 300)
        screen.out(f"{path}  {count} record{'' if count == 1 else 's'}{problem}")
    return exits.OK
