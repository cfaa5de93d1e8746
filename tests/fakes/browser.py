"""The inbox in a real headless Chromium, with a hub in memory."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from fakes.chromium import WAIT_S, inbox_on_thread
from fakes.web_hub import FakeHub, ManualClock
from upcall.model.platform import Answered
from upcall_adapters.web.adapter import WebInbox
from upcall_adapters.web.config import WebConfig

UNDO_S: Final = 1.0
# Timers and the clock of a page run so many times as fast as their milliseconds say.
_HASTE: Final = 5
_HASTY: Final = f"""{{
  for (const name of ["setTimeout", "setInterval"]) {{
    const begin = window[name].bind(window);
    window[name] = (act, ms, ...rest) => begin(act, ms / {_HASTE}, ...rest);
  }}
  const real = performance.now.bind(performance), began = real();
  performance.now = () => began + (real() - began) * {_HASTE};
}}"""
ResultT = TypeVar("ResultT")


class RealClock(ManualClock):
    """The page compares the hub's clock with its own, so this one runs."""

    def wall_ms(self) -> int:
        return int(time.time() * 1000)


@dataclass
class Look:
    """A browser's page, as a person sees and uses it."""

    page: webdriver.Chrome

    def until(self, test: Callable[[], Any], what: str) -> Any:
        waiter = WebDriverWait(self.page, WAIT_S, 0.05)
        return waiter.until(lambda _: test(), f"waited for: {what}")

    def all(self, selector: str) -> list[WebElement]:
        return self.page.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        found: WebElement = self.until(lambda: next(iter(self.all(selector)), None), selector)
        return found

    def card(self, ask_id: str, rest: str = "") -> str:
        return f'[data-ask="{ask_id}"] {rest}'

    def press(self, selector: str) -> None:
        """Press as a person does: on what has stood still for more than half a second."""
        node = self.one(selector)
        began = self.page_ms()
        self.until(lambda: self.page_ms() - began > 550, "a look")
        self.click(node)

    def click(self, node: WebElement) -> None:
        self.page.execute_script("arguments[0].scrollIntoView({block: 'center'})", node)
        node.click()

    def state_is(self, ask_id: str, words: str) -> None:
        selector = self.card(ask_id, "> .state")
        self.until(lambda: words in self.one(selector).text, f"{ask_id}: {words}")

    def live(self) -> None:
        self.until(lambda: self.one("body").get_attribute("data-live") == "yes", "live")

    @contextmanager
    def before_load(self, script: str) -> Iterator[None]:
        """Run *script* in every document of the block before the page's own."""
        added = self.page.execute_cdp_cmd(
            "Page.addScriptToEvaluateOnNewDocument", {"source": script}
        )
        try:
            yield
        finally:
            self.page.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

    @contextmanager
    def hasty(self) -> Iterator[None]:
        """Let time pass quickly in every document that is loaded in the block."""
        with self.before_load(_HASTY):
            yield

    def page_ms(self) -> float:
        """Return the page's own clock, which never goes back."""
        return float(self.page.execute_script("return performance.now()"))

    def pass_ms(self, ms: int) -> None:
        """Put the page's own clock forward; its timers run as before."""
        self.page.execute_script(
            "const now = performance.now.bind(performance), more = arguments[0];"
            "performance.now = () => now() + more;",
            ms,
        )

    @contextmanager
    def offline(self) -> Iterator[None]:
        """Cut the browser's network for the block."""
        self.page.set_network_conditions(offline=True, latency=0, throughput=0)
        try:
            yield
        finally:
            self.page.delete_network_conditions()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the page for the block, as a phone does with what is out of sight."""
        self.cdp("Emulation.setFocusEmulationEnabled", enabled=False)
        self.cdp("Page.setWebLifecycleState", state="frozen")
        try:
            yield
        finally:
            self.cdp("Page.setWebLifecycleState", state="active")
            # Freezing hides the page, and thawing alone does not show it again.
            self.cdp("Emulation.setFocusEmulationEnabled", enabled=True)

    def cdp(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the browser's own protocol."""
        found: dict[str, Any] = self.page.execute_cdp_cmd(method, params)
        return found

    def script(self, text: str, *values: Any) -> Any:
        """Run *text* in the page and return what it returns."""
        return self.page.execute_script(text, *values)

    def text_size(self, percent: int) -> None:
        """Make the text of the page larger, as people set it in their browser."""
        self.script(f"document.documentElement.style.fontSize = '{percent}%'")

    def emulate(
        self,
        *,
        width: int = 360,
        height: int = 740,
        theme: str = "light",
        motion: str = "no-preference",
        colors: str = "none",
    ) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": motion},
            {"name": "forced-colors", "value": colors},
        ]
        self.page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@dataclass
class Stage(Look):
    """A running inbox on a loop of its own, and the browser that looks at it."""

    hub: FakeHub
    inbox: WebInbox
    loop: asyncio.AbstractEventLoop

    def call(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def in_hub(self, act: Callable[[FakeHub], ResultT]) -> ResultT:
        async def acted() -> ResultT:
            return act(self.hub)

        return self.call(acted())

    def answers(self) -> list[Answered]:
        return [event for event in self.hub.events if isinstance(event, Answered)]

    def sign_in(self) -> None:
        self.page.get(self.call(self.inbox.sign_in("link", None))["url"])
        self.live()


@contextmanager
def stage_on(driver: webdriver.Chrome) -> Iterator[Stage]:
    """Run an inbox on a loop of its own; the page may not complain."""
    hub = FakeHub(RealClock())
    with inbox_on_thread(hub, WebConfig(port=0, undo_s=UNDO_S)) as served:
        stage = Stage(driver, hub, served.inbox, served.loop)
        try:
            stage.emulate()
            driver.get("about:blank")
            _console(driver)
            yield stage
            severe = [one["message"] for one in _console(driver) if one["level"] == "SEVERE"]
            # What the browser itself notes of failed requests is no fault of a page.
            noise = ("net::ERR", "Failed to load resource", "WebSocket connection to")
            assert [text for text in severe if not any(word in text for word in noise)] == []
        finally:
            driver.get("about:blank")


def _console(driver: webdriver.Chrome) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = driver.execute("getLog", {"type": "browser"})["value"]
    return found
