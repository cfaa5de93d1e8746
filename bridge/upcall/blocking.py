"""The blocking `ask` for ordinary scripts: standard library, over the hub's socket."""

from __future__ import annotations

import os
import sys
import time

from upcall.answer import Answer
from upcall.line import HubLine, LineError, ensure_hub, mint_ask_id
from upcall.line.errors import LOST_CODES
from upcall.line.start import Again
from upcall.model.given import check_given, checked_labels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

_HUB_WITHIN_S = 10.0
_RETRY_EVERY_S = 1.0
# The same bound as the hub's, which would cost its imports; a test compares them.
MAX_NAME_CHARS = 200


def ask(
    question: str,
    options: Sequence[str] = (),
    *,
    detail: str | None = None,
    multi: bool = False,
    min_selected: int | None = None,
    max_selected: int | None = None,
    free_text: bool | None = None,
    recommended: str | None = None,
    timeout_s: float | None = None,
    default: str | None = None,
    permission: bool = False,
    title: str | None = None,
    session: str | None = None,
    key: str | None = None,
    secret: bool = False,
    merge: bool = False,
    tags: Collection[str] | None = None,
    quiet: bool = False,
) -> Answer:
    """Ask a question and block until it is answered.

    If stderr is a terminal, a line there says where the question is and how it is answered,
    or that nobody can see it. Ctrl-C cancels the question.

    Args:
        question: 1 to 8,192 characters.
        options: up to 100 labels that a person can tell apart; none for words only.
        detail: longer text below the question.
        multi: several options may be chosen.
        min_selected: at least so many, for `multi`.
        max_selected: at most so many, for `multi`.
        free_text: take words besides the options; by default only where there are none.
        recommended: the option that the program suggests.
        timeout_s: end by itself after 0.1 s to 365 days; None waits for ever.
        default: what a time-out answers.
        permission: the answer lets something run; takes no default.
        title: what the asking program is called.
        session: asks with one name share a conversation (or $UPCALL_SESSION).
        key: asking again with the same key finds the same question and its answer.
        secret: the answer is words that are shown to nobody and kept nowhere; people type
            them in the inbox or at a terminal. Takes no options, default or key.
        merge: equal questions of one session that are open at the same time are one card, and
            one answer is for all of them, where the policy allows it; never permissions.
        tags: what the session calls itself by, for routes; those of $UPCALL_TAGS if None.
        quiet: say nothing on stderr.

    Returns:
        The answer. With a default, a time-out returns it with outcome `timed_out`.

    Raises:
        InvalidAsk: something is out of bounds; nothing was asked.
        AmbiguousLabels: two labels look alike; nothing was asked.
        Declined, TimedOut, Cancelled, Unreachable, Superseded: there is no answer.
        HubError: there is no hub, and none could be started.
    """
    check_given(
        {
            "question": question, "detail": detail, "multi": multi,
            "min_selected": min_selected, "max_selected": max_selected,
            "free_text": free_text, "timeout_s": timeout_s, "default": default,
            "permission": permission, "title": title, "session": session, "key": key,
            "secret": secret, "merge": merge,
        }
    )  # fmt: skip
    options = checked_labels("options", options)
    spec: dict[str, Any] = {
        "id": mint_ask_id(),
        "question": question,
        "options": options,
        "multi": multi,
        "free_text": not options if free_text is None else free_text,
        "class": "permission" if permission else "question",
    }
    more = {
        "detail": detail,
        "min_selected": min_selected,
        "max_selected": max_selected,
        "recommended": recommended,
        "timeout_s": timeout_s,
        "default": default,
        "key": key,
        "secret": secret or None,
        "merge": merge or None,
    }
    spec |= {name: value for name, value in more.items() if value is not None}
    _check_texts(question=question, detail=detail, default=default, recommended=recommended)
    _check_texts(title=title, session=session, key=key)
    if key is not None:
        if not key:
            raise _invalid("key: is empty; it needs 1 to 200 characters")
        _check_name("key", key)
    _check_timeout(timeout_s)
    if default is not None and timeout_s is None:
        raise _invalid("default: it answers for a time-out, and there is none; give timeout_s")
    _check_texts(**{f"option {number}": label for number, label in enumerate(options, 1)})
    try:
        return _Asking(spec, _asker(title, session, _tags(tags)), quiet=quiet).run()
    except KeyboardInterrupt:
        # Of Ctrl-C a person sees the line that asked, and not our frames below it.
        raise KeyboardInterrupt from None


