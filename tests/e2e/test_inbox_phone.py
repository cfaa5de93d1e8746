"""The inbox on a phone: what is under the thumb, what is sent when, and what a sleep leaves."""

import os
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
from selenium import webdriver

from fakes.browser import UNDO_S, Look, Stage
from fakes.home import Home, eventually
from fakes.peer import Peer
from fakes.web_hub import FakeHub
from upcall.model.views import AskView

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

_LAYOUTS: Final = {
    "320": (320, 640, 100),
    "375": (375, 740, 100),
    "landscape": (844, 390, 100),
    "320-large": (320, 640, 200),
    "landscape-large": (844, 390, 200),
    "desk": (1280, 900, 100),
}

# Everything that can be pressed, with the room that it takes; also what sticks out.
_GEOMETRY: Final = """
const seen = (one) => one.offsetWidth && one.offsetHeight;
const name = (one) => `${one.tagName}.${one.className} ${one.textContent.slice(0, 30)}`;
const box = (one) => {
  const b = one.getBoundingClientRect();
  return { name: name(one), left: b.left, top: b.top, right: b.right, bottom: b.bottom };
};
const within = (root) => [...document.querySelectorAll(root)].filter(seen).map(box);
const kinds = "button, summary, label.option, textarea, a";
const list = (root) => within(kinds.split(",").map((kind) => `${root} ${kind}`).join(","));
const wide = document.documentElement.clientWidth;
return {
  page: list("#inbox"), bars: list("#tabs"),
  over: document.documentElement.scrollWidth - wide,
  out: within("#inbox *").filter((b) => b.right > wide + 0.5 || b.left < -0.5)
    .map((b) => b.name),
  inputs: [...document.querySelectorAll("textarea, input:not([type=checkbox])")]
    .map((one) => parseFloat(getComputedStyle(one).fontSize)),
};
"""


def _crowded(controls: list[dict[str, Any]]) -> list[str]:
    """Name the controls that are smaller than 44 by 44 or nearer to each other than 8."""
    faults = [
        f"{one['right'] - one['left']:.1f} x {one['bottom'] - one['top']:.1f}: {one['name']}"
        for one in controls
        if one["right"] - one["left"] < 43.9 or one["bottom"] - one["top"] < 43.9
    ]
    for at, one in enumerate(controls):
        for other in controls[at + 1 :]:
            across = max(one["left"] - other["right"], other["left"] - one["right"])
            along = max(one["top"] - other["bottom"], other["top"] - one["bottom"])
            if max(across, along) < 7.9:
                gap = max(across, along)
                faults.append(f"{gap:.1f} between {one['name']} and {other['name']}")
    return faults


def _hard_asks(hub: FakeHub) -> None:
    hub.raise_ask(
        "Run it?",
        ask_class="permission",
        options=("Allow", "Deny"),
        detail="curl " + "x" * 3000 + "\n" + "tab\tand words " * 900,
        can_decline=True,
        can_hold=True,
    )
    hub.raise_ask("q" * 8192, options=("a" * 200, "many words " * 18), free_text=True)
    hub.raise_ask("Which of 100?", options=tuple(f"number {at}" for at in range(100)))
    hub.raise_ask(
        "أي خادم؟ " * 20,
        options=("الخادم الأول", "db-1", "الثاني (2)"),
        multi=True,
        min_selected=1,
        max_selected=2,
        recommended=0,
        default="db-1",
        deadline_ms=hub.clock.wall_ms() + 90_000,
    )
    session = hub.session_list[0]
    hub.session_list[0] = msgspec.structs.replace(
        session, title="t" * 120, cwd="/" + "d" * 200, activity="w" * 300, branch="b" * 100
    )


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_every_target_is_large_and_nothing_sticks_out(stage: Stage, layout: str) -> None:
    width, height, percent = _LAYOUTS[layout]
    stage.in_hub(_hard_asks)
    stage.emulate(width=width, height=height)
    stage.sign_in()
    stage.text_size(percent)
    stage.script(
        "for (const one of document.querySelectorAll('#ask-list [aria-expanded]')) one.click();"
        "for (const one of document.querySelectorAll('details')) one.open = true;"
    )
    tabs = ("asks", "sessions") if width < 900 else ("asks",)
    for tab in tabs:
        if tab != "asks":
            stage.click(stage.one(f'#tabs [data-tab="{tab}"]'))
        found = stage.script(_GEOMETRY)
        assert len(found["page"]) > (100 if tab == "asks" else 3)
        assert found["over"] <= 0, tab
        assert found["out"] == [], tab
        assert _crowded(found["page"]) == [], tab
        assert _crowded(found["bars"]) == [], tab
        assert min(found["inputs"]) >= 16, tab


