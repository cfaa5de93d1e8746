"""Other people's adapters: where their code is, and that nobody else can change it.

What is loaded into the hub can do what the hub can. So its code, every file of it, and every
folder from the root down to it must belong to this user or root and be writable by no one
else; otherwise whoever can write there could take the hub over.
"""

import importlib.util
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Final

from upcall.model.errors import ConfigInvalid
from upcall.model.text import one_line, visible

MAX_FILES: Final = 20_000
_MAX_LINKS: Final = 40


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose an adapter is.

    Attributes:
        package: the distribution that brings it, or None if that does not say.
        version: of that distribution.
        module: the module that is loaded.
        path: its file or folder.
        parts: every file or folder of its code.
    """

    package: str | None
    version: str | None
    module: str
    path: str
    parts: tuple[str, ...]


def origin_of(adapter: str, point: EntryPoint) -> Origin:
    """Return where the adapter's code is; nothing of it is run.

    Raises:
        ConfigInvalid: it is nowhere, or not in files.
    """
    # The outermost package only: to look for one within it would load it.
    top = point.module.partition(".")[0]
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError) as exc:
        raise _not_found(adapter, top) from exc
    if found is None:
        raise _not_found(adapter, top)
    parts = list(found.submodule_search_locations or ())
    if not parts and found.has_location and found.origin:
        parts = [found.origin]
    if not parts or not all(os.path.isabs(one) and os.path.exists(one) for one in parts):
        raise ConfigInvalid(
            f"the adapter {visible(adapter)!r} is not in files of this computer; it is not "
            "loaded",
            code="adapter_unsafe",
        )
    # What brings the entry point says what is loaded: it counts as code.
    named = getattr(point.dist, "_path", None)
    if named is not None and os.path.isabs(str(named)):
        parts.append(str(named))
    name = None if point.dist is None else point.dist.metadata["Name"]
    version = None if point.dist is None else point.dist.version
    return Origin(
        None if name is None else one_line(name, 80),
        None if version is None else one_line(str(version), 40),
        point.module,
        parts[0],
        tuple(parts),
    )


def check_code(adapter: str, origin: Origin) -> None:
    """Refuse code that somebody else could change.

    Raises:
        ConfigInvalid: `adapter_unsafe`; the message names the file or folder and its fault.
    """
    looked_at: set[str] = set()
    try:
        for part in origin.parts:
            for path in (*_chain(part), *_tree(part)):
                if path in looked_at:
                    continue
                looked_at.add(path)
                if len(looked_at) > MAX_FILES:
                    raise _unsafe(adapter, part, f"has more than {MAX_FILES} files")
                fault = _fault(os.lstat(path))
                if fault is not None:
                    raise _unsafe(adapter, path, fault)
    except OSError as exc:
        where = str(exc.filename or origin.path)
        raise _unsafe(adapter, where, exc.strerror or "cannot be looked at") from exc


def _fault(info: os.stat_result) -> str | None:
    if info.st_uid not in {0, os.geteuid()}:
        return f"belongs to another user (uid {info.st_uid})"
    mode = info.st_mode
    if stat.S_ISLNK(mode) or not mode & 0o022:
        return None
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:
        return None  # as /tmp: nobody can replace there what is not theirs
    return "can be written by others than its owner"


def _chain(path: str) -> Iterator[str]:
    """Yield every folder, link and file on the way from the root to *path*."""
    left, links = [*reversed(path.split("/"))], 0
    at = "/"
    yield at
    while left:
        name = left.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        step = os.path.join(at, name)
        yield step
        if not os.path.islink(step):
            at = step
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(40, "too many links", path)
        target = os.readlink(step)
        left += reversed(target.split("/"))
        if target.startswith("/"):
            at = "/"


def _tree(path: str) -> Iterator[str]:
    """Yield what is loaded with *path*: all in a folder; of a file, its compiled forms."""
    if not os.path.isdir(path):
        cache = os.path.join(os.path.dirname(path), "__pycache__")
        if os.path.isdir(cache):
            yield cache
            stem = os.path.splitext(os.path.basename(path))[0]
            with os.scandir(cache) as entries:
                yield from (one.path for one in entries if one.name.startswith(f"{stem}."))
        return
    folders, seen = [os.path.realpath(path)], set()
    while folders:
        folder = folders.pop()
        if folder in seen:
            continue
        seen.add(folder)
        with os.scandir(folder) as entries:
            for one in entries:
                yield one.path
                if one.is_symlink():
                    # It may lead anywhere: the whole way there counts.
                    yield from _chain(one.path)
                if one.is_dir():
                    folders.append(os.path.realpath(one.path))


def _not_found(adapter: str, module: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"the adapter {visible(adapter)!r} cannot be loaded: there is no module "
        f"{one_line(module, 80)!r}",
        code="adapter_broken",
        recover="install its package again",
    )


def _unsafe(adapter: str, path: str, fault: str) -> ConfigInvalid:
    shown = one_line(path, 300)
    return ConfigInvalid(
        f"the adapter {visible(adapter)!r} is not loaded: {shown} {fault}; what the hub runs "
        "must be yours alone",
        code="adapter_unsafe",
        recover=f"chmod go-w {shown}, and see that it belongs to you or root",
    )
