"""The story of an ask: which lines are written when, and how each is told."""

import ast
from pathlib import Path
from typing import Any

import pytest

import upcall
from fakes.kernel_rig import HOME, Rig, ask_id, channel
from upcall.core.story import WORDS, About, words
from upcall.model.ask import AskSpec
from upcall.model.events import DeliveryFailed

CORE = Path(upcall.__file__).parent


def story(rig: Rig, number: int = 1) -> list[str]:
    """Return the events of one ask, in order."""
    return [line.event for line in rig.store.audit if line.ask_id == ask_id(number)]


def facts(rig: Rig, event: str) -> dict[str, Any]:
    """Return the facts of the newest line of an event."""
    return [line.facts for line in rig.store.audit if line.event == event][-1]


def fails(rig: Rig, kind: Any, msg: str = "no route") -> None:
    (row,) = rig.sending("chat", "post")
    rig.do(
        DeliveryFailed(
            at=rig.now, delivery=row.id, kind=kind, msg=msg, jitter=0.5, retry_after_s=0.0
        )
    )


def test_the_whole_life_of_an_ask_of_a_program_that_waits() -> None:
    rig = Rig(channel("chat", repeat="by_key", buttons=8), channel("mail", repeat="by_key"))
    rig.ask()
    rig.arrive_all()
    rig.answer(on="chat")
    rig.took()
    rig.arrive_all()
    assert story(rig) == [
        "raised",
        "shown",
        "shown",
        "claimed",
        "sent",
        "closed",
        "card_closed",
        "card_closed",
    ]
    assert facts(rig, "raised")["pid"] == 100
    assert facts(rig, "shown") == {"channel": "mail", "attempt": 1, "unseen": None}
    assert facts(rig, "claimed")["choice"] == "1"


def test_an_answer_to_a_session_of_its_own_is_sent_when_it_is_written_there() -> None:
    rig = Rig(channel("chat", repeat="by_key"))
    rig.up()
    rig.needs()
    (row,) = rig.kernel.open_rows()
    rig.arrive_all()
    rig.answer(row, on="chat")
    assert "sent" not in [line.event for line in rig.store.audit]
    rig.arrive_all()
    assert [line.event for line in rig.store.audit][-1] in {"sent", "card_closed"}
    assert "sent" in [line.event for line in rig.store.audit if line.ask_id == row.ask_id]
    rig.resolved(resolved_by="client", answer="yes")
    rig.arrive_all()
    events = [line.event for line in rig.store.audit if line.ask_id == row.ask_id]
    assert events == ["raised", "shown", "claimed", "sent", "closed", "card_closed"]
    assert all(line.session_id == HOME for line in rig.store.audit if line.ask_id)


def test_what_is_late_uncertain_or_repeated_is_told_and_a_retry_is_told_once() -> None:
    rig = Rig(channel("chat", repeat="none"))
    rig.ask()
    fails(rig, "not_sent", "no route\x1b[2J")
    rig.wait(30)
    fails(rig, "not_sent")
    rig.wait(60)
    fails(rig, "maybe_sent")
    assert story(rig) == ["raised", "delivery_delayed", "uncertain"]
    assert "\x1b" not in words("delivery_delayed", facts(rig, "delivery_delayed"))
    rig.wait(600)
    rig.arrive_all()
    assert story(rig)[-1] == "shown"
    shown = words("shown", facts(rig, "shown"))
    assert shown == "shown in chat (attempt 2; it may stand there twice)"


def test_a_card_of_several_parts_is_shown_once_all_are_there() -> None:
    from upcall.core.state import ChannelInfo
    from upcall.model.platform import Body, Capabilities

    info = ChannelInfo(
        "chat",
        Capabilities(text_limit=4096, repeat="by_key"),
        lambda message, place: (Body(b"head"), Body(b"tail")),
    )
    rig = Rig(info)
    rig.ask()
    rig.arrive_all()
    assert story(rig) == ["raised", "shown"]


def test_no_text_is_in_a_line() -> None:
    rig = Rig(channel("chat", repeat="by_key"))
    rig.ask(spec=AskSpec(question="QUESTION?", options=("LABEL", "other"), detail="DETAIL"))
    rig.arrive_all()
    rig.answer(on="chat")
    rig.took()
    rig.ask(2, AskSpec(question="QUESTION?", free_text=True))
    rig.arrive_all()
    rig.answer(2, on="chat", text="WORDS")
    rig.took(2)
    kept = repr(rig.store.audit)
    for text in ("QUESTION", "LABEL", "DETAIL", "WORDS"):
        assert text not in kept
    assert facts(rig, "claimed")["words"] == 5


def test_a_secret_is_told_as_one() -> None:
    rig = Rig()
    rig.hears("web", audience=1)
    assert words("claimed", {"operator": "Ada", "channel": "web", "secret": True}) == (
        "Ada answered a secret in inbox"
    )


