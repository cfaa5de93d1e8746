"""The terminal channel: its lowering and its adapter."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from fakes.web_hub import FakeHub
from upcall.model.document import (
    Button,
    Choices,
    Code,
    Fields,
    File,
    Heading,
    Message,
    Paragraph,
    Quote,
    Span,
)
from upcall.model.platform import Body, ChannelState, DeliveryKey, Place
from upcall_adapters.terminal.adapter import TerminalScreens
from upcall_adapters.terminal.config import TerminalConfig
from upcall_adapters.terminal.lower import MAX_TEXT_CHARS, Card, Option, Part, lower

PLACE = Place("terminal", "all")


def cards(message: Message) -> list[Card]:
    return [msgspec.json.decode(body.data, type=Card) for body in lower(message, PLACE)]


def test_every_block_is_lowered_in_order() -> None:
    message = Message(
        blocks=(
            Heading("Deploy?"),
            Paragraph((Span("see "), Span("the log", href="https://example.com/log"))),
            Code("rm -rf build"),
            Quote("I am sure"),
            Fields((("repo", "shop"), ("branch", "main"))),
            File("log.txt", "/srv/log.txt"),
        ),
        plain="Deploy?",
        state_line="waiting",
    )
    (card,) = cards(message)
    assert card.parts == (
        Part("heading", "Deploy?"),
        Part("text", "see the log (https://example.com/log)"),
        Part("code", "rm -rf build"),
        Part("quote", "I am sure"),
        Part("field", "repo: shop"),
        Part("field", "branch: main"),
        Part("file", "log.txt (/srv/log.txt)"),
    )
    assert card.state_line == "waiting"


def test_choices_are_numbered_and_the_tokens_stay_away() -> None:
    choices = Choices(
        (Button("t1", "Yes", "go on"), Button("t2", "No", suggested=True)),
        free_text=True,
        decline="Decline",
    )
    (body,) = lower(Message(blocks=(), plain="", choices=choices), PLACE)
    card = msgspec.json.decode(body.data, type=Card)
    assert card.options == (
        Option(1, "Yes", "go on"),
        Option(2, "No", suggested=True),
    )
    assert card.takes_words
    assert card.others == ("Decline",)
    assert b"t1" not in body.data


def test_what_is_too_long_becomes_several_bodies_with_the_choices_on_the_last() -> None:
    text = "x" * (2 * MAX_TEXT_CHARS + 10)
    message = Message(
        blocks=(Code(text), Quote("end")), plain="", choices=Choices((Button("t", "Yes"),))
    )
    first, second, last = cards(message)
    assert first.continues
    assert second.continues
    assert not last.continues
    assert not first.options
    assert [option.label for option in last.options] == ["Yes"]
    parts = [part for card in (first, second, last) for part in card.parts]
    assert "".join(part.text for part in parts if part.kind == "code") == text


class Screens:
    def __init__(self, count: int) -> None:
        self.open = count
        self.shown: list[bytes] = []

    def show(self, body: bytes) -> int:
        if self.open:
            self.shown.append(body)
        return self.open

    def count(self) -> int:
        return self.open


@pytest.mark.asyncio
async def test_posting_succeeds_with_and_without_screens() -> None:
    for count in (0, 2):
        screens = Screens(count)
        adapter = TerminalScreens(TerminalConfig(), FakeHub().seams(screens=screens))
        ref = await adapter.post(PLACE, Body(b"{}"), DeliveryKey("k", 1))
        await adapter.edit(ref, Body(b"[]"))
        assert screens.shown == ([b"{}", b"[]"] if count else [])


async def _states(hub: FakeHub, wanted: int) -> Sequence[ChannelState]:
    async with asyncio.timeout(10):
        while len(hub.states) < wanted:
            await asyncio.sleep(0)
    return hub.states


@pytest.mark.asyncio
async def test_it_tells_how_many_look_when_that_changes() -> None:
    hub, screens = FakeHub(), Screens(0)
    adapter = TerminalScreens(TerminalConfig(), hub.seams(screens=screens))
    task = asyncio.create_task(adapter.run(hub))
    try:
        assert (await _states(hub, 1))[-1] == ChannelState(hearing=True, audience=0)
        screens.open = 2
        hub.changed()
        assert (await _states(hub, 2))[-1].audience == 2
        hub.changed()
        await asyncio.sleep(0)
        screens.open = 1
        hub.clock.advance(20)
        assert (await _states(hub, 3))[-1].audience == 1
        assert len(hub.states) == 3
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
