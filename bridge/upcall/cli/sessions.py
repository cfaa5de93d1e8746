"""`upcall sessions`: list the programs that can ask."""

from __future__ import annotations

from upcall.cli import args, control, exits, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

ABOUT = """List sessions: the running programs that can ask, and records that the
hub does not use, with the reason."""
RULES = {
    "mute": "show no more questions of this session on channels; they wait",
    "unmute": "show its questions again, and let it ask",
    "stop": "decline its questions that wait, and refuse new ones",
    "hold": "stop the clocks of its open questions, and mute it",
}
EPILOG = """examples:
  upcall sessions --all
  upcall sessions --mute s7q2k8m4n5p6r

exit codes:
  0 listed, also if there are none   1 failure   2 usage"""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `sessions` to *parser*."""
    add = parser.add_argument
    add("--all", action="store_true", help="also those that are gone")
    add("--json", action="store_true", help="print one JSON document")
    rules = parser.add_mutually_exclusive_group()
    for rule, words in RULES.items():
        rules.add_argument(f"--{rule}", metavar="ID", help=words)


def parser() -> args.Parser:
    """Return the parser of `upcall sessions`."""
    made = args.make_parser("sessions", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall sessions`."""
    given = parser().read(argv)
    ruled: dict[str, Any] = {}
    for rule in RULES:
        if getattr(given, rule):
            ruled = {"rule": rule, "session": getattr(given, rule)}
    with control.connect() as line:
        answer = line.request("sessions", all=given.all, **ruled)
    found = answer.get("sessions") or []
    refused = answer.get("refused") or []
    if given.json:
        screen.document({"sessions": found, "refused": refused})
        return exits.OK
    for text in screen.table([_row(session) for session in found]):
        screen.out(text)
    if not found:
        screen.err("no sessions")
    for record in refused:
        path = screen.one_line(str(record.get("path")), 300)
        screen.err(f"not used: {path}: {screen.one_line(str(record.get('reason')), 300)}")
    return exits.OK


def _row(session: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """Return what the hub found out, and last, behind "says", the session's own words."""
    place = [str(session[name]) for name in ("machine", "cwd") if session.get(name)]
    says = [str(session[name]) for name in ("title", "repo", "branch") if session.get(name)]
    asks = str(session.get("asks") or "shown")
    held = [f"{session['waiting']} more wait"] if session.get("waiting") else []
    held += [asks] if asks != "shown" else []
    doing = session.get("task") or session.get("activity") or session.get("last_text")
    if doing:
        says.append(str(doing))
    words = " · ".join(screen.one_line(word, 120) for word in dict.fromkeys(says))
    return (
        screen.one_line(str(session.get("session_id", "?")), 24),
        screen.one_line(f"{session.get('kind', '?')} {session.get('state', '?')}", 20),
        screen.one_line(str(session.get("program") or "?"), 24),
        screen.one_line(" ".join(place), 60),
        " · ".join([*held, *([f"says: {words}"] if words else [])]),
    )
