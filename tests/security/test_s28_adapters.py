"""S28: other people's adapters run only where named, from safe places, and get their own."""

import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

import pytest

from fakes.home import Home, Running, eventually
from fakes.installation import ROOT, Installation
from upcall.hub.foreign import Origin, check_code, origin_of
from upcall.hub.plugins import OUR_NAMES, find_adapter
from upcall.model.errors import ConfigInvalid

OWN: Final = "own-5e1f0d3c9b-secret"
OTHERS: Final = "other-77c2a1e4f8-secret"
WEB: Final = "web-0b6a94d2e5-secret"
BROKEN: Final = {
    "raises": "raise RuntimeError('bad luck')",
    "exits": "import sys; sys.exit(3)",
    "nothing": "SPEC = None",
    "misnamed": "from acme_plain import SPEC",
}


@pytest.fixture
def installed() -> Iterator[tuple[Home, Installation]]:
    with Home() as home:
        yield home, Installation(home.path)


def start_hub(home: Home, installation: Installation, **env: str) -> Running:
    argv = [installation.python, "-P", "-m", "upcall", "hub", "run"]
    running = home.start_program(argv, env=env)
    eventually(lambda: home.hub_pid() == running.pid, what="the hub")
    return running


def status_of(home: Home) -> dict[str, Any]:
    with home.line("control") as line:
        return line.ok("status")


