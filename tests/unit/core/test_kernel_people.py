"""People on channels, local programs, and clients of hosted endpoints."""

from typing import Any

import pytest

from fakes.kernel_rig import ADA, HOME, YES_NO, Rig, ask_id, asker, channel
from upcall.core.policy import NO_TERMINAL_RECOVER, NO_TERMINAL_WORDS, SELF_ANSWER_WORDS
from upcall.model import frames
from upcall.model.ask import AnsweredBy, AskSpec, Selection
from upcall.model.effects import Acknowledge, Log
from upcall.model.events import CancelAsked, HostedReply, PersonActed, WaiterGone
from upcall.model.frames import ActionNeeded, ActionResolved, AskHold, Choice, ReplyRejected
from upcall.model.ids import ActionId
from upcall.model.platform import (
    Answered,
    LoginKept,
    Receipt,
    SettingKept,
    Who,
)
from upcall.model.struct import replaced

PERMISSION = replaced(YES_NO, ask_class="permission")
MULTI = AskSpec(question="Which?", options=("A", "b", "C"), multi=True, free_text=False)


def local(*, tty: str | None = "/dev/pts/2", ancestors: tuple[str, ...] = ()) -> Who:
    return Who("1000", "grace", "pid 9, bash", ancestors=ancestors, tty=tty, local=True)


def refused(receipt: Receipt | None) -> str:
    assert receipt is not None
    assert not receipt.ok
    return receipt.code


# --- answering -----------------------------------------------------------------------------


def test_only_the_first_answer_counts_and_the_next_hears_what_won() -> None:
    rig = Rig()
    rig.ask()
    rig.answer(indices=(0,))
    rig.wait(3)
    receipt = rig.answer(indices=(1,), who=Who("bob", "bob"))
    assert receipt is not None
    assert refused(receipt) == "already_answered"
    assert receipt.msg == 'ada answered "yes" on web 3 s ago. Your input was not used.'
    assert receipt.result is not None
    assert receipt.result.outcome == "open"
    rig.took()
    receipt = rig.answer(indices=(1,))
    assert receipt is not None
    assert refused(receipt) == "already_answered"
    assert receipt.result is not None
    assert receipt.result.outcome == "answered"
    assert len(rig.store.claims) == 1


def test_a_second_answer_after_a_decline_hears_of_the_decline() -> None:
    rig = Rig()
    rig.ask()
    rig.answer(decline=True)
    receipt = rig.answer()
    assert receipt is not None
    assert receipt.msg.startswith("ada declined on web 0.0 s ago.")
    rig.took()
    receipt = rig.answer()
    assert receipt is not None
    assert receipt.msg.startswith("ada on web declined 0.0 s ago.")


