"""The other commands as processes, against a hub with scripted behaviour."""

import importlib
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from architecture.completion import scripts
from fakes.hub_line import INBOX_UNSEEN, Client, FakeHub, Json, Refuse
from fakes.pty_screen import PtyScreen
from upcall.cli import COMMANDS
from upcall_discovery import paths

if TYPE_CHECKING:
    from conftest import Home

EVIL = "\x1b]0;pwned\x07\x1b[2J"


@pytest.fixture
def hub(home: "Home") -> Iterator[FakeHub]:
    with FakeHub(str(home.state)) as running:
        yield running


def ask_of(ask_id: str, **more: Any) -> dict[str, Any]:
    return {
        "id": ask_id, "state": "open", "question": "Ship it?", "options": ["yes", "no"],
        "raised_ms": int(time.time() * 1000) - 130_000, "closed_ms": None, "outcome": None,
        "answer": None, "answered_by": None, "session": {"title": "build"}, **more,
    }  # fmt: skip


# --- help ------------------------------------------------------------------------------------

_ACTIONS = ["run", "start", "stop", "restart", "reload", "status"]


@pytest.mark.parametrize(
    "words",
    [[name] for name in COMMANDS]
    + [["hub", action] for action in _ACTIONS]
    + [["service", action] for action in ("install", "status", "uninstall")],
    ids=str,
)
def test_every_help_has_an_example_exit_codes_and_fits(home: "Home", words: list[str]) -> None:
    done = home.run(*words, "--help", env={"COLUMNS": "80"})
    assert (done.stderr, done.returncode) == ("", 0)
    assert "example" in done.stdout
    assert "exit codes:" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_the_overall_help_lists_every_command(home: "Home") -> None:
    for words in (["--help"], ["-h"], ["help"]):
        done = home.run(*words)
        assert done.returncode == 0
        assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
        assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert home.run("help", "ask").stdout == home.run("ask", "--help").stdout
    assert home.run("--version").stdout.startswith("upcall 0.")


def test_every_command_is_a_module_with_the_same_parts() -> None:
    for name in COMMANDS:
        module = importlib.import_module(f"upcall.cli.{name}")
        assert {"fill", "parser", "run"} <= set(vars(module))


# --- upcall alone ----------------------------------------------------------------------------


def test_alone_without_a_hub_it_starts_none(home: "Home") -> None:
    done = home.run()
    assert done.returncode == 0
    assert done.stdout.startswith("no hub is running; the next question starts one\n")
    assert done.stdout.count("\n  upcall ") == 3
    assert not home.state.exists()


def test_alone_it_says_how_things_stand(home: "Home", hub: FakeHub) -> None:
    hub.asks["a0123456789ab"] = ask_of("a0123456789ab", question=f"Ship {EVIL}?")
    done = home.run()
    assert "hub 0.1.0: ready" in done.stdout
    assert "inbox (1 tab)" in done.stdout
    assert "a0123456789ab  open 2 min  build" in done.stdout
    assert "\x1b" not in done.stdout
    assert "  upcall answer a0123456789ab yes" in done.stdout
    document = json.loads(home.run("--json").stdout)
    assert document["hub"]["version"] == "0.1.0"
    assert document["asks"][0]["id"] == "a0123456789ab"


# --- answer ----------------------------------------------------------------------------------


def test_an_answer_is_taken(home: "Home", hub: FakeHub) -> None:
    hub.asks["a0123456789ab"] = ask_of("a0123456789ab")
    done = home.run("answer", "a012", "#2")
    assert (done.stdout, done.stderr, done.returncode) == ("", "taken: no\n", 0)
    (request,) = hub.requests("answer")
    assert request["values"] == ["#2"]


def test_declining_and_holding(home: "Home", hub: FakeHub) -> None:
    hub.asks["a0123456789ab"] = ask_of("a0123456789ab")
    assert "held" in home.run("answer", "a012", "--hold").stderr
    assert "runs again" in home.run("answer", "a012", "--no-hold").stderr
    done = home.run("answer", "a012", "--decline", "--json")
    assert json.loads(done.stdout)["outcome"] == "declined"
    assert [one["hold"] for one in hub.requests("answer")] == [True, False, None]


