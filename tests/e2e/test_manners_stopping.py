"""A hub that a person has stopped or removed stays away, whoever waits for an answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.home import Home, eventually

OPTIONS = ("-o", "yes", "-o", "no")
SDK = """
import sys
import upcall
print(upcall.ask(sys.argv[1], ["yes", "no"]).labels[0])
"""


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


def test_a_stopped_hub_stays_stopped_until_somebody_wants_one(home: Home) -> None:
    asking = home.start("ask", "Which hosts?", *OPTIONS)
    ask_id = asking.asked()
    waiting = home.start("wait", ask_id)
    script = home.start_python(SDK, "From a script?")
    eventually(lambda: len(home.run("asks", "--json").json["asks"]) == 2)

    done = home.run("hub", "stop")
    assert done.out == "stopped; 2 open questions are kept\n"
    assert "upcall hub start" in done.err
    asking.line("the hub was stopped; the question stays open")
    waiting.line("the hub was stopped; to go on: upcall hub start")
    assert home.hub_pid() is None
    assert home.hub_json()["stopped"] is True
    # Each of them has tried again by now, and will do so every second.
    assert home.run("hub", "status").code == 1

    home.start_hub()
    for ask in home.run("asks", "--json").json["asks"]:
        assert home.run("answer", ask["id"], "yes").code == 0
    for one in (asking, waiting, script):
        done = one.end()
        assert (done.code, done.out) == (0, "yes\n"), done


def test_a_new_question_starts_a_stopped_hub_for_all(home: Home) -> None:
    asking = home.start("ask", "Which hosts?", *OPTIONS)
    ask_id = asking.asked()
    assert home.run("hub", "stop").code == 0
    asking.line("the hub was stopped")
    home.hand_over("Another?", *OPTIONS)
    assert home.hub_pid() is not None
    assert "stopped" not in home.hub_json()
    assert home.run("answer", ask_id, "no").code == 0
    assert asking.end().out == "no\n"


def test_a_restart_says_nothing_of_a_stop(home: Home) -> None:
    asking = home.start("ask", "Which hosts?", *OPTIONS)
    ask_id = asking.asked()
    assert home.run("hub", "restart").code == 0
    home.run("answer", ask_id, "no")
    done = asking.end()
    assert done.out == "no\n"
    assert "stopped" not in done.err


def test_uninstall_ends_who_waits_and_nothing_comes_back(home: Home) -> None:
    asking = home.start("ask", "Which hosts?", *OPTIONS)
    ask_id = asking.asked()
    waiting = home.start("wait", ask_id)
    script = home.start_python(SDK, "From a script?")
    eventually(lambda: len(home.run("asks", "--json").json["asks"]) == 2)
    done = home.run("uninstall", "--yes")
    assert done.code == 0, done
    assert "2 open questions are lost: whoever waits is told that it is cancelled" in done.out
    for one in (asking, waiting):
        ended = one.end()
        assert (ended.code, ended.out) == (3, ""), ended
        assert "cancelled, not answered (upcall was uninstalled): exit 3" in ended.err
    assert "Cancelled" in script.end().err
    assert not Path(home.state).exists()
    assert not Path(home.runtime).exists()


@pytest.mark.parametrize("how", ["restart", "start"])
def test_a_hub_that_cannot_use_its_configuration_says_so_as_it_starts(
    home: Home, how: str
) -> None:
    if how == "start":
        assert home.run("hub", "stop").code == 0
    home.write_config("[hub]\nlog_lvl = 'info'\n")
    done = home.run("hub", how)
    assert done.code == 0, done
    assert "config.toml:2: unknown key 'hub.log_lvl'" in done.err
    home.write_config("")
    assert home.run("hub", "restart").err == ""


def test_a_forgotten_answer_is_no_answer(home: Home) -> None:
    ask_id = home.hand_over("K?", *OPTIONS)
    assert home.run("answer", ask_id, "yes").code == 0
    assert home.run("forget", ask_id, "--yes").code == 0
    done = home.run("wait", ask_id)
    assert (done.code, done.out) == (3, "")
    assert "the text is not kept any more: exit 3" in done.err
    done = home.run("answer", ask_id, "no")
    assert done.code == 3
    assert "answered (the text is not kept any more) at" in done.err
    listed = home.run("asks", "--all").out
    assert "(the text is not kept any more)” = (the text is not kept any more) (" in listed
