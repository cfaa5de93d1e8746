"""Channels: one folder for each kind, found by its name in the configuration.

A folder becomes an adapter by a module `spec` with a `SPEC` (see `upcall.model.platform`).
"""
