"""The inbox in a real headless Chromium: every way to answer, and what comes and goes."""

import base64
import time

import msgspec
import pytest
from selenium.webdriver.common.keys import Keys

from fakes.browser import Stage
from fakes.web_hub import SESSION, FakeHub
from upcall.model.ask import AnsweredBy, Selection
from upcall.model.platform import Texted
from upcall.model.views import NoticeView

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def test_the_terminal_lets_in_the_browser_that_shows_four_characters(stage: Stage) -> None:
    url = stage.inbox.url()
    assert url is not None
    stage.page.get(url)
    code = stage.until(lambda: stage.one("#sign-in-code").text, "four characters")
    assert len(code) == 4
    assert stage.one("#sign-in-words").text == (
        "Run upcall inbox in a terminal: "
        "it asks whether to sign in the browser that shows these four characters."
    )
    assert stage.one("#sign-in-help").text == ""
    stage.call(stage.inbox.sign_in("approve", code))
    stage.live()
    assert "Nothing is asked" in stage.one("#ask-none").text


def test_a_link_signs_in_once_and_leaves_no_code_in_the_address(stage: Stage) -> None:
    link = stage.call(stage.inbox.sign_in("link", None))["url"]
    stage.page.get(link)
    stage.live()
    assert stage.page.current_url == stage.inbox.url()
    stage.page.execute_script("localStorage.clear()")
    stage.page.get("about:blank")
    stage.page.get(link)
    stage.until(lambda: "already used" in stage.one("#sign-in-words").text, "an explanation")
    assert "--sign-out-all" in stage.one("#sign-in-help").text


def test_one_choice_is_answered_by_a_press(stage: Stage) -> None:
    stage.hub.takes_at_once = False
    ask = stage.in_hub(lambda hub: hub.raise_ask("Deploy?", recommended=1))
    stage.sign_in()
    card = stage.card(ask.id)
    assert stage.page.title == "(1) upcall"
    facts = stage.one(card + ".card-head").text
    for fact in ("release.py", "shop", "on main", "laptop", "asked", ask.id):
        assert fact in facts
    assert [one.text for one in stage.all(card + ".suggested")] == ["suggested by the program"]
    stage.press(card + '.option[data-index="0"]')
    stage.state_is(ask.id, "waiting for the program to take it")
    focus = stage.page.switch_to.active_element
    assert "state" in (focus.get_attribute("class") or "")
    assert stage.page.title == "upcall"
    stage.in_hub(lambda hub: hub.finish(ask.id))
    stage.state_is(ask.id, "the program took it: “Yes”")
    (event,) = stage.answers()
    assert (event.indices, event.revision) == ((0,), ask.revision)


def test_several_choices_are_sent_together_within_their_bounds(stage: Stage) -> None:
    ask = stage.in_hub(
        lambda hub: hub.raise_ask(
            "Regions?",
            options=("eu", "us", "ap"),
            multi=True,
            min_selected=1,
            max_selected=2,
        )
    )
    stage.sign_in()
    card = stage.card(ask.id)
    send, boxes = card + ".options > .go", card + "input[type=checkbox]"
    stage.press(send)
    stage.state_is(ask.id, "choose at least 1")
    for box in stage.all(boxes):
        box.click()
    stage.press(send)
    stage.state_is(ask.id, "choose at most 2; 3 are chosen")
    assert stage.answers() == []
    stage.all(boxes)[1].click()
    assert stage.one(send).text == "Send 2 chosen"
    stage.press(send)
    stage.state_is(ask.id, "the program took it: “eu”, “ap”")
    assert [event.indices for event in stage.answers()] == [(0, 2)]


def test_words_are_kept_through_a_reload_and_sent(stage: Stage) -> None:
    ask = stage.in_hub(
        lambda hub: hub.raise_ask("Which name?", options=("old",), free_text=True)
    )
    stage.sign_in()
    card = stage.card(ask.id)
    stage.press(card + "[aria-expanded]")
    stage.one(card + "textarea").send_keys("two\nlines")
    stage.page.refresh()
    stage.live()
    assert stage.one(card + "textarea").get_attribute("value") == "two\nlines"
    stage.press(card + ".words .go")
    stage.state_is(ask.id, "the program took it")
    assert [event.text for event in stage.answers()] == ["two\nlines"]


