"""Channels that do not hear: told once each way on the others, and made up for afterwards."""

from dataclasses import replace
from datetime import UTC

import msgspec
import pytest

from fakes.kernel_rig import ADA, YES_NO, Card, Rig, ask_id, channel, lower
from upcall.core.announce import HUB_CONVERSATION, HUB_SESSION
from upcall.core.standing import SLEEPS
from upcall.core.state import ChannelInfo
from upcall.model.effects import Log, Noticed, Send
from upcall.model.events import ChannelChanged, SleepComing, Slept
from upcall.model.platform import Answered, Capabilities
from upcall.model.rows import DeliveryRow
from upcall.model.struct import replaced


def chat(name: str, *, press_lifetime_s: float | None = 150.0) -> ChannelInfo:
    capabilities = Capabilities(
        text_limit=4096, buttons_per_card=5, repeat="none", press_lifetime_s=press_lifetime_s
    )
    return ChannelInfo(name, capabilities, lower)


def deaf(rig: Rig, name: str, reason: str = "name resolution failed") -> None:
    rig.do(ChannelChanged(at=rig.now, channel=name, hearing=False, audience=0, reason=reason))


def hear(rig: Rig, name: str) -> None:
    rig.do(ChannelChanged(at=rig.now, channel=name, hearing=True, audience=0))


def said(rig: Rig, name: str) -> list[str]:
    """Return what the hub said of itself on a channel, oldest first."""
    return [
        msgspec.json.decode(row.body, type=Card).plain
        for row in sent(rig, name)
        if row.place == HUB_CONVERSATION
    ]


def sent(rig: Rig, name: str) -> list[DeliveryRow]:
    return [
        release.delivery
        for release in rig.releases
        if isinstance(release, Send) and release.delivery.target == name
    ]


def logged(rig: Rig) -> list[str]:
    return [one.event for one in rig.releases if isinstance(one, Log)]


@pytest.fixture
def rig() -> Rig:
    return Rig(chat("telegram"), chat("slack"), zone=UTC)


def test_one_that_stays_deaf_is_told_on_the_other_once_each_way(rig: Rig) -> None:
    deaf(rig, "telegram")
    rig.wait(3600)
    deaf(rig, "telegram", "still nothing")
    rig.wait(3600)
    (told,) = said(rig, "slack")
    assert "telegram: not hearing since 08:00" in told
    assert "name resolution failed" in told
    assert "asks go elsewhere" in told
    hear(rig, "telegram")
    hear(rig, "telegram")
    rig.arrive_all()
    assert said(rig, "slack")[1:] == ["box: telegram hears again"]
    assert not any("hears again" in one for one in said(rig, "telegram"))


def test_a_short_gap_is_told_nobody(rig: Rig) -> None:
    deaf(rig, "telegram")
    rig.wait(30)
    hear(rig, "telegram")
    rig.wait(3600)
    assert said(rig, "slack") == []
    assert said(rig, "telegram") == []


def test_it_is_logged_once_each_way(rig: Rig) -> None:
    for _ in range(3):
        deaf(rig, "telegram")
    for _ in range(3):
        hear(rig, "telegram")
    assert [one for one in logged(rig) if one.startswith("channel_")] == [
        "channel_deaf",
        "channel_hears",
    ]


def test_whoever_wants_it_is_told_nothing_elsewhere() -> None:
    rig = Rig(chat("telegram"), chat("slack"), zone=UTC, tell_degraded=False)
    deaf(rig, "telegram")
    rig.wait(3600)
    assert said(rig, "slack") == []


def test_taps_that_may_be_lost_are_told_where_they_were_made(rig: Rig) -> None:
    rig.ask(1)
    rig.ask(2)
    rig.arrive_all()
    deaf(rig, "telegram")
    rig.wait(6 * 3600)
    before = len(sent(rig, "telegram"))
    hear(rig, "telegram")
    rig.arrive_all()
    assert said(rig, "telegram") == [
        "box: I could not hear you from 08:00 to 14:00. Taps in that time were lost; "
        "2 questions are still open."
    ]
    edited = {row.ask_id for row in sent(rig, "telegram")[before:] if row.kind == "edit"}
    assert edited == {ask_id(1), ask_id(2)}
    # Where the platform keeps taps for longer than that, or nothing is open: no word.
    assert not any("could not hear" in one for one in said(rig, "slack"))


@pytest.mark.parametrize("open_asks", [0, 1])
def test_only_open_questions_are_worth_a_word(rig: Rig, open_asks: int) -> None:
    if open_asks:
        rig.ask(1)
        rig.arrive_all()
    deaf(rig, "telegram")
    rig.wait(6 * 3600)
    hear(rig, "telegram")
    assert len([one for one in said(rig, "telegram") if "could not" in one]) == open_asks
    if open_asks:
        assert "1 question is still open" in said(rig, "telegram")[0]


def test_sleep_makes_every_chat_deaf_although_it_says_nothing(rig: Rig) -> None:
    rig.ask(1)
    rig.arrive_all()
    rig.wait(6 * 3600)
    rig.do(Slept(at=rig.now, since_ms=rig.wall_ms - 5 * 3_600_000))
    hear(rig, "telegram")
    assert "from 09:00 to 14:00" in said(rig, "telegram")[0]
    hear(rig, "telegram")
    assert len(said(rig, "telegram")) == 1


