"""A real hub process with a chat: threads, faults, crashes, and the outbox by hand."""

import functools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.chat import ChatHome, FakeChat, Posted, install
from fakes.home import Home, eventually
from fakes.installation import Installation

ASK = ("Deploy?", "-o", "yes", "-o", "no")


@pytest.fixture(scope="module")
def installations() -> Iterator[dict[str, Installation]]:
    """One installation for each way in which a platform tells a repeat."""
    with Home() as home:
        made = {}
        for repeat in ("none", "by_key", "by_lookup"):
            made[repeat] = Installation(f"{home.path}/{repeat}")
            install(made[repeat], repeat=repeat)
        yield made


def is_closed(card: Posted) -> bool:
    return not card.buttons


def chat_home(installations: dict[str, Installation], chat: FakeChat, **fields: Any) -> Any:
    repeat = fields.pop("repeat", "none")
    return ChatHome(chat, installation=installations[repeat], **fields)


def test_a_chat_has_a_thread_for_each_conversation_and_answers_come_from_it(
    installations: dict[str, Installation],
) -> None:
    with FakeChat() as chat, chat_home(installations, chat) as home:
        home.start_chat_hub()
        first = home.hand_over("--session", "one", *ASK)
        card = chat.card("Deploy?")
        second = home.hand_over("--session", "two", *ASK)
        chat.until(lambda: len(chat.shown("Deploy?")) == 2, what="both cards")
        assert [one.conversation for one in chat.threads.values()] == ["n:one", "n:two"]
        assert chat.receipt(chat.press(card, "no"))["ok"]
        assert home.until_ask(first, outcome="answered")["answer"]["labels"] == ["no"]
        other = next(one for one in chat.messages if one.place != card.place)
        chat.receipt(chat.press(other, "yes", key="same"))
        chat.receipts.clear()
        # The platform hands the same event out again.
        assert chat.receipt(chat.press(other, "yes", key="same", token="old"))["ok"]
        assert home.until_ask(second, outcome="answered")["answer"]["labels"] == ["yes"]
        chat.until(lambda: not card.buttons and "no" in card.state, what="the card is closed")

        third = home.hand_over("--session", "one", *ASK)
        chat.until(lambda: len(chat.shown("Deploy?")) == 3)
        chat.remove_thread(card.place)
        fourth = home.hand_over("--session", "one", "Really?", "-o", "yes")
        again = chat.card("Really?")
        shown = chat.until(lambda: [m for m in chat.shown("Deploy?") if m.place == again.place])
        assert len(shown) == 1
        chat.receipt(chat.press(shown[0], "yes"))
        home.until_ask(third, outcome="answered")
        chat.receipt(chat.press(again, "yes"))
        home.until_ask(fourth, outcome="answered")


@pytest.mark.parametrize(
    ("repeat", "copies", "fault"),
    [
        ("none", 2, "hang"),
        ("none", 2, "drop_after"),
        ("by_key", 1, "drop_after"),
        ("by_lookup", 1, "hang"),
    ],
)
def test_a_card_that_arrived_unknown_to_the_hub(
    installations: dict[str, Installation], repeat: str, copies: int, fault: Any
) -> None:
    with (
        FakeChat(dedupes=repeat == "by_key") as chat,
        chat_home(installations, chat, repeat=repeat, call_limit_s=0.2) as home,
    ):
        home.start_chat_hub()
        chat.fault("post", fault)
        ask_id = home.hand_over(*ASK)
        posts = 2 if repeat != "by_lookup" else 1
        chat.until(
            lambda: (
                sum(call["call"] == "post" for call in chat.calls) >= posts
                and (repeat != "by_lookup" or any(c["call"] == "find" for c in chat.calls))
            ),
            what="the card is sent again, or looked up",
        )
        home.until_ask(ask_id, state="open")
        eventually(
            lambda: home.rows("SELECT 1 FROM card WHERE ref IS NOT NULL"), what="the ref"
        )
        shown = chat.shown("Deploy?")
        assert len(shown) == copies
        if copies == 2:
            assert "repeat" not in shown[0].text
            assert shown[1].text.startswith("This may be a repeat")
        assert chat.receipt(chat.press(shown[-1], "yes"))["ok"]
        home.until_ask(ask_id, outcome="answered")
        chat.until(lambda: not shown[-1].buttons, what="the card is closed")


