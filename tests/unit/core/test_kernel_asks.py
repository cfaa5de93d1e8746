"""Programs on the hub's socket: raise, attach, wait, take, withdraw, leave."""

import datetime
from typing import Any

import pytest

from fakes.kernel_rig import YES_NO, Rig, ask_id, asker
from upcall.model.ask import AnsweredBy, AskSpec, Selection
from upcall.model.effects import Acknowledge, Host, Log, Unhost, WatchProcess
from upcall.model.events import (
    AskerDied,
    CancelAsked,
    NoticeRaised,
    RootChanged,
    WaiterGone,
)
from upcall.model.frames import ActionResolved
from upcall.model.platform import Who
from upcall.model.struct import replaced

OTHER = replaced(YES_NO, question="Something else?")


def test_a_raised_ask_is_stored_shown_hosted_and_responded() -> None:
    rig = Rig()
    waiter = rig.ask()
    row = rig.only("open")
    assert row.ask_id == ask_id(1)
    assert row.action_id == f"ask:{ask_id(1)}"
    fields = rig.response(waiter).fields
    assert fields is not None
    assert fields["ask"]["state"] == "open"
    assert fields["ask"]["session"]["repo"] == "shop"
    assert fields["existing"] is False
    assert fields["channels"] == [
        {
            "name": "web",
            "state": "sending",
            "audience": 0,
            "reason": None,
            "heard_ms": rig.wall_ms,
            "event_ms": None,
            "deaf_since_ms": None,
            "signed_in": 0,
        }
    ]
    (host,) = rig.of(Host)
    assert host.session.session_id == row.session_id
    assert rig.of(WatchProcess) == [WatchProcess(100, "s100")]
    assert [frame.id for _, frame in rig.to_clients()] == [row.action_id]
    (post,) = rig.sending()
    assert (post.kind, post.target, post.attempt) == ("post", "web", 1)


def test_the_same_ask_raised_again_attaches_and_both_hear_the_end() -> None:
    rig = Rig()
    first = rig.ask()
    second = rig.ask()
    fields = rig.response(second).fields
    assert fields is not None
    assert fields["existing"] is True
    assert len(rig.store.asks) == 1
    rig.answer()
    rig.took()
    assert len(rig.told(first)) == len(rig.told(second)) == 1


def test_another_ask_under_a_used_id_is_an_id_conflict() -> None:
    rig = Rig()
    rig.ask()
    assert rig.error(rig.ask(spec=OTHER)) == "id_conflict"
    closed = replaced(rig.only(), ask_id=ask_id(9), state="closed", outcome="answered")
    assert rig.error(rig.ask(9, OTHER, found=closed)) == "id_conflict"


def test_asks_of_one_process_share_a_session_and_it_ends_with_the_last() -> None:
    rig = Rig()
    rig.ask(1)
    rig.ask(2)
    assert len(rig.store.sessions) == 1
    rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(1)))
    assert rig.of(Unhost) == []
    rig.do(CancelAsked(at=rig.now, waiter=91, ask_id=ask_id(2)))
    (session,) = rig.store.sessions.values()
    assert rig.of(Unhost) == [Unhost(session.session_id)]
    assert session.ended_ms == rig.wall_ms


def test_asks_of_other_processes_have_sessions_of_their_own_in_one_conversation() -> None:
    rig = Rig()
    rig.ask(1, who=asker(100))
    rig.ask(2, who=asker(101))
    rig.ask(3, who=asker(102, name="release"))
    rig.ask(4, who=asker(0, parent=""))
    rig.ask(5, who=asker(0, parent=""))
    keys = [session.conversation for session in rig.store.sessions.values()]
    assert keys[:3] == ["p:box:1:p", "p:box:1:p", "n:release"]
    assert len(set(keys)) == 4
    assert len(rig.store.conversations) == 4


