"""The filter that tells new ask ids from old ones."""

import secrets

from upcall.hub.store.known import KnownIds
from upcall.model.ids import new_ask_id


def test_an_id_that_is_there_is_always_told() -> None:
    ids = [new_ask_id(secrets.token_bytes(8)) for _ in range(5000)]
    known = KnownIds(ids[:2500])
    for one in ids[2500:]:
        known.add(one)
    assert all(one in known for one in ids)


def test_an_id_that_is_not_there_is_hardly_ever_told() -> None:
    known = KnownIds(new_ask_id(secrets.token_bytes(8)) for _ in range(20_000))
    others = [new_ask_id(secrets.token_bytes(8)) for _ in range(5000)]
    assert sum(one in known for one in others) < 5


def test_an_empty_filter_knows_nothing() -> None:
    assert "a0000000000000" not in KnownIds()
