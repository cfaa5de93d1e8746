"""`upcall hub`: run, start, stop, reload, or look at the hub."""

from __future__ import annotations

import time

from upcall.cli import args, exits, screen
from upcall.cli.control import require_control
from upcall.cli.errors import Failure
from upcall.cli.stopping import stop_running
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
_STATUS_WITHIN_S = 3.0
_INBOX_WITHIN_S = 5.0
_STATUS_CODES = "exit codes:\n  0 it runs   1 no hub is running, or failure   2 usage"
_CODES = "exit codes:\n  0 done   1 failure   2 usage"

_ACTIONS = {
    "run": "run the hub here, in the foreground, until it is stopped",
    "start": "start the hub in the background, if none runs",
    "stop": "stop the hub; open questions are kept",
    "restart": "stop the hub and start it again",
    "reload": "read the configuration again",
    "status": "how the hub is, and what it hears",
    "backup": "copy the hub's database into a file, while it runs",
    "restore": "go back to a backup; what is open in it is asked again",
    "adopt": "go on with a database that was copied here",
}
_WITH_FILE = {"backup": " ~/upcall.backup", "restore": " ~/upcall.backup"}


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `hub` to *parser*."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, what in _ACTIONS.items():
        action = actions.add_parser(
            name,
            help=what,
            description=what.capitalize() + ".",
            prog=f"upcall hub {name}",
            epilog=f"example:\n  upcall hub {name}{_WITH_FILE.get(name, '')}\n\n"
            f"{_STATUS_CODES if name == 'status' else _CODES}",
        )
        if name == "run":
            action.add_argument(
                "--detached", action="store_true", help="as started on demand: log to its file"
            )
        else:
            action.add_argument("--json", action="store_true", help="print one JSON document")
        if name in {"backup", "restore", "adopt"}:
            from upcall.cli import stored

            getattr(stored, f"fill_{name}")(action)


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
    require_control()
    if given.action in {"backup", "restore", "adopt"}:
        from upcall.cli import stored

        code: int = getattr(stored, given.action)(given)
        return code
    return {
        "start": _start,
        "stop": _stop,
        "restart": _restart,
        "reload": _reload,
        "status": print_status,
    }[given.action](as_json=given.json)


def _run(detached: bool) -> int:
    from upcall.hub.foreground import begin_clean

    # Before the hub's own modules are loaded: the process may begin anew.
    given = begin_clean(detached=detached)
    from upcall.hub.daemon import main

    return main(detached, given)


def _start(*, as_json: bool) -> int:
    with ensure_hub(socket="control", note=screen.err) as line:
        hub = line.hub
        status = _status_with_inbox(line)
    web_url = str(status["web_url"]) if status.get("web_url") else None
    for problem in status.get("degraded") or []:
        # Channels are just starting; all else is known by now.
        if problem.get("code") != "channel_deaf":
            screen.err(f"upcall: {screen.one_line(str(problem.get('msg')), 500)}")
            if problem.get("recover"):
                screen.err(f"        {screen.one_line(str(problem['recover']), 300)}")
    if as_json:
        screen.document({"hub": hub, "web_url": web_url})
    else:
        screen.out(f"hub {screen.visible(str(hub.get('version')))}, pid {hub.get('pid')}")
        if web_url:
            screen.out(f"inbox at {screen.one_line(web_url, 100)} (upcall inbox)")
    return exits.OK


def _status_with_inbox(line: HubLine) -> dict[str, Any]:
    """Return the status, with the inbox's address if there is an inbox.

    A hub that has just started knows the address a moment later.
    """
    until = time.monotonic() + _INBOX_WITHIN_S
    while True:
        status = line.request("status")
        if status.get("web_url"):
            return status
        if not any(one.get("channel") == "web" for one in status.get("adapters") or []):
            return status
        channels = status.get("channels") or []
        web = next((c for c in channels if c.get("name") == "web"), None)
        is_starting = not channels or (web is not None and web.get("reason") == "starting")
        if not is_starting or time.monotonic() >= until:
            return status
        time.sleep(_PAUSE_S)


def _stop(*, as_json: bool) -> int:
    before = _status_now()
    stopped = stop_running(stays_down=True)
    if as_json:
        screen.document({"stopped": stopped is not None, "hub": stopped})
        return exits.OK
    if stopped is None:
        screen.err("no hub is running")
        return exits.OK
    screen.out(f"stopped{_kept(before)}")
    if before.get("open_asks"):
        command = screen.GLUE.join(("upcall", "hub", "start"))
        screen.err(f"whoever waits for an answer goes on with: {command}")
    if before.get("service"):
        screen.err("the service starts it again at the next login, and so does any question")
    return exits.OK


def _restart(*, as_json: bool) -> int:
    before = _status_now()
    if before.get("service"):
        _begin_anew(before)
    else:
        stop_running()
    code = _start(as_json=as_json)
    if before and not as_json:
        screen.out(f"restarted{_kept(before)}")
    return code


def _status_now() -> dict[str, Any]:
    """Return how the running hub is, or nothing if none answers."""
    try:
        with HubLine.connect("control", timeout_s=_STATUS_WITHIN_S) as line:
            return line.request("status", timeout_s=_STATUS_WITHIN_S)
    except LineError:
        return {}


def _kept(status: dict[str, Any]) -> str:
    count = int(status.get("open_asks") or 0)
    return f"; {count} open question{' is' if count == 1 else 's are'} kept" if count else ""


def _begin_anew(before: dict[str, Any]) -> None:
    """Have the hub of a service begin anew in its process, and wait until it is up.

    Stopped and started from here it would not be the service's hub any more.

    Raises:
        Failure: it does not come back.
    """
    with HubLine.connect("control") as line:
        try:
            answer = line.request("stop", reason="restarted by a person", again="always")
        except LineError as err:
            if err.code not in LOST_CODES:
                raise
            answer = {}
    if not answer.get("again"):
        stop_running()
        return
    until = time.monotonic() + _STOP_WITHIN_S
    while time.monotonic() < until:
        now = _status_now()
        if now and now.get("started_ms") != before.get("started_ms"):
            return
        time.sleep(_PAUSE_S)
    raise Failure(
        f"hub {before.get('pid')} was asked to begin anew and did not come back in time",
        "see: upcall service status",
        "hub_busy",
    )


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
    later = [screen.one_line(str(name), 60) for name in told.get("restart_tables") or []]
    now = [name for name in changed if name not in later]
    waits = told.get("waits_for")
    if waits:
        ask = screen.one_line(str(waits), 40)
        screen.out(f"changed, and in force once an operator agrees (question {ask})")
    elif told.get("rejected"):
        screen.out("changed, and not in force: nobody agreed to it")
    elif now:
        screen.out(f"in force: {', '.join(now)}")
    if later:
        screen.out(f"changed: {', '.join(later)}; to apply it: upcall hub restart")
    if not changed and not waits and not told.get("rejected"):
        screen.out("nothing has changed")
    return exits.OK


def print_status(*, as_json: bool) -> int:
    """Print how the running hub is.

    Raises:
        LineError: none is running, or it does not answer.
    """
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
    head = (status.get("store") or {}).get("audit") or {}
    if head.get("rows"):
        at = screen.clock(int(head.get("at_ms") or 0))
        shown = screen.one_line(f"{head['rows']}:{str(head.get('hash'))[:16]}", 40)
        screen.out(f"  audit: {shown} at {at} (upcall log --verify)")
    return exits.OK
