import json
import string
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from upcall_discovery.record import Record, RecordProblem, encode, parse

SESSION_IDS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=128)
TIMES = st.integers(0, 2**53)
EXTRAS = st.none() | st.text(max_size=50)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    host = draw(st.sampled_from(["127.0.0.1", "::1"]))
    port = draw(st.integers(1, 65535))
    shown_host = f"[{host}]" if ":" in host else host
    return Record(
        session_id=draw(SESSION_IDS),
        pid=draw(st.integers(1, 2**31 - 1)),
        host=host,
        port=port,
        url=f"ws://{shown_host}:{port}" + draw(st.sampled_from(["", "/"])),
        token=draw(st.text(string.ascii_letters + "-_.~", min_size=1, max_size=64)),
        started_at_ms=draw(TIMES),
        updated_at_ms=draw(TIMES),
        pid_start=draw(st.none() | st.just("0badcafe:17")),
        lifecycle_request_id=draw(EXTRAS),
        startup_prompt_ref=draw(EXTRAS),
        intended_session_id=draw(EXTRAS),
    )


@given(records())
@settings(deadline=None)
def test_every_record_survives_its_file(record: Record) -> None:
    assert parse(encode(record), record.file_name) == record


@given(records(), st.data())
@settings(deadline=None)
def test_no_beginning_of_a_record_is_taken_for_one(record: Record, data: st.DataObject) -> None:
    whole = encode(record).rstrip()
    cut = data.draw(st.integers(0, len(whole) - 1))
    try:
        parse(whole[:cut], record.file_name)
    except RecordProblem:
        return
    raise AssertionError("half a record was taken for a whole one")


@given(records(), st.sampled_from(["pid", "port", "host", "url", "stale", "token"]), JSON)
@settings(deadline=None)
def test_whatever_a_field_holds_the_endpoint_is_on_loopback_or_refused(
    record: Record, name: str, value: Any
) -> None:
    fields = json.loads(encode(record))
    fields[name] = value
    try:
        found = parse(json.dumps(fields).encode(), record.file_name)
    except RecordProblem:
        return
    assert found.session_id == record.session_id
    assert found.host in {"127.0.0.1", "::1", ""}
    assert found.stale or f":{found.port}" in found.url
