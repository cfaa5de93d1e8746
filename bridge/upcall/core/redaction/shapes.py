"""Credentials that are known by their own form, whatever stands beside them."""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from upcall.core.redaction.spans import Span

_WORD: Final = "[A-Za-z0-9_]"
_DASHED: Final = "[A-Za-z0-9_-]"
_BACK_CHARS: Final = 3


class _Shape(NamedTuple):
    """A literal that every credential of one issuer has, and the rest of it.

    Attributes:
        begins: nothing that could belong to it stands before it, or it is another word.
    """

    literal: str
    pattern: re.Pattern[str]
    kind: str = "token"
    begins: bool = False
    is_one: Callable[[str], bool] | None = None


def _shape(
    literal: str,
    rest: str,
    kind: str = "token",
    *,
    begins: bool = False,
    is_one: Callable[[str], bool] | None = None,
) -> _Shape:
    # The pattern begins with the literal, which the search then looks for by itself.
    return _Shape(literal, re.compile(re.escape(literal) + rest), kind, begins, is_one)


def _mixed(text: str) -> bool:
    """Tell whether *text* is no row of words with hyphens between."""
    return any(char.isdigit() for char in text) or any(
        len(part) >= 16 for part in text.split("-")
    )


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)


def _after(size: int) -> Callable[[str], bool]:
    return lambda text: _has_digit(text[size:])


