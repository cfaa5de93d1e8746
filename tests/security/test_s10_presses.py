"""S10: a press counts once, where its card stands, by whom may, and never on a forged card."""

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.chat import ChatHome, FakeChat
from fakes.home import eventually
from fakes.kernel_rig import ADA, HOME, YES_NO, Rig, channel
from upcall.core.presses import ELSEWHERE, NOT_OURS
from upcall.hub.store.retention import TOKEN_DAYS
from upcall.model.platform import Place, Pressed, Receipt, Who

DAY_MS = 86_400_000
MALLORY = Who(identity="mallory", name="mallory")


def rig(**settings: Any) -> Rig:
    """Return a hub with two chats, on one of which an ask stands."""
    made = Rig(
        channel("chat", repeat="none", buttons=10),
        channel("other", repeat="none", buttons=10),
        **settings,
    )
    made.ask(wait=False)
    made.arrive_all()
    return made


def tokens(made: Rig, on: str = "chat") -> dict[str, str]:
    return {row.choice: row.token for row in made.store.tokens.values() if row.channel == on}


def place(made: Rig, on: str = "chat") -> str:
    return next(card.place for card in made.store.cards.values() if card.channel == on)


def notices(made: Rig) -> list[str]:
    return [row.text for row in made.store.notices.values() if row.kind == "security"]


def told_on(made: Rig) -> set[str]:
    """Return the channels on which a notice of the hub was posted."""
    return {
        row.target for row in made.store.deliveries.values() if row.effect.startswith("notice:")
    }


def is_open(made: Rig) -> bool:
    return made.only().state == "open"


def code(receipt: Receipt | None) -> str:
    assert receipt is not None
    return receipt.code


# --- where --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard_on", "channel_named", "address"),
    [
        ("chat", "chat", "another chat"),
        ("chat", "chat", ""),
        ("chat", "other", None),
        ("other", "other", None),
        ("other", "chat", None),
    ],
)
def test_a_press_from_anywhere_but_its_place_is_refused_and_reported(
    heard_on: str, channel_named: str, address: str | None
) -> None:
    made = rig()
    token = tokens(made)["0"]
    at = place(made) if address is None else address
    press = Pressed(key="p", token=token, place=Place(channel_named, at), who=ADA)
    receipt = made.act(press, on=heard_on)
    assert receipt == Receipt(ok=False, code="wrong_place", msg=ELSEWHERE)
    assert is_open(made)
    assert len(notices(made)) == 1
    assert heard_on not in told_on(made)
    assert code(made.press(token)) == "ok"
    assert made.only().outcome == "answered"


def test_a_token_of_one_thread_does_not_work_in_another_of_the_same_chat() -> None:
    made = rig()
    one = tokens(made)["0"]
    made.up()
    made.needs()
    made.arrive_all()
    theirs = next(card for card in made.store.cards.values() if card.place == HOME)
    assert code(made.press(one, at=theirs.place)) == "wrong_place"
    assert made.row() is not None
    assert all(row.state == "open" for row in made.store.asks.values())


def test_a_lost_card_of_the_recorded_place_is_adopted() -> None:
    """Its post was lost, or so the hub thought: a tap on it proves that it stands there."""
    made = Rig(channel("chat", repeat="none", buttons=10))
    made.ask(wait=False)
    (post,) = made.sending("chat", "post")
    made.fail(post, "uncertain")
    (card,) = made.store.cards.values()
    assert card.ref is None
    assert code(made.press(tokens(made)["0"], ref="lost-1")) == "ok"
    made.arrive_all()
    made.wait(3600)
    made.arrive_all()
    (card,) = made.store.cards.values()
    assert card.ref == "lost-1"
    posts = [one for one in made.store.deliveries.values() if one.kind == "post"]
    assert len(posts) == 1
    edits = [one for one in made.of_posts() if one.kind == "edit"]
    assert {one.ref for one in edits} == {"lost-1"}
    assert not made.card(edits[-1]).live


