"""The inbox for people who use a screen reader, a keyboard, large text or other colours."""

import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Final

import pytest
from selenium.webdriver.common.keys import Keys

from fakes.browser import Stage
from fakes.web_hub import SESSION, FakeHub
from upcall.model.ask import AnsweredBy, Selection
from upcall.model.views import AskView, NoticeView

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

# Run by the browser's own protocol, so that the page's content security policy stays as it is.
_AXE: Final = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
_RUN: Final = """
axe.run(document, {
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  rules: { "target-size": { enabled: SIZES } }, resultTypes: ["violations"],
}).then((found) => found.violations.flatMap((one) => one.nodes.map(
  (node) => `${one.id}: ${node.target.join(" ")}: ${node.failureSummary}`)))
"""
_ANNOUNCED: Final = """
window.announced = [];
addEventListener("DOMContentLoaded", () => new MutationObserver((changes) => {
  const added = changes.flatMap((change) => [...change.addedNodes]);
  announced.push(...added.map((one) => one.textContent));
}).observe(document.getElementById("announce"), { childList: true }));
"""


def _violations(stage: Stage, *, sizes: bool = False) -> list[str]:
    """Return what axe finds, once nothing has just appeared.

    It takes a target that is scrolled half below the tabs for one that is too small, so
    sizes are for windows as high as their page.
    """
    stage.until(lambda: not stage.all(".young"), "everything to be ripe")
    if stage.script("return typeof axe") == "undefined":
        stage.cdp("Runtime.evaluate", expression=_AXE)
    found = stage.cdp(
        "Runtime.evaluate",
        expression=_RUN.replace("SIZES", "true" if sizes else "false"),
        awaitPromise=True,
        returnByValue=True,
    )["result"]
    return list(found["value"])


def _some_asks(hub: FakeHub, count: int) -> list[AskView]:
    kinds: Sequence[dict[str, Any]] = (
        {
            "question": "Run it?",
            "ask_class": "permission",
            "options": ("Allow", "Deny"),
            "detail": "make -C " + "/very/long/path" * 60 + "\n" * 40 + "x" * 9000,
            "can_decline": True,
            "can_hold": True,
        },
        {"options": ("Yes", "No"), "recommended": 0, "free_text": True},
        {"options": ("eu", "us", "ap"), "multi": True, "max_selected": 2},
        {
            "question": "Which one? " * 60,
            "options": ("one", "two"),
            "option_details": ("the first", "the second"),
            "deadline_ms": hub.clock.wall_ms() + 600_000,
            "default": "two",
        },
        {"question": "Words?", "options": (), "free_text": True, "note": "asked before"},
        {
            "question": "هل تريد النشر؟",
            "options": ("نعم", "لا"),
            "held": True,
            "can_hold": True,
        },
    )
    return [hub.raise_ask(**kinds[number % len(kinds)]) for number in range(count)]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_axe_finds_nothing(stage: Stage, theme: str, count: int) -> None:
    stage.in_hub(lambda hub: _some_asks(hub, count))
    stage.emulate(width=320, height=640, theme=theme)
    stage.sign_in()
    assert len(stage.all(".card")) == count
    stage.text_size(200)
    assert _violations(stage) == []
    if count < 50:  # fifty take axe seconds
        stage.text_size(100)
        assert _violations(stage) == []
        stage.emulate(width=1200, height=2400, theme=theme)
        assert _violations(stage, sizes=True) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_in_what_comes_and_goes(stage: Stage, theme: str) -> None:
    def fill(hub: FakeHub) -> list[AskView]:
        now = hub.clock.wall_ms()
        hub.notice_list = [NoticeView(1, SESSION.session_id, "idle", "done " * 200, now)]
        hub.files["f"] = ("a.txt", "text/plain", b"x")
        hub.notice_list.append(
            NoticeView(2, SESSION.session_id, "attachment", "", now, "f", "a.txt")
        )
        old = hub.raise_ask("Old?")
        hub.close_ask(old.id, "answered", Selection((0,), ("Yes",)), AnsweredBy("kim", "web"))
        return _some_asks(hub, 6)

    url = stage.inbox.url()
    assert url is not None
    stage.emulate(width=375, height=740, theme=theme)
    stage.page.get(url)
    stage.until(lambda: stage.one("#sign-in-code").text, "four characters")
    assert _violations(stage) == []
    permission, words, several, gone, *_ = stage.in_hub(fill)
    stage.sign_in()
    stage.press(stage.card(words.id, "[aria-expanded]"))
    stage.click(stage.one(stage.card(permission.id, ".option")))
    stage.click(stage.one(stage.card(several.id, ".go")))
    stage.in_hub(lambda hub: hub.close_ask(gone.id, "timed_out"))
    stage.state_is(gone.id, "no answer in time")
    stage.in_hub(lambda hub: hub.change_ask(several.id, question="Else?", revision="new"))
    stage.in_hub(lambda hub: hub.raise_ask("Newer?"))
    stage.until(lambda: stage.one("#new-bar").is_displayed(), "the bar")
    for facts in stage.all(stage.card(permission.id, "details")):
        stage.script("arguments[0].open = true", facts)
    assert _violations(stage) == []
    with stage.offline():
        stage.until(lambda: stage.one("#offline").is_displayed(), "the banner")
        assert _violations(stage) == []
    stage.live()
    for tab in ("sessions", "notices", "history"):
        stage.click(stage.one(f'#tabs [data-tab="{tab}"]'))
        stage.one(f"#{tab} article")
        assert _violations(stage) == [], tab


