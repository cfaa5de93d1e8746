"""S30: nothing from outside acts on a terminal, a log line or a title."""

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.home import UPCALL, Home, eventually
from fakes.peer import Peer
from fakes.pty_screen import PtyScreen
from upcall.cli import COMMANDS
from upcall.cli import ask as ask_command
from upcall.config import parse
from upcall.core.asks import check_ask, read_answer
from upcall.model.ask import AnsweredBy, AskSpec, Selection
from upcall.model.errors import ConfigInvalid, UpcallError
from upcall.model.text import one_line, printable_answer, visible
from upcall.model.views import AskView, ChannelView, HealthView, NoticeView, SessionView
from upcall.session.connect import parse_url
from upcall.session.files import attachment
from upcall.session.host import Session
from upcall_adapters._kit.hostile import CORPUS, LONG
from upcall_adapters.web.present import state_json

ROOT = Path(__file__).parents[2]
# What a terminal acts on, and what turns or hides text: none of it is ever printed.
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\u00ad"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
# All that `upcall watch` sends: the other screen, the cursor's row, the rest of a line.
OURS = re.compile(r"\x1b\[(?:\?1049[hl]|\?25[hl]|2J|\d+;1H|K)")
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


@pytest.fixture
def private_state(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "TMPDIR"):
        monkeypatch.setenv(name, home.env[name])


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
    document = home.run("asks", "--json", "--limit", "200")
    assert len(document.json["asks"]) >= sum(raised)
    with PtyScreen([*UPCALL, "watch"], home.env) as screen:
        # Its first picture has no question yet, and keys pressed there choose none.
        screen.wait_for(re.compile(r"\b\d{2,} open questions").search)  # type: ignore[arg-type]
        screen.type("\x1b[B" * 20)
        screen.wait_for(re.compile(r"^> *21 ", re.MULTILINE).search)  # type: ignore[arg-type]
        screen.type("q")
        assert screen.finish() == 0
        whole = screen.raw.decode("utf-8", "surrogateescape")
        assert clean(re.sub("[\r\u200d]", "", OURS.sub("", whole))), ascii(whole)
        # What looks like a sequence of ours is not one that a question brought along.
        assert whole.count("\x1b[?1049h") == 1
        assert not [text for text in SENDABLE if not clean(text) and f"Q {text}" in whole]
        assert screen.title == ""
    assert_log_is_lines(home)


def assert_log_is_lines(home: Home) -> None:
    lines = home.log().splitlines()
    assert lines
    assert home.log().count("\n") == len(lines)
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ \w+", line), ascii(line)
        assert clean(line.replace("\u200d", "")), ascii(line)
    assert "Traceback (most recent call last):\n" not in home.log()


AT_THE_PROMPT = [
    "\x1b]0;title\x07", "\x1b]52;c;aGk=\x07", "\x1b[?1049h", "\x1b[13;37H", "\x1b[45;33mx",
    "\x9b2J", "a\rb", "a\bb", "a\x7fb", "\u202eevil", "a\u2028b",
    "[link=http://example.com]x[/link]",
]  # fmt: skip


@pytest.mark.parametrize("text", AT_THE_PROMPT, ids=range(len(AT_THE_PROMPT)))
def test_the_prompt_of_the_asker_shows_it_and_does_not_obey(home: Home, text: str) -> None:
    assert text in CORPUS
    argv = [*UPCALL, "ask", f"Q {text}", "--detail", f"D {text}", "-o", "go", "-o", "stay"]
    with PtyScreen(argv, home.env) as screen:
        screen.wait_for(lambda shown: shown.rstrip().endswith("\n>"))
        # The prompt itself sends no sequence at all.
        raw = screen.raw.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        assert clean(raw.replace("\u200d", "")), ascii(raw)
        assert screen.title == ""
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


def test_words_names_and_keys_reach_no_terminal_as_they_are(home: Home) -> None:
    with home.line() as asker, home.line("control") as person:
        for number, text in enumerate(SENDABLE):
            if not text.strip():
                continue
            fields = {"id": f"a{number:08d}w0rd", "question": "Words?", "free_text": True}
            who = {"name": text[:60], "title": text}
            assert asker.request("ask", ask=fields, session=who, wait=False)["ok"], ascii(text)
            person.request("answer", ask=fields["id"], values=[text])
    for words in (["asks", "--all"], ["sessions", "--all"]):
        shown = home.run(*words)
        assert shown.code == 0
        assert clean(re.sub("\u200d", "", shown.out + shown.err)), words
    hostile = "x\x1b]0;pwn\x07\x9b31m\u202ey\r\n2026-01-01 00:00:00,000 INFO upcall forged"
    for option in ("--session", "--key", "--title"):
        first = home.run("ask", f"Q {option}?", "-o", "a", "--no-wait", option, hostile)
        assert first.code == 0, first
        other = home.run("ask", f"Not {option}?", "-o", "b", "--no-wait", option, hostile)
        assert other.code == (1 if option == "--key" else 0), other
        assert clean(first.err + other.err)
    assert_log_is_lines(home)


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
                    for one in line.ok("asks", state="open", limit=1000)["asks"]
                    if one["question"].startswith("Q19 ")
                ]
            )
        assert clean(home.run("asks").out.replace("\u200d", ""))
        assert clean(home.run("sessions", "--all").out.replace("\u200d", ""))
    assert_log_is_lines(home)