@pytest.mark.parametrize(
    ("spec", "fields", "expected"),
    [
        (YES_NO, {"indices": (1,)}, Selection((1,), ("no",))),
        (YES_NO, {"text": "NO "}, Selection((1,), ("no",))),
        (YES_NO, {"typed": ("no",)}, Selection((1,), ("no",))),
        (YES_NO, {"typed": ("#2",)}, Selection((1,), ("no",))),
        (YES_NO, {"typed": (" YES",)}, Selection((0,), ("yes",))),
        (MULTI, {"indices": (2, 0)}, Selection((0, 2), ("A", "C"))),
        (MULTI, {"indices": (1,)}, Selection((1,), ("b",))),
        (MULTI, {"typed": ("c", "#1")}, Selection((0, 2), ("A", "C"))),
        (
            replaced(MULTI, free_text=True),
            {"typed": ("b", "and more")},
            Selection((1,), ("b",), "and more"),
        ),
        (
            replaced(MULTI, free_text=True),
            {"indices": (0,), "text": "and more"},
            Selection((0,), ("A",), "and more"),
        ),
        (AskSpec(question="Why?"), {"typed": ("#1",)}, None),
        (AskSpec(question="Why?"), {"typed": ("# 1 reason",)}, Selection(text="# 1 reason")),
        (AskSpec(question="Why?"), {"text": "So."}, Selection(text="So.")),
        (
            AskSpec(question="Which?", options=("#2", "x"), free_text=False),
            {"typed": ("#2",)},
            Selection((0,), ("#2",)),
        ),
        (
            AskSpec(question="Which?", options=("5", "x"), free_text=False),
            {"typed": ("5",)},
            Selection((0,), ("5",)),
        ),
        (YES_NO, {"indices": (0, 1)}, None),
        (YES_NO, {"indices": ()}, None),
        (YES_NO, {"indices": (2,)}, None),
        (YES_NO, {"indices": (0,), "text": "words"}, None),
        (YES_NO, {"text": "maybe"}, None),
        (YES_NO, {"text": ""}, None),
        (YES_NO, {"typed": ("yes", "no")}, None),
        (YES_NO, {"typed": ("#3",)}, None),
        (YES_NO, {"typed": ("#0",)}, None),
        (YES_NO, {"typed": ("#²",)}, None),
        (MULTI, {"typed": ("x", "y")}, None),
        (MULTI, {"typed": ("x",)}, None),
        (AskSpec(question="W?", options=("a", "A"), free_text=False), {"typed": (" a",)}, None),
    ],
)
def test_what_an_act_selects(
    spec: AskSpec, fields: dict[str, Any], expected: Selection | None
) -> None:
    rig = Rig()
    rig.ask(spec=spec, wait=False)
    receipt = rig.answer(**fields)
    assert receipt is not None
    if expected is None:
        assert refused(receipt) == "invalid_answer"
        assert receipt.msg
        assert rig.only().state == "open"
    else:
        assert rig.only().answer == expected


def test_an_unknown_ask_and_one_of_an_earlier_hub() -> None:
    rig = Rig()
    act = Answered(key="k", ask="a\u202e", revision=None, who=ADA, indices=(0,))
    receipt = rig.act(act)
    assert receipt is not None
    assert (receipt.code, receipt.msg) == ("unknown_ask", "No ask a\\u202e.")
    rig.ask()
    rig.do(CancelAsked(at=rig.now, waiter=90, ask_id=ask_id(1)))
    rig.arrive_all()
    old = rig.only()
    rig.restart()
    rig.wait(60)
    receipt = rig.act(replaced(act, ask=ask_id(1)), found=old)
    assert receipt is not None
    assert receipt.code == "already_answered"
    assert receipt.msg == (
        "The program withdrew its question 1 min 1 s ago. Your input was not used."
    )


def test_an_answer_without_a_revision_is_for_what_stands() -> None:
    rig = Rig()
    rig.ask(wait=False)
    assert rig.answer(revision=None) is not None
    assert rig.only().outcome == "answered"


def test_the_same_act_twice_has_one_effect_also_after_a_restart() -> None:
    rig = Rig(channel("web"), channel("phone"))
    rig.ask()
    first = rig.answer(key="tap")
    again = rig.answer(key="tap", indices=(1,))
    assert first == again
    other = rig.answer(key="tap", on="phone")
    assert refused(other) == "already_answered"
    rig.restart()
    receipt = rig.answer(key="tap", indices=(1,))
    assert receipt is not None
    assert (receipt.ok, receipt.code) == (True, "claimed")
    assert len(rig.store.inbound) == 1


def test_what_was_refused_may_be_tried_again_under_its_key() -> None:
    rig = Rig()
    rig.ask()
    assert refused(rig.answer(key="tap", indices=(9,))) == "invalid_answer"
    receipt = rig.answer(key="tap", indices=(0,))
    assert receipt is not None
    assert receipt.ok


def test_nobody_is_told_who_did_not_ask_to_be() -> None:
    rig = Rig()
    rig.ask()
    act = Answered(key="k", ask=ask_id(1), revision=None, who=local(), indices=(0,))
    decision = rig.do(PersonActed(at=rig.now, channel="web", inbound=act))
    assert [one for one in decision.releases if isinstance(one, Acknowledge)] == []
    assert rig.only().state == "claimed"


def test_the_answer_itself_is_not_kept_beside_the_inbound_key() -> None:
    rig = Rig()
    rig.ask(spec=AskSpec(question="Password?"))
    rig.answer(text="hunter2hunter2")
    (inbound,) = rig.store.inbound.values()
    assert "hunter2" not in inbound.content_key


