"""`upcall answer`: answer, decline or hold a question from here."""

from __future__ import annotations

import time

from upcall.cli import args, asks, choose, control, drawn, exits, results, screen, unseen
from upcall.cli.errors import Failure, Usage
from upcall.line import HubLine, LineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

ABOUT = """Answer a question. A VALUE is a label, or #N for the Nth option; where
words are taken it is the words. Several only where several may be chosen."""
EPILOG = """examples:
  upcall answer a7q2 yes
  upcall answer a7q2 '#2'
  upcall answer a7q2 --decline
  upcall answer a7q2          (a secret: it is typed unseen)

exit codes:
  0 taken   1 failure, or not allowed from here
  2 usage, bad value, no such question
  3 it had ended already; stderr says what won"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `answer` to *parser*."""
    add = parser.add_argument
    add("ask", metavar="ID", help="the question's id, or the beginning of it (4 characters)")
    add("values", metavar="VALUE", nargs="*", help="a label, #N, or words")
    add("--decline", action="store_true", help="end it without an answer")
    add("--hold", action="store_true", default=None, dest="hold",
        help="stop its time limit")  # fmt: skip
    add("--withdraw", action="store_true", help="take your vote back, where several decide")
    add("--no-hold", action="store_false", dest="hold", help="let its time run again")
    add("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall answer`."""
    made = args.make_parser("answer", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall answer`."""
    given = parser().read(argv)
    if not args.usable(given.ask, "ID").strip():
        raise Usage("ID is empty", "see: upcall asks")
    values = [args.usable(value, "VALUE") for value in given.values]
    if not values and not given.decline and given.hold is None and not given.withdraw:
        return _answer_unseen(given)
    if sum([bool(values), given.decline, given.hold is not None, given.withdraw]) != 1:
        raise Usage(
            "give either a VALUE, or --decline, or --hold, or --no-hold, or --withdraw",
            "example: upcall answer a7q2 yes",
        )
    if given.withdraw:
        return _send(given, withdraw=True)
    revision = _look_first(given, values) if values else None
    shown = {} if revision is None else {"revision": revision}
    return _send(given, values=values, decline=given.decline, hold=given.hold, **shown)


def _send(given: argparse.Namespace, **act: Any) -> int:
    with control.connect() as line:
        try:
            reply = line.request("answer", ask=given.ask, **act)
        except LineError as err:
            return _refused(err, given, line)
    result = reply.get("result") or {}
    if given.json:
        screen.document(results.document(result))
    if not given.quiet:
        # What the hub says of a vote is all that is true of it yet.
        words = reply.get("msg")
        screen.err(screen.one_line(words, 300) if words else _taken(result, given.hold))
    return exits.OK


def _look_first(given: argparse.Namespace, values: list[str]) -> str | None:
    """Show what a yes would let run, if a list of questions does not, and ask once more.

    Returns:
        The revision that was shown, None if nothing was.

    Raises:
        Failure: it is not to be sent.
    """
    if not unseen.is_possible():
        return None  # who may answer without a terminal is the policy's to say
    with control.connect() as line:
        try:
            ask = asks.one(line, given.ask)
        except LineError as err:
            if err.code in {"unknown_ask", "ambiguous_ask"}:
                return None  # the answer itself is refused for it
            raise
    hidden = int(ask.get("hidden_chars") or 0)
    is_listed = not ask.get("detail") and not hidden and len(str(ask.get("question"))) <= 300
    if ask.get("class") != "permission" or ask.get("state") != "open" or is_listed:
        return None
    if not _lets_run(ask, values):
        return None
    columns = screen.width() - 1
    for text in (*drawn.asked(ask, columns), *drawn.warnings(ask, columns)):
        screen.err(text)
    if hidden:
        screen.err(f"{drawn.hidden_words(hidden)}: masked as credentials.")
    said = unseen.asked(f"Answer {screen.in_quotes(', '.join(values), 60)}? [y/N] ")
    if said.strip().lower() not in {"y", "yes"}:
        raise Failure("nothing was sent", code="not_confirmed")
    return str(ask.get("revision"))


def _lets_run(ask: dict[str, Any], values: list[str]) -> bool:
    allows = set(ask.get("allows") or [])
    for value in values:
        try:
            indices = choose.read({**ask, "multi": False}, value).get("indices") or []
        except choose.NotAnAnswer:
            continue  # the hub knows what it means, or refuses it
        if allows.intersection(indices):
            return True
    return False


def _answer_unseen(given: argparse.Namespace) -> int:
    """Have a secret typed at this terminal, where it is not shown."""
    if not unseen.is_possible():
        raise Usage(
            "give either a VALUE, or --decline, or --hold, or --no-hold",
            "example: upcall answer a7q2 yes; without a VALUE a secret is typed at a terminal",
        )
    with control.connect() as line:
        known = line.request("asks", state="open", limit=1000).get("asks") or []
    text = given.ask.removeprefix("ask:")
    found = [ask for ask in known if len(text) >= 4 and str(ask.get("id", "")).startswith(text)]
    if len(found) != 1 or not found[0].get("secret"):
        raise Usage(
            "give either a VALUE, or --decline, or --hold, or --no-hold",
            "example: upcall answer a7q2 yes",
        )
    words = unseen.typed(screen.in_quotes(str(found[0].get("question", "")), 200))
    if not words:
        raise Failure("nothing was typed, so nothing was sent", code="invalid_answer")
    act = {"values": [words], "hidden": True, "revision": found[0].get("revision")}
    return _send(given, **act)


def _taken(result: dict[str, Any], hold: bool | None) -> str:
    if hold is not None:
        return "held: its time limit is stopped" if hold else "its time runs again"
    outcome = result.get("outcome")
    if outcome == "open":
        reason = screen.one_line(str(result.get("reason") or "not confirmed yet"), 200)
        return f"sent; {reason}"
    if outcome == "declined":
        return "declined"
    return f"taken: {results.quote(result)}"


def _refused(err: LineError, given: argparse.Namespace, line: HubLine) -> int:
    result = err.extra.get("result")
    if err.code == "ambiguous_ask":
        names = ", ".join(str(one) for one in (err.extra.get("candidates") or [])[:8])
        if not names:
            inner = err.extra.get("error")
            found = inner.get("candidates") if isinstance(inner, dict) else None
            names = ", ".join(str(one) for one in (found or [])[:8])
        raise Usage(f"{given.ask!r} fits several questions: {names}", code=err.code)
    ended = isinstance(result, dict) and result.get("outcome") not in {None, "open"}
    if not ended and err.code not in {"already_answered", "closed", "stale_card"}:
        raise err
    found_result = result if isinstance(result, dict) else {}
    if given.json:
        screen.document(results.document(found_result) | {"error": err.as_dict()})
    # Not ended, but claimed: only the hub knows by whom.
    is_changed = err.code == "stale_card" and err.msg == found_result.get("reason")
    hubs_words = not ended or is_changed
    words = screen.one_line(err.msg, 300) if hubs_words else ended_words(found_result, line)
    screen.err(f"upcall: {words}")
    return exits.NO_ANSWER


def ended_words(result: dict[str, Any], line: HubLine | None) -> str:
    """Return how a question had ended: what won, by whom, where and when."""
    outcome = screen.one_line(str(result.get("outcome") or "ended"), 40)
    when = _when(result, line)
    if outcome == "answered":
        return f"too late: {results.by(result)} answered {results.in_quotes(result)}{when}"
    if outcome == "unreachable":
        return f"The program stopped before it took the answer{when}. Nothing was run."
    if outcome == "timed_out":
        return f"too late: the program stopped waiting{when}"
    who = f" by {results.by(result)}" if result.get("answered_by") else ""
    return f"too late: it was {outcome}{who}{when}"


def _when(result: dict[str, Any], line: HubLine | None) -> str:
    closed_ms = result.get("closed_ms")
    if closed_ms is None and line is not None:
        try:
            known = line.request("asks", state="closed", limit=200).get("asks") or []
        except LineError:
            known = []
        found = [ask for ask in known if ask.get("id") == result.get("id")]
        closed_ms = found[0].get("closed_ms") if found else None
    if not isinstance(closed_ms, int):
        return ""
    ago = screen.duration(max(0.0, time.time() - closed_ms / 1000))
    return f" at {screen.clock(closed_ms)} ({ago} ago)"
