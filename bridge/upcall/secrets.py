"""Secrets: where they come from, and a value that does not print itself."""

import os
from typing import Any, Final, final

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


def read_secret(name: str, source: dict[str, Any]) -> Secret:
    """Return the secret that *source* points at.

    Args:
        name: what it is for, for messages.
        source: `{file = PATH}` (0600, ours), `{env = NAME}` or `{keyring = "SERVICE/USER"}`.

    Raises:
        ConfigInvalid: code `secret_missing` or `secret_not_private`; the message names the
            source and never the value.
    """
    [(kind, where)] = source.items()
    if not isinstance(where, str) or not where:
        raise ConfigInvalid(f"{visible(name)}: {kind} is a text, and not empty")
    match kind:
        case "file":
            value = _from_file(name, where)
        case "env":
            value = os.environ.pop(where, "")
            if not value:
                raise ConfigInvalid(
                    f"{visible(name)}: the environment has no {visible(where)}; a hub that was "
                    "started on demand sees little of it",
                    code="secret_missing",
                    recover=f"put it into a file (chmod 600) and write {name} = {{file = ...}}",
                )
        case _:
            value = _from_keyring(name, where)
    return Secret(value)


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


def _from_keyring(name: str, where: str) -> str:
    service, _, user = where.partition("/")
    try:
        import keyring
    except ImportError:
        raise ConfigInvalid(
            f"{visible(name)}: the package keyring is not installed",
            code="secret_missing",
            recover="install keyring beside upcall, or use {file = ...}",
        ) from None
    try:
        value = keyring.get_password(service, user)
    except Exception as exc:
        raise ConfigInvalid(
            f"{visible(name)}: the keyring failed: {one_line(type(exc).__name__)}",
            code="secret_missing",
        ) from exc
    if not value:
        raise ConfigInvalid(
            f"{visible(name)}: the keyring has no {visible(where)}", code="secret_missing"
        )
    return str(value)
