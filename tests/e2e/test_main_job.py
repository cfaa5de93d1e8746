"""The main job by the command line: a program asks, a person answers, nothing configured."""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from fakes.home import Home, Running, eventually, open_files

RESULT_KEYS = {"id", "outcome", "answer", "answered_by", "waited_s"}


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        # Whichever test comes first in its worker may talk to the sockets at once.
        made.start_hub()
        yield made


def answered(home: Home, running: Running, *values: str) -> str:
    ask_id = running.asked()
    done = home.run("answer", ask_id, *values)
    assert done.code == 0, done
    return ask_id


# --- asking and answering --------------------------------------------------------------------


def test_a_choice_is_printed_alone_on_stdout(home: Home) -> None:
    asking = home.start("ask", "Deploy?", "-o", "Yes", "-o", "No")
    ask_id = answered(home, asking, "yes")
    done = asking.end()
    assert (done.code, done.out) == (0, "Yes\n")
    # Where it is was said at once, and who answered at the end; both on stderr.
    assert ask_id in done.err
    assert "Yes - " in done.err


def test_the_option_can_be_named_by_its_number(home: Home) -> None:
    asking = home.start("ask", "Colour?", "-o", "red", "-o", "green", "-o", "blue")
    answered(home, asking, "#3")
    assert asking.end().out == "blue\n"


def test_several_choices_are_one_label_a_line_in_the_order_of_the_options(home: Home) -> None:
    asking = home.start("ask", "Which?", "--multi", "-o", "a", "-o", "b", "-o", "c")
    answered(home, asking, "c", "#1")
    done = asking.end()
    assert done.code == 0
    assert sorted(done.out.splitlines()) == ["a", "c"]


def test_words_are_taken_without_options_and_keep_their_spelling(home: Home) -> None:
    asking = home.start("ask", "What shall it be called?")
    answered(home, asking, '  Grüße & "quotes" 🦔')
    done = asking.end()
    assert done.code == 0
    assert done.out.strip() == 'Grüße & "quotes" 🦔'


def test_words_beside_options_need_free_text(home: Home) -> None:
    asking = home.start("ask", "Colour?", "-o", "red", "--free-text", "--json")
    answered(home, asking, "a pale green")
    found = asking.end().json
    assert found["answer"] == {"indices": [], "labels": [], "text": "a pale green"}


def test_a_closed_ask_refuses_words_and_stays_open(home: Home) -> None:
    ask_id = home.hand_over("Deploy?", "-o", "Yes", "-o", "No")
    refused = home.run("answer", ask_id, "maybe")
    assert refused.code == 2, refused
    assert "Traceback" not in refused.err
    assert home.ask_state(ask_id)["state"] == "open"
    assert home.run("answer", ask_id, "No").code == 0


def test_several_values_are_refused_where_one_is_asked_for(home: Home) -> None:
    ask_id = home.hand_over("Deploy?", "-o", "Yes", "-o", "No")
    assert home.run("answer", ask_id, "Yes", "No").code == 2
    assert home.run("answer", ask_id, "--decline").code == 0


@pytest.mark.parametrize("value", ["#0", "#3", "#-1", "#1.5"])
def test_a_number_outside_the_options_is_a_bad_value(home: Home, value: str) -> None:
    ask_id = home.hand_over("Deploy?", "-o", "Yes", "-o", "No")
    refused = home.run("answer", ask_id, value)
    assert refused.code == 2, refused
    assert home.ask_state(ask_id)["state"] == "open"
    assert home.run("answer", ask_id, "--decline").code == 0


def test_the_document_of_an_answer_has_exactly_the_promised_keys(home: Home) -> None:
    asking = home.start("ask", "Deploy?", "-o", "Yes", "-o", "No", "--json")
    ask_id = answered(home, asking, "no")
    done = asking.end()
    assert done.code == 0
    assert done.out.count("\n") == 1
    found = done.json
    assert set(found) == RESULT_KEYS
    assert found["id"] == ask_id
    assert found["outcome"] == "answered"
    assert found["answer"] == {"indices": [1], "labels": ["No"], "text": None}
    assert set(found["answered_by"]) == {"name", "channel", "detail"}
    assert found["answered_by"]["channel"] == "terminal"
    assert isinstance(found["waited_s"], float)


def test_the_words_on_stderr_are_off_with_quiet(home: Home) -> None:
    asking = home.start("ask", "Quiet?", "-o", "Yes", "--quiet", "--title", "quiet one")

    def raised() -> str:
        with home.line("control") as line:
            asks = line.ok("asks")["asks"]
        return next((a["id"] for a in asks if a["session"]["title"] == "quiet one"), "")

    home.run("answer", eventually(raised), "Yes")
    done = asking.end()
    assert (done.code, done.out, done.err) == (0, "Yes\n", "")


