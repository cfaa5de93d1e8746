"""One endpoint's protocol side without sockets: what the wire tests cannot easily reach."""

from collections.abc import Sequence

from upcall.core.link import EndpointLink
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    ActionUnavailable,
    Activity,
    AskSelectedAckResult,
    ConfigUpdate,
    Control,
    FileAttachment,
    Hello,
    Reply,
    ReplyRejected,
    SessionReady,
    TurnStream,
    WireFrame,
    encode,
)
from upcall.model.ids import ActionId, ConnectionId

ONE, TWO = ConnectionId("connection:1"), ConnectionId("connection:2")
NEXT = Control(id="navigation_forward", kind="navigation", label="Next")


class Source:
    def __init__(self, *asks: ActionNeeded) -> None:
        self.asks = list(asks)

    def open_asks(self) -> Sequence[ActionNeeded]:
        return self.asks

    def recent_resolutions(self) -> Sequence[ActionResolved]:
        return []


def ask(name: str, *controls: Control) -> ActionNeeded:
    return ActionNeeded(id=ActionId(name), kind="ask", session_id="s", controls=controls)


def link(*asks: ActionNeeded, keep_early_bytes: int = 0) -> EndpointLink:
    source = Source(*asks)
    return EndpointLink(
        "s", lambda token: token == "t", source, keep_early_bytes=keep_early_bytes
    )


def hello(*capabilities: str) -> bytes:
    return encode(Hello(protocol_version=3, capabilities=capabilities))


def kinds(frames: Sequence[WireFrame]) -> list[type]:
    return [type(frame) for frame in frames]


def test_an_answer_that_is_no_text_is_refused_as_an_answer() -> None:
    made = link(ask("a"))
    made.opened(ONE)
    for token, reason in (("t", "invalid_answer"), ("x", "unauthorized")):
        frame = rf'{{"type":"reply","id":"a","answer":"\ud800","token":"{token}"}}'
        (back,) = made.received(ONE, frame).back
        assert isinstance(back, ReplyRejected)
        assert (back.id, back.reason) == ("a", reason)


def test_an_ask_with_controls_is_shown_only_to_those_who_know_them() -> None:
    made = link(ask("a", NEXT))
    assert kinds(made.opened(ONE)) == [Hello, ActionUnavailable]
    answer = encode(Reply(id=ActionId("a"), answer=0, token="t"))
    assert made.received(ONE, answer).back == [
        ReplyRejected(id=ActionId("a"), reason="invalid_answer")
    ]
    assert made.received(ONE, hello("ask_controls_v1")).back == [ask("a", NEXT)]
    assert made.received(ONE, hello("ask_controls_v1")).back == []
    assert made.received(ONE, answer).deliver is not None


def test_an_ask_with_controls_is_shown_as_far_as_each_client_can() -> None:
    made = link()
    made.opened(ONE)
    made.opened(TWO)
    made.received(TWO, hello("ask_controls_v1", "parallel_asks_v1"))
    told = dict(made.present(ask("a", NEXT)))
    assert isinstance(told[ONE], ActionUnavailable)
    assert told[TWO] == ask("a", NEXT)
    resolved = ActionResolved(id=ActionId("a"), resolved_by="local")
    assert dict(made.resolved(resolved)) == {ONE: resolved, TWO: resolved}


def test_capabilities_add_up_over_several_hellos() -> None:
    made = link()
    made.opened(ONE)
    made.received(ONE, hello("x"))
    made.received(ONE, hello("y"))
    assert made.capabilities_of(ONE) == {"x", "y"}
    assert made.capabilities_of(TWO) == frozenset()
    assert made.connections() == (ONE,)


def test_keeps_what_was_said_before_anybody_came_for_the_first_who_comes() -> None:
    notice = TurnStream(session_id="s", phase="finalized", text="done")
    file = FileAttachment(session_id="s", name="f", data="aGk=")
    made = link(ask("a"), keep_early_bytes=1000)
    for frame in (
        notice,
        TurnStream(session_id="s", phase="live", text="do"),
        file,
        TurnStream(session_id="s", phase="finalized", text="x" * 2000),
        Activity(session_id="s", state="busy"),
    ):
        assert made.broadcast(frame) == []
    assert made.has_early()
    told = made.opened(ONE)
    assert kinds(told) == [Hello, Activity, ActionNeeded, TurnStream, FileAttachment]
    assert told[-2:] == [notice, file]
    assert not made.has_early()
    assert kinds(made.opened(TWO)) == [Hello, Activity, ActionNeeded]
    made.closed(ONE)
    made.closed(TWO)
    made.broadcast(notice)
    assert not made.has_early()


def test_keeps_nothing_early_unless_told_to() -> None:
    made = link()
    made.broadcast(TurnStream(session_id="s", phase="finalized", text="done"))
    assert not made.has_early()


def test_later_clients_hear_the_newest_state() -> None:
    made = link()
    made.broadcast(SessionReady(session_id="s", title="old"))
    made.broadcast(SessionReady(session_id="s", title="new"))
    made.broadcast(ConfigUpdate(session_id="s", verbosity="lean"))
    made.broadcast(ConfigUpdate(session_id="s", redact=False))
    assert made.opened(ONE)[1:] == [
        SessionReady(session_id="s", title="new"),
        ConfigUpdate(session_id="s", verbosity="lean", redact=False),
    ]


def test_hands_on_what_belongs_to_whoever_owns_the_asks() -> None:
    made = link()
    made.opened(ONE)
    ack = AskSelectedAckResult(request_id="r", commit_key="k", outcome={"status": "unknown"})
    assert made.received(ONE, encode(ack)).deliver == ack
    cancel = (
        b'{"type":"ephemeral_turn_cancel","sessionId":"s","token":"t","updateId":1,'
        b'"requestId":"btw:6e0b6e4e-8a5c-4f6f-9f6e-0d9d1f0a7c11","messageId":1,'
        b'"threadId":"1","reason":"daemon_shutdown"}'
    )
    assert made.received(ONE, cancel).deliver is not None
    assert made.received(ONE, cancel.replace(b'"t"', b'"x"')).deliver is None
