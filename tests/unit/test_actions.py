"""Which asks may be raised, what answers mean, and that the first valid one counts."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from upcall.core import actions
from upcall.core.actions import (
    ActionBook,
    InvalidAnswer,
    Rejected,
    Repeated,
    Taken,
    check_ask,
    frame_of,
    read_answer,
    revision_of,
    spec_of,
    wire_answer,
)
from upcall.model.ask import AskSpec, Selection
from upcall.model.errors import AmbiguousLabels, InvalidAsk, UpcallError
from upcall.model.frames import (
    ActionNeeded,
    Answer,
    By,
    Choice,
    Reply,
    decode,
    encode,
)
from upcall.model.ids import ActionId, ConnectionId, ReplyKey
from upcall.model.limits import MAX_OUTBOUND_BYTES

VECTORS = json.loads(
    (Path(__file__).parents[1] / "golden/frames.json").read_text(encoding="utf-8")
)["answers"]
C = ConnectionId("connection:1")
A = ActionId("ask:1")


def closed(*options: str, **fields: Any) -> AskSpec:
    return AskSpec("Deploy?", options or ("Yes", "No"), free_text=False, **fields)


# --- Bounds --------------------------------------------------------------------------------

REFUSED: list[tuple[AskSpec, str]] = [
    (AskSpec(""), "question"),
    (AskSpec(" \n"), "question"),
    (AskSpec("x" * 8193), "question: has 8193 characters; the limit is 8192"),
    (AskSpec("x" * 100_000), "100000"),
    (AskSpec("a\0b"), "U+0000"),
    (AskSpec("a\ud800"), "U+D800"),
    (AskSpec("?", detail="\udfff"), "detail"),
    (AskSpec("?", detail="é" * 131_073), "detail: has 262146 bytes; the limit is 262144"),
    (AskSpec("?", detail="\x01" * 200_000), "control characters"),
    (AskSpec("?", free_text=False), "no answer would fit"),
    (closed(*[f"o{i}" for i in range(101)]), "options: there are 101; the limit is 100"),
    (closed("x" * 201), "option 1: has 201 characters; the limit is 200"),
    (closed("a", "b\ud800"), "option 2"),
    (closed("a\nb"), "more than one line"),
    (closed("a\n"), "more than one line"),
    (closed("a\u2028b"), "more than one line"),
    (closed("a\rb"), "more than one line"),
    (closed(""), "shows nothing"),
    (closed("\u200b \u2800"), "U+200B U+0020 U+2800"),
    (closed(option_details=("x",)), "option_details: there are 1 for 2 options"),
    (closed(option_details=("x", "\0")), "detail"),
    (closed(min_selected=1), "only an ask with multi"),
    (closed(max_selected=1), "only an ask with multi"),
    (closed(multi=True, min_selected=3), "min_selected: 3"),
    (closed(multi=True, max_selected=0), "max_selected: 0"),
    (closed(multi=True, min_selected=2, max_selected=1), "more than max_selected"),
    (AskSpec("?", multi=True), "multi: needs options"),
    (closed(recommended=2), "recommended: 2"),
    (closed(recommended=-1), "recommended: -1"),
    (closed(default="Maybe"), "default: 'Maybe' is not an answer"),
    (closed(multi=True, min_selected=2, default="Yes"), "default"),
    (closed(default="Yes", ask_class="permission"), "default: a permission"),
    (AskSpec("?", default="x" * 65_537), "default: has 65537"),
    (AskSpec("?", default=" "), "default"),
]


@pytest.mark.parametrize(("spec", "words"), REFUSED)
def test_refuses_an_ask_out_of_bounds_and_names_what(spec: AskSpec, words: str) -> None:
    with pytest.raises(InvalidAsk) as refused:
        check_ask(spec)
    assert words in str(refused.value)
    assert refused.value.code == "invalid_ask"


@pytest.mark.parametrize(
    ("labels", "differ"),
    [
        (("Yes", "Yes"), ["are the same label"]),
        (("Yes", "yes"), ["'Yes' and 'yes' are the same label"]),
        (("Yes", " YES "), ["are the same label"]),
        (("Yes", "Y\u200bes"), ["no U+200B", "is U+200B"]),
        (("Yes", "Y\u0435s"), ["U+0065", "U+0435"]),
        (("Yes", "Ｙｅｓ"), ["U+0059", "U+FF39"]),
        (("No", "N o"), ["no U+0020", "is U+0020"]),
        (("straße", "STRASSE"), ["U+0073", "U+0053"]),
        (("a", "b", "\u202ea"), ["no U+202E", "is U+202E"]),
        (("m", "rn"), ["U+006D", "U+0072"]),
        (("10", "1O"), ["U+0030", "U+004F"]),
    ],
)
def test_refuses_labels_that_look_alike_and_says_where_they_differ(
    labels: tuple[str, ...], differ: list[str]
) -> None:
    with pytest.raises(AmbiguousLabels) as refused:
        check_ask(closed(*labels))
    for words in differ:
        assert words in str(refused.value)
    assert "\u202e" not in str(refused.value)


@pytest.mark.parametrize(
    "spec",
    [
        AskSpec("x" * 8192),
        AskSpec("?", detail="x" * 262_144),
        AskSpec("?", detail="\x1b[0m\u202e\r\n" * 1000),
        closed(*[f"option {i}" for i in range(100)]),
        closed("x" * 200),
        closed("Yes", "No", "3", "#1"),
        closed("a\tb", "ja \u202e nein"),
        closed(multi=True, min_selected=0, max_selected=2),
        closed(default=" yes "),
        AskSpec("?", default="nothing"),
        closed(ask_class="permission"),
        closed(option_details=("a", "b")),
    ],
)
def test_takes_an_ask_within_bounds_and_it_fits_into_a_frame(spec: AskSpec) -> None:
    assert check_ask(spec) is spec
    assert len(encode(frame_of(spec, A, "s" * 128))) <= MAX_OUTBOUND_BYTES


@pytest.mark.parametrize(
    "seconds", [0.0, -1.0, 0.099, 365 * 86400 + 1, float("nan"), float("inf")]
)
def test_refuses_deadlines_out_of_bounds(seconds: float) -> None:
    with pytest.raises(InvalidAsk, match="timeout"):
        actions.check_deadline(seconds)


def test_checks_the_deadline_where_the_time_is_known() -> None:
    spec = AskSpec("?", deadline_at_ms=1_050)
    assert check_ask(spec) is spec
    with pytest.raises(InvalidAsk):
        check_ask(spec, now_ms=1_000)
    assert check_ask(spec, now_ms=900) is spec


# --- Revision and frames -------------------------------------------------------------------

BASE = AskSpec("?", ("A", "B"), detail="d", free_text=False, option_details=("x", "y"))


@pytest.mark.parametrize(
    "change",
    [
        {"question": "? "},
        {"options": ("B", "A")},
        {"options": ("A", "B", "C"), "option_details": None},
        {"options": ("AB", "")},
        {"detail": "d "},
        {"detail": None},
        {"detail": ""},
        {"multi": True},
        {"multi": True, "min_selected": 1},
        {"multi": True, "max_selected": 1},
        {"free_text": True},
        {"ask_class": "permission"},
        {"option_details": ("y", "x")},
    ],
)
def test_another_question_has_another_revision(change: dict[str, Any]) -> None:
    assert revision_of(msgspec.structs.replace(BASE, **change)) != revision_of(BASE)


@pytest.mark.parametrize(
    "change", [{"deadline_at_ms": 5}, {"default": "A"}, {"recommended": 1}]
)
def test_the_same_question_has_the_same_revision(change: dict[str, Any]) -> None:
    assert revision_of(msgspec.structs.replace(BASE, **change)) == revision_of(BASE)
    assert len(revision_of(BASE)) == 64


def test_a_spec_survives_the_wire() -> None:
    spec = AskSpec(
        "Which?",
        ("A", "B", "C"),
        detail="d",
        multi=True,
        min_selected=1,
        max_selected=2,
        free_text=True,
        recommended=0,
        deadline_at_ms=1_785_500_000_000,
        default="A",
        option_details=("x", "y", "z"),
    )
    frame = decode(encode(frame_of(spec, A, "s")))
    assert isinstance(frame, ActionNeeded)
    assert spec_of(frame) == spec


def test_reads_what_peers_ask_however_odd() -> None:
    frame = ActionNeeded(
        id=A,
        kind="ask",
        session_id="s",
        options=("A", "A"),
        min_selected=3,
        option_details=("only one",),
        ask_class="permission",
        default="A",
        recommended_index=7,
    )
    assert spec_of(frame) == AskSpec("", ("A", "A"), free_text=True, ask_class="permission")


# --- Answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in VECTORS])
def test_reads_answers_as_the_vectors_say(vector: dict[str, Any]) -> None:
    ask = decode(json.dumps(vector["ask"]))
    reply = decode(
        json.dumps({"type": "reply", "id": "ask:1", "token": "t", "answer": vector["answer"]})
    )
    assert isinstance(ask, ActionNeeded)
    assert isinstance(reply, Reply)
    assert reply.answer is not None
    if "rejected" in vector:
        with pytest.raises(InvalidAnswer) as rejected:
            read_answer(spec_of(ask), reply.answer)
        assert rejected.value.code == vector["rejected"]
        return
    selection = read_answer(spec_of(ask), reply.answer)
    assert json.loads(msgspec.json.encode(selection)) == vector["selection"]


@pytest.mark.parametrize("text", ["a\0", "a\ud800", "x" * 65_537])
def test_refuses_words_that_cannot_be_kept(text: str) -> None:
    with pytest.raises(InvalidAnswer):
        read_answer(AskSpec("?"), text)


def test_a_refusal_names_the_options_and_escapes_what_was_said() -> None:
    with pytest.raises(InvalidAnswer) as refused:
        read_answer(closed(*[f"o{i}" for i in range(9)]), "\x1b[2J")
    assert "\x1b" not in refused.value.msg
    assert "'o0'" in refused.value.msg
    assert "…" in refused.value.msg


@pytest.mark.parametrize(
    ("spec", "answer", "wire"),
    [
        (closed(), 1, "No"),
        (closed(multi=True), 1, Choice(selected=("No",))),
        (closed(multi=True), Choice(selected=(1, 0)), Choice(selected=("Yes", "No"))),
        (AskSpec("?"), "words", "words"),
        (AskSpec("?", ("A", "A")), 1, 1),
        (AskSpec("?", ("A",), multi=True), "w", Choice(selected=(), custom="w")),
        (
            AskSpec("?", ("A",), multi=True),
            Choice(selected=(), custom="a"),
            Choice(selected=(), custom="a"),
        ),
        (
            AskSpec("?", ("A", "B"), multi=True),
            Choice(selected=("A",), custom="w"),
            Choice(selected=("A",), custom="w"),
        ),
        (closed(multi=True, min_selected=0), Choice(selected=()), Choice(selected=())),
    ],
)
def test_answers_go_to_the_session_by_label(
    spec: AskSpec, answer: Answer, wire: Answer
) -> None:
    selection = read_answer(spec, answer)
    assert wire_answer(spec, selection) == wire
    assert read_answer(spec, wire) == selection


# --- The book ------------------------------------------------------------------------------


def book(*specs: AskSpec) -> ActionBook:
    made = ActionBook("s")
    for number, spec in enumerate(specs or (closed(),), 1):
        made.raise_(ActionId(f"ask:{number}"), spec, now_ms=0)
    return made


def reply(answer: Answer | None = 0, key: str | None = None, action: ActionId = A) -> Reply:
    return Reply(
        id=action,
        answer=answer,
        decline=answer is None,
        token="t",
        idempotency_key=None if key is None else ReplyKey(key),
    )


def test_the_first_valid_answer_counts() -> None:
    made = book()
    first = made.reply(C, reply("perhaps"))
    assert isinstance(first, Rejected)
    assert made.is_open(A)
    second = made.reply(C, reply("YES"))
    assert isinstance(second, Taken)
    assert second.ending.selection == Selection((0,), ("Yes",))
    assert second.ending.resolved.answer == "YES"
    assert second.ending.by == By(channel="endpoint")
    assert not made.is_open(A)
    assert made.ending(A) is second.ending
    third = made.reply(C, reply("Yes"))
    assert isinstance(third, Rejected)
    assert third.frame.reason == "already_answered"


def test_a_key_makes_a_repeat_the_same_answer() -> None:
    made = book()
    taken = made.reply(C, reply("Yes", "k"))
    assert isinstance(taken, Taken)
    again = made.reply(ConnectionId("connection:2"), reply("Yes", "k"))
    assert isinstance(again, Repeated)
    assert again.ending is taken.ending
    for other in (reply(0, "k"), reply(None, "k")):
        verdict = made.reply(C, other)
        assert isinstance(verdict, Rejected)
        assert verdict.frame.reason == "idempotency_conflict"


def test_the_token_is_looked_at_first() -> None:
    made = book()
    verdict = made.reply(C, reply(9), token_ok=False)
    assert isinstance(verdict, Rejected)
    assert verdict.frame.reason == "unauthorized"


def test_takes_no_reply_when_nobody_waits() -> None:
    made = book()
    made.detach()
    verdict = made.reply(C, reply())
    assert isinstance(verdict, Rejected)
    assert verdict.frame.reason == "resolver_unavailable"


def test_never_uses_an_id_twice_and_never_forgets_one() -> None:
    made = ActionBook("s")
    for number in range(300):
        action = ActionId(f"ask:{number}")
        made.raise_(action, closed(), now_ms=0)
        with pytest.raises(UpcallError) as reused:
            made.raise_(action, closed(), now_ms=0)
        assert reused.value.code == "id_reused"
        assert made.withdraw(action) is not None
    assert len(made.recent_resolutions()) == 256
    oldest = ActionId("ask:0")
    with pytest.raises(UpcallError):
        made.raise_(oldest, closed(), now_ms=0)
    verdict = made.reply(C, reply(action=oldest))
    assert isinstance(verdict, Rejected)
    assert verdict.frame.reason == "already_answered"
    assert made.ending(oldest) is None


def test_a_refused_ask_leaves_nothing_behind() -> None:
    made = ActionBook("s")
    with pytest.raises(InvalidAsk):
        made.raise_(A, closed(""), now_ms=0)
    assert made.open_asks() == []
    made.raise_(A, closed(), now_ms=0)


def test_a_deadline_ends_an_ask_without_inventing_an_answer() -> None:
    made = book(
        closed(deadline_at_ms=1_000),
        closed(deadline_at_ms=1_000, default="no"),
        closed(deadline_at_ms=2_000),
        closed(),
    )
    assert made.next_deadline_ms() == 1_000
    assert made.expire(999) == []
    bare, default = made.expire(1_000)
    assert (bare.outcome, bare.selection, bare.by) == ("timed_out", None, None)
    assert (default.outcome, default.by) == ("timed_out", None)
    assert default.selection == Selection((1,), ("No",))
    assert default.resolved.resolved_by == "timeout"
    assert made.next_deadline_ms() == 2_000
    assert len(made.open_asks()) == 2


def test_holding_stops_the_deadline() -> None:
    made = book(closed(deadline_at_ms=1_000))
    held = made.hold(A, True, now_ms=400)
    assert held is not None
    assert (held.held, held.deadline_at) == (True, None)
    assert made.hold(A, True, now_ms=900) == held
    assert made.next_deadline_ms() is None
    assert made.expire(10_000) == []
    running = made.hold(A, False, now_ms=5_000)
    assert running is not None
    assert (running.held, running.deadline_at) == (False, 5_600)
    assert made.hold(A, False, now_ms=5_100) == running
    assert [ending.outcome for ending in made.expire(5_600)] == ["timed_out"]
    assert made.hold(A, True, now_ms=6_000) is None


def test_an_ask_without_deadline_can_be_held() -> None:
    made = book()
    held = made.hold(A, True, now_ms=1)
    assert held is not None
    assert held.held
    free = made.hold(A, False, now_ms=2)
    assert free is not None
    assert (free.held, free.deadline_at) == (False, None)


def test_the_program_itself_may_answer_decline_and_withdraw() -> None:
    made = book(closed(), closed(), closed(), closed())
    with pytest.raises(InvalidAnswer):
        made.resolve_local(A, 5)
    answered = made.resolve_local(A, 1, by=By(channel="terminal"))
    assert answered is not None
    assert (answered.resolved.resolved_by, answered.outcome) == ("local", "answered")
    assert made.resolve_local(A, 1) is None
    declined = made.resolve_local(ActionId("ask:2"), None)
    assert declined is not None
    assert declined.outcome == "declined"
    withdrawn = made.withdraw(ActionId("ask:3"))
    assert withdrawn is not None
    assert (withdrawn.outcome, withdrawn.resolved.answer) == ("cancelled", None)
    assert made.withdraw(ActionId("ask:3")) is None
    assert [ending.outcome for ending in made.withdraw_all()] == ["cancelled"]


def test_verdicts_do_not_change() -> None:
    verdict = book().reply(C, reply())
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.ending = None  # type: ignore[misc, union-attr]
