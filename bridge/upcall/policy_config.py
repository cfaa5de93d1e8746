"""The tables of the configuration file that say who is asked, who may answer and when.

The structs are the file's own form; `policy_of` makes of them what the core decides with.
"""

import re
from datetime import time
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from upcall.model.limits import MIN_DEADLINE_S
from upcall.model.policy import (
    ANYBODY,
    OWNER,
    PAIRED_RIGHTS,
    ROLE,
    Escalation,
    Match,
    Operator,
    Policy,
    Presence,
    QuietHours,
    Right,
    Route,
    SecondFactor,
    Terms,
    Verbosity,
)

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")
_MAX_S: Final = 365 * 86_400.0
_MAX_LIST: Final = 32

Duration: TypeAlias = str | float


class EscalationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of `escalate`: after so long without an answer, these are asked too."""

    after: Duration
    channels: tuple[str, ...] = ()
    people: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        read_duration("after", self.after)
        if not self.channels and not self.people:
            raise ValueError("a step of escalate names channels or people")


class QuietConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={
    "from_": "from"
}):  # fmt: skip
    """`quiet_hours`: when nobody is rung, such as from 22:00 to 07:00.

    Attributes:
        zone: name of a time zone; without it the computer's own.
    """

    from_: str
    to: str
    zone: str = ""

    def __post_init__(self) -> None:
        for name, value in (("from", self.from_), ("to", self.to)):
            _minutes(name, value)
        if _minutes("from", self.from_) == _minutes("to", self.to):
            raise ValueError("quiet_hours: from and to are the same: nobody was ever rung")
        if self.zone:
            _zone(self.zone)


class TermsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `[policy]` says for all asks and a `[[route]]` for those that fit.

    Attributes:
        channels: where an ask is shown at first; absent: everywhere.
        fallback: in this order, where it goes when none of them hears.
        answer_by: who may answer: "any", "owner", "role:NAME" or names of operators.
        quorum: how many people must agree.
        veto: one person's refusal ends it.
        exclude_asker: whoever runs the asking program has no vote.
        second: what one answer needs beside it: the same person on another "channel",
            another "operator", or somebody at this "machine".
        deadline: for how long a question waits whose program names no time limit; what then
            ends it is a time-out, never an answer.
        reminders: after how long people are reminded; the last one repeats; []: never.
        escalate: who is asked too, and after how long.
        quiet_hours: when nobody is rung; false: at no time.
        verbosity: how much of a session's work is shown.
        redact: mask recognised credentials.
        merge: equal open asks of one session are one card, if their program allows it.
    """

    channels: tuple[str, ...] | None = None
    fallback: tuple[str, ...] | None = None
    answer_by: tuple[str, ...] | None = None
    quorum: int | None = None
    veto: bool | None = None
    exclude_asker: bool | None = None
    second: SecondFactor | None = None
    deadline: Duration | None = None
    reminders: tuple[Duration, ...] | None = None
    escalate: tuple[EscalationConfig, ...] | None = None
    quiet_hours: QuietConfig | bool | None = None
    verbosity: Verbosity | None = None
    redact: bool | None = None
    merge: bool | None = None

    def __post_init__(self) -> None:
        if self.quiet_hours is True:
            raise ValueError("quiet_hours is a table, or false")
        if self.quorum is not None and not 1 <= self.quorum <= 20:
            raise ValueError("quorum is between 1 and 20 people")
        if self.channels is not None and not self.channels:
            raise ValueError("channels is empty: the ask would be shown nowhere")
        if self.answer_by is not None and not self.answer_by:
            raise ValueError("answer_by is empty: nobody could answer")
        for name in ("channels", "fallback", "answer_by", "reminders", "escalate"):
            if len(getattr(self, name) or ()) > _MAX_LIST:
                raise ValueError(f"{name} has more than {_MAX_LIST} entries")
        if self.deadline is not None:
            read_duration("deadline", self.deadline)
        _check_growing(
            "reminders", [read_duration("reminders", d) for d in self.reminders or ()]
        )
        steps = [read_duration("after", step.after) for step in self.escalate or ()]
        _check_growing("escalate", steps)


class PolicyConfig(TermsConfig, frozen=True, forbid_unknown_fields=True):
    """`[policy]`.

    Attributes:
        local_answers: which answers of local programs to permission asks are believed: from a
            terminal outside the asker (`tty`), `any`, or none (`off`).
        allow_defaults: programs may name an answer for the case that nobody answers in time.
        presence: what tells that somebody is at the computer: `off`, recent input of a
            terminal (`tty`), or the age of `presence_file` (`file`).
        presence_delay: how long remote channels then wait for an answer here.
    """

    local_answers: Literal["tty", "any", "off"] = "tty"
    allow_defaults: bool = True
    presence: Literal["off", "tty", "file"] = "off"
    presence_file: str = ""
    presence_delay: Duration = "2m"

    def __post_init__(self) -> None:
        super().__post_init__()
        # The bound of security.md S15.
        if read_duration("presence_delay", self.presence_delay) > 120:
            raise ValueError("presence_delay is at most 2 minutes")
        if self.presence == "file" and not self.presence_file:
            raise ValueError('presence = "file" needs presence_file')


class RouteConfig(TermsConfig, frozen=True, forbid_unknown_fields=True):
    """`[[route]]`: terms for the asks that fit; the first route that names a key counts.

    Attributes:
        repo, host, title, tag: shell patterns, such as "shop*".
        kind: only questions, or only permissions.
    """

    repo: str | None = None
    host: str | None = None
    title: str | None = None
    tag: str | None = None
    kind: Literal["question", "permission"] | None = None


class OperatorConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[operators.NAME]`: one person, with an identity on each channel.

    Attributes:
        identities: channel name to the person's id there; `local` takes a uid.
        roles: names for `answer_by = ["role:..."]`.
        rights: what the person may do: see, answer, approve (permission asks), steer (words
            and files to a session), control (commands of the hub).
        rights_on: channel name to what the person may do there instead.
    """

    identities: dict[str, str] = {}
    roles: tuple[str, ...] = ()
    rights: tuple[Right, ...] | None = None
    rights_on: dict[str, tuple[Right, ...]] = {}


def read_duration(name: str, value: Duration) -> float:
    """Return a duration in seconds: a number, or such as "90s", "10m", "1h30m".

    Raises:
        ValueError: it is none, or not between 0 and 365 days.
    """
    if isinstance(value, str):
        text = value.strip()
        if not _WHOLE.fullmatch(text):
            raise ValueError(
                f"{name}: {value[:40]!r} is no duration; write such as 90s or 1h30m"
            )
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    else:
        seconds = float(value)
    # Written so that NaN fails too.
    if not 0 < seconds <= _MAX_S:
        raise ValueError(f"{name}: a duration is more than 0 and at most 365 days")
    return seconds


def _check_growing(name: str, seconds: list[float]) -> None:
    if any(one >= after for one, after in pairwise(seconds)):
        raise ValueError(f"{name}: each comes later than the one before it")


def operators_of(tables: dict[str, OperatorConfig]) -> dict[str, Operator]:
    """Return the people that the file names."""
    return {
        name: Operator(
            name=name,
            identities=dict(table.identities),
            roles=frozenset(table.roles),
            rights=PAIRED_RIGHTS if table.rights is None else frozenset(table.rights),
            rights_on={where: frozenset(rights) for where, rights in table.rights_on.items()},
        )
        for name, table in tables.items()
    }


def policy_of(policy: PolicyConfig, routes: tuple[RouteConfig, ...]) -> Policy:
    """Return what the core decides with."""
    return Policy(
        routes=tuple(
            Route(
                match=Match(
                    repo=route.repo,
                    host=route.host,
                    title=route.title,
                    tag=route.tag,
                    kind=route.kind,
                ),
                terms=_terms(route),
            )
            for route in routes
        ),
        defaults=_terms(policy),
        presence=Presence(
            signal=policy.presence,
            file=policy.presence_file,
            delay_s=read_duration("presence_delay", policy.presence_delay),
        ),
    )


def unknown_names(
    policy: PolicyConfig,
    routes: tuple[RouteConfig, ...],
    operators: dict[str, OperatorConfig],
    channels: set[str],
) -> list[tuple[str, str, str]]:
    """Return what refers to nothing: the table, the key, and the name."""
    roles = {role for table in operators.values() for role in table.roles}
    people = {*operators, ANYBODY, OWNER, *(f"{ROLE}{role}" for role in roles)}
    found: list[tuple[str, str, str]] = []
    tables: list[tuple[str, TermsConfig]] = [("policy", policy)]
    tables += [(f"route {number}", route) for number, route in enumerate(routes, 1)]
    for where, terms in tables:
        steps = terms.escalate or ()
        wanted: tuple[tuple[str, tuple[str, ...], set[str]], ...] = (
            ("channels", terms.channels or (), channels),
            ("fallback", terms.fallback or (), channels),
            ("answer_by", terms.answer_by or (), people),
            *(("escalate.channels", step.channels, channels) for step in steps),
            *(("escalate.people", step.people, people) for step in steps),
        )
        found += [
            (where, key, name)
            for key, names, known in wanted
            for name in names
            if name not in known
        ]
    return found


def _terms(table: TermsConfig) -> Terms:
    quiet, steps = table.quiet_hours, table.escalate
    values: dict[str, Any] = {
        name: getattr(table, name)
        for name in (
            "channels", "fallback", "answer_by", "quorum", "veto", "exclude_asker", "second",
            "verbosity", "redact", "merge",
        )
    }  # fmt: skip
    return Terms(
        **values,
        deadline_s=None
        if table.deadline is None
        else max(MIN_DEADLINE_S, read_duration("deadline", table.deadline)),
        reminders_s=None
        if table.reminders is None
        else tuple(read_duration("reminders", one) for one in table.reminders),
        escalate=None
        if steps is None
        else tuple(
            Escalation(
                after_s=read_duration("after", step.after),
                channels=step.channels,
                people=step.people,
            )
            for step in steps
        ),
        quiet=_quiet(quiet),
    )


def _quiet(table: QuietConfig | bool | None) -> QuietHours | None:
    if table is None:
        return None
    if isinstance(table, bool):
        return QuietHours(from_min=0, to_min=0, never=True)
    return QuietHours(
        from_min=_minutes("from", table.from_),
        to_min=_minutes("to", table.to),
        zone_name=table.zone,
        zone=_zone(table.zone) if table.zone else None,
    )


def _minutes(name: str, value: str) -> int:
    try:
        at = time.fromisoformat(value)
    except ValueError:
        at = None
    if at is None or len(value) != 5:
        raise ValueError(f"{name}: {value[:20]!r} is no time of day; write such as 22:00")
    return at.hour * 60 + at.minute


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:
        raise ValueError(f"zone: {name[:60]!r} is no time zone, such as Europe/Vienna") from exc
