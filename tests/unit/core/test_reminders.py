"""What time brings to an open ask: reminders, escalation, quiet hours, stand-ins, and holds."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.kernel_rig import ADA, HOME, START_MS, YES_NO, Rig, ask_id, asker, lower
from fakes.kernel_rig import channel as chat
from upcall.core.schedule import reminder_s, reminders_due
from upcall.core.state import ChannelInfo, Step
from upcall.model import frames
from upcall.model.ask import AskSpec
from upcall.model.events import SettingsChanged
from upcall.model.platform import Capabilities, Who
from upcall.model.policy import (
    Escalation,
    Match,
    Operator,
    Policy,
    QuietHours,
    Route,
    Terms,
)
from upcall.model.rows import Course, DeliveryRow
from upcall.model.settings import LiveSettings
from upcall.model.struct import replaced

VIENNA = ZoneInfo("Europe/Vienna")
WEB = ChannelInfo("web", Capabilities(text_limit=100, draws_asks=True, own_user=True), lower)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
PERMISSION = AskSpec(
    question="Run it?", options=("allow", "deny"), free_text=False, ask_class="permission"
)


def rig(*names: str, **terms: Any) -> Rig:
    """A hub with the inbox and chats of these names, under one set of terms."""
    chats = [chat(name, buttons=5, repeat="by_key") for name in names or ("tg",)]
    policy = Policy(defaults=Terms(**terms))
    return Rig(WEB, *chats, policy=policy, zone=VIENNA)


def at(made: Rig, clock: str) -> None:
    """Set the wall clock of a hub that has nothing to do yet."""
    day = datetime.fromtimestamp(START_MS / 1000, VIENNA).date()
    moment = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=VIENNA)
    made.wall_ms = int(moment.timestamp() * 1000)


def posts(made: Rig, name: str = "tg", kind: str = "post") -> list[DeliveryRow]:
    """What was ever meant for a channel and not given up."""
    rows = made.store.deliveries.values()
    return [
        row
        for row in rows
        if (row.target, row.kind) == (name, kind) and row.error != "not needed any more"
    ]


def reminders(made: Rig, name: str = "tg") -> int:
    return len(posts(made, name, "remind"))


def pass_time(made: Rig, seconds: float, step_s: float = 10.0) -> None:
    """Let time pass, with everything that is sent arriving at once."""
    while seconds > 0:
        made.wait(min(step_s, seconds))
        made.arrive_all()
        seconds -= step_s


def fail_time(made: Rig, seconds: float, name: str = "tg") -> None:
    """Let time pass in which nothing gets through to a channel."""
    for _ in range(int(seconds)):
        for row in made.sending(name):
            made.fail(row, "not_sent")
        made.wait(1)
    for row in made.sending(name):
        made.fail(row, "not_sent")


def note(made: Rig) -> str:
    """What the card says of how the ask stands."""
    row = made.row()
    assert row is not None
    return made.kernel.view(row).note


# --- Reminders -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "count"),
    [(0, 0), (599, 0), (600, 1), (3599, 1), (3600, 2), (4 * HOUR, 3), (DAY - 1, 3), (DAY, 4),
     (2 * DAY - 1, 4), (2 * DAY, 5), (10 * DAY, 13)],
)  # fmt: skip
def test_reminders_are_due_after_ten_minutes_an_hour_four_and_then_daily(
    after: float, count: int
) -> None:
    assert reminders_due((600, 3600, 14_400, 86_400), after) == count


def test_when_the_next_one_is_due_is_when_one_more_is_due() -> None:
    for listed in ((600.0, 3600.0), (600.0,), (10.0, 20.0, 100.0)):
        for number in range(8):
            due_s = reminder_s(listed, number)
            assert due_s is not None
            assert reminders_due(listed, due_s) == number + 1
            assert reminders_due(listed, due_s - 0.001) == number
    assert reminder_s((), 0) is None
    assert reminders_due((), 1e9) == 0


def test_people_are_reminded_in_the_conversation_of_the_card() -> None:
    made = rig(reminders_s=(600.0, 3600.0))
    made.ask()
    made.arrive_all()
    made.wait(599)
    assert reminders(made) == 0
    made.wait(1)
    (row,) = posts(made, kind="remind")
    (post,) = posts(made)
    assert (row.target, row.place, row.lane) == (post.target, post.place, "ask")
    assert (
        made.card(row).plain[:80]
        == "box · shop: Deploy?\nStill open after 10 min. Answer on its card."
    )
    assert [one.event for one in made.store.audit if one.event == "reminded"] == ["reminded"]


def test_the_inbox_is_not_reminded_it_draws_asks_by_itself() -> None:
    made = Rig(WEB, policy=Policy(defaults=Terms(reminders_s=(600.0,))))
    made.hears("web", audience=1)
    made.ask()
    pass_time(made, DAY, 600)
    assert reminders(made, "web") == 0


def test_an_answered_ask_is_not_reminded_of() -> None:
    made = rig(reminders_s=(600.0,))
    made.ask(wait=False)
    made.arrive_all()
    made.answer(on="tg")
    pass_time(made, HOUR, 60)
    assert reminders(made) == 0


def test_a_reminder_on_its_way_is_given_up_when_the_ask_ends() -> None:
    made = rig(reminders_s=(600.0,))
    made.ask(wait=False)
    made.arrive_all()
    made.wait(600)
    (row,) = posts(made, kind="remind")
    made.answer(on="web")
    made.fail(row, "not_sent")
    assert made.store.deliveries[row.id].state == "done"
    pass_time(made, HOUR, 60)
    assert reminders(made) == 0


def test_a_restart_neither_repeats_nor_skips_a_reminder() -> None:
    made = rig(reminders_s=(600.0, 3600.0))
    made.ask(wait=False)
    made.arrive_all()
    pass_time(made, 700)
    assert reminders(made) == 1
    made.restart()
    pass_time(made, 2000)
    assert reminders(made) == 1
    # The second comes due while the hub is down, and it boots anew.
    made.restart(down_s=HOUR, boot_id="boot-2")
    made.arrive_all()
    assert reminders(made) == 2
    pass_time(made, 600)
    assert reminders(made) == 2
    row = made.row()
    assert row is not None
    assert row.course.reminded == 2


def test_reminders_that_nobody_could_hear_do_not_pile_up() -> None:
    made = rig(reminders_s=(600.0, 1200.0, 1800.0))
    made.ask(wait=False)
    made.arrive_all()
    made.hears("tg", hearing=False)
    pass_time(made, 5 * HOUR, 300)
    assert reminders(made) == 0
    made.hears("tg")
    made.arrive_all()
    assert reminders(made) == 1
    pass_time(made, 500)
    assert reminders(made) == 1


def test_an_ask_that_is_shown_nowhere_yet_has_nothing_to_remind_of() -> None:
    made = rig(reminders_s=(600.0,))
    made.hears("tg", hearing=False)
    made.ask(wait=False)
    pass_time(made, HOUR, 60)
    assert reminders(made) == 0


# --- Quiet hours ---------------------------------------------------------------------------

NIGHT = QuietHours(from_min=22 * 60, to_min=7 * 60, zone=VIENNA)


def test_in_quiet_hours_an_ask_is_in_the_inbox_at_once_and_rings_in_the_morning() -> None:
    made = rig(quiet=NIGHT, reminders_s=(600.0,))
    at(made, "23:00")
    waiter = made.ask()
    assert posts(made) == []
    fields = made.response(waiter).fields
    assert fields is not None
    told = {one["name"]: (one["state"], one["reason"]) for one in fields["channels"]}
    assert told == {"web": ("delivered", None), "tg": ("later", "quiet hours until 07:00")}
    pass_time(made, 8 * HOUR - 1, 60)
    assert posts(made) == []
    pass_time(made, 2, 1)
    assert len(posts(made)) == 1
    # Its first card needs no reminder beside it; ten minutes later it does.
    assert reminders(made) == 0
    pass_time(made, 600)
    assert reminders(made) == 1


def test_a_reminder_of_the_night_is_delayed_to_the_morning() -> None:
    made = rig(quiet=NIGHT, reminders_s=(600.0, 3600.0))
    at(made, "21:55")
    made.ask()
    made.arrive_all()
    assert len(posts(made)) == 1
    pass_time(made, 9 * HOUR + 4 * MINUTE, 60)
    assert reminders(made) == 0
    pass_time(made, 2 * MINUTE)
    assert reminders(made) == 1


def test_a_permission_with_a_deadline_rings_in_the_night_too() -> None:
    made = rig(quiet=NIGHT)
    at(made, "23:00")
    made.ask(1, PERMISSION, timeout_s=60.0)
    made.ask(2, PERMISSION)
    made.ask(3, replaced(YES_NO, question="Not urgent?"), timeout_s=60.0)
    assert {row.ask_id for row in posts(made)} == {ask_id(1)}


def test_a_hub_that_was_down_at_the_end_of_the_night_shows_the_ask_when_it_starts() -> None:
    made = rig(quiet=NIGHT)
    at(made, "23:00")
    made.ask(wait=False)
    made.restart(down_s=9 * HOUR, boot_id="boot-2")
    assert len(posts(made)) == 1


def test_a_clock_that_is_set_forward_ends_the_night_earlier() -> None:
    made = rig(quiet=NIGHT)
    at(made, "23:00")
    made.ask(wait=False)
    made.wait(60)
    made.wall_ms += int(8 * HOUR * 1000)
    pass_time(made, 301)
    assert len(posts(made)) == 1


def test_an_answer_in_the_inbox_at_night_leaves_nothing_for_the_morning() -> None:
    made = rig(quiet=NIGHT, reminders_s=(600.0,))
    at(made, "23:00")
    made.ask(wait=False)
    made.answer(on="web")
    pass_time(made, 12 * HOUR, 600)
    assert posts(made) == []
    assert reminders(made) == 0


# --- Escalation ----------------------------------------------------------------------------

STEPS = (
    Escalation(after_s=900.0, channels=("slack",), people=("bob",)),
    Escalation(after_s=1800.0, people=("role:ops",)),
)


def test_after_a_while_other_people_and_channels_are_asked_too_and_the_card_says_so() -> None:
    made = rig("tg", "slack", channels=("web", "tg"), escalate=STEPS, reminders_s=())
    made.ask()
    made.arrive_all()
    pass_time(made, 899)
    assert posts(made, "slack") == []
    pass_time(made, 1, 1)
    assert len(posts(made, "slack")) == 1
    row = made.row()
    assert row is not None
    assert (row.course.stage, row.course.people) == (1, ("bob",))
    words = "Nobody answered in time: also asked bob in slack"
    assert note(made) == words
    made.wait(900)
    assert note(made) == "Nobody answered in time: also asked bob, ops in slack"
    edit = made.sending("tg", "edit")[-1]
    assert made.card(edit).state_line == note(made)
    stages = [one.facts["stage"] for one in made.store.audit if one.event == "escalated"]
    assert stages == [1, 2]


def test_a_step_is_taken_once_across_restarts_also_one_that_came_due_meanwhile() -> None:
    made = rig("tg", "slack", channels=("web", "tg"), escalate=STEPS, reminders_s=())
    made.ask(wait=False)
    made.arrive_all()
    made.wait(1000)
    made.restart()
    made.arrive_all()
    made.restart(down_s=HOUR, boot_id="boot-2")
    row = made.row()
    assert row is not None
    assert (row.course.stage, row.course.people) == (2, ("bob", "role:ops"))
    assert len(posts(made, "slack")) == 1
    stages = [one.facts["stage"] for one in made.store.audit if one.event == "escalated"]
    assert stages == [1, 2]


def test_nobody_else_is_woken_at_night() -> None:
    made = rig("tg", "slack", channels=("tg",), escalate=STEPS[:1], quiet=NIGHT, reminders_s=())
    at(made, "21:50")
    made.ask()
    made.arrive_all()
    pass_time(made, 9 * HOUR + 9 * MINUTE, 60)
    row = made.row()
    assert row is not None
    assert row.course.stage == 0
    pass_time(made, 2 * MINUTE)
    assert len(posts(made, "slack")) == 1


def test_a_local_place_alone_escalates_to_a_chat() -> None:
    made = rig("tg", channels=("web",), escalate=(Escalation(after_s=60.0, channels=("tg",)),))
    made.ask()
    pass_time(made, 59)
    assert posts(made) == []
    pass_time(made, 1, 1)
    assert len(posts(made)) == 1


# --- Hold ----------------------------------------------------------------------------------


def test_a_hold_stops_the_clocks_of_reminders_and_escalation_and_says_so() -> None:
    made = rig("tg", "slack", channels=("web", "tg"), escalate=STEPS, reminders_s=(600.0,))
    made.ask(timeout_s=2 * HOUR)
    made.arrive_all()
    pass_time(made, 300)
    made.answer(on="tg", hold=True)
    assert made.card(posts(made, "tg", "edit")[-1]).state_line == (
        "the clock is stopped. Nobody is reminded, and nobody else asked, while it is stopped."
    )
    pass_time(made, DAY, 600)
    assert reminders(made) == 0
    made.restart()
    made.arrive_all()
    assert reminders(made) == 0
    made.answer(on="tg", hold=False)
    pass_time(made, 299)
    assert reminders(made) == 0
    pass_time(made, 2, 1)
    assert reminders(made) == 1
    pass_time(made, 300)
    row = made.row()
    assert row is not None
    assert row.course.stage == 1


# --- Stand-ins -----------------------------------------------------------------------------


def test_an_ask_goes_elsewhere_when_its_channel_is_away_and_stays_there() -> None:
    made = rig("tg", "slack", channels=("tg",), fallback=("slack",), reminders_s=())
    made.hears("tg", hearing=False)
    made.ask(wait=False)
    fail_time(made, 29)
    assert posts(made, "slack") == []
    fail_time(made, 2)
    made.arrive_all()
    assert len(posts(made, "slack")) == 1
    # The first one comes back: what waited for it is not posted any more.
    made.hears("tg")
    pass_time(made, HOUR, 60)
    assert posts(made, "tg") == []
    assert len(posts(made, "slack")) == 1
    assert [one.facts["channel"] for one in made.store.audit if one.event == "moved"] == ["tg"]
    # Nor after a start of the hub, which forgets nothing of it.
    made.restart()
    pass_time(made, HOUR, 60)
    assert posts(made, "tg") == []


def test_a_new_ask_goes_to_the_first_channel_again_once_it_is_back() -> None:
    made = rig("tg", "slack", channels=("tg",), fallback=("slack",), reminders_s=())
    made.hears("tg", hearing=False)
    made.wait(31)
    made.ask(1, wait=False)
    assert [row.ask_id for row in posts(made, "slack")] == [ask_id(1)]
    made.hears("tg")
    made.ask(2, replaced(YES_NO, question="Again?"), wait=False)
    assert [row.ask_id for row in posts(made, "slack")] == [ask_id(1)]
    assert [row.ask_id for row in posts(made, "tg")] == [ask_id(2)]


def test_a_card_that_could_not_be_posted_is_shown_elsewhere() -> None:
    made = rig("tg", "slack", channels=("tg",), fallback=("slack",), reminders_s=())
    made.ask(wait=False)
    (post,) = posts(made, "tg")
    made.fail(post, "refused")
    assert len(posts(made, "slack")) == 1


def test_a_card_that_may_have_arrived_is_not_taken_back() -> None:
    made = rig("tg", "slack", channels=("tg",), fallback=("slack",), reminders_s=())
    made.ask(wait=False)
    (post,) = posts(made, "tg")
    made.fail(post, "uncertain")
    made.hears("tg", hearing=False)
    made.wait(31)
    assert len(posts(made, "slack")) == 1
    assert len(posts(made, "tg")) == 1


def test_a_long_ban_moves_what_is_open_and_a_short_one_does_not() -> None:
    made = rig("tg", "slack", channels=("tg",), fallback=("slack",), reminders_s=())
    made.ask(1, wait=False)
    (post,) = posts(made, "tg")
    made.fail(post, "throttled", retry_after_s=20.0)
    assert posts(made, "slack") == []
    made.wait(20)
    (post,) = made.sending("tg")
    made.fail(post, "throttled", retry_after_s=3600.0)
    made.ask(2, replaced(YES_NO, question="Again?"), wait=False)
    assert {row.ask_id for row in posts(made, "slack")} == {ask_id(1), ask_id(2)}
    pass_time(made, 2 * HOUR, 60)
    assert posts(made, "tg") == []


def test_when_the_stand_in_is_away_too_the_ask_comes_back() -> None:
    made = rig("tg", "slack", channels=("tg",), fallback=("slack",), reminders_s=())
    made.hears("tg", hearing=False)
    made.ask(wait=False)
    fail_time(made, 31)
    made.arrive_all()
    made.hears("tg")
    made.hears("slack", hearing=False)
    made.wait(31)
    made.arrive_all()
    assert len(posts(made, "tg")) == 1
    assert made.store.cards[ask_id(1), "tg", posts(made, "tg")[0].place].ref is not None


# --- Routes --------------------------------------------------------------------------------


def test_a_route_decides_by_what_the_session_calls_itself() -> None:
    policy = Policy(
        routes=(
            Route(match=Match(tag="night*"), terms=Terms(channels=("slack",))),
            Route(match=Match(repo="shop", kind="permission"), terms=Terms(channels=("tg",))),
        ),
        defaults=Terms(channels=("web", "tg", "slack"), reminders_s=()),
    )
    made = Rig(WEB, chat("tg"), chat("slack"), policy=policy)
    made.ask(1, who=replaced(asker(1), tags=("nightly",)), wait=False)
    made.ask(2, PERMISSION, who=asker(2), wait=False)
    made.ask(3, who=asker(3), wait=False)
    shown = {
        number: {
            row.target for row in made.store.deliveries.values() if row.ask_id == ask_id(number)
        }
        for number in (1, 2, 3)
    }
    assert shown == {1: {"slack"}, 2: {"tg"}, 3: {"tg", "slack"}}


def test_the_inbox_of_a_route_without_it_does_not_draw_the_ask() -> None:
    made = rig("tg", channels=("tg",), reminders_s=())
    waiter = made.ask()
    assert [view.id for view in made.kernel.open_asks()] == [ask_id(1)]
    assert made.kernel.drawn("web") == []
    fields = made.response(waiter).fields
    assert fields is not None
    assert [one["name"] for one in fields["channels"]] == ["tg"]


def test_a_default_does_not_run_out_while_the_only_routed_place_is_silent() -> None:
    """The inbox hears, but the route leaves it out: nobody could see the ask."""
    made = rig("tg", channels=("tg",), reminders_s=())
    made.hears("tg", hearing=False)
    made.ask(1, replaced(YES_NO, default="yes"), timeout_s=30.0)
    made.wait(120)
    row = made.row()
    assert row is not None
    assert (row.outcome, row.answer) == ("timed_out", None)


def test_tags_are_kept_with_the_session() -> None:
    made = rig()
    made.ask(who=replaced(asker(), tags=("a", "b")), wait=False)
    (session,) = made.store.sessions.values()
    assert session.tags == ("a", "b")


def test_a_card_on_its_way_is_taken_back_when_it_fails_after_the_ask_moved() -> None:
    made = rig("tg", "slack", channels=("tg",), fallback=("slack",), reminders_s=())
    made.hears("tg", hearing=False)
    made.ask(wait=False)
    (post,) = posts(made, "tg")
    made.wait(31)
    assert len(posts(made, "slack")) == 1
    made.fail(post, "not_sent")
    assert posts(made, "tg") == []


def test_who_answers_on_a_chat_ends_every_clock_of_the_ask() -> None:
    made = rig(reminders_s=(600.0,))
    made.ask(wait=False)
    made.arrive_all()
    receipt = made.answer(on="tg", who=ADA)
    assert receipt is not None
    assert receipt.ok
    assert ask_id(1) not in made.kernel._state.course_due


# --- People and changes ----------------------------------------------------------------------


def test_whom_a_step_asks_may_answer_from_then_on_and_not_before() -> None:
    people = {name: Operator(name=name, identities={"tg": name}) for name in ("ada", "bob")}
    policy = Policy(
        defaults=Terms(
            answer_by=("ada",),
            reminders_s=(),
            escalate=(Escalation(after_s=60.0, people=("bob",)),),
        )
    )
    made = Rig(WEB, chat("tg", buttons=5), policy=policy, people=people)
    made.ask(wait=False)
    made.arrive_all()
    bob = Who(identity="bob", name="bob")
    before = made.answer(on="tg", who=bob)
    assert before is not None
    assert not before.ok
    pass_time(made, 60)
    made.restart()
    after = made.answer(on="tg", who=bob)
    assert after is not None
    assert after.ok


def test_other_rules_hold_for_what_is_open_as_soon_as_they_are_read() -> None:
    made = rig("tg", "slack", channels=("web", "tg"), reminders_s=())
    made.ask()
    made.arrive_all()
    assert posts(made, "slack") == []
    other = Policy(defaults=Terms(channels=("web", "slack"), reminders_s=(600.0,)))
    live = LiveSettings(policy=other)
    made.do(SettingsChanged(at=made.now, settings=live, source="2"))
    made.arrive_all()
    # The new channel shows it; what stands on the former one goes on standing there.
    assert len(posts(made, "slack")) == len(posts(made, "tg")) == 1
    pass_time(made, 600)
    assert reminders(made, "slack") == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("wait"), st.integers(1, 5000)),
            st.tuples(st.just("down"), st.integers(1, 90_000)),
            st.tuples(st.just("reboot"), st.integers(1, 90_000)),
            st.tuples(st.just("hold"), st.booleans()),
            st.tuples(st.just("hears"), st.booleans()),
        ),
        max_size=14,
    )
)
@settings(max_examples=60, deadline=None)
def test_no_story_repeats_a_reminder_or_brings_one_too_early(
    story: list[tuple[str, int]],
) -> None:
    """Whatever happens: never more than are due, and at the end the newest one was given."""
    listed = (600.0, 3600.0, 14_400.0)
    made = rig(reminders_s=listed)
    made.ask(wait=False, timeout_s=300 * DAY)
    made.arrive_all()
    running_s, is_held, boots = 0.0, False, 1
    for what, value in story:
        begun_ms = made.wall_ms
        match what:
            case "wait":
                pass_time(made, value, 500)
            case "down":
                made.restart(down_s=value)
            case "reboot":
                boots += 1
                made.restart(down_s=value, boot_id=f"boot-{boots}")
            case "hold":
                made.answer(on="web", hold=bool(value))
            case _:
                made.hears("tg", hearing=bool(value))
        if not is_held:
            running_s += (made.wall_ms - begun_ms) / 1000
        is_held = bool(value) if what == "hold" else is_held
        made.arrive_all()
        assert reminders(made) <= reminders_due(listed, running_s + 0.01)
    made.hears("tg")
    made.arrive_all()
    if is_held:
        made.answer(on="web", hold=False)
    made.arrive_all()
    row = made.row()
    assert row is not None
    due = reminders_due(listed, running_s - 0.01)
    assert row.course.reminded >= due
    assert bool(reminders(made)) == bool(row.course.reminded)


def test_tags_of_a_session_of_its_own_are_taken_as_far_as_they_are_some() -> None:
    made = rig("tg", "slack", channels=("tg",), reminders_s=())
    made.up()
    for said, kept in (
        (["prod", "a b", "prod", 7], ("prod",)),
        ("prod", ("prod",)),  # nothing new: what was said before stands
        ({"prod": 1}, ("prod",)),
        (["dev"], ("dev",)),
    ):
        frame = frames.decode(
            msgspec.json.encode(
                {"type": "identity_header", "sessionId": HOME, "repo": "r", "branch": "b",
                 "machine": "m", "tags": said}
            )
        )  # fmt: skip
        made.frame(frame)
        assert made.store.sessions[HOME].tags == kept


def test_what_a_session_says_of_itself_later_opens_other_routes() -> None:
    policy = Policy(
        routes=(Route(match=Match(tag="prod"), terms=Terms(channels=("tg", "slack"))),),
        defaults=Terms(channels=("tg",), reminders_s=()),
    )
    made = Rig(chat("tg"), chat("slack"), policy=policy)
    made.up()
    made.needs("q1")
    assert (len(posts(made, "tg")), len(posts(made, "slack"))) == (1, 0)
    made.frame(
        frames.IdentityHeader(
            session_id=HOME, repo="r", branch="b", machine="m", tags=("prod",)
        )
    )
    assert (len(posts(made, "tg")), len(posts(made, "slack"))) == (1, 1)


def test_an_ask_of_a_hub_that_kept_no_clock_goes_on_by_when_it_was_raised() -> None:
    made = rig(reminders_s=(600.0, 3600.0))
    made.ask(wait=False)
    made.arrive_all()
    row = made.row()
    assert row is not None
    made.store.asks[row.ask_id] = replaced(row, course=Course())
    made.restart(down_s=700)
    made.arrive_all()
    # It was shown before, but nobody knows since when: the clock of reminders begins now.
    pass_time(made, 600)
    assert reminders(made) == 1


def test_what_came_due_before_a_hold_waits_for_its_end_too() -> None:
    """Unheard by a deaf channel, or put off to the morning: the hold comes first."""
    made = rig("tg", "slack", channels=("web", "tg"), escalate=STEPS, reminders_s=(600.0,))
    made.ask(timeout_s=2 * DAY)
    made.arrive_all()
    made.hears("tg", hearing=False)
    pass_time(made, 700)
    made.answer(on="web", hold=True)
    made.hears("tg")
    made.arrive_all()
    assert reminders(made) == 0
    made.answer(on="web", hold=False)
    assert reminders(made) == 1

    made = rig(
        "tg", "slack", channels=("web", "tg"), escalate=STEPS, reminders_s=(), quiet=NIGHT
    )
    at(made, "21:50")
    made.ask(timeout_s=2 * DAY)
    made.arrive_all()
    pass_time(made, HOUR, 60)
    made.answer(on="web", hold=True)
    pass_time(made, 10 * HOUR, 600)
    # Whatever makes the hub look at the ask meanwhile.
    made.kernel._courses.look_at_all(Step(made.kernel._state, made.now, bytes(32)))
    assert posts(made, "slack") == []
    made.answer(on="web", hold=False)
    assert len(posts(made, "slack")) == 1
