"""Strings that have broken terminals, logs and pages; every surface must survive them."""

from typing import Final

CORPUS: Final[tuple[str, ...]] = (
    "\x1b]0;title\x07", "\x1b]8;;http://example.com\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;aGk=\x07", "\x1b[2J", "\x1b[31mred\x1b[0m", "\x1b[1;1H", "\x1bc", "\x1b(0",
    "\x1b[?1049h", "\x1b[6n", "\x1bP+q\x1b\\", "\x9b2J", "\x9d0;title\x9c", "\x90q\x9c",
    "a\rb", "a\r\nb", "a\bb", "a\x07b", "a\x0bb", "a\x0cb", "a\x7fb", "a\x00b", "a\x1ab",
    "[/]", "[bold]x[/bold]", "[link=http://example.com]x[/link]", "*x*", "_x_", "`x`", "~x~",
    "<b>x</b>", "<script>alert(1)</script>", "&lt;b&gt;", "<!channel>", "<@U1>", "@everyone",
    "@here", "[x](http://example.com)", "||x||", "> quoted", "```\nx\n```", "# heading",
    "a\u2028b", "a\u2029b", "a\u0085b", "\u202eevil", "\u2066a\u2069", "\u200bYes",
    "Y\u0435s", "Yes\u200d", "\ufeffYes", "\u00adYes", "\u3164", "\u2800",
    "\U000e0041\U000e007f",    "\ud800", "a\udfffb", "e\u0301" * 50,
    "\U0001f469\u200d\U0001f4bb",
    "%s %n {} {0}", "$(id) `id`",
    "../../etc/passwd", "' OR 1=1 --", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
)  # fmt: skip
"""What agents, chat members and repositories may put into any text."""

LONG: Final = "x" * 200_000
"""One line without a place to break it."""
