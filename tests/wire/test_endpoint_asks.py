"""Asks over real sockets: one answer, every reason for refusing, one at a time or all."""

from typing import Any

import pytest

from wire.rig import TOKEN, Host, Stock, host, stock, types


async def reply(client: Stock, action: str, **fields: Any) -> None:
    fields.setdefault("token", TOKEN)
    await client.send(type="reply", id=action, **fields)


@pytest.mark.asyncio
async def test_tells_everybody_how_it_was_answered() -> None:
    async with host() as made, stock(made) as one, stock(made) as two:
        await one.until_pong()
        await two.until_pong()
        action = made.ask("Yes", "No")
        await one.receive()
        await two.receive()
        await reply(one, action, answer="no", idempotencyKey="k")
        for client in (one, two):
            assert await client.receive() == {
                "type": "action_resolved",
                "id": action,
                "resolvedBy": "client",
                "answer": "no",
                "outcome": "answered",
                "by": {"channel": "endpoint"},
            }
        [ending] = made.ended
        assert ending.selection is not None
        assert ending.selection.labels == ("No",)


async def _settled(made: Host) -> str:
    action = made.ask("Yes", "No")
    made.conclude(made.book.resolve_local(action, 0))
    return action


@pytest.mark.asyncio
async def test_gives_each_reason_for_not_taking_a_reply() -> None:
    async with host() as made, stock(made) as client, stock(made) as other:
        await client.until_pong()
        closed = made.ask("Yes", "No")
        resting = made.ask("Yes", "No", repliable=False)
        settled = await _settled(made)
        cases: list[tuple[str, dict[str, Any], str]] = [
            (closed, {"answer": 0, "token": "wrong"}, "unauthorized"),
            (closed, {"answer": -1, "token": "wrong"}, "unauthorized"),
            (closed, {"answer": 2}, "invalid_answer"),
            (closed, {"answer": -1}, "invalid_answer"),
            (closed, {"answer": 1.5}, "invalid_answer"),
            (closed, {"answer": True}, "invalid_answer"),
            (closed, {"answer": None}, "invalid_answer"),
            (closed, {"answer": "perhaps"}, "invalid_answer"),
            (closed, {"answer": {"selected": [], "bogus": 1}}, "invalid_answer"),
            (closed, {"answer": {"selected": [0, 1]}}, "invalid_answer"),
            (closed, {"answer": {"selected": []}}, "invalid_answer"),
            (closed, {"answer": {"controlId": "navigation_forward"}}, "invalid_answer"),
            (closed, {"answer": 0, "decline": True}, "invalid_answer"),
            (closed, {}, "invalid_answer"),
            ("ask:never", {"answer": 0}, "unknown_action"),
            (settled, {"answer": 0}, "already_answered"),
            (resting, {"answer": 0}, "resolver_unavailable"),
        ]
        for action, fields, reason in cases:
            await reply(client, action, **fields)
            frames = await client.until_pong()
            rejected = [frame for frame in frames if frame["type"] == "reply_rejected"]
            assert rejected == [{"type": "reply_rejected", "id": action, "reason": reason}], (
                fields
            )
        assert made.book.is_open(closed)
        assert "reply_rejected" not in types(await other.until_pong())


@pytest.mark.asyncio
async def test_a_repeat_is_confirmed_again_and_another_answer_is_a_conflict() -> None:
    async with host() as made, stock(made) as client, stock(made) as other:
        action = made.ask("Yes", "No")
        await other.until_pong()
        await client.until_pong()
        await reply(client, action, answer="Yes", idempotencyKey="k")
        assert types(await client.until_pong()) == ["action_resolved"]
        await other.until_pong()
        await reply(client, action, answer="Yes", idempotencyKey="k")
        [again] = await client.until_pong()
        assert (again["type"], again["answer"]) == ("action_resolved", "Yes")
        # A client that has reconnected may repeat itself too.
        await reply(other, action, answer="Yes", idempotencyKey="k")
        assert types(await other.until_pong()) == ["action_resolved"]
        assert await client.until_pong() == []
        for fields, reason in (
            ({"answer": "No", "idempotencyKey": "k"}, "idempotency_conflict"),
            ({"decline": True, "idempotencyKey": "k"}, "idempotency_conflict"),
            ({"answer": "Yes", "idempotencyKey": "other"}, "already_answered"),
            ({"answer": "Yes"}, "already_answered"),
        ):
            await reply(client, action, **fields)
            assert (await client.receive())["reason"] == reason
        assert len(made.ended) == 1


