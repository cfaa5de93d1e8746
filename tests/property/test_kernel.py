"""Random histories of a hub: whatever happens in whatever order, the invariants hold."""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakes.kernel_rig import ADA, YES_NO, Rig, ask_id, asker, channel
from upcall.core.kernel import Kernel
from upcall.model.ask import AskSpec
from upcall.model.effects import Acknowledge, Respond, Send, ToWaiter
from upcall.model.events import AskerDied, CancelAsked, LockAsked, Took, WaiterGone
from upcall.model.frames import Choice
from upcall.model.ids import SessionId
from upcall.model.platform import SessionRuled, Texted, Who
from upcall.model.quotas import Limits
from upcall.model.rows import AskRow, DeliveryRow, HubButton, RetiredToken, TokenRow
from upcall.model.struct import replaced

SPECS = (
    YES_NO,
    replaced(YES_NO, ask_class="permission"),
    AskSpec(question="Which?", options=("a", "b"), multi=True, default="a"),
    AskSpec(question="Why?"),
)
SESSIONS = (SessionId("one"), SessionId("two"))
CAPABILITIES = ((), ("parallel_asks_v1",), ("parallel_asks_v1", "outcomes_v1"))
MALLORY = Who("mallory", "mallory")
LOCAL = Who("1000", "grace", "pid 9", ancestors=("100:s100",), tty="/dev/pts/1", local=True)

numbers = st.integers(1, 5)
pids = st.sampled_from([0, 100, 101])
answers: st.SearchStrategy[Any] = st.sampled_from(
    [0, 1, 7, "yes", "a", "words", Choice(selected=(0,)), Choice(selected=(0, 1))]
)


def is_ordered(row: DeliveryRow) -> bool:
    """Tell whether nothing of its kind may overtake a delivery."""
    return row.kind in {"reply", "message", "hold"} or (row.kind, row.lane) == ("post", "ask")


def at_rest(rows: dict[int, DeliveryRow]) -> dict[int, DeliveryRow]:
    """Return deliveries without whether the wait of one is over: a clock tells that."""
    return {
        number: replaced(row, state="queued", not_before_ms=0)
        if row.state in {"retry", "uncertain"}
        else row
        for number, row in rows.items()
    }


def differing(ours: Any, theirs: Any) -> Any:
    """Return what of two dictionaries differs, for the message of a failure."""
    if not isinstance(ours, dict):
        return ours, theirs
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    return [(ours.get(key), theirs.get(key)) for key in keys[:3]]


