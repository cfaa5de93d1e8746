"""`upcall ask`, `confirm` and `wait` as processes, against a hub with scripted behaviour."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fakes.hub_line import INBOX_UNSEEN, FakeHub, Refuse
from upcall import blocking
from upcall.cli import args
from upcall.cli import ask as ask_command
from upcall.hub import requests
from upcall.model import limits

if TYPE_CHECKING:
    from conftest import Home

OPTIONS = ("-o", "yes", "-o", "no")


@pytest.fixture
def hub(home: "Home") -> Iterator[FakeHub]:
    with FakeHub(str(home.state)) as running:
        yield running


def finish(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    out, err = process.communicate(timeout=20)
    return out, err, process.returncode


# --- answers ---------------------------------------------------------------------------------


def test_prints_the_answer_and_nothing_else(home: "Home", hub: FakeHub) -> None:
    process = home.start("ask", "Ship?", *OPTIONS)
    ask = hub.first_ask()
    hub.answer(ask["id"], 0)
    out, err, code = finish(process)
    assert (out, code) == ("yes\n", 0)
    assert err.splitlines() == [
        f"asked {ask['id']} in inbox (1 tab) - or: upcall answer {ask['id']} yes",
        err.splitlines()[1],
    ]
    assert err.splitlines()[1].startswith("yes - Sam on inbox, after ")


def test_confirms_that_it_took_the_answer_after_writing_it(home: "Home", hub: FakeHub) -> None:
    process = home.start("ask", "Ship?", *OPTIONS)
    ask = hub.first_ask()
    hub.answer(ask["id"], 1)
    assert finish(process)[0] == "no\n"
    hub.wait_until(lambda: hub.requests("took"))
    assert hub.requests("took")[0]["ask"] == ask["id"]
    assert "answer" not in hub.requests("took")[0]


def test_several_answers_come_one_a_line(home: "Home", hub: FakeHub) -> None:
    process = home.start("ask", "Which?", "-o", "a", "-o", "b", "-o", "c", "--multi")
    hub.answer(hub.first_ask()["id"], 0, 2)
    assert finish(process)[::2] == ("a\nc\n", 0)


def test_without_options_it_takes_words(home: "Home", hub: FakeHub) -> None:
    process = home.start("ask", "Name?")
    ask = hub.first_ask()
    assert ask["free_text"] is True
    hub.answer(ask["id"], text="First\nLight")
    assert finish(process)[::2] == ("First\nLight\n", 0)


def test_control_characters_of_an_answer_are_removed_but_not_from_json(
    home: "Home", hub: FakeHub
) -> None:
    for extra, wanted in (((), "a]0;bc\n"), (("--json",), None)):
        process = home.start("ask", "Name?", *extra)
        ask = hub.first_ask()
        hub.answer(ask["id"], text="a\x1b]0;b\x07\rc")
        out, err, code = finish(process)
        assert code == 0
        assert "\x1b" not in out + err
        if wanted is None:
            assert json.loads(out)["answer"]["text"] == "a\x1b]0;b\x07\rc"
        else:
            assert out == wanted
        hub.asks.clear()


def test_the_document_has_the_promised_fields(home: "Home", hub: FakeHub) -> None:
    process = home.start("ask", "Ship?", *OPTIONS, "--json", "-q")
    ask = hub.first_ask()
    hub.answer(ask["id"], 0)
    out, err, code = finish(process)
    assert (err, code) == ("", 0)
    document = json.loads(out)
    assert document.pop("waited_s") >= 0
    assert document == {
        "id": ask["id"],
        "outcome": "answered",
        "answer": {"indices": [0], "labels": ["yes"], "text": None},
        "answered_by": {"name": "Sam", "channel": "web"},
    }


def test_a_lone_surrogate_from_the_hub_breaks_nothing(home: "Home", hub: FakeHub) -> None:
    process = home.start("ask", "Name?", "--json", env={**home.env, "LC_ALL": "C"})
    hub.answer(hub.first_ask()["id"], text="a\ud800é")
    out, err, code = finish(process)
    assert code == 0
    assert json.loads(out)["answer"]["text"] == "a\ud800é"
    assert "Traceback" not in err


def test_everything_that_was_given_goes_to_the_hub(home: "Home", hub: FakeHub) -> None:
    process = home.start(
        "ask", "Ship?", *OPTIONS, "--multi", "--recommend", " YES", "--detail", "because",
        "--timeout", "1h30m", "--default", "NO", "--title", "release", "--session", "nightly",
        "--key", "k1",
    )  # fmt: skip
    ask = hub.first_ask()
    hub.answer(ask["id"], 0)
    finish(process)
    (request,) = hub.requests("ask")
    assert request["wait"] is True
    assert request["session"]["name"] == "nightly"
    assert request["session"]["title"] == "release"
    assert request["session"]["cwd"] == os.path.realpath(home.root)
    assert request["ask"] == {
        "id": ask["id"],
        "question": "Ship?",
        "options": ["yes", "no"],
        "multi": True,
        "free_text": False,
        "class": "question",
        "recommended": "yes",
        "timeout_s": 5400.0,
        "default": "no",
        "key": "k1",
        "detail": "because",
    }


def test_the_session_name_may_come_from_the_environment(home: "Home", hub: FakeHub) -> None:
    home.run("ask", "Ship?", "--no-wait", env={"UPCALL_SESSION": "nightly"})
    assert hub.requests("ask")[0]["session"]["name"] == "nightly"


def test_the_detail_may_come_from_stdin(home: "Home", hub: FakeHub) -> None:
    home.run("ask", "Ship?", "--no-wait", "--detail", "-", stdin="line 1\nline 2\n")
    assert hub.first_ask()["detail"] == "line 1\nline 2\n"


def test_a_key_may_find_an_older_ask(home: "Home", hub: FakeHub) -> None:
    def found(client: Any, request: Any) -> dict[str, Any]:
        ask = {"id": "a000000000000", "state": "closed", "outcome": "answered",
               "answer": {"indices": [0], "labels": ["yes"], "text": None},
               "answered_by": None, "raised_ms": 1000, "closed_ms": 3000}  # fmt: skip
        return {"ask": ask, "channels": [], "existing": True}

    hub.handlers["ask"] = found
    done = home.run("ask", "Ship?", *OPTIONS, "--key", "k1", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["id"] == "a000000000000"
    assert json.loads(done.stdout)["waited_s"] == 2.0
    assert hub.requests("took")[0]["ask"] == "a000000000000"


# --- other ends ------------------------------------------------------------------------------

_DEFAULT = {"indices": [1], "labels": ["no"], "text": None}


@pytest.mark.parametrize(
    ("outcome", "more", "code", "out", "words"),
    [
        ("declined", {}, 3, "", "declined, not answered: exit 3"),
        ("cancelled", {}, 3, "", "cancelled, not answered: exit 3"),
        ("superseded", {}, 3, "", "superseded, not answered: exit 3"),
        ("unreachable", {}, 3, "", "The program stopped before it took the answer: exit 3"),
        ("timed_out", {}, 4, "", "(timed out; nobody said no)"),
        (
            "timed_out",
            {"answer": _DEFAULT},
            0,
            "no\n",
            'the program\'s own default "no" was used. Nobody chose it.',
        ),
    ],
)
def test_each_outcome_has_its_exit_code_and_words(
    home: "Home",
    hub: FakeHub,
    outcome: str,
    more: dict[str, Any],
    code: int,
    out: str,
    words: str,
) -> None:
    asking = home.start("ask", "Ship?", *OPTIONS)
    ask_id = hub.first_ask()["id"]
    hub.end(ask_id, outcome, **more)
    for process in (asking, home.start("wait", ask_id)):
        found = finish(process)
        assert (found[0], found[2]) == (out, code)
        assert words in found[1].splitlines()[-1]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_cancels_the_ask(
    home: "Home", hub: FakeHub, number: signal.Signals, code: int
) -> None:
    process = home.start("ask", "Ship?", *OPTIONS)
    ask = hub.first_ask()
    hub.wait_until(lambda: hub.requests("ask"))
    process.send_signal(number)
    out, err, exit_code = finish(process)
    assert (out, exit_code) == ("", code)
    assert err.splitlines()[-1] == f"question {ask['id']} is cancelled"
    (cancel,) = hub.wait_until(lambda: hub.requests("cancel"))
    assert cancel["ask"] == ask["id"]


def test_an_ignored_hangup_stays_ignored(home: "Home", hub: FakeHub) -> None:
    process = home.start_program(["nohup", *home.argv("ask", "Ship?", *OPTIONS)])
    ask = hub.first_ask()
    process.send_signal(signal.SIGHUP)
    hub.answer(ask["id"], 0)
    assert finish(process)[::2] == ("yes\n", 0)


def test_a_reader_that_goes_away_cancels_the_ask(home: "Home", hub: FakeHub) -> None:
    process = home.start("ask", "Ship?", *OPTIONS)
    ask = hub.first_ask()
    assert process.stdout is not None
    process.stdout.close()
    hub.wait_until(lambda: hub.requests("cancel"))
    assert hub.requests("cancel")[0]["ask"] == ask["id"]
    assert process.wait(20) == 3
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_answer_that_cannot_be_written_is_not_taken(home: "Home", hub: FakeHub) -> None:
    with open("/dev/full", "w") as full:
        process = home.start("ask", "Ship?", *OPTIONS, "-q", stdout=full)
        hub.answer(hub.first_ask()["id"], 0)
        process.wait(20)
    assert process.returncode == 1
    assert process.stderr is not None
    assert process.stderr.read() == (
        "upcall: what was printed could not be written: No space left on device\n"
    )
    assert not hub.requests("took")


def test_a_closed_stdout_is_an_error_in_words(home: "Home", hub: FakeHub) -> None:
    hub.after_ask = lambda ask: hub.answer(ask["id"], 0)
    words = " ".join(home.argv("ask", "Ship", *OPTIONS, "-q"))
    done = subprocess.run(
        ["/bin/sh", "-c", f"{words} >&-"], env=home.env, capture_output=True, text=True,
        timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("upcall: ")
    assert "Traceback" not in done.stderr


# --- the hub comes and goes ------------------------------------------------------------------


def test_a_lost_hub_is_found_again_and_the_same_ask_is_repeated(
    home: "Home", hub: FakeHub
) -> None:
    process = home.start("ask", "Ship?", *OPTIONS)
    ask = hub.first_ask()
    hub.drop_clients()
    hub.wait_until(lambda: len(hub.requests("ask")) == 2)
    hub.drop_clients()
    hub.wait_until(lambda: len(hub.requests("ask")) == 3)
    hub.answer(ask["id"], 0)
    assert finish(process)[::2] == ("yes\n", 0)
    assert {request["ask"]["id"] for request in hub.requests("ask")} == {ask["id"]}


def test_an_end_while_the_hub_was_away_is_still_told(home: "Home", hub: FakeHub) -> None:
    process = home.start("ask", "Ship?", *OPTIONS)
    ask = hub.first_ask()
    hub._waiters.clear()
    hub.answer(ask["id"], 1)
    hub.drop_clients()
    assert finish(process)[::2] == ("no\n", 0)


def test_a_refusal_of_the_hub_is_a_usage_error(home: "Home", hub: FakeHub) -> None:
    def refuse(client: Any, request: Any) -> None:
        raise Refuse("ambiguous_labels", "options: 'Yes' and 'Y\u0435s' look alike")

    hub.handlers["ask"] = refuse
    done = home.run("ask", "Ship?", *OPTIONS)
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr == "upcall: options: 'Yes' and 'Yеs' look alike\n"


def test_a_limit_of_the_hub_is_a_failure(home: "Home", hub: FakeHub) -> None:
    def refuse(client: Any, request: Any) -> None:
        raise Refuse("limit_reached", "\x1b[31mtoo many", "wait \x07a little")

    hub.handlers["ask"] = refuse
    done = home.run("ask", "Ship?", *OPTIONS, "--json")
    assert done.returncode == 1
    assert done.stderr == "upcall: \\x1b[31mtoo many\n        wait \\x07a little\n"
    assert json.loads(done.stdout)["error"]["code"] == "limit_reached"


@pytest.mark.parametrize("command", [["ask", "Q?", "--no-wait"], ["notify", "x"]])
def test_without_a_hub_what_cannot_wait_fails_once(home: "Home", command: list[str]) -> None:
    os.makedirs(home.state, mode=0o700)
    FakeHub(str(home.state)).fail_with("disk_full", "the disk is full")
    done = home.run(*command)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.count("the disk is full") == 1
    assert "Traceback" not in done.stderr


# --- handing over, waiting -------------------------------------------------------------------


def test_no_wait_prints_the_id_alone(home: "Home", hub: FakeHub) -> None:
    done = home.run("ask", "Ship?", *OPTIONS, "--no-wait")
    ask = hub.first_ask()
    assert (done.stdout, done.returncode) == (f"{ask['id']}\n", 0)
    assert f"kept; collect it with: upcall wait {ask['id']}" in done.stderr
    assert hub.requests("ask")[0]["wait"] is False


def test_no_wait_as_a_document(home: "Home", hub: FakeHub) -> None:
    done = home.run("ask", "Ship?", *OPTIONS, "--no-wait", "--json", "-q")
    document = json.loads(done.stdout)
    assert done.stderr == ""
    assert document["id"] == hub.first_ask()["id"]
    assert (document["outcome"], document["answer"]) == ("open", None)


def test_wait_collects_an_answer_any_number_of_times(home: "Home", hub: FakeHub) -> None:
    ask_id = home.run("ask", "Ship?", *OPTIONS, "--no-wait", "-q").stdout.strip()
    process = home.start("wait", f"ask:{ask_id}")
    hub.wait_until(lambda: hub.requests("wait"))
    hub.answer(ask_id, 0)
    assert finish(process)[::2] == ("yes\n", 0)
    for given in (ask_id, ask_id[:6]):
        assert home.run("wait", given, "-q").stdout == "yes\n"


def test_wait_survives_a_hub_that_comes_and_goes(home: "Home", hub: FakeHub) -> None:
    ask_id = home.run("ask", "Ship?", *OPTIONS, "--no-wait", "-q").stdout.strip()
    process = home.start("wait", ask_id)
    hub.wait_until(lambda: hub.requests("wait"))
    hub.drop_clients()
    hub.wait_until(lambda: len(hub.requests("wait")) == 2)
    hub.answer(ask_id, 0)
    assert finish(process)[::2] == ("yes\n", 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ending_a_wait_leaves_the_question_open(
    home: "Home", hub: FakeHub, number: signal.Signals, code: int
) -> None:
    ask_id = home.run("ask", "Ship?", *OPTIONS, "--no-wait", "-q").stdout.strip()
    process = home.start("wait", ask_id)
    hub.wait_until(lambda: hub.requests("wait"))
    process.send_signal(number)
    assert finish(process) == ("", "not waiting any more; the question stays open\n", code)
    assert not hub.requests("cancel")


@pytest.mark.parametrize("given", ["a0123456789ab", "zzzz", "a"])
def test_an_unknown_id_is_a_usage_error(home: "Home", hub: FakeHub, given: str) -> None:
    done = home.run("wait", given)
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.startswith("upcall: there is no ")


def test_an_ambiguous_prefix_names_the_candidates(home: "Home", hub: FakeHub) -> None:
    for ask_id in ("aaaa000000001", "aaaa000000002"):
        hub.asks[ask_id] = {"id": ask_id, "state": "open"}
    done = home.run("wait", "aaaa")
    assert done.returncode == 2
    assert "aaaa000000001, aaaa000000002" in done.stderr


# --- confirm ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "code"), [(0, 0), (1, 3)])
def test_confirm_is_yes_or_no_by_its_exit_code(
    home: "Home", hub: FakeHub, index: int, code: int
) -> None:
    process = home.start("confirm", "Deploy?")
    ask = hub.first_ask()
    assert (ask["class"], ask["options"]) == ("permission", ["Yes", "No"])
    assert (ask["free_text"], ask["timeout_s"]) == (False, 3600.0)
    hub.answer(ask["id"], index)
    assert finish(process)[::2] == ("", code)
    assert hub.requests("took")


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("declined", 3),
        ("timed_out", 4),
        ("cancelled", 1),
        ("unreachable", 1),
        ("superseded", 1),
    ],
)
def test_confirm_says_yes_in_no_other_way(
    home: "Home", hub: FakeHub, outcome: str, code: int
) -> None:
    process = home.start("confirm", "Deploy?", "--timeout", "5m", "--json")
    ask = hub.first_ask()
    assert ask["timeout_s"] == 300.0
    hub.end(ask["id"], outcome)
    out, _, exit_code = finish(process)
    assert exit_code == code
    assert json.loads(out)["outcome"] == outcome


def test_confirm_is_cancelled_by_a_signal(home: "Home", hub: FakeHub) -> None:
    process = home.start("confirm", "Deploy?")
    hub.first_ask()
    hub.wait_until(lambda: hub.requests("ask"))
    process.send_signal(signal.SIGTERM)
    assert finish(process)[2] == 143


# --- who can see it --------------------------------------------------------------------------


def test_nobody_can_see_it_is_said_at_once(home: "Home", hub: FakeHub) -> None:
    hub.channels = INBOX_UNSEEN
    process = home.start("ask", "Ship?", *OPTIONS)
    ask = hub.first_ask()
    assert process.stderr is not None
    assert process.stderr.readline() == (
        f"nobody can see question {ask['id']} yet: no channel is set up and no browser is "
        f"signed in. Answer: upcall answer {ask['id']} yes. Open the inbox: upcall inbox\n"
    )
    hub.set_channels([{"name": "web", "state": "delivered", "audience": 2, "reason": None}])
    assert process.stderr.readline().startswith(f"asked {ask['id']} in inbox (2 tabs)")
    hub.answer(ask["id"], 0)
    assert finish(process)[::2] == ("yes\n", 0)


def test_unseen_fail_gives_up_and_cancels(home: "Home", hub: FakeHub) -> None:
    hub.channels = INBOX_UNSEEN
    program = (
        "import sys\nfrom upcall.cli import asking, main\nasking.UNSEEN_FAILS_S = 0.2\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ["ask", "Ship?", *OPTIONS, "--unseen", "fail", "--json"]
    process = home.start_program([sys.executable, "-P", "-c", program, *words])
    out, err, code = finish(process)
    assert code == 1
    assert json.loads(out)["error"]["code"] == "nobody_reachable"
    assert "nobody could see question" in err
    assert hub.requests("cancel")


# --- what cannot be used ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["ask", ""], "QUESTION is empty"),
        (["ask", " \n"], "QUESTION is empty"),
        (["ask", "x" * 8193], "QUESTION has 8193 characters; the limit is 8192"),
        (["ask", "x" * 100_000], "QUESTION has 100000 characters"),
        (["ask", "Q?", "-o", "Yes", "-o", " yes "], "'Yes' and ' yes ' are the same label"),
        (["ask", "Q?", "-o", ""], "a label is empty"),
        (["ask", "Q?", "-o", "a\nb"], "line break"),
        (["ask", "Q?", "-o", "a\u2028b"], "line break"),
        (["ask", "Q?", "-o", "x" * 201], "201 characters; the limit is 200"),
        (["ask", "Q?", "-o", "a", "--timeout", "5m", "--default", "b"], "'b' is no option"),
        (["ask", "Q?", "-o", "a", "--recommend", "b"], "--recommend: 'b' is no option"),
        (["ask", "Q?", "-o", "a", "--default", "a"], "--default needs --timeout"),
        (["ask", "Q?", "--timeout", "10 parsecs"], "'10 parsecs' is no duration"),
        (["ask", "Q?", "--timeout", "99ms"], "not between 100ms and 365d"),
        (["ask", "Q?", "--timeout", "366d"], "not between 100ms and 365d"),
        (["ask", "Q?", "--multi"], "--multi needs options"),
        (["ask", "Q?", "--no-free-text"], "--no-free-text needs options"),
        (["ask", "Q?", "--permission"], "--permission needs options"),
        (
            ["ask", "Q?", "-o", "a", "--permission", "--timeout", "1m", "--default", "a"],
            "--permission takes no --default",
        ),
        (
            ["ask", "Q?", "--otpion", "a"],
            "there is no option '--otpion' - did you mean '--option'",
        ),
        (["ask"], "QUESTION"),
        (["ask", "Q?", "more"], "'more' is one argument too many"),
        (["notfy", "Q?"], "there is no command 'notfy' - did you mean 'notify'?"),
        (["--jsno"], "there is no option '--jsno'"),
        (["confirm", "x" * 8193], "QUESTION has 8193 characters"),
        (["confirm", "Q?", "--timeout", "soon"], "'soon' is no duration"),
        (["notify", " "], "TEXT is empty"),
        (["notify", "x" * 65537], "TEXT has 65537 characters"),
        (["answer", "a123"], "give either a VALUE"),
        (["answer", "a123", "yes", "--decline"], "give either a VALUE"),
        (["asks", "--limit", "0"], "--limit: '0' is not a number from 1 to 1000"),
        (["roots", "add"], "add needs a FOLDER"),
        (["roots", "list", "/tmp"], "list takes no folder"),
        (["roots", "add", "/nonexistent"], "is no folder"),
        (["config", "path", "x"], "path takes no FILE"),
        (["completion", "csh"], "invalid choice: 'csh'"),
        (["watch"], "watch needs a terminal"),
        (["hub"], "ACTION"),
        (["hub", "sotp"], "invalid choice: 'sotp'"),
        (["hub", "stop", "--jsno"], "there is no option '--jsno'"),
    ],
)
def test_what_cannot_be_used_is_named_and_nothing_is_asked(
    home: "Home", hub: FakeHub, words: list[str], named: str
) -> None:
    done = home.run(*words)
    assert (done.stdout, done.returncode) == ("", 2)
    assert named in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 2
    assert not hub.seen


def test_bytes_that_are_no_text_are_named(home: "Home", hub: FakeHub) -> None:
    argv: list[Any] = [*home.argv("ask"), b"Ship\xff?"]
    done = subprocess.run(argv, env=home.env, capture_output=True, timeout=20, check=False)
    assert done.returncode == 2
    assert b"QUESTION: bytes that are not UTF-8 at character 5" in done.stderr
    done2 = home.run("ask", "Q?", "--detail", "-", stdin="x" * 300_000)
    assert "stdin has more than 262144 bytes" in done2.stderr
    assert not hub.seen


def test_a_usage_error_is_one_document_too(home: "Home") -> None:
    done = home.run("ask", "Q?", "--json", "--timeout", "never")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"


def test_tags_go_to_the_hub_from_the_option_or_the_variable(home: "Home", hub: FakeHub) -> None:
    variable = {**home.env, "UPCALL_TAGS": " nightly,big  x"}
    for extra, env, tags in (
        (("--tag", "prod", "--tag", "a:b"), home.env, ["prod", "a:b"]),
        ((), variable, ["nightly", "big", "x"]),
        (("--tag", "prod"), variable, ["prod"]),
    ):
        process = home.start("ask", "Ship?", *OPTIONS, *extra, "--merge", env=env)
        ask = hub.first_ask()
        hub.answer(ask["id"], 0)
        assert finish(process)[2] == 0
        assert hub.requests("ask")[-1]["session"]["tags"] == tags
        assert hub.requests("ask")[-1]["ask"]["merge"] is True
        hub.asks.clear()


@pytest.mark.parametrize("tag", ["", "a b", "a,b", "a\tb", "x" * 65])
def test_what_is_no_tag_is_a_usage_error(home: "Home", tag: str) -> None:
    done = home.run("ask", "Q?", "--tag", tag)
    assert (done.stdout, done.returncode) == ("", 2)
    assert "--tag" in done.stderr


def test_bounds_are_those_of_the_model() -> None:
    assert ask_command.MAX_QUESTION_CHARS == limits.MAX_QUESTION_CHARS
    assert ask_command.MAX_DETAIL_BYTES == limits.MAX_DETAIL_BYTES
    assert ask_command.MAX_DETAIL_JSON_BYTES == limits.MAX_DETAIL_JSON_BYTES
    assert ask_command.MAX_OPTIONS == limits.MAX_OPTIONS
    assert ask_command.MAX_LABEL_CHARS == limits.MAX_LABEL_CHARS
    assert ask_command.MAX_TAGS == limits.MAX_TAGS
    assert ask_command.MAX_TAG_CHARS == limits.MAX_TAG_CHARS
    assert ask_command.MIN_DEADLINE_S == limits.MIN_DEADLINE_S
    assert ask_command.MAX_DEADLINE_S == limits.MAX_DEADLINE_S
    assert args.MAX_NAME_CHARS == requests.MAX_NAME_CHARS
    assert blocking.MAX_NAME_CHARS == requests.MAX_NAME_CHARS


@pytest.mark.parametrize(
    ("command", "option", "named"),
    [
        (("ask", "Q?"), ("--key", "k" * 201), "--key has 201 characters; the limit is 200"),
        (("ask", "Q?"), ("--session", "\u00e9" * 300), "--session has 300 characters"),
        (("ask", "Q?"), ("--key", ""), "--key is empty"),
        (("confirm", "Q?"), ("--key", "k" * 201), "--key has 201 characters"),
        (("confirm", "Q?"), ("--session", "s" * 201), "--session has 201 characters"),
        (("notify", "Hi"), ("--session", "s" * 201), "--session has 201 characters"),
        (("forget", "--yes"), ("--session", "s" * 1025), "the limit is 1024"),
    ],
)
def test_a_name_that_is_too_long_is_named_with_its_limit(
    home: "Home", hub: FakeHub, command: tuple[str, ...], option: tuple[str, ...], named: str
) -> None:
    done = home.run(*command, *option)
    assert done.returncode == 2, done
    assert named in done.stderr
    assert not hub.requests("ask")


def test_a_session_name_of_the_environment_is_named_as_such(home: "Home", hub: FakeHub) -> None:
    home.env["UPCALL_SESSION"] = "s" * 201
    done = home.run("ask", "Q?", "--no-wait")
    assert (done.returncode, hub.requests("ask")) == (2, [])
    assert "UPCALL_SESSION has 201 characters; the limit is 200" in done.stderr


def test_twenty_askers_at_once_all_get_their_answer(home: "Home", hub: FakeHub) -> None:
    hub.after_ask = lambda ask: hub.answer(ask["id"], 0)
    count = 20
    results: list[str] = []

    def begin() -> None:
        results.append(home.run("ask", "Ship?", *OPTIONS, "-q").stdout)

    threads = [threading.Thread(target=begin) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == ["yes\n"] * count
