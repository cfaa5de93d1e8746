"""The configuration file: what is taken, what is refused, and in which words."""

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from upcall.config import (
    EMBEDDED,
    TABLES,
    ChannelConfig,
    Config,
    HubConfig,
    NetworkConfig,
    RedactionConfig,
    load,
    parse,
    read_options,
    schema,
)
from upcall.model.errors import ConfigInvalid
from upcall.policy_config import PolicyConfig
from upcall_adapters.web.config import WebConfig

EXAMPLE = Path(__file__).resolve().parents[2] / "config" / "config.example.toml"


def refused(text: str | bytes) -> ConfigInvalid:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(ConfigInvalid) as caught:
        parse(data, "/etc/c.toml")
    return caught.value


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text("[hub]\nidle_exit_s = 5\n")
    path.chmod(0o600)
    return path


def test_without_a_file_the_inbox_and_the_terminal_are_on() -> None:
    config = parse(b"", "c.toml")
    assert config.channels == {name: ChannelConfig(name) for name in EMBEDDED}
    assert (config.hub, config.policy) == (HubConfig(), PolicyConfig())
    assert config.redaction == RedactionConfig()


def test_the_example_has_every_default() -> None:
    config = parse(EXAMPLE.read_bytes(), str(EXAMPLE))
    plain = parse(b"", str(EXAMPLE))
    assert (config.hub, config.operators) == (plain.hub, plain.operators)
    assert config.network == plain.network
    assert (config.policy, config.redaction) == (plain.policy, plain.redaction)
    web = read_options(config.channels["web"].options, WebConfig, "web")
    assert web == WebConfig()
    assert config.channels["terminal"] == ChannelConfig("terminal")


@pytest.mark.parametrize(
    "kind", [HubConfig, NetworkConfig, PolicyConfig, RedactionConfig, WebConfig]
)
def test_the_example_names_every_key(kind: type[msgspec.Struct]) -> None:
    text = EXAMPLE.read_text()
    for field in msgspec.structs.fields(kind):
        assert re.search(rf"^(# )?{field.encode_name} = ", text, re.MULTILINE), field.name


