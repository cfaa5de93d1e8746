"""S6: a message that was no answer never becomes one."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.home import Home
from fakes.kernel_rig import ADA, HOME, Rig, ask_id, asker, channel
from fakes.pty_screen import PtyScreen
from upcall.core.state import ChannelInfo
from upcall.model import frames
from upcall.model.ask import AskSpec
from upcall.model.platform import Capabilities, Receipt, Who
from upcall.model.rows import AskRow, HubButton
from upcall.model.struct import replaced

WORDS = AskSpec(question="Which branch?")
CLOSED = AskSpec(question="Deploy?", options=("yes", "no"), free_text=False)
PERMISSION = replaced(CLOSED, ask_class="permission")
BOTH = AskSpec(question="Which?", options=("red", "blue"), free_text=True)
BOB = Who(identity="bob", name="bob")


def chat(name: str = "chat", *, numbers: bool = False) -> ChannelInfo:
    made = channel(name, repeat="none", buttons=10)
    capabilities: Capabilities = replaced(made.capabilities, shows_numbers=numbers)
    return ChannelInfo(name, capabilities, made.lower)


class Thread:
    """One thread of one chat, with asks of a session that takes messages, or does not."""

    def __init__(self, *, takes_text: bool = False, numbers: bool = False) -> None:
        self.rig = Rig(chat(numbers=numbers), channel("web"))
        self.takes_text = takes_text
        if takes_text:
            self.rig.up()
        self.place = HOME if takes_text else ""
        self.count = 0

    def ask(self, spec: AskSpec) -> AskRow:
        """Raise an ask whose card stands there."""
        self.count += 1
        before = set(self.rig.store.asks)
        if self.takes_text:
            self.rig.needs(
                f"q{self.count}",
                spec.question,
                spec.options,
                free_text=spec.free_text,
                ask_class=spec.ask_class,
            )
        else:
            self.rig.ask(self.count, spec, wait=False)
        self.rig.arrive_all()
        (new,) = set(self.rig.store.asks) - before
        self.place = self.card(self.rig.store.asks[new]).place
        return self.rig.store.asks[new]

    def card(self, row: AskRow) -> Any:
        return next(
            card
            for card in self.rig.store.cards.values()
            if (card.ask_id, card.channel) == (row.ask_id, "chat")
        )

    def says(self, text: str, **fields: Any) -> Receipt:
        receipt = self.rig.write(text, at=self.place, **fields)
        assert receipt is not None
        self.rig.arrive_all()
        return receipt

    def now(self, row: AskRow) -> AskRow:
        return self.rig.store.asks[row.ask_id]

    def messages(self) -> list[str]:
        """What the session got as messages."""
        return [
            one.text for one in self.rig.sent_frames() if isinstance(one, frames.UserMessage)
        ]

    def question(self) -> dict[str, HubButton]:
        """The buttons of the hub's own question, by kind and ask."""
        return {
            f"{one.kind}{one.ask_id}": one
            for one in self.rig.store.buttons.values()
            if one.subject.startswith("text:")
        }


def is_answered(thread: Thread, row: AskRow) -> bool:
    return thread.now(row).state != "open"


# --- when ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset_ms", "answers"),
    [(-60_000, False), (0, False), (1000, False), (1999, False), (2000, True), (3000, True)],
)
@pytest.mark.parametrize("takes_text", [True, False])
def test_words_answer_only_from_two_seconds_after_the_card(
    offset_ms: int, answers: bool, takes_text: bool
) -> None:
    thread = Thread(takes_text=takes_text)
    row = thread.ask(WORDS)
    posted_ms = thread.card(row).posted_ms
    assert posted_ms is not None
    thread.rig.wait(10)
    thread.says("main", sent_ms=posted_ms + offset_ms)
    assert is_answered(thread, row) is answers
    if not answers:
        # Nothing is sent to anybody before the person says what it was.
        assert thread.messages() == []
        assert f"answer{row.ask_id}" in thread.question()


def test_words_without_a_time_of_the_platform_answer_nothing() -> None:
    thread = Thread()
    row = thread.ask(WORDS)
    thread.rig.wait(10)
    thread.says("main", sent_ms=None)
    assert not is_answered(thread, row)


