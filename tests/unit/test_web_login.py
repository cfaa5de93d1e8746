"""Codes and logins: used once, kept as digests, ended in time."""

import asyncio
import os

import pytest

from fakes.web_hub import FakeHub
from upcall.model.errors import UsageError
from upcall.model.platform import LoginKept
from upcall_adapters.web.login import (
    CODE_LIFE_MS,
    LOGIN_IDLE_MS,
    LOGIN_LIFE_MS,
    LoginRefused,
    Logins,
    agent_words,
)

DAY_S = 86_400


def _logins(hub: FakeHub) -> Logins:
    return Logins(hub.clock, os.urandom, hub, hub.put)


@pytest.mark.asyncio
async def test_a_code_lets_one_browser_in_once_and_the_second_use_is_explained() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    code = await logins.make_link_code()
    secrets = await logins.redeem(code, "Firefox on Linux")
    assert logins.find(secrets.cookie, secrets.key) is not None
    hub.clock.advance(600)
    with pytest.raises(
        LoginRefused, match=r"already used 10 min ago by Firefox on Linux"
    ) as bad:
        await logins.redeem(code, "Chrome on Windows")
    assert bad.value.code == "code_used"
    assert "--sign-out-all" in (bad.value.recover or "")


@pytest.mark.asyncio
async def test_two_uses_of_a_code_at_the_same_time_let_one_in() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    code = await logins.make_link_code()
    results = await asyncio.gather(
        *(logins.redeem(code, "x") for _ in range(5)), return_exceptions=True
    )
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert len(logins.all()) == 1


@pytest.mark.asyncio
async def test_a_code_is_good_for_five_minutes() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    code = await logins.make_link_code()
    late = await logins.make_link_code()
    hub.clock.advance(CODE_LIFE_MS / 1000 - 1)
    await logins.redeem(code, "x")
    hub.clock.advance(1)
    with pytest.raises(LoginRefused) as bad:
        await logins.redeem(late, "x")
    assert bad.value.code == "code_expired"
    with pytest.raises(LoginRefused) as bad:
        await logins.redeem("nonsense", "x")
    assert bad.value.code == "code_unknown"


@pytest.mark.asyncio
async def test_no_secret_is_ever_handed_to_the_hub() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    code = await logins.make_link_code()
    secrets = await logins.redeem(code, "x")
    told = repr(hub.events)
    assert hub.events
    assert all(secret not in told for secret in (code, secrets.cookie, secrets.key))
    assert secrets.key not in repr(secrets)


@pytest.mark.asyncio
async def test_cookie_and_key_are_worth_nothing_without_each_other() -> None:
    logins = _logins(FakeHub())
    first = await logins.redeem(await logins.make_link_code(), "a")
    second = await logins.redeem(await logins.make_link_code(), "b")
    for cookie, key in (
        (first.cookie, None), (first.cookie, ""), (first.cookie, second.key), (None, first.key),
        ("", first.key), (first.key, first.cookie),
    ):  # fmt: skip
        assert logins.find(cookie, key) is None
    assert logins.known_cookie(first.cookie) is not None


@pytest.mark.asyncio
async def test_a_login_ends_after_seven_days_unused() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    secrets = await logins.redeem(await logins.make_link_code(), "a")
    hub.clock.advance(LOGIN_IDLE_MS / 1000 - 1)
    assert logins.find(secrets.cookie, secrets.key) is not None
    hub.clock.advance(1)
    assert logins.find(secrets.cookie, secrets.key) is None


@pytest.mark.asyncio
async def test_a_used_login_lives_on_but_not_over_thirty_days() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    secrets = await logins.redeem(await logins.make_link_code(), "a")
    for _ in range(29):
        hub.clock.advance(DAY_S)
        login = logins.find(secrets.cookie, secrets.key)
        assert login is not None
        await logins.touch(login)
    hub.clock.advance(LOGIN_LIFE_MS / 1000 - 29 * DAY_S)
    assert logins.find(secrets.cookie, secrets.key) is None


