"""S11: labels that look alike, and programs that put on the hub's words."""

import importlib.resources
import json
import os
import unicodedata
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.browser import Stage, stage_on
from fakes.chromium import chromium
from fakes.home import UPCALL, Home, eventually
from fakes.peer import Peer
from fakes.pty_screen import PtyScreen
from fakes.web_hub import FakeHub
from upcall.core.asks import check_ask
from upcall.model.ask import AskSpec
from upcall.model.errors import AmbiguousLabels, InvalidAsk
from upcall.model.shown import HUB_WORDS, label_notes, label_shown
from upcall.model.text import is_ignorable
from upcall.model.views import AskView

IMITATION = "✅ Answered by ada, 14:02; the session has confirmed\n[Allow] [Deny]"


def closed(*labels: str) -> AskSpec:
    return AskSpec("?", options=labels, free_text=False)


def told_apart(one: str, other: str) -> bool:
    """Tell whether a person is safe from *one* beside *other*: refused, or numbered."""
    try:
        check_ask(closed(one, other))
    except (AmbiguousLabels, InvalidAsk):
        return all(label_notes([one, other]))
    return False


def confusable_pairs() -> Iterator[tuple[str, str]]:
    """Yield each pair of single characters of a table that is not the product's own."""
    data = importlib.resources.files("confusable_homoglyphs") / "confusables.json"
    table: dict[str, list[dict[str, str]]] = json.loads(data.read_text(encoding="utf-8"))
    for char, others in table.items():
        for other in others:
            if len(char) == len(other["c"]) == 1:
                yield char, other["c"]


# --- what is refused --------------------------------------------------------------------------


def test_every_pair_of_the_unicode_table_is_refused() -> None:
    missed = [
        f"U+{ord(one):04X} U+{ord(other):04X}"
        for one, other in confusable_pairs()
        if not told_apart(f"Ye{one}", f"Ye{other}")
    ]
    assert missed == []


def test_yes_is_refused_beside_every_yes_with_one_letter_replaced() -> None:
    variants = {
        "Yes".replace(char, other)
        for char, other in confusable_pairs()
        if char in "Yes" and not other.isascii()
    }
    assert len(variants) > 20
    assert [one for one in variants if not told_apart("Yes", one)] == []


def test_yes_is_refused_beside_every_yes_with_something_invisible_in_it() -> None:
    invisible = [chr(point) for point in range(0x110000) if is_ignorable(chr(point))]
    assert len(invisible) > 400
    for char in invisible:
        if unicodedata.category(char) == "Cs":
            continue
        for variant in (f"Yes{char}", f"Y{char}es", f"{char}Yes"):
            assert told_apart("Yes", variant), f"U+{ord(char):04X}"


@pytest.mark.parametrize(
    "labels",
    [
        tuple("abcdefghijklmnopqrstuvwxyz"),
        tuple(str(number) for number in range(1, 31)),
        ("да", "нет", "отмена"),
        ("是", "否", "取消"),
        ("はい", "いいえ", "キャンセル"),
        ("예", "아니요"),
        ("نعم", "لا"),
        ("כן", "לא"),
        ("👍", "👎", "❤️"),
        ("Yes", "No", "Only this time", "Always"),
        ("main", "develop", "feature/login", "feature/logout"),
        ("é", "e", "è"),
    ],
)
def test_ordinary_labels_are_taken_and_carry_no_note(labels: tuple[str, ...]) -> None:
    check_ask(closed(*labels))
    assert not any(label_notes(labels))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "l"), ("I", "l"), ("0", "O"), ("v1.0", "v1.O"), ("modern", "modem"),
        ("a b", "ab"), ("\u2460", "1"), ("\u0661", "1"), ("\ufb01le", "file"),
        ("\u53e3", "\u30ed"), ("Ye\u0301s", "Y\u00e9s"), ("a\u202eb", "ab"),
        ("\U0001d418\U0001d41e\U0001d42c", "Yes"),
    ],
)  # fmt: skip
def test_labels_that_differ_only_for_a_machine_are_refused(one: str, other: str) -> None:
    with pytest.raises(AmbiguousLabels) as refused:
        check_ask(closed(one, "something else", other))
    assert refused.value.msg.count("U+") >= 1
    assert all(label_notes([one, other]))


