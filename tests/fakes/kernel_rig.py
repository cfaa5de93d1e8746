"""A kernel with its rows in memory and both clocks in the test's hand."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from fakes.rows_store import RowsStore
from upcall.core.kernel import Kernel
from upcall.core.state import ChannelInfo, KernelSettings
from upcall.model import frames
from upcall.model.ask import AskSpec
from upcall.model.document import Message
from upcall.model.effects import (
    Acknowledge,
    Decision,
    Release,
    Respond,
    Send,
    ToClients,
    ToWaiter,
)
from upcall.model.events import (
    Asker,
    AskRaised,
    ChannelChanged,
    Delivered,
    DeliveryFailed,
    Due,
    Event,
    FrameIn,
    HostedReply,
    LinkDown,
    LinkSynced,
    LinkUp,
    Moment,
    PersonActed,
    Resumed,
    Took,
    WaitAsked,
)
from upcall.model.ids import ActionId, AskId, ReplyKey, SessionId
from upcall.model.platform import (
    Answered,
    Body,
    Capabilities,
    Inbound,
    Place,
    Pressed,
    Receipt,
    Texted,
    Who,
)
from upcall.model.policy import Policy, Terms
from upcall.model.rows import AskRow, CardRow, CopyRow, DeliveryRow

T = TypeVar("T")
START_MS = 1_800_000_000_000
ADA = Who(identity="ada", name="ada")
HOME = SessionId("sess-1")
PARALLEL = ("parallel_asks_v1", "outcomes_v1", "client_ping_pong")


class Card(msgspec.Struct, frozen=True):
    """What a channel of the rig is told."""

    plain: str
    state_line: str
    live: bool
    tokens: tuple[str, ...] = ()


def lower(message: Message, place: Place) -> Sequence[Body]:
    """Return one body that says what the message is."""
    del place
    choices = message.choices
    tokens = () if choices is None else tuple(button.token for button in choices.buttons)
    card = Card(message.plain, message.state_line, choices is not None, tokens)
    return (Body(msgspec.json.encode(card)),)


def channel(
    name: str, *, repeat: Any = "harmless", buttons: int = 0, own_user: bool = True
) -> ChannelInfo:
    """Return a channel whose bodies are `Card`s."""
    capabilities = Capabilities(
        text_limit=4096, buttons_per_card=buttons, repeat=repeat, own_user=own_user
    )
    return ChannelInfo(name, capabilities, lower)


def ask_id(number: int) -> AskId:
    """Return a public id that is easy to tell."""
    return AskId(f"a{number:012d}")


def asker(pid: int = 100, *, parent: str = "1:p", name: str | None = None) -> Asker:
    """Return a program on the hub's socket."""
    return Asker(
        pid=pid,
        start=f"s{pid}" if pid else "",
        parent=parent,
        uid=1000,
        name=name,
        program="deploy.sh",
        cwd="/work",
        repo="shop",
        branch="main",
        title="Deploying",
    )


YES_NO = AskSpec(question="Deploy?", options=("yes", "no"), free_text=False)