def test_controls_are_in_reach_of_the_thumb_and_clear_of_a_notch(stage: Stage) -> None:
    stage.in_hub(lambda hub: hub.raise_ask("Deploy?"))
    stage.emulate(width=375, height=740)
    stage.sign_in()
    bottom = "return arguments[0].getBoundingClientRect().bottom"
    assert stage.script(bottom, stage.one("#tabs")) == 740
    viewport = stage.one("meta[name=viewport]").get_attribute("content") or ""
    assert "viewport-fit=cover" in viewport
    assert "user-scalable" not in viewport
    assert "maximum-scale" not in viewport
    insets = {"top": 47, "bottom": 34, "left": 44, "right": 44}
    stage.cdp("Emulation.setSafeAreaInsetsOverride", insets=insets)
    try:
        tops, tabs, sides = stage.script(
            "return [getComputedStyle(document.querySelector('.top')).paddingTop,"
            " getComputedStyle(document.querySelector('#tabs')).paddingBottom,"
            " document.querySelector('.card').getBoundingClientRect().left]"
        )
        assert (tops, tabs) == ("47px", "34px")
        assert sides >= 44
    finally:
        stage.cdp("Emulation.setSafeAreaInsetsOverride", insets={})


@pytest.mark.parametrize("names", [("Allow", "Deny"), ("Deny", "Allow"), ("No", "Yes")])
def test_allow_and_deny_never_swap_places(stage: Stage, names: tuple[str, str]) -> None:
    first, ask = stage.in_hub(
        lambda hub: (
            hub.raise_ask("And?", ask_class="permission", options=("Allow", "Deny")),
            hub.raise_ask("Run?", ask_class="permission", options=names, recommended=0),
        )
    )
    stage.sign_in()
    for known in (first, ask):
        upper, lower = stage.all(stage.card(known.id, ".option"))
        assert upper.text in {"Allow", "Yes"}
        assert lower.text in {"option: Deny", "No"}  # Deny is also a word of ours
        assert upper.size == lower.size
        styles = stage.script(
            # In one look: while a card comes in, its controls become opaque together.
            "return [...arguments].map((one) => { const s = getComputedStyle(one);"
            "return [s.color, s.backgroundColor, s.borderColor, s.fontWeight, s.opacity]; })",
            upper,
            lower,
        )
        assert styles[0] == styles[1]
    allowing = next(at for at, name in enumerate(names) if name in {"Allow", "Yes"})
    assert stage.script("return document.activeElement === document.body")
    assert stage.all("input:checked, [aria-checked=true], [aria-pressed=true]") == []
    stage.press(stage.card(ask.id, ".option:first-child"))
    stage.press(stage.card(ask.id, ".confirm .go"))
    stage.state_is(ask.id, "the program took it")
    assert [event.indices for event in stage.answers()] == [(allowing,)]


def test_new_questions_wait_behind_a_bar_and_move_nothing(stage: Stage) -> None:
    asks = stage.in_hub(lambda hub: [hub.raise_ask("First?"), hub.raise_ask("Second?")])
    stage.sign_in()
    stage.script("document.querySelector('.option').focus()")
    places = (
        "return [...document.querySelectorAll('#ask-list button')]"
        ".map((one) => one.getBoundingClientRect().toJSON())"
    )
    before = stage.script(places)
    stage.in_hub(lambda hub: (hub.raise_ask("Third?"), hub.raise_ask("Fourth?")))
    bar = stage.one("#new-bar")
    stage.until(lambda: bar.text == "2 new questions - show", "the bar")
    assert stage.script(places) == before
    assert stage.page.title == "(4) upcall"
    assert len(stage.all(".card")) == 2
    height = stage.script("return innerHeight")
    assert bar.rect["y"] > height / 2
    assert bar.size["height"] >= 44
    stage.press("#new-bar")
    assert [one.text for one in stage.all("legend")][2:] == ["Third?", "Fourth?"]
    assert not bar.is_displayed()
    assert stage.answers() == []
    assert asks[0].id in str(stage.one(".card").get_attribute("data-ask"))


