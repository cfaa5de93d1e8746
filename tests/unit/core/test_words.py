"""The words that people read about an ask."""

from typing import Any

import pytest

from upcall.core import backoff, render
from upcall.core.policy import operator_name, refuse_local
from upcall.core.state import HubState, KernelSettings
from upcall.core.views import notice_view
from upcall.model.ask import AnsweredBy, AskSpec, Selection
from upcall.model.document import Button, Choices, Code, Fields, Paragraph, Quote
from upcall.model.ids import AskId, ReplyKey, Revision, SessionId, action_id_of
from upcall.model.platform import Who
from upcall.model.rows import AskRow, ClaimRow, NoticeRow, SessionRow, TokenRow
from upcall.model.struct import replaced

AT_MS = 1_800_000_000_000
ID = AskId("a000000000001")
ROW = AskRow(
    ask_id=ID,
    session_id=SessionId("s1"),
    action_id=action_id_of(ID),
    state="closed",
    spec=AskSpec(question="Deploy?", options=("yes", "no")),
    revision=Revision("r"),
    raised_ms=AT_MS,
    outcome="answered",
    closed_ms=AT_MS + 600_000,
    answer=Selection((1,), ("no",)),
    answered_by=AnsweredBy("ada", "telegram"),
)
CLAIM = ClaimRow(
    ask_id=ID,
    operator="ada",
    channel="telegram",
    inbound=1,
    key=ReplyKey("k"),
    selection=Selection((1,), ("no",)),
    at_ms=AT_MS,
)
OPEN = replaced(ROW, state="open", outcome=None, answer=None, answered_by=None, closed_ms=None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, 'ada answered "no" on telegram 3 s ago. Your input was not used.'),
        (
            {"answered_by": AnsweredBy(None, "endpoint")},
            "another program on this computer (endpoint), person unknown: "
            '"no", 3 s ago. Your input was not used.',
        ),
        (
            {"answered_by": None},
            'nobody: "no", 3 s ago. Your input was not used.',
        ),
        (
            {"outcome": "declined", "answer": None},
            "ada on telegram declined 3 s ago. Your input was not used.",
        ),
        ({"outcome": "timed_out"}, "This ask timed out 3 s ago. Your input was not used."),
        (
            {"outcome": "cancelled"},
            "The program withdrew its question 3 s ago. Your input was not used.",
        ),
        (
            {"outcome": "superseded", "note": "ended while the hub was away"},
            "The program stopped waiting for this 3 s ago. Your input was not used.",
        ),
        ({"outcome": "superseded", "note": render.CHANGED}, render.CHANGED),
        ({"outcome": "unreachable", "note": "It has ended."}, "It has ended."),
        (
            {"outcome": "unreachable"},
            "The program that asked was gone 3 s ago. Your input was not used.",
        ),
    ],
)
def test_what_a_late_answer_is_told(changes: dict[str, Any], words: str) -> None:
    assert render.late_words(replaced(ROW, **changes), AT_MS + 603_000) == words