def test_what_an_adapter_gets_and_what_disables_only_itself(
    installed: tuple[Home, Installation],
) -> None:
    """One hub with good, loose, shadowing and broken adapters side by side."""
    home, installation = installed
    installation.add_adapter("acme_plain", "plain")
    installation.add_adapter("acme_other", "other")
    installation.add_adapter("acme_unnamed", "unnamed")
    installation.add_adapter("acme_web", "web")
    installation.add_adapter("acme_telegram", "telegram")
    os.chmod(installation.add_adapter("acme_loose", "loose"), 0o775)
    for name, source in BROKEN.items():
        installation.add_adapter(f"acme_{name}", name, source)
    with open(os.open(f"{home.path}/own", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(OWN)
    report = f"{home.path}/report"
    broken = "".join(f"[channels.{name}]\n" for name in BROKEN)
    home.write_config(f"""
        [web]
        metrics_token = {{ env = "WEB_TOKEN" }}
        [channels.plain]
        report = "{report}"
        chat = "general"
        token = {{ file = "{home.path}/own" }}
        [channels.other]
        report = "{home.path}/other-report"
        token = {{ env = "OTHER_TOKEN" }}
        [channels.greedy]
        adapter = "other"
        other = "x"
        [channels.telegram]
        [channels.loose]
        {broken}
    """)
    running = start_hub(home, installation, WEB_TOKEN=WEB, OTHER_TOKEN=OTHERS)
    eventually(lambda: os.path.exists(report), what="the adapter's report")
    eventually(
        lambda: all(one["state"] != "down" for one in status_of(home)["channels"]),
        what="all that could be opened hear",
    )
    status = status_of(home)
    assert {one["name"] for one in status["channels"]} == {"web", "terminal", "plain", "other"}

    with open(report, encoding="utf-8") as file:
        text = file.read()
    seen = json.loads(text)
    assert seen["config"] == {"report": report, "chat": "general"}
    assert seen["secrets"] == {"token": OWN}
    assert OTHERS not in text
    assert WEB not in text
    assert OWN not in seen["seams"]

    assert set(installation.ran()) == {"acme_plain", "acme_other"}
    ours = {one["adapter"] for one in status["adapters"] if one["ours"]}
    assert ours == {"web", "terminal"}
    [plain] = [one for one in status["adapters"] if one["channel"] == "plain"]
    assert (plain["package"], plain["version"]) == ("acme_plain", "1.2")
    assert plain["path"] == f"{installation.packages}/acme_plain"

    problems = {
        (one["code"], word) for one in status["degraded"] for word in _named(one["msg"])
    }
    assert ("adapter_reserved", "telegram") in problems
    assert ("adapter_unsafe", "loose") in problems
    assert {("adapter_broken", name) for name in ("raises", "exits", "misnamed")} <= problems
    assert ("config_invalid", "greedy") in problems

    doctor = home.run("doctor", "--json").json["findings"]
    told = [one for one in doctor if one["code"] == "adapter_of_others"]
    assert any("acme_plain 1.2" in one["msg"] for one in told)
    assert any("acme_loose" in one["msg"] for one in doctor if one["code"] == "adapter_unsafe")
    running.line("adapter_of_others.*acme_plain")


def _named(msg: str) -> list[str]:
    return [one.strip("'\":,.;") for one in msg.split()]


# --- whose names ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["telegram", "slack", "discord", "Telegram", "ｔelegram", "WEB"]
)
def test_no_entry_point_takes_a_name_of_ours(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def points(**_: Any) -> list[EntryPoint]:
        raise AssertionError("looked for")

    monkeypatch.setattr("importlib.metadata.entry_points", points)
    if name in OUR_NAMES and (ROOT / "adapters/upcall_adapters" / name).is_dir():
        assert find_adapter(name)[1] is None
        return
    with pytest.raises(ConfigInvalid) as caught:
        find_adapter(name)
    assert caught.value.code == "adapter_reserved"


# --- whose files ------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="s28", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def package(folder: Path) -> Path:
    made = folder / "site" / "acme"
    for one in (made, made / "inner", made / "__pycache__"):
        one.mkdir(mode=0o755, parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/fast.so", "__pycache__/x.pyc"):
        (made / name).write_text("")
        (made / name).chmod(0o644)
    for one in (folder, folder / "site", made, made / "inner", made / "__pycache__"):
        one.chmod(0o755)
    return made


def refusal(*parts: Path) -> str | None:
    texts = tuple(str(one) for one in parts)
    try:
        check_code("acme", Origin("acme", "1", "acme", texts[0], texts))
    except ConfigInvalid as exc:
        return f"{exc.code}: {exc.msg}; {exc.recover}"
    return None


def _through_link(made: Path) -> None:
    loose = made.parent.parent / "loose"
    loose.mkdir()
    (loose / "code.py").write_text("")
    (loose / "code.py").chmod(0o666)
    loose.chmod(0o755)
    (made / "link").symlink_to(loose)


def _through_parent_link(made: Path) -> None:
    loose = made.parent.parent / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    (loose / "there").mkdir(0o755)
    (made / "link").symlink_to(loose / "there")


LOOSE: Final[dict[str, Callable[[Path], None]]] = {
    "group may write the folder": lambda made: made.chmod(0o775),
    "others may write the folder": lambda made: made.chmod(0o757),
    "group may write a file": lambda made: (made / "__init__.py").chmod(0o664),
    "others may write a file": lambda made: (made / "inner/__init__.py").chmod(0o646),
    "a compiled module": lambda made: (made / "inner/fast.so").chmod(0o775),
    "a cached module": lambda made: (made / "__pycache__/x.pyc").chmod(0o664),
    "the cache's folder": lambda made: (made / "__pycache__").chmod(0o777),
    "the folder above": lambda made: made.parent.chmod(0o775),
    "the folder above that": lambda made: made.parent.parent.chmod(0o777),
    "a link to loose code": _through_link,
    "a link through a loose folder": _through_parent_link,
}


def test_code_that_only_its_owner_can_change_is_taken(folder: Path) -> None:
    assert refusal(package(folder)) is None
    # As /tmp is: what lies in it can be replaced by its owner only.
    folder.chmod(0o1777)
    assert refusal(folder / "site" / "acme") is None


@pytest.mark.parametrize("case", LOOSE)
def test_code_that_somebody_else_could_change_is_refused(folder: Path, case: str) -> None:
    made = package(folder)
    LOOSE[case](made)
    message = refusal(made)
    assert message is not None
    assert message.startswith("adapter_unsafe: ")
    assert "can be written by others" in message
    assert "chmod go-w /tmp/s28" in message


def test_a_single_module_is_looked_at_with_its_compiled_form(folder: Path) -> None:
    made = package(folder)
    module = made.parent / "single.py"
    module.write_text("")
    module.chmod(0o644)
    assert refusal(module) is None
    cache = made.parent / "__pycache__"
    cache.mkdir(mode=0o755)
    (cache / "other.cpython-311.pyc").write_text("")
    (cache / "other.cpython-311.pyc").chmod(0o666)
    assert refusal(module) is None
    (cache / "single.cpython-311.pyc").write_text("")
    (cache / "single.cpython-311.pyc").chmod(0o666)
    assert refusal(module) is not None


@pytest.mark.foreign_uid
@pytest.mark.parametrize("which", [".", "__init__.py", ".."])
def test_code_of_another_user_is_refused(folder: Path, which: str) -> None:
    made = package(folder)
    os.chown(made / which, 65534, 65534)
    message = refusal(made)
    assert message is not None
    assert "another user (uid 65534)" in message


def test_what_brings_the_entry_point_counts_as_code(folder: Path) -> None:
    made = package(folder)
    info = made.parent / "acme-1.dist-info"
    info.mkdir(mode=0o755)
    (info / "entry_points.txt").write_text("")
    (info / "entry_points.txt").chmod(0o666)
    assert refusal(made, info) is not None


def test_nothing_is_run_to_find_out_where_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look for a module within a package would import the package."""
    made = folder / "acme_s28_dotted"
    made.mkdir(mode=0o755)
    (made / "__init__.py").write_text("raise RuntimeError('run')")
    (made / "adapter.py").write_text("raise RuntimeError('run')")
    monkeypatch.syspath_prepend(str(folder))
    point = EntryPoint("acme", "acme_s28_dotted.adapter:SPEC", "upcall.adapters")
    assert origin_of("acme", point).path == str(made)


def test_what_is_in_no_file_is_refused() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        origin_of("acme", EntryPoint("acme", "sys:path", "upcall.adapters"))
    assert caught.value.code == "adapter_unsafe"


# --- dependencies -----------------------------------------------------------------------------


def test_every_dependency_is_pinned_to_a_version_and_to_hashes() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    locked = {one["name"]: one for one in lock["package"]}
    wanted = [*project["project"]["dependencies"]]
    wanted += [one for group in project["dependency-groups"].values() for one in group]
    assert wanted
    for requirement in wanted:
        name = requirement.partition(">")[0].partition("[")[0].strip()
        assert name in locked, name
        assert "<" in requirement, f"{requirement}: a next major version would be taken"
    for name, one in locked.items():
        if name == project["project"]["name"]:
            assert one["source"] == {"editable": "."}
            continue
        assert one["version"], name
        assert "registry" in one["source"], f"{name} is not from a registry"
        files = [*one.get("wheels", ()), *([one["sdist"]] if "sdist" in one else [])]
        assert files, name
        assert all(file["hash"].startswith("sha256:") for file in files), name
