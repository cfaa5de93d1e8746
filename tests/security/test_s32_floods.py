"""S32: one session that asks, says or sends too much hurts nobody but itself."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.wait import WebDriverWait

from fakes.chat import ChatHome, FakeChat
from fakes.chromium import WAIT_S, chromium, inbox_on_thread
from fakes.home import Home, eventually
from fakes.hub_rig import ScriptedAdapter, WholeHub, loaded
from fakes.hub_rig import asking as ask_request
from fakes.hub_shells import short_folder
from fakes.kernel_rig import ADA, HOME, YES_NO, Rig, ask_id, asker, channel
from fakes.links_bench import Bench, bench
from fakes.web_hub import SESSION, FakeHub
from upcall.hub import desk, link
from upcall.hub.pace import Pace
from upcall.model import frames
from upcall.model.ask import AskSpec
from upcall.model.events import FrameIn, NoticeRaised
from upcall.model.ids import ActionId, SessionId
from upcall.model.platform import Receipt, SessionRuled, Who
from upcall.model.quotas import Limits
from upcall.model.rows import DeliveryRow
from upcall.model.struct import replaced

PERMISSION = replaced(YES_NO, ask_class="permission")
FLOODER = asker(100, parent="1:flood")


def chats(**settings: Any) -> Rig:
    return Rig(channel("chat", repeat="none", buttons=10), channel("web"), **settings)


def cards(rig: Rig, place: str | None = None) -> list[DeliveryRow]:
    """Return the posts of cards on the chat (in one place)."""
    return [
        row
        for row in rig.store.deliveries.values()
        if row.target == "chat"
        and row.effect.startswith("post:")
        and place in {None, row.place}
    ]


def lines(rig: Rig) -> list[str]:
    """Return what the line on waiting asks said, oldest first."""
    return [
        rig.card(row).plain
        for row in rig.of_posts()
        if row.target == "chat" and "asks:" in row.effect
    ]


def rule_buttons(rig: Rig) -> dict[str, str]:
    return {
        one.kind: one.token
        for one in rig.store.buttons.values()
        if one.subject.startswith("asks:") and one.channel == "chat"
    }


def flood(rig: Rig, count: int, *, first: int = 1, spec: AskSpec = YES_NO) -> None:
    for number in range(first, first + count):
        rig.ask(number, spec, who=FLOODER, wait=False)
    rig.arrive_all()


def session_of(rig: Rig) -> SessionId:
    row = rig.row(1)
    assert row is not None
    return row.session_id


# --- what is shown ------------------------------------------------------------------------


def test_what_is_beyond_waits_and_is_one_line() -> None:
    rig = chats()
    flood(rig, 32)
    assert len(cards(rig)) == 20
    rig.wait(61)
    rig.arrive_all()
    assert len(cards(rig)) == 32
    flood(rig, 12, first=33)
    assert len(cards(rig)) == 32
    rig.wait(31)
    rig.arrive_all()
    assert lines(rig)[-1] == "12 more from this session"
    assert set(rule_buttons(rig)) == {"mute", "unmute", "stop"}
    assert all(row.state == "open" for row in rig.store.asks.values())
    (view,) = [one for one in rig.kernel.sessions() if one.waiting]
    assert view.waiting == 12
    assert [ask.waiting for ask in rig.kernel.open_asks()].count(True) == 12


def test_what_waits_is_shown_in_order_as_others_close() -> None:
    rig = chats()
    flood(rig, 25)
    rig.wait(61)
    rig.arrive_all()
    flood(rig, 10, first=26)
    shown = [row.ask_id for row in cards(rig)]
    assert shown == [ask_id(number) for number in range(1, 33)]
    for number in (3, 7):
        rig.answer(number)
    rig.arrive_all()
    assert [row.ask_id for row in cards(rig)][32:] == [ask_id(33), ask_id(34)]
    rig.answer(1)
    rig.arrive_all()
    rig.wait(31)
    rig.arrive_all()
    assert lines(rig)[-1] == "Nothing more waits."
    assert rule_buttons(rig) == {}


def test_an_ask_that_waits_can_be_answered_withdrawn_and_times_out() -> None:
    rig = chats()
    flood(rig, 22)
    rig.ask(23, who=FLOODER, timeout_s=30.0)
    assert rig.answer(21) is not None
    assert rig.answer(22, indices=(1,)) is not None
    rig.wait(31)
    states = {number: rig.row(number) for number in (21, 22, 23)}
    assert [row.outcome for row in states.values() if row is not None] == [
        "answered",
        "answered",
        "timed_out",
    ]
    assert len(cards(rig)) == 20


def test_others_are_shown_at_once_whatever_one_session_does() -> None:
    rig = chats()
    for number in range(1, 51):
        for extra in range(20):
            rig.ask(1000 + number * 20 + extra, who=FLOODER, wait=False)
        who = asker(1000 + number, parent=f"{number}:other")
        rig.ask(number, who=who, wait=False)
        # It is on its way after this one step, behind nothing of the flooder's.
        on_its_way = [row for row in rig.sending("chat") if row.ask_id == ask_id(number)]
        assert len(on_its_way) == 1
        rig.arrive_all()
    assert {row.ask_id for row in cards(rig)} >= {ask_id(number) for number in range(1, 51)}
    flooders = [row for row in cards(rig) if row.ask_id not in set(map(ask_id, range(1, 51)))]
    assert len(flooders) == 20
    # One line, however many wait; it is not edited at every one of them.
    assert len(lines(rig)) == 1


def test_a_restart_neither_shows_more_nor_forgets_the_line() -> None:
    rig = chats()
    flood(rig, 40)
    rig.wait(61)
    rig.arrive_all()
    before = [row.ask_id for row in cards(rig)]
    assert len(before) == 32
    rig.restart()
    rig.arrive_all()
    assert [row.ask_id for row in cards(rig)] == before
    posts = [row for row in rig.store.deliveries.values() if "asks:" in row.effect]
    # One on each channel.
    assert len([row for row in posts if row.kind == "post"]) == 2
    assert {one.waiting for one in rig.kernel.sessions()} == {8}


# --- what people can do about it ----------------------------------------------------------


def test_mute_shows_no_more_and_unmute_goes_on() -> None:
    rig = chats()
    flood(rig, 22)
    buttons = rule_buttons(rig)
    receipt = rig.press(buttons["mute"])
    assert receipt is not None
    assert receipt.ok
    rig.wait(600)
    flood(rig, 3, first=23)
    assert len(cards(rig)) == 20
    rig.wait(31)
    rig.arrive_all()
    assert lines(rig)[-1].startswith("5 more from this session. Muted")
    rig.restart()
    rig.wait(600)
    rig.arrive_all()
    assert len(cards(rig)) == 20
    assert rig.answer(25) is not None
    rig.press(buttons["unmute"])
    rig.arrive_all()
    assert len(cards(rig)) == 24


def test_stop_asking_declines_what_waits_and_refuses_what_comes() -> None:
    rig = chats()
    flood(rig, 300)
    receipt = rig.press(rule_buttons(rig)["stop"])
    assert receipt is not None
    assert receipt.ok
    rig.wait(1)
    rig.arrive_all()
    outcomes = [row.outcome for row in rig.store.asks.values()]
    assert outcomes.count("declined") == 280
    assert outcomes.count(None) == 20
    by = {row.answered_by.name for row in rig.store.asks.values() if row.answered_by}
    assert by == {"ada"}
    waiter = rig.ask(999, who=FLOODER)
    assert rig.error(waiter) == "limit_reached"
    rig.restart()
    assert rig.error(rig.ask(998, who=FLOODER)) == "limit_reached"
    # Another program of the same user is not meant.
    rig.ask(997, who=asker(200, parent="2:x"))
    assert rig.row(997) is not None


def test_who_may_not_answer_rules_nothing() -> None:
    rig = chats(operators={("chat", "ada"): "ada"})
    flood(rig, 22)
    eve = Who(identity="eve", name="eve")
    for token in rule_buttons(rig).values():
        receipt = rig.press(token, who=eve)
        assert receipt is not None
        assert not receipt.ok
    act = SessionRuled(key="r", who=eve, session_id=session_of(rig), rule="stop")
    receipt = rig.act(act, on="chat")
    assert receipt is not None
    assert not receipt.ok
    assert {row.asks for row in rig.store.sessions.values()} == {"shown"}


def test_a_page_rules_as_a_button_does() -> None:
    rig = chats()
    flood(rig, 22)
    act = SessionRuled(key="r", who=ADA, session_id=session_of(rig), rule="mute")
    assert rig.act(act) == Receipt(
        ok=True, code="mute", msg="2 more from this session. Muted: they wait in the inbox."
    )
    (view,) = [one for one in rig.kernel.sessions() if one.waiting]
    assert view.asks == "muted"
    gone = SessionRuled(key="g", who=ADA, session_id="s000000000000", rule="mute")
    receipt = rig.act(gone)
    assert receipt is not None
    assert receipt.code == "session_gone"


# --- approval fatigue ---------------------------------------------------------------------


def test_from_the_tenth_approval_on_the_card_says_how_many() -> None:
    rig = chats()
    for number in range(1, 15):
        rig.ask(number, PERMISSION, who=FLOODER, wait=False)
        rig.arrive_all()
        rig.wait(5)
    plain = {row.ask_id: rig.card(row).plain for row in rig.of_posts() if row.target == "chat"}
    assert "approval" not in plain[ask_id(9)]
    assert "10th approval in 5 minutes" in plain[ask_id(10)]
    assert "14th approval in 5 minutes" in plain[ask_id(14)]
    choices = {row.choice for row in rig.store.tokens.values() if row.ask_id == ask_id(14)}
    assert "hold_all" in choices
    burst = [ask.burst for ask in rig.kernel.open_asks()]
    assert burst == [0] * 9 + [10, 11, 12, 13, 14]
    rig.wait(301)
    rig.ask(15, PERMISSION, who=FLOODER, wait=False)
    rig.arrive_all()
    plain = {row.ask_id: rig.card(row).plain for row in rig.of_posts() if row.target == "chat"}
    assert "approval" not in plain[ask_id(15)]


@pytest.mark.parametrize(
    ("count", "words"), [(11, "11th"), (12, "12th"), (13, "13th"), (21, "21st"), (22, "22nd")]
)
def test_the_count_is_said_as_people_say_it(count: int, words: str) -> None:
    rig = chats(limits=Limits(approvals_at_ease=2, shown_asks_per_minute=100))
    for number in range(1, count + 1):
        rig.ask(number, PERMISSION, who=FLOODER, wait=False)
    rig.arrive_all()
    plain = {row.ask_id: rig.card(row).plain for row in rig.of_posts() if row.target == "chat"}
    assert f"{words} approval in 5 minutes" in plain[ask_id(count)]


def test_hold_all_stops_every_clock_and_holds_new_ones_back() -> None:
    rig = chats()
    for number in range(1, 12):
        rig.ask(number, PERMISSION, who=FLOODER, timeout_s=60.0)
    rig.arrive_all()
    token = next(row.token for row in rig.store.tokens.values() if row.choice == "hold_all")
    receipt = rig.press(token)
    assert receipt is not None
    assert receipt.ok
    assert all(row.held_s is not None for row in rig.store.asks.values())
    rig.ask(12, PERMISSION, who=FLOODER, timeout_s=60.0)
    rig.arrive_all()
    assert ask_id(12) not in {row.ask_id for row in cards(rig)}
    rig.wait(55)
    assert all(row.state == "open" for row in rig.store.asks.values())


# --- every limit answers with its name and setting ----------------------------------------


def refusal(rig: Rig, waiter: int) -> str:
    error = rig.response(waiter).error
    assert error is not None
    assert error["code"] == "limit_reached"
    return str(error["msg"])


def test_each_limit_on_asks_is_named_with_its_value() -> None:
    rig = chats(limits=Limits(session_asks=3, all_asks=4, sessions=2, stored_bytes=10_000))
    for number in range(1, 4):
        rig.ask(number, who=FLOODER)
    assert "the limit is 3 (limits.session_asks)" in refusal(rig, rig.ask(4, who=FLOODER))
    rig.ask(5, who=asker(200, parent="2:x"))
    assert "the limit is 4 (limits.all_asks)" in refusal(
        rig, rig.ask(6, who=asker(300, parent="3:x"))
    )
    rig.answer(1)
    rig.took(1)
    assert "the limit is 2 (limits.sessions)" in refusal(
        rig, rig.ask(7, who=asker(300, parent="3:x"))
    )


def test_what_a_session_lets_be_kept_is_limited() -> None:
    rig = chats(limits=Limits(stored_bytes=10_000))
    rig.ask(1, replaced(YES_NO, detail="x" * 10_000), who=FLOODER)
    assert "the limit is 10000 (limits.stored_bytes)" in refusal(rig, rig.ask(2, who=FLOODER))


def test_asks_of_a_session_of_its_own_are_limited_and_people_are_told() -> None:
    rig = chats(limits=Limits(session_asks=3))
    rig.up()
    for number in range(6):
        rig.needs(f"q{number}")
    assert len(rig.store.asks) == 3
    told = [row.text for row in rig.store.notices.values() if row.kind == "warning"]
    assert len(told) == 1
    assert "the limit is 3 (limits.session_asks)" in told[0]


def test_live_text_of_a_session_is_limited_by_the_minute() -> None:
    rig = chats(limits=Limits(live_text_bytes_per_minute=1000))
    rig.up()

    def says(text: str) -> None:
        rig.frame(frames.TurnStream(session_id=HOME, phase="finalized", text=text))

    for _ in range(20):
        says("x" * 400)
    kept = [row for row in rig.store.notices.values() if row.kind == "text"]
    assert len(kept) == 2
    told = [row.text for row in rig.store.notices.values() if row.kind == "warning"]
    assert len(told) == 1
    assert "limit_reached" in told[0]
    assert "the limit is 1000 (limits.live_text_bytes_per_minute)" in told[0]
    rig.wait(61)
    says("again")
    assert [row.text for row in rig.store.notices.values() if row.kind == "text"][-1] == "again"


def test_what_is_kept_of_a_session_is_measured_anew_at_start() -> None:
    rig = chats(limits=Limits(stored_bytes=1000))
    rig.up()
    rig.frame(frames.TurnStream(session_id=HOME, phase="finalized", text="x" * 900))
    rig.frame(frames.TurnStream(session_id=HOME, phase="finalized", text="x" * 900))
    assert len([row for row in rig.store.notices.values() if row.kind == "text"]) == 1


def test_a_notice_of_a_program_that_asks_counts_too() -> None:
    rig = chats(limits=Limits(live_text_bytes_per_minute=1000))
    rig.ask(1, who=FLOODER)
    waiters = []
    for _ in range(3):
        waiters.append(rig.waiter())
        rig.do(
            NoticeRaised(
                at=rig.now,
                waiter=waiters[-1],
                text="x" * 400,
                level="info",
                asker=FLOODER,
                fresh=b"",
            )
        )
    assert rig.response(waiters[1]).error is None
    assert rig.error(waiters[2]) == "limit_reached"


def test_nothing_is_kept_of_sessions_that_are_over() -> None:
    rig = chats()
    for number in range(1, 200):
        rig.ask(number, who=asker(number, parent=f"{number}:x"), wait=False)
        rig.answer(number)
    rig.arrive_all()
    state = rig.kernel._state
    assert state.floods == {}
    assert state.flooding == {}
    assert state.buttons == {}


# --- with a real hub ----------------------------------------------------------------------

FLOOD = 10_000
SESSION_ASKS = 1500
CONFIG = f"[limits]\nsession_asks = {SESSION_ASKS}\n"
DECLINED = "SELECT count(*) FROM ask WHERE outcome = 'declined'"
OTHERS = 50


@pytest.fixture(scope="module")
def home() -> Iterator[ChatHome]:
    with FakeChat() as chat_server, ChatHome(chat_server, config=CONFIG) as made:
        made.start_chat_hub()
        yield made


def test_ten_thousand_asks_of_one_session_hold_up_nobody(home: ChatHome) -> None:
    """All of it over the real socket, with cards in a real chat."""
    chat_server = home.chat
    with home.line("ask") as flooder, home.line("control") as control:
        answers = []
        for first in range(0, FLOOD, 500):
            numbers = [
                flooder.post(
                    "ask",
                    ask={"id": f"a{at:012d}", "question": f"flood {at}", "options": ["yes"]},
                    session={},
                    wait=False,
                )
                for at in range(first, first + 500)
            ]
            answers += [flooder.answer_to(number, within_s=60) for number in numbers]
        taken = sum(answer["ok"] for answer in answers)
        assert taken == SESSION_ASKS, answers[-1]
        refused = answers[-1]["error"]
        assert refused["code"] == "limit_reached"
        assert f"the limit is {SESSION_ASKS} (limits.session_asks)" in refused["msg"]
        for at in range(OTHERS):
            ask: dict[str, Any] = {"id": f"ab{at:011d}", "question": f"other {at}?"}
            flooder.ok("ask", ask=ask, session={"name": f"other-{at}"}, wait=False)
            chat_server.card(f"other {at}?", within_s=5)
        flooding = [one for one in chat_server.messages if one.text.count("flood ")]
        assert len(flooding) <= 2 * Limits().shown_asks_per_minute
        assert len(chat_server.shown("more from this session")) == 1
        assert control.ok("status")["open_asks"] == taken + OTHERS
        sessions = control.ok("sessions")["sessions"]
        (session_id,) = [one["session_id"] for one in sessions if one["waiting"]]
        listed = home.run("sessions").out
        assert " more wait" in next(one for one in listed.splitlines() if session_id in one)
    # Only an operator of the configuration rules.
    assert home.run("sessions", "--stop", session_id).code == 1
    line = chat_server.shown("more from this session")[0]
    receipt = chat_server.receipt(chat_server.press(line, "Stop asking"), within_s=20)
    assert receipt["ok"], receipt
    eventually(lambda: home.rows(DECLINED) == [(taken - len(flooding),)], what="all declined")
    with home.line("ask") as flooder:
        last = {
            "id": "a999999999999",
            "question": "one more",
            "options": ["yes"],
        }
        answer = flooder.request("ask", ask=last, session={}, wait=False)
        assert answer["error"]["code"] == "limit_reached"
    size = sum(
        os.path.getsize(f"{home.state}/{name}")
        for name in os.listdir(home.state)
        if name.startswith("hub.db")
    )
    assert size < 64 * 1024 * 1024


def asking(**fields: Any) -> bytes:
    """Return a line that asks, with these fields of the question."""
    ask = {"id": "a000000000009", "question": "q", "options": ["yes"], **fields}
    line = {"id": 1, "op": "ask", "session": {}, "wait": False, "ask": ask}
    return json.dumps(line).encode() + b"\n"


TWICE = asking().replace(b'"question"', b'"question": ["q"], "question"', 1)


@pytest.mark.parametrize(
    ("line", "deep"),
    [
        (b"[" * 10_000 + b"\n", True),
        (asking(question="DEEP").replace(b'"DEEP"', b"[" * 10_000), True),
        (asking(timeout_s="T").replace(b'"T"', b"1e308"), False),
        (asking(timeout_s="T").replace(b'"T"', b"1e999"), False),
        (TWICE[:-2] + b', "op": "status"}\n', False),
        (asking(options=["x" * 262_144]), False),
    ],
    ids=["deep", "deep field", "1e308", "1e999", "twice", "256 KiB"],
)
def test_strange_lines_are_refused_and_the_hub_goes_on(
    home: Home, line: bytes, deep: bool
) -> None:
    pid = home.hub_pid()
    before = home.rows("SELECT count(*) FROM ask")
    with home.line("ask") as client:
        client.send_bytes(line)
        # What cannot be read has no number to be answered under.
        answer = client.answer_to(None if deep else 1)
        assert answer.get("ok") is False, answer
    assert home.hub_pid() == pid
    assert home.rows("SELECT count(*) FROM ask") == before
    assert home.run("status").code == 0


# --- the page -----------------------------------------------------------------------------


@pytest.mark.browser
def test_a_page_shows_one_line_and_what_waits_only_when_it_is_wanted(tmp_path: Path) -> None:
    hub = FakeHub()
    for number in range(5):
        hub.raise_ask(f"Question {number}?", waiting=number >= 2)
    hub.session_list = [msgspec.structs.replace(SESSION, waiting=3)]
    with chromium(str(tmp_path)) as driver, inbox_on_thread(hub) as served:
        wait = WebDriverWait(driver, WAIT_S, 0.05)
        driver.get(served.link())
        wait.until(lambda page: len(page.find_elements(By.CSS_SELECTOR, "[data-ask]")) == 2)
        line = driver.find_element(By.CSS_SELECTOR, "[data-flood]")
        assert "3 more from this session." in line.text
        buttons = [one.text for one in line.find_elements(By.TAG_NAME, "button")]
        assert buttons == ["Mute", "Stop asking", "Show them here"]
        # What moved under a finger takes no press for a moment.
        press_when_old(driver, "[data-rule='stop']")
        wait.until(lambda page: any(isinstance(one, SessionRuled) for one in hub.events))
        (ruled,) = [one for one in hub.events if isinstance(one, SessionRuled)]
        assert (ruled.session_id, ruled.rule) == (SESSION.session_id, "stop")
        press_when_old(driver, "[data-rule='show']")
        wait.until(lambda page: len(page.find_elements(By.CSS_SELECTOR, "[data-ask]")) == 5)

        def muted(one: FakeHub) -> None:
            one.session_list = [msgspec.structs.replace(SESSION, waiting=0, asks="muted")]
            one.changed()

        served.in_hub(muted)
        wait.until(lambda page: "Muted" in page.find_element(By.ID, "ask-floods").text)
        shown = driver.find_elements(By.CSS_SELECTOR, "[data-flood] button")
        assert [one.text for one in shown] == ["Unmute", "Stop asking"]


def press_when_old(driver: WebDriver, selector: str) -> None:
    """Press a control once it has stood where it is for long enough."""
    wait = WebDriverWait(driver, WAIT_S, 0.05)
    wait.until(lambda page: not page.find_elements(By.CSS_SELECTOR, f"{selector}.young"))
    # The window is small, and the tabs lie over what stands at its end.
    button = driver.find_element(By.CSS_SELECTOR, selector)
    driver.execute_script("arguments[0].click()", button)


# --- how fast one is listened to -------------------------------------------------------------


def test_a_pace_lets_a_burst_through_and_then_so_much_a_second() -> None:
    pace = Pace(burst=3.0, per_s=2.0)
    assert [pace.take(1.0, 10.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert pace.take(1.0, 10.0) == (40.0 + 1.0) / 2.0
    # What was spent beyond is paid back first; a clock that stands still gives nothing.
    assert pace.take(1.0, 10.0) == (40.0 + 2.0) / 2.0
    assert pace.take(0.0, 11.0) == 0.0
    assert pace.take(3.0, 1000.0) == 0.0
    assert pace.take(0.1, 1000.0) > 0.0


@pytest.mark.asyncio
async def test_a_session_that_changes_its_ask_without_end_waits_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "Pace", lambda: Pace(burst=50.0))
    count = 1500
    async with bench() as hub:
        flooder = await hub.attached()
        other = await hub.attached(session_id="s-2")
        for number in range(count):
            flooder.endpoint.broadcast(
                frames.ActionNeeded(
                    id=ActionId("one"),
                    kind="ask",
                    session_id="s-1",
                    question=f"{number} {'x' * 1000}",
                )
            )
        await hub.until(lambda: "session_slowed" in str(hub.log.lines))
        heard = len(of_session(hub, "s-1"))
        assert 50 <= heard < count
        # Others are heard meanwhile.
        other.endpoint.broadcast(frames.Activity(session_id="s-2", state="busy"))
        await hub.until(lambda: len(of_session(hub, "s-2")) > 0)
        assert len(of_session(hub, "s-1")) == heard
        while len(of_session(hub, "s-1")) < count:
            await hub.clock.until_waited_for(10_000.0)
            hub.clock.advance(10_000.0)
            await hub.until(lambda: True)
        asked = [frame.question.split()[0] for frame in of_session(hub, "s-1")]
        assert asked == [str(number) for number in range(count)]


def of_session(hub: Bench, session_id: str) -> list[Any]:
    return [
        event.frame
        for event in hub.port.of(FrameIn)
        if event.session_id == session_id and not isinstance(event.frame, frames.IdentityHeader)
    ]


@pytest.mark.asyncio
async def test_a_program_that_asks_without_end_is_answered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk, "ASKS_AT_ONCE", 2.0)
    with short_folder() as root:
        async with WholeHub(root, [loaded("web", ScriptedAdapter())]) as hub:
            flooder, other = await hub.client("ask"), await hub.client("ask")
            for number in (1, 2, 3):
                assert (await flooder.ask(ask_request(number, wait=False)))["ok"]
            flooder.send(ask_request(4, wait=False))
            assert (await other.ask(ask_request(5, wait=False)))["ok"]
            await hub.clock.until_waited((40.0 + 1.0) / 20.0)
            assert await hub.store.ask(ask_id(4)) is None
            await hub.clock.advance(3.0)
            assert (await flooder.receive())["ok"]