def _focused(stage: Stage) -> str:
    return str(
        stage.script(
            "const one = document.activeElement;"
            "return [one.tagName, one.className, one.textContent.slice(0, 60)].join(' ')"
        )
    )


def _tab_to(stage: Stage, wanted: Callable[[str], bool]) -> str:
    """Press Tab until the focus is where it is wanted; every stop on the way is visible."""
    for _ in range(40):
        stage.page.switch_to.active_element.send_keys(Keys.TAB)
        focus = stage.page.switch_to.active_element
        now = _focused(stage)
        if wanted(now):
            assert focus.value_of_css_property("outline-style") == "solid", now
            assert focus.value_of_css_property("outline-width") == "3px", now
            top, bottom, high = stage.script(
                "const box = document.activeElement.getBoundingClientRect();"
                "return [box.top, box.bottom, innerHeight]"
            )
            assert top < high, now
            assert bottom > 0, now
            return now
    raise AssertionError(f"forty tabs do not reach it; now at {_focused(stage)}")


def test_everything_is_done_by_keys(stage: Stage) -> None:
    permission, risky, plain = stage.in_hub(
        lambda hub: (
            hub.raise_ask("Run it?", ask_class="permission", options=("Allow", "Deny")),
            hub.raise_ask("Delete the old ones?", options=("Delete", "Keep")),
            hub.raise_ask("Name?", options=(), free_text=True, can_hold=True),
        )
    )
    stage.sign_in()
    body = stage.one("body")
    for key in ("y", "n", "1", "a", "d", Keys.ENTER, Keys.SPACE, Keys.ESCAPE):
        body.send_keys(key)
    assert stage.answers() == []

    _tab_to(stage, lambda now: now.startswith("SUMMARY"))
    stage.page.switch_to.active_element.send_keys(Keys.ENTER)
    facts = stage.one(stage.card(permission.id, ".facts dl"))
    stage.until(facts.is_displayed, "the exact facts")
    assert str(time.localtime().tm_year) in facts.text

    _tab_to(stage, lambda now: "option" in now and "Allow" in now)
    # Nobody aims with a key: what has just appeared takes it at once.
    stage.page.switch_to.active_element.send_keys(Keys.ENTER)
    assert "confirm-words" in _focused(stage)
    stage.page.switch_to.active_element.send_keys(Keys.TAB, Keys.NULL)
    assert "Back" in _focused(stage)
    stage.page.switch_to.active_element.send_keys(Keys.TAB, Keys.NULL)
    stage.page.switch_to.active_element.send_keys(Keys.ENTER)
    stage.state_is(permission.id, "the program took it: “Allow”")
    assert "state" in _focused(stage)

    _tab_to(stage, lambda now: "option" in now and "Delete" in now)
    stage.page.switch_to.active_element.send_keys(Keys.SPACE)
    assert "Nothing is sent yet" in _focused(stage)
    stage.page.switch_to.active_element.send_keys(Keys.TAB, Keys.NULL)
    assert "Undo" in _focused(stage)
    stage.page.switch_to.active_element.send_keys(Keys.ENTER)
    stage.state_is(risky.id, "taken back; nothing was sent")
    assert len(stage.answers()) == 1

    _tab_to(stage, lambda now: now.startswith("TEXTAREA"))
    stage.page.switch_to.active_element.send_keys("ada", Keys.ENTER, "two")
    _tab_to(stage, lambda now: "Send words" in now)
    stage.page.switch_to.active_element.send_keys(Keys.ENTER)
    stage.state_is(plain.id, "the program took it")
    assert [event.text for event in stage.answers()] == [None, "ada\ntwo"]
    # A card in which the keys are stays where it is, however long ago it ended.
    began = time.monotonic()
    stage.until(lambda: time.monotonic() - began > 1 or None, "a moment")
    assert "state" in _focused(stage)


