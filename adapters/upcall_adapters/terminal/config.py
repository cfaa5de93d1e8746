"""The terminal channel's table in the configuration: it has no settings."""

import msgspec


class TerminalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[channels.terminal]`; `enabled = false` turns it off."""
