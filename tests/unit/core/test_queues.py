"""Lanes: what goes first, what overtakes what, and how much is under way at once."""

import json
from typing import Any

import pytest

from fakes.chat import channel_info
from fakes.kernel_rig import Rig, ask_id, asker
from upcall.core.state import Step
from upcall.model.document import Message
from upcall.model.rows import DeliveryRow, Lane


def rig(**fields: Any) -> Rig:
    given = {"threads": False, "own_user": True, **fields}
    return Rig(channel_info("chat", **given))


def say(made: Rig, key: str, text: str, lane: Lane) -> None:
    """Post a text in a conversation, as the kernel's machines do."""
    kernel = made.kernel
    step = Step(kernel._state, made.now, b"seed" * 8)
    info = kernel._state.infos["chat"]
    kernel._outbox.say(
        step, info, key, Message((), text), lane=lane, effect=f"test:{key}:{text}"
    )
    made.store.commit(step.decision.writes)
    made.releases += step.decision.releases


def texts(rows: list[DeliveryRow]) -> list[str]:
    return [json.loads(row.body)["text"] for row in rows]


def order(made: Rig) -> list[str]:
    """Let everything arrive one by one, and return the order in which it was sent."""
    sent = []
    seen: set[int] = set()
    while rows := made.sending("chat"):
        for row in rows:
            if row.id not in seen:
                seen.add(row.id)
                sent.append(json.loads(row.body)["text"].split("\n")[-1])
        made.arrive(rows[0])
    return sent


def test_lanes_go_by_urgency_across_conversations_whatever_came_first() -> None:
    made = rig(under_way=1)
    say(made, "first", "blocks", "text")
    lanes: tuple[Lane, ...] = ("idle", "live", "text", "outcome")
    for lane in lanes:
        say(made, f"in {lane}", lane, lane)
    made.ask(1)
    blocks, *rest = order(made)
    assert blocks == "blocks"
    assert rest == ["2. no", "outcome", "text", "live", "idle"]


def test_the_last_place_under_way_is_kept_for_asks() -> None:
    made = rig(under_way=3)
    for number in range(5):
        say(made, f"c{number}", f"t{number}", "text")
    assert texts(made.sending("chat")) == ["t0", "t1"]
    made.ask(1)
    assert len(made.sending("chat")) == 3
    made.ask(2, who=asker(200, parent="2:q"))
    assert len(made.sending("chat")) == 3


def test_sessions_take_turns() -> None:
    made = rig(under_way=1)
    for number in range(4):
        say(made, "busy", f"busy{number}", "text")
    say(made, "calm", "calm0", "text")
    say(made, "calm", "calm1", "text")
    assert order(made) == ["busy0", "calm0", "busy1", "calm1", "busy2", "busy3"]


def test_order_is_kept_within_a_conversation_and_an_ask_lends_its_urgency() -> None:
    made = rig(under_way=1)
    say(made, "other", "blocks", "text")
    say(made, "p:box:1:p", "the plan", "text")
    say(made, "third", "elsewhere", "outcome")
    made.ask(1)
    assert order(made) == ["blocks", "the plan", "2. no", "elsewhere"]


def test_an_ask_overtakes_what_waits_what_is_dropped_first_and_a_long_row() -> None:
    for lane, many in (("live", 1), ("idle", 1), ("text", 30)):
        made = rig(under_way=1)
        say(made, "other", "blocks", "text")
        for number in range(many):
            say(made, "p:box:1:p", f"{lane}{number}", lane)  # type: ignore[arg-type]
        made.ask(1)
        assert order(made)[1] == "2. no", lane
    made = rig()
    say(made, "p:box:1:p", "fails", "text")
    made.fail(made.sending("chat")[0], "not_sent")
    made.ask(1)
    (ask,) = made.sending("chat")
    assert ask.ask_id == ask_id(1)


def test_how_an_ask_ended_overtakes_a_text_that_has_to_wait() -> None:
    made = rig()
    made.ask(1, wait=False)
    made.arrive_all()
    say(made, "p:box:1:p", "fails", "text")
    made.fail(made.sending("chat")[0], "not_sent")
    made.answer(1)
    (edit,) = made.sending("chat")
    assert edit.kind == "edit"


