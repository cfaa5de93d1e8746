"""What people read, word for word, and the values that are in force when nobody sets one."""

from typing import TYPE_CHECKING, Any

import pytest

from upcall.cli import ask, asking, confirm, quick, results, screen, where
from upcall.cli.confirm import parser as confirm_parser
from upcall.config import parse
from upcall.core.policy import NOT_OPERATOR, SELF_ANSWER_WORDS
from upcall.core.render import CHANGED

if TYPE_CHECKING:
    from collections.abc import Mapping

BY = {"name": "ada", "channel": "telegram"}
NO = {"indices": [1], "labels": ["no"], "text": None}


def ended(outcome: str, **more: Any) -> dict[str, Any]:
    return {"id": "a7q2", "outcome": outcome, "waited_s": 600.0, **more}


# --- the exact texts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (
            ended("answered", answer=NO, answered_by=BY, waited_s=130.0),
            "no - ada on telegram, after 2 min 10 s",
        ),
        (ended("declined"), "declined, not answered: exit 3"),
        (
            ended("declined", answered_by=BY),
            "declined, not answered (by ada on telegram): exit 3",
        ),
        (
            ended("answered", answered_by=BY),
            "answered - ada on telegram, after 10 min; the text is not kept any more: exit 3",
        ),
        (
            ended("cancelled", reason="upcall was uninstalled"),
            "cancelled, not answered (upcall was uninstalled): exit 3",
        ),
        (ended("timed_out"), "no answer within 10 min (timed out; nobody said no)"),
        (
            ended("timed_out", answer=NO),
            'no answer within 10 min; the program\'s own default "no" was used. '
            "Nobody chose it.",
        ),
    ],
)
def test_how_an_ask_ended(result: dict[str, Any], words: str) -> None:
    assert results.told(result, here=False) == words


def test_who_won() -> None:
    result = ended("answered", answer=NO, answered_by=BY)
    assert results.won(result, " 3 s ago") == 'ada answered "no" on telegram 3 s ago.'


def test_a_forgotten_answer_is_no_answer() -> None:
    result = ended("answered", answered_by=BY)
    assert results.exit_code(result) == 3
    assert results.exit_code(ended("answered", answer=NO)) == 0
    assert results.won(result) == ("ada answered (the text is not kept any more) on telegram.")


def test_what_is_known_of_a_channel() -> None:
    heard = {"state": "delivered", "audience": 1, "heard_ms": 1}
    assert where.status({"name": "terminal", **heard}) == "watch (1 screen)"
    assert where.status({"name": "web", **heard}) == "inbox (1 tab)"
    assert "last heard" in where.status({"name": "telegram", **heard})


def test_where_it_is() -> None:
    view = {"id": "a7q2", "options": ["yes", "no"]}
    seen = [
        {"name": "telegram", "state": "delivered", "audience": 0},
        {"name": "web", "state": "delivered", "audience": 1},
    ]
    assert where.asked(view, seen, here=True) == (
        "asked a7q2 in telegram (delivered), inbox (1 tab) - answer here: 1 yes, 2 no "
        "- Ctrl-C cancels"
    )
    closed = [{"name": "web", "state": "delivered", "audience": 0, "signed_in": 2}]
    assert "no channel is set up and no page of the inbox is open." in where.asked(
        view, closed, here=False
    )
    said = where.asked(view, [], here=False).replace(screen.GLUE, " ")
    assert said.startswith(
        "nobody can see question a7q2 yet: no channel is set up and no browser is signed in. "
        "Answer: upcall answer a7q2 yes. "
    )


def test_what_a_card_says() -> None:
    assert SELF_ANSWER_WORDS == (
        "This answer comes from inside the program that asked. "
        "Answer from another terminal, the inbox or your phone."
    )
    assert CHANGED == (
        "The program changed its question after this card was posted. Nothing was sent. "
        "New question below."
    )
    assert NOT_OPERATOR == "You can read this conversation but not answer in it."


# --- the defaults ----------------------------------------------------------------------------


def test_an_ask_waits_for_ever_and_a_confirm_in_a_pipe_for_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ask.parser().read(["Q?"]).timeout is None
    assert quick.read(["Q?"]).timeout is None
    assert "timeout_s" not in ask.spec_of(ask.parser().read(["Q?"]))
    monkeypatch.setattr("os.isatty", lambda fd: False)
    given = confirm_parser().read(["Q?"])
    assert confirm._spec_of(given)["timeout_s"] == 3600.0
    given = confirm_parser().read(["Q?", "--timeout", "2h"])
    assert confirm._spec_of(given)["timeout_s"] == 7200.0
    monkeypatch.setattr("os.isatty", lambda fd: True)
    assert "timeout_s" not in confirm._spec_of(confirm_parser().read(["Q?"]))
    # Nobody is asked on this terminal: as in a pipe.
    given = confirm_parser().read(["Q?", "--no-terminal"])
    assert confirm._spec_of(given)["timeout_s"] == 3600.0


def test_where_nobody_can_see_it_one_waits_and_says_so_every_ten_minutes() -> None:
    assert ask.parser().read(["Q?"]).unseen == "wait"
    assert quick.read(["Q?"]).unseen == "wait"
    assert (asking.SAY_AGAIN_S, asking.UNSEEN_FAILS_S) == (600.0, 60.0)


def test_the_configuration_without_a_file() -> None:
    config = parse(b"", "built-in")
    found: Mapping[str, object] = {
        "idle exit": config.hub.idle_exit_s,
        "local answers": config.policy.local_answers,
        "redaction": config.redaction.enabled,
    }
    assert found == {"idle exit": 600.0, "local answers": "tty", "redaction": True}


def test_a_channel_that_is_silent_for_now_says_why() -> None:
    channel = {"name": "telegram", "state": "later", "reason": "quiet hours until 07:00"}
    assert where.describe(channel) == "telegram (later: quiet hours until 07:00)"
    assert not where.is_seen([channel])
