"""The pure parts of the command line: durations, typed answers, cells, what is said."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upcall.cli import COMMANDS, args, asks, choose, phone, quick, results, screen, where
from upcall.cli import ask as ask_command
from upcall.cli.browser import browser_command, forward_line
from upcall.cli.cells import cut, pad, width_of, wrap
from upcall.cli.errors import Usage, nearest

# --- durations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("0.5", 0.5), ("250ms", 0.25), ("90s", 90), ("10m", 600), ("2h", 7200),
        ("1d", 86400), ("1h30m", 5400), ("1d2h3m4s5ms", 93784.005), ("1.5h", 5400),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert args.seconds(text, "--timeout") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "10 parsecs", "10 m", "m", "-5", "+5", "1e3", "inf", "nan", "1h30", "5x",
        "1h1h", "1..5s", ".5", "5.", "١٠m", "10M", "1m30s ", "9" * 40,
    ],
)  # fmt: skip
def test_what_is_no_duration_names_the_input_and_the_form(text: str) -> None:
    with pytest.raises(Usage) as caught:
        args.seconds(text, "--timeout")
    assert repr(text) in caught.value.msg
    assert "1h30m" in (caught.value.recover or "")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"), (0.25, "250 ms"), (4.4, "4 s"), (130, "2 min 10 s"), (600, "10 min"),
        (3900, "1 h 5 min"), (259_200, "3 d"), (90_061, "1 d 1 h"),
    ],
)  # fmt: skip
def test_durations_in_words(seconds: float, words: str) -> None:
    assert screen.duration(seconds) == words


def test_ages_have_one_unit() -> None:
    now_ms = int(time.time() * 1000)
    assert screen.age(now_ms - 130_000) == "2 min"
    assert screen.age(now_ms - 5_000) == "5 s"
    assert screen.age(now_ms + 60_000) == "1 s"
    assert screen.ago(now_ms) == "just now"
    assert screen.ago(now_ms - 5_000) == "5 s ago"


# --- typed answers ---------------------------------------------------------------------------

YES_NO: dict[str, Any] = {"options": ["Yes", "No"]}


@pytest.mark.parametrize(
    ("ask", "typed", "answer"),
    [
        (YES_NO, "Yes", {"indices": [0]}),
        (YES_NO, " no ", {"indices": [1]}),
        (YES_NO, "2", {"indices": [1]}),
        (YES_NO, "#1", {"indices": [0]}),
        (YES_NO, "#DECLINE", {"declined": True}),
        ({"options": ["3", "2", "1"]}, "2", {"indices": [1]}),
        ({"options": ["3", "2", "1"]}, "#2", {"indices": [1]}),
        ({"options": ["3", "2", "1"]}, "#1", {"indices": [0]}),
        ({"options": [], "free_text": True}, "any words", {"text": "any words"}),
        ({"options": ["a"], "free_text": True}, "other", {"text": "other"}),
        ({"options": ["a"], "free_text": True}, "A", {"indices": [0]}),
        ({"options": ["a", "b", "c"], "multi": True}, "1 3", {"indices": [0, 2]}),
        ({"options": ["a", "b", "c"], "multi": True}, "c,a,c", {"indices": [0, 2]}),
        ({"options": ["a, b", "c"], "multi": True}, "a, b", {"indices": [0]}),
    ],
)
def test_typed_answers(ask: dict[str, Any], typed: str, answer: dict[str, Any]) -> None:
    assert choose.read(ask, typed) == answer


@pytest.mark.parametrize(
    ("ask", "typed"),
    [
        (YES_NO, ""),
        (YES_NO, "   "),
        (YES_NO, "y"),
        (YES_NO, "Yess"),
        (YES_NO, "3"),
        (YES_NO, "0"),
        (YES_NO, "-1"),
        (YES_NO, "1 2"),
        (YES_NO, "²"),
        (YES_NO, "#"),
        (YES_NO, "99999999999999999999"),
        ({"options": ["10", "20"]}, "1"),
        ({"options": ["a", "b"], "multi": True}, "a, z"),
        ({"options": ["a", "b"], "multi": True, "max_selected": 1}, "a,b"),
        ({"options": ["a", "b"], "multi": True, "min_selected": 2}, "a"),
        ({"options": [], "free_text": True}, " "),
        ({"options": ["a"], "can_decline": False}, "#decline"),
    ],
)
def test_what_is_no_answer_sends_nothing(ask: dict[str, Any], typed: str) -> None:
    with pytest.raises(choose.NotAnAnswer):
        choose.read(ask, typed)


def test_a_value_that_fits_two_labels_is_refused_with_both_named() -> None:
    with pytest.raises(choose.NotAnAnswer, match=r'"Yes" \(#1\) and "YES" \(#2\)'):
        choose.read({"options": ["Yes", "YES"]}, "yes")
    assert choose.read({"options": ["Yes", "YES"]}, "YES") == {"indices": [1]}


# --- cells -----------------------------------------------------------------------------------


@given(st.text(), st.integers(4, 60))
def test_wrapped_lines_fit_and_lose_nothing_but_blanks(text: str, cells: int) -> None:
    shown = screen.visible(text, newlines=True)
    lines = wrap(shown, cells)
    assert all(width_of(line) <= cells for line in lines)
    assert "".join("".join(lines).split()) == "".join(shown.split())


@given(st.text(), st.integers(2, 60))
def test_cut_text_fits(text: str, cells: int) -> None:
    shown = screen.visible(text)
    assert width_of(cut(shown, cells)) <= cells
    assert width_of(pad(cut(shown, cells), cells)) == cells


def test_wide_and_combining_characters_are_counted_as_they_are_shown() -> None:
    assert width_of("日本") == 4
    assert width_of("e\u0301") == 1
    assert wrap("日本日本", 5) == ["日本", "日本"]


@given(st.text(max_size=400), st.integers(5, 80))
def test_one_line_is_one_safe_line(text: str, limit: int) -> None:
    shown = screen.one_line(text, limit)
    assert len(shown) <= limit
    assert screen.visible(shown) == shown


# --- what is said ----------------------------------------------------------------------------


def test_where_an_ask_is() -> None:
    ask = {"id": "a7q2", "options": ["yes", "no"]}
    channels = [
        {"name": "telegram", "state": "delivered", "audience": 0},
        {"name": "web", "state": "delivered", "audience": 1},
        {"name": "terminal", "state": "delivered", "audience": 0},
    ]
    assert where.asked(ask, channels, here=True) == (
        "asked a7q2 in telegram (delivered), inbox (1 tab)"
        " - answer here: 1 yes, 2 no - Ctrl-C cancels"
    )
    assert where.is_seen(channels)
    channels[0] |= {"state": "down", "reason": "name resolution\x1b failed"}
    channels[1] |= {"audience": 0}
    assert not where.is_seen(channels)
    assert "telegram (down: name resolution\\x1b failed)" in where.asked(
        ask, channels, here=False
    )


def test_the_line_of_a_prompt_names_the_choices_and_hides_who_does_not_look() -> None:
    ask = {"id": "a0123456789ab", "options": ["yes", "no"]}
    web = {"name": "web", "state": "delivered", "audience": 1}
    watch = {"name": "terminal", "state": "delivered", "audience": 1}
    line = where.asked(ask, [web, watch], here=True)
    assert "in inbox (1 tab), watch (1 screen) - answer here: 1 yes, 2 no - " in line
    assert "watch" not in where.asked(ask, [web, watch | {"audience": 0}], here=True)
    alone = where.asked(ask, [web | {"audience": 0}], here=True)
    assert alone == "asked a0123456789ab - answer here: 1 yes, 2 no - Ctrl-C cancels"
    assert where.asked({"id": "a1"}, [], here=True) == "asked a1 - answer here - Ctrl-C cancels"
    many = where.asked({"id": "a1", "options": ["a long label"] * 4}, [], here=True)
    assert many == "asked a1 - answer here - Ctrl-C cancels"
    hostile = where.asked({"id": "a1", "options": ["\x1b[2J"]}, [], here=True)
    assert "\x1b" not in hostile


def test_a_line_is_folded_at_word_borders_and_never_inside_a_command() -> None:
    line = where.asked({"id": "a0123456789ab", "options": ["Yes"]}, [], here=False)
    assert [part.replace(screen.GLUE, " ") for part in screen.folded(line, 80)] == [
        "nobody can see question a0123456789ab yet: no channel is set up and no browser",
        "is signed in. Answer: upcall answer a0123456789ab Yes. Open the inbox:",
        "upcall inbox",
    ]
    assert screen.folded("        some words", 24) == ["        some words"]
    assert screen.folded("    " + "word " * 8, 30) == [
        "    " + "word " * 4 + "word",
        "    word word word",
    ]


def test_a_notice_that_nobody_saw_is_kept() -> None:
    web = {"name": "web", "state": "delivered", "audience": 0}
    assert where.told([web]) == "kept; nobody has seen it yet"
    assert where.told([]) == "kept; nobody has seen it yet"
    assert where.told([web | {"audience": 2}]) == "told in inbox (2 tabs)"
    assert where.status(web | {"heard_ms": 1}) == "inbox: no page open"


def test_initials_answer_a_permission_of_yes_and_no_only() -> None:
    ask = {"options": ["Yes", "No"], "class": "permission"}
    assert choose.read(ask, " Y ") == {"indices": [0]}
    assert choose.read(ask, "n") == {"indices": [1]}
    with pytest.raises(choose.NotAnAnswer):
        choose.read(ask | {"options": ["Yes", "No", "Later"]}, "y")


def test_a_mistyped_command_may_be_one_of_two() -> None:
    assert nearest("aks", COMMANDS) == " - did you mean 'asks' or 'ask'?"
    assert nearest("zzzzz", COMMANDS) == ""


def test_commands_that_are_shown_can_be_pasted() -> None:
    ask = {"id": "a7q2", "options": ["don't; rm -rf /"]}
    assert where.answer_command(ask) == "upcall answer a7q2 'don'\\''t; rm -rf /'"
    assert where.answer_command({"id": "a7q2", "options": ["-o"]}).endswith("'-o'")
    assert where.answer_command({"id": "a7q2"}) == "upcall answer a7q2 TEXT"


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ({"name": "Sam", "channel": "telegram"}, "Sam on telegram"),
        ({"name": "Sam", "channel": "web"}, "Sam on inbox"),
        (
            {"name": None, "channel": "endpoint"},
            "another program on this computer, person unknown",
        ),
        (
            {"name": "sam", "channel": "terminal", "detail": "pid 7, bash,\npts/1"},
            "user sam on this computer (pid 7, bash, pts/1)",
        ),
        ({"name": None, "channel": "slack"}, "somebody on slack"),
        ({"name": "\x1b[2J", "channel": "a\nb"}, "\\x1b[2J on a b"),
        (None, "somebody"),
    ],
)
def test_who_answered(by: Any, words: str) -> None:
    assert results.by({"answered_by": by}) == words


# --- the browser -----------------------------------------------------------------------------


def test_no_browser_without_a_screen_or_over_ssh(tmp_path: Any) -> None:
    opener = tmp_path / "xdg-open"
    opener.write_text("#!/bin/sh\n")
    opener.chmod(0o755)
    path = {"PATH": str(tmp_path)}
    assert browser_command(path, "linux") is None
    assert browser_command({**path, "DISPLAY": ":0"}, "linux") == [str(opener)]
    assert browser_command({**path, "WAYLAND_DISPLAY": "w"}, "linux") == [str(opener)]
    assert browser_command({**path, "DISPLAY": ":0", "SSH_CONNECTION": "x"}, "linux") is None
    assert browser_command({}, "darwin") == ["/usr/bin/open"]


def test_text_browsers_and_programs_beside_us_are_never_opened(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("w3m", "xdg-open", "lynx"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    base = {"DISPLAY": ":0"}
    assert browser_command({**base, "PATH": ".::"}, "linux") is None
    assert (
        browser_command({**base, "PATH": "", "BROWSER": str(tmp_path / "w3m")}, "linux") is None
    )
    (tmp_path / "firefox").symlink_to(tmp_path / "lynx")
    (tmp_path / "xdg-open").unlink()
    assert browser_command({**base, "PATH": str(tmp_path)}, "linux") is None


def test_the_forward_line_has_the_port() -> None:
    line = forward_line("http://127.0.0.1:8737/#login=x", {"USER": "sam"})
    assert "ssh -N -L 8737:127.0.0.1:8737 sam@" in line
    assert "upcall watch" in line
    assert "login" not in line


# --- reading `ask` without argparse ----------------------------------------------------------

_WORDS = st.one_of(
    st.sampled_from(
        [
            "-o", "--option", "--multi", "--free-text", "--no-free-text", "--recommend",
            "--default", "--permission", "--detail", "--timeout", "--title", "--session",
            "--key", "--unseen", "--no-terminal", "-q", "--quiet", "--json", "--no-wait", "--",
            "--tag", "--merge", "-", "-x", "--bogus", "--json=1", "-oyes", "--option=no",
            "wait", "fail", "-1",
        ]
    ),
    st.text(max_size=5),
)  # fmt: skip


@given(st.lists(_WORDS, max_size=8))
def test_the_quick_reader_never_differs_from_the_parser(argv: list[str]) -> None:
    found = quick.read(argv)
    if found is not None:
        assert vars(found) == vars(ask_command.parser().read(argv))


def test_the_quick_reader_reads_the_common_form() -> None:
    argv = ["Ship?", "-o", "yes", "-o", "no", "--timeout", "5m", "--unseen", "fail", "-q"]
    found = quick.read(argv)
    assert (found.question, found.options, found.timeout) == ("Ship?", ["yes", "no"], "5m")
    assert (found.unseen, found.quiet) == ("fail", True)
    assert quick.read(["Ship?", "--unseen", "maybe"]) is None


# --- lists -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "state", "tail"),
    [
        ({"state": "open", "secret": True}, "open 3 s", ""),
        ({"state": "open", "options": ["a", "b"]}, "open 3 s", " [a / b]"),
        ({"outcome": "timed_out"}, "timed out", " (2 s ago)"),
        (
            {"outcome": "declined", "answered_by": {"name": "Sam", "channel": "web"}},
            "declined",
            " (Sam on inbox, 2 s ago)",
        ),
        (
            {
                "outcome": "answered", "secret": True, "answer": {"secret": True},
                "answered_by": {"name": "Sam", "channel": "web"},
            },
            "answered",
            " = (secret) (Sam on inbox, 2 s ago)",
        ),
        ({"outcome": "answered"}, "answered", " = (the text is not kept any more) (2 s ago)"),
    ],
)  # fmt: skip
def test_a_question_is_listed_as_it_stands(ask: dict[str, Any], state: str, tail: str) -> None:
    now_ms = int(time.time() * 1000)
    view = {"id": "a1", "state": "closed", "question": "Q?", "raised_ms": now_ms - 3000}
    row = asks.row(view | {"closed_ms": now_ms - 2000} | ask)
    assert (row[1], row[3]) == (state, f"“Q?”{tail}")


@pytest.mark.parametrize("typed", ["#decline?", "#DECLINE!", "#declined", "#decline#decline"])
def test_a_decline_with_a_slip_is_no_answer(typed: str) -> None:
    with pytest.raises(choose.NotAnAnswer):
        choose.read({"options": [], "free_text": True}, typed)
    assert choose.read({"options": [], "free_text": True}, "#decline me this")["text"]


def test_a_qr_code_that_does_not_fit_is_not_drawn() -> None:
    url = "https://inbox.example/#login=0123456789abcdefghjkmnpqrs"
    lines = phone.qr_lines(url, {"TERM": "xterm"}, 80, 24)
    assert 0 < len(lines) <= 21
    assert phone.qr_lines(url, {"TERM": "xterm"}, 80, len(lines)) == []


def test_the_login_name_is_the_systems_where_no_variable_says_it() -> None:
    import getpass

    line = forward_line("http://127.0.0.1:8737/", {})
    assert f" {getpass.getuser()}@" in line
