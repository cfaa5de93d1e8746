"""Hear first, expire second, post third; and nothing that comes in twice counts twice."""

import json
from typing import Any

import pytest

from fakes.chat import channel_info
from fakes.kernel_rig import ADA, HOME, Rig, ask_id, asker
from upcall.core import dedupe
from upcall.core.recovery import CATCH_UP_S
from upcall.model.events import ChannelChanged, Slept
from upcall.model.platform import Place, Pressed
from upcall.model.rows import DeliveryRow


def rig(**fields: Any) -> Rig:
    given = {"threads": False, "own_user": True, "catches_up": True, **fields}
    made = Rig(channel_info("chat", **given))
    catches_up(made)
    return made


def catches_up(made: Rig) -> None:
    made.do(
        ChannelChanged(at=made.now, channel="chat", hearing=True, audience=0, caught_up=True)
    )


def press(made: Rig, choice: str = "0", **fields: Any) -> Any:
    token = next(
        one.token for one in made.kernel._state.tokens.values() if one.choice == choice
    )
    shown = made.kernel._state.cards[ask_id(1)]["chat"]
    fields = {"key": "tap", "who": ADA, "place": Place("chat", shown.place), **fields}
    return made.act(Pressed(token=token, **fields), on="chat")


def state_of(row: DeliveryRow) -> str:
    return str(json.loads(row.body).get("state", ""))


# --- at a start ----------------------------------------------------------------------------


def down_over_the_deadline(made: Rig) -> int:
    """Raise an ask that ends in a minute, and be away for an hour; return its deadline."""
    made.ask(1, timeout_s=60.0, wait=False)
    made.arrive_all()
    deadline_ms = made.wall_ms + 60_000
    made.restart(down_s=3600, hears=False)
    made.wait(1)
    return deadline_ms


def test_an_answer_in_time_counts_though_it_is_heard_late() -> None:
    made = rig()
    deadline_ms = down_over_the_deadline(made)
    assert made.only().state == "open"
    made.hears("chat")
    receipt = press(made, sent_ms=deadline_ms - 1)
    assert receipt.ok, receipt
    catches_up(made)
    assert made.only().outcome == "answered"


def test_an_answer_that_was_late_does_not_count_and_the_person_is_told() -> None:
    made = rig()
    deadline_ms = down_over_the_deadline(made)
    made.hears("chat")
    receipt = press(made, sent_ms=deadline_ms + 1)
    assert not receipt.ok
    assert made.only().outcome == "timed_out"


def test_an_answer_without_a_time_is_as_old_as_the_hub_heard_it() -> None:
    made = rig()
    down_over_the_deadline(made)
    made.hears("chat")
    assert not press(made).ok
    assert made.only().outcome == "timed_out"


def test_overdue_asks_end_when_all_is_heard_and_their_cards_are_finished() -> None:
    made = rig()
    down_over_the_deadline(made)
    made.hears("chat")
    assert made.only().state == "open"
    catches_up(made)
    assert made.only().outcome == "timed_out"
    (edit,) = made.sending("chat")
    assert edit.kind == "edit"
    assert "no answer" in state_of(edit).lower()
    assert "buttons" not in json.loads(edit.body)


def test_a_channel_that_never_hears_is_waited_for_only_so_long() -> None:
    made = rig()
    down_over_the_deadline(made)
    made.wait(CATCH_UP_S - 2)
    assert made.only().state == "open"
    made.wait(2)
    assert made.only().outcome == "timed_out"


def test_what_was_waiting_is_posted_last_and_nothing_that_ended() -> None:
    made = rig()
    made.ask(1, timeout_s=60.0, wait=False)
    made.ask(2, who=asker(200, parent="2:q"), wait=False)
    for row in made.sending("chat"):
        made.fail(row, "not_sent")
    made.restart(down_s=3600, hears=False)
    assert made.sending("chat") == []
    made.hears("chat")
    assert made.sending("chat") == []
    catches_up(made)
    posts = [row.ask_id for row in made.sending("chat") if row.ask_id is not None]
    assert posts == [ask_id(2)]
    assert made.row(1) is not None
    assert made.row(1).outcome == "timed_out"  # type: ignore[union-attr]


