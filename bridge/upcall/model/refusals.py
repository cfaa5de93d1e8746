"""Which labels of a permission ask say no. Every other one is taken for a yes."""

import re
from typing import Final

_SAYS_NO: Final = frozenset(
    {
        *("abort", "block", "cancel", "cancelled", "decline", "denied", "deny", "disallow"),
        *("disagree", "dismiss", "forbid", "never", "no", "nope", "not", "quit", "refuse"),
        *("reject", "rejected", "skip", "stop", "don't", "dont", "nein", "non"),
    }
)
# Words that change nothing about it. A verb is among them only after a "don't".
_BESIDE: Final = frozenset(
    {
        *("a", "all", "always", "and", "any", "ask", "command", "do", "exit", "for", "forever"),
        *("it", "later", "me", "now", "once", "please", "request", "session", "thank"),
        *("thanks", "that", "the", "them", "this", "time", "today", "tool", "you"),
    }
)
_VERBS: Final = frozenset(
    {"allow", "apply", "delete", "deploy", "do", "execute", "permit", "run"}
)
_WORD: Final = re.compile(r"[a-z]+(?:'[a-z]+)?")
_AROUND: Final = " \t.,;:!-–—()[]✗✘×❌🚫⛔👎"


def is_refusal(label: str) -> bool:
    """Tell whether *label* plainly says no, and nothing else.

    What is only similar ("No problem, go ahead"), or written with letters that only look like
    these, is none: a yes that is taken for a no could be given without being read.
    """
    plain = label.strip(_AROUND).replace("’", "'").casefold()
    rest = _WORD.sub("", plain)
    if not plain or rest.strip(_AROUND):
        return False
    words = _WORD.findall(plain)
    if words[:2] == ["do", "not"] or words[0] in {"don't", "dont"}:
        # Not to stop is to go on.
        return set(words[1:]) <= _BESIDE | _VERBS | {"not"}
    if words[0] in {"never", "not"}:
        return set(words[1:]) <= _BESIDE
    return words[0] in _SAYS_NO and set(words) <= _SAYS_NO | _BESIDE
