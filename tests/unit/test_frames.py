"""Frames against the vectors that any other implementation can run, and the odd rest."""

import json
from pathlib import Path
from typing import Any

import pytest

from upcall.model import control, frames, schema
from upcall.model.errors import MalformedFrame
from upcall.model.ids import ActionId

ROOT = Path(__file__).parents[2]
VECTORS = json.loads((ROOT / "tests/golden/frames.json").read_text(encoding="utf-8"))
FRAMES: list[dict[str, Any]] = VECTORS["frames"]


def named(vectors: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in vectors]


@pytest.mark.parametrize("vector", named(FRAMES))
def test_reads_every_vector_as_it_says(vector: dict[str, Any]) -> None:
    text = json.dumps(vector["frame"])
    match vector["expect"]:
        case "malformed" | "bad_reply" as kind:
            with pytest.raises(MalformedFrame) as raised:
                frames.decode(text)
            assert isinstance(raised.value, frames.BadReply) == (kind == "bad_reply")
        case "unknown":
            assert frames.decode(text) == frames.Unknown(vector["frame"]["type"])
        case "frame":
            frame = frames.decode(text)
            assert not isinstance(frame, frames.Unknown)
            if "recommended" in vector:
                assert isinstance(frame, frames.ActionNeeded)
                assert frame.recommended == vector["recommended"]
            if "outcome" in vector:
                assert isinstance(frame, frames.ActionResolved)
                assert frame.how == vector["outcome"]
        case other:
            pytest.fail(f"no such expectation: {other}")


@pytest.mark.parametrize(
    "vector",
    named([v for v in FRAMES if v["expect"] == "frame" and "bad hint" not in v["name"]]),
)
def test_writes_every_vector_as_it_read_it(vector: dict[str, Any]) -> None:
    frame = frames.decode(json.dumps(vector["frame"]))
    assert isinstance(frame, frames.WireFrame)
    written = json.loads(frames.encode(frame))
    expected = vector.get("reencoded", vector["frame"])
    # Defaults are left out, and so are fields that we do not know.
    left_out = {"enabled", "stage", "schema"}
    expected = {k: v for k, v in expected.items() if k not in left_out}
    if "controls" in expected:
        expected["controls"] = [
            {k: v for k, v in c.items() if k != "enabled"} for c in expected["controls"]
        ]
    expected = {k: v for k, v in expected.items() if (k, v) != ("class", "question")}
    assert written == expected


def test_has_a_vector_for_every_type() -> None:
    assert {
        vector["frame"]["type"]
        for vector in FRAMES
        if isinstance(vector["frame"], dict) and vector["expect"] == "frame"
    } >= frames.TYPES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "nul",
        '"x"',
        "[" * 100000,
        '{"type":"x",',
        b"\xff",
        b'{"type":"ping","nonce":"\xff"}',
        '{"type":"ping","nonce":"\\ud800"}',
        '{"type":"ping","nonce":"a","nonce":5}',
    ],
)
def test_what_is_not_json_is_malformed(text: str | bytes) -> None:
    with pytest.raises(MalformedFrame):
        frames.decode(text)


def test_an_error_shows_nothing_of_the_peer_unescaped() -> None:
    with pytest.raises(MalformedFrame) as raised:
        frames.decode(
            '{"type":"reply","id":"a","token":"t","answer":{"selected":[],"\\u001b[2J\\u202e":1}}'
        )
    assert "\x1b" not in str(raised.value)
    assert "\u202e" not in str(raised.value)


def test_a_bad_reply_names_its_action_and_token() -> None:
    with pytest.raises(frames.BadReply) as raised:
        frames.decode('{"type":"reply","id":"ask:1","answer":-1,"token":"t"}')
    assert (raised.value.id, raised.value.token) == ("ask:1", "t")
    with pytest.raises(frames.BadReply) as raised:
        frames.decode('{"type":"reply","id":"ask:1","answer":0,"token":7}')
    assert raised.value.token is None


