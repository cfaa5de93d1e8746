"""Who is who on which channel, what each may do there, and who may answer which ask.

Pure functions over the people that the configuration names, those that were added while the
hub ran, and those whose rights were taken.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from upcall.core.policy import NOT_OPERATOR
from upcall.core.rules import Facts
from upcall.core.state import HubState
from upcall.model.ask import AskClass
from upcall.model.frames import sendable
from upcall.model.platform import Receipt, Who
from upcall.model.policy import ANYBODY, OWNER, RIGHTS, ROLE, Operator, Right, Rules
from upcall.model.rows import AskRow, LockRow, PairingRow, SessionRow
from upcall.model.text import one_line
from upcall.model.views import IdentityView, OperatorView

LOCAL: Final = "local"
TERMINAL: Final = "terminal"
_ENDPOINTS_TAKEN: Final = (ANYBODY,)

STRANGER: Final = Receipt(ok=False, code="stranger")
"""An adapter says nothing to whoever gets this, and does nothing that could be seen."""
REFUSED: Final = Receipt(ok=False, code="not_permitted", msg=NOT_OPERATOR)


def everybody(state: HubState) -> dict[str, Operator]:
    """Return all people by name, those included whose rights were taken.

    Without `[operators]` the hub's own user is one of them, so that pairing a telephone does
    not take the inbox away.
    """
    settings = state.settings
    people = dict(settings.people)
    for name in settings.operators.values():
        people.setdefault(name, Operator(name=name))
    if not people:
        own = {LOCAL: settings.uid} if settings.uid else {}
        people[settings.operator] = Operator(name=settings.operator, identities=own)
    for pairing in counting_pairings(state):
        known = people.get(pairing.name) or Operator(name=pairing.name)
        rights_on = dict(known.rights_on)
        if pairing.rights is not None:
            rights_on[pairing.channel] = frozenset(pairing.rights)
        people[pairing.name] = msgspec.structs.replace(
            known, roles=known.roles | set(pairing.roles), rights_on=rights_on
        )
    return people


def counting_pairings(state: HubState) -> Iterable[PairingRow]:
    """Return the identities that were added, but those that nobody has agreed to yet."""
    return [row for row in state.pairings.values() if row.ask_id is None]


def person_of(state: HubState, channel: str, who: Who) -> Operator | None:
    """Return who it is, or None for a stranger."""
    key = (LOCAL if who.local else channel, who.identity)
    name = _named(state).get(key)
    people = everybody(state)
    if name is not None:
        return people.get(name)
    if is_configured(state) or not is_own_user(state, channel, who):
        return None
    name = sendable(who.name or state.settings.operator)
    return people.get(name) or Operator(name=name)


def is_configured(state: HubState) -> bool:
    """Tell whether the configuration names people: then the hub's user is not one by itself."""
    return bool(state.settings.people or state.settings.operators)


def is_own_user(state: HubState, channel: str, who: Who) -> bool:
    """Tell whether the system, or a login, says that it is the hub's own user (or root)."""
    info = state.infos.get(channel)
    return who.local or (info.capabilities.own_user if info else channel == TERMINAL)


def _named(state: HubState) -> dict[tuple[str, str], str]:
    named = {(row.channel, row.identity): row.name for row in counting_pairings(state)}
    for name, person in state.settings.people.items():
        named |= dict.fromkeys(person.identities.items(), name)
    return named | state.settings.operators


def has(state: HubState, person: Operator, right: Right, channel: str, who: Who) -> bool:
    """Tell whether *person* has *right* on *channel*; nobody has who was revoked."""
    if person.name in state.revoked:
        return False
    if who.local:
        return right in person.rights_on.get(
            LOCAL, person.rights_on.get(TERMINAL, person.rights)
        )
    return person.may(right, channel)


def rules_of(state: HubState, row: AskRow) -> Rules:
    """Return what holds for this ask under the policy in force."""
    return rules_for_session(state, state.session(row.session_id), row.spec.ask_class)


def rules_for_session(state: HubState, session: SessionRow | None, kind: AskClass) -> Rules:
    """Return what holds for an ask of this kind that the session raises."""
    facts = Facts(kind=kind)
    if session is not None:
        facts = Facts(
            kind=kind,
            repo=session.repo,
            host=session.machine,
            title=session.title,
            tags=session.tags,
        )
    return state.rules.of(state.settings.policy, facts)


