"""The tables of the file that say who is asked, who may answer and when."""

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from upcall.config import Config, parse
from upcall.core.rules import Facts, fits, rules_for
from upcall.model.errors import ConfigInvalid
from upcall.model.policy import REMINDERS_S, Match, Policy, QuietHours, Route, Terms
from upcall.model.tags import TAG_RULE, sendable_tags
from upcall.policy_config import policy_of, read_duration

POLICIES = sorted((Path(__file__).parents[2] / "config" / "policies").glob("*.toml"))


def read(text: str) -> Config:
    return parse(text.encode(), "c.toml")


def policy(text: str) -> Policy:
    config = read(text)
    return policy_of(config.policy, config.routes)


def refused(text: str) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        read(text)
    return caught.value.msg


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[policy]\nquorum = 0\n', "between 1 and 20"),
        ('[policy]\nchannels = []\n', "shown nowhere"),
        ('[policy]\nanswer_by = []\n', "nobody could answer"),
        ('[policy]\nreminders = ["10m", "10m"]\n', "each comes later"),
        ('[policy]\nreminders = ["1h", "10m"]\n', "each comes later"),
        ('[policy]\nreminders = ["often"]\n', "is no duration"),
        ('[policy]\ndeadline = "later"\n', "deadline: 'later' is no duration"),
        ("[policy]\ndeadline = 0\n", "deadline: a duration is more than 0"),
        ('[policy]\nescalate = [{ after = "5m" }]\n', "names channels or people"),
        ('[policy]\nescalate = [{ after = "5m", channels = ["web"] },'
         ' { after = "1m", channels = ["web"] }]\n', "each comes later"),
        ('[policy]\nescalate = [{ channels = ["web"] }]\n', "after"),
        ('[policy]\nquiet_hours = { from = "22", to = "07:00" }\n', "no time of day"),
        ('[policy]\nquiet_hours = { from = "22:00", to = "24:01" }\n', "no time of day"),
        ('[policy]\nquiet_hours = { from = "22:00", to = "22:00" }\n', "are the same"),
        ('[policy]\nquiet_hours = { from = "22:00", to = "07:00", zone = "Mars/One" }\n',
         "no time zone"),
        ('[policy]\nquiet_hours = { from = "22:00", to = "07:00", zone = "../etc/passwd" }\n',
         "no time zone"),
        ('[policy]\nquiet_hours = true\n', "a table, or false"),
        ('[policy]\nverbosity = "loud"\n', "verbosity"),
        ('[policy]\npresence = "file"\n', "needs presence_file"),
        ('[policy]\nchannels = ["telegramm"]\n', "nowhere configured"),
        ('[[route]]\nrepos = "x"\n', "did you mean 'repo'"),
        ('[[route]]\nkind = "secret"\n', "kind"),
        ('[[route]]\nanswer_by = ["role:nobody"]\n', "nowhere configured"),
        ('[[route]]\nescalate = [{ after = "5m", people = ["eve"] }]\n', "nowhere configured"),
        ('[route]\nrepo = "x"\n', "[[route]]"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_name(text: str, words: str) -> None:
    assert words in refused(text)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1d", 86400), (45, 45), ("1.5h", 5400),
     ("250ms", 0.25), (" 5m ", 300)],
)  # fmt: skip
def test_durations(given: str | float, seconds: float) -> None:
    assert read_duration("x", given) == seconds


@pytest.mark.parametrize(
    "given", ["", "5", "m", "-5m", "5 m", "1y", float("nan"), float("inf"), 0, -1, "366d"]
)
def test_what_is_no_duration(given: str | float) -> None:
    with pytest.raises(ValueError, match="x: "):
        read_duration("x", given)


def test_the_first_route_that_says_something_decides_key_by_key() -> None:
    found = policy(
        '[policy]\nquorum = 3\nveto = true\n'
        '[[route]]\ntag = "a"\nquorum = 2\n'
        '[[route]]\nrepo = "s*"\nquorum = 1\nreminders = []\n'
    )  # fmt: skip
    rules = rules_for(found, Facts(kind="question", repo="shop", tags=("b", "a")))
    assert (rules.quorum, rules.reminders_s, rules.veto) == (2, (), True)
    assert rules.sources == {"quorum": 1, "reminders_s": 2, "veto": 0}
    plain = rules_for(policy(""), Facts(kind="question"))
    assert (plain.reminders_s, plain.sources) == (REMINDERS_S, {})


def test_a_quorum_leaves_whoever_asks_out_unless_it_is_said() -> None:
    two = Policy(defaults=Terms(quorum=2))
    assert rules_for(two, Facts(kind="question")).exclude_asker is True
    said = Policy(defaults=Terms(quorum=2, exclude_asker=False))
    assert rules_for(said, Facts(kind="question")).exclude_asker is False


@pytest.mark.parametrize(
    ("match", "fit"),
    [
        (Match(), True),
        (Match(repo="shop"), True),
        (Match(repo="SHOP"), False),
        (Match(repo="sh?p"), True),
        (Match(repo="*", title="*"), False),  # a title that nobody gave fits no pattern
        (Match(tag="prod-*"), True),
        (Match(tag="*"), True),
        (Match(tag="dev*"), False),
        (Match(kind="permission"), False),
        (Match(host="b[ao]x"), True),
    ],
)
def test_a_route_fits_by_patterns(match: Match, fit: bool) -> None:
    facts = Facts(kind="question", repo="shop", host="box", tags=("x", "prod-eu"))
    assert fits(match, facts) is fit


def test_no_tag_fits_no_pattern_for_tags() -> None:
    assert not fits(Match(tag="*"), Facts(kind="question"))


def test_false_ends_the_quiet_hours_of_a_later_rule() -> None:
    found = policy(
        '[[route]]\ntag = "oncall"\nquiet_hours = false\n'
        '[policy]\nquiet_hours = { from = "22:00", to = "07:00", zone = "Asia/Tokyo" }\n'
    )
    oncall = rules_for(found, Facts(kind="question", tags=("oncall",)))
    assert oncall.quiet is not None
    assert oncall.quiet.never
    others = rules_for(found, Facts(kind="question"))
    assert others.quiet == QuietHours(
        from_min=1320, to_min=420, zone_name="Asia/Tokyo", zone=ZoneInfo("Asia/Tokyo")
    )
    assert found.routes == (Route(match=Match(tag="oncall"), terms=Terms(quiet=oncall.quiet)),)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.name)
def test_the_examples_are_valid(path: Path) -> None:
    config = parse(path.read_bytes(), str(path))
    assert policy_of(config.policy, config.routes) != Policy()


def test_there_are_examples() -> None:
    assert {path.stem for path in POLICIES} == {"one-person", "team", "night"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["a", "b", "a"], ("a", "b")),
        (["a b", "a,b", "", "a\nb", "a\x1bb", "x" * 65], ()),
        (["x" * 64, "é", "prod/eu:1"], ("x" * 64, "é", "prod/eu:1")),
        ([str(number) for number in range(20)], tuple(str(number) for number in range(16))),
    ],
)
def test_what_a_tag_is(given: list[str], kept: tuple[str, ...]) -> None:
    assert sendable_tags(given) == kept
    assert "16" in TAG_RULE
