"""Sessions of their own: what they present, resolve and refuse is what counts."""

from typing import Any

import pytest

from fakes.kernel_rig import HOME, PARALLEL, Rig, ask_id, asker
from upcall.core.render import CHANGED
from upcall.model import frames
from upcall.model.ask import AnsweredBy, AskSpec, Selection
from upcall.model.effects import Acknowledge, Log
from upcall.model.events import CancelAsked, LinkUp, WaiterGone
from upcall.model.frames import By, Choice, Reply
from upcall.model.ids import ActionId, SessionId
from upcall.model.platform import Texted, Who

PEER = ("client_ping_pong",)
LOCAL = Who("1000", "grace", "pid 9", tty="/dev/pts/3", local=True)


def test_an_attached_session_is_shown_with_what_it_says_of_itself() -> None:
    rig = Rig()
    rig.up()
    rig.frame(
        frames.IdentityHeader(
            session_id=HOME, repo="shop", branch="main", machine="far", title="Build"
        )
    )
    rig.frame(frames.SessionReady(session_id=HOME, repo="shop", branch="dev", title="Build"))
    rig.frame(
        frames.ContextUpdate(
            session_id=HOME, cwd="/new", task="t", model="m", token_usage="5 %"
        )
    )
    rig.frame(frames.ContextUpdate(session_id=HOME, goal="g"))
    rig.frame(frames.ContextUpdate(session_id=HOME))
    rig.frame(frames.Activity(session_id=HOME, state="busy"))
    (view,) = rig.kernel.sessions()
    assert (view.kind, view.state, view.takes_text) == ("sdk", "attached", True)
    assert (view.repo, view.branch, view.machine, view.title) == ("shop", "dev", "box", "Build")
    assert (view.cwd, view.task, view.model, view.usage) == ("/src", "g", "m", "5 %")
    assert view.activity == "busy"
    assert (view.pid, view.program, view.record_path) == (50, "agent", "/run/r.json")
    rig.down()
    (view,) = rig.kernel.sessions()
    assert (view.state, view.takes_text) == ("away", False)
    rig.up()
    assert rig.kernel.sessions()[0].title == "Build"


def test_what_a_session_says_becomes_notices_and_activity() -> None:
    rig = Rig()
    rig.up()
    say = rig.frame
    say(frames.TurnStream(session_id=HOME, phase="live", text="thinking"))
    say(frames.TurnStream(session_id=HOME, phase="finalized", text=" … "))
    say(frames.TurnStream(session_id=HOME, phase="finalized", text="Done."))
    say(frames.ImageAttachment(session_id=HOME, source="plot", mime="image/png"), file_id="f1")
    say(frames.FileAttachment(session_id=HOME, name="a.txt", caption="log"), file_id="f2")
    say(frames.ActionNeeded(id=ActionId("i"), kind="idle", session_id=HOME))
    say(frames.ActionNeeded(id=ActionId("i"), kind="idle", session_id=HOME, summary="free"))
    say(frames.ActionUnavailable(id=ActionId("u"), session_id=HOME, reason="x"))
    say(frames.InboundAck(session_id=HOME, update_id=3, state="queued"))
    say(frames.ConfigUpdate(session_id=HOME, verbosity="lean"))
    say(frames.ConfigUpdate(session_id=HOME, redact=True))
    notices = [(row.kind, row.text, row.file_id) for row in rig.store.notices.values()]
    assert notices == [
        ("text", "Done.", None),
        ("image", "image from plot", "f1"),
        ("file", "log", "f2"),
        ("idle", "waiting for you", None),
        ("idle", "free", None),
        ("warning", "asks something that the hub cannot show: u", None),
    ]
    (view,) = rig.kernel.sessions()
    assert (view.activity, view.last_text) == ("idle", "Done.")
    say(frames.ToolActivity(session_id=HOME, tool_call_id="1", tool_name="bash", phase="start"))
    assert rig.kernel.sessions()[0].activity == "bash start"
    say(frames.ReasoningSummary(session_id=HOME, text="so"))
    assert rig.kernel.sessions()[0].activity == "so"
    say(frames.ActionNeeded(id=ActionId("z"), kind="other", session_id=HOME))
    say(frames.Pong(nonce="1"))
    assert [one.event for one in rig.of(Log)] == ["frame_ignored"] * 2


