"""The line to the hub: connecting, asking, and starting a hub on demand."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import upcall
from fakes import hub_line
from fakes.hub_line import FakeHub, Refuse
from upcall.hub.daemon import EXIT_RUNS_ALREADY
from upcall.line import HubLine, LineError, ensure_hub, full_ask_id, interpreter, mint_ask_id
from upcall.line import start as starting
from upcall.model.ids import is_ask_id
from upcall_discovery import paths

if TYPE_CHECKING:
    from conftest import Home

FAKE_COMMAND = [sys.executable, hub_line.__file__]


@pytest.fixture
def state(home: "Home", monkeypatch: pytest.MonkeyPatch) -> str:
    """The state folder of a home that this very process lives in now."""
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    return str(home.state)


@pytest.fixture
def hub(state: str) -> Iterator[FakeHub]:
    with FakeHub(state) as running:
        yield running


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Starts a fake hub; it needs our source folders, which a hub's environment has not."""
    roots = [str(Path(hub_line.__file__).parents[1]), *sys.path]
    program = (
        f"import sys; sys.path[:0] = {roots!r}; "
        "from fakes.hub_line import main; sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", program]


# --- ids -------------------------------------------------------------------------------------


def test_minted_ids_are_public_ids_and_differ() -> None:
    ids = {mint_ask_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(is_ask_id(one) and full_ask_id(one) == one for one in ids)


def test_a_full_id_is_known_also_as_action_id() -> None:
    assert full_ask_id("ask:a0123456789ab") == "a0123456789ab"
    for other in ("a012", "b0123456789ab", "a0123456789aU", "a0123456789abc", "", "ask:"):
        assert full_ask_id(other) is None


# --- connecting ------------------------------------------------------------------------------


def test_connects_and_knows_the_hub(hub: FakeHub) -> None:
    with HubLine.connect("ask") as line:
        assert line.hub["version"] == "0.1.0"
        assert line.hub["socket"] == "ask"
    with HubLine.connect("control") as line:
        assert line.hub["socket"] == "control"


def test_without_a_hub_says_so(state: str) -> None:
    with pytest.raises(LineError, match="no hub is running") as caught:
        HubLine.connect()
    assert caught.value.code == "hub_not_running"
    assert caught.value.recover == "start one with: upcall hub start"


def test_a_dead_hubs_socket_counts_as_none(state: str) -> None:
    paths.ensure_private_dir(state)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(paths.socket_paths(state)[0])
    listener.close()
    with pytest.raises(LineError) as caught:
        HubLine.connect()
    assert caught.value.code == "hub_not_running"


def test_of_a_copied_state_folder_the_hub_of_the_original_is_not_taken(state: str) -> None:
    elsewhere = f"{os.path.dirname(state)}/other"
    with FakeHub(elsewhere):
        paths.ensure_private_dir(state)
        data = {"ask_sock": paths.socket_paths(elsewhere)[0]}
        paths.write_private_file(paths.hub_json(state), json.dumps(data).encode(), sync=False)
        with pytest.raises(LineError) as caught:
            HubLine.connect("ask")
        assert caught.value.code == "hub_not_running"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"ask_sock": 7}', b"[" * 20_000])
def test_a_broken_hub_json_does_not_hide_the_hub(hub: FakeHub, state: str, data: bytes) -> None:
    paths.write_private_file(paths.hub_json(state), data, sync=False)
    HubLine.connect("ask").close()


def test_a_hub_that_does_not_answer_hello_is_silent(hub: FakeHub) -> None:
    hub.handlers["hello"] = lambda client, request: None
    with pytest.raises(LineError) as caught:
        HubLine.connect("ask", timeout_s=0.2)
    assert caught.value.code == "hub_silent"


def test_a_hub_of_another_protocol_is_told_apart(hub: FakeHub) -> None:
    hub.handlers["hello"] = lambda client, request: {"hub": {"protocol": 2}}
    with pytest.raises(LineError, match="line protocol 2") as caught:
        HubLine.connect("ask")
    assert caught.value.code == "protocol_unknown"


def test_a_refusal_at_the_door_keeps_its_code(hub: FakeHub) -> None:
    def refuse(client: Any, request: Any) -> None:
        raise Refuse("not_permitted", "not for you")

    hub.handlers["hello"] = refuse
    with pytest.raises(LineError, match="not for you") as caught:
        HubLine.connect("control")
    assert caught.value.code == "not_permitted"


