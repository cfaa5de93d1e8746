"""Equal open asks as one card, if their program and the policy allow it."""

from typing import Any

import pytest

from fakes.kernel_rig import HOME, YES_NO, Rig, ask_id, asker, channel
from upcall.model import frames
from upcall.model.ask import AskSpec
from upcall.model.policy import Policy, Terms
from upcall.model.rows import AskRow, DeliveryRow
from upcall.model.struct import replaced

MERGE = replaced(YES_NO, merge=True)


def rig(**terms: Any) -> Rig:
    policy = Policy(defaults=Terms(reminders_s=(), merge=True, **terms))
    return Rig(channel("tg", buttons=5), policy=policy)


def posts(made: Rig) -> list[DeliveryRow]:
    return [row for row in made.store.deliveries.values() if row.kind == "post"]


def row(made: Rig, number: int) -> AskRow:
    found = made.row(number)
    assert found is not None
    return found


def ask_twice(made: Rig, first: AskSpec = MERGE, second: AskSpec = MERGE) -> tuple[int, int]:
    """Two programs of one conversation ask at the same time."""
    one = made.ask(1, first, who=asker(1))
    two = made.ask(2, second, who=asker(2))
    made.arrive_all()
    return one, two


def test_two_equal_asks_are_one_card_that_says_so_and_one_answer_is_for_both() -> None:
    made = rig()
    one, two = ask_twice(made)
    assert len(posts(made)) == 1
    words = "Asked 2 times; one answer is for all of them"
    assert made.kernel.view(row(made, 1)).note == words
    assert [view.id for view in made.kernel.open_asks()] == [ask_id(1)]
    receipt = made.answer(1, on="tg")
    assert receipt is not None
    assert receipt.ok
    for waiter in (one, two):
        (told,) = made.told(waiter)
        assert told["result"]["answer"]["labels"] == ["yes"]
    made.took(1)
    made.took(2)
    assert [row(made, number).outcome for number in (1, 2)] == ["answered", "answered"]
    assert {row(made, number).answered_by.name for number in (1, 2)} == {"ada"}  # type: ignore[union-attr]


def test_handed_over_asks_end_together_and_nothing_is_posted_for_the_second() -> None:
    made = rig()
    made.ask(1, MERGE, who=asker(1), wait=False)
    made.ask(2, MERGE, who=asker(2), wait=False)
    made.ask(3, MERGE, who=asker(3), wait=False)
    made.arrive_all()
    made.answer(1, on="tg", decline=True)
    made.arrive_all()
    assert [row(made, number).outcome for number in (1, 2, 3)] == ["declined"] * 3
    assert len(posts(made)) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # One blank is another question.
        (replaced(MERGE, detail="rm -r a"), replaced(MERGE, detail="rm -r  a")),
        (MERGE, replaced(MERGE, question="Deploy? ")),
        (MERGE, replaced(MERGE, options=("no", "yes"))),
        # Both programs have to allow it.
        (MERGE, YES_NO),
        (YES_NO, MERGE),
        # What makes something run is asked each time.
        (replaced(MERGE, ask_class="permission"), replaced(MERGE, ask_class="permission")),
        (
            AskSpec(question="Key?", secret=True, merge=True),
            AskSpec(question="Key?", secret=True, merge=True),
        ),
    ],
)
def test_what_is_not_the_same_is_two_cards(first: AskSpec, second: AskSpec) -> None:
    made = Rig(policy=Policy(defaults=Terms(reminders_s=(), merge=True)))
    made.ask(1, first, who=asker(1))
    made.ask(2, second, who=asker(2))
    assert [one.course.merged_into for one in made.store.asks.values()] == [None, None]
    assert len(made.kernel.open_asks()) == 2


def test_the_policy_has_to_allow_it_too() -> None:
    made = Rig(channel("tg"))
    ask_twice(made)
    assert len(posts(made)) == 2


def test_another_session_or_user_is_not_merged() -> None:
    made = rig()
    made.ask(1, MERGE, who=asker(1, name="a"))
    made.ask(2, MERGE, who=asker(2, name="b"))
    made.ask(3, MERGE, who=replaced(asker(3, name="a"), uid=2000))
    assert len(posts(made)) == 3


