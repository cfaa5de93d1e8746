"""Problems are logged when they appear and when they are gone, once each."""

from typing import Any

from upcall.hub.health import HealthLog
from upcall.model.views import Problem

BAD = Problem("config_invalid", "config.toml:3: unknown key 'hud'")
DEAF = Problem("channel_deaf", "telegram: not hearing - refused")


class Log:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []

    def warning(self, event: str, **facts: Any) -> None:
        self.lines.append(("warning", event, facts["code"]))

    def info(self, event: str, **facts: Any) -> None:
        self.lines.append(("info", event, facts["code"]))


def test_each_problem_is_logged_once_each_way() -> None:
    log = Log()
    health = HealthLog(log)  # type: ignore[arg-type]
    for degraded in ((), (BAD,), (BAD, DEAF), (BAD,), (), ()):
        health.look(degraded)
    assert log.lines == [
        ("warning", "degraded", "config_invalid"),
        ("info", "recovered", "config_invalid"),
    ]


def test_another_problem_of_the_same_kind_is_another() -> None:
    log = Log()
    health = HealthLog(log)  # type: ignore[arg-type]
    health.look((BAD,))
    health.look((Problem("config_invalid", "config.toml:4: not TOML"),))
    assert [(level, event) for level, event, _ in log.lines] == [
        ("warning", "degraded"),
        ("warning", "degraded"),
        ("info", "recovered"),
    ]
