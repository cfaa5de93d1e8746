"""What can go wrong on the command line, and how it is told: one or two plain lines."""

from __future__ import annotations

import os

from upcall.cli import exits, screen
from upcall.line.errors import LineError
from upcall_discovery.paths import PathProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_USAGE_CODES = frozenset(
    {
        "usage",
        "invalid_ask",
        "ambiguous_labels",
        "ambiguous_ask",
        "unknown_ask",
        "unknown_session",
        "ask_open",
        "invalid_answer",
        "id_conflict",
        "invalid_request",
        "line_too_long",
    }
)

_ALSO_NEAR = 0.65
_MAX_TOLD_CHARS = 2000


class Failure(Exception):
    """It could not be done.

    Attributes:
        code: stable name.
        msg: what went wrong, in words.
        recover: what to do, or None.
        exit_code: what the process ends with.
    """

    exit_code = exits.FAILURE

    def __init__(self, msg: str, recover: str | None = None, code: str = "failed") -> None:
        super().__init__(msg)
        self.msg = msg
        self.recover = recover
        self.code = code


class Usage(Failure):
    """What was given on the command line cannot be used; the message names it."""

    exit_code = exits.USAGE

    def __init__(self, msg: str, recover: str | None = None, code: str = "usage") -> None:
        super().__init__(msg, recover, code)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` - did you mean ...?` for the nearest one or two of *known*, or nothing."""
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1)
    also = difflib.get_close_matches(word, list(known), n=2, cutoff=_ALSO_NEAR)
    words = " or ".join(repr(one) for one in (also or found))
    return f" - did you mean {words}?" if words else ""


def report(err: Exception, *, as_json: bool) -> int:
    """Tell *err* on stderr, as a document too if that was wanted; return the exit code."""
    found, code = _read(err)
    # What was given may be in the message, and be as long as a command line can be.
    found["msg"] = _cut(found["msg"])
    if found.get("recover"):
        found["recover"] = _cut(found["recover"])
    screen.err(f"upcall: {screen.visible(found['msg'])}")
    if found.get("recover"):
        screen.err(f"        {screen.visible(found['recover'])}")
    if as_json:
        try:
            screen.document({"error": found})
        except (OSError, ValueError):
            screen.abandon_stdout()  # perhaps the very thing that is told
    if os.environ.get("UPCALL_DEBUG"):
        import traceback

        from upcall.core.redact import mask

        shown = mask("".join(traceback.format_exception(err)))
        screen.err(screen.visible(shown, newlines=True))
    return code


def _read(err: Exception) -> tuple[dict[str, Any], int]:
    if isinstance(err, LineError):
        code = exits.USAGE if err.code in _USAGE_CODES else exits.FAILURE
        return {"class": err.error_class, "recover": err.recover, **err.as_dict()}, code
    if isinstance(err, Failure):
        kind = "configuration" if err.exit_code == exits.USAGE else "runtime"
        return _document(kind, err.code, err.msg, err.recover), err.exit_code
    if isinstance(err, PathProblem):
        return _document("configuration", err.code, err.msg, err.recover), exits.FAILURE
    if isinstance(err, OSError):
        where = f": {err.filename}" if err.filename else ""
        return _document("runtime", "os_error", f"{err.strerror or err}{where}", None), 1
    if hasattr(err, "as_dict"):  # an UpcallError, without importing what it lives in
        found: dict[str, Any] = {"recover": None, **err.as_dict()}
        return found, exits.USAGE if found["code"] in _USAGE_CODES else exits.FAILURE
    return (
        _document(
            "runtime",
            "internal",
            f"this should not happen: {type(err).__name__}: {_masked(str(err))}",
            "set UPCALL_DEBUG=1 to see where, and report it",
        ),
        exits.FAILURE,
    )


def _cut(text: str) -> str:
    if len(text) <= _MAX_TOLD_CHARS:
        return text
    half = _MAX_TOLD_CHARS // 2
    return f"{text[:half]} … {text[-half:]}"


def _masked(text: str) -> str:
    # Imported here: nearly no command fails in a way that nobody thought of.
    from upcall.core.redact import mask

    return mask(text)


def _document(kind: str, code: str, msg: str, recover: str | None) -> dict[str, Any]:
    return {"class": kind, "code": code, "msg": msg, "recover": recover}
