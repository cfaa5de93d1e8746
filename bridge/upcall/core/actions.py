"""The asks of one session: raised, answered once, held, timed out or withdrawn.

`ActionBook` is pure: time is passed in, nothing is sent. Its methods return what every client
has to be told, and the caller tells them. Of any number of answers the first valid one counts;
the others learn why theirs did not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from upcall.core.asks import (
    InvalidAnswer,
    check_ask,
    check_deadline,
    frame_of,
    read_answer,
    revision_of,
    spec_of,
    wire_answer,
)
from upcall.model.ask import AskSpec, Outcome, Selection
from upcall.model.errors import UpcallError
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    Answer,
    By,
    RejectReason,
    Reply,
    ReplyRejected,
)
from upcall.model.ids import ActionId, ConnectionId, ReplyKey
from upcall.model.limits import MAX_RESOLVED_KEPT

__all__ = [
    "ActionBook",
    "AskSpec",
    "Ending",
    "InvalidAnswer",
    "Rejected",
    "Repeated",
    "Selection",
    "Taken",
    "Verdict",
    "check_ask",
    "check_deadline",
    "frame_of",
    "read_answer",
    "revision_of",
    "spec_of",
    "wire_answer",
]

_ENDPOINT: Final = By(channel="endpoint")


@dataclass(frozen=True, slots=True)
class Ending:
    """How an ask ended.

    Attributes:
        resolved: the frame that tells it.
        outcome: one of the outcomes.
        selection: what was chosen; of a time-out the default, if there was one.
        by: who ended it; None where nobody did.
        reply: the reply that won, if a client answered or declined.
    """

    resolved: ActionResolved
    outcome: Outcome
    selection: Selection | None
    by: By | None
    reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """The reply ended the ask; every client is told with `ending.resolved`."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class Repeated:
    """The reply had won already; its sender is told again, and nobody else."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class Rejected:
    """The reply changed nothing; its sender is told why."""

    frame: ReplyRejected
    why: str


Verdict: TypeAlias = Taken | Repeated | Rejected


@dataclass(slots=True)
class _Open:
    spec: AskSpec
    repliable: bool
    # What was left of the deadline when somebody held it.
    held_ms: int | None = None


class ActionBook:
    """The asks of one session, oldest first."""

    __slots__ = ("_ended", "_open", "_past", "_session_id")

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._open: dict[ActionId, _Open] = {}
        self._ended: dict[ActionId, Ending] = {}
        # Ids that ended longer ago than we keep the details: never reused, never unknown.
        self._past: set[ActionId] = set()

    def raise_(
        self, action: ActionId, spec: AskSpec, *, now_ms: int, repliable: bool = True
    ) -> ActionNeeded:
        """Open an ask and return the frame that presents it.

        Args:
            action: an id that this session never used.
            spec: the ask; it is checked here.
            now_ms: the session's time.
            repliable: whether clients may answer it.

        Raises:
            InvalidAsk: *spec* is out of bounds.
            AmbiguousLabels: two of its labels look alike.
            UpcallError: `id_reused`.
        """
        if action in self._open or action in self._ended or action in self._past:
            raise UpcallError(f"the id {action} was used before", code="id_reused")
        check_ask(spec, now_ms=now_ms)
        self._open[action] = _Open(spec, repliable)
        return frame_of(spec, action, self._session_id)

    def reply(
        self, connection: ConnectionId, reply: Reply, *, token_ok: bool = True
    ) -> Verdict:
        """Decide one reply. The order of the checks is part of the protocol.

        Args:
            connection: who replies; only for who asks whose reply won.
            reply: the reply as received.
            token_ok: whether the token in it is this session's.
        """
        del connection  # Keys are the client's own; any connection of it may repeat one.
        action = reply.id
        if not token_ok:
            return _rejected(action, "unauthorized", "the token is not this session's")
        ending = self._ended.get(action)
        if ending is not None:
            return _judge_late(ending, reply)
        if action in self._past:
            return _rejected(action, "already_answered", "the ask ended long ago")
        open_ask = self._open.get(action)
        if open_ask is None:
            return _rejected(action, "unknown_action", "there is no such ask")
        if not open_ask.repliable:
            return _rejected(action, "resolver_unavailable", "nobody waits for an answer")
        by = reply.by or _ENDPOINT
        if reply.decline or reply.answer is None:
            return Taken(self._end(action, "client", "declined", by=by, reply=reply))
        try:
            selection = read_answer(open_ask.spec, reply.answer)
        except InvalidAnswer as exc:
            return _rejected(action, "invalid_answer", exc.msg)
        ending = self._end(
            action, "client", "answered", reply.answer, selection, by=by, reply=reply
        )
        return Taken(ending)

    def resolve_local(
        self, action: ActionId, answer: Answer | None, *, by: By | None = None
    ) -> Ending | None:
        """Answer (or, without an answer, decline) an open ask from inside the program.

        Returns:
            How it ended, or None if it was not open any more.

        Raises:
            InvalidAnswer: the ask does not take *answer*; it stays open.
        """
        open_ask = self._open.get(action)
        if open_ask is None:
            return None
        if answer is None:
            return self._end(action, "local", "declined", by=by)
        selection = read_answer(open_ask.spec, answer)
        return self._end(action, "local", "answered", answer, selection, by=by)

    def withdraw(self, action: ActionId) -> Ending | None:
        """Cancel an open ask; None if it was not open any more."""
        return self._end(action, "local", "cancelled") if action in self._open else None

    def withdraw_all(self) -> list[Ending]:
        """Cancel every open ask, oldest first."""
        return [self._end(action, "local", "cancelled") for action in list(self._open)]

    def expire(self, now_ms: int) -> list[Ending]:
        """End every ask whose deadline has come; one with a default gives that answer."""
        ended = []
        for action, spec in list(self._running()):
            if spec.deadline_at_ms is not None and spec.deadline_at_ms <= now_ms:
                selection = None if spec.default is None else read_answer(spec, spec.default)
                ended.append(self._end(action, "timeout", "timed_out", spec.default, selection))
        return ended

    def hold(self, action: ActionId, hold: bool, *, now_ms: int) -> ActionNeeded | None:
        """Stop an open ask's deadline, or let what was left of it run from *now_ms* on.

        Returns:
            The ask as it is to be presented again, or None if it is not open. An ask without
            deadline is held just as well: people see that somebody is on it.
        """
        open_ask = self._open.get(action)
        if open_ask is None:
            return None
        deadline_ms = open_ask.spec.deadline_at_ms
        if hold and open_ask.held_ms is None:
            open_ask.held_ms = 0 if deadline_ms is None else max(0, deadline_ms - now_ms)
        elif not hold and open_ask.held_ms is not None:
            if deadline_ms is not None:
                open_ask.spec = msgspec.structs.replace(
                    open_ask.spec, deadline_at_ms=now_ms + open_ask.held_ms
                )
            open_ask.held_ms = None
        return self._frame(action, open_ask)

    def detach(self) -> None:
        """Take no more replies: the program does not wait for any of its asks now."""
        for open_ask in self._open.values():
            open_ask.repliable = False

    def next_deadline_ms(self) -> int | None:
        """Return the earliest running deadline in the session's time, or None."""
        deadlines = [
            spec.deadline_at_ms
            for _, spec in self._running()
            if spec.deadline_at_ms is not None
        ]
        return min(deadlines, default=None)

    def is_open(self, action: ActionId) -> bool:
        """Tell whether the ask is open."""
        return action in self._open

    def ending(self, action: ActionId) -> Ending | None:
        """Return how an ask ended; of the last 256 only."""
        return self._ended.get(action)

    def open_asks(self) -> list[ActionNeeded]:
        """Return every open ask as it is presented, oldest first."""
        return [self._frame(action, open_ask) for action, open_ask in self._open.items()]

    def recent_resolutions(self) -> list[ActionResolved]:
        """Return how the last 256 asks ended, oldest first."""
        return [ending.resolved for ending in self._ended.values()]

    def _frame(self, action: ActionId, open_ask: _Open) -> ActionNeeded:
        held = open_ask.held_ms is not None
        return frame_of(open_ask.spec, action, self._session_id, held=held)

    def _running(self) -> Iterator[tuple[ActionId, AskSpec]]:
        for action, open_ask in self._open.items():
            if open_ask.held_ms is None:
                yield action, open_ask.spec

    def _end(
        self,
        action: ActionId,
        resolved_by: str,
        outcome: Outcome,
        answer: Answer | None = None,
        selection: Selection | None = None,
        *,
        by: By | None = None,
        reply: Reply | None = None,
    ) -> Ending:
        if self._open.pop(action).spec.secret:
            # Only who asked is told the words.
            answer = None
        resolved = ActionResolved(
            id=action, resolved_by=resolved_by, answer=answer, outcome=outcome, by=by
        )
        ending = Ending(resolved, outcome, selection, by, reply)
        self._ended[action] = ending
        if len(self._ended) > MAX_RESOLVED_KEPT:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self._past.add(oldest)
        return ending


def _judge_late(ending: Ending, reply: Reply) -> Verdict:
    winner = ending.reply
    if winner is not None and _same_key(winner.idempotency_key, reply.idempotency_key):
        if (winner.answer, winner.decline) == (reply.answer, reply.decline):
            return Repeated(ending)
        return _rejected(
            reply.id, "idempotency_conflict", "the same key came with another answer"
        )
    return _rejected(reply.id, "already_answered", f"the ask is over: {ending.outcome}")


def _same_key(won: ReplyKey | None, given: ReplyKey | None) -> bool:
    return won is not None and won == given


def _rejected(action: ActionId, reason: RejectReason, why: str) -> Rejected:
    return Rejected(ReplyRejected(id=action, reason=reason), why)