def test_declining_and_holding_are_offered_where_they_work(stage: Stage) -> None:
    plain, ask = stage.in_hub(
        lambda hub: (hub.raise_ask(), hub.raise_ask(can_decline=True, can_hold=True))
    )
    stage.sign_in()
    assert stage.all(stage.card(plain.id, ".own")) == []
    stage.press(stage.card(ask.id, ".own button:first-child"))
    stage.until(lambda: "on hold" in stage.one(stage.card(ask.id)).text, "on hold")
    stage.until(
        lambda: stage.one(stage.card(ask.id, ".own button")).text == "Let the clock run",
        "the way back",
    )
    stage.press(stage.card(ask.id, ".own button:last-child"))
    stage.state_is(ask.id, "declined by sam on inbox")
    assert [(event.hold, event.decline) for event in stage.answers()] == [
        (True, False),
        (None, True),
    ]


def test_a_vote_is_told_as_one_and_can_be_taken_back(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask())
    votes = 'Votes: sam on web: "yes". Needed: 1 more person for the same answer (1 of 2).'
    stage.in_hub(lambda hub: hub.voting.update({ask.id: votes}))
    stage.sign_in()
    stage.press(stage.card(ask.id, ".options button"))
    stage.until(lambda: votes in stage.one(stage.card(ask.id)).text, "the votes")
    stage.until(
        lambda: "Take my vote back" in stage.one(stage.card(ask.id)).text, "the way back"
    )
    stage.press(stage.card(ask.id, ".own button"))
    stage.until(lambda: stage.all(stage.card(ask.id, ".own")) == [], "it is taken back")
    # It is open as before, and can be voted on again.
    stage.press(stage.card(ask.id, ".options button"))
    stage.until(lambda: len(stage.answers()) == 3, "another vote")
    assert [event.withdraw for event in stage.answers()] == [False, True, False]


def test_a_permission_is_asked_for_again_before_it_is_sent(stage: Stage) -> None:
    ask = stage.in_hub(
        lambda hub: hub.raise_ask(
            "Run it?",
            ask_class="permission",
            options=("Allow", "Deny"),
            detail="rm -r build " + "x" * 9000,
            recommended=0,
        )
    )
    stage.sign_in()
    card = stage.card(ask.id)
    assert stage.all(card + ".suggested") == []
    first, second = stage.all(card + ".option")
    assert first.size == second.size
    assert first.value_of_css_property("color") == second.value_of_css_property("color")
    stage.press(card + ".option")
    assert "characters of it are not shown" in stage.one(card + ".confirm-words").text
    stage.click(stage.one(card + ".confirm .go"))  # at once: not what the finger was aimed at
    assert stage.answers() == []
    stage.press(card + ".confirm .plain")
    assert stage.all(card + ".confirm") == []
    stage.press(card + ".option")
    stage.press(card + ".confirm .go")
    stage.state_is(ask.id, "the program took it: “Allow”")
    assert len(stage.answers()) == 1


def test_what_is_new_comes_live_and_never_moves_what_is_in_use(stage: Stage) -> None:
    first = stage.in_hub(lambda hub: hub.raise_ask("First?", options=(), free_text=True))
    stage.sign_in()
    stage.one(stage.card(first.id, "textarea")).send_keys("still typing")
    before = stage.one(stage.card(first.id)).rect
    second = stage.in_hub(lambda hub: hub.raise_ask("Second?"))
    bar = stage.one("#new-bar")
    stage.until(lambda: bar.text == "1 new question - show", "the bar")
    assert stage.all(stage.card(second.id)) == []
    assert stage.page.title == "(2) upcall"
    assert stage.one(stage.card(first.id)).rect == before
    assert "Second?" in (stage.one("#announce").get_attribute("textContent") or "")
    stage.press("#new-bar")
    stage.one(stage.card(second.id))
    stage.click(stage.one(stage.card(second.id, ".option")))  # too early to be meant
    assert stage.answers() == []
    stage.press(stage.card(second.id, ".option"))
    stage.state_is(second.id, "the program took it: “Yes”")
    kept = stage.one(stage.card(first.id, "textarea")).get_attribute("value")
    assert kept == "still typing"


def test_an_answer_from_elsewhere_is_named(stage: Stage) -> None:
    ask, gone = stage.in_hub(lambda hub: (hub.raise_ask(), hub.raise_ask("And this?")))
    stage.sign_in()
    stage.in_hub(
        lambda hub: hub.close_ask(
            ask.id, "answered", Selection((1,), ("No",)), AnsweredBy("kim", "telegram")
        )
    )
    stage.state_is(ask.id, "answered by kim on telegram: “No”")
    stage.in_hub(lambda hub: hub.close_ask(gone.id, "cancelled"))
    stage.state_is(gone.id, "the program withdrew its question")
    assert stage.all(stage.card(ask.id, ".option")) == []


