"""The view: changes come as one, and what has ended is still shown with its session."""

import asyncio
from collections.abc import Iterator

import pytest

from fakes.clock import FakeClock
from fakes.hub_rig import ADA, Heart, ask_id, asker
from fakes.hub_shells import short_folder
from upcall.hub.files import SessionFiles
from upcall.hub.view import Changes, HubView
from upcall.model.events import CancelAsked, PersonActed
from upcall.model.ids import SessionId
from upcall.model.platform import Answered, LoginKept, SettingKept
from upcall.model.rows import NoticeRow, SessionRow
from upcall.model.views import HealthView

pytestmark = pytest.mark.asyncio

FILE_ID = "0123456789abcdef0123456789abcdef"
HEALTH = HealthView(
    ready=True,
    degraded=(),
    channels=(),
    sessions=0,
    open_asks=0,
    deliveries_waiting=0,
    started_ms=0,
)


@pytest.fixture
def folder() -> Iterator[str]:
    with short_folder() as path:
        yield path


class Rig(Heart):
    """A heart with a view of the channel `web`."""

    def __init__(self, folder: str) -> None:
        super().__init__(f"{folder}/hub.db", FakeClock())
        self.changes = Changes()
        self.files = SessionFiles(folder)
        self.view = HubView(
            "web",
            self.kernel,
            self.store,
            self.changes,
            lambda: HEALTH,
            self.files,
            self.clock.wall_ms,
        )

    async def ended_ask(self, number: int) -> None:
        """Raise an ask and withdraw it; its session ends with it."""
        self.raise_ask(number, asker=asker(name=f"job-{number}", title=f"Job {number}"))
        self.loop.submit(CancelAsked(at=self.loop.moment(), waiter=900, ask_id=ask_id(number)))
        await self.loop.settled()
        await self.clock.advance(1.0)

    async def notice(self, number: int, **fields: str) -> None:
        row = NoticeRow(
            id=number, session_id=SessionId("s1"), kind="info", text="text", at_ms=5, **fields
        )
        session = SessionRow(session_id=SessionId("s1"), kind="sdk", conversation="c")
        await self.store.commit([session, row])


@pytest.fixture
def rig(folder: str) -> Rig:
    return Rig(folder)


# --- changes ---


async def test_a_follower_hears_at_once_and_then_of_each_change() -> None:
    changes = Changes()
    follower = changes.follow()
    assert await anext(follower) == 0
    changes.bump()
    assert await anext(follower) == 1
    waiting = asyncio.ensure_future(anext(follower))
    await FakeClock().settle()
    assert not waiting.done()
    changes.bump()
    assert await waiting == 2


async def test_changes_in_a_burst_come_as_one() -> None:
    changes = Changes()
    follower = changes.follow()
    await anext(follower)
    for _ in range(100):
        changes.bump()
    assert await anext(follower) == 100
    waiting = asyncio.ensure_future(anext(follower))
    await FakeClock().settle()
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_change_while_a_follower_is_busy_is_not_missed() -> None:
    changes = Changes()
    follower = changes.follow()
    seen = []
    async for number in follower:
        seen.append(number)
        if number < 3:
            changes.bump()
        else:
            break
    assert seen == [0, 1, 2, 3]


async def test_every_follower_hears_and_one_that_leaves_is_forgotten() -> None:
    changes = Changes()
    one, two = changes.follow(), changes.follow()
    assert (await anext(one), await anext(two)) == (0, 0)
    await one.aclose()  # type: ignore[attr-defined]  # it is a generator
    changes.bump()
    assert await anext(two) == 1
    assert len(changes._waiting) == 1


# --- what is shown ---


async def test_open_asks_are_shown_oldest_first_and_ended_ones_by_id(rig: Rig) -> None:
    async with rig.running():
        rig.raise_ask(2)
        await rig.loop.settled()
        await rig.clock.advance(1.0)
        rig.raise_ask(1)
        await rig.ended_ask(3)
        assert [view.id for view in rig.view.open_asks()] == [ask_id(2), ask_id(1)]
        ended = rig.view.ask(ask_id(3))
        assert ended is not None
        assert ended.outcome == "cancelled"
        assert rig.view.ask(ask_id(4)) is None
        assert {view.state for view in rig.view.sessions()} == {"attached"}
        assert rig.view.health() is HEALTH