@pytest.mark.parametrize(
    "answer", [r'"\ud800"', r'{"selected":["\uDC00\ud800"]}', r'"\ud83dx"']
)
def test_an_answer_with_a_lone_surrogate_is_a_bad_reply(answer: str) -> None:
    text = f'{{"type":"reply","id":"ask:1","answer":{answer},"token":"t"}}'
    for given in (text, text.encode()):
        with pytest.raises(frames.BadReply) as raised:
            frames.decode(given)
        assert (raised.value.id, raised.value.token) == ("ask:1", "t")


def test_a_surrogate_elsewhere_makes_no_other_token_or_action_of_it() -> None:
    with pytest.raises(frames.BadReply) as raised:
        frames.decode(r'{"type":"reply","id":"a","answer":"x","token":"t\ud800"}')
    assert raised.value.token == "t\ufffd"
    with pytest.raises(MalformedFrame) as unreadable:
        frames.decode(r'{"type":"reply","id":"a\ud800","answer":"x","token":"t"}')
    assert not isinstance(unreadable.value, frames.BadReply)


def test_pairs_and_escaped_backslashes_are_no_lone_surrogates() -> None:
    text = r'{"type":"reply","id":"a","answer":"\ud83d\ude00 \\ud800","token":"t"}'
    assert frames.decode(text) == frames.Reply(
        id=ActionId("a"), answer="\U0001f600 \\ud800", token="t"
    )
    # Also while another answer is looked at again.
    again = r'{"type":"reply","id":"\ud83d\ude00\\ud800","answer":-1,"token":"t"}'
    with pytest.raises(frames.BadReply) as raised:
        frames.decode(again)
    assert raised.value.id == "\U0001f600\\ud800"


def test_sendable_replaces_each_lone_surrogate() -> None:
    assert frames.sendable("a\ud800b\udfff😀") == "a\ufffdb\ufffd😀"
    frames.encode(frames.Ping(nonce=frames.sendable("\ud800")))


@pytest.mark.parametrize(("size", "characters"), [(0, 0), (1, 4), (3, 4), (4, 8)])
def test_base64_size(size: int, characters: int) -> None:
    assert frames.base64_size(size) == characters


def test_the_schema_file_is_what_the_frames_make() -> None:
    path = ROOT / "config/schema/frames.schema.json"
    assert path.read_text(encoding="utf-8") == schema.schema_text()


def test_the_schema_names_every_frame() -> None:
    made = schema.frames_schema()["$defs"]
    mapping = {
        **made["SessionFrame"]["discriminator"]["mapping"],
        **made["ClientFrame"]["discriminator"]["mapping"],
    }
    assert set(mapping) >= frames.TYPES | control.REQUEST_TYPES
    assert made["Reply"]["required"] == ["type", "id", "token"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"type":"query_request","query":"todo.list"}', control.QueryResponse),
        ('{"type":"control_request","id":"c","operation":"x"}', control.ControlResponse),
        ('{"type":"event_replay","id":"e","sinceSeq":3}', control.EventReplayResult),
        ('{"type":"session_activate","id":"a","sessionId":"s"}', control.SessionActivateResult),
        ('{"type":"register_provider","id":"p","capability":"ui"}', control.ControlResponse),
        ('{"type":"reverse_response","id":"v","ok":true}', control.ReverseResponse),
        ('{"type":"reverse_response","id":"v","ok":1}', control.ReverseResponse),
        ('{"type":"control_request","id":"c"}', control.ControlResponse),
        ('{"type":"control_request"}', type(None)),
        ('{"type":"control_request","id":1}', type(None)),
        ('{"type":"client_heartbeat","connectionId":"c"}', type(None)),
        ('{"type":"provider_heartbeat","connectionId":"c","leaseId":"l"}', type(None)),
        ('{"type":"lease_release","connectionId":"c","leaseId":"l"}', type(None)),
    ],
)
def test_refuses_the_control_plane_in_each_familys_form(text: str, answer: type) -> None:
    refused = control.refusal(text, "s")
    assert type(refused) is answer
    if refused is not None:
        assert json.loads(frames.encode(refused))["ok"] is False
