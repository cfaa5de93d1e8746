import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fakes.hub_shells import short_folder
from upcall.hub import hub_json
from upcall.hub.hub_json import HubFile, LastError

CONTENT = HubFile(
    pid=12,
    pid_start="abcd:1",
    version="0.1.0",
    protocol=1,
    ask_sock="/s/ask.sock",
    control_sock="/s/control.sock",
    runtime_dir="/r",
    web_url=None,
    started_ms=5,
)


@pytest.fixture
def state() -> Iterator[Path]:
    with short_folder() as path:
        yield Path(path)


def test_is_a_private_file_with_the_names_that_clients_read(state: Path) -> None:
    former = os.umask(0)
    try:
        hub_json.write(str(state), CONTENT)
    finally:
        os.umask(former)
    path = state / "hub.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {
        "pid": 12,
        "pid_start": "abcd:1",
        "version": "0.1.0",
        "protocol": 1,
        "ask_sock": "/s/ask.sock",
        "control_sock": "/s/control.sock",
        "runtime_dir": "/r",
        "web_url": None,
        "started_ms": 5,
    }
    assert hub_json.read(str(state)) == CONTENT


def test_says_how_the_hub_ended(state: Path) -> None:
    ended = msgspec.structs.replace(
        CONTENT, ended_ms=9, last_error=LastError("store_newer", "the store is newer")
    )
    hub_json.write(str(state), ended)
    assert hub_json.read(str(state)) == ended
    assert [path.name for path in state.iterdir()] == ["hub.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid":"x"}', b"\xff"])
def test_a_damaged_file_is_no_file(state: Path, content: bytes) -> None:
    (state / "hub.json").write_bytes(content)
    (state / "hub.json").chmod(0o600)
    assert hub_json.read(str(state)) is None


def test_no_file_and_a_symlink_are_no_file(state: Path) -> None:
    assert hub_json.read(str(state)) is None
    hub_json.write(str(state), CONTENT)
    (state / "hub.json").rename(state / "real")
    (state / "hub.json").symlink_to(state / "real")
    assert hub_json.read(str(state)) is None
