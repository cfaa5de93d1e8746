"""Plain data that every room shares: ids, frames, rows, events, effects, errors."""
