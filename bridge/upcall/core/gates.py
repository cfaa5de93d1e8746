"""Until when a channel, or one place of it, takes nothing: as the platform said, and kept.

The scope of a gate is a channel's name, or the name and a place's address with a NUL between.
"""

from upcall.core.state import HubState, Step
from upcall.model.effects import SaveGate


def scope_of(channel: str, place: str = "") -> str:
    """Return the scope of a channel, or of one place of it."""
    return f"{channel}\0{place}" if place else channel


def channel_of(scope: str) -> str:
    """Return the channel that a scope is of."""
    return scope.partition("\0")[0]


def close(step: Step, state: HubState, scope: str, wait_s: float) -> None:
    """Let nothing go there for *wait_s* seconds; a longer wait that was asked for stands."""
    due_s = step.at.boot_s + max(0.0, wait_s)
    if state.gate_due.get(scope, 0.0) >= due_s:
        return
    until_ms = step.at.wall_ms + int(wait_s * 1000)
    state.gates[scope] = until_ms
    step.write(SaveGate(scope, until_ms))
    _set(step, state, scope, due_s)


def left_s(step: Step, state: HubState, scope: str) -> float:
    """Return for how many seconds nothing may go there; 0 or less: it may."""
    return state.gate_due.get(scope, 0.0) - step.at.boot_s


def is_closed(step: Step, state: HubState, channel: str) -> bool:
    """Tell whether a whole channel takes nothing now."""
    return left_s(step, state, channel) > 0


def resume(step: Step, state: HubState) -> None:
    """At start: what a platform asked for still holds, by the wall clock."""
    for scope, until_ms in list(state.gates.items()):
        wait_s = (until_ms - step.at.wall_ms) / 1000
        if wait_s <= 0:
            del state.gates[scope]
            step.write(SaveGate(scope, 0))
        else:
            _set(step, state, scope, step.at.boot_s + wait_s)


def _set(step: Step, state: HubState, scope: str, due_s: float) -> None:
    state.gate_due[scope] = due_s
    step.timer(due_s, "gate", scope)