# --- who may answer ------------------------------------------------------------------------


def test_the_operators_table_decides_who_is_who() -> None:
    table = {("web", "ada"): "Ada L.", ("local", "1000"): "Grace"}
    rig = Rig(operators=table)
    for number in (1, 2, 3):
        rig.ask(number, wait=False)
    receipt = rig.answer(1, who=Who("eve", "ada"))
    assert receipt is not None
    assert (receipt.code, receipt.msg) == (
        "not_permitted",
        "You can read this conversation but not answer in it.",
    )
    assert receipt.result is None
    rig.answer(2)
    rig.answer(3, who=local(), on="terminal")
    rows = [rig.row(2), rig.row(3)]
    assert [row.answered_by for row in rows if row] == [
        AnsweredBy("Ada L.", "web"),
        # A program of her user is not Grace: its user is all that is known.
        AnsweredBy("grace", "terminal", "pid 9, bash"),
    ]


def test_without_a_table_there_is_one_operator() -> None:
    rig = Rig()
    rig.ask(wait=False)
    rig.answer(who=Who("whoever"))
    assert rig.only().answered_by == AnsweredBy("grace", "web")


@pytest.mark.parametrize(
    ("policy", "who", "code"),
    [
        ("tty", local(), None),
        ("tty", local(tty=None), "self_answer"),
        ("tty", local(ancestors=("9:s9", "100:s100", "1:i")), "self_answer"),
        ("tty", local(ancestors=("9:s9", "100:later", "1:i")), None),
        ("any", local(tty=None, ancestors=("100:s100",)), None),
        ("off", local(), "not_permitted"),
        ("off", ADA, None),
    ],
)
def test_local_answers_to_permission_asks(policy: str, who: Who, code: str | None) -> None:
    rig = Rig(local_answers=policy)
    rig.ask(spec=PERMISSION)
    receipt = rig.answer(who=who)
    if code is None:
        assert rig.only().state == "claimed"
        return
    assert receipt is not None
    assert refused(receipt) == code
    assert rig.only().state == "open"
    (notice,) = rig.store.notices.values()
    assert notice.kind == "security"
    assert notice.text == f"An answer to {ask_id(1)} from pid 9, bash was refused ({code})."
    assert [line.event for line in rig.store.audit][-1] == "refused"
    if code == "self_answer" and who.tty is not None:
        assert (receipt.msg, receipt.recover) == (SELF_ANSWER_WORDS, None)
    elif code == "self_answer":
        assert (receipt.msg, receipt.recover) == (NO_TERMINAL_WORDS, NO_TERMINAL_RECOVER)
    refused(rig.answer(who=who, hold=True))


def test_what_started_the_asker_counts_as_the_asker_also_after_a_restart() -> None:
    rig = Rig()
    rig.ask(spec=PERMISSION, who=replaced(asker(100), chain=("100:s100", "90:host")))
    rig.restart()
    receipt = rig.answer(who=local(ancestors=("9:s9", "90:host", "1:i")))
    assert refused(receipt) == "self_answer"
    rig.answer(who=local(ancestors=("9:s9", "90:later", "1:i")))
    assert rig.only().state == "claimed"


def test_a_program_that_tries_for_ever_is_told_of_a_few_times() -> None:
    rig = Rig()
    rig.ask(spec=PERMISSION)
    rig.arrive_all()
    for _ in range(10_000):
        refused(rig.answer(who=local(tty=None)))
        rig.arrive_all()
    texts = [notice.text for notice in rig.store.notices.values()]
    assert texts[0] == f"An answer to {ask_id(1)} from pid 9, bash was refused (self_answer)."
    assert texts[-1] == (
        f"10000 answers to {ask_id(1)} were refused, the last from pid 9, bash (self_answer)."
    )
    assert len(texts) == 5
    assert [line.event for line in rig.store.audit].count("refused") == 5
    assert len(rig.store.inbound) == 0
    (shown,) = rig.kernel.open_asks()
    assert shown.note == "Refused: 10000 answers, the last from pid 9, bash."
    rig.answer()
    rig.took()
    assert rig.only().note == ""


