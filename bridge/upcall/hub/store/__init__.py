"""The hub's one SQLite file: rows in by group commit, a snapshot and history out."""

from upcall.hub.store.db import Store
from upcall.hub.store.errors import StoreError

__all__ = ["Store", "StoreError"]
