"""What a program says without asking: seen by screens at once, and named after it ended."""

import pytest

from fakes.home import Home


@pytest.mark.parametrize("level", ["info", "error"])
def test_a_notice_reaches_open_screens_with_the_name_of_its_program(level: str) -> None:
    home = Home()
    try:
        home.start_hub()
        with home.line("control") as screen, home.line("ask") as speaker:
            screen.post("watch")
            assert screen.event("screen")["asks"] == []
            speaker.ok(
                "notify",
                text="Backup finished",
                level=level,
                session={"title": "Backup", "cwd": "/", "program": "sh"},
            )
            notice = screen.event("notice")
            assert (notice["text"], notice["kind"]) == ("Backup finished", level)
            assert notice["session"]["title"] == "Backup"
    finally:
        home.close()