def test_an_attached_asker_closes_its_ask_by_saying_took() -> None:
    rig = Rig()
    waiter = rig.ask()
    rig.wait(2)
    receipt = rig.answer()
    assert receipt is not None
    assert (receipt.ok, receipt.code) == (True, "claimed")
    assert rig.only().state == "claimed"
    (told,) = rig.told(waiter)
    assert told["result"]["outcome"] == "answered"
    assert told["result"]["answer"] == {"indices": [0], "labels": ["yes"], "text": None}
    assert told["result"]["answered_by"] == {"name": "ada", "channel": "web"}
    assert told["result"]["waited_s"] == 2
    took = rig.took()
    row = rig.only("closed")
    assert row.outcome == "answered"
    assert row.answered_by == AnsweredBy("ada", "web")
    fields = rig.response(took).fields
    assert fields is not None
    assert fields["result"]["outcome"] == "answered"
    assert len(rig.told(waiter)) == 1


def test_took_again_or_too_early_says_how_the_ask_stands() -> None:
    rig = Rig()
    rig.ask()
    fields = rig.response(rig.took()).fields
    assert fields is not None
    assert fields["result"]["outcome"] == "open"
    rig.answer()
    rig.took()
    fields = rig.response(rig.took()).fields
    assert fields is not None
    assert fields["result"]["outcome"] == "answered"


def test_a_decline_is_taken_as_a_decline() -> None:
    rig = Rig()
    waiter = rig.ask()
    rig.answer(decline=True)
    assert rig.told(waiter)[0]["result"]["outcome"] == "declined"
    rig.took()
    assert (rig.only().outcome, rig.only().answer) == ("declined", None)


def test_any_number_may_wait_any_number_of_times() -> None:
    rig = Rig()
    rig.ask()
    others = [rig.wait_for(), rig.wait_for()]
    rig.answer()
    assert [rig.told(one) for one in others] == [[], []]
    rig.took()
    assert [rig.told(one)[0]["result"]["outcome"] for one in others] == ["answered"] * 2
    later = rig.wait_for()
    assert rig.told(later)[0]["result"]["outcome"] == "answered"
    fields = rig.response(later).fields
    assert fields is not None
    assert fields["ask"]["state"] == "closed"


def test_wait_finds_an_ask_of_an_earlier_hub_and_refuses_an_unknown_one() -> None:
    rig = Rig()
    rig.ask()
    rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(1)))
    rig.arrive_all()
    old = rig.only()
    rig.restart()
    assert rig.kernel.find(ask_id(1)) is None
    assert rig.told(rig.wait_for(found=old))[0]["result"]["outcome"] == "cancelled"
    assert rig.error(rig.wait_for(7)) == "unknown_ask"
    assert rig.error(rig.took(7)) == "unknown_ask"
    rig.do(CancelAsked(at=rig.now, waiter=95, ask_id=ask_id(7)))
    assert rig.error(95) == "unknown_ask"


def _own(tty: str | None) -> Who:
    return Who("1000", "grace", tty=tty, local=True, pid=100, pid_start="s100")


def test_the_askers_own_terminal_answers_and_the_card_says_so() -> None:
    rig = Rig()
    waiter = rig.ask()
    who = replaced(_own("/dev/pts/1"), detail="pid 7, bash, pts/1")
    took = rig.took(local=True, indices=(1,), who=who)
    row = rig.only("closed")
    assert row.answer == Selection((1,), ("no",))
    assert row.answered_by == AnsweredBy("grace", "terminal", "pid 7, bash, pts/1")
    assert row.resolved_by == "local"
    assert rig.response(took).error is None
    assert rig.told(waiter)[0]["result"]["outcome"] == "answered"
    (resolved,) = [f for _, f in rig.to_clients() if isinstance(f, ActionResolved)]
    assert (resolved.outcome, resolved.answer) == ("answered", "no")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"text": "on Monday"}, Selection(text="on Monday")),
        ({"indices": (0, 1)}, Selection((0, 1), ("yes", "no"))),
        ({"indices": (0,), "text": "later"}, Selection((0,), ("yes",), "later")),
        ({"declined": True}, None),
    ],
)
def test_local_answers_of_every_shape(fields: dict[str, Any], expected: object) -> None:
    rig = Rig()
    rig.ask(spec=replaced(YES_NO, multi=True, free_text=True))
    rig.took(local=True, **fields)
    assert rig.only("closed").answer == expected


