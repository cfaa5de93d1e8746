"""`upcall redact`: mask credentials in one conversation, or show them for a while."""

from __future__ import annotations

from upcall.cli import args, control, exits, screen
from upcall.cli.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ABOUT = """Mask recognised credentials in one conversation, or show them there for a
while. What the program runs, and what it is told, is never changed."""
EPILOG = """examples:
  upcall redact deploy off --for 2h
  upcall redact deploy on
  upcall redact deploy auto

exit codes:
  0 done   1 failure   2 usage, or no such session"""
_MAX_S = 24 * 3600.0
_CHOICES = {"on": True, "off": False, "auto": None}


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `redact` to *parser*."""
    add = parser.add_argument
    add("session", metavar="SESSION", help="a session's name or id")
    add("choice", metavar="CHOICE", choices=tuple(_CHOICES),
        help="on: masked; off: shown; auto: as the configuration says")  # fmt: skip
    add("--for", metavar="TIME", dest="span",
        help="how long they are shown, such as 30m (default 1h, at most 24h)")  # fmt: skip
    add("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall redact`."""
    made = args.make_parser("redact", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall redact`."""
    given = parser().read(argv)
    session, for_s = args.usable(given.session, "SESSION"), None
    if given.span is not None:
        if given.choice != "off":
            raise Usage("--for goes with off", "example: upcall redact deploy off --for 2h")
        for_s = args.seconds(given.span, "--for")
        if not 1 <= for_s <= _MAX_S:
            raise Usage("--for: credentials are shown for 1s to 24h")
    redact = _CHOICES[given.choice]
    with control.connect() as line:
        told = line.request("redact", session=session, redact=redact, for_s=for_s)
    if given.json:
        names = ("redacted", "until_ms", "by")
        screen.document({name: told.get(name) for name in names})
        return exits.OK
    if told.get("redacted"):
        screen.out("credentials are masked there")
    elif isinstance(told.get("until_ms"), int):
        screen.out(f"credentials are shown there until {screen.clock(told['until_ms'])}")
    else:
        screen.out("credentials are shown there, as the configuration says")
    return exits.OK
