"""What one connection still has to be sent, bounded, with live text first to go."""

from collections.abc import Hashable


class Backlog:
    """Frames waiting for a client that reads more slowly than we write.

    Live text is worth nothing once there is newer text for the same message, so a frame with
    a `live` key replaces an earlier one with the same key, and all live frames are dropped
    before anything else is refused. Asks and resolutions are never dropped: when they do not
    fit, `add` says so, and the connection has to be closed.
    """

    __slots__ = ("_count", "_frames", "_limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        # Live frames under their key, all others under a number; dicts keep the order.
        self._frames: dict[Hashable, bytes] = {}
        self._count = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, data: bytes, live: Hashable | None = None) -> bool:
        """Append one frame; return False if it does not fit, whatever else is dropped.

        Args:
            data: the frame.
            live: key of the message of which it is live text; None for what must arrive.
        """
        if live is None:
            self._count += 1
            key: Hashable = self._count
        else:
            key = ("live", live)
            self._remove(key)
        if self.size_bytes + len(data) > self._limit_bytes:
            self._drop_live()
            if live is not None:
                return True
            if self.size_bytes + len(data) > self._limit_bytes:
                return False
        self._frames[key] = data
        self.size_bytes += len(data)
        return True

    def forget_live(self, live: Hashable) -> None:
        """Drop what waits as live text of a message whose final text is there."""
        self._remove(("live", live))

    def pop(self) -> bytes:
        """Remove and return the oldest frame.

        Raises:
            StopIteration: it is empty.
        """
        key = next(iter(self._frames))
        data = self._frames.pop(key)
        self.size_bytes -= len(data)
        return data

    def clear(self) -> None:
        """Drop everything."""
        self._frames.clear()
        self.size_bytes = 0

    def _remove(self, key: Hashable) -> None:
        data = self._frames.pop(key, None)
        if data is not None:
            self.size_bytes -= len(data)

    def _drop_live(self) -> None:
        for key in [key for key in self._frames if isinstance(key, tuple)]:
            self._remove(key)
