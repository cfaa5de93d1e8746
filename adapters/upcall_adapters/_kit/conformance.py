"""The checks that every adapter must pass, given its `Spec` and a harness.

They need no test framework: each is a coroutine function that takes a harness and raises
`NotConforming`. A test suite runs `CHECKS` against the harness of each adapter.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from upcall.model.document import (
    Block,
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
from upcall.model.platform import (
    Adapter,
    Body,
    Capabilities,
    ChannelState,
    Deletes,
    DeliveryKey,
    Finding,
    FindsByKey,
    OpensThreads,
    Place,
    Spec,
)
from upcall.model.text import visible
from upcall_adapters._kit.hostile import CORPUS, LONG
from upcall_adapters._kit.outcome import ALLOWED

WITHIN_S: Final = 20.0
_LEVELS: Final = frozenset({"ok", "warning", "error"})


class NotConforming(AssertionError):
    """The adapter does not do what the hub relies on."""


class Running(Protocol):
    """An adapter that was opened, with an inbox that remembers."""

    adapter: Adapter

    async def heard(self) -> ChannelState:
        """Run the adapter until it said how it is, and return that."""
        ...


class Harness(Protocol):
    """What the checks need to know of one adapter's tests.

    Attributes:
        spec: the adapter's.
        place: an address that its platform takes.
        draws_labels: its bodies carry the labels; else only how many choices there are, and
            the surface draws them from the hub's view.
    """

    spec: Spec[Any]
    place: Place
    draws_labels: bool

    def text_of(self, body: Body) -> str:
        """Return every text that a person can see in *body*, in reading order."""
        ...

    def labels_of(self, body: Body) -> Sequence[str]:
        """Return the labels of its choices; any text for each if it doesn't draw labels."""
        ...

    def open(self) -> AbstractAsyncContextManager[Running]:
        """Open the adapter on its platform (or a fake that speaks its real protocol)."""
        ...


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that every adapter must do."""

    name: str
    run: Callable[[Harness], Awaitable[None]]

    def __str__(self) -> str:
        return self.name


def message_of(
    text: str, labels: Sequence[str] = ("Yes", "No"), *, free_text: bool = False
) -> Message:
    """Return a message that carries *text* in every field that takes words."""
    blocks: tuple[Block, ...] = (
        Heading(text),
        Paragraph((Span(text), Span(text, "bold"), Span(text, "code"))),
        Code(text),
        Quote(text),
        Fields(((text, text),)),
        File(text, f"/srv/{text}"),
    )
    buttons = tuple(
        Button(token=f"token{i}", label=label, detail=text) for i, label in enumerate(labels)
    )
    choices = Choices(buttons, free_text=free_text, decline="Decline", hold="Hold")
    return Message(blocks=blocks, plain=text, choices=choices, state_line=text)


def _require(condition: bool, words: str) -> None:
    if not condition:
        raise NotConforming(words)


def _lower(harness: Harness, message: Message) -> Sequence[Body]:
    bodies = harness.spec.lower(message, harness.place)
    _require(len(bodies) > 0, "lowering gave no body")
    return bodies


# --- lowering --------------------------------------------------------------------------------


async def _lowering_is_pure(harness: Harness) -> None:
    message = message_of("Deploy?")
    before = msgspec.json.encode(message)
    _require(_lower(harness, message) == _lower(harness, message), "two lowerings differ")
    _require(msgspec.json.encode(message) == before, "lowering changed its message")


async def _every_choice_is_there(harness: Harness) -> None:
    most = harness.spec.capabilities.buttons_per_card
    for count in sorted({0, 1, 2, 3, 10, 100}):
        if count > most:
            continue
        labels = [f"choice number {i}" for i in range(count)]
        bodies = _lower(harness, message_of("Deploy?", labels))
        shown = [label for body in bodies for label in harness.labels_of(body)]
        _require(len(shown) == count, f"{count} choices, {len(shown)} shown")
        if harness.draws_labels:
            _require(shown == labels, f"choices are missing or out of order: {shown}")


async def _nothing_is_lost(harness: Harness) -> None:
    for words in ("Deploy?", "one\ntwo\nthree", LONG, "é🙂" * 5_000):
        bodies = _lower(harness, message_of(words))
        shown = "".join(harness.text_of(body) for body in bodies)
        wanted = visible(words, newlines=True)
        _require(
            wanted in shown or shown.count(wanted[0]) >= wanted.count(wanted[0]),
            f"{len(wanted)} characters of a text are not all shown",
        )


async def _bodies_keep_the_limit(harness: Harness) -> None:
    capabilities = harness.spec.capabilities
    for words in ("", "Deploy?", LONG, "é" * 20_000):
        for body in _lower(harness, message_of(words)):
            size = _size(harness.text_of(body), capabilities)
            limit = capabilities.text_limit
            # Choices and their details are beside the text on every platform.
            if harness.draws_labels and harness.labels_of(body):
                continue
            _require(size <= limit, f"a body has {size} {capabilities.text_unit}: {limit} go")


def _size(text: str, capabilities: Capabilities) -> int:
    if capabilities.text_unit == "bytes":
        return len(text.encode("utf-8", "replace"))
    if capabilities.text_unit == "utf16":
        return len(text.encode("utf-16-le", "replace")) // 2
    return len(text)


async def _hostile_text_is_visible(harness: Harness) -> None:
    for words in CORPUS:
        for body in _lower(harness, message_of(words, [f"1 {words}", f"2 {words}"])):
            texts = [harness.text_of(body), *harness.labels_of(body)]
            for text in texts:
                shown = text.replace("\n", "").replace("\t", "")
                _require(
                    visible(shown) == shown, f"{words!r} comes through unescaped: {text!r}"
                )


# --- calls -----------------------------------------------------------------------------------


async def _post_and_edit_do_only_what_is_allowed(harness: Harness) -> None:
    async with harness.open() as running:
        for number, words in enumerate(("Deploy?", *CORPUS[:12])):
            for body in _lower(harness, message_of(words)):
                await _call_both(harness, running.adapter, body, f"key{number}")


async def _call_both(harness: Harness, adapter: Adapter, body: Body, key: str) -> None:
    try:
        async with asyncio.timeout(WITHIN_S):
            ref = await adapter.post(harness.place, body, DeliveryKey(key, 1))
            _require(bool(ref), f"post returned no ref: {ref!r}")
            if harness.spec.capabilities.edits:
                await adapter.edit(ref, body)
    except ALLOWED:
        return
    except TimeoutError:
        raise NotConforming("a call took longer than it may") from None
    except Exception as error:
        raise NotConforming(f"a call raised {type(error).__name__}: {error}") from error


async def _a_repeat_is_harmless(harness: Harness) -> None:
    if harness.spec.capabilities.repeat != "harmless":
        return
    async with harness.open() as running:
        (body, *_) = _lower(harness, message_of("Deploy?"))
        first = await running.adapter.post(harness.place, body, DeliveryKey("key", 1))
        again = await running.adapter.post(harness.place, body, DeliveryKey("key", 2))
        _require(first == again, "a repeated delivery has another ref")


async def _it_can_do_what_it_says(harness: Harness) -> None:
    said = harness.spec.capabilities
    async with harness.open() as running:
        for promised, ability, name in (
            (said.threads, OpensThreads, "threads"),
            (said.deletes, Deletes, "deletes"),
            (said.repeat == "by_lookup", FindsByKey, 'repeat = "by_lookup"'),
        ):
            _require(
                not promised or isinstance(running.adapter, ability),
                f"it says {name}, and its adapter is no {ability.__name__}",
            )
    _require(said.under_way >= 1, "under_way is less than 1: nothing could be sent")


async def _it_hears_until_cancelled(harness: Harness) -> None:
    async with harness.open() as running:
        async with asyncio.timeout(WITHIN_S):
            state = await running.heard()
        _require(state.hearing, f"it does not hear: {state.reason}")
        _require(state.audience >= 0, "a negative audience")


async def _checks_come_with_a_remedy(harness: Harness) -> None:
    async with harness.open() as running:
        async with asyncio.timeout(WITHIN_S):
            await running.heard()
            findings: Sequence[Finding] = await running.adapter.check()
        _require(len(findings) > 0, "check() says nothing")
        for finding in findings:
            _require(finding.level in _LEVELS, f"no such level: {finding.level}")
            _require(
                finding.level != "error" or bool(finding.recover),
                f"{finding.code}: an error without a remedy",
            )


CHECKS: Final = (
    Check("lowering is pure", _lowering_is_pure),
    Check("every choice is there, in order", _every_choice_is_there),
    Check("nothing is lost", _nothing_is_lost),
    Check("bodies keep the limit", _bodies_keep_the_limit),
    Check("hostile text is visible", _hostile_text_is_visible),
    Check("post and edit do only what is allowed", _post_and_edit_do_only_what_is_allowed),
    Check("a repeat is harmless", _a_repeat_is_harmless),
    Check("it can do what it says", _it_can_do_what_it_says),
    Check("it hears until cancelled", _it_hears_until_cancelled),
    Check("checks come with a remedy", _checks_come_with_a_remedy),
)