def test_detail_can_come_from_stdin_and_session_words_are_shown(home: Home) -> None:
    text = "line one\nline two " + "x" * 5000
    done = home.run(
        "ask", "Look?", "-o", "ok", "--detail", "-", "--title", "Build 7", "--no-wait",
        stdin=text.encode(),
    )  # fmt: skip
    found = home.ask_state(done.out.strip())
    assert found["detail"] == text
    assert found["session"]["title"] == "Build 7"
    assert home.run("answer", found["id"], "ok").code == 0


# --- ends without an answer ------------------------------------------------------------------


def test_declined_is_exit_3(home: Home) -> None:
    asking = home.start("ask", "Deploy?", "-o", "Yes")
    done = home.run("answer", asking.asked(), "--decline")
    assert done.code == 0, done
    ended = asking.end()
    assert (ended.code, ended.out) == (3, "")
    assert "declined" in ended.err


def test_timed_out_is_exit_4_and_says_that_nobody_said_no(home: Home) -> None:
    done = home.run("ask", "Deploy?", "-o", "Yes", "--timeout", "300ms")
    assert (done.code, done.out) == (4, "")
    assert "nobody said no" in done.err


def test_timed_out_with_a_default_answers_it_and_says_so(home: Home) -> None:
    done = home.run(
        "ask",
        "Deploy?",
        "-o",
        "Yes",
        "-o",
        "No",
        "--timeout",
        "0.3",
        "--default",
        "no",
        "--json",
    )
    assert done.code == 0
    found = done.json
    assert found["outcome"] == "timed_out"
    assert found["answer"] == {"indices": [1], "labels": ["No"], "text": None}
    assert found["answered_by"] is None
    assert 0.2 <= found["waited_s"] < 10
    assert "Nobody chose it" in done.err


def test_a_held_ask_outlives_its_time_limit(home: Home) -> None:
    asking = home.start("ask", "Slow?", "-o", "Yes", "--timeout", "1500ms")
    ask_id = asking.asked()
    held = home.run("answer", ask_id, "--hold")
    assert held.code == 0, held
    assert home.ask_state(ask_id)["held"] is True
    with home.line() as line:
        line.ok("wait", ask=ask_id)
        with pytest.raises(TimeoutError):
            line.event("ended", within_s=2.0)
    assert home.run("answer", ask_id, "yes").code == 0
    assert asking.end().code == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_a_signal_cancels_the_ask(home: Home, number: int, code: int) -> None:
    asking = home.start("ask", "Deploy?", "-o", "Yes")
    ask_id = asking.asked()
    asking.signal(number)
    done = asking.end()
    assert (done.code, done.out) == (code, "")
    assert "Traceback" not in done.err
    assert home.until_ask(ask_id, state="closed")["outcome"] == "cancelled"
    late = home.run("answer", ask_id, "Yes")
    assert late.code == 3
    assert "cancelled" in late.err


def test_an_answer_that_comes_late_says_what_won_by_whom_where_and_when(home: Home) -> None:
    ask_id = home.hand_over("Deploy?", "-o", "Yes", "-o", "No")
    assert home.run("answer", ask_id, "yes").code == 0
    late = home.run("answer", ask_id, "No")
    assert late.code == 3
    assert late.out == ""
    operator = home.ask_state(ask_id)["answered_by"]["name"]
    assert operator
    for word in ('"Yes"', operator, "ago"):
        assert word in late.err, late
    assert re.search(r"\d\d:\d\d", late.err), late
    again = home.run("answer", ask_id, "No", "--json")
    assert again.code == 3
    assert again.json["answer"]["labels"] == ["Yes"]


@pytest.mark.long
@pytest.mark.timeout(120)
def test_an_ask_that_nobody_can_see_fails_after_a_minute_if_wanted(home: Home) -> None:
    asking = home.start("ask", "Anybody?", "-o", "yes", "--unseen", "fail")
    ask_id = asking.asked()
    done = asking.end(90)
    assert done.code == 1, done
    assert "upcall inbox" in done.err
    assert home.until_ask(ask_id, state="closed")["outcome"] == "cancelled"


# --- handing over and collecting -------------------------------------------------------------