def test_frames_of_nobody_and_of_hosted_sessions_are_ignored() -> None:
    rig = Rig()
    assert rig.needs(session=SessionId("stranger")).writes == []
    rig.ask()
    hosted = rig.only().session_id
    rig.up(hosted)
    rig.needs(session=hosted)
    rig.sync(SessionId("stranger"))
    rig.down(SessionId("stranger"), gone=True)
    assert len(rig.store.asks) == 1
    assert [row.kind for row in rig.store.sessions.values()] == ["hosted"]


def test_an_sdk_ask_keeps_the_public_id_of_its_action() -> None:
    rig = Rig()
    rig.up()
    rig.needs(f"ask:{ask_id(5)}")
    assert rig.only().ask_id == ask_id(5)
    rig.up(SessionId("sess-2"))
    rig.needs(f"ask:{ask_id(5)}", session=SessionId("sess-2"))
    assert len(rig.store.asks) == 2
    rig.needs("q7", session=SessionId("sess-2"))
    assert len({row.ask_id for row in rig.store.asks.values()}) == 3


def test_a_kind_that_is_not_known_but_asks_is_an_ask() -> None:
    rig = Rig()
    rig.up()
    rig.frame(
        frames.ActionNeeded(id=ActionId("p"), kind="plan", session_id=HOME, question="Go?")
    )
    assert rig.only().spec.question == "Go?"


# --- answers -------------------------------------------------------------------------------


def test_an_answer_goes_by_exact_label_with_an_idempotency_key_and_closes_by_their_word() -> (
    None
):
    rig = Rig()
    rig.up()
    rig.needs()
    row = rig.only()
    receipt = rig.answer(row, indices=(1,))
    assert receipt is not None
    assert receipt.code == "claimed"
    (reply,) = rig.sent_frames()
    assert isinstance(reply, Reply)
    assert (reply.id, reply.answer, reply.decline) == ("q1", "no", False)
    assert reply.by == By(channel="web", name="ada")
    (claim,) = rig.store.claims.values()
    assert reply.idempotency_key == claim.key == f"upcall:{row.ask_id}:{claim.inbound}"
    rig.arrive_all()
    assert rig.only().state == "claimed"
    rig.resolved(resolved_by="client", answer="no")
    row = rig.only("closed")
    assert (row.outcome, row.answer) == ("answered", Selection((1,), ("no",)))
    assert row.answered_by == AnsweredBy("ada", "web")


def test_labels_that_are_not_unique_go_by_index() -> None:
    rig = Rig()
    rig.up()
    rig.needs(options=("same", "same"))
    rig.answer(rig.only(), indices=(1,))
    (reply,) = rig.sent_frames()
    assert reply.answer == 1
    receipt = rig.answer(rig.only(), typed=("same",))
    assert receipt is not None
    assert receipt.code == "already_answered"
    rig.resolved(resolved_by="client", answer=1)
    assert rig.only().answered_by == AnsweredBy("ada", "web")


def test_a_local_program_waits_for_the_sessions_word() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    assert rig.answer(rig.only(), who=LOCAL) is None
    number = rig.last_receipt
    rig.resolved(resolved_by="client", answer="yes")
    receipt = next(r.receipt for r in rig.of(Acknowledge) if r.receipt_id == number)
    assert receipt.ok
    assert receipt.result is not None
    assert receipt.result.outcome == "answered"
    by = rig.only().answered_by
    assert by == AnsweredBy("grace", "web", "pid 9")


@pytest.mark.parametrize(
    ("fields", "by"),
    [
        ({"resolved_by": "client", "answer": "no"}, AnsweredBy(None, "endpoint")),
        ({"resolved_by": "local", "answer": "yes"}, AnsweredBy(None, "endpoint")),
        (
            {
                "resolved_by": "local",
                "answer": "no",
                "by": By(channel="terminal", name="eve"),
            },
            AnsweredBy(None, "endpoint"),
        ),
        (
            {"resolved_by": "client", "answer": "no", "by": By(channel="web", name="ada")},
            AnsweredBy(None, "endpoint"),
        ),
    ],
)
def test_an_answer_that_was_not_ours_is_not_attributed_to_our_operator(
    fields: dict[str, Any], by: AnsweredBy
) -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only(), indices=(0,), who=LOCAL)
    number = rig.last_receipt
    rig.resolved(**fields)
    assert rig.only("closed").answered_by == by
    receipt = next(r.receipt for r in rig.of(Acknowledge) if r.receipt_id == number)
    if fields["answer"] == "no":
        assert (receipt.ok, receipt.code) == (False, "already_answered")
        assert receipt.msg.endswith("Your input was not used.")


