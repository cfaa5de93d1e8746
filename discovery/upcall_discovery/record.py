"""The record: how a session says where its endpoint is, and what makes one valid.

The shape is the peer's version 1, with `pidStart` added. A record is text from outside:
whatever is not plainly a loopback endpoint of the session that the file name says is
refused, with a reason that names the file and the field.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from upcall_discovery.paths import shown

MAX_RECORD_BYTES: Final = 64 * 1024
SUFFIX: Final = ".json"

_SESSION_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LOOPBACK_URL: Final = re.compile(r"ws://(127\.0\.0\.1|\[::1\]):([1-9][0-9]{0,4})/?")
_TOKEN: Final = re.compile(r"[!-~]{1,1024}")
_PID_START: Final = re.compile(r"[!-~]{1,64}")
_MAX_PID: Final = 2**31 - 1
_MAX_TIME_MS: Final = 2**53
_MAX_EXTRA_CHARS: Final = 4096


class RecordProblem(Exception):
    """A record cannot be used.

    Attributes:
        code: stable name, such as `record_mismatch`.
        msg: what is wrong, naming the file and the field.
        recover: what to do about it, or None.
    """

    def __init__(self, code: str, msg: str, recover: str | None = None) -> None:
        super().__init__(msg)
        self.code = code
        self.msg = msg
        self.recover = recover


@dataclass(frozen=True, slots=True)
class Record:
    """A session's endpoint.

    Attributes:
        session_id: also the file's name, without `.json`.
        pid: the process that listens.
        host: literal loopback address; empty in a stale record without one.
        port: 0 in a stale record without one.
        url: `ws://` address, without the token.
        token: what opens the endpoint; never shown. Empty in a stale record.
        started_at_ms: wall clock, 0 where the writer does not say.
        updated_at_ms: wall clock, 0 where the writer does not say.
        stale: the session said that it ended.
        stopped_at_ms: when that was.
        pid_start: `ProcessIdentity.start` of the process; a peer's record has none.
        lifecycle_request_id: kept for the peer.
        startup_prompt_ref: kept for the peer.
        intended_session_id: kept for the peer.
    """

    session_id: str
    pid: int
    host: str
    port: int
    url: str
    token: str = field(repr=False)
    started_at_ms: int
    updated_at_ms: int
    stale: bool = False
    stopped_at_ms: int | None = None
    pid_start: str | None = None
    lifecycle_request_id: str | None = None
    startup_prompt_ref: str | None = None
    intended_session_id: str | None = None

    @property
    def file_name(self) -> str:
        """The name of the file that holds this record."""
        return self.session_id + SUFFIX


def parse(data: bytes, file_name: str) -> Record:
    """Return the record in a file's bytes.

    Args:
        data: the whole file.
        file_name: its last path component, `<sessionId>.json`.

    Raises:
        RecordProblem: it cannot be used; code and message say why.
    """
    return _Reader(file_name, _load(data, file_name)).record()


def encode(record: Record) -> bytes:
    """Return the bytes of a record's file, pretty-printed and ending in a line feed."""
    out: dict[str, Any] = {
        "version": 1,
        "sessionId": record.session_id,
        "pid": record.pid,
        "host": record.host,
        "port": record.port,
        "url": record.url,
        "token": record.token,
        "startedAt": record.started_at_ms,
        "updatedAt": record.updated_at_ms,
        "stale": record.stale,
    }
    optional = {
        "stoppedAt": record.stopped_at_ms,
        "pidStart": record.pid_start,
        "lifecycleRequestId": record.lifecycle_request_id,
        "startupPromptRef": record.startup_prompt_ref,
        "intendedSessionId": record.intended_session_id,
    }
    out.update((name, value) for name, value in optional.items() if value is not None)
    return json.dumps(out, indent=2).encode("ascii") + b"\n"


