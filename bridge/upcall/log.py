"""Structured logging: one event, one line; scrubbed where it leaves."""

import contextlib
import logging
import logging.handlers
import os
import sys
import threading
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import structlog

from upcall.model.errors import HubError
from upcall.model.text import visible
from upcall.scrub import ScrubbedStream, Scrubber
from upcall_discovery import paths

LOG_BYTES: Final = 5 * 1024 * 1024
LOG_FILES: Final = 3


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """A rotating log file that nobody else can read, whatever the umask."""

    def _open(self) -> Any:
        folder, name = os.path.split(self.baseFilename)
        try:
            directory = paths.open_private_dir(folder)
            try:
                fd = paths.open_own_file(
                    name, dir_fd=directory, path=self.baseFilename, append=True
                )
            finally:
                os.close(directory)
        except paths.PathProblem as exc:
            raise HubError(
                f"the log is not written: {exc.msg}", code="log_unsafe", recover=exc.recover
            ) from exc
        except OSError as exc:
            raise _unsafe(self.baseFilename, exc.strerror or "cannot be opened") from exc
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


@contextlib.contextmanager
def leaving_scrubbed(scrubber: Scrubber) -> Iterator[None]:
    """Let nothing leave this process by the side of the log while the block lasts.

    What is printed, by whatever library, goes through *scrubber*, and an exception that
    nobody caught, in a thread or a finalizer too, is a line of the log.
    """
    former = (sys.stdout, sys.stderr, sys.excepthook, threading.excepthook, sys.unraisablehook)
    streams = [None if one is None else ScrubbedStream(one, scrubber) for one in former[:2]]
    sys.stdout, sys.stderr = streams
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    try:
        yield
    finally:
        for stream in streams:
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                    stream.finish()
        sys.stdout, sys.stderr, sys.excepthook = former[:3]
        threading.excepthook, sys.unraisablehook = former[3:]


def _uncaught(kind: Any, error: Any, trace: Any) -> None:
    logging.getLogger("upcall").critical("uncaught", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit or args.exc_value is None:
        return
    logging.getLogger("upcall").critical(
        "uncaught_in_thread", exc_info=(args.exc_type, args.exc_value, args.exc_traceback)
    )


def _unraisable(args: Any) -> None:
    logging.getLogger("upcall").error(
        "unraisable %s",
        args.err_msg or "exception ignored",
        exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
    )
