"""The embedding API over its real endpoint, with a real client for the person."""

import asyncio
import base64
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from upcall.answer import AnsweredBy
from upcall.client import SessionClient
from upcall.clock import SystemClock
from upcall.core.actions import Ending
from upcall.core.asks import InvalidAnswer
from upcall.model.errors import (
    AmbiguousLabels,
    Cancelled,
    Declined,
    InvalidAsk,
    TimedOut,
    UpcallError,
    UsageError,
)
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    Activity,
    ConfigCommand,
    ContextUpdate,
    FileAttachment,
    Frame,
    IdentityHeader,
    ImageAttachment,
    InboundAck,
    SessionClosed,
    SessionReady,
    TurnStream,
    Unknown,
)
from upcall.model.ids import ActionId
from upcall.session.asking import Waiting, answer_of
from upcall.session.host import Session
from upcall.session.origin import origin_of
from upcall_discovery import record as records

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="up-", dir="/tmp") as folder:
        for name, part in (
            ("HOME", "h"),
            ("XDG_RUNTIME_DIR", "r"),
            ("XDG_STATE_HOME", "s"),
            ("XDG_CONFIG_HOME", "c"),
        ):
            (Path(folder) / part).mkdir(mode=0o700)
            monkeypatch.setenv(name, str(Path(folder) / part))
        yield Path(folder)


def record_of(home: Path, session: Session) -> records.Record:
    path = home / "r/upcall/sessions" / f"{session.session_id}.json"
    return records.parse(path.read_bytes(), path.name)


@asynccontextmanager
async def person(home: Path, session: Session) -> AsyncIterator[SessionClient]:
    async with SessionClient.from_record(record_of(home, session)) as client:
        yield client


async def next_frame(client: SessionClient, kind: type[Frame]) -> Any:
    async for frame in client:
        if isinstance(frame, kind):
            return frame
    raise AssertionError("the session ended")


async def asked(client: SessionClient) -> ActionNeeded:
    while not client.asks():
        await next_frame(client, ActionNeeded)
    return client.asks()[0]


async def everything(client: SessionClient) -> list[Frame | Unknown]:
    await client.ping()
    return [client._frames.popleft() for _ in range(len(client._frames))]


@pytest.mark.asyncio
async def test_asks_and_gets_the_answer(home: Path) -> None:
    async with Session("Nightly", hub=False) as session, person(home, session) as client:
        asking = asyncio.create_task(session.ask("Deploy?", ["Yes", "No"], recommended="no"))
        ask = await asked(client)
        assert (ask.question, ask.options, ask.recommended) == ("Deploy?", ("Yes", "No"), 1)
        assert ask.takes_text is False
        await client.reply(ask.id, "yes")
        answer = await asking
        assert answer == "Yes"
        assert (answer.labels, answer.indices, answer.text) == (("Yes",), (0,), None)
        assert answer.answered_by == AnsweredBy(None, "endpoint")
        assert answer.outcome == "answered"
        assert answer.waited_s >= 0


