"""The tables of the configuration that a running hub takes up, and how they are kept."""

import os
from typing import Final

import msgspec

from upcall.config import Config, default_path
from upcall.hub.plugins import OUR_NAMES
from upcall.model.settings import LiveSettings
from upcall.policy_config import (
    OperatorConfig,
    PolicyConfig,
    RouteConfig,
    operators_of,
    policy_of,
)

LIVE_TABLES: Final = frozenset({"policy", "route", "redaction", "security"})


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What was in force last, as it was written; it holds no secret.

    It is kept so that a change made while no hub ran is found and told like any other, and
    so that a file that cannot be read takes nobody's place.
    """

    operators: dict[str, OperatorConfig] = {}
    policy: PolicyConfig = PolicyConfig()
    routes: tuple[RouteConfig, ...] = ()
    allow_direct_clients: bool = False
    redact: bool = True
    confirm_changes: bool = False
    adapters: dict[str, str] = {}


_encoder: Final = msgspec.json.Encoder(order="deterministic")


def kept_of(config: Config) -> Kept:
    """Return what of *config* is taken up at once."""
    return Kept(
        operators=config.operators,
        policy=config.policy,
        routes=config.routes,
        allow_direct_clients=config.hub.allow_direct_clients,
        redact=config.redaction.enabled,
        confirm_changes=config.security.confirm_changes,
        adapters={
            name: channel.adapter
            for name, channel in config.channels.items()
            if channel.enabled and channel.adapter not in OUR_NAMES
        },
    )


def source_of(config: Config) -> str:
    """Return the text under which the live tables of *config* are kept."""
    return _encoder.encode(kept_of(config)).decode()


def read_source(source: str | None) -> Kept | None:
    """Return what was kept; None if nothing was, or an older program wrote it otherwise."""
    if source is None:
        return None
    try:
        return msgspec.json.decode(source, type=Kept)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def live_of(kept: Kept) -> LiveSettings:
    """Return what the kernel decides with."""
    return LiveSettings(
        people=operators_of(kept.operators),
        policy=policy_of(kept.policy, kept.routes),
        local_answers=kept.policy.local_answers,
        allow_direct_clients=kept.allow_direct_clients,
        allow_defaults=kept.policy.allow_defaults,
        redact=kept.redact,
        confirm_changes=kept.confirm_changes,
        adapters=kept.adapters,
    )


def with_taken_up(started: Config, taken: Config) -> Config:
    """Return what is in force: *started*, with the live tables of *taken*."""
    hub = msgspec.structs.replace(
        started.hub, allow_direct_clients=taken.hub.allow_direct_clients
    )
    return msgspec.structs.replace(
        started,
        hub=hub,
        operators=taken.operators,
        policy=taken.policy,
        routes=taken.routes,
        redaction=taken.redaction,
        security=taken.security,
    )


def is_live(table: str) -> bool:
    """Tell whether a table of the file is taken up without a restart."""
    return table in LIVE_TABLES or table.startswith("operators.")


def file_mark(path: str | None = None) -> tuple[int, ...] | None:
    """Return what tells that the configuration file is another one; None: there is none."""
    try:
        info = os.lstat(path or default_path())
    except OSError:
        return None
    return (
        info.st_dev,
        info.st_ino,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_size,
        info.st_mode,
        info.st_uid,
        info.st_nlink,
    )
