"""Where a question really is, and who can see it, in one line."""

from __future__ import annotations

from upcall.cli import choose, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES = {"web": "inbox", "terminal": "watch"}
_VIEWERS = {"web": ("tab", "tabs"), "terminal": ("screen", "screens")}
_HERE_CHARS = 60


def name(channel: str) -> str:
    """Return what a person calls a channel."""
    return screen.one_line(_NAMES.get(channel, channel), 40)


def is_seen(channels: list[dict[str, Any]]) -> bool:
    """Tell whether somebody can see the question on one of *channels* right now."""
    return any(_sees(channel) for channel in channels)


def _sees(channel: dict[str, Any]) -> bool:
    if channel.get("state") == "down":
        return False
    if channel.get("name") in _VIEWERS:
        return bool(channel.get("audience"))
    return channel.get("state") == "delivered"


def describe(channel: dict[str, Any]) -> str:
    """Return one channel with what is true of it, such as `inbox (1 tab)`."""
    called = name(str(channel.get("name", "?")))
    if channel.get("state") == "down":
        reason = screen.one_line(str(channel.get("reason") or "not hearing"), 80)
        return f"{called} (starting)" if reason == "starting" else f"{called} (down: {reason})"
    if channel.get("name") in _VIEWERS:
        one, many = _VIEWERS[str(channel["name"])]
        count = int(channel.get("audience") or 0)
        return f"{called} ({count or 'no'} {one if count == 1 else many})"
    return f"{called} ({screen.one_line(str(channel.get('state')), 20)})"


def shown(channels: list[dict[str, Any]]) -> str:
    """Return all places that matter: a watch screen only when one is open."""
    worth = [c for c in channels if c.get("name") != "terminal" or c.get("audience")]
    return ", ".join(describe(channel) for channel in worth)


def asked(ask: dict[str, Any], channels: list[dict[str, Any]], *, here: bool) -> str:
    """Return the line that says where the question is, at once."""
    ask_id = screen.one_line(str(ask.get("id", "?")), 40)
    if not here and not is_seen(channels):
        return unseen(ask, channels)
    places = shown(channels)
    start = f"asked {ask_id}" + (f" in {places}" if places else "")
    if not here:
        return f"{start} - or answer: {answer_command(ask)}"
    options = [str(option) for option in ask.get("options") or []]
    if not options:
        return f"{start} - answer here - Ctrl-C cancels"
    numbered = ", ".join(
        f"{choose.number_of(i, options)} {screen.one_line(label, 30)}"
        for i, label in enumerate(options)
    )
    listed = f"answer here: {numbered}" if len(numbered) <= _HERE_CHARS else "answer here"
    return f"{start} - {listed} - Ctrl-C cancels"


def unseen(ask: dict[str, Any], channels: list[dict[str, Any]]) -> str:
    """Return the line that says that nobody can see the question, and what helps."""
    ask_id = screen.one_line(str(ask.get("id", "?")), 40)
    others = [c for c in channels if c.get("name") not in _VIEWERS]
    why = (
        ", ".join(describe(channel) for channel in others)
        if others
        else "no channel is set up and no browser is signed in"
    )
    return (
        f"nobody can see question {ask_id} yet: {why}. "
        f"Answer: {answer_command(ask)}. Open the inbox: upcall inbox"
    )


def answer_command(ask: dict[str, Any]) -> str:
    """Return the command that answers *ask* from another terminal."""
    options = ask.get("options") or []
    value = quoted(screen.one_line(str(options[0]), 30)) if options else "TEXT"
    return f"upcall answer {screen.one_line(str(ask.get('id', '?')), 40)} {value}"


def quoted(text: str) -> str:
    """Return *text* as one word of a shell."""
    plain = text.replace("-", "").replace("_", "").replace(".", "")
    if plain.isascii() and plain.isalnum() and not text.startswith("-"):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