def test_the_words_of_a_self_answer() -> None:
    assert SELF_ANSWER_WORDS == (
        "This answer comes from inside the program that asked. "
        "Answer from another terminal, the inbox or your phone."
    )


def test_questions_may_be_answered_from_anywhere() -> None:
    rig = Rig()
    rig.ask()
    rig.answer(who=local(tty=None, ancestors=("100:s100",)))
    assert rig.only().state == "claimed"


def test_a_session_does_not_answer_its_own_permission_ask() -> None:
    rig = Rig()
    rig.up()
    rig.needs(ask_class="permission")
    receipt = rig.answer(rig.only(), who=local(ancestors=("9:s9", "50:s50")))
    assert refused(receipt) == "self_answer"
    assert rig.only().spec.ask_class == "permission"


# --- buttons -------------------------------------------------------------------------------


def press(rig: Rig, token: str, key: str = "p1", on: str = "chat") -> Receipt | None:
    return rig.press(token, key=key, on=on)


def tokens(rig: Rig) -> dict[str, str]:
    return {row.choice: row.token for row in rig.store.tokens.values()}


def test_a_press_answers_the_card_and_a_late_one_hears_what_won() -> None:
    rig = Rig(channel("chat", buttons=10), channel("other"))
    rig.ask()
    minted = tokens(rig)
    assert sorted(minted) == ["0", "1", "decline", "done", "hold"]
    assert refused(press(rig, minted["1"], on="other")) == "wrong_place"
    assert refused(press(rig, "nonsense")) == "unknown_button"
    receipt = press(rig, minted["1"])
    assert receipt is not None
    assert receipt.ok
    rig.took()
    assert rig.only().answer == Selection((1,), ("no",))
    assert rig.store.tokens == {}
    receipt = press(rig, minted["0"], key="p2")
    assert receipt is not None
    assert refused(receipt) == "already_answered"
    assert receipt.msg.startswith('ada answered "no" on chat')


def test_buttons_survive_a_restart() -> None:
    rig = Rig(channel("chat", buttons=10))
    rig.ask(wait=False)
    minted = tokens(rig)
    rig.arrive_all()
    rig.restart()
    press(rig, minted["decline"])
    assert rig.only().outcome == "declined"


def test_the_hold_button_stops_and_starts_the_clock() -> None:
    rig = Rig(channel("chat", buttons=10))
    rig.ask(timeout_s=60.0)
    minted = tokens(rig)
    press(rig, minted["hold"], key="p1")
    assert rig.only().held_s == 60
    press(rig, minted["hold"], key="p2")
    assert rig.only().held_s is None
    rig.wait(61)
    assert refused(press(rig, minted["hold"], key="p3")) == "already_answered"


# --- what adapters keep --------------------------------------------------------------------


def test_settings_and_logins_are_kept() -> None:
    rig = Rig()
    assert rig.act(SettingKept("cursor", "7")) == Receipt(ok=True)
    assert rig.kernel.kept("web") == {"cursor": "7"}
    assert rig.kernel.kept("chat") == {}
    rig.restart()
    assert rig.kernel.kept("web") == {"cursor": "7"}
    rig.act(SettingKept("cursor", None))
    assert rig.kernel.kept("web") == {}
    login = LoginKept(digest="d", kind="login")
    assert rig.act(login) == Receipt(ok=True)
    assert rig.store.logins == {("web", "d"): login}


# --- clients of hosted endpoints -----------------------------------------------------------


def clients(rig: Rig) -> list[tuple[str | None, object]]:
    """Return what clients were told but the asks themselves."""
    return [(to, one) for to, one in rig.to_clients() if not isinstance(one, ActionNeeded)]


def reasons(rig: Rig) -> list[tuple[str | None, str]]:
    return [(to, one.reason) for to, one in clients(rig) if isinstance(one, ReplyRejected)]


