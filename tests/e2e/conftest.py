"""One browser for all tests of a process that need one; each test has an inbox of its own."""

from collections.abc import Iterator

import pytest
from selenium import webdriver

from fakes.browser import Stage, stage_on
from fakes.chromium import chromium as chromium_in


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A headless Chromium."""
    with chromium_in(str(tmp_path_factory.mktemp("chromium"))) as driver:
        yield driver


@pytest.fixture
def stage(chromium: webdriver.Chrome) -> Iterator[Stage]:
    """An inbox with a hub in memory, and the browser that looks at it."""
    with stage_on(chromium) as made:
        yield made
