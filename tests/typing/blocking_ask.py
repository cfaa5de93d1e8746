"""A script that asks, as its author would write it; type checkers read it, nothing runs it."""

# pyright: strict, reportUnusedCallResult=false
from typing import assert_type

from upcall import Answer, Declined, NoAnswer, TimedOut, UpcallError, ask
from upcall.answer import AnsweredBy


def deploy() -> None: ...


def main() -> int:
    answer = ask("Deploy?", ["Yes", "No"])
    assert_type(answer, Answer)
    if answer == "Yes":
        deploy()

    assert_type(str(answer), str)
    assert_type(answer.labels, tuple[str, ...])
    assert_type(answer.indices, tuple[int, ...])
    assert_type(answer.text, str | None)
    assert_type(answer.answered_by, AnsweredBy | None)
    assert_type(answer.outcome, str)
    assert_type(answer.waited_s, float)
    if answer.answered_by is not None:
        assert_type(answer.answered_by.name, str | None)
        assert_type(answer.answered_by.channel, str)

    try:
        words = ask("What shall it be called?", timeout_s=600, detail="One word.")
    except TimedOut:
        return 4
    except Declined as declined:
        assert_type(declined.code, str)
        return 3
    except NoAnswer as other:
        assert_type(other.recover, str | None)
        return 3
    except UpcallError:
        return 1
    assert_type(words, Answer)

    chosen = ask(
        "Which hosts?", ("one", "two"), multi=True, min_selected=1, default="one", timeout_s=60
    )
    assert_type(chosen.labels, tuple[str, ...])

    ask("Deploy?", ["Yes", "No"], timeout="10m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ask(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return 0
