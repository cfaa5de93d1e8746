"""Deliveries: order, repeats, waits, uncertainty, and cards that do not lie."""

from typing import Any

import pytest

from fakes.kernel_rig import HOME, YES_NO, Rig, ask_id, asker, channel, lower
from upcall.core.state import ChannelInfo
from upcall.model.ask import AskSpec
from upcall.model.document import Message
from upcall.model.effects import Send
from upcall.model.events import (
    CancelAsked,
    Delivered,
    DeliveryFailed,
    FrameIn,
    Took,
    WaiterGone,
)
from upcall.model.frames import ActionResolved
from upcall.model.ids import ActionId
from upcall.model.platform import Body, Capabilities, Place, Texted, Who
from upcall.model.quotas import Limits


def chat(**fields: Any) -> ChannelInfo:
    return channel("chat", repeat="none", **fields)


def lower_in_two(message: Message, place: Place) -> tuple[Body, Body]:
    (body,) = lower(message, place)
    return Body(b"head"), body


def test_a_card_tells_the_story_and_loses_its_buttons() -> None:
    rig = Rig()
    rig.ask(spec=AskSpec(question="Deploy?", options=("yes", "no"), detail="to prod"))
    (post,) = rig.sending("web")
    card = rig.card(post)
    assert card.live
    assert card.plain.startswith("box · shop · main · Deploying · deploy.sh\nDeploy?\nto prod")
    assert card.plain.endswith("1. yes\n2. no")
    rig.arrive(post)
    assert rig.store.cards[ask_id(1), "web", "p:box:1:p"].ref == f"ref-{post.id}"
    rig.answer()
    (edit,) = rig.sending("web")
    assert edit.ref == f"ref-{post.id}"
    card = rig.card(edit)
    assert (card.live, card.state_line) == (False, 'ada chose "yes" on web; sending…')
    rig.arrive(edit)
    rig.took()
    (edit,) = rig.sending("web")
    assert rig.card(edit).state_line == "Answered by ada on web: yes; the program took it"
    rig.arrive(edit)
    assert rig.store.deliveries[post.id].body == b""
    assert rig.kernel.waiting_deliveries() == 0


def test_an_edit_behind_another_one_still_reaches_the_card_after_the_end() -> None:
    rig = Rig()
    rig.ask()
    rig.arrive_all()
    rig.answer()
    rig.took()
    (first,) = rig.sending("web")
    (second,) = rig.waiting()
    assert "took it" in rig.card(second).state_line
    rig.arrive(first)
    (sent,) = rig.sending("web")
    assert (sent.id, sent.ref) == (second.id, first.ref)
    rig.arrive(sent)
    assert rig.kernel.waiting_deliveries() == 0


def test_a_card_that_arrives_after_the_end_is_edited() -> None:
    rig = Rig()
    rig.ask()
    (post,) = rig.sending()
    rig.do(CancelAsked(at=rig.now, waiter=9, ask_id=ask_id(1)))
    rig.arrive(post)
    (edit,) = rig.sending()
    assert edit.ref == f"ref-{post.id}"
    assert rig.card(edit).state_line == "The program withdrew its question"


def test_edits_that_wait_become_one() -> None:
    rig = Rig()
    rig.ask(timeout_s=600.0)
    rig.arrive_all()
    for hold in (True, False, True):
        rig.answer(hold=hold)
    assert len(rig.sending()) == len(rig.waiting()) == 1
    (waiting,) = rig.waiting()
    assert rig.card(waiting).state_line == "the clock is stopped"


def test_a_card_that_never_went_out_is_not_posted_after_the_end() -> None:
    rig = Rig(chat())
    rig.ask(1)
    rig.ask(2)
    (post,) = rig.sending()
    rig.fail(post, "not_sent")
    rig.answer(1)
    rig.took(1)
    (sent,) = rig.sending()
    assert (sent.ask_id, sent.kind) == (ask_id(2), "post")
    rows = [row for row in rig.store.deliveries.values() if row.ask_id == ask_id(1)]
    assert [row.state for row in rows] == ["done", "done"]
    assert rig.kernel.waiting_deliveries() == 1


def test_a_post_that_fails_after_the_end_is_given_up_with_its_edit() -> None:
    rig = Rig(chat())
    rig.ask(wait=False)
    (post,) = rig.sending()
    rig.answer()
    rig.fail(post, "uncertain")
    assert rig.kernel.waiting_deliveries() == 0
    assert rig.only().outcome == "answered"