def test_no_frame_of_a_session_acts_on_a_terminal_or_the_log(home: Home) -> None:
    with Peer(f"{home.path}", "peer-31") as peer:
        assert home.run("roots", "add", home.path).code == 0
        eventually(lambda: peer.connected == 1, what="the hub attached to the peer")
        about = {"sessionId": peer.session_id}
        for text in SENDABLE:
            for frame in (
                dict.fromkeys(("repo", "branch", "machine", "title"), text)
                | {"type": "identity_header"},
                dict.fromkeys(("cwd", "lastMessage", "task", "goal", "model", "diff"), text)
                | {"type": "context_update", "tokenUsage": text},
                {"type": "activity", "state": text},
                {"type": "turn_stream", "phase": "finalized", "text": text, "messageRef": text},
                {"type": "tool_activity", "toolCallId": text, "toolName": text, "phase": text},
                {"type": "file_attachment", "name": text, "data": "aGk=", "caption": text},
                {"type": "reply_rejected", "id": text, "reason": text},
                {"type": "action_resolved", "id": text, "resolvedBy": text},
                {"type": "protocol_error", "error": {"code": text, "message": text}},
                {"type": text},
            ):
                peer.say({**about, **frame})
        peer.reject = "x\x1b]0;pwn\x07\u202e\r\nforged"
        peer.ask("ask:\x1b[2J", "Peer?", "yes", "no")

        def asked() -> list[Any]:
            with home.line("control") as line:
                known = line.ok("asks", state="open", limit=1000)["asks"]
            return [one["id"] for one in known if one["question"] == "Peer?"]

        (ask_id,) = eventually(asked)
        done = home.run("answer", ask_id, "yes")
        assert done.code == 1
        assert clean(done.err)
        for words in (["asks"], ["sessions", "--all"], ["hub", "status"]):
            shown = home.run(*words)
            assert shown.code == 0
            assert clean(re.sub("\u200d", "", shown.out + shown.err)), words
    assert_log_is_lines(home)


def test_a_file_that_is_no_record_is_named_clean(home: Home) -> None:
    root = f"{home.path}/p"
    folder = f"{root}/.gjc/state/sdk"
    os.makedirs(folder, 0o700)
    names = ["a\x1b]0;t\x07", "b\u202eexe", "c\n2026-01-01 00:00:00,000 INFO upcall forged"]
    for name in names:
        with open(f"{folder}/{name}.json", "w", opener=private) as file:
            file.write("{")
    assert home.run("roots", "add", root).code == 0
    said = eventually(lambda: told(home, names), what="all three are named")
    assert clean(said)
    assert_log_is_lines(home)


def private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def told(home: Home, names: list[str]) -> str:
    shown = home.run("sessions", "--all")
    return shown.err if shown.err.count("not used: ") >= len(names) else ""


# --- Python's exceptions, and what a page is given --------------------------------------------


def refusals(text: str) -> Iterator[Callable[[], object]]:
    yield lambda: Session(session_id=text + "/")
    yield lambda: check_ask(AskSpec("Q?", (text, text)))
    yield lambda: check_ask(AskSpec("Q?", ("yes", "no"), default=text, free_text=False))
    yield lambda: read_answer(AskSpec("Q?", ("yes", "no"), free_text=False), text)
    yield lambda: check_ask(AskSpec(f"{text}\0"))
    yield lambda: parse_url(f"ws://{text}/")
    yield lambda: attachment("s", f"/proc/none/{text}")
    yield lambda: attachment("s", f"/proc/self/{text}/x")


def assert_says_it_clean(error: UpcallError) -> None:
    for said in (str(error), error.recover or ""):
        assert clean(said.replace("\u200d", "")), ascii(said)
        assert "\n" not in said


@pytest.mark.parametrize("text", CORPUS, ids=range(len(CORPUS)))
def test_an_exception_says_it_clean(text: str) -> None:
    for refuse in refusals(text):
        with pytest.raises(UpcallError) as refused:
            refuse()
        assert_says_it_clean(refused.value)


@pytest.mark.asyncio
async def test_a_running_session_says_it_clean(private_state: None) -> None:
    async with Session("s", hub=False) as session:
        for text in CORPUS:
            with pytest.raises(UpcallError) as refused:
                await session.context(**{f"no {text}": "x"})
            assert_says_it_clean(refused.value)


@pytest.mark.parametrize("text", CORPUS, ids=range(len(CORPUS)))
def test_a_page_is_given_nothing_that_hides_or_turns(text: str) -> None:
    session = SessionView(
        "s", "peer", "attached", "c", title=text, repo=text, branch=text, machine=text,
        cwd=text, program=text, task=text, model=text, usage=text, activity=text,
        last_text=text,
    )  # fmt: skip
    by = AnsweredBy(name=text, channel="telegram")
    ask = AskView(
        "a", "closed", "question", text, (text,), False, True, "r", 0, session, detail=text,
        option_details=(text,), default=text, answer=Selection((0,), (text,), text),
        answered_by=by, note=text,
    )  # fmt: skip
    notice = NoticeView(1, "s", "info", text, 5, title=text, repo=text, file_name=text)
    body = state_json(
        asks=[ask], sessions=[session], notices=[notice], about={},
        health=HealthView(False, (), (ChannelView("t", "down", reason=text),), 1, 1, 0, 0),
    )  # fmt: skip
    for said in texts(json.loads(body)):
        assert clean(said.replace("\u200d", "")), ascii(said)


def texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for one in value.values():
                yield from texts(one)
        case list():
            for one in value:
                yield from texts(one)
        case _:
            pass


# --- the manual -------------------------------------------------------------------------------


def test_the_manual_says_never_to_evaluate_an_answer() -> None:
    assert re.search(r"Never `eval`\s+an answer", ask_command.EPILOG)
    with open(f"{ROOT}/docs/how-to.md", encoding="utf-8") as file:
        assert "Never `eval` an answer" in file.read()
