"""Which rules hold for one ask: of every route that fits it, the first that says something."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from upcall.model.ask import AskClass
from upcall.model.policy import Match, Policy, Rules, Terms

_NAMES: Final = tuple(field.name for field in msgspec.structs.fields(Terms))


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What routes look at.

    Attributes:
        tags: what the session calls itself by, in any number.
    """

    kind: AskClass
    repo: str | None = None
    host: str | None = None
    title: str | None = None
    tags: tuple[str, ...] = ()


RULES_KEPT: Final = 1024
_NO_FACTS: Final = Facts(kind="question")


def fits(match: Match, facts: Facts) -> bool:
    """Tell whether a route is for asks with these facts; a missing fact fits no pattern."""
    if match.kind is not None and match.kind != facts.kind:
        return False
    if match.tag is not None and not any(fnmatchcase(tag, match.tag) for tag in facts.tags):
        return False
    pairs = ((match.repo, facts.repo), (match.host, facts.host), (match.title, facts.title))
    return all(
        pattern is None or (fact is not None and fnmatchcase(fact, pattern))
        for pattern, fact in pairs
    )


def rules_for(policy: Policy, facts: Facts) -> Rules:
    """Return what holds for an ask with these facts.

    A quorum of two or more leaves the asking person out, unless it is said otherwise
    (security.md S14).
    """
    found: dict[str, Any] = {}
    sources: dict[str, int] = {}
    for number, terms in _in_order(policy, facts):
        for name in _NAMES:
            value = getattr(terms, name)
            if value is not None and name not in found:
                found[name], sources[name] = value, number
    if found.get("quorum", 1) > 1:
        found.setdefault("exclude_asker", True)
    return Rules(**found, sources=sources)


class RulesBook:
    """Remembers the rules of one policy; they are asked for many times for each ask."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._known: dict[Facts, Rules] = {}

    def of(self, policy: Policy, facts: Facts) -> Rules:
        """Return what holds for an ask with these facts."""
        if policy is not self._policy or len(self._known) >= RULES_KEPT:
            self._policy = policy
            self._known.clear()
        if not policy.routes:
            # Nothing looks at them.
            facts = _NO_FACTS
        rules = self._known.get(facts)
        if rules is None:
            rules = self._known[facts] = rules_for(policy, facts)
        return rules


def _in_order(policy: Policy, facts: Facts) -> Iterator[tuple[int, Terms]]:
    fitting: Iterable[tuple[int, Terms]] = (
        (number, route.terms)
        for number, route in enumerate(policy.routes, 1)
        if fits(route.match, facts)
    )
    yield from fitting
    yield 0, policy.defaults
