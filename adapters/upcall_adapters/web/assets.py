"""The files of the page, as they lie in the package."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file and its media type."""

    data: bytes
    content_type: str


def read_assets() -> Mapping[str, Asset]:
    """Return each file by its path on the site; `index.html` is `/`. Blocks."""
    found: dict[str, Asset] = {}
    for entry in files("upcall_adapters.web").joinpath("page").iterdir():
        name = entry.name
        kind = _TYPES.get(name.rpartition(".")[2])
        if kind is not None:
            path = "/" if name == "index.html" else f"/{name}"
            found[path] = Asset(entry.read_bytes(), kind)
    return found
