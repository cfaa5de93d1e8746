"""How long a question waits whose program named no time limit."""

from fakes.kernel_rig import YES_NO, Rig, ask_id, channel
from upcall.core.explain import Ground, explain
from upcall.core.rules import Facts
from upcall.model.policy import Match, Policy, Route, Terms
from upcall.model.struct import replaced

POLICY = Policy(
    routes=(
        Route(match=Match(kind="permission"), terms=Terms(deadline_s=60.0, reminders_s=())),
    ),
    defaults=Terms(deadline_s=3600.0, reminders_s=()),
)


def rig() -> Rig:
    return Rig(channel("web"), policy=POLICY)


def test_a_question_without_a_time_limit_gets_that_of_the_policy() -> None:
    made = rig()
    made.ask(1, wait=False)
    made.ask(2, replaced(YES_NO, ask_class="permission"), wait=False)
    made.ask(3, timeout_s=7200.0, wait=False)
    due = {view.id: view.deadline_ms for view in made.kernel.open_asks()}
    after_s = {number: (due[ask_id(number)] or 0) - made.wall_ms for number in (1, 2, 3)}
    assert after_s == {1: 3_600_000, 2: 60_000, 3: 7_200_000}
    made.wait(61)
    two = made.row(2)
    assert two is not None
    assert (two.outcome, two.answer) == ("timed_out", None)
    assert len(made.kernel.open_asks()) == 2


def test_asking_again_does_not_begin_it_anew() -> None:
    made = rig()
    made.ask(1, wait=False)
    (before,) = made.kernel.open_asks()
    made.wait(600)
    made.ask(1, wait=False)
    (after,) = made.kernel.open_asks()
    assert after.deadline_ms == before.deadline_ms


def test_a_session_with_an_endpoint_of_its_own_keeps_its_own_limit() -> None:
    made = rig()
    made.up()
    made.needs("q1", "Why?", ("yes", "no"))
    (view,) = made.kernel.open_asks()
    assert view.deadline_ms is None


def test_the_explanation_names_it() -> None:
    ground = Ground(policy=POLICY, people={}, channels={"web": True}, wall_ms=0)
    told = explain(ground, Facts(kind="permission"))
    assert told["ask"]["timeout_s"] == 60.0
    assert told["shown"][-1]["after_s"] == 60.0
