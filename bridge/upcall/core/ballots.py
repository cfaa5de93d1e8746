"""Votes on asks that need several: cast, changed, withdrawn, counted at the claim."""

from typing import Final

from upcall.core import trail
from upcall.core.door import uid_of
from upcall.core.ledger import Ledger, result_of
from upcall.core.operators import is_own_user, rules_of
from upcall.core.outbox import Outbox, can_decline
from upcall.core.policy import local_name
from upcall.core.standing import standing
from upcall.core.state import HubState, Step
from upcall.core.votes import Tally, needs_words
from upcall.model.ask import Selection
from upcall.model.platform import Receipt, Who
from upcall.model.policy import Operator, Rules
from upcall.model.rows import AskRow, VoteRow
from upcall.model.struct import replaced

ANOTHER_HERE: Final = (
    "A vote that came from this computer counts already, and only one does. "
    "Vote from another place."
)
# How long a complete quorum waits for a veto of the same moment.
VETO_S: Final = 0.001


class Ballots:
    """The votes on open asks."""

    def __init__(self, state: HubState, ledger: Ledger, outbox: Outbox) -> None:
        self._state = state
        self._ledger = ledger
        self._outbox = outbox

    def cast(
        self,
        step: Step,
        row: AskRow,
        person: Operator,
        channel: str,
        who: Who,
        selection: Selection | None,
        inbound: int,
    ) -> Tally:
        """Write down what *person* says; it replaces what the person said before."""
        here = is_own_user(self._state, channel, who)
        vote = VoteRow(
            ask_id=row.ask_id,
            person=person.name,
            channel=channel,
            name=local_name(who) if who.local else person.name,
            detail=who.detail if who.local else "",
            selection=selection,
            inbound=inbound,
            at_ms=step.at.wall_ms,
            here=here,
            uid=uid_of(self._state, who) if here else "",
        )
        votes = self._state.votes.setdefault(row.ask_id, {})
        for key, former in list(votes.items()):
            if former.person == person.name and former.selection != selection:
                step.write(replaced(former, live=False))
                del votes[key]
        votes[person.name, channel] = vote
        step.write(vote)
        step.audit(
            "voted",
            row,
            operator=vote.name,
            channel=channel,
            declined=selection is None,
            detail=vote.detail or None,
            inbound=inbound,
            **trail.chosen(selection),
        )
        rules = rules_of(self._state, row)
        found = standing(self._state, row, rules)
        if found.winner is None or not self.may_end(row, found.winner):
            self._outbox.redraw(step, row)
            step.change()
        return found

    def another_here(self, row: AskRow, person: Operator, channel: str, who: Who) -> bool:
        """Tell whether another person's vote that came from this computer counts already."""
        if not is_own_user(self._state, channel, who):
            return False
        counting = standing(self._state, row, rules_of(self._state, row)).votes
        return any(vote.here and vote.person != person.name for vote in counting)

    def may_end(self, row: AskRow, winner: VoteRow) -> bool:
        """Tell whether the program can be told; one that knows no decline just waits on."""
        return winner.selection is not None or can_decline(self._state, row)

    def receipt(self, step: Step, row: AskRow, found: Tally, vote: Selection | None) -> Receipt:
        """Return what the voter is told while it is not enough."""
        said = "Your decline is noted." if vote is None else "Your vote is noted."
        left = needs_words(found)
        return Receipt(
            ok=True,
            code="voted",
            msg=f"{said} {left}".strip(),
            result=result_of(row, step.at.wall_ms),
        )

    def withdraw(self, step: Step, row: AskRow, person: Operator) -> bool:
        """Take a person's votes on *row* back; return whether there were any."""
        votes = self._state.votes.get(row.ask_id, {})
        gone = [vote for vote in votes.values() if vote.person == person.name]
        for vote in gone:
            self._drop(step, vote)
        if gone:
            step.audit("vote_withdrawn", row, operator=person.name)
            self._outbox.redraw(step, row)
            step.change()
        return bool(gone)

    def drop_person(self, step: Step, name: str) -> None:
        """Let all votes of one person fall out; given back rights bring none of them back."""
        for ask_id, votes in list(self._state.votes.items()):
            gone = [vote for vote in votes.values() if vote.person == name]
            for vote in gone:
                self._drop(step, vote)
            if gone:
                step.audit("vote_dropped", self._state.asks[ask_id], operator=name)

    def rules(self, row: AskRow) -> Rules:
        """Return what holds for *row* under the policy in force."""
        return rules_of(self._state, row)

    def standing(self, row: AskRow) -> Tally:
        """Return how the votes on *row* stand under the policy in force."""
        return standing(self._state, row, rules_of(self._state, row))

    def _drop(self, step: Step, vote: VoteRow) -> None:
        del self._state.votes[vote.ask_id][vote.person, vote.channel]
        if not self._state.votes[vote.ask_id]:
            del self._state.votes[vote.ask_id]
        step.write(replaced(vote, live=False))
