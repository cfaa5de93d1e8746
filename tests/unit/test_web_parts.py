"""The small pure parts of the web inbox: settings, port, peers, lowering, presenting."""

import socket
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from fakes.web_hub import SESSION, FakeHub
from upcall.model.document import Button, Choices, Heading, Message, Paragraph, Span
from upcall.model.platform import Place
from upcall.model.views import NoticeView
from upcall_adapters.web.config import WebConfig, public_origin
from upcall_adapters.web.destructive import looks_destructive
from upcall_adapters.web.lower import lower
from upcall_adapters.web.pages import Pages
from upcall_adapters.web.peers import holder_of, listener_on, read_tables, uid_of_peer
from upcall_adapters.web.port import bind, wanted_ports
from upcall_adapters.web.present import (
    ask_json,
    file_name,
    state_json,
)
from upcall_adapters.web.spec import SPEC


def _row(local: str, remote: str, state: str, uid: int, inode: int) -> str:
    return (
        f" 0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid} 0 {inode}"
    )


# -- settings


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://inbox.example", "https://inbox.example"),
        ("https://Inbox.Example/", "https://inbox.example"),
        ("https://inbox.example:443", "https://inbox.example"),
        ("https://inbox.example:8443", "https://inbox.example:8443"),
        ("https://b\u00fccher.example", "https://xn--bcher-kva.example"),
        ("https://[2001:db8::1]", "https://[2001:db8::1]"),
    ],
)
def test_a_public_url_becomes_its_origin(url: str, origin: str) -> None:
    assert public_origin(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "http://inbox.example", "inbox.example", "https://", "https://a@b.example",
        "https://inbox.example/x", "https://inbox.example?x", "https://inbox.example:port",
        "https://inbox.example:0", "https://a b.example", "https://a\\b", "https://-a.example",
        "https://in box", "https://in..box", "https://[::1", "https://[v1.x]", "https://a_b;c",
        "https://\u202egnp.example\x00", "ws://inbox.example", "HTTP://inbox.example",
    ],
)  # fmt: skip
def test_a_bad_public_url_is_refused_by_name(url: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="public_url"):
        msgspec.convert({"public_url": url}, WebConfig)


@pytest.mark.parametrize("table", [{"port": -1}, {"port": 65536}, {"port": "x"}, {"prot": 1}])
def test_bad_settings_are_refused(table: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(table, WebConfig)


def test_knowing_the_adapter_loads_nothing_heavy() -> None:
    code = (
        "import sys; from upcall_adapters.web.spec import SPEC; assert SPEC.name == 'web'; "
        "bad = {'aiohttp', 'asyncio', 'socket', 'ssl'} & set(sys.modules); assert not bad, bad"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


# -- port


def test_a_configured_port_is_the_only_one_tried() -> None:
    assert list(wanted_ports(9000, "8737")) == [9000]


@pytest.mark.parametrize(
    ("kept", "ports"),
    [(None, [8737, 0]), ("9123", [9123, 0]), ("x", [8737, 0]), ("0", [8737, 0])],
)
def test_the_port_of_last_time_comes_first(kept: str | None, ports: list[int]) -> None:
    assert list(wanted_ports(None, kept)) == ports


def test_a_taken_port_is_named_and_another_one_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        wanted = other.getsockname()[1]
        bound = bind((wanted, 0))
        with bound.sock:
            assert bound.taken == wanted
            assert bound.port not in {wanted, 0}
        with pytest.raises(OSError, match="in use"):
            bind((wanted,))


# -- peers


def test_finds_the_uid_of_the_other_end_only() -> None:
    rows = [
        _row("0100007F:2221", "0100007F:C350", "01", 7, 11),
        _row("0100007F:C350", "0100007F:2221", "01", 1000, 12),
        _row("0100007F:C350", "0100007F:2222", "01", 8, 13),
    ]
    peer, local = ("127.0.0.1", 0xC350), ("127.0.0.1", 0x2221)
    if sys.byteorder == "little":
        assert uid_of_peer(rows, peer, local) == 1000


@pytest.mark.skipif(sys.byteorder == "big", reason="the sample table is little endian")
def test_a_socket_that_nobody_holds_proves_nothing() -> None:
    peer, local = ("127.0.0.1", 0xC350), ("127.0.0.1", 0x2221)
    closed = _row("0100007F:C350", "0100007F:2221", "04", 0, 0)
    waiting = _row("0100007F:C350", "0100007F:2221", "06", 0, 5)
    assert uid_of_peer([closed, waiting], peer, local) is None
    mapped = "0000000000000000FFFF00000100007F:C350"
    other = "0000000000000000FFFF00000100007F:2221"
    assert uid_of_peer([_row(mapped, other, "01", 5, 6)], peer, local) == 5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has the table")
def test_the_real_table_names_us() -> None:
    import os

    with socket.create_server(("127.0.0.1", 0)) as server:
        local = server.getsockname()
        with socket.create_connection(local) as client:
            lines = read_tables()
            assert lines is not None
            assert uid_of_peer(lines, client.getsockname(), local) == os.getuid()
            listener = listener_on(lines, local[1])
            assert listener is not None
            assert listener.uid == os.getuid()
            assert listener_on(lines, client.getsockname()[1]) is None
            assert f"(pid {os.getpid()}) of yours" in holder_of(local[1])


# -- lowering


def test_lowering_makes_one_body_with_visible_text() -> None:
    message = Message(
        blocks=(Heading("Que\u202estion"), Paragraph((Span("x"),))),
        plain="Deploy?\x1b[2J\nYes",
        choices=Choices(buttons=(Button("t1", "Yes"), Button("t2", "No"))),
        state_line="open",
    )
    (body,) = lower(message, Place("web", "inbox"))
    assert msgspec.json.decode(body.data) == {
        "plain": "Deploy?\\x1b[2J\nYes",
        "title": "Que\\u202estion",
        "state_line": "open",
        "choices": 2,
    }
    assert SPEC.capabilities.edits
    assert SPEC.capabilities.repeat == "harmless"


def test_lowering_a_bare_message_says_only_its_text() -> None:
    (body,) = lower(Message(blocks=(), plain="hi"), Place("web", "inbox"))
    assert msgspec.json.decode(body.data) == {"plain": "hi"}


# -- presenting


def test_foreign_text_is_visible_everywhere() -> None:
    hub = FakeHub()
    nasty = "a\u202eb\x1b[0m\u200bc"
    shown = "a\\u202eb\\x1b[0m\\u200bc"
    session = msgspec.structs.replace(SESSION, title=nasty, repo=nasty, branch=nasty, cwd=nasty)
    ask = hub.raise_ask(
        nasty, options=(nasty,), option_details=(nasty,), detail=nasty, session=session
    )
    document = ask_json(ask)
    for value in (
        document["question"],
        document["detail"],
        document["options"][0]["label"],
        document["options"][0]["shown"],
        document["options"][0]["detail"],
        document["session"]["title"],
        document["session"]["repo"],
        document["session"]["branch"],
        document["session"]["cwd"],
    ):
        assert value == shown


def test_long_detail_is_cut_and_counted_unless_asked_for() -> None:
    ask = FakeHub().raise_ask(detail="x" * 20_000)
    cut = ask_json(ask)
    assert len(cut["detail"]) + cut["detail_hidden"] == 20_000
    assert 0 < cut["detail_hidden"] < 20_000
    whole = ask_json(ask, whole=True)
    assert whole["detail"] == "x" * 20_000
    assert whole["detail_hidden"] == 0


def test_a_permission_ask_never_shows_a_suggestion() -> None:
    hub = FakeHub()
    assert ask_json(hub.raise_ask(recommended=0))["recommended"] == 0
    permission = hub.raise_ask(recommended=0, ask_class="permission")
    assert ask_json(permission)["recommended"] is None


def test_an_option_that_poses_as_the_page_is_marked_and_keeps_its_label() -> None:
    (option, _) = ask_json(FakeHub().raise_ask(options=("Hold", "Go")))["options"]
    assert (option["label"], option["shown"]) == ("Hold", "option: Hold")
    assert (option["number"], option["note"]) == (None, None)


def test_options_that_look_alike_are_numbered_and_told_apart() -> None:
    document = ask_json(FakeHub().raise_ask(options=("Yes", "Y\u0435s", "No")))
    assert [option["number"] for option in document["options"]] == [1, 2, 3]
    notes = [option["note"] for option in document["options"]]
    assert "U+0065 LATIN SMALL LETTER E" in notes[0]
    assert "U+0435 CYRILLIC SMALL LETTER IE" in notes[1]
    assert notes[2] is None
    (warning,) = document["warnings"]
    assert warning.startswith("option 2: character 2 is U+0435")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "passwd"),
        ("a\\b\\c.txt", "c.txt"),
        ("\u202egnp.exe", "gnp.exe"),
        ("x\r\ny: z", "xy z"),
        ("..", "file"),
        ("", "file"),
        ("n" * 300, "n" * 120),
    ],
)
def test_a_file_name_is_one_harmless_component(name: str, safe: str) -> None:
    assert file_name(name) == safe


