"""A program that answers other sessions, as its author would write it; nothing runs it."""

# pyright: strict, reportUnusedCallResult=false
from typing import assert_type

from upcall.client import ReplyRejectedError, SessionClient
from upcall.model.frames import ActionNeeded, ActionResolved


async def answer_all(url: str, token: str) -> None:
    async with SessionClient.connect(url, token) as client:
        assert_type(client, SessionClient)
        assert_type(client.capabilities, frozenset[str])
        for ask in client.asks():
            assert_type(ask, ActionNeeded)
            try:
                resolved = await client.reply(ask.id, "Yes")
            except ReplyRejectedError as rejected:
                assert_type(rejected.resolved, ActionResolved | None)
                continue
            assert_type(resolved, ActionResolved)
        await client.message("continue with the tests")
        await client.ping()
        async for frame in client:
            match frame:
                case ActionNeeded(question=question):
                    assert_type(question, str | None)
                case ActionResolved(outcome=outcome):
                    print(outcome)
                case _:
                    pass
