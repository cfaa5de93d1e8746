"""A hub in memory, for tests of adapters with pages: a view, an inbox and seams."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from upcall.model.ask import AnsweredBy, AskResult, Selection
from upcall.model.ids import AskId
from upcall.model.platform import (
    Answered,
    ChannelState,
    Inbound,
    LoginKept,
    Receipt,
    Seams,
    SettingKept,
    Texted,
)
from upcall.model.shown import with_shown
from upcall.model.views import AskView, ChannelView, HealthView, NoticeView, SessionView

START_MS = 1_790_000_000_000


class ManualClock:
    """A clock that stands still until a test moves it; sleeping waits for `advance`."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self._sleepers: list[tuple[int, asyncio.Event]] = []
        self.slept = asyncio.Event()

    def wall_ms(self) -> int:
        return self.now_ms

    def boot_s(self) -> float:
        return self.now_ms / 1000

    async def sleep(self, duration_s: float) -> None:
        wake = asyncio.Event()
        self._sleepers.append((self.now_ms + int(duration_s * 1000), wake))
        self.slept.set()
        await wake.wait()

    def advance(self, duration_s: float) -> None:
        self.now_ms += int(duration_s * 1000)
        for due_ms, wake in self._sleepers:
            if due_ms <= self.now_ms:
                wake.set()


