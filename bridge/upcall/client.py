"""Connect to a session's endpoint, ours or a peer's."""

from upcall.session.client import (
    Connection,
    ConnectionEnded,
    ReplyRejectedError,
    SessionClient,
    open_connection,
)

__all__ = [
    "Connection",
    "ConnectionEnded",
    "ReplyRejectedError",
    "SessionClient",
    "open_connection",
]