def test_without_the_time_of_the_end_it_was_just_now() -> None:
    words = render.late_words(replaced(ROW, closed_ms=None), AT_MS)
    assert words == 'ada answered "no" on telegram 0.0 s ago. Your input was not used.'


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Answered by ada on telegram: no; the program took it"),
        ({"handed_over": True}, "Answered by ada on telegram: no; kept for the program"),
        (
            {"answered_by": AnsweredBy("ada", "terminal", "pid 7, bash, pts/1")},
            "Answered by user ada on this computer (pid 7, bash, pts/1): no;"
            " the program took it",
        ),
        (
            {"answered_by": AnsweredBy(None, "endpoint")},
            "Answered by another program on this computer (endpoint), person unknown: no;"
            " the program took it",
        ),
        ({"outcome": "declined"}, "Declined by ada on telegram; nothing was answered"),
        (
            {"outcome": "timed_out"},
            'no answer within 10 min; the program\'s own default "no" was used. '
            "Nobody chose it.",
        ),
        (
            {"outcome": "timed_out", "answer": None},
            "no answer within 10 min (timed out; nobody said no)",
        ),
        (
            {"outcome": "timed_out", "answer": None, "deadline_ms": AT_MS + 90_000},
            "no answer within 1 min 30 s (timed out; nobody said no)",
        ),
        (
            {"outcome": "timed_out", "answer": None, "closed_ms": None},
            "no answer within 0.0 s (timed out; nobody said no)",
        ),
        (
            {"outcome": "timed_out", "answer": None, "note": "The answer came too late."},
            "no answer within 10 min. The answer came too late.",
        ),
        ({"outcome": "cancelled"}, "The program withdrew its question"),
        ({"outcome": "superseded", "note": render.CHANGED}, render.CHANGED),
        ({"outcome": "superseded"}, "The program does not wait for this any more"),
    ],
)
def test_what_a_card_of_an_ended_ask_says(changes: dict[str, Any], words: str) -> None:
    assert render.state_words(replaced(ROW, **changes), None) == words


def test_what_a_card_says_before_the_end() -> None:
    assert render.state_words(OPEN, None) == ""
    assert render.state_words(replaced(OPEN, note="why"), None) == "why"
    assert render.state_words(replaced(OPEN, held_s=3.0), None) == "the clock is stopped"
    claimed = replaced(OPEN, state="claimed")
    assert render.state_words(claimed, CLAIM) == 'ada chose "no" on telegram; sending…'
    other = replaced(CLAIM, operator=None, selection=None, declined=True)
    assert render.state_words(claimed, other) == (
        "another program on this computer (telegram), person unknown declined; sending…"
    )


def test_an_answer_on_its_way_says_who_was_first() -> None:
    assert render.claimed_words(CLAIM, AT_MS + 3000) == (
        'ada answered "no" on telegram 3 s ago. Your input was not used.'
    )
    other = replaced(CLAIM, operator=None, selection=None, declined=True)
    assert render.claimed_words(other, AT_MS + 3000) == (
        "Another program on this computer (telegram), person unknown declined 3 s ago. "
        "Your input was not used."
    )
    local = replaced(CLAIM, origin="local:pid 7, bash, pts/1", channel="terminal")
    assert render.claimed_words(local, AT_MS + 3000) == (
        'user ada on this computer (pid 7, bash, pts/1) answered "no" 3 s ago. '
        "Your input was not used."
    )


def test_a_note_of_refused_answers_keeps_what_stood_there_and_counts() -> None:
    first = render.refused_note("", "pid 7,\nbash", 1)
    assert first == "Refused: an answer from pid 7, bash."
    kept = render.refused_note("Please answer again.", "pid 7", 1)
    assert kept == "Please answer again. Refused: an answer from pid 7."
    assert render.refused_note(kept, "", 10) == (
        "Please answer again. Refused: 10 answers, the last from an unknown program."
    )


