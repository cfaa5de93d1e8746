"""Secrets come from private places only, and do not print themselves."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.hub_shells import short_folder
from upcall.model.errors import ConfigInvalid
from upcall.secrets import MAX_SECRET_BYTES, Secret, is_source, read_secret

VALUE = "hunter2-hunter2"


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield Path(path)


def made(path: Path, content: bytes | str = VALUE, mode: int = 0o600) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


def refused(source: dict[str, Any]) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as caught:
        read_secret("channels.chat.token", source)
    error = caught.value
    assert "channels.chat.token" in error.msg
    assert VALUE not in error.msg
    assert VALUE not in (error.recover or "")
    return error


def test_a_secret_shows_as_stars_wherever_it_is_printed() -> None:
    secret = Secret(VALUE)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>20}", repr([secret])]
    assert not any(VALUE in one for one in shown)
    assert "***" in repr(secret)
    assert secret.reveal() == VALUE


def test_a_private_file_is_read_without_its_line_end(folder: Path) -> None:
    path = made(folder / "token", VALUE + "\n")
    assert read_secret("channels.chat.token", {"file": str(path)}).reveal() == VALUE


def test_a_path_may_begin_in_the_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(folder / "token")
    monkeypatch.setenv("HOME", str(folder))
    assert read_secret("channels.chat.token", {"file": "~/token"}).reveal() == VALUE


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused_with_the_remedy(
    folder: Path, mode: int
) -> None:
    path = made(folder / "token", mode=mode)
    error = refused({"file": str(path)})
    assert error.code == "secret_not_private"
    assert "chmod 600" in (error.recover or "")


def test_a_link_is_not_followed(folder: Path) -> None:
    made(folder / "token")
    (folder / "link").symlink_to(folder / "token")
    assert refused({"file": str(folder / "link")}).code == "secret_not_private"


def test_a_file_with_two_names_is_refused(folder: Path) -> None:
    path = made(folder / "token")
    os.link(path, folder / "other")
    assert refused({"file": str(path)}).code == "secret_not_private"


def test_a_folder_is_no_secret(folder: Path) -> None:
    refused({"file": str(folder)})


def test_a_pipe_does_not_hang_it(folder: Path) -> None:
    os.mkfifo(folder / "pipe", 0o600)
    refused({"file": str(folder / "pipe")})


def test_a_missing_file_is_named(folder: Path) -> None:
    error = refused({"file": str(folder / "no\x1bsuch")})
    assert error.code == "secret_missing"
    assert "no such file" in error.msg
    assert "\x1b" not in error.msg


@pytest.mark.parametrize("content", ["", "\n", " \t\r\n"])
def test_an_empty_file_is_no_secret(folder: Path, content: str) -> None:
    error = refused({"file": str(made(folder / "token", content))})
    assert error.code == "secret_missing"
    assert "empty" in error.msg


def test_bytes_that_are_no_text_are_refused_rather_than_altered(folder: Path) -> None:
    error = refused({"file": str(made(folder / "token", b"abc\xff\xfe"))})
    assert "UTF-8" in error.msg


def test_a_file_that_is_too_large_is_refused(folder: Path) -> None:
    refused({"file": str(made(folder / "token", "x" * (MAX_SECRET_BYTES + 1)))})


@pytest.mark.parametrize("where", ["token", "./token", "../token", "a\0b"])
def test_a_relative_path_is_refused(where: str) -> None:
    error = refused({"file": where})
    assert "absolute" in error.msg


def test_a_variable_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_TOKEN", VALUE)
    assert read_secret("channels.chat.token", {"env": "CHAT_TOKEN"}).reveal() == VALUE
    assert "CHAT_TOKEN" not in os.environ


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_variable_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("CHAT_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("CHAT_TOKEN", value)
    error = refused({"env": "CHAT_TOKEN"})
    assert error.code == "secret_missing"
    assert "CHAT_TOKEN" in error.msg
    assert "file" in (error.recover or "")


@pytest.mark.parametrize("source", [{"file": 5}, {"env": ""}, {"keyring": ["x"]}])
def test_a_source_that_is_no_text_is_refused(source: dict[str, Any]) -> None:
    assert refused(source).code == "config_invalid"


def test_without_the_keyring_package_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    error = refused({"keyring": "upcall/chat"})
    assert error.code == "secret_missing"
    assert "keyring" in (error.recover or "")


def test_a_keyring_is_asked_by_service_and_user(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {("upcall", "chat"): VALUE}
    fake = SimpleNamespace(
        get_keyring=object, get_password=lambda service, user: kept.get((service, user))
    )
    monkeypatch.setitem(sys.modules, "keyring", fake)
    found = read_secret("channels.chat.token", {"keyring": "upcall/chat"})
    assert found.reveal() == VALUE
    assert "upcall/other" in refused({"keyring": "upcall/other"}).msg


def test_a_keyring_that_fails_does_not_tell_what_it_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_service: str, _user: str) -> str:
        raise RuntimeError(VALUE)

    fake = SimpleNamespace(get_keyring=object, get_password=fail)
    monkeypatch.setitem(sys.modules, "keyring", fake)
    assert "RuntimeError" in refused({"keyring": "upcall/chat"}).msg


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"file": "/x"}, True),
        ({"env": "X"}, True),
        ({"keyring": "a/b"}, True),
        ({"file": "/x", "env": "X"}, False),
        ({}, False),
        ({"path": "/x"}, False),
        ("text", False),
        (["file"], False),
        (None, False),
    ],
)
def test_only_a_table_with_one_known_key_is_a_source(value: Any, expected: bool) -> None:
    assert is_source(value) is expected