@pytest.mark.parametrize("answer", [0, "yes", "YES", Choice(selected=(0,))])
def test_a_client_answers_for_nobody_we_know(answer: object) -> None:
    rig = Rig()
    waiter = rig.ask()
    rig.reply(answer=answer)
    assert rig.told(waiter)[0]["result"]["answered_by"] == {"name": None, "channel": "endpoint"}
    rig.took()
    assert rig.only().answer == Selection((0,), ("yes",))
    assert rig.only().answered_by == AnsweredBy(None, "endpoint")
    (told,) = clients(rig)
    assert told[0] is None
    assert isinstance(told[1], ActionResolved)
    assert told[1].resolved_by == "client"


def test_a_client_may_decline() -> None:
    rig = Rig()
    rig.ask(wait=False)
    rig.reply(decline=True)
    assert rig.only().outcome == "declined"


def test_an_answer_that_does_not_fit_consumes_nothing() -> None:
    rig = Rig()
    rig.ask(wait=False)
    rig.reply(answer=7)
    rig.reply(answer="maybe")
    assert reasons(rig) == [("c1", "invalid_answer")] * 2
    rig.reply(answer=1)
    assert rig.only().outcome == "answered"


def test_an_unknown_action_is_rejected() -> None:
    rig = Rig()
    rig.reply(7, answer=0)
    assert reasons(rig) == [("c1", "unknown_action")]


def test_permission_asks_take_no_direct_clients_unless_that_is_set() -> None:
    rig = Rig()
    rig.ask(spec=PERMISSION)
    rig.reply(answer=0)
    assert reasons(rig) == [("c1", "resolver_unavailable")]
    assert rig.only().state == "open"
    # Operators hear of it, as of every local answer that is not believed.
    words = "another program on this computer, connected to the session itself"
    assert rig.only().note == f"Refused: an answer from {words}."
    assert len(rig.store.notices) == 1
    rig.answer()
    rig.reply(answer=1)
    assert reasons(rig)[-1] == ("c1", "resolver_unavailable")
    assert len(rig.store.notices) == 1
    rig = Rig(allow_direct_clients=True)
    rig.ask(spec=PERMISSION, wait=False)
    rig.reply(answer=0)
    assert rig.only().outcome == "answered"


def test_while_an_answer_is_on_its_way_repeats_are_silent_and_others_too_late() -> None:
    rig = Rig()
    rig.ask()
    rig.reply(answer=0, key="k", connection="c1")
    rig.reply(answer="yes", key="k", connection="c2")
    assert reasons(rig) == []
    rig.reply(answer=1, key="k")
    rig.reply(answer=0, key="other")
    rig.reply(answer=0, connection="c3")
    assert [reason for _, reason in reasons(rig)] == [
        "idempotency_conflict",
        "already_answered",
        "already_answered",
    ]
    assert len(rig.store.claims) == 1


def test_without_a_key_a_second_answer_of_a_connection_is_too_late() -> None:
    rig = Rig()
    rig.ask()
    rig.reply(answer=0)
    rig.reply(answer=0)
    rig.reply(answer=1)
    assert reasons(rig) == [("c1", "already_answered")]


def test_after_the_end_the_winner_is_acknowledged_again_and_others_rejected() -> None:
    rig = Rig()
    rig.ask()
    rig.reply(answer=0, key="k")
    rig.took()
    before = clients(rig)
    rig.reply(answer="yes", key="k", connection="c2")
    rig.reply(answer=1, key="k")
    rig.reply(answer=9, key="k")
    rig.reply(answer=0, key="x")
    rig.reply(answer=0)
    rig.reply(decline=True, key="k")
    told = clients(rig)[len(before) :]
    assert told[0][0] == "c2"
    assert isinstance(told[0][1], ActionResolved)
    assert told[0][1].outcome == "answered"
    assert [one.reason for _, one in told[1:] if isinstance(one, ReplyRejected)] == [
        "idempotency_conflict",
        "idempotency_conflict",
        "already_answered",
        "already_answered",
        "idempotency_conflict",
    ]


def test_a_claim_that_lost_is_not_acknowledged_again() -> None:
    rig = Rig()
    waiter = rig.ask()
    rig.reply(answer=0, key="k")
    rig.do(WaiterGone(at=rig.now, waiters=(waiter,)))
    rig.reply(answer=0, key="k")
    assert reasons(rig) == [("c1", "already_answered")]


