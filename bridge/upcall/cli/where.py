"""Where a question really is, and who can see it, in one line."""

from __future__ import annotations

from upcall.cli import choose, screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_NAMES = {"web": "inbox", "terminal": "watch"}
_VIEWERS = {"web": ("tab", "tabs"), "terminal": ("screen", "screens")}
_EMPTY = {"web": "no page open", "terminal": "no screen open"}
_LINE_CELLS = 160
_CHOICES_CELLS = 40


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
        if reason == "starting":
            return f"{called} (starting)"
        return f"{called} (down{_since(channel)}: {reason})"
    if channel.get("name") in _VIEWERS:
        one, many = _VIEWERS[str(channel["name"])]
        count = int(channel.get("audience") or 0)
        return f"{called} ({count or 'no'} {one if count == 1 else many})"
    state = screen.one_line(str(channel.get("state")), 20)
    if state == "later":
        state = f"later: {screen.one_line(str(channel.get('reason') or 'not yet'), 80)}"
    return f"{called} ({state})"


def _since(channel: dict[str, Any]) -> str:
    since_ms = channel.get("deaf_since_ms")
    return f" since {screen.clock(since_ms)}" if isinstance(since_ms, int) else ""


def status(channel: dict[str, Any], channels: Sequence[dict[str, Any]] = ()) -> str:
    """Return how one channel is: `describe`, and when it was heard where that says more.

    Args:
        channel: the one.
        channels: all of them, to say where questions are shown while it does not hear.
    """
    shown_by = _EMPTY.get(str(channel.get("name")))
    if shown_by is not None and channel.get("state") != "down" and not _sees(channel):
        return f"{name(str(channel['name']))}: {shown_by}"
    heard_ms = channel.get("heard_ms")
    # Of pages and screens it would be when one was opened.
    is_known = (
        isinstance(heard_ms, int) and heard_ms > 0 and channel.get("name") not in _VIEWERS
    )
    heard = f", last heard {screen.age(int(heard_ms or 0))} ago" if is_known else ""
    event_ms = channel.get("event_ms")
    if isinstance(event_ms, int) and event_ms > 0:
        heard += f", last answer or word {screen.age(event_ms)} ago"
    if channel.get("state") != "down" or not channels or channel.get("reason") == "starting":
        return f"{describe(channel)}{heard}"
    others = [name(str(c.get("name"))) for c in channels if c.get("state") != "down"]
    places = ", ".join(others) or "no other place"
    return f"{describe(channel)}{heard}; meanwhile questions are in {places}"


def changes(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    """Return what to say of chats that stopped hearing, or hear again, in the meantime."""
    was_down = {str(c.get("name")): c.get("state") == "down" for c in before}
    lines = []
    for channel in now:
        called, is_down = str(channel.get("name")), channel.get("state") == "down"
        if called in _VIEWERS or called not in was_down or was_down[called] == is_down:
            continue
        if not is_down:
            lines.append(f"{name(called)} hears again")
            continue
        since = _since(channel)
        reason = screen.one_line(str(channel.get("reason") or "no reason given"), 80)
        places = shown([c for c in now if c.get("state") != "down"]) or "no other place yet"
        lines.append(
            f"{name(called)} is not hearing{since} ({reason}); the question is in {places}"
        )
    return lines


def shown(channels: list[dict[str, Any]]) -> str:
    """Return the places that matter: none without viewers when another one has some."""
    seen = is_seen(channels)
    worth = [c for c in channels if _sees(c) or c.get("name") not in _VIEWERS]
    if not seen:
        worth = [c for c in channels if c.get("name") != "terminal"]
    return ", ".join(describe(channel) for channel in worth)


def asked(ask: dict[str, Any], channels: list[dict[str, Any]], *, here: bool) -> str:
    """Return the line that says where the question is, at once.

    Commands in it hold `screen.GLUE`, so that no line is broken there.
    """
    ask_id = screen.one_line(str(ask.get("id", "?")), 40)
    if not here and not is_seen(channels):
        return unseen(ask, channels)
    places = shown(channels) if is_seen(channels) else _others(channels)
    end = f" - {_here(ask)} - Ctrl-C cancels" if here else f" - or: {_glued(ask)}"
    line = f"asked {ask_id}" + (f" in {places}" if places else "") + end
    if len(line) <= _LINE_CELLS or not is_seen(channels):
        return line
    names = ", ".join(name(str(c.get("name", "?"))) for c in channels if _sees(c))
    lost = "".join(f", {describe(c)}" for c in channels if c.get("state") == "down")
    return f"asked {ask_id} in {names}{lost}{end}"


def _here(ask: dict[str, Any]) -> str:
    """Return how it is answered here, with the choices while they are short."""
    options = [str(option) for option in ask.get("options") or []]
    choices = ", ".join(
        f"{choose.number_of(index, options)} {screen.one_line(label, _CHOICES_CELLS)}"
        for index, label in enumerate(options)
    )
    short = choices and len(choices) <= _CHOICES_CELLS
    return f"answer here: {choices}" if short else "answer here"


def unseen(ask: dict[str, Any], channels: list[dict[str, Any]]) -> str:
    """Return the line that says that nobody can see the question, and what helps."""
    ask_id = screen.one_line(str(ask.get("id", "?")), 40)
    others = _others(channels)
    is_signed_in = any(c.get("name") == "web" and c.get("signed_in") for c in channels)
    browser = "no page of the inbox is open" if is_signed_in else "no browser is signed in"
    why = others or f"no channel is set up and {browser}"
    inbox = f"upcall{screen.GLUE}inbox"
    return (
        f"nobody can see question {ask_id} yet: {why}. "
        f"Answer: {_glued(ask)}. Open the inbox: {inbox}"
    )


def told(channels: list[dict[str, Any]]) -> str:
    """Return where a notice went."""
    if is_seen(channels):
        return f"told in {shown(channels)}"
    others = _others(channels)
    return f"kept; nobody has seen it yet{f': {others}' if others else ''}"


def _others(channels: list[dict[str, Any]]) -> str:
    """Return the channels that are no pages or screens of ours."""
    return ", ".join(describe(c) for c in channels if c.get("name") not in _VIEWERS)


def _glued(ask: dict[str, Any]) -> str:
    return answer_command(ask).replace(" ", screen.GLUE)


def answer_command(ask: dict[str, Any]) -> str:
    """Return the command that answers *ask* from another terminal."""
    options = ask.get("options") or []
    value = quoted(screen.one_line(str(options[0]), 30)) if options else "TEXT"
    if ask.get("secret"):
        value = ""  # it is typed unseen
    return f"upcall answer {screen.one_line(str(ask.get('id', '?')), 40)} {value}".rstrip()


def quoted(text: str) -> str:
    """Return *text* as one word of a shell."""
    plain = text.replace("-", "").replace("_", "").replace(".", "")
    if plain.isascii() and plain.isalnum() and not text.startswith("-"):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