def test_a_listener_of_another_user_is_refused(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    monkeypatch.setattr(
        "upcall.line.connection.struct.unpack", lambda form, data: (1, real + 7, 1)
    )
    with pytest.raises(LineError, match="served by another user") as caught:
        HubLine.connect("ask")
    assert caught.value.code == "hub_foreign"


# --- requests --------------------------------------------------------------------------------


def test_an_error_of_the_hub_comes_whole(hub: FakeHub) -> None:
    with HubLine.connect("ask") as line, pytest.raises(LineError) as caught:
        line.request("wait", ask="a0123456789ab")
    assert caught.value.code == "unknown_ask"
    assert caught.value.extra["ok"] is False


def test_events_between_requests_are_kept_in_order(hub: FakeHub) -> None:
    ask_id = mint_ask_id()
    ask = {"id": ask_id, "question": "?", "options": ["a"], "multi": False}
    with HubLine.connect("ask") as line:
        line.request("ask", ask=ask, session={}, wait=True)
        hub.set_channels([])
        hub.answer(ask_id, 0)
        line.request("notify", text="x", session={})
        kinds = [(line.next_event(5.0) or {})["event"] for _ in range(2)]
    assert kinds == ["channels", "ended"]


def test_no_event_within_the_time_is_none(hub: FakeHub) -> None:
    with HubLine.connect("ask") as line:
        assert line.next_event(0.01) is None


def test_a_hub_that_goes_away_is_noticed(hub: FakeHub) -> None:
    with HubLine.connect("ask") as line:
        hub.drop_clients()
        with pytest.raises(LineError) as caught:
            line.next_event(5.0)
    assert caught.value.code == "hub_gone"


def test_a_request_that_is_not_answered_is_silent(hub: FakeHub) -> None:
    hub.handlers["notify"] = lambda client, request: None
    with HubLine.connect("ask") as line, pytest.raises(LineError) as caught:
        line.request("notify", text="x", timeout_s=0.2)
    assert caught.value.code == "hub_silent"


def test_too_long_a_line_is_refused_before_it_is_sent(hub: FakeHub) -> None:
    with HubLine.connect("ask") as line:
        with pytest.raises(LineError) as caught:
            line.request("notify", text="x" * 1024 * 1024)
        assert caught.value.code == "line_too_long"
        assert line.request("notify", text="short")["ok"] is True


@pytest.mark.parametrize("garbage", [b"not json\n", b"[]\n", b"x" * (1024 * 1024 + 2)])
def test_garbage_from_the_hub_ends_the_line(hub: FakeHub, garbage: bytes) -> None:
    def send(client: Any, request: Any) -> None:
        client.sock.sendall(garbage)

    hub.handlers["notify"] = send
    with HubLine.connect("ask") as line, pytest.raises(LineError) as caught:
        line.request("notify", text="x", timeout_s=10)
    assert caught.value.code == "hub_gone"


def test_long_answers_in_many_pieces_are_put_together(hub: FakeHub) -> None:
    words = "é🙂" * 40_000
    hub.handlers["notify"] = lambda client, request: {"words": words}
    with HubLine.connect("ask") as line:
        assert line.request("notify", text="x")["words"] == words


# --- starting on demand ----------------------------------------------------------------------


def test_uses_a_hub_that_runs(hub: FakeHub) -> None:
    with ensure_hub(command=["/nonexistent"]) as line:
        assert line.hub["pid"] == os.getpid()


def test_starts_one_detached_with_a_closed_environment(
    state: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}:bin")
    leak_read, leak_write = os.pipe()
    os.set_inheritable(leak_write, True)
    try:
        with ensure_hub(command=command) as line:
            pid = line.hub["pid"]
            assert pid != os.getpid()
            assert os.getsid(pid) == pid != os.getsid(0)
            if sys.platform == "linux":
                environ = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                names = {entry.partition("=")[0] for entry in environ if entry}
                assert not names & {"SECRET_TOKEN", "PYTHONPATH", "LD_PRELOAD"}
                (path,) = [e for e in environ if e.startswith("PATH=")]
                assert all(os.path.isabs(f) for f in path.partition("=")[2].split(":"))
                assert os.readlink(f"/proc/{pid}/cwd") == "/"
                assert all(
                    os.readlink(f"/proc/{pid}/fd/{fd}") == "/dev/null" for fd in (0, 1, 2)
                )
        with HubLine.connect("control") as control:
            control.request("stop")
    finally:
        os.close(leak_write)
    # The hub holds no descriptor of ours, so the pipe is at its end although it lives.
    assert os.read(leak_read, 1) == b""
    os.close(leak_read)


def test_many_starters_start_exactly_one(state: str, command: list[str]) -> None:
    pids: list[int] = []
    failures: list[LineError] = []

    def begin() -> None:
        try:
            with ensure_hub(command=command) as line:
                pids.append(line.hub["pid"])
        except LineError as err:
            failures.append(err)

    threads = [threading.Thread(target=begin) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert len(set(pids)) == 1
    assert len(Path(state, "started").read_text().split()) == 1
    with HubLine.connect("control") as control:
        control.request("stop")


def test_a_leftover_start_lock_does_not_block(state: str, command: list[str]) -> None:
    paths.ensure_private_dir(state)
    Path(paths.start_lock(state)).write_text("12345\n")
    ensure_hub(socket="control", command=command).close()
    with HubLine.connect("control") as control:
        control.request("stop")


def test_a_hub_that_failed_just_now_is_not_started_again(state: str) -> None:
    paths.ensure_private_dir(state)
    FakeHub(state).fail_with("store_newer", "the store is newer than this program")
    with pytest.raises(LineError, match="the store is newer") as caught:
        ensure_hub(command=["/bin/false"])
    assert caught.value.code == "store_newer"


def test_after_ten_seconds_it_is_tried_again(state: str, command: list[str]) -> None:
    paths.ensure_private_dir(state)
    ended_ms = int(time.time() * 1000) - 11_000
    FakeHub(state).fail_with("store_newer", "old news", ended_ms=ended_ms)
    ensure_hub(socket="control", command=command).close()
    with HubLine.connect("control") as control:
        control.request("stop")


def test_a_hub_that_is_just_starting_or_ending_is_waited_for(
    state: str, command: list[str]
) -> None:
    """Whoever loses the race for the folder waits for the winner, or takes its place."""
    paths.ensure_private_dir(state)
    marks = f"{os.path.dirname(state)}/tries"
    program = (
        f"import os, sys; open({marks!r}, 'ab').write(b'x'); "
        f"os.path.getsize({marks!r}) < 3 and sys.exit({EXIT_RUNS_ALREADY}); {command[-1]}"
    )
    ensure_hub(socket="control", command=[*command[:-1], program]).close()
    assert os.path.getsize(marks) == 3
    with HubLine.connect("control") as control:
        control.request("stop")
    assert starting._RUNS_ALREADY == EXIT_RUNS_ALREADY


def test_a_hub_that_ends_at_once_is_told_without_waiting(state: str) -> None:
    began = time.monotonic()
    with pytest.raises(LineError, match=r"ended at once \(exit 1\)") as caught:
        ensure_hub(command=["/bin/false"])
    assert time.monotonic() - began < 5
    assert caught.value.code == "hub_start"
    assert "hub.log" in (caught.value.recover or "")


def test_a_program_that_cannot_be_run_is_an_error_in_words(state: str) -> None:
    with pytest.raises(LineError, match="cannot start a hub") as caught:
        ensure_hub(command=["/nonexistent/python"])
    assert caught.value.code == "hub_start"


def test_a_hub_that_never_answers_is_given_up(state: str) -> None:
    with pytest.raises(LineError, match="did not answer in time"):
        ensure_hub(0.3, command=["/bin/sleep", "2"])


def test_a_state_folder_that_others_can_read_is_refused(state: str) -> None:
    os.makedirs(state, mode=0o755)
    os.chmod(state, 0o755)
    with pytest.raises(LineError) as caught:
        ensure_hub(command=["/bin/false"])
    assert caught.value.code == "folder_not_private"


# --- versions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "newer"),
    [
        ("0.2.0", "0.1.9", True),
        ("0.10.0", "0.9.0", True),
        ("0.1.0", "0.1.0", False),
        ("0.1.0", "0.2.0", False),
        ("0.2.0", "weird", False),
        ("0.2.0.dev1", "0.1.0", False),
    ],
)
def test_which_version_is_newer(ours: str, theirs: str, newer: bool) -> None:
    assert starting.is_newer(ours, theirs) is newer


def test_an_older_hub_is_asked_to_stop_and_ours_takes_its_place(
    state: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upcall, "__version__", "0.2.0")
    said: list[str] = []
    with FakeHub(state, version="0.1.0") as old:
        old.asks["a1"] = {"state": "open"}

        def stop(client: Any, request: Any) -> dict[str, Any]:
            old.stopped.set()
            return {}

        old.handlers["stop"] = stop

        def close() -> None:
            old.stopped.wait(10)
            old.__exit__()

        closer = threading.Thread(target=close)
        closer.start()
        with ensure_hub(command=command, note=said.append) as line:
            assert line.hub["pid"] != old.pid
        closer.join(10)
        with HubLine.connect("control") as control:
            control.request("stop")
    assert said == [
        "hub 0.1.0 is running, this is 0.2.0 - restarting it (1 open question is kept)"
    ]


def test_an_older_hub_that_we_may_not_stop_serves_us_too(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(client: Any, request: Any) -> None:
        raise Refuse("not_permitted")

    monkeypatch.setattr(upcall, "__version__", "0.2.0")
    hub.handlers["status"] = refuse
    with ensure_hub(command=["/nonexistent"]) as line:
        assert line.hub["pid"] == hub.pid


def test_the_version_is_the_projects_own() -> None:
    text = Path(__file__).parents[2].joinpath("pyproject.toml").read_text()
    assert f'version = "{upcall.__version__}"' in text


def test_the_environment_of_a_hub_is_a_closed_list() -> None:
    given = {
        "HOME": "/h", "LC_ALL": "C", "XDG_STATE_HOME": "/s", "UPCALL_SESSION": "x",
        "PYTHONHOME": "/evil", "DYLD_INSERT_LIBRARIES": "x", "AWS_SECRET": "x", "PATH": "bin",
    }  # fmt: skip
    kept = interpreter.hub_environment(given)
    assert set(kept) == {"HOME", "LC_ALL", "XDG_STATE_HOME", "PATH"}
    assert kept["PATH"] == os.defpath


def test_a_starter_leaves_no_warning_about_its_child(state: str, command: list[str]) -> None:
    roots = repr(sys.path)
    program = (
        f"import sys; sys.path[:0] = {roots}; import gc; from upcall.line import ensure_hub; "
        f"ensure_hub(command={command!r}).close(); gc.collect()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with HubLine.connect("control") as control:
        control.request("stop")
