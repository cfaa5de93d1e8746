"""Bad input of every kind, from outside: it is named, nothing is lost, nothing falls over."""

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakes.home import Home, eventually

Json = dict[str, Any]


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


@pytest.fixture
def fresh() -> Iterator[Home]:
    with Home() as made:
        yield made


# --- on the command line ---------------------------------------------------------------------

BIDI = "yes\u202eon"
USAGE: dict[str, tuple[tuple[str | bytes, ...], tuple[str, ...]]] = {
    "a duration in parsecs": (
        ("ask", "Q?", "-o", "a", "--timeout", "10 parsecs"),
        ("--timeout", "10 parsecs"),
    ),
    "a negative duration": (("ask", "Q?", "-o", "a", "--timeout=-5s"), ("--timeout", "-5s")),
    "a duration of nothing": (("ask", "Q?", "-o", "a", "--timeout", "0"), ("--timeout", "0")),
    "a duration for ever": (
        ("ask", "Q?", "-o", "a", "--timeout", "366d"),
        ("--timeout", "366d"),
    ),
    "an empty duration": (("ask", "Q?", "-o", "a", "--timeout", ""), ("--timeout",)),
    "a duration that is no number": (("ask", "Q?", "--timeout", "nan"), ("--timeout", "nan")),
    "a default that is no option": (
        ("ask", "Q?", "-o", "yes", "-o", "no", "--timeout", "1s", "--default", "maybe"),
        ("--default", "maybe", "yes"),
    ),
    "a default without time limit": (
        ("ask", "Q?", "-o", "yes", "--default", "yes"),
        ("--default", "--timeout"),
    ),
    "a recommendation that is no option": (
        ("ask", "Q?", "-o", "yes", "--recommend", "si"),
        ("--recommend", "si"),
    ),
    "equal labels": (("ask", "Q?", "-o", "yes", "-o", "yes"), ("-o", "yes")),
    "labels alike but for case and blanks": (
        ("ask", "Q?", "-o", "Yes", "-o", " yES "),
        ("-o", "Yes", " yES "),
    ),
    "an empty label": (("ask", "Q?", "-o", "  "), ("-o",)),
    "a label of two lines": (("ask", "Q?", "-o", "one\ntwo"), ("-o", "one")),
    "a label that is not UTF-8": (("ask", "Q?", "-o", b"caf\xe9"), ("-o", "UTF-8")),
    "a lone surrogate in UTF-8 clothes": (("ask", "Q?", "-o", b"a\xed\xa0\x80"), ("-o",)),
    "a label of 201 characters": (("ask", "Q?", "-o", "x" * 201), ("-o", "201", "200")),
    "101 options": (
        ("ask", "Q?", *(word for n in range(101) for word in ("-o", f"o{n}"))),
        ("101", "100"),
    ),
    "an empty question": (("ask", ""), ("QUESTION",)),
    "a blank question": (("ask", " \n "), ("QUESTION",)),
    "a question that is not UTF-8": (("ask", b"caf\xe9?"), ("QUESTION", "UTF-8")),
    "a question of 100,000 characters": (
        ("ask", "q" * 100_000, "-o", "yes"),
        ("QUESTION", "100000", "8192"),
    ),
    "several choices of nothing": (("ask", "Q?", "--multi"), ("--multi",)),
    "no words and no options": (("ask", "Q?", "--no-free-text"), ("--no-free-text",)),
    "a permission with words": (("ask", "Q?", "--permission"), ("--permission",)),
    "a permission with a default": (
        ("ask", "Q?", "-o", "y", "--permission", "--timeout", "1s", "--default", "y"),
        ("--permission", "--default"),
    ),
    "an option that does not exist": (
        ("ask", "Q?", "--tiemout", "1s"),
        ("--tiemout", "--timeout"),
    ),
    "an argument too many": (("ask", "Q?", "more"), ("more",)),
    "no question": (("ask",), ("QUESTION",)),
    "a command that does not exist": (("aks", "Q?"), ("aks", "ask")),
    "an answer without a value": (("answer", "a1234567890ab"), ("VALUE",)),
    "an answer and a refusal": (("answer", "a1234567890ab", "x", "--decline"), ("--decline",)),
    "a limit that is no number": (("asks", "--limit", "many"), ("--limit", "many")),
    "an action of the hub that does not exist": (("hub", "explode"), ("explode",)),
    "an unknown action of roots": (("roots", "explode"), ("explode",)),
    "a notice without words": (("notify", "  "), ("TEXT",)),
    "a notice of 70,000 characters": (("notify", "x" * 70_000), ("TEXT", "70000")),
    "an unknown level": (("notify", "hi", "--level", "loud"), ("loud",)),
    "a default for confirm": (("confirm", "Q?", "--default", "Yes"), ("--default",)),
}


