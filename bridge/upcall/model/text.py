"""Making text from outside safe to show, and telling labels apart.

One function, `visible`, stands between everything that did not come from our own source
and every terminal, log line, error message and title.
"""

import re
import unicodedata
from typing import Final

# Code points that show as nothing, or turn the reading order: a person must see that they
# are there. Unicode's Default_Ignorable_Code_Point and Bidi_Control, by range.
_IGNORABLE_RANGES: Final = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
# Emoji are spelled with these two; there they hide nothing.
_JOINERS: Final = frozenset("\u200d\ufe0f")
_BLANKS: Final = frozenset("\u2800\u3164\uffa0\u115f\u1160")
# Controls (C0, DEL, C1), surrogates, line and paragraph separators.
_CONTROLS: Final = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff" + "".join(
    f"{chr(low)}-{chr(high)}" for low, high in _IGNORABLE_RANGES
)
_ESCAPED: Final = re.compile(f"[\\t\\n{_CONTROLS}]")
_ESCAPED_IN_BLOCK: Final = re.compile(f"[{_CONTROLS}]")
_UNSENDABLE: Final = re.compile("[\\x00\\ud800-\\udfff]")


def is_ignorable(char: str) -> bool:
    """Tell whether *char* is shown as nothing or changes the reading order."""
    point = ord(char)
    return any(low <= point <= high for low, high in _IGNORABLE_RANGES)


def is_blank(char: str) -> bool:
    """Tell whether *char* is white space, or a letter or symbol that shows none."""
    return char.isspace() or char in _BLANKS


def escape(char: str) -> str:
    """Return a visible escape for one character: its code point in hexadecimal."""
    point = ord(char)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def visible(text: str, *, newlines: bool = False) -> str:
    """Return *text* with every control, invisible and surrogate character as an escape.

    The characters that join emoji stay where they do just that.

    Args:
        text: anything, also with lone surrogates.
        newlines: keep line feeds and tabs, for a block of text; a CR LF becomes one LF.
    """
    if text.isascii() and text.isprintable():
        return text
    if newlines:
        return _ESCAPED_IN_BLOCK.sub(_escaped, text.replace("\r\n", "\n"))
    return _ESCAPED.sub(_escaped, text)


def is_escaped(text: str, at: int) -> bool:
    """Tell whether `visible` writes the character of *text* at index *at* as an escape."""
    char = text[at]
    return bool(_ESCAPED.match(char)) and not (char in _JOINERS and _joins(text, at))


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char in _JOINERS and _joins(found.string, found.start()):
        return char
    return escape(char)


def _joins(text: str, at: int) -> bool:
    """Tell whether the joiner at *at* stands where emoji are spelled with it."""
    if not at:
        return False
    before, after = text[at - 1], text[at + 1 : at + 2]
    if text[at] == "\ufe0f":
        return _is_picture(before) or (before in "0123456789#*" and after == "\u20e3")
    return (before == "\ufe0f" or _is_picture(before)) and bool(after) and _is_picture(after)


def _is_picture(char: str) -> bool:
    # Letters and signs that are also drawn as emoji, and skin tones beside all symbols.
    if char in "\u203c\u2049\u2139\u3030" or "\U0001f3fb" <= char <= "\U0001f3ff":
        return True
    return char > "\x7f" and unicodedata.category(char) in {"So", "Sm"}


def one_line(text: str, limit_chars: int = 200) -> str:
    """Return *text* visible, on one line, and at most *limit_chars* characters long."""
    # Blanks are joined, so more is read than is shown, but not without end.
    head = text[: limit_chars * 4]
    shown = visible(" ".join(head.split()))
    if len(shown) <= limit_chars and len(head) == len(text):
        return shown
    return shown[: limit_chars - 1] + "…"


def printable_answer(text: str) -> str:
    """Return an answer as `upcall ask` prints it: no control characters but tab and newline."""
    return "".join(
        char
        for char in text
        if char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cs"}
    )


def unpaired_surrogate_or_nul(text: str) -> int | None:
    """Return the index of the first NUL or surrogate in *text*, which nothing may carry."""
    found = _UNSENDABLE.search(text)
    return None if found is None else found.start()


def fold_label(label: str) -> str:
    """Return *label* as it is compared: case folded, outer blanks removed."""
    return label.strip().casefold()


def bare_label(label: str) -> str:
    """Return what a person sees of *label*: NFKC, folded, no invisible and blank characters."""
    if label.isascii() and label.isprintable():
        return label.casefold().replace(" ", "")
    normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold())
    return "".join(char for char in normal if not is_ignorable(char) and not is_blank(char))


def code_points(text: str, limit: int = 12) -> str:
    """Return *text* as code points in words, such as `U+0059 U+0435 U+0073`."""
    shown = " ".join(f"U+{ord(char):04X}" for char in text[:limit])
    return shown + (" …" if len(text) > limit else "")


def shown_code_point(char: str) -> str:
    """Return one character in words, such as `U+0435 CYRILLIC SMALL LETTER IE`."""
    point = f"U+{ord(char):04X}"
    name = unicodedata.name(char, "")
    return f"{point} {name}" if name else f"{point} (a character without a name)"
