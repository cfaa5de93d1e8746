import json
from dataclasses import replace
from typing import Any

import pytest

from upcall_discovery.record import MAX_RECORD_BYTES, Record, RecordProblem, encode, parse

FULL: dict[str, Any] = {
    "version": 1,
    "sessionId": "abc.DEF-1_2",
    "pid": 4711,
    "host": "127.0.0.1",
    "port": 8123,
    "url": "ws://127.0.0.1:8123",
    "token": "s3cr3t-token",
    "startedAt": 1_700_000_000_000,
    "updatedAt": 1_700_000_001_000,
    "stale": False,
    "lifecycleRequestId": "r1",
    "startupPromptRef": "p1",
    "intendedSessionId": "i1",
}
NAME = "abc.DEF-1_2.json"
ABSENT = object()


def changed(**fields: Any) -> bytes:
    record = {**FULL, **fields}
    return json.dumps({k: v for k, v in record.items() if v is not ABSENT}).encode()


def test_a_peers_full_record_is_read() -> None:
    record = parse(changed(), NAME)
    assert record == Record(
        session_id="abc.DEF-1_2",
        pid=4711,
        host="127.0.0.1",
        port=8123,
        url="ws://127.0.0.1:8123",
        token="s3cr3t-token",
        started_at_ms=1_700_000_000_000,
        updated_at_ms=1_700_000_001_000,
        lifecycle_request_id="r1",
        startup_prompt_ref="p1",
        intended_session_id="i1",
    )


def test_a_peers_short_record_is_read() -> None:
    short = {
        "version": 1,
        "sessionId": "x",
        "pid": 1,
        "url": "ws://[::1]:80/",
        "token": "t",
        "somethingNew": [1],
    }
    record = parse(json.dumps(short).encode(), "x.json")
    assert (record.host, record.port, record.started_at_ms) == ("::1", 80, 0)
    assert record.pid_start is None


def test_the_token_is_in_the_file_and_in_no_repr() -> None:
    record = parse(changed(), NAME)
    assert "s3cr3t" not in repr(record)
    assert b"s3cr3t-token" in encode(record)


def test_what_is_written_is_read_back_and_has_the_peers_shape() -> None:
    record = replace(parse(changed(), NAME), pid_start="0badcafe:123456")
    data = encode(record)
    assert parse(data, record.file_name) == record
    assert json.loads(data) == {**FULL, "pidStart": "0badcafe:123456"}
    assert data.endswith(b"\n}\n")


def test_a_stale_record_needs_no_endpoint_and_its_token_is_dropped() -> None:
    record = parse(changed(stale=True, stoppedAt=5, url="", port=ABSENT), NAME)
    assert record.stale
    assert (record.token, record.port, record.stopped_at_ms) == ("", 0, 5)
    assert parse(changed(stale=True), NAME).token == ""
    assert parse(changed(stoppedAt=5), NAME).stale, "stopped is stale"


