"""What may have arrived, what was given up, and threads that are opened and removed."""

import json
from typing import Any

import pytest

from fakes.chat import channel_info
from fakes.kernel_rig import Rig, ask_id, asker, channel
from upcall.core.announce import HUB_CONVERSATION
from upcall.core.resend import REPEATED
from upcall.core.state import Step
from upcall.model.document import Message
from upcall.model.effects import Send
from upcall.model.events import CancelAsked, Delivered, LettersSorted
from upcall.model.platform import THREAD_GONE, Opening
from upcall.model.rows import DeliveryRow

TALK = "p:box:1:p"


def rig(*more: Any, **fields: Any) -> Rig:
    given = {"threads": False, "own_user": True, **fields}
    return Rig(channel_info("chat", **given), *more)


def text(row: DeliveryRow) -> str:
    return str(json.loads(row.body)["text"])


def only(made: Rig, kind: str | None = None, target: str = "chat") -> DeliveryRow:
    (row,) = made.sending(target, kind)
    return row


def find_of(made: Rig, row: DeliveryRow) -> str:
    return [one.find for one in made.of(Send) if one.delivery.id == row.id][-1]


def say(made: Rig, words: str, lane: Any = "text", key: str = TALK) -> None:
    kernel = made.kernel
    step = Step(kernel._state, made.now, b"seed" * 8)
    info = kernel._state.infos["chat"]
    kernel._outbox.say(step, info, key, Message((), words), lane=lane, effect=f"t:{words}")
    made.store.commit(step.decision.writes)
    made.releases += step.decision.releases


# --- uncertain -----------------------------------------------------------------------------


def test_a_card_that_may_have_arrived_waits_as_uncertain_and_is_marked_when_sent_again() -> (
    None
):
    made = rig(repeat="none")
    made.ask(1)
    made.fail(only(made), "uncertain")
    (row,) = made.store.deliveries.values()
    assert row.state == "uncertain"
    assert row.error == "may have arrived: no"
    assert made.kernel.numbers(made.now).uncertain == 1
    made.wait(2)
    again = only(made)
    assert (again.attempt, again.effect) == (2, row.effect)
    assert text(again).startswith(REPEATED)
    made.arrive(again)
    made.answer(1)
    assert REPEATED not in text(only(made, "edit"))


def test_a_part_that_may_have_arrived_is_marked_where_it_stands() -> None:
    made = rig(repeat="none", text_limit=20)
    made.ask(1)
    made.arrive(only(made))
    *_, last = [row for row in made.store.deliveries.values() if row.kind == "post"]
    while only(made).id != last.id:
        made.arrive(only(made))
    made.fail(only(made), "uncertain")
    made.wait(2)
    assert REPEATED in json.loads(only(made).body)["state"]


@pytest.mark.parametrize("repeat", ["by_key", "by_lookup"])
def test_where_the_platform_can_tell_a_card_is_sent_again_unmarked(repeat: str) -> None:
    made = rig(repeat=repeat)
    made.ask(1)
    first = only(made)
    assert find_of(made, first) == "no"
    for _ in range(8):
        made.fail(only(made), "uncertain")
        made.wait(300)
    again = only(made)
    assert (again.effect, again.body) == (first.effect, first.body)
    assert find_of(made, again) == ("first" if repeat == "by_lookup" else "no")


def test_what_is_found_to_be_there_is_taken_up_also_after_the_end() -> None:
    made = rig(repeat="by_lookup")
    made.ask(1)
    made.fail(only(made), "uncertain")
    made.do(CancelAsked(at=made.now, waiter=9, ask_id=ask_id(1)))
    made.wait(2)
    post = only(made)
    assert find_of(made, post) == "only"
    made.do(Delivered(at=made.now, delivery=post.id, ref="there"))
    edit = only(made, "edit")
    assert (edit.ref, json.loads(edit.body).get("buttons")) == ("there", None)


def test_what_is_found_to_be_absent_is_not_posted_after_the_end() -> None:
    made = rig(repeat="by_lookup")
    made.ask(1)
    made.fail(only(made), "uncertain")
    made.do(CancelAsked(at=made.now, waiter=9, ask_id=ask_id(1)))
    made.wait(2)
    made.fail(only(made), "absent")
    assert made.kernel.waiting_deliveries() == 0
    assert made.kernel.dead_letters() == 0


def test_a_crash_while_a_card_is_looked_up_repeats_nothing() -> None:
    made = rig(repeat="by_lookup")
    made.ask(1)
    for _ in range(6):
        made.restart()
    assert find_of(made, only(made)) == "first"


