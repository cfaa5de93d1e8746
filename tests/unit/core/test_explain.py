"""What would happen to a sample ask, and which rule says so."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from upcall.config import parse
from upcall.core.explain import Ground, explain, source_words
from upcall.core.rules import Facts
from upcall.model.policy import Match, Policy, Route, Terms
from upcall.policy_config import operators_of, policy_of

VIENNA = ZoneInfo("Europe/Vienna")
CONFIG = """
[channels.tg]
[channels.slack]

[operators.ada]
identities = { tg = "1" }
roles = ["ops"]
[operators.bob]
identities = { slack = "2" }
[operators.eve]
identities = { slack = "3" }
rights = ["see"]

[policy]
reminders = ["10m", "1h"]
quiet_hours = { from = "22:00", to = "07:00", zone = "Europe/Vienna" }

[[route]]
tag = "prod*"
kind = "permission"
answer_by = ["role:ops", "bob"]
quorum = 2
veto = true

[[route]]
repo = "shop"
channels = ["web", "tg"]
fallback = ["slack"]
escalate = [{ after = "15m", people = ["bob"], channels = ["slack"] }]
"""


def ground(text: str = CONFIG, now: str = "2026-06-10T12:00", **more: Any) -> Ground:
    config = parse(text.encode(), "c.toml")
    moment = datetime.fromisoformat(now).replace(tzinfo=VIENNA)
    return Ground(
        policy=policy_of(config.policy, config.routes),
        people=operators_of(config.operators),
        channels={name: name in {"web", "terminal"} for name in config.channels},
        zone=VIENNA,
        wall_ms=int(moment.timestamp() * 1000),
        owner="ada",
        **more,
    )


def told(facts: Facts, **more: Any) -> dict[str, Any]:
    return explain(ground(**more), facts)


def story(document: dict[str, Any]) -> list[tuple[float, str, str]]:
    return [
        (one["after_s"], one["what"], " ".join([*one["people"], *one["channels"]]))
        for one in document["shown"]
    ]


def test_each_value_names_the_route_that_gives_it() -> None:
    document = told(Facts(kind="permission", repo="shop", tags=("prod-eu",)))
    sources = {one["key"]: one["from"] for one in document["rules"]}
    assert sources["quorum"] == "route 1 (tag=prod* kind=permission)"
    assert sources["channels"] == "route 2 (repo=shop)"
    assert sources["reminders"] == "[policy]"
    assert sources["verbosity"] == "default"


def test_where_and_when_it_is_shown_reminded_of_and_escalated() -> None:
    document = told(Facts(kind="question", repo="shop"))
    assert story(document) == [
        (0, "shown", "web tg"),
        (0, "fallback", "slack"),
        (600, "reminded", "tg"),
        (900, "escalated", "bob slack"),
        (3600, "reminded", "tg"),
        (7200, "reminded", "tg"),
        (10800, "reminded", "tg"),
    ]
    assert document["shown"][2]["when"] == "after 10 min (Wed 12:10)"


def test_in_quiet_hours_the_inbox_shows_it_and_the_rest_comes_in_the_morning() -> None:
    lines = story(told(Facts(kind="question", repo="shop"), now="2026-06-10T23:00"))
    assert lines[:4] == [
        (0, "shown", "web"),
        (8 * 3600, "shown", "tg"),
        (8 * 3600, "fallback", "slack"),
        (8 * 3600 + 600, "reminded", "tg"),
    ]


def test_reminders_of_one_night_are_one_in_the_morning() -> None:
    lines = story(told(Facts(kind="question", repo="shop"), now="2026-06-10T21:55"))
    morning_s = 9 * 3600 + 5 * 60
    assert [line for line in lines if line[1] == "reminded"] == [(morning_s, "reminded", "tg")]


def test_a_permission_with_a_deadline_passes_the_night_and_ends_in_time() -> None:
    document = explain(
        ground(now="2026-06-10T23:00"), Facts(kind="permission", repo="shop"), 1000.0
    )
    assert story(document) == [
        (0, "shown", "web tg"),
        (0, "fallback", "slack"),
        (600, "reminded", "tg"),
        (900, "escalated", "bob slack"),
        (1000, "deadline", ""),
    ]


def test_with_a_hub_what_does_not_hear_is_said_and_stood_in_for() -> None:
    document = told(Facts(kind="question", repo="shop"), away={"tg": "no network"})
    assert story(document)[0] == (0, "shown", "web slack")
    assert {"name": "tg", "hears": False, "reason": "no network"} in document["channels"]


def test_who_may_answer_and_what_it_takes() -> None:
    answer = told(Facts(kind="permission", tags=("prod",)))["answer"]
    assert [(one["name"], one["because"]) for one in answer["people"]] == [
        ("ada", "role:ops"),
        ("bob", "bob"),
    ]
    assert (answer["needed"], answer["veto"], answer["exclude_asker"], answer["enough"]) == (
        2,
        True,
        True,
        True,
    )
    everybody = told(Facts(kind="question"))["answer"]["people"]
    # Who may only look is not among them.
    assert [one["name"] for one in everybody] == ["ada", "bob"]


def test_the_owner_is_whoever_asks() -> None:
    text = CONFIG.replace("[policy]\n", '[policy]\nanswer_by = ["owner"]\n')
    assert [
        one["name"] for one in told(Facts(kind="question"), text=text)["answer"]["people"]
    ] == ["ada"]


def test_too_few_people_are_told() -> None:
    text = CONFIG.replace("quorum = 2", "quorum = 3")
    assert (
        told(Facts(kind="permission", tags=("prod",)), text=text)["answer"]["enough"] is False
    )


def test_presence_is_said_with_its_bound() -> None:
    text = CONFIG.replace("[policy]\n", '[policy]\npresence = "tty"\npresence_delay = "90s"\n')
    (line,) = [
        one
        for one in told(Facts(kind="question"), text=text)["shown"]
        if one["what"] == "delayed"
    ]
    assert line["note"] == "at most 1 min 30 s later while somebody is at this computer"


@pytest.mark.parametrize(
    ("number", "words"),
    [(None, "default"), (0, "[policy]"), (1, "route 1"), (2, "route 2 (repo=a host=b)")],
)
def test_where_a_value_comes_from(number: int | None, words: str) -> None:
    policy = Policy(
        routes=(Route(terms=Terms(quorum=1)), Route(match=Match(repo="a", host="b")))
    )
    assert source_words(policy, number) == words
