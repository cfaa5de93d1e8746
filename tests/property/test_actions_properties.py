"""Properties of asks: one ending each, the same reading for everybody, honest deadlines."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from upcall.core.actions import (
    ActionBook,
    Ending,
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
from upcall.model.ask import AskSpec
from upcall.model.errors import UpcallError, UsageError
from upcall.model.frames import ActionNeeded, Choice, Reply, decode, encode
from upcall.model.ids import ActionId, ConnectionId, ReplyKey

LABELS = st.text(max_size=12) | st.sampled_from(
    ["Yes", "yes", " Yes ", "No", "1", "#2", "Ｙｅｓ"]
)
OPTIONS = st.lists(LABELS, max_size=5).map(tuple)
SPECS = st.builds(
    AskSpec,
    question=st.text(max_size=20),
    options=OPTIONS,
    detail=st.none() | st.text(max_size=20),
    multi=st.booleans(),
    min_selected=st.none() | st.integers(0, 4),
    max_selected=st.none() | st.integers(0, 4),
    free_text=st.booleans(),
    recommended=st.none() | st.integers(0, 4),
    default=st.none() | LABELS,
    ask_class=st.sampled_from(["question", "permission"]),
)
ANSWERS = (
    st.integers(0, 6)
    | LABELS
    | st.builds(
        Choice,
        selected=st.lists(st.integers(0, 6) | LABELS, max_size=4).map(tuple),
        custom=st.none() | LABELS,
    )
)


def check_printable(error: UpcallError) -> None:
    assert error.msg.isprintable()


def checked(spec: AskSpec) -> AskSpec | None:
    try:
        return check_ask(spec)
    except UsageError as exc:
        check_printable(exc)
        return None


@given(SPECS)
def test_an_ask_that_is_taken_survives_the_wire(spec: AskSpec) -> None:
    if checked(spec) is None:
        return
    frame = decode(encode(frame_of(spec, ActionId("ask:1"), "s")))
    assert isinstance(frame, ActionNeeded)
    assert spec_of(frame) == spec
    assert revision_of(spec_of(frame)) == revision_of(spec)


@given(SPECS)
def test_every_label_of_a_taken_ask_means_itself(spec: AskSpec) -> None:
    if checked(spec) is None or (spec.multi and (spec.min_selected or 0) > 1):
        return
    for index, label in enumerate(spec.options):
        for answer in (index, label, f" {label.upper().lower()} "):
            try:
                selection = read_answer(spec, answer)
            except InvalidAnswer:
                # Some letters change when they are made large and small again.
                assert answer not in (index, label)
                continue
            if answer in (index, label):
                assert selection.indices == (index,)
                assert selection.labels == (label,)


@given(SPECS, ANSWERS)
def test_a_selection_is_within_the_bounds_and_reads_the_same_at_the_session(
    spec: AskSpec, answer: Any
) -> None:
    try:
        selection = read_answer(spec, answer)
    except InvalidAnswer as exc:
        check_printable(exc)
        return
    assert list(selection.indices) == sorted(set(selection.indices))
    assert selection.labels == tuple(spec.options[i] for i in selection.indices)
    if selection.text is not None:
        assert spec.free_text
        assert selection.text.strip()
    count = len(selection.indices) + (selection.text is not None)
    if spec.multi:
        assert count >= (1 if spec.min_selected is None else spec.min_selected)
        assert spec.max_selected is None or len(selection.indices) <= spec.max_selected
    else:
        assert count == 1
    assert read_answer(spec, wire_answer(spec, selection)) == selection


@given(SPECS, SPECS)
def test_revisions_are_equal_only_for_the_same_question(one: AskSpec, two: AskSpec) -> None:
    def shown(spec: AskSpec) -> AskSpec:
        details = spec.option_details or None
        return msgspec.structs.replace(
            spec, deadline_at_ms=None, default=None, recommended=None, option_details=details
        )

    assert (revision_of(one) == revision_of(two)) == (shown(one) == shown(two))


class Book(RuleBasedStateMachine):
    """Any order of raising, replying, holding, waiting and withdrawing."""

    def __init__(self) -> None:
        super().__init__()
        self.book = ActionBook("s")
        self.now_ms = 0
        self.raised: list[ActionId] = []
        self.ended: dict[ActionId, Ending] = {}
        self.winners: dict[ActionId, Reply] = {}

    def note(self, ending: Ending | None) -> None:
        if ending is not None:
            action = ending.resolved.id
            assert action not in self.ended, "ended twice"
            self.ended[action] = ending

    @rule(wait_ms=st.none() | st.integers(100, 5000), default=st.none() | st.just("Yes"))
    def ask(self, wait_ms: int | None, default: str | None) -> None:
        action = ActionId(f"ask:{len(self.raised)}")
        deadline = None if wait_ms is None else self.now_ms + wait_ms
        spec = AskSpec(
            "?", ("Yes", "No"), free_text=False, deadline_at_ms=deadline, default=default
        )
        self.book.raise_(action, spec, now_ms=self.now_ms)
        self.raised.append(action)

    @precondition(lambda self: self.raised)
    @rule(
        data=st.data(),
        answer=st.sampled_from([0, 1, 2, "Yes", "no", "maybe", None]),
        key=st.sampled_from([None, "k1", "k2"]),
    )
    def reply(self, data: st.DataObject, answer: int | str | None, key: str | None) -> None:
        action = data.draw(st.sampled_from(self.raised))
        reply = Reply(
            id=action,
            answer=answer,
            decline=answer is None,
            token="t",
            idempotency_key=None if key is None else ReplyKey(key),
        )
        before = self.ended.get(action)
        verdict = self.book.reply(ConnectionId("c"), reply)
        match verdict:
            case Taken():
                assert before is None
                assert answer not in (2, "maybe")
                self.note(verdict.ending)
                self.winners[action] = reply
            case Repeated():
                assert verdict.ending is before
                assert self.winners[action] == reply
                assert key is not None
            case Rejected():
                assert before is not None or answer in (2, "maybe")

    @precondition(lambda self: self.raised)
    @rule(data=st.data(), hold=st.booleans())
    def hold(self, data: st.DataObject, hold: bool) -> None:
        action = data.draw(st.sampled_from(self.raised))
        frame = self.book.hold(action, hold, now_ms=self.now_ms)
        assert (frame is None) == (action in self.ended)
        assert frame is None or frame.held == hold

    @rule(ms=st.integers(0, 3000))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for ending in self.book.expire(self.now_ms):
            self.note(ending)

    @precondition(lambda self: self.raised)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.note(self.book.withdraw(data.draw(st.sampled_from(self.raised))))

    @invariant()
    def every_ask_is_open_or_ended_and_in_order(self) -> None:
        still = [ask.id for ask in self.book.open_asks()]
        assert still == [action for action in self.raised if action not in self.ended]
        deadlines = [a.deadline_at for a in self.book.open_asks() if a.deadline_at is not None]
        assert self.book.next_deadline_ms() == min(deadlines, default=None)
        assert all(deadline > self.now_ms for deadline in deadlines)

    @invariant()
    def no_answer_is_invented(self) -> None:
        for ending in self.ended.values():
            if ending.outcome != "answered":
                assert ending.selection is None or ending.outcome == "timed_out"
                assert ending.selection is None or ending.by is None


TestBook = Book.TestCase