def test_a_handed_over_ask_prints_its_id_alone_and_is_collected_any_number_of_times(
    home: Home,
) -> None:
    ask_id = home.hand_over("Ship it?", "-o", "yes", "-o", "no")
    waiting = home.start("wait", ask_id)
    assert home.run("answer", ask_id, "no").code == 0
    assert waiting.end().out == "no\n"
    for _ in range(2):
        again = home.run("wait", ask_id)
        assert (again.code, again.out) == (0, "no\n")
    document = home.run("wait", ask_id, "--json").json
    assert set(document) == RESULT_KEYS
    assert document["answer"]["labels"] == ["no"]


def test_handing_over_as_a_document_says_that_it_is_open(home: Home) -> None:
    done = home.run("ask", "Ship it?", "-o", "yes", "--no-wait", "--json")
    found = done.json
    assert found["outcome"] == "open"
    assert found["answer"] is None
    assert found["answered_by"] is None
    assert set(found) >= RESULT_KEYS
    home.run("answer", found["id"], "--decline")


def test_after_a_reboot_nobody_is_asked_is_said(home: Home) -> None:
    done = home.run("ask", "Ship it?", "-o", "yes", "--no-wait")
    assert done.err.splitlines()[-1] == (
        "kept; but after a reboot nobody is asked until the hub runs: upcall service install"
    )
    home.run("answer", done.out.strip(), "--decline")


@pytest.mark.parametrize(
    ("more", "end", "code"),
    [
        ((), ("--decline",), 3),
        (("--timeout", "200ms"), None, 4),
        (("--timeout", "200ms", "--default", "yes"), None, 0),
    ],
    ids=["declined", "timed out", "default"],
)
def test_wait_has_the_exit_codes_of_ask(
    home: Home, more: tuple[str, ...], end: tuple[str, ...] | None, code: int
) -> None:
    ask_id = home.hand_over("Ship it?", "-o", "yes", "-o", "no", *more)
    if end is not None:
        assert home.run("answer", ask_id, *end).code == 0
    assert home.run("wait", ask_id).code == code


def test_ending_a_wait_leaves_the_ask_open(home: Home) -> None:
    ask_id = home.hand_over("Ship it?", "-o", "yes")
    waiting = home.start("wait", ask_id[:9])
    eventually(lambda: any("socket:" in one for one in open_files(waiting.pid).values()))
    waiting.signal(signal.SIGINT)
    assert waiting.end().code == 130
    assert home.ask_state(ask_id)["state"] == "open"
    assert home.run("answer", ask_id, "yes").code == 0


def test_waiting_for_an_unknown_ask_is_a_usage_error(home: Home) -> None:
    done = home.run("wait", "a000000000000")
    assert done.code == 2, done
    assert "a000000000000" in done.err


# --- one ask by many names -------------------------------------------------------------------


def test_prefix_and_action_id_name_an_ask(home: Home) -> None:
    first = home.hand_over("One?", "-o", "yes")
    second = home.hand_over("Two?", "-o", "yes")
    assert home.run("answer", first[:10], "yes").code == 0
    assert home.run("answer", f"ask:{second}", "yes").code == 0
    assert home.run("wait", f"ask:{second}").out == "yes\n"
    assert home.run("wait", second[:10]).out == "yes\n"


def test_a_prefix_of_several_asks_names_them_and_answers_none(home: Home) -> None:
    ids = ["aaaaazzzzzzz0", "aaaaazzzzzzz1"]
    with home.line() as line:
        for one in ids:
            spec = {"id": one, "question": "Which?", "options": ["yes"], "free_text": False}
            session = {"program": "test", "cwd": "/"}
            line.ok("ask", ask=spec, session=session, wait=False)
    done = home.run("answer", "aaaaaz", "yes")
    assert done.code == 2, done
    for one in ids:
        assert one in done.err
        assert home.ask_state(one)["state"] == "open"
    done = home.run("wait", "aaaaaz")
    assert done.code == 2, done
    assert ids[0] in done.err
    for one in ids:
        assert home.run("answer", one, "yes").code == 0


@pytest.mark.parametrize("name", ["zzzz", "a12", "ask:nothing", "%", "a___________"])
def test_a_name_of_no_ask_is_a_usage_error_that_repeats_it(home: Home, name: str) -> None:
    done = home.run("answer", name, "yes")
    assert done.code == 2, done
    assert name in done.err