def test_an_overdue_card_is_not_posted_on_another_channel_meanwhile() -> None:
    made = Rig(
        channel_info("chat", threads=False, own_user=True, catches_up=True),
        channel_info("other", threads=False, own_user=True),
    )
    catches_up(made)
    made.ask(1, timeout_s=60.0, wait=False)
    for row in made.sending():
        made.fail(row, "not_sent")
    made.restart(down_s=3600, hears=False)
    made.hears("other")
    assert made.sending("other") == []
    made.hears("chat")
    catches_up(made)
    assert made.sending("other") == []
    assert made.only().outcome == "timed_out"


def test_a_channel_that_cannot_say_that_it_caught_up_is_not_waited_for() -> None:
    made = rig(catches_up=False)
    down_over_the_deadline(made)
    assert made.only().outcome == "timed_out"


# --- later ---------------------------------------------------------------------------------


def test_after_deafness_too_nothing_is_posted_before_all_is_heard() -> None:
    made = rig()
    made.hears("chat", hearing=False)
    made.ask(1)
    made.fail(made.sending("chat")[0], "not_sent")
    made.hears("chat")
    assert made.sending("chat") == []
    catches_up(made)
    assert len(made.sending("chat")) == 1


def test_after_a_sleep_an_answer_in_time_counts() -> None:
    made = rig()
    made.ask(1, timeout_s=60.0, wait=False)
    made.arrive_all()
    asleep_ms, deadline_ms = made.wall_ms, made.wall_ms + 60_000
    made.wall_ms += 3_600_000
    made.boot_s += 3600
    made.do(Slept(at=made.now, since_ms=asleep_ms))
    made.wait(1)
    assert made.only().state == "open"
    assert press(made, sent_ms=deadline_ms - 1).ok
    assert made.only().outcome == "answered"


def test_without_a_late_start_a_late_tap_is_late() -> None:
    made = rig()
    made.ask(1, timeout_s=60.0, wait=False)
    made.arrive_all()
    made.boot_s += 60
    made.wall_ms += 60_000
    assert not press(made).ok
    assert made.only().outcome == "timed_out"


def test_five_hundred_asks_settled_during_an_outage_make_one_summary() -> None:
    made = Rig(
        channel_info("web", threads=False, own_user=True, repeat="harmless"),
        channel_info("chat", threads=False, own_user=True, catches_up=True),
    )
    catches_up(made)
    made.hears("chat", hearing=False)
    for number in range(500):
        made.ask(number, who=asker(1000 + number, parent=f"{number}:p"), wait=False)
        for row in made.sending("chat"):
            made.fail(row, "not_sent")
        made.answer(number, on="web")
    made.ask(900, who=asker(5, parent="5:p"))
    made.wait(86_400)
    made.hears("chat")
    catches_up(made)
    posts = made.sending("chat", "post")
    words = [json.loads(row.body)["text"] for row in posts]
    summary = [text for text in words if "could not hear you" in text]
    assert len(summary) == 1
    assert "Meanwhile 500 questions were settled elsewhere and not shown here." in summary[0]
    assert {row.ask_id for row in posts if row.ask_id} == {ask_id(900)}


def test_what_was_given_up_is_tried_when_the_channel_is_back_if_a_repeat_shows_once() -> None:
    made = rig(repeat="by_key")
    made.ask(1)
    for _ in range(12):
        made.fail(made.sending("chat")[0], "uncertain")
        made.wait(300)
    assert made.kernel.dead_letters() == 1
    made.hears("chat", hearing=False)
    made.hears("chat")
    catches_up(made)
    assert made.kernel.dead_letters() == 0
    assert len(made.sending("chat", "post")) == 1