def test_a_notice_that_may_have_arrived_is_not_sent_twice() -> None:
    made = rig(repeat="none")
    say(made, "done")
    made.fail(only(made), "uncertain")
    made.wait(1000)
    assert made.sending("chat") == []
    (letter,) = made.kernel.letters()
    assert (letter.state, letter.attempts) == ("dead", 1)
    say(made, "another")
    made.restart()
    assert made.sending("chat") == []


def test_a_thread_that_may_have_been_opened_is_not_opened_for_ever() -> None:
    made = rig(repeat="none", threads=True)
    made.ask(1)
    for _ in range(3):
        made.fail(only(made, "open"), "uncertain")
        made.wait(300)
    assert made.sending("chat") == []
    assert {row.state for row in made.store.deliveries.values()} == {"dead"}


# --- dead letters --------------------------------------------------------------------------


def sort(made: Rig, action: Any, *letters: int, **fields: Any) -> dict[int, str]:
    made.do(LettersSorted(at=made.now, number=1, action=action, letters=letters, **fields))
    return made.kernel.letters_sorted(1)


def test_a_dead_card_is_posted_once_more_as_it_stands_now() -> None:
    made = rig()
    made.ask(1)
    post = only(made)
    made.fail(post, "refused")
    (letter,) = made.kernel.letters()
    assert (letter.id, letter.state, letter.reason, letter.ask) == (
        post.id, "dead", "no", ask_id(1),
    )  # fmt: skip
    assert made.store.deliveries[post.id].body == b""
    made.restart()
    assert made.kernel.dead_letters() == 1
    assert sort(made, "retry", post.id) == {post.id: ""}
    assert "Deploy?" in text(only(made))
    made.arrive(only(made))
    made.answer(1)
    assert only(made, "edit").ref == f"ref-{post.id}"
    assert made.kernel.dead_letters() == 0


def test_a_dead_edit_is_drawn_as_its_ask_ended_also_in_a_later_life() -> None:
    made = rig()
    made.ask(1, wait=False)
    made.arrive_all()
    made.answer(1)
    edit = only(made, "edit")
    made.fail(edit, "refused")
    made.restart()
    found = {ask_id(1): made.store.asks[ask_id(1)]}
    assert sort(made, "retry", edit.id) == {edit.id: "its ask is not known any more"}
    assert sort(made, "retry", edit.id, found=found) == {edit.id: ""}
    again = only(made, "edit")
    assert again.ref == edit.ref
    assert "Answered by" in json.loads(again.body)["state"]
    made.arrive(again)
    assert made.kernel.waiting_deliveries() == 0


def test_a_dead_card_of_an_ask_that_ended_needs_nobody() -> None:
    made = rig()
    made.ask(1, wait=False)
    made.fail(only(made), "refused")
    made.answer(1)
    assert made.kernel.letters() == []
    made.restart()
    assert made.kernel.letters() == []


def test_what_is_dropped_by_hand_is_gone_for_good() -> None:
    made = rig()
    say(made, "one")
    say(made, "two")
    first = only(made)
    assert sort(made, "drop", first.id) == {first.id: "it is on its way right now"}
    made.fail(first, "not_sent")
    assert sort(made, "drop", first.id) == {first.id: ""}
    second = only(made)
    made.fail(second, "refused")
    assert sort(made, "drop", second.id, 999) == {
        second.id: "",
        999: "it is not in the outbox",
    }
    made.restart()
    assert made.kernel.letters() == []


def test_a_dead_notice_keeps_its_text_and_one_that_waits_is_tried_at_once() -> None:
    made = rig()
    say(made, "one")
    made.fail(only(made), "refused")
    made.restart()
    (letter,) = made.kernel.letters()
    assert sort(made, "retry", letter.id) == {letter.id: ""}
    assert text(only(made)) == "one"
    made.fail(only(made), "not_sent", retry_after_s=500.0)
    assert sort(made, "retry", letter.id) == {letter.id: ""}
    made.arrive(only(made))
    assert made.store.deliveries[letter.id].body == b""


# --- threads -------------------------------------------------------------------------------


def test_a_conversation_is_opened_before_anything_is_posted_in_it() -> None:
    made = rig(threads=True)
    commits = made.store.commits
    made.ask(1)
    made.ask(2)
    opening = only(made)
    assert opening.kind == "open"
    told = json.loads(opening.body)
    assert Opening(**told) == Opening(TALK, "shop · Deploying · box")
    made.do(Delivered(at=made.now, delivery=opening.id, ref="t1"))
    assert made.store.conversations[TALK, "chat"].place == "t1"
    post = only(made)
    assert (post.ask_id, post.place) == (ask_id(1), "t1")
    made.arrive(post)
    assert made.store.cards[ask_id(1), "chat", "t1"].ref == f"ref-{post.id}"
    assert made.store.commits - commits == 4
    assert only(made).place == "t1"
    made.arrive_all()
    made.ask(3, who=asker(200, parent="2:q"))
    assert only(made).kind == "open"