@pytest.mark.parametrize(
    ("offset_ms", "answers"), [(-60_000, False), (0, True), (1000, True), (3000, True)]
)
def test_a_direct_reply_names_its_card_but_not_before_it_was_there(
    offset_ms: int, answers: bool
) -> None:
    thread = Thread()
    row = thread.ask(PERMISSION)
    other = thread.ask(WORDS)
    card = thread.card(row)
    thread.says("yes", sent_ms=card.posted_ms + offset_ms, reply_to=card.ref)
    assert is_answered(thread, row) is answers
    assert not is_answered(thread, other)


def test_a_card_that_is_still_on_its_way_is_not_answered_by_words() -> None:
    rig = Rig(chat())
    rig.ask(1, WORDS, wait=False)
    (card,) = rig.store.cards.values()
    assert card.ref is None
    rig.wait(30)
    rig.write("main", at=card.place)
    row = rig.row()
    assert row is not None
    assert row.state == "open"


# --- which --------------------------------------------------------------------------------


def test_words_answer_the_only_ask_that_takes_them() -> None:
    thread = Thread()
    closed, words = thread.ask(CLOSED), thread.ask(WORDS)
    thread.rig.wait(5)
    thread.says("main")
    assert is_answered(thread, words)
    assert not is_answered(thread, closed)


@pytest.mark.parametrize("second", [WORDS, BOTH])
def test_words_that_two_asks_could_take_answer_none(second: AskSpec) -> None:
    thread = Thread()
    one, two = thread.ask(WORDS), thread.ask(second)
    thread.rig.wait(5)
    receipt = thread.says("red")
    assert receipt.code == "asked"
    assert one.ask_id[:5] in receipt.msg
    assert two.ask_id[:5] in receipt.msg
    assert not is_answered(thread, one)
    assert not is_answered(thread, two)
    asked = thread.question()
    thread.rig.press(asked[f"answer{two.ask_id}"].token)
    assert is_answered(thread, two)
    assert not is_answered(thread, one)


def with_a_lost_copy(spec: AskSpec, *, takes_text: bool) -> Rig:
    """Return a hub that was killed after the chat took the card and before it knew."""
    made = Rig(channel("chat", repeat="none", buttons=10))
    made.hears("chat")
    if takes_text:
        made.up(sync=True)
        made.needs(
            "q1",
            spec.question,
            spec.options,
            free_text=spec.free_text,
            ask_class=spec.ask_class,
        )
    else:
        made.ask(1, spec, wait=False)
    made.restart()
    if takes_text:
        made.up(sync=False)
        made.needs(
            "q1",
            spec.question,
            spec.options,
            free_text=spec.free_text,
            ask_class=spec.ask_class,
        )
        made.sync()
    made.wait(2)
    made.arrive_all()
    made.wait(60)
    return made


@pytest.mark.parametrize("takes_text", [True, False])
@pytest.mark.parametrize(
    ("spec", "words", "answers"),
    [(WORDS, "main", False), (CLOSED, "yes", True), (PERMISSION, "yes", False)],
)
def test_a_reply_to_a_copy_that_nobody_knows_of_is_never_steered_into_the_session(
    spec: AskSpec, words: str, answers: bool, takes_text: bool
) -> None:
    made = with_a_lost_copy(spec, takes_text=takes_text)
    (card,) = made.store.cards.values()
    told = made.write(words, at=card.place, reply_to="the first copy")
    assert told is not None
    assert told.ok
    assert (told.code == "asked") is not answers
    assert (made.only().state == "open") is not answers
    sent = [row.kind for row in made.store.deliveries.values()]
    assert "message" not in sent


def test_a_lost_copy_is_remembered_and_not_edited() -> None:
    made = with_a_lost_copy(WORDS, takes_text=False)
    made.restart()
    made.hears("chat")
    made.arrive_all()
    (card,) = made.store.cards.values()
    told = made.write("main", at=card.place, reply_to="the first copy")
    assert told is not None
    assert told.code == "asked"
    edited = {row.ref for row in made.store.deliveries.values() if row.kind == "edit"}
    assert edited <= {card.ref}


