"""`upcall operators`: what is asked of the hub, and how people are listed."""

from typing import Any

import pytest

from upcall.cli import operators
from upcall.cli.errors import Usage


def fields(*argv: str) -> dict[str, Any]:
    return operators._fields(operators.parser().read(list(argv)))


def test_what_is_typed_becomes_the_request() -> None:
    assert fields() == {"action": "list"}
    assert fields("revoke", "ada") == {"action": "revoke", "name": "ada"}
    assert fields("restore", "ada") == {"action": "restore", "name": "ada"}
    assert fields(
        *("add", "ada", "--channel", "telegram", "--id", "7"),
        *("--role", "ops", "--role", "lead", "--rights", " see, answer "),
    ) == {
        "action": "add",
        "name": "ada",
        "channel": "telegram",
        "identity": "7",
        "roles": ["ops", "lead"],
        "rights": ["see", "answer"],
    }
    assert "rights" not in fields("add", "ada", "--channel", "local", "--id", "1000")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("list", "ada"), "list takes no name"),
        (("revoke",), "revoke needs a NAME"),
        (("add", "ada"), "add needs --channel and --id"),
        (("add", "ada", "--channel", "c"), "add needs --channel and --id"),
        (("revoke", "ada", "--id", "7"), "belong to add"),
        (("list", "--role", "ops"), "belong to add"),
        (("add", "ada", "--channel", "c", "--id", "7", "--rights", "control"), "in the config"),
        (("add", "ada", "--channel", "c", "--id", "7", "--rights", "all"), "'all' is no right"),
        (("add", "ada", "--channel", "c", "--id", "7", "--rights", ","), "nothing is no right"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_fix(argv: tuple[str, ...], words: str) -> None:
    with pytest.raises(Usage) as refused:
        fields(*argv)
    assert words in refused.value.msg


def test_people_are_listed_in_one_line_each_and_escaped() -> None:
    person = {
        "name": "ada\x1b[2J",
        "identities": [
            {"channel": "web", "identity": "ada"},
            {"channel": "phone", "identity": "7", "added": True},
            {"channel": "desk", "identity": "8", "added": True, "waits_for": "a1"},
        ],
        "roles": ["ops"],
        "rights": ["see", "answer"],
        "rights_on": {"phone": []},
    }
    said = operators._words(person)
    assert "\x1b" not in said
    assert "web ada, phone 7 (added), desk 8 (not yet agreed to)" in said
    assert "may see, answer; on phone nothing" in said
    assert said.endswith("roles ops")
    assert operators._words({"name": "bob", "revoked": True}) == "bob  revoked  no identity"
