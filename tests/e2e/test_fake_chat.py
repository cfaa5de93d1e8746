"""The fake chat itself: an ask goes out over it and its answer comes back."""

import json

from fakes.chat import ChatHome, FakeChat, channel_info
from fakes.kernel_rig import Rig


def test_an_ask_is_answered_by_a_tap_in_the_chat() -> None:
    with FakeChat() as chat, ChatHome(chat) as home:
        home.start_chat_hub()
        asker = home.start("ask", "Deploy?", "-o", "yes", "-o", "no")
        card = chat.card("Deploy?")
        assert list(card.buttons)[:2] == ["yes", "no"]
        receipt = chat.receipt(chat.press(card, "yes"))
        assert receipt["ok"], receipt
        done = asker.end()
        assert (done.code, done.out) == (0, "yes\n"), done
        chat.until(lambda: "yes" in card.state and not card.buttons, what="the card is closed")


def test_the_kernel_rig_takes_the_fake() -> None:
    rig = Rig(channel_info(threads=False))
    rig.ask()
    [row] = rig.sending("fakechat", "post")
    assert "Deploy?" in json.loads(row.body)["text"]