def test_a_local_answer_that_does_not_fit_changes_nothing() -> None:
    rig = Rig()
    rig.ask()
    assert rig.error(rig.took(local=True, indices=(5,))) == "invalid_answer"
    assert rig.error(rig.took(local=True)) == "invalid_answer"
    assert rig.only().state == "open"


def test_a_losing_local_prompt_hears_what_won() -> None:
    rig = Rig()
    rig.ask()
    rig.answer(indices=(1,))
    rig.wait(3)
    waiter = rig.took(local=True, indices=(0,))
    response = rig.response(waiter)
    assert response.error is not None
    assert response.error["code"] == "already_answered"
    assert response.error["msg"] == (
        'ada answered "no" on web 3 s ago. Your input was not used.'
    )
    rig.took()
    rig.wait(130)
    response = rig.response(rig.took(local=True, indices=(0,)))
    assert response.error is not None
    assert response.error["msg"] == (
        'ada answered "no" on web 2 min 10 s ago. Your input was not used.'
    )
    assert response.fields is not None
    assert response.fields["result"]["outcome"] == "answered"


@pytest.mark.parametrize(
    ("policy", "tty", "code"),
    [
        ("tty", "/dev/pts/1", None),
        ("tty", None, "self_answer"),
        ("any", None, None),
        ("off", "/dev/pts/1", "not_permitted"),
    ],
)
def test_a_permission_at_the_askers_own_prompt_needs_a_terminal(
    policy: str, tty: str | None, code: str | None
) -> None:
    rig = Rig(local_answers=policy)
    rig.ask(spec=replaced(YES_NO, ask_class="permission"))
    waiter = rig.took(local=True, indices=(0,), who=_own(tty))
    if code is None:
        assert rig.only().state == "closed"
    else:
        assert rig.error(waiter) == code
        assert rig.only().state == "open"


def test_a_stranger_at_the_askers_prompt_is_not_an_operator() -> None:
    rig = Rig(operators={("local", "1000"): "grace"})
    rig.ask()
    who = Who("1001", "eve", tty="/dev/pts/1", local=True)
    assert rig.error(rig.took(local=True, indices=(0,), who=who)) == "not_permitted"
    rig.took(local=True, indices=(0,))
    by = rig.only("closed").answered_by
    assert by is not None
    assert by.name == "grace"


def test_cancel_closes_once_and_says_how_it_stands_later() -> None:
    rig = Rig()
    waiter = rig.ask()
    rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(1)))
    rig.do(CancelAsked(at=rig.now, waiter=91, ask_id=ask_id(1)))
    assert rig.only().outcome == "cancelled"
    assert rig.told(waiter)[0]["result"]["outcome"] == "cancelled"
    for number in (90, 91):
        fields = rig.response(number).fields
        assert fields is not None
        assert fields["result"]["outcome"] == "cancelled"


def test_an_answer_that_was_handed_to_the_asker_cannot_be_cancelled_any_more() -> None:
    """The asker may have used it: one ask, one truth."""
    rig = Rig()
    waiter = rig.ask()
    local = Who("1000", "grace", "pid 9", local=True, tty="/dev/pts/2")
    assert rig.answer(on="terminal", who=local) is None
    number = rig.last_receipt
    rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(1)))
    assert rig.error(90) == "already_answered"
    assert rig.only().state == "claimed"
    rig.took()
    assert rig.only().outcome == "answered"
    receipt = next(r.receipt for r in rig.of(Acknowledge) if r.receipt_id == number)
    assert receipt.ok
    assert len(rig.told(waiter)) == 1


