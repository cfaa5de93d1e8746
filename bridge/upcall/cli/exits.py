"""Exit codes: a promise to scripts."""

OK = 0
"""Answered, or done."""
FAILURE = 1
"""It could not be done; stderr says why and what to do."""
USAGE = 2
"""What was given cannot be used; stderr names it."""
NO_ANSWER = 3
"""The question ended without an answer, or had ended already."""
TIMED_OUT = 4
"""Nobody answered in time, and there was no default."""
INTERRUPTED = 130
"""Ctrl-C."""
SIGNAL_BASE = 128
"""Plus the signal's number: 143 for SIGTERM, 129 when the terminal was closed."""
