"""`upcall` alone: is a hub up, who hears, what is open, and what to do next."""

from __future__ import annotations

import upcall
from upcall.cli import asks, exits, screen, where
from upcall.cli.control import has_only_ask
from upcall.line import HubLine, LineError
from upcall.line.start import is_newer
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_WITHIN_S = 3.0
_MAX_ASKS = 8


def run(argv: Sequence[str]) -> int:
    """Print how things stand; never starts a hub."""
    as_json = "--json" in argv
    try:
        with HubLine.connect("control", timeout_s=_WITHIN_S) as line:
            status = line.request("status", timeout_s=_WITHIN_S)
            found = line.request("asks", state="open", limit=100, timeout_s=_WITHIN_S)
    except LineError as err:
        if as_json:
            screen.document({"hub": None, "error": err.as_dict(), "asks": []})
        else:
            _without_hub(err)
        return exits.OK
    status = {name: value for name, value in status.items() if name not in {"id", "ok"}}
    open_asks = found.get("asks") or []
    if as_json:
        screen.document({"hub": status, "asks": open_asks})
        return exits.OK
    for text in [*status_lines(status), *_ask_lines(open_asks), "", *_next(open_asks)]:
        screen.out(text)
    return exits.OK


def status_lines(status: dict[str, Any]) -> list[str]:
    """Return the hub's status in words."""
    version = screen.one_line(str(status.get("version")), 30)
    since = screen.age(int(status.get("started_ms") or 0))
    state = "ready" if status.get("ready") else "not ready"
    lines = [f"hub {version}: {state}, up {since}, pid {status.get('pid')}"]
    if is_newer(upcall.__version__, str(status.get("version"))):
        lines.append(
            f"  ! hub {version} is running, this is {upcall.__version__}: upcall hub restart"
        )
    for problem in status.get("degraded") or []:
        if problem.get("code") == "channel_deaf":
            continue  # its own line says it
        lines.append(f"  ! {screen.one_line(str(problem.get('msg')), 300)}")
        if problem.get("recover"):
            lines.append(f"    {screen.one_line(str(problem['recover']), 300)}")
    channels = status.get("channels") or []
    for channel in channels:
        lines.append(f"  {where.status(channel, channels)}")
        if channel.get("reason") and channel.get("state") != "down":
            lines.append(f"  ! {screen.one_line(str(channel['reason']), 300)}")
    if status.get("web_url"):
        lines.append(f"  {screen.one_line(str(status['web_url']), 100)} (upcall inbox)")
    lines.append(f"  {_sessions_words(status)}")
    lines += [f"  ! {text}" for text in waiting_lines(status)]
    return lines


def _sessions_words(status: dict[str, Any]) -> str:
    numbers = status.get("numbers") or {}
    count = status.get("sessions") or 0
    words = f"{count} session{'' if count == 1 else 's'}"
    found, attached = numbers.get("discovered") or 0, numbers.get("attached") or 0
    if attached < found:
        words += f"; {found} endpoints found, {attached} attached: upcall sessions --all"
    return words


def waiting_lines(status: dict[str, Any]) -> list[str]:
    """Return what waits to be told to people and programs, and why, in words."""
    numbers = status.get("numbers") or {}
    lines = []
    if status.get("deliveries_waiting"):
        count = int(status["deliveries_waiting"])
        oldest_s = max(
            (lane.get("oldest_s") or 0 for lane in numbers.get("lanes") or []), default=0
        )
        since = f" (the oldest for {screen.duration(oldest_s)})" if oldest_s >= 1 else ""
        are = "delivery" if count == 1 else "deliveries"
        lines.append(f"{count} {are} waiting{since}: upcall outbox")
    for gate in numbers.get("gates") or []:
        name = where.name(str(gate.get("channel")))
        what = f"a conversation of {name}" if gate.get("one_place") else name
        left = screen.duration(float(gate.get("closed_for_s") or 0))
        lines.append(f"{what} asked for a pause; goes on in {left}")
    for field, words in (
        ("uncertain", "may have arrived, or not"),
        ("dead_letters", "given up"),
    ):
        if numbers.get(field):
            count = int(numbers[field])
            are = "delivery" if count == 1 else "deliveries"
            lines.append(f"{count} {are} {words}: upcall outbox")
    return lines


def _ask_lines(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return ["no open questions"]
    head = f"{len(found)} open question{'' if len(found) == 1 else 's'}"
    rows = screen.table([asks.row(ask) for ask in found[:_MAX_ASKS]], indent="  ")
    more = [f"  ... and {len(found) - _MAX_ASKS} more"] if len(found) > _MAX_ASKS else []
    return [head, *rows, *more]


def _next(found: list[dict[str, Any]]) -> list[str]:
    if found:
        first = where.answer_command(found[0])
        return ["next:", f"  {first}", "  upcall watch", "  upcall inbox"]
    return [
        "next:",
        '  upcall ask "Which colour?" -o red -o green',
        "  upcall inbox",
        "  upcall doctor",
    ]


def _without_hub(err: LineError) -> None:
    if has_only_ask(paths.state_dir()):
        screen.out("only ask.sock is here: this place can ask, and nothing else")
        screen.out("")
        screen.out("next:")
        screen.out('  upcall ask "Which colour?" -o red -o green')
        screen.out("  upcall ask --help")
        screen.out("  upcall confirm --help")
        return
    if err.code == "hub_not_running":
        screen.out("no hub is running; the next question starts one")
    else:
        screen.out(f"no hub answers: {screen.visible(err.msg)}")
    screen.out("")
    for text in (
        "next:",
        "  upcall demo",
        '  upcall ask "Which colour?" -o red -o green',
        "  upcall --help",
    ):
        screen.out(text)
