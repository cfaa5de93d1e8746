"""File names that are not UTF-8: told by an escape, and they silence nobody."""

import os
from collections.abc import Iterator

import pytest

from fakes.home import Home, eventually

BAD = b"\xff\xfebad"


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def test_a_record_with_such_a_name_is_listed_as_refused(home: Home) -> None:
    home.start_hub()
    path = os.path.join(os.fsencode(home.sessions), BAD + b".json")
    made = f"{home.path}/record"
    with open(made, "wb") as file:
        file.write(b"{}")
    os.rename(made, path)

    def told() -> bool:
        done = home.run("sessions", "--all", within_s=20)
        assert "Traceback" not in done.err, done
        assert done.code == 0, done
        return "bad.json" in done.out + done.err

    eventually(told)
    done = home.run("sessions", "--all", "--json")
    assert done.code == 0, done
    assert "bad.json" in str(done.json)
    assert home.run("status", "--json").code == 0
