"""What of the configuration is kept, and which names an operator may have."""

import os
from pathlib import Path

import pytest

from upcall.config import parse
from upcall.hub.rights import check_name
from upcall.hub.settings import (
    file_mark,
    is_live,
    kept_of,
    live_of,
    read_source,
    source_of,
    with_taken_up,
)
from upcall.model.errors import UsageError

TEXT = """
[hub]
machine_name = "box"
allow_direct_clients = true
[operators.ada]
identities = { web = "ada" }
rights = ["see"]
rights_on = { web = ["see", "answer"] }
[policy]
quorum = 2
quiet_hours = { from = "22:00", to = "07:00", zone = "Europe/Vienna" }
[[route]]
repo = "shop"
escalate = [{ after = "1h", people = ["ada"] }]
[redaction]
enabled = false
[security]
confirm_changes = true
[channels.irc]
adapter = "ircish"
[channels.off]
adapter = "other"
enabled = false
"""


def test_what_is_kept_is_read_back_as_it_was() -> None:
    config = parse(TEXT.encode(), "f")
    kept = read_source(source_of(config))
    assert kept == kept_of(config)
    live = live_of(kept_of(config))
    assert live.people["ada"].may("answer", "web")
    assert live.policy.defaults.quorum == 2
    assert (live.redact, live.confirm_changes, live.allow_direct_clients) == (False, True, True)
    assert live.adapters == {"irc": "ircish"}


def test_an_order_of_keys_is_no_change() -> None:
    one = parse(b'[operators.a]\n[operators.b]\n[hub]\nlog_level = "info"\n', "f")
    two = parse(b"[operators.b]\n[operators.a]\n", "g")
    assert source_of(one) == source_of(two)


@pytest.mark.parametrize(
    "source", [None, "", "{", '{"policy": 3}', '{"policy": {"quorum": 0}}']
)
def test_what_cannot_be_read_back_is_nothing(source: str | None) -> None:
    assert read_source(source) is None


def test_what_a_restart_takes_up_is_not_in_force() -> None:
    started, taken = parse(b"", "f"), parse(TEXT.encode(), "f")
    in_force = with_taken_up(started, taken)
    assert in_force.hub.machine_name == ""
    assert in_force.hub.allow_direct_clients
    assert in_force.operators == taken.operators
    assert in_force.channels == started.channels
    assert [
        name for name in ("hub", "policy", "route", "web", "operators.x") if is_live(name)
    ] == [
        "policy",
        "route",
        "operators.x",
    ]


def test_every_way_in_which_the_file_can_become_another_shows(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    marks = [file_mark(str(path))]
    path.write_text("a")
    marks.append(file_mark(str(path)))
    path.chmod(0o660)
    marks.append(file_mark(str(path)))
    os.utime(path, ns=(1, 1))
    marks.append(file_mark(str(path)))
    other = tmp_path / "other"
    other.write_text("a")
    os.replace(other, path)
    marks.append(file_mark(str(path)))
    os.replace(path, other)
    path.symlink_to(other)
    marks.append(file_mark(str(path)))
    assert len(set(marks)) == len(marks)
    assert marks[0] is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "1 to 64"),
        ("  ", "1 to 64"),
        ("x" * 65, "1 to 64"),
        ("a\nb", "one line"),
        ("a\x00", "cannot be used"),
        ("any", "meaning of its own"),
        ("owner", "meaning of its own"),
        ("role:ops", "meaning of its own"),
        ("\u0430da", "could be taken for operator 'ada'"),
        ("Ada", "could be taken for operator 'ada'"),
    ],
)
def test_a_name_that_misleads_is_refused(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_name(name, ["ada", "bob"])


def test_the_same_name_and_a_name_of_ones_own_are_taken() -> None:
    check_name("ada", ["ada", "bob"])
    check_name("Grace Hopper", ["ada", "bob"])