def test_what_the_example_has_in_comments_is_valid_too() -> None:
    text = re.sub(r"^# (?=\[|\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    config = parse(text.encode(), "c.toml")
    options = dict(config.channels["web"].options)
    assert options.pop("metrics_token") == {"file": "~/.config/upcall/metrics-token"}
    web = read_options(options, WebConfig, "web")
    assert web.port == 8737
    assert web.public_url is not None
    assert config.operators["ada"].identities == {"web": "ada", "local": "1000"}


def test_a_misspelt_table_is_named_with_its_line_and_the_nearest() -> None:
    error = refused("[hub]\nidle_exit_s = 1\n\n[chanels.web]\nport = 1\n")
    assert str(error) == "/etc/c.toml:4: unknown key 'chanels'; did you mean 'channels'?"
    assert error.code == "config_invalid"
    assert error.recover is not None


def test_a_misspelt_key_is_named_with_its_table() -> None:
    error = refused('[policy]\nlocal_answer = "any"\n')
    assert str(error) == (
        "/etc/c.toml:2: unknown key 'policy.local_answer'; did you mean 'local_answers'?"
    )


def test_a_key_that_is_like_no_other_gets_the_list() -> None:
    assert "known are hub, web, channels" in str(refused("[zzz]\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[hub]\nidle_exit_s = true\n",
            r"hub\.idle_exit_s: a number is wanted here, not true or false",
        ),
        ("[hub]\nidle_exit_s = -1\n", r"c\.toml:2: hub\.idle_exit_s: is between 0 and 604800"),
        ("[hub]\nidle_exit_s = inf\n", r"hub\.idle_exit_s: is between 0 and 604800 seconds"),
        (
            '[hub]\nlog_level = "loud"\n',
            r":2: hub\.log_level: 'loud' is none of 'debug', 'info', 'warning', 'error'",
        ),
        ('[policy]\nlocal_answers = "yes"\n', r"policy\.local_answers"),
        ("[operators.ada]\nidentities = [1]\n", r"operators\.ada"),
        ("hub = 1\n", r"hub is a table; write \[hub\]"),
        ("[channels]\nweb = 1\n", r"write \[channels\.web\]"),
        ("[channels.Web]\n", r":1: 'Web' is no channel name"),
        ("[channels.web]\nenabled = 1\n", "adapter is a text, enabled a boolean"),
        ("[channels.web]\nadapter = 1\n", "adapter is a text, enabled a boolean"),
        ("[web]\n[channels.web]\n", r"both \[web\] and \[channels\.web\]"),
        ("[operators]\nada = 1\n", r"operators\.ada is a table"),
        ("[hub\n", "not TOML"),
        ("[hub]\n[hub]\n", "not TOML"),
        ("a = " + "[" * 5000, "not TOML"),
        ("[hub]\nidle_exit_s = 1" + "0" * 5000, "not TOML"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, words: str) -> None:
    assert re.search(words, str(refused(text)))


def test_bytes_that_are_no_text_are_refused() -> None:
    assert "not UTF-8 at byte 1" in str(refused(b"#\xff"))


def test_nothing_in_an_error_reaches_a_terminal_unescaped() -> None:
    for error in (refused('["\\u001b[31m\\u202e"]\n'), refused('[channels."\\u001b]0;x"]\n')):
        assert "\x1b" not in str(error)
        assert "\u202e" not in str(error)


def test_one_identity_belongs_to_one_person() -> None:
    error = refused(
        '[operators.ada]\nidentities = {web = "1"}\n[operators.bob]\nidentities = {web = "1"}\n'
    )
    assert "web identity '1' belongs to both 'ada' and 'bob'" in str(error)
    parse(
        b'[operators.ada]\nidentities = {web = "1"}\n'
        b'[operators.bob]\nidentities = {local = "1"}\n',
        "c.toml",
    )


def test_a_channel_keeps_its_own_keys_for_its_adapter() -> None:
    config = parse(b'[channels.desk]\nadapter = "web"\nport = 1\nnew = "x"\n', "c.toml")
    assert config.channels["desk"] == ChannelConfig("web", True, {"port": 1, "new": "x"})


def test_an_embedded_channel_can_be_turned_off() -> None:
    config = parse(b"[web]\nenabled = false\n", "c.toml")
    assert not config.channels["web"].enabled
    assert config.channels["terminal"].enabled


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prot": 1}, "channel web: unknown key 'prot'; did you mean 'port'?"),
        ({"port": 70000}, "channel web: port: a whole number of at most 65535 is wanted here"),
        ({"port": "x"}, "channel web: port: a whole number is wanted here, not text"),
        ({"other_users": 1}, "other_users: true or false is wanted here, not a whole number"),
        ({"metrics_token": "abc"}, "metrics_token is a secret, which is not written into this"),
        ({"zzz": 1}, "public_url, other_users, undo_s, metrics_token"),
        ({"public_url": "http://inbox.example"}, "must begin with https://"),
        ({"public_url": "https://inbox.example/x"}, "without a path"),
        ({"public_url": "https://a:b@inbox.example"}, "nothing else"),
        ({"public_url": "https://[::1"}, "channel web: "),
    ],
)
def test_an_adapters_own_key_is_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_options(options, WebConfig, "web", ("metrics_token",))
    assert words in str(caught.value)


def test_a_missing_default_file_is_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load() == parse_of_nothing()


def parse_of_nothing() -> Config:
    return msgspec.structs.replace(parse(b"", "x"), path=None)


def test_a_missing_named_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no such file"):
        load(str(tmp_path / "none.toml"))


def test_a_file_is_read_with_its_path(file: Path) -> None:
    config = load(str(file))
    assert config.hub.idle_exit_s == 5
    assert config.path == str(file)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_read(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(ConfigInvalid, match="can be written by other users") as caught:
        load(str(file))
    assert str(caught.value.recover).startswith("chmod go-w")


def test_a_file_that_others_may_read_is_read(file: Path) -> None:
    file.chmod(0o644)
    assert load(str(file)).hub.idle_exit_s == 5


@pytest.mark.foreign_uid
def test_a_file_of_another_user_is_not_read(file: Path) -> None:
    os.chown(file, 65534, 65534)
    with pytest.raises(ConfigInvalid, match="belongs to user 65534"):
        load(str(file))


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigInvalid, match="is no regular file"):
        load(str(path))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="is no regular file"):
        load(str(tmp_path))


def test_a_huge_file_is_refused(file: Path) -> None:
    file.write_text("#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigInvalid, match="over 1048576 bytes"):
        load(str(file))


def test_the_schema_is_json_and_has_every_table() -> None:
    document = json.loads(json.dumps(schema()))
    assert set(document["properties"]) == set(TABLES)
    for table in document["properties"].values():
        ref = table.get("$ref") or table.get("additionalProperties", {}).get("$ref")
        if ref is not None:
            assert ref.removeprefix("#/$defs/") in document["$defs"]
