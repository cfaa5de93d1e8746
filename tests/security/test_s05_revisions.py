"""S5: an answer counts for what was shown, and for nothing that was put in its place."""

import http.client
import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.home import UPCALL, Home, Json, eventually
from fakes.peer import Peer
from fakes.pty_screen import PtyScreen
from upcall.core.asks import read_answer, revision_of, wire_answer
from upcall.line import mint_ask_id
from upcall.model.ask import AskSpec

STALE = (
    "The program changed its question after this card was posted. Nothing was sent. "
    "New question below."
)


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


@pytest.fixture
def peer(home: Home) -> Iterator[Peer]:
    """A session that speaks the wire, attached to the hub."""
    project = os.path.realpath(f"{home.path}/project")
    if not os.path.isdir(project):
        os.mkdir(project, 0o700)
        assert home.run("roots", "add", project).code == 0
    with Peer(project, f"peer-{mint_ask_id()}") as made:
        eventually(lambda: made.connected == 1, what="the hub attached to the peer")
        yield made
        made.resolve("ask:1", "local")
        eventually(lambda: not asks_of(home, made), what="its ask is withdrawn")


def open_asks(home: Home) -> list[Json]:
    with home.line("control") as line:
        found: list[Json] = line.ok("asks")["asks"]
    return found


def asks_of(home: Home, peer: Peer) -> list[Json]:
    found = open_asks(home)
    return [ask for ask in found if ask["session"]["session_id"] == peer.session_id]


def the_ask(home: Home, peer: Peer, former: Json | None = None) -> Json:
    """Return the peer's open ask, as soon as it is another one than *former*."""

    def look() -> list[Json]:
        return [a for a in asks_of(home, peer) if former is None or a["id"] != former["id"]]

    (found,) = eventually(look, what="the peer's ask")
    return found


def frame(peer: Peer, **fields: Any) -> Json:
    base = {
        "type": "action_needed",
        "id": "ask:1",
        "kind": "ask",
        "sessionId": peer.session_id,
        "question": "Deploy to staging?",
        "options": ["Yes", "No", "Later"],
        "detail": "rm -r build",
    }
    return {**base, **fields}


