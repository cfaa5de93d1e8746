"""`upcall log --verify`: whether the audit is what it was, as far as that can be told."""

from __future__ import annotations

import os
import time

from upcall.cli import control, exits, screen
from upcall.cli.errors import Usage
from upcall.hub import anchors
from upcall.hub.store import epoch
from upcall.hub.store.errors import StoreError
from upcall.hub.store.peek import reading
from upcall.hub.store.verify import Anchor, Problem, Verdict
from upcall.hub.store.verify import verify as look
from upcall.line import HubLine, LineError
from upcall_discovery import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

_HUB_WITHIN_S = 3.0
_MIN_DIGITS = 8
_HEX = frozenset("0123456789abcdef")


def verify(given: argparse.Namespace) -> int:
    """Check the audit; exit 1 if something is wrong."""
    control.require_control()
    state = paths.state_dir()
    path = paths.db_path(state)
    # First the anchors, then the file: the audit grows meanwhile.
    found, unread = _anchors(state, path, given.anchor)
    try:
        with reading(path) as connection:
            verdict = look(connection, found, said=_said)
    except StoreError as error:
        if error.code != "store_missing" or not found:
            raise
        verdict = _gone(path, found)
    unread += verdict.unread
    if given.json:
        screen.document(_document(verdict, unread))
    else:
        _tell(verdict, unread)
    return exits.OK if verdict.ok else exits.FAILURE


def _anchors(state: str, path: str, noted: list[str]) -> tuple[list[Anchor], list[str]]:
    found = [_given(text) for text in noted]
    beside = epoch.read(path)
    if beside is not None and beside.head:
        found.append(
            Anchor(
                source="hub.db.epoch",
                at_ms=int(os.stat(path + epoch.SUFFIX).st_mtime * 1000),
                rows=beside.lines,
                head=beside.head,
                epoch=beside.epoch,
            )
        )
    unread: list[str] = []
    for read in (anchors.from_file, anchors.from_journal):
        some, trouble = read(state)
        found += some
        unread += trouble
    found += _of_hub()
    return found, unread


def _of_hub() -> list[Anchor]:
    """Return what a running hub has in its memory."""
    try:
        with HubLine.connect("control", timeout_s=_HUB_WITHIN_S) as line:
            status = line.request("status", timeout_s=_HUB_WITHIN_S)
    except LineError:
        return []
    head = (status.get("store") or {}).get("audit") or {}
    if not isinstance(head.get("rows"), int) or not isinstance(head.get("hash"), str):
        return []
    now_ms = int(time.time() * 1000)
    return [Anchor(source="running hub", at_ms=now_ms, rows=head["rows"], head=head["hash"])]


def _given(text: str) -> Anchor:
    """Return what a person noted, such as `120:3f2a…`, with at least 8 digits of the hash."""
    rows, colon, head = text.strip().removeprefix("audit ").partition(":")
    head = head.lower()
    if (
        not colon
        or not (rows.isascii() and rows.isdecimal() and 0 < len(rows) < 12)
        or not _MIN_DIGITS <= len(head) <= 64
        or not _HEX.issuperset(head)
    ):
        raise Usage(
            f"--anchor: {text!r} is no anchor",
            "write ROW:HASH as it was noted, with at least 8 digits of the hash",
        )
    now_ms = int(time.time() * 1000)
    return Anchor(source="your note", at_ms=now_ms, rows=int(rows), head=head)


def _gone(path: str, found: list[Anchor]) -> Verdict:
    newest = max(found, key=lambda anchor: anchor.rows)
    msg = (
        f"removed: there is no {screen.visible(path)}, and {newest.source} of "
        f"{_said(newest.at_ms)} noted row {newest.rows}"
    )
    return Verdict(problems=[Problem("removed", 1, msg)])


def _said(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", screen.local_time(at_ms))


def _document(verdict: Verdict, unread: list[str]) -> dict[str, Any]:
    return {
        "ok": verdict.ok,
        "rows": verdict.rows,
        "first": verdict.first,
        "head": verdict.head,
        "at_ms": verdict.at_ms,
        "problems": [
            {"kind": one.kind, "row": one.row, "msg": one.msg} for one in verdict.problems
        ],
        "anchors": verdict.anchors,
        "unread": unread,
        "notes": verdict.notes,
    }


def _tell(verdict: Verdict, unread: list[str]) -> None:
    for one in verdict.problems:
        screen.out(f"WRONG  {screen.visible(one.msg)}")
    if verdict.at_ms is not None:
        kept = f"rows {verdict.first} to {verdict.rows}"
        state = "each follows from the one before" if verdict.ok else "not whole"
        screen.out(f"audit: {kept}, {state}")
        screen.out(f"newest: {verdict.rows}:{verdict.head} of {_said(verdict.at_ms)}")
    elif verdict.ok:
        screen.out("audit: empty")
    agree = [f"{source} {count}" for source, count in verdict.anchors.items()]
    screen.out(f"anchors that agree: {', '.join(agree) or 'none'}")
    for text in [*verdict.notes, *unread]:
        screen.out(f"note: {screen.visible(text)}")
    if verdict.ok and not set(verdict.anchors) - {"hub.db.epoch", anchors.FILE, "running hub"}:
        screen.out(
            "note: no anchor outside of your own files agrees; who can write those could "
            "have written all of it anew"
        )
