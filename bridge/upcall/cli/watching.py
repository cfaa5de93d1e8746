"""What `upcall watch` shows and what keys do: a state and its drawing. Pure."""

from __future__ import annotations

import time

from upcall.cli import asks, choose, drawn, results, screen, where
from upcall.cli.cells import cut, pad, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_NOTICES = 20
_NOTICES_SHOWN = 3
UP, DOWN, ENTER, ESCAPE, BACKSPACE, PAGE_UP, PAGE_DOWN = (
    "up", "down", "enter", "escape", "backspace", "page up", "page down",
)  # fmt: skip


class Wish:
    """What a key asks for: an `answer` request for the hub, or the end."""

    __slots__ = ("fields", "leave")

    def __init__(self, fields: dict[str, Any] | None = None, *, leave: bool = False) -> None:
        self.fields = fields
        self.leave = leave


class Watching:
    """The open asks, which one is looked at, and what is being typed."""

    def __init__(self) -> None:
        self.asks: list[dict[str, Any]] = []
        self.sessions: list[dict[str, Any]] = []
        self.channels: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.chosen: str | None = None
        self.typed = ""
        self.typing = False
        self.declining = False
        self.says = ""
        self.is_connected = True
        self._scroll = 0
        # Of the question that is looked at: what no scrolling has brought to the screen yet,
        # and the one whose masks were pointed out.
        self._unseen_chars = 0
        self._page = 5
        self._pointed_out: object = None

    # --- what the hub says ------------------------------------------------------------------

    def take_screen(self, event: dict[str, Any]) -> None:
        """Take in how things stand. What is looked at stays, as long as it is there."""
        former = self.current()
        self.asks = list(event.get("asks") or [])
        self.sessions = list(event.get("sessions") or [])
        self.channels = list(event.get("channels") or [])
        now = self.current()
        # What was typed was meant for what was shown.
        if now is None or (former and former.get("revision") != now.get("revision")):
            if (self.typing or self.declining) and self.chosen is not None:
                unused = " Your input was not used." if self.typed else ""
                self.says = f"That question has ended.{unused}"
            self.typing, self.declining, self.typed, self._scroll = False, False, "", 0
            if now is None:
                self.chosen = str(self.asks[0].get("id")) if self.asks else None

    def take_notice(self, event: dict[str, Any]) -> None:
        """Take in what a session said."""
        session = event.get("session") or {}
        who = session.get("title") or session.get("program") or session.get("session_id")
        at_ms = event.get("at_ms")
        when = screen.clock(at_ms if isinstance(at_ms, int) else int(time.time() * 1000))
        # In words, as in the inbox: the screen has no colours.
        kind = str(event.get("kind"))
        level = f"{kind.upper()} " if kind in {"warning", "error"} else ""
        said = level + screen.one_line(f"{who}: {event.get('text')}", 400)
        text = f"{when} {said}"
        self.notices = [*self.notices[1 - _MAX_NOTICES :], text]

    def current(self) -> dict[str, Any] | None:
        """Return the ask that is looked at."""
        return next((ask for ask in self.asks if ask.get("id") == self.chosen), None)

    # --- what a person types ----------------------------------------------------------------

    def key(self, key: str) -> Wish | None:
        """Take one key (a character or a name) and return what it asks for."""
        if self.declining:
            return self._key_declining(key)
        if self.typing:
            return self._key_typing(key)
        if key == "q":
            return Wish(leave=True)
        if key in {UP, "k"}:
            self._move(-1)
        elif key in {DOWN, "j"}:
            self._move(1)
        elif key in {PAGE_UP, PAGE_DOWN}:
            self._scroll = max(0, self._scroll + (5 if key == PAGE_DOWN else -5))
        elif len(self.asks) == 1 and self._begin_with(key):
            return None
        elif key.isascii() and key.isdigit() and 1 <= int(key) <= len(self.asks):
            self._look_at(self.asks[int(key) - 1])
        elif key in {ENTER, "a"} and self.current() is not None:
            self.typing, self.typed, self.says = True, "", ""
        elif key in {"d", "h"}:
            return self._special(key)
        return None

    def _begin_with(self, key: str) -> bool:
        """Begin the answer with the option of that number; Enter still has to send it."""
        ask = self.current()
        options = [str(option) for option in (ask or {}).get("options") or []]
        if not (key.isascii() and key.isdigit() and 1 <= int(key) <= len(options)):
            return False
        self.typing, self.says = True, ""
        self.typed = choose.number_of(int(key) - 1, options)
        return True

    def _special(self, key: str) -> Wish | None:
        ask = self.current()
        if ask is None:
            return None
        if key == "h":
            if not ask.get("can_hold"):
                self.says = "This program cannot hold its question."
                return None
            return Wish(self._fields(ask, hold=not ask.get("held")))
        if not ask.get("can_decline"):
            self.says = "This program does not take a decline."
            return None
        # Declining ends a question: it takes Enter, like every answer.
        self.declining, self.says = True, ""
        return None

    def _key_declining(self, key: str) -> Wish | None:
        """Take a key after `d`: nothing else can be typed between it and its Enter."""
        ask = self.current()
        if key == ENTER and ask is not None:
            self.declining, self.says = False, "sending…"
            return Wish(self._fields(ask, decline=True))
        if key in {ESCAPE, BACKSPACE, ENTER}:
            self.declining = False
        return None

    def _key_typing(self, key: str) -> Wish | None:
        if key == ESCAPE:
            self.typing, self.typed, self.says = False, "", ""
        elif key == BACKSPACE:
            self.typed = self.typed[:-1]
        elif key == ENTER:
            return self._submit()
        elif len(key) == 1:
            self.typed += key
        return None

    def _submit(self) -> Wish | None:
        ask = self.current()
        if ask is None:
            self.typing = False
            return None
        try:
            answer = choose.read(ask, self.typed)
        except choose.NotAnAnswer as why:
            if _has_masked_labels(ask) and self.typed.strip():
                # The hub knows the labels as their program wrote them.
                values, self.typing, self.typed = [self.typed.strip()], False, ""
                return Wish(self._fields(ask, values=values))
            self.says = str(why)
            return None
        if self._opens(ask, answer):
            return None
        self.typing, self.typed, self.says = False, "", "sending…"
        if answer.get("declined"):
            return Wish(self._fields(ask, decline=True))
        if "text" in answer:
            hidden = {"hidden": True} if ask.get("secret") else {}
            return Wish(self._fields(ask, values=[answer["text"]]) | hidden)
        return Wish(self._fields(ask, values=[f"#{i + 1}" for i in answer["indices"]]))

    def _opens(self, ask: dict[str, Any], answer: dict[str, Any]) -> bool:
        """Tell whether what is hidden of what will run has to be shown, or said, first."""
        if not set(ask.get("allows") or []).intersection(answer.get("indices") or []):
            return False
        if ask.get("left_out"):
            self.says = "What will run does not fit here; answer it in the inbox."
            return True
        if self._unseen_chars:
            self._scroll += max(1, self._page - 1)
            self.says = "There is more of what will run: read on; Enter goes on."
            return True
        masked = int(ask.get("hidden_chars") or 0)
        if masked and self._pointed_out != ask.get("revision"):
            self._pointed_out = ask.get("revision")
            self.says = f"{drawn.hidden_words(masked)}, masked. Enter again lets it run."
            return True
        return False

    @staticmethod
    def _fields(ask: dict[str, Any], **act: Any) -> dict[str, Any]:
        return {
            "ask": ask.get("id"),
            "revision": ask.get("revision"),
            "values": [],
            "decline": False,
            "hold": None,
        } | act

    def _move(self, step: int) -> None:
        if not self.asks:
            return
        ids = [ask.get("id") for ask in self.asks]
        here = ids.index(self.chosen) if self.chosen in ids else 0
        self._look_at(self.asks[max(0, min(len(ids) - 1, here + step))])

    def _look_at(self, ask: dict[str, Any]) -> None:
        self.chosen, self._scroll, self.says = str(ask.get("id")), 0, ""

    def told(self, result: dict[str, Any]) -> None:
        """Say what became of an answer."""
        outcome = result.get("outcome")
        if outcome == "answered":
            self.says = f"{results.by(result)} answered {results.in_quotes(result)} just now"
        elif outcome == "open":
            self.says = screen.one_line(str(result.get("reason") or "done"), 200)
        else:
            who = f" by {results.by(result)}" if result.get("answered_by") else ""
            self.says = screen.one_line(str(outcome).replace("_", " "), 40) + who

    # --- drawing ----------------------------------------------------------------------------

    def draw(self, columns: int, rows: int) -> list[str]:
        """Return exactly *rows* lines of at most *columns* cells, without escapes."""
        columns, rows = max(20, columns), max(8, rows)
        head = self._head()
        foot = [*self._notice_lines(columns, rows), *self._foot(columns)]
        room = rows - 1 - len(foot)
        listed = self._list(max(1, min(len(self.asks), room // 3)))
        detail = self._detail(columns, room - len(listed) - 1)
        body = [head, *listed, "-" * columns, *detail]
        body = body[: rows - len(foot)]
        body += [""] * (rows - len(foot) - len(body))
        return [cut(line, columns) for line in [*body, *foot]]

    def _head(self) -> str:
        count = len(self.asks)
        asking = f"{count} open question{'' if count == 1 else 's'}"
        live = len(self.sessions)
        places = where.shown([c for c in self.channels if c.get("name") != "terminal"])
        state = "" if self.is_connected else "  NOT CONNECTED to the hub, trying again"
        sessions = f"{live} session{'' if live == 1 else 's'}"
        return f"upcall  {asking}, {sessions}  {places}{state}"

    def _list(self, room: int) -> list[str]:
        if not self.asks:
            return ["  nothing is asked right now"]
        ids = [ask.get("id") for ask in self.asks]
        here = ids.index(self.chosen) if self.chosen in ids else 0
        first = max(0, min(here - room // 2, len(ids) - room))
        rows = [asks.row(ask) for ask in self.asks[first : first + room]]
        wide = [max(width_of(row[i]) for row in rows) for i in (1, 2)]
        return [
            f"{'>' if first + i == here else ' '} {first + i + 1:>2} "
            f"{pad(row[1], wide[0])}  {pad(row[2], wide[1])}  {row[3]}"
            for i, row in enumerate(rows)
        ]

    def _detail(self, columns: int, room: int) -> list[str]:
        ask = self.current()
        if ask is None:
            return []
        lines = [_origin(ask), ""]
        if ask.get("class") == "permission":
            # Whatever the program says of it comes after what will run.
            lines = [*drawn.asked(ask, columns), "", _origin(ask)]
        else:
            lines += drawn.asked(ask, columns)
        # The choices are always on the screen; what is long above them scrolls.
        tail = self._choices(ask, columns, 0)
        is_tight = len(lines) + len(tail) > room
        if is_tight:
            lines = [*drawn.asked(ask, columns), _origin(ask)]
            tail = tail[1:]
        self._page = space = max(1, room - len(tail))
        self._unseen_chars = 0
        if len(lines) > space:
            self._scroll = min(self._scroll, len(lines) - space)
            left = lines[self._scroll + space :]
            lines = lines[self._scroll : self._scroll + space]
            if left:
                self._unseen_chars = sum(map(len, [lines[-1], *left]))
                lines[-1] = _goes_on(lines[-1], len(left), columns, alone=space == 1)
        if ask.get("class") == "permission":
            hidden = self._unseen_chars + int(ask.get("hidden_chars") or 0)
            tail = self._choices(ask, columns, hidden)[1 if is_tight else 0 :]
        return [*lines, *tail]

    def _choices(self, ask: dict[str, Any], columns: int, hidden: int) -> list[str]:
        """Return what can be answered, with how much of what will run is hidden."""
        options = [str(option) for option in ask.get("options") or []]
        drawn_options = drawn.options(ask, columns, with_details=True, hidden=hidden)
        tail = ["", *drawn_options, *drawn.warnings(ask, columns)]
        if ask.get("multi") and len(options) > 1:
            tail.append(f"  several: e.g. {_several(options)}")
        if ask.get("note"):
            tail.append(screen.one_line(str(ask["note"]), 300))
        return tail

    def _foot(self, columns: int) -> list[str]:
        if self.declining:
            return [self.says, "Enter declines this question, Escape does not"]
        if not self.typing:
            return [self.says, self._keys()]
        shown = screen.visible(self.typed)
        if (self.current() or {}).get("secret"):
            shown = "*" * len(self.typed)
        while width_of(shown) > columns - 12:
            shown = shown[1:]
        return [self.says or "Enter sends, Escape does not", f"answer > {shown}"]

    def _keys(self) -> str:
        ask = self.current()
        keys = []
        if len(self.asks) > 1:
            keys = ["up/down or number: pick", "Enter: answer"]
        elif ask is not None:
            keys = ["number or Enter: answer" if ask.get("options") else "Enter: answer"]
        if ask is not None and ask.get("can_decline"):
            keys.append("d: decline")
        if ask is not None and ask.get("can_hold"):
            keys.append("h: release" if ask.get("held") else "h: hold")
        return "   ".join([*keys, "q: quit"])

    def _notice_lines(self, columns: int, rows: int) -> list[str]:
        """Return the newest notices, a line each, as far as the questions leave room."""
        room = (
            rows // 2
            if self.current() is None
            else min(_NOTICES_SHOWN, max(0, (rows - 12) // 3))
        )
        newest = self.notices[-room:] if room else []
        return ["- notices ".ljust(columns, "-"), *newest] if newest else []


def _goes_on(line: str, more: int, columns: int, *, alone: bool) -> str:
    """Return what stands in the last line of a text that goes on below."""
    if not alone:
        return f"... {more + 1} more lines: page down"
    end = f" … +{more}"
    return cut(line, columns - len(end)) + end


def _has_masked_labels(ask: dict[str, Any]) -> bool:
    return any(" characters]" in str(label) for label in ask.get("options") or [])


def _several(options: list[str]) -> str:
    numbers = [choose.number_of(index, options) for index in (0, min(2, len(options) - 1))]
    return ",".join(numbers)


def _named(session: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    parts = [screen.one_line(str(session[name]), 40) for name in names if session.get(name)]
    return list(dict.fromkeys(parts))


def _origin(ask: dict[str, Any]) -> str:
    session = ask.get("session") or {}
    words = [screen.one_line(str(ask.get("id")), 20)]
    # What the hub found out itself comes first; the rest is the session's word.
    words += _named(session, ("program", "machine"))
    said = _named(session, ("title", "repo", "branch"))
    if said:
        words.append(f"says: {', '.join(said)}")
    words.append(f"{screen.age(int(ask.get('raised_ms') or 0))} ago")
    deadline_ms = ask.get("deadline_ms")
    if ask.get("held"):
        words.append("held")
    elif isinstance(deadline_ms, int):
        left_s = deadline_ms / 1000 - time.time()
        words.append(f"{screen.duration(left_s)} left" if left_s > 0 else "time is up")
    if ask.get("class") == "permission":
        words.append("asks for permission")
    if session.get("redaction"):
        words.append(f"redaction {screen.one_line(str(session['redaction']), 120)}")
    return " · ".join(words)
