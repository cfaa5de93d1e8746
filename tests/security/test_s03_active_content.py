"""S3: nothing that a session sends is ever a document, a script or a request of the inbox."""

import asyncio
import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from fakes.chromium import WAIT_S, InboxThread, chromium, inbox_on_thread, traffic
from fakes.web_client import client_of, running
from fakes.web_hub import SESSION, FakeHub
from upcall.hub.files import FILE_ID_BYTES
from upcall.model.platform import Answered, Texted
from upcall.model.views import NoticeView
from upcall_adapters.web.assets import read_assets
from upcall_adapters.web.present import file_name

EVIL = (
    "localStorage.setItem('pwned','1');document.title='pwned';"
    "fetch('/api/answer',{method:'POST'});new Image().src='http://evil.example/x';"
)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = (
    b"%PDF-1.7\n1 0 obj<</Type/Catalog/OpenAction<</S/JavaScript/JS(app.alert(1);"
    b"this.submitForm('/api/answer'))>>>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
)


@dataclass(frozen=True)
class Sent:
    """A file of a session, and the name under which it may be saved."""

    name: str
    mime: str
    data: bytes
    saved: str
    image: str | None = None


FILES = [
    Sent("x.svg", "image/svg+xml",
         f"<svg xmlns='http://www.w3.org/2000/svg' onload=\"{EVIL}\"><script>{EVIL}</script>"
         "</svg>".encode(), "x.svg"),
    Sent("x.html", "text/html", f"<!doctype html><script>{EVIL}</script>".encode(), "x.html"),
    Sent("x.xhtml", "application/xhtml+xml",
         "<html xmlns='http://www.w3.org/1999/xhtml'><body><script>"
         f"{EVIL}</script></body></html>".encode(), "x.xhtml"),
    Sent("x.pdf", "application/pdf", PDF, "x.pdf"),
    Sent("x.js", "image/gif", f"GIF89a/*{' ' * 20}*/=1;{EVIL}".encode(), "x.js", "image/gif"),
    Sent("x.mht", "text/html\r\nX: y", f"<script>{EVIL}</script>".encode(), "x.mht"),
    Sent("../../x", "text/html", f"<script>{EVIL}</script>".encode(), "x"),
    Sent("\u202egnp.exe", "image/png", b"MZ" + EVIL.encode(), "gnp.exe"),
    Sent("n" * 5000 + ".html", "text/html", f"<script>{EVIL}</script>".encode(), "n" * 120),
    Sent("", "", b"", "file"),
    Sent("a\0\x07\x1b[2J\r\nSet-Cookie: b\u2028\u200b.txt", "text/plain", b"words",
         "a[2JSet-Cookie b.txt"),
    Sent("..\\..\\evil.lnk", "x", b"L", "evil.lnk"),
    Sent('";x="\'; filename=y.html', "x", b"L", ";x='; filename=y.html"),
    Sent("good.png", "text/html", PNG, "good.png", "image/png"),
    Sent("not.png", "image/png", f"\x89PNG<script>{EVIL}</script>".encode("latin-1"),
         "not.png"),
    Sent("not.webp", "image/webp", b"RIFF\0\0\0\0WAVE<script>", "not.webp"),
]  # fmt: skip
VECTORS = (
    "<script>EVIL</script>",
    '<img src=x onerror="EVIL">',
    '<svg onload="EVIL">',
    "<svg><script>EVIL</script></svg>",
    '<iframe srcdoc="<script>EVIL</script>"></iframe>',
    '<iframe src="javascript:EVIL"></iframe>',
    '<a href="javascript:EVIL">x</a>',
    '<body onload="EVIL">',
    '<input autofocus onfocus="EVIL">',
    '<details open ontoggle="EVIL">',
    '<video><source onerror="EVIL"></video>',
    "<math><mtext></mtext><script>EVIL</script></math>",
    '<object data="data:text/html,<script>EVIL</script>"></object>',
    '<embed src="javascript:EVIL">',
    "<link rel=stylesheet href=http://evil.example/x.css>",
    "<style>@import 'http://evil.example/';</style>",
    '<meta http-equiv=refresh content="0;url=http://evil.example/">',
    "<base href=http://evil.example/>",
    "<form action=http://evil.example/><button autofocus>x</button></form>",
    "<template><script>EVIL</script></template>",
    "</textarea><script>EVIL</script>",
    "</title></style></script><script>EVIL</script>",
    '"><script>EVIL</script>',
    "'-EVIL-'",
    "${EVIL}",
    "{{constructor.constructor('EVIL')()}}",
    "javascript:EVIL",
    "[x](javascript:EVIL)",
    "![i](http://evil.example/i.png)",
    "<http://evil.example/auto>",
    "http://evil.example/plain data:text/html,<script>EVIL</script>",
    "&lt;script&gt;EVIL&lt;/script&gt;",
    "<img src=http://evil.example/i.png srcset='http://evil.example/j.png 2x'>",
    "<x-y onclick=EVIL>",
)
SHOWN = tuple(one.replace("EVIL", EVIL) for one in VECTORS)


