"""Rules of the code that a linter does not know."""

import ast
from collections.abc import Iterator
from pathlib import Path

from architecture.tree import ROOT, modules, name_of, parsed, sources

# What tells time or waits by itself. `localtime` and `strftime` only write a time down.
TELLING = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
     "clock_gettime", "clock_gettime_ns", "process_time", "sleep"}
)  # fmt: skip

# Blocking programs of the standard library alone: the clock's module would cost them asyncio.
BLOCKING = ("upcall.line", "upcall.cli", "upcall.blocking")


def test_only_the_clock_tells_time() -> None:
    found = [
        f"{name_of(path)}:{line} time.{call}"
        for path in sources()
        if name_of(path) != "upcall.clock" and not name_of(path).startswith(BLOCKING)
        for line, call in _uses(path, "time", TELLING)
    ]
    assert found == []


def test_only_the_clock_sleeps_in_a_loop() -> None:
    found = [
        f"{name_of(path)}:{line}"
        for path in sources()
        if name_of(path) != "upcall.clock"
        for line, _ in _uses(path, "asyncio", frozenset({"sleep"}))
    ]
    assert found == []


def test_the_check_for_clocks_sees_one() -> None:
    assert list(_uses(ROOT / "bridge/upcall/clock.py", "time", TELLING))
    assert list(_uses(ROOT / "bridge/upcall/clock.py", "asyncio", frozenset({"sleep"})))


def test_no_except_catches_without_a_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert found == []


def test_whoever_catches_everything_passes_it_on() -> None:
    """`except BaseException` catches cancelling too, which must go on."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ExceptHandler)
        and _names(node.type) & {"BaseException", "CancelledError"}
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
    assert found == []


def test_no_task_is_started_and_forgotten() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and _is_call_of(node.value, "asyncio", {"create_task", "ensure_future"})
    ]
    assert found == []


def test_nothing_is_left_for_later() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "X" * 3)
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in modules()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(f"# {word}" in line for word in words)
    ]
    assert found == []


def _uses(path: Path, module: str, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of every use of *names* of *module*, however it was imported."""
    aliases = {module}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            aliases |= {a.asname for a in node.names if a.name == module and a.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == module:
            yield from ((node.lineno, a.name) for a in node.names if a.name in names)
    for node in ast.walk(parsed(path)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in aliases
            and node.attr in names
        ):
            yield node.lineno, node.attr


def _is_call_of(call: ast.Call, module: str, names: set[str]) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == module
        and function.attr in names
    )


def _names(node: ast.expr | None) -> set[str]:
    if node is None:
        return set()
    return {
        found.id if isinstance(found, ast.Name) else found.attr
        for found in ast.walk(node)
        if isinstance(found, ast.Name | ast.Attribute)
    }
