"""Whether the audit is what it was: each line against the one before, all against anchors.

The chain alone shows a change by somebody who did not write all later lines anew. What it
cannot show - a tail that is missing, a chain written anew, a whole file put back - shows
against heads that were noted elsewhere: the anchors.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

from upcall.core.story import words
from upcall.hub.store import epoch
from upcall.hub.store.audit import any_bytes
from upcall.hub.store.read import DAY_MS
from upcall.hub.store.rows import (
    AUDIT_CUT,
    AUDIT_TRIMMED,
    CHAIN_ENCODING,
    CHAIN_START,
    chain_hash,
)
from upcall.model.text import one_line

Kind: TypeAlias = Literal[
    "changed",
    "missing",
    "inserted",
    "swapped",
    "unknown",
    "truncated",
    "rewound",
    "rewritten",
    "removed",
]

MAX_FINDINGS: Final = 50
_SEARCHES: Final = 10

_Line: TypeAlias = tuple[int, int, int, str, str | None, str | None, str, bytes]
_LINES: Final = (
    "SELECT id, encoding, at_ms, event, ask_id, session_id, facts, hash FROM audit ORDER BY id"
)


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """A head of the audit, noted outside of its file.

    Attributes:
        source: where it was noted, in words.
        at_ms: when.
        rows: number of the newest line then.
        head: hash of that line, hex; of a person's note at least its first 8 digits.
        epoch: how often the database had been restored by then, and one; None: not said.
        row_ms: when that line was written; None: not said.
    """

    source: str
    at_ms: int
    rows: int
    head: str
    epoch: int | None = None
    row_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        kind: stable name.
        row: the line at which it shows.
        msg: in words.
    """

    kind: Kind
    row: int
    msg: str