def test_a_reply_to_another_message_of_the_thread_goes_to_the_session_as_before() -> None:
    thread = Thread(takes_text=True)
    thread.ask(WORDS)
    told = thread.rig.write("why so?", at=thread.place, reply_to="a message of the session")
    assert told is not None
    assert told.code == "queued"


def test_words_of_another_thread_answer_nothing() -> None:
    thread = Thread()
    row = thread.ask(WORDS)
    thread.rig.ask(9, WORDS, who=asker(200, parent="9:x"), wait=False)
    thread.rig.arrive_all()
    other = next(card for card in thread.rig.store.cards.values() if card.ask_id == ask_id(9))
    assert other.place != thread.place
    thread.rig.wait(5)
    thread.rig.write("main", at="somewhere else")
    thread.rig.write("main", at=thread.place, reply_to=other.ref)
    assert not is_answered(thread, row)
    theirs = thread.rig.row(9)
    assert theirs is not None
    assert theirs.state == "open"


@pytest.mark.parametrize("words", ["yes", "Yes", " no ", "ok", "go on"])
@pytest.mark.parametrize("takes_text", [True, False])
def test_a_permission_is_never_given_by_plain_words(words: str, takes_text: bool) -> None:
    thread = Thread(takes_text=takes_text)
    row = thread.ask(PERMISSION)
    thread.rig.wait(60)
    thread.says(words)
    assert not is_answered(thread, row)
    if words.strip().lower() in PERMISSION.options:
        assert thread.messages() == []
        assert not any(name.startswith("answer") for name in thread.question())


def test_a_permission_beside_an_open_question_makes_a_label_unclear() -> None:
    thread = Thread()
    permission, words = thread.ask(PERMISSION), thread.ask(WORDS)
    thread.rig.wait(5)
    thread.says("yes")
    assert not is_answered(thread, permission)
    assert not is_answered(thread, words)


@pytest.mark.parametrize(
    ("words", "answers"), [("yes", True), (" YES ", True), ("yes please", False), ("1", False)]
)
def test_a_reply_to_a_permission_answers_by_a_label_only(words: str, answers: bool) -> None:
    thread = Thread(takes_text=True)
    row = thread.ask(PERMISSION)
    thread.rig.wait(5)
    receipt = thread.says(words, reply_to=thread.card(row).ref)
    assert is_answered(thread, row) is answers
    assert receipt.ok is answers
    assert thread.messages() == []


# --- what kind of message -----------------------------------------------------------------


@pytest.mark.parametrize("origin", ["forwarded", "edited", "quoted", "relayed", "automatic"])
@pytest.mark.parametrize("replies", [False, True])
@pytest.mark.parametrize("spec", [WORDS, CLOSED, PERMISSION], ids=["words", "closed", "may"])
def test_what_a_person_did_not_type_there_answers_nothing(
    origin: str, replies: bool, spec: AskSpec
) -> None:
    thread = Thread()
    row = thread.ask(spec)
    thread.rig.wait(60)
    reply_to = thread.card(row).ref if replies else None
    thread.says("yes", origin=origin, reply_to=reply_to)
    assert not is_answered(thread, row)
    assert thread.question() == {}


def test_an_edit_changes_nothing_and_is_told_so_once() -> None:
    thread = Thread()
    row = thread.ask(CLOSED)
    thread.rig.wait(5)
    thread.says("no", ref="m1")
    thread.rig.arrive_all()
    before = thread.now(row)
    assert before.answer is not None
    assert before.answer.labels == ("no",)
    first = thread.says("yes", ref="m1", origin="edited", key="e1")
    second = thread.says("yes!", ref="m1", origin="edited", key="e2")
    assert (first.ok, first.code) == (False, "not_an_answer")
    assert "changes nothing" in first.msg
    assert (second.ok, second.code, second.msg) == (True, "ignored", "")
    thread.rig.restart()
    assert thread.says("yes", ref="m1", origin="edited", key="e3").code == "ignored"
    assert thread.says("x", ref="m2", origin="edited", key="e4").code == "not_an_answer"
    assert thread.now(row) == before


def test_what_came_by_another_bot_goes_to_no_session() -> None:
    thread = Thread(takes_text=True)
    thread.ask(CLOSED)
    thread.says("rm -rf /", origin="relayed")
    thread.says("joined the group", origin="automatic")
    assert thread.messages() == []
    thread.says("a log", origin="forwarded")
    assert thread.messages() == ["a log"]