def test_a_claimed_ask_whose_asker_is_not_there_can_be_cancelled() -> None:
    rig = Rig()
    rig.ask()
    rig.restart()
    rig.answer()
    assert rig.only().state == "claimed"
    rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(1)))
    assert rig.only().outcome == "cancelled"


def test_only_the_program_that_asked_answers_at_its_own_prompt() -> None:
    rig = Rig(uid="1000")
    rig.ask()
    other = Who("1000", "grace", tty="/dev/pts/1", local=True, pid=101, pid_start="s101")
    assert rig.error(rig.took(local=True, indices=(0,), who=other)) == "not_permitted"
    foreign = Who("65534", "nobody", tty="/dev/pts/1", local=True, pid=100, pid_start="s100")
    assert rig.error(rig.took(local=True, indices=(0,), who=foreign)) == "not_permitted"
    assert rig.only().state == "open"
    rig.took(local=True, indices=(0,))
    assert rig.only().outcome == "answered"


def test_an_asker_that_leaves_makes_its_ask_unreachable_at_once() -> None:
    rig = Rig()
    waiter = rig.ask()
    other = rig.wait_for()
    rig.do(WaiterGone(at=rig.now, waiters=(waiter,)))
    row = rig.only("closed")
    assert row.outcome == "unreachable"
    assert row.note == "The program that asked has ended. Nothing was answered."
    assert rig.told(other)[0]["result"]["reason"] == row.note
    assert rig.told(waiter) == []


def test_an_asker_that_leaves_before_it_took_the_answer_says_so_to_the_person() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    rig = Rig(zone=zone)
    waiter = rig.ask()
    rig.answer()
    rig.do(WaiterGone(at=rig.now, waiters=(waiter,)))
    row = rig.only("closed")
    assert (row.outcome, row.answer) == ("unreachable", None)
    clock = datetime.datetime.fromtimestamp(rig.wall_ms / 1000, zone).strftime("%H:%M")
    assert row.note == (
        f"The program stopped before it took the answer ({clock}). "
        "Nothing was run by this answer."
    )
    receipt = rig.answer(row)
    assert receipt is not None
    assert (receipt.code, receipt.msg) == ("unreachable", row.note)


def test_without_a_time_zone_no_time_is_said() -> None:
    rig = Rig()
    waiter = rig.ask()
    rig.answer()
    rig.do(WaiterGone(at=rig.now, waiters=(waiter,)))
    assert rig.only().note == (
        "The program stopped before it took the answer. Nothing was run by this answer."
    )


def test_others_that_leave_change_nothing() -> None:
    rig = Rig()
    first = rig.ask()
    second = rig.ask()
    other = rig.wait_for()
    rig.do(WaiterGone(at=rig.now, waiters=(other, second, 999)))
    assert rig.only().state == "open"
    rig.do(WaiterGone(at=rig.now, waiters=(first,)))
    assert rig.only().outcome == "unreachable"


def test_a_handed_over_ask_outlives_its_asker_and_closes_at_the_claim() -> None:
    rig = Rig()
    rig.ask(wait=False)
    rig.do(AskerDied(at=rig.now, pid=100, start="s100"))
    assert rig.only().state == "open"
    waiter = rig.wait_for()
    receipt = rig.answer()
    assert receipt is not None
    assert receipt.code == "ok"
    assert receipt.result is not None
    assert receipt.result.outcome == "answered"
    assert rig.only("closed").outcome == "answered"
    assert rig.told(waiter)[0]["result"]["outcome"] == "answered"
    rig.do(WaiterGone(at=rig.now, waiters=(waiter,)))


def test_asking_again_without_waiting_hands_over() -> None:
    rig = Rig()
    waiter = rig.ask()
    rig.ask(wait=False)
    rig.do(WaiterGone(at=rig.now, waiters=(waiter,)))
    assert rig.only().state == "open"
    again = rig.ask()
    rig.answer()
    assert rig.only().outcome == "answered"
    assert len(rig.told(again)) == 1
    rig.ask(wait=False)
    assert rig.only().outcome == "answered"