def test_a_claim_that_is_not_confirmed_yet_is_taken(home: "Home", hub: FakeHub) -> None:
    result = {"id": "a1", "outcome": "open", "reason": "claimed, waiting for the program"}
    hub.handlers["answer"] = lambda client, request: {"result": result}
    done = home.run("answer", "a123", "yes")
    assert (done.stderr, done.returncode) == ("sent; claimed, waiting for the program\n", 0)


def test_too_late_says_what_won_by_whom_where_and_when(home: "Home", hub: FakeHub) -> None:
    hub.asks["a0123456789ab"] = ask_of(
        "a0123456789ab", state="closed", outcome="answered",
        closed_ms=int(time.time() * 1000) - 65_000,
        answer={"indices": [0], "labels": ["yes"], "text": None},
        answered_by={"name": "Sam", "channel": "telegram"},
    )  # fmt: skip
    done = home.run("answer", "a012", "no")
    assert (done.stdout, done.returncode) == ("", 3)
    assert done.stderr.startswith('upcall: too late: Sam on telegram answered "yes" at ')
    assert "(1 min 5 s ago)" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["a012", "maybe"], 2, "maybe is no option"),
        (["b012", "yes"], 2, "there is no question b012"),
        (["a", "yes"], 2, "a0123456789ab, a999999999999"),
    ],
)
def test_bad_values_and_ids(
    home: "Home", hub: FakeHub, words: list[str], code: int, named: str
) -> None:
    for ask_id in ("a0123456789ab", "a999999999999"):
        hub.asks[ask_id] = ask_of(ask_id)
    done = home.run("answer", *words)
    assert (done.stdout, done.returncode) == ("", code)
    assert named in done.stderr


