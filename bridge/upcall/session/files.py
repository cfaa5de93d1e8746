"""Files that a session attaches: as frames while they fit, by path on this computer beyond."""

import mimetypes
import os
from base64 import b64encode
from pathlib import Path
from typing import Final

from upcall.model.errors import UpcallError, UsageError
from upcall.model.frames import FileAttachment, ImageAttachment, sendable
from upcall.model.limits import MAX_ATTACHMENT_BYTES, MAX_FILE_BYTES
from upcall.model.text import one_line

_IMAGES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def attachment(
    session_id: str,
    source: str | os.PathLike[str] | bytes,
    *,
    name: str | None = None,
    mime: str | None = None,
    caption: str | None = None,
) -> ImageAttachment | FileAttachment:
    """Return the frame that attaches *source*. Reads the file; belongs off the loop.

    Args:
        session_id: the session.
        source: a path, or the bytes themselves.
        name: file name to show; of a path its own, needed with bytes that are no picture.
        mime: what it is; guessed from bytes and name.
        caption: one sentence below it.

    Raises:
        UsageError: the file cannot be read, or bytes have no name.
        UpcallError: `attachment_too_large`; bytes over 700 KiB, or a file over 20 MiB.
    """
    if isinstance(source, bytes):
        if len(source) > MAX_ATTACHMENT_BYTES:
            raise _too_large(len(source), MAX_ATTACHMENT_BYTES, "write it to a file instead")
        return _inline(session_id, source, name, mime, caption)
    path = Path(source)
    shown = one_line(str(path))
    try:
        # Whole and without symlinks: the hub opens it by this name and follows none.
        path = path.resolve(strict=True)
        size = path.stat().st_size
        if not path.is_file():
            raise UsageError(f"{shown} is not a file", code="attachment_unreadable")
        if size > MAX_FILE_BYTES:
            raise _too_large(size, MAX_FILE_BYTES, "attach a part of it")
        if size > MAX_ATTACHMENT_BYTES:
            return FileAttachment(
                session_id=session_id,
                name=sendable(name or path.name),
                mime=mime or mimetypes.guess_type(path.name)[0],
                caption=None if caption is None else sendable(caption),
                path=str(path),
            )
        data = path.read_bytes()
    except ValueError as exc:
        raise UsageError(
            f"{shown} cannot be read: a path has no NUL and no lone surrogate",
            code="attachment_unreadable",
        ) from exc
    except (OSError, RuntimeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "a loop of links"
        raise UsageError(
            f"{shown} cannot be read: {reason}", code="attachment_unreadable"
        ) from exc
    return _inline(session_id, data, name or path.name, mime, caption)


def image_type(data: bytes) -> str | None:
    """Return the type of a picture that a browser shows safely, proven by its first bytes."""
    for start, kind in _IMAGES.items():
        if data.startswith(start):
            return kind
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _inline(
    session_id: str, data: bytes, name: str | None, mime: str | None, caption: str | None
) -> ImageAttachment | FileAttachment:
    encoded = b64encode(data).decode("ascii")
    caption = None if caption is None else sendable(caption)
    picture = image_type(data)
    if picture is not None and mime in {None, picture}:
        return ImageAttachment(
            session_id=session_id,
            source="session",
            mime=picture,
            data=encoded,
            caption=caption if caption is not None else name and sendable(name),
        )
    if not name:
        raise UsageError("bytes need a name to be attached", code="attachment_unreadable")
    return FileAttachment(
        session_id=session_id,
        name=sendable(name),
        mime=mime or mimetypes.guess_type(name)[0],
        data=encoded,
        caption=caption,
    )


def _too_large(size: int, limit: int, instead: str) -> UpcallError:
    return UpcallError(
        f"the attachment has {size} bytes; the limit is {limit}",
        code="attachment_too_large",
        recover=instead,
    )
