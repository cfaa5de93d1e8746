"""The hub's one line on how an ask stands: its state, its votes, and the lock."""

from datetime import datetime
from typing import Final

from upcall.core.operators import (
    LOCAL,
    TERMINAL,
    everybody,
    has,
    is_asked,
    is_asker,
    is_configured,
    lock_words,
    needs_votes,
    right_for,
    rules_of,
)
from upcall.core.redacting import mask_of, shown_ask, shown_claim
from upcall.core.render import course_words, state_words
from upcall.core.state import HubState
from upcall.core.votes import Tally, tally, votes_words
from upcall.model.platform import Who
from upcall.model.policy import Operator, Rules
from upcall.model.rows import AskRow, VoteRow

SLEEPS: Final = (
    "The computer sleeps: taps are lost until it wakes; a text reply is kept for 24 h."
)
ONLY_UNLOCK: Final = "Only `upcall unlock` on this computer ends that."


def clock_words(state: HubState, at_ms: int) -> str:
    """Return a time of day as people's clocks show it; nothing where no zone is known."""
    zone = state.settings.zone
    return "" if zone is None else f"{datetime.fromtimestamp(at_ms / 1000, zone):%H:%M}"


def standing_words(state: HubState, row: AskRow) -> str:
    """Return how *row* stands, with its votes, what is missing, and the lock."""
    shown = mask_of(state, row)
    claim = shown_claim(state.claims.get(row.ask_id), shown)
    parts = [state_words(shown_ask(state, row), claim)]
    if row.state == "open":
        rules = rules_of(state, row)
        equal = 1 + len(state.merged.get(row.ask_id, ()))
        parts += course_words(row, rules, equal)
        if needs_votes(rules) and not row.spec.secret:
            parts.append(
                votes_words(
                    standing(state, row, rules), lambda ms: clock_words(state, ms), shown
                )
            )
        if state.sleep_coming:
            parts.append(SLEEPS)
    if row.state != "closed" and state.lock is not None:
        words = lock_words(state.lock, clock_words(state, state.lock.at_ms))
        parts.append(f"{words}. {ONLY_UNLOCK}")
    said = [part for part in parts if part]
    if len(said) < 2:
        return "".join(said)
    return " ".join(part if part.endswith((".", "…")) else f"{part}." for part in said)


def standing(state: HubState, row: AskRow, rules: Rules) -> Tally:
    """Return how the votes on *row* stand under the policy in force."""
    people = everybody(state)
    votes = state.votes.get(row.ask_id, {}).values()
    return tally(votes, rules, lambda vote: _counts(state, row, rules, people, vote), row.spec)


def _counts(
    state: HubState, row: AskRow, rules: Rules, people: dict[str, Operator], vote: VoteRow
) -> bool:
    """Tell whether the person of *vote* may still give it, there."""
    person = people.get(vote.person)
    if person is None:
        if is_configured(state):
            return False
        person = Operator(name=vote.person)
    if not _is_there(state, person, vote):
        return False
    local = vote.here and vote.channel == TERMINAL
    who = Who(identity=vote.uid, local=local)
    if not has(state, person, right_for(row), vote.channel, who):
        return False
    if rules.exclude_asker and is_asker(state, row, person, here=vote.here, uid=vote.uid):
        return False
    return is_asked(state, row, person, rules)


def _is_there(state: HubState, person: Operator, vote: VoteRow) -> bool:
    """Tell whether the person still has an identity on the vote's channel."""
    if vote.here and not is_configured(state):
        return True
    where = LOCAL if vote.here and vote.channel == TERMINAL else vote.channel
    named = state.settings.operators.items()
    return (
        where in person.identities
        or any(name == person.name and place == where for (place, _), name in named)
        or any(
            one.ask_id is None and one.name == person.name and one.channel == where
            for one in state.pairings.values()
        )
    )
