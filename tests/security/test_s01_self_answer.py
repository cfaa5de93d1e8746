"""S1: who asks for permission does not grant it; who may only ask can do nothing else.

Real programs on real sockets: the host that asks by a hook, its children, other terminals,
and another user with nothing but the ask socket.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.sync.client import connect

from fakes.home import UPCALL, Home, Running, eventually
from upcall.hub.requests import ASKING, CONTROLLING
from upcall.line import mint_ask_id

INSIDE = (
    "This answer comes from inside the program that asked. "
    "Answer from another terminal, the inbox or your phone."
)
CONFIRM = [*UPCALL, "confirm", "Deploy?"]

PYTHON_HOOK = f"import subprocess, sys; sys.exit(subprocess.run({CONFIRM!r}).returncode)"
INNER = f'XDG_STATE_HOME="$KEPT" {shlex.join(CONFIRM)}; true'
OTHER_FOLDER = (
    'KEPT="$XDG_STATE_HOME"; export KEPT; '
    f"XDG_STATE_HOME=/nowhere/at/all sh -c {shlex.quote(INNER)}; true"
)

# A program that asks by a hook, and then does whatever it is told on its standard input.
HOST = """
import json, subprocess, sys
hook = subprocess.Popen(
    json.loads(sys.argv[1]),
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
for line in sys.stdin:
    done = subprocess.run(
        json.loads(line), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
hook.wait()
"""
# Runs its arguments on a terminal of their own, as a terminal emulator does.
PTY = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
ON_PTY = [sys.executable, "-c", PTY]


@pytest.fixture(scope="module")
def one_home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


@pytest.fixture
def home(one_home: Home) -> Iterator[Home]:
    """The home of the tests that leave its hub as it is; what they asked is withdrawn."""
    yield one_home
    with one_home.line("control") as line:
        for ask in line.ok("asks")["asks"]:
            line.request("cancel", ask=ask["id"])


@contextmanager
def configured(text: str) -> Iterator[Home]:
    with Home() as made:
        made.write_config(text)
        made.start_hub()
        yield made


def last_line(running: Running, count: int) -> Any:
    """Return the document in the line number *count* of its output, as soon as it is there."""
    found = running.line(rf"(?:.*\n){{{count}}}", on="out", within_s=20.0)
    return json.loads(found[0].splitlines()[-1])


def error_in(text: str) -> dict[str, Any]:
    """Return the error of the one document in *text*; on a terminal there is more in it."""
    error = json.loads(text[text.index("{") : text.rindex("}") + 1])["error"]
    assert isinstance(error, dict)
    return error


class Host:
    """A running host, whose hook has asked."""

    def __init__(self, home: Home, hook: list[str], *, terminal: bool = False) -> None:
        self.home = home
        argv = [sys.executable, "-u", "-c", HOST, json.dumps(hook)]
        self._running = home.start_program(argv, stdin=True, terminal=terminal)
        self._told = 0
        self.ask_id = only_open(home)["id"]

    def answers(self, value: str = "Yes", *, way: list[str] | None = None) -> list[Any]:
        """Let a child run `upcall answer`, and return its exit code and what it wrote."""
        return self.runs([*(way or []), *answering(self.ask_id, value)])

    def runs(self, argv: list[str]) -> list[Any]:
        stdin = self._running.process.stdin
        assert stdin is not None
        stdin.write(json.dumps(argv).encode() + b"\n")
        stdin.flush()
        self._told += 1
        done = last_line(self._running, self._told)
        assert isinstance(done, list)
        return done


def answering(ask_id: str, value: str = "Yes") -> list[str]:
    return [*UPCALL, "answer", ask_id, value, "--json"]


def only_open(home: Home) -> dict[str, Any]:
    """Return the one ask that is open, as soon as it is."""

    def look() -> list[dict[str, Any]]:
        with home.line("control") as line:
            found: list[dict[str, Any]] = line.ok("asks")["asks"]
        return found

    (found,) = eventually(look, what="an open ask", within_s=20.0)
    return found


def facts(home: Home, event: str, ask_id: str) -> list[dict[str, Any]]:
    """Return what the audit says of one kind of event of an ask."""
    query = "SELECT facts FROM audit WHERE event = ? AND ask_id = ? ORDER BY id"
    return [json.loads(row[0]) for row in home.rows(query, event, ask_id)]


def notices(home: Home, ask_id: str) -> list[str]:
    query = "SELECT text FROM notice WHERE kind = 'security' AND instr(text, ?)"
    return [row[0] for row in home.rows(query, ask_id)]


# --- inside the program that asked -----------------------------------------------------------

HOOKS = {
    "the hook itself": CONFIRM,
    "a shell that becomes it": ["sh", "-c", shlex.join(CONFIRM)],
    "a shell that stays": ["sh", "-c", f"{shlex.join(CONFIRM)}; true"],
    "a shell in a shell": [
        "bash",
        "-c",
        f"sh -c {shlex.quote(shlex.join(CONFIRM) + '; true')}; :",
    ],
    "wrappers": ["env", "X=1", "timeout", "60", "nice", *CONFIRM],
    "a session of its own": ["setsid", "--wait", *CONFIRM],
    "a shell that reads": ["sh", "-ec", f"echo {shlex.quote(shlex.join(CONFIRM))} | sh; true"],
    "a script": ["sh", "hook.sh"],
    "a terminal of its own": ["script", "-qec", shlex.join(CONFIRM), "/dev/null"],
    "another language": [sys.executable, "-c", PYTHON_HOOK],
    "languages in languages": [
        sys.executable,
        "-c",
        f"import subprocess; subprocess.run({[sys.executable, '-c', PYTHON_HOOK]!r})",
    ],
    "another language in a shell": [
        "sh",
        "-c",
        f"{shlex.join([sys.executable, '-c', PYTHON_HOOK])}; true",
    ],
    "a language with a shell of its own": ["perl", "-e", f"system({shlex.join(CONFIRM)!r})"],
    "a state folder in between": ["sh", "-c", OTHER_FOLDER],
}


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS.keys())
def test_a_host_does_not_answer_what_its_hook_asked(home: Home, hook: list[str]) -> None:
    if shutil.which(hook[0]) is None:
        pytest.skip(f"needs {hook[0]}")
    with open(f"{home.path}/hook.sh", "w", encoding="utf-8") as file:
        file.write(f"{shlex.join(CONFIRM)}\n:\n")
    host = Host(home, hook)
    code, out, _ = host.answers()
    error = error_in(out)
    assert (code, error["code"], error["msg"]) == (1, "self_answer", INSIDE)
    assert home.ask_state(host.ask_id)["state"] == "open"
    (told,) = facts(home, "refused", host.ask_id)
    assert told["code"] == "self_answer"


# Shells that read the host's terminal, and run what a file or a variable says.
SHELLS = {
    "a startup file": "bash --rcfile hook.sh -i",
    "a variable": "PROMPT_COMMAND={} bash --norc -i",
    "an environment file": "ENV=hook.sh sh -i",
    "a shell in it": "ENV=hook.sh sh -c 'sh -i; true'",
    "another option": "PROMPT_COMMAND={} bash --norc -i +o posix",
    "a login shell": "PROMPT_COMMAND={} bash --noprofile --norc -l -i",
}


@pytest.mark.parametrize("way", SHELLS.values(), ids=SHELLS.keys())
def test_a_shell_that_the_host_starts_on_its_terminal_is_no_person(
    home: Home, way: str
) -> None:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    with open(f"{home.path}/hook.sh", "w", encoding="utf-8") as file:
        file.write(f"{shlex.join(CONFIRM)}; exit\n")
    command = way.format(shlex.quote(f"{shlex.join(CONFIRM)}; exit"))
    host = Host(home, ["sh", "-c", f"{command} </dev/tty; true"], terminal=True)
    code, out, _ = host.answers()
    assert (code, error_in(out)["code"]) == (1, "self_answer")
    assert home.ask_state(host.ask_id)["state"] == "open"


BEHIND = """
import json, os, socket, sys
os.setpgid(0, 0)  # what is typed at the terminal goes to the group in front
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
lines = sock.makefile("rw")
def do(**request):
    lines.write(json.dumps(request) + "\\n")
    lines.flush()
    return json.loads(lines.readline())
do(op="hello", protocol=1, version="9")
spec = {"id": sys.argv[2], "question": "Run it?", "options": ["Yes", "No"],
        "free_text": False, "class": "permission"}
do(id=1, op="ask", ask=spec, session={"cwd": "/", "program": "x"}, wait=True)
print(json.dumps(do(id=2, op="took", ask=sys.argv[2], answer={"indices": [0]})), flush=True)
"""


def test_nobody_types_at_the_prompt_of_a_program_in_the_background(home: Home) -> None:
    path = home.hub_json()["ask_sock"]
    ask_id = "a0123456789ab"
    # Its leader stays in front.
    leader = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    argv = [sys.executable, "-c", leader, BEHIND, path, ask_id]
    told = last_line(home.start_program(argv, terminal=True), 1)
    assert told["error"]["code"] == "self_answer"
    assert "in the background of pts/" in facts(home, "refused", ask_id)[0]["detail"]


@pytest.fixture(scope="module")
def shared() -> Iterator[Host]:
    """A host whose hook waits; its ask stays open."""
    with Home() as made:
        made.start_hub()
        yield Host(made, CONFIRM, terminal=True)


WAYS = {
    "a child": [],
    "a shell": ["sh", "-c", '"$@"; exit $?', "sh"],
    "a terminal of its own": ON_PTY,
    "a shell on a terminal of its own": [*ON_PTY, "bash", "-c", '"$@"; exit $?', "bash"],
    "a session of its own": ["setsid", "--wait"],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_whatever_descends_from_the_host_is_inside(shared: Host, way: list[str]) -> None:
    code, out, _ = shared.answers(way=way)
    error = error_in(out)
    assert (code, error["code"], error["msg"]) == (1, "self_answer", INSIDE)
    assert shared.home.ask_state(shared.ask_id)["state"] == "open"


def test_a_child_left_behind_on_the_hosts_terminal_is_nobody_at_a_terminal(
    shared: Host,
) -> None:
    # Its parents are gone, so it descends from nothing; the terminal is still the host's.
    out = f"{shared.home.path}/orphan"
    answer = f"({shlex.join(answering(shared.ask_id))} > {out} 2>&1 &)"
    shared.runs(["sh", "-c", answer])

    def told() -> str:
        try:
            with open(out, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    text = eventually(lambda: "}" in told() and told(), within_s=20.0)
    assert error_in(text or "")["code"] == "self_answer"
    assert shared.home.ask_state(shared.ask_id)["state"] == "open"


def test_without_a_terminal_there_is_no_person(shared: Host) -> None:
    done = shared.home.run("answer", shared.ask_id, "Yes", "--json")
    error = done.json["error"]
    assert (done.code, error["code"]) == (1, "self_answer")
    assert error["msg"] != INSIDE
    assert "terminal" in error["msg"]
    assert "upcall inbox" in error["recover"]
    again = shared.home.run("answer", shared.ask_id, "Yes")
    assert "upcall inbox" in again.err
    for word in ("--decline", "--hold"):
        assert shared.home.run("answer", shared.ask_id, word).code == 1
    assert shared.home.ask_state(shared.ask_id)["state"] == "open"


def test_the_guard_outlives_the_hub_and_the_askers_repeat(shared: Host) -> None:
    home = shared.home
    home.next_hub(home.kill_hub())
    eventually(lambda: only_open(home)["session"]["state"] == "attached")
    code, out, _ = shared.answers()
    assert (code, error_in(out)["code"]) == (1, "self_answer")


# --- people ----------------------------------------------------------------------------------


def test_another_terminal_answers_and_every_place_names_the_process(home: Home) -> None:
    host = Host(home, CONFIRM)
    done = home.run("answer", host.ask_id, "Yes", terminal=True)
    assert done.code == 0, done
    state = home.until_ask(host.ask_id, state="closed")
    by = state["answered_by"]
    assert by["channel"] == "terminal"
    kernel = r"pid \d+, \S+, pts/\d+"
    assert re.fullmatch(kernel, by["detail"]), by
    words = rf"Answered by user \S+ on this computer \({kernel}\): Yes"
    assert re.search(words, state["note"]), state["note"]
    waited = home.run("wait", host.ask_id, "--json")
    assert waited.json["answered_by"] == by
    told = home.run("wait", host.ask_id)
    assert f"on this computer ({by['detail']})" in told.err
    for event in ("claimed", "closed"):
        assert [one["detail"] for one in facts(home, event, host.ask_id)] == [by["detail"]]


def test_a_local_answer_is_never_an_operators() -> None:
    table = f'[operators.Ada]\nidentities = {{ local = "{os.getuid()}" }}\n'
    with configured(table) as home:
        ask_id = home.hand_over("Colour?", "-o", "red", "-o", "green")
        assert home.run("answer", ask_id, "red", terminal=True).code == 0
        text = json.dumps(home.until_ask(ask_id, state="closed"))
        assert "Ada" not in text
        assert not home.rows("SELECT 1 FROM audit WHERE facts LIKE '%Ada%'")


@pytest.mark.parametrize("nested", [False, True], ids=["their shell", "a shell in it"])
def test_a_person_answers_in_the_shell_from_which_they_asked(home: Home, nested: bool) -> None:
    shell = home.start_program(["sh", "-i"], on_terminal=True, env={"PS1": "> "})
    if nested:
        shell.type("sh -i\n")
    shell.type(f"{shlex.join(CONFIRM)} >/dev/null 2>&1 &\n")
    ask_id = only_open(home)["id"]
    shell.type(f"{shlex.join([*UPCALL, 'answer', ask_id, 'Yes'])}\n")
    assert home.until_ask(ask_id, within_s=20.0, state="closed")["outcome"] == "answered"


def test_questions_are_answered_from_anywhere(home: Home) -> None:
    ask_id = home.hand_over("Colour?", "-o", "red", "-o", "green")
    assert home.run("answer", ask_id, "red").code == 0


@pytest.mark.parametrize(
    ("policy", "terminal", "code"), [("any", False, None), ("off", True, "not_permitted")]
)
def test_the_policy_decides(policy: str, terminal: bool, code: str | None) -> None:
    with configured(f'[policy]\nlocal_answers = "{policy}"\n') as home:
        ask_id = home.hand_over("Deploy?", "-o", "yes", "-o", "no", "--permission")
        done = home.run("answer", ask_id, "yes", "--json", terminal=terminal)
        assert done.code == (0 if code is None else 1), done
        if code is not None:
            assert done.json["error"]["code"] == code


# --- operators are told ----------------------------------------------------------------------

FLOOD = """
import json, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile("rwb")
f.write(b'{"op":"hello","protocol":1,"version":"0"}\\n'); f.flush(); f.readline()
for n in range(int(sys.argv[3])):
    answer = {"id": n, "op": "answer", "ask": sys.argv[2], "values": ["Yes"]}
    f.write(json.dumps(answer).encode() + b"\\n"); f.flush()
    assert json.loads(f.readline())["error"]["code"] == "self_answer"
"""


def test_operators_are_told_of_refused_answers_and_not_flooded(home: Home) -> None:
    host = Host(home, CONFIRM)
    with home.line("control") as screen:
        screen.ok("watch")
        code, _, _ = host.answers()
        told = screen.event("notice")
        assert host.ask_id in told["text"]
        assert "(self_answer)" in told["text"]
        assert re.search(r"pid \d+", told["text"])
    assert code == 1
    assert home.ask_state(host.ask_id)["note"].startswith("Refused: an answer from pid ")
    control = home.hub_json()["control_sock"]
    before = home.rows("SELECT count(*) FROM inbound")
    done = host.runs([sys.executable, "-c", FLOOD, control, host.ask_id, "499"])
    assert done[0] == 0, done
    assert [line["count"] for line in facts(home, "refused", host.ask_id)] == [1, 10, 100]
    assert len(notices(home, host.ask_id)) == 3
    assert home.rows("SELECT count(*) FROM inbound") == before
    assert "100 answers" in home.ask_state(host.ask_id)["note"]
    assert home.run("answer", host.ask_id, "No", terminal=True).code == 0


def test_another_client_of_the_hosted_session_does_not_answer_it(home: Home) -> None:
    host = Host(home, CONFIRM)
    session_id = home.ask_state(host.ask_id)["session"]["session_id"]
    path = f"{home.sessions}/{session_id}.json"
    eventually(lambda: os.path.exists(path), what="the record of the hosted session")
    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    bearer = {"Authorization": f"Bearer {record['token']}"}
    with connect(record["url"], additional_headers=bearer, proxy=None) as client:
        action = f"ask:{host.ask_id}"
        reply = {"type": "reply", "id": action, "answer": "Yes", "token": record["token"]}
        client.send(json.dumps(reply))
        frames = iter(lambda: json.loads(client.recv(timeout=10)), None)
        rejected = next(frame for frame in frames if frame["type"] == "reply_rejected")
    assert (rejected["id"], rejected["reason"]) == (action, "resolver_unavailable")
    state = home.ask_state(host.ask_id)
    assert state["state"] == "open"
    assert "another program on this computer" in state["note"]
    assert len(notices(home, host.ask_id)) == 1


# --- the socket that can only ask ------------------------------------------------------------

# `list` and `log` are what somebody might try who has not read the protocol.
OTHER_OPS = sorted({*CONTROLLING, "list", "log", "config", "export"} - set(ASKING))

NOBODY = """
import json, os, socket, sys
if sys.argv[2] == "65534":
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.connect(f"/proc/self/fd/{sys.argv[1]}")
f = s.makefile("rwb")
def say(line):
    f.write(json.dumps(line).encode() + b"\\n"); f.flush()
def hear():
    while True:
        line = json.loads(f.readline())
        if "event" not in line:
            return line
say({"op": "hello", "protocol": 1, "version": "0"}); hear()
for line in sys.stdin:
    say(json.loads(line)); print(json.dumps(hear()), flush=True)
"""


class OnlyAsks:
    """A program that has nothing but the ask socket, as if it were mounted for it."""

    def __init__(self, home: Home, uid: str) -> None:
        path = home.hub_json()["ask_sock"]
        if uid == "65534":
            # What a mount for a group does: the socket alone, and none of the folders.
            os.chown(path, -1, 65534)
            os.chmod(path, 0o660)
        self._place = os.open(path, os.O_PATH)
        self._running: Running = home.start_program(
            [sys.executable, "-c", NOBODY, str(self._place), uid],
            stdin=True,
            pass_fds=[self._place],
        )
        os.close(self._place)
        self._said = 0

    def says(self, **line: Any) -> dict[str, Any]:
        stdin = self._running.process.stdin
        assert stdin is not None
        self._said += 1
        stdin.write(json.dumps({"id": self._said, **line}).encode() + b"\n")
        stdin.flush()
        answer = last_line(self._running, self._said)
        assert isinstance(answer, dict)
        return answer

    def code(self, **line: Any) -> str:
        answer = self.says(**line)
        assert answer["ok"] is False, answer
        return str(answer["error"]["code"])


UIDS = [
    pytest.param("65534", marks=pytest.mark.foreign_uid, id="another user"),
    pytest.param("own", id="the hub's own user"),
]


@pytest.mark.parametrize("uid", UIDS)
def test_the_ask_socket_asks_and_does_nothing_else(home: Home, uid: str) -> None:
    program, own = OnlyAsks(home, uid), mint_ask_id()
    other = home.hand_over("Somebody else's?", "-o", "yes", "-o", "no")
    for op in OTHER_OPS:
        assert program.code(op=op, ask=other, values=["yes"], action="list") == "not_permitted"
    words = {"question": "Mine?", "options": ["yes", "no"], "class": "permission"}
    asked = program.says(op="ask", ask={"id": own, **words}, wait=False)
    assert asked["ok"] is True, asked
    assert home.ask_state(own)["state"] == "open"
    waited = program.says(op="wait", ask=own)
    assert waited["ask"]["id"] == own
    # A beginning names nothing here, and what it did not raise it cannot know.
    for op in ("wait", "cancel"):
        assert program.code(op=op, ask=other[:6]) == "invalid_request"
        assert program.code(op=op, ask="a999999999999") == "unknown_ask"
    assert program.code(op="took", ask=other, answer={"indices": [0]}) == "not_permitted"
    granted = program.code(op="took", ask=own, answer={"indices": [0]})
    assert granted in {"not_permitted", "self_answer"}
    assert program.says(op="cancel", ask=own)["ok"] is True
    assert home.ask_state(own)["outcome"] == "cancelled"
    assert home.ask_state(other)["state"] == "open"


@pytest.mark.foreign_uid
def test_another_user_gets_no_answer_by_guessing_a_key(home: Home) -> None:
    mine = home.hand_over("Ship?", "-o", "yes", "-o", "no", "--key", "k", "--session", "s")
    program, own = OnlyAsks(home, "65534"), mint_ask_id()
    words = {"id": own, "question": "Ship?", "options": ["yes", "no"], "key": "k"}
    asked = program.says(
        op="ask", ask={**words, "free_text": False}, session={"name": "s"}, wait=False
    )
    assert asked["ask"]["id"] == own != mine
