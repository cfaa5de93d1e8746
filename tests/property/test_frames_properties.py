"""Whatever comes over the wire is a frame, an unknown frame, or a clear refusal."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from upcall.core.link import EndpointLink
from upcall.model.errors import MalformedFrame
from upcall.model.frames import (
    TYPES,
    ActionNeeded,
    ActionResolved,
    Unknown,
    WireFrame,
    decode,
    encode,
    sendable,
)
from upcall.model.ids import ConnectionId

KEYS = st.sampled_from(
    [
        "type",
        "id",
        "answer",
        "token",
        "sessionId",
        "options",
        "nonce",
        "selected",
        "controlId",
        "custom",
        "decline",
        "hold",
        "text",
        "phase",
        "error",
        "ok",
        "capabilities",
        "x",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(sorted(TYPES))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
FRAMES = st.dictionaries(KEYS, VALUES, max_size=8).flatmap(
    lambda fields: st.sampled_from(sorted(TYPES)).map(lambda kind: {**fields, "type": kind})
)


def check_printable(error: MalformedFrame) -> None:
    assert error.msg.isprintable()


class Nothing:
    def open_asks(self) -> list[ActionNeeded]:
        return []

    def recent_resolutions(self) -> list[ActionResolved]:
        return []


@given(VALUES | FRAMES)
def test_decoding_never_surprises(value: Any) -> None:
    try:
        frame = decode(json.dumps(value))
    except MalformedFrame as exc:
        check_printable(exc)
        return
    if isinstance(frame, Unknown):
        assert frame.type not in TYPES
        return
    # What was read can be written and reads the same again.
    assert decode(encode(frame)) == frame


@given(st.binary(max_size=64) | st.text(max_size=64).map(lambda text: sendable(text).encode()))
def test_any_bytes_are_refused_unless_they_are_an_object_with_a_type(data: bytes) -> None:
    try:
        decode(data)
    except MalformedFrame as exc:
        check_printable(exc)
    else:
        assert "type" in json.loads(data)


@given(st.lists(FRAMES, max_size=5))
def test_an_endpoint_answers_anything_with_frames(sent: list[dict[str, Any]]) -> None:
    link = EndpointLink("s", lambda token: token == "t", Nothing())
    connection = ConnectionId("connection:1")
    link.opened(connection)
    for frame in sent:
        received = link.received(connection, json.dumps(frame))
        for back in received.back:
            assert isinstance(back, WireFrame)
            encode(back)


@given(st.text())
def test_sendable_text_keeps_its_length_and_can_be_sent(text: str) -> None:
    sent = sendable(text)
    sent.encode()
    assert len(sent) == len(text)
    assert [a for a, b in zip(text, sent, strict=True) if a != b] == [
        char for char in text if "\ud800" <= char <= "\udfff"
    ]
