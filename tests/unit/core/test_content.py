"""What a session says and does, in its threads: lean, verbose and quiet."""

from typing import Any

import pytest

from fakes.kernel_rig import HOME, Rig, lower
from upcall.core.content import LIVE_CHARS, idle_message, live_message, turn_message
from upcall.core.state import ChannelInfo
from upcall.model import frames
from upcall.model.events import VerbositySet
from upcall.model.ids import ActionId
from upcall.model.platform import Capabilities
from upcall.model.policy import Match, Policy, Route, Terms, Verbosity
from upcall.model.rows import DeliveryRow

WEB = ChannelInfo("web", Capabilities(text_limit=100, draws_asks=True, own_user=True), lower)


def threaded(name: str = "tg", **changes: Any) -> ChannelInfo:
    given = {"threads": True, "edits": True, "deletes": True, "repeat": "by_key", **changes}
    return ChannelInfo(name, Capabilities(text_limit=4096, **given), lower)


def rig(*channels: ChannelInfo, **terms: Any) -> Rig:
    made = Rig(
        WEB,
        *(channels or (threaded(),)),
        policy=Policy(defaults=Terms(reminders_s=(), **terms)),
    )
    made.up()
    return made


def sent(made: Rig, name: str = "tg") -> list[tuple[str, str, str]]:
    """Kind, lane and words of what was ever sent to a channel, threads opened apart."""
    found = {}
    for one in made.releases:
        delivery = getattr(one, "delivery", None)
        if isinstance(delivery, DeliveryRow) and delivery.target == name:
            found[delivery.id] = delivery
    return [
        (row.kind, row.lane, made.card(row).plain if row.body else "")
        for row in found.values()
        if row.kind != "open"
    ]


def turn(made: Rig, text: str, phase: Any = "finalized") -> None:
    made.frame(frames.TurnStream(session_id=HOME, phase=phase, text=text))


def tool(made: Rig, name: str) -> None:
    made.frame(
        frames.ToolActivity(session_id=HOME, tool_call_id="t", tool_name=name, phase="started")
    )


def idle(made: Rig, words: str) -> None:
    made.frame(
        frames.ActionNeeded(id=ActionId("i1"), kind="idle", session_id=HOME, summary=words)
    )


def choose(made: Rig, level: Verbosity | None) -> None:
    made.do(VerbositySet(at=made.now, conversation=HOME, level=level))


def work(made: Rig) -> None:
    """One turn of an agent."""
    turn(made, "I look", "live")
    made.arrive_all()
    made.wait(3)
    tool(made, "Bash")
    made.arrive_all()
    made.wait(3)
    made.arrive_all()
    turn(made, "All tests pass.")
    made.arrive_all()
    idle(made, "done")
    made.arrive_all()


def test_lean_is_what_was_said_at_the_end_and_that_it_waits() -> None:
    made = rig()
    work(made)
    assert sent(made) == [
        ("post", "text", "All tests pass."),
        ("post", "idle", "Idle: done"),
    ]
    # The inbox draws it from the view.
    assert sent(made, "web") == []


def test_quiet_is_questions_only() -> None:
    made = rig(verbosity="quiet")
    work(made)
    assert sent(made) == []
    made.needs("q1")
    made.arrive_all()
    assert [kind for kind, _, _ in sent(made)] == ["post"]


def test_verbose_shows_what_goes_on_in_one_message_and_takes_it_away_at_the_end() -> None:
    made = rig(verbosity="verbose")
    work(made)
    assert sent(made) == [
        ("post", "live", "I look"),
        ("edit", "live", "I look\nBash started"),
        ("delete", "live", ""),
        ("post", "text", "All tests pass."),
        ("post", "idle", "Idle: done"),
    ] or sent(made) == [
        ("post", "live", "I look"),
        ("edit", "live", "I look\nBash started"),
        ("post", "text", "All tests pass."),
        ("delete", "live", ""),
        ("post", "idle", "Idle: done"),
    ]


