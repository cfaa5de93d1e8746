"""The configuration file: one TOML document to one typed struct.

Unknown keys are errors that name the nearest key and the line. One channel's bad section
disables that channel and leaves the others running; any other error is the whole file's.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Collection
from typing import Any, Final, Literal

import msgspec

from upcall.config_words import kept_elsewhere, wrong_value
from upcall.model.errors import ConfigInvalid
from upcall.model.network import read_proxy
from upcall.model.policy import ANYBODY, OWNER, ROLE
from upcall.model.quotas import Limits
from upcall.model.text import one_line, visible
from upcall.policy_config import OperatorConfig, PolicyConfig, RouteConfig, unknown_names
from upcall.secrets import is_source
from upcall_discovery import paths

MAX_CONFIG_BYTES: Final = 1024 * 1024


class HubConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[hub]`.

    Attributes:
        idle_exit_s: seconds without anything to do after which the hub ends; 0: never.
        machine_name: what cards call this computer; empty: its host name.
        log_level: `debug`, `info`, `warning` or `error`.
        allow_direct_clients: clients of a hosted endpoint may answer permission asks.
        tell_degraded: that a channel has stopped hearing is told on the others.
        stay_awake: the computer does not go to sleep by itself while a permission question
            is open and it has power from outside.
    """

    idle_exit_s: float = 600.0
    machine_name: str = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    allow_direct_clients: bool = False
    tell_degraded: bool = True
    stay_awake: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.idle_exit_s <= 7 * 86400:
            raise ValueError("idle_exit_s is between 0 and 604800 seconds")


class NetworkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[network]`.

    Attributes:
        proxy: what connections to other computers go through, `http://HOST:PORT`, or where
            that is kept if it has a login; absent: they go straight. The environment's proxy
            variables are not used, and this computer is never reached through a proxy.
    """

    proxy: str | dict[str, str] | None = None

    # The address can hold a password.
    def __repr__(self) -> str:
        return f"NetworkConfig(proxy={None if self.proxy is None else '***'})"


class RetentionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[retention]`: how long what is over is kept, in days.

    Attributes:
        text_days: questions, details, answers and notices.
        files_days: files that sessions attached.
        audit_days: lines of the audit, which hold no text.
    """

    text_days: int = 30
    files_days: int = 7
    audit_days: int = 400

    def __post_init__(self) -> None:
        for name in ("text_days", "files_days", "audit_days"):
            if not 1 <= getattr(self, name) <= 3650:
                raise ValueError(f"{name} is between 1 and 3650 days")
        if self.audit_days < self.text_days:
            raise ValueError("audit_days is at least text_days: a text needs its line")


class AuditConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[audit]`.

    Attributes:
        anchor_channel: a chat in which the audit's head is noted, once a day and at every
            answer to a permission question; empty: in none.
        journal: it is noted in the system journal too, where there is one.
    """

    anchor_channel: str = ""
    journal: bool = True


class PublishConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[publish]`.

    Attributes:
        project_token: sessions that publish beside their project put their token there too.
    """

    project_token: bool = False


class RedactionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[redaction]`.

    Attributes:
        enabled: mask recognised credentials on every surface.
    """

    enabled: bool = True


class SecurityConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[security]`.

    Attributes:
        confirm_changes: a change of this file that widens a right is in force only after one
            of the former operators has agreed to it.
    """

    confirm_changes: bool = False


class ChannelConfig(msgspec.Struct, frozen=True):
    """One channel's table, before its adapter reads it.

    Attributes:
        adapter: which adapter serves it.
        enabled: it is opened.
        options: the rest of the table, for the adapter's own config type.
    """

    adapter: str
    enabled: bool = True
    options: dict[str, Any] = {}


class Config(msgspec.Struct, frozen=True):
    """The whole file. Without one, everything is as by default: web and terminal are on."""

    hub: HubConfig = HubConfig()
    channels: dict[str, ChannelConfig] = {}
    operators: dict[str, OperatorConfig] = {}
    policy: PolicyConfig = PolicyConfig()
    routes: tuple[RouteConfig, ...] = ()
    network: NetworkConfig = NetworkConfig()
    redaction: RedactionConfig = RedactionConfig()
    retention: RetentionConfig = RetentionConfig()
    publish: PublishConfig = PublishConfig()
    audit: AuditConfig = AuditConfig()
    security: SecurityConfig = SecurityConfig()
    limits: Limits = Limits()
    path: str | None = None


TABLES: Final = (
    "hub",
    "web",
    "channels",
    "operators",
    "route",
    "policy",
    "network",
    "redaction",
    "retention",
    "publish",
    "audit",
    "security",
    "limits",
)
EMBEDDED: Final = ("web", "terminal")
_CHANNEL_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `([^`]*)`")


def default_path() -> str:
    """Return where the configuration file is, or would be."""
    return os.path.join(paths.config_dir(), "config.toml")


def load(path: str | None = None) -> Config:
    """Read the configuration file.

    Args:
        path: the file; by default the user's own. A missing default file is an empty one.

    Raises:
        ConfigInvalid: the file cannot be used; the message names file, line, key and fix.
    """
    where = path or default_path()
    try:
        data = _read(where)
    except FileNotFoundError:
        if path is not None:
            raise ConfigInvalid(
                f"{visible(where)}: no such file", recover="upcall config path"
            ) from None
        return _with_defaults(Config(), None)
    return parse(data, where)


def parse(data: bytes, where: str) -> Config:
    """Return the configuration in *data*.

    Raises:
        ConfigInvalid: it is not valid; the message names *where*, line, key and nearest key.
    """
    shown = visible(where)
    try:
        text = data.decode("utf-8")
        document = tomllib.loads(text)
    except UnicodeDecodeError as exc:
        raise ConfigInvalid(f"{shown}: not UTF-8 at byte {exc.start}") from exc
    except (ValueError, RecursionError) as exc:
        # Not TOML, too deep, or a number of thousands of digits.
        raise ConfigInvalid(f"{shown}: not TOML: {one_line(str(exc))}") from exc
    for key in document:
        if key not in TABLES:
            raise _unknown(shown, text, key, key, TABLES)
        kind, form = (list, f"[[{key}]]") if key == "route" else (dict, f"[{key}]")
        if not isinstance(document[key], kind):
            raise ConfigInvalid(
                f"{shown}:{_line_of(text, key)}: {visible(key)} is a table; write {form}"
            )
    operators = {
        name: _table(shown, text, f"operators.{name}", table, OperatorConfig)
        for name, table in document.get("operators", {}).items()
    }
    config = Config(
        hub=_table(shown, text, "hub", document.get("hub", {}), HubConfig),
        channels=_channels(shown, text, document),
        operators=operators,
        policy=_table(shown, text, "policy", document.get("policy", {}), PolicyConfig),
        routes=tuple(
            _table(shown, text, "route", table, RouteConfig)
            for table in document.get("route", ())
        ),
        network=_table(shown, text, "network", document.get("network", {}), NetworkConfig),
        redaction=_table(
            shown, text, "redaction", document.get("redaction", {}), RedactionConfig
        ),
        retention=_table(
            shown, text, "retention", document.get("retention", {}), RetentionConfig
        ),
        publish=_table(shown, text, "publish", document.get("publish", {}), PublishConfig),
        audit=_table(shown, text, "audit", document.get("audit", {}), AuditConfig),
        security=_table(shown, text, "security", document.get("security", {}), SecurityConfig),
        limits=_table(shown, text, "limits", document.get("limits", {}), Limits),
        path=where,
    )
    _check_identities(shown, config)
    _check_proxy(shown, text, config.network.proxy)
    config = _with_defaults(config, where)
    _check_names(shown, text, config)
    _check_anchor(shown, text, config)
    return config


def read_options(
    options: dict[str, Any],
    config_type: type[Any],
    channel: str,
    secrets: Collection[str] = (),
) -> Any:
    """Return an adapter's own config from its channel's table.

    Raises:
        ConfigInvalid: the table does not fit; the message names the key and the nearest one.
    """
    fields = _field_names(config_type)
    for key in options:
        if key in secrets:
            raise ConfigInvalid(f"channel {channel}: {kept_elsewhere(key)}")
        if key not in fields:
            near = _nearest(key, (*fields, *secrets))
            raise ConfigInvalid(f"channel {channel}: unknown key {visible(key)!r}{near}")
    try:
        return msgspec.convert(options, config_type)
    except (msgspec.ValidationError, ValueError) as exc:
        key, words = wrong_value(exc, config_type)
        told = f"{visible(key)}: {words}" if key else words
        raise ConfigInvalid(f"channel {channel}: {told}") from exc


def changed_tables(old: Config, new: Config) -> list[str]:
    """Return the names of the tables that differ, as they are written in the file."""
    pairs: list[tuple[str, Any, Any]] = [
        (name, getattr(old, name), getattr(new, name))
        for name in (
            "hub",
            "policy",
            "network",
            "redaction",
            "retention",
            "publish",
            "audit",
            "security",
            "limits",
        )
    ]
    pairs += [
        (
            "web" if name == "web" else f"channels.{name}",
            *_both(old.channels, new.channels, name),
        )
        for name in sorted({*old.channels, *new.channels})
    ]
    pairs.append(("route", old.routes, new.routes))
    pairs += [
        (f"operators.{name}", *_both(old.operators, new.operators, name))
        for name in sorted({*old.operators, *new.operators})
    ]
    return [name for name, before, after in pairs if before != after]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the file's own tables."""
    _, components = msgspec.json.schema_components(
        [
            HubConfig,
            OperatorConfig,
            PolicyConfig,
            RouteConfig,
            NetworkConfig,
            RedactionConfig,
            RetentionConfig,
            AuditConfig,
            SecurityConfig,
            PublishConfig,
            Limits,
        ],
        ref_template="#/$defs/{name}",
    )
    channel = {
        "type": "object",
        "properties": {"adapter": {"type": "string"}, "enabled": {"type": "boolean"}},
        "description": "The other keys are the adapter's own.",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "upcall configuration",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "hub": {"$ref": "#/$defs/HubConfig"},
            "web": channel,
            "channels": {"type": "object", "additionalProperties": channel},
            "operators": {
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/OperatorConfig"},
            },
            "route": {"type": "array", "items": {"$ref": "#/$defs/RouteConfig"}},
            "policy": {"$ref": "#/$defs/PolicyConfig"},
            "network": {"$ref": "#/$defs/NetworkConfig"},
            "redaction": {"$ref": "#/$defs/RedactionConfig"},
            "retention": {"$ref": "#/$defs/RetentionConfig"},
            "publish": {"$ref": "#/$defs/PublishConfig"},
            "audit": {"$ref": "#/$defs/AuditConfig"},
            "security": {"$ref": "#/$defs/SecurityConfig"},
            "limits": {"$ref": "#/$defs/Limits"},
        },
        "$defs": components,
    }


def _both(old: dict[str, Any], new: dict[str, Any], name: str) -> tuple[Any, Any]:
    return old.get(name), new.get(name)


def _read(where: str) -> bytes:
    try:
        fd = paths.open_settled_file(where)
    except paths.PathProblem as exc:
        raise ConfigInvalid(f"{exc.msg}; it is not read", recover=exc.recover) from exc
    try:
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigInvalid(f"{visible(where)}: over {MAX_CONFIG_BYTES} bytes")
    return data


def _channels(shown: str, text: str, document: dict[str, Any]) -> dict[str, ChannelConfig]:
    tables = dict(document.get("channels", {}))
    if "web" in document:
        if "web" in tables:
            raise ConfigInvalid(f"{shown}: both [web] and [channels.web]; keep one of them")
        tables["web"] = document["web"]
    channels = {}
    for name, table in tables.items():
        where = "web" if name == "web" and "web" in document else f"channels.{name}"
        if not _CHANNEL_NAME.fullmatch(name):
            raise ConfigInvalid(
                f"{shown}:{_line_of(text, name)}: {visible(name)!r} is no channel name; "
                "use lower case letters, digits, - and _"
            )
        if not isinstance(table, dict):
            raise ConfigInvalid(f"{shown}:{_line_of(text, name)}: write [{where}]")
        options = dict(table)
        adapter, enabled = options.pop("adapter", name), options.pop("enabled", True)
        if not isinstance(adapter, str) or not isinstance(enabled, bool):
            raise ConfigInvalid(
                f"{shown}:{_line_of(text, name)}: {where}: adapter is a text, enabled a boolean"
            )
        channels[name] = ChannelConfig(adapter, enabled, options)
    return channels


def _with_defaults(config: Config, where: str | None) -> Config:
    channels = {name: ChannelConfig(name) for name in EMBEDDED}
    channels.update(config.channels)
    return msgspec.structs.replace(config, channels=channels, path=where)


def _table(shown: str, text: str, name: str, table: Any, kind: type[Any]) -> Any:
    if not isinstance(table, dict):
        raise ConfigInvalid(f"{shown}: {visible(name)} is a table; write [{visible(name)}]")
    try:
        return msgspec.convert(table, kind)
    except (msgspec.ValidationError, ValueError) as exc:
        unknown = _UNKNOWN_FIELD.search(str(exc))
        if unknown is not None:
            key = unknown.group(1)
            raise _unknown(shown, text, key, f"{name}.{key}", _field_names(kind)) from exc
        key, words = wrong_value(exc, kind)
        line = _line_of(text, key.split(".")[-1].split("[")[0] or name)
        path = f"{visible(name)}.{visible(key)}" if key else visible(name)
        raise ConfigInvalid(f"{shown}:{line}: {path}: {words}") from exc


def _unknown(
    shown: str, text: str, key: str, path: str, known: tuple[str, ...]
) -> ConfigInvalid:
    return ConfigInvalid(
        f"{shown}:{_line_of(text, key)}: unknown key {visible(path)!r}{_nearest(key, known)}",
        recover="upcall config schema lists all keys",
    )


def _nearest(key: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def _line_of(text: str, key: str) -> int:
    pattern = re.compile(rf"^\s*(\[+[^\]]*\b)?[\"']?{re.escape(key)}\b", re.MULTILINE)
    found = pattern.search(text)
    return text.count("\n", 0, found.end() if found else 0) + 1


def _check_identities(shown: str, config: Config) -> None:
    owner: dict[tuple[str, str], str] = {}
    for name, operator in config.operators.items():
        if name in (ANYBODY, OWNER) or name.startswith(ROLE) or not name.strip():
            raise ConfigInvalid(
                f"{shown}: operators.{one_line(name, 60)}: this name has a meaning of its own "
                "in `answer_by`; use another"
            )
        for channel, identity in operator.identities.items():
            other = owner.setdefault((channel, identity), name)
            if other != name:
                raise ConfigInvalid(
                    f"{shown}: {channel} identity {one_line(identity)!r} belongs to both "
                    f"{one_line(other)!r} and {one_line(name)!r}; one person, one name"
                )


def _check_names(shown: str, text: str, config: Config) -> None:
    unknown = unknown_names(
        config.policy, config.routes, config.operators, set(config.channels)
    )
    for where, key, name in unknown:
        known = tuple(config.channels if "channels" in key or key == "fallback" else ())
        near = _nearest(name, known or tuple(config.operators) or ("any", "owner"))
        raise ConfigInvalid(
            f"{shown}:{_line_of(text, key.split('.')[0])}: {where}: {key} names"
            f" {one_line(name)!r}, which is nowhere configured{near}"
        )


def _check_anchor(shown: str, text: str, config: Config) -> None:
    name = config.audit.anchor_channel
    if not name or (name in config.channels and name not in EMBEDDED):
        return
    why = "keeps nothing" if name in EMBEDDED else "is no configured channel"
    chats = tuple(one for one in config.channels if one not in EMBEDDED)
    raise ConfigInvalid(
        f"{shown}:{_line_of(text, 'anchor_channel')}: audit.anchor_channel:"
        f" {one_line(name)!r} {why}{_nearest(name, chats)}",
        recover="name a chat that is configured under [channels]",
    )


def _check_proxy(shown: str, text: str, proxy: str | dict[str, str] | None) -> None:
    try:
        if isinstance(proxy, str):
            read_proxy(proxy)
        elif proxy is not None and not is_source(proxy):
            raise ConfigInvalid("network.proxy is an address, or one of file, env and keyring")
    except ConfigInvalid as exc:
        line = _line_of(text, "proxy")
        raise ConfigInvalid(f"{shown}:{line}: {exc.msg}", recover=exc.recover) from None