def test_a_notice_carries_the_name_of_its_session_visibly() -> None:
    notice = NoticeView(1, "s0", "info", "hi", 5, title="re\u202elease", repo="shop\x1b")
    body = state_json(
        asks=[], sessions=[], notices=[notice], health=FakeHub().health(), about={"me": "sam"}
    )
    (shown,) = msgspec.json.decode(body)["notices"]
    assert (shown["title"], shown["repo"]) == ("re\\u202elease", "shop\\x1b")


# -- pages


def test_pages_are_counted_and_woken() -> None:
    counts: list[int] = []
    pages = Pages(counts.append)
    with pages.joined("a") as first, pages.joined("b") as second:
        first.changed.clear()
        second.changed.clear()
        pages.bump()
        assert first.changed.is_set()
        assert second.changed.is_set()
        pages.sign_out("a")
        assert (first.leave, second.leave) == ("signed_out", None)
        pages.stop()
        assert (first.leave, second.leave) == ("signed_out", "stopping")
        assert pages.of("a") == 1
    assert counts == [1, 2, 1, 0]


@pytest.mark.parametrize(
    "fields",
    [
        {"question": "Delete the old backups?"},
        {"question": "Clean up?", "detail": "rm -r build"},
        {"question": "What now?", "options": ("Keep", "Overwrite it")},
        {"question": "Push?", "detail": "git push --force origin main"},
        {
            "question": "And now?",
            "options": ("a", "b"),
            "option_details": ("x", "DROP TABLE t"),
        },
    ],
)
def test_what_names_a_destroying_act_can_be_taken_back(fields: dict[str, Any]) -> None:
    ask = FakeHub().raise_ask(**fields)
    assert looks_destructive(ask)
    assert ask_json(ask)["destructive"] is True


@pytest.mark.parametrize(
    "question", ["Deploy?", "Which farm?", "Skilled reader?", "Add dropbox?"]
)
def test_harmless_words_are_sent_at_once(question: str) -> None:
    assert not looks_destructive(FakeHub().raise_ask(question))


@pytest.mark.parametrize("value", [-1, 61])
def test_the_time_to_take_back_is_bounded(value: float) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"undo_s": value}, WebConfig)
    assert msgspec.convert({"undo_s": 0}, WebConfig).undo_s == 0