class RecordingLog:
    """Keeps event names and facts."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, event: str, **facts: Any) -> None:
        self.events.append(("info", event, facts))

    def warning(self, event: str, **facts: Any) -> None:
        self.events.append(("warning", event, facts))

    def error(self, event: str, **facts: Any) -> None:
        self.events.append(("error", event, facts))


class NoScreens:
    """No terminal watches."""

    def show(self, body: bytes) -> int:
        return 0

    def count(self) -> int:
        return 0


SESSION = SessionView(
    session_id="s0123456789ab",
    kind="sdk",
    state="attached",
    conversation="c1",
    title="release.py",
    repo="shop",
    branch="main",
    machine="laptop",
    cwd="/home/someone/shop",
    program="python3",
    pid=4242,
    since_ms=START_MS - 600_000,
    takes_text=True,
)


class FakeHub:
    """View and Inbox in one: takes the first answer to an open ask of the same revision.

    Attributes:
        events: everything that was put in, in order.
        states: every `ChannelState`.
        takes_at_once: the program takes an answer at once; else the ask stays claimed
            until `finish`.
    """

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.events: list[Inbound] = []
        self.states: list[ChannelState] = []
        self.asks: dict[str, AskView] = {}
        self.session_list: list[SessionView] = [SESSION]
        self.notice_list: list[NoticeView] = []
        self.files: dict[str, tuple[str, str, bytes]] = {}
        self.kept: dict[str, str] = {}
        self.login_rows: dict[str, LoginKept] = {}
        self.ready = True
        self.takes_at_once = True
        self._numbers = itertools.count(1)
        self._seen_keys: dict[str, Receipt] = {}
        # Asks that one act decides nothing about, with what their cards say afterwards.
        self.voting: dict[str, str] = {}
        self._version = 0
        self._changed = asyncio.Event()

    # -- what a test does

    def changed(self) -> None:
        self._version += 1
        was, self._changed = self._changed, asyncio.Event()
        was.set()

    def raise_ask(self, question: str = "Deploy?", **fields: Any) -> AskView:
        number = next(self._numbers)
        defaults: dict[str, Any] = {
            "id": f"a{number:012d}",
            "state": "open",
            "ask_class": "question",
            "question": question,
            "options": ("Yes", "No"),
            "multi": False,
            "free_text": False,
            "revision": f"revision-{number}",
            "raised_ms": self.clock.wall_ms(),
            "session": SESSION,
        }
        ask = with_shown(AskView(**{**defaults, **fields}))
        self.asks[ask.id] = ask
        self.changed()
        return ask

    def change_ask(self, ask_id: str, **fields: Any) -> None:
        self.asks[ask_id] = with_shown(msgspec.structs.replace(self.asks[ask_id], **fields))
        self.changed()

    def close_ask(
        self,
        ask_id: str,
        outcome: str,
        answer: Selection | None = None,
        by: AnsweredBy | None = None,
    ) -> None:
        self.change_ask(
            ask_id,
            state="closed",
            outcome=outcome,
            answer=answer,
            answered_by=by,
            closed_ms=self.clock.wall_ms() + next(self._numbers),
        )

    def finish(self, ask_id: str) -> None:
        ask = self.asks[ask_id]
        self.close_ask(ask_id, "answered", ask.answer, ask.answered_by)

    # -- View

    def open_asks(self) -> Sequence[AskView]:
        return [ask for ask in self.asks.values() if ask.state != "closed"]

    def ask(self, ask_id: str) -> AskView | None:
        return self.asks.get(ask_id)

    async def history(self, before_ms: int | None, limit: int) -> Sequence[AskView]:
        closed = [ask for ask in self.asks.values() if ask.closed_ms is not None]
        closed.sort(key=lambda ask: ask.closed_ms or 0, reverse=True)
        return [ask for ask in closed if before_ms is None or (ask.closed_ms or 0) < before_ms][
            :limit
        ]

    def sessions(self) -> Sequence[SessionView]:
        return list(self.session_list)

    async def notices(self, limit: int) -> Sequence[NoticeView]:
        return list(reversed(self.notice_list))[:limit]

    async def file(self, file_id: str) -> tuple[str, str, bytes] | None:
        return self.files.get(file_id)

    def health(self) -> HealthView:
        audience = self.states[-1].audience if self.states else 0
        return HealthView(
            ready=self.ready,
            degraded=(),
            channels=(ChannelView("web", "delivered", audience=audience),),
            sessions=len(self.session_list),
            open_asks=len(self.open_asks()),
            deliveries_waiting=0,
            started_ms=START_MS,
        )

    def settings(self) -> Mapping[str, str]:
        return dict(self.kept)

    def logins(self) -> Sequence[LoginKept]:
        now = self.clock.wall_ms()
        return [row for row in self.login_rows.values() if now < row.expires_ms]

    async def changes(self) -> AsyncIterator[int]:
        seen = -1
        while True:
            while seen == self._version:
                await self._changed.wait()
            seen = self._version
            yield seen

    # -- Inbox

    def state(self, state: ChannelState) -> None:
        self.states.append(state)

    async def put(self, event: Inbound) -> Receipt:
        self.events.append(event)
        await asyncio.sleep(0)
        match event:
            case LoginKept():
                if event.gone:
                    self.login_rows.pop(event.digest, None)
                else:
                    self.login_rows[event.digest] = event
                return Receipt(ok=True)
            case SettingKept():
                if event.value is None:
                    self.kept.pop(event.name, None)
                else:
                    self.kept[event.name] = event.value
                return Receipt(ok=True)
            case Answered() | Texted() if event.key in self._seen_keys:
                return self._seen_keys[event.key]
            case Answered():
                receipt = self._answer(event)
            case _:
                receipt = Receipt(ok=True)
        self._seen_keys[event.key] = receipt
        return receipt

    def _answer(self, event: Answered) -> Receipt:
        ask = self.asks.get(event.ask)
        if ask is None:
            return Receipt(ok=False, code="unknown_ask", msg="no such ask")
        if ask.state != "open":
            return Receipt(
                ok=False, code="already_answered", msg="already answered", result=_result(ask)
            )
        if event.revision != ask.revision:
            return Receipt(ok=False, code="stale_card", msg="the program changed its question")
        if event.hold is not None:
            self.change_ask(ask.id, held=event.hold)
            return Receipt(ok=True, result=_result(self.asks[ask.id]))
        if ask.id in self.voting:
            self.change_ask(ask.id, can_withdraw=not event.withdraw, note=self.voting[ask.id])
            code = "withdrawn" if event.withdraw else "voted"
            words = "Your vote is noted. Needed: 1 more person for the same answer (1 of 2)."
            msg = "Your vote was taken back." if event.withdraw else words
            return Receipt(ok=True, code=code, msg=msg, result=_result(self.asks[ask.id]))
        by = AnsweredBy(event.who.name, "web")
        if event.decline:
            self.close_ask(ask.id, "declined", None, by)
            return Receipt(ok=True, result=_result(self.asks[ask.id]))
        indices = event.indices or ()
        if any(index >= len(ask.options) for index in indices):
            return Receipt(ok=False, code="invalid_answer", msg="no such option")
        answer = Selection(indices, tuple(ask.options[index] for index in indices), event.text)
        self.change_ask(ask.id, state="claimed", answer=answer, answered_by=by)
        if self.takes_at_once:
            self.finish(ask.id)
        return Receipt(ok=True, result=_result(self.asks[ask.id]))

    # -- Seams

    def seams(self, **fields: Any) -> Seams:
        defaults: dict[str, Any] = {
            "channel": "web",
            "clock": self.clock,
            "random": os.urandom,
            "log": RecordingLog(),
            "view": self,
            "screens": NoScreens(),
            "state_dir": "/nonexistent",
            "machine": "laptop",
            "operator": "sam",
            "version": "0.1.0",
        }
        return Seams(**{**defaults, **fields})


def _result(ask: AskView) -> AskResult:
    return AskResult(
        id=AskId(ask.id),
        outcome=ask.outcome or "open",
        answer=ask.answer,
        answered_by=ask.answered_by,
        waited_s=1.0,
    )