def _check_texts(**texts: object) -> None:
    """Refuse what no line to the hub can carry, naming the field."""
    for field, text in texts.items():
        if text is None:
            continue
        if not isinstance(text, str):
            raise _invalid(f"{field}: is no text but {type(text).__name__}")
        for place, char in enumerate(text, 1):
            if char == "\0" or "\ud800" <= char <= "\udfff":
                raise _invalid(
                    f"{field}: character {place} is U+{ord(char):04X}, which cannot be sent"
                )


def _check_name(field: str, name: str) -> None:
    if len(name) > MAX_NAME_CHARS:
        raise _invalid(f"{field}: has {len(name)} characters; the limit is {MAX_NAME_CHARS}")


def _check_timeout(timeout_s: object) -> None:
    if timeout_s is None:
        return
    fits = isinstance(timeout_s, (int, float)) and 0.1 <= timeout_s <= 365 * 86400
    if not fits:
        raise _invalid(f"timeout_s: {timeout_s!r} is not between 0.1 s and 365 days")


def _invalid(msg: str) -> Exception:
    from upcall.model.errors import InvalidAsk

    return InvalidAsk(msg)


def _tags(given: Collection[str] | None) -> list[str]:
    """Return the tags that were given, or those of the environment."""
    if given is None:
        return os.environ.get("UPCALL_TAGS", "").replace(",", " ").split()
    if isinstance(given, str):
        raise _invalid("tags: is text; a list of texts is wanted")
    tags = list(given)
    _check_texts(**{f"tag {number}": tag for number, tag in enumerate(tags, 1)})
    return tags


def _asker(title: str | None, session: str | None, tags: list[str]) -> dict[str, Any]:
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
    found: dict[str, Any] = {"program": program, "cwd": cwd}
    name = session if session is not None else os.environ.get("UPCALL_SESSION")
    if name:
        _check_name("session" if session else "UPCALL_SESSION", name)
        found["name"] = name
    if title:
        found["title"] = title
    found = {field: value.encode("utf-8", "replace").decode() for field, value in found.items()}
    if tags:
        found["tags"] = tags
    return found


