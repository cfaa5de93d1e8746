"""Every adapter of ours against the checks that every adapter must pass."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from fakes.web_hub import FakeHub
from upcall.model.platform import Adapter, Body, ChannelState, Place
from upcall_adapters._kit.conformance import CHECKS, Check, Harness, NotConforming, Running
from upcall_adapters.terminal.adapter import TerminalScreens
from upcall_adapters.terminal.config import TerminalConfig
from upcall_adapters.terminal.lower import Card
from upcall_adapters.terminal.spec import SPEC as TERMINAL
from upcall_adapters.web.adapter import WebInbox
from upcall_adapters.web.config import WebConfig
from upcall_adapters.web.lower import Note
from upcall_adapters.web.spec import SPEC as WEB


@dataclass
class RunningAdapter:
    """An opened adapter; `heard` runs it until it said something, then cancels it."""

    adapter: Adapter
    hub: FakeHub

    async def heard(self) -> ChannelState:
        task = asyncio.create_task(self.adapter.run(self.hub))
        try:
            while not self.hub.states:
                if task.done():
                    await task
                    raise NotConforming("run returned by itself")
                await asyncio.sleep(0)
        finally:
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError)
        return self.hub.states[-1]


class Screens:
    """Two open screens that keep what they were shown."""

    def __init__(self) -> None:
        self.shown: list[bytes] = []

    def show(self, body: bytes) -> int:
        self.shown.append(body)
        return self.count()

    def count(self) -> int:
        return 2


class TerminalHarness:
    spec = TERMINAL
    place = Place("terminal", "all")
    draws_labels = True

    def text_of(self, body: Body) -> str:
        card = msgspec.json.decode(body.data, type=Card)
        texts = [part.text for part in card.parts]
        return "".join([*texts, *(option.detail for option in card.options), card.state_line])

    def labels_of(self, body: Body) -> Sequence[str]:
        card = msgspec.json.decode(body.data, type=Card)
        assert [option.number for option in card.options] == [*range(1, len(card.options) + 1)]
        return [option.label for option in card.options]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Running]:
        hub = FakeHub()
        seams = hub.seams(channel="terminal", screens=Screens())
        yield RunningAdapter(TerminalScreens(TerminalConfig(), seams), hub)


class WebHarness:
    spec = WEB
    place = Place("web", "inbox")
    draws_labels = False

    def text_of(self, body: Body) -> str:
        note = msgspec.json.decode(body.data, type=Note)
        return "".join([note.title or "", note.plain, note.state_line])

    def labels_of(self, body: Body) -> Sequence[str]:
        return [""] * msgspec.json.decode(body.data, type=Note).choices

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Running]:
        hub = FakeHub()
        yield RunningAdapter(WebInbox(WebConfig(port=0), hub.seams()), hub)


@pytest.mark.asyncio
@pytest.mark.parametrize("check", CHECKS, ids=str)
@pytest.mark.parametrize("harness", [TerminalHarness(), WebHarness()], ids=["terminal", "web"])
async def test_adapter_conforms(harness: Harness, check: Check) -> None:
    await check.run(harness)


class _Broken(TerminalHarness):
    """A terminal adapter with one fault at a time, to see that the checks can fail."""

    def __init__(self, **faults: Any) -> None:
        self.spec = _with(TERMINAL, **faults)


def _with(spec: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(spec, **changes)


def _loses_choices(message: Any, place: Any) -> Sequence[Body]:
    return [
        Body(msgspec.json.encode(msgspec.structs.replace(card, options=card.options[:-1])))
        for card in _cards(message, place)
    ]


def _cuts_text(message: Any, place: Any) -> Sequence[Body]:
    return [
        Body(msgspec.json.encode(msgspec.structs.replace(card, parts=card.parts[:1])))
        for card in _cards(message, place)[:1]
    ]


def _lets_escapes_through(message: Any, place: Any) -> Sequence[Body]:
    data = msgspec.json.encode(
        Card(parts=(), state_line=message.plain.encode("utf-8", "replace").decode())
    )
    return [Body(data)]


def _cards(message: Any, place: Any) -> list[Card]:
    return [
        msgspec.json.decode(body.data, type=Card) for body in TERMINAL.lower(message, place)
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("lower", "name"),
    [
        (_loses_choices, "every choice is there, in order"),
        (_cuts_text, "nothing is lost"),
        (_lets_escapes_through, "hostile text is visible"),
    ],
)
async def test_a_check_finds_the_fault_that_it_is_for(lower: Any, name: str) -> None:
    (check,) = [check for check in CHECKS if check.name == name]
    with pytest.raises(NotConforming):
        await check.run(_Broken(lower=lower))


class _Raises(TerminalScreens):
    async def post(self, place: Any, body: Any, key: Any) -> Any:
        raise ValueError("not one of the allowed errors")


class _RaisingHarness(TerminalHarness):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[Running]:
        hub = FakeHub()
        yield RunningAdapter(_Raises(TerminalConfig(), hub.seams(screens=Screens())), hub)


@pytest.mark.asyncio
async def test_an_adapter_may_raise_nothing_but_the_four_errors() -> None:
    (check,) = [check for check in CHECKS if check.name.startswith("post and edit")]
    with pytest.raises(NotConforming, match="ValueError"):
        await check.run(_RaisingHarness())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "promise", [{"threads": True}, {"deletes": True}, {"repeat": "by_lookup"}, {"under_way": 0}]
)
async def test_an_adapter_that_promises_more_than_it_can_is_found(promise: Any) -> None:
    (check,) = [check for check in CHECKS if check.name == "it can do what it says"]
    capabilities = msgspec.structs.replace(TERMINAL.capabilities, **promise)
    with pytest.raises(NotConforming):
        await check.run(_Broken(capabilities=capabilities))
