"""The embedding API: a program becomes a session that can ask its people.

```python
async with Session("Nightly build") as session:
    answer = await session.ask("Deploy?", ["Yes", "No"], timeout_s=600)
    if answer == "Yes":
        ...
```
"""

import asyncio
import itertools
import os
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self, assert_never

from upcall.answer import Answer, AnsweredBy
from upcall.clock import Clock, SystemClock
from upcall.core.actions import ActionBook, Ending, Rejected, Repeated, Taken, check_deadline
from upcall.core.link import Delivered
from upcall.model import limits
from upcall.model.ask import AskSpec
from upcall.model.errors import (
    InvalidAsk,
    UpcallError,
    UsageError,
)
from upcall.model.frames import (
    ActionNeeded,
    ActionResolved,
    Activity,
    AskHold,
    By,
    ConfigCommand,
    ConfigUpdate,
    ContextUpdate,
    IdentityHeader,
    InboundAck,
    InlineImage,
    Reply,
    SessionClosed,
    SessionReady,
    TurnStream,
    UserMessage,
    sendable,
)
from upcall.model.frames import Answer as WireAnswer
from upcall.model.given import check_given, checked_labels
from upcall.model.ids import (
    ASK_ID_BYTES,
    TOKEN_BYTES,
    ActionId,
    AskId,
    ConnectionId,
    action_id_of,
    is_session_id,
    new_hosted_session_id,
)
from upcall.model.tags import TAG_RULE, sendable_tags
from upcall.model.text import one_line
from upcall.session.asking import (
    Waiting,
    action_id_for,
    answer_of,
    ensure_hub,
    recommended_index,
)
from upcall.session.files import attachment
from upcall.session.origin import origin_of
from upcall.session.publish import RecordKeeper, make_record
from upcall.session.server import Endpoint

MAX_UNREAD_MESSAGES: Final = 1000
_LONGEST_WAIT_S: Final = 60.0
_EARLY_BYTES: Final = 4 * 1024 * 1024
_EARLY_S: Final = 3.0
_PIECE_CHARS: Final = 150_000
_CONTEXT_FIELDS: Final = frozenset(ContextUpdate.__struct_fields__) - {"session_id"}


@dataclass(frozen=True, slots=True)
class Message:
    """A person's words for the session.

    Attributes:
        text: what was written.
        images: pictures sent with it, as base64.
        by: who sent it, as far as the sender's client tells.
        update_id: the sender's number for it, or None.
    """

    text: str
    images: tuple[InlineImage, ...] = ()
    by: AnsweredBy | None = None
    update_id: int | None = None

    def __str__(self) -> str:
        return self.text