def _load(data: bytes, file_name: str) -> dict[str, Any]:
    name = shown(file_name)
    if len(data) > MAX_RECORD_BYTES:
        raise RecordProblem(
            "record_too_large", f"{name} is larger than {MAX_RECORD_BYTES} bytes"
        )
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no)
    except (ValueError, RecursionError) as error:
        if not data.rstrip().endswith(b"}"):
            raise RecordProblem(
                "record_truncated", f"{name} ends in the middle: it is no whole JSON object"
            ) from error
        raise RecordProblem("record_invalid", f"{name} is not valid JSON") from error
    if not isinstance(value, dict):
        raise RecordProblem("record_invalid", f"{name} is no JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two readers that each take another one of two equal keys would see two records.
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key is there twice")
    return out


def _no(constant: str) -> float:
    raise ValueError(constant)


class _Reader:
    """Takes a record's fields one by one and says which one is wrong."""

    def __init__(self, file_name: str, fields: dict[str, Any]) -> None:
        self._name = file_name
        self._fields = fields

    def record(self) -> Record:
        self._check_version()
        session_id = self._session_id()
        stopped_at_ms = self._time("stoppedAt")
        stale = self._flag("stale") or stopped_at_ms is not None
        host, port, url = self._address(required=not stale)
        return Record(
            session_id=session_id,
            pid=self._pid(),
            host=host,
            port=port,
            url=url,
            token="" if stale else self._token(),
            started_at_ms=self._time("startedAt") or 0,
            updated_at_ms=self._time("updatedAt") or 0,
            stale=stale,
            stopped_at_ms=stopped_at_ms,
            pid_start=self._pid_start(),
            lifecycle_request_id=self._extra("lifecycleRequestId"),
            startup_prompt_ref=self._extra("startupPromptRef"),
            intended_session_id=self._extra("intendedSessionId"),
        )

    def _bad(self, code: str, field_name: str, why: str) -> RecordProblem:
        return RecordProblem(code, f"{shown(self._name)}: {field_name} {why}")

    def _check_version(self) -> None:
        version = self._fields.get("version")
        if type(version) is not int or version != 1:
            raise self._bad("record_version", "version", "is not 1")

    def _session_id(self) -> str:
        session_id = self._fields.get("sessionId")
        if (
            not isinstance(session_id, str)
            or not _SESSION_ID.fullmatch(session_id)
            or session_id in {".", ".."}
        ):
            raise self._bad("record_invalid", "sessionId", "is no session id")
        if session_id + SUFFIX != self._name:
            raise self._bad("record_mismatch", "sessionId", "differs from the file's name")
        return session_id

    def _pid(self) -> int:
        pid = self._fields.get("pid")
        if type(pid) is not int or not 0 < pid <= _MAX_PID:
            raise self._bad("record_pid", "pid", "is no process id")
        return pid

    def _pid_start(self) -> str | None:
        start = self._fields.get("pidStart")
        if start is None:
            return None
        if not isinstance(start, str) or not _PID_START.fullmatch(start):
            raise self._bad("record_pid", "pidStart", "is no process start")
        return start

    def _address(self, *, required: bool) -> tuple[str, int, str]:
        url = self._fields.get("url")
        if not required and (url is None or url == ""):
            return "", 0, ""
        if not isinstance(url, str):
            raise self._bad("record_url", "url", "is missing or no text")
        found = _LOOPBACK_URL.fullmatch(url)
        if found is None:
            raise self._bad("record_url", "url", _what_is_wrong(url))
        host, port = found[1].strip("[]"), int(found[2])
        if port > 65535:
            raise self._bad("record_url", "url", "has no valid port")
        stated = self._fields.get("port", port)
        if type(stated) is not int or stated != port:
            raise self._bad("record_url", "port", "differs from the url's")
        if self._fields.get("host", host) not in (host, found[1]):
            raise self._bad("record_url", "host", "differs from the url's")
        return host, port, url

    def _token(self) -> str:
        token = self._fields.get("token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise self._bad("record_invalid", "token", "is missing or unusable")
        return token

    def _time(self, name: str) -> int | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 <= value <= _MAX_TIME_MS:
            raise self._bad("record_invalid", name, "is no time in milliseconds")
        return int(value)

    def _flag(self, name: str) -> bool:
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise self._bad("record_invalid", name, "is neither true nor false")
        return value

    def _extra(self, name: str) -> str | None:
        value = self._fields.get(name)
        return value if isinstance(value, str) and len(value) <= _MAX_EXTRA_CHARS else None


def _what_is_wrong(url: str) -> str:
    if not url.startswith("ws://"):
        return "does not begin with ws://"
    authority = re.split(r"[/?#\\]", url[5:], maxsplit=1)[0]
    if "@" in authority:
        return "names a user before the host"
    if authority.startswith(("127.0.0.1:", "[::1]:")):
        return "has no valid port, or something after it"
    return "names another host than 127.0.0.1 or [::1]"
