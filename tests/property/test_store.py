"""Whatever is written is read back, as a plain model of dictionaries says."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from upcall.hub.store import Store
from upcall.hub.store.rows import chain_hash
from upcall.model.ask import AnsweredBy, AskSpec, Selection
from upcall.model.effects import (
    DropTokens,
    EndClaim,
    SaveGate,
    SaveRoot,
    SaveSetting,
    Write,
)
from upcall.model.ids import ActionId, AskId, SessionId
from upcall.model.rows import (
    AskRow,
    AuditRow,
    CardRow,
    ClaimRow,
    ConversationRow,
    DeliveryRow,
    InboundRow,
    NoticeRow,
    SessionRow,
    Snapshot,
    TokenRow,
)
from upcall.model.struct import replaced

NOW_MS = 2_000_000_000_000
DAY_MS = 86_400_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
maybe_texts = st.none() | texts
stamps = st.integers(0, NOW_MS)
whole = st.integers(-(2**63), 2**63 - 1)
numbers = st.none() | st.floats(allow_nan=False)
few = st.integers(0, 3)
channels = st.sampled_from(["web", "terminal"])
selections = st.builds(
    Selection,
    indices=st.lists(few, max_size=3).map(tuple),
    labels=st.lists(texts, max_size=3).map(tuple),
    text=maybe_texts,
)
specs = st.builds(
    AskSpec,
    question=texts,
    options=st.lists(texts, max_size=3).map(tuple),
    detail=maybe_texts,
    default=maybe_texts,
    recommended=st.none() | few,
    deadline_at_ms=st.none() | stamps,
    option_details=st.none() | st.lists(texts, max_size=3).map(tuple),
)


def ask_id(number: int) -> AskId:
    return AskId(f"a{number}")


def session_id(number: int) -> SessionId:
    return SessionId(f"s{number}")


sessions = st.builds(
    SessionRow,
    session_id=few.map(session_id),
    kind=st.sampled_from(["hosted", "sdk", "peer"]),
    conversation=texts,
    pid=whole,
    pid_start=texts,
    asker_pid=whole,
    asker_start=texts,
    title=maybe_texts,
    repo=maybe_texts,
    branch=maybe_texts,
    machine=maybe_texts,
    cwd=maybe_texts,
    program=maybe_texts,
    record_path=maybe_texts,
    started_ms=stamps,
    ended_ms=st.none() | stamps,
)


@st.composite
def asks(draw: st.DrawFn) -> AskRow:
    number = draw(few)
    return AskRow(
        ask_id=ask_id(number),
        session_id=session_id(draw(few)),
        action_id=ActionId(f"n{number}"),
        state=draw(st.sampled_from(["open", "claimed", "closed"])),
        spec=draw(specs),
        revision=cast("Any", draw(texts)),
        raised_ms=draw(stamps),
        outcome=draw(maybe_texts),
        deadline_ms=draw(st.none() | stamps),
        deadline_boot_s=draw(numbers),
        boot_id=draw(texts),
        held_s=draw(numbers),
        handed_over=draw(st.booleans()),
        key=draw(st.none() | st.sampled_from(["k1", "k2"])),
        answer=draw(st.none() | selections),
        answered_by=draw(st.none() | st.builds(AnsweredBy, maybe_texts, texts)),
        resolved_by=draw(maybe_texts),
        closed_ms=draw(st.none() | stamps),
        note=draw(texts),
    )


claims = st.builds(
    ClaimRow,
    ask_id=few.map(ask_id),
    operator=maybe_texts,
    channel=texts,
    inbound=st.integers(1, 5),
    key=texts,
    selection=st.none() | selections,
    declined=st.booleans(),
    origin=maybe_texts,
    at_ms=stamps,
    live=st.booleans(),
)
deliveries = st.builds(
    DeliveryRow,
    id=st.integers(1, 5),
    effect=st.just(""),
    kind=st.sampled_from(["post", "edit", "reply", "message", "hold"]),
    lane=st.sampled_from(["ask", "outcome", "text", "live", "idle"]),
    target=texts,
    place=texts,
    state=st.sampled_from(["queued", "sending", "done", "retry", "uncertain", "dead"]),
    body=st.binary(max_size=20),
    ask_id=st.just(None),
    ref=maybe_texts,
    attempt=few,
    not_before_ms=stamps,
    created_ms=st.just(7),
    error=maybe_texts,
    # An intent never changes what it is about.
).map(
    lambda row: replaced(
        row, effect=f"e{row.id}", ask_id=ask_id(row.id % 4) if row.id % 2 else None
    )
)
inbounds = st.builds(
    InboundRow,
    id=st.integers(1, 5),
    channel=st.just("web"),
    event_key=st.just(""),
    content_key=texts,
    at_ms=st.integers(NOW_MS - 2 * DAY_MS, NOW_MS),
).map(lambda row: replaced(row, event_key=f"k{row.id}"))

writes = st.lists(
    st.one_of(
        sessions,
        asks(),
        claims,
        inbounds,
        st.builds(
            ConversationRow,
            key=few.map(str),
            channel=channels,
            place=texts,
            state=st.sampled_from(["open", "closed"]),
        ),
        st.builds(
            CardRow,
            ask_id=few.map(ask_id),
            channel=channels,
            place=few.map(str),
            ref=maybe_texts,
        ),
        few.flatmap(
            lambda number: st.builds(
                TokenRow,
                token=st.just(f"t{number}"),
                ask_id=st.just(ask_id(number)),
                channel=channels,
                choice=texts,
            )
        ),
        deliveries,
        st.builds(
            NoticeRow,
            id=few,
            session_id=few.map(session_id),
            kind=texts,
            text=texts,
            at_ms=stamps,
            file_id=maybe_texts,
            file_name=maybe_texts,
            mime=maybe_texts,
        ),
        st.builds(
            AuditRow,
            at_ms=whole,
            event=texts,
            ask_id=st.none() | few.map(ask_id),
            session_id=st.none() | few.map(session_id),
            facts=st.dictionaries(
                texts,
                st.none() | st.booleans() | texts | st.floats(allow_nan=False) | whole,
                max_size=3,
            ),
        ),
        st.builds(SaveSetting, channels, few.map(str), maybe_texts),
        st.builds(SaveRoot, st.text(max_size=5), st.booleans()),
        st.builds(SaveGate, texts, stamps),
        st.builds(DropTokens, few.map(ask_id), st.just(0)),
        st.builds(EndClaim, few.map(ask_id)),
    ),
    max_size=40,
)


class Model:
    """What the tables hold, as dictionaries by natural key."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionRow] = {}
        self.asks: dict[str, AskRow] = {}
        self.claims: dict[int, ClaimRow] = {}
        self.rows: dict[tuple[object, ...], Any] = {}
        self.roots: dict[str, None] = {}

    def accepts(self, write: Write) -> bool:
        """Take a write, or tell that no kernel would make it."""
        match write:
            case SessionRow(session_id=name):
                self.sessions[name] = write
            case AskRow(ask_id=name):
                if write.session_id not in self.sessions:
                    return False
                self.asks[name] = write
            case ClaimRow(ask_id=name, inbound=inbound):
                former = self.claims.get(inbound)
                taken = [
                    one
                    for one in self.claims.values()
                    if one.live and one.ask_id == name and one.inbound != inbound
                ]
                moved = former is not None and former.ask_id != name
                if name not in self.asks or moved or (write.live and taken):
                    return False
                self.claims[inbound] = write
            case CardRow() | TokenRow():
                if write.ask_id not in self.asks:
                    return False
                key = (
                    (write.ask_id, write.channel, write.place)
                    if isinstance(write, CardRow)
                    else (write.token,)
                )
                self.rows[type(write), *key] = write
            case DeliveryRow():
                if write.ask_id is not None and write.ask_id not in self.asks:
                    return False
                self.rows[DeliveryRow, write.id] = write
            case InboundRow():
                self.rows[InboundRow, write.id] = write
            case ConversationRow():
                self.rows[ConversationRow, write.key, write.channel] = write
            case NoticeRow():
                former_notice = self.rows.get((NoticeRow, write.id))
                if write.session_id not in self.sessions or (
                    former_notice is not None and former_notice.session_id != write.session_id
                ):
                    return False
                self.rows[NoticeRow, write.id] = write
            case SaveSetting(channel=channel, name=name, value=value):
                self.rows.pop((SaveSetting, channel, name), None)
                if value is not None:
                    self.rows[SaveSetting, channel, name] = value
            case SaveRoot(path=path, gone=gone):
                if gone:
                    self.roots.pop(path, None)
                else:
                    self.roots.setdefault(path)
            case SaveGate(scope=scope, closed_until_ms=until_ms):
                self.rows.pop((SaveGate, scope), None)
                if until_ms:
                    self.rows[SaveGate, scope] = until_ms
            case DropTokens(ask_id=name):
                for token in self.of(TokenRow):
                    if token.ask_id == name:
                        del self.rows[TokenRow, token.token]
            case EndClaim(ask_id=name):
                for claim in list(self.claims.values()):
                    if claim.ask_id == name:
                        self.claims[claim.inbound] = replaced(claim, live=False)
            case _:
                pass
        return True

    def stored(self, session_id: SessionId) -> int:
        """Return how many characters are kept of a session's asks and notices."""
        texts = [row.text for row in self.of(NoticeRow) if row.session_id == session_id]
        texts += [
            msgspec.json.encode(row.spec).decode()
            for row in self.asks.values()
            if row.session_id == session_id
        ]
        return sum(map(len, texts))

    def of(self, kind: type) -> list[Any]:
        return [row for key, row in self.rows.items() if key[0] is kind]

    def snapshot(self) -> Snapshot:
        due = [row for row in self.of(DeliveryRow) if row.state not in {"done", "dead"}]
        wanted = {row.ask_id for row in due if row.ask_id is not None}
        wanted |= {row.ask_id for row in self.asks.values() if row.state != "closed"}
        needed = {self.asks[name].session_id for name in wanted}
        keyed = sorted(
            (row for row in self.asks.values() if row.key is not None),
            key=lambda row: (row.raised_ms, list(self.asks).index(row.ask_id)),
        )
        return Snapshot(
            sessions=[
                row
                for row in self.sessions.values()
                if row.ended_ms is None or row.session_id in needed
            ],
            asks=[self.asks[name] for name in wanted],
            claims=[row for row in self.claims.values() if row.live and row.ask_id in wanted],
            inbound=[row for row in self.of(InboundRow) if row.at_ms >= NOW_MS - DAY_MS],
            stored={
                row.session_id: self.stored(row.session_id)
                for row in self.sessions.values()
                if row.ended_ms is None
            },
            conversations=[row for row in self.of(ConversationRow) if row.state == "open"],
            former_places={
                (row.key, row.channel): row.place
                for row in self.of(ConversationRow)
                if row.state == "closed"
            },
            cards=[row for row in self.of(CardRow) if row.ask_id in wanted],
            tokens=[row for row in self.of(TokenRow) if row.ask_id in wanted],
            deliveries=due,
            dead=[
                row
                for row in self.of(DeliveryRow)
                if row.state == "dead" and row.kind not in {"reply", "message", "hold"}
            ],
            gates={str(key[1]): row for key, row in self.rows.items() if key[0] is SaveGate},
            settings={
                (str(key[1]), str(key[2])): row
                for key, row in self.rows.items()
                if key[0] is SaveSetting
            },
            roots=list(self.roots),
            keys={
                str(row.key): row.ask_id
                for row in keyed
                if row.raised_ms >= NOW_MS - 30 * DAY_MS or row.state != "closed"
            },
            last_inbound=max((row.id for row in self.of(InboundRow)), default=0),
            last_delivery=max((row.id for row in self.of(DeliveryRow)), default=0),
            last_notice=max((row.id for row in self.of(NoticeRow)), default=0),
        )