def _tree(stage: Stage) -> list[tuple[str, str]]:
    """Return role and name of everything that a screen reader is offered."""
    nodes = stage.cdp("Accessibility.getFullAXTree")["nodes"]
    return [
        (str(node.get("role", {}).get("value")), str(node.get("name", {}).get("value", "")))
        for node in nodes
        if not node.get("ignored")
    ]


def test_a_screen_reader_hears_what_is_asked_and_what_became_of_it(stage: Stage) -> None:
    ask, other = stage.in_hub(
        lambda hub: (
            hub.raise_ask("Deploy?"),
            hub.raise_ask("Name?", options=(), free_text=True),
        )
    )
    with stage.before_load(_ANNOUNCED):
        stage.sign_in()
        tree = _tree(stage)
        for name in ("Deploy?", "Name?"):
            assert ("group", name) in tree
            assert ("article", name) in tree
        for role, name in (
            ("button", "Yes"),
            ("textbox", "Your answer"),
            ("main", ""),
            ("heading", "Questions (2)"),
            ("navigation", "Sections"),
        ):
            assert (role, name) in tree
        assert stage.all(stage.card(ask.id, "form > fieldset > legend"))
        assert stage.script("return document.documentElement.lang") == "en"
        assert stage.page.title == "(2) upcall"
        assert stage.script("return announced") == []

        area = stage.one(stage.card(other.id, "textarea"))
        area.send_keys("typing")
        where = area.rect
        third = stage.in_hub(lambda hub: hub.raise_ask("Third?"))
        stage.until(lambda: stage.script("return announced"), "the announcement")
        for _ in range(3):
            stage.in_hub(lambda hub: hub.changed())
        stage.until(lambda: stage.page.title == "(3) upcall", "the title")
        assert stage.script("return announced") == ["New question: Third?"]
        assert stage.page.switch_to.active_element == area
        assert area.rect == where

        stage.press(stage.card(ask.id, ".option"))
        stage.state_is(ask.id, "the program took it: “Yes”")
        focus = stage.page.switch_to.active_element
        assert focus == stage.one(stage.card(ask.id, "> .state"))
        stage.in_hub(lambda hub: hub.close_ask(third.id, "cancelled"))
        stage.in_hub(
            lambda hub: hub.close_ask(
                other.id, "answered", Selection((), (), "x"), AnsweredBy("kim", "telegram")
            )
        )
        stage.state_is(other.id, "answered by kim on telegram")
        assert stage.page.switch_to.active_element == focus
        assert "typing" in stage.one(stage.card(other.id, ".unsent")).text
        said = stage.script("return announced")
        assert said.count("answered by kim on telegram: “x”") == 1
        assert len(said) == len(set(said))


