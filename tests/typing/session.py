"""A program that embeds a session, as its author would write it; nothing runs it."""

# pyright: strict, reportUnusedCallResult=false
from pathlib import Path
from typing import assert_type

from upcall import Answer, Session, UpcallError
from upcall.session.host import Message


async def main() -> None:
    async with Session("Nightly build", repo="shop", branch="main") as session:
        assert_type(session, Session)
        session_id: str = session.session_id
        print(session_id)
        assert_type(session.hub_error, UpcallError | None)

        answer = await session.ask("Deploy?", ["Yes", "No"], permission=True, timeout_s=600)
        assert_type(answer, Answer)
        if answer == "Yes":
            await session.notify("deploying")

        ref = await session.stream("compiling")
        assert_type(ref, str)
        await session.stream("compiled", ref=ref, live=False)
        await session.attach(Path("report.png"), caption="the report")
        await session.attach(b"text", name="notes.txt")
        await session.context(task="release", model=None)
        await session.activity(busy=True)
        await session.idle("waiting for the next commit")

        async for message in session.messages():
            assert_type(message, Message)
            assert_type(message.text, str)
            break

        await session.ask("Deploy?", options=[1, 2])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        if session.ask("Deploy?") == "Yes":  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison]
            print("never: the coroutine was not awaited")