# --- numbers and labels -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "typed", "numbers", "chosen"),
    [
        (("3", "2", "1"), "2", True, "2"),
        (("3", "2", "1"), "2", False, "2"),
        (("3", "2", "1"), "#2", True, None),
        (("red", "blue"), "2", True, "blue"),
        (("red", "blue"), "#1", True, "red"),
        (("red", "blue"), "2", False, None),
        (("red", "7"), "1", True, None),
        (("red", " #7"), "1", True, None),
        (("red", "blue"), "3", True, None),
        (("red", "blue"), "0", True, None),
        (("red", "blue"), "\u0662", True, None),
        (("red", "blue"), "\u00b2", True, None),
        (("Yes", "No"), " yes ", True, "Yes"),
        (("yes", "YES"), "YES", True, "YES"),
        (("stra\u00dfe", "x"), "STRASSE", False, "stra\u00dfe"),
    ],
)
def test_labels_come_first_and_numbers_only_where_they_are_shown(
    options: tuple[str, ...], typed: str, numbers: bool, chosen: str | None
) -> None:
    thread = Thread(takes_text=True, numbers=numbers)
    row = thread.ask(AskSpec(question="?", options=options, free_text=False))
    thread.rig.wait(5)
    thread.says(typed)
    claim = thread.rig.kernel._state.claims.get(row.ask_id)
    labels = claim.selection.labels if claim is not None and claim.selection else None
    assert labels == (None if chosen is None else (chosen,))


def test_a_value_that_fits_two_labels_is_refused_with_both_named() -> None:
    thread = Thread(takes_text=True)
    row = thread.ask(AskSpec(question="?", options=("Yes", "YES", "no"), free_text=False))
    thread.rig.wait(5)
    receipt = thread.says("yes", reply_to=thread.card(row).ref)
    assert (receipt.ok, receipt.code) == (False, "invalid_answer")
    assert "'Yes' (#1)" in receipt.msg
    assert "'YES' (#2)" in receipt.msg
    assert not is_answered(thread, row)


# --- what becomes of it -------------------------------------------------------------------


def test_other_words_go_to_a_session_that_takes_messages() -> None:
    thread = Thread(takes_text=True)
    row = thread.ask(CLOSED)
    thread.rig.wait(5)
    receipt = thread.says("use the other branch")
    assert receipt.ok
    assert thread.messages() == ["use the other branch"]
    assert not is_answered(thread, row)


def test_a_thread_whose_program_takes_no_messages_says_so() -> None:
    thread = Thread()
    thread.ask(CLOSED)
    thread.rig.wait(5)
    receipt = thread.says("use the other branch")
    assert (receipt.ok, receipt.code) == (False, "session_gone")


@pytest.mark.parametrize("kind", ["answer", "message", "drop"])
def test_the_hub_asks_and_sends_nothing_before_it_is_told(kind: str) -> None:
    thread = Thread(takes_text=True)
    row = thread.ask(WORDS)
    thread.says("main", sent_ms=thread.rig.wall_ms)
    assert thread.messages() == []
    assert (
        "Was that an answer to"
        in thread.rig.card(
            [one for one in thread.rig.of_posts() if one.effect.startswith("text:")][-1]
        ).plain
    )
    buttons = thread.question()
    thread.rig.restart()
    thread.rig.up(sync=False)
    thread.rig.needs("q1", WORDS.question, (), free_text=True)
    thread.rig.sync()
    assert thread.messages() == []
    button = buttons[f"{kind}{row.ask_id if kind == 'answer' else ''}"]
    receipt = thread.rig.press(button.token, ref="asked")
    assert receipt is not None
    assert receipt.ok
    thread.rig.arrive_all()
    assert thread.messages() == (["main"] if kind == "message" else [])
    assert is_answered(thread, row) is (kind == "answer")
    assert thread.rig.store.texts == {}
    # Its buttons are dead, and say so.
    again = thread.rig.press(button.token)
    assert again is not None
    assert not again.ok
    assert thread.messages() == (["main"] if kind == "message" else [])


