"""Values that a name gives away: environment, JSON, YAML, TOML, queries, flags, XML."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from upcall.core.redaction.names import (
    Grade,
    grade_of,
    is_code,
    is_nothing,
    is_random,
    is_words,
    looks_secret,
)
from upcall.core.redaction.spans import Span

_KEYWORDS: Final = (
    "pass", "pw", "secret", "token", "key", "auth", "cred", "sig", "jwt", "psk", "pat",
    "cookie", "sess", "sid", "bearer", "code",
)  # fmt: skip
_NAME_CHARS: Final = 64
_VALUE_CHARS: Final = 160
_PHRASE_WORDS: Final = 8
_SET_CHARS: Final = 120
_IN_NAME: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_NAME_REST: Final = re.compile(r"[A-Za-z0-9_.-]{0,64}")
_SIGN: Final = re.compile(
    r"(?P<quote>\\*[\"'])?\]?[ \t]{0,8}(?P<sign>:=|=>|={1,3}|:|>)(?P<gap>[ \t]{0,8})"
)
_BLANKS: Final = re.compile(r"[ \t]{1,8}")
_OPENING: Final = re.compile(r"(?:[bfrulBFRUL]{1,2}(?=[\"'])|\$(?='))?(\\*[\"'])?")
# A value ends where the shell, a quotation or the next pair of a list would begin. A dollar
# sign within is part of a password as often as it begins a name.
_VALUE: Final = re.compile(
    r"[^\s\"'`\\$(){};|&<>]{1,160}(?:\$(?![({])[^\s\"'`\\$(){};|&<>]{0,160}){0,8}"
)
_VALUE_REST: Final = re.compile(r"(?:[^\s\"'`\\$(){};|&<>]|\$(?![({]))*")
_NEXT_PAIR: Final = re.compile(r",[A-Za-z_][\w.-]{0,40}=")
# In quotation marks other signs are part of it too, if nothing there is run or filled in.
_QUOTED: Final = {
    '"': re.compile(r'[^\s"\\$`;|&<>(){}](?:[^"\\$`\n]|\$(?![({])){0,255}(?=\\*")'),
    "'": re.compile(r"[^\s'\\$`;|&<>(){}](?:[^'\\$`\n]|\$(?![({])){0,255}(?=\\*')"),
}
_SYNTAX: Final = re.compile(r"[(){};|&<>]")
_SET: Final = re.compile(
    r"(?:\bsetx?|\bset-value)[ \t]+(?:-{1,2}\w+[ \t]+){0,2}[^\s;|&]{0,100}\Z"
)
# `name: DB_PASSWORD`, then `value: ...`, as manifests of containers have it.
_VALUE_BELOW: Final = re.compile(
    r"\\*[\"']?[ \t]{0,8},?(?:\\+[nr]|\s){0,80}\\*[\"']?[vV]alue\\*[\"']?"
    r"[ \t]{0,4}[:=][ \t]{0,4}"
)
_SPOKEN: Final = re.compile(
    r"(?i)\b(?:identified[ \t]+by|password|passwd)[ \t]+'([^'\s\\]{1,200})'"
    r"|\blogin[ \t]+\S{1,100}\s+password[ \t]+([^\s\"'`\\$(){};|&<>\[]{3,200})"
)
_CLOSING: Final = ".,:"


class _Place(NamedTuple):
    """Where a value begins, and how surely it is the value of its name.

    Attributes:
        tight: nothing but a sign stands between the two, or it is in quotation marks.
        flag: it is the next argument.
        equals: nothing but an equals sign stands between the two.
        assigned: an equals sign does, maybe with blanks.
    """

    at: int
    tight: bool
    quote: str
    flag: bool = False
    equals: bool = False
    assigned: bool = False


def find_assigned(text: str, lower: str) -> Iterator[Span]:
    """Yield the values of names that say that they hold a secret.

    Args:
        text: what is looked at.
        lower: the same without capitals, character by character.
    """
    done = 0
    for at in _keywords_in(lower):
        if at < done:
            continue
        start, end = _name_around(text, at)
        done = end
        name = text[start:end]
        grade = grade_of(name)
        if grade is None:
            continue
        place = _place_of(text, start, end, name)
        if place is None:
            continue
        span = _value_at(text, place, grade, name)
        if span is not None:
            yield span
            done = span.end
    if "password" not in lower and "identified" not in lower:
        return
    for spoken in _SPOKEN.finditer(text):
        group = 1 if spoken[1] is not None else 2
        if not is_nothing(spoken[group]):
            yield Span(*spoken.span(group), "secret")


def _keywords_in(lower: str) -> list[int]:
    places = []
    for word in _KEYWORDS:
        at = lower.find(word)
        while at >= 0:
            places.append(at)
            at = lower.find(word, at + len(word))
    places.sort()
    return places


def _name_around(text: str, start: int) -> tuple[int, int]:
    first = start
    while first > 0 and start - first < _NAME_CHARS and text[first - 1] in _IN_NAME:
        first -= 1
    rest = _NAME_REST.match(text, start)
    last = start if rest is None else rest.end()
    # A full stop ends a sentence.
    while last > start and text[last - 1] in ".-":
        last -= 1
    return first, last


def _place_of(text: str, start: int, end: int, name: str) -> _Place | None:
    sign = _SIGN.match(text, end)
    if sign is not None:
        if name.lower().endswith(("sig", "signature")) and (
            sign["sign"] != "=" or text[start - 1 : start] not in {"?", "&", ";"}
        ):
            return None  # of a file or a commit, which is no secret
        if sign["sign"] == ">" and text[start - 1 : start] != "<":
            return None
        opening = _OPENING.match(text, sign.end())
        quote = "" if opening is None or opening[1] is None else opening[1][-1]
        at = sign.end() if opening is None else opening.end()
        tight = sign["sign"] != ":" and sign.end() - end == len(sign["sign"])
        if sign["sign"] == ":" and (text[start - 2 : start] == "//" or _is_cookie(name)):
            return None  # a user of an address, or what `headers` looks at
        if sign["sign"] == ":" and not sign["gap"] and not quote and not sign["quote"]:
            # `host:port` and `scope:name` are no pairs; headers are, and what looks random.
            header = name[:2].lower() == "x-" or name.upper() == name
            run = _VALUE.match(text, at)
            if run is None or not (header or is_random(run[0])):
                return None
        assigned = sign["sign"] in {"=", ":="}
        return _Place(at, tight or bool(quote), quote, equals=tight, assigned=assigned)
    below = _VALUE_BELOW.match(text, end)
    if below is not None:
        opening = _OPENING.match(text, below.end())
        quote = "" if opening is None or opening[1] is None else opening[1][-1]
        at = below.end() if opening is None else opening.end()
        return _Place(at, tight=True, quote=quote)
    blanks = _BLANKS.match(text, end)
    if blanks is None:
        return None
    flag = name.startswith("-")
    if not flag and not _SET.search(text, max(0, start - _SET_CHARS), start):
        return None
    opening = _OPENING.match(text, blanks.end())
    quote = "" if opening is None or opening[1] is None else opening[1][-1]
    at = blanks.end() if opening is None else opening.end()
    if text[at : at + 1] == "-" and not quote:
        return None
    return _Place(at, tight=True, quote=quote, flag=True)


def _is_cookie(name: str) -> bool:
    return name.lower().endswith("cookie")


def _value_at(text: str, place: _Place, grade: Grade, name: str) -> Span | None:
    if text[place.at : place.at + 1] in {"", "["} or text.startswith("-----", place.at):
        return None
    if place.quote in _QUOTED:
        quoted = _QUOTED[place.quote].match(text, place.at)
        if quoted is not None and any(map(str.isspace, quoted[0])):
            return _phrase(quoted, grade, equals=place.equals)
        if quoted is not None:
            is_one = _is_secret(quoted[0], grade, name, place, code=False)
            return Span(*quoted.span(), "secret") if is_one else None
    found = _VALUE.match(text, place.at)
    if found is None:
        return None
    value = found[0] if place.quote else found[0].rstrip("," if place.tight else _CLOSING)
    pair = _NEXT_PAIR.search(value)
    if pair is not None:
        value = value[: pair.start()]
    if not value:
        return None
    after = text[found.end() : found.end() + 1]
    code = not place.quote and (after == "(" or "[" in value or is_code(value))
    if not _is_secret(value, grade, name, place, code=code):
        return None
    end = place.at + len(value)
    if len(found[0]) >= _VALUE_CHARS and pair is None:
        rest = _VALUE_REST.match(text, found.end())
        end = end if rest is None else rest.end()
    return Span(place.at, end, "secret")


def _phrase(quoted: re.Match[str], grade: Grade, *, equals: bool) -> Span | None:
    """Return the words in quotation marks if they are a pass phrase."""
    words = quoted[0].split()
    if grade == "weak" or _SYNTAX.search(quoted[0]):
        return None  # it may be a command, and the mark before it the end of another text
    if (
        grade == "password"
        and len(words) <= _PHRASE_WORDS
        and (equals or any(looks_secret(one, 6) for one in words))
    ):
        return Span(*quoted.span(), "secret")
    if len(words) == 2 and looks_secret(words[1], 16):
        # A scheme and what it needs: `"token": "Bearer abc..."`.
        return Span(quoted.end() - len(words[1]), quoted.end(), "secret")
    return None


def _is_secret(value: str, grade: Grade, name: str, place: _Place, *, code: bool) -> bool:
    described = not (place.flag or place.assigned)
    if grade == "weak":
        is_place = "/" in value and "+" not in value and not value.endswith("=")
        return is_random(value) and not code and not is_place and not is_nothing(value)
    if is_nothing(value, described=described) or value.startswith(("AKIA", "ASIA")):
        return False  # a place, or of the other kind
    if code and not (place.tight and looks_secret(value, 16)):
        return False
    if not place.tight:
        return looks_secret(value, 6 if grade == "password" else 8)
    if grade == "password":
        return len(value) >= 4 and not (value.isdigit() and len(value) < 6)
    if len(value) < 8 or value.isdigit():
        return False
    if is_words(value) and re.search(r"[-_./:,]", value):
        # `--secret my-registry` names one; `API_SECRET=correct-horse` is one.
        return name.upper() == name and not place.flag
    return True
