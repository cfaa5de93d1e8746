"""A full disk: the hub ends with a clear word, and nothing that it accepted is lost."""

import sqlite3
from collections.abc import Iterator

import pytest

from fakes.home import Home, Json, Running, eventually, limit_files

LIMIT_BYTES = 1_500_000
SESSION: Json = {"program": "test", "cwd": "/"}


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def raise_until_full(home: Home) -> list[str]:
    """Raise asks until the hub is gone, and return those that it has accepted."""
    accepted: list[str] = []
    with home.line() as line:
        for number in range(2000):
            spec: Json = {
                "id": f"a{number:012d}",
                "question": f"Question {number}?",
                "options": ["yes", "no"],
                "free_text": False,
                "detail": "d" * 4000,
            }
            try:
                answer = line.request("ask", ask=spec, session=SESSION, wait=False)
            except ConnectionError:
                return accepted
            if answer["ok"] is not True:
                assert answer["error"]["code"].startswith("store_"), answer
                return accepted
            accepted.append(spec["id"])
    raise AssertionError("there was room for everything")


def fill(home: Home) -> tuple[Running, list[str]]:
    hub = home.start("hub", "run", before=limit_files(LIMIT_BYTES))
    eventually(lambda: home.hub_pid() == hub.pid)
    return hub, raise_until_full(home)


def test_the_hub_ends_by_itself_says_why_and_keeps_what_it_had_accepted(home: Home) -> None:
    hub, accepted = fill(home)
    done = hub.end()
    assert done.code == 1, done
    assert "hub.db" in done.err
    assert "[store_" in done.err
    assert "space" in done.err
    assert "Traceback" not in done.err
    left = home.hub_json()
    assert left["ended_ms"] > 0
    assert left["last_error"]["code"].startswith("store_")
    assert "hub.db" in left["last_error"]["msg"]
    assert len(accepted) > 10
    connection = sqlite3.connect(f"{home.state}/hub.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()

    # With room again, everything is there. A person may start the hub at once.
    again = home.start("hub", "run")
    eventually(lambda: home.hub_pid() == again.pid)
    with home.line("control") as line:
        found = {ask["id"] for ask in line.ok("asks", limit=1000)["asks"]}
    assert set(accepted) <= found
    assert home.run("answer", accepted[-1], "yes").code == 0
    assert home.run("wait", accepted[-1]).out == "yes\n"


def test_who_hands_over_meanwhile_fails_with_that_reason(home: Home) -> None:
    hub, _ = fill(home)
    hub.end()
    for words in (("ask", "Room?", "-o", "yes", "--no-wait"), ("notify", "Room?")):
        done = home.run(*words)
        assert done.code == 1, done
        assert done.out == ""
        assert done.err.count("hub.db") == 1, done
        assert "Traceback" not in done.err
    doctor = home.run("doctor")
    assert doctor.code == 1
    assert "hub.db" in doctor.out


def test_who_waits_meanwhile_goes_on_alone_and_is_answered_under_the_next_hub(
    home: Home,
) -> None:
    hub, _ = fill(home)
    hub.end()
    asking = home.start("ask", "Room?", "-o", "yes", "-o", "no")
    ask_id = asking.line(r"asking (a[0-9a-z]{12}) without a hub")[1]
    assert asking.err().count("hub.db") == 1
    again = home.start("hub", "run")
    eventually(lambda: home.hub_pid() == again.pid)

    def is_listed() -> bool:
        with home.line("control") as line:
            return ask_id in {ask["id"] for ask in line.ok("asks", limit=1000)["asks"]}

    eventually(is_listed, what="the ask is known under the same id")
    answered = home.run("answer", ask_id, "no")
    assert answered.code == 0, answered
    done = asking.end()
    assert (done.code, done.out) == (0, "no\n"), done


def test_an_asker_whose_hub_ends_for_want_of_room_is_answered_later(home: Home) -> None:
    """Its ask was accepted, so it waits for the next hub; it need not ask again."""
    hub = home.start("hub", "run", before=limit_files(LIMIT_BYTES))
    eventually(lambda: home.hub_pid() == hub.pid)
    asking = home.start("ask", "Before?", "-o", "yes", "-o", "no")
    ask_id = asking.asked()
    raise_until_full(home)
    hub.end()
    home.start("hub", "run")
    home.next_hub(hub.pid)
    assert home.run("answer", ask_id, "yes").code == 0
    done = asking.end()
    assert (done.code, done.out) == (0, "yes\n"), done


def test_a_hub_that_cannot_even_begin_says_why(home: Home) -> None:
    done = home.run("ask", "Room?", "-o", "yes", "--no-wait")
    assert done.code == 0
    assert home.run("hub", "stop").code == 0
    hub = home.start("hub", "run", before=limit_files(0))
    ended = hub.end()
    assert ended.code == 1, ended
    assert "Traceback" not in ended.err
    assert "upcall hub:" in ended.err
    again = home.start("hub", "run")
    eventually(lambda: home.hub_pid() == again.pid)
    assert home.ask_state(done.out.strip())["state"] == "open"