class Histories(RuleBasedStateMachine):
    """One hub, two channels, hosted asks and two sessions with endpoints of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(
            channel("web"),
            channel("chat", repeat="none", buttons=5),
            limits=Limits(shown_asks=4, shown_asks_per_minute=3, approvals_at_ease=2),
        )
        self.read = 0
        self.under_way: dict[int, DeliveryRow] = {}
        self.ended: Counter[int] = Counter()
        self.responses: Counter[int] = Counter()
        self.receipts: Counter[int] = Counter()
        self.connected: set[int] = set()
        self.kept: dict[str, AskRow] = {}
        self.talks = 0
        self.locked = False
        self.claimed: set[int] = set()

    def lane(self, row: DeliveryRow) -> tuple[str, str, str]:
        beside = (row.ask_id or "") if row.target == "web" else ""
        return row.target, row.conversation or row.place, beside

    def look(self) -> None:
        """Check what was released since the last look."""
        new = self.rig.releases[self.read :]
        self.read = len(self.rig.releases)
        for release in new:
            match release:
                case Send(row):
                    assert row.id not in self.under_way, "sent twice at once"
                    lane = self.lane(row)
                    assert lane not in map(self.lane, self.under_way.values()), "two in a lane"
                    self.under_way[row.id] = row
                case ToWaiter(waiter, "ended"):
                    self.ended[waiter] += 1
                    assert self.ended[waiter] == 1, "told the end twice"
                case Respond(waiter):
                    self.responses[waiter] += 1
                    assert self.responses[waiter] == 1, "responded twice"
                case Acknowledge(receipt):
                    self.receipts[receipt] += 1
                    assert self.receipts[receipt] == 1, "acknowledged twice"
                case _:
                    pass

    # --- programs --------------------------------------------------------------------------

    @rule(
        number=numbers,
        spec=st.sampled_from(SPECS),
        pid=pids,
        wait=st.booleans(),
        key=st.sampled_from([None, "k"]),
        timeout_s=st.sampled_from([None, 30.0, 1e6]),
    )
    def raises(
        self,
        number: int,
        spec: AskSpec,
        pid: int,
        wait: bool,
        key: str | None,
        timeout_s: float | None,
    ) -> None:
        known = self.rig.store.asks.get(ask_id(number))
        if key is not None:
            found = self.rig.kernel.find_by_key(key)
            known = self.rig.store.asks.get(found) if found is not None else known
        in_memory = known is not None and self.rig.kernel.find(known.ask_id) is not None
        keyed = known is not None and known.ask_id != ask_id(number)
        if keyed and ask_id(number) in self.rig.store.asks:
            # The hub looks for the keyed ask only; an id is used once by an honest program.
            return
        waiter = self.rig.ask(
            number,
            spec,
            who=asker(pid),
            wait=wait,
            key=key,
            timeout_s=timeout_s,
            found=None if in_memory else known,
        )
        if wait:
            self.connected.add(waiter)

    @rule(number=numbers)
    def waits(self, number: int) -> None:
        self.connected.add(self.rig.wait_for(number, found=self.stored(number)))

    @rule(number=numbers)
    def took(self, number: int) -> None:
        self.rig.took(number, found=self.stored(number))

    @rule(number=numbers, index=st.integers(0, 2), declined=st.booleans())
    def answers_itself(self, number: int, index: int, declined: bool) -> None:
        fields: dict[str, Any] = {"declined": True} if declined else {"indices": (index,)}
        self.rig.took(number, local=True, found=self.stored(number), **fields)

    @rule(number=numbers)
    def cancels(self, number: int) -> None:
        event = CancelAsked(
            at=self.rig.now,
            waiter=self.rig.waiter(),
            ask_id=ask_id(number),
            found=self.stored(number),
        )
        self.rig.do(event)

    @precondition(lambda self: self.connected)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(sorted(self.connected)))
        self.connected.discard(waiter)
        self.rig.do(WaiterGone(at=self.rig.now, waiters=(waiter,)))

    @rule(pid=pids)
    def dies(self, pid: int) -> None:
        self.rig.do(AskerDied(at=self.rig.now, pid=pid, start=f"s{pid}"))

    @rule(
        number=numbers,
        answer=answers,
        key=st.sampled_from([None, "x", "y"]),
        connection=st.sampled_from(["c1", "c2"]),
        decline=st.booleans(),
    )
    def replies(
        self, number: int, answer: Any, key: str | None, connection: str, decline: bool
    ) -> None:
        answer = None if decline else answer
        self.rig.reply(number, answer, connection=connection, key=key, decline=decline)

    # --- sessions --------------------------------------------------------------------------

    @rule(session=st.sampled_from(SESSIONS), capabilities=st.sampled_from(CAPABILITIES))
    def attaches(self, session: SessionId, capabilities: tuple[str, ...]) -> None:
        self.rig.up(session, capabilities, sync=False)

    @rule(session=st.sampled_from(SESSIONS))
    def syncs(self, session: SessionId) -> None:
        self.rig.sync(session)

    @rule(session=st.sampled_from(SESSIONS), gone=st.booleans())
    def detaches(self, session: SessionId, gone: bool) -> None:
        self.rig.down(session, gone=gone)

    @rule(
        session=st.sampled_from(SESSIONS),
        action=st.sampled_from(["q1", "q2", f"ask:{ask_id(9)}"]),
        question=st.sampled_from(["Go on?", "Really?"]),
        held=st.booleans(),
    )
    def needs(self, session: SessionId, action: str, question: str, held: bool) -> None:
        # Only in memory is it known which ids were used; sessions do not reuse theirs.
        known = self.rig.store.asks.get(ask_id(9))
        forgotten = known is not None and self.rig.kernel.find(ask_id(9)) is None
        if action.endswith(ask_id(9)) and forgotten:
            return
        self.rig.needs(action, question, session=session, held=held)

    @rule(
        session=st.sampled_from(SESSIONS),
        action=st.sampled_from(["q1", "q2", f"ask:{ask_id(9)}"]),
        fields=st.sampled_from(
            [
                {"resolved_by": "client", "answer": "yes"},
                {"resolved_by": "local", "answer": 1},
                {"resolved_by": "timeout"},
                {"resolved_by": "local"},
                {"resolved_by": "client", "outcome": "declined"},
            ]
        ),
    )
    def resolves(self, session: SessionId, action: str, fields: dict[str, Any]) -> None:
        self.rig.resolved(action, session=session, **fields)

    @rule(
        session=st.sampled_from(SESSIONS),
        action=st.sampled_from(["q1", "q2"]),
        reason=st.sampled_from(["invalid_answer", "already_answered", "unknown_action"]),
    )
    def rejects(self, session: SessionId, action: str, reason: str) -> None:
        self.rig.rejected(reason, action, session=session)

    # --- people ----------------------------------------------------------------------------

    @precondition(lambda self: self.rig.store.asks)
    @rule(
        data=st.data(),
        act=st.sampled_from(
            [
                {"indices": (0,)},
                {"indices": (1,)},
                {"text": "words"},
                {"typed": ("#1",)},
                {"decline": True},
                {"hold": True},
                {"hold": False},
                {"indices": (0,), "key": "same"},
                {"indices": (0,), "revision": "other"},
            ]
        ),
        on=st.sampled_from(["web", "chat", "terminal"]),
    )
    def answers(self, data: st.DataObject, act: dict[str, Any], on: str) -> None:
        row = data.draw(st.sampled_from(list(self.rig.store.asks.values())))
        self.rig.answer(row, on=on, who=LOCAL if on == "terminal" else ADA, **act)

    @precondition(lambda self: self.rig.store.tokens or self.rig.store.retired)
    @rule(
        data=st.data(),
        how=st.sampled_from(["here", "here", "elsewhere", "copy", "other channel", "stranger"]),
    )
    def presses(self, data: st.DataObject, how: str) -> None:
        store = self.rig.store
        known = sorted({**store.tokens, **store.retired, **store.buttons})
        token = data.draw(st.sampled_from(known))
        live = store.tokens.get(token)
        before = dict(store.asks)
        stood = sum(row.kind == "security" for row in store.notices.values())
        of: TokenRow | RetiredToken | HubButton | None = store.tokens.get(token)
        of = of or store.retired.get(token) or store.buttons[token]
        other = "chat" if of.channel == "web" else "web"
        receipt = self.rig.press(
            token,
            on=other if how == "other channel" else of.channel,
            at="somewhere else" if how == "elsewhere" else None,
            ref="copy" if how == "copy" else None,
            who=MALLORY if how == "stranger" else ADA,
        )
        if how in {"elsewhere", "other channel"}:
            assert receipt is not None
            assert not receipt.ok
            assert store.asks == before, "a press from elsewhere changed an ask"
        if live is None:
            changed = {key for key, row in before.items() if store.asks[key] != row}
            ruled = token in store.buttons or how in {"here", "copy", "stranger"}
            assert not changed or ruled, "a button that is over changed an ask"
        if how in {"here", "copy"} and token in store.retired:
            after = sum(row.kind == "security" for row in store.notices.values())
            assert after == stood, "an old button of ours was taken for a forged one"

    @rule(token=st.sampled_from(["", "forged", "0" * 19]))
    def forges(self, token: str) -> None:
        before = dict(self.rig.store.asks)
        receipt = self.rig.press(token, at="anywhere", who=MALLORY)
        assert receipt is not None
        assert not receipt.ok
        assert self.rig.store.asks == before

    @precondition(lambda self: self.rig.store.cards)
    @rule(
        data=st.data(),
        words=st.sampled_from(["", "", "words", "1"]),
        origin=st.sampled_from(
            ["typed", "typed", "forwarded", "edited", "quoted", "relayed", "automatic"]
        ),
        late_ms=st.sampled_from([-5000, 1000, 5000, 5000]),
        replies=st.booleans(),
    )
    def says(
        self, data: st.DataObject, words: str, origin: str, late_ms: int, replies: bool
    ) -> None:
        store = self.rig.store
        cards = list(store.cards.values())
        open_ = [one for one in cards if store.asks[one.ask_id].state == "open"]
        cards = [one for one in open_ if one.ref is not None] or open_ or cards
        card = data.draw(st.sampled_from(cards))
        # A label, if there is one, is what is most likely to be taken.
        words = words or next(iter(store.asks[card.ask_id].spec.options), "words")
        posted_ms = card.posted_ms if card.posted_ms is not None else self.rig.wall_ms
        before = dict(store.asks)
        self.rig.write(
            words,
            on=card.channel,
            at=card.place,
            origin=origin,
            sent_ms=posted_ms + late_ms,
            reply_to=card.ref if replies else None,
        )
        changed = [row for key, row in before.items() if store.asks[key] != row]
        assert len(changed) <= 1, "one text answered two asks"
        for row in changed:
            shown = [
                one
                for one in store.cards.values()
                if (one.ask_id, one.channel, one.place)
                == (row.ask_id, card.channel, card.place)
            ]
            assert origin == "typed", "what nobody typed there answered"
            assert shown, "words of another thread answered"
            if replies:
                assert row.ask_id in {
                    one.ask_id for one in store.cards.values() if one.ref == card.ref
                }
            else:
                assert row.spec.ask_class != "permission", "plain words gave a permission"
                assert all(
                    one.posted_ms is not None and posted_ms + late_ms >= one.posted_ms + 2000
                    for one in shown
                ), "words answered what nobody could have read"

    @rule(pid=st.sampled_from([100, 101]), first=st.sampled_from([1000, 2000]))
    def floods(self, pid: int, first: int) -> None:
        """One program asks more than is shown at once."""
        for number in range(first, first + 6):
            if ask_id(number) not in self.rig.store.asks:
                self.rig.ask(number, YES_NO, who=asker(pid), wait=False)

    @precondition(lambda self: self.rig.store.sessions)
    @rule(data=st.data(), what=st.sampled_from(["mute", "unmute", "stop", "hold"]))
    def people_rule(self, data: st.DataObject, what: Any) -> None:
        session = data.draw(st.sampled_from(sorted(self.rig.store.sessions)))
        act = SessionRuled(
            key=f"r{self.rig.last_receipt}", who=ADA, session_id=session, rule=what
        )
        self.rig.act(act)

    @rule(
        spec=st.sampled_from([YES_NO, replaced(YES_NO, ask_class="permission"), SPECS[3]]),
        words=st.sampled_from(["yes", " YES ", "perhaps"]),
        origin=st.sampled_from(
            ["typed", "typed", "typed", "forwarded", "edited", "quoted", "relayed"]
        ),
        late_ms=st.sampled_from([-60_000, 0, 1000, 1999, 2000, 60_000]),
        replies=st.booleans(),
    )
    def talks_in_a_thread_of_its_own(
        self, spec: AskSpec, words: str, origin: str, late_ms: int, replies: bool
    ) -> None:
        """One ask, one thread, one text: whether it answers is known beforehand."""
        self.rig.hears("chat")
        number = 3000 + self.talks
        self.talks += 1
        who = asker(300 + number, parent=f"{number}:own")
        self.rig.ask(number, spec, who=who, wait=False)
        self.look()
        post = next(
            (
                row
                for row in self.under_way.values()
                if (row.ask_id, row.target, row.kind) == (ask_id(number), "chat", "post")
            ),
            None,
        )
        if post is None:
            # The chat takes nothing just now.
            return
        del self.under_way[post.id]
        self.rig.arrive(post)
        (card,) = [
            one
            for one in self.rig.store.cards.values()
            if (one.ask_id, one.channel) == (ask_id(number), "chat")
        ]
        assert card.posted_ms is not None
        self.rig.write(
            words,
            at=card.place,
            origin=origin,
            sent_ms=card.posted_ms + late_ms,
            reply_to=card.ref if replies else None,
        )
        fits = words != "perhaps" or spec is SPECS[3]
        in_time = late_ms >= 0 if replies else late_ms >= 2000
        may = replies or spec.ask_class != "permission"
        free = self.rig.kernel.lock is None
        row = self.rig.row(number)
        assert row is not None
        answers = origin == "typed" and fits and in_time and may and free
        assert (row.outcome == "answered") is answers

    @rule(lock=st.sampled_from([False, False, False, True]))
    def locks(self, lock: bool) -> None:
        self.rig.do(LockAsked(at=self.rig.now, lock=lock, who=LOCAL))

    @rule(session=st.sampled_from(SESSIONS))
    def writes(self, session: SessionId) -> None:
        key = f"t{self.rig.last_receipt}"
        self.rig.act(Texted(key=key, who=ADA, text="Hello", session_id=session))

    # --- channels, time, crashes -----------------------------------------------------------

    @precondition(lambda self: self.under_way)
    @rule(
        data=st.data(),
        how=st.sampled_from(
            ["arrive", "arrive", "not_sent", "refused", "throttled", "uncertain"]
        ),
    )
    def carries(self, data: st.DataObject, how: str) -> None:
        row = self.under_way.pop(data.draw(st.sampled_from(sorted(self.under_way))))
        if how == "arrive":
            self.rig.arrive(row)
        elif how != "throttled":
            self.rig.fail(row, how)
        elif row.kind in {"post", "edit"}:
            self.rig.fail(row, how, retry_after_s=20.0)
        else:
            self.rig.fail(row, "uncertain")

    @rule(name=st.sampled_from(["web", "chat"]), hearing=st.booleans())
    def hears(self, name: str, hearing: bool) -> None:
        self.rig.hears(name, hearing=hearing)

    @rule(seconds=st.sampled_from([0.0, 1.0, 3.0, 40.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.rig.wait(seconds)

    @rule(reboot=st.booleans(), hears=st.booleans())
    def crashes(self, reboot: bool, hears: bool) -> None:
        self.look()
        self.under_way.clear()
        self.connected.clear()
        self.read = 0
        boot_id = f"boot-{self.rig.last_receipt}" if reboot else None
        self.rig.restart(boot_id=boot_id, hears=hears)

    # --- what always holds -----------------------------------------------------------------

    def stored(self, number: int) -> AskRow | None:
        row = self.rig.store.asks.get(ask_id(number))
        in_memory = self.rig.kernel.find(ask_id(number)) is not None
        return None if in_memory else row

    @invariant()
    def releases_are_in_order_and_once(self) -> None:
        self.look()
        sending = {row.id for row in self.rig.sending()}
        assert sending == set(self.under_way)
        first: dict[tuple[str, str, str], int] = {}
        # An edit changes nothing's place, and what is dropped first may be overtaken; cards
        # and what goes to a session keep their order.
        for row in self.rig.store.deliveries.values():
            if row.state not in {"done", "dead"} and is_ordered(row):
                first.setdefault(self.lane(row), row.id)
        ordered = {row.id for row in self.rig.sending() if is_ordered(row)}
        assert ordered <= set(first.values()), "something overtook what came before it"

    @invariant()
    def no_more_is_shown_than_is_allowed(self) -> None:
        store, held = self.rig.store, self.rig.kernel._state
        shown: Counter[str] = Counter()
        for row in held.asks.values():
            if any(ask == row.ask_id for ask, _, _ in store.cards):
                shown[row.session_id] += 1
        # A session that people told nothing about shows at most its four; what it had shown
        # stays when they mute it.
        assert all(count <= 4 for count in shown.values()), shown
        for session_id, flood in held.floods.items():
            assert session_id in held.sessions or flood.lines
            assert set(flood.back).isdisjoint(flood.shown)

    @invariant()
    def a_lock_lets_nothing_through_but_the_control_socket(self) -> None:
        now = {
            number
            for number, claim in self.rig.store.claims.items()
            if claim.channel in {"web", "chat"}
        }
        if self.locked and self.rig.kernel.lock is not None:
            assert now == self.claimed, "somebody answered through the lock"
        self.locked, self.claimed = self.rig.kernel.lock is not None, now

    @invariant()
    def a_token_is_live_or_over_and_never_both(self) -> None:
        store = self.rig.store
        assert not set(store.tokens) & set(store.retired)
        assert {row.ask_id for row in store.tokens.values()} <= set(self.rig.kernel._state.asks)

    @invariant()
    def what_is_closed_stays_as_it_was(self) -> None:
        for number, row in self.rig.store.asks.items():
            if row.state == "closed":
                assert self.kept.setdefault(number, row) == row

    @invariant()
    def one_reply_at_a_time(self) -> None:
        replies = Counter(
            (row.ask_id, row.state == "sending")
            for row in self.rig.store.deliveries.values()
            if row.kind == "reply" and row.state not in {"done", "dead"}
        )
        assert all(count == 1 for count in replies.values())

    @invariant()
    def memory_is_what_the_store_says(self) -> None:
        store, held = self.rig.store, self.rig.kernel._state
        assert held.asks == {k: v for k, v in store.asks.items() if v.state != "closed"}
        assert held.claims == {v.ask_id: v for v in store.claims.values() if v.live}
        assert at_rest(held.deliveries) == at_rest(
            {k: v for k, v in store.deliveries.items() if v.state not in {"done", "dead"}}
        )
        assert held.texts == store.texts
        assert held.buttons == store.buttons
        of_asks = {(row.ask_id, row.ref) for row in store.copies.values()}
        for ask_id_, of_channel in held.copies.items():
            for refs in of_channel.values():
                assert {(ask_id_, ref) for ref in refs} <= of_asks
        assert held.sessions == {k: v for k, v in store.sessions.items() if v.ended_ms is None}
        assert held.gates == store.gates
        assert {
            token: row for token, row in held.tokens.items() if row.ask_id in held.asks
        } == store.tokens
        assert {
            (row.key, row.channel): row
            for rows in held.conversations.values()
            for row in rows.values()
        } == {k: v for k, v in store.conversations.items() if v.state == "open"}
        wanted = {*held.asks, *held.deliveries_of}
        assert {
            (row.ask_id, row.channel, row.place): row
            for rows in held.cards.values()
            for row in rows.values()
        } == {k: v for k, v in store.cards.items() if k[0] in wanted}

    @invariant()
    def another_hub_would_go_on_with_the_same(self) -> None:
        snapshot = self.rig.store.snapshot()
        mine, other = self.rig.kernel._state, Kernel.load(self.rig.settings, snapshot)._state
        for name in (
            "asks",
            "claims",
            "deliveries",
            "sessions",
            "hosted",
            "living",
            "cards",
            "conversations",
            "by_session",
            "gates",
            "last_inbound",
            "last_delivery",
            "last_notice",
            "texts",
            "buttons",
            "copies",
            "lock",
        ):
            ours, theirs = getattr(mine, name), getattr(other, name)
            if name == "deliveries":
                ours, theirs = at_rest(ours), at_rest(theirs)
            assert ours == theirs, (name, differing(ours, theirs))
        for key, found in other.keys.items():
            assert mine.keys[key] == found

    @invariant()
    def nothing_hangs_on_what_is_gone(self) -> None:
        held = self.rig.kernel._state
        assert set(held.waiters) <= set(held.asks)
        assert set(held.receipts_waiting) <= set(held.claims)
        assert set(held.retry_due) <= set(held.deliveries)
        assert set(held.tries) <= set(held.deliveries)
        assert held.offered <= set(held.waiting_for)
        assert set(held.process_of) <= set(held.waiting_for)
        assert set(held.live) <= set(held.sessions)
        lanes = [
            number for of in held.lanes.values() for lane in of.values() for number in lane
        ]
        assert sorted(lanes) == sorted(held.deliveries)

    def teardown(self) -> None:
        """Everything can end, and whoever still waits is told, once."""
        rig = self.rig
        rig.do(LockAsked(at=rig.now, lock=False, who=LOCAL))
        for session in SESSIONS:
            rig.down(session, gone=True)
        for row in rig.kernel.open_rows():
            # What was handed to its asker already ends by the asker's word.
            who = Who("1000")
            took = Took(at=rig.now, waiter=rig.waiter(), ask_id=row.ask_id, who=who)
            cancel = CancelAsked(at=rig.now, waiter=rig.waiter(), ask_id=row.ask_id)
            rig.do(took if row.state == "claimed" else cancel)
        for name in ("web", "chat"):
            rig.hears(name)
        rig.arrive_all()
        rig.wait(1000)
        rig.arrive_all()
        self.read = len(rig.releases)
        assert rig.kernel.open_rows() == []
        assert rig.kernel.sessions() == []
        assert rig.kernel.waiting_deliveries() == 0
        ended = Counter(
            one.waiter
            for one in rig.releases
            if isinstance(one, ToWaiter) and one.event == "ended"
        )
        refused = {one.waiter for one in rig.releases if isinstance(one, Respond) and one.error}
        for waiter in self.connected - refused:
            assert ended[waiter] == 1


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
