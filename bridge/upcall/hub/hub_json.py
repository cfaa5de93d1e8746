"""`hub.json`: how the hub says where it is reached, and how it ended.

Every client reads it first. It is a hint: whoever finds a hub by it still says hello.
"""

from typing import Final

import msgspec

from upcall_discovery import paths

_MAX_BYTES: Final = 64 * 1024


class LastError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the former hub ended by itself."""

    code: str
    msg: str
    recover: str | None = None


class HubFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The file's content.

    Attributes:
        pid: the hub's process.
        pid_start: its start, as `upcall_discovery.liveness` tells it.
        version: of the program.
        protocol: of the line protocol.
        ask_sock: path of the socket for asking.
        control_sock: path of the socket for everything.
        runtime_dir: the folder into which sessions publish.
        web_url: address of the inbox, or None while it is off.
        started_ms: wall clock.
        ended_ms: wall clock of an end on purpose or by a failure, None while it runs.
        last_error: why it ended, if by itself.
        stopped: a person stopped it: whoever waits for an answer does not start the next.
    """

    pid: int
    pid_start: str
    version: str
    ask_sock: str
    control_sock: str
    runtime_dir: str
    web_url: str | None
    started_ms: int
    protocol: int
    ended_ms: int | None = None
    last_error: LastError | None = None
    stopped: bool = False


def write(state: str, content: HubFile) -> None:
    """Put *content* in place of the file of the state folder *state*; does disk work.

    Raises:
        PathProblem: the folder is not ours alone.
        OSError: it cannot be written; the former file stays.
    """
    data = msgspec.json.format(msgspec.json.encode(content), indent=2)
    # Without fsync: after a crash of the machine no hub runs, whatever the file says.
    paths.write_private_file(paths.hub_json(state), data + b"\n", sync=False)


def read(state: str) -> HubFile | None:
    """Return the file's content, or None if there is none that can be used."""
    try:
        data = paths.read_private_file(paths.hub_json(state), _MAX_BYTES)
        return msgspec.json.decode(data, type=HubFile)
    except (OSError, paths.PathProblem, msgspec.DecodeError, UnicodeError, RecursionError):
        return None