@pytest.mark.parametrize("case", USAGE)
def test_a_bad_command_line_is_exit_2_and_names_the_input(home: Home, case: str) -> None:
    given, named = USAGE[case]
    before = all_asks(home)
    done = home.run(*given)
    assert done.code == 2, done
    assert done.out == ""
    assert "Traceback" not in done.err
    for word in named:
        assert word in done.err, done
    assert len(done.err) < 1500, "the whole input is no message"
    assert all_asks(home) == before


def all_asks(home: Home) -> list[Json]:
    with home.line("control") as line:
        found: list[Json] = line.ok("asks", state="all", limit=1000)["asks"]
    return found


def test_with_json_the_error_is_one_document_on_stdout(home: Home) -> None:
    done = home.run("ask", "Q?", "-o", "a", "--timeout", "10 parsecs", "--json")
    assert done.code == 2
    assert set(done.json) == {"error"}
    error = done.json["error"]
    assert {"code", "msg"} <= set(error)
    assert "10 parsecs" in error["msg"]


def test_a_detail_of_300_kib_is_refused_by_its_size(home: Home) -> None:
    done = home.run("ask", "Q?", "-o", "a", "--detail", "-", stdin=b"d" * 300 * 1024)
    assert done.code == 2, done
    assert "--detail" in done.err
    assert str(256 * 1024) in done.err


def test_the_longest_ask_that_is_allowed_arrives_whole(home: Home) -> None:
    question, detail = "ü" * 8192, "d" * 256 * 1024
    labels = [f"{n}{'x' * (200 - len(str(n)))}" for n in range(100)]
    options = [word for label in labels for word in ("-o", label)]
    done = home.run(
        "ask", question, *options, "--detail", "-", "--no-wait", stdin=detail.encode()
    )
    assert done.code == 0, done
    found = home.ask_state(done.out.strip())
    assert (found["question"], found["detail"]) == (question, detail)
    assert found["options"] == labels
    assert home.run("answer", found["id"], "#100").code == 0
    assert home.run("wait", found["id"]).out == f"{labels[99]}\n"


def test_control_and_bidi_characters_are_kept_but_never_reach_a_terminal_raw(
    home: Home,
) -> None:
    wild = ["\x1b[31mred\x07", BIDI, "zero\u200bwidth", "tab\there"]
    options = [word for label in wild for word in ("-o", label)]
    asking = home.start("ask", "\x1b]0;owned\x07 which?\r\x9b2J", *options)
    ask_id = asking.asked()
    assert home.ask_state(ask_id)["options"] == wild
    shown = [home.run("asks"), home.run("sessions"), home.run("answer", ask_id, "nope")]
    assert shown[2].code == 2
    taken = home.run("answer", ask_id, "#2")
    assert taken.code == 0, taken
    done = asking.end()
    for one in [*shown, taken, done]:
        for bad in ("\x1b", "\x07", "\x9b", "\r", "\u202e", "\u200b"):
            assert bad not in one.err, one
            assert one is done or bad not in one.out, one
    # A pipe gets the answer as it is: it is data there.
    assert done.out == f"{BIDI}\n"


def test_a_lone_surrogate_on_the_socket_is_refused_at_once(home: Home) -> None:
    session = {"program": "t", "cwd": "/"}
    with home.line() as line:
        spec: Json = {"id": "a00000000000s", "question": "Q?", "options": ["a\ud800"]}
        line.post("ask", ask=spec, session=session, wait=False)
        # It is no text, so the line is none of the protocol's, and has no id.
        answer = line.answer_to(None)
        assert answer["ok"] is False
        assert answer["error"]["code"] in {"invalid_ask", "invalid_request", "invalid_line"}
        spec["options"] = ["a\0b"]
        answer = line.request("ask", ask=spec, session=session, wait=False)
        assert answer["error"]["code"] == "invalid_ask"
        assert "option" in answer["error"]["msg"]