def test_a_second_copy_is_edited_with_the_first() -> None:
    made = rig()
    (known,) = {card.ref for card in made.store.cards.values() if card.channel == "chat"}
    hold = made.press(tokens(made)["0"], ref="copy-2", who=ADA)
    assert code(hold) == "ok"
    made.restart()
    made.arrive_all()
    closed = {
        one.ref
        for one in made.store.deliveries.values()
        if one.kind == "edit" and one.target == "chat" and one.state == "done"
    }
    assert closed == {known, "copy-2"}


def test_a_strangers_press_adopts_nothing() -> None:
    made = rig(operators={("chat", "ada"): "ada"})
    receipt = made.press(tokens(made)["0"], ref="forged", who=MALLORY)
    assert code(receipt) in {"stranger", "not_permitted"}
    assert made.store.copies == {}
    assert is_open(made)


# --- who and when -------------------------------------------------------------------------


def test_the_right_counts_at_the_press_not_at_the_post() -> None:
    made = rig(operators={("chat", "ada"): "ada"})
    token = tokens(made)["0"]
    made.restart(operators={("chat", "bob"): "bob"})
    assert code(made.press(token)) in {"stranger", "not_permitted"}
    assert is_open(made)


def test_an_old_button_is_explained_to_who_may_know_and_to_nobody_else() -> None:
    made = rig(operators={("chat", "ada"): "ada", ("other", "bob"): "bob"})
    token = tokens(made)["0"]
    bob = Who(identity="bob", name="bob")
    assert code(made.press(tokens(made, "other")["1"], on="other", who=bob)) == "ok"
    made.wait(120)
    for _ in range(2):
        late = made.press(token)
        assert late is not None
        assert (late.ok, late.code) == (False, "already_answered")
        assert late.msg.startswith('bob answered "no" on other 2 min')
        stranger = made.press(token, who=MALLORY)
        assert stranger is not None
        assert "bob" not in stranger.msg
        assert stranger.result is None
        # After a restart only the store's digest is left of it.
        made.restart()
        assert not made.kernel.knows_button(token)
    assert notices(made) == []


def test_an_old_button_of_another_place_is_refused_like_a_live_one() -> None:
    made = rig()
    token = tokens(made)["0"]
    made.press(token)
    made.restart()
    late = made.press(token, at="somewhere else")
    assert code(late) == "wrong_place"
    assert len(notices(made)) == 1


def test_a_button_of_a_question_that_changed_sends_nothing() -> None:
    made = Rig(channel("chat", repeat="none", buttons=10))
    made.up()
    made.needs("q1", "Drop shop?")
    made.arrive_all()
    old = tokens(made)
    made.needs("q1", "Drop prod?")
    made.arrive_all()
    receipt = made.press(old["0"])
    assert code(receipt) == "stale_card"
    assert {row.state for row in made.store.asks.values()} == {"closed", "open"}
    assert not [one for one in made.sent_frames() if hasattr(one, "answer")]
    new = tokens(made)
    assert not set(new.values()) & set(old.values())


def test_tokens_are_never_given_twice() -> None:
    made = rig()
    seen = set(made.store.tokens)
    made.press(tokens(made)["0"])
    for number in range(2, 12):
        made.restart()
        made.ask(number, YES_NO, wait=False)
        made.arrive_all()
        live = set(made.store.tokens)
        assert not live & seen
        seen |= live
        made.press(tokens(made)["1"], key=f"again-{number}")
        assert set(made.store.retired) == seen


# --- cards that are not ours --------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "x", "0" * 19, "decline", "\udcff", "a" * 64])
def test_a_card_that_the_hub_never_sent_is_told_as_such(token: str) -> None:
    made = rig()
    receipt = made.press(token, at=place(made), ref="forged")
    assert receipt == Receipt(ok=False, code="unknown_button", msg=NOT_OURS)
    assert "was not sent by your hub" in NOT_OURS
    assert is_open(made)
    assert len(notices(made)) == 1
    # It is said elsewhere: whoever posts in the bot's name reads along there.
    assert told_on(made) == {"other"}


def test_forged_cards_are_told_ever_less() -> None:
    made = rig()
    for _ in range(250):
        made.press("forged", at=place(made), who=MALLORY)
    assert len(notices(made)) == 3
    assert "100 such presses" in notices(made)[-1]


