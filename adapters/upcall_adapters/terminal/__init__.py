"""The terminal channel: `upcall watch` screens."""