def test_running_again_with_a_key_finds_the_same_ask_and_its_answer(home: Home) -> None:
    words = ("ask", "Ship 1.2?", "-o", "yes", "-o", "no", "--key", "ship-1.2")
    first = home.start(*words)
    ask_id = first.asked()
    second = home.start(*words)
    assert second.asked() == ask_id
    assert home.run("answer", ask_id, "no").code == 0
    assert first.end().out == second.end().out == "no\n"
    again = home.run(*words, "--json")
    assert again.json["id"] == ask_id
    assert again.json["answer"]["labels"] == ["no"]
    # Elsewhere the same key is another one.
    other = home.run(*words, "--no-wait", cwd="/")
    assert other.out.strip() != ask_id
    home.run("answer", other.out.strip(), "--decline")


# --- confirming ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code"),
    [(("Yes",), 0), (("no",), 3), (("--decline",), 3)],
    ids=["yes", "no", "declined"],
)
def test_confirm_is_0_for_yes_only(home: Home, answer: tuple[str, ...], code: int) -> None:
    asking = home.start("confirm", "Deploy to production?")
    # From a terminal of its own: a permission isn't given from where nobody sits.
    done = home.run("answer", asking.asked(), *answer, terminal=True)
    assert done.code == 0, done
    ended = asking.end()
    assert (ended.code, ended.out) == (code, "")


def test_confirm_times_out_with_4_and_has_no_default(home: Home) -> None:
    assert home.run("confirm", "Deploy?", "--timeout", "200ms").code == 4
    assert home.run("confirm", "Deploy?", "--default", "Yes").code == 2


def test_a_permission_is_not_given_by_a_process_without_a_terminal(home: Home) -> None:
    asking = home.start("confirm", "Deploy?")
    ask_id = asking.asked()
    refused = home.run("answer", ask_id, "Yes")
    assert refused.code == 1, refused
    assert "terminal" in refused.err
    assert home.ask_state(ask_id)["state"] == "open"
    assert home.run("answer", ask_id, "No", terminal=True).code == 0
    assert asking.end().code == 3


def test_a_permission_is_not_given_from_inside_the_program_that_asks(home: Home) -> None:
    script = (
        "import subprocess, sys\n"
        "from upcall.line import HubLine, mint_ask_id\n"
        "ask = {'id': mint_ask_id(), 'question': 'Deploy?', 'options': ['Yes', 'No'],\n"
        "       'free_text': False, 'class': 'permission'}\n"
        "line = HubLine.connect()\n"
        "line.request('ask', ask=ask, session={'program': 'p', 'cwd': '/'}, wait=True)\n"
        "answer = [sys.executable, '-P', '-m', 'upcall', 'answer', ask['id'], 'Yes']\n"
        "done = subprocess.run(answer, capture_output=True, text=True)\n"
        "print(ask['id'], done.returncode, done.stderr, flush=True)\n"
        "while line.next_event()['event'] != 'ended':\n"
        "    pass\n"
        "line.request('took', ask=ask['id'])\n"
    )
    home.start_hub()
    running = home.start_program([sys.executable, "-c", script], terminal=True)
    found = running.line(r"(a[0-9a-z]{12}) (\d+) (.*)", on="out")
    assert found[2] == "1", found
    assert "inside the program that asked" in found[3]
    assert home.ask_state(found[1])["state"] == "open"
    assert home.run("answer", found[1], "No", terminal=True).code == 0
    running.end()


# --- telling and listing ---------------------------------------------------------------------


def test_a_notice_goes_out_and_says_where(home: Home) -> None:
    done = home.run("notify", "Build 7 is green")
    assert (done.code, done.out) == (0, "")
    done = home.run("notify", "Build 8 is red", "--level", "error", "--json")
    assert done.code == 0
    assert set(done.json) == {"ok", "channels"}
    assert {channel["name"] for channel in done.json["channels"]} >= {"web"}
    texts = [text for (text,) in home.rows("SELECT text FROM notice")]
    assert "Build 7 is green" in texts


def test_asks_lists_open_ones_and_the_documents_keys_are_those_of_the_protocol(
    home: Home,
) -> None:
    ask_id = home.hand_over("List me?", "-o", "yes", "--recommend", "yes", "--detail", "why")
    assert ask_id in home.run("asks").out
    found = home.run("asks", "--json").json
    assert set(found) == {"asks"}
    one = next(ask for ask in found["asks"] if ask["id"] == ask_id)
    assert set(one) == {
        "id", "state", "class", "question", "detail", "options", "option_details", "multi",
        "min_selected", "max_selected", "free_text", "recommended", "default", "deadline_ms",
        "held", "revision", "raised_ms", "session", "outcome", "answer", "answered_by",
        "closed_ms", "can_decline", "can_hold", "can_withdraw", "note", "secret",
        "labels_shown", "label_notes", "warnings", "waiting", "hidden_chars", "allows", "burst",
    }  # fmt: skip
    assert set(one["session"]) >= {
        "session_id", "kind", "title", "repo", "branch", "machine", "cwd", "program", "pid",
        "state", "conversation",
    }  # fmt: skip
    assert (one["recommended"], one["detail"], one["class"]) == (0, "why", "question")
    assert one["session"]["kind"] == "hosted"
    assert home.run("answer", ask_id, "yes").code == 0
    assert ask_id not in home.run("asks").out
    assert ask_id in home.run("asks", "--closed").out
    assert ask_id in home.run("asks", "--all").out


