"""`upcall asks`: list questions."""

from __future__ import annotations

from upcall.cli import args, control, drawn, exits, results, screen
from upcall.line import HubLine, LineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

ABOUT = """List questions: the open ones, oldest first; or show one whole."""
EPILOG = """examples:
  upcall asks
  upcall asks a7q2
  upcall asks --all --json

exit codes:
  0 listed, also if there are none   1 failure   2 usage"""
_MAX_LIMIT = 1000


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `asks` to *parser*."""
    add = parser.add_argument
    add("ask", metavar="ID", nargs="?", help="show this one, with all of its detail")
    add("--all", action="store_const", const="all", dest="state", default="open",
        help="also those that have ended")  # fmt: skip
    add("--closed", action="store_const", const="closed", dest="state",
        help="only those that have ended")  # fmt: skip
    add("--limit", metavar="N", default="100", help="at most so many (default 100)")
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall asks`."""
    made = args.make_parser("asks", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall asks`."""
    given = parser().read(argv)
    limit = args.count(given.limit, "--limit", _MAX_LIMIT)
    if given.ask is not None:
        return _show(args.usable(given.ask, "ID"), as_json=given.json)
    with control.connect() as line:
        found = line.request("asks", state=given.state, limit=limit).get("asks") or []
    if given.json:
        screen.document({"asks": found})
    elif found:
        for text in screen.table([row(ask) for ask in found]):
            screen.out(text)
    else:
        screen.err("no open questions" if given.state == "open" else "no questions")
    return exits.OK


def _show(ask_id: str, *, as_json: bool) -> int:
    with control.connect() as line:
        ask = one(line, ask_id)
    if as_json:
        screen.document({"asks": [ask]})
        return exits.OK
    columns = screen.width() - 1
    number, state, who, _ = row(ask)
    screen.out(f"{number}  {state}  {who}")
    hidden = int(ask.get("hidden_chars") or 0)
    for text in (
        *drawn.asked(ask, columns),
        *drawn.options(ask, columns, with_details=True, hidden=hidden),
        *drawn.warnings(ask, columns),
    ):
        screen.out(text)
    if hidden:
        screen.out(f"{drawn.hidden_words(hidden)}: masked as credentials.")
    return exits.OK


def one(line: HubLine, ask_id: str) -> dict[str, Any]:
    """Return the ask that *ask_id* names, with all of its detail.

    Raises:
        LineError: `unknown_ask` or `ambiguous_ask`.
    """
    found = line.request("asks", ask=ask_id).get("asks") or []
    # A hub of before lists them all.
    named = ask_id.removeprefix("ask:")
    fits: list[dict[str, Any]] = [a for a in found if str(a.get("id", "")).startswith(named)]
    if len(fits) != 1:
        raise LineError("unknown_ask", f"there is no question {ask_id!r}", "see: upcall asks")
    return fits[0]


def row(ask: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return an ask as id, how it stands, who asks, and what."""
    session = ask.get("session") or {}
    who = session.get("title") or session.get("repo") or session.get("program") or "?"
    state = f"open {screen.age(int(ask.get('raised_ms') or 0))}"
    if ask.get("state") == "claimed":
        state = "being answered"
    elif ask.get("state") == "closed":
        state = screen.one_line(str(ask.get("outcome")).replace("_", " "), 20)
    elif ask.get("held"):
        state = "held"
    question = screen.in_quotes(str(ask.get("question", "")), 300)
    labels = ask.get("labels_shown") or ask.get("options") or []
    options = " / ".join(_label(str(label)) for label in labels[:6])
    is_open = ask.get("state") != "closed"
    answer = "" if is_open and not ask.get("answer") else results.quote(ask)
    tail = f" = {answer}" if answer else f" [{options}]" if options else ""
    detail = len(str(ask.get("detail") or ""))
    if is_open and detail:
        number = screen.one_line(str(ask.get("id", "?")), 20)
        tail = f" + {detail:,} characters of detail: upcall asks {number}{tail}"
    tail += "" if is_open else _end(ask)
    return (
        screen.one_line(str(ask.get("id", "?")), 20),
        state,
        screen.one_line(str(who), 24),
        f"{question}{tail}",
    )


def _label(label: str) -> str:
    """Return a label, in quotes where it could pass for what stands around it."""
    if any(mark in label for mark in "[]/=“”"):
        return screen.in_quotes(label, 30)
    return screen.one_line(label, 30)


def _end(ask: dict[str, Any]) -> str:
    """Return who ended it, and how long ago."""
    who = results.by(ask) if ask.get("answered_by") else ""
    closed_ms = ask.get("closed_ms")
    ago = f"{screen.age(closed_ms)} ago" if isinstance(closed_ms, int) else ""
    parts = [part for part in (who, ago) if part]
    return f" ({', '.join(parts)})" if parts else ""