def test_a_crash_at_any_time_opens_one_thread_where_the_platform_can_tell() -> None:
    made = rig(threads=True, repeat="by_key")
    made.ask(1)
    effect = only(made).effect
    for _ in range(3):
        made.restart()
        assert only(made).effect == effect
    made.do(Delivered(at=made.now, delivery=only(made).id, ref="t1"))
    made.restart()
    assert only(made).place == "t1"
    made.arrive_all()
    made.restart()
    assert made.sending("chat") == []


def opened(made: Rig, place: str) -> None:
    made.do(Delivered(at=made.now, delivery=only(made, "open").id, ref=place))


def gone(made: Rig, row: DeliveryRow) -> None:
    made.fail(row, "refused", code=THREAD_GONE)


def test_a_thread_that_was_removed_is_opened_anew_with_the_open_asks_alone() -> None:
    made = rig(threads=True)
    for number in (1, 2, 3):
        made.ask(number, wait=False)
    opened(made, "t1")
    made.arrive_all()
    made.answer(1)
    tokens = dict(made.store.tokens)
    gone(made, only(made, "edit"))
    opened(made, "t2")
    shown = []
    while rows := made.sending("chat"):
        (row,) = rows
        shown.append((row.kind, row.place, row.ask_id))
        made.arrive(row)
    assert shown == [("post", "t2", ask_id(2)), ("post", "t2", ask_id(3))]
    assert made.store.tokens == tokens
    made.answer(2)
    assert only(made, "edit").ref == made.store.cards[ask_id(2), "chat", "t2"].ref
    assert (ask_id(2), "chat", "t1") not in made.store.cards
    made.restart()
    assert made.kernel._state.conversations[TALK]["chat"].place == "t2"


def test_a_text_that_found_no_thread_is_posted_in_the_next_one() -> None:
    made = rig(threads=True)
    say(made, "one")
    opened(made, "t1")
    made.arrive_all()
    say(made, "two")
    say(made, "three")
    gone(made, only(made))
    opened(made, "t2")
    words = []
    while rows := made.sending("chat"):
        words.append((text(rows[0]), rows[0].place))
        made.arrive(rows[0])
    assert words == [("two", "t2"), ("three", "t2")]


def test_a_card_that_found_no_thread_is_posted_in_the_next_one() -> None:
    made = rig(threads=True)
    made.ask(1)
    opened(made, "t1")
    gone(made, only(made))
    opened(made, "t2")
    post = only(made)
    assert (post.ask_id, post.place) == (ask_id(1), "t2")
    made.arrive(post)
    made.answer(1)
    assert only(made, "edit").ref == f"ref-{post.id}"


def test_nothing_is_opened_for_what_is_over() -> None:
    made = rig(threads=True)
    made.ask(1, wait=False)
    opened(made, "t1")
    made.arrive_all()
    made.answer(1)
    gone(made, only(made, "edit"))
    assert made.kernel.waiting_deliveries() == 0
    assert made.kernel.dead_letters() == 0


def test_threads_that_are_removed_at_once_are_not_fought() -> None:
    made = rig(threads=True)
    made.ask(1)
    for number in range(3):
        opened(made, f"t{number}")
        gone(made, only(made))
    opened(made, "t9")
    gone(made, only(made))
    assert made.sending("chat") == []
    assert made.kernel.dead_letters() == 1


def test_a_thread_that_cannot_be_opened_takes_the_asks_elsewhere() -> None:
    made = rig(channel("web"), threads=True)
    waiter = made.ask(1)
    made.fail(only(made, "open"), "refused")
    assert made.sending("chat") == []
    told = made.told(waiter, "channels")[-1]["channels"]
    assert {one["name"]: one["state"] for one in told}["chat"] == "down"
    made.answer(1)
    made.took(1)
    made.ask(2)
    opened(made, "t1")
    assert only(made).ask_id == ask_id(2)


def test_a_closed_conversation_goes_on_in_its_thread() -> None:
    made = rig(threads=True)
    for restart in (False, True):
        made.ask(1 + restart, wait=False)
        if not restart:
            opened(made, "t1")
        made.arrive_all()
        assert made.store.cards[ask_id(1 + restart), "chat", "t1"].ref is not None
        made.answer(1 + restart)
        made.arrive_all()
        made.wait(700)
        assert made.store.conversations[TALK, "chat"].state == "closed"
        made.restart()


def test_the_hub_has_a_thread_of_its_own() -> None:
    made = rig(threads=True)
    say(made, "hello", "outcome", HUB_CONVERSATION)
    assert json.loads(only(made, "open").body)["title"]
