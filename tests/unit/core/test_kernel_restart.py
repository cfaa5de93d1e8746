"""What a hub that starts again makes of the rows of the one before it."""

import pytest

from fakes.kernel_rig import HOME, Rig, ask_id, asker, channel
from upcall.core import buttons, dedupe, kernel, ledger, state
from upcall.model.ask import Selection
from upcall.model.effects import Host, Unhost, WatchProcess
from upcall.model.events import AskerDied, CancelAsked, Due, NoticeRaised
from upcall.model.ids import SessionId


def test_a_hosted_session_is_hosted_again_and_its_asker_attaches_to_the_same_ask() -> None:
    rig = Rig()
    rig.ask(timeout_s=600.0)
    session = rig.only().session_id
    rig.restart()
    assert [one.session.session_id for one in rig.of(Host)] == [session]
    assert rig.of(WatchProcess) == [WatchProcess(100, "s100")]
    assert rig.kernel.sessions()[0].state == "attached"
    rig.wait(60)
    assert rig.only().state == "open"
    waiter = rig.ask(timeout_s=600.0)
    rig.answer()
    assert rig.told(waiter)[0]["result"]["outcome"] == "answered"


def test_an_asker_that_is_dead_at_the_start_makes_its_asks_unreachable() -> None:
    rig = Rig()
    rig.ask(1)
    rig.ask(2, key="k")
    rig.restart()
    rig.do(AskerDied(at=rig.now, pid=100, start="s100"))
    first, second = rig.row(1), rig.row(2)
    assert first is not None
    assert second is not None
    assert first.outcome == "unreachable"
    assert (second.state, second.handed_over) == ("open", True)


def test_an_answer_that_was_claimed_is_offered_again_to_the_asker() -> None:
    rig = Rig()
    rig.ask()
    rig.answer()
    rig.restart()
    waiter = rig.ask()
    assert rig.told(waiter)[0]["result"]["outcome"] == "answered"
    rig.took()
    row = rig.only()
    assert (row.outcome, row.answer) == ("answered", Selection((0,), ("yes",)))


def test_a_claimed_reply_is_sent_again_with_its_key() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only())
    (before,) = rig.sent_frames()
    rig.restart()
    (after,) = rig.sent_frames()
    assert before == after
    assert rig.kernel.sessions()[0].state == "away"
    rig.up(sync=False)
    rig.needs()
    rig.sync()
    rig.resolved(resolved_by="client", answer="yes")
    assert rig.only().outcome == "answered"


def test_an_asker_without_a_pid_has_five_seconds_to_come_back() -> None:
    nobody = asker(0, parent="")
    rig = Rig()
    rig.ask(1, who=nobody)
    rig.ask(2, who=nobody, key="k")
    rig.ask(3, who=nobody, wait=False)
    rig.ask(4, who=nobody)
    rig.restart()
    assert rig.of(WatchProcess) == []
    rig.ask(4, who=nobody)
    rig.wait(4.9)
    assert len(rig.kernel.open_rows()) == 4
    rig.wait(0.2)
    assert [row.ask_id for row in rig.kernel.open_rows()] == [ask_id(2), ask_id(3), ask_id(4)]
    gone = rig.row(1)
    assert gone is not None
    assert gone.outcome == "unreachable"
    rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(4)))
    rig.restart()
    rig.do(CancelAsked(at=rig.now, waiter=91, ask_id=ask_id(3)))
    rig.wait(6)
    row = rig.row(2)
    assert row is not None
    assert row.state == "open"


def test_a_deadline_goes_on_by_the_boot_clock_within_a_boot() -> None:
    rig = Rig()
    rig.ask(timeout_s=100.0)
    rig.wall_ms += 10_000_000
    rig.restart(down_s=50)
    rig.do(Due(at=rig.now))
    assert rig.only().state == "open"
    rig.wait(51)
    assert rig.only().outcome == "timed_out"


def test_a_deadline_goes_by_the_wall_clock_after_a_reboot() -> None:
    rig = Rig()
    rig.ask(1, timeout_s=100.0, wait=False)
    rig.ask(2, timeout_s=3600.0, wait=False)
    rig.ask(3, wait=False)
    rig.ask(4, timeout_s=500.0, wait=False)
    rig.answer(4, hold=True)
    rig.restart(down_s=200, boot_id="boot-2")
    rig.wait(0)
    first, second = rig.row(1), rig.row(2)
    assert first is not None
    assert second is not None
    assert first.outcome == "timed_out"
    assert (second.state, second.boot_id) == ("open", "boot-2")
    rig.wait(3399)
    assert len(rig.kernel.open_rows()) == 3
    rig.wait(2)
    assert len(rig.kernel.open_rows()) == 2
    rig.answer(4, hold=False)
    fourth = rig.row(4)
    assert fourth is not None
    assert fourth.boot_id == "boot-2"
    rig.wait(501)
    assert [row.ask_id for row in rig.kernel.open_rows()] == [ask_id(3)]