def test_answers_that_fit_no_option_are_kept_as_words() -> None:
    rig = Rig()
    rig.up()
    answers = (7, "other", Choice(selected=("yes", 5), custom="x"), Choice(control_id="next"))
    for number, answer in enumerate(answers):
        rig.needs(f"q{number}")
        rig.resolved(f"q{number}", resolved_by="client", answer=answer)
    kept = [row.answer for row in rig.store.asks.values()]
    assert [one.text if one else None for one in kept] == ["7", "other", "yes, 5, x", "next"]


def test_a_timeout_while_claimed_is_timed_out_and_the_person_hears_that_it_was_late() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only(), who=LOCAL)
    number = rig.last_receipt
    rig.resolved(resolved_by="timeout")
    row = rig.only("closed")
    assert (row.outcome, row.answer, row.answered_by) == ("timed_out", None, None)
    assert row.note == "The answer came too late: the ask had timed out."
    receipt = next(r.receipt for r in rig.of(Acknowledge) if r.receipt_id == number)
    assert not receipt.ok
    assert "timed out" in receipt.msg


def test_no_time_out_gives_a_permission() -> None:
    rig = Rig()
    rig.up()
    rig.needs(ask_class="permission")
    rig.resolved(resolved_by="timeout", outcome="timed_out", answer="yes")
    row = rig.only("closed")
    assert (row.outcome, row.answer, row.answered_by) == ("timed_out", None, None)


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"resolved_by": "timeout"}, "timed_out"),
        ({"resolved_by": "local"}, "cancelled"),
        ({"resolved_by": "local", "outcome": "declined"}, "declined"),
        ({"resolved_by": "client", "outcome": "cancelled"}, "cancelled"),
    ],
)
def test_how_an_ask_ended_is_read_from_old_and_new_fields(
    fields: dict[str, Any], outcome: str
) -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.resolved(**fields)
    rig.resolved(resolved_by="client", answer="yes")
    rig.resolved("unknown", resolved_by="client", answer="yes")
    assert rig.only("closed").outcome == outcome


def test_a_decline_is_sent_only_to_sessions_that_understand_it() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    assert rig.kernel.open_asks()[0].can_decline
    rig.answer(rig.only(), decline=True)
    (reply,) = rig.sent_frames()
    assert (reply.decline, reply.answer) == (True, None)
    rig.resolved(resolved_by="client", outcome="declined")
    assert rig.only().answered_by == AnsweredBy("ada", "web")

    rig = Rig()
    rig.up(capabilities=("parallel_asks_v1",))
    rig.needs()
    view = rig.kernel.open_asks()[0]
    assert (view.can_decline, view.can_hold) == (False, False)
    for field in ("decline", "hold"):
        act: dict[str, Any] = {field: True}
        receipt = rig.answer(rig.only(), **act)
        assert receipt is not None
        assert (receipt.ok, receipt.code) == (False, "invalid_answer")
    assert rig.only().state == "open"


def test_a_hold_goes_to_the_session_and_its_word_is_shown() -> None:
    rig = Rig()
    rig.up()
    deadline_ms = rig.wall_ms + 60_000
    rig.needs(deadline_at=deadline_ms)
    assert rig.kernel.open_asks()[0].can_hold
    receipt = rig.answer(rig.only(), hold=True)
    assert receipt is not None
    assert receipt.code == "held"
    (hold,) = rig.sent_frames()
    assert (hold.id, hold.hold) == ("q1", True)
    assert not rig.kernel.open_asks()[0].held
    rig.needs(held=True)
    assert rig.kernel.open_asks()[0].held
    rig.needs(deadline_at=deadline_ms + 5)
    assert (rig.only().deadline_ms, rig.only().held_s) == (deadline_ms + 5, None)
    rig.wait(3600)
    assert rig.only().state == "open"