@pytest.mark.asyncio
async def test_tags_go_out_with_the_identity_and_merge_with_the_ask(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPCALL_TAGS", "nightly, big")
    for given, tags in ((None, ("nightly", "big")), (["prod", "prod"], ("prod",)), ([], ())):
        async with (
            Session("t", hub=False, tags=given) as session,
            person(home, session) as client,
        ):
            identity = await next_frame(client, IdentityHeader)
            assert identity.said_tags == tags
            asking = asyncio.create_task(session.ask("Go?", ["yes"], merge=True))
            assert (await asked(client)).merge is True
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize(
    "tags", ["prod", ["a b"], [1], ["x" * 65], [str(n) for n in range(17)]]
)
def test_what_are_no_tags_is_refused(tags: Any) -> None:
    with pytest.raises(UsageError, match="tags: "):
        Session("t", tags=tags)


@pytest.mark.asyncio
async def test_several_asks_at_once_are_told_apart(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        asking = [asyncio.create_task(session.ask(f"Number {n}?")) for n in range(20)]
        await asyncio.sleep(0)
        await client.ping()
        for ask in reversed(client.asks()):
            await client.reply(ask.id, f"answer to {ask.question}")
        answers = await asyncio.gather(*asking)
        assert [str(answer) for answer in answers] == [
            f"answer to Number {n}?" for n in range(20)
        ]


@pytest.mark.asyncio
async def test_raises_how_it_ended_without_an_answer(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        declining = asyncio.create_task(session.ask("One?"))
        await client.decline((await asked(client)).id)
        with pytest.raises(Declined):
            await declining
        with pytest.raises(TimedOut, match=r"within 0\.1 s"):
            await session.ask("Two?", timeout_s=0.1)
        await client.ping()
        withdrawn = asyncio.create_task(session.ask("Three?", ask_id="a000000000000"))
        assert (await asked(client)).question == "Three?"
        assert session.withdraw("a000000000000")
        assert not session.withdraw("a000000000000")
        with pytest.raises(Cancelled):
            await withdrawn
        await client.ping()
        assert client.asks() == []


@pytest.mark.asyncio
async def test_a_default_is_returned_and_called_what_it_is(home: Path) -> None:
    async with Session(hub=False) as session:
        answer = await session.ask("Go?", ["Yes", "No"], timeout_s=0.1, default="no")
        assert answer == "No"
        assert (answer.outcome, answer.answered_by) == ("timed_out", None)


class SteppingClock(SystemClock):
    """A real clock whose wall clock can be set."""

    def __init__(self) -> None:
        self.step_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.step_ms


@pytest.mark.asyncio
@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
async def test_a_step_of_the_wall_clock_moves_no_deadline(home: Path, step_ms: int) -> None:
    clock = SteppingClock()
    async with Session(hub=False, clock=clock) as session:
        clock.step_ms = step_ms
        async with asyncio.timeout(5):
            with pytest.raises(TimedOut):
                await session.ask("Go?", timeout_s=0.2)


@pytest.mark.asyncio
async def test_a_hold_stops_the_deadline(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        asking = asyncio.create_task(session.ask("Go?", ["Yes"], timeout_s=0.3))
        ask = await asked(client)
        assert (await client.hold(ask.id)).held
        with pytest.raises(TimedOut):
            await session.ask("Meanwhile?", timeout_s=0.4)
        assert not asking.done()
        await client.hold(ask.id, False)
        with pytest.raises(TimedOut):
            await asking


@pytest.mark.asyncio
async def test_a_cancelled_task_withdraws_its_ask(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        asking = asyncio.create_task(session.ask("Go?"))
        ask = await asked(client)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await client.ping()
        assert client.asks() == []
        with pytest.raises(UpcallError, match="already_answered"):
            await client.reply(ask.id, "late")


@pytest.mark.asyncio
async def test_the_program_may_answer_itself_and_the_first_counts(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        asking = asyncio.create_task(session.ask("Go?", ["Yes", "No"], ask_id="a000000000000"))
        await asked(client)
        with pytest.raises(InvalidAnswer):
            session.answer("a000000000000", 7)
        assert session.answer("a000000000000", "No", channel="terminal")
        assert not session.answer("a000000000000", "Yes")
        answer = await asking
        assert answer == "No"
        assert answer.answered_by == AnsweredBy(None, "terminal")


@pytest.mark.asyncio
async def test_refuses_what_cannot_be_asked(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        for question, options, fields in (
            ("", (), {}),
            ("x" * 100_000, (), {}),
            ("?", ["Yes", "No"], {"default": "Perhaps"}),
            ("?", ["Yes", "No"], {"recommended": "Perhaps"}),
            ("?", ["Yes", "No"], {"recommended": 2}),
            ("?", ["Yes", "No"], {"timeout_s": 0.0}),
            ("?", ["Yes", "No"], {"permission": True, "default": "No"}),
            ("?", ["a\ud800"], {}),
            ("?", "Yes", {}),
            ("?", (), {"ask_id": "7"}),
        ):
            with pytest.raises(InvalidAsk):
                await session.ask(question, options, **fields)
        with pytest.raises(AmbiguousLabels):
            await session.ask("?", ["Yes", "Y\u0435s", "yes"])
        assert not [f for f in await everything(client) if isinstance(f, ActionNeeded)]


@pytest.mark.asyncio
async def test_tells_people_what_it_does(home: Path) -> None:
    session = Session("T", repo="r", branch="b", hub=False)
    async with session, person(home, session) as client:
        first = await everything(client)
        kinds = [type(frame).__name__ for frame in first]
        assert kinds[:4] == ["Hello", "SessionReady", "IdentityHeader", "ContextUpdate"]
        [ready] = [frame for frame in first if isinstance(frame, SessionReady)]
        [identity] = [frame for frame in first if isinstance(frame, IdentityHeader)]
        assert (ready.title, ready.repo, ready.branch) == ("T", "r", "b")
        assert identity.machine
        await session.notify("a\ud800b")
        await session.idle("done")
        await session.idle("done again")
        ref = await session.stream("half")
        assert await session.stream("whole", ref=ref, final=True) == ref
        await session.context(task="t", token_usage="1/2")
        await session.activity(True)
        told = [f for f in await everything(client) if type(f).__name__ != "Pong"]
        assert [type(frame) for frame in told] == [
            TurnStream,
            ActionNeeded,
            ActionNeeded,
            TurnStream,
            TurnStream,
            ContextUpdate,
            Activity,
        ]
        notice, idle, again, live, final, context, _ = told
        assert isinstance(notice, TurnStream)
        assert (notice.phase, notice.text) == ("finalized", "a\ufffdb")
        assert isinstance(idle, ActionNeeded)
        assert isinstance(again, ActionNeeded)
        assert (idle.kind, idle.summary) == ("idle", "done")
        assert idle.id != again.id
        assert client.asks() == []
        assert isinstance(live, TurnStream)
        assert isinstance(final, TurnStream)
        assert (live.phase, final.phase, final.final_answer) == ("live", "finalized", True)
        assert live.message_ref == final.message_ref == ref
        assert isinstance(context, ContextUpdate)
        assert (context.task, context.token_usage) == ("t", "1/2")
        with pytest.raises(UsageError, match="no field 'mood'"):
            await session.context(mood="good")


@pytest.mark.asyncio
async def test_long_text_goes_out_in_pieces_and_live_text_by_its_end(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        await everything(client)
        text = "".join(str(n % 10) for n in range(400_000))
        await session.notify(text)
        await session.stream(text + "end")
        frames = [f for f in await everything(client) if isinstance(f, TurnStream)]
        assert "".join(frame.text for frame in frames[:-1]) == text
        assert len(frames) == 4
        assert frames[-1].text.endswith("end")


@pytest.mark.asyncio
async def test_attaches_what_fits_and_names_what_does_not(home: Path) -> None:
    small, large, huge = home / "a.txt", home / "big.bin", home / "huge.bin"
    small.write_bytes(b"hi")
    large.write_bytes(b"x" * (700 * 1024 + 1))
    with huge.open("wb") as file:
        file.truncate(20 * 1024 * 1024 + 1)
    async with Session(hub=False) as session, person(home, session) as client:
        await everything(client)
        await session.attach(PNG, caption="plot")
        await session.attach(small)
        await session.attach(b"x" * (700 * 1024), name="edge.bin")
        await session.attach(large)
        picture, text, edge, by_path, _ = await everything(client)
        assert isinstance(picture, ImageAttachment)
        assert base64.b64decode(picture.data) == PNG
        assert (picture.mime, picture.caption) == ("image/png", "plot")
        assert isinstance(text, FileAttachment)
        assert (text.name, text.mime, text.data) == ("a.txt", "text/plain", "aGk=")
        assert isinstance(edge, FileAttachment)
        assert len(base64.b64decode(edge.data)) == 700 * 1024
        assert isinstance(by_path, FileAttachment)
        assert (by_path.path, by_path.data) == (str(large.resolve()), "")
        for source, limit in ((b"x" * (700 * 1024 + 1), "716800"), (huge, "20971520")):
            with pytest.raises(UpcallError) as refused:
                await session.attach(source, name="x")
            assert refused.value.code == "attachment_too_large"
            assert limit in refused.value.msg
        for bad in (home / "missing", home, b"no name"):
            with pytest.raises(UsageError) as unreadable:
                await session.attach(bad)
            assert unreadable.value.code == "attachment_unreadable"


@pytest.mark.asyncio
async def test_hears_what_people_write(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        await client.message("fix the docs", update_id=5)
        assert (await next_frame(client, InboundAck)).state == "queued"
        messages = session.messages()
        message = await anext(messages)
        assert (str(message), message.update_id) == ("fix the docs", 5)
        assert (await next_frame(client, InboundAck)).state == "consumed"
        token = record_of(home, session).token
        assert client._connection is not None
        client._connection.send(
            ConfigCommand(session_id=session.session_id, token=token, verbosity="verbose")
        )
        await client.ping()
        assert (session.verbosity, session.redact) == ("verbose", None)
        listening = asyncio.create_task(anext(messages, None))
    assert await listening is None


@pytest.mark.asyncio
async def test_publishes_a_record_and_takes_it_away(home: Path) -> None:
    async with Session(hub=False, session_id="my-session") as session:
        record = record_of(home, session)
        assert record.session_id == "my-session"
        assert record.pid == os.getpid()
        assert record.pid_start
        assert len(record.token) == 32
        assert record.token not in repr(session)
        path = home / "r/upcall/sessions/my-session.json"
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


class TickClock(SystemClock):
    """A real clock whose long sleeps end when the test says so."""

    def __init__(self) -> None:
        self.ticks: asyncio.Queue[None] = asyncio.Queue()
        self.waiting = asyncio.Event()

    async def sleep(self, duration_s: float) -> None:
        self.waiting.set()
        await self.ticks.get()

    async def tick(self) -> None:
        """Let the sleeper run once, and wait until it sleeps again."""
        await self.waiting.wait()
        self.waiting.clear()
        self.ticks.put_nowait(None)
        await self.waiting.wait()


@pytest.mark.asyncio
async def test_a_record_that_vanished_comes_back_and_moves_to_where_the_hub_looks(
    home: Path,
) -> None:
    clock = TickClock()
    async with Session(hub=False, session_id="s1", clock=clock) as session:
        path = home / "r/upcall/sessions/s1.json"
        before = path.read_bytes()
        mtime = path.stat().st_mtime_ns
        await clock.tick()
        assert path.stat().st_mtime_ns == mtime
        path.unlink()
        await clock.tick()
        again = record_of(home, session)
        assert (again.token, again.port) == (
            records.parse(before, path.name).token,
            records.parse(before, path.name).port,
        )
        other = home / "other"
        state = home / "s/upcall"
        state.mkdir(mode=0o700, exist_ok=True)
        hub_json = state / "hub.json"
        hub_json.touch(mode=0o600)
        named = {"runtime_dir": str(other), "control_sock": str(state / "control.sock")}
        hub_json.write_text(json.dumps(named))
        await clock.tick()
        assert not path.exists()
        assert (other / "sessions/s1.json").exists()
        hub_json.write_text("{")
        await clock.tick()
        assert path.exists()
    assert not path.exists()


@pytest.mark.asyncio
async def test_publishes_beside_its_project_on_request(home: Path) -> None:
    project = home / "project"
    project.mkdir(mode=0o755)
    async with Session(hub=False, session_id="s2", project=project):
        path = project / ".upcall/state/sdk/s2.json"
        assert path.exists()
        assert (project / ".upcall/.gitignore").read_text() == "*\n"
    assert not path.exists()


@pytest.mark.asyncio
async def test_the_first_client_hears_what_was_said_before_it_came(home: Path) -> None:
    async with Session(hub=False) as session:
        await session.notify("started")
        await session.idle("nothing to do")
        async with person(home, session) as client:
            frames = await everything(client)
            assert [f.text for f in frames if isinstance(f, TurnStream)] == ["started"]
            assert [f.summary for f in frames if isinstance(f, ActionNeeded)] == [
                "nothing to do"
            ]


@pytest.mark.asyncio
async def test_ends_with_goodbye_and_cancels_what_is_open(home: Path) -> None:
    session = Session(hub=False)
    async with person_after(home, session) as (client, asking):
        pass
    with pytest.raises(Cancelled):
        await asking
    kinds = [type(frame) for frame in client._frames]
    assert kinds[-1] is SessionClosed
    assert client.session_closed
    with pytest.raises(UsageError, match="not running"):
        await session.ask("Too late?")
    with pytest.raises(UsageError, match="runs once"):
        await session.__aenter__()


@asynccontextmanager
async def person_after(
    home: Path, session: Session
) -> AsyncIterator[tuple[SessionClient, "asyncio.Task[Any]"]]:
    """A person who stays a little longer than the session."""
    await session.__aenter__()
    async with person(home, session) as client:
        asking = asyncio.create_task(session.ask("Still there?"))
        await asked(client)
        yield client, asking
        await session.__aexit__(None, None, None)
        await asyncio.wait([asyncio.create_task(drain(client))])


async def drain(client: SessionClient) -> None:
    while not client._is_over:
        client._arrived.clear()
        await client._arrived.wait()


@pytest.mark.parametrize(
    "fields", [{"session_id": "a/b"}, {"session_id": ".."}, {"title": "x" * 201}]
)
def test_refuses_names_that_cannot_be_used(fields: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        Session(hub=False, **fields)  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_says_when_its_record_cannot_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "r/upcall").mkdir(mode=0o700)
    (home / "r/upcall/sessions").symlink_to(home)
    with pytest.raises(UpcallError) as failed:
        async with Session(hub=False):
            pass
    assert failed.value.code.startswith("folder_")


def test_finds_repository_and_branch_without_git(home: Path) -> None:
    repo = home / "demo"
    (repo / ".git").mkdir(parents=True)
    (repo / "a/b").mkdir(parents=True)
    (repo / ".git/HEAD").write_text("ref: refs/heads/feature/x\n")
    assert origin_of(repo / "a/b").repo == "demo"
    assert origin_of(repo / "a/b").branch == "feature/x"
    (repo / ".git/HEAD").write_text("0123456789" * 4 + "\n")
    assert origin_of(repo).branch == "0123456"
    worktree = home / "tree"
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: ../demo/.git\n")
    assert origin_of(worktree).repo == "tree"
    assert origin_of(worktree).branch == "0123456"
    assert origin_of(home).repo == ""


@pytest.mark.asyncio
async def test_lives_without_a_hub_and_says_why_there_is_none(home: Path) -> None:
    # Nothing can be started where the state folder cannot be made.
    (home / "s/upcall").write_text("in the way")
    async with Session() as session:
        await session.notify("said to nobody")
        async with person(home, session) as client:
            asking = asyncio.create_task(session.ask("Go?"))
            await client.reply((await asked(client)).id, "yes")
            assert await asking == "yes"
        while session.hub_error is None:
            await asyncio.sleep(0)
    assert session.hub_error.code
    assert str(home) not in session.hub_error.code


@pytest.mark.asyncio
async def test_refuses_messages_that_nobody_reads(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        for number in range(1001):
            await client.message("x", update_id=number)
        acks = [f.update_id for f in await everything(client) if isinstance(f, InboundAck)]
        assert acks[-1] == 999


@pytest.mark.asyncio
async def test_a_repeated_reply_is_confirmed_again(home: Path) -> None:
    async with Session(hub=False) as session, person(home, session) as client:
        asking = asyncio.create_task(session.ask("Go?", ["Yes", "No"], free_text=True))
        ask = await asked(client)
        assert ask.takes_text
        first = await client.reply(ask.id, 0, key="k")
        assert await client.reply(ask.id, 0, key="k") == first
        assert await asking == "Yes"


@pytest.mark.asyncio
async def test_refuses_to_be_used_outside_its_life(home: Path) -> None:
    session = Session(hub=False)
    for call in (
        session.ask("?"),
        session.notify("x"),
        session.idle("x"),
        session.attach(PNG),
        session.context(task="x"),
        session.activity(True),
    ):
        with pytest.raises(UsageError, match="async with"):
            await call


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("timeout_s", "words"),
    [
        (600.0, "no answer within 10 min ("),
        (0.5, "no answer within 0.5 s ("),
        (90.0, "no answer within 90 s ("),
        (7200.0, "no answer within 2 h ("),
        (86400.0, "no answer within 1 d ("),
        (None, "no answer (timed out"),
    ],
)
async def test_says_in_words_how_long_nobody_answered(
    timeout_s: float | None, words: str
) -> None:
    resolved = ActionResolved(id=ActionId("ask:1"), resolved_by="timeout")
    waiting = Waiting(asyncio.get_running_loop().create_future(), timeout_s, 0.0)
    with pytest.raises(TimedOut) as over:
        answer_of(Ending(resolved, "timed_out", None, None), waiting, 1.0)
    assert str(over.value).startswith(words)
