"""Adapters are found by name; one that is missing or broken disables its channel only."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.hub_rig import Log, ScriptedAdapter, loaded
from fakes.hub_shells import short_folder
from upcall.config import ChannelConfig, Config
from upcall.hub.plugins import check_channels, find_spec, load_channels, safe_lower
from upcall.model.document import Message
from upcall.model.errors import ConfigInvalid
from upcall.model.platform import Body, Place
from upcall_adapters.web.spec import SPEC as WEB

GOOD = """
import msgspec
from upcall.model.platform import Body, Capabilities, Spec
class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    chat: str
SPEC = Spec(name={name!r}, config=Config, capabilities=Capabilities(text_limit=100),
            lower=lambda message, place: (Body(b"x"),), open=lambda config, seams: None)
"""


class Packages:
    """Installs packages of other people's into a folder on the path."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def install(self, package: str, adapter: str, source: str, *, value: str = "") -> None:
        (self._folder / f"{package}.py").write_text(source)
        info = self._folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(
            f"[upcall.adapters]\n{adapter} = {value or package + ':SPEC'}\n"
        )


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    before = set(sys.modules)
    with short_folder() as folder:
        monkeypatch.syspath_prepend(folder)
        yield Packages(folder)
    for name in set(sys.modules) - before:
        if name.startswith("acme"):
            del sys.modules[name]


def config(**channels: ChannelConfig) -> Config:
    return Config(channels=channels)


@pytest.mark.parametrize("name", ["web", "terminal"])
def test_our_own_adapters_are_found_by_folder(name: str) -> None:
    assert find_spec(name).name == name


@pytest.mark.parametrize(
    "name", ["nosuch", "_kit", "__init__", "web.spec", "../web", "", "w\x1b"]
)
def test_an_unknown_adapter_is_named_with_the_remedy(name: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        find_spec(name)
    assert "no adapter is called" in caught.value.msg
    assert "\x1b" not in caught.value.msg
    assert "install" in (caught.value.recover or "")


def test_other_peoples_adapters_are_found_by_entry_point(packages: Packages) -> None:
    packages.install("acme_good", "acme", GOOD.format(name="acme"))
    assert find_spec("acme").name == "acme"


def test_an_entry_point_may_name_a_module(packages: Packages) -> None:
    packages.install("acme_module", "acme", GOOD.format(name="acme"), value="acme_module")
    assert find_spec("acme").name == "acme"


def test_an_entry_point_cannot_take_the_place_of_one_of_ours(packages: Packages) -> None:
    packages.install("acme_shadow", "web", "raise RuntimeError('loaded')\nSPEC = None")
    assert find_spec("web") is WEB
    assert "acme_shadow" not in sys.modules


def test_two_packages_with_the_same_adapter_are_refused(packages: Packages) -> None:
    packages.install("acme_one", "acme", GOOD.format(name="acme"))
    packages.install("acme_two", "acme", GOOD.format(name="acme"))
    with pytest.raises(ConfigInvalid, match="several packages"):
        find_spec("acme")
    assert "acme_one" not in sys.modules


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import acme_missing_library\nSPEC = 1", "acme_missing_library"),
        ("raise ValueError('\x1b[31mbad')", "bad"),
        ("import sys\nsys.exit('bye')", "bye"),
        ("SPEC = 'nothing'", "no SPEC"),
        ("OTHER = 1", "SPEC"),
        (GOOD.format(name="web"), "calls itself 'web'"),
    ],
)
def test_an_adapter_that_cannot_be_loaded_says_why(
    packages: Packages, source: str, words: str
) -> None:
    packages.install("acme_broken", "acme", source)
    with pytest.raises(ConfigInvalid, match=words) as caught:
        find_spec("acme")
    assert "\x1b" not in caught.value.msg