def test_a_client_may_hold_the_clock_and_hears_the_ask_anew() -> None:
    rig = Rig()
    rig.ask(timeout_s=60.0)
    row = rig.only()

    def hold(on: bool, action: ActionId = row.action_id) -> None:
        frame = AskHold(id=action, token="t", hold=on)
        rig.do(HostedReply(at=rig.now, session_id=row.session_id, connection="c1", frame=frame))

    hold(True)
    hold(True)
    hold(True, ActionId("nothing"))
    shown = [(to, one.held) for to, one in rig.to_clients() if isinstance(one, ActionNeeded)]
    assert shown == [(None, False), (None, True), ("c1", True)]
    rig.answer()
    hold(False)
    assert rig.only().held_s is not None


def test_other_frames_of_clients_are_logged_and_ignored() -> None:
    rig = Rig()
    rig.ask()
    frame = frames.UserMessage(session_id=HOME, text="x", token="t")
    rig.do(
        HostedReply(at=rig.now, session_id=rig.only().session_id, connection="c", frame=frame)
    )
    assert [one.event for one in rig.of(Log)] == ["frame_ignored"]


def test_late_clients_are_shown_what_is_open_and_what_ended() -> None:
    rig = Rig()
    rig.ask(1)
    rig.ask(2, wait=False)
    session = rig.kernel.open_rows()[0].session_id
    rig.reply(2, answer=1)
    assert [frame.id for frame in rig.kernel.hosted_asks(session)] == [f"ask:{ask_id(1)}"]
    (ended,) = rig.kernel.hosted_resolutions(session)
    assert (ended.id, ended.answer) == (f"ask:{ask_id(2)}", "no")
    assert ended.by is not None
    assert (ended.by.channel, ended.by.name) == ("endpoint", None)


# --- the same act again ----------------------------------------------------------------------


def again(rig: Rig, **fields: Any) -> Receipt:
    """Repeat the act with the key `same`."""
    receipt = rig.answer(key="same", **fields)
    assert receipt is not None
    return receipt


def test_an_act_repeated_by_its_key_hears_what_has_become_of_it() -> None:
    rig = Rig()
    rig.ask()
    assert again(rig, indices=(0,)).code == "claimed"
    assert again(rig, indices=(0,)).code == "claimed"
    rig.took()
    late = again(rig, indices=(0,))
    assert (late.ok, late.code) == (True, "ok")
    assert late.result is not None
    assert (late.result.outcome, late.result.answer) == ("answered", Selection((0,), ("yes",)))
    for other in ({"indices": (1,)}, {"indices": (99,)}, {"decline": True}):
        assert refused(again(rig, **other)) == "already_answered"
    assert again(rig, hold=True).code == "claimed"
    assert len(rig.store.claims) == 1


def test_a_repeated_decline_hears_that_it_was_taken() -> None:
    rig = Rig()
    rig.ask()
    again(rig, decline=True)
    rig.took()
    assert again(rig, decline=True).code == "ok"


def test_an_act_that_the_program_did_not_take_says_so_when_repeated() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    row = rig.only()
    first = rig.answer(row, key="same")
    assert first is not None
    rig.arrive_all()
    rig.rejected("invalid_answer")
    repeated = rig.answer(rig.only(), key="same")
    assert refused(repeated) == "not_taken"
    rig.answer(rig.only(), key="another", indices=(1,), on="web")
    rig.arrive_all()
    rig.resolved(resolved_by="client", answer="no")
    assert refused(rig.answer(row, key="same")) == "already_answered"


def test_a_repeated_act_whose_ask_ended_without_an_answer_says_so() -> None:
    rig = Rig()
    rig.up()
    rig.needs()
    row = rig.only()
    rig.answer(row, key="same")
    rig.arrive_all()
    rig.resolved(resolved_by="timeout")
    assert refused(rig.answer(row, key="same")) == "already_answered"


def test_a_repeated_act_about_an_ask_that_is_forgotten_is_no_fault() -> None:
    rig = Rig()
    rig.ask()
    rig.answer(key="same")
    receipt = rig.act(Answered(key="same", ask="a0", revision="", who=ADA, indices=(0,)))
    assert receipt is not None
    assert receipt.ok