def in_any_order(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as it can be compared; only some of its lists have an order."""
    out = {}
    for name in snapshot.__struct_fields__:
        value = getattr(snapshot, name)
        out[name] = sorted(value, key=repr) if isinstance(value, list) else value
    return out


@contextmanager
def a_folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="us", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@settings(deadline=None, max_examples=60)
@given(writes=writes, cut=st.integers(0, 40))
def test_any_writes_are_read_back_after_reopening(writes: list[Write], cut: int) -> None:
    model = Model()
    taken = [write for write in writes if model.accepts(write)]

    async def write(path: str) -> None:
        store = Store.open(path)
        await asyncio.gather(store.commit(taken[:cut]), store.commit(taken[cut:]))
        live = store.snapshot(NOW_MS)
        await store.close()
        store = Store.open(path)
        again = store.snapshot(NOW_MS)
        every = [await store.ask(name) for name in model.asks]
        notices = await store.notices(100)
        intact = await store.audit_break() is None
        await store.close()
        expected = in_any_order(model.snapshot())
        assert in_any_order(live) == expected
        assert in_any_order(again) == expected
        assert every == list(model.asks.values())
        assert sorted(notices, key=repr) == sorted(model.of(NoticeRow), key=repr)
        assert intact

    with a_folder() as folder:
        asyncio.run(write(f"{folder}/hub.db"))


lines = st.tuples(
    st.binary(min_size=32, max_size=32),
    whole,
    texts,
    st.tuples(maybe_texts, maybe_texts),
    texts,
)


@given(one=lines, other=lines)
def test_different_audit_lines_have_different_hashes(one: Any, other: Any) -> None:
    assert (chain_hash(*one) == chain_hash(*other)) == (one == other)


@given(text=texts, rest=texts)
def test_moving_text_between_fields_changes_the_hash(text: str, rest: str) -> None:
    start = bytes(32)
    both = {
        chain_hash(start, 0, text + rest, (None, None), ""),
        chain_hash(start, 0, text, (rest, None), ""),
        chain_hash(start, 0, text, (None, rest), ""),
        chain_hash(start, 0, text, (None, None), rest),
    }
    assert len(both) >= 3 + bool(rest)
