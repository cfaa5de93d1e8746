"""`upcall confirm`: ask for permission; only exit 0 means yes."""

from __future__ import annotations

import os

from upcall.cli import args, ask, exits, results, screen
from upcall.cli.errors import Usage
from upcall.cli.signals import EndingSignals, Interrupted
from upcall.line import mint_ask_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

ABOUT = """Ask for permission. Exit 0 means yes, and nothing else does.

Nothing is printed on stdout unless --json is given. There is no default:
silence is neither yes nor no. Where nobody is asked on this terminal the time
limit is 1 h unless given."""
EPILOG = """example:
  upcall confirm "Deploy to production?" --timeout 30m && ./deploy

exit codes:
  0 yes   3 no, or declined   4 timed out   1 failure   2 usage
  130 Ctrl-C, 143 terminated: the question is cancelled"""

YES, NO = "Yes", "No"
PIPE_TIMEOUT_S = 3600.0


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `confirm` to *parser*."""
    parser.add_argument("question", metavar="QUESTION", help="what to ask permission for")
    ask.add_shared(parser)


def parser() -> args.Parser:
    """Return the parser of `upcall confirm`."""
    made = args.make_parser("confirm", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall confirm`."""
    given = parser().read(argv)
    spec = _spec_of(given)
    with EndingSignals() as signals:
        try:
            asked, result, here = ask.wait_for_end(given, spec, signals)
            if asked is not None:
                asked.before_words()
            if given.json:
                screen.document(results.document(result))
            words = results.told(result, here=here)
            if words is not None and not given.quiet:
                screen.err(words)
            if asked is not None:
                asked.after_words()
                asked.took()
                asked.close()
        except Interrupted as signal:
            if not given.quiet:
                screen.err(f"question {spec['id']} is cancelled")
            return exits.SIGNAL_BASE + signal.number
    return exit_code(result)


def exit_code(result: dict[str, Any]) -> int:
    """Return 0 for yes, 3 for no or declined, 4 for timed out, 1 for everything else."""
    outcome = result.get("outcome")
    if outcome == "answered":
        labels = (result.get("answer") or {}).get("labels")
        return exits.OK if labels == [YES] else exits.NO_ANSWER
    if outcome == "declined":
        return exits.NO_ANSWER
    return exits.TIMED_OUT if outcome == "timed_out" else exits.FAILURE


def _spec_of(given: argparse.Namespace) -> dict[str, Any]:
    question = args.usable(given.question, "QUESTION")
    if not question.strip():
        raise Usage("QUESTION is empty", code="invalid_ask")
    if len(question) > ask.MAX_QUESTION_CHARS:
        raise Usage(
            f"QUESTION has {len(question)} characters; the limit is {ask.MAX_QUESTION_CHARS}",
            code="invalid_ask",
        )
    spec: dict[str, Any] = {
        "id": mint_ask_id(),
        "question": question,
        "options": [YES, NO],
        "multi": False,
        "free_text": False,
        "class": "permission",
    }
    if given.timeout is not None:
        spec["timeout_s"] = ask.timeout_of(given.timeout)
    elif given.no_terminal or not os.isatty(2):
        spec["timeout_s"] = PIPE_TIMEOUT_S
    if given.key is not None:
        spec["key"] = args.name(given.key, "--key")
    if given.detail is not None:
        spec["detail"] = ask.detail_of(given.detail)
    return spec
