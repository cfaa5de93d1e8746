"""Sizes, counts and times of the protocols, each with its source."""

from typing import Final

# The session's endpoint: the peer's transport limits (its published protocol, version 3).
PROTOCOL_VERSION: Final = 3
MAX_INBOUND_BYTES: Final = 256 * 1024
MAX_OUTBOUND_BYTES: Final = 1024 * 1024
MAX_PREAUTH_HANDSHAKES: Final = 16
HANDSHAKE_DEADLINE_S: Final = 2.0

# Ours: what one connection may have waiting before it is closed with 1013.
MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
MAX_RESOLVED_KEPT: Final = 256

# An ask, on every way in.
MAX_QUESTION_CHARS: Final = 8192
MAX_DETAIL_BYTES: Final = 256 * 1024
# The same text in JSON, where a control character takes six bytes.
MAX_DETAIL_JSON_BYTES: Final = 768 * 1024
MAX_OPTIONS: Final = 100
MAX_LABEL_CHARS: Final = 200
MIN_DEADLINE_S: Final = 0.1
MAX_DEADLINE_S: Final = 365 * 86400.0
MAX_TEXT_CHARS: Final = 65536
MAX_TITLE_CHARS: Final = 200
MAX_TAGS: Final = 16
MAX_TAG_CHARS: Final = 64

# Files, both ways.
MAX_ATTACHMENT_BYTES: Final = 700 * 1024
MAX_FILE_BYTES: Final = 20 * 1024 * 1024
MAX_INLINE_IMAGES_BYTES: Final = 192 * 1024

# The hub's sockets.
LINE_PROTOCOL: Final = 1
MAX_LINE_BYTES: Final = 1024 * 1024
MAX_HELLO_BYTES: Final = 4096
HELLO_S: Final = 5.0
# All lines together that clients have begun and not ended.
MAX_PARTIAL_BYTES: Final = 64 * 1024 * 1024
MAX_FOREIGN_PARTIAL_BYTES: Final = 8 * 1024 * 1024
MAX_CLIENTS: Final = 8192
MAX_SILENT_CLIENTS: Final = 512
MAX_FOREIGN_CLIENTS: Final = 256
MAX_CLIENTS_OF_FOREIGN_USER: Final = 64
MAX_WATCHERS: Final = 64
MAX_OPEN_ASKS: Final = 10_000
MAX_OPEN_ASKS_OF_SESSION: Final = 4096
MAX_OPEN_ASKS_OF_FOREIGN_USER: Final = 64
MAX_SESSIONS: Final = 1024
MAX_ATTACHING: Final = 64
ANSWER_KEPT_S: Final = 30 * 86400.0
ASKER_GONE_S: Final = 5.0
RESTORED_WAIT_S: Final = 30.0
CONVERSATION_IDLE_S: Final = 600.0
IDLE_EXIT_S: Final = 600.0
