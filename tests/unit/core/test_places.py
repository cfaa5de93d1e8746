"""Where an ask belongs: routes, stand-ins for channels that are away, and escalation."""

import pytest

from upcall.core.places import Stand, places
from upcall.model.policy import Rules

WEB = Stand("web", local=True, well=True)


def there(name: str, card: str = "none") -> Stand:
    return Stand(name, local=False, well=True, card=card)  # type: ignore[arg-type]  # a test's own


def away(name: str, card: str = "none") -> Stand:
    return Stand(name, local=False, well=False, card=card)  # type: ignore[arg-type]


def rules(*channels: str, fallback: tuple[str, ...] = ()) -> Rules:
    return Rules(channels=channels or None, fallback=fallback)


@pytest.mark.parametrize(
    ("given", "stands", "shown"),
    [
        # Without a route: everywhere.
        (rules(), [WEB, there("tg"), away("slack")], "web tg slack"),
        # A route is exact: what it does not name does not show it, the inbox included.
        (rules("tg"), [WEB, there("tg"), there("slack")], "tg"),
        (rules("web", "tg"), [WEB, there("tg"), there("slack")], "web tg"),
        # A name that is not open is no place.
        (rules("gone", "tg"), [WEB, there("tg")], "tg"),
        # A stand-in is for when none of the first ones hears.
        (rules("tg", fallback=("slack",)), [there("tg"), there("slack")], "tg"),
        (
            rules("tg", "mx", fallback=("slack",)),
            [away("tg"), there("mx"), there("slack")],
            "tg mx",
        ),
        (rules("tg", fallback=("slack",)), [away("tg", "posting"), there("slack")], "slack"),
        (rules("tg", fallback=("slack",)), [there("tg", "dead"), there("slack")], "tg slack"),
        # What was posted before the channel went away stays.
        (rules("tg", fallback=("slack",)), [away("tg", "shown"), there("slack")], "tg slack"),
        # In order, and past those that are away too.
        (
            rules("tg", fallback=("mx", "slack")),
            [away("tg"), away("mx"), there("slack")],
            "slack",
        ),
        (
            rules("tg", fallback=("mx", "slack")),
            [away("tg"), there("mx"), there("slack")],
            "mx",
        ),
        # Nobody is left: it stays where it belongs.
        (rules("tg", fallback=("slack",)), [away("tg"), away("slack")], "tg"),
        # The inbox rings nobody, so it does not count as hearing; it goes on showing it.
        (
            rules("web", "tg", fallback=("slack",)),
            [WEB, away("tg"), there("slack")],
            "web slack",
        ),
        # The first one came back: the ask stays where it is, once.
        (rules("tg", fallback=("slack",)), [there("tg"), there("slack", "shown")], "slack"),
        (
            rules("tg", fallback=("slack",)),
            [there("tg", "posting"), there("slack", "shown")],
            "slack",
        ),
        # Where it went is away as well: back to the first, or on to the next.
        (rules("tg", fallback=("slack",)), [there("tg"), away("slack", "shown")], "slack tg"),
        (
            rules("tg", fallback=("mx", "slack")),
            [away("tg"), away("mx", "shown"), there("slack")],
            "mx slack",
        ),
    ],
)
def test_where_an_ask_belongs(given: Rules, stands: list[Stand], shown: str) -> None:
    wanted, _ = places(given, (), stands)
    assert wanted == set(shown.split())


def test_a_card_that_has_not_gone_out_is_taken_back_when_the_ask_moves() -> None:
    given = rules("tg", fallback=("slack",))
    assert places(given, (), [away("tg", "posting"), there("slack")])[1] == {"tg"}
    # One that stands there is not: it is edited like any other.
    assert places(given, (), [away("tg", "shown"), there("slack")])[1] == set()


def test_steps_of_escalation_add_channels_whatever_the_route_says() -> None:
    wanted, left = places(rules("tg"), ("slack", "gone"), [WEB, there("tg"), away("slack")])
    assert wanted == {"tg", "slack"}
    assert left == set()


def test_a_step_of_escalation_that_names_the_first_channel_brings_it_back() -> None:
    given = rules("tg", fallback=("slack",))
    wanted, left = places(given, ("tg",), [there("tg"), there("slack", "shown")])
    assert wanted == {"tg", "slack"}
    assert left == set()
