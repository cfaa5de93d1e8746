"""Masks recognised credentials in text. A mask has a kind and a length, never content.

Masking never changes what runs: only what is kept, logged or shown of it. A mask covers only
a run without white space or shell syntax, so that the shape of a command stays readable.
"""

import re
from typing import Final

# Each pattern's group 1 is what is masked.
_PATTERNS: Final = (
    ("token", re.compile(r"\b((?:ghp|gho|ghs|ghu|github_pat)_[A-Za-z0-9_]{20,})")),
    ("token", re.compile(r"\b(xox[abeprs]-[A-Za-z0-9-]{10,})")),
    ("token", re.compile(r"\b(xapp-[A-Za-z0-9-]{10,})")),
    ("token", re.compile(r"\b(\d{8,10}:[A-Za-z0-9_-]{35})\b")),
    ("token", re.compile(r"\b(sk-[A-Za-z0-9_-]{20,})")),
    ("token", re.compile(r"\b(glpat-[A-Za-z0-9_-]{20,})")),
    ("key", re.compile(r"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b")),
    ("token", re.compile(r"\b(eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})")),
    ("secret", re.compile(r"(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{16,})")),
    (
        "secret",
        re.compile(
            r"(?i)\b(?:[a-z0-9_-]*(?:password|passwd|secret|api[_-]?key|token))\s*[=:]\s*"
            r"[\"']?([^\s\"'`\\$(){};|&<>\[][^\s\"'`\\$(){};|&<>]{7,})"
        ),
    ),
    ("password", re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@]+:([^\s/@\[][^\s/@]{2,})@")),
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