@pytest.mark.asyncio
async def test_use_is_written_down_at_most_once_an_hour() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    secrets = await logins.redeem(await logins.make_link_code(), "a")
    before = len(hub.events)
    for _ in range(3):
        login = logins.find(secrets.cookie, secrets.key)
        assert login is not None
        await logins.touch(login)
    assert len(hub.events) == before
    hub.clock.advance(3600)
    login = logins.find(secrets.cookie, secrets.key)
    assert login is not None
    await logins.touch(login)
    assert len(hub.events) == before + 1


@pytest.mark.asyncio
async def test_a_browser_is_let_in_by_the_four_characters_it_shows() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    code, poll = logins.start_waiting("Chrome on Android")
    assert len(code) == 4
    assert await logins.wait(poll, 0) is None
    assert [(one.code, one.agent) for one in logins.waiting()] == [(code, "Chrome on Android")]
    with pytest.raises(UsageError, match="no browser"):
        logins.approve("????")
    logins.approve(code.lower())
    assert logins.waiting() == []
    secrets = await logins.wait(poll, 0)
    assert secrets is not None
    assert logins.find(secrets.cookie, secrets.key) is not None
    with pytest.raises(LoginRefused):
        await logins.wait(poll, 0)


@pytest.mark.asyncio
async def test_a_waiting_browser_hears_at_once() -> None:
    logins = _logins(FakeHub())
    code, poll = logins.start_waiting("x")
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(logins.wait(poll, 20))
        await asyncio.sleep(0)
        logins.approve(code)
    assert waiting.result() is not None


@pytest.mark.asyncio
async def test_browsers_wait_five_minutes_and_not_without_number() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    shown = [logins.start_waiting("x") for _ in range(16)]
    assert len({code for code, _ in shown}) == 16
    with pytest.raises(LoginRefused, match="too many"):
        logins.start_waiting("x")
    hub.clock.advance(CODE_LIFE_MS / 1000 + 1)
    with pytest.raises(UsageError):
        logins.approve(shown[0][0])
    with pytest.raises(LoginRefused, match="no longer"):
        await logins.wait(shown[0][1], 0)
    logins.start_waiting("x")


@pytest.mark.asyncio
async def test_signing_out_everywhere_ends_logins_codes_and_waiting_browsers() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    secrets = await logins.redeem(await logins.make_link_code(), "a")
    code = await logins.make_link_code()
    shown, _ = logins.start_waiting("x")
    assert await logins.sign_out_all() == 1
    assert logins.find(secrets.cookie, secrets.key) is None
    with pytest.raises(LoginRefused):
        await logins.redeem(code, "x")
    with pytest.raises(UsageError):
        logins.approve(shown)


@pytest.mark.asyncio
async def test_the_list_of_logins_holds_nothing_that_lets_anybody_in() -> None:
    hub = FakeHub()
    logins = _logins(hub)
    secrets = await logins.redeem(await logins.make_link_code(), "Firefox on Linux")
    (row,) = logins.listed(lambda digest: 1)
    assert row["agent"] == "Firefox on Linux"
    assert row["pages"] == 1
    kept = [event for event in hub.events if isinstance(event, LoginKept)]
    assert kept[-1].digest.startswith(row["id"])
    assert len(row["id"]) == 8
    assert secrets.key not in repr(row)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
            "Firefox on Linux",
        ),
        (
            "Mozilla/5.0 (Linux; Android 15) Chrome/140 Mobile Safari/537.36",
            "Chrome on Android",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Safari/604.1",
            "Safari on iPhone",
        ),
        ("curl/8.5\x1b[2J", "curl/8.5\\x1b[2J"),
        ("", "a program without a name"),
    ],
)
def test_browsers_are_named_in_few_words(agent: str, words: str) -> None:
    assert agent_words(agent) == words