def test_only_the_writer_says_what_it_was() -> None:
    thread = Thread(takes_text=True)
    row = thread.ask(WORDS)
    thread.says("main", sent_ms=thread.rig.wall_ms)
    button = thread.question()[f"answer{row.ask_id}"]
    receipt = thread.rig.press(button.token, who=BOB)
    assert receipt is not None
    assert (receipt.ok, receipt.code) == (False, "not_permitted")
    assert not is_answered(thread, row)
    assert thread.question() != {}


def test_what_nobody_explains_for_a_day_is_sent_nowhere() -> None:
    thread = Thread(takes_text=True)
    row = thread.ask(WORDS)
    thread.says("main", sent_ms=thread.rig.wall_ms)
    thread.rig.wait(24 * 3600 + 1)
    assert thread.rig.store.texts == {}
    assert thread.question() == {}
    assert thread.messages() == []
    assert not is_answered(thread, row)


def test_a_repeat_of_the_same_message_is_asked_about_once() -> None:
    thread = Thread(takes_text=True)
    thread.ask(WORDS)
    now_ms = thread.rig.wall_ms
    thread.says("main", sent_ms=now_ms, key="m")
    thread.says("main", sent_ms=now_ms, key="m")
    thread.rig.restart()
    thread.says("main", sent_ms=now_ms, key="m")
    assert len(thread.rig.store.texts) == 1


# --- B12: after the answer ----------------------------------------------------------------


@pytest.mark.parametrize("replies", [False, True])
def test_words_that_come_after_the_answer_are_not_steered_into_the_session(
    replies: bool,
) -> None:
    thread = Thread(takes_text=True)
    row = thread.ask(CLOSED)
    thread.rig.wait(5)
    thread.rig.answer(row, on="web", who=BOB, indices=(1,))
    thread.rig.arrive_all()
    thread.rig.resolved("q1", resolved_by="client", answer="no", outcome="answered")
    thread.rig.arrive_all()
    thread.rig.wait(60)
    receipt = thread.says("yes", reply_to=thread.card(row).ref if replies else None)
    assert receipt.code == "asked"
    assert receipt.msg.startswith("Came after the answer: bob chose no ")
    assert receipt.msg.endswith("passed to the session as a message?")
    assert thread.messages() == []
    buttons = thread.question()
    assert set(buttons) == {"message", "drop"}
    thread.rig.press(buttons["message"].token)
    thread.rig.arrive_all()
    assert thread.messages() == ["yes"]
    # What the person says next is an ordinary message again.
    thread.says("yes")
    assert thread.messages() == ["yes", "yes"]


def test_who_answered_there_goes_on_talking_to_the_session() -> None:
    thread = Thread(takes_text=True)
    row = thread.ask(CLOSED)
    thread.rig.wait(5)
    thread.rig.answer(row, on="chat", who=ADA, indices=(1,))
    thread.rig.arrive_all()
    thread.rig.resolved("q1", resolved_by="client", answer="no", outcome="answered")
    thread.rig.wait(60)
    thread.says("yes")
    assert thread.messages() == ["yes"]


def test_words_that_come_while_another_answer_is_on_its_way_are_late() -> None:
    thread = Thread(takes_text=True)
    row = thread.ask(WORDS)
    thread.rig.wait(5)
    thread.rig.answer(row, on="web", who=BOB, text="dev")
    receipt = thread.says("main")
    assert receipt.code == "asked"
    assert receipt.msg.startswith("Came after the answer: bob ")
    assert thread.messages() == []


def test_late_words_where_nothing_takes_them_are_told_what_won() -> None:
    thread = Thread()
    row = thread.ask(CLOSED)
    thread.rig.wait(5)
    thread.rig.answer(row, on="web", who=BOB, indices=(0,))
    thread.rig.wait(60)
    receipt = thread.says("no", reply_to=thread.card(row).ref)
    assert (receipt.ok, receipt.code) == (False, "already_answered")
    assert receipt.msg == "Came after the answer: bob chose yes 1 min ago. Nothing was sent."


# --- with a real hub ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def chat_home() -> Iterator[ChatHome]:
    with FakeChat() as chat_server, ChatHome(chat_server) as home:
        home.start_chat_hub()
        yield home