def test_one_conversation_is_one_lane_in_a_chat_and_each_card_one_on_a_page() -> None:
    rig = Rig(chat(), channel("web"))
    rig.ask(1)
    rig.ask(2)
    rig.ask(3, who=asker(200, parent="2:q"))
    assert [row.ask_id for row in rig.sending("chat")] == [ask_id(1), ask_id(3)]
    assert len(rig.sending("web")) == 3
    rig.answer(1)
    rig.arrive(rig.sending("chat")[0])
    order = []
    while rows := [row for row in rig.sending("chat") if row.ask_id != ask_id(3)]:
        (row,) = rows
        order.append((row.ask_id, row.kind))
        rig.arrive(row)
    assert order == [(ask_id(2), "post"), (ask_id(1), "edit")]


def test_a_channel_out_of_reach_for_long_loses_nothing_and_repeats_are_no_repeats() -> None:
    rig = Rig(chat())
    rig.ask()
    waits = []
    for _ in range(30):
        (post,) = rig.sending()
        assert post.attempt == 1
        rig.fail(post, "not_sent", jitter=0.999)
        (waiting,) = rig.waiting()
        assert waiting.attempt == 0
        waits.append(waiting.not_before_ms - rig.wall_ms)
        rig.wait(300)
    assert waits[:3] == [999, 1999, 3998]
    assert max(waits) <= 300_000
    rig.arrive_all()
    assert rig.kernel.waiting_deliveries() == 0


def test_a_wait_goes_by_the_boot_clock() -> None:
    rig = Rig(chat())
    rig.ask()
    rig.fail(rig.sending()[0], "not_sent")
    rig.wall_ms -= 86_400_000
    rig.wait(1)
    assert len(rig.sending()) == 1


def test_a_channel_that_hears_again_is_tried_at_once() -> None:
    rig = Rig(chat())
    rig.ask()
    for _ in range(8):
        rig.fail(rig.sending()[0], "not_sent")
        rig.wait(64)
    rig.fail(rig.sending()[0], "not_sent")
    rig.hears("chat", hearing=False)
    assert rig.sending() == []
    rig.hears("chat")
    assert len(rig.sending()) == 1
    rig.wait(1000)
    assert len(rig.sending()) == 1


def test_an_uncertain_post_is_sent_three_times_at_most_and_then_is_dead() -> None:
    rig = Rig(chat())
    waiter = rig.ask()
    attempts = []
    rig.fail(rig.sending()[0], "not_sent")
    rig.wait(10)
    while rows := rig.sending():
        attempts.append(rows[0].attempt)
        rig.fail(rows[0], "uncertain")
        rig.wait(10)
    assert attempts == [1, 2, 3]
    (row,) = rig.store.deliveries.values()
    assert row.state == "dead"
    assert [line.event for line in rig.store.audit][-1] == "delivery_dead"
    (told,) = rig.told(waiter, "channels")
    (shown,) = told["channels"]
    assert (shown["state"], shown["reason"]) == ("down", "the card could not be posted")
    rig.answer()
    assert rig.kernel.waiting_deliveries() == 0


def test_a_refused_post_is_dead_and_its_edits_are_not_tried() -> None:
    rig = Rig(chat())
    rig.ask()
    (post,) = rig.sending()
    rig.answer()
    rig.fail(post, "refused")
    assert rig.kernel.waiting_deliveries() == 0
    assert [row.state for row in rig.store.deliveries.values()] == ["dead", "done"]
    assert rig.only().state == "claimed"


def test_an_edit_that_never_works_is_given_up_and_holds_up_no_ask() -> None:
    rig = Rig(chat())
    rig.ask(1)
    rig.arrive_all()
    rig.answer(1)
    rig.ask(2)
    for number in range(12):
        (edit,) = rig.sending(kind="edit")
        rig.fail(edit, "uncertain")
        if not number:
            (post,) = rig.sending()
            assert post.ask_id == ask_id(2)
            rig.arrive(post)
        rig.wait(300)
    assert rig.kernel.waiting_deliveries() == 0


def test_where_a_repeat_is_harmless_a_post_is_tried_twelve_times() -> None:
    rig = Rig()
    rig.ask()
    for _ in range(12):
        rig.fail(rig.sending()[0], "uncertain")
        rig.wait(300)
    assert rig.sending() == []
    assert rig.kernel.waiting_deliveries() == 0


def test_a_throttled_channel_is_closed_as_a_whole_until_its_time() -> None:
    rig = Rig(chat())
    rig.ask(1)
    rig.ask(2, who=asker(200, parent="2:q"))
    first, second = rig.sending()
    rig.fail(first, "throttled", retry_after_s=30.0)
    assert rig.store.gates == {"chat": rig.wall_ms + 30_000}
    rig.arrive(second)
    rig.ask(3, who=asker(300, parent="3:q"))
    assert rig.sending() == []
    rig.hears("chat", hearing=False)
    rig.hears("chat")
    assert rig.sending() == []
    rig.wait(29)
    assert rig.sending() == []
    rig.restart(down_s=0.5)
    assert rig.sending() == []
    rig.wait(1)
    assert sorted(row.ask_id or "" for row in rig.sending()) == [ask_id(1), ask_id(3)]


