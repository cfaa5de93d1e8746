"""`upcall status`: what waits and what does not hear, in words."""

from typing import Any

import pytest

from upcall.cli.overview import status_lines, waiting_lines
from upcall.cli.where import changes

STATUS: dict[str, Any] = {"version": "0.1.0", "ready": True, "started_ms": 1, "pid": 7}


def status(**numbers: Any) -> dict[str, Any]:
    waiting = numbers.pop("waiting", 0)
    return {**STATUS, "sessions": 2, "deliveries_waiting": waiting, "numbers": numbers}


def test_a_hub_at_rest_says_nothing_of_what_waits() -> None:
    assert waiting_lines(status()) == []
    # A hub of an older version has no numbers.
    assert waiting_lines(STATUS) == []
    assert status_lines(STATUS)[0].startswith("hub 0.1.0: ready")


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (
            {"waiting": 1, "lanes": [{"lane": "ask", "waiting": 1, "oldest_s": 130.0}]},
            "1 delivery waiting (the oldest for 2 min 10 s): upcall outbox",
        ),
        (
            {"waiting": 3, "lanes": []},
            "3 deliveries waiting: upcall outbox",
        ),
        (
            {"gates": [{"channel": "telegram", "one_place": False, "closed_for_s": 31.0}]},
            "telegram asked for a pause; goes on in 31 s",
        ),
        (
            {"gates": [{"channel": "slack", "one_place": True, "closed_for_s": 2.0}]},
            "a conversation of slack asked for a pause; goes on in 2 s",
        ),
        ({"uncertain": 1}, "1 delivery may have arrived, or not: upcall outbox"),
        ({"dead_letters": 2}, "2 deliveries given up: upcall outbox"),
    ],
)
def test_what_waits_is_said_with_its_reason(numbers: dict[str, Any], words: str) -> None:
    assert waiting_lines(status(**numbers)) == [words]
    assert f"  ! {words}" in status_lines(status(**numbers))


def test_sessions_that_are_found_and_not_attached_are_told() -> None:
    lines = status_lines(status(discovered=3, attached=1))
    assert "  2 sessions; 3 endpoints found, 1 attached: upcall sessions --all" in lines
    assert "  2 sessions" in status_lines(status(discovered=2, attached=2))


def chat(state: str, **facts: Any) -> dict[str, Any]:
    return {"name": "telegram", "state": state, **facts}


INBOX = {"name": "web", "state": "delivered", "audience": 1}


def test_an_asker_hears_that_a_chat_does_not_and_where_the_question_is() -> None:
    before = [chat("delivered"), INBOX]
    after = [chat("down", reason="name resolution failed", deaf_since_ms=0), INBOX]
    (words,) = changes(before, after)
    assert words.startswith("telegram is not hearing since 1970-01-01 ")
    assert words.endswith(" (name resolution failed); the question is in inbox (1 tab)")
    assert changes(after, before) == ["telegram hears again"]
    assert changes(after, after) == []


def test_what_is_new_or_a_page_is_no_change() -> None:
    away = {"name": "web", "state": "down"}
    assert changes([], [chat("down")]) == []
    assert changes([INBOX], [away]) == []
    assert changes([chat("sending")], [chat("delivered")]) == []


def test_words_of_elsewhere_are_harmless() -> None:
    (words,) = changes([chat("delivered")], [chat("down", reason="\x1b[2J\n" + "x" * 500)])
    assert "\x1b" not in words
    assert "\n" not in words
    assert len(words) < 200