# --- twice ---------------------------------------------------------------------------------


def test_the_same_tap_under_another_event_key_has_no_second_effect() -> None:
    made = rig()
    made.ask(1, timeout_s=600.0)
    made.arrive_all()
    assert press(made, "hold", key="e1", content="c1").code == "held"
    assert made.only().held_s is not None
    again = press(made, "hold", key="e2", content="c1")
    assert again.ok
    assert made.only().held_s is not None
    made.restart()
    press(made, "hold", key="e3", content="c1")
    assert made.only().held_s is not None
    press(made, "hold", key="e4", content="c2")
    assert made.only().held_s is None


def test_the_same_content_of_another_person_or_place_is_another_act() -> None:
    one = Pressed(key="k", token="t", place=Place("chat", "a"), who=ADA, content="c")
    keys = {
        dedupe.content_key("chat", one),
        dedupe.content_key("other", one),
        dedupe.content_key(
            "chat", Pressed(key="k", token="t", place=Place("chat", "b"), who=ADA, content="c")
        ),
        dedupe.content_key(
            "chat", Pressed(key="k", token="u", place=Place("chat", "a"), who=ADA, content="c")
        ),
    }
    assert len(keys) == 4
    assert not dedupe.content_key(
        "chat", Pressed(key="k", token="t", place=Place("chat", "a"), who=ADA)
    )


def test_what_came_in_is_known_for_a_day_however_much_comes(monkeypatch: Any) -> None:
    monkeypatch.setattr(dedupe, "INBOUND_KEPT", 5)
    made = rig()
    for number in range(1, 31):
        made.ask(number, wait=False)
        made.answer(number, on="chat", key=f"k{number}")
        made.wait(60)
    assert len(made.kernel._state.inbound) == 30
    assert len(made.kernel._state.inbound_ms) == 30
    made.wait(86_400)
    made.ask(99, wait=False)
    made.answer(99, on="chat", key="last")
    assert len(made.kernel._state.inbound) == 5
    assert len(made.kernel._state.inbound_ms) == 5


# --- a program that went on by itself --------------------------------------------------------


def asks_alone(made: Rig, *, pid: int = 100, question: str = "Deploy?") -> None:
    """Let the asker, whose hub was killed before it answered, present its ask itself."""
    made.up(pid=pid, sync=False)
    made.needs(f"ask:{ask_id(1)}", question, ("yes", "no"), free_text=False)
    made.sync()


@pytest.mark.parametrize("claimed", [False, True])
def test_an_ask_whose_program_went_on_by_itself_is_one_ask(claimed: bool) -> None:
    made = rig()
    made.ask(1)
    made.arrive_all()
    card = made.kernel._state.cards[ask_id(1)]["chat"].ref
    made.restart()
    catches_up(made)
    if claimed:
        made.answer(1, on="chat")
    asks_alone(made)
    assert len(made.store.asks) == 1
    assert made.only().session_id == HOME
    if not claimed:
        made.answer(1, on="chat")
    (reply,) = made.sending(HOME, "reply")
    assert json.loads(reply.body)["answer"] == "yes"
    made.arrive_all()
    made.resolved(f"ask:{ask_id(1)}", resolved_by="client", answer="yes")
    assert made.only().outcome == "answered"
    assert {row.ref for row in made.sending("chat", "edit")} == {card}
    made.arrive_all()
    assert made.kernel.waiting_deliveries() == 0
    made.down(gone=True)
    assert made.kernel.sessions() == []


@pytest.mark.parametrize("other", [{"pid": 101}, {"question": "Deploy it?"}])
def test_another_programs_ask_under_the_same_id_is_another_ask(other: Any) -> None:
    made = rig()
    made.ask(1)
    made.restart()
    asks_alone(made, **other)
    assert len(made.store.asks) == 2