# What moves a control by a line of ours, and what a finger and a key then get.
_MOVED: Final = """
const [selector, done] = [arguments[0], arguments[1]];
const node = document.querySelector(selector);
const press = (detail) => {
  const box = node.getBoundingClientRect();
  node.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, detail,
    clientX: box.left + 5, clientY: box.top + 5 }));
};
document.getElementById("asks-title").style.marginBottom = "90px";
document.getElementById("asks-title").textContent = "moved";
requestAnimationFrame(() => setTimeout(() => {
  press(1);
  const state = node.closest(".card").querySelector(".state");
  const refused = [document.getElementById("early").textContent, state.textContent];
  press(0);
  done([...refused, state.textContent]);
}, 50));
"""


def test_a_control_that_moved_takes_no_finger_for_a_moment_but_keys(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("Deploy?"))
    stage.hub.takes_at_once = False
    stage.sign_in()
    option = stage.card(ask.id, ".option")
    node = stage.one(option)
    stage.until(lambda: node.value_of_css_property("opacity") == "1", "ripe")
    hint, finger, key = stage.page.execute_async_script(_MOVED, option)
    assert hint == "just moved - press again"
    assert finger == ""
    assert key == "sending…"
    stage.until(stage.answers, "the answer of the key")
    assert len(stage.answers()) == 1


def test_scrolling_makes_no_control_wait(stage: Stage) -> None:
    asks = stage.in_hub(lambda hub: [hub.raise_ask(f"Number {at}?") for at in range(12)])
    stage.sign_in()
    last = stage.one(stage.card(asks[-1].id, ".option"))
    stage.until(lambda: last.value_of_css_property("opacity") == "1", "ripe")
    stage.script("scrollTo(0, document.body.scrollHeight); document.body.dataset.tab = 'asks'")
    last.click()
    stage.state_is(asks[-1].id, "the program took it")


def _risky(hub: FakeHub) -> AskView:
    return hub.raise_ask("Delete the old backups?", options=("Delete", "Keep"))


def test_what_destroys_can_be_taken_back_before_it_is_sent(stage: Stage) -> None:
    ask, other = stage.in_hub(lambda hub: (_risky(hub), hub.raise_ask(can_decline=True)))
    stage.sign_in()
    card = stage.card(ask.id)
    stage.press(card + ".option")
    assert "Nothing is sent yet" in stage.one(card + ".confirm-words").text
    focus = stage.page.switch_to.active_element
    assert focus == stage.one(card + ".confirm-words")
    undo, send = stage.all(card + ".confirm button")
    assert (undo.text, send.text) == ("Undo", "Send now")
    assert undo.size["height"] >= 44
    undo.send_keys(" ")
    stage.state_is(ask.id, "“Delete” taken back; nothing was sent")
    assert stage.all(card + ".undo") == []
    assert stage.page.switch_to.active_element == stage.one(card)

    began = time.monotonic()
    stage.press(card + ".option")
    stage.state_is(ask.id, "the program took it: “Delete”")
    assert time.monotonic() - began >= UNDO_S
    assert [event.indices for event in stage.answers()] == [(0,)]
    assert stage.page.switch_to.active_element == stage.one(card + "> .state")

    decline = stage.card(other.id)
    stage.press(decline + ".own button")
    assert "a decline" in stage.one(decline + ".confirm-words").text
    stage.one(decline + ".confirm .go").send_keys("\n")
    stage.state_is(other.id, "declined by sam on inbox")
    assert len(stage.answers()) == 2


@pytest.mark.parametrize("way", ["reload", "hidden", "frozen"])
def test_leaving_the_page_while_it_can_be_taken_back_sends_nothing(
    stage: Stage, way: str
) -> None:
    ask = stage.in_hub(_risky)
    stage.sign_in()
    stage.press(stage.card(ask.id, ".option"))
    stage.one(stage.card(ask.id, ".undo"))
    if way == "reload":
        stage.page.refresh()
    elif way == "frozen":
        with stage.frozen():
            pass
    else:
        stage.script(
            "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
            "document.dispatchEvent(new Event('visibilitychange'));"
            "delete document.hidden;"
            "document.dispatchEvent(new Event('visibilitychange'));"
        )
    stage.state_is(ask.id, "“Delete” was not sent: the page was left")
    stage.live()
    began = time.monotonic()
    stage.until(lambda: time.monotonic() - began > UNDO_S + 0.3, "the time would be over")
    assert stage.answers() == []
    stage.press(stage.card(ask.id, ".option"))
    stage.state_is(ask.id, "the program took it: “Delete”")


