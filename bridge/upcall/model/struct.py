"""Changing a frozen struct by making a new one, with its type kept for type checkers."""

from typing import Any, TypeVar

import msgspec

StructT = TypeVar("StructT", bound=msgspec.Struct)


def replaced(row: StructT, **changes: Any) -> StructT:
    """Return a copy of *row* with *changes*."""
    return msgspec.structs.replace(row, **changes)