# --- with a real hub and its store --------------------------------------------------------


@pytest.fixture
def chat_home() -> Iterator[ChatHome]:
    with FakeChat() as chat_server, ChatHome(chat_server) as home:
        home.start_chat_hub()
        yield home


def closed_once(home: ChatHome, question: str) -> tuple[Any, str]:
    """Return a card whose ask was answered, and its former token for `yes`."""
    ask_id = home.hand_over(question, "-o", "yes", "-o", "no")
    card = home.chat.card(question)
    token = card.buttons["yes"]
    assert home.chat.receipt(home.chat.press(card, "yes"))["ok"]
    home.until_ask(ask_id, state="closed")
    home.chat.until(lambda: not card.buttons, what="the card is closed")
    return card, token


def test_an_old_button_is_known_for_ninety_days_also_after_a_restore(
    chat_home: ChatHome,
) -> None:
    home, chat_server = chat_home, chat_home.chat
    before, old = closed_once(home, "Before?")
    open_id = home.hand_over("Still open?", "-o", "yes", "-o", "no")
    live = chat_server.card("Still open?")
    live_token = live.buttons["yes"]
    assert home.run("hub", "stop").code == 0
    backup = f"{home.path}/backup.db"
    with sqlite3.connect(f"{home.state}/hub.db") as connection:
        connection.execute("VACUUM INTO ?", (backup,))
    home.start_chat_hub()
    after, newer = closed_once(home, "After?")
    assert home.run("hub", "stop").code == 0
    done = home.run("hub", "restore", backup, "--yes")
    assert done.code == 0, done
    home.start_chat_hub()

    receipt = chat_server.receipt(chat_server.press(before, "yes", token=old))
    assert receipt["code"] == "already_answered", receipt
    # This ask is younger than the backup; its button is known all the same.
    receipt = chat_server.receipt(chat_server.press(after, "yes", token=newer))
    assert receipt["msg"] == "This question is over. Nothing was sent."
    # This one is asked again, under another card: the former's buttons answer nothing.
    receipt = chat_server.receipt(chat_server.press(live, "yes", token=live_token))
    assert not receipt["ok"], receipt
    assert home.ask_state(open_id)["state"] == "open"
    assert home.rows("SELECT count(*) FROM notice WHERE text LIKE '%never made%'") == [(0,)]

    kept = home.rows("SELECT digest FROM retired_token")
    assert (hashlib.sha256(old.encode()).digest(),) in kept
    everything = b"".join(
        bytes(value) if isinstance(value, bytes) else str(value).encode()
        for (value,) in home.rows("SELECT digest FROM retired_token")
    )
    assert old.encode() not in everything


def test_after_ninety_days_nothing_is_kept_of_it(chat_home: ChatHome) -> None:
    home, chat_server = chat_home, chat_home.chat
    card, token = closed_once(home, "Long ago?")
    assert home.run("hub", "stop").code == 0
    with sqlite3.connect(f"{home.state}/hub.db") as connection:
        now_ms = int(time.time() * 1000)
        connection.execute(
            "UPDATE retired_token SET retired_ms = ?", (now_ms - (TOKEN_DAYS + 1) * DAY_MS,)
        )
    connection.close()
    home.start_chat_hub()
    # The sweep is done at the start, and each day.
    eventually(lambda: home.rows("SELECT count(*) FROM retired_token") == [(0,)])
    receipt = chat_server.receipt(chat_server.press(card, "yes", token=token))
    assert receipt["code"] == "unknown_button"
    assert "older than 90 days" in receipt["msg"]


def test_a_card_posted_with_the_bots_token_raises_a_notice(chat_home: ChatHome) -> None:
    home, chat_server = chat_home, chat_home.chat
    card, _ = closed_once(home, "Ours?")
    key = chat_server.press(card, "", token="0123456789abcdefghj", ref="forged-1")
    receipt = chat_server.receipt(key)
    assert "was not sent by your hub" in receipt["msg"]
    notes = home.rows("SELECT text FROM notice WHERE kind = 'security'")
    assert any("never made" in text for (text,) in notes)
