"""The daemon: it finds sessions, attaches to them, and brings their asks to people."""
