"""A hub that does not answer any more is ended by the remedy that is printed."""

import os
import signal
import time

from fakes.home import Home, ended


def test_stop_ends_a_frozen_hub() -> None:
    with Home() as home:
        ask_id = home.hand_over("Still here?", "-o", "yes", "-o", "no")
        pid = home.hub_pid()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        began_s = time.monotonic()
        done = home.run("hub", "stop")
        assert done.code == 0, done
        assert time.monotonic() - began_s < 20
        assert ended(pid, 5.0)
        assert f"hub {pid} does not answer: SIGKILL" in done.err
        home.start_hub()
        assert home.ask_state(ask_id)["state"] == "open"


def test_stop_ends_nothing_but_that_very_process() -> None:
    with Home() as home:
        pid = home.start_hub()
        os.kill(pid, signal.SIGSTOP)
        path = f"{home.state}/hub.json"
        with open(path, encoding="utf-8") as file:
            text = file.read()
        start = home.hub_json()["pid_start"]
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(start, start[:-1] + ("1" if start[-1] != "1" else "2")))
        done = home.run("hub", "stop")
        assert done.code == 1, done
        assert "does not tell its process" in done.err
        assert not ended(pid, 0.0)
        os.kill(pid, signal.SIGCONT)