async def test_history_shows_sessions_that_ended_long_ago(folder: str) -> None:
    former = Rig(folder)
    async with former.running():
        await former.ended_ask(1)
    rig = Rig(folder)
    async with rig.running():
        rig.kernel._state.ended.clear()
        assert rig.kernel.session(former.row().session_id) is None
        [view] = await rig.view.history(None, 10)
        assert view.session.title == "Job 1"
        assert view.session.state == "gone"


async def test_history_is_newest_first_and_pages_by_time(rig: Rig) -> None:
    async with rig.running():
        for number in (1, 2, 3):
            await rig.ended_ask(number)
        newest = await rig.view.history(None, 2)
        assert [view.id for view in newest] == [ask_id(3), ask_id(2)]
        older = await rig.view.history(newest[-1].closed_ms, 2)
        assert [view.id for view in older] == [ask_id(1)]


async def test_notices_are_newest_first(rig: Rig) -> None:
    async with rig.running():
        for number in (1, 2, 3):
            await rig.notice(number)
        assert [notice.id for notice in await rig.view.notices(2)] == [3, 2]


# --- files ---


async def test_a_file_comes_with_name_and_type(rig: Rig) -> None:
    async with rig.running():
        rig.files.keep("s1", FILE_ID, b"content")
        await rig.notice(1, file_id=FILE_ID, file_name="log.txt", mime="text/plain")
        assert await rig.view.file(FILE_ID) == ("log.txt", "text/plain", b"content")


async def test_a_file_without_name_and_type_gets_neutral_ones(rig: Rig) -> None:
    async with rig.running():
        rig.files.keep("s1", FILE_ID, b"content")
        await rig.notice(1, file_id=FILE_ID)
        assert await rig.view.file(FILE_ID) == ("file", "application/octet-stream", b"content")


@pytest.mark.parametrize("asked", ["../hub.db", "", "f" * 32, FILE_ID.upper()])
async def test_what_no_notice_names_is_not_read(rig: Rig, asked: str) -> None:
    async with rig.running():
        rig.files.keep("s1", "f" * 32, b"content")
        await rig.notice(1, file_id=FILE_ID)
        assert await rig.view.file(asked) is None


async def test_a_file_that_was_removed_is_none(rig: Rig) -> None:
    async with rig.running():
        await rig.notice(1, file_id=FILE_ID)
        assert await rig.view.file(FILE_ID) is None


# --- what the adapter keeps ---


async def test_settings_are_those_of_the_channel(rig: Rig) -> None:
    async with rig.running():
        await rig.receipts.put("web", SettingKept("port", "4711"))
        await rig.receipts.put("chat", SettingKept("cursor", "5"))
        assert rig.view.settings() == {"port": "4711"}


async def test_logins_are_loaded_kept_and_forgotten(rig: Rig) -> None:
    now_ms = rig.clock.wall_ms()
    old = LoginKept(digest="old", kind="login", expires_ms=now_ms + 1000)
    new = LoginKept(digest="new", kind="code", expires_ms=now_ms + 60_000)
    async with rig.running():
        await rig.receipts.put("web", old)
        await rig.receipts.put("chat", new)
        await rig.view.load()
        assert rig.view.logins() == [old]
        rig.view.keep_login(new)
        assert rig.view.logins() == [old, new]
        await rig.clock.advance(1.0)
        assert rig.view.logins() == [new]
        rig.view.keep_login(LoginKept(digest="new", kind="code", gone=True))
        assert rig.view.logins() == []


async def test_a_login_without_an_end_is_none_as_in_the_store(rig: Rig) -> None:
    async with rig.running():
        endless = LoginKept(digest="endless", kind="login")
        await rig.receipts.put("web", endless)
        rig.view.keep_login(endless)
        assert rig.view.logins() == []
        assert await rig.store.logins("web", rig.clock.wall_ms()) == []


async def test_the_view_shows_who_answered(rig: Rig) -> None:
    async with rig.running():
        rig.raise_ask()
        act = Answered(key="k", ask=ask_id(1), revision=None, who=ADA, indices=(1,))
        rig.loop.submit(PersonActed(at=rig.loop.moment(), channel="web", inbound=act))
        await rig.loop.settled()
        view = rig.view.ask(ask_id(1))
        assert view is not None
        assert view.answered_by is not None
        assert view.answered_by.channel == "web"
