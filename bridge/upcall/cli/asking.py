"""One ask from raising to its end, over the hub's socket, with the prompt beside it.

The hub may be killed at any moment: it is started again and the same ask, by the same id, is
raised again, which only attaches us to it.
"""

from __future__ import annotations

import time

from upcall.cli import choose, results, screen, waiting, where
from upcall.cli.errors import Failure
from upcall.cli.signals import EndingSignals, Interrupted
from upcall.line import HubLine, LineError, ensure_hub
from upcall.line.errors import LOST_CODES
from upcall.line.start import Again, is_lent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from upcall.cli.prompt import Prompt

    WaitFor = Callable[[Iterable[int], int | None, float | None], tuple[set[int], bool]]

HUB_WITHIN_S = 10.0
SAY_AGAIN_S = 600.0
UNSEEN_FAILS_S = 60.0
_TURN_EVERY_S = 0.5
_FOREGROUND_EVERY_S = 1.0
_LOOK_EVERY_S = 10.0
_RETRY_EVERY_S = 1.0
# A page that is loaded again is away for a moment, which is not worth a line.
_UNSEEN_SAID_S = 5.0


class NoHub(Exception):
    """No hub could be had in time.

    Attributes:
        error: why.
        sent_s: on the monotonic clock, since when a hub that is gone may have the ask, if so.
    """

    def __init__(self, error: LineError, sent_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.sent_s = sent_s


class Asking:
    """Raises one ask and waits for its end.

    Args:
        ask: the ask as the line protocol has it.
        session: who asks.
        quiet: say nothing on stderr but errors.
        unseen_fails: give up when nobody can see the question for 60 s.
        prompt: asks on this terminal too, if given; closed at the end.
        now: returns seconds that only grow.
        wait_for: waits as `waiting.wait_for` does, by the same clock.
    """

    def __init__(
        self,
        ask: dict[str, Any],
        session: dict[str, Any],
        *,
        quiet: bool,
        unseen_fails: bool,
        prompt: Prompt | None,
        now: Callable[[], float] = time.monotonic,
        wait_for: WaitFor = waiting.wait_for,
    ) -> None:
        self._ask = ask
        self._session = session
        self._quiet = quiet
        self._unseen_fails = unseen_fails
        self._prompt = prompt
        self._now = now
        self._wait_for = wait_for
        self._line: HubLine | None = None
        self._again = Again()
        self._view: dict[str, Any] = ask
        self._channels: list[dict[str, Any]] = []
        self._output = waiting.watched_output()
        self._unseen_since: float | None = None
        self._said_at = 0.0
        self._told_unseen = False
        # Once: a page that comes and goes is not worth a line each time.
        self._told_once = False
        self._mentioned_loss = False
        self._owed: str | None = None
        self._is_here = False
        self._is_beside = False
        self.answered_here = False

    def run(self, signals: EndingSignals) -> dict[str, Any]:
        """Return how the ask ended.

        Raises:
            NoHub: no hub could be had at the beginning.
            LineError: the hub refused the ask.
            Failure: nobody could see it, and that was to be a failure.
            Interrupted: a signal came; the ask is cancelled.
        """
        try:
            result = self._attach() or self._wait()
        except Interrupted:
            self._cancel()
            raise
        finally:
            if self._prompt is not None:
                self._prompt.clear()
                self._is_beside = not self._prompt.take_turn()
                self._prompt.close()
        signals.settle()
        return result

    def took(self) -> None:
        """Tell the hub that the answer was written; best effort, the answer is out."""
        for _ in range(2):
            try:
                if self._line is None and self._ask.get("secret"):
                    # Asking again would have a person type it again.
                    self._line = self._again.ensure(HUB_WITHIN_S)
                elif self._line is None:
                    self._line, _ = self._raise_again()
                self._line.request("took", ask=self._ask["id"], timeout_s=HUB_WITHIN_S)
            except LineError as err:
                self._drop()
                if err.code not in LOST_CODES:
                    return
            except NoHub:
                return
            else:
                return

    def before_words(self) -> None:
        """Make room for what is said of the end, where another question is on the screen."""
        if self._is_beside:
            screen.draw("\n")

    def after_words(self) -> None:
        """Give that question its prompt back; what was typed there is still there."""
        if self._is_beside:
            screen.draw("> ")

    def close(self) -> None:
        """Close the connection."""
        self._drop()

    # --- being attached ---------------------------------------------------------------------

    def _attach(self) -> dict[str, Any] | None:
        """Raise the ask; return its end only if our reader went away before."""
        answer = self._raise_first()
        if answer is None:
            return self._ended_here("the reader of the answer went away")
        self._take_state(answer)
        # The key may have found an ask that was raised before.
        self._ask["id"] = self._view.get("id", self._ask["id"])
        if self._view.get("state") == "closed":
            return None
        self._look_where_we_are()
        self._update_seen()
        self._say_where()
        return None

    def _raise_first(self) -> dict[str, Any] | None:
        """Raise the ask for the first time and return the hub's answer.

        At a socket that was lent to us we wait for its hub: another one would not be seen.
        """
        while True:
            try:
                self._line, answer = raise_ask(self._ask, self._session, wait=True)
            except NoHub as lost:
                if self._prompt is not None or not is_lent():
                    raise
                if self._unseen_since is None:
                    self._unseen_since = self._now()
                    self._say(
                        f"nobody can see question {self._ask['id']} yet: "
                        f"{screen.visible(lost.error.msg)}. It is tried again until a hub "
                        "answers there. Ctrl-C cancels"
                    )
                self._fail_if_unseen()
                if self._wait_for([], self._output, _RETRY_EVERY_S)[1]:
                    return None
            else:
                return answer

    def _look_where_we_are(self) -> None:
        """Find out whether a person can be asked on this terminal now."""
        self._is_here = self._prompt is not None and self._prompt.is_foreground()

    def _say_where(self) -> None:
        here = self._is_here
        self._told_unseen = self._unseen_since is not None
        self._told_once = self._told_once or self._told_unseen
        self._say(where.asked(self._view, self._channels, here=here))

    def _take_state(self, answer: dict[str, Any]) -> None:
        found = answer.get("ask")
        if isinstance(found, dict):
            self._view = found
        self._channels = answer.get("channels") or self._channels

    def _reattach(self) -> None:
        self._drop()
        while True:
            try:
                self._line, answer = self._raise_again()
            except NoHub as lost:
                if not self._mentioned_loss:
                    self._mentioned_loss = True
                    self._say(_lost_words(lost.error))
                time.sleep(_RETRY_EVERY_S)
            else:
                self._mentioned_loss = False
                self._take_state(answer)
                return

    def _raise_again(self) -> tuple[HubLine, dict[str, Any]]:
        return raise_ask(self._ask, self._session, wait=True, again=self._again)

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _cancel(self) -> None:
        if self._line is not None:
            _cancel_on(self._line, str(self._ask["id"]))
        self._drop()

    # --- waiting ----------------------------------------------------------------------------

    def _wait(self) -> dict[str, Any]:
        while True:
            try:
                result = self._step()
            except LineError as err:
                if err.code not in LOST_CODES:
                    raise
                self._reattach()
                continue
            if result is not None:
                return result

    def _step(self) -> dict[str, Any] | None:
        line = self._line
        if line is None:
            raise LineError("hub_gone", "not connected")
        event = line.next_event(0)
        if event is not None:
            return self._take_event(event)
        if self._view.get("state") == "closed":
            # The end is in the state that we were given; the event may be on its way.
            event = line.next_event(1.0)
            if event is None:
                return results.of_ask(self._view)
            return self._take_event(event)
        self._draw()
        reads = {line.fileno()}
        prompt = self._prompt
        is_prompting = prompt is not None and prompt.is_shown and prompt.is_foreground()
        if prompt is not None:
            reads.add(prompt.wakes())
            if is_prompting:
                reads.add(prompt.fileno())
        ready, reader_gone = self._wait_for(reads, self._output, self._pause_s(is_prompting))
        if reader_gone:
            self._cancel()
            return self._ended_here("the reader of the answer went away")
        if prompt is not None and prompt.look_again():
            return None
        # Put into the background meanwhile, reading would stop us.
        if prompt is not None and prompt.fileno() in ready and prompt.is_foreground():
            return self._take_typed(prompt, line)
        self._look_at_unseen()
        return None

    def _pause_s(self, is_prompting: bool) -> float:
        pauses = [SAY_AGAIN_S]
        if self._prompt is not None:
            # Nothing tells us when our turn comes, or when we are in the foreground again.
            here_s = _TURN_EVERY_S if self._is_here else _FOREGROUND_EVERY_S
            pauses.append(_LOOK_EVERY_S if is_prompting else here_s)
        if self._unseen_since is not None:
            now = self._now()
            pauses.append(self._said_at + SAY_AGAIN_S - now)
            if not self._told_once:
                pauses.append(self._unseen_since + _UNSEEN_SAID_S - now)
            if self._unseen_fails:
                pauses.append(self._unseen_since + UNSEEN_FAILS_S - now)
        return max(0.0, min(pauses))

    def _take_event(self, event: dict[str, Any]) -> dict[str, Any] | None:
        kind = event.get("event")
        if kind == "ended" and isinstance(event.get("result"), dict):
            result: dict[str, Any] = event["result"]
            self._mark(result)
            self._tell_loser(result)
            return result
        if kind == "channels":
            before, self._channels = self._channels, event.get("channels") or []
            self._update_seen()
            if not self._is_here:
                for words in where.changes(before, self._channels):
                    self._say(words)
                if self._told_unseen and self._unseen_since is None:
                    self._say_where()
        elif kind == "held" and not self._is_here:
            self._say("held: the time limit is stopped" if event.get("held") else "not held")
        return None

    def _ended_here(self, reason: str) -> dict[str, Any]:
        waited_s = 0.0
        raised_ms = self._view.get("raised_ms")
        if isinstance(raised_ms, int):
            waited_s = max(0.0, time.time() - raised_ms / 1000)
        return {
            "id": self._ask["id"],
            "outcome": "cancelled",
            "answer": None,
            "answered_by": None,
            "waited_s": round(waited_s, 3),
            "reason": reason,
        }

    # --- who can see it ---------------------------------------------------------------------

    def _update_seen(self) -> None:
        if self._is_here or where.is_seen(self._channels):
            self._unseen_since = None
        elif self._unseen_since is None:
            self._unseen_since = self._now()

    def _look_at_unseen(self) -> None:
        now = self._now()
        if self._unseen_since is None:
            return
        self._fail_if_unseen()
        is_news = not self._told_once and now - self._unseen_since >= _UNSEEN_SAID_S
        if is_news or now - self._said_at >= SAY_AGAIN_S:
            self._told_unseen = self._told_once = True
            self._say(where.unseen(self._view, self._channels))

    def _fail_if_unseen(self) -> None:
        since, now = self._unseen_since, self._now()
        if since is None:
            return
        if self._unseen_fails and now - since >= UNSEEN_FAILS_S:
            self._cancel()
            raise Failure(
                f"nobody could see question {self._ask['id']} for "
                f"{screen.duration(UNSEEN_FAILS_S)}; it is cancelled",
                "sign a browser in with: upcall inbox",
                "nobody_reachable",
            )

    def _say(self, words: str) -> None:
        self._said_at = self._now()
        if self._quiet:
            return
        prompt = self._prompt
        if prompt is not None and not prompt.take_turn():
            # Another question is on this terminal: nothing is written into it.
            self._owed = words
            return
        self._owed = None
        screen.err(words)
        if prompt is not None and not self._is_here:
            prompt.leave_turn()

    # --- the prompt -------------------------------------------------------------------------

    def _draw(self) -> None:
        prompt = self._prompt
        if prompt is None or self.answered_here:
            return
        was_here = self._is_here
        self._look_where_we_are()
        if was_here != self._is_here:
            self._update_seen()
        if not self._is_here:
            prompt.is_shown = False
            if self._owed is not None:
                self._say(self._owed)
            else:
                prompt.leave_turn()
        elif not prompt.is_shown and prompt.take_turn():
            if self._owed is not None or not was_here:
                self._say_where()
            prompt.show(self._view)

    def _take_typed(self, prompt: Prompt, line: HubLine) -> dict[str, Any] | None:
        typed = prompt.read()
        if typed is None:
            return None
        try:
            # Labels are typed as the program wrote them, or as they are shown.
            answer = choose.read(self._view, typed, own=self._ask.get("options"))
        except choose.NotAnAnswer as why:
            prompt.again(str(why))
            return None
        if prompt.opens(self._view, answer):
            return None
        words = answer.get("text") if self._ask.get("secret") else None
        if words is not None:
            answer = {"secret": True}  # the words are here already, and go nowhere
        try:
            taken = line.request(
                "took", ask=self._ask["id"], answer=answer, terminal=prompt.name
            )
        except LineError as err:
            return self._refused(prompt, err)
        prompt.answered()
        self.answered_here = True
        result = taken.get("result")
        if not isinstance(result, dict) or result.get("outcome") == "open":
            return None  # claimed: its end comes as an event
        if words is not None and result.get("outcome") == "answered":
            result["answer"] = {"indices": [], "labels": [], "text": words}
            self._mark(result)
        return result

    def _refused(self, prompt: Prompt, err: LineError) -> dict[str, Any] | None:
        if err.code in LOST_CODES:
            raise err
        result = err.extra.get("result")
        if isinstance(result, dict) and result.get("outcome") not in {None, "open"}:
            self._mark(result)
            self._tell_loser(result, typed=True)
            return result
        if err.code == "invalid_answer":
            prompt.again(err.msg)
            return None
        # Not from here: the question goes on elsewhere.
        prompt.clear(screen.visible(f"{err.msg} {err.recover or ''}".strip()))
        prompt.close()
        self._prompt, self._is_here = None, False
        self._update_seen()
        return None

    def _mark(self, result: dict[str, Any]) -> None:
        if self._ask.get("secret"):
            result["secret"] = True  # stderr says so instead of the words

    def _tell_loser(self, result: dict[str, Any], *, typed: bool = False) -> None:
        prompt = self._prompt
        if prompt is None or not prompt.is_shown:
            return
        if result.get("outcome") != "answered":
            prompt.clear()
            return
        self.answered_here = True  # told right here, once
        unused = " Your input was not used." if typed or prompt.has_input() else ""
        prompt.clear(f"{results.won(result, self._ago(result))}{unused}")

    def _ago(self, result: dict[str, Any]) -> str:
        raised_ms = self._view.get("raised_ms")
        if not isinstance(raised_ms, int):
            return ""
        return f" {screen.ago(raised_ms + round(float(result.get('waited_s') or 0) * 1000))}"


def _lost_words(error: LineError) -> str:
    if error.code == "hub_stopped":
        return (
            "the hub was stopped; the question stays open. To go on: "
            f"upcall{screen.GLUE}hub{screen.GLUE}start. Ctrl-C cancels"
        )
    return (
        f"the hub is gone ({screen.visible(error.msg)}); "
        "the question stays open, trying again. Ctrl-C cancels"
    )


def _cancel_on(line: HubLine, ask_id: str) -> None:
    try:
        line.request("cancel", ask=ask_id, timeout_s=5.0)
    except LineError:
        return  # the hub sees our connection end, and that the question has no asker


def raise_ask(
    ask: dict[str, Any],
    session: dict[str, Any],
    *,
    wait: bool,
    timeout_s: float = HUB_WITHIN_S,
    again: Again | None = None,
) -> tuple[HubLine, dict[str, Any]]:
    """Raise *ask* with the hub, started if need be; repeating it is harmless.

    With *again* it was raised before, and a hub that a person stopped is left alone.

    Returns:
        The connection, and the hub's answer.

    Raises:
        NoHub: there is none within *timeout_s* seconds.
        LineError: the hub refused the ask.
    """
    until = time.monotonic() + timeout_s
    sent_s = None
    ensure = ensure_hub if again is None else again.ensure
    while True:
        try:
            line = ensure(max(0.1, until - time.monotonic()), note=screen.err)
        except LineError as err:
            raise NoHub(err, sent_s) from err
        sent_s = time.monotonic() if sent_s is None else sent_s
        try:
            return line, line.request("ask", ask=ask, session=session, wait=wait)
        except LineError as err:
            line.close()
            if err.code not in LOST_CODES:
                raise
            if time.monotonic() >= until:
                raise NoHub(err, sent_s) from err
        except BaseException:
            # Interrupted: the hub may have it already, and nobody waits for it any more.
            _cancel_on(line, str(ask["id"]))
            line.close()
            raise
