"""Deadlines, holds, and when a default counts."""

from fakes.kernel_rig import YES_NO, Rig, lower
from upcall.core.state import ChannelInfo
from upcall.model.ask import Selection
from upcall.model.frames import ActionNeeded, ActionResolved
from upcall.model.platform import Capabilities
from upcall.model.struct import replaced


def test_a_deadline_ends_an_ask_within_the_boot_whatever_the_wall_clock_does() -> None:
    rig = Rig()
    waiter = rig.ask(timeout_s=600.0)
    assert rig.only().deadline_ms == rig.wall_ms + 600_000
    rig.wall_ms += 3_600_000
    rig.wait(599)
    assert rig.only().state == "open"
    rig.wall_ms -= 7_200_000
    rig.wait(2)
    assert rig.only().outcome == "timed_out"
    assert rig.told(waiter)[0]["result"]["answer"] is None
    assert rig.told(waiter)[0]["result"]["answered_by"] is None
    (resolved,) = [f for _, f in rig.to_clients() if isinstance(f, ActionResolved)]
    assert (resolved.resolved_by, resolved.outcome) == ("timeout", "timed_out")


def test_a_default_is_used_at_the_deadline_only_while_somebody_could_have_answered() -> None:
    spec = replaced(YES_NO, default="no")
    rig = Rig()
    rig.ask(1, spec, timeout_s=60.0)
    rig.arrive_all()
    rig.wait(61)
    row = rig.only()
    assert (row.outcome, row.answer, row.answered_by) == (
        "timed_out",
        Selection((1,), ("no",)),
        None,
    )
    rig = Rig()
    rig.hears("web", hearing=False)
    rig.ask(1, spec, timeout_s=60.0)
    rig.wait(61)
    assert (rig.only().outcome, rig.only().answer) == ("timed_out", None)


def test_a_claim_stops_the_deadline() -> None:
    rig = Rig()
    rig.ask(timeout_s=60.0)
    rig.answer()
    rig.wait(120)
    assert rig.only().state == "claimed"
    rig.took()
    assert rig.only().outcome == "answered"


def test_a_hold_stops_the_clock_and_its_end_lets_the_rest_run() -> None:
    rig = Rig()
    waiter = rig.ask(timeout_s=100.0)
    rig.wait(40)
    receipt = rig.answer(hold=True)
    assert receipt is not None
    assert receipt.code == "held"
    assert rig.told(waiter, "held") == [{"held": True, "deadline_ms": None}]
    assert rig.kernel.open_asks()[0].held
    rig.answer(hold=True)
    rig.wait(10_000)
    assert rig.only().state == "open"
    rig.answer(hold=False)
    assert rig.only().deadline_ms == rig.wall_ms + 60_000
    assert rig.told(waiter, "held")[1]["held"] is False
    rig.wait(59)
    assert rig.only().state == "open"
    rig.wait(2)
    assert rig.only().outcome == "timed_out"
    shown = [f for _, f in rig.to_clients() if isinstance(f, ActionNeeded)]
    assert [(f.held, f.deadline_at is None) for f in shown] == [
        (False, False),
        (True, True),
        (False, False),
    ]


def test_an_ask_without_a_clock_cannot_be_held() -> None:
    rig = Rig()
    rig.ask()
    receipt = rig.answer(hold=True)
    assert receipt is not None
    assert (receipt.ok, receipt.code) == (False, "invalid_answer")


def test_a_hub_that_has_just_started_waits_for_its_channels_before_it_drops_a_default() -> None:
    spec = replaced(YES_NO, default="no")
    rig = Rig()
    rig.ask(1, spec, timeout_s=3.0, wait=False)
    rig.arrive_all()
    rig.restart(down_s=4.0, hears=False)
    rig.wait(0.5)
    assert rig.only().state == "open"
    rig.hears("web")
    rig.wait(0.3)
    assert (rig.only().outcome, rig.only().answer) == ("timed_out", Selection((1,), ("no",)))


def _with_default(timeout_s: float = 60.0) -> Rig:
    rig = Rig()
    rig.ask(1, replaced(YES_NO, default="no"), timeout_s=timeout_s)
    rig.arrive_all()
    return rig


def test_a_default_counts_if_the_channel_went_deaf_for_a_moment() -> None:
    rig = _with_default()
    rig.wait(57)
    rig.hears("web", hearing=False)
    rig.wait(4)
    assert rig.only().answer == Selection((1,), ("no",))
    # What is over is not looked at again.
    rig.hears("web")
    assert rig.only().answer == Selection((1,), ("no",))


def test_the_time_in_which_nobody_could_answer_is_added_before_a_default_counts() -> None:
    rig = _with_default()
    rig.wait(10)
    rig.hears("web", hearing=False)
    rig.wait(30)
    rig.hears("web")
    rig.wait(21)
    assert rig.only().state == "open"
    assert rig.kernel.open_asks()[0].deadline_ms == rig.wall_ms + 29_000
    assert "prolonged" in [line.event for line in rig.store.audit]
    rig.wait(28)
    assert rig.only().state == "open"
    rig.wait(2)
    assert (rig.only().outcome, rig.only().answer) == ("timed_out", Selection((1,), ("no",)))


def test_a_default_does_not_count_if_the_channels_stay_deaf() -> None:
    rig = _with_default()
    rig.wait(10)
    rig.hears("web", hearing=False)
    rig.wait(51)
    assert rig.only().state == "open"
    rig.wait(70)
    assert (rig.only().outcome, rig.only().answer) == ("timed_out", None)


def test_a_card_that_never_arrived_shows_nothing() -> None:
    rig = Rig()
    rig.ask(1, replaced(YES_NO, default="no"), timeout_s=60.0)
    rig.wait(61)
    assert (rig.only().outcome, rig.only().answer) == ("timed_out", None)


def test_defaults_can_be_forbidden() -> None:
    rig = Rig(allow_defaults=False)
    waiter = rig.ask(1, replaced(YES_NO, default="no"), timeout_s=60.0)
    assert rig.error(waiter) == "defaults_forbidden"
    assert rig.kernel.open_asks() == []
    rig.ask(2, timeout_s=60.0)
    assert len(rig.kernel.open_asks()) == 1


def test_an_inbox_that_draws_asks_itself_counts_before_somebody_looks() -> None:
    draws = Capabilities(text_limit=4096, draws_asks=True)
    rig = Rig(ChannelInfo("web", draws, lower))
    rig.hears("web")
    rig.ask(1, replaced(YES_NO, default="no"), timeout_s=60.0)
    assert rig.sending("web") == []
    rig.wait(61)
    assert rig.only().answer == Selection((1,), ("no",))
    rig = Rig(ChannelInfo("web", draws, lower))
    rig.hears("web", hearing=False)
    rig.hears("web", hearing=False, audience=1)
    rig.ask(1, replaced(YES_NO, default="no"), timeout_s=60.0)
    rig.wait(61)
    assert rig.only().answer is None
