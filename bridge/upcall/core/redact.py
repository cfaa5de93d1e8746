"""Masks recognised credentials in text. A mask has a kind and a length, never content.

Masking never changes what runs: only what is kept, logged or shown of it. A mask covers only
a run without white space or shell syntax, so that the shape of a command stays readable.
"""

import re
from typing import Final

# Each pattern's group 1 is what is masked. A run is entered at its beginning only and names
# are bounded, so that the time stays linear in the text whatever it is.
_PATTERNS: Final = (
    ("token", re.compile(r"\b((?:ghp|gho|ghs|ghu|ghr|github_pat)_[A-Za-z0-9_]{20,})")),
    ("token", re.compile(r"\b(xox[abeprs]-[A-Za-z0-9-]{10,})")),
    ("token", re.compile(r"\b(xapp-[A-Za-z0-9-]{10,})")),
    ("token", re.compile(r"(?<![\w-])(\d{8,10}:[A-Za-z0-9_-]{35})(?![\w-])")),
    ("token", re.compile(r"\b(sk-[A-Za-z0-9_-]{20,})")),
    ("token", re.compile(r"\b(glpat-[A-Za-z0-9_-]{20,})")),
    ("key", re.compile(r"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b")),
    (
        "token",
        re.compile(
            r"(?<![\w.-])(eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})"
        ),
    ),
    ("secret", re.compile(r"(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{16,})")),
    (
        "secret",
        re.compile(
            r"(?i)(?:password|passwd|secret|api[_-]?key|token)[\"']?\s{0,8}[=:]\s{0,8}"
            r"[\"']?([^\s\"'`\\$(){};|&<>\[][^\s\"'`\\$(){};|&<>]{7,})"
        ),
    ),
    (
        "secret",
        re.compile(
            r"(?i)\s--?[a-z-]{0,32}(?:password|passwd|secret|api-?key|token)\s{1,8}"
            r"[\"']?([^\s\"'`\\$(){};|&<>\[-][^\s\"'`\\$(){};|&<>]{7,})"
        ),
    ),
    ("code", re.compile(r"#login=([A-Za-z0-9]{8,})")),
    ("password", re.compile(r"://[^\s/:@]{1,256}:([^\s/@\[][^\s/@]{2,512})@")),
)


def mask(text: str) -> str:
    """Return *text* with recognised credentials replaced by their kind and length."""
    for kind, pattern in _PATTERNS:
        text = pattern.sub(lambda found, kind=kind: _masked(found, kind), text)  # type: ignore[misc]
    return text


def _masked(found: re.Match[str], kind: str) -> str:
    whole, secret = found.group(0), found.group(1)
    start = found.start(1) - found.start(0)
    shown = f"[{kind}, {len(secret)} characters]"
    return whole[:start] + shown + whole[start + len(secret) :]
