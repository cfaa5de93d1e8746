"""What people configured about asks: who is asked, who may answer, when they are reminded.

Plain data. The file's own form of it is read by `upcall.policy_config`; what holds for one
ask is found by `upcall.core.rules`.
"""

from datetime import tzinfo
from typing import Final, Literal, TypeAlias

import msgspec

Right: TypeAlias = Literal["see", "answer", "approve", "steer", "control"]
"""`approve` is the answer to a permission ask; `steer` puts words and files into a session."""

RIGHTS: Final[tuple[Right, ...]] = ("see", "answer", "approve", "steer", "control")
PAIRED_RIGHTS: Final[frozenset[Right]] = frozenset({"see", "answer", "approve", "steer"})
"""What a person has who was named without rights. `control` from a chat is given by name."""

Verbosity: TypeAlias = Literal["lean", "verbose", "quiet"]
SecondFactor: TypeAlias = Literal["channel", "operator", "machine"]

ANYBODY: Final = "any"
OWNER: Final = "owner"
ROLE: Final = "role:"

REMINDERS_S: Final = (600.0, 3600.0, 14_400.0, 86_400.0)
"""After how long without an answer people are reminded; the last one repeats."""


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """A person who may act on channels.

    Attributes:
        identities: channel to the person's id there; `local` is a uid of this computer.
        rights: what the person may do where `rights_on` says nothing.
        rights_on: channel to what the person may do there instead.
    """

    name: str
    identities: dict[str, str] = {}
    roles: frozenset[str] = frozenset()
    rights: frozenset[Right] = PAIRED_RIGHTS
    rights_on: dict[str, frozenset[Right]] = {}

    def may(self, right: Right, channel: str) -> bool:
        """Tell whether the person has *right* on *channel*."""
        return right in self.rights_on.get(channel, self.rights)


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Which asks a route is for; what is None fits everything.

    Attributes:
        repo, host, title, tag: shell patterns (`*`, `?`, `[...]`), compared with case.
        kind: the class of the ask.
    """

    repo: str | None = None
    host: str | None = None
    title: str | None = None
    tag: str | None = None
    kind: Literal["question", "permission"] | None = None


class Escalation(msgspec.Struct, frozen=True, kw_only=True):
    """After *after_s* without an answer, these are asked too."""

    after_s: float
    channels: tuple[str, ...] = ()
    people: tuple[str, ...] = ()


class QuietHours(msgspec.Struct, frozen=True, kw_only=True):
    """When nobody is rung: minutes since midnight, on the clock of *zone*.

    A span whose end is not after its beginning goes over midnight.

    Attributes:
        never: there are none, whatever other rules say.
    """

    from_min: int
    to_min: int
    zone_name: str = ""
    zone: tzinfo | None = None
    never: bool = False


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a route, or the defaults, say; None says nothing.

    Attributes:
        channels: where the ask is shown at first; None: on every channel.
        fallback: in this order, where it goes when none of `channels` hears.
        answer_by: who may answer: `any` operator, the `owner`, `role:NAME` or names.
        quorum: how many people must agree.
        veto: one person's refusal ends it.
        exclude_asker: whoever runs the asking program has no vote.
        second: what a single answer needs beside it.
        deadline_s: how long an ask of a hosted session waits that names no deadline itself.
        reminders_s: after how long people are reminded; the last repeats; empty: never.
        merge: equal open asks of one session become one card, if their asker allows it.
    """

    channels: tuple[str, ...] | None = None
    fallback: tuple[str, ...] | None = None
    answer_by: tuple[str, ...] | None = None
    quorum: int | None = None
    veto: bool | None = None
    exclude_asker: bool | None = None
    second: SecondFactor | None = None
    deadline_s: float | None = None
    reminders_s: tuple[float, ...] | None = None
    escalate: tuple[Escalation, ...] | None = None
    quiet: QuietHours | None = None
    verbosity: Verbosity | None = None
    redact: bool | None = None
    merge: bool | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Terms for the asks that fit."""

    match: Match = Match()
    terms: Terms = Terms()


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """Which signal tells that the person is at the machine, and how long that delays asks.

    Attributes:
        signal: recent input of a terminal, a file's age, or nothing.
        file: the file, for `file`.
        delay_s: how long remote channels wait for an answer at the machine.
    """

    signal: Literal["off", "tty", "file"] = "off"
    file: str = ""
    delay_s: float = 120.0


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    routes: tuple[Route, ...] = ()
    defaults: Terms = Terms()
    presence: Presence = Presence()


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one ask.

    Attributes:
        sources: for each name above, which route gave it (from 1), or 0 for the defaults.
    """

    channels: tuple[str, ...] | None = None
    fallback: tuple[str, ...] = ()
    answer_by: tuple[str, ...] = (ANYBODY,)
    quorum: int = 1
    veto: bool = False
    exclude_asker: bool = False
    second: SecondFactor | None = None
    deadline_s: float | None = None
    reminders_s: tuple[float, ...] = REMINDERS_S
    escalate: tuple[Escalation, ...] = ()
    quiet: QuietHours | None = None
    verbosity: Verbosity = "lean"
    redact: bool = True
    merge: bool = False
    sources: dict[str, int] = {}
