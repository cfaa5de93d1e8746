"""The hub's own life: single, started on demand, detached, ending when nothing is to do."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from fakes.home import UPCALL, Home, ended, eventually, open_files
from upcall.hub.foreground import HANDED
from upcall.hub.lock import HubLock


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


# --- single ----------------------------------------------------------------------------------


def test_of_two_hubs_started_at_once_exactly_one_lives_twenty_times_over(home: Home) -> None:
    winners = set()
    hub = ["/bin/sh", "-c", 'read go && exec "$0" "$@"', *UPCALL, "hub", "run"]
    # As after the clean beginning, whose second interpreter is half of the time.
    as_begun = {HANDED: "-"}
    for _ in range(20):
        pair = [home.start_program(hub, stdin=True, env=as_begun) for _ in range(2)]
        for one in pair:
            assert one.process.stdin is not None
            one.process.stdin.write(b"go\n")
            one.process.stdin.flush()
        over = first_to_end([one.pid for one in pair])
        assert len(over) == 1, "both live, or both have ended"
        loser, winner = pair if pair[0].pid == over[0] else pair[::-1]
        done = loser.end()
        assert done.code == 1
        assert str(winner.pid) in done.err, done
        assert home.state in done.err, done
        assert "Traceback" not in done.err
        eventually(partial(is_hub, home, winner.pid))
        with home.line("control") as line:
            assert line.ok("status")["pid"] == winner.pid
        winners.add(winner.pid)
        winner.kill()
    assert len(winners) == 20


def first_to_end(pids: list[int]) -> list[int]:
    """Return which of our children have ended, once one of them has."""
    descriptors = {os.pidfd_open(pid): pid for pid in pids}
    try:
        return [descriptors[one] for one in select.select(list(descriptors), [], [], 20)[0]]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def is_hub(home: Home, pid: int) -> bool:
    return home.hub_pid() == pid


def test_many_askers_at_once_start_one_hub(home: Home) -> None:
    asking = [home.start("ask", f"{n}?", "-o", "yes", "--no-wait") for n in range(8)]
    ids = {one.end().out.strip() for one in asking}
    assert len(ids) == 8
    assert home.log().count("hub_started") == 1
    with home.line("control") as line:
        assert {ask["id"] for ask in line.ok("asks")["asks"]} == ids


def test_what_a_dead_hub_left_behind_blocks_nobody(home: Home) -> None:
    home.start_hub()
    ask_id = home.hand_over("Still here?", "-o", "yes")
    former = home.kill_hub()
    left = set(os.listdir(home.state))
    assert {"hub.lock", "ask.sock", "control.sock", "hub.json"} <= left
    assert os.path.exists(f"{home.runtime}/hub.lock")
    again = home.start_hub()
    assert again != former
    assert home.ask_state(ask_id)["state"] == "open"


def test_a_lock_file_that_names_a_living_stranger_blocks_nobody(home: Home) -> None:
    os.mkdir(home.state, 0o700)
    with open(f"{home.state}/hub.lock", "w") as file:
        file.write(f"{os.getpid()}\n{home.state}\n")
    os.chmod(f"{home.state}/hub.lock", 0o600)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(f"{home.state}/ask.sock")
    stale.close()
    home.start_hub()


def test_a_hub_that_finds_another_one_starting_is_no_failure(home: Home) -> None:
    for folder in (home.state, f"{home.runtime}/upcall"):
        os.makedirs(folder, 0o700, exist_ok=True)
    lock = HubLock.acquire(home.state, f"{home.runtime}/upcall")
    try:
        assert home.run("hub", "run", "--detached").code == 75
        assert home.run("hub", "run").code == 1
        assert not os.path.exists(f"{home.state}/hub.json")
    finally:
        lock.release()
    home.start_hub()


def test_two_state_folders_cannot_share_one_runtime_folder(home: Home) -> None:
    pid = home.start_hub()
    other = f"{home.path}/s2"
    os.mkdir(other, 0o700)
    done = home.run("hub", "run", env={"XDG_STATE_HOME": other})
    assert done.code == 1
    assert str(pid) in done.err
    assert home.state in done.err


# --- started on demand, detached -------------------------------------------------------------


def test_an_on_demand_hub_is_cut_off_from_who_started_it(home: Home) -> None:
    secret = "s3cr3t-of-the-caller"
    env = {
        "PYTHONPATH": f"{home.path}/t",
        "PYTHONWARNINGS": "ignore",
        "PYTHONSTARTUP": f"{home.path}/none",
        "LD_LIBRARY_PATH": f"{home.path}/t",
        "LD_BIND_NOW": "1",
        "SOME_API_TOKEN": secret,
        "AWS_SECRET_ACCESS_KEY": secret,
        "INVOCATION_ID": "0123",
        "UPCALL_SESSION": "caller",
    }
    inherited, kept = os.pipe()
    try:
        starter = home.start(
            "ask", "Hygiene?", "-o", "yes", "--no-wait", env=env, pass_fds=[inherited, kept]
        )
        assert starter.end().code == 0
        pid = home.hub_pid()
        assert pid is not None
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read().decode().split("\0")
        names = {one.split("=", 1)[0] for one in environ if one}
        assert not [name for name in names if name.startswith(("PYTHON", "LD_", "DYLD_"))]
        assert not any(secret in one for one in environ)
        assert not names & {"SOME_API_TOKEN", "INVOCATION_ID", "UPCALL_SESSION"}
        assert {"HOME", "PATH", "XDG_STATE_HOME", "UPCALL_IDLE_EXIT_S"} <= names
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        files = open_files(pid)
        assert {files[0], files[1], files[2]} == {"/dev/null"}
        pipe = f"pipe:[{os.fstat(inherited).st_ino}]"
        assert pipe not in files.values(), files
        assert os.getsid(pid) == pid
        assert os.getpgid(pid) == pid
        with open(f"/proc/{pid}/status") as file:
            umask = next(line for line in file if line.startswith("Umask"))
        assert umask.split()[1] == "0077"
    finally:
        os.close(inherited)
        os.close(kept)


def test_everything_that_the_hub_makes_is_private(home: Home) -> None:
    home.run("ask", "Private?", "-o", "yes", "--no-wait")
    with home.line("control") as line:
        eventually(lambda: line.ok("status")["web_url"])
    seen = 0
    for folder in (home.state, home.runtime):
        for where, _, names in os.walk(folder):
            for name in [".", *names]:
                mode = os.lstat(os.path.join(where, name)).st_mode
                assert mode & 0o077 == 0, (where, name, oct(mode))
                seen += 1
    assert seen > 8


def test_command_substitution_returns_although_the_hub_lives_on(home: Home) -> None:
    upcall = " ".join(UPCALL)
    script = f'x=$({upcall} ask "Go?" -o yes --timeout 300ms --default yes 2>&1); echo "got $x"'
    shell = home.start_program(["/bin/sh", "-c", script])
    done = shell.end(15)
    assert "got " in done.out
    assert "yes" in done.out
    assert home.hub_pid() is not None


def test_a_stopped_hub_leaves_no_socket_and_says_when_it_ended(home: Home) -> None:
    pid = home.start_hub()
    os.kill(pid, signal.SIGTERM)
    assert ended(pid, 10)
    assert home.hub_json()["ended_ms"] > 0
    assert "last_error" not in home.hub_json()
    assert not {"ask.sock", "control.sock"} & set(os.listdir(home.state))
    assert home.start_hub() != pid


def test_a_foreground_hub_ends_by_ctrl_c_with_exit_0(home: Home) -> None:
    hub = home.start("hub", "run")
    eventually(lambda: home.hub_pid() == hub.pid)
    hub.signal(signal.SIGINT)
    done = hub.end()
    assert done.code == 0, done
    assert "Traceback" not in done.err


def test_open_asks_outlive_a_stop_and_are_answered_under_the_next_hub(home: Home) -> None:
    asking = home.start("ask", "Deploy?", "-o", "yes", "-o", "no")
    ask_id = asking.asked()
    first = home.hub_pid()
    assert home.run("hub", "restart").code == 0
    assert home.hub_pid() != first
    done = home.run("answer", ask_id, "no")
    assert done.code == 0, done
    assert asking.end().out == "no\n"


def test_a_hub_that_ended_by_itself_is_not_started_again_at_once(home: Home) -> None:
    os.mkdir(home.state, 0o700)
    with open(f"{home.state}/hub.db", "wb") as file:
        file.write(b"no database at all" * 100)
    os.chmod(f"{home.state}/hub.db", 0o600)
    first = home.run("ask", "Go?", "-o", "yes", "--no-wait")
    assert first.code == 1, first
    assert "hub.db" in first.err
    assert "Traceback" not in first.err
    left = home.hub_json()
    assert left["last_error"]["code"] in {"store_foreign", "store_corrupt"}
    again = home.run("notify", "hello")
    assert again.code == 1
    assert "hub.db" in again.err
    # Nobody tried: the former end is still what is told.
    assert home.hub_json() == left
    with open(f"{home.state}/hub.db", "rb") as file:
        assert file.read(18) == b"no database at all"


# --- idle exit -------------------------------------------------------------------------------


def test_an_idle_hub_ends_by_itself_and_is_there_again_on_demand() -> None:
    with Home(idle_exit_s=2) as home:
        pid = home.start_hub()
        assert ended(pid, 12)
        assert "ended_ms" in home.hub_json()
        assert home.run("asks").code == 0
        assert home.hub_pid() not in {None, pid}


def test_a_hub_with_an_open_ask_does_not_end() -> None:
    with Home(idle_exit_s=1) as home:
        ask_id = home.hand_over("Slow?", "-o", "yes")
        pid = home.hub_pid()
        assert pid is not None
        assert not ended(pid, 2.5)
        assert home.run("answer", ask_id, "yes").code == 0
        assert ended(pid, 10)
        # What was answered is kept.
        assert home.run("wait", ask_id).out == "yes\n"


def test_a_hub_with_a_client_does_not_end() -> None:
    with Home(idle_exit_s=1) as home:
        pid = home.start_hub()
        with home.line():
            assert not ended(pid, 2.5)
        assert ended(pid, 10)


# --- deleted under it ------------------------------------------------------------------------


def test_a_deleted_runtime_folder_is_healed_in_five_seconds(home: Home) -> None:
    ask_id = home.hand_over("Still there?", "-o", "yes")
    eventually(lambda: os.listdir(home.sessions))
    shutil.rmtree(home.runtime)

    def healed() -> bool:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return bool(os.listdir(home.hub_json()["runtime_dir"] + "/sessions"))
        return False

    eventually(healed, within_s=6, what="the record is published again")
    assert os.path.exists(f"{home.runtime}/hub.lock")
    assert home.run("answer", ask_id, "yes").code == 0
    # The lock in the new folder is held, too.
    other = f"{home.path}/s2"
    os.mkdir(other, 0o700)
    assert home.run("hub", "run", env={"XDG_STATE_HOME": other}).code == 1


def test_deleted_sockets_are_made_anew_in_five_seconds(home: Home) -> None:
    pid = home.start_hub()
    with home.line() as line:
        for name in ("ask_sock", "control_sock"):
            os.unlink(home.hub_json()[name])
        eventually(
            lambda: all(
                os.path.exists(home.hub_json()[n]) for n in ("ask_sock", "control_sock")
            ),
            within_s=6,
        )
        # Who was connected still is.
        assert line.ok("notify", text="hi", session={"program": "t", "cwd": "/"})
    assert home.run("asks").code == 0
    assert home.hub_pid() == pid


def test_a_deleted_hub_json_is_written_anew(home: Home) -> None:
    pid = home.start_hub()
    with home.line("control") as line:
        eventually(lambda: line.ok("status")["web_url"])
    os.unlink(f"{home.state}/hub.json")
    eventually(lambda: home.hub_json().get("pid") == pid, within_s=6)


def test_a_state_path_too_long_for_a_socket_is_served_from_a_short_one() -> None:
    with Home() as home:
        deep = f"{home.state_home}/{'d' * 100}"
        os.mkdir(deep, 0o700)
        home.env["XDG_STATE_HOME"] = home.state_home = deep
        home.state = f"{deep}/upcall"
        ask_id = home.hand_over("Deep?", "-o", "yes")
        path = home.hub_json()["ask_sock"]
        assert len(path) < 100
        assert path.startswith(f"/tmp/upcall-{os.getuid()}/")
        assert home.run("answer", ask_id, "yes").code == 0
        assert home.run("hub", "stop").code == 0
        assert not os.path.exists(path)


def test_the_entry_point_is_the_module(home: Home) -> None:
    script = os.path.join(os.path.dirname(sys.executable), "upcall")
    if not os.path.exists(script):
        pytest.skip("the package is not installed here as a command")
    for argv in ([script, "--version"], [*UPCALL, "--version"]):
        assert home.start_program(argv).end().out.startswith("upcall ")