def test_handing_over_a_claimed_ask_closes_it() -> None:
    rig = Rig()
    rig.ask()
    rig.answer()
    fields = rig.response(rig.ask(wait=False)).fields
    assert fields is not None
    assert fields["ask"]["outcome"] == "answered"


def test_a_dead_process_ends_its_asks_although_its_connection_lives_on() -> None:
    rig = Rig()
    waiter = rig.ask(1)
    rig.ask(2, wait=False)
    rig.ask(3, key="k")
    rig.ask(4, who=asker(101))
    rig.do(AskerDied(at=rig.now, pid=100, start="another"))
    assert len(rig.kernel.open_rows()) == 4
    rig.do(AskerDied(at=rig.now, pid=100, start="s100"))
    states = {number: rig.row(number) for number in (1, 2, 3, 4)}
    assert [row.state for row in states.values() if row] == ["closed", "open", "open", "open"]
    assert rig.told(waiter)[0]["result"]["outcome"] == "unreachable"
    rig.do(WaiterGone(at=rig.now, waiters=(waiter,)))


# --- keyed asks ----------------------------------------------------------------------------


def test_a_rerun_with_the_key_finds_the_open_ask_and_its_answer() -> None:
    rig = Rig()
    first = rig.ask(1, key="deploy")
    rig.do(WaiterGone(at=rig.now, waiters=(first,)))
    row = rig.only("open")
    assert row.handed_over
    second = rig.ask(2, key="deploy", who=asker(200))
    fields = rig.response(second).fields
    assert fields is not None
    assert (fields["ask"]["id"], fields["existing"]) == (ask_id(1), True)
    rig.answer()
    assert rig.told(second)[0]["result"]["outcome"] == "answered"
    third = rig.ask(3, key="deploy", who=asker(300))
    assert rig.told(third)[0]["result"]["id"] == ask_id(1)
    assert rig.kernel.find_by_key("deploy") == ask_id(1)
    rig.ask(4, key="deploy", wait=False)
    assert len(rig.store.asks) == 1


def test_a_keyed_ask_whose_asker_left_after_the_claim_keeps_the_answer() -> None:
    rig = Rig()
    first = rig.ask(1, key="deploy")
    rig.answer()
    rig.do(WaiterGone(at=rig.now, waiters=(first,)))
    assert rig.only("closed").outcome == "answered"
    second = rig.ask(2, key="deploy")
    assert rig.told(second)[0]["result"]["answer"]["labels"] == ["yes"]


def test_a_key_in_use_for_an_open_other_question_is_a_conflict() -> None:
    rig = Rig()
    rig.ask(1, key="deploy")
    response = rig.response(rig.ask(2, OTHER, key="deploy"))
    assert response.error is not None
    assert response.error["code"] == "key_conflict"
    assert ask_id(1) in response.error["recover"]


@pytest.mark.parametrize("end", ["cancelled", "declined", "timed_out"])
def test_a_keyed_ask_that_ended_without_an_answer_is_asked_anew(end: str) -> None:
    rig = Rig()
    rig.ask(1, key="deploy", timeout_s=60.0, wait=False)
    if end == "cancelled":
        rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(1)))
    elif end == "declined":
        rig.answer(decline=True)
    else:
        rig.wait(61)
    assert rig.only().outcome == end
    rig.ask(2, key="deploy")
    assert rig.row(2) is not None
    assert rig.kernel.find_by_key("deploy") == ask_id(2)


def test_another_question_with_the_key_of_an_ended_ask_is_asked() -> None:
    rig = Rig()
    rig.ask(1, key="deploy", wait=False)
    rig.answer()
    rig.ask(2, OTHER, key="deploy")
    row = rig.row(2)
    assert row is not None
    assert row.state == "open"