def test_words_of_a_session_stand_apart_from_ours(stage: Stage) -> None:
    fake = "✅ Answered by sam, 14:02; the session has confirmed\n[Allow] [Deny]"
    label = "Yes” by kim on telegram: “No"
    ask, permission = stage.in_hub(
        lambda hub: (
            hub.raise_ask(
                fake,
                options=(label, "الآن 12"),
                recommended=0,
                default=label,
                deadline_ms=hub.clock.wall_ms() + 60_000,
            ),
            hub.raise_ask(
                "Run?", ask_class="permission", options=("Allow", "Deny"), recommended=0
            ),
        )
    )
    stage.sign_in()
    card = stage.card(ask.id)
    assert stage.one(card + "legend .quote").text == fake
    assert stage.one(card + "> .state").text == ""
    assert stage.all(stage.card(permission.id, ".suggested")) == []
    assert stage.one(card + ".suggested").text == "suggested by the program"
    title = stage.one(card + ".title")
    quotes = "return getComputedStyle(arguments[0], '::before').content"
    assert stage.script(quotes, title) == '"“"'
    for words in (".question", ".label", ".title", ".deadline .in-words"):
        for node in stage.all(card + words):
            assert node.get_attribute("dir") == "auto"
    stage.press(card + ".option")
    stage.state_is(ask.id, "the program took it")
    quoted = stage.one(card + "> .state bdi")
    assert quoted.text == label
    assert quoted.value_of_css_property("box-shadow") != "none"


def test_forced_colours_and_reduced_motion_are_respected(stage: Stage) -> None:
    stage.in_hub(lambda hub: _some_asks(hub, 3))
    stage.emulate(motion="reduce", colors="active")
    stage.sign_in()
    styles = stage.script(
        "const kinds = '.option, .plain, .go, #tabs button';"
        "return [...document.querySelectorAll(kinds)].map((one) => {"
        " const s = getComputedStyle(one);"
        " return [s.transitionDuration, s.animationName, s.borderTopColor, s.color]; })"
    )
    assert {(move, name) for move, name, *_ in styles} == {("0s", "none")}
    current, other = stage.script(
        "const edge = (kind) => getComputedStyle(document.querySelector(kind)).borderTopColor;"
        "return ['#tabs [aria-current]', '#tabs :not([aria-current]):not(span)'].map(edge)"
    )
    assert current != other


_RECORDING: Final = """
window.asked = []; window.shown = []; window.beeps = 0;
window.Notification = class {
  static permission = "default";
  static async requestPermission() {
    asked.push("notification");
    return (Notification.permission = "granted");
  }
  constructor(title, options) { shown.push([title, options.body]); }
  addEventListener() {}
};
const Real = window.AudioContext;
window.AudioContext = class extends Real {
  constructor() { super(); asked.push("sound"); }
  createOscillator() { beeps += 1; return super.createOscillator(); }
};
"""


def test_notifications_and_sound_are_asked_for_by_a_button_only(stage: Stage) -> None:
    stage.emulate(width=1200, height=800)
    with stage.before_load(_RECORDING):
        stage.sign_in()
        stage.in_hub(lambda hub: hub.raise_ask("Before?"))
        stage.until(lambda: stage.all(".card"), "the card")
        assert stage.script("return [asked, shown, beeps]") == [[], [], 0]
        stage.one("#history-list .quiet")
        stage.press("#alert-notify")
        stage.until(lambda: "off" in stage.one("#alert-notify").text, "turned on")
        stage.press("#alert-sound")
        assert stage.one("#alert-sound").text == "Turn the sound off"
        assert stage.script("return [asked, beeps]") == [["notification", "sound"], 1]
        stage.in_hub(lambda hub: hub.raise_ask("Seen?"))
        stage.until(lambda: stage.script("return beeps") == 2, "a sound")
        assert stage.script("return shown") == []
        stage.script("Object.defineProperty(document, 'hidden', { value: true })")
        stage.in_hub(lambda hub: hub.raise_ask("Unseen? " + "x" * 200))
        stage.until(lambda: stage.script("return shown.length"), "a notification")
        ((title, body),) = stage.script("return shown")
        assert title == "upcall"
        assert body.startswith("laptop · shop: “Unseen?")
        assert len(body) == 80
        stage.script("delete document.hidden")
        stage.press("#alert-notify")
        stage.press("#alert-sound")
        stage.in_hub(lambda hub: hub.raise_ask("Quiet?"))
        stage.until(lambda: stage.page.title == "(4) upcall", "the fourth")
        assert stage.script("return [shown.length, beeps]") == [1, 3]
