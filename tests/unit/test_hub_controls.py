"""The control socket's operations: answering by name, listing, and what is refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fakes.clock import FakeClock
from fakes.hub_rig import Heart, ask_id, asker
from fakes.hub_shells import short_folder
from upcall.hub.controls import CONFIRM_S, ControlRefused, Controls, Screens
from upcall.hub.letters import Letters
from upcall.hub.policies import Policies
from upcall.hub.redaction import Redactions
from upcall.hub.rights import Rights
from upcall.hub.store.erase import Forgotten, Wanted
from upcall.model.ask import AskSpec
from upcall.model.errors import HubError, UpcallError, UsageError
from upcall.model.events import AskRaised, CancelAsked, Took
from upcall.model.ids import ActionId, AskId, SessionId
from upcall.model.platform import Inbound, Receipt, SignsIn, Who
from upcall.model.rows import AskRow
from upcall.model.struct import replaced
from upcall.model.views import RefusedRecord, RootView

pytestmark = pytest.mark.asyncio

LOCAL = Who(identity="1000", name="ada", detail="pid 12, bash, pts/3", local=True, tty="pts/3")
PICK = AskSpec(question="Which?", options=("red", "green", "blue"), free_text=False)


def as_sent(fields: dict[str, Any]) -> dict[str, Any]:
    """Return *fields* as a client reads them."""
    read: dict[str, Any] = json.loads(json.dumps(fields))
    return read


class Inbox:
    """An adapter with logins of its own."""

    def __init__(self) -> None:
        self.did: list[tuple[str, str | None]] = []

    async def sign_in(self, action: str, browser: str | None) -> Mapping[str, Any]:
        self.did.append((action, browser))
        return {"url": "http://127.0.0.1:1/#code"}

    def url(self) -> str | None:
        return "http://127.0.0.1:1"


class Desk(Heart):
    """A heart with controls; what other shells do is only noted."""

    clock: FakeClock

    def __init__(self, path: str) -> None:
        super().__init__(path, FakeClock(), "web", "terminal")
        self.inbox: SignsIn | None = None
        self.root_changes: list[tuple[str, bool]] = []
        self.stopped = ""
        self.stays_down = False
        self.begun = ""
        self.outdated = False
        self.forgotten: Wanted | None = None
        loop = self.loop
        self.policies = Policies(self.kernel, loop.submit, loop.moment, loop.settled)
        self.redactions = Redactions(self.kernel, loop.submit, loop.moment, loop.settled)
        self.rights = Rights(self.kernel, loop.submit, loop.moment, loop.settled)
        self.letters = Letters(self.kernel, loop, self.store.ask)
        self.controls = Controls(self)

    async def put(self, channel: str, inbound: Inbound) -> Receipt:
        return await self.receipts.put(channel, inbound)

    def signs_in(self) -> SignsIn | None:
        return self.inbox

    def refused_records(self) -> list[RefusedRecord]:
        return [RefusedRecord("/r/x.json", "record_foreign", "not ours")]

    async def change_root(self, path: str, *, gone: bool) -> None:
        self.root_changes.append((path, gone))

    def root_views(self) -> list[RootView]:
        return [RootView("/home/ada/shop", 2)]

    def status(self) -> dict[str, Any]:
        return {"pid": 1}

    async def reload(self) -> dict[str, Any]:
        return {"changed": []}

    def ask_to_stop(self, reason: str, *, stays_down: bool = False) -> None:
        self.stopped = reason
        self.stays_down = stays_down

    async def forget(self, wanted: Wanted) -> Forgotten:
        self.forgotten = wanted
        return Forgotten(asks=list(wanted.asks))

    def begin_anew(self, reason: str) -> bool:
        self.begun = reason
        return True

    def is_outdated(self) -> bool:
        return self.outdated

    # --- what tests do ---

    async def do(self, op: str, **request: Any) -> dict[str, Any]:
        return await self.controls.do(op, request, LOCAL)

    async def answer(self, ask: str, *values: str, **request: Any) -> dict[str, Any]:
        found = await self.do("answer", ask=ask, values=list(values), **request)
        return as_sent(found["result"])

    async def refused(self, ask: str, *values: str, **request: Any) -> ControlRefused:
        with pytest.raises(ControlRefused) as caught:
            await self.answer(ask, *values, **request)
        caught.value.extra = as_sent(caught.value.extra)
        return caught.value

    async def asked(self, number: int = 1, spec: AskSpec = PICK, **fields: Any) -> None:
        self.raise_ask(number, spec, **fields)
        await self.loop.settled()

    async def listed(self, state: str, limit: int = 100) -> list[tuple[str, str]]:
        found = await self.do("asks", state=state, limit=limit)
        return [(view["id"], view["state"]) for view in found["asks"]]

    def withdraw(self, number: int) -> None:
        self.loop.submit(CancelAsked(at=self.loop.moment(), waiter=900, ask_id=ask_id(number)))


@asynccontextmanager
async def desk(path: str | None = None) -> AsyncIterator[Desk]:
    with short_folder() as folder:
        made = Desk(path or f"{folder}/hub.db")
        async with made.running():
            yield made


# --- answering ---


@pytest.mark.parametrize(
    ("value", "label"), [("green", "green"), ("GREEN ", "green"), ("#3", "blue")]
)
async def test_an_answer_is_given_by_label_or_number(value: str, label: str) -> None:
    async with desk() as hub:
        await hub.asked()
        result = await hub.answer(ask_id(1), value)
        assert result["outcome"] == "answered"
        assert result["answer"]["labels"] == [label]
        assert result["answered_by"] == {
            "name": "ada",
            "channel": "terminal",
            "detail": "pid 12, bash, pts/3",
        }


async def test_an_ask_is_named_by_id_by_prefix_and_by_action_id() -> None:
    async with desk() as hub:
        ids = ("abcd00000001", "abce00000002", "abcf00000003")
        for tail in ids:
            hub.loop.submit(
                AskRaised(
                    at=hub.loop.moment(),
                    waiter=1,
                    ask_id=AskId("a" + tail),
                    spec=PICK,
                    asker=asker(),
                )
            )
        await hub.loop.settled()
        assert (await hub.controls.find("a" + ids[0])).ask_id == "a" + ids[0]
        assert (await hub.controls.find("aabce")).ask_id == "a" + ids[1]
        assert (await hub.controls.find("ask:a" + ids[2])).ask_id == "a" + ids[2]


async def test_an_ambiguous_prefix_names_the_candidates() -> None:
    async with desk() as hub:
        for number in (1, 2, 30):
            await hub.asked(number)
        error = await hub.refused("a000000000", "red")
        assert error.code == "ambiguous_ask"
        assert sorted(error.extra["candidates"]) == [ask_id(1), ask_id(2), ask_id(30)]
        assert hub.row(1).state == "open"


async def test_a_prefix_prefers_the_one_open_ask() -> None:
    async with desk() as hub:
        for number in (1, 2, 3):
            await hub.asked(number)
        for number in (1, 3):
            hub.withdraw(number)
        await hub.loop.settled()
        await hub.answer("a0000000", "red")
        assert hub.row(2).outcome == "answered"


async def test_the_same_action_id_in_two_sessions_is_ambiguous_only_while_both_are_open() -> (
    None
):
    async with desk() as hub:
        for number in (1, 2):
            await hub.asked(number, asker=asker(name=f"s{number}"))
        for number in (1, 2):
            row = replaced(hub.row(number), action_id=ActionId("1"))
            hub.kernel._state.asks[row.ask_id] = row
        assert (await hub.refused("1", "red")).code == "ambiguous_ask"
        hub.withdraw(1)
        await hub.loop.settled()
        assert (await hub.controls.find("1")).ask_id == ask_id(2)


@pytest.mark.parametrize("name", ["a999", "a00", "", "%", "____", "a0000\x1b[31m", ask_id(9)])
async def test_an_unknown_ask_is_refused(name: str) -> None:
    async with desk() as hub:
        await hub.asked(1)
        error = await hub.refused(name, "red")
        assert error.code == "unknown_ask"
        assert "\x1b" not in error.msg
        assert hub.row(1).state == "open"


@pytest.mark.parametrize(
    ("values", "words"),
    [(("pink",), "pink"), (("#4",), "#4"), (("#0",), "#0"), (("red", "blue"), "one answer")],
)
async def test_a_value_that_the_ask_does_not_take_leaves_it_open(
    values: tuple[str, ...], words: str
) -> None:
    async with desk() as hub:
        await hub.asked()
        error = await hub.refused(ask_id(1), *values)
        assert error.code == "invalid_answer"
        assert words in error.msg
        assert hub.row(1).state == "open"


async def test_an_answer_to_another_revision_is_refused() -> None:
    async with desk() as hub:
        await hub.asked()
        assert (await hub.refused(ask_id(1), "red", revision="0" * 64)).code == "stale_card"
        await hub.answer(ask_id(1), "red", revision=hub.row(1).revision)


async def test_a_decline_is_an_outcome_of_its_own() -> None:
    async with desk() as hub:
        await hub.asked()
        result = await hub.answer(ask_id(1), decline=True)
        assert (result["outcome"], result["answer"]) == ("declined", None)


async def test_a_hold_stops_the_clock_and_does_not_answer() -> None:
    async with desk() as hub:
        await hub.asked(timeout_s=60.0)
        result = await hub.answer(ask_id(1), hold=True)
        assert result["outcome"] == "open"
        assert hub.row(1).held_s == 60.0
        await hub.answer(ask_id(1), hold=False)
        assert hub.row(1).held_s is None


async def test_who_comes_second_is_told_the_answer_that_won() -> None:
    async with desk() as hub:
        await hub.asked()
        await hub.answer(ask_id(1), "red")
        error = await hub.refused(ask_id(1), "blue")
        assert error.code == "already_answered"
        assert error.extra["result"]["answer"]["labels"] == ["red"]
        assert "red" in error.msg


async def test_who_comes_second_to_an_ask_of_a_former_life_is_told_as_well() -> None:
    with short_folder() as folder:
        async with desk(f"{folder}/hub.db") as former:
            await former.asked(1)
            await former.answer(ask_id(1), "red")
        async with desk(f"{folder}/hub.db") as hub:
            hub.kernel._state.closed.clear()
            for name in (ask_id(1), "a0000"):
                error = await hub.refused(name, "blue")
                assert error.code == "already_answered"
                assert error.extra["result"]["answer"]["labels"] == ["red"]
                assert "red" in error.msg


async def test_an_answer_waits_until_the_program_took_it() -> None:
    async with desk() as hub:
        await hub.asked(1, wait=True)
        answer = asyncio.create_task(hub.answer(ask_id(1), "red"))
        await hub.until(lambda: hub.row(1).state == "claimed")
        await hub.clock.settle()
        assert not answer.done()
        took = Took(at=hub.loop.moment(), waiter=50, ask_id=ask_id(1), who=LOCAL)
        hub.loop.submit(took)
        result = await answer
        assert (result["outcome"], result.get("reason")) == ("answered", None)


async def test_an_answer_that_the_program_does_not_take_is_told_as_on_its_way() -> None:
    async with desk() as hub:
        await hub.asked(1, wait=True)
        answer = asyncio.create_task(hub.answer(ask_id(1), "red"))
        await hub.until(lambda: hub.row(1).state == "claimed")
        await hub.clock.until_waited(CONFIRM_S)
        await hub.clock.advance(CONFIRM_S - 0.1)
        assert not answer.done()
        await hub.clock.advance(0.1)
        result = await answer
        assert result["outcome"] == "open"
        assert result["reason"] == "claimed, waiting for the program"
        # It goes on: the program takes it later, and that is no fault.
        hub.loop.submit(Took(at=hub.loop.moment(), waiter=50, ask_id=ask_id(1), who=LOCAL))
        await hub.loop.settled()
        assert hub.row(1).outcome == "answered"


async def test_while_one_answer_is_on_its_way_another_is_refused() -> None:
    async with desk() as hub:
        await hub.asked(1, wait=True)
        answer = asyncio.create_task(hub.answer(ask_id(1), "red"))
        await hub.until(lambda: hub.row(1).state == "claimed")
        error = await hub.refused(ask_id(1), "blue")
        assert error.code == "already_answered"
        hub.loop.submit(Took(at=hub.loop.moment(), waiter=50, ask_id=ask_id(1), who=LOCAL))
        assert (await answer)["answer"]["labels"] == ["red"]


async def test_a_program_without_a_terminal_cannot_answer_a_permission_ask() -> None:
    async with desk() as hub:
        permission = AskSpec(
            question="Run?", options=("yes", "no"), free_text=False, ask_class="permission"
        )
        await hub.asked(1, permission)
        act = {"ask": ask_id(1), "values": ["yes"]}
        with pytest.raises(ControlRefused) as caught:
            await hub.controls.do("answer", act, replaced(LOCAL, tty=None))
        assert caught.value.code == "self_answer"
        assert hub.row(1).state == "open"


# --- listing ---


async def test_asks_are_listed_by_state() -> None:
    async with desk() as hub:
        for number in (1, 2, 3):
            await hub.asked(number, asker=asker(name=f"s{number}"))
            await hub.clock.advance(1.0)
        await hub.answer(ask_id(2), "red")
        opened = [(ask_id(1), "open"), (ask_id(3), "open")]
        assert await hub.listed("open") == opened
        assert await hub.listed("closed") == [(ask_id(2), "closed")]
        assert await hub.listed("all") == [*opened, (ask_id(2), "closed")]
        assert await hub.listed("open", 1) == opened[:1]
        assert await hub.listed("all", 2) == opened


async def test_an_ask_that_ends_while_the_store_is_read_is_listed_once() -> None:
    async with desk() as hub:
        await hub.asked(1)
        await hub.asked(2)
        real = hub.store.closed_asks

        async def closing(before_ms: int | None, limit: int) -> list[AskRow]:
            await hub.answer(ask_id(1), "red")
            return await real(before_ms, limit)

        hub.store.closed_asks = closing  # type: ignore[method-assign]
        listed = await hub.listed("all")
        assert sorted(listed) == [(ask_id(1), "closed"), (ask_id(2), "open")]


async def test_an_ask_that_ends_just_after_the_store_was_read_is_listed_too() -> None:
    async with desk() as hub:
        await hub.asked(1)
        real = hub.store.closed_asks

        async def closing(before_ms: int | None, limit: int) -> list[AskRow]:
            rows = await real(before_ms, limit)
            await hub.answer(ask_id(1), "red")
            return rows

        hub.store.closed_asks = closing  # type: ignore[method-assign]
        assert await hub.listed("all") == [(ask_id(1), "closed")]


async def test_closed_asks_of_a_former_life_are_listed_with_their_session() -> None:
    with short_folder() as folder:
        async with desk(f"{folder}/hub.db") as former:
            await former.asked(1, asker=asker(name="s", title="Nightly"))
            await former.answer(ask_id(1), "red")
        async with desk(f"{folder}/hub.db") as hub:
            hub.kernel._state.ended.clear()
            [view] = (await hub.do("asks", state="closed"))["asks"]
            assert view["session"]["title"] == "Nightly"


async def test_sessions_are_listed_and_refused_records_on_request() -> None:
    async with desk() as hub:
        await hub.asked(1, asker=asker(title="Nightly"))
        found = await hub.do("sessions", all=False)
        assert [view["title"] for view in found["sessions"]] == ["Nightly"]
        assert "refused" not in found
        found = await hub.do("sessions", all=True)
        assert found["refused"] == [
            {"path": "/r/x.json", "code": "record_foreign", "reason": "not ours"}
        ]
        assert hub.kernel.session(SessionId(found["sessions"][0]["session_id"])) is not None


# --- the rest ---


async def test_login_goes_to_the_adapter_with_logins() -> None:
    async with desk() as hub:
        inbox = Inbox()
        hub.inbox = inbox
        assert await hub.do("login", action="link") == {"url": "http://127.0.0.1:1/#code"}
        await hub.do("login", action="approve", browser="K7QF")
        assert inbox.did == [("link", None), ("approve", "K7QF")]


async def test_without_such_an_adapter_login_is_refused_with_the_remedy() -> None:
    async with desk() as hub:
        with pytest.raises(HubError) as caught:
            await hub.do("login", action="link")
        assert caught.value.code == "no_web"
        assert caught.value.recover


async def test_roots_are_listed_after_a_change() -> None:
    async with desk() as hub:
        listed = {"roots": [{"path": "/home/ada/shop", "records": 2, "problem": None}]}
        assert await hub.do("roots", action="list", path=None) == listed
        assert hub.root_changes == []
        assert await hub.do("roots", action="add", path="/home/ada/shop") == listed
        assert await hub.do("roots", action="remove", path="/home/ada/shop") == listed
        assert hub.root_changes == [("/home/ada/shop", False), ("/home/ada/shop", True)]


@pytest.mark.parametrize("path", ["shop", "./shop", "~/shop", "", None, "\x1b[31m"])
async def test_a_root_is_an_absolute_path(path: str | None) -> None:
    async with desk() as hub:
        with pytest.raises(UsageError) as caught:
            await hub.do("roots", action="add", path=path)
        assert "\x1b" not in caught.value.msg
        assert hub.root_changes == []


async def test_a_newer_client_gets_a_hub_of_the_newer_version_on_disk_or_one_that_ends() -> (
    None
):
    async with desk() as hub:
        assert await hub.do("stop", reason="upgrade", again="upgrade") == {}
        assert (hub.stopped, hub.begun) == ("upgrade", "")
        hub.outdated = True
        assert await hub.do("stop", reason="upgrade", again="upgrade") == {"again": True}
        assert hub.begun == "upgrade"


async def test_what_is_open_is_not_forgotten_and_what_is_closed_is() -> None:
    async with desk() as hub:
        await hub.asked()
        with pytest.raises(ControlRefused) as caught:
            await hub.do("forget", asks=[ask_id(1)])
        assert caught.value.code == "ask_open"
        hub.withdraw(1)
        await hub.loop.settled()
        found = await hub.do("forget", asks=[ask_id(1), ask_id(1)])
        assert found["forgotten"]["asks"] == [ask_id(1)]
        assert hub.forgotten == Wanted((ask_id(1),))


async def test_status_reload_and_stop_are_the_hubs() -> None:
    async with desk() as hub:
        assert await hub.do("status") == {"pid": 1}
        assert await hub.do("reload") == {"changed": []}
        assert await hub.do("stop", reason="upgrade\x1b[31m") == {}
        assert hub.stopped.startswith("upgrade")
        assert "\x1b" not in hub.stopped


async def test_an_unknown_operation_is_refused() -> None:
    async with desk() as hub:
        with pytest.raises(UpcallError) as caught:
            await hub.do("fly\x1b")
        assert caught.value.code == "unknown_op"
        assert "\x1b" not in caught.value.msg


async def test_a_refusal_carries_only_what_it_has_to_say() -> None:
    error = ControlRefused("unknown_ask", "no ask", result=None, candidates=[])
    assert error.extra == {"candidates": []}
    assert error.as_dict()["code"] == "unknown_ask"


# --- screens ---


async def test_every_screen_is_shown_a_card_and_told_events() -> None:
    sent: list[tuple[int, str, dict[str, Any]]] = []
    screens = Screens(lambda waiter, event, fields: sent.append((waiter, event, fields)))
    assert screens.show(b"not even JSON") == 0
    screens.add(1)
    screens.add(2)
    assert screens.count() == 2
    assert screens.show(b'{"plain":"hello"}') == 2
    assert sorted(waiter for waiter, _, _ in sent) == [1, 2]
    assert sent[0][1:] == ("card", {"card": {"plain": "hello"}})
    screens.remove(1)
    screens.remove(1)
    sent.clear()
    screens.tell("screen", {"asks": []})
    assert sent == [(2, "screen", {"asks": []})]


async def test_a_screen_that_closes_while_it_is_told_does_no_harm() -> None:
    told: list[int] = []

    def send(waiter: int, _event: str, _fields: dict[str, Any]) -> None:
        told.append(waiter)
        screens.remove(waiter)

    screens = Screens(send)
    for waiter in (1, 2, 3):
        screens.add(waiter)
    screens.tell("screen", {})
    assert sorted(told) == [1, 2, 3]
    assert screens.count() == 0