def test_a_key_is_found_in_the_rows_of_an_earlier_hub() -> None:
    rig = Rig()
    rig.ask(1, key="deploy", wait=False)
    rig.answer()
    rig.arrive_all()
    old = rig.only()
    rig.restart()
    assert rig.kernel.find_by_key("deploy") == ask_id(1)
    waiter = rig.ask(2, key="deploy", found=old)
    assert rig.told(waiter)[0]["result"]["answer"]["labels"] == ["yes"]


def test_two_runs_with_one_key_at_once_do_not_end_each_other() -> None:
    rig = Rig()
    first = rig.ask(1, key="deploy", who=asker(100))
    plain = rig.ask(2, who=asker(100))
    second = rig.ask(3, key="deploy", who=asker(200))
    assert WatchProcess(200, "s200") in rig.of(WatchProcess)
    rig.do(AskerDied(at=rig.now, pid=200, start="s200"))
    assert [row.ask_id for row in rig.kernel.open_rows()] == [ask_id(1), ask_id(2)]
    rig.answer(1)
    assert len(rig.told(first)) == 1
    assert rig.told(second) == []
    rig.do(WaiterGone(at=rig.now, waiters=(plain,)))
    row = rig.row(2)
    assert row is not None
    assert row.outcome == "unreachable"


def test_an_asker_that_comes_back_as_another_process_becomes_the_asker() -> None:
    rig = Rig()
    rig.ask(1, who=asker(100))
    rig.restart()
    rig.ask(1, who=asker(200))
    (session,) = rig.store.sessions.values()
    assert (session.asker_pid, session.asker_start) == (200, "s200")
    rig.do(AskerDied(at=rig.now, pid=100, start="s100"))
    assert rig.only().state == "open"
    rig.do(AskerDied(at=rig.now, pid=200, start="s200"))
    assert rig.only().outcome == "unreachable"


# --- notices, roots, and the rest ----------------------------------------------------------


def test_a_notice_needs_no_ask_and_leaves_no_session_behind() -> None:
    rig = Rig()
    event = NoticeRaised(
        at=rig.now, waiter=5, text="done", level="info", asker=asker(), fresh=b""
    )
    rig.do(event)
    (notice,) = rig.store.notices.values()
    assert (notice.kind, notice.text) == ("info", "done")
    assert rig.kernel.sessions() == []
    assert rig.response(5).fields == {
        "channels": [
            {
                "name": "web",
                "state": "delivered",
                "audience": 0,
                "reason": None,
                "heard_ms": rig.wall_ms,
                "event_ms": None,
                "deaf_since_ms": None,
                "signed_in": 0,
            }
        ]
    }
    rig.ask()
    rig.do(replaced(event, waiter=6))
    assert rig.store.notices[2].session_id == rig.only().session_id


def test_names_that_are_no_text_do_not_get_into_the_hub() -> None:
    rig = Rig()
    rig.ask(who=replaced(asker(), cwd="/tmp/\udcff", program="x\udcff"))
    (session,) = rig.kernel.sessions()
    assert session.cwd == "/tmp/�"
    assert session.program == "x�"


def test_roots_are_registered_and_forgotten() -> None:
    rig = Rig()
    rig.do(RootChanged(at=rig.now, waiter=0, path="/a", gone=False))
    rig.do(RootChanged(at=rig.now, waiter=4, path="/b", gone=False))
    rig.do(RootChanged(at=rig.now, waiter=0, path="/a", gone=True))
    assert rig.kernel.roots() == ["/b"]
    assert rig.response(4).fields == {}
    rig.restart()
    assert rig.kernel.roots() == ["/b"]


def test_asks_are_found_by_id_prefix_and_action_id() -> None:
    rig = Rig()
    rig.ask(1)
    rig.ask(22)
    assert [row.ask_id for row in rig.kernel.match(ask_id(22))] == [ask_id(22)]
    assert len(rig.kernel.match("a00000")) == 2
    assert rig.kernel.match("a00") == []
    assert [row.ask_id for row in rig.kernel.match(f"ask:{ask_id(1)}")] == [ask_id(1)]
    assert rig.kernel.match("zzzz") == []