def test_a_burst_of_live_text_is_one_edit_every_two_seconds() -> None:
    made = rig(verbosity="verbose")
    for number in range(50):
        turn(made, f"word {number}", "live")
        made.arrive_all()
        made.wait(0.1)
    made.wait(5)
    made.arrive_all()
    lines = sent(made)
    assert len(lines) <= 4
    assert lines[-1][2] == "word 49"


def test_live_text_waits_for_the_message_that_is_on_its_way() -> None:
    made = rig(verbosity="verbose")
    turn(made, "one", "live")
    (opening,) = made.sending("tg")
    made.arrive(opening)
    (post,) = made.sending("tg")
    turn(made, "two", "live")
    made.wait(10)
    assert made.sending("tg") == [post]
    made.arrive(post)
    made.arrive_all()
    assert [line[::2] for line in sent(made)] == [("post", "one"), ("edit", "two")]


def test_a_message_that_was_still_on_its_way_at_the_end_is_taken_away_when_it_is_there() -> (
    None
):
    made = rig(verbosity="verbose")
    turn(made, "one", "live")
    (opening,) = made.sending("tg")
    made.arrive(opening)
    turn(made, "the end")
    made.arrive_all()
    assert sorted(kind for kind, _, _ in sent(made)) == ["delete", "post", "post"]


def test_a_live_message_that_somebody_removed_is_posted_anew() -> None:
    made = rig(verbosity="verbose")
    turn(made, "one", "live")
    made.arrive_all()
    made.wait(3)
    turn(made, "two", "live")
    (edit,) = made.sending("tg")
    made.fail(edit, "refused")
    made.wait(3)
    turn(made, "three", "live")
    made.arrive_all()
    assert [line[::2] for line in sent(made)] == [
        ("post", "one"), ("edit", "two"), ("post", "three")
    ]  # fmt: skip


def test_a_deaf_channel_gets_no_live_text_and_one_that_cannot_edit_neither() -> None:
    made = rig(threaded(), threaded("irc", edits=False), verbosity="verbose")
    made.hears("tg", hearing=False)
    turn(made, "one", "live")
    assert sent(made) == []
    assert sent(made, "irc") == []


def test_only_channels_with_threads_and_of_the_route_are_told() -> None:
    made = Rig(
        threaded("tg"),
        threaded("sl"),
        ChannelInfo("sms", Capabilities(text_limit=100), lower),
        policy=Policy(
            routes=(Route(match=Match(repo="shop"), terms=Terms(channels=("sl", "sms"))),),
            defaults=Terms(reminders_s=()),
        ),
    )
    made.up()
    made.frame(frames.IdentityHeader(session_id=HOME, repo="shop", branch="m", machine="x"))
    turn(made, "hello")
    made.arrive_all()
    assert (sent(made, "tg"), sent(made, "sms")) == ([], [])
    assert sent(made, "sl") == [("post", "text", "hello")]


def test_what_people_chose_for_a_conversation_goes_before_the_rules_and_is_kept() -> None:
    made = rig()
    choose(made, "quiet")
    made.restart()
    made.up()
    work(made)
    assert sent(made) == []
    choose(made, None)
    turn(made, "again")
    made.arrive_all()
    assert sent(made) == [("post", "text", "again")]
    assert [one.facts["level"] for one in made.store.audit if one.event == "verbosity"] == [
        "quiet",
        None,
    ]


def test_turning_verbose_off_takes_the_live_message_away() -> None:
    made = rig(verbosity="verbose")
    turn(made, "one", "live")
    made.arrive_all()
    choose(made, "lean")
    made.arrive_all()
    assert [kind for kind, _, _ in sent(made)] == ["post", "delete"]


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "x\u202ey"])
def test_what_a_session_says_is_made_visible(text: str) -> None:
    for message in (turn_message(text), idle_message(text), live_message(text, text)):
        assert "\x1b" not in message.plain
        assert "\u202e" not in message.plain


def test_of_a_long_live_text_the_end_is_shown() -> None:
    plain = live_message("a" * 5000 + "end", "").plain
    assert plain.startswith("…")
    assert plain.endswith("end")
    assert len(plain) == LIVE_CHARS + 1
