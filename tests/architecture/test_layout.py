"""The house: source roots, package files, sizes."""

import ast
import tomllib
from pathlib import Path

import pytest

from architecture.tree import ROOT, SOURCE_ROOTS, modules, name_of, parsed, sources

MAX_LINES = 800


@pytest.mark.parametrize(("root", "package"), SOURCE_ROOTS.items())
def test_a_source_root_holds_exactly_its_package(root: str, package: str) -> None:
    found = [entry.name for entry in (ROOT / root).iterdir() if entry.name != "__pycache__"]
    assert found == [package]
    assert (ROOT / root / package / "__init__.py").is_file()
    assert (ROOT / root / package / "py.typed").is_file()


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in sources()}
    assert [str(one) for one in folders if not (one / "__init__.py").is_file()] == []


def test_the_tests_are_no_package() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_no_module_of_the_product_is_long() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sources()
    }
    assert {name: count for name, count in lengths.items() if count > MAX_LINES} == {}


def test_every_module_says_its_job() -> None:
    silent = [name_of(path) for path in sources() if not _docstring(path)]
    assert silent == []


def test_no_module_is_a_drawer_for_everything() -> None:
    names = {path.stem for path in modules()}
    assert names.isdisjoint({"utils", "util", "helpers", "helper", "common", "misc"})


def test_the_version_is_said_once_and_the_same() -> None:
    import upcall

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == upcall.__version__
    assert f"## {upcall.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def _docstring(path: Path) -> bool:
    text = ast.get_docstring(parsed(path))
    return text is not None and len(text) > 10
