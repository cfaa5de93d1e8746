"""Ids are made from given bytes and told apart by form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upcall.model import ids
from upcall.model.ids import AskId


def test_crockford_takes_the_first_bits() -> None:
    assert ids.crockford(bytes(8), 12) == "0" * 12
    assert ids.crockford(b"\xff" * 8, 12) == "z" * 12
    assert ids.crockford(bytes([0b00001_000, 0b10_000000]), 2) == "12"
    with pytest.raises(ValueError, match="12 characters need 8 bytes"):
        ids.crockford(bytes(7), 12)


@given(st.binary(min_size=12, max_size=64))
def test_new_ids_have_their_form(random: bytes) -> None:
    ask = ids.new_ask_id(random)
    assert ids.is_ask_id(ask)
    assert ids.ask_id_in(ids.action_id_of(ask)) == ask
    session = ids.new_hosted_session_id(random)
    assert session[0] == "s"
    assert session[1:] == ask[1:]
    assert ids.is_session_id(session)
    assert len(ids.new_press_token(random)) == 19


@pytest.mark.parametrize(
    "text",
    ["", "a", "a00000000000i", "A000000000000", "a0000000000000", "b000000000000", "a000\n"],
)
def test_what_is_no_ask_id(text: str) -> None:
    assert not ids.is_ask_id(text)
    assert ids.ask_id_in(f"ask:{text}") is None
    assert ids.ask_id_in(text) is None


def test_an_action_id_of_others_carries_none_of_ours() -> None:
    assert ids.ask_id_in("a000000000000") is None
    assert ids.ask_id_in("ask:5b0c2b9e-1c7e-4f0e-9d9f-1f2a3b4c5d6e") is None
    assert ids.action_id_of(AskId("a000000000000")) == "ask:a000000000000"


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("a", True),
        ("A.b_c-9", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        (".", False),
        ("..", False),
        ("a/b", False),
        ("a\n", False),
        ("ä", False),
    ],
)
def test_session_ids_are_safe_file_names(text: str, valid: bool) -> None:
    assert ids.is_session_id(text) is valid