# -- what goes over the wire ------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("sent", FILES, ids=[repr(one.name[:20]) for one in FILES])
async def test_a_file_is_a_download_with_exactly_the_promised_headers(sent: Sent) -> None:
    hub = FakeHub()
    hub.files["f1"] = (sent.name, sent.mime, sent.data)
    async with running(hub) as inbox, client_of(inbox) as page:
        got = await page.get("/api/file/f1")
        assert (await page.get("/api/file/f1", headers=page.headers(key=False))).status == 401
        assert (await page.get("/api/file/f2")).status == 404
    assert got.body == sent.data
    assert got.headers.getall("Content-Type") == ["application/octet-stream"]
    assert got.headers.getall("X-Content-Type-Options") == ["nosniff"]
    assert got.headers.getall("Content-Security-Policy") == ["sandbox; default-src 'none'"]
    (disposition,) = got.headers.getall("Content-Disposition")
    kind, _, name = disposition.partition("; filename*=UTF-8''")
    assert kind == "attachment"
    assert unquote(name) == sent.saved
    assert re.fullmatch(r"[A-Za-z0-9._~%-]+", name)
    assert got.headers.get("X-Upcall-Image") == sent.image
    assert not {"X", "Set-Cookie"} & set(got.headers)


def test_the_address_of_a_file_can_not_be_guessed() -> None:
    assert FILE_ID_BYTES >= 16


@pytest.mark.parametrize("char", [chr(n) for n in (*range(0x20), 0x7F, *range(0x80, 0xA0))])
def test_no_control_character_stays_in_a_name(char: str) -> None:
    assert file_name(f"a{char}b") == "ab"


@pytest.mark.parametrize(
    "char",
    ["/", "\\", "\u202a", "\u202e", "\u2066", "\u2069", "\u200e", "\u061c", "\u2028", "\ud800"],
)
def test_a_name_is_one_component_that_turns_no_text(char: str) -> None:
    name = file_name(f"../a{char}b.exe")
    assert char not in name
    assert not name.startswith(".")


def test_the_page_builds_no_markup_from_text() -> None:
    scripts = {
        path: asset.data.decode()
        for path, asset in read_assets().items()
        if path.endswith(".js") or path == "/"
    }
    assert "/app.js" in scripts
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextual"
        r"|\beval\b|new Function|setHTML|srcdoc|trustedTypes|\bon\w+=\"|javascript:"
    )
    for path, text in scripts.items():
        assert not forbidden.search(text), path


# -- in a real browser ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(str(tmp_path_factory.mktemp("chromium"))) as made:
        yield made


def _open(driver: webdriver.Chrome, served: InboxThread) -> None:
    driver.get(served.link())
    WebDriverWait(driver, WAIT_S, 0.05).until(
        lambda d: d.find_element(By.TAG_NAME, "body").get_attribute("data-live") == "yes"
    )


def _nothing_ran(driver: webdriver.Chrome, served: InboxThread) -> None:
    driver.get(served.url)
    assert driver.execute_script("return localStorage.getItem('pwned')") is None
    assert not any(isinstance(event, Answered | Texted) for event in served.hub.events)


