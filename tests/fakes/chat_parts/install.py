"""Installs the fake adapter where a real hub finds it, and starts such hubs."""

import functools
from pathlib import Path
from typing import Any

import msgspec

from fakes.chat_parts import adapter as adapter_module
from fakes.chat_parts.server import FakeChat
from fakes.home import Home, Running, eventually
from fakes.installation import Installation
from upcall.core.state import ChannelInfo
from upcall.model.platform import Capabilities

HERE = Path(__file__).parent
_GIVEN = "NAME = "


def capabilities_of(**fields: Any) -> Capabilities:
    """Return the fake's capabilities, with *fields* in place of its own."""
    return msgspec.structs.replace(adapter_module.CAPABILITIES, **fields)


def install(installation: Installation, name: str = "fakechat", **fields: Any) -> None:
    """Install the fake as the adapter *name*, with these capabilities in place of its own."""
    capabilities = capabilities_of(**fields)
    text = (HERE / "adapter.py").read_text(encoding="utf-8")
    head, found, _ = text.rpartition(f"\n{_GIVEN}")
    assert found
    given = (
        f"\nNAME = {name!r}\nCAPABILITIES = {capabilities!r}\nSPEC = spec(NAME, CAPABILITIES)\n"
    )
    package = f"upcall_{name}"
    installation.add_adapter(package, name, head + given)
    installation.write(f"{package}/points.py", (HERE / "points.py").read_text(encoding="utf-8"))


def config_of(chat: FakeChat, name: str = "fakechat", **fields: Any) -> str:
    """Return the channel's table in the configuration."""
    lines = [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in fields.items()]
    return "\n".join([f"[channels.{name}]", f"port = {chat.port}", *lines, ""])


def channel_info(name: str = "fakechat", **fields: Any) -> ChannelInfo:
    """Return the fake as the pure kernel knows it; its bodies are JSON with `text`.

    It does not say when it has caught up, unless it is asked for: nothing waits for it.
    """
    given = {"catches_up": False, **fields}
    capabilities = capabilities_of(**given)
    lower = functools.partial(adapter_module.lower_to, capabilities.text_limit)
    return ChannelInfo(name, capabilities, lower)


class ChatHome(Home):
    """A home whose hubs have a fake chat, and whose `upcall` starts such hubs.

    Args:
        chat: the platform.
        installation: made in the home by default; share one between homes to be quick.
        config: more of the configuration.
        operators: who may answer there, by the platform's ids.
        options: of the channel's table.
    """

    def __init__(
        self,
        chat: FakeChat,
        *,
        installation: Installation | None = None,
        config: str = "",
        operators: tuple[str, ...] = ("ada", "bob"),
        idle_exit_s: float = 30.0,
        capabilities: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(idle_exit_s=idle_exit_s)
        self.chat = chat
        if installation is None:
            installation = Installation(self.path)
            install(installation, **(capabilities or {}))
        self.upcall = (installation.python, "-P", "-m", "upcall")
        self._more = config
        self._operators = operators
        self._options = options
        self.configure()

    def configure(self, **options: Any) -> None:
        """Write the configuration, with these options of the channel in place of the first."""
        people = "".join(
            f'[operators.{name}]\nidentities = {{ fakechat = "{name}" }}\n'
            for name in self._operators
        )
        channel = config_of(self.chat, **{**self._options, **options})
        self.write_config(f"{self._more}\n{channel}\n{people}")

    def start_chat_hub(self, *, ready: bool = True) -> Running:
        """Start the hub in the foreground, and wait until it has the chat."""
        running = self.start("hub", "run")
        eventually(
            lambda: self.hub_pid() == running.pid or running.process.poll() is not None,
            what="the hub",
        )
        if ready:
            eventually(lambda: self.chat_state() == "hearing", what="the chat is heard")
        return running

    def chat_state(self) -> str:
        """Return how the hub says that the channel is."""
        try:
            with self.line("control") as line:
                channels = line.ok("status")["channels"]
        except (OSError, AssertionError):
            return ""
        for one in channels:
            if one["name"] == "fakechat":
                return "hearing" if one["state"] == "delivered" else str(one["state"])
        return ""
