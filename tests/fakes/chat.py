"""A scriptable chat platform, and an adapter for it that runs in real hubs.

In three lines, with a real hub as a process::

    with FakeChat() as chat, ChatHome(chat) as home:
        home.start_chat_hub(); ask_id = home.hand_over("Deploy?", "-o", "yes", "-o", "no")
        chat.press(chat.card("Deploy?"), "yes"); home.until_ask(ask_id, outcome="answered")

* Capabilities: `ChatHome(chat, capabilities={"repeat": "by_key", "threads": False})`; for
  `by_key` the platform must know repeats too: `FakeChat(dedupes=True)`.
* People: `chat.press(card, label)`, `chat.write(place, text)`, then `chat.receipt(key)`.
* Faults: `chat.fault("post", "throttle", retry_after_s=2)`; see `Fault` for the others.
  `chat.deaf()` and `hear()`, `down()` and `up()`, `remove_thread(place)`.
* What is there: `chat.card(text)` waits for a message; `chat.messages`, `chat.threads`,
  `chat.calls`, `chat.receipts`; `chat.until(check)` waits for anything.
* Many homes: one `Installation` with `install(installation)` for all of them.
* The pure kernel: `Rig(channel_info(repeat="none", threads=True))` of `fakes.kernel_rig`;
  bodies are JSON with `text`, `state`, `buttons`.
"""

from fakes.chat_parts.install import ChatHome, channel_info, config_of, install
from fakes.chat_parts.server import FakeChat, Fault, Posted, Thread

__all__ = [
    "ChatHome",
    "FakeChat",
    "Fault",
    "Posted",
    "Thread",
    "channel_info",
    "config_of",
    "install",
]
