"""`upcall hub`: run, start, stop, reload, or look at the hub."""

from __future__ import annotations

import os
import time

from upcall.cli import args, exits, screen
from upcall.cli.errors import Failure
from upcall.line import HubLine, LineError, ensure_hub
from upcall.line.errors import LOST_CODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

ABOUT = """The hub finds sessions, keeps questions and shows them to people. It is
started by whoever needs it and ends when nobody does."""
EPILOG = """examples:
  upcall hub status
  upcall hub restart

exit codes:
  0 done   1 failure, or no hub is running (status)   2 usage"""
_STOP_WITHIN_S = 15.0
_PAUSE_S = 0.05
_CODES = "exit codes:\n  0 done   1 failure   2 usage"

_ACTIONS = {
    "run": "run the hub here, in the foreground, until it is stopped",
    "start": "start the hub in the background, if none runs",
    "stop": "stop it; open questions are kept",
    "restart": "stop it and start it again",
    "reload": "read the configuration again",
    "status": "how it is, and what it hears",
}


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `hub` to *parser*."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, what in _ACTIONS.items():
        action = actions.add_parser(
            name,
            help=what,
            description=what.capitalize() + ".",
            prog=f"upcall hub {name}",
            epilog=f"example:\n  upcall hub {name}\n\n{_CODES}",
        )
        if name == "run":
            action.add_argument(
                "--detached", action="store_true", help="as started on demand: log to its file"
            )
        else:
            action.add_argument("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall hub`."""
    made = args.make_parser("hub", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall hub`."""
    given = parser().read(argv)
    if given.action == "run":
        return _run(given.detached)
    return {
        "start": _start,
        "stop": _stop,
        "restart": _restart,
        "reload": _reload,
        "status": _status,
    }[given.action](as_json=given.json)


def _run(detached: bool) -> int:
    from upcall.hub.daemon import main

    if detached:
        os.chdir("/")
        os.umask(0o077)
    return main(detached)


def _start(*, as_json: bool) -> int:
    with ensure_hub(note=screen.err) as line:
        hub = line.hub
    if as_json:
        screen.document({"hub": hub})
    else:
        screen.out(f"hub {screen.visible(str(hub.get('version')))}, pid {hub.get('pid')}")
    return exits.OK


def _stop(*, as_json: bool) -> int:
    stopped = stop_running()
    if as_json:
        screen.document({"stopped": stopped is not None, "hub": stopped})
    else:
        screen.out("no hub is running" if stopped is None else "stopped")
    return exits.OK


def _restart(*, as_json: bool) -> int:
    stop_running()
    return _start(as_json=as_json)


def stop_running() -> dict[str, Any] | None:
    """Stop the hub and return what it said of itself; None if none was running.

    Raises:
        Failure: it does not end.
    """
    try:
        line = HubLine.connect("control")
    except LineError as err:
        if err.code == "hub_not_running":
            return None
        raise
    hub = line.hub
    with line:
        try:
            line.request("stop", reason="stopped by a person")
        except LineError as err:
            if err.code not in LOST_CODES:
                raise
    until = time.monotonic() + _STOP_WITHIN_S
    while time.monotonic() < until:
        if not _is_up(hub):
            return hub
        time.sleep(_PAUSE_S)
    raise Failure(
        f"hub {hub.get('pid')} was asked to stop but is still there",
        "it waits for a delivery on its way; try again in a minute",
        "hub_busy",
    )


def _is_up(hub: dict[str, Any]) -> bool:
    """Tell whether that very process is there; its socket goes first, its lock later."""
    try:
        with HubLine.connect("control", timeout_s=2.0) as line:
            return line.hub.get("pid") == hub.get("pid")
    except LineError:
        pass
    from upcall_discovery.liveness import identify

    pid = hub.get("pid")
    return isinstance(pid, int) and pid != os.getpid() and identify(pid) is not None


def _reload(*, as_json: bool) -> int:
    with HubLine.connect("control") as line:
        answer = line.request("reload")
    told = {name: value for name, value in answer.items() if name not in {"id", "ok"}}
    if as_json:
        screen.document(told)
        return exits.OK
    for problem in told.get("problems") or []:
        screen.err(f"upcall: {screen.one_line(str(problem.get('msg')), 300)}")
    changed = [screen.one_line(str(name), 60) for name in told.get("changed") or []]
    if changed:
        screen.out(f"changed: {', '.join(changed)}; to apply it: upcall hub restart")
    else:
        screen.out("nothing has changed")
    return exits.OK


def _status(*, as_json: bool) -> int:
    with HubLine.connect("control") as line:
        answer = line.request("status")
    status = {name: value for name, value in answer.items() if name not in {"id", "ok"}}
    if as_json:
        screen.document(status)
        return exits.OK
    from upcall.cli.overview import status_lines

    for text in status_lines(status):
        screen.out(text)
    count = status.get("open_asks") or 0
    screen.out(f"  {count} open question{'' if count == 1 else 's'}")
    return exits.OK
