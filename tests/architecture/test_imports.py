"""What loads what. The contracts between packages are import-linter's (`make check`)."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from architecture.tree import name_of, parsed, sources

HEAVY = frozenset(
    {"aiohttp", "asyncio", "msgspec", "rich", "sqlite3", "structlog", "upcall_adapters",
     "websockets"}
)  # fmt: skip
SLOW = frozenset({"dataclasses", "pathlib", "tomllib", "typing"})


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has after *code*, with their parents."""
    ask = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import upcall",
        "import upcall.line",
        "import upcall_discovery.paths",
        "from upcall import ask",
        "import upcall.cli",
        "from upcall.cli import main; main(['--help'])",
        "from upcall.cli import main; main(['ask', '--help'])",
        "from upcall.cli import main; main(['confirm', '--help'])",
        "from upcall.cli import main; main(['notify', '--help'])",
        "from upcall.cli import main; main(['wait', '--help'])",
        "from upcall.cli import main; main(['answer', '--help'])",
    ],
)
def test_what_scripts_run_loads_nothing_heavy(code: str) -> None:
    # What an installation's own start-up files load is not ours.
    loaded = loaded_by(code) - loaded_by("")
    assert "upcall_discovery" in loaded or "upcall" in loaded
    assert loaded & (HEAVY | SLOW) == set()


def test_importing_upcall_loads_nothing_but_itself() -> None:
    added = loaded_by("import upcall") - loaded_by("")
    assert {
        name for name in added if name.split(".")[0] not in {"upcall", "__future__"}
    } == set()


def test_every_public_name_is_there() -> None:
    import upcall
    import upcall.client

    for module in (upcall, upcall.client):
        for name in module.__all__:
            assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        upcall.nothing_of_ours  # noqa: B018


def test_only_the_store_speaks_to_sqlite() -> None:
    found = {name_of(path) for path in sources() if "sqlite3" in _imported(path)}
    assert found
    assert {name for name in found if not name.startswith("upcall.hub.store")} == set()


def test_only_clients_and_adapters_import_network_libraries() -> None:
    for path in sources():
        name = name_of(path)
        if _imported(path) & {"websockets", "aiohttp"}:
            assert name.startswith(("upcall.session", "upcall_adapters")), name


def test_nothing_imports_the_command_line() -> None:
    for path in sources():
        name = name_of(path)
        # At a terminal the blocking `ask` says in the same words where its question is.
        if not name.startswith(("upcall.cli", "upcall.__main__", "upcall.blocking")):
            assert not any(found.startswith("upcall.cli") for found in _full(path)), name


def _imported(path: Path) -> set[str]:
    return {name.split(".")[0] for name in _full(path)}


def _full(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