@pytest.mark.asyncio
async def test_shows_one_ask_at_a_time_to_clients_that_know_no_more() -> None:
    async with host() as made, stock(made) as plain, stock(made) as able:
        await able.hello("parallel_asks_v1")
        await able.until_pong()
        await plain.until_pong()
        first, second, third = made.ask("Yes"), made.ask("Yes"), made.ask("Yes")
        assert [f["id"] for f in await able.until_pong()] == [first, second, third]
        assert [f["id"] for f in await plain.until_pong()] == [first]
        # One that the plain client never saw ends: it is told nothing.
        await reply(able, second, answer=0)
        assert types(await able.until_pong()) == ["action_resolved"]
        assert await plain.until_pong() == []
        await reply(plain, first, answer=0)
        frames = await plain.until_pong()
        assert [(f["type"], f["id"]) for f in frames] == [
            ("action_resolved", first),
            ("action_needed", third),
        ]
        await reply(plain, third, answer=0)
        assert [f["id"] for f in await plain.until_pong()] == [third]
        assert [f["id"] for f in await able.until_pong()] == [first, third]


@pytest.mark.asyncio
async def test_shows_the_oldest_open_ask_to_a_later_client() -> None:
    async with host() as made:
        first, second = made.ask("Yes"), made.ask("Yes")
        made.conclude(made.book.withdraw(first))
        async with stock(made) as client:
            assert [f["id"] for f in (await client.until_pong())[1:]] == [second]


@pytest.mark.asyncio
async def test_tells_a_later_client_of_the_last_256_endings() -> None:
    async with host() as made:
        ended = []
        for _ in range(300):
            ended.append(made.ask("Yes"))
            made.conclude(made.book.withdraw(ended[-1]))
        async with stock(made) as client:
            await client.hello("parallel_asks_v1")
            frames = (await client.until_pong())[1:]
            assert [frame["id"] for frame in frames] == ended[-256:]
            await reply(client, ended[0], answer=0)
            assert (await client.receive())["reason"] == "already_answered"


@pytest.mark.asyncio
async def test_a_person_may_decline() -> None:
    async with host() as made, stock(made) as client:
        action = made.ask("Yes", "No")
        await client.until_pong()
        await reply(client, action, decline=True, by={"name": "kim", "channel": "web"})
        assert await client.receive() == {
            "type": "action_resolved",
            "id": action,
            "resolvedBy": "client",
            "outcome": "declined",
            "by": {"channel": "web", "name": "kim"},
        }


@pytest.mark.asyncio
async def test_a_hold_stops_the_deadline_and_letting_go_restarts_it() -> None:
    async with host() as made, stock(made) as client:
        action = made.ask("Yes", deadline_at_ms=made.now_ms + 10_000)
        [_, asked] = await client.until_pong()
        assert asked["deadlineAt"] == made.now_ms + 10_000
        made.advance(4_000)
        await client.send(type="ask_hold", id=action, token=TOKEN, hold=True)
        [held] = await client.until_pong()
        assert (held["id"], held.get("held")) == (action, True)
        assert "deadlineAt" not in held
        made.advance(60_000)
        assert await client.until_pong() == []
        await client.send(type="ask_hold", id=action, token=TOKEN, hold=False)
        [resumed] = await client.until_pong()
        assert resumed["deadlineAt"] == made.now_ms + 6_000
        made.advance(6_000)
        [over] = await client.until_pong()
        assert (over["resolvedBy"], over["outcome"]) == ("timeout", "timed_out")
        assert "answer" not in over


@pytest.mark.asyncio
async def test_a_deadline_with_a_default_says_so_and_names_nobody() -> None:
    async with host() as made, stock(made) as client:
        made.ask("Yes", "No", deadline_at_ms=made.now_ms + 100, default="No")
        await client.until_pong()
        made.advance(100)
        [over] = await client.until_pong()
        assert (over["resolvedBy"], over["outcome"], over["answer"]) == (
            "timeout",
            "timed_out",
            "No",
        )
        assert "by" not in over


@pytest.mark.asyncio
async def test_takes_several_choices_and_words() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        made.ask("A", "B", "C", multi=True, free_text=True)
        await reply(client, "ask:1", answer={"selected": [2, "a"], "custom": "and D"})
        await client.until_pong()
        [ending] = made.ended
        assert ending.selection is not None
        assert (ending.selection.labels, ending.selection.text) == (("A", "C"), "and D")


@pytest.mark.asyncio
async def test_an_answer_to_an_ask_of_words_is_the_words() -> None:
    async with host() as made, stock(made) as client:
        await client.until_pong()
        made.ask()
        await reply(client, "ask:1", answer="  because, \u202e of it\n")
        await client.until_pong()
        [ending] = made.ended
        assert ending.selection is not None
        assert ending.selection.text == "  because, \u202e of it\n"
