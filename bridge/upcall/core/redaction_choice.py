"""What people choose for one conversation: credentials masked, or for a while shown.

Stricter is anybody's to choose, and stays. Laxer is for whoever has `control`, ends by itself
within a day, and stands in the header of every card while it lasts.
"""

import re
from typing import Final

import msgspec

from upcall.core.outbox import Outbox
from upcall.core.render import duration_words
from upcall.core.state import HubState, Redaction, Step
from upcall.model.effects import SaveSetting
from upcall.model.text import one_line

KEPT_AS: Final = "#redaction"
"""No channel can be called so; what is chosen is kept beside what adapters keep."""
MAX_OFF_S: Final = 24 * 3600.0
USUAL_OFF_S: Final = 3600.0
_SPAN: Final = re.compile(r"(\d{1,6})(min|s|m|h|d)")
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class _Kept(msgspec.Struct, frozen=True):
    redact: bool
    by: str
    until_ms: int | None = None


_kept: Final = msgspec.json.Decoder(_Kept)


def read_span(text: str) -> float | None:
    """Return the seconds of a text such as `2h` or `1h30m`, or None if it is none."""
    text = text.strip().casefold()
    if not text or _SPAN.sub("", text):
        return None
    return sum(int(count) * _UNITS_S[unit] for count, unit in _SPAN.findall(text))


class RedactionChoices:
    """Keeps what was chosen, and ends what was chosen for a while."""

    def __init__(self, state: HubState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def choose(
        self,
        step: Step,
        conversation: str,
        *,
        redact: bool | None,
        by: str,
        for_s: float | None = None,
    ) -> Redaction | None:
        """Let *by* choose; whether they may was asked before.

        Args:
            step: what is being decided.
            conversation: its key.
            redact: masked or not; None: as the configuration says.
            by: who, in words.
            for_s: how long credentials are shown; at most a day, an hour if nothing is said.

        Returns:
            What holds from now on, or None if the configuration does.
        """
        if redact is None:
            chosen = None
        elif redact:
            chosen = Redaction(redact=True, by=by)
        else:
            left_s = max(0.0, min(USUAL_OFF_S if for_s is None else for_s, MAX_OFF_S))
            until_ms = step.at.wall_ms + int(left_s * 1000)
            chosen = Redaction(redact=False, by=by, until_ms=until_ms)
        self._set(step, conversation, chosen)
        step.audit(
            "redaction",
            None,
            session=self._session(conversation),
            on=redact,
            until_ms=None if chosen is None else chosen.until_ms,
            by=by,
        )
        self._tell(step, conversation, chosen)
        return chosen

    def resume(self, step: Step) -> None:
        """At start: go on with what was chosen, and end what is over."""
        kept = [
            (name, value)
            for (of, name), value in self._state.settings_kept.items()
            if of == KEPT_AS
        ]
        for conversation, value in kept:
            try:
                found = _kept.decode(value)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                self._set(step, conversation, None)
                continue
            chosen = Redaction(redact=found.redact, by=found.by, until_ms=found.until_ms)
            left_s = _left_s(chosen, step.at.wall_ms)
            if left_s is not None and left_s <= 0:
                self._set(step, conversation, None)
                continue
            self._state.redactions[conversation] = chosen
            self._set_timer(step, conversation, left_s)

    def due(self, step: Step, conversation: str) -> None:
        """The time of a laxer choice is over."""
        self._set(step, conversation, None)
        session = self._session(conversation)
        step.audit("redaction", None, session=session, on=True, until_ms=None)

    def _session(self, conversation: str) -> str | None:
        """Return a session of it: the conversation's name can be forgotten, a line cannot."""
        return next(iter(self._state.living.get(conversation, ())), None)

    def _set(self, step: Step, conversation: str, chosen: Redaction | None) -> None:
        state, key = self._state, (KEPT_AS, conversation)
        state.redaction_due.pop(conversation, None)
        if chosen is None:
            state.redactions.pop(conversation, None)
            state.settings_kept.pop(key, None)
            step.write(SaveSetting(KEPT_AS, conversation, None))
        else:
            state.redactions[conversation] = chosen
            kept = _Kept(redact=chosen.redact, by=chosen.by, until_ms=chosen.until_ms)
            value = msgspec.json.encode(kept).decode()
            state.settings_kept[key] = value
            step.write(SaveSetting(KEPT_AS, conversation, value))
            self._set_timer(step, conversation, _left_s(chosen, step.at.wall_ms))
        for session_id in state.living.get(conversation, ()):
            live = state.live.get(session_id)
            if live is not None:
                # It was cut under the former choice; the next text comes under the new one.
                live.last_text, live.said = None, ""
            for row in state.asks_of(session_id):
                state.forget_shown(row.ask_id)
                self._outbox.redraw(step, row)
        step.change()

    def _set_timer(self, step: Step, conversation: str, left_s: float | None) -> None:
        if left_s is not None:
            # Never longer than a day, whatever the wall clock says after a restart.
            due_s = step.at.boot_s + min(left_s, MAX_OFF_S)
            self._state.redaction_due[conversation] = due_s
            step.timer(due_s, "redaction", conversation)

    def _tell(self, step: Step, conversation: str, chosen: Redaction | None) -> None:
        session_id = next(iter(self._state.living.get(conversation, ())), None)
        if session_id is None or chosen is None or chosen.redact:
            return
        left_s = _left_s(chosen, step.at.wall_ms) or 0.0
        step.notice(
            session_id,
            "security",
            "Credentials are not masked in this conversation for "
            f"{duration_words(left_s)}, chosen by {one_line(chosen.by, 80)}.",
        )


def _left_s(chosen: Redaction, at_ms: int) -> float | None:
    return None if chosen.until_ms is None else (chosen.until_ms - at_ms) / 1000
