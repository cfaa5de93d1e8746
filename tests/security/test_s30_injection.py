"""S30: nothing from outside acts on a terminal, a log line or a title."""

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.home import UPCALL, Home, eventually
from fakes.peer import Peer
from fakes.pty_screen import PtyScreen
from upcall.cli import COMMANDS
from upcall.config import parse
from upcall.model.errors import ConfigInvalid
from upcall.model.text import one_line, printable_answer, visible
from upcall_adapters._kit.hostile import CORPUS, LONG

# What a terminal acts on, and what turns or hides text: none of it is ever printed.
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\u00ad"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
# Sequences of ours: colour, cursor, the other screen, and their like.
OURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78]|\x1b\([B0]")
SENDABLE = [
    text for text in CORPUS if "\x00" not in text and not re.search("[\ud800-\udfff]", text)
]


# Signs that are called format characters and yet draw something, such as U+06DD.
SEEN_FORMATS = {
    *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD,
    *range(0x13430, 0x13440),
}  # fmt: skip


def clean(text: str) -> bool:
    return ACTING.search(text) is None


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


# --- the one function -------------------------------------------------------------------------


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 60


@pytest.mark.parametrize("text", [*CORPUS, LONG], ids=range(len(CORPUS) + 1))
def test_what_acts_becomes_visible_and_the_rest_stays(text: str) -> None:
    shown = visible(text)
    assert clean(shown.replace("\u200d", ""))
    assert clean(one_line(text, 100).replace("\u200d", ""))
    assert len(one_line(text, 100).splitlines()) <= 1
    shown.encode()
    for char in text:
        if unicodedata.category(char)[0] in "LNPS":
            assert char in shown or f"{ord(char):x}" in shown.lower()


def test_every_format_character_of_unicode_is_made_visible() -> None:
    for point in range(0x110000):
        char = chr(point)
        if point in SEEN_FORMATS:
            continue
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
            assert char not in visible(f"a{char}b"), hex(point)


def test_an_answer_is_printed_without_what_acts_on_a_terminal() -> None:
    for text in CORPUS:
        printed = printable_answer(text)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", printed), ascii(text)
    assert printable_answer("a\tb\nc") == "a\tb\nc"


# --- every field of an ask, and every place that shows it -------------------------------------


def raise_with(home: Home, number: int, text: str) -> bool:
    """Raise an ask with *text* in every field that takes it; False if it is refused."""
    fields: dict[str, Any] = {
        "id": f"a{number:012d}", "question": f"Q {text}", "detail": text, "free_text": True,
    }  # fmt: skip
    who = {"title": text, "repo": text, "branch": text, "cwd": f"/{text}", "program": text}
    with home.line() as line:
        answer = line.request(
            "ask", ask=fields, session={"name": text[:100] or "x"}, wait=False
        )
        if not answer["ok"]:
            assert clean(json.dumps(answer["error"], ensure_ascii=False).replace("\u200d", ""))
        line.request("notify", text=text, session=who)
        return bool(answer["ok"])


def test_no_field_of_a_question_acts_on_a_terminal_a_pipe_or_the_log(home: Home) -> None:
    raised = [raise_with(home, number, text) for number, text in enumerate(SENDABLE)]
    assert sum(raised) > 50
    for words in (["asks"], ["sessions"], ["sessions", "--all"], ["hub", "status"], []):
        shown = home.run(*words)
        assert shown.code == 0, shown
        assert clean(shown.out.replace("\u200d", "")), words
    document = home.run("asks", "--json")
    assert len(document.json["asks"]) >= sum(raised)
    with PtyScreen([*UPCALL, "watch"], home.env) as screen:
        screen.wait_for("open questions")
        screen.type("\x1b[B" * 20)
        screen.wait_for(re.compile(r"^> *21 ", re.MULTILINE).search)  # type: ignore[arg-type]
        screen.type("q")
        assert screen.finish() == 0
        raw = OURS.sub("", screen.raw.decode("utf-8", "surrogateescape"))
        assert clean(re.sub("[\r\x0f\u200d]", "", raw)), ascii(raw)
    assert_log_is_lines(home)


def assert_log_is_lines(home: Home) -> None:
    lines = home.log().splitlines()
    assert lines
    assert home.log().count("\n") == len(lines)
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ \w+", line), ascii(line)
        assert clean(line.replace("\u200d", "")), ascii(line)
    assert "Traceback (most recent call last):\n" not in home.log()


@pytest.mark.parametrize("number", range(0, len(SENDABLE), 9))
def test_the_prompt_of_the_asker_shows_it_and_does_not_obey(home: Home, number: int) -> None:
    text = SENDABLE[number]
    argv = [*UPCALL, "ask", f"Q {text}", "--detail", f"D {text}", "-o", "go", "-o", "stay"]
    with PtyScreen(argv, home.env) as screen:
        screen.wait_for(lambda shown: shown.rstrip().endswith("\n>"))
        raw = OURS.sub("", screen.raw.decode("utf-8", "surrogateescape"))
        assert clean(re.sub("[\r\u200d]", "", raw)), ascii(raw)
        screen.type("go\r")
        assert screen.finish() == 0


# --- labels, answers --------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029", "\r\n"])
def test_a_label_holds_no_line_break(home: Home, end: str) -> None:
    for label in (f"a{end}b", f"a{end}"):
        done = home.run("ask", "Q?", "-o", label, "-o", "no", "--no-wait")
        assert done.code == 2, done
        assert clean(done.err)


def test_an_answer_reaches_the_pipe_clean_and_json_exact(home: Home) -> None:
    said = "a\x1b]0;title\x07b\rc\x9bd\te"
    ask_id = home.hand_over("Words?")
    assert home.run("answer", ask_id, said).code == 0
    plain = home.run("wait", ask_id)
    assert plain.out == "a]0;titlebcd\te\n"
    assert clean(plain.err)
    assert home.run("wait", ask_id, "--json").json["answer"]["text"] == said


# --- errors of every command ------------------------------------------------------------------

LIGHTLY_HOSTILE = ["\x1b]0;title\x07", "a\x9b2Jb", "[/]\u202eevil", "x\ny\rz"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_command_repeats_what_it_was_given_as_it_is(home: Home, command: str) -> None:
    text = LIGHTLY_HOSTILE[len(command) % len(LIGHTLY_HOSTILE)]
    for words in ([command, text, text, text], [command, f"--{text}"]):
        asks = command in {"ask", "confirm", "notify", "demo"} and words[1] == text
        given = [command, "--timeout", text, text] if asks else words
        done = home.run(*given, within_s=20)
        assert done.code not in {0, 70}, done
        assert "Traceback" not in done.err
        assert "this should not happen" not in done.err
        assert clean(done.out), ascii(done.out)
        assert clean(done.err), ascii(done.err)


def test_configuration_is_named_clean() -> None:
    for text in SENDABLE:
        document = f"[hub]\n{json.dumps(text)} = 1\n".encode()
        with pytest.raises(ConfigInvalid) as refused:
            parse(document, f"/{text}/config.toml")
        said = f"{refused.value.msg} {refused.value.recover}"
        assert clean(said.replace("\u200d", "")), ascii(said)
        assert "\n" not in refused.value.msg


# --- a session of another program -------------------------------------------------------------


def test_what_a_session_says_of_itself_is_shown_clean(home: Home) -> None:
    with Peer(f"{home.path}", "peer-30") as peer:
        assert home.run("roots", "add", home.path).code == 0
        eventually(lambda: peer.connected == 1, what="the hub attached to the peer")
        for number, text in enumerate(SENDABLE[:20]):
            peer.ask(f"ask:{number}", f"Q{number} {text}", f"yes {number} {text}"[:60], "no")
        with home.line("control") as line:
            eventually(
                lambda: [
                    one
                    for one in line.ok("asks", state="open", limit=100)["asks"]
                    if one["question"].startswith("Q19 ")
                ]
            )
        assert clean(home.run("asks").out.replace("\u200d", ""))
        assert clean(home.run("sessions", "--all").out.replace("\u200d", ""))
    assert_log_is_lines(home)