class Rig:
    """One hub's heart without a hub.

    Attributes:
        releases: what was released so far, oldest first.
    """

    def __init__(self, *channels: ChannelInfo, **settings: Any) -> None:
        self.settings = KernelSettings(
            **{
                "operator": "grace",
                "machine": "box",
                "boot_id": "boot-1",
                "channels": channels or (channel("web"),),
                # Who wants reminders says so: every other test waits as long as it likes.
                "policy": Policy(defaults=Terms(reminders_s=())),
                **settings,
            }
        )
        self.store = RowsStore()
        self.kernel = Kernel(self.settings)
        self.wall_ms = START_MS
        self.boot_s = 1000.0
        self.releases: list[Release] = []
        self._seeds = 0
        self._waiters = 0
        self._receipts = 0
        self._keys = 0
        self.do(Resumed(at=self.now))
        for info in self.settings.channels:
            self.hears(info.name)

    # --- time and life ---------------------------------------------------------------------

    @property
    def now(self) -> Moment:
        """The instant, on both clocks."""
        return Moment(self.wall_ms, self.boot_s)

    def do(self, event: Event) -> Decision:
        """Let *event* happen, as the loop would."""
        self._seeds += 1
        decision = self.kernel.handle(event, self._seeds.to_bytes(16, "big"))
        if decision.writes:
            self.store.commit(decision.writes)
        self.releases += decision.releases
        return decision

    def together(self, *events: Event) -> None:
        """Let *events* happen in one step of the loop: one commit, then the releases."""
        decisions = []
        for event in events:
            self._seeds += 1
            decisions.append(self.kernel.handle(event, self._seeds.to_bytes(16, "big")))
        writes = [write for decision in decisions for write in decision.writes]
        if writes:
            self.store.commit(writes)
        for decision in decisions:
            self.releases += decision.releases

    def lazy(self) -> list[Event]:
        """Return the arrivals that the loop lets wait for company."""
        return [
            Delivered(at=self.now, delivery=row.id)
            for row in self.sending()
            if row.kind != "post"
        ]

    def wait(self, seconds: float) -> None:
        """Let time pass; what is due happens."""
        end_s = self.boot_s + seconds
        while (due_s := self.kernel.next_due_s()) is not None and due_s <= end_s:
            step_s = max(0.0, due_s - self.boot_s)
            self.boot_s += step_s
            self.wall_ms += round(step_s * 1000)
            self.boot_s = max(self.boot_s, due_s)
            self.do(Due(at=self.now))
        self.wall_ms += round((end_s - self.boot_s) * 1000)
        self.boot_s = end_s

    def restart(
        self,
        *,
        down_s: float = 1.0,
        boot_id: str | None = None,
        hears: bool = True,
        **settings: Any,
    ) -> None:
        """End the hub at once and start another one with its rows."""
        self.wall_ms += int(down_s * 1000)
        self.boot_s = self.boot_s + down_s if boot_id is None else 10.0
        if boot_id is not None:
            settings["boot_id"] = boot_id
        changed = {**{f: getattr(self.settings, f) for f in _FIELDS}, **settings}
        self.settings = KernelSettings(**changed)
        self.releases.clear()
        self.kernel = Kernel.load(self.settings, self.store.snapshot())
        self.do(Resumed(at=self.now))
        for info in self.settings.channels if hears else ():
            self.hears(info.name)

    def hears(self, name: str, *, hearing: bool = True, audience: int = 0) -> Decision:
        """Let a channel say how it is."""
        return self.do(
            ChannelChanged(at=self.now, channel=name, hearing=hearing, audience=audience)
        )

    # --- programs --------------------------------------------------------------------------

    def waiter(self) -> int:
        """Return a new number for somebody who waits."""
        self._waiters += 1
        return self._waiters

    def ask(
        self,
        number: int = 1,
        spec: AskSpec = YES_NO,
        *,
        who: Asker | None = None,
        **fields: Any,
    ) -> int:
        """Raise an ask and return its waiter."""
        waiter = self.waiter()
        self.do(
            AskRaised(
                at=self.now,
                waiter=waiter,
                ask_id=ask_id(number),
                spec=spec,
                asker=who or asker(),
                **fields,
            )
        )
        return waiter

    def wait_for(self, number: int = 1, **fields: Any) -> int:
        """Wait for an ask as somebody else, and return the waiter."""
        waiter = self.waiter()
        event = WaitAsked(at=self.now, waiter=waiter, ask_id=ask_id(number), **fields)
        self.do(event)
        return waiter

    def took(self, number: int = 1, **fields: Any) -> int:
        """Let the asker confirm or answer, and return the waiter."""
        waiter = self.waiter()
        row = self.row(number)
        session = self.kernel.session(row.session_id) if row is not None else None
        own = Who(
            identity="1000",
            name="grace",
            tty="/dev/pts/1",
            local=True,
            pid=session.asker_pid if session is not None else None,
            pid_start=session.asker_start if session is not None else None,
        )
        who = fields.pop("who", own)
        self.do(Took(at=self.now, waiter=waiter, ask_id=ask_id(number), who=who, **fields))
        return waiter

    def reply(
        self,
        number: int = 1,
        answer: Any = None,
        *,
        connection: str = "c1",
        key: str | None = None,
        decline: bool = False,
    ) -> Decision:
        """Let a client of the hosted endpoint reply."""
        row = self.row(number)
        frame = frames.Reply(
            id=ActionId(f"ask:{ask_id(number)}"),
            token="t",
            answer=answer,
            idempotency_key=None if key is None else ReplyKey(key),
            decline=decline,
        )
        session = SessionId("nobody") if row is None else row.session_id
        return self.do(
            HostedReply(at=self.now, session_id=session, connection=connection, frame=frame)
        )

    # --- sessions --------------------------------------------------------------------------

    def up(
        self,
        session: SessionId = HOME,
        capabilities: tuple[str, ...] = PARALLEL,
        *,
        pid: int = 50,
        sync: bool = True,
    ) -> None:
        """Attach a session."""
        self.do(
            LinkUp(
                at=self.now,
                session_id=session,
                pid=pid,
                pid_start=f"s{pid}",
                record_path="/run/r.json",
                program="agent",
                cwd="/src",
                capabilities=capabilities,
            )
        )
        if sync:
            self.sync(session)

    def sync(self, session: SessionId = HOME) -> None:
        """Let the session have replayed everything."""
        self.do(LinkSynced(at=self.now, session_id=session))

    def down(self, session: SessionId = HOME, *, gone: bool = False) -> None:
        """End a session's link."""
        self.do(LinkDown(at=self.now, session_id=session, gone=gone))

    def frame(self, frame: Any, session: SessionId = HOME, **fields: Any) -> Decision:
        """Let a session say something."""
        return self.do(
            FrameIn(at=self.now, session_id=session, frame=frame, fresh=b"", **fields)
        )

    def needs(
        self,
        action: str = "q1",
        question: str = "Go on?",
        options: tuple[str, ...] = ("yes", "no"),
        *,
        session: SessionId = HOME,
        **fields: Any,
    ) -> Decision:
        """Let a session ask."""
        return self.frame(
            frames.ActionNeeded(
                id=ActionId(action),
                kind="ask",
                session_id=session,
                question=question,
                options=options,
                **fields,
            ),
            session,
        )

    def resolved(
        self, action: str = "q1", *, session: SessionId = HOME, **fields: Any
    ) -> Decision:
        """Let a session say how an ask ended."""
        return self.frame(frames.ActionResolved(id=ActionId(action), **fields), session)

    def rejected(
        self, reason: str, action: str = "q1", *, session: SessionId = HOME
    ) -> Decision:
        """Let a session refuse our reply."""
        return self.frame(frames.ReplyRejected(id=ActionId(action), reason=reason), session)

    # --- people ----------------------------------------------------------------------------

    def act(self, inbound: Inbound, *, on: str | None = None, **fields: Any) -> Receipt | None:
        """Let a person act, and return the receipt if there is one at once.

        Without a channel it is the web, or the first one where there is none.
        """
        if on is None:
            on = "web" if "web" in self.kernel._state.infos else self.settings.channels[0].name
        self._receipts += 1
        decision = self.do(
            PersonActed(
                at=self.now,
                channel=on,
                inbound=inbound,
                receipt_id=self._receipts,
                **fields,
            )
        )
        return receipt_in(decision.releases, self._receipts)

    @property
    def last_receipt(self) -> int:
        """The number of the last receipt that was asked for."""
        return self._receipts

    def answer(
        self, row: AskRow | int = 1, *, on: str | None = None, who: Who = ADA, **fields: Any
    ) -> Receipt | None:
        """Let a person answer; without anything else, by the first option."""
        found = self.row(row) if isinstance(row, int) else row
        assert found is not None
        self._keys += 1
        fields.setdefault("key", f"k{self._keys}")
        fields.setdefault("revision", found.revision)
        if not {"indices", "text", "typed", "decline", "hold"} & fields.keys():
            fields["indices"] = (0,)
        return self.act(Answered(ask=found.ask_id, who=who, **fields), on=on)

    def press(
        self,
        token: str,
        *,
        on: str = "chat",
        at: str | None = None,
        who: Who = ADA,
        key: str | None = None,
        **fields: Any,
    ) -> Receipt | None:
        """Let a person press a button where its card stands, or at another address.

        What the store says of a button that is over is found, as the hub does.
        """
        self._keys += 1
        place = Place(on, self.stands(token) if at is None else at)
        key = key or f"p{self._keys}"
        press = Pressed(key=key, token=token, place=place, who=who, **fields)
        retired = self.store.retired.get(token)
        found = self.store.asks.get(AskId(retired.ask_id)) if retired is not None else None
        return self.act(press, on=on, found=found, retired=retired)

    def stands(self, token: str) -> str:
        """Return the address of the message with a button, as the store has it."""
        store = self.store
        if token in store.buttons:
            return store.buttons[token].place
        if token in store.retired:
            return store.retired[token].place
        row = store.tokens.get(token)
        of_ask = [
            card
            for card in store.cards.values()
            if row is not None and (card.ask_id, card.channel) == (row.ask_id, row.channel)
        ]
        return of_ask[-1].place if of_ask else "nowhere"

    def write(
        self,
        text: str,
        *,
        at: str,
        on: str = "chat",
        who: Who = ADA,
        key: str | None = None,
        **fields: Any,
    ) -> Receipt | None:
        """Let a person write in the thread at an address; by default, just now."""
        self._keys += 1
        fields.setdefault("sent_ms", self.wall_ms)
        reply_to = fields.get("reply_to")
        found = None
        known: list[CardRow | CopyRow] = [*self.store.cards.values()]
        for card in [*known, *self.store.copies.values()]:
            if reply_to is not None and (card.channel, card.ref) == (on, reply_to):
                found = self.store.asks[card.ask_id]
        act = Texted(
            key=key or f"w{self._keys}", who=who, text=text, place=Place(on, at), **fields
        )
        return self.act(act, on=on, found=found)

    # --- deliveries ------------------------------------------------------------------------

    def sending(self, target: str | None = None, kind: str | None = None) -> list[DeliveryRow]:
        """Return what is on its way, oldest first."""
        return [
            row
            for row in self.store.deliveries.values()
            if row.state == "sending"
            and target in {None, row.target}
            and kind in {None, row.kind}
        ]

    def waiting(self) -> list[DeliveryRow]:
        """Return what has not arrived and is not on its way, oldest first."""
        rows = self.store.deliveries.values()
        return [row for row in rows if row.state in {"queued", "retry"}]

    def of_posts(self) -> list[DeliveryRow]:
        """Return the posts and edits whose sending was released, with their bodies."""
        return [
            one.delivery
            for one in self.of(Send)
            if one.delivery.kind in {"post", "edit"} and one.delivery.body
        ]

    def arrive(self, row: DeliveryRow) -> Decision:
        """Let a delivery arrive."""
        has_ref = row.kind in {"post", "remind", "open"}
        ref = f"ref-{row.id}" if has_ref else None
        return self.do(Delivered(at=self.now, delivery=row.id, ref=ref))

    def arrive_all(self) -> None:
        """Let everything arrive that can."""
        while rows := self.sending():
            for row in rows:
                self.arrive(row)

    def fail(self, row: DeliveryRow, kind: Any, **fields: Any) -> Decision:
        """Let a delivery fail."""
        event = DeliveryFailed(at=self.now, delivery=row.id, kind=kind, msg="no", **fields)
        return self.do(event)

    # --- looking ---------------------------------------------------------------------------

    def row(self, number: int = 1) -> AskRow | None:
        """Return an ask as the store has it."""
        return self.store.asks.get(ask_id(number))

    def only(self, state: str | None = None) -> AskRow:
        """Return the one ask in the store (in this state)."""
        (row,) = [row for row in self.store.asks.values() if state in {None, row.state}]
        return row

    def told(self, waiter: int, event: str = "ended") -> list[dict[str, Any]]:
        """Return what a waiter was told."""
        return [
            msgspec.json.decode(msgspec.json.encode(one.fields))
            for one in self.releases
            if isinstance(one, ToWaiter) and (one.waiter, one.event) == (waiter, event)
        ]

    def response(self, waiter: int) -> Respond:
        """Return the one response that a waiter got."""
        (found,) = [
            one for one in self.releases if isinstance(one, Respond) and one.waiter == waiter
        ]
        return found

    def error(self, waiter: int) -> str:
        """Return the code with which a waiter was refused."""
        error = self.response(waiter).error
        assert error is not None
        return str(error["code"])

    def of(self, kind: type[T]) -> list[T]:
        """Return the releases of one kind."""
        return [one for one in self.releases if isinstance(one, kind)]

    def to_clients(self) -> list[tuple[str | None, Any]]:
        """Return the frames for clients of hosted endpoints, with the connection."""
        return [(one.connection, one.frame) for one in self.of(ToClients)]

    def card(self, row: DeliveryRow) -> Card:
        """Return what a delivery shows."""
        return msgspec.json.decode(row.body, type=Card)

    def sent_frames(self, session: SessionId = HOME) -> list[Any]:
        """Return the frames whose sending was released, as the session would get them."""
        return [
            frames.decode(one.delivery.body)
            for one in self.of(Send)
            if one.delivery.target == session
        ]


def receipt_in(releases: Sequence[Release], number: int) -> Receipt | None:
    """Return the receipt with *number*, if it is among *releases*."""
    found = [
        one.receipt
        for one in releases
        if isinstance(one, Acknowledge) and one.receipt_id == number
    ]
    assert len(found) <= 1
    return found[0] if found else None


_FIELDS = (
    "operator",
    "machine",
    "boot_id",
    "channels",
    "operators",
    "local_answers",
    "allow_direct_clients",
    "allow_defaults",
    "zone",
    "people",
    "policy",
    "uid",
    "redact",
    "confirm_changes",
    "adapters",
    "limits",
)
