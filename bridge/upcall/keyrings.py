"""The system's keyring, if the optional package `keyring` is installed and safe.

A back end that keeps passwords as plain text, or keeps none, is refused by name. One that does
not answer is given up after three seconds: without a desktop, the system's bus may never.
"""

import threading
from typing import Any, Final

from upcall.model.errors import ConfigInvalid
from upcall.model.text import one_line, visible

ANSWER_WITHIN_S: Final = 3.0
_FILE: Final = "use {file = ...} with a file of mode 0600"
# Of a back end's module and class: keeps plain text, nothing, or never works.
_UNSAFE_WORDS: Final = ("plaintext", "plain_text", "uncrypted", "unencrypted", "insecure")
_UNSAFE_MODULES: Final = ("keyring.backends.null", "keyring.backends.fail", "keyrings.alt")
_UNSAFE_CLASSES: Final = frozenset({"null", "nullkeyring", "nullcrypter", "basickeyring"})


class Keyrings:
    """Reads passwords of the keyring; once it did not answer, it is not asked again."""

    def __init__(self, answer_within_s: float = ANSWER_WITHIN_S) -> None:
        self._within_s = answer_within_s
        self._silent = False

    def read(self, name: str, where: str) -> str:
        """Return the password that is kept as *where*, `SERVICE/USER`.

        Args:
            name: what it is for, for messages.
            where: service and user, with a slash between them.

        Raises:
            ConfigInvalid: `secret_missing`, `keyring_unsafe` or `keyring_silent`.
        """
        if self._silent:
            raise self._no_answer(name)
        asked = _Asked(where)
        # A daemon: it may never return, and must not keep the process.
        thread = threading.Thread(target=asked.ask, name="keyring", daemon=True)
        thread.start()
        if not asked.done.wait(self._within_s):
            self._silent = True
            raise self._no_answer(name)
        if asked.missing:
            raise ConfigInvalid(
                f"{visible(name)}: the package keyring is not installed",
                code="secret_missing",
                recover="install keyring beside upcall, or use {file = ...}",
            )
        if asked.unsafe is not None:
            raise ConfigInvalid(
                f"{visible(name)}: the keyring {one_line(asked.unsafe)} does not protect what "
                "it keeps; it is not used",
                code="keyring_unsafe",
                recover=_FILE,
            )
        if asked.error is not None:
            raise ConfigInvalid(
                f"{visible(name)}: the keyring failed: {one_line(asked.error)}",
                code="secret_missing",
                recover=_FILE,
            )
        if not isinstance(asked.value, str) or not asked.value:
            raise ConfigInvalid(
                f"{visible(name)}: the keyring has no {visible(where)}", code="secret_missing"
            )
        return asked.value

    def _no_answer(self, name: str) -> ConfigInvalid:
        return ConfigInvalid(
            f"{visible(name)}: the keyring did not answer within {self._within_s:g} s; there "
            "may be no desktop session to unlock it in",
            code="keyring_silent",
            recover=_FILE,
        )


class _Asked:
    """One question to the keyring, asked in a thread of its own."""

    def __init__(self, where: str) -> None:
        self._service, _, self._user = where.partition("/")
        self.done = threading.Event()
        self.missing = False
        self.unsafe: str | None = None
        self.error: str | None = None
        self.value: Any = None

    def ask(self) -> None:
        """Fill in what comes of it; no exception leaves, as its text could be the password."""
        try:
            import keyring
        except ImportError:
            self.missing = True
        except Exception as exc:  # noqa: BLE001 - foreign code, at a border
            self.error = type(exc).__name__
        else:
            self._read(keyring)
        finally:
            self.done.set()

    def _read(self, keyring: Any) -> None:
        try:
            self.unsafe = unsafe_part(keyring.get_keyring())
            if self.unsafe is None:
                self.value = keyring.get_password(self._service, self._user)
        except Exception as exc:  # noqa: BLE001 - foreign code, at a border
            self.error = type(exc).__name__


def unsafe_part(backend: Any) -> str | None:
    """Return the name of the part of a keyring that keeps nothing safe, None if there is none.

    A chain asks its back ends one after the other, so each of them counts; so does what a
    back end is derived from, and what it wraps.
    """
    parts = getattr(backend, "backends", None)
    inner = [*parts] if isinstance(parts, list | tuple) else []
    wrapped = getattr(backend, "_keyring", None)
    inner += [] if wrapped is None else [wrapped]
    for one in inner:
        found = unsafe_part(one)
        if found is not None:
            return found
    if any(_is_unsafe(kind) for kind in type(backend).__mro__):
        return _name(type(backend))
    return None


def _is_unsafe(kind: type) -> bool:
    lowered = _name(kind).lower()
    if "encrypted" in lowered and "unencrypted" not in lowered:
        return False
    return (
        any(word in lowered for word in _UNSAFE_WORDS)
        or any(f"{kind.__module__}.".startswith(f"{one}.") for one in _UNSAFE_MODULES)
        or kind.__name__.lower() in _UNSAFE_CLASSES
    )


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
