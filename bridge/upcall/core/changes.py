"""What is different between two settings, in words, and whether it lets anybody do more."""

from collections.abc import Iterator
from typing import Any, Final

from upcall.model.policy import RIGHTS, Operator, Policy, Terms
from upcall.model.settings import Change, LiveSettings
from upcall.model.text import one_line

_STRICT: Final = {"off": 0, "tty": 1, "any": 2}
_GUARDS: Final = ("answer_by", "quorum", "veto", "exclude_asker", "second", "redact")
_QUORUM: Final = 1


def changes(old: LiveSettings, new: LiveSettings) -> tuple[Change, ...]:
    """Return the differences that concern who may do or see what, and the rest as one."""
    found = [
        *_people(old.people, new.people),
        *_policy(old.policy, new.policy),
        *_switches(old, new),
    ]
    if not found and old != new:
        found.append(Change("who is asked, and when, is different", widens=False))
    return tuple(found)


def _people(old: dict[str, Operator], new: dict[str, Operator]) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        before, after, who = old.get(name), new.get(name), one_line(name, 60)
        if after is None:
            yield Change(f"operator {who} is gone", widens=False)
        elif before is None:
            yield Change(f"operator {who} is new: {_person_words(after)}", widens=True)
        else:
            yield from _person(who, before, after)
    if bool(old) != bool(new):
        own = "the user whose hub this is counts as operator"
        yield Change(own if not new else f"no longer by itself: {own}", widens=not new)


def _person(who: str, before: Operator, after: Operator) -> Iterator[Change]:
    for where in sorted(before.identities.keys() | after.identities.keys()):
        former, now = before.identities.get(where), after.identities.get(where)
        if former == now:
            continue
        if now is None:
            yield Change(f"{who} has no identity on {one_line(where)} any more", widens=False)
        else:
            words = f"{who} is {one_line(now, 60)} on {one_line(where)}"
            if former is not None:
                words = f"{words}, was {one_line(former, 60)}"
            yield Change(words, widens=True)
    for role in sorted(after.roles - before.roles):
        yield Change(f"{who} has the role {one_line(role, 60)}", widens=True)
    for role in sorted(before.roles - after.roles):
        yield Change(f"{who} has the role {one_line(role, 60)} no more", widens=False)
    places = sorted({"", *before.rights_on, *after.rights_on})
    for right in RIGHTS:
        for where in places:
            # The empty name is no channel: it stands for all that are not named.
            could, can = before.may(right, where), after.may(right, where)
            if could != can:
                on = f" on {one_line(where)}" if where else ""
                yield Change(f"{who} {'may' if can else 'may not'} {right}{on}", widens=can)


def _person_words(person: Operator) -> str:
    where = [
        f"{one_line(name)} {one_line(value, 60)}" for name, value in person.identities.items()
    ]
    rights = [right for right in RIGHTS if right in person.rights]
    return f"{', '.join(where) or 'no identity'}; may {', '.join(rights) or 'nothing'}"


def _policy(old: Policy, new: Policy) -> Iterator[Change]:
    yield from _terms("policy", old.defaults, new.defaults)
    before = [route for route in old.routes if _guards(route.terms)]
    after = [route for route in new.routes if _guards(route.terms)]
    if [route.match for route in before] != [route.match for route in after]:
        # Which of several routes comes first decides; what that lets through is for people.
        yield Change("which asks the routes with rules on answers are for", widens=True)
        return
    for number, (was, now) in enumerate(zip(before, after, strict=True), 1):
        yield from _terms(f"route with rules on answers, number {number}", was.terms, now.terms)


def _guards(terms: Terms) -> bool:
    return any(getattr(terms, name) is not None for name in _GUARDS)


def _terms(where: str, old: Terms, new: Terms) -> Iterator[Change]:
    for name in _GUARDS:
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            words = f"{where}: {name} is {_said(now)}, was {_said(was)}"
            yield Change(words, widens=_is_wider(name, was, now))


def _is_wider(name: str, was: Any, now: Any) -> bool:
    match name:
        case "quorum":
            return (now or _QUORUM) < (was or _QUORUM)
        case "veto":
            return bool(was) and not now
        case "exclude_asker" | "redact":
            # Not set is on: for a quorum, and always.
            return was is not False and now is False
        case "second":
            return was is not None
        case _:
            return now is None or was is None or not set(now) <= set(was)


def _said(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, tuple):
        return one_line(", ".join(map(str, value)), 200)
    return one_line(str(value).lower() if isinstance(value, bool) else str(value), 60)


def _switches(old: LiveSettings, new: LiveSettings) -> Iterator[Change]:
    if old.local_answers != new.local_answers:
        words = f"local_answers is {new.local_answers}, was {old.local_answers}"
        wider = _STRICT.get(new.local_answers, 2) > _STRICT.get(old.local_answers, 0)
        yield Change(words, widens=wider)
    for name in ("allow_direct_clients", "allow_defaults"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            yield Change(f"{name} is {'on' if now else 'off'}", widens=now)
    for name, what in (("redact", "redaction"), ("confirm_changes", "confirm_changes")):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            yield Change(f"{what} is {'on' if now else 'off'}", widens=not now)
    for name in sorted(new.adapters.keys() - old.adapters.keys()):
        adapter = one_line(new.adapters[name], 60)
        words = f"channel {one_line(name)} is served by an adapter of others, {adapter}"
        yield Change(words, widens=True)
