"""The tree, as the architecture tests look at it."""

import ast
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE_ROOTS: Final = {
    "bridge": "upcall",
    "adapters": "upcall_adapters",
    "discovery": "upcall_discovery",
}
_NOT_OURS: Final = frozenset({"__pycache__", "build", "dist"})


def sources() -> list[Path]:
    """Return every module of the product."""
    return sorted(path for root in SOURCE_ROOTS for path in _walk(ROOT / root, "*.py"))


def modules() -> list[Path]:
    """Return every module: the product, its tests and benchmarks."""
    more = [path for root in ("tests", "benchmarks") for path in _walk(ROOT / root, "*.py")]
    return sorted([*sources(), *more])


def texts() -> list[Path]:
    """Return every text that people read or run, but the lock and the licence."""
    suffixes = {".py", ".md", ".toml", ".json", ".js", ".css", ".html", ".svg", ".sql", ".sh"}
    found = [path for path in _walk(ROOT, "*") if path.suffix in suffixes]
    return sorted([*found, ROOT / "Makefile", ROOT / ".ci" / "run"])


def documents() -> list[Path]:
    """Return the pages for people."""
    pages = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
    return [*(ROOT / page for page in pages), *sorted((ROOT / "docs").glob("*.md"))]


def name_of(path: Path) -> str:
    """Return the dotted name of a module of the product."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _walk(folder: Path, pattern: str) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [
            one for one in folders if one not in _NOT_OURS and not one.startswith(".")
        ]
        yield from (Path(parent, name) for name in names if fnmatch(name, pattern))
