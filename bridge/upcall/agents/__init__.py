"""Hosts that ask through hooks and protocols of their own; one module for each."""
