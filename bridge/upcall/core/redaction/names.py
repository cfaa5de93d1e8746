"""Which names say that their value is a secret, and which values cannot be one."""

import re
from typing import Final, Literal, TypeAlias

Grade: TypeAlias = Literal["password", "secret", "weak"]
"""How much a name says: anything is a password; a secret has eight characters; what a weak
name holds is one only if it looks random."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PASSWORDS: Final = ("password", "passwd", "passphrase", "passcode", "passwort", "pwd")
_SECRETS: Final = (
    "secret", "secrets", "token", "credential", "credentials", "jwt", "psk", "pat", "apikey",
)  # fmt: skip
_SECRET_ENDS: Final = (
    "secret", "token", "apikey", "secretkey", "accesskey", "privatekey", "accountkey",
    "sharedkey", "authkey", "masterkey", "encryptionkey", "signingkey",
)  # fmt: skip
_PASSES: Final = re.compile(
    r"(?:db|user|root|admin|my|require|ssh|smtp|mail|ftp|proxy|key|store)pass"
)
# `KEY` alone may be anything; after one of these words it opens something.
_KEYS: Final = _words(
    "access account admin aes api app application auth authentication authorization cipher"
    " client consumer data deploy encrypt encryption hmac instrumentation integration jwt"
    " license master private role rsa secret server service session shared sign signing ssh"
    " storage subscription user webhook write"
)
_OTHER_KEYS: Final = _words(
    "public primary foreign partition sort cache hash row map lookup group unique dict host"
    " known idempotency object index translation i18n hot arrow"
)
# These tell where one is in a list, or mark a place in a text.
_OTHER_TOKENS: Final = _words(
    "page next previous prev continuation sync cancellation cancel cursor bos eos pad unk mask"
    " sep cls stop special end start input output max min total prompt"
)
_WEAK: Final = _words("key auth sig signature cookie sid sessionid pass bearer code")
_BEHIND: Final = _words(
    "base old new prod production dev staging test value plain plaintext text live b64 base64"
    " raw hex current previous default secondary backup"
)

_NOTHING: Final = _words(
    "true false null none nil undefined yes no on off required optional string number integer"
    " boolean bytes empty unset missing invalid expired valid hidden redacted masked enabled"
    " disabled default auto basic bearer digest here file stdin prompt env keyring"
    " inherit write read str int bool any secretstr"
)
# What a description says of a value, and what a careless value is.
_VOCABULARY: Final = _words(
    "admin apikey auth authorization cookie credentials key password secret session token user"
    " username value"
)
_PLACEHOLDER: Final = re.compile(
    r"(?i)(?:x{3,15}|\*+|\.{2,}|_+|-+|#+|…|your[_-]?\w.*|my[_-](?:secret|token|password|key)"
    r"|change[_-]?me|replace[_-]?me|todo|\{\{.*|%\w+%|%[sdr]|@.*|env[:.].*|file[:=].*|arn:.*"
    r"|op:/.*|vault:.*|secretsmanager:.*|process\.env\..*|os\.environ.*|secrets\.\w+|id=.*"
    r"|type=.*|ref\+.*|sha\d+[:-].*)\Z"
)
_PATH: Final = re.compile(r"(?:\.{0,2}/|~/|[A-Za-z]:/|[a-z][a-z0-9+.-]*://)")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+\Z")
_WORDS: Final = re.compile(r"[A-Za-z]?[a-z]*(?:[-_./:,][A-Za-z]?[a-z]*)*\Z")
_DATE: Final = re.compile(r"\d{1,4}[-/.:]\d{1,2}[-/.:]\d{1,4}(?:[T ]?[\d:.+Z-]*)?\Z")
_VERSION: Final = re.compile(r"[v^~>=<]*\d+(?:\.\d+){1,3}(?:[-+][\w.]+)?\Z")
_HEX: Final = re.compile(r"[0-9A-Fa-f]{32,}\Z")
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/_.~%-]{20,}={0,3}\Z")
_LOOKED_AT: Final = 160
_REPEATED_CHARS: Final = 16


def grade_of(name: str) -> Grade | None:
    """Return what *name* says of its value, or None if that is no secret."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _BEHIND):
        parts.pop()
    if not parts:
        return None
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if (
        last.endswith(_PASSWORDS)
        or last == "pw"
        or (last == "pass" and before)
        or _PASSES.fullmatch(last)
    ):
        return "password"
    if last == "key" and before in _KEYS:
        return "secret"
    if last == "key" and before in _OTHER_KEYS:
        return None
    if last == "token" and before in _OTHER_TOKENS:
        return None
    if last in _SECRETS or last.endswith(_SECRET_ENDS):
        return "secret"
    return "weak" if last in _WEAK else None


def is_nothing(value: str, *, described: bool = True) -> bool:
    """Tell whether *value* is plainly no secret: a word of the language, a place, a blank.

    Where it may be *described*, a word such as `password` is no value.
    """
    if value.lower() in _NOTHING or (described and value.lower() in _VOCABULARY):
        return True
    if _PLACEHOLDER.match(value[:_LOOKED_AT]):
        return True
    if len(value) < _REPEATED_CHARS and len(set(value)) == 1:
        return True
    return _PATH.match(value) is not None and not is_random(value.lstrip("./~"))


def is_words(value: str) -> bool:
    """Tell whether *value* is made of plain words, such as `my-registry-name`."""
    return _WORDS.match(value[:_LOOKED_AT]) is not None


def is_code(value: str) -> bool:
    """Tell whether *value*, written without quotes, names something, as `self.token` does."""
    return _DOTTED.match(value[:_LOOKED_AT]) is not None


def looks_secret(value: str, least: int = 8) -> bool:
    """Tell whether *value*, beside a word for a secret, is more than a word or a number."""
    value = value[:_LOOKED_AT]
    if len(value) < least or value.isdigit() or _DATE.match(value) or _VERSION.match(value):
        return False
    digit = any(char.isdigit() for char in value)
    letter = any(char.isalpha() for char in value)
    sign = any(not char.isalnum() and char not in "-_./:," for char in value)
    if letter and (digit or sign):
        return True
    return is_random(value)


def is_random(value: str) -> bool:
    """Tell whether nobody would write *value* by hand: long, and of all kinds of characters."""
    value = value[:_LOOKED_AT]
    if _HEX.match(value):
        return True
    if not _RANDOM.match(value):
        return False
    kinds = (
        any(char.isdigit() for char in value)
        + any(char.isupper() for char in value)
        + any(char.islower() for char in value)
    )
    if kinds < 3 and not (kinds == 2 and len(value) >= 32):
        return False
    # Words with signs between are names of something, even with a number in them.
    longest = max(map(len, re.split(r"[-_./=%~]", value)))
    return longest >= 16 and len(set(value)) >= 10
