"""Takes secrets out of what leaves the process: logs, errors, status, standard streams.

A secret is known by its value. What is removed is every run of eight or more of its
characters, as they are or percent-encoded, JSON- or Python-escaped, in base64 or hex.

A run of eight characters holds one whole block of five that begins at a multiple of four, so
an index of those few blocks finds every run, and costs little with thousands of tokens.
"""

import base64
import binascii
import html
import io
import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final, TextIO
from urllib.parse import quote, quote_plus, unquote, urlsplit

from upcall.core.redact import mask
from upcall.model.text import visible

RUN_CHARS: Final = 8
"""Shorter pieces of a secret stay: they would take ordinary words with them."""
MIN_CHARS: Final = 6
"""A secret that is shorter is none."""
MAX_PASSING: Final = 1024
HIDDEN: Final = "***"
_BLOCK: Final = 5
_STEP: Final = 4
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{11,}")
_HEX: Final = re.compile(r"[0-9A-Fa-f]{16,}")
_PERCENT: Final = re.compile(r"(?:[A-Za-z0-9_.~+-]|%[0-9A-Fa-f]{2}){8,}")
_URL_SAFE: Final = str.maketrans("-_", "+/")
_DEEPEST: Final = 8


class Scrubber:
    """Removes known secrets, and what looks like one, from text that leaves the process."""

    __slots__ = ("_blocks", "_held", "_passing")

    def __init__(self) -> None:
        self._blocks: dict[str, tuple[tuple[str, int], ...]] = {}
        self._held: set[str] = set()
        self._passing: OrderedDict[str, None] = OrderedDict()

    def add(self, secret: str) -> None:
        """Know *secret* in all its forms from now on, for as long as the process lives."""
        if len(secret) < MIN_CHARS:
            return
        for form in {secret, *_escaped(secret), *_encoded(secret)}:
            self._know(form)

    def add_login(self, url: str) -> None:
        """Know user name and password in *url*, each by itself and as they are sent."""
        parts = urlsplit(url)
        if parts.username is None:
            return
        user, password = unquote(parts.username), unquote(parts.password or "")
        for one in (f"{user}:{password}", password, parts.password or ""):
            self.add(one)

    def add_passing(self, secret: str) -> None:
        """Know a secret of which there are many: of the last 1,024, and until `forget`.

        Args:
            secret: one that ends by itself, such as a login code or a session's token.
        """
        if len(secret) < MIN_CHARS or secret in self._held:
            return
        if secret in self._passing:
            self._passing.move_to_end(secret)
            return
        self._passing[secret] = None
        self._know(secret)
        if len(self._passing) > MAX_PASSING:
            self._unknow(self._passing.popitem(last=False)[0])

    def hold(self, secret: str) -> None:
        """Know a session's token until `release` is called for it."""
        if len(secret) >= MIN_CHARS:
            self._passing.pop(secret, None)
            self._held.add(secret)
            self._know(secret)

    def release(self, secret: str) -> None:
        """The token opens nothing any more; it is still hidden for a while."""
        if secret in self._held:
            self._held.discard(secret)
            self.add_passing(secret)

    def hide(self, text: str) -> str:
        """Return *text* without known secrets and without what looks like a credential."""
        return mask(self._without_known(text))

    def clean(self, text: str) -> str:
        """Return *text* on one line, without secrets and without control characters."""
        return visible(self.hide(text))

    def hide_in(self, value: Any, *, depth: int = 0) -> Any:
        """Return a copy of a document (as JSON has it) in which every text is hidden."""
        if isinstance(value, str):
            return self.hide(value)
        if depth >= _DEEPEST:
            return value
        if isinstance(value, dict):
            return {name: self.hide_in(one, depth=depth + 1) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide_in(one, depth=depth + 1) for one in value]
        return value

    # --- finding ---------------------------------------------------------------------------

    def _know(self, form: str) -> None:
        for at in range(0, len(form) - _BLOCK + 1, _STEP):
            block = form[at : at + _BLOCK]
            known = self._blocks.get(block, ())
            if (form, at) not in known:
                self._blocks[block] = (*known, (form, at))

    def _unknow(self, form: str) -> None:
        for at in range(0, len(form) - _BLOCK + 1, _STEP):
            block = form[at : at + _BLOCK]
            left = tuple(one for one in self._blocks.get(block, ()) if one != (form, at))
            if left:
                self._blocks[block] = left
            else:
                self._blocks.pop(block, None)

    def _without_known(self, text: str) -> str:
        if not self._blocks or len(text) < _BLOCK:
            return text
        spans = [*self._runs(text), *self._encoded_runs(text)]
        if not spans:
            return text
        spans.sort()
        parts: list[str] = []
        done = 0
        for start, end in spans:
            if start > done or not parts:
                parts += [text[done:start], HIDDEN]
            done = max(done, end)
        return "".join((*parts, text[done:]))

    def _runs(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where *text* has a run of a known form."""
        blocks, done = self._blocks, 0
        # One pass without a call for each place: nearly all text has no hit at all.
        hits = [i for i in range(len(text) - _BLOCK + 1) if text[i : i + _BLOCK] in blocks]
        for at in hits:
            if at + _BLOCK <= done:
                continue
            for form, offset in blocks.get(text[at : at + _BLOCK], ()):
                first, until = _grown(text, at, form, offset)
                if until - first >= min(RUN_CHARS, len(form)):
                    done = max(done, until)
                    yield first, until

    def _encoded_runs(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the words of *text* that hold a known secret once they are decoded."""
        for found in _BASE64.finditer(text):
            word = found[0].translate(_URL_SAFE)
            if any(self._has_run(decoded) for decoded in _from_base64(word)):
                yield found.span()
        for found in _HEX.finditer(text):
            if any(self._has_run(decoded) for decoded in _from_hex(found[0])):
                yield found.span()
        if "%" in text:
            for found in _PERCENT.finditer(text):
                if "%" in found[0] and self._has_run(_from_percent(found[0])):
                    yield found.span()

    def _has_run(self, text: str) -> bool:
        return next(self._runs(text), None) is not None


class ScrubbedStream(io.TextIOBase):
    """A text stream whose every line goes through a scrubber before it leaves."""

    def __init__(self, stream: TextIO, scrubber: Scrubber) -> None:
        self._stream = stream
        self._scrubber = scrubber
        self._begun = ""

    def write(self, text: str) -> int:
        """Take *text*; whole lines are written."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._stream.write(self._scrubber.clean(line) + "\n")
        return len(text)

    def flush(self) -> None:
        """Write out what is whole; the rest of a line waits for its end."""
        if not self.closed:
            self._stream.flush()

    def finish(self) -> None:
        """Write what is left of a line."""
        if self._begun:
            self._stream.write(self._scrubber.clean(self._begun))
            self._begun = ""
        self._stream.flush()

    def isatty(self) -> bool:
        """Tell whether a terminal is behind it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor behind it."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Tell that it can be written."""
        return True


def _grown(text: str, at: int, form: str, offset: int) -> tuple[int, int]:
    """Return how far *text* goes on as *form* does, both ways from a block they share."""
    first, start = at, offset
    while first > 0 and start > 0 and text[first - 1] == form[start - 1]:
        first, start = first - 1, start - 1
    until, end = at + _BLOCK, offset + _BLOCK
    while until < len(text) and end < len(form) and text[until] == form[end]:
        until, end = until + 1, end + 1
    return first, until


def _escaped(secret: str) -> Iterable[str]:
    """Return *secret* as JSON, Python, HTML and addresses write it."""
    data = secret.encode("utf-8", "surrogatepass")
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield from (repr(secret)[1:-1], repr(data)[2:-1], html.escape(secret), visible(secret))
    yield data.decode("latin-1")
    for shown in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield shown
        yield re.sub("%..", lambda found: found[0].lower(), shown)


def _encoded(secret: str) -> Iterable[str]:
    """Return *secret* in base64, whatever stands before and after it, and in hex."""
    data = secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + data).decode("ascii").rstrip("=")
        # The characters that depend on a neighbour are not the secret's alone.
        sure = coded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        yield sure
        yield sure.translate(str.maketrans("+/", "-_"))
    yield from (data.hex(), data.hex().upper())


def _from_base64(word: str) -> Iterator[str]:
    for skip in range(4):
        part = word[skip : skip + (len(word) - skip) // 4 * 4]
        try:
            yield base64.b64decode(part).decode("latin-1")
        except binascii.Error:
            continue


def _from_hex(word: str) -> Iterator[str]:
    for skip in range(2):
        part = word[skip : skip + (len(word) - skip) // 2 * 2]
        yield bytes.fromhex(part).decode("latin-1")


def _from_percent(word: str) -> str:
    return re.sub("%(..)", lambda found: chr(int(found[1], 16)), word.replace("+", " "))
