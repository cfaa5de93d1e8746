"""Secrets: where they come from, and a value that does not print itself."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, final

from upcall.keyrings import Keyrings
from upcall.model.errors import ConfigInvalid
from upcall.model.text import one_line, visible
from upcall_discovery import paths

MAX_SECRET_BYTES: Final = 16 * 1024
SOURCES: Final = frozenset({"file", "env", "keyring"})


@final
class Secret:
    """A secret value; it shows as `***` wherever it is printed."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def is_source(value: Any) -> bool:
    """Tell whether a value of the configuration says where a secret is."""
    return isinstance(value, dict) and len(value) == 1 and SOURCES.issuperset(value)


def sources_in(table: Any) -> Iterator[dict[str, Any]]:
    """Yield every source of a secret anywhere in *table*."""
    if is_source(table):
        yield table
    elif isinstance(table, dict):
        for one in table.values():
            yield from sources_in(one)
    elif isinstance(table, list):
        for one in table:
            yield from sources_in(one)


class SecretSources:
    """Where one hub's secrets are read from.

    Args:
        environ: variables that hold secrets, by name.
        keyrings: the system's keyring; a new one by default.
    """

    def __init__(self, environ: Mapping[str, str], keyrings: Keyrings | None = None) -> None:
        self._environ = dict(environ)
        self._keyrings = keyrings or Keyrings()

    def read(self, name: str, source: dict[str, Any]) -> Secret:
        """Return the secret that *source* points at.

        Args:
            name: what it is for, for messages.
            source: `{file = PATH}` (0600, ours), `{env = NAME}` or `{keyring =
                "SERVICE/USER"}`.

        Raises:
            ConfigInvalid: code `secret_missing`, `secret_not_private`, `keyring_unsafe` or
                `keyring_silent`; the message names the source and never the value.
        """
        [(kind, where)] = source.items()
        if not isinstance(where, str) or not where:
            raise ConfigInvalid(f"{visible(name)}: {kind} is a text, and not empty")
        match kind:
            case "file":
                return Secret(_from_file(name, where))
            case "env":
                return Secret(self._from_environment(name, where))
            case _:
                return Secret(self._keyrings.read(name, where))

    def _from_environment(self, name: str, where: str) -> str:
        value = self._environ.get(where, "")
        if not value:
            raise ConfigInvalid(
                f"{visible(name)}: the environment has no {visible(where)}; a hub that was "
                "started on demand sees little of it",
                code="secret_missing",
                recover=f"put it into a file (chmod 600) and write {name} = {{file = ...}}",
            )
        return value


def taken_from_environment(table: Any) -> dict[str, str]:
    """Take the variables that *table* names as secrets out of the environment.

    All at once and before anybody else's code is loaded, which could read them there.
    """
    found = {}
    for source in sources_in(table):
        where = source.get("env")
        if isinstance(where, str) and where and "=" not in where and "\0" not in where:
            value = os.environ.pop(where, None)
            if value is not None:
                found[where] = value
    return found


def read_secret(name: str, source: dict[str, Any]) -> Secret:
    """Return the secret that *source* points at; a variable is taken out of the environment.

    Raises:
        ConfigInvalid: as `SecretSources.read`.
    """
    return SecretSources(taken_from_environment(source)).read(name, source)


def _from_file(name: str, where: str) -> str:
    path = os.path.expanduser(where)
    if not os.path.isabs(path) or "\0" in path:
        raise ConfigInvalid(
            f"{visible(name)}: {one_line(where)} is not an absolute path",
            recover="the hub has no working folder of yours; begin with / or ~/",
        )
    try:
        data = paths.read_private_file(path, MAX_SECRET_BYTES)
    except FileNotFoundError:
        raise ConfigInvalid(
            f"{visible(name)}: {visible(path)}: no such file", code="secret_missing"
        ) from None
    except paths.PathProblem as exc:
        raise ConfigInvalid(
            f"{visible(name)}: {exc.msg}",
            code="secret_not_private",
            recover=exc.recover or f"chmod 600 {visible(path)}",
        ) from exc
    except OSError as exc:
        raise ConfigInvalid(
            f"{visible(name)}: {visible(path)}: {exc.strerror}", code="secret_missing"
        ) from exc
    try:
        value = data.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigInvalid(
            f"{visible(name)}: {visible(path)} is not UTF-8 text", code="secret_missing"
        ) from None
    if not value:
        raise ConfigInvalid(f"{visible(name)}: {visible(path)} is empty", code="secret_missing")
    return value
