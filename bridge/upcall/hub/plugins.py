"""Finds adapters by folder and by entry point; loads only those that the configuration names.

Our own adapters are folders of the `upcall_adapters` package; other people's are entry
points of the group `upcall.adapters`. One of ours is never replaced by another's.
"""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from upcall.config import Config, read_options
from upcall.model.errors import ConfigInvalid
from upcall.model.platform import Spec
from upcall.model.text import one_line, visible
from upcall.model.views import Problem

ENTRY_POINTS: Final = "upcall.adapters"
_OURS: Final = "upcall_adapters"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A channel that can be opened: its name, its adapter's spec, and its own config."""

    name: str
    spec: Spec[Any]
    config: Any


def load_channels(config: Config) -> tuple[list[Loaded], list[Problem]]:
    """Return the channels that can be opened, and what is wrong with the others.

    One bad section disables its channel and no other.
    """
    loaded: list[Loaded] = []
    problems: list[Problem] = []
    for name, channel in config.channels.items():
        if not channel.enabled:
            continue
        try:
            spec = find_spec(channel.adapter)
            loaded.append(Loaded(name, spec, read_options(channel.options, spec.config, name)))
        except ConfigInvalid as exc:
            problems.append(Problem(exc.code, exc.msg, exc.recover))
    return loaded, problems


def find_spec(adapter: str) -> Spec[Any]:
    """Return the spec of the adapter called *adapter*.

    Raises:
        ConfigInvalid: there is none, or it cannot be loaded.
    """
    ours = adapter.isidentifier() and not adapter.startswith("_")
    if ours and importlib.util.find_spec(f"{_OURS}.{adapter}") is not None:
        module = f"{_OURS}.{adapter}.spec"
        return _spec_in(_loaded(lambda: importlib.import_module(module), adapter), adapter)
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
    return _spec_in(_loaded(points[0].load, adapter), adapter)


def _loaded(load: Callable[[], Any], adapter: str) -> Any:
    try:
        return load()
    except Exception as exc:
        raise ConfigInvalid(
            f"the adapter {visible(adapter)!r} cannot be loaded: {one_line(repr(exc))}",
            code="adapter_broken",
        ) from exc


def _spec_in(found: Any, adapter: str) -> Spec[Any]:
    spec = found if isinstance(found, Spec) else getattr(found, "SPEC", None)
    if not isinstance(spec, Spec):
        raise ConfigInvalid(f"the adapter {visible(adapter)!r} has no SPEC")
    return spec