def test_live_text_that_waits_is_replaced_by_the_newer_one() -> None:
    made = rig(under_way=1)
    say(made, "other", "blocks", "text")
    for number in range(50):
        say(made, "s", f"live{number}", "live")
        say(made, "t", f"else{number}", "live")
    assert order(made) == ["blocks", "live49", "else49"]


@pytest.mark.parametrize(
    ("lane", "age_s", "kept"),
    [
        ("live", 599, True),
        ("live", 601, False),
        ("idle", 601, False),
        ("outcome", 601, False),
        ("text", 601, True),
        ("text", 86_401, False),
    ],
)
def test_what_is_too_old_is_not_told_any_more(lane: Lane, age_s: float, kept: bool) -> None:
    made = rig()
    say(made, "s", "old", lane)
    made.fail(made.sending("chat")[0], "not_sent", retry_after_s=age_s)
    made.wait(age_s + 1)
    assert [row.kind for row in made.sending("chat")] == (["post"] if kept else [])
    if not kept:
        assert made.kernel.waiting_deliveries() == 0


def test_an_ask_never_grows_old() -> None:
    made = rig()
    made.ask(1)
    made.fail(made.sending("chat")[0], "not_sent", retry_after_s=30 * 86_400.0)
    made.wait(30 * 86_400.0 + 1)
    assert [row.ask_id for row in made.sending("chat")] == [ask_id(1)]


def test_old_notices_are_dropped_at_a_start_too() -> None:
    made = rig()
    say(made, "s", "old", "idle")
    made.ask(1, who=asker(200, parent="2:q"))
    for row in made.sending("chat"):
        made.fail(row, "not_sent")
    made.restart(down_s=3600)
    ask, summary = made.sending("chat")
    assert ask.ask_id == ask_id(1)
    assert "1 message is too old to be shown here." in texts([summary])[0]


def test_ten_thousand_deliveries_in_one_conversation_are_no_trouble() -> None:
    made = rig(under_way=1)
    for number in range(3000):
        say(made, "s", f"t{number}", "text")
    made.ask(1, who=asker(100, parent="1:p"))
    for number in range(200):
        (row,) = made.sending("chat")
        made.arrive(row)
        if number == 0:
            assert made.sending("chat")[0].ask_id == ask_id(1)


# --- gates ---------------------------------------------------------------------------------


def test_a_throttled_place_holds_up_no_other_and_is_kept_over_a_restart() -> None:
    made = rig()
    made.ask(1)
    made.ask(2, who=asker(200, parent="2:q"))
    first, second = made.sending("chat")
    made.fail(first, "throttled", retry_after_s=30.0, place_only=True)
    made.arrive(second)
    scope = f"chat\0{first.place}"
    assert made.store.gates == {scope: made.wall_ms + 30_000}
    made.ask(3, who=asker(100, parent="1:p"))
    made.ask(4, who=asker(300, parent="3:q"))
    assert [row.ask_id for row in made.sending("chat")] == [ask_id(4)]
    made.restart(down_s=5)
    assert ask_id(1) not in {row.ask_id for row in made.sending("chat")}
    made.wait(26)
    assert ask_id(1) in {row.ask_id for row in made.sending("chat")}


def test_a_gate_that_is_over_is_forgotten_at_the_next_start() -> None:
    made = rig()
    made.ask(1)
    made.fail(made.sending("chat")[0], "throttled", retry_after_s=5.0)
    made.wait(6)
    made.arrive_all()
    made.restart()
    assert made.store.gates == {}


def test_a_closed_channel_costs_no_attempts_and_takes_asks_first_when_it_opens() -> None:
    made = rig(under_way=1)
    say(made, "x", "blocks", "text")
    made.fail(made.sending("chat")[0], "throttled", retry_after_s=60.0)
    say(made, "y", "text", "text")
    made.ask(1)
    assert made.sending("chat") == []
    assert {row.attempt for row in made.waiting()} == {0}
    made.wait(61)
    (row,) = made.sending("chat")
    assert row.ask_id == ask_id(1)
