"""`upcall operators`: who may answer, and taking that away."""

from __future__ import annotations

from upcall.cli import args, control, exits, screen
from upcall.cli.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

RIGHTS = ("see", "answer", "approve", "steer")
ABOUT = """People who may act, as the configuration names them or as they were added
here. `revoke` takes all rights of a person at once, also from an answer that a
program has not taken yet; `restore` gives them back."""
EPILOG = """examples:
  upcall operators
  upcall operators add ada --channel telegram --id 12345678
  upcall operators add bob --channel slack --id U0123 --rights see,answer
  upcall operators revoke bob

exit codes:
  0 done   1 failure   2 usage"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `operators` to *parser*."""
    add = parser.add_argument
    add("action", metavar="ACTION", nargs="?", choices=("list", "add", "revoke", "restore"),
        default="list", help="list (the default), add, revoke or restore")  # fmt: skip
    add("name", metavar="NAME", nargs="?", help="a person")
    add("--channel", metavar="C", help="with add: the channel, or local for a user here")
    add("--id", metavar="X", dest="identity", help="with add: the person's id there")
    add("--role", metavar="R", action="append", default=[],
        help="with add: a role, for answer_by; may be repeated")  # fmt: skip
    add("--rights", metavar="LIST",
        help=f"with add: what the person may do there, of {', '.join(RIGHTS)}")  # fmt: skip
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall operators`."""
    made = args.make_parser("operators", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall operators`."""
    given = parser().read(argv)
    fields = _fields(given)
    with control.connect() as line:
        told = line.request("operators", **fields)
    people = told.get("operators") or []
    waits = told.get("waits_for")
    if given.json:
        screen.document({"operators": people, "waits_for": waits})
        return exits.OK
    if waits:
        screen.err(
            f"not yet: an operator has to agree first, in question {screen.one_line(waits, 40)}"
        )
    elif given.action != "list":
        name = screen.one_line(given.name, 80)
        done = {"add": "was added", "revoke": "has no rights", "restore": "has rights again"}
        screen.err(f"{name} {done[given.action]}")
    for person in people:
        screen.out(_words(person))
    return exits.OK


def _fields(given: argparse.Namespace) -> dict[str, Any]:
    action = given.action
    added = (given.channel, given.identity, given.rights)
    if action != "add" and (any(one is not None for one in added) or given.role):
        raise Usage("--channel, --id, --role and --rights belong to add")
    if action == "list":
        if given.name is not None:
            raise Usage(f"list takes no name: {given.name!r}")
        return {"action": action}
    if not given.name:
        raise Usage(f"{action} needs a NAME", f"example: upcall operators {action} ada")
    fields: dict[str, Any] = {"action": action, "name": args.usable(given.name, "NAME")}
    if action != "add":
        return fields
    if not given.channel or not given.identity:
        raise Usage(
            "add needs --channel and --id",
            "example: upcall operators add ada --channel telegram --id 12345678",
        )
    fields["channel"] = args.usable(given.channel, "--channel")
    fields["identity"] = args.usable(given.identity, "--id")
    fields["roles"] = [args.usable(role, "--role") for role in given.role]
    if given.rights is not None:
        fields["rights"] = _rights(given.rights)
    return fields


def _rights(text: str) -> list[str]:
    rights = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [one for one in rights if one not in RIGHTS]
    if "control" in unknown:
        raise Usage(
            "control over a chat is given in the configuration file only",
            "see `rights` under [operators] in docs/configuration.md",
        )
    if unknown or not rights:
        what = repr(unknown[0]) if unknown else "nothing"
        raise Usage(f"--rights: {what} is no right; there are {', '.join(RIGHTS)}")
    return rights


def _words(person: dict[str, Any]) -> str:
    name = screen.one_line(str(person.get("name")), 80)
    parts = []
    for one in person.get("identities") or []:
        where = screen.one_line(str(one.get("channel")), 60)
        known = f"{where} {screen.one_line(str(one.get('identity')), 80)}"
        if one.get("waits_for"):
            known += " (not yet agreed to)"
        elif one.get("added"):
            known += " (added)"
        parts.append(known)
    said = ", ".join(parts) or "no identity"
    if person.get("revoked"):
        return f"{name}  revoked  {said}"
    rights = ", ".join(person.get("rights") or []) or "nothing"
    words = f"{name}  {said}  may {rights}"
    for where, some in (person.get("rights_on") or {}).items():
        words += f"; on {screen.one_line(str(where), 60)} {', '.join(some) or 'nothing'}"
    roles = [screen.one_line(str(role), 60) for role in person.get("roles") or []]
    return f"{words}  roles {', '.join(roles)}" if roles else words