@pytest.mark.parametrize("label", ["\u200b", "\u3164", "\u2800", " ", "\u00ad\u2060", "\ufe0f"])
def test_a_label_in_which_nothing_is_to_be_seen_is_refused(label: str) -> None:
    with pytest.raises(InvalidAsk, match="option 1: shows nothing") as refused:
        check_ask(closed(label, "x"))
    assert f"U+{ord(label[0]):04X}" in refused.value.msg
    # From the wire such a label stays, by its number.
    assert label_notes([label, "x"])[0].startswith("its label shows nothing: U+")


# --- a whole hub ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


@pytest.mark.parametrize("other", ["Y\u0435s", "Ｙes", "Yes\u200b", "Y\u0065\u034fs"])
def test_the_command_line_names_both_code_points(home: Home, other: str) -> None:
    done = home.run("ask", "Deploy?", "-o", "Yes", "-o", other, "--no-wait")
    assert done.code == 2, done
    assert done.err.count("U+") >= 2, done
    document = home.run("ask", "Deploy?", "-o", "Yes", "-o", other, "--no-wait", "--json").json
    assert document["error"]["code"] == "ambiguous_labels"


def test_the_socket_and_python_refuse_them_too(home: Home) -> None:
    spec = {"id": "a0000000000aa", "question": "Deploy?", "options": ["Yes", "Y\u0435s"]}
    with home.line() as line:
        answer = line.request("ask", ask=spec, session={}, wait=False)
    assert answer["error"]["code"] == "ambiguous_labels"
    program = home.start_python(
        "from upcall import AmbiguousLabels, ask\n"
        "try: ask('Deploy?', ['Yes', 'Y\\u0435s'], timeout_s=5)\n"
        "except AmbiguousLabels as refused: print(ascii(refused.msg))\n"
    )
    assert "U+0435" in program.end().out


def is_prompted(shown: str) -> bool:
    """Tell whether the prompt takes input; what is typed before is dropped."""
    return shown.rstrip().endswith("\n>")


def view(home: Home, ask_id: str) -> dict[str, Any]:
    with home.line("control") as line:
        found = line.ok("asks", state="open", limit=100)["asks"]
    return next(one for one in found if one["id"] == ask_id)


@pytest.mark.parametrize("label", ["Deny", "hold", "ANSWERED", "D\u0435ny", "Answered by ada"])
def test_a_label_that_is_a_word_of_the_hub_is_marked(home: Home, label: str) -> None:
    ask_id = home.hand_over("Go?", "-o", label, "-o", "go")
    assert view(home, ask_id)["labels_shown"] == [f"option: {label}", "go"]
    assert f"option: {label}" in home.run("asks").out
    assert home.run("answer", ask_id, "go").code == 0


@pytest.mark.parametrize(
    "label",
    ["[Deny]", "Deny\u2026", "\u00abHold\u00bb", "\u2713 Answered", "D e n y",
     "answer in w0rds", "go  (suggested by the program)",
     "Suggested\u200b by the program: go", "option: go"],
)  # fmt: skip
def test_words_of_the_hub_are_marked_in_every_dress(label: str) -> None:
    assert label_shown(label).startswith("option: ")


@pytest.mark.parametrize("label", ["Allow", "Denying is fine", "Hold the line", "Send it back"])
def test_other_labels_are_not_marked(label: str) -> None:
    assert label_shown(label) == label


def test_every_word_of_the_hub_is_marked() -> None:
    assert [words for words in HUB_WORDS if not label_shown(words).startswith("option: ")] == []


@pytest.fixture(scope="module")
def peer(home: Home) -> Iterator[Peer]:
    project = os.path.realpath(f"{home.path}/project")
    os.mkdir(project, 0o700)
    assert home.run("roots", "add", project).code == 0
    with Peer(project) as made:
        eventually(lambda: made.connected == 1, what="the hub attached to the peer")
        yield made


def asked_by(home: Home, session: str, question: str) -> dict[str, Any]:
    def look() -> list[dict[str, Any]]:
        with home.line("control") as line:
            found = line.ok("asks", state="open", limit=100)["asks"]
        return [
            one
            for one in found
            if one["session"]["session_id"] == session and one["question"] == question
        ]

    return eventually(look)[0]


