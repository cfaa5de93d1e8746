"""What would happen to a sample ask: which rules hold, where it is shown when, who answers.

It calls the very functions that decide about real asks, with everything else as it is told.
"""

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Any, Final, TypeAlias

import msgspec

from upcall.core.places import Stand, places
from upcall.core.quiet import first_loud, quiet_until
from upcall.core.render import duration_words
from upcall.core.rules import Facts, rules_for
from upcall.core.schedule import reminder_s
from upcall.model.policy import ANYBODY, OWNER, ROLE, Operator, Policy, Rules, Terms

REMINDERS_SHOWN: Final = 4
_NAMES: Final = tuple(field.name for field in msgspec.structs.fields(Terms))
_KEYS: Final = {"deadline_s": "deadline", "reminders_s": "reminders", "quiet": "quiet_hours"}
_GRACE_WORDS: Final = "if none of them hears for 30 s"

Document: TypeAlias = dict[str, Any]


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What the explanation is about, beside the ask.

    Attributes:
        policy: the policy in force.
        people: everybody who may act, by name; those whose rights were taken left out.
        channels: what is configured, with whether it draws asks by itself.
        away: channels that do not hear, and why; None: there is no hub to ask.
        zone: where people's clocks are.
        wall_ms: when the ask is raised.
        owner: whoever asks, by name, for `owner`; "" where nobody knows.
    """

    policy: Policy
    people: dict[str, Operator]
    channels: dict[str, bool]
    away: dict[str, str] | None = None
    zone: tzinfo | None = None
    wall_ms: int = 0
    owner: str = ""


def explain(ground: Ground, facts: Facts, timeout_s: float | None = None) -> Document:
    """Return what holds for an ask with these facts, as plain data."""
    rules = rules_for(ground.policy, facts)
    if timeout_s is None:
        timeout_s = rules.deadline_s
    return {
        "ask": {
            "class": facts.kind,
            "repo": facts.repo,
            "host": facts.host,
            "title": facts.title,
            "tags": list(facts.tags),
            "timeout_s": timeout_s,
        },
        "rules": [_rule(ground.policy, rules, name) for name in _NAMES],
        "shown": _shown(ground, facts, rules, timeout_s),
        "answer": _answer(ground, facts, rules),
        "channels": [
            {"name": name, "hears": None if ground.away is None else name not in ground.away,
             "reason": (ground.away or {}).get(name)}
            for name in ground.channels
        ],
    }  # fmt: skip


def source_words(policy: Policy, number: int | None) -> str:
    """Return where a value comes from: a route, `[policy]`, or upcall itself."""
    if number is None:
        return "default"
    if number == 0:
        return "[policy]"
    match = policy.routes[number - 1].match
    said = " ".join(
        f"{name}={value}"
        for name in match.__struct_fields__
        if (value := getattr(match, name)) is not None
    )
    return f"route {number}" + (f" ({said})" if said else "")


def _rule(policy: Policy, rules: Rules, name: str) -> Document:
    value = getattr(rules, name)
    number = rules.sources.get(name)
    return {
        "key": _KEYS.get(name, name),
        "value": _plain(value),
        "from": source_words(policy, number),
        "route": number or None,
    }


def _plain(value: Any) -> Any:
    match value:
        case tuple():
            return [_plain(one) for one in value]
        case msgspec.Struct():
            return {
                name: _plain(getattr(value, name))
                for name in value.__struct_fields__
                if name != "zone"
            }
        case _:
            return value


# --- Where and when --------------------------------------------------------------------------


def _shown(
    ground: Ground, facts: Facts, rules: Rules, timeout_s: float | None
) -> list[Document]:
    """Return where it is shown, reminded of and escalated to, by time."""
    away = ground.away or {}
    stands = [
        Stand(name, local=local, well=name not in away)
        for name, local in ground.channels.items()
    ]
    wanted, _ = places(rules, (), stands)
    names = [name for name in ground.channels if name in wanted]
    ringing = [name for name in names if not ground.channels[name]]
    passes = facts.kind == "permission" and timeout_s is not None
    night_ms = None if passes else quiet_until(rules.quiet, ground.wall_ms, ground.zone)
    starts_s = 0.0 if night_ms is None else (night_ms - ground.wall_ms) / 1000
    now = names if night_ms is None else [name for name in names if name not in ringing]
    lines = [_line(ground, 0.0, "shown", channels=now)]
    if night_ms is not None and ringing:
        lines.append(_line(ground, starts_s, "shown", channels=ringing, note="quiet hours end"))
    presence = ground.policy.presence
    if presence.signal != "off" and ringing and not passes:
        delay_s = (
            presence.delay_s if timeout_s is None else min(presence.delay_s, timeout_s / 2)
        )
        note = f"at most {duration_words(delay_s)} later while somebody is at this computer"
        lines.append(_line(ground, starts_s, "delayed", channels=ringing, note=note))
    spare = [name for name in rules.fallback if name in ground.channels and name not in wanted]
    if spare:
        lines.append(_line(ground, starts_s, "fallback", channels=spare, note=_GRACE_WORDS))
    if not ringing:
        # Nobody is rung: there is nothing to wait for the end of, and nothing to remind of.
        starts_s = 0.0
    ends_s = float("inf") if timeout_s is None else timeout_s
    for step in rules.escalate:
        after_s = _loud(ground, rules, starts_s + step.after_s, passes=passes)
        if after_s < ends_s:
            lines.append(
                _line(
                    ground,
                    after_s,
                    "escalated",
                    channels=step.channels,
                    people=step.people,
                )
            )
    told: set[float] = set()
    for number in range(REMINDERS_SHOWN if ringing else 0):
        due_s = reminder_s(rules.reminders_s, number)
        if due_s is None:
            break
        after_s = _loud(ground, rules, starts_s + due_s, passes=passes)
        # Several that come due in one night are one in the morning.
        if after_s < ends_s and after_s not in told:
            told.add(after_s)
            lines.append(_line(ground, after_s, "reminded", channels=ringing))
    if timeout_s is not None:
        lines.append(_line(ground, timeout_s, "deadline"))
    return sorted(lines, key=lambda line: line["after_s"])


def _loud(ground: Ground, rules: Rules, after_s: float, *, passes: bool) -> float:
    at_ms = ground.wall_ms + int(after_s * 1000)
    loud_ms = at_ms if passes else first_loud(rules.quiet, at_ms, ground.zone)
    return after_s + (loud_ms - at_ms) / 1000


def _line(
    ground: Ground,
    after_s: float,
    what: str,
    *,
    channels: Sequence[str] = (),
    people: Sequence[str] = (),
    note: str = "",
) -> Document:
    at_ms = ground.wall_ms + int(after_s * 1000)
    zone = ground.zone
    when = "now" if after_s == 0 else f"after {duration_words(after_s)}"
    if zone is not None and after_s:
        when += f" ({datetime.fromtimestamp(at_ms / 1000, zone):%a %H:%M})"
    return {
        "after_s": after_s,
        "at_ms": at_ms,
        "when": when,
        "what": what,
        "channels": list(channels),
        "people": list(people),
        "note": note or None,
    }


# --- Who -------------------------------------------------------------------------------------


def _answer(ground: Ground, facts: Facts, rules: Rules) -> Document:
    right = "approve" if facts.kind == "permission" else "answer"
    people = [
        {"name": name, "roles": sorted(person.roles), "because": because}
        for name, person in ground.people.items()
        if (because := _because(ground, person, rules.answer_by)) is not None
        and _has_right(person, right)
    ]
    return {
        "right": right,
        "people": people,
        "needed": rules.quorum,
        "veto": rules.veto,
        "second": rules.second,
        "exclude_asker": rules.exclude_asker,
        "enough": len(people) >= rules.quorum,
    }


def _because(ground: Ground, person: Operator, answer_by: Sequence[str]) -> str | None:
    """Return which entry of `answer_by` lets a person answer."""
    for wanted in answer_by:
        role = wanted.removeprefix(ROLE)
        if (
            wanted in (ANYBODY, person.name)
            or (wanted == OWNER and person.name == ground.owner)
            or (role != wanted and role in person.roles)
        ):
            return wanted
    return None


def _has_right(person: Operator, right: Any) -> bool:
    return right in person.rights or any(
        right in rights for rights in person.rights_on.values()
    )
