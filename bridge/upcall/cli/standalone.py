"""Asking without a hub: an endpoint of our own, and the prompt.

Any client of the wire can answer, and a hub that appears later finds the session by its
record and shows the question under the same id.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from typing import TYPE_CHECKING, Any

from upcall.cli import choose, results, screen, waiting
from upcall.cli.signals import EndingSignals, Interrupted
from upcall.clock import SystemClock
from upcall.core.asks import InvalidAnswer
from upcall.core.redact import mask, masked
from upcall.line.start import is_lent
from upcall.model.errors import NoAnswer
from upcall.model.frames import Choice
from upcall.model.limits import MIN_DEADLINE_S
from upcall.model.refusals import is_refusal
from upcall.session.host import Session

if TYPE_CHECKING:
    from upcall.answer import Answer
    from upcall.cli.prompt import Prompt

_LOOK_EVERY_S = 0.5
# Nobody can tell here whether a place shows it, nor whether the policy allows a default.
_NO_DEFAULT = "without a hub a default is not used"


def ask_alone(
    ask: dict[str, Any],
    session: dict[str, Any],
    *,
    prompt: Prompt | None,
    quiet: bool,
    signals: EndingSignals,
    began_s: float | None = None,
) -> tuple[dict[str, Any], bool]:
    """Return how *ask* ended, and whether this terminal has told it.

    Args:
        ask: what is asked.
        session: who asks.
        prompt: the terminal's, if a person can be asked there.
        quiet: nothing is said of it.
        signals: end the wait.
        began_s: since when its clock runs, on the monotonic clock: a hub that is gone may
            have begun it. Now, if None.

    Raises:
        UpcallError: the endpoint could not be set up, or the ask is not valid.
        Interrupted: a signal came; the ask is cancelled.
    """
    if not quiet:
        screen.err(f"asking {ask['id']} without a hub: {_where(prompt)}. Ctrl-C cancels")
        if ask.get("default") is not None:
            screen.err(f"{_NO_DEFAULT}: a time-out gives no answer")
    alone = _Alone(ask, session, prompt, began_s)
    try:
        result = asyncio.run(alone.run(signals.numbers))
        return result, alone.told_here
    finally:
        if prompt is not None:
            prompt.clear()
            prompt.close()


def _where(prompt: Prompt | None) -> str:
    if is_lent():
        # Without a prompt nobody comes here: `ask` waits for the hub then.
        return "it can be answered here, and nowhere else"
    if prompt is not None and prompt.is_foreground():
        return "answer here, or anywhere as soon as a hub runs"
    return "it can be answered anywhere as soon as a hub runs"


def _shown(ask: dict[str, Any]) -> dict[str, Any]:
    """Return *ask* as it is drawn: what a hub would mask is masked here too."""
    detail, in_detail = masked(ask.get("detail") or "")
    question, in_question = masked(ask["question"])
    options, label = ask["options"], ask.get("recommended")
    is_permission = ask["class"] == "permission"
    return ask | {
        "question": question,
        "detail": detail or None,
        "options": [mask(option) for option in options],
        "recommended": None if label is None else options.index(label),
        "revision": ask["id"],
        "hidden_chars": (
            in_question + in_detail + sum(masked(option)[1] for option in options)
            if is_permission
            else 0
        ),
        "allows": [
            index
            for index, option in enumerate(options)
            if is_permission and not is_refusal(option)
        ],
    }


class _Alone:
    """One ask on an endpoint of our own."""

    def __init__(
        self,
        ask: dict[str, Any],
        session: dict[str, Any],
        prompt: Prompt | None,
        began_s: float | None,
    ) -> None:
        self._ask = ask
        self._began_s = began_s
        self._view = _shown(ask)
        self._session_words = session
        self._prompt = prompt
        self._signal: int | None = None
        self._reader_gone = False
        self.told_here = False

    async def run(self, signals: tuple[int, ...]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        asked_at = now if self._began_s is None else self._began_s
        timeout_s = self._ask.get("timeout_s")
        left_s = None if timeout_s is None else timeout_s - (now - asked_at)
        if left_s is not None and left_s < MIN_DEADLINE_S:
            # It ended where a hub may have had it, and must not be asked a second time.
            return self._result("timed_out", None, asked_at)
        title = self._session_words.get("title") or self._session_words.get("program")
        async with Session(
            title, hub=False, tags=self._session_words.get("tags", ())
        ) as session:
            task = asyncio.create_task(self._raise(session, left_s), name="upcall-ask-alone")
            for number in signals:
                loop.add_signal_handler(number, self._end, number, task)
            look = asyncio.create_task(self._look(session, task), name="upcall-prompt")
            try:
                answer = await task
            except NoAnswer as ended:
                return self._result(ended.code, None, asked_at)
            except asyncio.CancelledError:
                if self._signal is not None:
                    raise Interrupted(self._signal) from None
                if self._reader_gone:
                    return self._result("cancelled", None, asked_at)
                raise
            finally:
                look.cancel()
                await asyncio.gather(look, return_exceptions=True)
                for number in signals:
                    loop.remove_signal_handler(number)
            return self._result(answer.outcome, answer, asked_at)

    async def _raise(self, session: Session, timeout_s: float | None) -> Answer:
        recommended = self._ask.get("recommended")
        return await session.ask(
            self._ask["question"],
            self._ask["options"],
            detail=self._ask.get("detail"),
            multi=self._ask["multi"],
            free_text=self._ask["free_text"],
            recommended=recommended,
            timeout_s=timeout_s,
            permission=self._ask["class"] == "permission",
            secret=bool(self._ask.get("secret")),
            merge=bool(self._ask.get("merge")),
            ask_id=self._ask["id"],
        )

    def _end(self, number: int, task: asyncio.Task[Answer]) -> None:
        self._signal = number
        task.cancel()

    async def _look(self, session: Session, task: asyncio.Task[Answer]) -> None:
        """Mind the prompt's turn, and whether anybody still reads our answer."""
        output = waiting.watched_output()
        loop = asyncio.get_running_loop()
        prompt = self._prompt
        try:
            while True:
                if waiting.wait_for([], output, 0)[1]:
                    self._reader_gone = True
                    task.cancel()
                if prompt is not None and prompt.look_again():
                    loop.remove_reader(prompt.fileno())
                if prompt is not None and self._may_show(prompt):
                    prompt.show(self._view)
                    loop.add_reader(prompt.fileno(), self._take_typed, session, prompt)
                await SystemClock().sleep(_LOOK_EVERY_S)
        finally:
            if prompt is not None:
                loop.remove_reader(prompt.fileno())

    @staticmethod
    def _may_show(prompt: Prompt) -> bool:
        return not prompt.is_shown and prompt.is_foreground() and prompt.take_turn()

    def _take_typed(self, session: Session, prompt: Prompt) -> None:
        if not prompt.is_foreground():
            # Put into the background: reading would stop us. It is drawn again later.
            asyncio.get_running_loop().remove_reader(prompt.fileno())
            prompt.is_shown = False
            prompt.leave_turn()
            return
        typed = prompt.read()
        if typed is None:
            return
        try:
            given = choose.read(self._view, typed, own=self._ask["options"])
            if prompt.opens(self._view, given):
                return
            self.told_here = session.answer(
                self._ask["id"],
                wire_answer(given, multi=self._ask["multi"]),
                channel="terminal",
                name=login_name(),
            )
        except (choose.NotAnAnswer, InvalidAnswer) as why:
            prompt.again(str(why))
        else:
            if self.told_here:
                prompt.answered()

    def _result(self, outcome: str, answer: Answer | None, asked_at: float) -> dict[str, Any]:
        by = None if answer is None else answer.answered_by
        result: dict[str, Any] = {
            "id": self._ask["id"],
            "outcome": outcome,
            "answer": None
            if answer is None
            else {
                "indices": list(answer.indices),
                "labels": list(answer.labels),
                "text": answer.text,
            },
            "answered_by": None if by is None else {"name": by.name, "channel": by.channel},
            "waited_s": round(time.monotonic() - asked_at, 3),
        }
        if self._ask.get("secret"):
            result["secret"] = True
        if outcome == "timed_out" and self._ask.get("default") is not None:
            result["reason"] = _NO_DEFAULT
        if self._prompt is not None and self._prompt.is_shown and outcome == "answered":
            self.told_here = True
            unused = " Your input was not used." if self._prompt.has_input() else ""
            self._prompt.clear(f"{results.won(result)}{unused}")
        return result


def wire_answer(given: dict[str, Any], *, multi: bool) -> int | str | Choice | None:
    """Return a typed answer as the wire has it; None declines."""
    if given.get("declined"):
        return None
    if "text" in given:
        return str(given["text"])
    indices: list[int] = given["indices"]
    return Choice(selected=tuple(indices)) if multi else indices[0]


def login_name() -> str:
    """Return what the person at this terminal is called here."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
