"""S30: what control characters make longer on the way is refused by name, or arrives."""

import json
from collections.abc import Iterator

import msgspec
import pytest

from fakes.home import Home
from upcall.core.asks import check_ask, frame_of
from upcall.model.ask import AskSpec
from upcall.model.errors import InvalidAsk
from upcall.model.frames import encode
from upcall.model.ids import ActionId
from upcall.model.limits import (
    MAX_DETAIL_BYTES,
    MAX_DETAIL_JSON_BYTES,
    MAX_LINE_BYTES,
    MAX_OUTBOUND_BYTES,
)

WHOLE = MAX_DETAIL_BYTES
# So many characters that JSON makes six bytes of are as long as is taken.
MOST = MAX_DETAIL_JSON_BYTES // 6
# Each as long in UTF-8 as a detail may be.
TAKEN = {
    "line feeds": "\n" * WHOLE,
    "tabs and quotes": '\t"' * (WHOLE // 2),
    "backslashes": "\\" * WHOLE,
    "DEL, which JSON leaves alone": "\x7f" * WHOLE,
    "C1": "\x9b" * (WHOLE // 2),
    "tags": "\U000e0041" * (WHOLE // 4),
    "ESC, as much as is taken": "\x1b" * MOST,
}


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


@pytest.mark.parametrize("detail", TAKEN.values(), ids=TAKEN)
def test_a_detail_that_is_taken_arrives_as_it_was(home: Home, detail: str) -> None:
    given = ("ask", "Q?", "-o", "a", "--detail", "-", "--no-wait")
    done = home.run(*given, stdin=detail.encode())
    assert done.code == 0, done
    # Of several such asks a list has no details, to fit into a line.
    with home.line("control") as line:
        (found,) = line.ok("asks", state="open", limit=10)["asks"]
    assert found["detail"] == detail
    assert home.run("answer", done.out.strip(), "a").code == 0


@pytest.mark.parametrize("count", [MOST + 1, WHOLE])
def test_a_detail_too_long_in_json_is_refused_by_its_field_before_it_is_stored(
    home: Home, count: int
) -> None:
    given = ("ask", "Too long?", "-o", "a", "--detail", "-", "--no-wait", "--json")
    done = home.run(*given, stdin=b"\x1b" * count)
    assert done.code == 2, done
    error = done.json["error"]
    assert error["code"] == "invalid_ask"
    for word in ("--detail", str(MAX_DETAIL_JSON_BYTES), str(6 * count)):
        assert word in error["msg"]
    with home.line("control") as line:
        known = line.ok("asks", state="all", limit=1000)["asks"]
    assert "Too long?" not in [one["question"] for one in known]


def test_the_hub_itself_refuses_it_by_its_field_and_stores_nothing(home: Home) -> None:
    ask = {"id": "a00000000t00b", "question": "Too long?", "detail": "\x1b" * (MOST + 1)}
    with home.line() as line:
        answer = line.request("ask", ask={**ask, "free_text": True}, wait=False)
    assert answer["error"]["code"] == "invalid_ask"
    for word in ("detail", str(MAX_DETAIL_JSON_BYTES), str(6 * (MOST + 1))):
        assert word in answer["error"]["msg"]
    with home.line("control") as line:
        known = line.ok("asks", state="all", limit=1000)["asks"]
    assert ask["id"] not in [one["id"] for one in known]


def worst(**fields: object) -> AskSpec:
    """Return an ask that is as long in every field as it may be, all of controls."""
    labels = tuple("\x01" * 100 + f"{number:03d}" + "\x02" * 97 for number in range(100))
    spec = {"question": "\x01" * 8191 + "?", "options": labels, "free_text": False}
    return AskSpec(**{**spec, "detail": "\x1b" * MOST, **fields})  # type: ignore[arg-type]


def test_the_longest_ask_fits_into_a_frame_and_into_a_line() -> None:
    spec = check_ask(worst(default=worst().options[0]))
    assert len(encode(frame_of(spec, ActionId("a" * 13), "s" * 128))) <= MAX_OUTBOUND_BYTES
    in_line = json.dumps(msgspec.to_builtins(spec), ensure_ascii=False).encode()
    assert len(in_line) <= MAX_LINE_BYTES - 16 * 1024


def test_words_by_default_count_with_the_detail() -> None:
    words = {"question": "Q?", "options": (), "free_text": True, "default": "\x1b" * 65536}
    check_ask(worst(**words, detail="\x1b" * (MOST - 65536)))
    with pytest.raises(InvalidAsk, match=rf"^detail, default: .*{MAX_DETAIL_JSON_BYTES}$"):
        check_ask(worst(**words, detail="\x1b" * (MOST - 65535)))


def test_details_of_options_count_too() -> None:
    with pytest.raises(InvalidAsk, match=f"^detail: takes {6 * MOST + 6} bytes"):
        check_ask(worst(option_details=("\x1b", *[""] * 99)))