def test_the_hosted_session_is_listed_while_it_asks(home: Home) -> None:
    ask_id = home.hand_over("Who asks?", "-o", "yes", "--title", "Nightly")
    found = home.run("sessions", "--json").json
    assert set(found) == {"sessions", "refused"}
    assert "Nightly" in [session["title"] for session in found["sessions"]]
    assert "Nightly" in home.run("sessions").out
    home.run("answer", ask_id, "--decline")


def test_roots_are_added_listed_and_removed(home: Home) -> None:
    folder = os.path.realpath(f"{home.path}/project")
    os.mkdir(folder)
    done = home.run("roots", "add", folder, "--json")
    assert done.code == 0, done
    (root,) = done.json["roots"]
    assert set(root) >= {"path", "records", "problem"}
    assert root["path"] == folder
    assert folder in home.run("roots", "list").out
    assert home.run("roots", "remove", folder, "--json").json == {"roots": []}
    assert home.run("roots", "add", f"{folder}/nowhere").code == 2
    assert home.run("roots", "remove", f"{folder}/nowhere").code == 2
    assert home.run("roots", "add").code == 2


def test_the_hubs_status_is_a_document_with_the_promised_keys(home: Home) -> None:
    home.run("hub", "start")
    found = home.run("hub", "status", "--json").json
    assert set(found) >= {
        "pid", "version", "protocol", "started_ms", "state_dir", "runtime_dir", "web_url",
        "ready", "degraded", "channels", "sessions", "open_asks", "deliveries_waiting", "store",
        "idle_exit_s", "service",
    }  # fmt: skip
    assert found["pid"] == home.hub_pid()
    assert found["state_dir"] == home.state
    assert found["runtime_dir"] == home.runtime
    assert found["degraded"] == []
    assert found["web_url"].startswith("http://127.0.0.1:")
    assert str(found["pid"]) in home.run("hub", "status").out


def test_doctor_is_content_with_a_fresh_machine(home: Home) -> None:
    done = home.run("doctor", "--json")
    assert done.code == 0, done
    assert set(done.json) == {"ok", "findings"}
    assert done.json["ok"] is True
    for finding in done.json["findings"]:
        assert set(finding) == {"level", "code", "msg", "recover"}
        assert finding["level"] != "error"
    assert home.run("doctor").code == 0


def test_config_path_check_and_schema(home: Home) -> None:
    path = f"{home.config_home}/upcall/config.toml"
    assert home.run("config", "path").out == f"{path}\n"
    assert home.run("config", "check").code == 0
    assert home.run("config", "check", "/nowhere.toml").code == 2
    schema = json.loads(home.run("config", "schema").out)
    assert {"hub", "web", "channels"} <= set(schema["properties"])


def test_a_hub_is_stopped_and_a_stopped_one_is_no_error(home: Home) -> None:
    home.run("hub", "start")
    assert home.run("hub", "stop").code == 0
    assert home.hub_pid() is None
    assert home.run("hub", "status").code == 1
    assert home.run("hub", "stop").code == 0


def test_a_hundred_askers_at_once_each_get_their_own_answer(home: Home) -> None:
    home.start_hub()
    got: dict[int, str] = {}

    def one(number: int) -> None:
        with home.line() as line, home.line("control") as control:
            ask_id = f"a{number:012d}"
            spec = {"id": ask_id, "question": f"{number}?", "options": [], "free_text": True}
            line.ok("ask", ask=spec, session={"program": "t", "cwd": "/"}, wait=True)
            answer = control.post("answer", ask=ask_id, values=[f"words {number}"])
            got[number] = line.event("ended")["result"]["answer"]["text"]
            line.ok("took", ask=ask_id)
            # Who answers hears of it once the asker has the answer.
            assert control.answer_to(answer)["result"]["outcome"] == "answered"

    threads = [threading.Thread(target=one, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == {number: f"words {number}" for number in range(100)}
