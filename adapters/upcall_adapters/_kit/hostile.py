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
    # Without an end, with parameters that nobody else uses, and in the other alphabet.
    "\x1b]2;title", "\x1b[13;37H", "\x1b[45;33mx", "\x1b[?1047h", "\x1b[?2004h",
    "\x1b[3A\x1b[K", "\x1b^pm\x1b\\", "\x1b_apc\x1b\\", "\x1bXsos\x1b\\", "\x9epm\x9c",
    "\x9fapc\x9c", "\x0eab\x0f",
    "\x1b]8;;file:///etc/passwd\x07x\x1b]8;;\x07", "\x1b]52;c;?\x1b\\", "\x1b",
    # A line that looks like one of the log, and a sign that looks like the end of one.
    "x\n2026-01-01 00:00:00,000 INFO upcall answered by=you",
    "x\r\nTraceback (most recent call last):",
    '", "admin": true, "x": "', "\\u001b[2J", "\\x1b[2J", "\\", "'", "`rm -rf ~`", "${HOME}",
    "![x](http://example.com/x.png)", "<img src=x onerror=alert(1)>", "<!--", "]]>", "%1$n%x",
    "{0.__class__}", "{{7*7}}",
    "\u2067x\u2069", "a\u202ab\u202c", "a\u061cb", "a\u034fb", "a\ufe0fb", "a\ufe00b",
    "a\U000e0100b", "a\u200cb", "a\u2060b", "a\u180eb", "\ufffe", "\uffff", "\U0010ffff",
    "\ufff9a\ufffab\ufffb",
    "Z" + "\u0300\u0323\u0489" * 60, "\U0001f1e9\U0001f1ea", "\u00a0x\u3000", "\tx\t",
)  # fmt: skip
"""What agents, chat members and repositories may put into any text."""

LONG: Final = "x" * 200_000
"""One line without a place to break it."""
