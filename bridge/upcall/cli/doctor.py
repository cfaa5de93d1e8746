"""`upcall doctor`: check everything; each finding with its remedy."""

from __future__ import annotations

import os
import stat
import sys
import time

import upcall
from upcall.cli import args, exits, screen, where
from upcall.cli.control import has_only_ask
from upcall.cli.doctor_outbox import outbox
from upcall.cli.doctor_system import after_reboot, windows
from upcall.cli.finding import Finding
from upcall.line import HubLine, LineError
from upcall.line.connection import read_hub_json, socket_paths
from upcall.line.start import is_newer
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from typing import Any

ABOUT = """Check everything: folders, sockets, the hub, the configuration, channels,
records. Each finding says what to do. Starts nothing and changes nothing."""
EPILOG = """example:
  upcall doctor

exit codes:
  0 nothing is wrong   1 something is; each line says what to do   2 usage"""
_DEFAULT_PORT = 8737
_PROXY_VARIABLES = frozenset(
    {"http_proxy", "https_proxy", "all_proxy", "ws_proxy", "wss_proxy", "socks_proxy"}
)
_CONFIGURATION = "configuration: "
_MARKS = {"ok": "ok  ", "warning": "warn", "error": "FAIL"}


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor` to *parser*."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def parser() -> args.Parser:
    """Return the parser of `upcall doctor`."""
    made = args.make_parser("doctor", ABOUT, EPILOG)
    fill(made)
    return made


def run(argv: Sequence[str]) -> int:
    """Run `upcall doctor`."""
    given = parser().read(argv)
    findings = list(all_findings())
    failed = any(finding.level == "error" for finding in findings)
    if given.json:
        screen.document({"ok": not failed, "findings": [one.as_dict() for one in findings]})
    else:
        for one in findings:
            screen.out(f"{_MARKS[one.level]}  {screen.visible(one.msg)}")
            if one.recover:
                screen.out(f"      {screen.visible(one.recover)}")
    return exits.FAILURE if failed else exits.OK


def all_findings() -> Iterator[Finding]:
    """Yield every finding, in the order in which a person would look."""
    yield _python()
    state = paths.state_dir()
    yield from _folder(state, "state folder", "state")
    found_network = paths.is_network_filesystem(state)
    if found_network:
        from upcall_discovery.filesystem import where_not_local

        yield Finding(
            "error",
            "state_not_local",
            f"the state folder {state} {where_not_local(state, found_network)}",
            "set XDG_STATE_HOME to a folder on a local disk",
        )
    yield from _runtime()
    config = _config()
    yield config
    said = config.msg.removeprefix(_CONFIGURATION)
    # What is wrong with the file, the hub says as well: once is enough.
    yield from (one for one in _hub(state) if config.level == "ok" or said not in one.msg)
    yield from _records()
    yield from windows()
    yield from after_reboot()


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < (3, 11):  # noqa: UP036 - a foreign interpreter may run us
        return Finding("error", "python_old", f"python {version}", "upcall needs 3.11 or newer")
    return Finding("ok", "python", f"python {version}, upcall {upcall.__version__}")


def _folder(path: str, what: str, code: str) -> Iterator[Finding]:
    try:
        info = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        yield Finding("ok", code, f"{what}: {path} (made at the first question)")
        return
    except OSError as err:
        yield Finding(
            "error", code, f"{what}: {path}: {err.strerror}", "check its parents' modes"
        )
        return
    if not stat.S_ISDIR(info.st_mode):
        yield Finding(
            "error", f"{code}_no_folder", f"{what}: {path} is no folder", "move it away"
        )
    elif info.st_uid != os.geteuid():
        yield Finding(
            "error",
            f"{code}_foreign",
            f"{what}: {path} belongs to uid {info.st_uid}, not to you",
        )
    elif info.st_mode & 0o077:
        yield Finding(
            "error",
            f"{code}_not_private",
            f"{what}: others can get into {path}",
            f"chmod 700 {path}",
        )
    else:
        yield Finding("ok", code, f"{what}: {path}")


def _runtime() -> Iterator[Finding]:
    try:
        runtime = paths.runtime_dir(create=False)
    except paths.PathProblem as err:
        if err.code == "no_runtime":
            yield Finding(
                "ok", "runtime", "runtime folder: none yet (made at the first question)"
            )
        else:
            yield Finding("error", err.code, f"runtime folder: {err.msg}", err.recover)
        return
    yield from _folder(runtime, "runtime folder", "runtime")


def _config() -> Finding:
    from upcall.cli.config import config_path
    from upcall.config import load
    from upcall.model.errors import UpcallError

    path = config_path()
    if not os.path.exists(path):
        return Finding("ok", "config", f"configuration: none ({path}); defaults are in force")
    try:
        load(path)
    except UpcallError as err:
        return Finding("error", err.code, f"{_CONFIGURATION}{err.msg}", err.recover)
    except OSError as err:
        return Finding("error", "config_unreadable", f"configuration: {path}: {err.strerror}")
    return Finding("ok", "config", f"configuration: {path} is valid")


def _hub(state: str) -> Iterator[Finding]:
    try:
        line = HubLine.connect("control", timeout_s=5.0, state=state)
    except LineError as err:
        yield from _no_hub(state, err)
        return
    with line:
        try:
            status = line.request("status", timeout_s=5.0)
            letters = list(outbox(line))
            HubLine.connect("ask", timeout_s=5.0, state=state).close()
        except LineError as err:
            yield Finding("error", err.code, f"hub: {err.msg}", err.recover)
            return
    version = str(status.get("version"))
    if is_newer(upcall.__version__, version):
        yield Finding(
            "warning",
            "hub_old",
            f"hub {version} is running, this is {upcall.__version__}",
            "upcall hub restart",
        )
    else:
        yield Finding("ok", "hub", f"hub {version} is running, pid {status.get('pid')}")
    yield Finding("ok", "sockets", f"sockets: {', '.join(_sockets(state))}")
    for problem in status.get("degraded") or []:
        if problem.get("code") == "channel_deaf":
            continue  # told below, with more
        recover = problem.get("recover")
        yield Finding("error", str(problem.get("code")), str(problem.get("msg")), recover)
    for channel in status.get("channels") or []:
        yield _channel(channel)
    yield from _others_code(status)
    yield from _way_out(status.get("network"))
    yield from _port(status)
    yield from _tunnel()
    yield from letters
    if status.get("deliveries_waiting"):
        yield Finding(
            "warning",
            "deliveries_waiting",
            _waiting_words(int(status["deliveries_waiting"])),
            "what waits goes out when the channel hears again; see: upcall hub status",
        )


def _others_code(status: dict[str, Any]) -> Iterator[Finding]:
    """Name every adapter that is not ours: it can do what the hub can."""
    for adapter in status.get("adapters") or []:
        if adapter.get("ours") is False:
            package = f"{adapter.get('package')} {adapter.get('version') or ''}".rstrip()
            yield Finding(
                "ok",
                "adapter_of_others",
                f"channel {adapter.get('channel')}: adapter {adapter.get('adapter')} is other "
                f"people's code, package {package}, {adapter.get('path')}",
            )


def _way_out(network: object) -> Iterator[Finding]:
    """Say how the hub reaches other computers; the environment has no say in it."""
    if not isinstance(network, dict):
        return  # a hub of before
    if network.get("proxy"):
        yield Finding("ok", "proxy", f"other computers are reached through {network['proxy']}")
        return
    named = sorted(name for name in os.environ if name.lower() in _PROXY_VARIABLES)
    ignored = f"; {', '.join(named)} in the environment is not used" if named else ""
    yield Finding(
        "ok",
        "proxy",
        f"other computers are reached without a proxy{ignored}",
        "if one is needed: proxy under [network] in the configuration" if named else None,
    )


def _port(status: dict[str, Any]) -> Iterator[Finding]:
    """Warn if the inbox is not where its browsers remember it."""
    for channel in status.get("channels") or []:
        if channel.get("name") == "web" and channel.get("reason"):
            if channel.get("state") != "down":
                recover = "the new port is kept; its bookmark comes from: upcall inbox"
                yield Finding("warning", "web_port_moved", str(channel["reason"]), recover)
            return
    port = str(status.get("web_url") or "").rstrip("/").rpartition(":")[2]
    if port.isdecimal() and int(port) != _DEFAULT_PORT and not _names_port():
        yield Finding(
            "warning",
            "web_port",
            f"the inbox is on port {port}: another program held {_DEFAULT_PORT}",
            f"end that program and: upcall hub restart (or set web.port = {port})",
        )


def _tunnel() -> Iterator[Finding]:
    """Warn if a tunnel that runs as another user would be refused."""
    web = _web_table()
    if web.get("public_url") and not web.get("other_users") and sys.platform == "linux":
        yield Finding(
            "warning",
            "web_tunnel_user",
            "the inbox refuses a tunnel that runs as another user (root, a service)",
            "set `other_users = true` under [web] if yours does; your own user's needs nothing",
        )


def _names_port() -> bool:
    return _web_table().get("port") is not None


def _web_table() -> dict[str, Any]:
    import tomllib

    from upcall.cli.config import config_path

    try:
        with open(config_path(), "rb") as file:
            document = tomllib.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    tables = document.get("channels")
    found = document.get("web") or (tables.get("web") if isinstance(tables, dict) else None)
    return found if isinstance(found, dict) else {}


def _waiting_words(count: int) -> str:
    return f"{count} message{' waits' if count == 1 else 's wait'} for the channel"


def _sockets(state: str) -> list[str]:
    found = (next(iter(socket_paths(state, name))) for name in ("ask", "control"))
    return [path for path in found if os.path.exists(path)]


def _no_hub(state: str, err: LineError) -> Iterator[Finding]:
    if err.code != "hub_not_running":
        yield Finding("error", err.code, f"hub: {err.msg}", err.recover)
        return
    if has_only_ask(state):
        yield Finding(
            "ok", "hub", "only ask.sock is here: this place can ask, and nothing else"
        )
        return
    left = read_hub_json(state)
    error = left.get("last_error")
    if isinstance(error, dict):
        ended_ms = left.get("ended_ms")
        when = f" at {screen.clock(ended_ms)}" if isinstance(ended_ms, int) else ""
        yield Finding(
            "error",
            str(error.get("code")),
            f"the hub ended by itself{when}: {error.get('msg')}",
            f"its log: {paths.hub_log(state)}; then try: upcall hub start",
        )
    else:
        yield Finding("ok", "hub", "no hub is running; the next question starts one")


def _channel(channel: dict[str, Any]) -> Finding:
    name = str(channel.get("name", "?"))
    if channel.get("state") == "down":
        reason = channel.get("reason") or "no reason given"
        return Finding(
            "error",
            f"channel_{name}",
            f"channel {where.describe(channel)}",
            f"{reason}; see: upcall hub status",
        )
    return Finding("ok", f"channel_{name}", f"channel {where.status(channel)}")


def _records() -> Iterator[Finding]:
    from upcall_discovery.scan import scan

    try:
        folder = paths.sessions_dir(paths.runtime_dir(create=False))
    except paths.PathProblem:
        return  # told above
    found = scan(folder, now_ms=int(time.time() * 1000))
    for refused in found.refused:
        yield Finding(
            "warning",
            refused.code,
            f"record not used: {refused.path}: {refused.reason}",
            "remove it, or update the program that wrote it",
        )
    if not found.refused:
        count = len(found.live)
        yield Finding("ok", "records", f"records: {count} live in {folder}")