class Session:
    """A running program that hosts an endpoint, as an async context manager.

    Args:
        title: what people see as its name.
        session_id: `[A-Za-z0-9._-]{1,128}`; a random one if None.
        repo: repository name; found from the working folder if None.
        branch: branch; found from the working folder if None.
        cwd: the working folder; the process's own if None.
        hub: start a hub if none runs, so that the session is seen by people.
        project: publish beside the project too: True for the working folder, or its root.
        allow_origins: browser origins that may connect; none by default.
        tags: what it calls itself by, for routes; those of $UPCALL_TAGS if None.
        clock: the time.

    Attributes:
        session_id: the session's id.
        hub_error: why no hub could be started, or None.
        verbosity: what people asked for, `lean` or `verbose`; None if nobody did.
        redact: whether people asked for secrets to be hidden; None if nobody did.
    """

    def __init__(
        self,
        title: str | None = None,
        *,
        session_id: str | None = None,
        repo: str | None = None,
        branch: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        hub: bool = True,
        project: bool | str | os.PathLike[str] = False,
        allow_origins: Collection[str] = (),
        tags: Collection[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if session_id is not None and not is_session_id(session_id):
            raise UsageError(
                f"session_id: {one_line(session_id)!r} is not 1 to 128 of A-Z a-z 0-9 . _ -"
            )
        if title is not None and len(title) > limits.MAX_TITLE_CHARS:
            raise UsageError(
                f"title: has {len(title)} characters; the limit is {limits.MAX_TITLE_CHARS}"
            )
        random_id = new_hosted_session_id(os.urandom(ASK_ID_BYTES))
        self.session_id: str = session_id or random_id
        self.hub_error: UpcallError | None = None
        self.verbosity: str | None = None
        self.redact: bool | None = None
        self._title = None if title is None else sendable(title)
        self._tags = _tags_of(tags)
        self._repo = repo
        self._branch = branch
        self._cwd = os.fspath(cwd) if cwd is not None else None
        self._wants_hub = hub
        self._project = project
        self._clock: Clock = SystemClock() if clock is None else clock
        # Deadlines run on the boot clock: a step of the wall clock moves none of them.
        self._origin_ms = self._clock.wall_ms()
        self._origin_s = self._clock.boot_s()
        self._book = ActionBook(self.session_id)
        self._waiting: dict[ActionId, Waiting] = {}
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._hub_task: asyncio.Task[None] | None = None
        self._refs = itertools.count(1)
        self._idles = itertools.count(1)
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._keeper: RecordKeeper | None = None
        self._running = False
        self._ended = False
        self._endpoint = Endpoint(
            self.session_id,
            self._token,
            self,
            allow_origins=allow_origins,
            keep_early_bytes=_EARLY_BYTES,
        )

    def __repr__(self) -> str:
        return f"<Session {self.session_id}>"

    # --- Life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Listen, publish the record, and start a hub if one is wanted.

        Raises:
            UpcallError: the endpoint or its record could not be set up.
        """
        if self._running or self._ended:
            raise UsageError("a session runs once; make another one")
        cwd = self._cwd if self._cwd is not None else await asyncio.to_thread(os.getcwd)
        origin = await asyncio.to_thread(origin_of, cwd)
        repo = sendable(origin.repo if self._repo is None else self._repo)
        branch = sendable(origin.branch if self._branch is None else self._branch)
        self._endpoint.broadcast(
            SessionReady(
                session_id=self.session_id, repo=repo, branch=branch, title=self._title
            )
        )
        self._endpoint.broadcast(
            IdentityHeader(
                session_id=self.session_id,
                repo=repo,
                branch=branch,
                machine=sendable(origin.machine),
                title=self._title,
                tags=self._tags,
            )
        )
        self._endpoint.broadcast(ContextUpdate(session_id=self.session_id, cwd=sendable(cwd)))
        port = await self._endpoint.start()
        try:
            record = make_record(
                self.session_id, port, self._token, now_ms=self._clock.wall_ms()
            )
            project = self._project_root(cwd)
            self._keeper = RecordKeeper(record, self._clock, project=project)
            await self._keeper.start()
        except BaseException:
            await self._endpoint.close()
            if self._keeper is not None:
                await self._keeper.stop()
            raise
        self._running = True
        self._spawn("keep-record", self._keeper.run())
        self._spawn("deadlines", self._run_deadlines())
        if self._wants_hub:
            self._hub_task = asyncio.create_task(self._start_hub(), name="upcall-start-hub")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the session: open asks are cancelled, and the record goes."""
        self._running = False
        try:
            if error is None:
                await self._tell_early()
        finally:
            await self._shut_down()

    async def _shut_down(self) -> None:
        self._ended = True
        for ending in self._book.withdraw_all():
            self._conclude(ending)
        self._endpoint.broadcast(SessionClosed(session_id=self.session_id))
        self._arrived.set()
        tasks = [*self._tasks, *((self._hub_task,) if self._hub_task else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._keeper is not None:
            await self._keeper.stop()
        await self._endpoint.close()

    async def _tell_early(self) -> None:
        """Give a hub that is just starting the time to hear what was said before it came."""
        if not self._wants_hub or not self._endpoint.has_early():
            return
        if self._hub_task is not None:
            await asyncio.wait([self._hub_task])
        if self.hub_error is None:
            try:
                async with self._clock.timeout(_EARLY_S):
                    await self._endpoint.first_client()
            except TimeoutError:
                return

    def _spawn(self, name: str, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"upcall-{name}"))

    async def _start_hub(self) -> None:
        try:
            await asyncio.to_thread(ensure_hub)
        except UpcallError as exc:
            # The session lives without one; whoever starts a hub later finds it.
            self.hub_error = exc

    def _project_root(self, cwd: str) -> str | None:
        if self._project is False:
            return None
        return cwd if self._project is True else os.fspath(self._project)

    # --- Asking ----------------------------------------------------------------------------

    async def ask(
        self,
        question: str,
        options: Sequence[str] = (),
        *,
        detail: str | None = None,
        multi: bool = False,
        min_selected: int | None = None,
        max_selected: int | None = None,
        free_text: bool | None = None,
        recommended: str | int | None = None,
        timeout_s: float | None = None,
        default: str | None = None,
        permission: bool = False,
        option_details: Sequence[str] | None = None,
        secret: bool = False,
        merge: bool = False,
        ask_id: str | None = None,
    ) -> Answer:
        """Ask, and wait for the answer.

        Args:
            question: 1 to 8,192 characters.
            options: up to 100 labels that a person can tell apart; none for words only.
            detail: longer text below the question, up to 256 KiB.
            multi: several options may be chosen.
            min_selected: at least so many, for `multi`.
            max_selected: at most so many, for `multi`.
            free_text: take an answer in words too; by default only where there are no
                options.
            recommended: the option to offer first, by label or place.
            timeout_s: end by itself after 0.1 s to 365 days; None waits for ever.
            default: answer of a time-out; an option, or words where words are taken.
            permission: the answer lets something run; takes no default.
            option_details: one more text for each option.
            secret: the answer is words that are shown to nobody and kept nowhere; people type
                them in the inbox or at a terminal.
            merge: equal questions that are open at the same time are one card, and one answer
                is for all of them, where the policy allows it; never permissions.
            ask_id: a fresh public id; made if None.

        Returns:
            The answer. With a default, a time-out returns it with outcome `timed_out`.

        Raises:
            InvalidAsk: something is out of bounds; nothing was asked.
            AmbiguousLabels: two labels look alike; nothing was asked.
            Declined: a person declined to answer.
            TimedOut: nobody answered in time, and there is no default.
            Cancelled: the ask was withdrawn, or the session ended.
        """
        self._check_running()
        check_given(
            {
                "question": question, "detail": detail, "multi": multi,
                "min_selected": min_selected, "max_selected": max_selected,
                "free_text": free_text, "recommended": recommended, "timeout_s": timeout_s,
                "default": default, "permission": permission, "secret": secret,
                "merge": merge, "ask_id": ask_id,
            }
        )  # fmt: skip
        labels = checked_labels("options", options)
        if default is not None and timeout_s is None:
            raise InvalidAsk(
                "default: it answers for a time-out, and there is none; give timeout_s"
            )
        # One moment for all of it: the shortest time-out must not be too short a while later.
        now_ms = self._now_ms()
        spec = AskSpec(
            question=question,
            options=labels,
            detail=detail,
            multi=multi,
            min_selected=min_selected,
            max_selected=max_selected,
            free_text=not labels if free_text is None else free_text,
            recommended=recommended_index(labels, recommended),
            deadline_at_ms=_deadline(now_ms, timeout_s),
            default=default,
            ask_class="permission" if permission else "question",
            option_details=(
                None
                if option_details is None
                else checked_labels("option_details", option_details)
            ),
            secret=secret,
            merge=merge,
        )
        action = action_id_for(ask_id)
        frame = self._book.raise_(action, spec, now_ms=now_ms)
        waiting = Waiting(
            asyncio.get_running_loop().create_future(), timeout_s, self._clock.boot_s()
        )
        self._waiting[action] = waiting
        try:
            self._endpoint.present(frame)
            self._changed.set()
            ending = await waiting.future
        finally:
            self._waiting.pop(action, None)
            # Cancelled while it was open: people are told that nobody waits any more.
            withdrawn = self._book.withdraw(action)
            if withdrawn is not None:
                self._conclude(withdrawn)
        return answer_of(ending, waiting, self._clock.boot_s() - waiting.since_s)

    def withdraw(self, ask_id: str) -> bool:
        """Cancel an open ask; its `ask` raises `Cancelled`. False if it was not open."""
        ending = self._book.withdraw(action_id_of(AskId(ask_id)))
        if ending is not None:
            self._conclude(ending)
        return ending is not None

    def answer(
        self,
        ask_id: str,
        answer: WireAnswer | None,
        *,
        channel: str = "local",
        name: str | None = None,
    ) -> bool:
        """Answer an open ask from inside the program; without an answer, decline it.

        Args:
            ask_id: the ask.
            answer: what was chosen or written; None declines.
            channel: where the person was asked.
            name: who the person is, if the program knows.

        Returns:
            False if it was not open any more; somebody was faster.

        Raises:
            InvalidAnswer: the ask does not take it; it stays open.
        """
        ending = self._book.resolve_local(
            action_id_of(AskId(ask_id)), answer, by=By(channel=channel, name=name)
        )
        if ending is not None:
            self._conclude(ending)
        return ending is not None

    def _conclude(self, ending: Ending) -> None:
        self._endpoint.resolve(ending.resolved)
        waiting = self._waiting.get(ending.resolved.id)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result(ending)
        self._changed.set()

    def _now_ms(self) -> int:
        return self._origin_ms + round((self._clock.boot_s() - self._origin_s) * 1000)

    async def _run_deadlines(self) -> None:
        while True:
            self._changed.clear()
            for ending in self._book.expire(self._now_ms()):
                self._conclude(ending)
            due_ms = self._book.next_deadline_ms()
            if due_ms is None:
                await self._changed.wait()
                continue
            # A sleeping machine shows only when we look, so we look now and then.
            wait_s = min(max(0.0, (due_ms - self._now_ms()) / 1000), _LONGEST_WAIT_S)
            try:
                async with self._clock.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    # --- Telling ---------------------------------------------------------------------------

    async def notify(self, text: str) -> None:
        """Tell people something; nobody has to answer."""
        self._say("finalized", text, None, final=False)

    async def idle(self, summary: str) -> None:
        """Say that the session has nothing to do, and why."""
        self._check_running()
        self._endpoint.broadcast(
            ActionNeeded(
                id=ActionId(f"idle-{self.session_id}-{next(self._idles)}"),
                kind="idle",
                session_id=self.session_id,
                summary=sendable(summary)[:_PIECE_CHARS],
            )
        )

    async def stream(
        self, text: str, *, live: bool = True, ref: str | None = None, final: bool = False
    ) -> str:
        """Show text of the session, and return its ref.

        Args:
            text: the whole text of the message so far.
            live: more will come; live text may be left out where people read slowly.
            ref: the same ref replaces what was shown under it; a new one if None.
            final: this is the session's last word in this turn; never live.
        """
        ref = f"t{next(self._refs)}" if ref is None else ref
        self._say("live" if live and not final else "finalized", text, ref, final=final)
        return ref

    async def attach(
        self,
        source: str | os.PathLike[str] | bytes,
        *,
        name: str | None = None,
        mime: str | None = None,
        caption: str | None = None,
    ) -> None:
        """Show people a file or picture.

        Args:
            source: a path, or the bytes themselves.
            name: file name to show; needed with bytes that are no picture.
            mime: what it is; guessed if None.
            caption: one sentence below it.

        Raises:
            UsageError: the file cannot be read.
            UpcallError: `attachment_too_large`; over 700 KiB of bytes, or a file of 20 MiB.
        """
        self._check_running()
        frame = await asyncio.to_thread(
            attachment, self.session_id, source, name=name, mime=mime, caption=caption
        )
        self._endpoint.broadcast(frame)

    async def context(self, **fields: str | None) -> None:
        """Say what the session is at; fields that are not given stay as they were.

        Args:
            fields: any of cwd, last_message, task, goal, token_usage, model, diff.

        Raises:
            UsageError: there is no such field.
        """
        self._check_running()
        for name in fields:
            if name not in _CONTEXT_FIELDS:
                known = ", ".join(sorted(_CONTEXT_FIELDS))
                raise UsageError(
                    f"context: there is no field {one_line(name)!r}; there are {known}"
                )
        given = {name: sendable(text) for name, text in fields.items() if text is not None}
        self._endpoint.broadcast(ContextUpdate(session_id=self.session_id, **given))

    async def activity(self, busy: bool) -> None:
        """Say whether the session is working or waits."""
        self._check_running()
        state = "busy" if busy else "idle"
        self._endpoint.broadcast(Activity(session_id=self.session_id, state=state))

    def _say(self, phase: str, text: str, ref: str | None, *, final: bool) -> None:
        self._check_running()
        text = sendable(text)
        if phase == "live":
            # The end of it is what is new.
            self._broadcast_text("live", text[-_PIECE_CHARS:], ref, final=False)
            return
        pieces = [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)]
        for number, piece in enumerate(pieces or [""]):
            # Only the first piece replaces what was shown under the ref.
            piece_ref = ref if number == 0 or ref is None else f"{ref}.{number}"
            last = number == len(pieces) - 1
            self._broadcast_text("finalized", piece, piece_ref, final=final and last)

    def _broadcast_text(
        self, phase: Literal["live", "finalized"], text: str, ref: str | None, *, final: bool
    ) -> None:
        self._endpoint.broadcast(
            TurnStream(
                session_id=self.session_id,
                phase=phase,
                text=text,
                final_answer=final,
                message_ref=ref,
            )
        )

    # --- Listening -------------------------------------------------------------------------

    async def messages(self) -> AsyncIterator[Message]:
        """Iterate over what people write to the session, until it ends.

        Up to 1,000 messages wait here; beyond that new ones are refused to their sender by
        not being acknowledged.
        """
        while True:
            while self._messages:
                message = self._messages.popleft()
                self._acknowledge(message.update_id, "consumed")
                yield message
            if self._ended:
                return
            self._arrived.clear()
            await self._arrived.wait()

    @property
    def connections(self) -> int:
        """How many clients are connected; a hub is one."""
        return self._endpoint.connections

    # --- server.EndpointHandler ------------------------------------------------------------

    def open_asks(self) -> Sequence[ActionNeeded]:
        """See `EndpointHandler`."""
        return self._book.open_asks()

    def recent_resolutions(self) -> Sequence[ActionResolved]:
        """See `EndpointHandler`."""
        return self._book.recent_resolutions()

    def reply(self, connection: ConnectionId, reply: Reply) -> None:
        """See `EndpointHandler`."""
        verdict = self._book.reply(connection, reply)
        match verdict:
            case Taken():
                self._conclude(verdict.ending)
            case Repeated():
                self._endpoint.send(connection, verdict.ending.resolved)
            case Rejected():
                self._endpoint.send(connection, verdict.frame)
            case _:
                assert_never(verdict)

    def hold(self, connection: ConnectionId, hold: AskHold) -> None:
        """See `EndpointHandler`."""
        del connection
        frame = self._book.hold(hold.id, hold.hold, now_ms=self._now_ms())
        if frame is not None:
            self._endpoint.present(frame)
            self._changed.set()

    def user_message(self, connection: ConnectionId, message: UserMessage) -> None:
        """See `EndpointHandler`."""
        del connection
        if len(self._messages) >= MAX_UNREAD_MESSAGES:
            return
        by = None if message.by is None else AnsweredBy(message.by.name, message.by.channel)
        self._messages.append(Message(message.text, message.images, by, message.update_id))
        self._acknowledge(message.update_id, "queued")
        self._arrived.set()

    def config(self, connection: ConnectionId, command: ConfigCommand) -> None:
        """See `EndpointHandler`."""
        del connection
        if command.verbosity is not None:
            self.verbosity = command.verbosity
        if command.redact is not None:
            self.redact = command.redact
        self._endpoint.broadcast(
            ConfigUpdate(
                session_id=self.session_id, verbosity=self.verbosity, redact=self.redact
            )
        )

    def other(self, connection: ConnectionId, frame: Delivered) -> None:
        """See `EndpointHandler`. Nothing else concerns an SDK session."""

    def _acknowledge(self, update_id: int | None, state: str) -> None:
        if update_id is not None:
            self._endpoint.broadcast(
                InboundAck(session_id=self.session_id, update_id=update_id, state=state)
            )

    def _check_running(self) -> None:
        if not self._running:
            raise UsageError("the session is not running; use it inside `async with`")


def _deadline(now_ms: int, timeout_s: float | None) -> int | None:
    return None if timeout_s is None else now_ms + round(check_deadline(timeout_s) * 1000)


def _tags_of(given: Collection[str] | None) -> tuple[str, ...]:
    if given is None:
        given = re.split(r"[,\s]+", os.environ.get("UPCALL_TAGS", "").strip(", \t\n"))
        given = [tag for tag in given if tag]
    if isinstance(given, str) or not all(isinstance(tag, str) for tag in given):
        raise UsageError("tags: a list of texts is wanted")
    tags = tuple(dict.fromkeys(given))
    if sendable_tags(tags) != tags:
        raise UsageError(f"tags: {TAG_RULE}")
    return tags