class _Asking:
    """One ask, through hubs that may come and go."""

    def __init__(
        self, spec: dict[str, Any], session: dict[str, Any], *, quiet: bool = False
    ) -> None:
        self._quiet = quiet
        self._channels: list[dict[str, Any]] = []
        self._spec = spec
        self._session = session
        self._again = Again()
        self._is_raised = False

    def run(self) -> Answer:
        try:
            line, state = self._attach()
        except LineError as err:
            raise _error_of(err) from err
        try:
            self._say(state)
            while True:
                try:
                    result = self._end_of(line, state)
                    _took(line, self._spec["id"])
                    return _answer(result)
                except LineError as err:
                    if err.code not in LOST_CODES:
                        raise _error_of(err) from err
                    line.close()
                line, state = self._reattach()
        except BaseException as err:
            _cancel(line, self._spec["id"], err)
            raise
        finally:
            line.close()

    def _attach(self) -> tuple[HubLine, dict[str, Any]]:
        until = time.monotonic() + _HUB_WITHIN_S
        while True:
            ensure = self._again.ensure if self._is_raised else ensure_hub
            line = ensure(max(0.1, until - time.monotonic()))
            try:
                answer = line.request("ask", ask=self._spec, session=self._session, wait=True)
            except LineError as err:
                line.close()
                if err.code not in LOST_CODES or time.monotonic() >= until:
                    raise
            except BaseException as err:
                # Interrupted: the hub may have it already, and nobody waits for it any more.
                _cancel(line, self._spec["id"], err)
                line.close()
                raise
            else:
                state: dict[str, Any] = answer.get("ask") or {}
                # The key may have found a question that was asked before.
                self._spec["id"] = state.get("id", self._spec["id"])
                self._is_raised = True
                self._channels = answer.get("channels") or []
                return line, state

    def _reattach(self) -> tuple[HubLine, dict[str, Any]]:
        while True:
            try:
                return self._attach()
            except LineError as err:
                # No hub can be started just now; the question is kept in its store.
                if err.code not in LOST_CODES and not err.code.startswith("hub_"):
                    raise _error_of(err) from err
                time.sleep(_RETRY_EVERY_S)

    @staticmethod
    def _end_of(line: HubLine, state: dict[str, Any]) -> dict[str, Any]:
        while True:
            event = line.next_event(1.0 if state.get("state") == "closed" else None)
            if event is None:
                end_ms = state.get("closed_ms") or 0
                return {
                    "id": state.get("id"),
                    "outcome": state.get("outcome"),
                    "answer": state.get("answer"),
                    "answered_by": state.get("answered_by"),
                    "waited_s": max(0, end_ms - (state.get("raised_ms") or end_ms)) / 1000,
                }
            if event.get("event") == "ended":
                result: dict[str, Any] = event["result"]
                return result

    def _say(self, state: dict[str, Any]) -> None:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        if self._quiet or not is_terminal or state.get("state") == "closed":
            return
        from upcall.cli import screen, where

        words = where.asked(state, self._channels, here=False)
        screen.err(f"{words.rstrip('.')}. Ctrl-C cancels")


def _took(line: HubLine, ask_id: str) -> None:
    try:
        line.request("took", ask=ask_id, timeout_s=_HUB_WITHIN_S)
    except LineError:
        return  # we have the answer; what the hub thinks of it can't undo that


def _cancel(line: HubLine, ask_id: str, err: BaseException) -> None:
    from upcall.model.errors import NoAnswer

    if isinstance(err, NoAnswer):
        return
    try:
        line.request("cancel", ask=ask_id, timeout_s=2.0)
    except (LineError, OSError, ValueError):
        return  # not connected: the hub sees that we are gone


def _answer(result: dict[str, Any]) -> Answer:
    answer = result.get("answer")
    if answer and not answer.get("secret"):
        return Answer.from_result(result)
    from upcall.model import errors

    outcome = str(result.get("outcome"))
    if answer and answer.get("secret"):
        raise errors.Unreachable("the secret was given out before, to this ask's first asker")
    if outcome == "answered":
        raise errors.Unreachable("it was answered, and the text is not kept any more")
    words = {
        "declined": "declined, not answered",
        "timed_out": f"no answer within {result.get('waited_s') or 0:g} s "
        "(timed out; nobody said no)",
        "cancelled": "the question was withdrawn",
        "unreachable": "the hub took this program for gone",
        "superseded": "the question was replaced by another one",
    }
    kinds: dict[str, type[errors.NoAnswer]] = {
        "declined": errors.Declined,
        "timed_out": errors.TimedOut,
        "unreachable": errors.Unreachable,
        "superseded": errors.Superseded,
    }
    raise kinds.get(outcome, errors.Cancelled)(words.get(outcome, "it ended without an answer"))


def _error_of(err: LineError) -> Exception:
    from upcall.model import errors

    kinds: dict[str, type[errors.UpcallError]] = {
        "invalid_ask": errors.InvalidAsk,
        "ambiguous_labels": errors.AmbiguousLabels,
        "invalid_request": errors.UsageError,
        "id_conflict": errors.UsageError,
        "line_too_long": errors.InvalidAsk,
    }
    kind = kinds.get(err.code, errors.HubError)
    return kind(err.msg, code=err.code, recover=err.recover)
