"""Which ask ids may be in the file, without reading it: a Bloom filter.

A new ask has a random id, and has to be told from the repeat of an old one. Reading the
file for each would cost more than the ask itself. The filter never says no to an id that is
there; now and then it says maybe to one that is not, and then the file is read.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

BITS: Final = 1 << 23
_PROBES: Final = 4


class KnownIds:
    """Ids that may be known: 1 MiB, 1 in 10,000 wrong at 200,000 ids."""

    __slots__ = ("_bits",)

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._bits = bytearray(BITS // 8)
        for one in ids:
            self.add(one)

    def add(self, ask_id: str) -> None:
        """The file has this id, or will have it."""
        for place in _places(ask_id):
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, ask_id: str) -> bool:
        return all(self._bits[place >> 3] >> (place & 7) & 1 for place in _places(ask_id))


def _places(ask_id: str) -> list[int]:
    digest = hashlib.blake2b(ask_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return [
        int.from_bytes(digest[start : start + 4], "big") % BITS
        for start in range(0, 4 * _PROBES, 4)
    ]