def test_a_question_that_changes_or_ends_takes_the_waiting_answer_along(stage: Stage) -> None:
    ask, gone = stage.in_hub(lambda hub: (_risky(hub), _risky(hub)))
    stage.sign_in()
    for one in (ask, gone):
        stage.click(stage.one(stage.card(one.id)))
        stage.script("arguments[0].click()", stage.one(stage.card(one.id, ".option")))
    stage.in_hub(lambda hub: hub.change_ask(ask.id, question="Delete all?", revision="new"))
    stage.in_hub(lambda hub: hub.close_ask(gone.id, "cancelled"))
    stage.state_is(ask.id, "The program changed its question. Nothing was sent.")
    stage.state_is(gone.id, "the program withdrew its question")
    began = time.monotonic()
    stage.until(lambda: time.monotonic() - began > UNDO_S + 0.3, "the time would be over")
    assert stage.answers() == []


_LOSSY: Final = """
const real = fetch;
fetch = async (path, options) => {
  if (path !== "/api/answer") return real(path, options);
  const sent = JSON.parse(sessionStorage.getItem("test-sent") || "[]");
  sent.push(JSON.parse(options.body).key);
  sessionStorage.setItem("test-sent", JSON.stringify(sent));
  if (sent.length === 3) return real(path, options);
  throw new TypeError("network");
};
"""


def test_a_retry_is_no_second_answer_even_after_a_reload(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("Words?", options=(), free_text=True))
    card = stage.card(ask.id)
    with stage.before_load(_LOSSY):
        stage.sign_in()
        stage.one(card + "textarea").send_keys("my draft")
        stage.press(card + ".go")
        stage.state_is(ask.id, "not sent")
        stage.press(card + ".go")
        stage.state_is(ask.id, "not sent")
        stage.page.refresh()
        stage.live()
        assert stage.one(card + "textarea").get_attribute("value") == "my draft"
        stage.press(card + ".go")
        stage.state_is(ask.id, "the program took it")
    keys = stage.script("return JSON.parse(sessionStorage.getItem('test-sent'))")
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert [event.text for event in stage.answers()] == ["my draft"]
    left = "return Object.keys(sessionStorage).filter((name) => name.startsWith('draft:'))"
    stage.until(lambda: stage.script(left) == [], "no draft of what has ended")


def test_an_answer_whose_reply_was_lost_is_found_to_be_ours(stage: Stage) -> None:
    stage.hub.takes_at_once = False
    ask = stage.in_hub(lambda hub: hub.raise_ask("Deploy?"))
    lost = (
        "const real = fetch; fetch = async (path, options) => {"
        " const answer = await real(path, options);"
        " if (path === '/api/answer') throw new TypeError('network'); return answer; };"
    )
    with stage.before_load(lost):
        stage.sign_in()
        stage.press(stage.card(ask.id, ".option"))
        stage.state_is(ask.id, "your answer “Yes”; waiting for the program to take it…")
        stage.in_hub(lambda hub: hub.finish(ask.id))
        stage.state_is(ask.id, "the program took it: “Yes”")
    assert len(stage.answers()) == 1


def test_words_say_that_nothing_was_sent_until_the_next_press(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("Deploy?"))
    stage.sign_in()
    with stage.offline():
        stage.until(lambda: stage.one("#offline").is_displayed(), "the banner")
        stage.press(stage.card(ask.id, ".option"))
        stage.state_is(ask.id, "not sent, no connection")
        option = stage.one(stage.card(ask.id, ".option"))
        assert option.get_attribute("aria-disabled") == "true"
    stage.live()
    stage.state_is(ask.id, "not sent; the connection is back. Press again.")
    assert stage.answers() == []
    stage.press(stage.card(ask.id, ".option"))
    stage.state_is(ask.id, "the program took it: “Yes”")