def test_a_changed_question_takes_no_old_answer(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("Delete one?"))
    stage.sign_in()
    stage.in_hub(lambda hub: hub.change_ask(ask.id, question="Delete all?", revision="new"))
    stage.state_is(ask.id, "The program changed its question. Nothing was sent.")
    assert "Delete all?" in stage.one(stage.card(ask.id, "legend")).text
    stage.click(stage.one(stage.card(ask.id, ".option")))
    assert stage.answers() == []


def test_without_a_connection_nothing_is_sent_and_the_draft_is_kept(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("Words?", options=(), free_text=True))
    stage.sign_in()
    card = stage.card(ask.id)
    stage.one(card + "textarea").send_keys("draft")
    with stage.offline():
        stage.until(lambda: stage.one("#offline").is_displayed(), "the banner")
        assert "Nothing you press is sent" in stage.one("#offline").text
        stage.press(card + ".go")
        stage.state_is(ask.id, "not sent, no connection")
    stage.live()
    assert stage.answers() == []
    stage.press(card + ".go")
    stage.state_is(ask.id, "the program took it")
    assert [event.text for event in stage.answers()] == ["draft"]


def test_hostile_text_stays_text(stage: Stage) -> None:
    vectors = (
        "<img src=x onerror=\"document.title='pwned'\">",
        "<script>document.title='pwned'</script>",
        "[x](javascript:alert(1)) ![i](http://evil.example/i.png)",
        '"><svg onload=alert(1)>',
        "abc\u202edef\u200b\x1b[31m",
    )
    question = "\n".join(vectors)
    session = SESSION
    ask = stage.in_hub(
        lambda hub: hub.raise_ask(
            question, detail=question, options=vectors[:4], session=session
        )
    )
    stage.sign_in()
    shown = stage.one(stage.card(ask.id, "legend")).text
    for vector in vectors[:4]:
        assert vector in shown
    assert "abc\\u202edef\\u200b\\x1b[31m" in shown
    assert stage.all("#ask-list img, #ask-list script, #ask-list svg, #ask-list a") == []
    assert stage.page.title == "(1) upcall"
    assert stage.all(stage.card(ask.id, ".question[dir=auto]"))


def test_sessions_notices_and_history(stage: Stage) -> None:
    png = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )

    def fill(hub: FakeHub) -> None:
        hub.files["f1"] = ("chart.png", "image/png", png)
        now = hub.clock.wall_ms()
        hub.notice_list = [
            NoticeView(1, SESSION.session_id, "idle", "all done", now),
            NoticeView(2, SESSION.session_id, "attachment", "", now, "f1", "chart.png"),
        ]
        for number in range(25):
            ask = hub.raise_ask(f"Old {number}?")
            hub.close_ask(
                ask.id, "answered", Selection((0,), ("Yes",)), AnsweredBy("sam", "web")
            )

    stage.in_hub(fill)
    stage.emulate(width=1200, height=800)
    stage.sign_in()
    assert "all done" in stage.one("#notice-list").text
    stage.press(".attachment button")
    image = stage.one(".attachment img")
    stage.until(
        lambda: stage.page.execute_script("return arguments[0].naturalWidth", image) == 1,
        "a decoded image",
    )
    stage.until(lambda: len(stage.all("#history-list .row")) == 20, "a page of history")
    stage.press("#history-more")
    stage.until(lambda: len(stage.all("#history-list .row")) == 25, "the rest")
    assert "Old 24?" in stage.all("#history-list .row")[0].text
    stage.one("#session-list textarea").send_keys("look at the log")
    stage.press("#session-list .go")
    stage.until(lambda: "passed to the session" in stage.one("#session-list").text, "passed")
    (event,) = [event for event in stage.hub.events if isinstance(event, Texted)]
    assert (event.session_id, event.text) == (SESSION.session_id, "look at the log")


