"""The hub's health as numbers, without a label that names a session, person or path."""

from upcall.model.views import HealthView


def metrics_text(health: HealthView, pages: int) -> str:
    """Return the numbers in the text form that Prometheus reads."""
    down = sum(channel.state == "down" for channel in health.channels)
    rows = (
        ("upcall_ready", "1 if attached to all and every channel hears", int(health.ready)),
        ("upcall_problems", "things that are not as they should be", len(health.degraded)),
        ("upcall_channels", "channels configured", len(health.channels)),
        ("upcall_channels_down", "channels that do not hear", down),
        ("upcall_sessions", "sessions attached", health.sessions),
        ("upcall_open_asks", "asks that wait for an answer", health.open_asks),
        ("upcall_deliveries_waiting", "deliveries not yet made", health.deliveries_waiting),
        ("upcall_inbox_pages", "inbox pages open", pages),
        ("upcall_started_seconds", "start, seconds since the epoch", health.started_ms / 1000),
    )
    return "".join(
        f"# HELP {name} {words}\n# TYPE {name} gauge\n{name} {value}\n"
        for name, words, value in rows
    )