def test_a_surrogate_free_answer_is_what_words_are() -> None:
    rig = Rig()
    rig.ask(spec=AskSpec(question="Why?"))
    receipt = rig.answer(text="\ud800")
    assert receipt is not None
    assert receipt.code == "invalid_answer"
    assert rig.of(Log) == []


def test_everybody_who_waits_hears_where_the_question_is() -> None:
    rig = Rig()
    waiter = rig.ask()
    rig.arrive_all()
    assert [one["channels"][0]["state"] for one in rig.told(waiter, "channels")] == [
        "delivered"
    ]
    rig.hears("web", audience=2)
    rig.hears("web", audience=2)
    rig.hears("web", hearing=False)
    states = [one["channels"][0] for one in rig.told(waiter, "channels")]
    assert [(one["state"], one["audience"]) for one in states] == [
        ("delivered", 0),
        ("delivered", 2),
        ("down", 0),
    ]


def test_a_dead_process_does_not_end_what_another_one_still_waits_for() -> None:
    rig = Rig()
    rig.ask(1, who=asker(100))
    rig.ask(1, who=asker(200))
    rig.do(AskerDied(at=rig.now, pid=100, start="s100"))
    assert rig.only().state == "open"
    rig.do(AskerDied(at=rig.now, pid=200, start="s200"))
    assert rig.only().outcome == "unreachable"


def test_the_kernel_tells_what_it_holds() -> None:
    rig = Rig()
    rig.ask()
    kernel = rig.kernel
    assert (kernel.machine, kernel.operator) == ("box", "grace")
    (row,) = kernel.session_rows()
    assert kernel.session(row.session_id) == row
    assert kernel.session("nobody") is None
    assert [one.state for one in kernel.channels()] == ["delivered"]
    assert [one.state for one in kernel.channels(ask_id(1))] == ["sending"]
    rig.do(CancelAsked(at=rig.now, waiter=9, ask_id=ask_id(1)))
    ended = kernel.session(row.session_id)
    assert ended is not None
    view = kernel.view(rig.only())
    assert (view.session.state, view.outcome) == ("gone", "cancelled")
    old = replaced(rig.only(), session_id="long-gone")
    assert kernel.view(old).session.session_id == "gone"
    assert kernel.view(old, row).session.session_id == row.session_id


def test_a_process_that_waited_twice_dies_once() -> None:
    rig = Rig()
    waiters = [rig.ask(), rig.ask()]
    rig.do(AskerDied(at=rig.now, pid=100, start="s100"))
    assert rig.only().outcome == "unreachable"
    assert [len(rig.told(waiter)) for waiter in waiters] == [1, 1]


def test_a_process_with_two_named_sessions_ends_them_one_by_one() -> None:
    rig = Rig()
    rig.ask(1, who=asker(100, name="one"))
    rig.ask(2, who=asker(100, name="two"))
    rig.do(CancelAsked(at=rig.now, waiter=9, ask_id=ask_id(1)))
    assert [view.conversation for view in rig.kernel.sessions()] == ["n:two"]
    rig.do(AskerDied(at=rig.now, pid=100, start="s100"))
    assert rig.kernel.sessions() == []


def test_a_permission_is_not_shared_with_another_program_nor_given_again() -> None:
    permission = replaced(YES_NO, ask_class="permission")
    rig = Rig()
    rig.ask(1, permission, key="k", who=asker(100))
    rig.ask(2, permission, key="k", who=asker(200))
    assert [view.id for view in rig.kernel.open_asks()] == [ask_id(1), ask_id(2)]
    rig.ask(3, permission, key="k", who=asker(300), wait=False)
    rig.ask(4, permission, key="k", who=replaced(asker(400), chain=("400:s400",)))
    assert len(rig.kernel.open_asks()) == 3
    collected = rig.row(3)
    assert collected is not None
    assert collected.askers == ("400:s400",)
    rig.answer(3)
    rig.ask(5, permission, key="k", who=asker(500))
    assert rig.kernel.open_asks()[-1].id == ask_id(5)
