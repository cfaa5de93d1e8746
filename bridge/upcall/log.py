"""Structured logging: one event, one line; scrubbed where it leaves."""

import logging
import logging.handlers
import os
import stat
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from upcall.core.redact import mask
from upcall.model.errors import HubError
from upcall.model.text import visible

LOG_BYTES: Final = 5 * 1024 * 1024
LOG_FILES: Final = 3


class Scrubber:
    """Removes known secrets, and what looks like one, from text that leaves the process."""

    __slots__ = ("_secrets",)

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def add(self, secret: str) -> None:
        """Know *secret* by its exact value from now on."""
        if len(secret) >= 8:
            self._secrets.add(secret)

    def clean(self, text: str) -> str:
        """Return *text* on one line, without secrets and without control characters."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, "***")
        return visible(mask(text))


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """A rotating log file that nobody else can read, whatever the umask."""

    def _open(self) -> Any:
        # Nonblocking, so that a pipe in its place fails instead of waiting for a reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(self.baseFilename, flags, 0o600)
        except OSError as exc:
            raise _unsafe(self.baseFilename, exc.strerror or "cannot be opened") from exc
        info = os.fstat(fd)
        ours = info.st_uid == os.geteuid() and info.st_nlink == 1
        if not stat.S_ISREG(info.st_mode) or not ours:
            os.close(fd)
            raise _unsafe(self.baseFilename, "is not a file of this user alone")
        os.fchmod(fd, 0o600)
        return os.fdopen(fd, "a", encoding="utf-8", errors="backslashreplace")


def _unsafe(path: str, why: str) -> HubError:
    return HubError(
        f"the log {visible(path)}: {why}",
        code="log_unsafe",
        recover=f"find out who made {visible(path)}, and remove it",
    )


class _ScrubbingFormatter(logging.Formatter):
    def __init__(self, scrubber: Scrubber) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._scrubber = scrubber

    def format(self, record: logging.LogRecord) -> str:
        return self._scrubber.clean(super().format(record))


def open_log(
    path: str | None, level: str, scrubber: Scrubber
) -> structlog.typing.FilteringBoundLogger:
    """Return the hub's log.

    Args:
        path: the file (0600, rotated at 5 MiB, three kept); None: standard error.
        level: `debug`, `info`, `warning` or `error`.
        scrubber: removes secrets from every line, of libraries too.
    """
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler()
    else:
        handler = _PrivateFile(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES - 1)
    handler.setFormatter(_ScrubbingFormatter(scrubber))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(getattr(logging, level.upper()))
    logging.captureWarnings(capture=True)
    # What a stranger sends to the inbox's port is no error of ours, and no traceback's worth.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger("upcall"),
        processors=[_render],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
    )
    return logger


def _render(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    name = event.pop("event", "")
    facts = " ".join(f"{key}={value!r}" for key, value in event.items())
    return f"{name} {facts}".rstrip()