def test_results_that_come_twice_or_out_of_nowhere_change_nothing() -> None:
    rig = Rig()
    rig.ask()
    (post,) = rig.sending()
    assert rig.do(Delivered(at=rig.now, delivery=99)).writes == []
    event = DeliveryFailed(at=rig.now, delivery=99, kind="refused", msg="no")
    assert rig.do(event).writes == []
    rig.fail(post, "not_sent")
    assert rig.arrive(post).writes == []
    assert rig.fail(post, "refused").writes == []
    rig.wait(1)
    rig.arrive_all()
    assert rig.arrive(post).writes == []


def test_a_message_of_two_parts_is_edited_at_its_last() -> None:
    capabilities = Capabilities(text_limit=10, repeat="none", own_user=True)
    rig = Rig(ChannelInfo("chat", capabilities, lower_in_two))
    waiter = rig.ask()
    (head,) = rig.sending()
    assert head.body == b"head"
    rig.arrive(head)
    (tail,) = rig.sending()
    rig.arrive(tail)
    rig.answer()
    (edit,) = rig.sending()
    assert edit.ref == f"ref-{tail.id}"
    assert len(rig.told(waiter, "channels")) == 2


def test_a_post_without_a_ref_cannot_be_edited() -> None:
    rig = Rig()
    rig.ask()
    (post,) = rig.sending()
    rig.do(Delivered(at=rig.now, delivery=post.id))
    rig.answer()
    assert rig.kernel.waiting_deliveries() == 0


def test_a_reply_is_tried_until_the_session_or_the_ask_is_over() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only())
    for _ in range(20):
        (reply,) = rig.sending(HOME)
        rig.fail(reply, "uncertain")
        rig.wait(300)
    assert len(rig.sending(HOME)) == 1
    rig.resolved(resolved_by="timeout")
    rig.fail(rig.sending(HOME)[0], "not_sent")
    assert rig.sending(HOME) == []
    assert [row.kind for row in rig.waiting() if row.target == HOME] == []


def test_dropping_the_head_of_a_lane_lets_the_rest_go() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only())
    rig.act(Texted(key="m", who=Who("x"), text="Hi", session_id=HOME))
    (reply,) = rig.sending(HOME)
    rig.fail(reply, "not_sent")
    assert rig.sending(HOME) == []
    rig.resolved(resolved_by="timeout")
    assert [row.kind for row in rig.sending(HOME)] == ["message"]


def test_a_rejected_reply_that_waits_is_dropped_and_the_lane_goes_on() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only())
    rig.act(Texted(key="m", who=Who("x"), text="Hi", session_id=HOME))
    rig.fail(rig.sending(HOME)[0], "uncertain")
    rig.rejected("invalid_answer")
    assert [row.kind for row in rig.sending(HOME)] == ["message"]


def test_one_thousand_dead_edits_in_one_lane_are_no_trouble() -> None:
    rig = Rig(chat(), limits=Limits(shown_asks=1200, shown_asks_per_minute=1200))
    for number in range(1200):
        rig.ask(number, wait=False)
    for row in rig.kernel.open_rows():
        rig.answer(row)
    # Every answered ask's post but the first never went out.
    assert rig.kernel.waiting_deliveries() == 2
    rig.fail(rig.sending()[0], "refused")
    assert rig.kernel.waiting_deliveries() == 0


# --- how many commits ----------------------------------------------------------------------


def test_the_life_of_an_attached_askers_ask_is_five_commits_at_most() -> None:
    rig = Rig()
    before = rig.store.commits
    waiter = rig.ask()
    rig.arrive(rig.sending()[0])
    rig.answer()
    who = Who("1000", "grace", local=True)
    took = Took(at=rig.now, waiter=rig.waiter(), ask_id=ask_id(1), who=who)
    rig.together(*rig.lazy(), took)
    rig.together(*rig.lazy(), WaiterGone(at=rig.now, waiters=(waiter,)))
    assert rig.only().outcome == "answered"
    assert rig.kernel.waiting_deliveries() == 0
    assert rig.store.commits - before == 5


