"""Settings that were read anew: taken up at once, or once a former operator has agreed."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Final

from upcall.core.announce import Announcer
from upcall.core.authority import Authority
from upcall.core.changes import changes
from upcall.core.in_force import KEPT_SETTINGS, OWN, REFUSED_SETTINGS, live_of, with_live
from upcall.core.ledger import Ledger
from upcall.core.outbox import Outbox
from upcall.core.own_asks import TAKE_UP, OwnAsks, is_agreed
from upcall.core.state import HubState, Step, WaitingSettings
from upcall.model.events import SettingsChanged, SettingsRefused
from upcall.model.rows import AskRow
from upcall.model.settings import Change, LiveSettings
from upcall.model.text import one_line

_DETAIL_LINES: Final = 60


class SettingsChange:
    """Takes settings up, and keeps what is in force for the next start."""

    def __init__(
        self,
        state: HubState,
        ledger: Ledger,
        outbox: Outbox,
        announcer: Announcer,
        authority: Authority,
        own_asks: OwnAsks,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._outbox = outbox
        self._announcer = announcer
        self._authority = authority
        self._own_asks = own_asks

    def changed(self, step: Step, event: SettingsChanged) -> None:
        """Take up what was read; what widens a right may have to be agreed to first."""
        state = self._state
        kept = state.settings_kept.get((OWN, KEPT_SETTINGS))
        found = changes(live_of(state.settings), event.settings)
        waiting = state.waiting_settings
        if waiting is not None and waiting.source != event.source:
            self._forget_waiting(step)
            waiting = None
        if not found:
            if kept != event.source:
                self._authority.save(step, KEPT_SETTINGS, event.source)
            return
        widens = any(change.widens for change in found)
        if not (widens and state.settings.confirm_changes):
            self._apply(step, event.settings, event.source, found)
        elif waiting is None:
            self._wait_for_agreement(step, event, found)

    def refused(self, step: Step, event: SettingsRefused) -> None:
        """What was read cannot be used: operators are told, and nothing changes."""
        words = one_line(event.msg, 500)
        step.audit("settings_refused", None, error=words)
        self._announcer.tell(
            step, "security", f"The configuration was changed and cannot be used: {words}"
        )

    def _wait_for_agreement(
        self, step: Step, event: SettingsChanged, found: Sequence[Change]
    ) -> None:
        state = self._state
        digest = _digest(event.source)
        if state.settings_kept.get((OWN, REFUSED_SETTINGS)) == digest:
            state.waiting_settings = WaitingSettings(event.settings, event.source, None)
            return
        ask = self._own_asks.ask(step, TAKE_UP, _lines(found))
        state.waiting_settings = WaitingSettings(event.settings, event.source, ask)
        step.audit("settings_wait", state.asks[ask], changes=_line(found))
        step.change()

    def _forget_waiting(self, step: Step) -> None:
        waiting, self._state.waiting_settings = self._state.waiting_settings, None
        row = self._state.asks.get(waiting.ask_id) if waiting and waiting.ask_id else None
        if row is not None:
            self._ledger.close(step, row, "cancelled", resolved_by="local")
        step.change()

    def _apply(
        self, step: Step, settings: LiveSettings, source: str, found: Sequence[Change]
    ) -> None:
        state = self._state
        before, known = self._authority.said(), self._authority.all_identities()
        state.settings = with_live(state.settings, settings)
        state.waiting_settings = None
        self._authority.save(step, KEPT_SETTINGS, source)
        self._authority.save(step, REFUSED_SETTINGS, None)
        step.audit("settings_changed", None, changes=_line(found))
        wider = [change for change in found if change.widens]
        if wider:
            text = f"The configuration was changed. {_sentence(wider)}"
            self._authority.tell_first(step, text, self._authority.all_identities() - known)
        self._authority.recheck(step)
        self._authority.redraw(step, before)
        for row in list(state.asks.values()):
            self._outbox.show(step, row)
        step.change()

    # --- agreement ---------------------------------------------------------------------------

    def after(self, step: Step) -> None:
        """Take up what was agreed to in this step, or not."""
        waiting = self._state.waiting_settings
        if waiting is None or waiting.ask_id is None:
            return
        if waiting.ask_id in self._state.asks:
            self._announcer.ensure_session(step)
            return
        self._decided(step, waiting, self._state.closed.get(waiting.ask_id))

    def _decided(self, step: Step, waiting: WaitingSettings, row: AskRow | None) -> None:
        if is_agreed(row):
            found = changes(live_of(self._state.settings), waiting.settings)
            self._apply(step, waiting.settings, waiting.source, found)
            return
        self._state.waiting_settings = dataclasses.replace(waiting, ask_id=None)
        if row is not None and row.outcome in {"answered", "declined"}:
            digest = _digest(waiting.source)
            self._authority.save(step, REFUSED_SETTINGS, digest)
        step.audit("settings_rejected", row)
        self._announcer.tell(
            step,
            "security",
            "The change of the configuration was not agreed to; the former stays in force.",
        )
        step.change()


def _lines(found: Sequence[Change]) -> str:
    lines = [f"{'+' if one.widens else '-'} {one.words}" for one in found[:_DETAIL_LINES]]
    left = len(found) - _DETAIL_LINES
    return "\n".join([*lines, *([f"and {left} more"] if left > 0 else [])])


def _line(found: Sequence[Change]) -> str:
    return one_line("; ".join(one.words for one in found), 4000)


def _sentence(found: Sequence[Change]) -> str:
    words = "; ".join(one.words for one in found[:_DETAIL_LINES])
    left = len(found) - _DETAIL_LINES
    return f"{words[:1].upper()}{words[1:]}{f'; and {left} more' if left > 0 else ''}."


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