# --- rejections ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("invalid_answer", "The program did not accept this answer."),
        ("resolver_unavailable", "The program takes no answer to this right now."),
        ("unauthorized", "The program refused the hub's credentials."),
        ("something_new", "The program refused this answer."),
    ],
)
def test_a_refused_reply_opens_the_ask_again_and_says_why(reason: str, words: str) -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only(), who=LOCAL)
    number = rig.last_receipt
    rig.rejected(reason)
    row = rig.only("open")
    assert row.note == words
    assert rig.kernel.open_asks()[0].note == words
    receipt = next(r.receipt for r in rig.of(Acknowledge) if r.receipt_id == number)
    assert (receipt.ok, receipt.code, receipt.msg) == (False, reason, words)
    rig.arrive_all()
    rig.answer(row, indices=(1,))
    replies = [frame for frame in rig.sent_frames() if isinstance(frame, Reply)]
    assert len({reply.idempotency_key for reply in replies}) == 2
    rig.rejected(reason, "unknown")
    rig.resolved(resolved_by="client", answer="no")
    assert rig.only().outcome == "answered"
    rig.rejected(reason)
    assert rig.only().outcome == "answered"


@pytest.mark.parametrize("reason", ["already_answered", "idempotency_conflict"])
def test_a_reply_that_came_second_waits_for_who_won(reason: str) -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only())
    rig.rejected(reason)
    assert rig.only().state == "claimed"
    rig.resolved(resolved_by="client", answer="no")
    assert rig.only().answered_by == AnsweredBy(None, "endpoint")


def test_an_action_that_the_session_does_not_know_is_over() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only(), who=LOCAL)
    number = rig.last_receipt
    rig.rejected("unknown_action")
    assert rig.only("closed").outcome == "superseded"
    receipt = next(r.receipt for r in rig.of(Acknowledge) if r.receipt_id == number)
    assert (receipt.ok, receipt.code) == (False, "stale_card")


# --- links ---------------------------------------------------------------------------------


def test_a_changed_question_supersedes_and_answers_to_the_old_card_are_stale() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    old = rig.only()
    rig.needs()
    assert rig.only() == old
    rig.needs(question="Really go on?")
    new = rig.only("open")
    assert new.action_id == old.action_id
    closed = rig.only("closed")
    assert (closed.outcome, closed.note) == ("superseded", CHANGED)
    receipt = rig.answer(closed)
    assert receipt is not None
    assert (receipt.ok, receipt.code, receipt.msg) == (False, "stale_card", CHANGED)
    assert CHANGED == (
        "The program changed its question after this card was posted. Nothing was sent. "
        "New question below."
    )
    receipt = rig.answer(new, revision=old.revision)
    assert receipt is not None
    assert (receipt.code, receipt.msg) == ("stale_card", CHANGED)
    rig.resolved(resolved_by="client", answer="yes")
    row = rig.store.asks[new.ask_id]
    assert row.outcome == "answered"


def test_an_ask_that_was_over_for_the_hub_and_is_presented_again_is_a_new_ask() -> None:
    rig = Rig()
    rig.up(capabilities=PEER, sync=False)
    rig.needs()
    rig.down()
    rig.up(capabilities=PEER, sync=False)
    rig.wait(3)
    assert rig.only("closed").outcome == "superseded"
    rig.needs()
    assert rig.only("open").action_id == "q1"
    rig.resolved(resolved_by="client", answer="yes")
    assert sorted(row.outcome or "" for row in rig.store.asks.values()) == [
        "answered",
        "superseded",
    ]


def test_parallel_asks_stand_side_by_side_and_missing_ones_are_over_after_the_sync() -> None:
    rig = Rig()
    rig.up()
    rig.needs("q1")
    rig.needs("q2")
    assert len(rig.kernel.open_rows()) == 2
    rig.down()
    rig.wait(60)
    assert len(rig.kernel.open_rows()) == 2
    rig.up(sync=False)
    rig.needs("q2")
    rig.needs("q3")
    rig.wait(10)
    assert len(rig.kernel.open_rows()) == 3
    rig.sync()
    assert [row.action_id for row in rig.kernel.open_rows()] == ["q2", "q3"]
    gone = next(row for row in rig.store.asks.values() if row.action_id == "q1")
    assert (gone.outcome, gone.note) == ("superseded", "ended while the hub was away")
    rig.needs("q4")
    rig.sync()
    assert len(rig.kernel.open_rows()) == 3


def test_a_peer_presents_one_at_a_time_and_a_new_ask_supersedes_the_former() -> None:
    rig = Rig()
    rig.up(capabilities=PEER)
    assert rig.kernel.sessions()[0].kind == "peer"
    rig.needs("q1")
    rig.needs("q2")
    assert rig.only("open").action_id == "q2"
    assert rig.only("closed").note == "The program asked something else; nothing was sent."


