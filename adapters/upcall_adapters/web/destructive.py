"""Which questions read as if an answer could destroy something.

Such an answer waits `web.undo_s` on the page before it is sent, because a claim cannot be
taken back. It guards against a slip of the finger; a program that hides what it does has
nothing to fear from a list of words, and permission asks do not depend on it.
"""

import re
from functools import lru_cache
from typing import Final

from upcall.model.views import AskView

_MAX_CHARS: Final = 8_000
_WORDS: Final = re.compile(
    r"""\b(?:
        delet\w* | destroy\w* | destruct\w* | eras\w+ | wip(?:e|es|ed|ing) | purg\w+
      | overwrit\w* | truncat\w* | drop(?:s|ped|ping)? | discard\w* | remov\w+ | uninstall\w*
      | terminat\w+ | kill(?:s|ed|ing)? | shut(?:ting)?[ -]?down | reboot\w* | reformat\w*
      | roll(?:s|ed|ing)?[ -]?back | revert\w* | revok\w+ | irreversibl\w*
      | rm | rmdir | unlink | shred | dd | mkfs(?:\.\w+)? | git\s+reset | git\s+clean
      | reset\s+--hard | prune | lösch\w* | supprim\w+ | elimin(?:ar|a|e) | borrar
    )\b | --force\b | \bforce[ -]push""",
    re.IGNORECASE | re.VERBOSE,
)


def looks_destructive(ask: AskView) -> bool:
    """Return whether the question, its detail or one of its options names such an act."""
    texts = (ask.question, ask.detail or "", *ask.options, *(ask.option_details or ()))
    return _names_such_an_act(tuple(text[:_MAX_CHARS] for text in texts))


@lru_cache(maxsize=256)
def _names_such_an_act(texts: tuple[str, ...]) -> bool:
    # Pages are told of every open ask at every change; the words of most are the same then.
    return any(_WORDS.search(text) for text in texts)