def test_the_blocking_call_refuses_what_it_cannot_send_at_once(home: Home) -> None:
    source = (
        "import sys, upcall\n"
        "for bad in (dict(question='a\\ud800?'), dict(question='q', options=['a\\ud800']),\n"
        "            dict(question='q' * 8193), dict(question='q', options=['a', 'A '])):\n"
        "    try:\n"
        "        upcall.ask(**bad)\n"
        "    except upcall.UpcallError as error:\n"
        "        print(error.code, flush=True)\n"
    )
    done = home.start_python(source).end(within_s=8)
    assert done.code == 0, done
    assert done.out.split() == ["invalid_ask"] * 3 + ["ambiguous_labels"]


# --- on the hub's sockets --------------------------------------------------------------------


def test_garbage_lines_are_answered_and_the_connection_lives(home: Home) -> None:
    with home.line() as line:
        for garbage in (b"nonsense\n", b"[1,2]\n", b"\xff\xfe\n", b"{\n", b"[" * 5000 + b"\n"):
            line.send_bytes(garbage)
            answer = line.answer_to(None)
            assert answer["error"]["code"] == "invalid_line", (garbage, answer)
        assert line.refused("explode") == "unknown_op"
        assert line.refused("answer", ask="a", values=["x"]) == "not_permitted"
        assert line.refused("wait", ask="aaaa") == "invalid_request"
        assert line.refused("wait", ask="a000000000000") == "unknown_ask"
        assert line.refused("notify") == "invalid_request"
        assert line.refused("notify", text=7) == "invalid_request"
        line.ok("notify", text="still here", session={"program": "t", "cwd": "/"})


def test_a_line_without_end_closes_its_connection_only(home: Home) -> None:
    with home.line() as other, home.line() as line:
        line.send_bytes(b"x" * (1024 * 1024 + 2))
        answer = line.answer_to(None)
        assert answer["error"]["code"] == "line_too_long"
        assert line.is_over()
        other.ok("notify", text="still here", session={"program": "t", "cwd": "/"})


def test_the_same_id_with_other_content_is_a_conflict(home: Home) -> None:
    spec = {"id": "a00000000000c", "question": "One?", "options": ["a"], "free_text": False}
    session = {"program": "t", "cwd": "/"}
    with home.line() as line:
        line.ok("ask", ask=spec, session=session, wait=False)
        again = line.ok("ask", ask=spec, session=session, wait=False)
        assert again["ask"]["question"] == "One?"
        other = {**spec, "question": "Two?"}
        assert line.refused("ask", ask=other, session=session, wait=False) == "id_conflict"
    assert home.ask_state("a00000000000c")["question"] == "One?"
    assert home.run("answer", "a00000000000c", "--decline").code == 0


# --- in the configuration --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "line", "near"),
    [
        ("# mine\n\n[chanels.web]\nport = 1\n", "chanels", 3, "channels"),
        ("[hub]\nidel_exit_s = 5\n", "idel_exit_s", 2, "idle_exit_s"),
    ],
    ids=["table", "key"],
)
def test_a_config_with_a_typo_leaves_the_defaults_in_force_and_is_named(
    fresh: Home, text: str, key: str, line: int, near: str
) -> None:
    path = fresh.write_config(text)
    checked = fresh.run("config", "check")
    assert checked.code == 1, checked
    told = f"{path}:{line}"
    for word in (told, key, near):
        assert word in checked.err
    ask_id = fresh.hand_over("Still works?", "-o", "yes")
    status = fresh.run("hub", "status", "--json").json
    (problem,) = [one for one in status["degraded"] if one["code"] == "config_invalid"]
    for word in (told, key, near):
        assert word in problem["msg"]
    assert {channel["name"] for channel in status["channels"]} == {"web", "terminal"}
    assert told in fresh.run("hub", "status").out
    doctor = fresh.run("doctor")
    assert doctor.code == 1, doctor
    assert told in doctor.out
    assert near in doctor.out
    assert fresh.run("answer", ask_id, "yes").code == 0


def test_a_config_that_is_no_toml_or_not_ours_alone_is_named_too(fresh: Home) -> None:
    path = fresh.write_config("[hub\n")
    checked = fresh.run("config", "check")
    assert checked.code == 1
    assert path in checked.err
    assert "Traceback" not in checked.err
    with open(path, "wb") as file:
        file.write(b"[hub]\nmachine_name = '\xff'\n")
    assert fresh.run("config", "check").code == 1
    fresh.write_config("[hub]\n")
    os.chmod(path, 0o666)
    assert fresh.run("config", "check").code == 1
    assert fresh.run("ask", "Q?", "-o", "y", "--no-wait").code == 0