_SHAPES: Final = (
    # code forges and registries
    *(_shape(f"gh{one}_", "[A-Za-z0-9_]{20,}") for one in "psour"),
    _shape("github_pat_", "[A-Za-z0-9_]{20,}"),
    *(
        _shape(f"gl{one}-", f"{_DASHED}{{20,}}", begins=True, is_one=_mixed)
        for one in ("pat", "ptt", "soat", "ft", "rt", "cbt", "dt", "imt", "agent", "oas")
    ),
    _shape("GR1348941", f"{_DASHED}{{20,}}"),
    _shape("ATBB", "[A-Za-z0-9]{24,}", begins=True),
    _shape("ATATT3", "[A-Za-z0-9_=-]{40,}"),
    _shape("npm_", "[A-Za-z0-9]{30,}"),
    _shape("pypi-", f"{_DASHED}{{32,}}", begins=True, is_one=_mixed),
    _shape("rubygems_", "[0-9a-f]{40,}"),
    _shape("dckr_pat_", f"{_DASHED}{{20,}}"),
    _shape("cio", "[A-Za-z0-9]{32}(?![A-Za-z0-9])", begins=True, is_one=_after(3)),
    # chat
    *(_shape(f"xox{one}-", "[A-Za-z0-9-]{10,}") for one in "abeoprs"),
    _shape("xoxe.", "[A-Za-z0-9.-]{10,}"),
    _shape("xapp-", "[A-Za-z0-9-]{10,}", begins=True, is_one=_has_digit),
    # payment, mail, telephone
    *(
        _shape(f"{kind}_{mode}_", "[A-Za-z0-9]{16,}")
        for kind in ("sk", "rk")
        for mode in ("live", "test", "prod")
    ),
    _shape("whsec_", "[A-Za-z0-9+/=]{20,}"),
    _shape("sq0atp-", f"{_DASHED}{{22,}}"),
    _shape("sq0csp-", f"{_DASHED}{{40,}}"),
    _shape("SG.", f"{_DASHED}{{16,}}\\.{_DASHED}{{16,}}", begins=True),
    _shape("key-", "[0-9a-f]{32}(?![A-Za-z0-9])", begins=True),
    _shape("SK", "[0-9a-f]{32}(?![A-Za-z0-9])", begins=True),
    _shape("AC", "[0-9a-f]{32}(?![A-Za-z0-9])", begins=True),
    # language models
    _shape("sk-", f"{_DASHED}{{20,}}", begins=True, is_one=lambda text: _mixed(text[3:])),
    _shape("gsk_", "[A-Za-z0-9]{40,}", begins=True),
    _shape("hf_", "[A-Za-z0-9]{30,}", begins=True),
    _shape("r8_", "[A-Za-z0-9]{35,}", begins=True),
    _shape("pplx-", "[A-Za-z0-9]{40,}", begins=True),
    _shape("xai-", "[A-Za-z0-9]{40,}", begins=True),
    # clouds
    *(
        _shape(
            four,
            # One may follow on the other without anything between.
            "[A-Z0-9]{16}(?:(?![A-Za-z0-9])|(?=AKIA|ASIA))",
            "key",
            is_one=_after(0) if soft else None,
        )
        for four, soft in (
            ("AKIA", False), ("ASIA", False), ("ABIA", True), ("ACCA", True),
        )
    ),
    _shape("AIza", f"{_DASHED}{{35}}", "key"),
    _shape("ya29.", f"{_DASHED}{{20,}}"),
    _shape("GOCSPX-", f"{_DASHED}{{20,}}", "secret"),
    _shape("1//0", f"{_DASHED}{{20,}}", begins=True, is_one=_after(4)),
    _shape("AGE-SECRET-KEY-1", "[A-Z0-9]{40,}", "key"),
    *(_shape(f"do{one}_v1_", "[0-9a-f]{64}") for one in "opr"),
    _shape("dapi", "[0-9a-f]{32}(?:-\\d)?(?![A-Za-z0-9])", begins=True),
    *(_shape(f"hv{one}.", f"{_DASHED}{{20,}}", begins=True) for one in "sbr"),
    *(_shape(f"shp{one}_", "[0-9a-fA-F]{32}") for one in ("at", "ca", "pa", "ss")),
    *(_shape(f"pscale_{one}_", "[A-Za-z0-9_.-]{20,}") for one in ("tkn", "pw", "oauth")),
    *(_shape(f"gl{one}_", "[A-Za-z0-9+/=_-]{32,}", begins=True) for one in ("c", "sa")),
    *(_shape(f"sntry{one}_", "[A-Za-z0-9+/=_-]{40,}") for one in "su"),
    _shape("NRAK-", "[A-Z0-9]{27}"),
    _shape("lin_api_", "[A-Za-z0-9]{32,}"),
    _shape("ntn_", "[A-Za-z0-9]{40,}", begins=True),
    _shape("secret_", "[A-Za-z0-9]{43}(?![A-Za-z0-9])", begins=True, is_one=_after(7)),
    _shape("dp.pt.", "[A-Za-z0-9]{40,}"),
    _shape("sbp_", "[0-9a-f]{40}", begins=True),
    _shape("PMAK-", "[A-Za-z0-9-]{40,}"),
    _shape("tskey-", "[A-Za-z0-9-]{16,}", begins=True, is_one=_has_digit),
    _shape(".atlasv1.", "[A-Za-z0-9_=-]{40,}"),
    # everywhere
    _shape("#login=", "[A-Za-z0-9]{8,}", "code"),
)  # fmt: skip