def right_for(row: AskRow) -> Right:
    """Return the right that an answer to this ask needs."""
    return "approve" if row.spec.ask_class == "permission" else "answer"


def asker_uid(state: HubState, row: AskRow) -> str:
    """Return the user whose program asked; what has an endpoint of its own is ours."""
    uid = row.course.uid
    return state.settings.uid if uid is None else str(uid)


def is_asked(state: HubState, row: AskRow, person: Operator, rules: Rules) -> bool:
    """Tell whether the policy lets *person* answer this ask."""
    # Whom a step of escalation asked may answer too.
    for wanted in (*rules.answer_by, *row.course.people):
        if wanted in (ANYBODY, person.name):
            return True
        if wanted == OWNER and asker_uid(state, row) in uids_of(state, person):
            return True
        role = wanted.removeprefix(ROLE)
        if role != wanted and role in person.roles:
            return True
    return False


def uids_of(state: HubState, person: Operator) -> set[str]:
    """Return the users of this computer that *person* is."""
    settings = state.settings
    uids = {person.identities.get(LOCAL, "")}
    uids |= {
        row.identity
        for row in counting_pairings(state)
        if row.name == person.name and row.channel == LOCAL
    }
    is_only_one = not is_configured(state) and person.name == settings.operator
    logs_in = any(
        identity == settings.operator
        and (info := state.infos.get(channel)) is not None
        and info.capabilities.own_user
        for channel, identity in person.identities.items()
    )
    if is_only_one or logs_in:
        uids.add(settings.uid)
    return uids - {""}


def is_asker(state: HubState, row: AskRow, person: Operator, *, here: bool, uid: str) -> bool:
    """Tell whether the act is of the person, or of the user, whose program asks.

    Args:
        state: the hub's.
        row: the ask.
        person: who acts.
        here: the act came from this computer.
        uid: for such an act, the user it came from.
    """
    asked_by = asker_uid(state, row)
    if not asked_by:
        return False
    return asked_by in uids_of(state, person) or (here and uid == asked_by)


def needs_votes(rules: Rules) -> bool:
    """Tell whether one act alone decides nothing."""
    return rules.quorum > 1 or rules.second is not None


def endpoints_may_answer(rules: Rules) -> bool:
    """Tell whether a client of a hosted endpoint, whose person nobody knows, may answer."""
    return rules.answer_by == _ENDPOINTS_TAKEN and not needs_votes(rules)


def is_shown_on(state: HubState, channel: str) -> bool:
    """Tell whether anybody there may see; only people who are named can have lost that."""
    people = everybody(state)
    named = [people[name] for (where, _), name in _named(state).items() if where == channel]
    return not named or any(
        person.name not in state.revoked and person.may("see", channel) for person in named
    )


def operator_views(state: HubState) -> list[OperatorView]:
    """Return all people as they are listed, by name."""
    people = everybody(state)
    for row in state.pairings.values():
        people.setdefault(row.name, Operator(name=row.name, rights=frozenset()))
    for name in state.revoked:
        people.setdefault(name, Operator(name=name, rights=frozenset()))
    return [_view(state, people[name]) for name in sorted(people)]


def _view(state: HubState, person: Operator) -> OperatorView:
    own = {*person.identities.items()}
    own |= {key for key, name in state.settings.operators.items() if name == person.name}
    identities = [IdentityView(channel, identity) for channel, identity in sorted(own)]
    identities += [
        IdentityView(row.channel, row.identity, added=True, waits_for=row.ask_id)
        for row in state.pairings.values()
        if row.name == person.name
    ]
    return OperatorView(
        name=person.name,
        identities=tuple(identities),
        roles=tuple(sorted(person.roles)),
        rights=tuple(right for right in RIGHTS if right in person.rights),
        rights_on={
            where: tuple(right for right in RIGHTS if right in rights)
            for where, rights in sorted(person.rights_on.items())
        },
        revoked=person.name in state.revoked,
    )


def lock_words(lock: LockRow, when: str) -> str:
    """Return what is said while the hub is locked."""
    at = f" at {when}" if when else ""
    why = f": {one_line(lock.reason, 200)}" if lock.reason else ""
    where = "the command line" if lock.channel == TERMINAL else one_line(lock.channel)
    return f"Locked by {one_line(lock.name)} from {where}{at}{why}"