def _only_the_inbox(asked: list[str], served: InboxThread) -> None:
    own = (served.url, f"blob:{served.url}", "data:", f"ws://127.0.0.1:{served.port}/")
    assert asked
    assert [url for url in asked if not url.startswith(own)] == []


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_no_file_runs_however_it_is_opened(driver: webdriver.Chrome, tmp_path: Path) -> None:
    hub = FakeHub()
    hub.raise_ask()
    for number, sent in enumerate(FILES):
        hub.files[f"f{number}"] = (sent.name, sent.mime, sent.data)
        notice = NoticeView(
            number, SESSION.session_id, "attachment", "", hub.clock.wall_ms(),
            f"f{number}", sent.name,
        )  # fmt: skip
        hub.notice_list.append(notice)
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": False}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    with inbox_on_thread(hub) as served:
        _open(driver, served)
        traffic(driver)
        # By the page: every button, as a person presses it.
        boxes = driver.find_elements(By.CSS_SELECTOR, ".attachment")
        assert len(boxes) == len(FILES)
        for box in boxes:
            driver.execute_script("arguments[0].querySelector('button').click()", box)
        WebDriverWait(driver, WAIT_S, 0.05).until(
            lambda d: len(d.find_elements(By.CSS_SELECTOR, ".attachment a")) == len(FILES)
        )
        shown = driver.find_elements(By.CSS_SELECTOR, ".attachment img")
        kinds = sorted(str(one.get_attribute("src")).partition(";")[0] for one in shown)
        assert kinds == ["data:image/gif", "data:image/png"]
        links = driver.find_elements(By.CSS_SELECTOR, ".attachment a")
        assert all(str(one.get_attribute("href")).startswith("blob:") for one in links)
        names = {str(one.get_attribute("download")) for one in links}
        assert names == {sent.saved for sent in FILES}
        # By its address, with cookie and without key, and with both as only a test can.
        key = driver.execute_script("return localStorage.getItem('upcall_key')")
        for extra in ({}, {"X-Upcall-Key": key}):
            driver.execute_cdp_cmd("Network.enable", {})
            driver.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": extra})
            for number in range(len(FILES)):
                driver.execute_script(
                    "location.href = arguments[0]", f"{served.url}api/file/f{number}"
                )
                if not extra:
                    WebDriverWait(driver, WAIT_S, 0.05).until(
                        lambda d: "not_signed_in" in d.page_source
                    )
                    driver.get(served.url)
        saved = WebDriverWait(driver, WAIT_S, 0.1).until(
            lambda _: [one for one in tmp_path.iterdir() if one.name.startswith("x")]
        )
        assert saved
        driver.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": {}})
        _nothing_ran(driver, served)
        asked = traffic(driver).asked
        _only_the_inbox(asked, served)
        assert not any("/api/answer" in url for url in asked)


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_words_of_a_session_stay_words_everywhere(driver: webdriver.Chrome) -> None:
    assert len(SHOWN) >= 30
    text = "\n".join(SHOWN)
    hub = FakeHub()
    now = hub.clock.wall_ms()
    fields: dict[str, Any] = {
        name: SHOWN[number]
        for number, name in enumerate(("title", "repo", "branch", "cwd", "program", "task"))
    }
    session = msgspec.structs.replace(SESSION, **fields, last_text=text, activity=SHOWN[1])
    hub.session_list = [session]
    ask = hub.raise_ask(
        text, detail=text, options=SHOWN, option_details=SHOWN, session=session,
        note=SHOWN[0], free_text=True,
    )  # fmt: skip
    gone = hub.raise_ask(text, options=SHOWN[:5], session=session)
    hub.close_ask(gone.id, "cancelled")
    hub.notice_list = [
        NoticeView(1, session.session_id, "text", text, now, title=SHOWN[0], repo=SHOWN[1]),
        NoticeView(2, session.session_id, "attachment", text, now, "f1", SHOWN[2]),
    ]
    with inbox_on_thread(hub) as served:
        driver.get("about:blank")  # what another page still asked for is over now
        traffic(driver)
        _open(driver, served)
        wait = WebDriverWait(driver, WAIT_S, 0.05)
        card = f"[data-ask='{ask.id}']"
        wait.until(lambda d: d.find_elements(By.CSS_SELECTOR, card))
        whole = driver.execute_script(
            "return document.querySelector(arguments[0]).textContent", card
        )
        for vector in SHOWN:
            assert vector in whole, vector
        found = driver.execute_script(
            """
            const tags = ["script", "iframe", "svg", "object", "embed", "style", "link",
              "meta", "base", "video", "math", "template", "input[autofocus]"];
            const inside = tags.map((tag) => `#inbox ${tag}`).join(",")
              + ",#ask-list img, #notice-list img, #session-list img";
            const handlers = [...document.querySelectorAll("*")].filter((one) =>
              [...one.attributes].some((a) => a.name.startsWith("on")));
            const links = [...document.querySelectorAll("#inbox a[href]:not([download])")]
              .filter((one) => !one.getAttribute("href").startsWith("#"))
              .map((one) => [one.protocol, one.href, one.textContent, one.rel]);
            return [[...document.querySelectorAll(inside)].map((one) => one.outerHTML),
                    handlers.length, links];
            """
        )
        assert found[:2] == [[], 0]
        for protocol, href, words, rel in found[2]:
            assert protocol in {"http:", "https:", "mailto:"}
            assert href in words
            assert {"noopener", "noreferrer"} <= set(rel.split())
        assert driver.title.startswith("(1) upcall")
        _nothing_ran(driver, served)
        _only_the_inbox(traffic(driver).asked, served)


@pytest.mark.asyncio
async def test_a_page_gets_no_character_that_hides_or_turns_text() -> None:
    hub = FakeHub()
    nasty = "a\u202eb\u2066c\u200bd\x1b[31me\x9bf\u2028g\ufeffh"
    hub.raise_ask(nasty, detail=nasty, options=(nasty, "b"), note=nasty)
    async with running(hub) as inbox, client_of(inbox) as page:
        text = (await page.get("/api/state")).body.decode()
    assert not set(nasty) & set("\u202e\u2066\u200b\x1b\x9b\u2028\ufeff") & set(text)
    await asyncio.sleep(0)