def test_answers_in_words() -> None:
    assert render.answer_words(OPEN) == ""
    both = replaced(ROW, answer=Selection((0, 1), ("yes", "no"), "soon\n\x1b[2J"))
    assert render.answer_words(both) == "yes, no, soon \\x1b[2J"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (8, "8 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (130, "2 min 10 s"),
        (3600, "1 h"),
        (3900, "1 h 5 min"),
        (266_400, "3 d 2 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert render.duration_words(seconds) == words


def test_a_card_shows_everything_visibly() -> None:
    spec = AskSpec(
        question="Run \x1b]0;x\x07 this?\nReally?",
        options=("yes\u202e", "no"),
        detail="rm -rf /\u200b",
        option_details=("it\nruns", ""),
        recommended=1,
        multi=True,
    )
    row = replaced(OPEN, spec=spec, deadline_ms=AT_MS)
    session = SessionRow(
        session_id=SessionId("s1"),
        kind="sdk",
        conversation="c",
        machine="box",
        title="T\x1b",
    )
    tokens = tuple(
        TokenRow(token=f"t{choice}", ask_id=ID, channel="chat", choice=choice)
        for choice in ("0", "1", "decline", "hold")
    )
    message = render.card(row, session, None, tokens, can_decline=True)
    assert message.blocks == (
        Fields((("machine", "box"), ("title", "T\\x1b"))),
        Quote("Run \\x1b]0;x\\x07 this?\nReally?"),
        Code("rm -rf /\\u200b"),
    )
    assert message.choices == Choices(
        buttons=(
            Button("t0", "yes\\u202e", "it\nruns"),
            Button("t1", "no", suggested=True),
        ),
        multi=True,
        min_selected=1,
        max_selected=2,
        free_text=True,
        decline="tdecline",
        hold="thold",
    )
    assert message.plain.splitlines() == [
        "box · T\\x1b",
        "Run \\x1b]0;x\\x07 this?",
        "Really?",
        "rm -rf /\\u200b",
        "1. yes\\u202e",
        "2. no",
    ]


def test_a_card_without_tokens_session_or_clock() -> None:
    spec = replaced(OPEN.spec, recommended=0, ask_class="permission", min_selected=0)
    message = render.card(replaced(OPEN, spec=spec), None, None, (), can_decline=True)
    assert message.blocks == (Code("Deploy?"), Fields(()))
    choices = message.choices
    assert choices is not None
    assert [(one.token, one.suggested) for one in choices.buttons] == [
        ("0", False),
        ("1", False),
    ]
    assert (choices.decline, choices.hold, choices.min_selected) == ("decline", None, 0)
    message = render.card(OPEN, None, None, (), can_decline=False)
    assert message.choices is not None
    assert message.choices.decline is None


def test_a_card_of_an_ended_ask_has_no_buttons() -> None:
    message = render.card(ROW, None, None, (), can_decline=True)
    assert message.choices is None
    assert message.state_line == "Answered by ada on telegram: no; the program took it"
    assert isinstance(message.blocks[-1], Paragraph)
    wordy = replaced(ROW, spec=AskSpec(question="Why?"))
    assert isinstance(render.card(wordy, None, None, (), can_decline=True).blocks[-1], Quote)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("answered", "already_answered"),
        ("timed_out", "already_answered"),
        ("superseded", "stale_card"),
        ("unreachable", "unreachable"),
    ],
)
def test_codes_of_late_answers(outcome: str, code: str) -> None:
    assert render.late_code(replaced(ROW, outcome=outcome)) == code


def test_waits_double_up_to_a_ceiling_and_a_hint_is_a_floor() -> None:
    waits = [backoff.delay_s(attempt, jitter=0.5) for attempt in range(12)]
    assert waits[:4] == [0.75, 0.75, 1.5, 3.0]
    assert waits[-1] == 225.0
    assert backoff.delay_s(10_000, jitter=0.0) == 150.0
    assert backoff.delay_s(1, jitter=0.0, hint_s=40.0) == 40.0


def test_names_of_operators_are_text() -> None:
    settings = KernelSettings(operator="gr\udcffce", machine="m", boot_id="b")
    assert operator_name(settings, "web", Who("x")) == "gr�ce"


def test_a_notice_is_shown_as_it_was_kept() -> None:
    row = NoticeRow(id=3, session_id=SessionId("s"), kind="text", text="hi", at_ms=5)
    settings = KernelSettings(operator="grace", machine="m", boot_id="b")
    view = notice_view(HubState(settings), row)
    assert (view.id, view.session_id, view.kind, view.text, view.at_ms) == (
        3,
        "s",
        "text",
        "hi",
        5,
    )


def test_of_a_session_nobody_knows_a_local_answer_needs_a_terminal_all_the_same() -> None:
    settings = KernelSettings(operator="grace", machine="m", boot_id="b")
    row = replaced(OPEN, spec=replaced(OPEN.spec, ask_class="permission"))
    assert refuse_local(settings, row, None, Who("x", tty="/dev/pts/1", local=True)) is None
    assert refuse_local(settings, row, None, Who("x", local=True)) is not None