CHANGES: dict[str, Json] = {
    "options swapped": {"options": ["No", "Yes", "Later"]},
    "one option more": {"options": ["Yes", "No", "Later", "Never"]},
    "a label with another letter": {"options": ["Yes", "No", "L\u0430ter"]},
    "another question": {"question": "Deploy to production?"},
    "a blank more in the detail": {"detail": "rm -r  build"},
    "no detail": {"detail": ""},
    "a character that does not show": {"detail": "rm -r\u200b build"},
    "another class": {"class": "permission", "freeText": False},
    "words taken or not": {"freeText": False},
    "several may be chosen": {"multi": True},
    "details of the options": {"optionDetails": ["now", "", ""]},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_ask_is_another_ask_and_old_answers_reach_nobody(
    home: Home, peer: Peer, change: Json
) -> None:
    peer.pending = frame(peer)
    peer.say(peer.pending)
    shown = the_ask(home, peer)
    peer.pending = frame(peer, **change)
    peer.say(peer.pending)
    new = the_ask(home, peer, shown)
    assert new["revision"] != shown["revision"]
    with home.line("control") as line:
        # The control that was on the screen, and the old one against the new ask.
        for ask in (shown["id"], new["id"]):
            answer = line.request("answer", ask=ask, values=["#1"], revision=shown["revision"])
            assert answer["ok"] is False
            error = answer["error"]
            assert (error["code"], error["msg"]) == ("stale_card", STALE)
        # By less than its id it is not clear which of the two was meant.
        assert line.refused("answer", ask="ask:1", values=["Yes"]) in {
            "ambiguous_ask",
            "self_answer",
        }
    old = home.ask_state(shown["id"])
    assert (old["outcome"], old["note"]) == ("superseded", STALE)
    assert peer.replies() == []
    assert home.ask_state(new["id"])["state"] == "open"


def test_the_command_line_says_that_the_question_changed(home: Home, peer: Peer) -> None:
    peer.ask("ask:1", "Deploy?", "Yes", "No")
    shown = the_ask(home, peer)
    peer.ask("ask:1", "Deploy?", "No", "Yes")
    new = the_ask(home, peer, shown)
    done = home.run("answer", shown["id"], "Yes")
    assert (done.code, done.out, done.err) == (3, "", f"upcall: {STALE}\n")
    assert peer.replies() == []
    assert home.run("answer", new["id"], "Yes").code == 0
    (reply,) = peer.replies()
    assert reply["answer"] == "Yes"


def test_the_same_ask_again_is_the_same_card(home: Home, peer: Peer) -> None:
    peer.ask("ask:1", "Deploy?", "Yes", "No")
    shown = the_ask(home, peer)
    assert peer.pending is not None
    peer.say(peer.pending)
    peer.say({**peer.pending, "recommended": "No", "recommendedIndex": 1})
    peer.say({"type": "context_update", "sessionId": peer.session_id, "task": "after it"})

    def told() -> bool:
        with home.line("control") as line:
            sessions = line.ok("sessions")["sessions"]
        return any(one["task"] == "after it" for one in sessions)

    eventually(told, what="the frames before it were taken")
    assert the_ask(home, peer)["id"] == shown["id"]


def test_what_is_typed_in_watch_is_not_sent_to_a_changed_question(
    home: Home, peer: Peer
) -> None:
    peer.ask("ask:1", "Deploy to staging?", "Yes", "No")
    shown = the_ask(home, peer)
    with PtyScreen([*UPCALL, "watch"], home.env, columns=100) as screen:
        screen.wait_for("Deploy to staging?")
        screen.type("1")
        screen.wait_for("answer > 1")
        peer.ask("ask:1", "Deploy to production?", "Yes", "No")
        new = the_ask(home, peer, shown)
        screen.wait_for("Your input was not used.")
        # Enter alone begins an answer to what is shown now; it does not send one.
        screen.type("\r")
        screen.wait_for("answer >")
    assert peer.replies() == []
    assert home.ask_state(new["id"])["state"] == "open"


def signed_in(home: Home) -> tuple[http.client.HTTPConnection, dict[str, str]]:
    """Return a connection to the inbox and the headers of a signed-in page."""
    with home.line("control") as line:
        link = line.ok("login", action="link")["url"]
    base, _, code = link.partition("#login=")
    parts = urlsplit(base)
    assert parts.hostname is not None
    web = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    headers = {"Origin": base.rstrip("/"), "Content-Type": "application/json"}
    web.request("POST", "/api/login", json.dumps({"code": code}), headers)
    got = web.getresponse()
    key = json.loads(got.read())["key"]
    cookie = str(got.headers["Set-Cookie"]).partition(";")[0]
    return web, {**headers, "Cookie": cookie, "X-Upcall-Key": key}


def test_a_form_of_the_inbox_with_an_old_revision_is_refused(home: Home, peer: Peer) -> None:
    web, headers = signed_in(home)
    peer.ask("ask:1", "Deploy?", "Yes", "No")
    shown = the_ask(home, peer)
    peer.ask("ask:1", "Deploy?", "No", "Yes")
    new = the_ask(home, peer, shown)

    def press(ask: Json, revision: str | None, key: str) -> tuple[int, Json]:
        body = {"ask": ask["id"], "key": key * 16, "indices": [0]}
        body |= {} if revision is None else {"revision": revision}
        web.request("POST", "/api/answer", json.dumps(body), headers)
        got = web.getresponse()
        document = json.loads(got.read())
        assert isinstance(document, dict)
        return got.status, document

    for number, ask in enumerate((shown, new)):
        status, document = press(ask, shown["revision"], "ab"[number])
        assert (status, document["code"], document["msg"]) == (409, "stale_card", STALE)
    assert press(new, None, "c")[0] == 400
    assert peer.replies() == []
    status, document = press(new, new["revision"], "d")
    assert (status, document["ok"]) == (200, True)
    web.close()
    (reply,) = eventually(peer.replies)
    assert reply["answer"] == "No"


# --- programs without an endpoint ------------------------------------------------------------

QUESTION = ("Deploy?", "-o", "Yes", "-o", "No")


def test_asks_that_differ_by_a_blank_are_two_cards(home: Home) -> None:
    with home.line("control") as line:
        for ask in open_asks(home):
            line.request("cancel", ask=ask["id"])
    one = home.hand_over(*QUESTION, "--detail", "rm -r build", "--key", "blank")
    two = home.run("ask", "--no-wait", *QUESTION, "--detail", "rm -r  build", "--key", "blank")
    assert two.code == 1
    assert "key" in two.err
    three = home.hand_over(*QUESTION, "--detail", "rm -r  build")
    assert {ask["id"] for ask in open_asks(home)} == {one, three}


def test_equal_asks_are_one_only_if_their_program_says_so(home: Home) -> None:
    ids = {home.hand_over(*QUESTION) for _ in range(2)}
    assert len(ids) == 2
    keyed = {home.hand_over(*QUESTION, "--key", "same") for _ in range(2)}
    assert len(keyed) == 1


def test_permissions_never_merge_and_are_given_once(home: Home) -> None:
    words = ("confirm", "Deploy?", "--key", "deploy", "--timeout", "1m")
    first = home.start(*words)
    one = first.asked()
    second = home.start(*words)
    two = second.asked()
    assert one != two
    assert home.run("answer", one, "Yes", terminal=True).code == 0
    assert first.end().code == 0
    assert home.ask_state(two)["state"] == "open"
    third = home.start(*words)
    assert third.asked() not in {one, two}


def test_an_id_stands_for_one_question(home: Home) -> None:
    with home.line() as line:
        ask = {"id": mint_ask_id(), "question": "Deploy?", "options": ["Yes", "No"]}
        line.ok("ask", ask=ask, wait=False)
        changed = {**ask, "options": ["No", "Yes"]}
        assert line.refused("ask", ask=changed, wait=False) in {"id_conflict", "key_conflict"}


def test_a_prefix_that_an_asker_made_to_fit_answers_no_permission(home: Home) -> None:
    """A program chooses its ids: one that begins like another's must not take its answer."""
    with home.line() as line:
        first = mint_ask_id()
        other = first[:-1] + ("0" if first[-1] != "0" else "1")
        words = {"question": "Deploy?", "options": ["Yes", "No"], "class": "permission"}
        line.ok("ask", ask={"id": first, **words}, wait=False)
        line.ok("cancel", ask=first)
        line.ok("ask", ask={"id": other, **words}, wait=False)
    done = home.run("answer", first[:-1], "Yes", terminal=True)
    assert done.code == 2, done
    assert home.ask_state(other)["state"] == "open"


# --- the fingerprint itself ------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
SPECS = st.builds(
    AskSpec,
    question=TEXT,
    options=st.lists(TEXT, max_size=3).map(tuple),
    detail=st.none() | TEXT,
    multi=st.booleans(),
    min_selected=st.none() | st.integers(0, 3),
    max_selected=st.none() | st.integers(0, 3),
    free_text=st.booleans(),
    ask_class=st.sampled_from(["question", "permission"]),
    option_details=st.none() | st.lists(TEXT, min_size=1, max_size=3).map(tuple),
)
SHOWN = (
    "ask_class",
    "question",
    "detail",
    "options",
    "option_details",
    "multi",
    "min_selected",
    "max_selected",
    "free_text",
)


@given(SPECS, SPECS)
def test_two_asks_have_one_revision_only_if_the_same_is_shown(
    one: AskSpec, two: AskSpec
) -> None:
    same = all(getattr(one, name) == getattr(two, name) for name in SHOWN)
    assert (revision_of(one) == revision_of(two)) == same


@given(SPECS, SPECS, st.sampled_from(SHOWN))
def test_each_shown_field_alone_changes_the_revision(
    one: AskSpec, two: AskSpec, name: str
) -> None:
    fields = {field: getattr(one, field) for field in one.__struct_fields__}
    changed = AskSpec(**{**fields, name: getattr(two, name)})
    differs = getattr(one, name) != getattr(two, name)
    assert (revision_of(one) != revision_of(changed)) == differs


@given(st.lists(st.sampled_from(["Yes", "No", "yes", "Later"]), min_size=1, max_size=5))
def test_a_session_gets_the_label_wherever_that_is_unique(labels: list[str]) -> None:
    spec = AskSpec("Q?", tuple(labels), free_text=False)
    for index, label in enumerate(labels):
        sent = wire_answer(spec, read_answer(spec, index))
        assert sent == (label if labels.count(label) == 1 else index)