# Each of these ends a known beginning that something cut off: the rest may be short.
_CUT: Final = re.compile(
    r"(?:gh[psour]_|github_pat_|glpat-|xox[abeoprs]-|sk-ant-|sk-proj-|[sr]k_live_|npm_|AKIA|ASIA"
    r"|AIza|ya29\.|GOCSPX-|hf_|SG\.|eyJ)[A-Za-z0-9_.-]{1,200}(?=…)"
    r"|(?<![A-Za-z0-9])(?:\d{6,12}:[A-Za-z0-9_-]{4,34}|(?:SK|AC|key-|dapi)[0-9a-f]{6,31}"
    r"|[A-Za-z0-9_.-]{3}\dQ~[A-Za-z0-9_~.-]{1,36}"
    r"|[MNO](?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{22,27}(?:\.[A-Za-z0-9_.-]{0,33})?)(?=…)"
)
# Looked for by its second part: a search by the first would begin anew at each `eyJ`.
_JWT: Final = re.compile(r"\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}")
_JWT_HEAD_CHARS: Final = 4096
_TELEGRAM: Final = re.compile(r":[A-Za-z0-9_-]{34,36}(?![A-Za-z0-9_-])")
_DISCORD: Final = re.compile(r"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}")
_AZURE: Final = re.compile(r"\dQ~[A-Za-z0-9_~.-]{31,36}")
_HOOKS: Final = re.compile(
    r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/-]{16,})"
    r"|/api(?:/v\d{1,2})?/webhooks/\d{5,25}/([A-Za-z0-9_-]{20,})"
    r"|\.webhook\.office\.com/webhookb2/([A-Za-z0-9@/-]{20,})"
)
_MAILCHIMP: Final = re.compile(r"[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])")
_IDENTITY: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def find_shapes(text: str) -> Iterator[Span]:
    """Yield the credentials of *text* that have a form of their own."""
    for shape in _SHAPES:
        if shape.literal in text:
            yield from _of(shape, text)
    if ".eyJ" in text:
        yield from _jwt(text)
    if ":" in text:
        yield from _telegram(text)
    if "Q~" in text:
        yield from _azure(text)
    if text.count(".") > 1:
        yield from _discord(text)
    if "hook" in text:
        for found in _HOOKS.finditer(text):
            group = next(number for number in (1, 2, 3) if found[number])
            yield Span(*found.span(group), "token", known=True)
    if "-us" in text:
        for found in _MAILCHIMP.finditer(text):
            if not _follows_word(text, found.start()):
                yield Span(*found.span(), "key", known=True)
    if "…" in text:
        for found in _CUT.finditer(text):
            yield Span(*found.span(), "token", known=True)


def _of(shape: _Shape, text: str) -> Iterator[Span]:
    for found in shape.pattern.finditer(text):
        start, end = found.span()
        if shape.begins and _follows_word(text, start):
            continue
        if shape.is_one is not None and not shape.is_one(found[0]):
            continue
        if shape.kind == "code":
            start += len(shape.literal)
        elif shape.literal == ".atlasv1.":
            start = _back(text, start, 14)
        yield Span(start, end, shape.kind, known=True)


def _follows_word(text: str, at: int) -> bool:
    """Tell whether a letter or digit stands before *at* that is no part of an escape."""
    if not at:
        return False
    before = text[at - 1]
    if before == "_" or before == "-":
        return True
    if not (before.isascii() and before.isalnum()):
        return False
    if at > 1 and text[at - 2] == "\\" and before in "nrt":
        return False
    return not (at > 2 and text[at - _BACK_CHARS] == "%")


def _back(text: str, at: int, most: int) -> int:
    """Return where the word that ends before *at* begins, at most *most* characters back."""
    start = at
    while start > 0 and at - start < most and text[start - 1] in _IDENTITY:
        start -= 1
    return start


def _jwt(text: str) -> Iterator[Span]:
    for found in _JWT.finditer(text):
        at = found.start()
        head = text.find("eyJ", _back(text, at, _JWT_HEAD_CHARS), at)
        if head >= 0 and at - head >= 11:
            yield Span(head, found.end(), "token", known=True)


def _telegram(text: str) -> Iterator[Span]:
    for found in _TELEGRAM.finditer(text):
        at = start = found.start()
        while start > 0 and at - start < 13 and "0" <= text[start - 1] <= "9":
            start -= 1
        if not 6 <= at - start <= 12:
            continue
        before = text[max(0, start - 3) : start]
        if before.endswith("bot") or not _follows_word(text, start):
            yield Span(start, found.end(), "token", known=True)


def _discord(text: str) -> Iterator[Span]:
    for found in _DISCORD.finditer(text):
        at = found.start()
        start = _back(text, at, 29)
        if text[start - 1 : start] == "\\" and text[start] in "nrt":
            start += 1
        head = text[start:at]
        if 23 <= len(head) <= 28 and head[0] in "MNO":
            yield Span(start, found.end(), "token", known=True)


def _azure(text: str) -> Iterator[Span]:
    for found in _AZURE.finditer(text):
        start = _back(text, found.start(), 3)
        if found.start() - start == 3:
            yield Span(start, found.end(), "secret", known=True)
