"""The inbox: what an adapter hands in is committed before it hears so."""

import asyncio
from collections.abc import Iterator

import pytest

from fakes.clock import FakeClock
from fakes.hub_rig import ADA, Heart, ask_id
from fakes.hub_shells import short_folder
from upcall.hub.inbox import ChannelInbox
from upcall.model.events import ChannelChanged, Event
from upcall.model.platform import Answered, ChannelState, LoginKept, SettingKept

pytestmark = pytest.mark.asyncio

LOGIN = LoginKept(digest="d1", kind="login", expires_ms=1_900_000_000_000)


@pytest.fixture
def path() -> Iterator[str]:
    with short_folder() as folder:
        yield f"{folder}/hub.db"


class Rig(Heart):
    """A heart with the inbox of the channel `web`."""

    def __init__(self, path: str) -> None:
        super().__init__(path, FakeClock())
        self.logins: list[LoginKept] = []
        self.inbox = ChannelInbox(
            "web", self.receipts, self.loop.submit, self.loop.moment, self.logins.append
        )


@pytest.fixture
def rig(path: str) -> Rig:
    return Rig(path)


def answer(key: str = "k1", index: int = 0) -> Answered:
    return Answered(key=key, ask=ask_id(1), revision=None, who=ADA, indices=(index,))


async def test_put_returns_after_the_commit(rig: Rig) -> None:
    async with rig.running():
        rig.raise_ask()
        await rig.loop.settled()
        rig.hold_commits()
        begun = rig.commits_begun
        put = asyncio.create_task(rig.inbox.put(answer()))
        await rig.until(lambda: rig.commits_begun > begun)
        await rig.clock.settle()
        assert not put.done()
        stored = await rig.store.ask(ask_id(1))
        assert stored is not None
        assert stored.state == "open"
        rig.let_commit()
        receipt = await put
        assert receipt.ok
        stored = await rig.store.ask(ask_id(1))
        assert stored is not None
        assert stored.answer is not None
        assert stored.answer.labels == ("yes",)


async def test_a_repeat_with_the_same_key_is_the_same_act(rig: Rig) -> None:
    async with rig.running():
        rig.raise_ask()
        first = await rig.inbox.put(answer())
        commits = rig.store.commits
        again = await rig.inbox.put(answer())
        assert first.ok
        assert again.ok
        assert rig.store.commits == commits


async def test_the_second_answer_is_told_who_was_first(rig: Rig) -> None:
    async with rig.running():
        rig.raise_ask()
        receipts = await asyncio.gather(
            rig.inbox.put(answer("k1", 0)), rig.inbox.put(answer("k2", 1))
        )
        assert [receipt.ok for receipt in receipts] == [True, False]
        assert receipts[1].code == "already_answered"
        assert receipts[1].result is not None
        assert receipts[1].result.answer is not None
        assert receipts[1].result.answer.labels == ("yes",)


async def test_who_stops_waiting_does_no_harm_and_the_act_goes_on(rig: Rig) -> None:
    async with rig.running():
        rig.raise_ask()
        await rig.loop.settled()
        rig.hold_commits()
        begun = rig.commits_begun
        put = asyncio.create_task(rig.inbox.put(answer()))
        await rig.until(lambda: rig.commits_begun > begun)
        put.cancel()
        await asyncio.gather(put, return_exceptions=True)
        rig.let_commit()
        await rig.loop.settled()
        assert rig.row().outcome == "answered"
        assert (await rig.inbox.put(answer("k2", 1))).code == "already_answered"


async def test_a_login_is_known_only_after_its_commit(rig: Rig) -> None:
    async with rig.running():
        rig.hold_commits()
        begun = rig.commits_begun
        put = asyncio.create_task(rig.inbox.put(LOGIN))
        await rig.until(lambda: rig.commits_begun > begun)
        assert rig.logins == []
        rig.let_commit()
        assert (await put).ok
        assert rig.logins == [LOGIN]
        assert await rig.store.logins("web", 0) == [LOGIN]


async def test_a_sign_out_counts_even_if_the_browser_did_not_wait_for_it(rig: Rig) -> None:
    async with rig.running():
        gone = LoginKept(digest="d1", kind="login", gone=True)
        await rig.inbox.put(LOGIN)
        rig.hold_commits()
        begun = rig.commits_begun
        put = asyncio.create_task(rig.inbox.put(gone))
        await rig.until(lambda: rig.commits_begun > begun)
        put.cancel()
        await asyncio.gather(put, return_exceptions=True)
        rig.let_commit()
        await rig.loop.settled()
        assert rig.logins == [LOGIN, gone]
        assert await rig.store.logins("web", 0) == []


async def test_an_answer_to_an_ask_of_a_former_life_is_told_how_it_ended(path: str) -> None:
    former = Rig(path)
    async with former.running():
        former.raise_ask()
        await former.inbox.put(answer())
    rig = Rig(path)
    async with rig.running():
        # More asks have ended since than are kept in memory.
        rig.kernel._state.closed.clear()
        receipt = await rig.inbox.put(answer("k2", 1))
        assert (receipt.ok, receipt.code) == (False, "already_answered")
        assert "yes" in receipt.msg


async def test_an_answer_to_an_unknown_ask_is_refused(rig: Rig) -> None:
    async with rig.running():
        assert (await rig.inbox.put(answer())).code == "unknown_ask"


async def test_a_setting_is_kept_and_dropped(rig: Rig) -> None:
    async with rig.running():
        await rig.inbox.put(SettingKept("cursor", "41"))
        assert rig.kernel.kept("web") == {"cursor": "41"}
        await rig.inbox.put(SettingKept("cursor", None))
        assert rig.kernel.kept("web") == {}
    again = Rig(rig.store.path)
    async with again.running():
        assert again.kernel.kept("web") == {}


async def test_the_channels_word_on_itself_goes_to_the_kernel() -> None:
    events: list[Event] = []
    with short_folder() as folder:
        rig = Rig(f"{folder}/hub.db")
        inbox = ChannelInbox("web", rig.receipts, events.append, rig.loop.moment, print)
        inbox.state(ChannelState(hearing=True, audience=2, reason=None))
        await rig.store.close()
    assert events == [
        ChannelChanged(
            at=rig.loop.moment(), channel="web", hearing=True, audience=2, reason=None
        )
    ]
