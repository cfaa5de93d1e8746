"""Who may act, as it changes while the hub runs: the lock, rights taken and given.

What changes is told to all operators before it lets anybody new act, and an answer that the
program has not confirmed ends with the right of whoever gave it.
"""

from typing import Final

import msgspec

from upcall.core.announce import Announcer
from upcall.core.ballots import Ballots
from upcall.core.door import is_control
from upcall.core.in_force import OWN, UNTOLD
from upcall.core.ledger import Ledger
from upcall.core.operators import (
    TERMINAL,
    everybody,
    has,
    is_asked,
    is_configured,
    needs_votes,
    right_for,
    rules_of,
)
from upcall.core.outbox import Outbox
from upcall.core.own_asks import PAIR, OwnAsks, is_agreed
from upcall.core.policy import local_name
from upcall.core.render import LOCAL as LOCAL_ORIGIN
from upcall.core.standing import standing_words
from upcall.core.state import HubState, Step
from upcall.model.effects import SaveLock, SaveRevoked, SaveSetting
from upcall.model.events import LockAsked, OperatorChanged
from upcall.model.ids import AskId
from upcall.model.platform import Who
from upcall.model.policy import Operator
from upcall.model.rows import AskRow, ClaimRow, LockRow, PairingRow
from upcall.model.struct import replaced
from upcall.model.text import one_line

TAKEN_BACK: Final = "The answer was taken back: whoever gave it may not answer any more."
LOCKED_BACK: Final = "The answer was taken back: the hub was locked before the program had it."
_untold: Final = msgspec.json.Decoder(list[tuple[str, str, list[int]]])


