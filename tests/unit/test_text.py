"""Text from outside is made visible before anybody sees it."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upcall.model import text


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("plain", "plain"),
        ("zwölf 漢字 👩\u200d💻 ❤\ufe0f", "zwölf 漢字 👩\u200d💻 ❤\ufe0f"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\rd", "a\\x0ab\\x09c\\x0dd"),
        ("\x7f\x9b", "\\x7f\\x9b"),
        ("a\u202eb", "a\\u202eb"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\ud800", "\\ud800"),
        ("\u200b\ufeff\u00ad", "\\u200b\\ufeff\\xad"),
        ("\U000e0041", "\\U000e0041"),
        ("\ufffb", "\\ufffb"),
    ],
)
def test_visible(given_text: str, shown: str) -> None:
    assert text.visible(given_text) == shown


def test_a_block_keeps_its_lines_and_tabs() -> None:
    assert text.visible("a\r\nb\n\tc\rd\x1b", newlines=True) == "a\nb\n\tc\\x0dd\\x1b"
    assert text.visible("plain", newlines=True) == "plain"


@given(st.text(st.characters()))
def test_nothing_visible_controls_a_terminal_and_it_is_stable(given_text: str) -> None:
    shown = text.visible(given_text)
    assert text.visible(shown) == shown
    for char in shown:
        assert unicodedata.category(char) not in {"Cc", "Cs", "Zl", "Zp"}
        assert not text.is_ignorable(char) or char in "\u200d\ufe0f"


@given(st.text(st.characters()), st.integers(1, 50))
def test_one_line_is_one_line_of_at_most_that_length(given_text: str, limit: int) -> None:
    shown = text.one_line(given_text, limit)
    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1


def test_one_line_says_when_it_was_cut() -> None:
    assert text.one_line(" a \n b\t") == "a b"
    assert text.one_line("x" * 10, 5) == "xxxx…"
    assert text.one_line("x" + " " * 500 + "y", 5) == "x…"
    assert text.one_line("x" * 5, 5) == "xxxxx"


def test_a_printed_answer_has_no_controls_but_tab_and_newline() -> None:
    assert text.printable_answer("a\x1b[2J\tb\nc\r\x9b\ud800\u202e") == "a[2J\tb\nc\u202e"


def test_what_nothing_may_carry_is_found() -> None:
    assert text.unpaired_surrogate_or_nul("ab\0") == 2
    assert text.unpaired_surrogate_or_nul("\udfffab") == 0
    assert text.unpaired_surrogate_or_nul("ab\ue000") is None


def test_labels_are_compared_without_case_blanks_and_what_nobody_sees() -> None:
    assert text.fold_label(" YES ") == "yes"
    assert text.fold_label("Straße") == text.fold_label("STRASSE")
    assert text.bare_label("Y\u200bes \u3164") == "yes"
    assert text.bare_label("\uff39es") == "yes"
    assert text.bare_label("\u2800\u00a0") == ""


def test_code_points_in_words() -> None:
    assert text.code_points("Yе") == "U+0059 U+0435"
    assert text.code_points("a" * 13) == " ".join(["U+0061"] * 12) + " …"


def test_escapes_have_the_width_of_their_plane() -> None:
    for char in ("\x01", "\u0100", "\U00010000"):
        assert re.fullmatch(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})", text.escape(char))