def test_a_hosted_session_without_asks_is_over_at_the_start() -> None:
    rig = Rig()
    rig.ask()
    session = rig.store.sessions[rig.only().session_id]
    rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(1)))
    rig.store.sessions[session.session_id] = session
    rig.restart()
    assert rig.of(Host) == []
    assert rig.of(Unhost) == []
    assert rig.store.sessions[session.session_id].ended_ms is not None


# --- conversations -------------------------------------------------------------------------


def test_a_conversation_closes_ten_minutes_after_its_last_session() -> None:
    rig = Rig()
    rig.ask(1)
    rig.ask(2, who=asker(200))
    for number in (1, 2):
        rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(number)))
        rig.wait(500)
    (row,) = rig.store.conversations.values()
    assert row.state == "open"
    rig.wait(101)
    (row,) = rig.store.conversations.values()
    assert row.state == "closed"
    rig.ask(3)
    (row,) = rig.store.conversations.values()
    assert row.state == "open"


def test_a_conversation_that_goes_on_within_ten_minutes_stays_open() -> None:
    rig = Rig()
    for number in range(5):
        rig.ask(number, who=asker(100 + number))
        rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(number)))
        rig.wait(400)
    (row,) = rig.store.conversations.values()
    assert row.state == "open"
    rig.restart()
    rig.wait(599)
    (row,) = rig.store.conversations.values()
    assert row.state == "open"
    rig.wait(2)
    (row,) = rig.store.conversations.values()
    assert row.state == "closed"


# --- a hub that runs for long --------------------------------------------------------------


def sizes(rig: Rig) -> dict[str, int]:
    held = rig.kernel._state
    found = {}
    for name in held.__dataclass_fields__:
        value = getattr(held, name)
        if hasattr(value, "__len__") and not isinstance(value, str):
            found[name] = len(value)
    return found


def life(rig: Rig, number: int) -> None:
    session = SessionId(f"sess-{number}")
    rig.up(session)
    rig.needs("q", session=session)
    rig.answer(next(row for row in rig.kernel.open_rows() if row.session_id == session))
    rig.arrive_all()
    rig.down(session, gone=True)
    who = asker(1000 + number, parent=f"{number}:p")
    rig.ask(number, who=who, timeout_s=86400.0, key=f"k{number}")
    rig.answer(number)
    rig.took(number)
    rig.do(NoticeRaised(at=rig.now, waiter=0, text="x", level="info", asker=who, fresh=b""))
    rig.arrive_all()
    rig.releases.clear()


def test_what_is_over_takes_no_more_room_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = {"closed": 20, "ended": 20, "inbound": 30, "won": 30, "keys": 25, "retired": 40}
    monkeypatch.setattr(state, "ENDED_KEPT", kept["ended"])
    monkeypatch.setattr(state, "KEYS_KEPT", kept["keys"])
    monkeypatch.setattr(ledger, "CLOSED_KEPT", kept["closed"])
    monkeypatch.setattr(ledger, "INBOUND_KEPT", kept["won"])
    monkeypatch.setattr(dedupe, "INBOUND_KEPT", kept["inbound"])
    monkeypatch.setattr(dedupe, "MOST_KEPT", kept["inbound"])
    monkeypatch.setattr(buttons, "RETIRED_KEPT", kept["retired"])
    monkeypatch.setattr(kernel, "TIMERS_KEPT", 16)
    rig = Rig(channel("web", buttons=5))
    rig.ask(5000, who=asker(7, parent=""), key="forever", wait=False)
    rig.arrive_all()
    held = []
    for start in (0, 60):
        for number in range(start, start + 60):
            life(rig, number)
            rig.wait(1)
        rig.wait(700)
        held.append(sizes(rig))
    first, second = held
    assert max(first.pop("timers"), second.pop("timers")) <= 64
    assert first == second
    assert {name: first[name] for name in kept} == kept
    for name in ("live", "sessions", "hosted", "living", "by_session", "asks", "cards"):
        assert first[name] == 1
    for name in ("claims", "deliveries", "lanes", "tries", "retry_due", "waiters", "offered"):
        assert first[name] == 0
    assert first["conversations"] == 1
    assert rig.kernel.find_by_key("forever") == ask_id(5000)
    assert rig.kernel.open_rows()[0].ask_id == ask_id(5000)


def test_an_old_ask_of_the_same_action_takes_no_newer_one_with_it() -> None:
    rig = Rig()
    rig.up()
    rig.needs("q", question="First?")
    rig.needs("q", question="Second?")
    for number in range(300):
        rig.needs(f"other-{number}")
        rig.resolved(f"other-{number}", resolved_by="client", answer="yes")
    rig.resolved("q", resolved_by="client", answer="no")
    assert rig.kernel.open_rows() == []
    assert rig.kernel.sessions()[0].session_id == HOME


def test_timers_of_asks_that_ended_do_not_pile_up() -> None:
    rig = Rig()
    for number in range(3000):
        rig.ask(number, wait=False, timeout_s=1e7)
        rig.answer(number)
        rig.releases.clear()
    assert len(rig.kernel._state.timers) < 2100
    due_s = rig.kernel.next_due_s()
    assert due_s is not None