def asked(home: ChatHome, question: str, *options: str, permission: bool = False) -> str:
    """Raise a handed-over ask, and return its id once its card is there."""
    words = [question, *(["--permission"] if permission else [])]
    for option in options:
        words += ["-o", option]
    ask_id = home.hand_over(*words)
    home.chat.card(question)
    return ask_id


def test_a_real_hub_takes_words_and_no_forward_edit_or_reply_elsewhere(
    chat_home: ChatHome,
) -> None:
    chat_server = chat_home.chat
    ask_id = asked(chat_home, "Which colour?", "red", "blue")
    card = chat_server.card("Which colour?")
    sent_ms = int(time.time() * 1000) + 10_000
    fields: dict[str, Any]
    for fields in (
        {"origin": "forwarded"},
        {"origin": "edited", "ref": "m0"},
        {"origin": "relayed"},
        {"origin": "automatic"},
        {"origin": "quoted", "reply_to": card.ref},
        {"sent_ms": None},
    ):
        given: dict[str, Any] = {"sent_ms": sent_ms, **fields}
        key = chat_server.write(card.place, "red", **given)
        chat_server.receipt(key)
    assert chat_home.ask_state(ask_id)["state"] == "open"
    receipt = chat_server.receipt(chat_server.write(card.place, " RED ", sent_ms=sent_ms))
    assert receipt["ok"], receipt
    found = chat_home.until_ask(ask_id, state="closed")
    assert found["answer"]["labels"] == ["red"]
    assert found["answered_by"]["channel"] == "fakechat"
    # A reply to a card that is closed, as the store alone remembers after a restart.
    late = chat_server.receipt(
        chat_server.write(card.place, "blue", reply_to=card.ref, sent_ms=sent_ms)
    )
    assert late["msg"].startswith("Came after the answer: ada chose red at "), late
    assert chat_home.ask_state(ask_id)["answer"]["labels"] == ["red"]


def test_a_real_hub_gives_no_permission_by_words_but_by_a_reply(chat_home: ChatHome) -> None:
    chat_server = chat_home.chat
    ask_id = asked(chat_home, "Drop the table?", "yes", "no", permission=True)
    card = chat_server.card("Drop the table?")
    sent_ms = int(time.time() * 1000) + 10_000
    receipt = chat_server.receipt(chat_server.write(card.place, "yes", sent_ms=sent_ms))
    assert receipt["code"] == "asked"
    assert chat_home.ask_state(ask_id)["state"] == "open"
    question = chat_server.card("Was that an answer to")
    assert list(question.buttons) == ["Drop"]
    dropped = chat_server.receipt(chat_server.press(question, "Drop"))
    assert dropped["code"] == "dropped"
    chat_server.until(
        lambda: question.text == "Dropped. Nothing was sent." and not question.buttons,
        what="the question says what became of it",
    )
    receipt = chat_server.receipt(
        chat_server.write(card.place, "no", reply_to=card.ref, sent_ms=sent_ms)
    )
    assert receipt["ok"], receipt
    assert chat_home.until_ask(ask_id, state="closed")["answer"]["labels"] == ["no"]


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("ask", b"yes\n"),
        ("ask", b"1\n"),
        ("ask", b"\r\n\r\n"),
        ("confirm", b"y\n"),
        ("confirm", b"\n"),
    ],
)
def test_what_was_typed_before_the_prompt_answers_nothing(
    home: Home, command: str, typed: bytes
) -> None:
    options = ["-o", "yes", "-o", "no"] if command == "ask" else []
    argv = [*home.upcall, command, "Really?", *options]
    with PtyScreen(argv, home.env, type_ahead=typed) as screen:
        shown = screen.wait_for(lambda text: text.rstrip().endswith("\n>"))
        found = re.search(r"a[0-9a-hjkmnp-tv-z]{12}", shown)
        assert found is not None, shown
        assert home.ask_state(found[0])["state"] == "open"
        # No key alone chooses what the person did not name.
        screen.type("\r")
        screen.type("no\r")
        screen.finish()
    assert home.until_ask(found[0], state="closed")["answer"]["labels"] == (
        ["no"] if command == "ask" else ["No"]
    )