@dataclass(slots=True)
class Verdict:
    """What was found.

    Attributes:
        rows: number of the newest line.
        head: its hash (hex).
        at_ms: its time.
        first: number of the oldest line that is kept.
        cut: number of the newest line that was removed for its age; 0: none was.
        problems: what is wrong, by row; none: all is well as far as can be told.
        notes: what is not wrong, and worth to know.
        anchors: how many anchors agree, by source.
        unread: anchors that say nothing of this file as it is, and why.
    """

    rows: int = 0
    head: str = ""
    at_ms: int | None = None
    first: int = 0
    cut: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(
    connection: sqlite3.Connection,
    anchors: Sequence[Anchor],
    *,
    said: Callable[[int], str],
) -> Verdict:
    """Look through the audit, and compare it with *anchors*.

    The anchors have to be read before the connection sees its snapshot: the audit grows.

    Args:
        connection: a reader.
        anchors: heads that were noted elsewhere.
        said: a time in words.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    verdict = Verdict()
    connection.execute("BEGIN")
    try:
        with any_bytes(connection):
            kept = _check_chain(connection, verdict, {anchor.rows for anchor in anchors})
            restores = _restores(connection)
            for number, facts in restores:
                event = "begun_anew" if "lines" in facts else "restored"
                verdict.notes.append(f"row {number}: {words(event, facts)}")
            trimmed = _check_trimming(connection, verdict, said)
            _check_anchors(connection, verdict, kept, restores, anchors, said, trimmed)
    finally:
        connection.execute("COMMIT")
    verdict.problems.sort(key=lambda one: one.row)
    return verdict


# --- the chain -----------------------------------------------------------------------------


def _digest(previous: bytes, line: _Line) -> bytes:
    _, _, at_ms, event, ask_id, session_id, facts, _ = line
    return chain_hash(previous, at_ms, event, (ask_id, session_id), facts)


def _check_chain(
    connection: sqlite3.Connection, verdict: Verdict, wanted: set[int]
) -> dict[int, str]:
    """Check each line; return the hashes of the wanted ones that are there."""
    kept: dict[int, str] = {}
    before: _Line | None = None
    previous = CHAIN_START
    excused: set[int] = set()
    for line, after in _pairs(connection):
        number, encoding, at_ms, event, _, _, facts, stored = line
        if before is None and event == AUDIT_CUT:
            _check_cut(verdict, number, facts, stored)
        else:
            last = 0 if before is None else before[0]
            if number != last + 1:
                _gap(verdict, last + 1, number - 1)
            elif number not in excused and _digest(previous, line) != stored:
                excused |= _explain(connection, verdict, previous, line, after)
            if encoding != CHAIN_ENCODING:
                _found(
                    verdict,
                    "unknown",
                    number,
                    f"row {number}: says encoding {encoding}, which this version of upcall "
                    f"does not know (it knows {CHAIN_ENCODING})",
                )
        verdict.first = verdict.first or number
        if number in wanted:
            kept[number] = stored.hex()
        before, previous = line, stored
        verdict.rows, verdict.head, verdict.at_ms = number, stored.hex(), at_ms
    return kept


def _pairs(connection: sqlite3.Connection) -> Iterator[tuple[_Line, _Line | None]]:
    """Yield each line with the one after it."""
    former: _Line | None = None
    for row in connection.execute(_LINES):
        line: _Line = (*row[:7], bytes(row[7]))
        if former is not None:
            yield former, line
        former = line
    if former is not None:
        yield former, None


def _check_cut(verdict: Verdict, number: int, facts: str, stored: bytes) -> None:
    said = _object(facts)
    if said.get("last_hash") != stored.hex() or said.get("lines") != number:
        _found(
            verdict,
            "changed",
            number,
            f"row {number}: the line that stands for what was removed for its age was changed",
        )
    verdict.cut = number


def _check_trimming(
    connection: sqlite3.Connection, verdict: Verdict, said: Callable[[int], str]
) -> int:
    """Check that a line says of the first rows that they were removed for their age.

    That line is part of the chain; the one in their place is not.

    Returns:
        Since when (wall clock, ms) no line can have been removed; 0 if none was.
    """
    if not verdict.cut:
        return 0
    which = "row 1 was" if verdict.cut == 1 else f"rows 1 to {verdict.cut} were"
    found = connection.execute(
        "SELECT id, at_ms, facts FROM audit WHERE event = ? ORDER BY id DESC", (AUDIT_TRIMMED,)
    )
    for _, at_ms, facts in found:
        told = _object(facts)
        days = _whole(told, "days")
        if _whole(told, "lines") == verdict.cut and days > 0:
            when, unit = said(at_ms), "day" if days == 1 else "days"
            verdict.notes.append(f"{which} removed on {when}, as older than {days} {unit}")
            return int(at_ms) - days * DAY_MS
    msg = f"{which} removed, and no line says that it was for their age"
    _found(verdict, "removed", verdict.cut, msg)
    return 0


def _gap(verdict: Verdict, first: int, last: int) -> None:
    if last < first:
        _found(verdict, "inserted", last + 1, f"row {last + 1} is before the first that can be")
        return
    which = f"row {first} is" if first == last else f"rows {first} to {last} are"
    _found(verdict, "missing", first, f"{which} missing")


def _explain(
    connection: sqlite3.Connection,
    verdict: Verdict,
    previous: bytes,
    line: _Line,
    after: _Line | None,
) -> set[int]:
    """Say what is wrong with a line that does not follow; return rows that need no word."""
    number, stored = line[0], line[7]
    if after is not None and after[0] == number + 1:
        if _digest(previous, after) == after[7]:
            if _digest(after[7], line) == stored:
                msg = f"rows {number} and {number + 1} were swapped"
                _found(verdict, "swapped", number, msg)
                return {number + 1, number + 2}
            msg = f"row {number} was inserted: row {number + 1} follows from row {number - 1}"
            _found(verdict, "inserted", number, msg)
            return {number + 1}
        if _digest(stored, after) != after[7] and len(verdict.problems) < _SEARCHES:
            home = _home(connection, line)
            if home is not None and home != number - 1:
                msg = f"row {number} is not in its place: it follows from row {home}"
                _found(verdict, "swapped", number, msg)
                # What comes after it is measured against a hash that is out of place.
                return {number + 1}
    _found(
        verdict,
        "changed",
        number,
        f"row {number} was changed, or lines before it were removed: it does not follow from "
        f"row {number - 1}"
        if number > 1
        else "row 1 was changed: nothing comes before it",
    )
    return set()


def _home(connection: sqlite3.Connection, line: _Line) -> int | None:
    """Return the row that *line* follows from, wherever that is."""
    for number, stored in connection.execute("SELECT id, hash FROM audit"):
        if _digest(bytes(stored), line) == line[7]:
            return int(number)
    return None


# --- anchors -------------------------------------------------------------------------------


def _restores(connection: sqlite3.Connection) -> list[tuple[int, dict[str, Any]]]:
    return [
        (number, _object(facts))
        for number, facts in connection.execute(
            "SELECT id, facts FROM audit WHERE event IN ('restored', 'begun_anew') ORDER BY id"
        )
    ]


def _check_anchors(
    connection: sqlite3.Connection,
    verdict: Verdict,
    kept: dict[int, str],
    restores: list[tuple[int, dict[str, Any]]],
    anchors: Sequence[Anchor],
    said: Callable[[int], str],
    trimmed_ms: int,
) -> None:
    now = epoch.epoch_of(connection) or 1
    agreed = max((one.rows for one in anchors if _agrees(one, kept)), default=0)
    worst: dict[str, Anchor] = {}
    for anchor in sorted(anchors, key=lambda one: (one.rows, one.at_ms)):
        where = f"{anchor.source} of {said(anchor.at_ms)}"
        if _went_early(anchor, verdict.cut, trimmed_ms):
            worst.setdefault("early", anchor)
        elif _agrees(anchor, kept):
            verdict.anchors[anchor.source] = verdict.anchors.get(anchor.source, 0) + 1
        elif not anchor.head or anchor.rows == 0:
            continue
        elif anchor.rows < verdict.first:
            verdict.unread.append(f"{where}: row {anchor.rows} was removed for its age")
        elif (since := _replaced(anchor, now, restores)) is not None:
            verdict.unread.append(f"{where}: row {anchor.rows} was replaced at row {since}")
        elif anchor.epoch is not None and anchor.epoch > now:
            worst["rewound"] = anchor
        elif anchor.rows > verdict.rows:
            worst["beyond"] = anchor
        else:
            # The oldest one that does not agree says most.
            worst.setdefault("rewritten", anchor)
    early = worst.get("early")
    if early is not None:
        where = f"{early.source} of {said(early.at_ms)}"
        msg = f"row {early.rows}, which {where} noted, was removed before its time"
        _found(verdict, "removed", early.rows, msg)
    _tell_rewritten(verdict, worst.get("rewritten"), agreed, kept, said)
    beyond = worst.get("rewound") or worst.get("beyond")
    if beyond is not None:
        _tell_beyond(connection, verdict, beyond, said)


def _went_early(anchor: Anchor, cut: int, trimmed_ms: int) -> bool:
    """Tell whether the line that was noted was too young to be removed for its age."""
    if not trimmed_ms or anchor.row_ms is None:
        return False
    return anchor.rows <= cut and anchor.row_ms >= trimmed_ms


def _agrees(anchor: Anchor, kept: dict[int, str]) -> bool:
    found = kept.get(anchor.rows)
    return found is not None and len(anchor.head) >= 8 and found.startswith(anchor.head)


def _replaced(
    anchor: Anchor, now: int, restores: list[tuple[int, dict[str, Any]]]
) -> int | None:
    """Return the row of the restore that replaced what *anchor* speaks of, if one did."""
    if anchor.epoch is not None and anchor.epoch >= now:
        return None
    for number, facts in restores:
        began, kept = _whole(facts, "epoch"), _whole(facts, "from_lines")
        replaced = _whole(facts, "lines") or _whole(facts, "replaced_lines")
        # A person's note does not say the epoch: it is of before if the replaced one had it.
        before = anchor.rows <= replaced if anchor.epoch is None else began > anchor.epoch
        if before and anchor.rows > kept:
            return number
    return None


def _tell_rewritten(
    verdict: Verdict,
    anchor: Anchor | None,
    agreed: int,
    kept: dict[int, str],
    said: Callable[[int], str],
) -> None:
    if anchor is None:
        return
    where = f"{anchor.source} of {said(anchor.at_ms)}"
    since = f"after row {agreed} and " if 0 < agreed < anchor.rows else ""
    if anchor.rows in kept:
        msg = (
            f"rewritten: row {anchor.rows} is not what it was: {where} noted "
            f"{anchor.head[:16]}, the file has {kept[anchor.rows][:16]}; lines were written "
            f"anew {since}at or before row {anchor.rows}"
        )
        _found(verdict, "rewritten", anchor.rows, msg)
    else:
        msg = f"row {anchor.rows}, which {where} noted, is missing"
        _found(verdict, "missing", anchor.rows, msg)


def _tell_beyond(
    connection: sqlite3.Connection,
    verdict: Verdict,
    anchor: Anchor,
    said: Callable[[int], str],
) -> None:
    where = f"{anchor.source} of {said(anchor.at_ms)}"
    last = "it is empty" if verdict.at_ms is None else f"its last is row {verdict.rows}"
    lost = f"rows {verdict.rows + 1} to {anchor.rows}"
    if _is_ahead(connection, verdict):
        msg = (
            f"truncated: {lost} were cut off: {where} noted row {anchor.rows}, and {last}, "
            "though other tables of the file are newer"
        )
        _found(verdict, "truncated", verdict.rows + 1, msg)
    elif verdict.rows == 0:
        msg = f"removed: the audit is empty, and {where} noted row {anchor.rows}"
        _found(verdict, "removed", 1, msg)
    else:
        when = "" if verdict.at_ms is None else f" ({said(verdict.at_ms)})"
        msg = (
            f"rewound: the whole file is as it was at row {verdict.rows}{when}: {where} noted "
            f"row {anchor.rows}; {lost} are gone"
        )
        _found(verdict, "rewound", verdict.rows + 1, msg)


def _is_ahead(connection: sqlite3.Connection, verdict: Verdict) -> bool:
    """Tell whether the file holds an ask's step that the audit's last lines should have."""
    at_ms = verdict.at_ms or 0
    for event, query in (
        ("raised", "SELECT public_id FROM ask a WHERE a.raised_ms >= ?"),
        (
            "claimed",
            "SELECT a.public_id FROM ask a JOIN claim c ON c.ask = a.id WHERE c.at_ms >= ?",
        ),
        (
            "closed",
            "SELECT public_id FROM ask a WHERE a.state = 'closed' AND a.closed_ms >= ?",
        ),
    ):
        told = "(SELECT 1 FROM audit WHERE event = ? AND ask_id = a.public_id)"
        row = connection.execute(
            f"{query} AND NOT EXISTS {told} LIMIT 1", (at_ms, event)
        ).fetchone()
        if row is not None:
            return True
    return False


def _whole(facts: dict[str, Any], name: str) -> int:
    value = facts.get(name)
    return value if isinstance(value, int) else 0


def _object(facts: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(facts)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _found(verdict: Verdict, kind: Kind, row: int, msg: str) -> None:
    if len(verdict.problems) < MAX_FINDINGS:
        verdict.problems.append(Problem(kind, row, one_line(msg, 600)))
