"""The adapter of the fake chat, as it runs within a real hub: one line of JSON a call.

It is installed as a package of its own (see `fakes.chat_parts.install`), so it imports only
what an adapter may. `CAPABILITIES` and `NAME` are set at the end of the installed copy.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from upcall.model.document import Message
from upcall.model.errors import DeliveryError, NotSent, Refused, Throttled, Uncertain
from upcall.model.platform import (
    Body,
    Capabilities,
    ChannelState,
    Commanded,
    DeliveryKey,
    Finding,
    Inbox,
    Opening,
    Place,
    Pressed,
    Receipt,
    Ref,
    Seams,
    Spec,
    Texted,
    Who,
)


class ChatConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[channels.fakechat]`.

    Attributes:
        port: where the test's server listens on 127.0.0.1.
        call_limit_s: after how long a call without an answer is uncertain.
        retry_s: how long it waits between two connections.
        points: a file that is told every commit and call; with it, `kill_at` says at which
            of them the hub ends itself by SIGKILL, once.
        kill_at: from 1; 0 for none.
    """

    port: int
    call_limit_s: float = 5.0
    retry_s: float = 0.05
    points: str = ""
    kill_at: int = 0


class ChatAdapter:
    """One account in the fake chat."""

    def __init__(self, config: ChatConfig, seams: Seams) -> None:
        self._config = config
        self._seams = seams
        self._writer: asyncio.StreamWriter | None = None
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ids = itertools.count(1)
        self._state = ChannelState(hearing=False, reason="connecting")

    async def run(self, inbox: Inbox) -> None:
        """Hear until cancelled."""
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._config.port)
            except OSError:
                inbox.state(ChannelState(hearing=False, reason="connection refused"))
                await self._seams.clock.sleep(self._config.retry_s)
                continue
            self._writer = writer
            try:
                async with asyncio.TaskGroup() as tasks:
                    rounds = tasks.create_task(self._rounds(inbox))
                    await self._hear(reader, inbox, tasks)
                    rounds.cancel()
            finally:
                self._writer = None
                for waiting in self._calls.values():
                    if not waiting.done():
                        waiting.set_exception(Uncertain("the connection broke"))
                self._calls.clear()
                writer.close()
            inbox.state(ChannelState(hearing=False, reason="connection lost"))
            await self._seams.clock.sleep(self._config.retry_s)

    async def _rounds(self, inbox: Inbox) -> None:
        """Complete a round every now and then, if that is promised."""
        round_s = CAPABILITIES.round_s
        while round_s is not None:
            await self._seams.clock.sleep(round_s / 2)
            with contextlib.suppress(DeliveryError):
                await self._call("round")
                inbox.state(self._state)

    async def post(self, place: Place, body: Body, key: DeliveryKey) -> Ref:
        """Post one message."""
        told = await self._call(
            "post",
            place=place.address,
            body=json.loads(body.data),
            key=key.key,
            attempt=key.attempt,
        )
        return Ref(told["ref"])

    async def edit(self, ref: Ref, body: Body) -> None:
        """Replace a message."""
        await self._call("edit", ref=ref, body=json.loads(body.data))

    async def check(self) -> Sequence[Finding]:
        """Nothing to find."""
        return ()

    async def _call(self, call: str, **fields: Any) -> dict[str, Any]:
        writer = self._writer
        if writer is None:
            raise NotSent("not connected")
        number = next(self._ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        writer.write(json.dumps({"id": number, "call": call, **fields}).encode() + b"\n")
        try:
            async with asyncio.timeout(self._config.call_limit_s):
                told = await future
        except TimeoutError:
            raise Uncertain(f"no answer within {self._config.call_limit_s:g} s") from None
        finally:
            self._calls.pop(number, None)
        if "error" in told:
            raise _error(told)
        return told

    async def _hear(
        self, reader: asyncio.StreamReader, inbox: Inbox, tasks: asyncio.TaskGroup
    ) -> None:
        while True:
            try:
                line = await reader.readline()
            except ConnectionError:
                return
            if not line.endswith(b"\n"):
                return
            told = json.loads(line)
            if "id" in told:
                future = self._calls.get(told["id"])
                if future is not None and not future.done():
                    future.set_result(told)
            elif "state" in told:
                self._state = msgspec.convert(told["state"], ChannelState)
                inbox.state(self._state)
            else:
                tasks.create_task(self._take(told, inbox))

    async def _take(self, told: dict[str, Any], inbox: Inbox) -> None:
        """Hand one event in; it is acknowledged after the hub has kept it."""
        kind = told.pop("event")
        number = told.pop("number")
        told["place"] = Place(self._seams.channel, told["place"])
        told["who"] = msgspec.convert(told["who"], Who)
        kinds: dict[str, type[Any]] = {"press": Pressed, "command": Commanded}
        event = kinds.get(kind, Texted)(**told)
        receipt: Receipt = await inbox.put(event)
        writer = self._writer
        if writer is not None:
            plain = msgspec.to_builtins(receipt)
            with contextlib.suppress(ConnectionError):
                writer.write(json.dumps({"ack": number, "receipt": plain}).encode() + b"\n")


class WithThreads(ChatAdapter):
    """An account in a chat with threads."""

    async def open_thread(self, opening: Opening, key: DeliveryKey) -> Place:
        """Open a thread."""
        told = await self._call(
            "open",
            conversation=opening.conversation,
            title=opening.title,
            key=key.key,
            attempt=key.attempt,
        )
        return Place(self._seams.channel, told["ref"])


class _Deleting(ChatAdapter):
    async def delete(self, ref: Ref) -> None:
        """Take a message away."""
        await self._call("delete", ref=ref)


class _Finding(ChatAdapter):
    async def find(self, place: Place, key: DeliveryKey) -> Ref | None:
        """Look an earlier message up."""
        told = await self._call("find", place=place.address, key=key.key)
        return None if told["ref"] is None else Ref(told["ref"])


def _error(told: dict[str, Any]) -> DeliveryError:
    match told["error"]:
        case "throttled":
            return Throttled(told["retry_after_s"], place_only=told["place_only"])
        case "refused":
            return Refused(told.get("msg", "refused"), code=told.get("code"))
        case "not_sent":
            return NotSent("not sent")
        case _:
            return Uncertain("nobody knows")


def open_adapter(config: ChatConfig, seams: Seams) -> ChatAdapter:
    """Return an account with the abilities that its capabilities name."""
    if config.points:
        from . import points

        points.watch(config.points, config.kill_at)
    bases: list[type[ChatAdapter]] = [ChatAdapter]
    if CAPABILITIES.deletes:
        bases.insert(0, _Deleting)
    if CAPABILITIES.threads:
        bases.insert(0, WithThreads)
    if CAPABILITIES.repeat == "by_lookup":
        bases.insert(0, _Finding)
    made: ChatAdapter = type("FakeChatAdapter", tuple(bases), {})(config, seams)
    return made


def lower(message: Message, place: Place) -> Sequence[Body]:
    """Return the bodies of *message*; see `lower_to`."""
    return lower_to(CAPABILITIES.text_limit, message, place)


def lower_to(limit: int, message: Message, place: Place) -> Sequence[Body]:
    """Return one body for each *limit* characters of the text; choices on the last."""
    del place
    text = message.plain
    texts = [text[start : start + limit] for start in range(0, len(text), limit)] or [""]
    bodies: list[dict[str, Any]] = [{"text": one} for one in texts]
    bodies[-1]["state"] = message.state_line
    bodies[-1]["rings"] = message.rings
    choices = message.choices
    if choices is not None:
        controls = [choices.control(button) for button in choices.buttons]
        buttons = {control.label: control.token for control in controls}
        for name in ("decline", "hold", "hold_all", "withdraw"):
            token = getattr(choices, name)
            if token:
                buttons[f"[{name}]"] = token
        bodies[-1]["buttons"] = buttons
    return [Body(json.dumps(body).encode()) for body in bodies]


def spec(name: str, capabilities: Capabilities) -> Spec[ChatConfig]:
    """Return what the hub is told of the adapter."""
    return Spec(
        name=name,
        config=ChatConfig,
        capabilities=capabilities,
        lower=lower,
        open=open_adapter,
    )


NAME = "fakechat"
CAPABILITIES = Capabilities(
    text_limit=1000,
    buttons_per_card=20,
    edits=True,
    threads=True,
    deletes=True,
    catches_up=True,
    repeat="none",
)
SPEC = spec(NAME, CAPABILITIES)
