"""The hub's health as numbers, without a label that names a session, person or path.

Labels are the names of channels (as configured), of lanes, and quantiles; nothing else
(security.md S24).
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from upcall.model.views import HealthView

LABELS: Final = frozenset({"channel", "lane", "quantile"})
_Sample: TypeAlias = tuple[Mapping[str, str], float]


class _Page:
    """Lines in the text form that Prometheus reads."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def many(
        self,
        name: str,
        words: str,
        samples: Iterable[_Sample],
        kind: Literal["gauge", "counter"] = "gauge",
    ) -> None:
        """Add a metric with a label each."""
        rows = []
        for labels, value in samples:
            inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
            rows.append(f"{name}{{{inside}}} {value!r}")
        self._add(name, words, kind, rows)

    def one(
        self,
        name: str,
        words: str,
        value: float | None,
        kind: Literal["gauge", "counter"] = "gauge",
    ) -> None:
        """Add a metric without labels; None: it is not known, and left out."""
        self._add(name, words, kind, [] if value is None else [f"{name} {value!r}"])

    def _add(self, name: str, words: str, kind: str, rows: list[str]) -> None:
        if rows:
            self.lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *rows]


def metrics_text(health: HealthView, pages: int, now_ms: int) -> str:
    """Return the numbers, as of *now_ms* (wall clock)."""
    page = _Page()
    one = page.one
    one("upcall_ready", "1 if attached to all and every channel hears", int(health.ready))
    one("upcall_problems", "things that are not as they should be", len(health.degraded))
    one("upcall_sessions", "sessions that live or have open asks", health.sessions)
    one("upcall_sessions_discovered", "endpoints found and alive", health.discovered)
    one("upcall_sessions_attached", "endpoints connected to", health.attached)
    one("upcall_inbox_pages", "inbox pages open", pages)
    one("upcall_started_seconds", "start, since the epoch", health.started_ms / 1000)
    one("upcall_clock_steps_total", "times the clock was set", health.clock_steps, "counter")
    one("upcall_sleeps_total", "times the computer slept", health.sleeps, "counter")
    _add_asks(page, health)
    _add_deliveries(page, health)
    _add_channels(page, health, now_ms)
    return "\n".join(page.lines) + "\n"


def _add_asks(page: _Page, health: HealthView) -> None:
    numbers = health.numbers
    page.one("upcall_open_asks", "asks that wait for an answer", health.open_asks)
    page.one("upcall_claimed_asks", "asks whose answer is on its way", numbers.claimed)
    page.one("upcall_oldest_ask_seconds", "age of the oldest open ask", numbers.oldest_ask_s)
    page.many(
        "upcall_answers_total",
        "asks that ended with an answer, by where it came from",
        (({"channel": name}, count) for name, count in sorted(numbers.answers.items())),
        "counter",
    )


def _add_deliveries(page: _Page, health: HealthView) -> None:
    numbers = health.numbers
    page.one("upcall_deliveries_waiting", "deliveries not made yet", health.deliveries_waiting)
    page.one("upcall_deliveries_uncertain", "may have arrived, or not", numbers.uncertain)
    page.one("upcall_dead_letters", "deliveries given up", health.dead_letters)
    page.many(
        "upcall_lane_waiting",
        "deliveries waiting in a lane",
        (({"lane": lane.lane}, lane.waiting) for lane in numbers.lanes),
    )
    page.many(
        "upcall_lane_oldest_seconds",
        "age of the oldest delivery in a lane",
        (({"lane": lane.lane}, lane.oldest_s or 0.0) for lane in numbers.lanes),
    )
    pairs = (("0.5", health.commit_p50_s), ("0.99", health.commit_p99_s))
    page.many(
        "upcall_commit_seconds",
        "how long commits took lately",
        (({"quantile": at}, value) for at, value in pairs if value is not None),
    )


def _add_channels(page: _Page, health: HealthView, now_ms: int) -> None:
    channels = health.channels
    down = sum(channel.state == "down" for channel in channels)
    page.one("upcall_channels", "channels configured", len(channels))
    page.one("upcall_channels_down", "channels that do not hear", down)
    page.many(
        "upcall_channel_hears",
        "1 if a channel hears",
        (({"channel": one.name}, int(one.state != "down")) for one in channels),
    )
    for name, words, field in (
        ("upcall_channel_heard_seconds", "age of the last inbound round", "heard_ms"),
        ("upcall_channel_event_seconds", "age of the last event handled", "event_ms"),
    ):
        ages = (
            ({"channel": one.name}, (now_ms - getattr(one, field)) / 1000)
            for one in channels
            if getattr(one, field) is not None
        )
        page.many(name, words, ages)
    page.many(
        "upcall_gate_closed_seconds",
        "how long a channel, or the longest of its places, takes nothing",
        (({"channel": name}, left_s) for name, left_s in sorted(_gates(health).items())),
    )


def _gates(health: HealthView) -> dict[str, float]:
    closed: dict[str, float] = {}
    for gate in health.numbers.gates:
        closed[gate.channel] = max(closed.get(gate.channel, 0.0), gate.closed_for_s)
    return closed