def test_a_hub_that_was_down_did_not_hear_either(rig: Rig) -> None:
    rig.ask(1, wait=False)
    rig.arrive_all()
    rig.wait(600)
    hear(rig, "telegram")
    rig.restart(down_s=7200)
    rig.arrive_all()
    assert "from 08:10 to 10:10" in said(rig, "telegram")[0]


def test_without_a_time_zone_the_span_is_a_duration() -> None:
    rig = Rig(chat("telegram"), zone=None)
    rig.ask(1)
    rig.arrive_all()
    deaf(rig, "telegram")
    rig.wait(3600)
    hear(rig, "telegram")
    assert "I could not hear you for 1 h." in said(rig, "telegram")[0]


def test_attempts_that_were_refused_are_told_on_every_chat() -> None:
    rig = Rig(chat("telegram"), channel("slack"), operators={("telegram", "ada"): "ada"})
    rig.ask(1, spec=replaced(YES_NO, ask_class="permission"))
    rig.arrive_all()
    rig.reply(1, "yes")
    rig.arrive_all()
    for name in ("telegram", "slack"):
        (told,) = said(rig, name)
        assert "was refused (resolver_unavailable)" in told
    notices = [one.notice for one in rig.releases if isinstance(one, Noticed)]
    assert [one.kind for one in notices] == ["security"]


def test_what_the_hub_says_outlives_it_and_is_no_session() -> None:
    rig = Rig(chat("telegram"), chat("slack"), zone=UTC)
    deaf(rig, "telegram")
    rig.wait(61)
    (notice,) = rig.sending("slack")
    rig.fail(notice, "not_sent")
    rig.restart(down_s=1)
    assert HUB_SESSION not in {one.session_id for one in rig.kernel.sessions()}
    rig.arrive_all()
    assert said(rig, "slack")


def test_the_kept_time_is_the_hubs_own(rig: Rig) -> None:
    hear(rig, "telegram")
    assert rig.kernel.kept("telegram") == {}


def test_ages_are_of_the_last_round_and_of_the_last_event(rig: Rig) -> None:
    rig.ask(1)
    rig.wait(5)
    hear(rig, "telegram")
    rig.act(
        Answered(key="k", ask=ask_id(1), revision=None, who=ADA, indices=(0,)), on="telegram"
    )
    rig.wait(7)
    hear(rig, "telegram")
    views = {view.name: view for view in rig.kernel.channels()}
    assert views["telegram"].heard_ms == rig.wall_ms
    assert views["telegram"].event_ms == rig.wall_ms - 7000
    assert views["slack"].event_ms is None


# --- rounds --------------------------------------------------------------------------------


def promising(name: str, round_s: float = 10.0) -> ChannelInfo:
    info = chat(name)
    return replace(info, capabilities=replaced(info.capabilities, round_s=round_s))


def test_a_channel_that_completes_no_round_is_deaf_however_well_it_is_connected() -> None:
    rig = Rig(promising("slack"), chat("discord"), tell_degraded=True)
    for name in ("slack", "discord"):
        hear(rig, name)
    heard_ms = rig.wall_ms
    rig.wait(25.0)
    hear(rig, "slack")
    rig.wait(29.0)
    assert state_of(rig, "slack") == ("delivered", None)
    rig.wait(2.0)
    status, reason = state_of(rig, "slack")
    assert status == "down"
    assert reason is not None
    assert reason.startswith("connected, but no inbound round")
    (view,) = [one for one in rig.kernel.channels() if one.name == "slack"]
    assert view.heard_ms == heard_ms + 25_000
    rig.wait(61.0)
    assert any("slack: not hearing" in words for words in said(rig, "discord"))
    # What promises nothing is believed.
    assert state_of(rig, "discord") == ("delivered", None)
    rig.arrive_all()
    hear(rig, "slack")
    assert state_of(rig, "slack") == ("delivered", None)
    assert any("slack hears again" in words for words in said(rig, "discord"))


def state_of(rig: Rig, name: str) -> tuple[str, str | None]:
    (view,) = [one for one in rig.kernel.channels() if one.name == name]
    return view.state, view.reason


# --- sleep that is announced -----------------------------------------------------------------


def test_before_the_sleep_open_cards_say_that_taps_are_lost_and_after_it_no_more() -> None:
    rig = Rig(chat("slack"), channel("web"))
    hear(rig, "slack")
    rig.ask(1, wait=False)
    rig.ask(2, wait=False)
    rig.arrive_all()
    rig.answer(2, on="slack")
    rig.arrive_all()
    for coming in (True, True, False):
        rig.do(SleepComing(at=rig.now, coming=coming))
        (view,) = [one for one in rig.kernel.open_asks() if one.id == ask_id(1)]
        assert (SLEEPS in view.note) is coming
        edits = [
            one for one in sent(rig, "slack") if one.kind == "edit" and one.ask_id == ask_id(1)
        ]
        rig.arrive_all()
        assert edits
        assert (SLEEPS in msgspec.json.decode(edits[-1].body, type=Card).state_line) is coming
    rig.do(SleepComing(at=rig.now, coming=True))
    # Whoever missed the word of its end notices by the clock.
    rig.do(Slept(at=rig.now, since_ms=rig.wall_ms - 1000))
    (view,) = [one for one in rig.kernel.open_asks() if one.id == ask_id(1)]
    assert SLEEPS not in view.note
