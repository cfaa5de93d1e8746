"""Who listens on the port of a record, asked after somebody has taken the connection.

Between the reading of a record and the connection the port can have become somebody else's.
One look at the kernel's table serves all that wait for one.
"""

import asyncio
from dataclasses import dataclass

from upcall.model.errors import TransportError
from upcall_discovery import liveness
from upcall_discovery.record import Record, RecordProblem
from upcall_discovery.scan import listener_problem


@dataclass(slots=True, eq=False)
class _Question:
    record: Record
    answered: bool = False
    problem: RecordProblem | None = None


class ListenerChecks:
    """Answers questions about ports in batches."""

    def __init__(self) -> None:
        self._waiting: list[_Question] = []
        self._turn = asyncio.Lock()

    async def check(self, record: Record) -> None:
        """Return if the record's process is who has taken a connection to its port.

        Raises:
            TransportError: somebody else has; the code is that of the record's refusal.
        """
        question = _Question(record)
        self._waiting.append(question)
        async with self._turn:
            if not question.answered:
                # The look is taken after all of these connections were made.
                batch, self._waiting = self._waiting, []
                try:
                    await asyncio.to_thread(_answer, batch)
                finally:
                    self._waiting += [one for one in batch if not one.answered]
        if question.problem is not None:
            raise TransportError(question.problem.msg, code=question.problem.code)


def _answer(batch: list[_Question]) -> None:
    sockets = liveness.Sockets()
    for question in batch:
        question.problem = listener_problem(question.record, sockets, connected=True)
    # A table that changes while it is read can leave a row out.
    again = [question for question in batch if question.problem is not None]
    sockets = liveness.Sockets()
    for question in again:
        question.problem = listener_problem(question.record, sockets, connected=True)
    for question in batch:
        question.answered = True