class Authority:
    """Keeps who may act."""

    def __init__(
        self,
        state: HubState,
        ledger: Ledger,
        outbox: Outbox,
        announcer: Announcer,
        ballots: Ballots,
        own_asks: OwnAsks,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._outbox = outbox
        self._announcer = announcer
        self._ballots = ballots
        self._own_asks = own_asks

    # --- the lock ----------------------------------------------------------------------------

    def lock_asked(self, step: Step, event: LockAsked) -> None:
        """Somebody at the control socket locks or unlocks."""
        if event.lock:
            self.lock(step, local_name(event.who), TERMINAL, event.reason, event.who.detail)
        else:
            self._unlock(step, event.who)

    def lock(
        self, step: Step, name: str, channel: str, reason: str = "", detail: str = ""
    ) -> None:
        """Refuse everything from everywhere but the control socket; again changes nothing."""
        state = self._state
        if state.lock is not None:
            return
        row = LockRow(at_ms=step.at.wall_ms, name=name, channel=channel, reason=reason[:500])
        step.audit(
            "locked",
            None,
            operator=name,
            channel=channel,
            reason=one_line(reason, 500) or None,
            detail=detail or None,
        )
        before = self.said()
        state.lock = row
        step.write(SaveLock(row))
        why = f": {one_line(reason, 200)}" if reason.strip() else ""
        where = "the command line" if channel == TERMINAL else one_line(channel)
        self._announcer.tell(
            step,
            "security",
            f"The hub was locked by {one_line(name)} from {where}{why}. No answer, message or "
            "command is taken until `upcall unlock` is run on this computer.",
        )
        self.recheck(step)
        self.redraw(step, before)
        step.change()

    def _unlock(self, step: Step, who: Who) -> None:
        state = self._state
        if state.lock is None:
            return
        before = self.said()
        state.lock = None
        step.write(SaveLock(None))
        name = local_name(who)
        step.audit("unlocked", None, operator=name, channel=TERMINAL, detail=who.detail or None)
        words = f"The hub was unlocked by user {one_line(name)} at the command line."
        self._announcer.tell(step, "security", words)
        self.redraw(step, before)
        step.change()

    # --- people ------------------------------------------------------------------------------

    def operator_changed(self, step: Step, event: OperatorChanged) -> None:
        """Somebody at the control socket adds an identity, or takes or returns rights."""
        by = f"user {one_line(local_name(event.who))} at the command line"
        if event.pairing is not None:
            self._pair(step, event.pairing, by)
        elif event.back:
            self._give_back(step, event.name, by)
        else:
            self._revoke(step, event.name, by)

    def _revoke(self, step: Step, name: str, by: str) -> None:
        before = self.said()
        self._state.revoked[name] = step.at.wall_ms
        step.write(SaveRevoked(name, step.at.wall_ms))
        step.audit("operator_revoked", None, operator=name, by=by)
        self._ballots.drop_person(step, name)
        words = f"All rights of operator {one_line(name)} were taken by {by}."
        self._announcer.tell(step, "security", words)
        self.recheck(step)
        self.redraw(step, before)
        step.change()

    def _give_back(self, step: Step, name: str, by: str) -> None:
        if self._state.revoked.pop(name, None) is None:
            return
        step.write(SaveRevoked(name, None))
        step.audit("operator_restored", None, operator=name, by=by)
        self.tell_first(
            step,
            f"Operator {one_line(name)} has rights again, given back by {by}.",
            self._identities(name),
        )
        step.change()

    def _pair(self, step: Step, pairing: PairingRow, by: str) -> None:
        who = f"{one_line(pairing.name)}, {one_line(pairing.identity, 100)} on"
        words = f"{who} {one_line(pairing.channel)}"
        pairing = replaced(pairing, at_ms=step.at.wall_ms)
        if self._state.settings.confirm_changes:
            ask = self._own_asks.ask(step, PAIR, f"{words}. Added by {by}.")
            pairing = replaced(pairing, ask_id=ask)
            self._keep(step, pairing)
            step.audit("operator_waits", None, operator=pairing.name, pairing=words, by=by)
            step.change()
            return
        self._keep(step, pairing)
        self._let_in(step, pairing, by)

    def _let_in(self, step: Step, pairing: PairingRow, by: str) -> None:
        step.audit(
            "operator_added",
            None,
            operator=pairing.name,
            channel=pairing.channel,
            identity=one_line(pairing.identity, 100),
            by=by,
        )
        rights = "" if pairing.rights is None else f"; may {', '.join(pairing.rights)} there"
        roles = f"; roles {one_line(', '.join(pairing.roles), 200)}" if pairing.roles else ""
        self.tell_first(
            step,
            f"New operator identity: {one_line(pairing.name)} is "
            f"{one_line(pairing.identity, 100)} on {one_line(pairing.channel)}{rights}{roles}. "
            f"Added by {by}.",
            {(pairing.channel, pairing.identity)},
        )
        step.change()

    def _keep(self, step: Step, pairing: PairingRow) -> None:
        key = (pairing.channel, pairing.identity)
        if pairing.gone:
            self._state.pairings.pop(key, None)
        else:
            self._state.pairings[key] = pairing
        step.write(pairing)

    def save(self, step: Step, name: str, value: str | None) -> None:
        """Keep a small fact of the hub's own, or drop it."""
        if value is None:
            if self._state.settings_kept.pop((OWN, name), None) is None:
                return
        else:
            self._state.settings_kept[OWN, name] = value
        step.write(SaveSetting(OWN, name, value))

    # --- agreement ---------------------------------------------------------------------------

    def after(self, step: Step) -> None:
        """Let in, or forget, whom somebody decided on in this step."""
        state = self._state
        for pairing in [one for one in state.pairings.values() if one.ask_id is not None]:
            if pairing.ask_id not in state.asks:
                found = state.closed.get(AskId(pairing.ask_id or ""))
                self._pairing_decided(step, pairing, found)

    def _pairing_decided(self, step: Step, pairing: PairingRow, row: AskRow | None) -> None:
        if is_agreed(row):
            pairing = replaced(pairing, ask_id=None)
            self._keep(step, pairing)
            self._let_in(step, pairing, "the command line, and agreed to")
            return
        self._keep(step, replaced(pairing, gone=True))
        step.audit("operator_rejected", row, operator=pairing.name)
        step.change()

    # --- what follows ------------------------------------------------------------------------

    def recheck(self, step: Step) -> None:
        """Take back answers that are on their way, and whose people may not give them now.

        One that the program has in its hands already cannot be taken back: its word decides.
        """
        state = self._state
        for ask_id, claim in list(state.claims.items()):
            row = state.asks.get(ask_id)
            if row is None or row.state != "claimed" or claim.channel == "endpoint":
                continue
            if state.offered.intersection(self._ledger.attached(ask_id)):
                continue
            note = self._why_not(row, claim)
            if note is None:
                continue
            state.taken_back[ask_id] = claim
            step.audit("taken_back", row, operator=claim.operator, channel=claim.channel)
            self._ledger.reopen(step, row, "taken_back", note, keeps_votes=True)

    def _why_not(self, row: AskRow, claim: ClaimRow) -> str | None:
        """Return why the claim's person may not answer *row* now, or None."""
        state = self._state
        local = (claim.origin or "").startswith(LOCAL_ORIGIN)
        who = Who(identity="", local=local)
        if state.lock is not None and not is_control(claim.channel, who):
            return LOCKED_BACK
        rules = rules_of(state, row)
        # The votes are on the card that stands for this ask.
        voted = state.asks.get(row.course.merged_into or row.ask_id)
        if needs_votes(rules) and not row.spec.secret and voted is not None:
            winner = self._ballots.standing(voted).winner
            same = winner is not None and winner.selection == claim.selection
            return None if same else TAKEN_BACK
        name = claim.person or claim.operator or ""
        person = everybody(state).get(name)
        if person is None and not is_configured(state):
            person = Operator(name=name)
        allowed = (
            person is not None
            and has(state, person, right_for(row), claim.channel, who)
            and is_asked(state, row, person, rules)
        )
        return None if allowed else TAKEN_BACK

    def tell_first(self, step: Step, text: str, new: set[tuple[str, str]]) -> None:
        """Tell all operators; the identities in *new* count once that has gone out."""
        last = self._state.last_delivery
        self._announcer.tell(step, "security", text)
        sent = frozenset(
            number
            for number in range(last + 1, self._state.last_delivery + 1)
            if number in self._state.deliveries
        )
        if not new or not sent:
            return
        untold = self._state.untold
        for key in [
            key for key, ids in untold.items() if not ids & self._state.deliveries.keys()
        ]:
            del untold[key]
        for key in new:
            untold[key] = untold.get(key, frozenset()) | sent
        kept = [(*key, sorted(ids)) for key, ids in sorted(untold.items())]
        self.save(step, UNTOLD, msgspec.json.encode(kept).decode())

    def all_identities(self) -> set[tuple[str, str]]:
        """Return every identity that somebody has, with its channel."""
        found = set(self._state.settings.operators)
        for person in self._state.settings.people.values():
            found |= set(person.identities.items())
        return found | set(self._state.pairings)

    def _identities(self, name: str) -> set[tuple[str, str]]:
        state = self._state
        found = {key for key, one in state.settings.operators.items() if one == name}
        person = state.settings.people.get(name)
        if person is not None:
            found |= set(person.identities.items())
        return found | {key for key, one in state.pairings.items() if one.name == name}

    def said(self) -> dict[AskId, str]:
        """Return what the open cards say now, for `redraw`."""
        rows = list(self._state.asks.values())
        return {row.ask_id: standing_words(self._state, row) for row in rows}

    def redraw(self, step: Step, before: dict[AskId, str]) -> None:
        """Draw the open cards anew that say something else now."""
        for ask_id, words in before.items():
            row = self._state.asks.get(ask_id)
            if row is not None and standing_words(self._state, row) != words:
                self._outbox.redraw(step, row)


def read_untold(state: HubState) -> None:
    """At start: know again of which identities the others have still to be told."""
    kept = state.settings_kept.get((OWN, UNTOLD), "[]")
    for channel, identity, ids in _untold.decode(kept):
        waiting = frozenset(ids) & state.deliveries.keys()
        if waiting:
            state.untold[channel, identity] = waiting
