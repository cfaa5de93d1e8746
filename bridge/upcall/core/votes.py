"""Asks that more than one act decides: who said what, whether it is enough, what is missing.

Nothing here is kept: votes are rows, and are counted anew under the policy in force whenever
it matters.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from upcall.core.render import selection_words
from upcall.model.ask import AskSpec, Selection
from upcall.model.policy import Rules
from upcall.model.refusals import is_refusal
from upcall.model.rows import VoteRow
from upcall.model.text import one_line

Counts: TypeAlias = Callable[[VoteRow], bool]
"""Tells whether a vote's person may still give it."""


class Tally(NamedTuple):
    """How the votes on one ask stand.

    Attributes:
        votes: those that count, oldest first.
        winner: the vote that made it enough; for a veto, the veto.
        people: how many agree on the answer that most agree on.
        needed: how many must.
        missing: what is missing beside people, in words.
    """

    votes: tuple[VoteRow, ...]
    winner: VoteRow | None
    people: int
    needed: int
    missing: str


def says_no(spec: AskSpec, selection: Selection | None) -> bool:
    """Tell whether a vote refuses: a decline, or the plain no of a permission."""
    if selection is None:
        return True
    if spec.ask_class != "permission" or selection.text is not None:
        return False
    return bool(selection.labels) and all(map(is_refusal, selection.labels))


def tally(votes: Iterable[VoteRow], rules: Rules, counts: Counts, spec: AskSpec) -> Tally:
    """Count *votes* under *rules*; the order in which they are handed in makes no difference.

    Of those that came from this computer one counts, the first: whoever runs programs here
    could give all of them. A refusal of somebody with a veto decides before any majority.
    """
    standing = sorted(filter(counts, votes), key=_order)
    veto = next((vote for vote in standing if says_no(spec, vote.selection)), None)
    valid = _one_from_here(standing)
    needed = max(rules.quorum, 2) if rules.second == "operator" else rules.quorum
    groups: dict[Selection | None, list[VoteRow]] = {}
    for vote in valid:
        groups.setdefault(vote.selection, []).append(vote)
    if rules.veto and veto is not None:
        # It makes nothing run, so it counts from wherever it comes.
        return Tally(tuple(standing), veto, 1, needed, "")
    enough = [_made_enough(group, rules, needed) for group in groups.values()]
    won = [vote for vote in enough if vote is not None]
    most = max(groups.values(), key=lambda group: len(_people(group, rules)), default=[])
    people = len(_people(most, rules))
    winner = min(won, key=_order, default=None)
    return Tally(valid, winner, people, needed, _missing(most, rules))


def votes_words(
    found: Tally, clock: Callable[[int], str], shown: Callable[[str], str] | None = None
) -> str:
    """Return who voted what, where and when, and what is missing; for a card's state line.

    Args:
        found: how the votes stand.
        clock: returns a wall clock time in words, or nothing.
        shown: returns words of people as they may be shown.
    """
    said = "; ".join(_vote_words(vote, clock, shown) for vote in found.votes)
    left = needs_words(found)
    if not said:
        return left
    return f"Votes: {said}. {left}" if left else f"Votes: {said}."


def needs_words(found: Tally) -> str:
    """Return what is missing, as a sentence; nothing if nothing is."""
    if found.winner is not None:
        return ""
    left = found.needed - found.people
    parts = []
    if left > 0 and not found.votes:
        parts.append(f"{left} people who agree" if left > 1 else "1 person")
    elif left > 0:
        more = f"{left} more {'person' if left == 1 else 'people'}"
        parts.append(f"{more} for the same answer ({found.people} of {found.needed})")
    if found.missing:
        parts.append(found.missing)
    return f"Needed: {' and '.join(parts)}." if parts else ""


def _vote_words(
    vote: VoteRow, clock: Callable[[int], str], shown: Callable[[str], str] | None
) -> str:
    chosen = f'"{selection_words(vote.selection, shown)}"'
    what = "declined" if vote.selection is None else chosen
    when = clock(vote.at_ms)
    who = one_line(vote.name)
    if vote.detail:
        who = f"user {who} on this computer ({one_line(vote.detail)})"
        return f"{who}{f' {when}' if when else ''}: {what}"
    return f"{who} on {one_line(vote.channel)}{f' {when}' if when else ''}: {what}"


def _order(vote: VoteRow) -> tuple[int, int]:
    return vote.at_ms, vote.inbound


def _one_from_here(votes: Sequence[VoteRow]) -> tuple[VoteRow, ...]:
    first = next((vote for vote in votes if vote.here), None)
    return tuple(vote for vote in votes if not vote.here or vote is first)


def _people(group: Sequence[VoteRow], rules: Rules) -> set[str]:
    """Return whose agreement counts: with a second channel, who used two."""
    people = {vote.person for vote in group}
    if rules.second != "channel":
        return people
    return {one for one in people if len({v.channel for v in group if v.person == one}) > 1}


def _made_enough(group: Sequence[VoteRow], rules: Rules, needed: int) -> VoteRow | None:
    for count, vote in enumerate(group, 1):
        some = group[:count]
        if len(_people(some, rules)) < needed:
            continue
        if rules.second != "machine" or _is_machine(some):
            return vote
    return None


def _is_machine(group: Sequence[VoteRow]) -> bool:
    """Tell whether somebody here, and somebody elsewhere, said the same."""
    return any(vote.here for vote in group) and any(not vote.here for vote in group)


def _missing(group: Sequence[VoteRow], rules: Rules) -> str:
    match rules.second:
        case "machine" if not any(vote.here for vote in group):
            return "the same answer at this computer"
        case "machine" if not _is_machine(group):
            return "the same answer from another place than this computer"
        case "channel" if not _people(group, rules):
            return "the same person on a second channel"
        case _:
            return ""
