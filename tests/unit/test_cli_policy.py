"""What `upcall policy explain` says, in words."""

import pytest

from upcall.cli.policy import answer_words, lines, of_config, value_words
from upcall.config import parse

CONFIG = """
[channels.tg]
[operators.ada]
identities = { tg = "1" }
[operators.bob]
identities = { tg = "2" }
[policy]
channels = ["web", "tg"]
fallback = ["terminal"]
quorum = 2
veto = true
escalate = [{ after = "15m", people = ["bob"] }]
quiet_hours = { from = "00:00", to = "23:59", zone = "UTC" }
reminders = []
"""


def said(text: str = CONFIG, **sample: object) -> list[str]:
    return lines(of_config(parse(text.encode(), "c.toml"), {"class": "permission", **sample}))


def test_a_sample_is_told_line_by_line() -> None:
    told = said(host="box", repo="shop", timeout_s=600.0, tags=["prod"])
    assert told[0] == "a permission (repo shop, host box, tag prod, time limit 10 min):"
    assert told[3:6] == [
        "  now: in inbox, tg",
        "  now: in watch instead, if none of them hears for 30 s",
        told[5],
    ]
    assert told[5].startswith("  after 10 min (")
    assert told[5].endswith("): the time limit: it ends without an answer")
    assert "answered by: 2 of ada, bob; one refusal ends it; not whoever asks" in told
    assert "  quiet_hours    00:00-23:59 UTC  [policy]" in told
    assert "  escalate       15 min: bob      [policy]" in told


def test_a_night_is_said() -> None:
    told = said(host="box")
    assert told[3] == "  now: in inbox"
    assert told[4].endswith("in tg (quiet hours end)")


def test_too_few_people_are_shouted() -> None:
    told = of_config(parse(CONFIG.replace("quorum = 2", "quorum = 3").encode(), "c.toml"), {})
    assert answer_words(told).endswith("- NOT ENOUGH: 2 of 3 may answer")


def test_what_a_person_wrote_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in "".join(said(repo="\x1b[2J", host="box"))


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "-"), (True, "yes"), (False, "no"), (2, "2"), ([], "none"),
     ([600.0, 3600.0], "10 min, 1 h"),
     (["a", "b"], "a, b"), ("lean", "lean"), ({"never": True}, "none"),
     ([{"after_s": 60.0, "people": ["x"], "channels": ["y"]}], "1 min: x y")],
)  # fmt: skip
def test_values_in_words(value: object, words: str) -> None:
    assert value_words(value) == words