def test_a_self_answer_is_a_failure_with_its_words(home: "Home", hub: FakeHub) -> None:
    def refuse(client: Any, request: Any) -> None:
        raise Refuse("self_answer", "This answer comes from inside the program that asked.")

    hub.handlers["answer"] = refuse
    done = home.run("answer", "a012", "yes", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "self_answer"


# --- lists -----------------------------------------------------------------------------------


def test_asks_lists_and_escapes(home: "Home", hub: FakeHub) -> None:
    hub.asks["a0123456789ab"] = ask_of("a0123456789ab", question=EVIL, options=[EVIL])
    hub.asks["a0123456789ac"] = ask_of("a0123456789ac", state="closed", outcome="declined")
    done = home.run("asks")
    assert len(done.stdout.splitlines()) == 1
    assert "\x1b" not in done.stdout
    assert "declined" in home.run("asks", "--closed").stdout
    assert len(json.loads(home.run("asks", "--all", "--json").stdout)["asks"]) == 2
    hub.asks.clear()
    done = home.run("asks")
    assert (done.stdout, done.stderr, done.returncode) == ("", "no open questions\n", 0)


def test_sessions_lists_also_what_is_refused(home: "Home", hub: FakeHub) -> None:
    sessions = [{"session_id": "s1", "kind": "sdk", "state": "attached", "title": EVIL}]
    refused = [{"path": f"/x/{EVIL}.json", "code": "record_version", "reason": "version 2"}]
    hub.handlers["sessions"] = lambda client, request: {
        "sessions": sessions,
        "refused": refused,
    }
    done = home.run("sessions", "--all")
    assert "sdk attached" in done.stdout
    assert "version 2" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert json.loads(home.run("sessions", "--json").stdout)["refused"] == refused


def test_roots(home: "Home", hub: FakeHub) -> None:
    root = {"path": "/srv/shop", "records": 2, "problem": None}
    hub.handlers["roots"] = lambda client, request: {"roots": [root]}
    (home.root / "shop").mkdir()
    done = home.run("roots", "add", "shop")
    assert done.stdout == "/srv/shop  2 records\n"
    assert hub.requests("roots")[0] == {
        "id": 1, "op": "roots", "action": "add", "path": os.path.realpath(home.root / "shop"),
    }  # fmt: skip
    home.run("roots")
    assert hub.requests("roots")[1]["action"] == "list"


def test_notify(home: "Home", hub: FakeHub) -> None:
    done = home.run("notify", "-", "--level", "error", stdin="broken\n")
    assert (done.stdout, done.stderr, done.returncode) == ("", "told in inbox (1 tab)\n", 0)
    (request,) = hub.requests("notify")
    assert (request["text"], request["level"]) == ("broken", "error")
    assert json.loads(home.run("notify", "x", "--json", "-q").stdout)["ok"] is True


# --- hub -------------------------------------------------------------------------------------


def test_hub_status(home: "Home", hub: FakeHub) -> None:
    done = home.run("hub", "status")
    assert "hub 0.1.0: ready" in done.stdout
    assert json.loads(home.run("hub", "status", "--json").stdout)["pid"] == os.getpid()
    assert json.loads(home.run("hub", "start", "--json").stdout)["hub"]["pid"] == os.getpid()
    assert home.run("hub", "reload").stdout == "nothing has changed\n"
    assert len(hub.requests("reload")) == 1


def test_starting_a_hub_waits_for_no_inbox_that_is_off(
    home: "Home", hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = hub._op_status

    def without_an_inbox(client: Client, request: Json) -> Json:
        return {**real(client, request), "web_url": None, "channels": [], "adapters": []}

    monkeypatch.setattr(hub, "_op_status", without_an_inbox)
    done = home.run("hub", "start", "--json")
    assert json.loads(done.stdout)["web_url"] is None
    assert len(hub.requests("status")) == 1


def test_without_a_hub_status_fails_and_stop_does_not(home: "Home") -> None:
    done = home.run("hub", "status")
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.startswith("upcall: no hub is running\n")
    done = home.run("hub", "stop")
    assert (done.stdout, done.stderr, done.returncode) == ("", "no hub is running\n", 0)


# --- configuration ---------------------------------------------------------------------------


def test_config(home: "Home") -> None:
    path = str(home.config)
    assert home.run("config", "path").stdout == f"{path}\n"
    assert "every default is in force" in home.run("config", "check").stdout
    home.write_config("[hub]\nidle_exit_s = 5\n")
    assert home.run("config", "check").stdout == f"{path} is valid\n"
    schema = json.loads(home.run("config", "schema").stdout)
    assert "hub" in schema["properties"]
    home.write_config("[chanels.web]\nport = 1\n")
    done = home.run("config", "check")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "chanels" in done.stderr
    assert "channels" in done.stderr
    assert home.run("config", "check", "/nonexistent.toml").returncode == 2
    document = json.loads(home.run("config", "check", "--json").stdout)
    assert document["error"]["code"] == "config_invalid"


# --- doctor ----------------------------------------------------------------------------------


def test_doctor_finds_nothing_wrong_where_nothing_is(home: "Home") -> None:
    done = home.run("doctor", "--json")
    document = json.loads(done.stdout)
    assert (document["ok"], done.returncode) == (True, 0)
    assert not home.state.exists()


def test_doctor_with_a_hub(home: "Home", hub: FakeHub) -> None:
    done = home.run("doctor")
    assert done.returncode == 0, done.stdout
    assert "hub 0.1.0 is running" in done.stdout
    assert "channel inbox (1 tab)" in done.stdout


def test_doctor_names_each_problem_with_its_remedy(home: "Home", hub: FakeHub) -> None:
    status = hub._op_status(None, {})  # type: ignore[arg-type]
    status["degraded"] = [{"code": "config_invalid", "msg": EVIL, "recover": "fix it"}]
    status["channels"] = [{"name": "web", "state": "down", "reason": "port taken"}]
    hub.handlers["status"] = lambda client, request: status
    home.write_config("[hubb]\n")
    sessions = home.runtime / "sessions"
    sessions.mkdir(parents=True, mode=0o700)
    home.runtime.chmod(0o700)
    (sessions / "s1.json").write_text("{")
    (sessions / "s1.json").chmod(0o600)
    done = home.run("doctor")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    for words in ("fix it", "port taken", "hubb", "record not used"):
        assert words in done.stdout
    home.state.chmod(0o755)
    done = home.run("doctor", "--json")
    codes = {one["code"]: one for one in json.loads(done.stdout)["findings"]}
    assert codes["state_not_private"]["recover"] == f"chmod 700 {home.state}"
    home.state.chmod(0o700)


def test_doctor_tells_why_the_last_hub_ended(home: "Home") -> None:
    home.state.mkdir(mode=0o700, parents=True)
    FakeHub(str(home.state)).fail_with("disk_full", "the disk is full")
    done = home.run("doctor")
    assert done.returncode == 1
    assert "the disk is full" in done.stdout
    assert "hub.log" in done.stdout


# --- the inbox -------------------------------------------------------------------------------

LINK = "http://127.0.0.1:8737/#login=5vcyyd9d4w1p7rvn87t0c6rqbx"


class Logins:
    """The login op of a hub: one browser waits once it was opened."""

    def __init__(self, opened: Path) -> None:
        self.opened = opened
        self.approved: list[str] = []

    def __call__(self, client: Any, request: Any) -> dict[str, Any]:
        match request["action"]:
            case "link":
                return {"url": LINK, "public_url": None, "expires_ms": 1}
            case "browsers":
                waiting = [{"code": "K7QF", "agent": "Firefox on Linux", "since_ms": 1}]
                url = "http://127.0.0.1:8737/"
                return {"url": url, "waiting": waiting if self.opened.exists() else []}
            case "approve":
                self.approved.append(request["browser"])
                return {"code": request["browser"], "agent": "Firefox on Linux"}
            case "list":
                return {"logins": [{"id": "l1", "agent": EVIL, "used_ms": 1, "pages": 1}]}
            case _:
                return {"signed_out": 2}


def test_inbox_without_a_terminal_prints_the_link(home: "Home", hub: FakeHub) -> None:
    hub.handlers["login"] = Logins(home.root / "never")
    done = home.run("inbox")
    assert (done.stdout, done.returncode) == (f"{LINK}\n", 0)
    done = home.run("inbox", "--print", env={"SSH_CONNECTION": "1 2 3 4", "USER": "sam"})
    assert "ssh -N -L 8737:127.0.0.1:8737 sam@" in done.stderr
    assert json.loads(home.run("inbox", "--json").stdout)["url"] == LINK
    done = home.run("inbox", "--sessions")
    assert "open now" in done.stdout
    assert "\x1b" not in done.stdout
    assert home.run("inbox", "--sign-out-all").stdout == "signed 2 browsers out\n"


@pytest.mark.parametrize(("typed", "approved"), [("y\n", ["K7QF"]), ("n\n", [])])
def test_inbox_opens_a_browser_without_a_secret_and_asks(
    home: "Home", hub: FakeHub, typed: str, approved: list[str]
) -> None:
    opened = home.root / "opened"
    logins = Logins(opened)
    hub.handlers["login"] = logins
    tools = home.root / "bin"
    tools.mkdir()
    (tools / "xdg-open").write_text(f'#!/bin/sh\necho "$*" > {opened}\n')
    (tools / "xdg-open").chmod(stat.S_IRWXU)
    env = {**home.env, "DISPLAY": ":0", "PATH": f"{tools}:{os.environ['PATH']}"}
    with PtyScreen(home.argv("inbox"), env, cwd=str(home.root)) as screen:
        screen.wait_for("A browser shows K7QF. Sign it in? [y/N]")
        screen.type(typed)
        if approved:
            assert screen.finish() == 0
        else:
            screen.wait_for("not signed in")
        assert "login=" not in screen.text()
    assert opened.read_text() == "http://127.0.0.1:8737/\n"
    assert logins.approved == approved


def test_inbox_ends_when_a_signed_in_page_connects(home: "Home", hub: FakeHub) -> None:
    hub.channels = INBOX_UNSEEN
    hub.handlers["login"] = Logins(home.root / "never")
    tools = home.root / "bin"
    tools.mkdir()
    (tools / "xdg-open").write_text("#!/bin/sh\n")
    (tools / "xdg-open").chmod(stat.S_IRWXU)
    env = {**home.env, "DISPLAY": ":0", "PATH": f"{tools}:{os.environ['PATH']}"}
    with PtyScreen(home.argv("inbox"), env, cwd=str(home.root)) as screen:
        screen.wait_for("opened http://127.0.0.1:8737/")
        hub.channels = [{"name": "web", "state": "delivered", "audience": 1}]
        assert screen.finish() == 0
        assert "the inbox is open in a browser that is signed in" in screen.text()


@pytest.mark.parametrize("words", [["asks"], ["inbox"], ["answer", "a012", "yes"]])
def test_where_only_the_ask_socket_is_no_hub_is_started(home: "Home", words: list[str]) -> None:
    paths.ensure_private_dir(str(home.state))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(paths.socket_paths(str(home.state))[0])
        done = home.run(*words)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "upcall: only ask.sock is here; this command needs control.sock\n"
    )
    assert [path.name for path in home.state.iterdir()] == ["ask.sock"]


def test_a_notice_that_nobody_saw_is_said_to_be_kept(home: "Home", hub: FakeHub) -> None:
    hub.channels = INBOX_UNSEEN
    assert home.run("notify", "x").stderr == "kept; nobody has seen it yet\n"


def test_doctor_warns_of_a_port_that_another_program_holds(home: "Home", hub: FakeHub) -> None:
    hub.channels = INBOX_UNSEEN
    status = hub._op_status(None, {})  # type: ignore[arg-type]
    status |= {"web_url": "http://127.0.0.1:40123/", "deliveries_waiting": 1}
    hub.handlers["status"] = lambda client, request: status
    shown = home.run("doctor").stdout
    assert "warn  the inbox is on port 40123: another program held 8737" in shown
    assert "channel inbox: no page open\n" in shown
    assert "1 message waits" in shown
    home.write_config("[web]\nport = 40123\n")
    assert "another program" not in home.run("doctor").stdout


# --- completion ------------------------------------------------------------------------------


def test_completion_scripts_are_those_of_the_parsers(home: "Home") -> None:
    for shell, text in scripts().items():
        assert home.run("completion", shell).stdout == text, "run: make generate"
    assert home.run("completion", env={"SHELL": "/bin/bash"}).stdout
    assert home.run("completion", env={"SHELL": "/bin/csh"}).returncode == 2


# --- never a traceback -----------------------------------------------------------------------


@pytest.mark.parametrize("answer", [{}, {"asks": 7}, {"asks": [{}]}, {"asks": [{"id": None}]}])
def test_a_hub_that_answers_nonsense_gives_no_traceback(
    home: "Home", hub: FakeHub, answer: dict[str, Any]
) -> None:
    for op in ("asks", "sessions", "status", "roots", "login"):
        hub.handlers[op] = lambda client, request: answer
    for words in (
        ["asks"],
        ["sessions"],
        ["roots"],
        ["hub", "status"],
        ["inbox"],
        [],
        ["doctor"],
    ):
        done = home.run(*words)
        assert "Traceback" not in done.stderr
        assert done.returncode in {0, 1}


def test_a_state_folder_that_cannot_be_used_is_named(home: "Home") -> None:
    home.state.parent.chmod(0o700)
    home.state.write_text("a file")
    for words in (["ask", "Q?", "--no-wait"], ["notify", "x"], ["asks"]):
        done = home.run(*words)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert str(home.state) in done.stderr


def test_a_folder_full_of_hostile_files_changes_nothing(home: "Home", hub: FakeHub) -> None:
    hub.channels = INBOX_UNSEEN
    trap = home.root / "trap"
    trap.mkdir()
    marker = home.root / "marker"
    for name in ("json.py", "socket.py", "argparse.py", "asyncio.py", "sitecustomize.py"):
        (trap / name).write_text(f"open({str(marker)!r}, 'w')\n")
    for name in ("upcall", "upcall_discovery"):
        (trap / name).mkdir()
        (trap / name / "__init__.py").write_text(f"open({str(marker)!r}, 'w')\n")
    script = Path(sys.executable).parent / "upcall"
    process = home.start_program(
        [str(script), "ask", "Q?", "--no-wait", "-q"], cwd=trap,
        env={**home.env, "PATH": f".:{os.environ['PATH']}"},
    )  # fmt: skip
    assert process.wait(20) == 0
    assert not marker.exists()