REFUSED: list[tuple[str, bytes, str]] = [
    ("version 2", changed(version=2), "record_version"),
    ("version true", changed(version=True), "record_version"),
    ("no version", changed(version=ABSENT), "record_version"),
    ("another session's id", changed(sessionId="other"), "record_mismatch"),
    ("no session id", changed(sessionId=ABSENT), "record_invalid"),
    ("session id with a slash", changed(sessionId="../x"), "record_invalid"),
    ("session id too long", changed(sessionId="a" * 129), "record_invalid"),
    ("truncated", changed()[:-20], "record_truncated"),
    ("empty", b"", "record_truncated"),
    ("an array", b"[1]", "record_invalid"),
    ("not JSON", b"{nonsense}", "record_invalid"),
    ("not UTF-8", b'{"a": "\xff"}', "record_invalid"),
    ("deep", b"[" * 20_000, "record_truncated"),
    ("deep object", b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "record_invalid"),
    ("a key twice", changed()[:-1] + b', "pid": 1}', "record_invalid"),
    ("not a number", changed()[:-1] + b', "x": NaN}', "record_invalid"),
    ("huge integer", changed()[:-1] + b', "x": ' + b"1" * 5000 + b"}", "record_invalid"),
    ("too large", changed(x="x" * MAX_RECORD_BYTES), "record_too_large"),
    ("no pid", changed(pid=ABSENT), "record_pid"),
    ("pid 0", changed(pid=0), "record_pid"),
    ("pid -1", changed(pid=-1), "record_pid"),
    ("pid true", changed(pid=True), "record_pid"),
    ("pid text", changed(pid="4711"), "record_pid"),
    ("pid huge", changed(pid=2**31), "record_pid"),
    ("pidStart with a line feed", changed(pidStart="a\nb"), "record_pid"),
    ("pidStart number", changed(pidStart=5), "record_pid"),
    ("no url", changed(url=ABSENT), "record_url"),
    ("wss", changed(url="wss://127.0.0.1:8123"), "record_url"),
    ("http", changed(url="http://127.0.0.1:8123"), "record_url"),
    ("capitals", changed(url="WS://127.0.0.1:8123"), "record_url"),
    ("another host", changed(url="ws://10.0.0.1:8123"), "record_url"),
    ("wss elsewhere", changed(url="wss://10.0.0.1"), "record_url"),
    ("name", changed(url="ws://localhost:8123"), "record_url"),
    ("short address", changed(url="ws://127.1:8123"), "record_url"),
    ("short address, port 80", changed(url="ws://127.1:80"), "record_url"),
    ("number address", changed(url="ws://2130706433:8123"), "record_url"),
    ("mapped address", changed(url="ws://[::ffff:127.0.0.1]:8123"), "record_url"),
    ("any address", changed(url="ws://0.0.0.0:8123"), "record_url"),
    ("user info", changed(url="ws://127.0.0.1@evil:8123"), "record_url"),
    ("user info before", changed(url="ws://evil@127.0.0.1:8123"), "record_url"),
    ("password", changed(url="ws://127.0.0.1:8123@evil"), "record_url"),
    ("host goes on", changed(url="ws://127.0.0.1.evil:8123"), "record_url"),
    ("no port", changed(url="ws://127.0.0.1"), "record_url"),
    ("port 0", changed(url="ws://127.0.0.1:0", port=0), "record_url"),
    ("port 65536", changed(url="ws://127.0.0.1:65536", port=65536), "record_url"),
    ("port with a zero", changed(url="ws://127.0.0.1:08123"), "record_url"),
    ("port of other digits", changed(url="ws://127.0.0.1:٨123"), "record_url"),
    ("path", changed(url="ws://127.0.0.1:8123/x"), "record_url"),
    ("query", changed(url="ws://127.0.0.1:8123/?token=x"), "record_url"),
    ("fragment", changed(url="ws://127.0.0.1:8123#x"), "record_url"),
    ("backslash", changed(url="ws://127.0.0.1:8123\\@evil"), "record_url"),
    ("line feed", changed(url="ws://127.0.0.1:8123\n"), "record_url"),
    ("other port", changed(port=8124), "record_url"),
    ("port as text", changed(port="8123"), "record_url"),
    ("other host", changed(host="10.0.0.1"), "record_url"),
    ("host by name", changed(host="localhost"), "record_url"),
    ("no token", changed(token=ABSENT), "record_invalid"),
    ("empty token", changed(token=""), "record_invalid"),
    ("token with a line break", changed(token="a\r\nX: y"), "record_invalid"),
    ("start before 1970", changed(startedAt=-1), "record_invalid"),
    ("start as text", changed(startedAt="now"), "record_invalid"),
    ("start too large", changed(startedAt=1e308), "record_invalid"),
    ("stale as number", changed(stale=1), "record_invalid"),
]


@pytest.mark.parametrize(
    ("data", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_record_that_is_not_plainly_right_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(RecordProblem) as problem:
        parse(data, NAME)
    assert problem.value.code == code
    assert problem.value.msg.startswith(NAME)
    assert "s3cr3t" not in problem.value.msg


def test_a_file_name_is_shown_without_its_controls() -> None:
    with pytest.raises(RecordProblem) as problem:
        parse(changed(), "a\x1b[2J\u202e.json")
    assert problem.value.msg.startswith("a\\x1b[2J\\u202e.json")


def test_the_message_names_the_field_and_what_is_wrong() -> None:
    with pytest.raises(RecordProblem, match="url names a user"):
        parse(changed(url="ws://127.0.0.1@evil:8123"), NAME)
    with pytest.raises(RecordProblem, match="url does not begin"):
        parse(changed(url="wss://127.0.0.1:8123"), NAME)
    with pytest.raises(RecordProblem, match="another host"):
        parse(changed(url="ws://10.0.0.1:8123"), NAME)
    with pytest.raises(RecordProblem, match="port differs"):
        parse(changed(port=1), NAME)