def test_a_peers_missing_ask_is_over_two_seconds_after_the_connect() -> None:
    rig = Rig()
    rig.up(capabilities=PEER)
    rig.needs("q1")
    rig.down()
    rig.up(capabilities=PEER)
    rig.wait(1.9)
    assert rig.only().state == "open"
    rig.wait(0.2)
    assert rig.only().outcome == "superseded"


def test_a_peer_that_reconnects_again_gets_its_two_seconds_again() -> None:
    rig = Rig()
    rig.up(capabilities=PEER)
    rig.wait(5)
    rig.needs("q1")
    rig.down()
    rig.up(capabilities=PEER)
    rig.wait(1.5)
    rig.down()
    rig.up(capabilities=PEER)
    rig.wait(1)
    assert rig.only().state == "open"
    rig.needs("q1")
    rig.wait(5)
    assert rig.only().state == "open"
    rig.down()
    rig.wait(5)
    assert rig.only().state == "open"


def test_a_peer_that_goes_away_within_the_two_seconds_loses_nothing() -> None:
    rig = Rig()
    rig.up(capabilities=PEER)
    rig.wait(5)
    rig.needs("q1")
    rig.down()
    rig.up(capabilities=PEER)
    rig.down()
    rig.wait(5)
    assert rig.only().state == "open"


def test_a_claim_whose_reply_was_lost_is_sent_again_when_the_ask_is_presented_again() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.answer(rig.only())
    rig.arrive_all()
    rig.down()
    rig.up(sync=False)
    rig.needs()
    rig.sync()
    first, second = rig.sent_frames()
    assert first == second
    rig.resolved(resolved_by="client", answer="yes")
    assert rig.only().outcome == "answered"


def test_a_reply_that_still_waits_is_not_doubled_by_a_reconnect() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    rig.down()
    rig.answer(rig.only())
    (reply,) = rig.sending(HOME)
    rig.fail(reply, "not_sent")
    rig.up(sync=False)
    rig.needs()
    rig.sync()
    assert len(rig.sending(HOME)) == 1
    rig.arrive_all()
    assert [row.kind for row in rig.store.deliveries.values() if row.target == HOME] == [
        "reply"
    ]


@pytest.mark.parametrize("how", ["down", "session_closed"])
def test_the_asks_of_a_program_that_ended_are_unreachable(how: str) -> None:
    rig = Rig()
    rig.up()
    rig.needs("q1")
    rig.needs("q2")
    first = rig.kernel.open_rows()[0]
    rig.answer(first)
    if how == "down":
        rig.down(gone=True)
    else:
        rig.frame(frames.SessionClosed(session_id=HOME))
    notes = {row.action_id: row.note for row in rig.store.asks.values()}
    assert {row.outcome for row in rig.store.asks.values()} == {"unreachable"}
    assert notes == {
        first.action_id: "The program stopped before it took the answer. "
        "Nothing was run by this answer.",
        ("q2" if first.action_id == "q1" else "q1"): (
            "The program that asked has ended. Nothing was answered."
        ),
    }
    assert rig.kernel.sessions() == []
    assert rig.sending(HOME, "reply")
    rig.arrive_all()
    rig.needs("q3")
    assert rig.kernel.open_rows() == []
    rig.up()
    assert rig.kernel.sessions()[0].state == "attached"


def test_programs_on_the_socket_may_watch_a_sessions_ask_but_not_end_it() -> None:
    rig = Rig()
    rig.up()
    spec = AskSpec(question="Go on?", options=("yes", "no"), free_text=True)
    rig.needs(f"ask:{ask_id(1)}")
    waiter = rig.ask(1, spec)
    assert rig.response(waiter).error is None
    rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(1)))
    assert rig.error(90) == "not_permitted"
    assert rig.error(rig.took(local=True, indices=(0,))) == "not_permitted"
    rig.ask(1, spec, wait=False)
    rig.answer(1)
    assert rig.told(waiter) == []
    rig.took()
    assert rig.only().state == "claimed"
    rig.do(WaiterGone(at=rig.now, waiters=(waiter,)))
    other = rig.ask(1, spec, who=asker(300))
    rig.resolved(f"ask:{ask_id(1)}", resolved_by="client", answer="yes")
    assert rig.told(other)[0]["result"]["outcome"] == "answered"


# --- messages ------------------------------------------------------------------------------


