"""A secret in the inbox: typed unseen, and kept neither by the page nor by the browser."""

from pathlib import Path

import pytest

from fakes.browser import Stage

pytestmark = [pytest.mark.browser]

SECRET = "correct-horse-1b7d-battery"


def stored(stage: Stage) -> str:
    script = "return JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])"
    found: str = stage.page.execute_script(script)
    return found


def test_a_secret_is_typed_unseen_and_kept_nowhere(stage: Stage) -> None:
    ask = stage.in_hub(
        lambda hub: hub.raise_ask("Token?", options=(), free_text=True, secret=True)
    )
    stage.sign_in()
    card = stage.card(ask.id)
    field = stage.one(card + "input.secret")
    assert field.get_attribute("type") == "password"
    assert not stage.all(card + "textarea")
    field.send_keys(SECRET)
    assert SECRET not in stored(stage)
    show = stage.one(card + "[aria-controls]")
    assert show.text == "Show"
    stage.press(card + "[aria-controls]")
    assert field.get_attribute("type") == "text"
    assert show.get_attribute("aria-pressed") == "true"
    stage.click(show)
    assert field.get_attribute("type") == "password"
    stage.press(card + ".words .go")
    stage.until(stage.answers, "the answer")
    assert [event.text for event in stage.answers()] == [SECRET]
    assert SECRET not in stored(stage)
    stage.until(lambda: not stage.all(card + "input.secret"), "the end")
    profile = Path(stage.page.capabilities["chrome"]["userDataDir"])
    held = [
        path
        for path in profile.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert held == []


def test_a_reload_forgets_a_secret_that_was_not_sent(stage: Stage) -> None:
    ask = stage.in_hub(
        lambda hub: hub.raise_ask("Token?", options=(), free_text=True, secret=True)
    )
    stage.sign_in()
    field = stage.card(ask.id) + "input.secret"
    stage.one(field).send_keys(SECRET)
    stage.page.refresh()
    stage.live()
    assert stage.one(field).get_attribute("value") == ""
    assert stage.answers() == []