def test_the_life_of_a_handed_over_ask_is_four_commits() -> None:
    rig = Rig()
    before = rig.store.commits
    rig.ask(wait=False)
    rig.arrive(rig.sending()[0])
    rig.answer()
    rig.together(*rig.lazy())
    assert rig.kernel.waiting_deliveries() == 0
    assert rig.store.commits - before == 4


def test_the_life_of_a_sessions_ask_is_five_commits_at_most() -> None:
    rig = Rig()
    rig.up()
    before = rig.store.commits
    rig.needs()
    rig.arrive(rig.sending()[0])
    rig.answer(rig.only())
    assert {row.kind for row in rig.sending()} == {"reply", "edit"}
    frame = ActionResolved(id=ActionId("q1"), resolved_by="client", answer="yes")
    resolved = FrameIn(at=rig.now, session_id=HOME, frame=frame, fresh=b"")
    rig.together(*rig.lazy(), resolved)
    rig.together(*rig.lazy())
    assert rig.only().outcome == "answered"
    assert rig.kernel.waiting_deliveries() == 0
    assert rig.store.commits - before == 5


def test_press_claim_and_reply_are_one_decision() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    before = rig.store.commits
    rig.answer(rig.only())
    assert rig.store.commits == before + 1
    assert rig.sending(HOME, "reply")
    assert YES_NO.options == rig.only().spec.options


# --- over a restart ------------------------------------------------------------------------


def test_what_was_on_its_way_goes_again_after_a_restart() -> None:
    rig = Rig()
    rig.ask()
    rig.restart()
    (post,) = rig.sending()
    assert post.attempt == 2
    assert [one.delivery.id for one in rig.of(Send)] == [post.id]
    rig.arrive_all()
    assert rig.store.cards[ask_id(1), "web", "p:box:1:p"].ref is not None


def test_crashes_add_no_more_cards_than_uncertain_sends_do() -> None:
    rig = Rig(chat())
    rig.ask()
    sends = 1
    for _ in range(5):
        rig.restart()
        sends += len(rig.of(Send))
    assert sends == 3
    (row,) = rig.store.deliveries.values()
    assert row.state == "dead"


def test_a_wait_goes_on_after_a_restart() -> None:
    rig = Rig(chat())
    rig.ask()
    rig.fail(rig.sending()[0], "uncertain", jitter=0.5)
    rig.restart(down_s=0.25, hears=False)
    assert rig.sending() == []
    rig.wait(1)
    (post,) = rig.sending()
    assert post.attempt == 2


def test_the_last_edit_reaches_its_card_over_a_restart() -> None:
    rig = Rig()
    rig.ask(wait=False)
    rig.arrive_all()
    rig.answer()
    assert len(rig.sending()) == 1
    rig.restart()
    (edit,) = rig.sending()
    assert edit.ref is not None
    assert "Answered by ada" in rig.card(edit).state_line
    rig.arrive_all()
    rig.restart()
    assert rig.kernel.find(ask_id(1)) is None


def test_a_post_of_an_ask_that_ended_is_not_sent_again_after_a_restart() -> None:
    rig = Rig(chat())
    rig.ask(wait=False)
    rig.answer()
    rig.restart()
    assert rig.kernel.waiting_deliveries() == 0


def test_a_channel_that_was_configured_later_gets_the_open_asks() -> None:
    rig = Rig()
    rig.ask(1)
    rig.arrive_all()
    rig.restart(channels=(channel("web"), chat(buttons=5)))
    (post,) = rig.sending()
    assert (post.target, post.ask_id) == ("chat", ask_id(1))
    rig.arrive_all()
    rig.restart(channels=(channel("web"), chat(buttons=5)))
    assert rig.sending() == []


def test_a_channel_that_is_not_configured_any_more_is_let_go_in_time() -> None:
    rig = Rig(channel("web"), chat())
    rig.ask(1)
    rig.arrive_all()
    rig.answer(1)
    rig.restart(channels=(channel("web"),))
    (edit,) = rig.sending("chat")
    rig.arrive(rig.sending("web")[0])
    for _ in range(12):
        (edit,) = rig.sending("chat")
        rig.fail(edit, "not_sent")
        rig.wait(300)
    assert rig.kernel.waiting_deliveries() == 0
    rig.ask(1)
    rig.took()
    assert [row.target for row in rig.sending()] == ["web"]


@pytest.mark.parametrize("kind", ["not_sent", "uncertain"])
def test_a_message_on_its_way_when_the_hub_ended_goes_again(kind: str) -> None:
    rig = Rig()
    rig.up()
    rig.act(Texted(key="m", who=Who("x"), text="Hi", session_id=HOME))
    rig.restart()
    (message,) = rig.sending(HOME)
    rig.fail(message, kind)
    rig.up()
    assert len(rig.sending(HOME)) == 1
