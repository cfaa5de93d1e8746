"""A real hub whose chat does not hear for long: what is made up for, and what is said of it."""

import os
import re
import secrets
import urllib.request
from collections.abc import Iterator

import pytest

from fakes.chat import ChatHome, FakeChat, config_of, install
from fakes.home import Home, eventually
from fakes.installation import Installation
from upcall.model.ids import new_ask_id

BEFORE, DURING = 50, 500
CONFIG = f"""
[operators.ada]
identities = {{ fakechat = "ada", local = "{os.getuid()}" }}

[limits]
shown_asks = 4096
shown_asks_per_minute = 100000

[hub]
tell_degraded = true
"""
ROUND_S = 0.4


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with Home() as home:
        made = Installation(f"{home.path}/i")
        install(made)
        install(made, name="rounds", round_s=ROUND_S)
        yield made


def test_a_chat_is_down_while_hundreds_are_asked_and_answered_elsewhere(
    installation: Installation,
) -> None:
    with (
        FakeChat() as chat,
        ChatHome(chat, installation=installation, config=CONFIG, operators=()) as home,
    ):
        home.start_chat_hub()
        with home.line("control") as line:

            def ask(word: str, number: int) -> str:
                ask_id = new_ask_id(secrets.token_bytes(8))
                spec = {
                    "id": ask_id,
                    "question": f"{word} {number}?",
                    "options": ["yes", "no"],
                    "free_text": False,
                }
                line.ok("ask", ask=spec, session={"name": f"s{number % 7}"}, wait=False)
                return ask_id

            before = [ask("before", number) for number in range(BEFORE)]
            chat.until(lambda: len(chat.shown("before")) == BEFORE, within_s=30)
            chat.down()
            eventually(
                lambda: "fakechat (down" in home.run("status").out,
                what="it is seen",
                within_s=10,
            )
            during = [ask("during", number) for number in range(DURING)]
            for ask_id in before + during:
                line.ok("answer", ask=ask_id, values=["yes"])
            late = ask("late", 0)
            made = len(chat.calls)
            chat.up()
            chat.card("late 0?", within_s=30)
            chat.until(
                lambda: not any(card.buttons for card in chat.shown("before")),
                within_s=60,
                what="every card from before is closed",
            )
            eventually(lambda: line.ok("status")["deliveries_waiting"] == 0, within_s=30)
            assert chat.shown("during") == []
            summaries = [one.text for one in chat.messages if "could not hear you" in one.text]
            assert len(summaries) == 1
            assert f"Meanwhile {DURING} questions were settled elsewhere" in summaries[0]
            posts = [one for one in chat.calls[made:] if one["call"] == "post"]
            assert len(posts) == 2
            assert home.ask_state(late)["state"] == "open"


def test_a_chat_that_is_connected_and_completes_no_round_is_told_as_deaf(
    installation: Installation,
) -> None:
    with FakeChat() as chat, FakeChat() as second:
        config = CONFIG + config_of(second, "rounds", adapter="rounds")
        with ChatHome(chat, installation=installation, config=config, operators=()) as home:
            home.start_chat_hub()
            fault = second.fault("round", "lose", times=10**6)
            status = eventually(
                lambda: _line_of(home, r"rounds \(down since .*no inbound round"),
                what="it is taken for deaf",
                within_s=20,
            )
            assert re.search("meanwhile questions are in .*fakechat", status)
            url = str(home.hub_json()["web_url"])
            assert _get(f"{url}healthz") == "ok\n"
            assert _line_of(home, "fakechat .delivered")
            found = home.run("doctor", "--json").json["findings"]
            assert [one["code"] for one in found if "inbound round" in one["msg"]] == [
                "channel_rounds"
            ]
            assert fault.times > 0
            second.heal()
            eventually(
                lambda: _line_of(home, r"rounds \(delivered"), what="it hears", within_s=20
            )


def _line_of(home: Home, pattern: str) -> str:
    out = home.run("status").out
    return next((line for line in out.splitlines() if re.search(pattern, line)), "")


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text