def test_a_pause_that_the_platform_asks_for_outlives_the_hub(
    installations: dict[str, Installation],
) -> None:
    with FakeChat() as chat, chat_home(installations, chat) as home:
        hub = home.start_chat_hub()
        chat.fault("open", "throttle", retry_after_s=4.0)
        begun_s = time.monotonic()
        home.hand_over(*ASK)
        eventually(lambda: home.rows("SELECT 1 FROM gate"), what="the gate")
        hub.kill()
        home.start_chat_hub()
        chat.card("Deploy?")
        assert time.monotonic() - begun_s >= 3.5
        assert len(chat.threads) == 1


def test_an_answer_that_was_given_while_the_hub_was_down_counts_if_it_was_in_time(
    installations: dict[str, Installation],
) -> None:
    with FakeChat() as chat, chat_home(installations, chat) as home:
        hub = home.start_chat_hub()
        in_time = home.hand_over("--session", "a", "--timeout", "2s", "First?", "-o", "yes")
        too_late = home.hand_over("--session", "b", "--timeout", "2s", "Second?", "-o", "yes")
        nobody = home.hand_over("--session", "c", "--timeout", "2s", "Third?", "-o", "yes")
        cards = [chat.card(one) for one in ("First?", "Second?", "Third?")]
        asked = home.ask_state(in_time)
        hub.kill()
        before = chat.press(cards[0], "yes", sent_ms=asked["deadline_ms"] - 500)
        after = chat.press(cards[1], "yes", sent_ms=asked["deadline_ms"] + 5000)
        eventually(lambda: time.time() * 1000 > asked["deadline_ms"] + 300, what="its end")
        home.start_chat_hub()
        assert chat.receipt(before)["ok"]
        assert not chat.receipt(after)["ok"]
        assert home.until_ask(in_time, state="closed")["outcome"] == "answered"
        for ask_id, card in ((too_late, cards[1]), (nobody, cards[2])):
            assert home.until_ask(ask_id, state="closed")["outcome"] == "timed_out"
            chat.until(functools.partial(is_closed, card), what="its card is closed")
        assert [call["call"] for call in chat.calls].count("post") == 3


def test_what_was_given_up_is_seen_tried_again_and_dropped(
    installations: dict[str, Installation],
) -> None:
    with FakeChat() as chat, chat_home(installations, chat) as home:
        home.start_chat_hub()
        assert home.run("outbox").err == "nothing waits, and nothing was given up\n"
        chat.fault("post", "refuse", times=2, code="message_too_odd")
        first = home.hand_over("--session", "a", "One?", "-o", "yes")
        second = home.hand_over("--session", "b", "Two?", "-o", "yes")
        query = "SELECT id FROM delivery WHERE state = 'dead' ORDER BY id"
        eventually(lambda: len(home.rows(query)) == 2, what="both are dead")
        letters = home.run("outbox", "--json").json["letters"]
        assert [one["ask"] for one in letters] == [first, second]
        assert {(one["state"], one["reason"]) for one in letters} == {
            ("dead", "message_too_odd")
        }
        listed = home.run("outbox")
        assert f"given up  fakechat  post of {first}" in listed.out
        findings = home.run("doctor", "--json").json["findings"]
        dead = [one for one in findings if one["code"] == "dead_letter"]
        ids = [one["id"] for one in letters]
        assert [one["recover"] for one in dead] == [
            f"upcall outbox retry {number}, or: upcall outbox drop {number}" for number in ids
        ]
        done = home.run("outbox", "drop", str(ids[0]), "999999")
        assert (done.code, done.err) == (1, "999999: it is not in the outbox\n1 dropped\n")
        assert home.run("outbox", "retry", "--all", "--json").json == {
            "done": [ids[1]],
            "refused": [],
        }
        chat.receipt(chat.press(chat.card("Two?"), "yes"))
        home.until_ask(second, outcome="answered")
        assert chat.shown("One?") == []
        # What the card says of its end may still be on its way.
        eventually(lambda: home.run("outbox", "--json").json == {"letters": []}, what="empty")
        assert home.ask_state(first)["state"] == "open"


def test_what_cannot_be_meant_is_a_usage_error() -> None:
    with Home() as home:
        for words in (
            ("retry",),
            ("drop", "--all"),
            ("retry", "--all", "3"),
            ("retry", "-1"),
            ("list", "3"),
            ("retry", "9" * 30),
        ):
            done = home.run("outbox", *words)
            assert done.code == 2, done
            assert "Traceback" not in done.err
        assert home.hub_json() == {}