def test_an_equal_ask_after_the_answer_is_a_new_card() -> None:
    made = rig()
    made.ask(1, MERGE, who=asker(1), wait=False)
    made.arrive_all()
    made.answer(1, on="tg")
    made.ask(2, MERGE, who=asker(2), wait=False)
    assert len(posts(made)) == 2


def test_an_ask_whose_answer_is_on_its_way_takes_no_other_in() -> None:
    made = rig()
    made.ask(1, MERGE, who=asker(1))
    made.arrive_all()
    made.answer(1, on="tg")
    made.ask(2, MERGE, who=asker(2))
    assert row(made, 2).course.merged_into is None


def test_when_the_first_ends_unanswered_the_next_has_the_card() -> None:
    made = rig()
    made.ask(1, MERGE, who=asker(1), timeout_s=60.0)
    made.ask(2, MERGE, who=asker(2))
    made.ask(3, MERGE, who=asker(3))
    made.arrive_all()
    made.wait(60)
    made.arrive_all()
    assert row(made, 1).outcome == "timed_out"
    assert [one.ask_id for one in posts(made)] == [ask_id(1), ask_id(2)]
    assert made.kernel.view(row(made, 2)).note == "Asked 2 times; one answer is for all of them"
    made.answer(2, on="tg")
    assert {row(made, number).state for number in (2, 3)} == {"claimed"}


def test_each_keeps_its_own_deadline_and_default() -> None:
    made = rig()
    made.ask(1, MERGE, who=asker(1))
    made.ask(2, replaced(MERGE, default="no"), who=asker(2), timeout_s=60.0)
    made.arrive_all()
    made.wait(61)
    assert row(made, 1).state == "open"
    ended = row(made, 2)
    assert (ended.outcome, ended.answer and ended.answer.labels) == ("timed_out", ("no",))
    assert made.kernel.view(row(made, 1)).note == ""


def test_an_answer_to_the_second_by_its_id_is_one_to_the_card() -> None:
    made = rig()
    ask_twice(made)
    receipt = made.answer(2, on="tg")
    assert receipt is not None
    assert receipt.ok
    assert {row(made, number).state for number in (1, 2)} == {"claimed"}


def test_a_hold_holds_them_all() -> None:
    made = rig()
    made.ask(1, MERGE, who=asker(1), timeout_s=60.0)
    made.ask(2, MERGE, who=asker(2), timeout_s=60.0)
    made.arrive_all()
    made.answer(1, on="tg", hold=True)
    made.wait(600)
    assert {row(made, number).state for number in (1, 2)} == {"open"}
    made.answer(1, on="tg", hold=False)
    made.wait(61)
    assert {row(made, number).outcome for number in (1, 2)} == {"timed_out"}


def test_a_restart_keeps_them_together() -> None:
    made = rig()
    made.ask(1, MERGE, who=asker(1), wait=False)
    made.ask(2, MERGE, who=asker(2), wait=False)
    made.arrive_all()
    made.restart()
    made.arrive_all()
    made.ask(3, MERGE, who=asker(3), wait=False)
    assert len(posts(made)) == 1
    made.answer(1, on="tg")
    assert [row(made, number).outcome for number in (1, 2, 3)] == ["answered"] * 3


def test_asks_of_a_session_of_its_own_merge_and_a_refused_answer_parts_them() -> None:
    made = rig()
    made.up()
    made.needs("q1", free_text=False, merge=True)
    made.needs("q2", free_text=False, merge=True)
    made.arrive_all()
    assert len([one for one in posts(made) if one.target == "tg"]) == 1
    first, second = sorted(made.store.asks.values(), key=lambda one: one.action_id)
    made.answer(first, on="tg")
    made.arrive_all()
    assert [frame.id for frame in made.sent_frames()] == ["q2", "q1"]
    made.resolved("q1", resolved_by="client", answer="yes")
    # The second one is refused by its program, and waits on a card of its own.
    made.rejected("invalid_answer", "q2")
    again = made.store.asks[second.ask_id]
    assert (again.state, again.course.merged_into) == ("open", None)
    assert [one.ask_id for one in posts(made)] == [first.ask_id, second.ask_id]


def test_a_session_without_the_field_is_not_merged() -> None:
    made = rig()
    made.up()
    made.needs("q1", free_text=False)
    made.needs("q2", free_text=False)
    assert len(posts(made)) == 2
    assert frames.ActionNeeded(id="x", kind="ask", session_id=HOME).merge is False  # type: ignore[arg-type]