def test_a_bad_channel_section_disables_that_channel_alone(fresh: Home) -> None:
    fresh.write_config("[channels.pigeon]\ncoop = 3\n[web]\nprot = 8000\n")
    fresh.start_hub()
    status = fresh.run("hub", "status", "--json").json
    said = " ".join(problem["msg"] for problem in status["degraded"])
    assert "pigeon" in said
    assert "prot" in said
    assert "port" in said
    assert [channel["name"] for channel in status["channels"]] == ["terminal"]


# --- in records ------------------------------------------------------------------------------


def record(**changes: Any) -> Json:
    now_ms = int(time.time() * 1000)
    token = "t" * 32
    return {
        "version": 1,
        "sessionId": "s-bad",
        "pid": os.getpid(),
        "host": "127.0.0.1",
        "port": 9,
        "url": "ws://127.0.0.1:9/",
        "token": token,
        "startedAt": now_ms,
        "updatedAt": now_ms,
        **changes,
    }


def whole(**changes: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(record(**changes)).encode()


RECORDS: dict[str, tuple[Callable[[], bytes], int, tuple[str, ...]]] = {
    "of version 2": (whole(version=2), 0o600, ("version",)),
    "of another session than its name says": (whole(sessionId="s-x"), 0o600, ("sessionId",)),
    "cut off": (lambda: whole()()[:50], 0o600, ()),
    "empty": (lambda: b"", 0o600, ()),
    "no object": (lambda: b"[1]", 0o600, ()),
    "with a port out of range": (whole(port=70_000), 0o600, ("port",)),
    "with a pid that is text": (whole(pid="12"), 0o600, ("pid",)),
    "that leads to another host": (
        whole(host="192.0.2.1", url="ws://192.0.2.1:9/"),
        0o600,
        ("url", "host"),
    ),
    "that others can read": (whole(), 0o644, ()),
    "of a megabyte": (whole(pad="x" * 1_000_000), 0o600, ()),
}


@pytest.mark.parametrize("case", RECORDS)
def test_a_bad_record_is_refused_with_the_reason_and_disturbs_no_other(
    home: Home, case: str
) -> None:
    make, mode, named = RECORDS[case]
    path = f"{home.sessions}/s-bad.json"
    with open(f"{path}.new", "wb") as file:
        file.write(make())
    os.chmod(f"{path}.new", mode)
    os.rename(f"{path}.new", path)
    try:

        def refused() -> Json | None:
            with home.line("control") as line:
                found = line.ok("sessions", all=True)["refused"]
            return next((one for one in found if one["path"].endswith("/s-bad.json")), None)

        one = eventually(refused, what=f"the record {case} is listed as refused")
        assert one is not None
        assert set(one) >= {"path", "code", "reason"}
        for word in named:
            assert word in one["reason"], one
        assert "t" * 32 not in one["reason"], "a token is no message"
        listed = home.run("sessions", "--all")
        assert listed.code == 0
        assert "s-bad.json" in listed.err
        assert "Traceback" not in listed.err
        ask_id = home.hand_over("Undisturbed?", "-o", "yes")
        assert home.run("answer", ask_id, "yes").code == 0
    finally:
        os.unlink(path)

    def gone() -> bool:
        with home.line("control") as line:
            return not line.ok("sessions", all=True)["refused"]

    eventually(gone)


def test_a_record_that_is_a_link_is_refused(home: Home) -> None:
    target = f"{home.path}/elsewhere.json"
    with open(target, "w") as file:
        json.dump(record(sessionId="s-link"), file)
    os.chmod(target, 0o600)
    os.symlink(target, f"{home.sessions}/s-link.new")
    os.rename(f"{home.sessions}/s-link.new", f"{home.sessions}/s-link.json")
    try:

        def refused() -> bool:
            with home.line("control") as line:
                found = line.ok("sessions", all=True)["refused"]
            return any(one["path"].endswith("/s-link.json") for one in found)

        eventually(refused)
    finally:
        os.unlink(f"{home.sessions}/s-link.json")
    assert os.path.exists(target)