def test_labels_from_the_wire_are_numbered_with_their_code_points(
    home: Home, peer: Peer
) -> None:
    peer.ask("ask:1", "Deploy?", "Yes", "Y\u0435s")
    ask = asked_by(home, "peer-1", "Deploy?")
    assert all(ask["label_notes"])
    assert "U+0435 CYRILLIC SMALL LETTER IE" in ask["label_notes"][1]
    with PtyScreen([*UPCALL, "watch"], home.env) as screen:
        screen.wait_for(lambda text: "1 Yes" in text and "U+0435" in text)
        screen.type("q")
        screen.finish()
    # Each is reached by its number, and by exactly its own characters.
    assert home.run("answer", ask["id"], "#2").code == 0
    heard = peer.heard(lambda frame: frame["type"] == "reply")
    assert heard["answer"] == "Y\u0435s"


def test_the_same_label_twice_is_answered_by_number_only(home: Home, peer: Peer) -> None:
    peer.ask("ask:2", "Which one?", "Yes", "Yes")
    ask = asked_by(home, "peer-1", "Which one?")
    refused = home.run("answer", ask["id"], "Yes")
    assert refused.code == 2, refused
    assert "'Yes' (#1) and 'Yes' (#2)" in refused.err
    assert home.run("answer", ask["id"], "#1").code == 0


@pytest.mark.parametrize(
    ("label", "warning"),
    [
        ("\u0414eploy", "option 1: character 1 is U+0414 CYRILLIC CAPITAL LETTER DE"),
        ("x\u202ey", "option 1: character 2 is U+202E RIGHT-TO-LEFT OVERRIDE"),
        ("a\u00a0b", "option 1: character 2 is U+00A0 NO-BREAK SPACE"),
        ("Развернуть", None),
        ("部署到生产", None),
        ("デプロイする", None),
        ("déployer", None),
    ],
)
def test_characters_that_deceive_are_warned_of(
    home: Home, label: str, warning: str | None
) -> None:
    ask_id = home.hand_over("Go?", "-o", label, "-o", "back")
    warnings = view(home, ask_id)["warnings"]
    if warning is None:
        assert warnings == []
    else:
        assert warnings[0].startswith(warning)
    assert home.run("answer", ask_id, "#2").code == 0


def test_a_command_that_deceives_is_warned_of(home: Home) -> None:
    ask_id = home.hand_over("Run it?", "--permission", "-o", "y", "-o", "n",
                            "--detail", "curl https://p\u0430ypal.example")  # fmt: skip
    (warning,) = view(home, ask_id)["warnings"]
    assert warning.startswith("detail: character 15 is U+0430 CYRILLIC SMALL LETTER A")


# --- words of the program, and words of the hub -----------------------------------------------


def test_on_a_terminal_the_programs_words_stand_behind_a_bar() -> None:
    with Home() as home:
        _sees_the_imitation(home)


def _sees_the_imitation(home: Home) -> None:
    asker = PtyScreen(
        [*UPCALL, "ask", IMITATION, "-o", "Deny", "-o", "go", "--recommend", "go"], home.env
    )
    with asker as screen:
        shown = screen.wait_for(is_prompted)
        lines = [
            line for line in shown.splitlines() if "Answered by" in line or "[Allow]" in line
        ]
        assert lines
        assert all(line.startswith("| ") for line in lines), shown
        assert "1 option: Deny" in shown
        assert "2 go  (suggested by the program)" in shown
        with PtyScreen([*UPCALL, "watch"], home.env) as other:
            seen = other.wait_for(lambda text: "| ✅ Answered by ada" in text)
            assert "“✅ Answered by ada" in seen
            other.type("q")
            other.finish()
        listed = home.run("asks").out
        assert "“✅ Answered by ada" in listed
        screen.type("go\r")
        assert screen.finish() == 0


def test_words_in_quotes_do_not_end_them(home: Home) -> None:
    posing = "x” (a7q2); answered by ada. “y"
    ask_id = home.hand_over(posing, "-o", "go")
    within = '“x" (a7q2); answered by ada. "y”'
    assert within in home.run("asks").out
    with PtyScreen([*UPCALL, "wait", ask_id], home.env) as screen:
        screen.wait_for(f"waiting for {within} ({ask_id});")
        assert home.run("answer", ask_id, "go").code == 0
        assert screen.finish() == 0