def test_a_message_goes_to_an_attached_session_under_its_inbound_number() -> None:
    rig = Rig()
    rig.up()
    receipt = rig.act(
        Texted(key="m1", who=Who("x", "ad\udcffa"), text="Hello", session_id=HOME)
    )
    assert receipt is not None
    assert (receipt.ok, receipt.code) == (True, "queued")
    (message,) = rig.sent_frames()
    assert (message.text, message.update_id) == ("Hello", 1)
    assert message.by == By(channel="web", name="ad�a")
    again = rig.act(Texted(key="m1", who=Who("x"), text="Hello", session_id=HOME))
    assert again == receipt
    assert len(rig.sent_frames()) == 1


@pytest.mark.parametrize(
    ("text", "session", "code"),
    [
        ("Hello", "nobody", "session_gone"),
        ("Hello", None, "session_gone"),
        ("  ", HOME, "invalid_text"),
        ("x" * 65_537, HOME, "invalid_text"),
        ("a\ud800", HOME, "invalid_text"),
    ],
)
def test_messages_that_cannot_be_sent_are_refused(
    text: str, session: str | None, code: str
) -> None:
    rig = Rig()
    rig.up()
    receipt = rig.act(Texted(key="m", who=Who("x"), text=text, session_id=session))
    assert receipt is not None
    assert (receipt.ok, receipt.code) == (False, code)
    assert rig.sent_frames() == []


def test_hosted_and_absent_sessions_take_no_messages() -> None:
    rig = Rig(operators={("web", "ada"): "ada"})
    rig.ask()
    hosted = rig.only().session_id
    who = Who("ada")
    receipt = rig.act(Texted(key="m", who=who, text="Hi", session_id=hosted))
    assert receipt is not None
    assert receipt.code == "session_gone"
    rig.up()
    rig.down()
    receipt = rig.act(Texted(key="m", who=who, text="Hi", session_id=HOME))
    assert receipt is not None
    assert receipt.code == "session_gone"
    receipt = rig.act(Texted(key="m", who=Who("eve"), text="Hi", session_id=HOME))
    assert receipt is not None
    assert receipt.code == "not_permitted"


def test_a_message_that_never_arrived_is_told_when_the_session_ends() -> None:
    rig = Rig()
    rig.up()
    for key in ("m1", "m2"):
        rig.act(Texted(key=key, who=Who("x"), text="Hello", session_id=HOME))
    (first,) = rig.sending(HOME)
    rig.down()
    rig.fail(first, "not_sent")
    rig.down(gone=True)
    assert [row.state for row in rig.store.deliveries.values()] == ["dead", "dead"]
    texts = [row.text for row in rig.store.notices.values()]
    assert texts == ["A message was not delivered: the session has ended."] * 2
    assert rig.kernel.waiting_deliveries() == 0


def test_a_message_on_its_way_when_the_session_ends_is_given_up_when_it_fails() -> None:
    rig = Rig()
    rig.up()
    rig.act(Texted(key="m1", who=Who("x"), text="Hello", session_id=HOME))
    (first,) = rig.sending(HOME)
    rig.down(gone=True)
    rig.fail(first, "uncertain")
    assert rig.kernel.waiting_deliveries() == 0


def test_a_message_that_an_attached_session_never_takes_does_not_block_it_for_ever() -> None:
    rig = Rig()
    rig.up()
    rig.act(Texted(key="m1", who=Who("x"), text="Hello", session_id=HOME))
    rig.act(Texted(key="m2", who=Who("x"), text="World", session_id=HOME))
    for _ in range(12):
        (first,) = rig.sending(HOME)
        rig.fail(first, "not_sent")
        rig.wait(301)
    assert [row.state for row in rig.store.deliveries.values()] == ["dead", "sending"]


def test_names_of_sessions_are_kept_as_text_and_cut() -> None:
    rig = Rig()
    rig.up()
    rig.frame(
        frames.IdentityHeader(
            session_id=HOME, repo="r" * 5000, branch="", machine="", title=None
        )
    )
    again = frames.IdentityHeader(session_id=HOME, repo="r" * 1000, branch="", machine="")
    assert rig.frame(again).writes == []
    view = rig.kernel.sessions()[0]
    assert view.repo == "r" * 1000
    assert view.machine == "box"
    rig.do(
        LinkUp(
            at=rig.now,
            session_id=SessionId("s2"),
            pid=1,
            pid_start="x",
            record_path="/r\udcff",
            program=None,
            cwd="/c\udcff",
            capabilities=PARALLEL,
        )
    )
    view = rig.kernel.sessions()[1]
    assert (view.cwd, view.record_path) == ("/c�", "/r�")
