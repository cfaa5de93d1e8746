"""Finds adapters by folder and by entry point; loads only those that the configuration names.

Our own adapters are folders of the `upcall_adapters` package; other people's are entry
points of the group `upcall.adapters`. One of ours is never replaced by another's, and other
people's code is loaded only from where nobody else can write.
"""

import importlib
import importlib.util
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from upcall.config import ChannelConfig, Config, read_options
from upcall.hub.foreign import Origin, check_code, origin_of
from upcall.model.document import Message
from upcall.model.errors import ConfigInvalid
from upcall.model.platform import Body, Place, Spec
from upcall.model.text import one_line, visible
from upcall.model.views import Problem
from upcall.secrets import Secret, SecretSources, is_source, taken_from_environment

ENTRY_POINTS: Final = "upcall.adapters"
OUR_NAMES: Final = frozenset({"web", "terminal", "telegram", "slack", "discord"})
"""Names of ours, also of those that this installation does not have."""
_OURS: Final = "upcall_adapters"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A channel that can be opened: its name, its adapter's spec, and its own config.

    Attributes:
        name: the channel.
        spec: of its adapter.
        config: what its own table says, and no other's.
        secrets: those that its own table names.
        origin: whose code it is, if it is not ours.
    """

    name: str
    spec: Spec[Any]
    config: Any
    secrets: Mapping[str, Secret]
    origin: Origin | None = None


def load_channels(
    config: Config, sources: SecretSources | None = None
) -> tuple[list[Loaded], list[Problem]]:
    """Return the channels that can be opened, and what is wrong with the others.

    One bad section disables its channel and no other.

    Args:
        config: the whole configuration.
        sources: where secrets are read; by default, variables are taken from the environment.
    """
    if sources is None:
        tables = [one.options for one in config.channels.values()]
        sources = SecretSources(taken_from_environment(tables))
    loaded: list[Loaded] = []
    problems: list[Problem] = []
    for name, channel in config.channels.items():
        if not channel.enabled:
            continue
        try:
            loaded.append(_load(name, channel, sources))
        except ConfigInvalid as exc:
            problems.append(Problem(exc.code, exc.msg, exc.recover))
    return loaded, problems


def check_channels(config: Config) -> list[Problem]:
    """Return what is wrong with the channels' tables; no secret is read."""
    problems = []
    for name, channel in config.channels.items():
        if not channel.enabled:
            continue
        try:
            _read_table(name, channel)
        except ConfigInvalid as exc:
            problems.append(Problem(exc.code, exc.msg, exc.recover))
    return problems


def safe_lower(
    spec: Spec[Any], log: structlog.typing.FilteringBoundLogger
) -> Callable[[Message, Place], Sequence[Body]]:
    """Return the adapter's `lower`, which a defect of it cannot leave.

    It runs within the kernel, whose failure would end the hub. A card that cannot be lowered
    gets one empty body, which is refused when it is due.
    """

    def lower(message: Message, place: Place) -> Sequence[Body]:
        try:
            bodies = spec.lower(message, place)
            if bodies:
                return bodies
            error = "no bodies"
        except Exception as exc:  # noqa: BLE001 - one adapter's defect is not the hub's
            error = one_line(repr(exc))
        log.error("adapter_defect", adapter=spec.name, error=f"lower: {error}")
        return (Body(b""),)

    return lower


def _load(name: str, channel: ChannelConfig, sources: SecretSources) -> Loaded:
    spec, options, origin = _read_table(name, channel)
    secrets = {
        key: sources.read(f"channels.{name}.{key}", source)
        for key, source in channel.options.items()
        if is_source(source)
    }
    return Loaded(name, spec, options, secrets, origin)


def _read_table(name: str, channel: ChannelConfig) -> tuple[Spec[Any], Any, Origin | None]:
    spec, origin = find_adapter(channel.adapter)
    options = {key: one for key, one in channel.options.items() if not is_source(one)}
    try:
        return spec, read_options(options, spec.config, name, spec.secrets), origin
    except ConfigInvalid:
        raise
    except Exception as exc:
        raise _broken(channel.adapter, exc) from exc


def find_spec(adapter: str) -> Spec[Any]:
    """Return the spec of the adapter called *adapter*; see `find_adapter`."""
    return find_adapter(adapter)[0]


def find_adapter(adapter: str) -> tuple[Spec[Any], Origin | None]:
    """Return the spec of the adapter called *adapter*, and where it is from if not from us.

    Raises:
        ConfigInvalid: there is none, it cannot be loaded, or somebody else could change its
            code (`adapter_unsafe`).
    """
    ours = adapter.isidentifier() and not adapter.startswith("_")
    if ours and importlib.util.find_spec(f"{_OURS}.{adapter}") is not None:
        module = f"{_OURS}.{adapter}.spec"
        return _spec_in(
            _loaded(lambda: importlib.import_module(module), adapter), adapter
        ), None
    if _plain_name(adapter) in OUR_NAMES:
        raise ConfigInvalid(
            f"{visible(adapter)!r} is a name of upcall's own adapters, and this installation "
            "has none of that name; no other package can bring it",
            code="adapter_reserved",
            recover="install an upcall that has it, or correct the channel's `adapter`",
        )
    # Only here: it is heavy, and most hubs have no adapter of other people's.
    from importlib.metadata import entry_points

    points = [point for point in entry_points(group=ENTRY_POINTS) if point.name == adapter]
    if not points:
        raise ConfigInvalid(
            f"no adapter is called {visible(adapter)!r}",
            recover="install the package that brings it, or correct the channel's `adapter`",
        )
    if len(points) > 1:
        raise ConfigInvalid(f"several packages bring an adapter called {visible(adapter)!r}")
    [point] = points
    origin = origin_of(adapter, point)
    # Before it is loaded: importing is running.
    check_code(adapter, origin)
    return _spec_in(_loaded(point.load, adapter), adapter), origin


def _plain_name(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().strip()


def _loaded(load: Callable[[], Any], adapter: str) -> Any:
    try:
        return load()
    except (Exception, SystemExit) as exc:
        raise _broken(adapter, exc) from exc


def _spec_in(found: Any, adapter: str) -> Spec[Any]:
    spec = found if isinstance(found, Spec) else getattr(found, "SPEC", None)
    if not isinstance(spec, Spec):
        raise ConfigInvalid(f"the adapter {visible(adapter)!r} has no SPEC")
    if spec.name != adapter:
        raise ConfigInvalid(
            f"the adapter {visible(adapter)!r} calls itself {one_line(str(spec.name))!r}",
            code="adapter_broken",
        )
    return spec


def _broken(adapter: str, exc: BaseException) -> ConfigInvalid:
    return ConfigInvalid(
        f"the adapter {visible(adapter)!r} cannot be loaded: {one_line(repr(exc))}",
        code="adapter_broken",
    )