def test_a_long_label_draws_no_line_of_ours(home: Home) -> None:
    label = f"go {'x' * 68} ! looks like option 2, but it is the safe one"
    asker = PtyScreen([*UPCALL, "ask", "Go?", "-o", label, "-o", "back"], home.env)
    with asker as screen:
        shown = screen.wait_for(is_prompted)
        (line,) = [line for line in shown.splitlines() if "! looks like" in line]
        assert line.strip().startswith("| "), shown
        screen.type("2\r")
        assert screen.finish() == 0


def test_nothing_is_suggested_for_a_permission(home: Home) -> None:
    asker = PtyScreen(
        [*UPCALL, "ask", "Run?", "-o", "y", "-o", "n", "--recommend", "y", "--permission"],
        home.env,
    )
    with asker as screen:
        assert "suggested" not in screen.wait_for(is_prompted)
        screen.type("#decline\r")
        assert screen.finish() == 3


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with chromium(str(tmp_path)) as driver, stage_on(driver) as made:
        yield made


@pytest.mark.browser
def test_a_permission_card_looks_the_same_whatever_is_recommended(stage: Stage) -> None:
    stage.sign_in()
    looks = []
    for recommended in (None, 0, 1):
        ask = stage.in_hub(partial(_raise_permission, recommended=recommended))
        card = stage.card(ask.id)
        stage.until(partial(stage.all, card + "button.option"), "the choices")
        first, second = stage.page.execute_script(LOOKS, card)
        assert (first["style"], first["size"]) == (second["style"], second["size"])
        looks.append([(one["text"], one["style"]) for one in (first, second)])
        assert stage.page.execute_script("return document.activeElement === document.body")
    assert looks[0] == looks[1] == looks[2]


@pytest.mark.browser
def test_a_card_keeps_the_programs_words_in_their_frame(stage: Stage) -> None:
    stage.sign_in()
    raise_it = partial(
        FakeHub.raise_ask, question=IMITATION, options=("Deny", "Y\u0435s", "Yes"),
        free_text=True, recommended=2,
    )  # fmt: skip
    ask = stage.in_hub(raise_it)
    card = stage.card(ask.id)
    stage.until(partial(stage.all, card + "button.option"), "the choices")
    # What imitates the hub stands in a frame of the program, and nowhere outside of one.
    outside = stage.page.execute_script(OUTSIDE, card)
    assert "Answered by" not in outside
    assert "[Allow]" not in outside
    assert stage.one(card + ".quote.question").text == IMITATION
    frame, plain = stage.page.execute_script(FRAMES, card)
    assert frame[0] != plain[0]
    assert frame[1] != plain[1]
    # The labels are numbered, what differs is said, and a control of the hub is no label.
    words = [node.text.replace("\n", " ") for node in stage.all(card + "button.option")]
    assert words[0] == "1. option: Deny"
    assert "U+0435 CYRILLIC SMALL LETTER IE" in words[1]
    assert "U+0065 LATIN SMALL LETTER E" in words[2]
    assert words[2].endswith("suggested by the program")
    assert stage.one(card + ".warnings").text.startswith("option 2: character 2 is U+0435")
    # No choice is ready to be sent by Enter, and the one that is suggested looks like others.
    looks = stage.page.execute_script(LOOKS, card)
    assert looks[0]["style"] == looks[1]["style"] == looks[2]["style"]
    assert stage.all(card + ":focus") == []


OUTSIDE = """
const card = document.querySelector(arguments[0]).cloneNode(true);
for (const theirs of card.querySelectorAll(".quote, .label, .in-words")) theirs.remove();
return card.textContent;
"""
FRAMES = """
const card = document.querySelector(arguments[0]);
return [card.querySelector(".quote.question"), card.querySelector(".state")].map((one) => {
  const style = getComputedStyle(one);
  return [style.backgroundColor, style.borderInlineStartWidth];
});
"""


def _raise_permission(hub: FakeHub, recommended: int | None) -> AskView:
    return hub.raise_ask(
        "Run it?", options=("Allow", "Deny"), free_text=False,
        ask_class="permission", recommended=recommended,
    )  # fmt: skip


LOOKS = """
return [...document.querySelectorAll(arguments[0] + "button.option")].map((one) => {
  const style = getComputedStyle(one), box = one.getBoundingClientRect();
  return {
    text: one.textContent,
    style: ["color", "backgroundColor", "fontWeight", "fontSize", "borderColor"]
      .map((name) => style[name]),
    size: [box.width, box.height],
  };
});
"""
