"""Credentials in what is sent: headers, cookies, addresses, and flags of well-known tools."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

from upcall.core.redaction.names import is_nothing, is_random, is_words, looks_secret
from upcall.core.redaction.spans import Span

_S: Final = r"\s\"'`\\$(){};|&<>"
_AUTHORIZATION: Final = re.compile(
    r"(?i)authorization\\*[\"']?\]?[ \t]{0,8}[:=,]>?[ \t]{0,8}(?:[bfru]?\\*[\"'])?"
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9_-]{1,24})(?:[ \t]{1,8}|%20|\+))?"
    rf"(?P<value>[^{_S}\[][^{_S}]{{3,}})"
)
_BEARER: Final = re.compile(r"(?i)\bbearer(?:[ \t]{1,8}|%20)([A-Za-z0-9._~+/=-]{16,})")
_BASIC: Final = re.compile(r"\b[Bb]asic[ \t]{1,8}([A-Za-z0-9+/_-]{8,}={0,2})")
_FIELD: Final = re.compile(r"\b(?:Signature|Response)=\"?([A-Za-z0-9+/=_%-]{16,})")
_COOKIES: Final = re.compile(
    r"(?i)(?:\b(?:set-)?cookie\\*[\"']?[ \t]{0,8}[:=][ \t]{0,8}\\*[\"']?"
    r"|\s(?:-b|--cookie)[ =]{1,8}[\"']?)([^\n\"'\\]{1,4000})"
)
_COOKIE: Final = re.compile(r"([^\s=;,\[\]]{1,64})=([^;\s\"'`\\$(){}|&<>,\[]{8,})")
_SESSION: Final = re.compile(r"sid|sess|auth|token|csrf|xsrf|jwt|remember|login|secret")
_ATTRIBUTES: Final = frozenset({"path", "domain", "expires", "max-age", "samesite", "version"})
_USERINFO: Final = re.compile(
    rf"://(?P<user>[^\s/:@\"'`\\$(){{}};|&<>\[\]]{{0,256}}):"
    rf"(?P<password>[^{_S}/\[](?:[^{_S}/]|\$(?![({{])){{1,511}})@(?=[^\s@\"'])"
)
_LOGIN_TOKEN: Final = re.compile(r"://([A-Za-z0-9_-]{20,256})@")
_LOGIN: Final = re.compile(
    r"(?<!\S)(?P<flag>-u|-U|--user|--proxy-user|--userpwd|--auth|-a)"
    r"(?:[ \t]{1,8}|=|(?=[\"'\w]))"
    rf"[\"']?(?P<user>[^{_S}:@/]{{1,128}}):(?P<password>[^{_S}\[][^{_S}]{{2,256}})"
)
_SENDERS: Final = re.compile(
    r"(?:curl|wget|https?|xh|aria2c|httpie|hey|ab|siege|lftp|mosquitto_\w+)\b[^\n;|]{0,400}\Z"
)
# A password as an argument of the tools that take one; each with a word that must be there.
_ARGS: Final = r"(?:[ \t]+[^\s|;&]{1,100})"
_GIVEN: Final = rf"[\"']?([^{_S}\[][^{_S}]{{2,}})"
_TOOLS: Final = (
    ("sshpass", re.compile(rf"\bsshpass[ \t]+-p[ \t]?{_GIVEN}")),
    ("mysql", re.compile(rf"\bmysql\w{{0,8}}{_ARGS}{{0,12}}?[ \t]+-p{_GIVEN}")),
    ("mariadb", re.compile(rf"\bmariadb(?:-\w{{1,8}})?{_ARGS}{{0,12}}?[ \t]+-p{_GIVEN}")),
    ("login", re.compile(rf"[a-z][ \t]login{_ARGS}{{0,8}}?[ \t]+-p[ \t]{{1,4}}(?!-){_GIVEN}")),
    ("redis-cli", re.compile(rf"\bredis-cli{_ARGS}{{0,8}}?[ \t]+-a[ \t]{{1,4}}(?!-){_GIVEN}")),
    ("7z", re.compile(rf"\b7z\w?{_ARGS}{{0,8}}?[ \t]+-p{_GIVEN}")),
    ("pass:", re.compile(rf"(?<![\w-])-pass(?:in|out)?[ \t]{{1,4}}pass:{_GIVEN}")),
    (
        "-U",
        re.compile(
            rf"\b(?:smb\w{{1,10}}|rpcclient|net){_ARGS}{{0,8}}?[ \t]+-U[ \t]?[\"']?"
            rf"[^{_S}%]{{1,100}}%([^{_S}\[][^{_S}]{{2,}})"
        ),
    ),
)


def find_sent(text: str, lower: str) -> Iterator[Span]:
    """Yield the credentials of headers, cookies, addresses and flags in *text*.

    Args:
        text: what is looked at.
        lower: the same without capitals, character by character.
    """
    if "authorization" in lower:
        yield from _authorization(text)
    if "bearer" in lower:
        for found in _BEARER.finditer(text):
            if not is_words(found[1]) or is_random(found[1]):
                yield Span(*found.span(1), "secret")
    if "basic" in lower:
        for found in _BASIC.finditer(text):
            if _is_login(found[1]):
                yield Span(*found.span(1), "secret")
    if "signature=" in lower or "response=" in lower:
        for found in _FIELD.finditer(text):
            if is_random(found[1]):
                yield Span(*found.span(1), "secret")
    if "cookie" in lower or " -b" in text:
        yield from _cookies(text)
    if "://" in text:
        yield from _addresses(text)
    if ":" in text and (" -" in text or "\t-" in text or text[:1] == "-" or "\n-" in text):
        yield from _logins(text)
    for hint, pattern in _TOOLS:
        if hint in text:
            for found in pattern.finditer(text):
                if not is_nothing(found[1], described=False):
                    yield Span(*found.span(1), "password")


def _authorization(text: str) -> Iterator[Span]:
    for found in _AUTHORIZATION.finditer(text):
        value = found["value"].rstrip(",.")
        start = found.start("value")
        if found["scheme"] is None:
            # A scheme alone, or a word of a sentence about it.
            if not looks_secret(value) or is_nothing(value):
                continue
        elif (
            # A sentence about the header goes on; a value ends with its quotation.
            is_words(value)
            and len(value) < 16
            and text[found.end("value") : found.end("value") + 1] not in {"'", '"', "\\"}
        ):
            continue
        if "=" in value and '"' in text[start : start + len(value) + 1]:
            continue
        yield Span(start, start + len(value), "secret")


def _is_login(value: str) -> bool:
    """Tell whether *value* is the base64 of a user and a password."""
    try:
        known = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in known[1:] and known.isascii()


def _cookies(text: str) -> Iterator[Span]:
    for found in _COOKIES.finditer(text):
        for pair in _COOKIE.finditer(text, *found.span(1)):
            name, value = pair[1].lower(), pair[2]
            if name in _ATTRIBUTES or is_nothing(value):
                continue
            if not _SESSION.search(name) and not looks_secret(value):
                continue
            yield Span(*pair.span(2), "cookie")


def _addresses(text: str) -> Iterator[Span]:
    for found in _USERINFO.finditer(text):
        if not is_nothing(found["password"], described=False):
            yield Span(*found.span("password"), "password")
    for found in _LOGIN_TOKEN.finditer(text):
        if is_random(found[1]):
            yield Span(*found.span(1), "token")


def _logins(text: str) -> Iterator[Span]:
    for found in _LOGIN.finditer(text):
        password = found["password"]
        if is_nothing(password, described=False) or password.isdigit():
            continue
        line = text.rfind("\n", 0, found.start()) + 1
        sends = _SENDERS.search(text, max(line, found.start() - 400), found.start())
        if found["flag"] == "-a" and not sends:
            continue
        if sends or (looks_secret(password) and "/" not in password):
            yield Span(*found.span("password"), "password")
