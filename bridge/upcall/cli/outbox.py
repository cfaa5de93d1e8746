"""`upcall outbox`: what did not arrive on a channel; try it once more, or drop it."""

from __future__ import annotations

from upcall.cli import args, control, exits, screen
from upcall.cli.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

ABOUT = """Messages to channels that have not arrived: given up, perhaps arrived, or
waiting. `retry` tries one once more, or with --all all that was given up;
`drop` forgets one."""
EPILOG = """examples:
  upcall outbox
  upcall outbox retry 41
  upcall outbox retry --all
  upcall outbox drop 41

exit codes:
  0 done   1 failure, or some could not be done   2 usage"""
_WORDS = {
    "dead": "given up",
    "uncertain": "may have arrived",
    "retry": "tried again",
    "queued": "waits",
    "sending": "on its way",
}
_KINDS = {
    "post": "post",
    "edit": "change of a card",
    "remind": "reminder",
    "delete": "removal",
    "open": "new thread",
}


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `outbox` to *parser*."""
    add = parser.add_argument
    add("action", metavar="ACTION", nargs="?", choices=("list", "retry", "drop"),
        default="list", help="list (the default), retry or drop")  # fmt: skip
    add("ids", metavar="ID", nargs="*", help="numbers, as the list shows them")
    add("--all", action="store_true", help="with retry: everything that was given up")
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall outbox`."""
    made = args.make_parser("outbox", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall outbox`."""
    given = parser().read(argv)
    if given.action == "list":
        if given.ids or given.all:
            raise Usage("list takes no ID and no --all", "see: upcall outbox --help")
        return _list(as_json=given.json)
    fields: dict[str, Any] = {"letters": [_number(text) for text in given.ids]}
    if given.all:
        if given.action == "drop" or given.ids:
            raise Usage(
                "--all goes with retry alone; what is dropped is named",
                "upcall outbox lists the IDs",
            )
        fields = {"all": True}
    elif not given.ids:
        more = " or --all" if given.action == "retry" else ""
        raise Usage(f"{given.action} needs an ID{more}", "upcall outbox lists the IDs")
    with control.connect() as line:
        answer = line.request(f"outbox_{given.action}", **fields)
    done, refused = answer.get("done") or [], answer.get("refused") or []
    if given.json:
        screen.document({"done": done, "refused": refused})
    else:
        for one in refused:
            screen.err(f"{one.get('id')}: {screen.one_line(str(one.get('reason')), 200)}")
        what = "tried again" if given.action == "retry" else "dropped"
        screen.err(f"{len(done)} {what}")
    return exits.FAILURE if refused else exits.OK


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise Usage(f"ID: {text!r} is no number", "upcall outbox lists the IDs")
    return int(text)


def _list(*, as_json: bool) -> int:
    with control.connect() as line:
        letters = line.request("outbox").get("letters") or []
    if as_json:
        screen.document({"letters": letters})
        return exits.OK
    if not letters:
        screen.err("nothing waits, and nothing was given up")
    for one in letters:
        screen.out(_line(one))
    if any(one.get("state") == "dead" for one in letters):
        screen.err("try once more: upcall outbox retry ID (or --all); forget: drop ID")
    return exits.OK


def _line(letter: dict[str, Any]) -> str:
    state, kind = str(letter.get("state")), str(letter.get("kind"))
    about = f" of {letter['ask']}" if letter.get("ask") else ""
    created_ms = letter.get("created_ms")
    when = screen.clock(created_ms) if isinstance(created_ms, int) else "?"
    words = [
        str(letter.get("id")),
        _WORDS.get(state, state),
        str(letter.get("channel")),
        f"{_KINDS.get(kind, kind)}{about}, {when}",
    ]
    if letter.get("reason"):
        words.append(str(letter["reason"]))
    return "  ".join(screen.one_line(word, 300) for word in words)