def test_one_of_ours_that_cannot_be_imported_disables_its_channel_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "upcall_adapters.terminal.spec", None)
    found, problems = load_channels(
        config(web=ChannelConfig("web"), terminal=ChannelConfig("terminal"))
    )
    assert [one.name for one in found] == ["web"]
    assert [problem.code for problem in problems] == ["adapter_broken"]


def test_one_bad_section_disables_that_channel_only(packages: Packages) -> None:
    packages.install("acme_good", "acme", GOOD.format(name="acme"))
    found, problems = load_channels(
        config(
            web=ChannelConfig("web"),
            typo=ChannelConfig("acme", options={"chat": "c", "chta": 1}),
            mistyped=ChannelConfig("acme", options={"chat": 5}),
            good=ChannelConfig("acme", options={"chat": "c"}),
            nosuch=ChannelConfig("nosuch"),
            secret=ChannelConfig("acme", options={"chat": "c", "token": {"file": "/no/such"}}),
            off=ChannelConfig("nosuch", enabled=False),
        )
    )
    assert [one.name for one in found] == ["web", "good"]
    assert found[1].config.chat == "c"
    words = [problem.msg for problem in problems]
    assert len(words) == 4
    assert "typo" in words[0]
    assert "did you mean 'chat'" in words[0]
    assert "mistyped" in words[1]
    assert "nosuch" in words[2]
    assert "channels.secret.token" in words[3]


def test_an_adapter_whose_config_type_is_no_struct_disables_its_channel_only(
    packages: Packages,
) -> None:
    source = GOOD.format(name="acme").replace("config=Config", "config=dict")
    packages.install("acme_dict", "acme", source)
    found, problems = load_channels(
        config(acme=ChannelConfig("acme", options={"chat": "c"}), web=ChannelConfig("web"))
    )
    assert [one.name for one in found] == ["web"]
    assert [problem.code for problem in problems] == ["adapter_broken"]


def test_secrets_are_read_and_do_not_print(
    packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.install("acme_good", "acme", GOOD.format(name="acme"))
    monkeypatch.setenv("ACME_TOKEN", "hunter2hunter2")
    channels = config(
        acme=ChannelConfig("acme", options={"chat": "c", "token": {"env": "ACME_TOKEN"}})
    )
    [one], problems = load_channels(channels)
    assert problems == []
    assert one.secrets["token"].reveal() == "hunter2hunter2"
    assert "hunter2" not in repr(one)


def test_checking_reads_no_secret(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running hub has taken its secrets out of the environment already."""
    packages.install("acme_good", "acme", GOOD.format(name="acme"))
    monkeypatch.delenv("ACME_TOKEN", raising=False)
    channels = config(
        acme=ChannelConfig("acme", options={"chat": "c", "token": {"env": "ACME_TOKEN"}}),
        bad=ChannelConfig("acme", options={"chta": "c"}),
        off=ChannelConfig("nosuch", enabled=False),
    )
    [problem] = check_channels(channels)
    assert "bad" in problem.msg


def _raises(message: Message, place: Place) -> Sequence[Body]:
    raise ZeroDivisionError("bug")


@pytest.mark.parametrize("lower", [_raises, lambda message, place: ()])
def test_a_card_that_the_adapter_cannot_lower_is_marked_and_logged(lower: Any) -> None:
    log = Log()
    of_log: Any = log
    spec = replace(loaded("web", ScriptedAdapter()).spec, lower=lower)
    bodies = safe_lower(spec, of_log)(Message((), "plain"), Place("web", "c"))
    assert bodies == (Body(b""),)
    assert len(log.of("adapter_defect")) == 1


def test_what_the_adapter_lowers_goes_through_as_it_is() -> None:
    log: Any = Log()
    spec = replace(
        loaded("web", ScriptedAdapter()).spec,
        lower=lambda message, place: [Body(b"one"), Body(b"two")],
    )
    bodies = safe_lower(spec, log)(Message((), "plain"), Place("web", "c"))
    assert bodies == [Body(b"one"), Body(b"two")]