def test_a_press_on_what_just_appeared_is_refused_in_sight(stage: Stage) -> None:
    ask = stage.in_hub(
        lambda hub: hub.raise_ask("Run it?", ask_class="permission", options=("Allow", "Deny"))
    )
    stage.sign_in()
    stage.press(stage.card(ask.id, ".option"))
    # One script, so that no slow driver makes the half second pass in between.
    young = stage.page.execute_script(
        """
        document.querySelector(".confirm .plain").click();
        document.querySelector(".card .option").click();
        const go = document.querySelector(".confirm .go");
        go.dispatchEvent(new MouseEvent("click", {
          bubbles: true, cancelable: true, detail: 1, clientX: 100, clientY: 300 }));
        const hint = document.getElementById("early");
        return [go.getAttribute("aria-disabled"), Number(getComputedStyle(go).opacity) < 1,
                hint.hidden ? "" : hint.textContent];
        """
    )
    assert young == [None, True, "just appeared - press again"]
    assert stage.answers() == []
    spoken = "return document.getElementById('announce').textContent"
    stage.until(
        lambda: "just appeared - press again" in stage.page.execute_script(spoken),
        "the hint said politely",
    )
    assert stage.one("#announce").get_attribute("aria-live") == "polite"
    go = stage.one(".confirm .go")
    stage.until(lambda: go.value_of_css_property("opacity") == "1", "ready")
    stage.until(lambda: not stage.one("#early").is_displayed(), "the hint goes")
    stage.click(go)
    stage.state_is(ask.id, "the program took it: “Allow”")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_answered_cards_become_lines_below_what_is_open(stage: Stage, motion: str) -> None:
    stage.emulate(motion=motion)
    first, second = stage.in_hub(
        lambda hub: (hub.raise_ask("Deploy\nit?"), hub.raise_ask("And this?"))
    )
    stage.sign_in()
    stage.press(stage.card(first.id, ".option"))
    stage.state_is(first.id, "the program took it: “Yes”")
    assert stage.one("#asks-title").text == "Questions (1)"
    stage.in_hub(
        lambda hub: hub.close_ask(
            second.id, "answered", Selection((1,), ("No",)), AnsweredBy("kim", "web")
        )
    )
    stage.state_is(second.id, "answered by kim on inbox")
    # Nothing moves soon after a touch.
    stage.pass_ms(3000)
    third = stage.in_hub(lambda hub: hub.raise_ask("New?"))
    stage.one(stage.card(third.id))
    assert stage.one("#ask-list > article").get_attribute("data-ask") == third.id
    stage.pass_ms(6000)
    stage.until(lambda: len(stage.all("#settled-list li")) == 2, "two lines")
    assert len(stage.all("#ask-list > article")) == 1
    assert stage.one("#asks-title").text == "Questions (1)"
    lines = {
        str(one.get_attribute("data-settled")): one for one in stage.all("#settled-list li")
    }
    assert lines[first.id].text.split("\n") == ["Deploy it?", "“Yes”", "by you"]
    assert lines[second.id].text.split("\n") == ["And this?", "“No”", "by kim on inbox"]
    for line in lines.values():
        assert line.size["height"] < 40
        assert line.location["y"] > stage.one(stage.card(third.id)).location["y"]
        animation = line.value_of_css_property("animation-name")
        assert animation == ("none" if motion == "reduce" else "arrive")
    stage.press("#settled-away")
    assert not stage.one("#settled").is_displayed()
    assert stage.all("#settled-list li") == []
    stage.one(stage.card(third.id))


HANGING = "WebSocket = class { constructor() { this.readyState = 0; } close() {} send() {} };"
FAILING = """
WebSocket = class {
  constructor() { this.readyState = 3; setTimeout(() => this.onclose?.({ code: 1006 })); }
  close() {}
};
"""


@pytest.mark.parametrize("broken", [HANGING, FAILING], ids=["hanging", "failing"])
def test_without_a_websocket_the_page_fills_at_once_and_is_read_again(
    stage: Stage, broken: str
) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask("First?"))
    with stage.hasty(), stage.before_load(broken):
        stage.page.get(stage.call(stage.inbox.sign_in("link", None))["url"])
        assert "First?" in stage.one(stage.card(ask.id)).text
        assert not stage.one("#ask-loading").is_displayed()
        later = stage.in_hub(lambda hub: hub.raise_ask("Later?"))
        stage.one(stage.card(later.id))
        stage.live()
        assert stage.one("#link-words").text == "reading every 5 s"
        assert not stage.one("#offline").is_displayed()
        stage.press(stage.card(later.id, ".option"))
        stage.state_is(later.id, "the program took it: “Yes”")
        stage.page.execute_script("localStorage.setItem('upcall_key', 'wrong')")
        stage.until(lambda: stage.one("#sign-in").is_displayed(), "signed out is noticed")