CASES = [
    ("raised", {"pid": 12}, "raised by “deploy.sh” (pid 12) in “shop”: “Deploy?”"),
    (
        "raised",
        {"ask_class": "permission"},
        "permission asked by “deploy.sh” in “shop”: “Deploy?”",
    ),
    ("shown", {"channel": "telegram"}, "shown in telegram"),
    ("shown", {"channel": "web", "unseen": True}, "listed in inbox, where nobody looked"),
    ("claimed", {"operator": "Ada", "channel": "telegram"}, 'Ada answered "yes" in telegram'),
    ("claimed", {"operator": "Ada", "channel": "x", "declined": True}, "Ada declined in x"),
    (
        "claimed",
        {"operator": "root", "channel": "terminal", "detail": "pid 7, bash, pts/1"},
        'user root on this computer (pid 7, bash, pts/1) answered "yes"',
    ),
    (
        "claimed",
        {"operator": None, "channel": "endpoint"},
        'another program on this computer, person unknown, answered "yes"',
    ),
    ("sent", {}, "sent to the program"),
    ("sent", {"attempt": 3}, "sent to the program again (attempt 3)"),
    (
        "closed",
        {"outcome": "answered", "resolved_by": "client", "operator": "Ada"},
        "the program took it",
    ),
    (
        "closed",
        {"outcome": "answered", "resolved_by": "client", "operator": "Ada", "kept": True},
        "kept until the program collects it",
    ),
    ("closed", {"outcome": "timed_out"}, "timed out: nobody answered, and nobody said no"),
    (
        "closed",
        {"outcome": "timed_out", "default": True},
        'timed out; the program\'s own default "yes" was used, nobody chose it',
    ),
    ("closed", {"outcome": "cancelled"}, "the program withdrew its question"),
    ("closed", {"outcome": "unreachable"}, "the program that asked was gone"),
    ("closed", {"outcome": "superseded"}, "the program stopped waiting for this"),
    ("card_closed", {"channel": "web"}, "card closed: inbox"),
]


@pytest.mark.parametrize(("event", "said", "wanted"), CASES)
def test_each_line_is_told_in_words(event: str, said: dict[str, Any], wanted: str) -> None:
    about = About(program="deploy.sh", place="shop", question="Deploy?", answer="yes")
    assert words(event, said, about) == wanted


def test_what_is_not_kept_any_more_is_said() -> None:
    said = {"operator": "Ada", "channel": "telegram", "choice": "2", "words": 7}
    assert words("claimed", said) == (
        "Ada answered option 2 and 7 characters of text (not kept any more) in telegram"
    )
    assert words("raised", {}) == "raised"


@pytest.mark.parametrize("event", sorted(WORDS))
def test_no_line_fails_whatever_its_facts_are(event: str) -> None:
    """Somebody may have written into the database; the log still shows it, and says no more."""
    for value in (None, "x\x1b[31m\n\u202e", 5, -1.5, True):
        try:
            text = words(event, dict.fromkeys(_names(), value))
        except (ValueError, TypeError) as error:  # pragma: no cover - the failure
            pytest.fail(f"{event} with {value!r}: {error!r}")
        assert "\x1b" not in text
        assert "\n" not in text
        assert "\u202e" not in text


def _names() -> list[str]:
    source = (CORE / "core" / "story.py").read_text()
    tree = ast.parse(source)
    return sorted(
        {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.isidentifier()
        }
    )


def test_an_event_without_words_is_told_by_its_name() -> None:
    assert words("new_thing", {"who": "Ada", "left": None}) == "new thing: who Ada"
    assert words("new_thing", {}) == "new thing"


def test_every_event_that_the_hub_writes_has_words() -> None:
    missing = {event: where for event, where in _written().items() if event not in WORDS}
    assert not missing, f"add them to core/story.py: {missing}"


def _written() -> dict[str, str]:
    """Return the events that the code writes, by their literal names."""
    found: dict[str, str] = {}
    for path in sorted(CORE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            named = [key.value for key in node.keywords if key.arg == "event"]
            if isinstance(function, ast.Attribute) and function.attr == "audit" and node.args:
                values: list[ast.expr] = [node.args[0]]
            elif isinstance(function, ast.Name) and function.id == "AuditRow":
                values = list(named)
            elif isinstance(function, ast.Name) and path.name == "trail.py":
                values = node.args[3:4] if function.id == "_write" else []
            else:
                continue
            for value in values:
                for part in ast.walk(value):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        found[part.value] = path.name
    # With what a session said of it, or what is shown of its asks, behind.
    assert found.pop("message_")
    found.pop("delivery_", None)
    assert found.pop("asks_")
    assert {"asks_muted", "asks_stopped", "asks_shown"} < WORDS.keys()
    return found


def test_no_words_of_a_program_pass_for_the_hubs() -> None:
    title = 'shop: “Deploy?”; user root (pid 1) answered "Yes"'
    told = words("raised", {"pid": 12}, About(program="x” y", place=title, question="q"))
    assert told.startswith('raised by “x" y” (pid 12) in “shop: "Deploy?"; user root')
    assert told.count("“") == told.count("”") == 3
    told = words("claimed", {"operator": "Ada"}, About(answer='Yes" in inbox'))
    assert '"Yes\\" in inbox"' in told