def test_a_frozen_page_answers_nothing_that_it_has_not_read_again(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("Delete one?", options=("Yes", "No")))
    stage.sign_in()
    option = stage.one(stage.card(ask.id, ".option"))
    stage.until(lambda: option.value_of_css_property("opacity") == "1", "ripe")
    # The finger is quicker than the page: it presses in the very moment of waking up.
    stage.script(
        "window.stale = arguments[0];"
        "addEventListener('resume', () => { stale.click();"
        " window.said = stale.closest('.card').querySelector('.state').textContent; }, true)",
        option,
    )
    with stage.frozen():
        stage.in_hub(
            lambda hub: hub.change_ask(
                ask.id, question="Delete all?", options=("No", "Yes"), revision="new"
            )
        )
    stage.state_is(ask.id, "The program changed its question. Nothing was sent.")
    assert stage.script("return said") == (
        "not sent; the questions are being read again. Look, and press again."
    )
    stage.script("stale.click()")
    assert stage.answers() == []
    assert stage.hub.asks[ask.id].state == "open"
    stage.live()
    stage.press(stage.card(ask.id, '.option[data-index="0"]'))
    stage.state_is(ask.id, "the program took it: “No”")
    assert [event.revision for event in stage.answers()] == ["new"]


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def test_a_frozen_page_of_a_real_hub_reaches_no_program_with_an_old_press(
    home: Home, chromium: webdriver.Chrome
) -> None:
    """The program repeats its ask with the options swapped while the phone is in a pocket."""
    project = os.path.realpath(f"{home.path}/project")
    os.mkdir(project, 0o700)
    home.start_hub()
    assert home.run("roots", "add", project).code == 0
    look = Look(chromium)
    look.emulate()
    with Peer(project) as peer:
        eventually(lambda: peer.connected == 1, what="the hub attached to the program")
        peer.ask("ask:1", "Restart the web tier?", "Now", "Later")
        with home.line("control") as line:
            chromium.get(line.ok("login", action="link")["url"])
        look.live()
        option = look.one(".option")
        look.until(lambda: option.value_of_css_property("opacity") == "1", "ripe")
        look.script(
            "window.stale = arguments[0]; const card = stale.closest('.card');"
            "addEventListener('resume', () => { stale.click();"
            " window.said = card.querySelector('.state').textContent; }, true)",
            option,
        )
        with look.frozen():
            peer.ask("ask:1", "Restart the web tier?", "Later", "Now")
            eventually(
                lambda: [one["options"] for one in open_asks(home)] == [["Later", "Now"]],
                what="the hub knows the other revision",
            )
        look.until(
            lambda: "changed its question" in look.one("#ask-list").text, "words on the card"
        )
        assert "read again" in look.script("return said")
        look.script("stale.click()")
        look.live()
        assert [one["state"] for one in open_asks(home)] == ["open"]
        assert peer.replies() == []
        fresh = '.card:not([data-state="closed"]) .option'
        look.until(lambda: look.one(fresh).text == "Later", "the new order")
        look.press(fresh)
        assert peer.heard(lambda frame: frame["type"] == "reply")["answer"] == "Later"
        look.page.get("about:blank")


def open_asks(home: Home) -> list[dict[str, Any]]:
    """Return the open asks of a home, as its hub tells them."""
    with home.line("control") as line:
        return list(line.ok("asks")["asks"])


def test_the_hub_refuses_what_a_page_did_not_know_to_be_old(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("Start one?"))
    stage.sign_in()

    def silently(hub: FakeHub) -> None:
        hub.asks[ask.id] = msgspec.structs.replace(
            ask, question="Start all?", options=("No", "Yes"), revision="new"
        )

    stage.in_hub(silently)
    stage.press(stage.card(ask.id, ".option"))
    stage.until(lambda: "Start all?" in stage.one(stage.card(ask.id)).text, "the new one")
    stage.state_is(ask.id, "changed its question")
    assert stage.hub.asks[ask.id].state == "open"
    assert stage.hub.asks[ask.id].answer is None


def test_after_a_sleep_that_nobody_told_of_the_page_reads_again(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("Deploy?"))
    jump = "const real = Date.now; window.asleep = 0; Date.now = () => real() + asleep;"
    with stage.before_load(jump):
        stage.sign_in()
        option = stage.one(stage.card(ask.id, ".option"))
        stage.until(lambda: option.value_of_css_property("opacity") == "1", "ripe")
        state = stage.script(
            "asleep = 3600000; arguments[0].click();"
            "return arguments[0].closest('.card').querySelector('.state').textContent",
            option,
        )
        assert "being read again" in state
        stage.live()
        assert stage.answers() == []
        stage.press(stage.card(ask.id, ".option"))
        stage.state_is(ask.id, "the program took it")


def test_a_page_from_the_back_forward_cache_is_read_again(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("Deploy?"))
    stage.sign_in()
    for event in (
        "dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))",
        "document.dispatchEvent(new Event('visibilitychange'))",
        "document.dispatchEvent(new Event('resume'))",
    ):
        stage.live()
        assert stage.script(
            f"{event}; const one = document.querySelector('.option'); one.click();"
            "return [document.body.dataset.live, one.getAttribute('aria-disabled')]"
        ) == ["no", "true"]
        stage.live()
    assert stage.answers() == []
    stage.press(stage.card(ask.id, ".option"))
    stage.state_is(ask.id, "the program took it")