def test_an_empty_page_says_that_it_loads(stage: Stage) -> None:
    never = "const real = fetch; fetch = (path, options) => path === '/api/state'"
    with stage.before_load(HANGING + never + " ? new Promise(() => {}) : real(path, options);"):
        stage.page.get(stage.call(stage.inbox.sign_in("link", None))["url"])
        stage.until(lambda: stage.one("#ask-loading").text == "loading…", "loading")
        assert stage.one("#link-words").text == "loading…"
        assert not stage.one("#ask-none").is_displayed()


def test_a_hub_that_stays_away_is_called_gone_and_may_come_back(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask())
    with stage.hasty():
        stage.sign_in()
    banner = stage.one("#offline")
    with stage.offline():
        stage.until(lambda: "Nothing you press is sent" in banner.text, "the first words")
        began = stage.page_ms()
        gone = "The hub is gone. If it was a demo, close this page."
        stage.until(lambda: banner.text == gone, "the last words")
        assert stage.page_ms() - began > 8000
    stage.live()
    assert not banner.is_displayed()
    stage.press(stage.card(ask.id, ".option"))
    stage.state_is(ask.id, "the program took it: “Yes”")


def test_notices_of_ended_sessions_are_headed_by_a_name(stage: Stage) -> None:
    now = int(time.time() * 1000)
    ended = "s00000000dead"

    def fill(hub: FakeHub) -> None:
        hub.session_list = [msgspec.structs.replace(SESSION, title=None, program=None)]
        hub.notice_list = [
            NoticeView(1, ended, "info", "one", now, title="release.py"),
            NoticeView(2, ended, "text", "two", now, repo="shop"),
            NoticeView(3, ended, "idle", "three", now),
        ]

    stage.in_hub(fill)
    stage.emulate(width=1200, height=800)
    stage.sign_in()
    heads = [one.text for one in stage.all("#notice-list strong")]
    assert heads == ["a program", "shop", "release.py"]
    assert stage.one("#session-list strong").text == "shop"
    page = stage.one("#inbox").text
    assert ended not in page
    assert "inbox: hearing" in page


def test_a_keyboard_is_enough(stage: Stage) -> None:
    ask = stage.in_hub(lambda hub: hub.raise_ask())
    stage.sign_in()
    body = stage.one("body")
    for key in ("y", "1", "a", Keys.ENTER, Keys.SPACE):
        body.send_keys(key)
    assert stage.answers() == []
    for _ in range(20):
        stage.page.switch_to.active_element.send_keys(Keys.TAB)
        if stage.page.switch_to.active_element.get_attribute("data-index") == "0":
            break
    focused = stage.page.switch_to.active_element
    assert focused.value_of_css_property("outline-style") == "solid"
    focused.send_keys(Keys.ENTER)
    stage.state_is(ask.id, "the program took it: “Yes”")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("width", "font"), [(360, 100), (320, 200), (1200, 100)])
def test_every_size_and_theme_is_readable(
    stage: Stage, theme: str, width: int, font: int
) -> None:
    stage.in_hub(
        lambda hub: [
            hub.raise_ask(
                "Run this?" * 3,
                detail="x" * 500,
                options=("Yes", "an option of " + "many letters " * 9),
                can_decline=True,
                can_hold=True,
                free_text=True,
            ),
            hub.raise_ask("w" * 300, options=("a" * 200, "b" * 200), multi=True),
        ]
    )
    stage.emulate(width=width, height=740, theme=theme)
    stage.sign_in()
    stage.page.execute_script(f"document.documentElement.style.fontSize = '{font}%'")
    overflow = stage.page.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0
    small = stage.page.execute_script(
        "return [...document.querySelectorAll('#asks button, #asks label.option')]"
        ".filter((one) => one.offsetHeight && (one.offsetHeight < 44 || one.offsetWidth < 44))"
        ".map((one) => one.textContent)"
    )
    assert small == []
    background, ink = stage.page.execute_script(
        "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    )
    dark = sum(map(int, background[4:-1].split(","))) < 200
    assert dark == (theme == "dark")
    assert background != ink
    # A picture of one colour compresses to a few kB; a page of text does not.
    assert len(stage.page.get_screenshot_as_png()) > 8000
