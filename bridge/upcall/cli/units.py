"""The texts of the service units: a systemd user unit and a launchd agent. Pure.

A unit carries a mark, the hash of its own text, by which a later version tells a unit that
nobody has touched from one that a person has changed.
"""

from __future__ import annotations

import hashlib
import plistlib

from upcall.cli.at_login import LAUNCHD_LABEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEPT_VARIABLES = ("XDG_STATE_HOME", "XDG_CONFIG_HOME")
"""Places that a person's shell may name and the service manager would not know."""

_MARK = "upcall-unit sha256:"
_ABOUT = "Written by `upcall service install`; `upcall service uninstall` removes it."

# What a process of a user can be denied without namespaces, which not every machine lets a
# user have. The hub writes into folders of the user, opens browsers never, and starts itself
# anew after an upgrade.
_SYSTEMD = """[Unit]
Description=upcall hub: brings questions of programs to their people
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=exec
ExecStart={command}
{environment}UnsetEnvironment=PYTHONPATH PYTHONHOME PYTHONSTARTUP
UnsetEnvironment=LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
Restart=on-failure
RestartSec=5
TimeoutStopSec=20
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


class UnusableProgram(ValueError):
    """A word of the command cannot be written into a unit; the message says why."""


def systemd_unit(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the systemd user unit.

    Args:
        command: what runs the hub in the foreground; the program by its absolute path.
        environ: the person's environment; of it only `KEPT_VARIABLES` is written down.

    Raises:
        UnusableProgram: the path, or one of those variables, cannot be written down.
    """
    _check(command)
    words = " ".join(_quoted(word) for word in command)
    variables = "".join(
        f"Environment={_quoted(f'{name}={value}')}\n" for name, value in _kept(environ).items()
    )
    return _marked("#", "", _SYSTEMD.format(command=words, environment=variables))


def launchd_agent(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the launchd agent; arguments and errors as of `systemd_unit`."""
    _check(command)
    agent: dict[str, object] = {
        "Label": LAUNCHD_LABEL,
        "ProgramArguments": list(command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 20,
        "ProcessType": "Background",
        "Umask": 0o077,
        "WorkingDirectory": "/",
    }
    kept = _kept(environ)
    if kept:
        agent["EnvironmentVariables"] = kept
    text = plistlib.dumps(agent, sort_keys=False).decode()
    head, _, rest = text.partition("\n")
    return head + "\n" + _marked("<!--", " -->", rest)


def is_untouched(text: str) -> bool:
    """Tell whether *text* is a unit of ours that nobody has changed since it was written."""
    lines = text.splitlines(keepends=True)
    marks = [line for line in lines if _MARK in line]
    if len(marks) != 1:
        return False
    rest = "".join(line for line in lines if _MARK not in line)
    return f"{_MARK}{_hash(rest.removeprefix(_XML_HEAD))} " in marks[0].replace("\n", " ")


_XML_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def _check(command: Sequence[str]) -> None:
    if not command[0].startswith("/"):
        raise UnusableProgram(f"the program {command[0]!r} is no absolute path")
    for word in command:
        # systemd puts a variable's value in place of `$name`.
        bad = next((char for char in word if not char.isprintable() or char == "$"), None)
        if bad is not None:
            raise UnusableProgram(f"the path {word!r} has the character {bad!r}")


def _kept(environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name in KEPT_VARIABLES:
        value = environ.get(name, "")
        if not value.startswith("/"):
            continue  # as everywhere: a relative one counts as not set
        if not value.isprintable():
            raise UnusableProgram(f"{name} has characters that are not printable")
        found[name] = value
    return found


def _quoted(word: str) -> str:
    """Return *word* as systemd reads one word; `%` is not expanded."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _marked(begin: str, end: str, text: str) -> str:
    about = f"{begin} {_ABOUT}{end}\n"
    return f"{about}{begin} {_MARK}{_hash(about + text)}{end or ''}\n{text}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
